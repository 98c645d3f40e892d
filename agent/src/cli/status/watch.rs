//! Asking again and again until a node is settled, with progress on standard error if somebody wants to see it.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use stokehold_core::name::CacheId;
use tokio::time::sleep;

use super::settle::{Settling, Verdict};
use super::{StatusError, is_ready, line};
use crate::cli::Exit;
use crate::cli::ask::{Agent, AskError};
use crate::server::view::StatusView;

/// How often the agent is asked where bars are drawn, and where lines are written.
const DRAW_PERIOD: Duration = Duration::from_millis(250);
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// An agent that was just started, or is started anew, answers within this.
const ABSENT_MAX: Duration = Duration::from_secs(30);
/// Parts of a bar.
const TEMPLATE: &str = "{prefix} {bar:30} {msg}";

/// Waits until all is ready or held, at most for `limit`.
pub(super) async fn until_settled(
    agent: &Agent,
    is_shown: bool,
    limit: Option<Duration>,
) -> Result<(Exit, StatusView), StatusError> {
    let begun = Instant::now();
    let mut heard = begun;
    let mut settling = Settling::default();
    let mut screen = Screen::new(is_shown);
    loop {
        let is_late = limit.is_some_and(|limit| begun.elapsed() >= limit);
        match agent.get::<StatusView>("/v1/status").await {
            Ok(status) => {
                heard = Instant::now();
                screen.show(&status);
                match settling.look(&status, begun.elapsed()) {
                    Verdict::Ready => return Ok((Exit::Done, status)),
                    Verdict::Held => return Ok((Exit::Held, status)),
                    Verdict::Moving if is_late => {
                        let left = status.caches.iter().filter(|cache| !is_ready(cache));
                        let left: Vec<String> =
                            left.map(|cache| format!("{} ({})", cache.cache, line(cache))).collect();
                        return Err(StatusError::Late { after: limit.unwrap_or_default(), left: left.join("; ") });
                    }
                    Verdict::Moving => {}
                }
            }
            Err(error @ (AskError::Unreadable { .. } | AskError::Start { .. })) => return Err(error.into()),
            Err(error @ (AskError::Nobody { .. } | AskError::NoAnswer { .. } | AskError::Refused { .. })) => {
                if is_late || heard.elapsed() >= ABSENT_MAX {
                    return Err(error.into());
                }
                screen.wait_for(agent);
            }
        }
        sleep(screen.period()).await;
    }
}

/// Where progress is shown.
enum Screen {
    /// Nowhere.
    Dark,
    /// On a terminal.
    Bars(MultiProgress, BTreeMap<CacheId, ProgressBar>),
    /// Elsewhere: what was last written of each cache, since a line that says nothing new is not written.
    Lines(BTreeMap<String, String>),
}

impl Screen {
    fn new(is_shown: bool) -> Self {
        match (is_shown, std::io::stderr().is_terminal()) {
            (false, _) => Self::Dark,
            (true, true) => Self::Bars(MultiProgress::new(), BTreeMap::new()),
            (true, false) => Self::Lines(BTreeMap::new()),
        }
    }

    const fn period(&self) -> Duration {
        match self {
            Self::Dark | Self::Lines(_) => LINE_PERIOD,
            Self::Bars(..) => DRAW_PERIOD,
        }
    }

    fn show(&mut self, status: &StatusView) {
        match self {
            Self::Dark => {}
            Self::Bars(all, bars) => {
                for cache in &status.caches {
                    let bar = bars.entry(cache.cache.clone()).or_insert_with(|| all.add(bar(&cache.cache)));
                    // A bar of no length would look full.
                    bar.set_length(cache.bytes_total.0.max(1));
                    bar.set_position(cache.bytes_done.0);
                    bar.set_message(line(cache));
                }
            }
            Self::Lines(_) => {
                for cache in &status.caches {
                    self.write(cache.cache.to_string(), line(cache));
                }
            }
        }
    }

    fn wait_for(&mut self, agent: &Agent) {
        self.write("agent".to_owned(), format!("no answer yet at {}", agent.socket().display()));
    }

    fn write(&mut self, name: String, text: String) {
        let Self::Lines(last) = self else { return };
        if last.get(&name) != Some(&text) {
            eprintln!("{name}: {text}");
            last.insert(name, text);
        }
    }
}

impl Drop for Screen {
    /// The table that follows says it all.
    fn drop(&mut self) {
        if let Self::Bars(_, bars) = self {
            bars.values().for_each(ProgressBar::finish_and_clear);
        }
    }
}

fn bar(cache: &CacheId) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is checked by a test");
    ProgressBar::new(1).with_style(style.progress_chars("=> ")).with_prefix(cache.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_a_name_and_words() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
        assert_eq!(bar(&CacheId::new("a", "b").expect("a name")).prefix(), "a/b");
    }
}
