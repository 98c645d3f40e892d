//! Runs a protocol with the crash at every one of its steps in turn, or with every one of its operations failing in turn.
//!
//! In: how the disk is made, what is done on it, what must hold afterwards. Out: nothing, or a panic that names seed, step and kind of
//! crash or failure. Deliberately absent: choice; every one is tried, and each kind of crash with several outcomes.

use std::future::Future;

use stokehold_core::file_op::FileFault;

use super::disk::{CrashKind, CrashPlan, DiskShape, FailurePlan, SimDisk};
use super::scene::Scene;
use super::truth::Truth;

/// Most steps that one protocol may have: one that never ends is found.
const STEPS_MAX: u64 = 10_000;

/// The world of one run.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Clock, log and promises.
    pub scene: Scene,
    /// The disk, with an opened root.
    pub disk: SimDisk,
    /// What origins held.
    pub truth: Truth,
}

impl Stage {
    /// A disk of this shape with an opened root.
    #[must_use]
    pub fn new(seed: u64, shape: DiskShape) -> Self {
        let (scene, truth) = (Scene::new(seed), Truth::default());
        let disk = SimDisk::new(shape, &scene, &truth);
        disk.open_root();
        Self { scene, disk, truth }
    }

    /// Runs to its end, or until the disk dies: then nothing.
    pub async fn until_crash<T>(&self, protocol: impl Future<Output = T>) -> Option<T> {
        // A crash drops whatever was under way; what it had done, it had done.
        tokio::select! {
            biased;
            () = self.disk.died() => None,
            done = protocol => Some(done),
        }
    }
}

/// Runs `setup` undisturbed, then `protocol` with a crash before each of its steps in turn, restarts, and checks. Every run is a
/// world of its own; `outcomes` is how many different seeds are tried for each power loss. Returns how many crashes there were.
///
/// # Panics
/// Where a promise was broken, or a check failed.
pub async fn for_each_crash_point<Setup, Protocol, Check>(
    shape: &DiskShape,
    outcomes: u64,
    setup: impl Fn(Stage) -> Setup,
    protocol: impl Fn(Stage) -> Protocol,
    check: impl Fn(Stage) -> Check,
) -> u64
where
    Setup: Future<Output = ()>,
    Protocol: Future<Output = ()>,
    Check: Future<Output = ()>,
{
    let mut crashes = 0;
    for kind in [CrashKind::ProcessDeath, CrashKind::PowerLoss] {
        let seeds = if kind == CrashKind::PowerLoss { outcomes } else { 1 };
        for seed in 0..seeds {
            for step in 0.. {
                assert!(step < STEPS_MAX, "the protocol does not end");
                let stage = Stage::new(seed, shape.clone());
                setup(stage.clone()).await;
                stage.scene.assert_kept();
                let at = stage.disk.steps() + step;
                stage.disk.crash_at(Some(CrashPlan { at, kind }));
                let has_ended = stage.until_crash(protocol(stage.clone())).await.is_some();
                if has_ended {
                    // Also what was done whole must survive.
                    stage.disk.crash_now(kind);
                }
                stage.disk.restart();
                stage.disk.open_root();
                let checked = stage.clone();
                let watched = std::panic::AssertUnwindSafe(check(checked));
                let outcome = futures::FutureExt::catch_unwind(watched).await;
                stage.scene.assert_kept();
                if let Err(panic) = outcome {
                    let log = stage.scene.log.tail(60);
                    std::panic::resume_unwind(Box::new(format!(
                        "seed {seed}, {kind:?} before step {step}: {}\n{log}",
                        panic_text(panic.as_ref())
                    )));
                }
                crashes += 1;
                if has_ended {
                    break;
                }
            }
        }
    }
    crashes
}

/// Runs `setup` undisturbed, then `protocol` with each of its operations failing in turn, alone and with all that follow; then
/// nothing fails any more, and `check` must find or mend everything. Returns how many failures there were.
///
/// # Panics
/// Where a promise was broken, or a check failed.
pub async fn for_each_failure_point<Setup, Protocol, Check>(
    shape: &DiskShape,
    faults: &[FileFault],
    setup: impl Fn(Stage) -> Setup,
    protocol: impl Fn(Stage) -> Protocol,
    check: impl Fn(Stage) -> Check,
) -> u64
where
    Setup: Future<Output = ()>,
    Protocol: Future<Output = ()>,
    Check: Future<Output = ()>,
{
    let mut failures = 0;
    for (fault, lasts) in faults.iter().flat_map(|fault| [(*fault, false), (*fault, true)]) {
        for number in 0..STEPS_MAX {
            let stage = Stage::new(number, shape.clone());
            setup(stage.clone()).await;
            let at = stage.disk.asked() + number;
            stage.disk.fail_at(Some(FailurePlan { at, fault, lasts }));
            protocol(stage.clone()).await;
            let has_failed = stage.disk.asked() > at;
            stage.disk.fail_at(None);
            let watched = std::panic::AssertUnwindSafe(check(stage.clone()));
            let outcome = futures::FutureExt::catch_unwind(watched).await;
            let what = format!("operation {number} {fault:?}, lasting {lasts}");
            if let Some(broken) = stage.scene.broken() {
                panic!("{what}: {broken}");
            }
            if let Err(panic) = outcome {
                let log = stage.scene.log.tail(60);
                panic!("{what}: {}\n{log}", panic_text(panic.as_ref()));
            }
            if !has_failed {
                break;
            }
            failures += 1;
        }
    }
    failures
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
