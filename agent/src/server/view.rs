//! What the local API shows: one shape for the server that makes it and the command line that reads it.
//!
//! In go the last pass and the board of running jobs, out come plain records. Progress is as it is now, all else as the pass saw
//! it. Deliberately absent: words for people, but for holds, which are sentences already.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stokehold_core::checksum::{SnapshotId, Strength};
use stokehold_core::hold::{Hold, Subject};
use stokehold_core::name::CacheId;
use stokehold_core::observed::{JobKey, JobKind, JobView, RootView};
use stokehold_core::plan::{Phase, Step, Verdict};
use stokehold_core::quantity::Bytes;
use stokehold_core::report::Condition;
use stokehold_core::seen::Seen;

use crate::run_loop::PassView;

/// How the node stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// Release of the agent.
    pub version: String,
    /// Name of the node.
    pub node: String,
    /// Passes since the agent started.
    pub passes: u64,
    /// The cache root.
    pub root: RootState,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Conditions of the node.
    pub conditions: Vec<Condition>,
    /// Holds that belong to no desired cache.
    pub holds: Vec<HoldView>,
    /// Every desired cache.
    pub caches: Vec<CacheStatus>,
}

/// The cache root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RootState {
    /// It can be used.
    Usable(RootRoom),
    /// It cannot, and why.
    Unusable(String),
}

/// Room at the root, bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootRoom {
    /// Where it is.
    pub path: String,
    /// All bytes of its filesystem.
    pub capacity: Bytes,
    /// Bytes that may still be written, head-room not taken off.
    pub available: Bytes,
    /// Bytes left free for others.
    pub headroom: Bytes,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldView {
    /// What is held.
    pub subject: String,
    /// The cache it belongs to, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheId>,
    /// One word.
    pub reason: String,
    /// One sentence, with numbers.
    pub message: String,
    /// Whether it keeps a cache from being ready.
    pub stands_in_the_way: bool,
}

/// How one cache stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheStatus {
    /// Which.
    pub cache: CacheId,
    /// How it stands.
    pub phase: Phase,
    /// The snapshot it should have.
    pub target: Option<SnapshotId>,
    /// The snapshot that is served.
    pub served: Option<SnapshotId>,
    /// What the origin offered when last listed.
    pub offered: Option<SnapshotId>,
    /// The weakest proof among the served files.
    pub verified: Option<Strength>,
    /// Bytes of the target that are here.
    pub bytes_done: Bytes,
    /// Bytes of the target.
    pub bytes_total: Bytes,
    /// Bytes a second, lately.
    pub rate: Bytes,
    /// Seconds until it is here at this rate, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    /// Work under way for it: `list`, `stage`, `evict`, `discard`, `verify`, `remove`.
    pub jobs: Vec<String>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Why it does not stand better.
    pub holds: Vec<HoldView>,
}

/// What the last pass would do, and what it would not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    /// Which pass made it.
    pub passes: u64,
    /// In order of execution.
    pub steps: Vec<Step>,
    /// In a stable order.
    pub holds: Vec<HoldView>,
}

impl HoldView {
    /// Of one hold. What stands in the way of a cache depends on whether it is served nevertheless.
    fn of(hold: &Hold, verdicts: &BTreeMap<CacheId, Verdict>) -> Self {
        let verdict = hold.subject.cache().and_then(|cache| verdicts.get(cache));
        Self {
            subject: hold.subject.to_string(),
            cache: hold.subject.cache().cloned(),
            reason: hold.reason.name().to_owned(),
            message: hold.reason.to_string(),
            stands_in_the_way: hold.reason.stands_in_the_way(verdict.is_some_and(Verdict::is_target_served)),
        }
    }
}

