//! The program as people and scripts use it: its words, its exit codes, and what it leaves behind.
//!
//! One program, as linking one costs more than running it.

mod run;
mod said;
mod stage;
