//! `stokehold status`: what this node is asked for and what is here of it, once or until it is settled.
//!
//! In goes the status of the agent, out come a table, JSON or YAML. Deliberately absent: judgements that the agent did not make.

use std::time::Duration;

use clap::Args;
use stokehold_core::plan::Phase;
use stokehold_core::quantity::Bytes;
use stokehold_core::report::ConditionStatus;
use stokehold_core::time::Period;

use super::Exit;
use super::ask::{Agent, AskError, SocketFlags, runtime};
use super::output::{Format, duration, print, render, table};
use crate::server::view::{CacheStatus, HoldView, RootState, StatusView};

mod settle;
mod watch;

/// How long `--wait` waits where nothing is said: the largest model of today through a slow link.
const WAIT_DEFAULT: &str = "1h";

/// Show what is here.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes of --watch and --wait: 0 all is ready, 1 failed or too late, 3 something is held.")]
pub struct StatusFlags {
    #[command(flatten)]
    socket: SocketFlags,
    /// In which form
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    /// Show progress until all is ready or held
    #[arg(long)]
    watch: bool,
    /// Wait until all is ready or held, at most so long
    #[arg(long, value_name = "TIMEOUT", num_args = 0..=1, default_missing_value = WAIT_DEFAULT, value_parser = period)]
    wait: Option<Duration>,
}

fn period(text: &str) -> Result<Duration, String> {
    Period::try_from(text.to_owned()).map(|period| period.0).map_err(|bad| bad.to_string())
}

/// Why there is no status to show.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The agent does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It was not settled in time.
    #[error("after {after:?} not everything is ready: {left}")]
    Late {
        /// How long was waited.
        after: Duration,
        /// What is not.
        left: String,
    },
}

/// Prints the status.
///
/// # Errors
/// [`StatusError`] where the agent does not answer, or all is not settled in time.
pub fn run(flags: &StatusFlags) -> Result<Exit, StatusError> {
    let agent = Agent::of(&flags.socket);
    let runtime = runtime()?;
    if !flags.watch && flags.wait.is_none() {
        let status = runtime.block_on(agent.get::<StatusView>("/v1/status"))?;
        print(&render(&status, flags.output, text));
        return Ok(Exit::Done);
    }
    let (exit, status) = runtime.block_on(watch::until_settled(&agent, flags.watch, flags.wait))?;
    print(&render(&status, flags.output, text));
    Ok(exit)
}

/// Whether all that a cache asks for is here, as its condition says.
pub(super) fn is_ready(cache: &CacheStatus) -> bool {
    cache.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == ConditionStatus::True)
}

/// Whether something keeps a cache from being ready.
pub(super) fn is_held(cache: &CacheStatus) -> bool {
    !is_ready(cache) && cache.holds.iter().any(|hold| hold.stands_in_the_way)
}

/// For people.
fn text(status: &StatusView) -> String {
    let mut text = match &status.root {
        RootState::Usable(root) => format!(
            "node {}: {} has {} free of {}, {} of it stay free for others\n",
            status.node, root.path, root.available, root.capacity, root.headroom
        ),
        RootState::Unusable(why) => format!("node {}: the cache root cannot be used: {why}\n", status.node),
    };
    if status.caches.is_empty() {
        text += "nothing is asked of this node\n";
    } else {
        let rows = status.caches.iter().map(row).collect();
        text += &table(["CACHE", "PHASE", "SNAPSHOT", "BYTES", "RATE", "ETA", "VERIFIED", "HOLDS"], rows);
    }
    let of_caches = status.caches.iter().flat_map(|cache| &cache.holds);
    for hold in status.holds.iter().chain(of_caches) {
        text += &format!("{}: {}: {}\n", hold.subject, hold.reason, hold.message);
    }
    text
}

fn row(cache: &CacheStatus) -> [String; 8] {
    let none = || "-".to_owned();
    let bytes = match (cache.bytes_done, cache.bytes_total) {
        (_, Bytes::ZERO) => none(),
        (done, total) if done >= total => total.to_string(),
        (done, total) => format!("{done} of {total}"),
    };
    let is_moving = cache.rate > Bytes::ZERO;
    [
        cache.cache.to_string(),
        format!("{:?}", cache.phase),
        cache.served.or(cache.target).map_or_else(none, |snapshot| snapshot.to_string()),
        bytes,
        if is_moving { format!("{}/s", cache.rate) } else { none() },
        cache.eta_seconds.map_or_else(none, duration),
        cache.verified.map_or_else(none, |verified| verified.name().to_owned()),
        reasons(&cache.holds),
    ]
}

/// The first reason, and how many more there are.
fn reasons(holds: &[HoldView]) -> String {
    match holds {
        [] => "-".to_owned(),
        [one] => one.reason.clone(),
        [first, more @ ..] => format!("{} +{}", first.reason, more.len()),
    }
}

/// How far one cache is, in a line.
pub(super) fn line(cache: &CacheStatus) -> String {
    let held = cache.holds.iter().find(|hold| hold.stands_in_the_way);
    match (cache.phase, held) {
        _ if is_ready(cache) => format!("ready, {}", cache.bytes_total),
        (Phase::Staging, _) => {
            let eta = cache.eta_seconds.map(|seconds| format!(", {} left", duration(seconds)));
            let rate = (cache.rate > Bytes::ZERO).then(|| format!(", {}/s", cache.rate));
            let (rate, eta) = (rate.unwrap_or_default(), eta.unwrap_or_default());
            format!("{} of {}{rate}{eta}", cache.bytes_done, cache.bytes_total)
        }
        (_, Some(hold)) => format!("held: {}: {}", hold.reason, hold.message),
        (Phase::Ready | Phase::Held | Phase::Cold, None) if cache.jobs.is_empty() => "not here yet".to_owned(),
        (Phase::Ready | Phase::Held | Phase::Cold, None) => format!("not here yet; now: {}", cache.jobs.join(", ")),
    }
}

#[cfg(test)]
pub(super) mod tests;
