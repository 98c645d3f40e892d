//! Moving many ranges of many files through few connections: what to fetch next, when to give way, when to try again.
//!
//! A sans-IO machine. In go events and the time, out come asks; the caller fetches and holds no policy of its own. Every range is
//! asked for until it is whole; an attempt that ends early leaves its remaining bytes to the next one. Deliberately absent: bytes,
//! sockets, files, and chance (the jitter is a seed).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::attempt::backoff;
use crate::port::ByteRange;
use crate::time::Millis;

/// Limits of one transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferLimits {
    /// Length of a part, bytes.
    pub part_bytes: u64,
    /// Connections to begin with.
    pub connections_start: u32,
    /// Most connections at a time.
    pub connections_max: u32,
    /// An attempt without a byte for this long is cancelled, and what it lacks is asked for again.
    pub stall_after: Duration,
    /// So many failures in a row of one range, without a byte between, end the transfer.
    pub failures_max: u32,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            part_bytes: 8 << 20,
            connections_start: 4,
            connections_max: 8,
            stall_after: Duration::from_secs(20),
            failures_max: 6,
        }
    }
}

/// How long goodput is measured before more connections are tried.
const WINDOW: Duration = Duration::from_millis(300);
/// More connections are kept while they give at least this many percent more.
const GAIN_MIN_PERCENT: u64 = 5;
/// First and longest wait before a failed range is asked for again.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Longest wait that an origin may impose.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// One attempt to fetch one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptId(pub u64);

/// What the machine wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Fetch a range of a file. An attempt that has no byte by `deadline` will be cancelled.
    Fetch {
        /// Names the attempt in events.
        attempt: AttemptId,
        /// Index of the file.
        file: u32,
        /// Which bytes.
        range: ByteRange,
        /// When its first byte must be there.
        deadline: Millis,
    },
    /// Stop an attempt; it must still be reported as ended.
    Cancel(AttemptId),
    /// Nothing to do before then, unless something ends.
    WaitUntil(Millis),
    /// Every range is whole.
    Finished,
    /// It cannot be done: a range failed too often, or an end was final. Nothing is in flight any more.
    GiveUp,
}

/// What the caller tells the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes arrived.
    Bytes {
        /// For which attempt.
        attempt: AttemptId,
        /// How many since the last such event.
        count: u64,
    },
    /// An attempt waits for its turn: it has no bytes, and that is no stall.
    Waits {
        /// Which.
        attempt: AttemptId,
    },
    /// An attempt ended; its first `written` bytes are on the disk.
    Ended {
        /// Which.
        attempt: AttemptId,
        /// Bytes from the start of its range that need not be fetched again.
        written: u64,
        /// How it ended.
        end: End,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All bytes of the range are there.
    Whole,
    /// It was cancelled.
    Cancelled,
    /// The origin asks to slow down, perhaps for so long.
    Throttled(Option<Duration>),
    /// It broke off; trying again may help.
    Broken,
    /// Trying again cannot help.
    Final,
}

#[derive(Debug, Clone)]
struct Part {
    file: u32,
    range: ByteRange,
    failures: u32,
    not_before: Millis,
}

#[derive(Debug)]
struct Flight {
    part: Part,
    arrived: u64,
    last_byte: Millis,
    is_cancelled: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Transfer {
    limits: TransferLimits,
    waiting: VecDeque<Part>,
    flights: BTreeMap<AttemptId, Flight>,
    next_attempt: u64,
    jitter: u64,
    pace: Pace,
    has_failed: bool,
}

/// How many connections are worth having: grown while it pays, halved when the origin asks to slow down.
#[derive(Debug)]
struct Pace {
    connections: u32,
    window_start: Millis,
    window_bytes: u64,
    last_rate: u64,
    paused_until: Millis,
    halved_at: Option<Millis>,
}

impl Transfer {
    /// Of these missing ranges, in this order. `seed` spreads the waits of retries.
    #[must_use]
    pub fn new(limits: TransferLimits, gaps: &[(u32, ByteRange)], seed: u64, now: Millis) -> Self {
        let waiting = gaps.iter().flat_map(|(file, gap)| parts(*file, *gap, limits.part_bytes)).collect();
        let connections = limits.connections_start.clamp(1, limits.connections_max.max(1));
        let pace = Pace {
            connections,
            window_start: now,
            window_bytes: 0,
            last_rate: 0,
            paused_until: Millis(0),
            halved_at: None,
        };
        Self { limits, waiting, flights: BTreeMap::new(), next_attempt: 0, jitter: seed, pace, has_failed: false }
    }

