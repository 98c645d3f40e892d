//! Who may stage: by priority, within limits, and only against bytes that were observed free.
//!
//! What is promised to a cache and not yet on the disk is taken from what is free before anybody else is promised anything. A cache
//! that cannot be read counts with all that it was promised.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::checksum::SnapshotId;
use crate::hold::Reason;
use crate::listing::ListingSummary;
use crate::name::CacheId;
use crate::observed::{JobKey, JobKind, RootView};
use crate::quantity::Bytes;
use crate::seen::Seen;

use super::{Phase, Planner, Step};

/// What the filesystem itself takes beside the files: 1 % and 16 MiB (ext4 gave 102,392 KiB of 100 MiB).
const OVERHEAD_PERCENT: u64 = 1;
const OVERHEAD: Bytes = Bytes(16 << 20);
/// Inodes for our own files and folders beside those of the snapshot.
const OVERHEAD_INODES: u64 = 64;

/// Bytes that a listing takes on the disk, with what the filesystem takes beside the files.
#[must_use]
pub const fn bytes_needed(listing: &ListingSummary) -> Bytes {
    let blocks = listing.blocks.0;
    Bytes(blocks.saturating_add(blocks / 100 * OVERHEAD_PERCENT).saturating_add(OVERHEAD.0))
}

/// Inodes that a listing takes, with our own beside it.
#[must_use]
pub const fn inodes_needed(listing: &ListingSummary) -> u64 {
    listing.files.saturating_add(listing.folders).saturating_add(OVERHEAD_INODES)
}

/// A snapshot that should be staged and could be, if there is room.
pub(super) struct Candidate {
    pub(super) cache: CacheId,
    pub(super) priority: i32,
    pub(super) limit: Option<Bytes>,
    pub(super) summary: ListingSummary,
    /// Bytes of all of the cache that are on the disk.
    pub(super) used: Bytes,
    /// Bytes of this very snapshot that are allocated already.
    pub(super) allocated: Bytes,
    /// Whether its files and folders were made already.
    pub(super) is_begun: bool,
    /// Another snapshot of the cache that nothing vouches for any more, to go where room is short.
    pub(super) victim: Option<SnapshotId>,
}

impl Candidate {
    fn snapshot(&self) -> SnapshotId {
        self.summary.snapshot
    }

    fn needed(&self) -> Bytes {
        bytes_needed(&self.summary)
    }

    /// Bytes of the cache beside this snapshot.
    fn beside(&self) -> Bytes {
        self.used.less(self.allocated)
    }

    fn inodes(&self) -> u64 {
        if self.is_begun { OVERHEAD_INODES } else { inodes_needed(&self.summary) }
    }
}

impl Planner<'_> {
    pub(super) fn admit(&mut self, root: &RootView) {
        let mut candidates = std::mem::take(&mut self.candidates);
        // What failed before goes behind what did not: an origin that stalls must not come first again and again.
        let failures = |one: &Candidate| {
            self.attempts.last(&JobKey::Stage(one.cache.clone())).map_or(0, |attempt| attempt.failures)
        };
        candidates.sort_by_cached_key(|one| (Reverse(one.priority), failures(one), one.cache.clone()));
        let mut ledger = Ledger::new(self, root);
        let is_stage = |kind| matches!(kind, JobKind::Stage(_));
        let mut running = self.places_taken(is_stage, self.limits.stages_max);
        for candidate in &candidates {
            if let Err(reason) = ledger.fits(candidate, root) {
                self.hold_weights(&candidate.cache, reason);
                self.give_way(candidate);
                continue;
            }
            ledger.take(candidate);
            // Whoever waits is promised nothing yet: it would only be kept from a higher priority that comes meanwhile.
            if running >= self.limits.stages_max {
                self.hold_weights(&candidate.cache, Reason::WaitingForTurn { ahead: running });
                continue;
            }
            running += 1;
            if let Some(verdict) = self.verdicts.get_mut(&candidate.cache) {
                verdict.phase = Phase::Staging;
            }
            // Staged once the promise was seen written down.
            if ledger.promise(candidate) {
                self.steps.push(Step::Stage {
                    cache: candidate.cache.clone(),
                    snapshot: candidate.snapshot(),
                    priority: candidate.priority,
                    bytes: candidate.summary.bytes,
                });
            }
        }
        self.steps.extend(ledger.steps(self));
    }

    /// Where room is short, a snapshot of the same cache that nothing vouches for any more goes first.
    fn give_way(&mut self, candidate: &Candidate) {
        let Some(snapshot) = candidate.victim else { return };
        if self.attempts.barring(&JobKey::Clean(candidate.cache.clone()), self.now.monotonic).is_none() {
            self.steps.push(Step::Evict { cache: candidate.cache.clone(), snapshot });
        }
    }
}

