//! What touches the machine: the cache tree, durable files, users of bytes, facts of the machine.
//!
//! In go file operations as core writes them and bytes as an origin fills them; out come answers and typed refusals. Everything
//! is synchronous: who calls decides which thread waits. Deliberately absent: choices. What is to be done was decided in core.

pub mod disk;
pub mod durable;
mod fault;
pub mod machine;
pub mod marker;
pub mod part;
pub mod root;
mod sys;
pub mod users;