    /// Connections it would use now.
    #[must_use]
    pub const fn connections(&self) -> u32 {
        self.pace.connections
    }

    /// What to do now. Ask again after every event, and when the time that [`Ask::WaitUntil`] names has come.
    pub fn next(&mut self, now: Millis) -> Vec<Ask> {
        let mut asks = self.cancel_stalled(now);
        if self.has_failed {
            asks.extend(self.cancel_all());
            if self.flights.is_empty() {
                asks.push(Ask::GiveUp);
            }
            return asks;
        }
        if self.waiting.is_empty() && self.flights.is_empty() {
            asks.push(Ask::Finished);
            return asks;
        }
        self.pace.turn_window(now, self.limits.connections_max, !self.waiting.is_empty());
        asks.extend(self.start(now));
        if let Some(at) = self.next_time(now) {
            asks.push(Ask::WaitUntil(at));
        }
        asks
    }

    /// Something happened. What is said of an attempt that is not in flight changes nothing.
    pub fn handle(&mut self, event: Event, now: Millis) {
        match event {
            Event::Bytes { attempt, count } => {
                if let Some(flight) = self.flights.get_mut(&attempt)
                    && count > 0
                {
                    flight.arrived = flight.arrived.saturating_add(count);
                    flight.last_byte = now;
                    self.pace.window_bytes += count;
                }
            }
            Event::Waits { attempt } => {
                if let Some(flight) = self.flights.get_mut(&attempt) {
                    flight.last_byte = now;
                }
            }
            Event::Ended { attempt, written, end } => {
                if let Some(flight) = self.flights.remove(&attempt) {
                    self.ended(flight, written, end, now);
                }
            }
        }
    }

    fn ended(&mut self, flight: Flight, written: u64, end: End, now: Millis) {
        let mut part = flight.part;
        let written = written.min(part.range.length());
        // What was not reported on the way counts towards the rate now.
        self.pace.window_bytes += written.saturating_sub(flight.arrived);
        part.range.start += written;
        if part.range.length() == 0 && end != End::Final {
            return;
        }
        if written > 0 {
            part.failures = 0;
        }
        match end {
            End::Final => {
                self.has_failed = true;
                return;
            }
            // Stopped by us for want of bytes, or short in spite of what it says: a failure like any other.
            End::Cancelled | End::Whole | End::Broken => {
                part.failures += 1;
                part.not_before = now.after(backoff(RETRY_MIN, RETRY_MAX, part.failures, self.draw()));
            }
            End::Throttled(retry_after) => {
                part.failures += 1;
                let own = backoff(RETRY_MIN, RETRY_MAX, part.failures, self.draw());
                let wait = retry_after.unwrap_or(Duration::ZERO).min(RETRY_AFTER_MAX).max(own);
                part.not_before = now.after(wait);
                self.pace.halve(now, wait);
            }
        }
        if part.failures > self.limits.failures_max {
            self.has_failed = true;
            return;
        }
        // In front: shards are finished one after the other.
        self.waiting.push_front(part);
    }

    fn cancel_stalled(&mut self, now: Millis) -> Vec<Ask> {
        let stall_after = self.limits.stall_after;
        let stalled = |flight: &&mut Flight| !flight.is_cancelled && now >= flight.last_byte.after(stall_after);
        let mut asks = Vec::new();
        for (attempt, flight) in &mut self.flights {
            if stalled(&flight) {
                flight.is_cancelled = true;
                asks.push(Ask::Cancel(*attempt));
            }
        }
        asks
    }

