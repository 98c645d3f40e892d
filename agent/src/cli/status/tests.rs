//! Statuses in, text out.

use std::collections::BTreeMap;

use stokehold_core::checksum::{SnapshotId, Strength};
use stokehold_core::name::CacheId;
use stokehold_core::report::Condition;

use super::*;
use crate::server::view::{RootRoom, eta_seconds};

pub(in crate::cli) fn hold(reason: &str, message: &str) -> HoldView {
    HoldView {
        subject: "weights of a/two".to_owned(),
        cache: None,
        reason: reason.to_owned(),
        message: message.to_owned(),
        stands_in_the_way: true,
    }
}

pub(in crate::cli) fn cache(name: &str, phase: Phase) -> CacheStatus {
    let (namespace, name) = name.split_once('/').expect("namespace/name");
    let id = CacheId::new(namespace, name).expect("a name");
    let snapshot = Some(SnapshotId([0x1f; 8]));
    let is_ready = phase == Phase::Ready;
    let (done, total, rate) = match phase {
        Phase::Ready => (Bytes(4 << 30), Bytes(4 << 30), Bytes::ZERO),
        Phase::Staging => (Bytes(1 << 30), Bytes(4 << 30), Bytes(1 << 30)),
        Phase::Held | Phase::Cold => (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO),
    };
    let condition = Condition {
        cache: Some(id.clone()),
        kind: "Ready".to_owned(),
        status: if is_ready { ConditionStatus::True } else { ConditionStatus::False },
        reason: "Because".to_owned(),
        message: String::new(),
    };
    CacheStatus {
        cache: id,
        phase,
        target: snapshot.filter(|_| phase == Phase::Staging),
        served: snapshot.filter(|_| is_ready),
        offered: snapshot,
        verified: is_ready.then_some(Strength::Crc),
        bytes_done: done,
        bytes_total: total,
        rate,
        eta_seconds: eta_seconds(done, total, rate),
        jobs: Vec::new(),
        conditions: vec![condition],
        holds: Vec::new(),
    }
}

pub(in crate::cli) fn node(caches: Vec<CacheStatus>) -> StatusView {
    let root = RootRoom {
        path: "/mnt/k8s-disks/0".to_owned(),
        capacity: Bytes(100 << 30),
        available: Bytes(40 << 30),
        headroom: Bytes(15 << 30),
    };
    StatusView {
        version: "0.1.0".to_owned(),
        node: "node-7".to_owned(),
        passes: 3,
        root: RootState::Usable(root),
        labels: BTreeMap::new(),
        conditions: Vec::new(),
        holds: Vec::new(),
        caches,
    }
}

#[test]
fn the_table_has_a_row_for_each_cache_and_a_sentence_for_each_hold() {
    let mut held = cache("a/two", Phase::Held);
    held.holds = vec![hold("NoRoom", "needs 140.0 GiB, and 12.0 GiB can be promised"), hold("NotInThisRelease", "x")];
    let status = node(vec![cache("a/one", Phase::Ready), held, cache("inference/llama-70b", Phase::Staging)]);
    let want = "\
node node-7: /mnt/k8s-disks/0 has 40.0 GiB free of 100.0 GiB, 15.0 GiB of it stay free for others
CACHE                 PHASE     SNAPSHOT           BYTES                RATE        ETA   VERIFIED   HOLDS
a/one                 Ready     1f1f1f1f1f1f1f1f   4.0 GiB              -           -     crc        -
a/two                 Held      -                  -                    -           -     -          NoRoom +1
inference/llama-70b   Staging   1f1f1f1f1f1f1f1f   1.0 GiB of 4.0 GiB   1.0 GiB/s   3s    -          -
weights of a/two: NoRoom: needs 140.0 GiB, and 12.0 GiB can be promised
weights of a/two: NotInThisRelease: x
";
    assert_eq!(text(&status), want);
}

#[test]
fn a_node_that_is_asked_for_nothing_says_so() {
    let mut status = node(Vec::new());
    status.root = RootState::Unusable("it is not there".to_owned());
    assert_eq!(
        text(&status),
        "node node-7: the cache root cannot be used: it is not there\nnothing is asked of this node\n"
    );
}

#[test]
fn what_the_server_writes_the_command_line_reads() {
    let status = node(vec![cache("a/one", Phase::Staging)]);
    let json = serde_json::to_string(&status).expect("serialises");
    assert_eq!(serde_json::from_str::<StatusView>(&json).expect("is read"), status);
    let yaml = render(&status, Format::Yaml, text);
    assert!(yaml.contains("node: node-7\n") && yaml.contains("etaSeconds: 3\n"), "{yaml}");
}
