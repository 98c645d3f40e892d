//! Staged, published, pointed to; stopped, and kept from trying again too soon.

use super::*;

/// What 10 GiB need, with what the filesystem takes beside them: 1 % and 16 MiB.
pub(super) fn needed() -> Bytes {
    Bytes(10 * GIB + 10 * GIB / 100 + (16 << 20))
}

fn staging(starts: u32) -> CacheView {
    let in_hand = (starts > 0).then_some(InHand { snapshot: A, starts, begun_at: WALL });
    CacheView {
        record: Seen::Present(DeploymentRecord { in_hand, ..record("llama", Some(A)) }),
        ..empty("llama", None)
    }
}

#[test]
fn what_is_promised_grows_before_anything_is_staged() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", Some(A)))
        .listed("llama", A)
        .check(&["grow to llama=10.1 GiB", "llama Staging, target A"]);
}

#[test]
fn a_snapshot_is_staged_once_its_promise_was_seen() {
    World::new()
        .wants(DesiredCache { priority: 7, ..wanted("llama") })
        .has(
            "llama",
            CacheView {
                record: Seen::Present(DeploymentRecord { priority: 7, ..record("llama", Some(A)) }),
                ..empty("llama", None)
            },
        )
        .listed("llama", A)
        .promised("llama", needed())
        .check(&["stage llama A 10.0 GiB at 7", "llama Staging, target A"]);
}

#[test]
fn a_running_stage_shows_its_progress_and_gets_no_step() {
    let world = World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { incoming: [(A, gib(10))].into(), used: gib(10), ..empty("llama", Some(A)) })
        .listed("llama", A)
        .promised("llama", needed())
        .runs(JobKey::Stage(id("llama")), JobKind::Stage(A));
    world.check(&["llama Staging, target A"]);
    let verdict = world.plan().verdicts.remove(&id("llama")).expect("one for each");
    assert_eq!((verdict.bytes_done, verdict.bytes_total, verdict.rate), (gib(3), gib(10), Bytes(1 << 20)));
}

#[test]
fn p03_what_was_left_half_way_is_gone_on_with() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { incoming: [(A, gib(10))].into(), used: gib(10), ..empty("llama", Some(A)) })
        .listed("llama", A)
        .promised("llama", needed())
        .free(gib(1))
        .check(&["stage llama A 10.0 GiB at 0", "llama Staging, target A"]);
}

#[test]
fn what_is_published_is_pointed_to() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { current: Current::Empty, ..serving("llama", A) })
        .listed("llama", A)
        .check(&["point llama A", "llama Cold, target A"]);
}

#[test]
fn a_manifest_without_a_folder_is_staged_again() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", with(empty("llama", Some(A)), A, SnapshotView::ManifestOnly))
        .listed("llama", A)
        .promised("llama", needed())
        .check(&["stage llama A 10.0 GiB at 0", "llama Staging, target A"]);
}

#[test]
fn a_stage_whose_target_moved_is_cancelled() {
    World::new()
        .wants(with_weights("llama", |weights| weights.revision = Some(B)))
        .has("llama", CacheView { incoming: [(A, gib(10))].into(), used: gib(10), ..empty("llama", Some(A)) })
        .listed("llama", B)
        .promised("llama", needed())
        .runs(JobKey::Stage(id("llama")), JobKind::Stage(A))
        .check(&["cancel llama stage", "llama Cold, target B"]);
}

#[test]
fn a_stage_that_nobody_asks_for_is_cancelled() {
    World::new()
        .has("llama", empty("llama", Some(A)))
        .runs(JobKey::Stage(id("llama")), JobKind::Stage(A))
        .runs(JobKey::List(id("llama")), JobKind::List)
        .check(&["cancel llama list", "cancel llama stage"]);
}

#[test]
fn a_stage_of_a_cache_that_asks_for_no_weights_any_more_is_cancelled_once() {
    World::new()
        .wants(DesiredCache { weights: None, ..wanted("llama") })
        .has("llama", empty("llama", Some(A)))
        .runs(JobKey::Stage(id("llama")), JobKind::Stage(A))
        .check(&["cancel llama stage", "llama Cold"]);
}

#[test]
fn what_was_told_to_stop_is_not_told_again() {
    let mut world =
        World::new().has("llama", empty("llama", Some(A))).runs(JobKey::Stage(id("llama")), JobKind::Stage(A));
    world.observed.jobs.values_mut().for_each(|job| job.is_cancelled = true);
    world.check(&[]);
}

#[test]
fn a_stage_that_failed_waits_and_says_why() {
    let why = "connection reset".to_owned();
    let world = World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", Some(A)))
        .listed("llama", A)
        .failed(JobKey::Stage(id("llama")), Reason::OriginUnreachable { why });
    world.clone().check(&["hold llama OriginUnreachable: connection reset", "llama Held, target A"]);
    world.later(2).check(&["grow to llama=10.1 GiB", "llama Staging, target A"]);
}

#[test]
fn two_fruitless_starts_put_a_stage_into_quarantine_for_an_hour() {
    let world = |starts| {
        World::new()
            .wants(with_weights("llama", |weights| weights.check_interval = Duration::from_secs(86_400)))
            .has("llama", staging(starts))
            .listed("llama", A)
            .promised("llama", needed())
    };
    let staged = ["stage llama A 10.0 GiB at 0", "llama Staging, target A"];
    world(1).check(&staged);
    world(2).promised("llama", Bytes::ZERO).later(3_599).check(&[
        "hold llama Quarantined: begun 2 times without getting further; tried again at 2027-01-15T09:00:00Z",
        "llama Held, target A",
    ]);
    world(2).later(3_600).check(&staged);
}

#[test]
fn a_quarantine_that_a_wrong_clock_began_is_none() {
    let in_hand = Some(InHand { snapshot: A, starts: 2, begun_at: WallTime(WALL.0 + 400 * 86_400) });
    let record = DeploymentRecord { in_hand, ..record("llama", Some(A)) };
    World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { record: Seen::Present(record), ..empty("llama", None) })
        .listed("llama", A)
        .promised("llama", needed())
        .check(&["stage llama A 10.0 GiB at 0", "llama Staging, target A"]);
}

#[test]
fn a_quarantine_is_for_one_snapshot() {
    World::new()
        .wants(with_weights("llama", |weights| weights.revision = Some(B)))
        .has("llama", staging(2))
        .listed("llama", B)
        .check(&["record llama target B in hand A", "grow to llama=10.1 GiB", "llama Staging, target B"]);
}

#[test]
fn required_proof_holds_a_snapshot_that_was_published_by_its_length_only() {
    let found = Published { verified: Strength::Size, ..published("llama") };
    let view = with(serving("llama", A), A, SnapshotView::Published(found));
    let world = |verification| {
        World::new()
            .wants(with_weights("llama", |weights| weights.verification = verification))
            .has("llama", view.clone())
            .listed("llama", A)
    };
    world(Verification::BestOffered).check(&["llama Ready, target A, serves A"]);
    world(Verification::Required).check(&[
        "hold llama NoChecksum: verification is Required, and the origin offers no checksum for a file of A",
        "llama Held, target A",
    ]);
}

#[test]
fn p06_what_is_being_evicted_is_not_served() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", serving("llama", A))
        .listed("llama", A)
        .runs(JobKey::Clean(id("llama")), JobKind::Evict(A))
        .check(&["llama Cold, target A"]);
}
