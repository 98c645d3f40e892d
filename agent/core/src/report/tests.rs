//! Reports are functions of what was seen: a label only for what is served, and gone before its bytes go.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::checksum::Strength;
use crate::desired::DesiredCache;
use crate::file_op::Room;
use crate::hold::{Reason, Subject};
use crate::observed::RootView;
use crate::plan::Step;
use crate::quantity::Bytes;
use crate::time::{BootId, Millis};

const ONE: SnapshotId = SnapshotId([1; 8]);
const TWO: SnapshotId = SnapshotId([2; 8]);

fn id(name: &str) -> CacheId {
    CacheId::new("inference", name).expect("checked")
}

fn desired(asks_for_images: bool) -> Desired {
    let cache = DesiredCache {
        id: id("llama"),
        weights: None,
        asks_for_weights: true,
        asks_for_images,
        limit: None,
        priority: 0,
        retain_after_delete: Duration::ZERO,
        not_in_this_release: Vec::new(),
        refused: None,
    };
    Desired { caches: BTreeMap::from([(id("llama"), cache)]), ..Desired::default() }
}

fn observed(storage: Seen<Storage>) -> Observed {
    let room = Room { capacity: Bytes(100), available: Bytes(60), inodes: 10, inodes_available: 5 };
    let root = RootView {
        path: "/nvme".to_owned(),
        room,
        headroom: Bytes(15),
        headroom_inodes: 1,
        promised: BTreeMap::new(),
        storage,
        quota: QuotaMechanism::Accounting,
    };
    Observed {
        root: Seen::Present(root),
        caches: BTreeMap::new(),
        condemned: Seen::Present(Vec::new()),
        listings: BTreeMap::new(),
        jobs: BTreeMap::new(),
    }
}

fn plan_of(phase: Phase, target: SnapshotId, served: Option<SnapshotId>) -> Plan {
    let verdict = Verdict {
        phase,
        target: Some(target),
        served,
        verified: served.map(|_| Strength::Crc),
        offered: Some(target),
        bytes_done: Bytes(10),
        bytes_total: Bytes(10),
        rate: Bytes(0),
    };
    Plan { steps: Vec::new(), holds: Vec::new(), verdicts: BTreeMap::from([(id("llama"), verdict)]) }
}

fn labels(report: &Report) -> String {
    report.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn p06_what_is_served_and_wanted_is_labelled_with_its_snapshot() {
    let report =
        report(&desired(false), &observed(Seen::Present(Storage::Nvme)), &plan_of(Phase::Ready, ONE, Some(ONE)));
    assert_eq!(
        labels(&report),
        "stokehold.dev/storage=nvme warm.stokehold.dev/inference.llama=0101010101010101 \
         weights.stokehold.dev/inference.llama=0101010101010101"
    );
}

#[test]
fn p06_a_superseded_snapshot_is_still_labelled_as_what_it_is_but_the_node_is_not_warm() {
    let report =
        report(&desired(false), &observed(Seen::Unknown("?".to_owned())), &plan_of(Phase::Staging, TWO, Some(ONE)));
    assert_eq!(labels(&report), "weights.stokehold.dev/inference.llama=0101010101010101");
}

#[test]
fn p06_weights_alone_do_not_make_a_node_warm_for_what_asks_for_images_too() {
    let report = report(&desired(true), &observed(Seen::Absent), &plan_of(Phase::Ready, ONE, Some(ONE)));
    assert_eq!(labels(&report), "stokehold.dev/storage=none weights.stokehold.dev/inference.llama=0101010101010101");
}

#[test]
fn p06_a_label_is_gone_in_the_report_of_the_very_pass_that_evicts() {
    let mut plan = plan_of(Phase::Ready, ONE, Some(ONE));
    plan.steps.push(Step::Evict { cache: id("llama"), snapshot: ONE });
    let said = report(&desired(false), &observed(Seen::Absent), &plan);
    assert_eq!(labels(&said), "stokehold.dev/storage=none");
    let now = Now { wall: WallTime(1_000), monotonic: Millis(0), boot_id: BootId("boot".to_owned()) };
    let status = status_record(&id("llama"), &said, &now).expect("it is desired");
    assert_eq!((status.snapshot, status.vouched_until), (None, WallTime(1_120)));
}

#[test]
fn p07_a_hold_is_the_reason_of_the_condition() {
    let mut plan = plan_of(Phase::Held, ONE, None);
    let reason = Reason::NoRoom { needed: Bytes(100), free: Bytes(1) };
    plan.holds.push(Hold { subject: Subject::Weights(id("llama")), reason });
    let said = report(&desired(false), &observed(Seen::Absent), &plan);
    let ready = said.conditions.iter().find(|condition| condition.kind == "Ready").expect("every cache has one");
    assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, "NoRoom"));
    assert!(ready.message.contains("100 B") && ready.message.contains("1 B"), "{}", ready.message);
}

#[test]
fn the_state_annotation_stays_within_its_limit_and_says_what_is_left_out() {
    let verdict = plan_of(Phase::Ready, ONE, Some(ONE)).verdicts.remove(&id("llama")).expect("just made");
    let verdicts: BTreeMap<_, _> = (0..2_000).map(|at| (id(&format!("cache-{at}")), verdict.clone())).collect();
    let text = state(&verdicts);
    assert!(text.len() <= STATE_BYTES_MAX);
    let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let kept = value["caches"].as_object().map_or(0, serde_json::Map::len) as u64;
    assert_eq!(kept + value["leftOut"].as_u64().expect("a number"), 2_000);
}

#[test]
fn changes_name_what_is_new_and_not_numbers_that_move() {
    let with = |free| {
        let mut plan = plan_of(Phase::Held, ONE, None);
        let reason = Reason::NoRoom { needed: Bytes(100), free: Bytes(free) };
        plan.holds.push(Hold { subject: Subject::Weights(id("llama")), reason });
        report(&desired(false), &observed(Seen::Absent), &plan)
    };
    let served = report(&desired(false), &observed(Seen::Absent), &plan_of(Phase::Ready, ONE, Some(ONE)));
    let names = |before: &Report, after: &Report| -> Vec<String> {
        changes(before, after).into_iter().map(|change| change.reason).collect()
    };
    assert_eq!(names(&Report::default(), &with(1)), ["NoRoom"]);
    assert_eq!(names(&with(1), &with(2)), [] as [&str; 0]);
    assert_eq!(names(&with(2), &served), ["Staged"]);
    assert_eq!(names(&served, &with(1)), ["Withdrawn", "NoRoom"]);
}
