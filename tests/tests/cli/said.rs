//! One run of the program to its end.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::Value;
use stokehold_tests::lab::agent::Agent;

/// Longest wait for a command: many times what it takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// The object that standard output ends with.
    pub(crate) fn object(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("{self:?}"))
    }
}

/// Runs the program with these arguments and variables; its home is `folder`.
pub(crate) fn say(folder: &Path, environment: &[(String, String)], args: &[&str]) -> Result<Said> {
    for name in ["stdout", "stderr"] {
        // What an earlier command said is not what this one says.
        drop(fs::remove_file(folder.join(name)));
    }
    let running = Agent::new(folder, args)?.envs(environment.iter().cloned()).start()?;
    let exit = running.wait(LIMIT)?;
    Ok(Said { code: exit.status.code(), stdout: running.stdout(), stderr: running.stderr() })
}
