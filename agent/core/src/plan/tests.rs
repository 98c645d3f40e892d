//! The planner as tables: a small world in, lines of text out.
//!
//! Steps come first, in order of execution: `create llama`. Then holds: `hold llama NoRoom: needs …`. Then how each desired cache
//! stands: `llama Ready, target A, serves A`. Caches stand in one namespace, which the lines leave out; snapshots are A, B and C.

use std::time::Duration;

use super::*;
use crate::attempt::{Disposition, JobFailure};
use crate::desired::{DesiredWeights, Rejected, Update, Verification};
use crate::file_op::{Room, User, UserSource};
use crate::listing::ListingSummary;
use crate::observed::{CacheView, Current, JobView, ListingView, Published, QuotaMechanism, SnapshotView, Storage};
use crate::record::{InHand, RECORD_VERSION};
use crate::source::Source;
use crate::time::{BootId, Millis, WallTime};

mod cleaning;
mod dice;
mod listing;
mod node;
mod property;
mod settles;
mod space;
mod staging;
mod unwanted;

const A: SnapshotId = SnapshotId([0xaa; 8]);
const B: SnapshotId = SnapshotId([0xbb; 8]);
const C: SnapshotId = SnapshotId([0xcc; 8]);
const GIB: u64 = 1 << 30;
/// Long after the machine was booted, so that earlier moments exist.
const MONOTONIC: Millis = Millis(1_000_000_000);
/// 2027-01-15T08:00:00Z.
const WALL: WallTime = WallTime(1_800_000_000);

fn gib(count: u64) -> Bytes {
    Bytes(count * GIB)
}

fn id(name: &str) -> CacheId {
    CacheId::new("inference", name).expect("a DNS label")
}

fn now() -> Now {
    Now { wall: WALL, monotonic: MONOTONIC, boot_id: BootId("first".to_owned()) }
}

/// A cache that asks for weights from a folder of its own name.
fn wanted(name: &str) -> DesiredCache {
    let weights = DesiredWeights {
        source: Source::node_path(&format!("/models/{name}")).expect("absolute"),
        include: Vec::new(),
        exclude: Vec::new(),
        revision: None,
        update: Update::Manual,
        check_interval: Duration::from_secs(600),
        verification: Verification::BestOffered,
    };
    DesiredCache {
        id: id(name),
        weights: Some(weights),
        asks_for_weights: true,
        asks_for_images: false,
        limit: None,
        priority: 0,
        retain_after_delete: Duration::from_secs(3_600),
        not_in_this_release: Vec::new(),
        refused: None,
    }
}

fn with_weights(name: &str, change: impl FnOnce(&mut DesiredWeights)) -> DesiredCache {
    let mut cache = wanted(name);
    change(cache.weights.as_mut().expect("wanted with weights"));
    cache
}

fn fingerprint(name: &str) -> String {
    wanted(name).weights.expect("wanted with weights").origin_fingerprint()
}

fn record(name: &str, target: Option<SnapshotId>) -> DeploymentRecord {
    DeploymentRecord {
        version: RECORD_VERSION,
        target,
        origin_fingerprint: fingerprint(name),
        retain_after_delete_s: 3_600,
        priority: 0,
        unwanted_since: None,
        in_hand: None,
    }
}

/// A cache whose folder is whole and holds nothing yet.
fn empty(name: &str, target: Option<SnapshotId>) -> CacheView {
    CacheView {
        record: Seen::Present(record(name, target)),
        has_skeleton: true,
        current: Current::Empty,
        snapshots: BTreeMap::new(),
        incoming: BTreeMap::new(),
        used: Bytes::ZERO,
    }
}

/// 10 GiB, proven by a CRC, used by nobody.
fn published(name: &str) -> Published {
    Published {
        origin_fingerprint: fingerprint(name),
        verified: Strength::Crc,
        files: 10,
        bytes: gib(10),
        published_at: WALL,
        users: Seen::Present(Vec::new()),
    }
}

