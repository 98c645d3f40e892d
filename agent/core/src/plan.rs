//! What to do now: from what is desired and what was observed to ordered steps, and a hold for everything that is not done.
//!
//! Same input, same plan. A step carries all its data; performing it makes no choice. Steps that free space come before steps that
//! take it, and space counts as free only once it was observed free. Deliberately absent: doing any of it.

mod cache;
mod room;
mod target;
mod unwanted;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::Attempts;
use crate::checksum::{SnapshotId, Strength};
use crate::desired::{Desired, DesiredCache};
use crate::hold::{Hold, Reason, Subject};
use crate::name::CacheId;
use crate::observed::{JobKey, JobKind, JobView, Observed, RootView};
use crate::quantity::Bytes;
use crate::record::DeploymentRecord;
use crate::seen::Seen;
use crate::time::Now;

pub use room::{bytes_needed, inodes_needed};

/// One thing to do. The order of the variants is the order of execution: what frees space comes before what takes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "camelCase")]
pub enum Step {
    /// Tell a job to stop; what it has done stays.
    CancelJob {
        /// Which job.
        key: JobKey,
    },
    /// Start giving up a snapshot.
    Evict {
        /// Of which cache.
        cache: CacheId,
        /// Which snapshot.
        snapshot: SnapshotId,
    },
    /// Start dropping what was left half-way of a staging.
    Discard {
        /// Of which cache.
        cache: CacheId,
        /// Which snapshot.
        snapshot: SnapshotId,
    },
    /// Start removing the folder of a cache without snapshots.
    Remove {
        /// Which cache.
        cache: CacheId,
    },
    /// Start deleting condemned trees.
    Sweep {
        /// Their names.
        trees: Vec<String>,
    },
    /// Write down what is promised to each cache, where nobody is promised more than before.
    ShrinkPromises {
        /// All promises.
        promised: BTreeMap<CacheId, Bytes>,
    },
    /// Make the folder of a cache, or mend it.
    Create {
        /// Which cache.
        cache: CacheId,
        /// Its record.
        record: DeploymentRecord,
    },
    /// Write the record of a cache.
    WriteRecord {
        /// Which cache.
        cache: CacheId,
        /// Its record.
        record: DeploymentRecord,
    },
    /// Write down what is promised to each cache, where somebody is promised more than before.
    GrowPromises {
        /// All promises.
        promised: BTreeMap<CacheId, Bytes>,
    },
    /// Point `current` to what is published.
    PointCurrent {
        /// Of which cache.
        cache: CacheId,
        /// To which snapshot.
        snapshot: SnapshotId,
    },
    /// Start reading a published snapshot again.
    Verify {
        /// Of which cache.
        cache: CacheId,
        /// Which snapshot.
        snapshot: SnapshotId,
    },
    /// Start listing the origin of a cache.
    List {
        /// Which cache.
        cache: CacheId,
    },
    /// Start staging and publishing a snapshot.
    Stage {
        /// Of which cache.
        cache: CacheId,
        /// Which snapshot.
        snapshot: SnapshotId,
        /// Its priority among stagings.
        priority: i32,
        /// Bytes it will have.
        bytes: Bytes,
    },
}

impl Step {
    /// Whether performing it takes bytes away from a reader, so that no label may vouch for them any more.
    #[must_use]
    pub const fn withdraws(&self) -> Option<(&CacheId, Option<SnapshotId>)> {
        match self {
            Self::Evict { cache, snapshot } => Some((cache, Some(*snapshot))),
            Self::Remove { cache } => Some((cache, None)),
            Self::CancelJob { .. }
            | Self::Discard { .. }
            | Self::Sweep { .. }
            | Self::ShrinkPromises { .. }
            | Self::Create { .. }
            | Self::WriteRecord { .. }
            | Self::GrowPromises { .. }
            | Self::PointCurrent { .. }
            | Self::Verify { .. }
            | Self::List { .. }
            | Self::Stage { .. } => None,
        }
    }
}

/// A job that got no further for this long does not keep others from their turn: one bad origin stops only itself.
const STILL_AFTER: Duration = Duration::from_secs(2);
/// So many times the limit of a kind of job may run when those beyond it stand still.
const STANDING_STILL_TIMES: u32 = 4;

/// Limits that the planner keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLimits {
    /// Most stagings at a time.
    pub stages_max: u32,
    /// Most listings at a time of sources in one place, and eight times as many of all.
    pub lists_max: u32,
    /// Most evictions, removals and verifications at a time: each reads or deletes as fast as the disk lets it.
    pub cleans_max: u32,
}

/// Places that may have all their listings under way at a time: so many must be silent before others wait for them.
const LIST_PLACES_MAX: u32 = 8;

impl Default for PlanLimits {
    fn default() -> Self {
        // Two stagings keep the link busy while one publishes; listings are small, and four do not trouble an origin.
        Self { stages_max: 2, lists_max: 4, cleans_max: 4 }
    }
}

