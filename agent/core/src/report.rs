//! What a pass says to the outside: labels, an annotation, conditions, holds, and the record that pods read.
//!
//! A report is a function of what was desired, observed and planned, never of the last event. A label is there only while what it
//! names was seen whole in this very pass and nothing in the plan takes it away. Deliberately absent: writing any of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checksum::SnapshotId;
use crate::desired::Desired;
use crate::hold::Hold;
use crate::name::CacheId;
use crate::observed::{Observed, QuotaMechanism, Storage};
use crate::plan::{Phase, Plan, Verdict};
use crate::record::{RECORD_VERSION, StatusRecord};
use crate::seen::Seen;
use crate::time::{Now, WallTime};

/// Label: the snapshot whose weights are here.
pub const WEIGHTS_LABEL_PREFIX: &str = "weights.stokehold.dev/";
/// Label: the snapshot, when all that the object asks for is here.
pub const WARM_LABEL_PREFIX: &str = "warm.stokehold.dev/";
/// Label: what kind of disk the cache is on.
pub const STORAGE_LABEL: &str = "stokehold.dev/storage";
/// Annotation: compact JSON with a phase per deployment.
pub const STATE_ANNOTATION: &str = "stokehold.dev/state";
/// Longest state annotation, bytes: annotations of a node share 256 KiB.
pub const STATE_BYTES_MAX: usize = 16 << 10;
/// How long the agent vouches for what it wrote: outlives a restart or an upgrade.
pub const VOUCHED_FOR: Duration = Duration::from_secs(120);

/// Conditions and what they mean: one table.
pub const CONDITIONS: &[(&str, &str)] = &[
    ("StokeholdReady", "The agent can use its root and reports what is there."),
    ("QuotaEnforced", "The kernel keeps each deployment within its limit."),
    ("Ready", "All that the object asks for is on this node, whole and verified."),
    ("UpdateAvailable", "The origin offers another snapshot than the one that is served."),
];

/// True, false, or could not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It could not be told.
    Unknown,
}

/// A typed statement with its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Which cache it is about; else the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheId>,
    /// One of [`CONDITIONS`].
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Cause, one word.
    pub reason: String,
    /// Cause, one sentence.
    pub message: String,
}

/// All that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Node labels.
    pub labels: BTreeMap<String, String>,
    /// Node annotations.
    pub annotations: BTreeMap<String, String>,
    /// Of the node and of each cache.
    pub conditions: Vec<Condition>,
    /// What is wanted and not done.
    pub holds: Vec<Hold>,
    /// How each desired cache stands.
    pub caches: BTreeMap<CacheId, Verdict>,
}

/// Makes the report of one pass.
#[must_use]
pub fn report(desired: &Desired, observed: &Observed, plan: &Plan) -> Report {
    let mut report = Report { holds: plan.holds.clone(), caches: plan.verdicts.clone(), ..Report::default() };
    node_conditions(observed, &mut report);
    for (id, cache) in &desired.caches {
        let Some(verdict) = plan.verdicts.get(id) else { continue };
        let served = verdict.served.filter(|snapshot| !is_withdrawn(plan, id, *snapshot));
        // Images are not brought here yet, so what asks for them is never all here.
        let is_all_here = served.is_some() && verdict.is_target_served() && !cache.asks_for_images;
        if let Some(snapshot) = served {
            report.labels.insert(format!("{WEIGHTS_LABEL_PREFIX}{}", id.slug()), snapshot.to_string());
            if is_all_here {
                report.labels.insert(format!("{WARM_LABEL_PREFIX}{}", id.slug()), snapshot.to_string());
            }
        }
        report.conditions.extend(cache_conditions(id, verdict, &plan.holds, is_all_here));
    }
    report.annotations.insert(STATE_ANNOTATION.to_owned(), state(&plan.verdicts));
    report
}

fn is_withdrawn(plan: &Plan, cache: &CacheId, snapshot: SnapshotId) -> bool {
    plan.steps
        .iter()
        .filter_map(|step| step.withdraws())
        .any(|(going, which)| going == cache && which.is_none_or(|which| which == snapshot))
}

fn node_conditions(observed: &Observed, report: &mut Report) {
    let condition = |kind: &str, status, reason: &str, message: String| Condition {
        cache: None,
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
    };
    match &observed.root {
        Seen::Present(root) => {
            let storage = match root.storage {
                Seen::Present(Storage::Nvme) => Some("nvme"),
                Seen::Present(Storage::Other) => Some("other"),
                Seen::Absent => Some("none"),
                Seen::Unknown(_) => None,
            };
            if let Some(storage) = storage {
                report.labels.insert(STORAGE_LABEL.to_owned(), storage.to_owned());
            }
            let message = format!("{} has {} free of {}", root.path, root.room.available, root.room.capacity);
            report.conditions.push(condition("StokeholdReady", ConditionStatus::True, "RootUsable", message));
            report.conditions.push(match root.quota {
                QuotaMechanism::Accounting => condition(
                    "QuotaEnforced",
                    ConditionStatus::False,
                    "Accounting",
                    "bytes are reserved before and measured after; the kernel enforces no limit on this filesystem"
                        .to_owned(),
                ),
            });
        }
        Seen::Absent => {
            report.labels.insert(STORAGE_LABEL.to_owned(), "none".to_owned());
            let message = "the cache root is not there".to_owned();
            report.conditions.push(condition("StokeholdReady", ConditionStatus::False, "RootAbsent", message));
        }
        Seen::Unknown(why) => {
            report.conditions.push(condition("StokeholdReady", ConditionStatus::Unknown, "RootUnknown", why.clone()));
        }
    }
}

