//! What kind of world a seed gives: how often what goes wrong, and how large things are.
//!
//! Deliberately absent: events, which the [`story`](super::story) makes.

use stokehold_core::quantity::Bytes;

use super::disk::{CrashKind, DiskShape, Faults};
use super::origin::OriginFaults;
use super::rng::Rng;

/// Shortest and longest life of most worlds, milliseconds.
const LIFE_MS: (u64, u64) = (2_000, 120_000);
/// The temper in which nothing happens but kill -9, so that what is fetched twice can be counted.
const KILLED: &str = "killed";

/// An origin that sends all slowly, so that lives end in the middle of a staging.
pub const SLOW: OriginFaults = OriginFaults { slow_ppm: 1_000_000, ..PEACE };
/// An origin that does all as it should.
pub const PEACE: OriginFaults = OriginFaults {
    down_ppm: 0,
    refuses_ppm: 0,
    throttles_ppm: 0,
    stalls_ppm: 0,
    wrong_range_ppm: 0,
    cuts_ppm: 0,
    stalls_midway_ppm: 0,
    lies_ppm: 0,
    slow_ppm: 0,
};

/// What a world may do to the agent.
#[derive(Debug, Clone)]
pub struct Temper {
    /// In one word, for the log.
    pub name: &'static str,
    /// The disk.
    pub disk: DiskShape,
    /// The origins.
    pub origin: OriginFaults,
    /// How often a report cannot be brought out, in a million.
    pub report_fails_ppm: u32,
    /// Whether lives end in crashes.
    pub crashes: bool,
    /// How such ends come; else by either kind.
    pub crash_kind: Option<CrashKind>,
    /// Shortest and longest life, milliseconds.
    pub life_ms: (u64, u64),
    /// How many lives at least and at most, before peace.
    pub lives: (u64, u64),
    /// Whether people and pods do things.
    pub meddles: bool,
    /// Whether wall clocks step.
    pub steps_clock: bool,
    /// Whether room may become scarce.
    pub is_scarce: bool,
    /// Whether files of published snapshots are touched and spoiled.
    pub spoils: bool,
    /// Percent of the disk that is kept free for others.
    pub headroom_percent: u64,
    /// Caches that are asked for.
    pub caches: u64,
}

impl Temper {
    /// The temper of a world.
    #[must_use]
    pub fn of(rng: &mut Rng) -> Self {
        let names = ["quiet", "lively", "crashing", "killed", "lying", "failing", "dreadful"];
        let name = *rng.pick(&names);
        let any = |of: &[&str]| of.contains(&name);
        let disk = DiskShape {
            capacity: Bytes(rng.between(96, 512) << 20),
            inodes: rng.between(1_000, 20_000),
            privileged: rng.chance(500_000),
            takes_time: true,
            faults: if any(&["failing", "dreadful"]) { disk_faults(rng) } else { Self::no_disk_faults() },
            ignores: None,
        };
        let origin = if any(&["lying", "dreadful"]) {
            origin_faults(rng)
        } else if name == KILLED {
            SLOW
        } else {
            OriginFaults::default()
        };
        let crashes = any(&["crashing", "killed", "dreadful"]);
        let is_slow = name == "crashing" && rng.chance(500_000);
        let origin = if is_slow { SLOW } else { origin };
        let (life_ms, lives) = match (name, crashes) {
            (KILLED, _) => ((300, 15_000), (2, 8)),
            (_, true) if is_slow => ((1_000, 40_000), (2, 6)),
            (_, true) => (LIFE_MS, (1, 5)),
            (_, false) => (LIFE_MS, (1, 2)),
        };
        Self {
            name,
            disk,
            origin,
            report_fails_ppm: if any(&["failing", "dreadful"]) { 100_000 } else { 0 },
            crashes,
            crash_kind: (name == KILLED).then_some(CrashKind::ProcessDeath),
            life_ms,
            lives,
            meddles: !any(&["quiet", KILLED]),
            steps_clock: any(&["lively", "dreadful"]),
            is_scarce: any(&["lively", "failing", "dreadful"]) && rng.chance(500_000),
            spoils: any(&["failing", "dreadful"]),
            headroom_percent: *rng.pick(&[0, 5, 10]),
            caches: rng.between(1, 3),
        }
    }

    /// A disk that does not fail.
    #[must_use]
    pub fn no_disk_faults() -> Faults {
        Faults { writeback_ppm: 5_000, ..Faults::default() }
    }

    /// Whether nothing happens but kill -9.
    #[must_use]
    pub fn is_only_killed(&self) -> bool {
        self.name == KILLED
    }

    /// Whether nothing is out of the ordinary, so that nothing may be logged as if it were.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.name == "quiet"
    }
}

/// None of a fault, a little, or much of it: each alone must be met as well as all together.
fn some(rng: &mut Rng, little: u32, much: u32) -> u32 {
    *rng.pick(&[0, little, little, much])
}

fn disk_faults(rng: &mut Rng) -> Faults {
    Faults {
        io_error_ppm: some(rng, 1_000, 20_000),
        no_space_ppm: some(rng, 1_000, 20_000),
        read_only_ppm: some(rng, 300, 2_000),
        slow_ppm: some(rng, 500, 5_000),
        users_unknown_ppm: some(rng, 20_000, 300_000),
        writeback_ppm: some(rng, 2_000, 20_000),
    }
}

fn origin_faults(rng: &mut Rng) -> OriginFaults {
    OriginFaults {
        down_ppm: some(rng, 5_000, 50_000),
        refuses_ppm: some(rng, 5_000, 30_000),
        throttles_ppm: some(rng, 20_000, 200_000),
        stalls_ppm: some(rng, 5_000, 30_000),
        wrong_range_ppm: some(rng, 5_000, 50_000),
        cuts_ppm: some(rng, 30_000, 300_000),
        stalls_midway_ppm: some(rng, 5_000, 50_000),
        lies_ppm: some(rng, 20_000, 150_000),
        slow_ppm: some(rng, 20_000, 300_000),
    }
}
