//! The story of one seed: the real loop lives, is cut off, lives again, and in the end, left in peace, must have settled.
//!
//! In: a seed. Out: the log and the first promise that was broken. Deliberately absent: any knowledge of how the loop works.

use std::sync::Arc;
use std::time::Duration;

use stokehold::metrics::Metrics;
use stokehold::run_loop::{Loop, LoopSettings, PassView};
use stokehold_core::desired::Desired;
use stokehold_core::plan::PlanLimits;
use stokehold_core::transfer::TransferLimits;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::disk::{CrashKind, CrashPlan, SimDisk};
use super::node::SimNode;
use super::origin::SimOrigin;
use super::rng::Rng;
use super::scene::Scene;
use super::temper::Temper;
use super::truth::Truth;
use super::warning::Warnings;

mod ask;
mod meddle;
mod peace;

use ask::Asked;
use meddle::Meddler;

/// Length of a part in these worlds: models are small, so parts are.
const PART_BYTES: u64 = 8 << 10;
/// How long the agent has to end in an orderly way, before whoever told it to kills it.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Reasons that the agent logs as WARN though they are nothing out of the ordinary.
const ORDINARY: &[&str] = &["reason=\"WaitingForTurn\""];

/// How a story went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// All that happened.
    pub log: String,
    /// The first promise that was broken, with what happened before.
    pub broken: Option<String>,
    /// Steps on the disk.
    pub steps: u64,
    /// Lives of the agent.
    pub lives: u64,
}

/// How one life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was told to.
    Told,
    /// Killed between two steps.
    Killed,
    /// The crash that was planned came.
    Crashed,
    /// A promise was broken.
    Halted,
}

/// Tells the story of a seed.
#[must_use]
pub fn tell(seed: u64) -> Outcome {
    tell_of(seed, |_as_it_is| {})
}

/// Tells the story of a seed in a world whose temper is changed.
#[must_use]
pub fn tell_of(seed: u64, change: impl FnOnce(&mut Temper)) -> Outcome {
    let mut story = Story::new(seed, change);
    let lives = story.rng.between(story.temper.lives.0, story.temper.lives.1);
    for _ in 0..lives {
        if story.scene.broken().is_none() {
            story.live();
        }
    }
    if story.scene.broken().is_none() {
        story.end_in_peace();
    }
    story.judge_warnings();
    story.judge_fetched();
    Outcome { log: story.scene.log.text(), broken: story.scene.broken(), steps: story.disk.steps(), lives: lives + 1 }
}

struct Story {
    scene: Scene,
    rng: Rng,
    temper: Temper,
    disk: SimDisk,
    origin: SimOrigin,
    node: SimNode,
    asked: Asked,
    desired: watch::Sender<Desired>,
    warnings: Warnings,
    meddler: Meddler,
    kills: u64,
}

impl Story {
    fn new(seed: u64, change: impl FnOnce(&mut Temper)) -> Self {
        let (scene, truth) = (Scene::new(seed), Truth::default());
        let mut rng = scene.rng("story");
        let mut temper = Temper::of(&mut rng);
        change(&mut temper);
        scene.say(format_args!("seed {seed}: {temper:?}"));
        let disk = SimDisk::new(temper.disk.clone(), &scene, &truth);
        let origin = SimOrigin::new(&scene, &truth, temper.origin);
        let node = SimNode::new(&scene, disk.clone(), origin.clone(), temper.headroom_percent);
        node.set_report_faults(temper.report_fails_ppm);
        let asked = Asked::new(&mut rng, temper.caches, &origin);
        let meddler = Meddler::new(scene.rng("meddler"), &temper, &disk);
        let desired = watch::Sender::new(asked.desired());
        let warnings = Warnings::new(&scene);
        Self { scene, rng, temper, disk, origin, node, asked, desired, warnings, meddler, kills: 0 }
    }

