//! Saying what was found, then doing what was planned. No choices are made here.

use std::collections::BTreeSet;

use stokehold_core::attempt::JobFailure;
use stokehold_core::checksum::SnapshotId;
use stokehold_core::creation::{create, write_promises, write_record};
use stokehold_core::desired::Desired;
use stokehold_core::file_op::{FileFault, FileOp};
use stokehold_core::hold::Subject;
use stokehold_core::layout::CacheLayout;
use stokehold_core::name::CacheId;
use stokehold_core::observed::{JobKey, JobKind};
use stokehold_core::plan::{Phase, Plan, Step};
use stokehold_core::port::Tree;
use stokehold_core::publishing::point_current;
use stokehold_core::quantity::Bytes;
use stokehold_core::record::{RECORD_VERSION, StatusRecord, encode};
use stokehold_core::report::{VOUCHED_FOR, status_record};
use stokehold_core::seen::Seen;
use stokehold_core::time::Now;
use tracing::warn;

use super::{Loop, PassView};
use crate::job::failure::{of_creation, of_disk};
use crate::job::{clean, list, stage};
use crate::world::World;

/// Mode of the record that pods read.
const STATUS_MODE: u32 = 0o644;

/// What of a pass is out: the report, and what stands in each cache's folder.
#[derive(Debug)]
pub(super) struct Said {
    is_out: bool,
    unsaid: BTreeSet<CacheId>,
}

impl<W: World> Loop<W> {
    /// Writes what pods read, then brings the report out where it differs from the one before.
    pub(super) async fn say(&mut self, desired: &Desired, view: &PassView) -> Said {
        let unsaid = self.say_statuses(desired, view).await;
        let mut is_out = true;
        if self.said.as_ref() != Some(&view.report) {
            match self.world.say(&view.report).await {
                Ok(()) => self.said = Some(view.report.clone()),
                Err(error) => {
                    warn!(error = %error, "the report is not out");
                    is_out = false;
                }
            }
        }
        Said { is_out, unsaid }
    }

    /// The caches whose folders still say something else.
    async fn say_statuses(&mut self, desired: &Desired, view: &PassView) -> BTreeSet<CacheId> {
        let PassView { observed, report, now, .. } = view;
        let mut unsaid = BTreeSet::new();
        for (id, seen) in &observed.caches {
            let Seen::Present(cache) = seen else { continue };
            if !cache.has_skeleton || matches!(cache.record, Seen::Absent | Seen::Unknown(_)) {
                continue;
            }
            let status = match status_record(id, report, now) {
                Some(status) => status,
                None if desired.rejected.iter().any(|rejected| rejected.cache.as_ref() == Some(id)) => continue,
                None => unwanted_status(now),
            };
            if self.statuses.get(id).is_some_and(|before| is_fresh(before, &status, now)) {
                continue;
            }
            let path = CacheLayout::new(id).status();
            let write = FileOp::Replace { path, bytes: encode(&status), mode: STATUS_MODE };
            match Tree(self.world.disk()).act(write).await {
                Ok(()) => drop(self.statuses.insert(id.clone(), status)),
                Err(error) => {
                    warn!(cache = %id, error = %error, "the status that pods read is not written");
                    if !self.unsay(id).await {
                        unsaid.insert(id.clone());
                    }
                }
            }
        }
        self.statuses.retain(|id, _| observed.caches.contains_key(id));
        unsaid
    }

    /// A record that cannot be written anew goes: where none is, nobody vouches for anything. A full disk still lets it go.
    async fn unsay(&mut self, id: &CacheId) -> bool {
        self.statuses.remove(id);
        let path = CacheLayout::new(id).status();
        match Tree(self.world.disk()).act(FileOp::Unlink { path, unused_only: false }).await {
            Ok(()) => true,
            Err(error) => error.fault == FileFault::NotFound,
        }
    }

    /// Performs the steps in order. What takes bytes from a reader is left for the next pass while the report that withdraws them
    /// is not out. True where something was changed that only another pass can see.
    pub(super) async fn perform(&mut self, desired: &Desired, plan: &Plan, said: &Said) -> bool {
        let mut has_changed = false;
        for step in &plan.steps {
            if self.stop.is_cancelled() {
                return false;
            }
            if step.withdraws().is_some_and(|(cache, _)| !said.is_out || said.unsaid.contains(cache)) {
                continue;
            }
            match self.perform_one(desired, step).await {
                Ok(changed) => has_changed |= changed,
                Err((cache, failure)) => {
                    let now = self.world.now().monotonic;
                    // Another pass at once: only that one can say what stands in the way.
                    has_changed |= cache.is_some();
                    let key = cache.map_or(JobKey::Sweep, JobKey::Clean);
                    self.attempts.failed(key, failure, now, self.world.random());
                }
            }
        }
        has_changed
    }

