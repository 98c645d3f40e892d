//! The `stokehold` program: reads its command line, does what it says, and ends with a code.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use stokehold::cli::{Cli, Command, Exit, affinity, plan, run, stage, status, why};

fn main() -> ExitCode {
    // Before anything else: it must come before the first thread and the first look-up of a name.
    stokehold_host::machine::resolve_names_without_plugins();
    // Only fails where one is installed already.
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let exit = go(Cli::parse().command).unwrap_or_else(|error| {
        eprintln!("stokehold: {error:#}");
        Exit::Failed
    });
    exit.into()
}

fn go(command: Command) -> Result<Exit> {
    match command {
        Command::Run(flags) => Ok(run::run(&flags)?),
        Command::Status(flags) => Ok(status::run(&flags)?),
        Command::Why(flags) => Ok(why::run(&flags)?),
        Command::Plan(flags) => Ok(plan::run(&flags)?),
        Command::Affinity(flags) => Ok(affinity::run(&flags)),
        Command::Stage(flags) => Ok(stage::run(&flags)?),
    }
}