    /// One life, from start to whatever ends it.
    fn live(&mut self) {
        let length = Duration::from_millis(self.rng.between(self.temper.life_ms.0, self.temper.life_ms.1));
        let either = if self.rng.chance(500_000) { CrashKind::PowerLoss } else { CrashKind::ProcessDeath };
        let kind = self.temper.crash_kind.unwrap_or(either);
        if self.temper.crashes && self.rng.chance(700_000) {
            let at = self.disk.steps() + self.rng.between(1, 500);
            self.disk.crash_at(Some(CrashPlan { at, kind }));
        }
        let crashes_at_end = self.temper.crashes && self.rng.chance(600_000);
        let end = self.within_runtime(async |story, agent| story.live_for(agent, length, crashes_at_end, kind).await);
        self.scene.say(format_args!("life ended: {end:?}"));
        self.kills += u64::from(matches!(end, End::Killed | End::Crashed));
        if self.disk.is_dead() && self.disk.lost_power() {
            self.scene.clock.boot(Duration::from_secs(self.rng.between(20, 3_600)));
        }
    }

    async fn live_for(&mut self, mut agent: Agent, length: Duration, crashes: bool, kind: CrashKind) -> End {
        let (disk, scene) = (self.disk.clone(), self.scene.clone());
        let end = tokio::select! {
            biased;
            () = scene.halted() => End::Halted,
            () = disk.died() => End::Crashed,
            ended = &mut agent.task => {
                scene.broke(&format!("the loop ended by itself: {ended:?}"));
                End::Halted
            }
            () = tokio::time::sleep(length) => if crashes { End::Killed } else { End::Told },
            () = self.meddle() => End::Halted,
        };
        match end {
            End::Killed => disk.crash_now(kind),
            End::Told => {
                agent.stop.cancel();
                let stopped = tokio::time::timeout(STOP_GRACE, agent.task).await;
                if let Ok(Err(panic)) = stopped {
                    scene.broke(&format!("the loop panicked: {panic}"));
                }
            }
            End::Crashed | End::Halted => {}
        }
        end
    }

    /// Runs a life in a runtime of its own: when that is dropped, nothing of the agent is left.
    fn within_runtime<T>(&mut self, life: impl AsyncFnOnce(&mut Self, Agent) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O needs nothing from the system");
        let warnings = self.warnings.clone();
        tracing::subscriber::with_default(warnings, || {
            runtime.block_on(async {
                self.scene.clock.life_begins();
                self.disk.restart();
                self.disk.open_root();
                let agent = Agent::start(self);
                let end = life(self, agent).await;
                self.scene.clock.life_ends();
                end
            })
        })
    }

    /// P3: where nothing happened but kill -9, at most the parts in flight, or not noted yet, were fetched again.
    fn judge_fetched(&self) {
        if !self.temper.is_only_killed() {
            return;
        }
        let limits = TransferLimits::default();
        let fetched: u64 = self.origin.served().values().sum();
        let wanted: u64 = self
            .asked
            .caches
            .iter()
            .filter_map(|asked| asked.cache.weights.as_ref())
            .map(|weights| self.origin.bytes(&weights.source))
            .sum();
        // A part that has arrived gives its turn to the next before it is noted: so many on their way, and as many to be noted.
        let again_max = self.kills * 2 * u64::from(limits.connections_max) * PART_BYTES;
        if fetched > wanted + again_max {
            let kills = self.kills;
            self.scene.broke(&format!("P3: {fetched} bytes were fetched of {wanted}, with {kills} kills in between"));
        }
    }

    /// Nothing is logged as ERROR, and in a quiet world nothing as WARN.
    fn judge_warnings(&self) {
        for (level, line) in self.warnings.lines() {
            let is_ordinary = ORDINARY.iter().any(|reason| line.contains(reason));
            if level == Level::ERROR || (self.temper.is_quiet() && !is_ordinary) {
                self.scene.broke(&format!("a {} world, and the agent logged {level}{line}", self.temper.name));
            }
        }
    }
}

/// The real loop in one life.
struct Agent {
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
    views: watch::Receiver<Option<Arc<PassView>>>,
}

impl Agent {
    fn start(story: &Story) -> Self {
        let settings = LoopSettings {
            plan: PlanLimits::default(),
            transfer: TransferLimits { part_bytes: PART_BYTES, ..TransferLimits::default() },
            immutable: story.temper.disk.privileged,
        };
        let stop = CancellationToken::new();
        let desired = story.desired.subscribe();
        let agent = Loop::new(story.node.clone(), desired, settings, Metrics::new(), stop.clone());
        let views = agent.views();
        Self { task: tokio::spawn(agent.run()), stop, views }
    }
}
