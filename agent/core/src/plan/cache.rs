//! One cache that is asked for: made, listed, given a target, staged, pointed to, and rid of what it no longer needs.

use std::time::Duration;

use crate::checksum::{SnapshotId, Strength};
use crate::desired::{DesiredCache, DesiredWeights, Verification};
use crate::hold::Reason;
use crate::name::CacheId;
use crate::observed::{CacheView, Current, JobKey, JobKind, ListingView, Published, SnapshotView};
use crate::quantity::Bytes;
use crate::record::{DeploymentRecord, InHand, RECORD_VERSION};
use crate::seen::Seen;

use super::room::Candidate;
use super::target::target;
use super::{LIST_PLACES_MAX, Phase, Planner, Step};

/// A staging that was begun so often without a byte arriving, and never ended in an orderly way, waits.
const FRUITLESS_STARTS_MAX: u32 = 2;
/// How long it waits.
const QUARANTINE: Duration = Duration::from_secs(3_600);

impl<'a> Planner<'a> {
    pub(super) fn cache(&mut self, id: &CacheId, cache: &DesiredCache) {
        let listing = cache.weights.as_ref().and_then(|weights| self.listing(id, weights));
        if let Some(weights) = &cache.weights {
            self.list_if_due(id, weights, listing);
        }
        let view = match self.observed.caches.get(id) {
            Some(Seen::Present(view)) => view,
            Some(Seen::Unknown(why)) => return self.hold_weights(id, Reason::CacheUnknown { why: why.clone() }),
            Some(Seen::Absent) | None => {
                let record = self.record(cache, None, listing);
                return self.create(id, record);
            }
        };
        let recorded = match &view.record {
            Seen::Present(record) => Some(record),
            Seen::Absent => None,
            Seen::Unknown(why) => return self.hold_weights(id, Reason::CacheUnknown { why: why.clone() }),
        };
        if let Current::Foreign(found) = &view.current {
            return self.hold_weights(id, Reason::CurrentIsForeign { found: found.clone() });
        }
        if let Some(weights) = &cache.weights {
            self.judge(id, weights, view, recorded, listing);
        }
        if let Some((key, job)) = self.cleaning_or_staging(id) {
            let is_outdated =
                matches!(job.kind, JobKind::Stage(snapshot) if self.verdicts[id].target != Some(snapshot));
            // Where no weights are asked for any more, it is an orphan and is cancelled with the others.
            if is_outdated && cache.weights.is_some() && !job.is_cancelled {
                let key = key.clone();
                self.steps.push(Step::CancelJob { key });
            }
            return self.follow(id);
        }
        let record = self.record(cache, recorded, listing);
        if !view.has_skeleton || recorded.is_none() {
            return self.create(id, record);
        }
        if recorded != Some(&record) {
            self.steps.push(Step::WriteRecord { cache: id.clone(), record });
        }
        if let Some(weights) = &cache.weights {
            self.weights(cache, weights, view, recorded.and_then(|record| record.in_hand.as_ref()), listing);
        }
    }

    fn create(&mut self, id: &CacheId, record: DeploymentRecord) {
        match self.attempts.barring(&JobKey::Clean(id.clone()), self.now.monotonic) {
            Some(attempt) => self.hold_weights(id, attempt.last.reason.clone()),
            None => self.steps.push(Step::Create { cache: id.clone(), record }),
        }
    }

