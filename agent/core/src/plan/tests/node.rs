//! A node as far as the planner can tell: steps change it, jobs end or are cut off, bytes are counted.
//!
//! It panics where a step takes bytes that are not there, or gives up bytes that somebody uses.

use super::dice::Dice;
use super::*;

/// One cache's folder.
struct Folder {
    view: CacheView,
    /// Bytes of the folder of each snapshot.
    bytes: BTreeMap<SnapshotId, Bytes>,
}

pub(super) struct Node {
    desired: Desired,
    folders: BTreeMap<CacheId, Folder>,
    origins: BTreeMap<CacheId, (SnapshotId, Bytes)>,
    capacity: Bytes,
    /// Bytes of others on the same filesystem.
    foreign: Bytes,
    promised: BTreeMap<CacheId, Bytes>,
    condemned: BTreeMap<String, Bytes>,
    used_by_pods: BTreeSet<(CacheId, SnapshotId)>,
    /// Caches that cannot be read for the moment.
    hidden: BTreeSet<CacheId>,
    listings: BTreeMap<CacheId, ListingView>,
    jobs: BTreeMap<JobKey, JobView>,
    attempts: Attempts,
    limits: PlanLimits,
    now: Now,
    condemned_so_far: u32,
}

const HEADROOM: Bytes = Bytes(2 * GIB);

fn origin(dice: &mut Dice<'_>) -> (SnapshotId, Bytes) {
    // The size belongs to the id: the same snapshot is always as large.
    [(A, gib(4)), (B, gib(9)), (C, gib(14))][usize::from(dice.below(3))]
}

impl Node {
    pub(super) fn new(dice: &mut Dice<'_>, names: &[&str]) -> Self {
        let mut node = Self {
            desired: Desired::default(),
            folders: BTreeMap::new(),
            origins: BTreeMap::new(),
            capacity: gib(16 + u64::from(dice.below(40))),
            foreign: Bytes::ZERO,
            promised: BTreeMap::new(),
            condemned: BTreeMap::new(),
            used_by_pods: BTreeSet::new(),
            hidden: BTreeSet::new(),
            listings: BTreeMap::new(),
            jobs: BTreeMap::new(),
            attempts: Attempts::default(),
            limits: PlanLimits { stages_max: 1 + u32::from(dice.below(2)), lists_max: 2, cleans_max: 2 },
            now: now(),
            condemned_so_far: 0,
        };
        for name in names {
            node.origins.insert(id(name), origin(dice));
            node.ask(dice, name);
        }
        node
    }

    fn ask(&mut self, dice: &mut Dice<'_>, name: &str) {
        let mut cache = with_weights(name, |weights| {
            if dice.one_in(2) {
                weights.update = Update::Automatic;
            }
        });
        cache.priority = dice.below(3).into();
        cache.retain_after_delete = Duration::from_secs(u64::from(dice.below(2)) * 3_600);
        cache.limit = dice.one_in(4).then(|| gib(12));
        self.desired.caches.insert(cache.id.clone(), cache);
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now.wall = self.now.wall.after(time);
        self.now.monotonic = self.now.monotonic.after(time);
    }

    /// Waits until what failed may be tried again, if anything did.
    pub(super) fn waits_for_its_next_retry(&mut self) -> bool {
        let Some(at) = self.attempts.next_retry(self.now.monotonic) else { return false };
        self.wait(at.since(self.now.monotonic) + Duration::from_secs(1));
        true
    }

    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    fn available(&self) -> Bytes {
        let used: Bytes = self.folders.values().map(Folder::used).sum();
        let condemned: Bytes = self.condemned.values().copied().sum();
        self.capacity.less(self.foreign + used + condemned)
    }

    /// Bytes that may be promised, beside the head-room.
    pub(super) fn writable(&self) -> Bytes {
        self.available().less(HEADROOM)
    }

    /// Bytes that are promised and not on the disk.
    pub(super) fn outstanding(&self) -> Bytes {
        let used = |cache| self.folders.get(cache).map_or(Bytes::ZERO, Folder::used);
        self.promised.iter().map(|(cache, promised)| promised.less(used(cache))).sum()
    }

    fn observe(&self) -> Observed {
        let mut world = World::new();
        let room = Room { capacity: self.capacity, available: self.available(), inodes: 0, inodes_available: 0 };
        let root = world.root();
        (root.room, root.headroom, root.promised) = (room, HEADROOM, self.promised.clone());
        world.observed.caches =
            self.folders.iter().map(|(cache, folder)| (cache.clone(), self.see(cache, folder))).collect();
        world.observed.condemned = Seen::Present(self.condemned.keys().cloned().collect());
        world.observed.listings.clone_from(&self.listings);
        world.observed.jobs.clone_from(&self.jobs);
        world.observed
    }

