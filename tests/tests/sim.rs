//! The real loop on modelled worlds, one for each seed.
//!
//! `STOKEHOLD_SIM_SEEDS` says how many, `STOKEHOLD_SIM_SEED` names the one to tell again; a failure prints that command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use stokehold_tests::sim::disk::{CrashKind, IgnoredSync};
use stokehold_tests::sim::story::{Outcome, tell, tell_of};
use stokehold_tests::sim::temper::SLOW;

/// Worlds of an ordinary run.
const SEEDS: u64 = 1_000;
/// So many worlds at most until a disk that lies about its syncs is found out.
const NOTICED_WITHIN: u64 = 200;
/// Failures that are shown.
const SHOWN_MAX: usize = 2;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}; allowed: a whole number")))
}

fn described(seed: u64, outcome: &Outcome) -> Option<String> {
    let broken = outcome.broken.as_ref()?;
    Some(format!("{broken}\nrepeat: STOKEHOLD_SIM_SEED={seed} cargo test -p stokehold-tests --test sim worlds\n"))
}

#[test]
fn worlds_of_every_temper_keep_all_promises_and_settle_in_peace() {
    if let Some(seed) = number("STOKEHOLD_SIM_SEED") {
        let outcome = tell(seed);
        println!("{}", outcome.log);
        if let Some(broken) = described(seed, &outcome) {
            panic!("{broken}");
        }
        return;
    }
    let seeds = number("STOKEHOLD_SIM_SEEDS").unwrap_or(SEEDS);
    let (next, steps, lives) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let broken: Vec<String> = thread::scope(|scope| {
        let work = || {
            let mut broken = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds || broken.len() >= SHOWN_MAX {
                    return broken;
                }
                let outcome = tell(seed);
                steps.fetch_add(outcome.steps, Ordering::Relaxed);
                lives.fetch_add(outcome.lives, Ordering::Relaxed);
                broken.extend(described(seed, &outcome));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a story does not panic")).collect()
    });
    println!("{seeds} worlds, {} lives, {} steps on disks", lives.into_inner(), steps.into_inner());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_world_told_twice_is_the_same_world() {
    for seed in 0..12 {
        let (one, two) = (tell(seed), tell(seed));
        assert!(one.log == two.log, "seed {seed} gave two stories");
    }
}

#[test]
fn a_disk_whose_syncs_do_nothing_would_be_noticed() {
    for ignored in [IgnoredSync::Data, IgnoredSync::Folder] {
        let is_noticed = |seed| {
            let outcome = tell_of(seed, |temper| {
                temper.disk.ignores = Some(ignored);
                temper.disk.faults.writeback_ppm = 0;
                temper.origin = SLOW;
                temper.crashes = true;
                temper.crash_kind = Some(CrashKind::PowerLoss);
                (temper.life_ms, temper.lives) = ((1_000, 30_000), (3, 6));
            });
            outcome.broken.is_some_and(|broken| broken.starts_with("P1"))
        };
        assert!((0..NOTICED_WITHIN).any(is_noticed), "{ignored:?}");
    }
}
