//! A disk in memory that performs core's file operations, loses what was not synced, fails on purpose, and checks after every step
//! that no promise was broken.
//!
//! In: operations, crash points, faults, pods. Out: answers, and through the scene what happened and what broke. What an operation
//! of several steps leaves when it is cut off is what the real one leaves. Deliberately absent: threads and real files.

mod act;
mod durability;
mod fault;
mod inode;
mod look;
mod outside;
mod pod;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_core::file_op::{Answer, FileError, FileFault, FileOp};
use stokehold_core::layout::TreePath;
use stokehold_core::port::Disk;
use stokehold_core::quantity::Bytes;
use tokio::sync::watch as channel;

use self::fault::Fate;
use self::inode::{Refused, Store};
use self::pod::Pods;
use self::watch::{Touch, Watch};
use super::rng::Rng;
use super::scene::Scene;
use super::truth::Truth;

pub use self::fault::{CrashKind, CrashPlan, FailurePlan, Faults};
pub use self::pod::{PodId, Use};

/// What the disk is like.
#[derive(Debug, Clone)]
pub struct DiskShape {
    /// All bytes.
    pub capacity: Bytes,
    /// All inodes.
    pub inodes: u64,
    /// Whether the agent may write whatever the mode, and set flags.
    pub privileged: bool,
    /// Whether operations take time.
    pub takes_time: bool,
    /// Faults.
    pub faults: Faults,
    /// A sync that does nothing and says it did: to prove that this world would notice if a protocol left it out.
    pub ignores: Option<IgnoredSync>,
}

/// A kind of sync that can be ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredSync {
    /// Of a file's data.
    Data,
    /// Of a folder's names.
    Folder,
}

impl Default for DiskShape {
    fn default() -> Self {
        let (capacity, inodes) = (Bytes(1 << 30), 100_000);
        Self { capacity, inodes, privileged: true, takes_time: false, faults: Faults::default(), ignores: None }
    }
}

/// The disk. Clones share it.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    scene: Scene,
    takes_time: bool,
    ignores: Option<IgnoredSync>,
    state: Mutex<State>,
    is_dead: channel::Sender<bool>,
}

