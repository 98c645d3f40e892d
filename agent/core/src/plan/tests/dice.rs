//! Worlds at random: in go bytes, out comes a world that a pass might meet, likely or not.
//!
//! The first choice of each kind is the plainest, and bytes that run out choose it, so that what fails shrinks to something plain.

use std::ops::Range;

use super::*;

/// Names of caches there may be.
pub(super) const NAMES: [&str; 5] = ["falcon", "gemma", "llama", "mistral", "qwen"];
const SNAPSHOTS: [SnapshotId; 3] = [A, B, C];
/// Bytes that suffice for a world.
pub(super) const THROWS: Range<usize> = 0..400;

/// Choices, drawn from bytes.
pub(super) struct Dice<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// Whether numbers may be as large as numbers get.
    extreme: bool,
}

impl<'a> Dice<'a> {
    pub(super) fn new(bytes: &'a [u8], extreme: bool) -> Self {
        Self { bytes: bytes.iter(), extreme }
    }

    pub(super) fn below(&mut self, count: u8) -> u8 {
        self.bytes.next().copied().unwrap_or(0) % count
    }

    pub(super) fn one_in(&mut self, count: u8) -> bool {
        self.below(count) == count - 1
    }

    fn number(&mut self, most: u8) -> u64 {
        if self.extreme && self.one_in(4) {
            return [u64::MAX, u64::MAX - 1, u64::MAX / 2][usize::from(self.below(3))];
        }
        u64::from(self.below(most))
    }

    fn gib(&mut self, most: u8) -> Bytes {
        let count = self.number(most);
        if count > 255 { Bytes(count) } else { gib(count) }
    }

    fn snapshot(&mut self) -> SnapshotId {
        SNAPSHOTS[usize::from(self.below(3))]
    }

    fn maybe<T>(&mut self, odds: u8, then: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(odds).then(|| then(self))
    }

    fn fingerprint(&mut self, name: &str) -> String {
        self.maybe(6, |_| "another".to_owned()).unwrap_or_else(|| fingerprint(name))
    }
}

/// A world, whole or broken in any way that the types allow.
pub(super) fn world(dice: &mut Dice<'_>) -> World {
    let mut world = World::new();
    let root = world.root();
    root.room.available = dice.gib(80);
    root.headroom = dice.gib(8);
    if dice.one_in(3) {
        (root.room.inodes, root.room.inodes_available) = (1_000, dice.number(255));
        root.headroom_inodes = dice.number(20);
    }
    for name in NAMES {
        cache(dice, name, &mut world);
    }
    world.observed.condemned = match dice.below(4) {
        0 => Seen::Present(Vec::new()),
        1 => Seen::Present(vec!["x.1".to_owned()]),
        2 => Seen::Absent,
        _ => Seen::Unknown("EIO".to_owned()),
    };
    if dice.one_in(8) {
        world = world.runs(JobKey::Sweep, JobKind::Sweep);
    }
    world.limits = PlanLimits {
        stages_max: dice.below(3).into(),
        lists_max: dice.below(3).into(),
        cleans_max: 1 + u32::from(dice.below(3)),
    };
    match dice.below(12) {
        10 => world.observed.root = Seen::Absent,
        11 => world.observed.root = Seen::Unknown("EIO".to_owned()),
        _ => {}
    }
    world
}

fn cache(dice: &mut Dice<'_>, name: &str, world: &mut World) {
    let key = id(name);
    if dice.below(4) < 3 {
        world.desired.caches.insert(key.clone(), desired(dice, name));
    } else if dice.one_in(3) {
        *world = world.clone().rejects(name, Some(name));
    }
    match dice.below(6) {
        0..4 => drop(world.observed.caches.insert(key.clone(), Seen::Present(view(dice, name)))),
        4 => drop(world.observed.caches.insert(key.clone(), Seen::Unknown("EIO".to_owned()))),
        _ => drop(world.observed.caches.insert(key.clone(), Seen::Absent)),
    }
    if dice.below(4) < 3 {
        let (snapshot, blocks, files) = (dice.snapshot(), dice.gib(30), dice.number(200));
        let (origin_fingerprint, is_stale) = (dice.fingerprint(name), dice.one_in(6));
        let age = dice.maybe(4, |dice| dice.number(200)).unwrap_or(0).saturating_mul(10_000);
        *world = world.clone().listed_as(name, snapshot, |listing| {
            (listing.origin_fingerprint, listing.is_stale) = (origin_fingerprint, is_stale);
            listing.listed_at = Millis(MONOTONIC.0.saturating_sub(age));
            listing.summary = ListingSummary { snapshot, files, folders: files, bytes: blocks, blocks };
        });
    }
    if dice.one_in(2)
        && let Seen::Present(root) = &mut world.observed.root
    {
        root.promised.insert(key.clone(), dice.gib(40));
    }
    jobs(dice, &key, world);
    for job in [JobKey::List(key.clone()), JobKey::Stage(key.clone()), JobKey::Clean(key)] {
        if dice.one_in(8) {
            *world = world.clone().failed(job, Reason::DiskError { why: "EIO".to_owned() });
        }
    }
}