fn cache_conditions(id: &CacheId, verdict: &Verdict, holds: &[Hold], is_all_here: bool) -> Vec<Condition> {
    let own = || holds.iter().filter(|hold| hold.subject.cache() == Some(id));
    let first = own().find(|hold| hold.reason.stands_in_the_way(verdict.is_target_served()));
    let (status, reason, message) = match (verdict.phase, first) {
        // What else is held, such as a look at the origin that failed, takes nothing away from what is here.
        (_, _) if is_all_here => {
            let target = verdict.target.map(|target| target.to_string()).unwrap_or_default();
            (
                ConditionStatus::True,
                "Ready".to_owned(),
                format!("{target} is published, {} bytes", verdict.bytes_total.0),
            )
        }
        (_, Some(hold)) => (ConditionStatus::False, hold.reason.name().to_owned(), hold.reason.to_string()),
        (Phase::Staging, None) => {
            let message = format!("{} of {} are here", verdict.bytes_done, verdict.bytes_total);
            (ConditionStatus::False, "Staging".to_owned(), message)
        }
        (Phase::Ready | Phase::Held | Phase::Cold, None) => {
            (ConditionStatus::False, "Cold".to_owned(), "nothing is published yet".to_owned())
        }
    };
    let cache = Some(id.clone());
    let mut conditions = vec![Condition { cache: cache.clone(), kind: "Ready".to_owned(), status, reason, message }];
    if let Some(hold) = own().find(|hold| hold.reason.name() == "UpdateAvailable") {
        conditions.push(Condition {
            cache,
            kind: "UpdateAvailable".to_owned(),
            status: ConditionStatus::True,
            reason: "OriginOffersAnother".to_owned(),
            message: hold.reason.to_string(),
        });
    }
    conditions
}

/// A phase and a snapshot per deployment; what does not fit is counted, so that the reader knows.
fn state(verdicts: &BTreeMap<CacheId, Verdict>) -> String {
    #[derive(Serialize)]
    struct Entry {
        phase: Phase,
        #[serde(skip_serializing_if = "Option::is_none")]
        snapshot: Option<SnapshotId>,
        bytes: u64,
    }
    let mut entries: BTreeMap<String, Entry> = verdicts
        .iter()
        .map(|(id, verdict)| {
            let bytes = if verdict.is_target_served() { verdict.bytes_total.0 } else { 0 };
            (id.to_string(), Entry { phase: verdict.phase, snapshot: verdict.served, bytes })
        })
        .collect();
    let mut left_out = 0_usize;
    loop {
        let value = serde_json::json!({ "version": RECORD_VERSION, "caches": &entries, "leftOut": left_out });
        let text = value.to_string();
        if text.len() <= STATE_BYTES_MAX {
            return text;
        }
        // An eighth at a time: a handful of tries whatever the number.
        let drop = entries.len().div_ceil(8);
        for _ in 0..drop {
            entries.pop_last();
        }
        left_out += drop;
    }
}

/// The record that pods and scripts read in a cache's folder.
#[must_use]
pub fn status_record(id: &CacheId, report: &Report, now: &Now) -> Option<StatusRecord> {
    let verdict = report.caches.get(id)?;
    let is_labelled = report.labels.contains_key(&format!("{WEIGHTS_LABEL_PREFIX}{}", id.slug()));
    let holds = report.holds.iter().filter(|hold| hold.subject.cache() == Some(id));
    Some(StatusRecord {
        version: RECORD_VERSION,
        phase: format!("{:?}", verdict.phase),
        snapshot: verdict.served.filter(|_| is_labelled),
        staging: verdict.target.filter(|_| verdict.phase == Phase::Staging),
        bytes_done: verdict.bytes_done,
        bytes_total: verdict.bytes_total,
        holds: holds.map(|hold| format!("{}: {}", hold.reason.name(), hold.reason)).collect(),
        vouched_until: WallTime(now.wall.0).after(VOUCHED_FOR),
    })
}

/// Something that is different from the report before, in words: for logs, and for Events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which cache; else the node.
    pub cache: Option<CacheId>,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Whether a person may have to look.
    pub is_warning: bool,
}

/// What changed from one report to the next.
#[must_use]
pub fn changes(before: &Report, after: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    for (id, verdict) in &after.caches {
        let was = before.caches.get(id).and_then(|verdict| verdict.served);
        let change = |reason: &str, message: String, is_warning| Change {
            cache: Some(id.clone()),
            reason: reason.to_owned(),
            message,
            is_warning,
        };
        match (was, verdict.served) {
            (was, Some(now)) if was != Some(now) => {
                changes.push(change("Staged", format!("{now} is served, {}", verdict.bytes_total), false));
            }
            (Some(was), None) => changes.push(change("Withdrawn", format!("{was} is no longer vouched for"), true)),
            (_, _) => {}
        }
    }
    for hold in after.holds.iter().filter(|hold| !before.holds.contains(hold)) {
        let is_known =
            before.holds.iter().any(|known| known.subject == hold.subject && known.reason.name() == hold.reason.name());
        // Numbers that move are not news.
        if !is_known {
            changes.push(Change {
                cache: hold.subject.cache().cloned(),
                reason: hold.reason.name().to_owned(),
                message: hold.to_string(),
                is_warning: hold.reason.is_worrying(),
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests;