/// Makes the view of a pass with the jobs that run now.
#[must_use]
pub fn status(node: &str, pass: &PassView, jobs: &BTreeMap<JobKey, JobView>) -> StatusView {
    let belongs = |hold: &&Hold| hold.subject.cache().is_none_or(|cache| !pass.report.caches.contains_key(cache));
    StatusView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: node.to_owned(),
        passes: pass.passes,
        root: root(&pass.observed.root),
        labels: pass.report.labels.clone(),
        conditions: pass.report.conditions.iter().filter(|condition| condition.cache.is_none()).cloned().collect(),
        holds: pass.report.holds.iter().filter(belongs).map(|hold| HoldView::of(hold, &pass.report.caches)).collect(),
        caches: pass.report.caches.iter().map(|(id, verdict)| cache(id, verdict, pass, jobs)).collect(),
    }
}

/// The view of one cache, if it is desired.
#[must_use]
pub fn why(id: &CacheId, pass: &PassView, jobs: &BTreeMap<JobKey, JobView>) -> Option<CacheStatus> {
    pass.report.caches.get(id).map(|verdict| cache(id, verdict, pass, jobs))
}

/// The plan of a pass.
#[must_use]
pub fn plan(pass: &PassView) -> PlanView {
    PlanView {
        passes: pass.passes,
        steps: pass.plan.steps.clone(),
        holds: pass.plan.holds.iter().map(|hold| HoldView::of(hold, &pass.plan.verdicts)).collect(),
    }
}

fn root(seen: &Seen<RootView>) -> RootState {
    match seen {
        Seen::Present(root) => RootState::Usable(RootRoom {
            path: root.path.clone(),
            capacity: root.room.capacity,
            available: root.room.available,
            headroom: root.headroom,
        }),
        Seen::Absent => RootState::Unusable("it is not there".to_owned()),
        Seen::Unknown(why) => RootState::Unusable(why.clone()),
    }
}

fn cache(id: &CacheId, verdict: &Verdict, pass: &PassView, jobs: &BTreeMap<JobKey, JobView>) -> CacheStatus {
    let (done, total, rate) = match jobs.get(&JobKey::Stage(id.clone())) {
        // A job that has not begun to move shows no total yet.
        Some(job) if job.total > Bytes::ZERO => (job.done, job.total, job.rate),
        Some(_) | None => (verdict.bytes_done, verdict.bytes_total, Bytes::ZERO),
    };
    let own = |subject: &Subject| subject.cache() == Some(id);
    CacheStatus {
        cache: id.clone(),
        phase: verdict.phase,
        target: verdict.target,
        served: verdict.served,
        offered: verdict.offered,
        verified: verdict.verified,
        bytes_done: done,
        bytes_total: total,
        rate,
        eta_seconds: eta_seconds(done, total, rate),
        jobs: jobs
            .iter()
            .filter(|(key, _)| key.cache() == Some(id))
            .map(|(_, job)| kind(job.kind).to_owned())
            .collect(),
        conditions: pass
            .report
            .conditions
            .iter()
            .filter(|condition| condition.cache.as_ref() == Some(id))
            .cloned()
            .collect(),
        holds: pass
            .report
            .holds
            .iter()
            .filter(|hold| own(&hold.subject))
            .map(|hold| HoldView::of(hold, &pass.report.caches))
            .collect(),
    }
}

/// Seconds until all is there, rounded up; nothing where nothing moves or nothing is missing.
#[must_use]
pub fn eta_seconds(done: Bytes, total: Bytes, rate: Bytes) -> Option<u64> {
    let missing = total.less(done).0;
    (missing > 0 && rate.0 > 0).then(|| missing.div_ceil(rate.0))
}

const fn kind(kind: JobKind) -> &'static str {
    match kind {
        JobKind::List => "list",
        JobKind::Stage(_) => "stage",
        JobKind::Evict(_) => "evict",
        JobKind::Discard(_) => "discard",
        JobKind::Verify(_) => "verify",
        JobKind::Remove => "remove",
        JobKind::Sweep => "sweep",
    }
}
