//! Everything that happens in a world, one line each, with its simulated time.
//!
//! In: lines. Out: one text; two runs of one seed give the same bytes. Deliberately absent: addresses, hashes of maps, real time.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The log. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Mutex<String>>);

impl EventLog {
    /// Adds a line.
    pub fn push(&self, at_ns: u64, line: std::fmt::Arguments<'_>) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (seconds, micros) = (at_ns / 1_000_000_000, at_ns / 1_000 % 1_000_000);
        // Writing to a string does not fail.
        let _written = writeln!(text, "{seconds:6}.{micros:06} {line}");
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its last lines.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = text.rmatch_indices('\n').nth(lines).map_or(0, |(at, _)| at + 1);
        text[from..].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_whole_lines() {
        let log = EventLog::default();
        for number in 0..5 {
            log.push(number * 1_500_000_000, format_args!("event {number}"));
        }
        assert_eq!(log.tail(2), "     4.500000 event 3\n     6.000000 event 4\n");
        assert_eq!(log.tail(99), log.text());
    }
}