    fn cancel_all(&mut self) -> Vec<Ask> {
        let running = self.flights.iter_mut().filter(|(_, flight)| !flight.is_cancelled);
        running
            .map(|(attempt, flight)| {
                flight.is_cancelled = true;
                Ask::Cancel(*attempt)
            })
            .collect()
    }

    fn start(&mut self, now: Millis) -> Vec<Ask> {
        let mut asks = Vec::new();
        while now >= self.pace.paused_until && self.flights.len() < self.pace.connections as usize {
            let Some(at) = self.waiting.iter().position(|part| now >= part.not_before) else { break };
            let part = self.waiting.remove(at).expect("the position was just found");
            let attempt = AttemptId(self.next_attempt);
            self.next_attempt += 1;
            let deadline = now.after(self.limits.stall_after);
            asks.push(Ask::Fetch { attempt, file: part.file, range: part.range, deadline });
            self.flights.insert(attempt, Flight { part, arrived: 0, last_byte: now, is_cancelled: false });
        }
        asks
    }

    /// When something is due that no event will announce.
    fn next_time(&self, now: Millis) -> Option<Millis> {
        let stalls = self
            .flights
            .values()
            .filter(|flight| !flight.is_cancelled)
            .map(|flight| flight.last_byte.after(self.limits.stall_after));
        let has_room = self.flights.len() < self.pace.connections as usize;
        let retries = self.waiting.iter().filter(|_| has_room).map(|part| part.not_before.max(self.pace.paused_until));
        let window =
            (!self.waiting.is_empty() && !self.flights.is_empty()).then(|| self.pace.window_start.after(WINDOW));
        stalls.chain(retries).chain(window).filter(|at| *at > now).min()
    }

    /// The next of a sequence of numbers spread evenly (SplitMix64, Steele et al. 2014).
    fn draw(&mut self) -> u64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.jitter;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Pace {
    /// At the end of a window: a quarter more connections while the last ones paid. Those that did not pay stay; no more are added.
    fn turn_window(&mut self, now: Millis, connections_max: u32, is_full: bool) {
        let length = now.since(self.window_start);
        if length < WINDOW {
            return;
        }
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = self.window_bytes.saturating_mul(1_000) / millis;
        if is_full && rate > self.last_rate + self.last_rate * GAIN_MIN_PERCENT / 100 {
            self.connections = (self.connections + (self.connections / 4).max(1)).min(connections_max.max(1));
            self.last_rate = rate;
        } else if is_full && self.last_rate > 0 && rate < self.last_rate / 2 {
            // The link got slower, not the last connection useless: measure anew.
            self.last_rate = rate;
        }
        self.window_start = now;
        self.window_bytes = 0;
    }

    /// Half as many connections, at most once a window however many answers say so, and none before the wait is over.
    fn halve(&mut self, now: Millis, wait: Duration) {
        self.paused_until = self.paused_until.max(now.after(wait.min(RETRY_AFTER_MAX)));
        if self.halved_at.is_some_and(|at| now.since(at) < WINDOW) {
            return;
        }
        self.halved_at = Some(now);
        self.connections = (self.connections / 2).max(1);
        self.last_rate = 0;
    }
}

/// Cuts a gap at multiples of the part length, so that parts of a resumed file fall where they fell before.
fn parts(file: u32, gap: ByteRange, part_bytes: u64) -> impl Iterator<Item = Part> {
    let part_bytes = part_bytes.max(1);
    let mut at = gap.start;
    std::iter::from_fn(move || {
        if at >= gap.end {
            return None;
        }
        let end = ((at / part_bytes + 1) * part_bytes).min(gap.end);
        let range = ByteRange { start: at, end };
        at = end;
        Some(Part { file, range, failures: 0, not_before: Millis(0) })
    })
}

#[cfg(test)]
mod tests;
