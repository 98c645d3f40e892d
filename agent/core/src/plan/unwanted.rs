//! What is on disk and nobody asks for: kept for its retention, then given up piece by piece.

use std::time::Duration;

use crate::hold::Reason;
use crate::name::CacheId;
use crate::observed::{CacheView, Current, JobKey, Published, SnapshotView};
use crate::record::DeploymentRecord;
use crate::seen::Seen;

use super::{Planner, Step};

impl Planner<'_> {
    pub(super) fn unwanted(&mut self, cache: &CacheId, seen: &Seen<CacheView>) {
        let view = match seen {
            Seen::Absent => return,
            Seen::Unknown(why) => return self.hold_weights(cache, Reason::CacheUnknown { why: why.clone() }),
            Seen::Present(view) => view,
        };
        if self.cleaning_or_staging(cache).is_some() {
            return;
        }
        match &view.record {
            // Not made by us: a kubelet's, or a person's.
            Seen::Absent => {}
            Seen::Unknown(why) => self.hold_weights(cache, Reason::CacheUnknown { why: why.clone() }),
            Seen::Present(record) => self.retire(cache, view, record),
        }
    }

    fn retire(&mut self, cache: &CacheId, view: &CacheView, record: &DeploymentRecord) {
        if let Current::Foreign(found) = &view.current {
            return self.hold_weights(cache, Reason::CurrentIsForeign { found: found.clone() });
        }
        // A moment that lies ahead was written while the clock was wrong: it would keep the bytes for as long as the clock was off.
        let Some(since) = record.unwanted_since.filter(|since| *since <= self.now.wall) else {
            let record = DeploymentRecord { unwanted_since: Some(self.now.wall), ..record.clone() };
            return self.steps.push(Step::WriteRecord { cache: cache.clone(), record });
        };
        let until = since.after(Duration::from_secs(record.retain_after_delete_s));
        if self.now.wall < until {
            return self.hold_weights(cache, Reason::Retained { until });
        }
        if let Some(attempt) = self.attempts.barring(&JobKey::Clean(cache.clone()), self.now.monotonic) {
            return self.hold_weights(cache, attempt.last.reason.clone());
        }
        if let Some(snapshot) = view.incoming.keys().next() {
            return self.steps.push(Step::Discard { cache: cache.clone(), snapshot: *snapshot });
        }
        let mut step = None;
        for (snapshot, found) in &view.snapshots {
            match found {
                SnapshotView::Unknown(why) => self.hold_weights(cache, Reason::CacheUnknown { why: why.clone() }),
                SnapshotView::Published(Published { users: Seen::Present(users), .. }) if !users.is_empty() => {
                    self.hold_weights(cache, Reason::in_use(users));
                }
                SnapshotView::Published(Published { users: Seen::Unknown(why), .. }) => {
                    self.hold_weights(cache, Reason::UsersUnknown { why: why.clone() });
                }
                SnapshotView::Published(_)
                | SnapshotView::ManifestOnly
                | SnapshotView::FolderOnly
                | SnapshotView::Drifted { .. } => {
                    step = step.or_else(|| Some(Step::Evict { cache: cache.clone(), snapshot: *snapshot }));
                }
            }
        }
        if view.snapshots.is_empty() {
            step = Some(Step::Remove { cache: cache.clone() });
        }
        self.steps.extend(step);
    }
}
