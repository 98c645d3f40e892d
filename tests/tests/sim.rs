//! The real loop on modelled worlds, one for each seed.
//!
//! `STOKEHOLD_SIM_SEEDS` says how many, `STOKEHOLD_SIM_SEED` names the one to tell again; a failure prints that command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use stokehold_tests::sim::story::{Outcome, tell};

/// Worlds of an ordinary run.
const SEEDS: u64 = 1_000;
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
    for seed in 0..20 {
        let (one, two) = (tell(seed), tell(seed));
        assert!(one.log == two.log, "seed {seed} gave two stories");
    }
}
