//! When things happen: what the `stokehold` binary is made of.

pub mod cli;
pub mod config;
pub mod data_plane;
pub mod desired_folder;
pub mod job;
pub mod metrics;
pub mod node;
pub mod run_loop;
pub mod server;
pub mod service;
pub mod streams;
pub mod world;
mod yaml;
