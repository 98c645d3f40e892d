//! `stokehold why NAME`: why a cache is not ready, in one sentence for each reason.

use clap::Args;
use stokehold_core::plan::Phase;

use super::Exit;
use super::ask::{Agent, AskError, SocketFlags, runtime};
use super::output::{Format, print, render};
use super::status::{is_held, is_ready, line};
use crate::server::view::{CacheStatus, StatusView};

/// Say why a cache is not ready.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 ready or on its way, 1 failed or not asked for, 3 held.")]
pub struct WhyFlags {
    /// The cache, as NAMESPACE/NAME, or NAME where only one has it
    name: String,
    #[command(flatten)]
    socket: SocketFlags,
    /// In which form
    #[arg(long, value_enum, default_value_t)]
    output: Format,
}

/// Why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The agent does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// No cache has that name.
    #[error("nothing asks this node for {name}; {others}")]
    Unknown {
        /// As it was given.
        name: String,
        /// What there is instead.
        others: String,
    },
    /// Several caches have it.
    #[error("{name} is in several namespaces: {found}")]
    Several {
        /// As it was given.
        name: String,
        /// All of them.
        found: String,
    },
}

/// Prints it.
///
/// # Errors
/// [`WhyError`] where the agent does not answer or does not know the cache.
pub fn run(flags: &WhyFlags) -> Result<Exit, WhyError> {
    let agent = Agent::of(&flags.socket);
    let status = runtime()?.block_on(agent.get::<StatusView>("/v1/status"))?;
    let cache = named(&flags.name, &status)?;
    print(&render(cache, flags.output, text));
    Ok(if is_held(cache) { Exit::Held } else { Exit::Done })
}

fn named<'a>(name: &str, status: &'a StatusView) -> Result<&'a CacheStatus, WhyError> {
    let is_meant = |status: &&CacheStatus| status.cache.to_string() == name || status.cache.name.as_str() == name;
    let found: Vec<&CacheStatus> = status.caches.iter().filter(is_meant).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(WhyError::Unknown { name: name.to_owned(), others: others(status) }),
        several => {
            let names: Vec<String> = several.iter().map(|cache| cache.cache.to_string()).collect();
            Err(WhyError::Several { name: name.to_owned(), found: names.join(", ") })
        }
    }
}

/// What is asked for, and what could not be read: the name may stand in that.
fn others(status: &StatusView) -> String {
    let names: Vec<String> = status.caches.iter().map(|cache| cache.cache.to_string()).collect();
    let mut text = if names.is_empty() {
        "it is asked for nothing".to_owned()
    } else {
        format!("it is asked for {}", names.join(", "))
    };
    for hold in status.holds.iter().filter(|hold| hold.reason == "Rejected") {
        text += &format!("; {}: {}", hold.subject, hold.message);
    }
    text
}

fn text(status: &CacheStatus) -> String {
    let name = &status.cache;
    let mut text = String::new();
    if is_ready(status) {
        let snapshot = status.served.map(|served| format!(": snapshot {served}, {}", status.bytes_total));
        let proof = status.verified.map(|verified| format!(", verified by {}", verified.name()));
        text += &format!("{name} is ready{}{}\n", snapshot.unwrap_or_default(), proof.unwrap_or_default());
    }
    for hold in &status.holds {
        let verb = if hold.stands_in_the_way { "is held" } else { "has a note" };
        text += &format!("{name} {verb}: {}: {}\n", hold.reason, hold.message);
    }
    if text.is_empty() {
        text = match status.phase {
            Phase::Staging => format!("{name} is being staged: {}\n", line(status)),
            Phase::Ready | Phase::Held | Phase::Cold if status.jobs.is_empty() => {
                format!("{name} is not here yet, and nothing stands in its way\n")
            }
            Phase::Ready | Phase::Held | Phase::Cold => {
                format!("{name} is not here yet; now: {}\n", status.jobs.join(", "))
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::{cache, hold, node};
    use super::*;

    #[test]
    fn p07_why_says_a_sentence_with_numbers_for_each_reason() {
        let ready = cache("inference/llama", Phase::Ready);
        assert_eq!(text(&ready), "inference/llama is ready: snapshot 1f1f1f1f1f1f1f1f, 4.0 GiB, verified by crc\n");
        let mut held = cache("inference/llama", Phase::Held);
        held.holds = vec![hold("NoRoom", "needs 140.0 GiB, and 12.0 GiB can be promised")];
        assert_eq!(text(&held), "inference/llama is held: NoRoom: needs 140.0 GiB, and 12.0 GiB can be promised\n");
        let staging = cache("inference/llama", Phase::Staging);
        assert_eq!(text(&staging), "inference/llama is being staged: 1.0 GiB of 4.0 GiB, 1.0 GiB/s, 3s left\n");
        let mut cold = cache("inference/llama", Phase::Cold);
        assert_eq!(text(&cold), "inference/llama is not here yet, and nothing stands in its way\n");
        cold.jobs = vec!["list".to_owned()];
        assert_eq!(text(&cold), "inference/llama is not here yet; now: list\n");
    }

    #[test]
    fn a_name_is_enough_where_only_one_namespace_has_it() {
        let node =
            node(vec![cache("a/llama", Phase::Ready), cache("b/llama", Phase::Ready), cache("b/qwen", Phase::Cold)]);
        assert_eq!(named("qwen", &node).expect("one").cache.to_string(), "b/qwen");
        assert_eq!(named("a/llama", &node).expect("one").cache.to_string(), "a/llama");
        let several = named("llama", &node).expect_err("two").to_string();
        assert_eq!(several, "llama is in several namespaces: a/llama, b/llama");
        let none = named("x", &node).expect_err("none").to_string();
        assert_eq!(none, "nothing asks this node for x; it is asked for a/llama, b/llama, b/qwen");
    }
}
