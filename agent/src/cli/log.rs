//! The log: to standard error, as text for people or JSON for machines.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts it. Of what is not ours, warnings are enough.
pub(super) fn start(log: Log) {
    let filter = EnvFilter::new(format!("warn,stokehold={}", log.level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start in one process keeps the first log.
    let _started = match log.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
