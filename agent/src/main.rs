//! The `stokehold` binary.
fn main() {}
