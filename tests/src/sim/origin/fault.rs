//! What goes wrong at origins, and how often.

use std::time::Duration;

use stokehold_core::port::{ByteRange, OriginError};
use stokehold_core::source::Source;

use super::{Answer, Object, State, unreachable_origin};

/// How often things go wrong, in a million requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OriginFaults {
    /// Cannot be reached for a while.
    pub down_ppm: u32,
    /// Refuses everybody for a while.
    pub refuses_ppm: u32,
    /// Asks to slow down.
    pub throttles_ppm: u32,
    /// Never answers.
    pub stalls_ppm: u32,
    /// Answers with a range that was not asked for.
    pub wrong_range_ppm: u32,
    /// Breaks off in the middle.
    pub cuts_ppm: u32,
    /// Goes silent in the middle.
    pub stalls_midway_ppm: u32,
    /// Sends a wrong byte, where a checksum vouches for the file.
    pub lies_ppm: u32,
    /// Sends slowly.
    pub slow_ppm: u32,
}

/// Most of an answer that arrives at once.
const PIECE_MAX: u64 = 4_096;
/// Shortest and longest time that an origin is down, nanoseconds.
const DOWN_NS: (u64, u64) = (1_000_000_000, 90_000_000_000);

/// Whether a request gets past the door.
pub(super) enum Gate {
    Open,
    Stalls,
    Refuses(OriginError),
}

/// One answer under way.
pub(super) struct Body {
    pub(super) at: u64,
    end: u64,
    /// Where it breaks off or goes silent.
    ends_early: Option<(u64, bool)>,
    /// Where a byte is wrong.
    lie: Option<u64>,
    is_slow: bool,
    is_wrong: bool,
}

impl State {
    pub(super) fn gate(&mut self, source: &Source, now_ns: u64) -> (Gate, Duration) {
        let faults = self.faults;
        let wait = Duration::from_millis(self.rng.between(1, 20));
        if self.rng.chance(faults.down_ppm) {
            self.down_until_ns = now_ns + self.rng.between(DOWN_NS.0, DOWN_NS.1);
        }
        if self.rng.chance(faults.refuses_ppm) {
            self.refuses_until_ns = now_ns + self.rng.between(DOWN_NS.0, DOWN_NS.1);
        }
        let origin = source.to_string();
        let gate = if now_ns < self.down_until_ns {
            Gate::Refuses(unreachable_origin(source, "connection refused"))
        } else if now_ns < self.refuses_until_ns {
            Gate::Refuses(OriginError::Refused { origin, message: "the token has expired".to_owned() })
        } else if self.rng.chance(faults.throttles_ppm) {
            let retry_after = self.rng.chance(500_000).then(|| Duration::from_secs(self.rng.between(1, 5)));
            Gate::Refuses(OriginError::Throttled { origin, retry_after })
        } else if self.rng.chance(faults.stalls_ppm) {
            Gate::Stalls
        } else {
            Gate::Open
        };
        (gate, wait)
    }

    pub(super) fn body(&mut self, object: &Object, range: ByteRange, _source: &Source) -> Body {
        let faults = self.faults;
        let end = range.end.min(object.version.bytes.len() as u64);
        let within = |rng: &mut super::Rng| rng.between(range.start, end.saturating_sub(1).max(range.start));
        let ends_early = if self.rng.chance(faults.cuts_ppm) {
            Some((within(&mut self.rng), false))
        } else if self.rng.chance(faults.stalls_midway_ppm) {
            Some((within(&mut self.rng), true))
        } else {
            None
        };
        let lies = object.vouched.is_some() && self.rng.chance(faults.lies_ppm);
        Body {
            at: range.start,
            end,
            ends_early,
            lie: lies.then(|| within(&mut self.rng)),
            is_slow: self.rng.chance(faults.slow_ppm),
            is_wrong: range.end > end || self.rng.chance(faults.wrong_range_ppm),
        }
    }

    /// What comes next of an answer; nothing at its end.
    pub(super) fn next(&mut self, body: &mut Body, object: &Object, source: &Source) -> Option<Answer> {
        if body.is_wrong {
            let message = format!("a range was asked for, and another came at {}", body.at);
            return Some(Answer::Fails(OriginError::Broken { origin: source.to_string(), message }));
        }
        if body.at >= body.end {
            return None;
        }
        let mut to = (body.at + self.rng.between(1, PIECE_MAX)).min(body.end);
        if let Some((early, stalls)) = body.ends_early {
            if body.at >= early {
                let stall = Answer::Stall;
                let cut = Answer::Fails(unreachable_origin(source, "the body was cut short"));
                return Some(if stalls { stall } else { cut });
            }
            to = to.min(early);
        }
        let range = usize::try_from(body.at).ok()?..usize::try_from(to).ok()?;
        let mut bytes = object.version.bytes[range].to_vec();
        if let Some(lie) = body.lie.filter(|lie| (body.at..to).contains(lie))
            && let Some(byte) = bytes.get_mut(usize::try_from(lie - body.at).ok()?)
        {
            *byte ^= 1 << self.rng.below(8);
        }
        body.at = to;
        let wait = if body.is_slow { self.rng.between(200, 3_000) } else { self.rng.between(0, 10) };
        Some(Answer::Piece(bytes, Duration::from_millis(wait)))
    }
}