fn desired(dice: &mut Dice<'_>, name: &str) -> DesiredCache {
    let mut cache = with_weights(name, |weights| {
        weights.revision = dice.maybe(4, Dice::snapshot);
        if dice.one_in(3) {
            weights.update = Update::Automatic;
        }
        if dice.one_in(4) {
            weights.verification = Verification::Required;
        }
    });
    cache.limit = dice.maybe(4, |dice| dice.gib(40));
    cache.priority = dice.below(3).into();
    cache.refused = dice.maybe(10, |_| "no policy allows it".to_owned());
    if dice.one_in(10) {
        cache.weights = None;
        cache.not_in_this_release = vec!["spec.weights.source.oci".to_owned()];
    }
    cache
}

fn view(dice: &mut Dice<'_>, name: &str) -> CacheView {
    let mut view = empty(name, dice.maybe(2, Dice::snapshot));
    if let Seen::Present(record) = &mut view.record {
        record.origin_fingerprint = dice.fingerprint(name);
        record.unwanted_since = dice.maybe(3, |dice| WallTime(WALL.0 - 1_000 * u64::from(dice.below(8))));
        record.in_hand = dice.maybe(6, |dice| InHand {
            snapshot: dice.snapshot(),
            starts: dice.below(4).into(),
            begun_at: WallTime(WALL.0 - 1_000 * u64::from(dice.below(8))),
        });
    }
    view.has_skeleton = !dice.one_in(8);
    view.current = match dice.below(10) {
        0..2 => Current::Empty,
        2 => Current::Missing,
        3 => Current::RealEmptyFolder,
        4 => Current::Foreign("a file".to_owned()),
        _ => Current::Snapshot(dice.snapshot()),
    };
    match dice.below(12) {
        10 => view.record = Seen::Absent,
        11 => view.record = Seen::Unknown("EIO".to_owned()),
        _ => {}
    }
    for snapshot in SNAPSHOTS {
        if dice.one_in(2) {
            view.snapshots.insert(snapshot, snapshot_view(dice, name));
            view.used += dice.gib(20);
        }
        if dice.one_in(4) {
            let allocated = dice.gib(20);
            view.incoming.insert(snapshot, allocated);
            view.used += allocated;
        }
    }
    view
}

fn snapshot_view(dice: &mut Dice<'_>, name: &str) -> SnapshotView {
    match dice.below(10) {
        0..6 => SnapshotView::Published(Published {
            origin_fingerprint: dice.fingerprint(name),
            verified: [Strength::Crc, Strength::Size, Strength::Digest][usize::from(dice.below(3))],
            users: match dice.below(4) {
                0 => Seen::Present(Vec::new()),
                1 => Seen::Present(vec![user()]),
                2 => Seen::Absent,
                _ => Seen::Unknown("EPERM".to_owned()),
            },
            ..published(name)
        }),
        6 => SnapshotView::ManifestOnly,
        7 => SnapshotView::FolderOnly,
        8 => SnapshotView::Drifted { file: "f".to_owned(), what: "was touched".to_owned() },
        _ => SnapshotView::Unknown("EIO".to_owned()),
    }
}

/// A listing, and beside it a staging or a cleaning: never both for one cache.
fn jobs(dice: &mut Dice<'_>, key: &CacheId, world: &mut World) {
    let mut running = Vec::new();
    if dice.one_in(6) {
        running.push((JobKey::List(key.clone()), JobKind::List));
    }
    if dice.one_in(4) {
        let snapshot = dice.snapshot();
        running.push(match dice.below(6) {
            0..2 => (JobKey::Stage(key.clone()), JobKind::Stage(snapshot)),
            2 => (JobKey::Clean(key.clone()), JobKind::Evict(snapshot)),
            3 => (JobKey::Clean(key.clone()), JobKind::Discard(snapshot)),
            4 => (JobKey::Clean(key.clone()), JobKind::Verify(snapshot)),
            _ => (JobKey::Clean(key.clone()), JobKind::Remove),
        });
    }
    for (job, kind) in running {
        *world = world.clone().runs(job.clone(), kind);
        if let Some(view) = world.observed.jobs.get_mut(&job) {
            view.is_cancelled = dice.one_in(4);
        }
    }
}
