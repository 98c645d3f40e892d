//! What all parts of one world share: its clock, its log, its seed, and the first promise that was broken.
//!
//! Deliberately absent: the parts.

use std::fmt::Arguments;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::event_log::EventLog;
use super::rng::Rng;

/// Lines of the log that are shown with a broken promise.
const TAIL_LINES: usize = 60;

/// The shared part of a world. Clones share it.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Simulated time.
    pub clock: Clock,
    /// All that happened.
    pub log: EventLog,
    seed: u64,
    broken: Arc<Mutex<Option<String>>>,
    halted: CancellationToken,
}

impl Scene {
    /// The beginning of a world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (clock, log) = (Clock::default(), EventLog::default());
        Self { clock, log, seed, broken: Arc::default(), halted: CancellationToken::new() }
    }

    /// A stream of chance for one part of the world.
    #[must_use]
    pub fn rng(&self, name: &str) -> Rng {
        Rng::new(self.seed).named(name)
    }

    /// Something happened.
    pub fn say(&self, line: Arguments<'_>) {
        self.log.push(self.clock.now_ns(), line);
    }

    /// A promise was broken. The first one counts; the world halts.
    pub fn broke(&self, what: &str) {
        self.say(format_args!("BROKEN: {what}"));
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.is_none() {
            *broken = Some(format!("{what}\nlast events:\n{}", self.log.tail(TAIL_LINES)));
        }
        self.halted.cancel();
    }

    /// The first promise that was broken, with what happened before it.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a promise is broken.
    pub async fn halted(&self) {
        self.halted.cancelled().await;
    }

    /// Ends a test here if a promise was broken.
    ///
    /// # Panics
    /// With the promise and the last events.
    pub fn assert_kept(&self) {
        if let Some(broken) = self.broken() {
            panic!("seed {}: {broken}", self.seed);
        }
    }
}