    fn see(&self, cache: &CacheId, folder: &Folder) -> Seen<CacheView> {
        if self.hidden.contains(cache) {
            return Seen::Unknown("EIO".to_owned());
        }
        let mut view = CacheView { used: folder.used(), ..folder.view.clone() };
        for (snapshot, found) in &mut view.snapshots {
            if let SnapshotView::Published(found) = found {
                let is_used = self.used_by_pods.contains(&(cache.clone(), *snapshot));
                found.users = Seen::Present(if is_used { vec![user()] } else { Vec::new() });
            }
        }
        Seen::Present(view)
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.desired, &self.observe(), &self.attempts, &self.now, &self.limits)
    }

    fn folder(&mut self, cache: &CacheId) -> &mut Folder {
        self.folders.get_mut(cache).expect("a step works on a cache that was seen")
    }

    fn start(&mut self, key: JobKey, kind: JobKind) {
        let (done, total, rate, since) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO, self.now.monotonic);
        let job = JobView { kind, is_cancelled: false, done, total, rate, since, moved_at: since };
        assert_eq!(self.jobs.insert(key, job), None, "two jobs of one kind for one subject");
    }

    pub(super) fn perform(&mut self, step: &Step) {
        let clean = |cache: &CacheId| JobKey::Clean(cache.clone());
        match step {
            Step::CancelJob { key } => self.jobs.get_mut(key).expect("it runs").is_cancelled = true,
            Step::Evict { cache, snapshot } => self.start(clean(cache), JobKind::Evict(*snapshot)),
            Step::Discard { cache, snapshot } => self.start(clean(cache), JobKind::Discard(*snapshot)),
            Step::Remove { cache } => self.start(clean(cache), JobKind::Remove),
            Step::Verify { cache, snapshot } => self.start(clean(cache), JobKind::Verify(*snapshot)),
            Step::Sweep { .. } => self.start(JobKey::Sweep, JobKind::Sweep),
            Step::List { cache } => self.start(JobKey::List(cache.clone()), JobKind::List),
            Step::ShrinkPromises { promised } => self.promised.clone_from(promised),
            Step::GrowPromises { promised } => {
                let before = self.outstanding();
                self.promised.clone_from(promised);
                let (after, writable) = (self.outstanding(), self.writable());
                assert!(after <= writable.max(before), "{after} promised of {writable}");
            }
            Step::Create { cache, record } => self.create(cache, record),
            Step::WriteRecord { cache, record } => {
                self.folder(cache).view.record = Seen::Present(record.clone());
            }
            Step::PointCurrent { cache, snapshot } => {
                self.folder(cache).view.current = Current::Snapshot(*snapshot);
            }
            Step::Stage { cache, snapshot, .. } => self.begin_stage(cache, *snapshot),
        }
    }

    fn create(&mut self, cache: &CacheId, record: &DeploymentRecord) {
        let whole = || Folder { view: empty("new", None), bytes: BTreeMap::new() };
        let view = &mut self.folders.entry(cache.clone()).or_insert_with(whole).view;
        view.record = Seen::Present(record.clone());
        view.has_skeleton = true;
        if matches!(view.current, Current::Missing | Current::RealEmptyFolder) {
            view.current = Current::Empty;
        }
    }

    fn begin_stage(&mut self, cache: &CacheId, snapshot: SnapshotId) {
        let begun_at = self.now.wall;
        let blocks = self.listings[cache].summary.blocks;
        let folder = self.folder(cache);
        assert!(!folder.bytes.contains_key(&snapshot), "{snapshot} is there already");
        let Seen::Present(record) = &mut folder.view.record else { panic!("staged without a record") };
        let starts =
            record.in_hand.as_ref().filter(|in_hand| in_hand.snapshot == snapshot).map_or(0, |hand| hand.starts);
        record.in_hand = Some(InHand { snapshot, starts: starts + 1, begun_at });
        folder.view.incoming.insert(snapshot, blocks);
        let used = folder.used();
        assert!(self.promised.get(cache) >= Some(&used), "{cache} takes more than it was promised");
        assert!(self.available() >= HEADROOM, "{cache} takes bytes that are not there");
        self.start(JobKey::Stage(cache.clone()), JobKind::Stage(snapshot));
    }

    pub(super) fn all_jobs_end(&mut self) {
        for (key, job) in std::mem::take(&mut self.jobs) {
            self.end(&key, &job);
        }
    }

    pub(super) fn some_jobs_end(&mut self, dice: &mut Dice<'_>) {
        for key in self.jobs.keys().cloned().collect::<Vec<_>>() {
            let fate = dice.below(3);
            let Some(job) = (fate > 0).then(|| self.jobs.remove(&key)).flatten() else { continue };
            if fate == 1 {
                self.end(&key, &job);
            } else {
                self.fail(&key, Reason::DiskError { why: "EIO".to_owned() });
                self.put_down(&key);
            }
        }
    }

    fn fail(&mut self, key: &JobKey, reason: Reason) {
        let failure = JobFailure { reason, disposition: Disposition::Retry };
        self.attempts.failed(key.clone(), failure, self.now.monotonic, 0);
    }

    /// A staging that ended in an orderly way is not in hand any more.
    fn put_down(&mut self, key: &JobKey) {
        if let JobKey::Stage(cache) = key
            && let Some(Folder { view: CacheView { record: Seen::Present(record), .. }, .. }) =
                self.folders.get_mut(cache)
        {
            record.in_hand = None;
        }
    }

    fn end(&mut self, key: &JobKey, job: &JobView) {
        self.put_down(key);
        self.attempts.forget(key);
        if job.is_cancelled {
            return;
        }
        let Some(cache) = key.cache() else { return self.condemned.clear() };
        match job.kind {
            JobKind::List => self.list(cache),
            JobKind::Stage(snapshot) => self.publish(key, cache, snapshot),
            JobKind::Evict(snapshot) if self.used_by_pods.contains(&(cache.clone(), snapshot)) => {
                self.fail(key, Reason::in_use(&[user()]));
            }
            JobKind::Evict(snapshot) => {
                let folder = self.folder(cache);
                if folder.view.current == Current::Snapshot(snapshot) {
                    folder.view.current = Current::Empty;
                }
                folder.view.snapshots.remove(&snapshot);
                folder.bytes.remove(&snapshot);
            }
            JobKind::Discard(snapshot) => drop(self.folder(cache).view.incoming.remove(&snapshot)),
            JobKind::Verify(snapshot) => {
                self.folder(cache).view.snapshots.insert(snapshot, SnapshotView::FolderOnly);
            }
            JobKind::Remove => drop(self.folders.remove(cache)),
            JobKind::Sweep => {}
        }
    }

    fn list(&mut self, cache: &CacheId) {
        let Some(weights) = self.desired.caches.get(cache).and_then(|cache| cache.weights.as_ref()) else { return };
        let (snapshot, blocks) = self.origins[cache];
        let summary = ListingSummary { snapshot, files: 3, folders: 0, bytes: blocks, blocks };
        let origin_fingerprint = weights.origin_fingerprint();
        let listing = ListingView { origin_fingerprint, summary, listed_at: self.now.monotonic, is_stale: false };
        self.listings.insert(cache.clone(), listing);
    }

    fn publish(&mut self, key: &JobKey, cache: &CacheId, snapshot: SnapshotId) {
        if self.origins[cache].0 != snapshot {
            self.fail(key, Reason::OriginBroken { why: "changed".to_owned() });
            if let Some(listing) = self.listings.get_mut(cache) {
                listing.is_stale = true;
            }
            return;
        }
        let name = cache.name.to_string();
        let folder = self.folder(cache);
        let bytes = folder.view.incoming.remove(&snapshot).expect("allocated when it began");
        folder.bytes.insert(snapshot, bytes);
        folder.view.snapshots.insert(snapshot, SnapshotView::Published(Published { bytes, ..published(&name) }));
        folder.view.current = Current::Snapshot(snapshot);
    }

    /// The agent dies: what it knew is gone, and what it was doing is half done.
    pub(super) fn crash(&mut self, dice: &mut Dice<'_>) {
        self.listings.clear();
        self.attempts = Attempts::default();
        for (key, job) in std::mem::take(&mut self.jobs) {
            let Some(cache) = key.cache() else { continue };
            match job.kind {
                JobKind::List | JobKind::Sweep | JobKind::Verify(_) => {}
                JobKind::Discard(snapshot) => self.condemn(cache, |folder| folder.view.incoming.remove(&snapshot)),
                JobKind::Remove => self.condemn_folder(cache),
                JobKind::Evict(snapshot) => self.evicted_by_half(dice, cache, snapshot),
                JobKind::Stage(snapshot) => self.staged_by_half(dice, cache, snapshot),
            }
        }
    }

    fn condemn(&mut self, cache: &CacheId, from: impl FnOnce(&mut Folder) -> Option<Bytes>) {
        let bytes = from(self.folder(cache)).unwrap_or_default();
        self.condemned_so_far += 1;
        self.condemned.insert(format!("tree.{}", self.condemned_so_far), bytes);
    }

    fn condemn_folder(&mut self, cache: &CacheId) {
        self.condemn(cache, |folder| Some(folder.used()));
        self.folders.remove(cache);
    }

    fn evicted_by_half(&mut self, dice: &mut Dice<'_>, cache: &CacheId, snapshot: SnapshotId) {
        let folder = self.folder(cache);
        if folder.view.current == Current::Snapshot(snapshot) {
            folder.view.current = Current::Empty;
        }
        if dice.one_in(2) && !self.used_by_pods.contains(&(cache.clone(), snapshot)) {
            self.condemn(cache, |folder| folder.bytes.remove(&snapshot));
            self.folder(cache).view.snapshots.insert(snapshot, SnapshotView::ManifestOnly);
        }
    }

    fn staged_by_half(&mut self, dice: &mut Dice<'_>, cache: &CacheId, snapshot: SnapshotId) {
        let name = cache.name.to_string();
        let folder = self.folder(cache);
        match dice.below(3) {
            0 => {}
            1 => drop(folder.view.snapshots.insert(snapshot, SnapshotView::ManifestOnly)),
            // Renamed; its journal is still there, and nothing points to it.
            _ => {
                let bytes = folder.view.incoming.insert(snapshot, Bytes::ZERO).expect("allocated when it began");
                folder.bytes.insert(snapshot, bytes);
                folder
                    .view
                    .snapshots
                    .insert(snapshot, SnapshotView::Published(Published { bytes, ..published(&name) }));
            }
        }
    }

    /// Something happens that nobody planned.
    pub(super) fn meddle(&mut self, dice: &mut Dice<'_>) {
        self.hidden.clear();
        let names: Vec<CacheId> = self.origins.keys().cloned().collect();
        let cache = names[usize::from(dice.below(3))].clone();
        match dice.below(10) {
            0..3 => {}
            3 => drop(self.origins.insert(cache, origin(dice))),
            4 => drop(self.desired.caches.remove(&cache)),
            5 => self.ask(dice, cache.name.as_str()),
            6 => drop(self.hidden.insert(cache)),
            7 => self.foreign = gib(u64::from(dice.below(12))).min(self.available() + self.foreign),
            8 => self.pods_come_and_go(&cache),
            _ => self.damage(dice, &cache),
        }
    }

    fn pods_come_and_go(&mut self, cache: &CacheId) {
        let Some(folder) = self.folders.get(cache) else { return };
        let Current::Snapshot(snapshot) = folder.view.current else { return };
        let pod = (cache.clone(), snapshot);
        if !self.used_by_pods.remove(&pod) {
            self.used_by_pods.insert(pod);
        }
    }

    fn damage(&mut self, dice: &mut Dice<'_>, cache: &CacheId) {
        let is_worked_on = self.jobs.keys().any(|key| key.cache() == Some(cache));
        let Some(folder) = self.folders.get_mut(cache).filter(|_| !is_worked_on) else { return };
        let fate = dice.below(3);
        for (snapshot, found) in &mut folder.view.snapshots {
            if folder.bytes.contains_key(snapshot) && fate == 0 {
                *found = SnapshotView::Drifted { file: "f".to_owned(), what: "was touched".to_owned() };
            }
        }
        if fate == 1 {
            (folder.view.has_skeleton, folder.view.current) = (false, Current::Missing);
        }
    }

    /// From now on nothing happens that nobody planned.
    pub(super) fn calm_down(&mut self) {
        self.hidden.clear();
        self.used_by_pods.clear();
    }

    /// There is room for all, and whatever the origins offer is taken.
    pub(super) fn has_room_and_follows(&mut self) {
        self.capacity = gib(200);
        for cache in self.desired.caches.values_mut() {
            cache.limit = None;
            if let Some(weights) = &mut cache.weights {
                weights.update = Update::Automatic;
            }
        }
    }

    /// Each cache holds what it should and no more.
    pub(super) fn check_that_nothing_is_left_over(&self, plan: &Plan) {
        assert!(self.condemned.is_empty(), "{:?}", self.condemned);
        for (cache, folder) in &self.folders {
            let Some(verdict) = plan.verdicts.get(cache) else {
                let is_retained = plan.holds.iter().any(|hold| hold.subject.cache() == Some(cache));
                assert!(is_retained, "{cache} is neither asked for nor said to be retained");
                continue;
            };
            if verdict.phase == Phase::Ready {
                assert!(folder.view.incoming.is_empty(), "{cache}: {:?}", folder.view);
                assert_eq!(
                    folder.bytes.keys().copied().collect::<Vec<_>>(),
                    verdict.served.into_iter().collect::<Vec<_>>()
                );
            }
        }
    }
}

impl Folder {
    fn used(&self) -> Bytes {
        self.bytes.values().chain(self.view.incoming.values()).copied().sum()
    }
}
