//! Origins do what every origin must, say what went wrong, and never take bytes on trust.
//!
//! One program, as linking one costs more than running it.

mod fault;
mod ground;
mod node_path;
mod rule;
mod scripted;
mod service;
