//! The built agent against real parts: killed, cut off, lied to, and watched from outside.
//!
//! One program, as linking one costs more than running it.

mod change;
mod content;
mod foreign;
mod ground;
mod idle;
mod kill;
mod neighbour;
mod power;
mod readiness;
mod retention;
mod room;
mod service;
mod survive;
