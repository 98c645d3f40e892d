//! What the tests of all rooms run on: real parts and made worlds. In and out: see each module.
//! Deliberately absent: anything that ships.

pub mod conformance;
pub mod lab;
pub mod real;
pub mod sim;
pub mod tidy;
