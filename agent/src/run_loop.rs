//! The loop: observe, plan, report, perform; again when anything may have changed, and now and then in case nothing said so.
//!
//! Every pass starts from the whole state; what wakes the loop carries no data. Steps are performed in the plan's order; what would
//! take bytes from a reader waits until the report without them has been brought out. Deliberately absent: decisions.

mod listings;
mod observe;
mod perform;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stokehold_core::attempt::Attempts;
use stokehold_core::desired::{Desired, DesiredWeights};
use stokehold_core::metric::{
    AVAILABLE, CAPACITY, CORRUPT, EVICTIONS, HEADROOM, HELD, HOLD_SHORT, JOBS, LISTINGS, Metric, PASS_SECONDS, PASSES,
    PROMISED, READY, STAGE_DONE, STAGE_TOTAL, USED, samples,
};
use stokehold_core::name::CacheId;
use stokehold_core::observed::{JobKey, JobKind, Observed};
use stokehold_core::plan::{Plan, PlanLimits, plan};
use stokehold_core::record::StatusRecord;
use stokehold_core::report::{Report, changes, report};
use stokehold_core::time::{Millis, Now};
use stokehold_core::transfer::TransferLimits;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::listings::Listings;
use crate::job::{JobBoard, JobEnd, Jobs};
use crate::metrics::Metrics;
use crate::streams::Streams;
use crate::world::World;

/// Look again this often even if nothing seems to have changed: a missed event costs one period.
const RESYNC_PERIOD: Duration = Duration::from_secs(60);
/// The resync is spread by up to this much, so that nodes that started together do not look together.
const RESYNC_JITTER_MS: u64 = 10_000;
/// While jobs run: one that moves nothing any more must be seen to make way for others.
const RESYNC_PERIOD_BUSY: Duration = Duration::from_secs(2);
/// So many passes follow each other at once while steps change something; then the loop waits, in case two of them undo each other.
const PASSES_AT_ONCE_MAX: u32 = 16;
/// How long that wait is.
const BREATH: Duration = Duration::from_secs(1);
/// Gauges that each pass replaces.
const PASS_GAUGES: &[&Metric] =
    &[&CAPACITY, &AVAILABLE, &HEADROOM, &PROMISED, &USED, &READY, &HELD, &HOLD_SHORT, &JOBS, &STAGE_DONE, &STAGE_TOTAL];

/// How the loop works.
#[derive(Debug, Clone)]
pub struct LoopSettings {
    /// What the planner keeps to.
    pub plan: PlanLimits,
    /// What each transfer keeps to.
    pub transfer: TransferLimits,
    /// Whether published files get the immutable flag.
    pub immutable: bool,
}

/// What the last pass saw and said.
#[derive(Debug, Clone)]
pub struct PassView {
    /// How many passes there were.
    pub passes: u64,
    /// When it was made.
    pub now: Now,
    /// What it saw.
    pub observed: Observed,
    /// What it planned.
    pub plan: Plan,
    /// What it said.
    pub report: Report,
}

/// The loop and all it owns.
pub struct Loop<W: World> {
    world: W,
    desired: watch::Receiver<Desired>,
    settings: LoopSettings,
    metrics: Metrics,
    jobs: Jobs,
    streams: Streams,
    stop: CancellationToken,
    attempts: Attempts,
    listings: Listings,
    asked: BTreeMap<CacheId, DesiredWeights>,
    said: Option<Report>,
    statuses: BTreeMap<CacheId, StatusRecord>,
    passes: u64,
    views: watch::Sender<Option<Arc<PassView>>>,
}

impl<W: World> Loop<W> {
    /// Not started yet. `stop` ends it in an orderly way.
    #[must_use]
    pub fn new(
        world: W,
        desired: watch::Receiver<Desired>,
        settings: LoopSettings,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let jobs = Jobs::new(JobBoard::default(), stop.child_token());
        let streams = Streams::new(settings.transfer.connections_max);
        Self {
            streams,
            world,
            desired,
            settings,
            metrics,
            jobs,
            stop,
            attempts: Attempts::default(),
            listings: Listings::default(),
            asked: BTreeMap::new(),
            said: None,
            statuses: BTreeMap::new(),
            passes: 0,
            views: watch::Sender::new(None),
        }
    }

