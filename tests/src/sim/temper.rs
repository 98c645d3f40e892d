//! What kind of world a seed gives: how often what goes wrong, and how large things are.
//!
//! Deliberately absent: events, which the [`story`](super::story) makes.

use stokehold_core::quantity::Bytes;

use super::disk::{DiskShape, Faults};
use super::origin::OriginFaults;
use super::rng::Rng;

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
    /// Whether people and pods do things.
    pub meddles: bool,
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
        let names = ["quiet", "lively", "crashing", "lying", "failing", "dreadful"];
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
        let origin = if any(&["lying", "dreadful"]) { origin_faults(rng) } else { OriginFaults::default() };
        Self {
            name,
            disk,
            origin,
            report_fails_ppm: if any(&["failing", "dreadful"]) { 100_000 } else { 0 },
            crashes: any(&["crashing", "dreadful"]),
            meddles: name != "quiet",
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
