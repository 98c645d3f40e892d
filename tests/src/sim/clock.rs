//! Simulated time, which goes on over all lives of the agent.
//!
//! Each life has a runtime of its own, paused; its clock is added to what went before. Out: nanoseconds since the world began, wall
//! time, a clock that starts with each boot, and stamps that never repeat. Deliberately absent: waiting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stokehold_core::time::{BootId, Millis, Now, WallTime};
use tokio::time::Instant;

/// 2026-12-01T00:00:00Z.
const EPOCH_S: u64 = 1_796_083_200;
const NANOS: u64 = 1_000_000_000;

/// The clock. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    /// Time of all that went before.
    before_ns: u64,
    /// When the runtime of this life began.
    life: Option<Instant>,
    boot_ns: u64,
    boots: u64,
    last_stamp_ns: u64,
    /// How far wall clocks are off, seconds.
    wall_off_s: i64,
}

impl Times {
    fn now_ns(&self) -> u64 {
        let life = self.life.map_or(Duration::ZERO, |began| began.elapsed());
        self.before_ns + u64::try_from(life.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Clock {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A life begins; to be called within its runtime.
    pub fn life_begins(&self) {
        self.times().life = Some(Instant::now());
    }

    /// A life ends; to be called within its runtime.
    pub fn life_ends(&self) {
        let mut times = self.times();
        times.before_ns = times.now_ns();
        times.life = None;
    }

    /// The machine boots: the clock that never steps begins anew. Time passed while it was off.
    pub fn boot(&self, off: Duration) {
        let mut times = self.times();
        times.before_ns += u64::try_from(off.as_nanos()).unwrap_or(u64::MAX);
        times.boot_ns = times.now_ns();
        times.boots += 1;
    }

    /// Wall clocks are off by so many seconds from now on; times of inodes go on as they were.
    pub fn step_wall(&self, off_s: i64) {
        self.times().wall_off_s = off_s;
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.times().now_ns()
    }

    /// A time for an inode, nanoseconds since 1970; no two are equal.
    #[must_use]
    pub fn stamp_ns(&self) -> i128 {
        let mut times = self.times();
        times.last_stamp_ns = times.now_ns().max(times.last_stamp_ns + 1);
        i128::from(EPOCH_S * NANOS) + i128::from(times.last_stamp_ns)
    }

    /// The moment, as the agent is told it.
    #[must_use]
    pub fn now(&self) -> Now {
        let times = self.times();
        let now_ns = times.now_ns();
        Now {
            wall: WallTime((EPOCH_S + now_ns / NANOS).saturating_add_signed(times.wall_off_s)),
            monotonic: Millis((now_ns - times.boot_ns) / 1_000_000),
            boot_id: BootId(format!("boot-{}", times.boots)),
        }
    }
}
