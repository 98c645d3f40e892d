//! The command line: what may be said, and with which code the program ends.
//!
//! In go words, out come checked commands; each command is a module. Deliberately absent: what the agent does.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::RunFlags;

pub mod affinity;
mod ask;
mod log;
mod output;
pub mod plan;
pub mod run;
pub mod stage;
pub mod status;
pub mod why;

pub use output::Format;

/// Keeps AI inference nodes hot: model weights on local NVMe before a replica asks
#[derive(Debug, Parser)]
#[command(version, after_help = "Exit codes: 0 ok, 1 failed, 2 usage, 3 held.", max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent until it is told to stop
    Run(RunFlags),
    /// Show what this node is asked for and what is here of it
    Status(status::StatusFlags),
    /// Say in one sentence why a cache is not ready
    Why(why::WhyFlags),
    /// Show what the last pass would do, and what it would not
    Plan(plan::PlanFlags),
    /// Stage one source to a folder, once: whole and verified, or not at all
    Stage(stage::StageFlags),
    /// Print the node affinity that sends pods to nodes where a cache is ready
    Affinity(affinity::AffinityFlags),
}

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Done,
    /// It failed; standard error says why.
    Failed,
    /// What was asked for is held; the output says why.
    Held,
    /// A person stopped it, or a signal did.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            // 2 is clap's, for usage.
            Exit::Held => 3,
            // As shells have it: 128 and the number of SIGINT.
            Exit::Interrupted => 130,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_well_formed_and_stands_in_the_documentation() {
        Cli::command().debug_assert();
        let text = include_str!("../../docs/COMMANDS.md");
        let missing: Vec<String> = Cli::command()
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .filter(|name| !text.contains(&format!("| `{name}")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