/// What is promised to whom, and what is left.
struct Ledger {
    before: BTreeMap<CacheId, Bytes>,
    after: BTreeMap<CacheId, Bytes>,
    used: BTreeMap<CacheId, Bytes>,
    /// Bytes that may still be written, whoever they are promised to.
    writable: Bytes,
    /// Bytes of these that are promised, or taken by whoever came before in this pass.
    ahead: Bytes,
    free_inodes: u64,
}

impl Ledger {
    fn new(planner: &Planner<'_>, root: &RootView) -> Self {
        let used: BTreeMap<CacheId, Bytes> = planner
            .observed
            .caches
            .iter()
            .filter_map(|(cache, seen)| match seen {
                Seen::Present(view) => Some((cache.clone(), view.used)),
                Seen::Absent | Seen::Unknown(_) => None,
            })
            .collect();
        let outstanding =
            |cache: &CacheId, promised: Bytes| promised.less(used.get(cache).copied().unwrap_or_default());
        let ahead = root.promised.iter().map(|(cache, promised)| outstanding(cache, *promised)).sum();
        Self {
            before: root.promised.clone(),
            after: root.promised.clone(),
            writable: root.room.available.less(root.headroom),
            ahead,
            free_inodes: root.room.inodes_available.saturating_sub(root.headroom_inodes),
            used,
        }
    }

    fn used(&self, cache: &CacheId) -> Bytes {
        self.used.get(cache).copied().unwrap_or_default()
    }

    /// What this cache was promised and has not taken.
    fn own(&self, cache: &CacheId) -> Bytes {
        self.after.get(cache).copied().unwrap_or_default().less(self.used(cache))
    }

    fn fits(&self, candidate: &Candidate, root: &RootView) -> Result<(), Reason> {
        let needed = candidate.needed();
        if let Some(limit) = candidate.limit
            && candidate.beside() + needed > limit
        {
            return Err(Reason::OverLimit { needed, used: candidate.beside(), limit });
        }
        // What is promised may be more than there is: others on the filesystem know nothing of promises.
        let free = self.writable.less(self.ahead.less(self.own(&candidate.cache)));
        let missing = needed.less(candidate.allocated);
        if missing > free {
            return Err(Reason::NoRoom { needed: missing, free });
        }
        if root.room.inodes > 0 && candidate.inodes() > self.free_inodes {
            return Err(Reason::NoInodes { needed: candidate.inodes(), free: self.free_inodes });
        }
        Ok(())
    }

    /// Bytes of all of the cache once its candidate is staged.
    fn wanted(candidate: &Candidate) -> Bytes {
        candidate.beside() + candidate.needed().max(candidate.allocated)
    }

    /// Keeps what it needs from those that come after it in this pass.
    fn take(&mut self, candidate: &Candidate) {
        let own = self.own(&candidate.cache);
        self.ahead += Self::wanted(candidate).less(self.used(&candidate.cache)).less(own);
        self.free_inodes = self.free_inodes.saturating_sub(candidate.inodes());
    }

    /// Promises what it needs; whether that was promised already.
    fn promise(&mut self, candidate: &Candidate) -> bool {
        let wanted = Self::wanted(candidate);
        let had = self.after.get(&candidate.cache).copied().unwrap_or_default();
        if had < wanted {
            self.after.insert(candidate.cache.clone(), wanted);
        }
        had >= wanted
    }

    /// Promises that nobody needs any more shrink to what is on the disk, others grow: two steps, in this order.
    fn steps(mut self, planner: &Planner<'_>) -> Vec<Step> {
        let stays = |cache: &CacheId| {
            let seen = planner.observed.caches.get(cache);
            matches!(seen, Some(Seen::Unknown(_))) || planner.cleaning_or_staging(cache).is_some()
        };
        let grown: Vec<CacheId> = self
            .after
            .iter()
            .filter(|(cache, after)| self.before.get(cache) != Some(after))
            .map(|(cache, _)| cache.clone())
            .collect();
        let holds_promise = |cache: &CacheId| {
            let stages = |step: &Step| matches!(step, Step::Stage { cache: staged, .. } if staged == cache);
            planner.steps.iter().any(stages) || grown.contains(cache)
        };
        let mut shrunk = self.before.clone();
        for (cache, promised) in &self.before {
            let used = self.used(cache);
            if stays(cache) || holds_promise(cache) || *promised <= used {
                continue;
            }
            if used == Bytes::ZERO {
                shrunk.remove(cache);
                self.after.remove(cache);
            } else {
                shrunk.insert(cache.clone(), used);
                self.after.insert(cache.clone(), used);
            }
        }
        let mut steps = Vec::new();
        if shrunk != self.before {
            steps.push(Step::ShrinkPromises { promised: shrunk.clone() });
        }
        if self.after != shrunk {
            steps.push(Step::GrowPromises { promised: self.after });
        }
        steps
    }
}