    /// What each pass saw and said; nothing before the first.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<Option<Arc<PassView>>> {
        self.views.subscribe()
    }

    /// What runs, with progress as it is and not as the last pass saw it.
    #[must_use]
    pub fn board(&self) -> JobBoard {
        self.jobs.board()
    }

    /// Runs until it is stopped; then every job has ended and its journal is durable.
    pub async fn run(mut self) {
        let mut in_a_row = 0;
        while !self.stop.is_cancelled() {
            let has_changed = self.pass().await;
            in_a_row = if has_changed { in_a_row + 1 } else { 0 };
            if has_changed && in_a_row < PASSES_AT_ONCE_MAX {
                continue;
            }
            self.wait(if has_changed { BREATH } else { self.next_look() }).await;
        }
        self.jobs.stop().await;
    }

    /// One pass. True where it changed something that only another pass can see.
    async fn pass(&mut self) -> bool {
        while let Some((key, kind, end)) = self.jobs.try_ended() {
            self.take_in(&key, kind, end);
        }
        let desired = self.desired.borrow_and_update().clone();
        self.forget_what_was_asked_before(&desired);
        let begun = self.world.now();
        let observed = self.observe().await;
        self.listings.keep_only(&desired);
        let keep = |key: &JobKey| {
            key.cache().is_none_or(|cache| desired.caches.contains_key(cache) || observed.caches.contains_key(cache))
        };
        self.attempts.retain(keep);
        let planned = plan(&desired, &observed, &self.attempts, &begun, &self.settings.plan);
        let said = report(&desired, &observed, &planned);
        self.metrics.replace(PASS_GAUGES, &samples(&observed, &planned, &said));
        self.log_changes(&said);
        self.passes += 1;
        self.metrics.count(&PASSES, &[], 1);
        let view = Arc::new(PassView { passes: self.passes, now: begun, observed, plan: planned, report: said });
        // Shown first: whoever acts on a report finds at least as much here.
        self.views.send_replace(Some(view.clone()));
        // What is served now decides what the next pass looks at.
        let serves_anew = self.said.as_ref().is_none_or(|said| !serves_alike(said, &view.report));
        let said = self.say(&desired, &view).await;
        let has_changed = self.perform(&desired, &view.plan, &said).await;
        let took = self.world.now().monotonic.since(view.now.monotonic);
        self.metrics.set(&PASS_SECONDS, &[], took.as_secs_f64());
        has_changed || serves_anew
    }

    /// Where a source is asked for in other words than before, failures of the old words say nothing, and work on them stops.
    fn forget_what_was_asked_before(&mut self, desired: &Desired) {
        let asked: BTreeMap<CacheId, DesiredWeights> = desired
            .caches
            .iter()
            .filter_map(|(id, cache)| cache.weights.clone().map(|weights| (id.clone(), weights)))
            .collect();
        let before = std::mem::replace(&mut self.asked, asked);
        for (id, weights) in &self.asked {
            let Some(was) = before.get(id).filter(|was| *was != weights) else { continue };
            self.attempts.forget(&JobKey::List(id.clone()));
            self.attempts.forget(&JobKey::Stage(id.clone()));
            self.jobs.cancel(&JobKey::List(id.clone()));
            // The endpoint and the region are no part of a snapshot's id.
            if was.source != weights.source {
                self.jobs.cancel(&JobKey::Stage(id.clone()));
            }
        }
    }

    fn log_changes(&mut self, said: &Report) {
        let nothing = Report::default();
        for change in changes(self.said.as_ref().unwrap_or(&nothing), said) {
            let cache = change.cache.map(|cache| cache.to_string()).unwrap_or_default();
            if change.is_warning {
                warn!(cache, reason = change.reason, "{}", change.message);
            } else {
                info!(cache, reason = change.reason, "{}", change.message);
            }
        }
    }

    /// Waits for something that a pass should see. Wakes carry no data.
    async fn wait(&mut self, at_most: Duration) {
        // Each arm is safe to drop: a token keeps its state, a receiver its messages, and a sleep has none.
        let ended = tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            ended = self.jobs.ended() => Some(ended),
            changed = self.desired.changed() => {
                if changed.is_err() {
                    // Whoever says what is desired is gone: nothing will change any more, and what was said last holds.
                    tokio::time::sleep(at_most).await;
                }
                None
            }
            () = tokio::time::sleep(at_most) => None,
        };
        if let Some((key, kind, end)) = ended {
            self.take_in(&key, kind, end);
        }
    }

    fn next_look(&self) -> Duration {
        let now = self.world.now().monotonic;
        let idle = RESYNC_PERIOD + Duration::from_millis(self.world.random() % RESYNC_JITTER_MS);
        let resync = now.after(if self.jobs.view().is_empty() { idle } else { RESYNC_PERIOD_BUSY });
        let due: Option<Millis> = self.listings.next_due(&self.desired.borrow(), now);
        let retry = self.attempts.next_retry(now);
        due.into_iter().chain(retry).fold(resync, Millis::min).since(now)
    }

    fn take_in(&mut self, key: &JobKey, kind: JobKind, end: JobEnd) {
        self.count(kind, &end);
        match end {
            JobEnd::Listed(listing, fingerprint) => {
                let Some(cache) = key.cache() else { return };
                self.attempts.forget(key);
                let is_new = self.listings.put(cache, listing, fingerprint, self.world.now().monotonic);
                if is_new {
                    // What stood in the way of the version before says nothing about this one.
                    self.attempts.forget(&JobKey::Stage(cache.clone()));
                }
            }
            JobEnd::Published(_) => {
                self.attempts.forget(key);
                if let Some(cache) = key.cache() {
                    self.listings.forget_files(cache);
                }
            }
            JobEnd::Done => self.attempts.forget(key),
            JobEnd::Cancelled => {}
            JobEnd::OriginChanged(failure) => {
                if let Some(cache) = key.cache() {
                    self.listings.mark_stale(cache);
                }
                self.attempts.failed(key.clone(), failure, self.world.now().monotonic, self.world.random());
            }
            JobEnd::Failed(failure) => {
                self.attempts.failed(key.clone(), failure, self.world.now().monotonic, self.world.random());
            }
        }
    }

    fn count(&self, kind: JobKind, end: &JobEnd) {
        let has_failed = matches!(end, JobEnd::Failed(_) | JobEnd::OriginChanged(_));
        match kind {
            JobKind::List => self.metrics.count(&LISTINGS, &[if has_failed { "failed" } else { "listed" }], 1),
            JobKind::Evict(_) => {
                let in_use = matches!(end, JobEnd::Failed(failure) if failure.reason.name() == "InUse");
                let outcome = match (in_use, has_failed) {
                    (true, _) => "in_use",
                    (false, true) => "failed",
                    (false, false) => "evicted",
                };
                self.metrics.count(&EVICTIONS, &[outcome], 1);
            }
            JobKind::Verify(_) => {
                if matches!(end, JobEnd::Failed(failure) if failure.reason.name() == "Corrupt") {
                    self.metrics.count(&CORRUPT, &[], 1);
                }
            }
            JobKind::Stage(_) | JobKind::Discard(_) | JobKind::Remove | JobKind::Sweep => {}
        }
    }
}

fn serves_alike(one: &Report, two: &Report) -> bool {
    let served = |report: &Report| -> BTreeMap<CacheId, _> {
        report.caches.iter().filter_map(|(id, verdict)| Some((id.clone(), verdict.served?))).collect()
    };
    served(one) == served(two)
}