    async fn perform_one(&mut self, desired: &Desired, step: &Step) -> Result<bool, (Option<CacheId>, JobFailure)> {
        let world = self.world.clone();
        let tree = Tree(world.disk());
        match step {
            Step::CancelJob { key } => self.jobs.cancel(key),
            Step::Evict { cache, snapshot } => {
                let work = clean::run_evict(world.clone(), CacheLayout::new(cache), *snapshot);
                self.start_clean(cache, JobKind::Evict(*snapshot), work);
            }
            Step::Discard { cache, snapshot } => {
                let work = clean::run_discard(world.clone(), CacheLayout::new(cache), *snapshot);
                self.start_clean(cache, JobKind::Discard(*snapshot), work);
            }
            Step::Remove { cache } => {
                let work = clean::run_remove(world.clone(), CacheLayout::new(cache));
                self.start_clean(cache, JobKind::Remove, work);
            }
            Step::Verify { cache, snapshot } => {
                let work = clean::run_verify(world.clone(), CacheLayout::new(cache), *snapshot);
                self.start_clean(cache, JobKind::Verify(*snapshot), work);
            }
            Step::Sweep { trees } => {
                let work = clean::run_sweep(world.clone(), trees.clone());
                self.jobs.start(JobKey::Sweep, JobKind::Sweep, world.now().monotonic, |_context| work);
            }
            Step::ShrinkPromises { promised } | Step::GrowPromises { promised } => {
                write_promises(tree, promised).await.map_err(|error| (None, of_disk(&error)))?;
                return Ok(true);
            }
            Step::Create { cache, record } => {
                let made = create(tree, &CacheLayout::new(cache), record).await;
                made.map_err(|error| (Some(cache.clone()), of_creation(&error)))?;
                return Ok(true);
            }
            Step::WriteRecord { cache, record } => {
                let written = write_record(tree, &CacheLayout::new(cache), record).await;
                written.map_err(|error| (Some(cache.clone()), of_disk(&error)))?;
                return Ok(true);
            }
            Step::PointCurrent { cache, snapshot } => {
                let pointed = point_current(tree, &CacheLayout::new(cache), Some(*snapshot)).await;
                pointed.map_err(|error| (Some(cache.clone()), of_disk(&error)))?;
                return Ok(true);
            }
            Step::List { cache } => self.start_list(desired, cache),
            Step::Stage { cache, snapshot, priority, .. } => {
                return Ok(self.start_stage(desired, cache, *snapshot, *priority));
            }
        }
        Ok(false)
    }

    fn start_clean<Work>(&self, cache: &CacheId, kind: JobKind, work: Work)
    where
        Work: Future<Output = crate::job::JobEnd> + Send + 'static,
    {
        let now = self.world.now().monotonic;
        self.jobs.start(JobKey::Clean(cache.clone()), kind, now, |_context| work);
    }

    fn start_list(&self, desired: &Desired, cache: &CacheId) {
        let Some(weights) = desired.caches.get(cache).and_then(|cache| cache.weights.clone()) else { return };
        let world = self.world.clone();
        let now = world.now().monotonic;
        self.jobs.start(JobKey::List(cache.clone()), JobKind::List, now, |context| list::run(world, weights, context));
    }

    /// True where another pass must see to it that the origin is listed first.
    fn start_stage(&mut self, desired: &Desired, cache: &CacheId, snapshot: SnapshotId, priority: i32) -> bool {
        let Some(weights) = desired.caches.get(cache).and_then(|cache| cache.weights.clone()) else { return false };
        // Not known any more: listed again, and staged after that.
        let Some(listing) = self.listings.files(cache, snapshot) else { return true };
        let layout = CacheLayout::new(cache);
        let job = stage::StageJob {
            weights,
            listing,
            layout: layout.snapshot(snapshot),
            cache: Some(layout),
            limits: self.settings.transfer.clone(),
            immutable: self.settings.immutable,
            streams: self.streams.clone(),
            priority,
            subject: Subject::Weights(cache.clone()),
        };
        let (world, metrics) = (self.world.clone(), self.metrics.clone());
        let now = world.now().monotonic;
        let key = JobKey::Stage(cache.clone());
        self.jobs.start(key, JobKind::Stage(snapshot), now, |context| stage::run(world, job, metrics, context));
        false
    }
}

/// What pods read of a cache that nobody asks for any more.
fn unwanted_status(now: &Now) -> StatusRecord {
    StatusRecord {
        version: RECORD_VERSION,
        phase: format!("{:?}", Phase::Cold),
        snapshot: None,
        staging: None,
        bytes_done: Bytes::ZERO,
        bytes_total: Bytes::ZERO,
        holds: vec!["nobody asks for this cache".to_owned()],
        vouched_until: now.wall.after(VOUCHED_FOR),
    }
}

/// Whether what was written says the same and is vouched for long enough still.
fn is_fresh(before: &StatusRecord, now_said: &StatusRecord, now: &Now) -> bool {
    let same = StatusRecord { vouched_until: now_said.vouched_until, ..before.clone() } == *now_said;
    // Progress is read live elsewhere; here half of the vouching is left when it is renewed.
    same && before.vouched_until >= now.wall.after(VOUCHED_FOR / 2)
}
