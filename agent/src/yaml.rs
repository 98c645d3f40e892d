//! YAML as all our files are read: bounded, and with errors that say where.
//!
//! In goes text, out come values or a place and a reason. Deliberately absent: writing.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_saphyr::{
    DefaultMessageFormatter, Error, Localizer, Location, MessageFormatter, Options, SnippetMode, budget, options,
    render_options,
};

/// Most YAML events of one document; a full one of ours has about two hundred.
const EVENTS_MAX: usize = 100_000;
/// Deepest nesting; ours goes to twelve.
const DEPTH_MAX: usize = 32;
/// Most anchors and most uses of them: enough for people who repeat themselves, too few for a bomb.
const ANCHORS_MAX: usize = 100;
/// Most letters of a reader's message that are kept.
const REASON_MAX: usize = 1_000;
/// Most letters of a line that are shown.
const LINE_MAX: usize = 80;

/// Reads one document.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, limits())
}

/// A document can neither be deep nor grow by repeating itself.
pub(crate) fn limits() -> Options {
    let mut limits = options! {
        budget: budget! {
            max_events: EVENTS_MAX,
            max_nodes: EVENTS_MAX,
            max_depth: DEPTH_MAX,
            max_anchors: ANCHORS_MAX,
            max_aliases: ANCHORS_MAX,
            max_merge_keys: ANCHORS_MAX,
        },
        with_snippet: false,
    };
    limits.alias_limits.max_total_replayed_events = EVENTS_MAX;
    limits
}

/// Line and column of an error, both from 1, where they are known.
pub(crate) fn place(error: &Error) -> Option<(u64, u64)> {
    error.location().filter(|location| location.line() > 0).map(|location| (location.line(), location.column()))
}

/// What is wrong, without its place. Where the reader's words name no value, the line of `text` is shown.
pub(crate) fn reason(error: &Error, text: &str) -> String {
    let bare = error.render_with_options(render_options! { formatter: &Bare, snippets: SnippetMode::Off });
    let reason = match bare.as_str() {
        "invalid boolean" => "not a boolean; allowed: true, false",
        "invalid i32" | "invalid i64" => "not a whole number",
        other => other,
    };
    let reason: String = reason.chars().take(REASON_MAX).collect();
    let line = place(error).and_then(|(line, _column)| text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?));
    match line {
        Some(line) if !reason.contains(['"', '`']) => {
            let line: String = line.trim().chars().take(LINE_MAX).collect();
            format!("{reason}, in the line {line:?}")
        }
        Some(_) | None => reason,
    }
}

/// The reader's message without its place, which we say ourselves.
struct Bare;

impl MessageFormatter for Bare {
    fn localizer(&self) -> &dyn Localizer {
        self
    }
    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        DefaultMessageFormatter.format_message(error)
    }
}

impl Localizer for Bare {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _place: Location) -> Cow<'a, str> {
        base
    }
}