#[derive(Debug)]
struct State {
    store: Store,
    watch: Watch,
    pods: Pods,
    rng: Rng,
    faults: Faults,
    crash: Option<CrashPlan>,
    failure: Option<FailurePlan>,
    /// Operations that were asked for: what failure plans count.
    asked: u64,
    /// Steps that were done: what crash plans count.
    steps: u64,
    operations: u64,
    asides: u64,
    read_only_until_ns: u64,
    lost_power: bool,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(shape: DiskShape, scene: &Scene, truth: &Truth) -> Self {
        let state = State {
            store: Store::new(shape.capacity, shape.inodes, shape.privileged, scene.clock.clone()),
            watch: Watch::new(truth.clone()),
            pods: Pods::default(),
            rng: scene.rng("disk"),
            faults: shape.faults,
            crash: None,
            failure: None,
            asked: 0,
            steps: 0,
            operations: 0,
            asides: 0,
            read_only_until_ns: 0,
            lost_power: false,
        };
        Self(Arc::new(Shared {
            scene: scene.clone(),
            takes_time: shape.takes_time,
            ignores: shape.ignores,
            state: Mutex::new(state),
            is_dead: channel::Sender::new(false),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scene it is part of.
    #[must_use]
    pub fn scene(&self) -> &Scene {
        &self.0.scene
    }

    /// Steps that were done since the beginning.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// The agent or the machine dies when so many steps were done.
    pub fn crash_at(&self, plan: Option<CrashPlan>) {
        self.state().crash = plan;
    }

    /// Operations that were asked for since the beginning.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.state().asked
    }

    /// Lets one operation fail, or all from one on; nothing fails by plan where there is none.
    pub fn fail_at(&self, plan: Option<FailurePlan>) {
        self.state().failure = plan;
    }

    /// The agent or the machine dies now.
    pub fn crash_now(&self, kind: CrashKind) {
        let mut state = self.state();
        self.die(&mut state, kind, "between two operations");
    }

    /// From now on faults come as often as this.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state();
        state.faults = faults;
        state.read_only_until_ns = 0;
    }

    /// Whether it answers nothing any more.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        *self.0.is_dead.borrow()
    }

    /// Whether the last crash was a power loss.
    #[must_use]
    pub fn lost_power(&self) -> bool {
        self.state().lost_power
    }

    /// Waits until it answers nothing any more.
    pub async fn died(&self) {
        let mut dead = self.0.is_dead.subscribe();
        // The sender is this disk's own, so there is always one.
        let _seen = dead.wait_for(|dead| *dead).await;
    }

    /// It answers again; whoever asked before must be gone.
    pub fn restart(&self) {
        self.state().crash = None;
        self.0.is_dead.send_replace(false);
        self.0.scene.say(format_args!("disk answers again"));
    }

    fn die(&self, state: &mut State, kind: CrashKind, during: &str) {
        let steps = state.steps;
        self.0.scene.say(format_args!("{kind:?} after step {steps}, {during}"));
        state.crash = None;
        state.lost_power = kind == CrashKind::PowerLoss;
        if kind == CrashKind::PowerLoss {
            state.pods.power_loss();
            let State { store, rng, .. } = state;
            store.power_loss(rng);
            state.read_only_until_ns = 0;
            self.judge_all(state);
        }
        self.0.is_dead.send_replace(true);
    }

    fn judge_all(&self, state: &mut State) {
        let State { store, watch, pods, .. } = state;
        if let Err(broken) = watch.judge_all(store, pods) {
            self.0.scene.broke(&broken);
        }
    }

    /// One atomic step, unless the crash is due before it. `touch` says what it does where, for whoever watches.
    fn step<T>(
        &self,
        touch: &Touch<'_>,
        act: impl FnOnce(&mut State) -> Result<T, Refused>,
    ) -> Option<Result<T, Refused>> {
        let mut state = self.state();
        if self.is_dead() {
            return None;
        }
        if let Some(plan) = state.crash.filter(|plan| plan.at <= state.steps) {
            self.die(&mut state, plan.kind, &format!("before {touch}"));
            return None;
        }
        state.steps += 1;
        let State { store, watch, pods, .. } = &mut *state;
        let hazard = watch.hazard(store, pods, touch);
        let done = act(&mut state);
        if done.is_ok() {
            let State { store, watch, pods, .. } = &mut *state;
            let after = watch.after(store, pods, touch);
            if let Some(broken) = hazard.or(after.err()) {
                self.0.scene.broke(&broken);
            }
        }
        Some(done)
    }

    /// One atomic step of an operation; never returns where the crash came.
    async fn one<T: Send>(
        &self,
        touch: Touch<'_>,
        act: impl FnOnce(&mut State) -> Result<T, Refused> + Send,
    ) -> Result<T, Refused> {
        match self.step(&touch, act) {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    /// Writes bytes of weights into a file that is there.
    ///
    /// # Errors
    /// [`FileError`], also where the crash came: then nothing can be done with it any more.
    pub fn write_at(&self, path: &TreePath, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let failed = |fault, message: &str| {
            Err(FileError { act: "write", path: path.to_string(), fault, message: message.to_owned() })
        };
        let fate = self.state().fate_of_write(self.0.scene.clock.now_ns());
        if let Fate::Fails(refused) = fate {
            self.0.scene.say(format_args!("write {path} {offset}: {}", refused.message));
            return failed(refused.fault, &refused.message);
        }
        let done = self.step(&Touch::Content(path.as_str()), |state| {
            let ino = state.store.find(path.as_str())?;
            state.store.file(ino)?;
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            state.store.write(ino, offset, bytes)
        });
        match done {
            Some(Ok(())) => Ok(()),
            Some(Err(refused)) => failed(refused.fault, &refused.message),
            None => failed(FileFault::Io, "the machine is gone"),
        }
    }

    /// [`write_at`](Self::write_at) for those who can wait: never returns where the crash came.
    ///
    /// # Errors
    /// [`FileError`]
    pub async fn write(&self, path: &TreePath, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let written = self.write_at(path, offset, bytes);
        self.answers().await;
        written
    }

    /// Returns at once, or never where the crash came.
    pub async fn answers(&self) {
        if self.is_dead() {
            std::future::pending().await
        }
    }

    async fn take_time(&self) {
        if !self.0.takes_time {
            return;
        }
        let wait = {
            let mut state = self.state();
            let slow_ppm = state.faults.slow_ppm;
            if state.rng.chance(slow_ppm) {
                Duration::from_millis(state.rng.between(1_000, 20_000))
            } else if state.rng.chance(300_000) {
                Duration::from_millis(state.rng.between(1, 4))
            } else {
                Duration::ZERO
            }
        };
        if wait.is_zero() {
            tokio::task::yield_now().await
        } else {
            tokio::time::sleep(wait).await
        }
        self.answers().await;
    }

    async fn answer(&self, op: &FileOp) -> Result<Answer, Refused> {
        let fate = self.state().fate_of(op, self.0.scene.clock.now_ns());
        match fate {
            Fate::Fails(refused) => Err(refused),
            Fate::Succeeds => self.act(op).await,
            Fate::FailsDone(refused) => self.act(op).await.and(Err(refused)),
        }
    }
}

impl Disk for SimDisk {
    async fn perform(&self, op: FileOp) -> Result<Answer, FileError> {
        self.answers().await;
        let number = {
            let mut state = self.state();
            state.operations += 1;
            state.operations
        };
        self.take_time().await;
        let answer = self.answer(&op).await;
        self.answers().await;
        let (act, path) = op.act();
        match &answer {
            Ok(Answer::Users(users)) => self.0.scene.say(format_args!("#{number} {act} {path}: {users:?}")),
            Ok(_) if look::is_look(&op) => {}
            Ok(_) => self.0.scene.say(format_args!("#{number} {act} {path}")),
            Err(refused) => self.0.scene.say(format_args!("#{number} {act} {path}: {}", refused.message)),
        }
        self.take_time().await;
        answer.map_err(|refused| FileError::new(&op, refused.fault, refused.message))
    }

    async fn pause(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests;