/// A cache that serves a snapshot.
fn serving(name: &str, snapshot: SnapshotId) -> CacheView {
    let found = Published { users: Seen::Unknown("not looked at".to_owned()), ..published(name) };
    CacheView {
        current: Current::Snapshot(snapshot),
        snapshots: [(snapshot, SnapshotView::Published(found))].into(),
        used: gib(10),
        ..empty(name, Some(snapshot))
    }
}

fn with(mut view: CacheView, snapshot: SnapshotId, found: SnapshotView) -> CacheView {
    view.snapshots.insert(snapshot, found);
    view
}

fn user() -> User {
    User { source: UserSource::Mount, pid: Some(42), path: "snapshots/x".to_owned() }
}

/// What a pass is given.
#[derive(Debug, Clone)]
struct World {
    desired: Desired,
    observed: Observed,
    attempts: Attempts,
    now: Now,
    limits: PlanLimits,
}

impl World {
    /// A root with 100 GiB to give and nothing on it.
    fn new() -> Self {
        let room = Room { capacity: gib(110), available: gib(110), inodes: 0, inodes_available: 0 };
        let root = RootView {
            path: "/cache".to_owned(),
            room,
            headroom: gib(10),
            headroom_inodes: 0,
            promised: BTreeMap::new(),
            storage: Seen::Present(Storage::Nvme),
            quota: QuotaMechanism::Accounting,
        };
        let observed = Observed {
            root: Seen::Present(root),
            caches: BTreeMap::new(),
            condemned: Seen::Present(Vec::new()),
            listings: BTreeMap::new(),
            jobs: BTreeMap::new(),
        };
        Self {
            desired: Desired::default(),
            observed,
            attempts: Attempts::default(),
            now: now(),
            limits: PlanLimits::default(),
        }
    }

    fn wants(mut self, cache: DesiredCache) -> Self {
        self.desired.caches.insert(cache.id.clone(), cache);
        self
    }

    fn rejects(mut self, place: &str, cache: Option<&str>) -> Self {
        let (place, cache, reason) = (place.to_owned(), cache.map(id), "spec: is not a map".to_owned());
        self.desired.rejected.push(Rejected { place, cache, reason });
        self
    }

    fn has(self, name: &str, view: CacheView) -> Self {
        self.sees(name, Seen::Present(view))
    }

    fn sees(mut self, name: &str, view: Seen<CacheView>) -> Self {
        self.observed.caches.insert(id(name), view);
        self
    }

    /// The origin of a cache was listed just now and offers 10 GiB.
    fn listed(self, name: &str, snapshot: SnapshotId) -> Self {
        self.listed_as(name, snapshot, |_listing| {})
    }

    fn listed_as(mut self, name: &str, snapshot: SnapshotId, change: impl FnOnce(&mut ListingView)) -> Self {
        let summary = ListingSummary { snapshot, files: 10, folders: 2, bytes: gib(10), blocks: gib(10) };
        let mut listing =
            ListingView { origin_fingerprint: fingerprint(name), summary, listed_at: MONOTONIC, is_stale: false };
        change(&mut listing);
        self.observed.listings.insert(id(name), listing);
        self
    }

    fn root(&mut self) -> &mut RootView {
        match &mut self.observed.root {
            Seen::Present(root) => root,
            Seen::Absent | Seen::Unknown(_) => panic!("this world has no root"),
        }
    }

    fn promised(mut self, name: &str, bytes: Bytes) -> Self {
        self.root().promised.insert(id(name), bytes);
        self
    }

    /// So many bytes can be promised, beside the head-room.
    fn free(mut self, bytes: Bytes) -> Self {
        let root = self.root();
        root.room.available = bytes + root.headroom;
        self
    }