/// How a desired cache stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// All it asks for is here.
    Ready,
    /// It is being brought here.
    Staging,
    /// Something stands in the way.
    Held,
    /// Nothing is here yet, and nothing stands in the way.
    Cold,
}

/// What the planner found about a desired cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// How it stands.
    pub phase: Phase,
    /// The snapshot it should have.
    pub target: Option<SnapshotId>,
    /// The snapshot that is published, whole, for this very source, and pointed to.
    pub served: Option<SnapshotId>,
    /// The weakest proof among the served files.
    pub verified: Option<Strength>,
    /// What the origin offered when last listed.
    pub offered: Option<SnapshotId>,
    /// Bytes of the target that are here.
    pub bytes_done: Bytes,
    /// Bytes of the target.
    pub bytes_total: Bytes,
    /// Bytes a second, lately.
    pub rate: Bytes,
}

impl Verdict {
    /// Whether what it should have is what it serves.
    #[must_use]
    pub fn is_target_served(&self) -> bool {
        self.served.is_some() && self.served == self.target
    }
}

/// What to do, and why the rest is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// In order of execution.
    pub steps: Vec<Step>,
    /// In a stable order.
    pub holds: Vec<Hold>,
    /// One for each desired cache.
    pub verdicts: BTreeMap<CacheId, Verdict>,
}

/// Makes the plan of one pass.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed, attempts: &Attempts, now: &Now, limits: &PlanLimits) -> Plan {
    let place = |(id, cache): (&CacheId, &DesiredCache)| Some((id.clone(), cache.weights.as_ref()?.source.place()));
    let mut planner = Planner {
        places: desired.caches.iter().filter_map(place).collect(),
        observed,
        attempts,
        now,
        limits,
        steps: Vec::new(),
        holds: Vec::new(),
        verdicts: BTreeMap::new(),
        candidates: Vec::new(),
    };
    for rejected in &desired.rejected {
        let reason = Reason::Rejected { why: rejected.reason.clone() };
        // Where it is asked for as it last was, the cache says so too.
        if let Some(cache) = rejected.cache.as_ref().filter(|cache| desired.caches.contains_key(cache)) {
            let why = format!("{}: {}", rejected.place, rejected.reason);
            planner.hold_weights(cache, Reason::Rejected { why });
        }
        planner.hold(Subject::Document(rejected.place.clone()), reason);
    }
    match &observed.root {
        Seen::Present(root) => planner.with_root(desired, root),
        Seen::Absent => planner.without_root(desired, "it is not there"),
        Seen::Unknown(why) => planner.without_root(desired, why),
    }
    planner.steps.sort();
    Plan { steps: planner.steps, holds: planner.holds, verdicts: planner.verdicts }
}

struct Planner<'a> {
    observed: &'a Observed,
    attempts: &'a Attempts,
    now: &'a Now,
    limits: &'a PlanLimits,
    /// Who answers for the weights of each desired cache.
    places: BTreeMap<CacheId, String>,
    steps: Vec<Step>,
    holds: Vec<Hold>,
    verdicts: BTreeMap<CacheId, Verdict>,
    candidates: Vec<room::Candidate>,
}

