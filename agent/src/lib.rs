//! When things happen: what the `stokehold` binary is made of.

pub mod desired_folder;