    /// What was listed for this very source and choice of files.
    fn listing(&self, id: &CacheId, weights: &DesiredWeights) -> Option<&'a ListingView> {
        let fingerprint = weights.origin_fingerprint();
        self.observed.listings.get(id).filter(|listing| listing.origin_fingerprint == fingerprint)
    }

    fn list_if_due(&mut self, id: &CacheId, weights: &DesiredWeights, listing: Option<&ListingView>) {
        let key = JobKey::List(id.clone());
        let now = self.now.monotonic;
        let is_due =
            listing.is_none_or(|listing| listing.is_stale || now >= listing.listed_at.after(weights.check_interval));
        if !is_due || self.observed.jobs.contains_key(&key) {
            return;
        }
        if let Some(attempt) = self.attempts.barring(&key, now) {
            return self.hold_weights(id, attempt.last.reason.clone());
        }
        if let Some(ahead) = self.lists_ahead(id) {
            return self.hold_weights(id, Reason::WaitingForTurn { ahead });
        }
        self.steps.push(Step::List { cache: id.clone() });
    }

    /// How many listings go first, where they are so many that this one has to wait.
    fn lists_ahead(&self, id: &CacheId) -> Option<u32> {
        let running =
            self.observed.jobs.iter().filter(|(_, job)| job.kind == JobKind::List).filter_map(|(key, _)| key.cache());
        let planned =
            self.steps.iter().filter_map(|step| if let Step::List { cache } = step { Some(cache) } else { None });
        // Where the place of one is not known any more, it may be this one's.
        let place = self.places.get(id);
        let is_here = |cache: &&CacheId| self.places.get(*cache).is_none_or(|other| Some(other) == place);
        let lists: Vec<&CacheId> = running.chain(planned).collect();
        let here = u32::try_from(lists.iter().filter(|cache| is_here(cache)).count()).unwrap_or(u32::MAX);
        let all = u32::try_from(lists.len()).unwrap_or(u32::MAX);
        let most = self.limits.lists_max;
        let waits = here >= most || all >= most.saturating_mul(LIST_PLACES_MAX);
        waits.then_some(if here >= most { here } else { all })
    }

    /// The record as it should be.
    fn record(
        &self,
        cache: &DesiredCache,
        recorded: Option<&DeploymentRecord>,
        listing: Option<&ListingView>,
    ) -> DeploymentRecord {
        let target = cache
            .weights
            .as_ref()
            .and_then(|weights| target(weights, recorded, listing.map(|listing| &listing.summary)));
        DeploymentRecord {
            version: RECORD_VERSION,
            target,
            origin_fingerprint: cache.weights.as_ref().map(DesiredWeights::origin_fingerprint).unwrap_or_default(),
            retain_after_delete_s: cache.retain_after_delete.as_secs(),
            priority: cache.priority,
            unwanted_since: None,
            in_hand: recorded.and_then(|record| record.in_hand.clone()),
        }
    }

    /// What is served, and what should be.
    fn judge(
        &mut self,
        id: &CacheId,
        weights: &DesiredWeights,
        view: &CacheView,
        recorded: Option<&DeploymentRecord>,
        listing: Option<&ListingView>,
    ) {
        let target = target(weights, recorded, listing.map(|listing| &listing.summary));
        let served = match view.current {
            Current::Snapshot(snapshot) => {
                self.vouched_for(id, weights, view, snapshot, listing).map(|found| (snapshot, found))
            }
            Current::Missing | Current::Empty | Current::RealEmptyFolder | Current::Foreign(_) => None,
        };
        let Some(verdict) = self.verdicts.get_mut(id) else { return };
        verdict.target = target;
        verdict.offered = listing.map(|listing| listing.summary.snapshot);
        if let Some(listing) = listing.filter(|listing| Some(listing.summary.snapshot) == target) {
            verdict.bytes_total = listing.summary.bytes;
        }
        if let Some((snapshot, found)) = served {
            verdict.served = Some(snapshot);
            verdict.verified = Some(found.verified);
            if target == Some(snapshot) {
                verdict.phase = Phase::Ready;
                verdict.bytes_done = found.bytes;
                verdict.bytes_total = found.bytes;
            }
        }
    }

    /// A snapshot that a label may name: whole, made for this very source, proven as asked, and not about to go.
    fn vouched_for<'v>(
        &self,
        id: &CacheId,
        weights: &DesiredWeights,
        view: &'v CacheView,
        snapshot: SnapshotId,
        listing: Option<&ListingView>,
    ) -> Option<&'v Published> {
        let Some(SnapshotView::Published(found)) = view.snapshots.get(&snapshot) else { return None };
        let is_going = self.observed.jobs.get(&JobKey::Clean(id.clone())).is_some_and(|job| match job.kind {
            JobKind::Evict(going) => going == snapshot,
            JobKind::Remove => true,
            JobKind::List | JobKind::Stage(_) | JobKind::Discard(_) | JobKind::Verify(_) | JobKind::Sweep => false,
        });
        let is_proven = weights.verification == Verification::BestOffered || found.verified > Strength::Size;
        (is_for(weights, snapshot, found, listing) && is_proven && !is_going).then_some(found)
    }

    /// Shows the progress of the job that works on a cache.
    fn follow(&mut self, id: &CacheId) {
        let Some((_, job)) = self.cleaning_or_staging(id) else { return };
        let JobKind::Stage(snapshot) = job.kind else { return };
        let (done, total, rate) = (job.done, job.total, job.rate);
        let Some(verdict) = self.verdicts.get_mut(id) else { return };
        if verdict.target == Some(snapshot) && verdict.phase != Phase::Ready {
            verdict.phase = Phase::Staging;
            verdict.bytes_done = done;
            verdict.bytes_total = total;
            verdict.rate = rate;
        }
    }

    fn weights(
        &mut self,
        cache: &DesiredCache,
        weights: &DesiredWeights,
        view: &CacheView,
        in_hand: Option<&InHand>,
        listing: Option<&ListingView>,
    ) {
        let id = &cache.id;
        let Some(target) = self.verdicts[id].target else { return };
        if self.clean(id, view, target) {
            return;
        }
        let offered = listing.map(|listing| &listing.summary);
        match view.snapshots.get(&target) {
            Some(SnapshotView::Published(found)) if is_for(weights, target, found, listing) => {
                if weights.verification == Verification::Required && found.verified == Strength::Size {
                    let file = format!("a file of {target}");
                    return self.hold_weights(id, Reason::NoChecksum { file });
                }
                if view.current != Current::Snapshot(target) {
                    self.steps.push(Step::PointCurrent { cache: id.clone(), snapshot: target });
                }
                if let Some(offered) = offered.filter(|offered| offered.snapshot != target) {
                    let offered = offered.snapshot;
                    self.hold_weights(id, Reason::UpdateAvailable { current: target, offered });
                }
                return;
            }
            Some(SnapshotView::Published(_) | SnapshotView::ManifestOnly) | None => {}
            // Cleaning has a step or a hold for these.
            Some(SnapshotView::FolderOnly | SnapshotView::Drifted { .. } | SnapshotView::Unknown(_)) => return,
        }
        let Some(offered) = offered else { return };
        if offered.snapshot != target {
            let offered = offered.snapshot;
            let reason = if weights.revision.is_some() {
                Reason::RevisionNotOffered { wanted: target, offered }
            } else {
                Reason::OriginChanged { target, offered }
            };
            return self.hold_weights(id, reason);
        }
        // It is listed again first: reading what the origin no longer has would only fail once more.
        if listing.is_some_and(|listing| listing.is_stale) {
            return;
        }
        if let Some(reason) = self.stage_is_barred(id, target, in_hand) {
            return self.hold_weights(id, reason);
        }
        self.candidates.push(Candidate {
            cache: id.clone(),
            priority: cache.priority,
            limit: cache.limit,
            summary: offered.clone(),
            used: view.used,
            allocated: view.incoming.get(&target).copied().unwrap_or(Bytes::ZERO),
            is_begun: view.incoming.contains_key(&target),
            victim: self.unvouched(id, view, target),
        });
    }

    /// A published snapshot beside the target that is not served to anybody and, as far as a pass can see, not in use.
    fn unvouched(&self, id: &CacheId, view: &CacheView, target: SnapshotId) -> Option<SnapshotId> {
        let served = self.verdicts[id].served;
        let others = view.snapshots.iter().filter(|(snapshot, _)| **snapshot != target && served != Some(**snapshot));
        let unused = others.filter(|(_, found)| match found {
            SnapshotView::Published(found) => match &found.users {
                Seen::Absent => true,
                Seen::Present(users) => users.is_empty(),
                Seen::Unknown(_) => false,
            },
            SnapshotView::ManifestOnly
            | SnapshotView::FolderOnly
            | SnapshotView::Drifted { .. }
            | SnapshotView::Unknown(_) => false,
        });
        unused.map(|(snapshot, _)| *snapshot).next()
    }

    fn stage_is_barred(&self, id: &CacheId, target: SnapshotId, in_hand: Option<&InHand>) -> Option<Reason> {
        if let Some(attempt) = self.attempts.barring(&JobKey::Stage(id.clone()), self.now.monotonic) {
            return Some(attempt.last.reason.clone());
        }
        // What was begun ahead of now was begun while the clock was wrong.
        let is_meant = |in_hand: &&InHand| in_hand.snapshot == target && in_hand.begun_at <= self.now.wall;
        let in_hand = in_hand.filter(is_meant)?;
        let until = in_hand.begun_at.after(QUARANTINE);
        let is_fruitless = in_hand.starts >= FRUITLESS_STARTS_MAX && self.now.wall < until;
        is_fruitless.then_some(Reason::Quarantined { starts: in_hand.starts, until })
    }

    /// Rids a cache of what it no longer needs, one thing at a time. True where that must come before anything else.
    fn clean(&mut self, id: &CacheId, view: &CacheView, target: SnapshotId) -> bool {
        let barred =
            self.attempts.barring(&JobKey::Clean(id.clone()), self.now.monotonic).map(|attempt| &attempt.last.reason);
        let is_settled = view.current == Current::Snapshot(target)
            && matches!(view.snapshots.get(&target), Some(SnapshotView::Published(_)));
        let mut chosen = None;
        let mut blocks = false;
        for (snapshot, found) in &view.snapshots {
            let is_target = *snapshot == target;
            let evict = Step::Evict { cache: id.clone(), snapshot: *snapshot };
            let step = match found {
                SnapshotView::Published(_) if is_target || view.current == Current::Snapshot(*snapshot) => None,
                SnapshotView::Published(found) if is_settled => match &found.users {
                    Seen::Present(users) if !users.is_empty() => {
                        let reason = Reason::in_use(users);
                        self.hold_weights(id, reason);
                        None
                    }
                    Seen::Unknown(why) => {
                        self.hold_weights(id, Reason::UsersUnknown { why: why.clone() });
                        None
                    }
                    Seen::Absent | Seen::Present(_) => Some(evict),
                },
                SnapshotView::Published(_) => None,
                SnapshotView::ManifestOnly => (!is_target).then_some(evict),
                SnapshotView::FolderOnly => {
                    blocks |= is_target;
                    Some(evict)
                }
                // Not worth reading again: nobody is sent there.
                SnapshotView::Drifted { .. } if is_settled && !is_target => Some(evict),
                SnapshotView::Drifted { file, what } => {
                    blocks |= is_target;
                    self.hold_weights(id, Reason::Corrupt { file: file.clone(), what: what.clone() });
                    Some(Step::Verify { cache: id.clone(), snapshot: *snapshot })
                }
                SnapshotView::Unknown(why) => {
                    blocks |= is_target;
                    self.hold_weights(id, Reason::CacheUnknown { why: why.clone() });
                    None
                }
            };
            // The target's first: another that cannot be cleaned away must not keep it from being served.
            chosen = if is_target { step.or(chosen) } else { chosen.or(step) };
        }
        let left_over = view.incoming.keys().find(|snapshot| {
            **snapshot != target || matches!(view.snapshots.get(snapshot), Some(SnapshotView::Published(_)))
        });
        if let Some(snapshot) = left_over {
            chosen = chosen.or_else(|| Some(Step::Discard { cache: id.clone(), snapshot: *snapshot }));
        }
        let Some(step) = chosen else { return blocks };
        match barred {
            Some(reason) => {
                let reason = reason.clone();
                self.hold_weights(id, reason);
                blocks
            }
            // Freed before anything is taken.
            None => {
                self.steps.push(step);
                true
            }
        }
    }
}

/// Whether a published snapshot is what this source and choice of files come to: it was made for them, or the origin offers this
/// very id for them, which names the same files.
fn is_for(weights: &DesiredWeights, snapshot: SnapshotId, found: &Published, listing: Option<&ListingView>) -> bool {
    found.origin_fingerprint == weights.origin_fingerprint()
        || listing.is_some_and(|listing| listing.summary.snapshot == snapshot)
}