    fn runs(mut self, key: JobKey, kind: JobKind) -> Self {
        let (done, total, rate) = (gib(3), gib(10), Bytes(1 << 20));
        self.observed.jobs.insert(
            key,
            JobView { kind, is_cancelled: false, done, total, rate, since: MONOTONIC, moved_at: MONOTONIC },
        );
        self
    }

    /// A job failed just now.
    fn failed(mut self, key: JobKey, reason: Reason) -> Self {
        let failure = JobFailure { reason, disposition: Disposition::Retry };
        self.attempts.failed(key, failure, MONOTONIC, 0);
        self
    }

    fn later(mut self, seconds: u64) -> Self {
        self.now.wall = self.now.wall.after(Duration::from_secs(seconds));
        self.now.monotonic = self.now.monotonic.after(Duration::from_secs(seconds));
        self
    }

    fn plan(&self) -> Plan {
        plan(&self.desired, &self.observed, &self.attempts, &self.now, &self.limits)
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) {
        assert_eq!(lines(&self.plan()), expected);
    }
}

fn lines(plan: &Plan) -> Vec<String> {
    let steps = plan.steps.iter().map(step_line);
    let holds = plan.holds.iter().map(|hold| {
        let subject = match &hold.subject {
            Subject::Weights(cache) => cache.to_string(),
            Subject::Node | Subject::Images(_) | Subject::Document(_) => hold.subject.to_string(),
        };
        format!("hold {subject} {}: {}", hold.reason.name(), hold.reason)
    });
    let verdicts = plan.verdicts.iter().map(|(cache, verdict)| {
        let one = |what: &str, snapshot: Option<SnapshotId>| {
            snapshot.map(|snapshot| format!(", {what} {snapshot}")).unwrap_or_default()
        };
        format!("{cache} {:?}{}{}", verdict.phase, one("target", verdict.target), one("serves", verdict.served))
    });
    let short = |line: String| {
        let line = line.replace("inference/", "");
        [(A, "A"), (B, "B"), (C, "C")].iter().fold(line, |line, (id, name)| line.replace(&id.to_string(), name))
    };
    steps.chain(holds).chain(verdicts).map(short).collect()
}

fn step_line(step: &Step) -> String {
    let promises = |promised: &BTreeMap<CacheId, Bytes>| {
        promised.iter().map(|(cache, bytes)| format!(" {cache}={bytes}")).collect::<String>()
    };
    match step {
        Step::CancelJob { key } => match key.cache() {
            Some(cache) => format!("cancel {cache} {}", key.kind()),
            None => format!("cancel {}", key.kind()),
        },
        Step::Evict { cache, snapshot } => format!("evict {cache} {snapshot}"),
        Step::Discard { cache, snapshot } => format!("discard {cache} {snapshot}"),
        Step::Remove { cache } => format!("remove {cache}"),
        Step::Sweep { trees } => format!("sweep {}", trees.join(" ")),
        Step::ShrinkPromises { promised } => format!("shrink to{}", promises(promised)),
        Step::Create { cache, record } => format!("create {cache}{}", record_line(record)),
        Step::WriteRecord { cache, record } => format!("record {cache}{}", record_line(record)),
        Step::GrowPromises { promised } => format!("grow to{}", promises(promised)),
        Step::PointCurrent { cache, snapshot } => format!("point {cache} {snapshot}"),
        Step::Verify { cache, snapshot } => format!("verify {cache} {snapshot}"),
        Step::List { cache } => format!("list {cache}"),
        Step::Stage { cache, snapshot, priority, bytes } => format!("stage {cache} {snapshot} {bytes} at {priority}"),
    }
}

fn record_line(record: &DeploymentRecord) -> String {
    let target = record.target.map(|target| format!(" target {target}"));
    let unwanted = record.unwanted_since.map(|since| format!(" unwanted since {since}"));
    let in_hand = record.in_hand.as_ref().map(|in_hand| format!(" in hand {}", in_hand.snapshot));
    [target, unwanted, in_hand].into_iter().flatten().collect()
}