impl Planner<'_> {
    fn hold(&mut self, subject: Subject, reason: Reason) {
        let hold = Hold { subject, reason };
        if !self.holds.contains(&hold) {
            self.holds.push(hold);
        }
    }

    fn hold_weights(&mut self, cache: &CacheId, reason: Reason) {
        self.hold(Subject::Weights(cache.clone()), reason);
    }

    fn without_root(&mut self, desired: &Desired, why: &str) {
        self.hold(Subject::Node, Reason::RootUnknown { why: why.to_owned() });
        for (id, cache) in &desired.caches {
            self.note_fields(cache);
            self.hold_weights(id, Reason::RootUnknown { why: why.to_owned() });
            self.verdicts.insert(id.clone(), cold());
        }
        self.settle_phases(desired);
    }

    fn with_root(&mut self, desired: &Desired, root: &RootView) {
        for (id, cache) in &desired.caches {
            self.note_fields(cache);
            self.verdicts.insert(id.clone(), cold());
            // What is on disk of a source that is not allowed stays as it is, and nobody is sent there.
            if cache.refused.is_none() {
                self.cache(id, cache);
            }
        }
        let spared: BTreeSet<&CacheId> =
            desired.rejected.iter().filter_map(|rejected| rejected.cache.as_ref()).collect();
        for (id, seen) in &self.observed.caches {
            if !desired.caches.contains_key(id) && !spared.contains(id) && !desired.may_hide_caches {
                self.unwanted(id, seen);
            }
        }
        self.cancel_orphans(desired, &spared);
        self.sweep();
        self.admit(root);
        self.bound_cleans();
        self.settle_phases(desired);
    }

    /// What is asked for and not done in this release is said, and stops nothing else.
    fn note_fields(&mut self, cache: &DesiredCache) {
        for field in &cache.not_in_this_release {
            let subject = if field.starts_with("spec.images") {
                Subject::Images(cache.id.clone())
            } else {
                Subject::Weights(cache.id.clone())
            };
            self.hold(subject, Reason::NotInThisRelease { field: field.clone() });
        }
        if let Some(why) = &cache.refused {
            self.hold_weights(&cache.id, Reason::RefusedByPolicy { why: why.clone() });
        }
    }

    /// Jobs of caches that nobody asks for any more stop. Those of a document that cannot be read just now go on.
    fn cancel_orphans(&mut self, desired: &Desired, spared: &BTreeSet<&CacheId>) {
        for (key, job) in &self.observed.jobs {
            let is_orphan = key.cache().is_some_and(|cache| !spared.contains(cache))
                && key.cache().is_some_and(|cache| {
                    desired.caches.get(cache).is_none_or(|cache| cache.weights.is_none() || cache.refused.is_some())
                });
            let stops = matches!(job.kind, JobKind::Stage(_) | JobKind::List);
            if is_orphan && stops && !job.is_cancelled {
                self.steps.push(Step::CancelJob { key: key.clone() });
            }
        }
    }

    /// Condemned trees are deleted while no cleaning is under way: one of them may be a cleaning's own.
    fn sweep(&mut self) {
        let trees = match &self.observed.condemned {
            Seen::Present(trees) => trees,
            Seen::Absent => return,
            Seen::Unknown(why) => return self.hold(Subject::Node, Reason::DiskError { why: why.clone() }),
        };
        let is_busy = self.observed.jobs.keys().any(|key| matches!(key, JobKey::Clean(_) | JobKey::Sweep));
        let starts_cleaning = self
            .steps
            .iter()
            .any(|step| matches!(step, Step::Evict { .. } | Step::Discard { .. } | Step::Remove { .. }));
        if trees.is_empty() || is_busy || starts_cleaning {
            return;
        }
        match self.attempts.barring(&JobKey::Sweep, self.now.monotonic) {
            Some(attempt) => self.hold(Subject::Node, attempt.last.reason.clone()),
            None => self.steps.push(Step::Sweep { trees: trees.clone() }),
        }
    }

    /// Cleaning beyond the limit waits for its turn.
    fn bound_cleans(&mut self) {
        let running = self.observed.jobs.keys().filter(|key| matches!(key, JobKey::Clean(_))).count();
        let mut ahead = u32::try_from(running).unwrap_or(u32::MAX);
        let mut waiting = Vec::new();
        let limit = self.limits.cleans_max;
        self.steps.retain(|step| {
            let (Step::Evict { cache, .. }
            | Step::Discard { cache, .. }
            | Step::Remove { cache }
            | Step::Verify { cache, .. }) = step
            else {
                return true;
            };
            let fits = ahead < limit;
            if fits {
                ahead += 1;
            } else {
                waiting.push(cache.clone());
            }
            fits
        });
        for cache in waiting {
            self.hold_weights(&cache, Reason::WaitingForTurn { ahead });
        }
    }

    /// Jobs of a kind that keep others from their turn, out of `limit` places; those that stand still keep one only when there are
    /// far too many of them.
    fn places_taken(&self, is_of_kind: impl Fn(JobKind) -> bool, limit: u32) -> u32 {
        let jobs: Vec<&JobView> = self.observed.jobs.values().filter(|job| is_of_kind(job.kind)).collect();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let moving = jobs.iter().filter(|job| self.now.monotonic.since(job.moved_at) < STILL_AFTER).count();
        let is_crowded = count(jobs.len()) >= limit.saturating_mul(STANDING_STILL_TIMES);
        count(if is_crowded { jobs.len() } else { moving })
    }

    fn cleaning_or_staging(&self, cache: &CacheId) -> Option<(&JobKey, &JobView)> {
        [JobKey::Stage(cache.clone()), JobKey::Clean(cache.clone())]
            .iter()
            .find_map(|key| self.observed.jobs.get_key_value(key))
    }

    fn settle_phases(&mut self, desired: &Desired) {
        for (cache, verdict) in &mut self.verdicts {
            let stands = |hold: &Hold| hold.reason.stands_in_the_way(verdict.is_target_served());
            let is_held = self.holds.iter().any(|hold| hold.subject.cache() == Some(cache) && stands(hold));
            // Weights alone are not all that it asks for.
            let lacks_images = desired.caches.get(cache).is_some_and(|cache| cache.asks_for_images);
            let lacks = verdict.phase == Phase::Cold || (verdict.phase == Phase::Ready && lacks_images);
            if lacks && is_held {
                verdict.phase = Phase::Held;
            }
        }
    }
}

fn cold() -> Verdict {
    Verdict {
        phase: Phase::Cold,
        target: None,
        served: None,
        verified: None,
        offered: None,
        bytes_done: Bytes::ZERO,
        bytes_total: Bytes::ZERO,
        rate: Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests;
