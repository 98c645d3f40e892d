//! What nobody asks for any more.

use super::*;

fn unwanted(since: Option<WallTime>, view: CacheView) -> World {
    let recorded = DeploymentRecord { unwanted_since: since, ..record("llama", Some(A)) };
    World::new().has("llama", CacheView { record: Seen::Present(recorded), ..view })
}

/// Retention is an hour.
const LONG_AGO: WallTime = WallTime(WALL.0 - 3_600);

/// A cache whose snapshot is still pointed to, and was looked at: nobody uses it.
fn unused(snapshot: SnapshotId) -> CacheView {
    with(serving("llama", snapshot), snapshot, SnapshotView::Published(published("llama")))
}

#[test]
fn the_moment_from_which_nobody_asks_is_written_down() {
    unwanted(None, serving("llama", A)).check(&["record llama target A unwanted since 2027-01-15T08:00:00Z"]);
}

#[test]
fn a_moment_that_a_wrong_clock_wrote_down_is_written_anew() {
    unwanted(Some(WallTime(WALL.0 + 400 * 86_400)), serving("llama", A))
        .check(&["record llama target A unwanted since 2027-01-15T08:00:00Z"]);
}

#[test]
fn what_nobody_asks_for_is_kept_for_its_retention() {
    unwanted(Some(WallTime(LONG_AGO.0 + 1)), serving("llama", A))
        .check(&["hold llama Retained: nobody asks for it; kept until 2027-01-15T08:00:01Z"]);
}

#[test]
fn after_its_retention_it_goes_piece_by_piece() {
    let whole = CacheView { incoming: [(B, gib(1))].into(), ..serving("llama", A) };
    unwanted(Some(LONG_AGO), whole).check(&["discard llama B"]);
    unwanted(Some(LONG_AGO), unused(A)).check(&["evict llama A"]);
    unwanted(Some(LONG_AGO), empty("llama", None)).check(&["remove llama"]);
}

#[test]
fn what_is_asked_for_again_is_not_unwanted_any_more() {
    unwanted(Some(LONG_AGO), serving("llama", A))
        .wants(wanted("llama"))
        .listed("llama", A)
        .check(&["record llama target A", "llama Ready, target A, serves A"]);
}

#[test]
fn p05_what_is_seen_in_use_or_was_not_looked_at_is_not_even_tried() {
    let used = Published { users: Seen::Present(vec![user()]), ..published("llama") };
    unwanted(Some(LONG_AGO), with(serving("llama", A), A, SnapshotView::Published(used)))
        .check(&["hold llama InUse: 1 use it, the first is process 42 (Mount of snapshots/x)"]);
    unwanted(Some(LONG_AGO), serving("llama", A))
        .check(&["hold llama UsersUnknown: cannot tell whether it is in use: not looked at"]);
}

#[test]
fn p05_what_is_still_in_use_stays_and_says_so() {
    unwanted(Some(LONG_AGO), serving("llama", A))
        .failed(JobKey::Clean(id("llama")), Reason::in_use(&[user()]))
        .check(&["hold llama InUse: 1 use it, the first is process 42 (Mount of snapshots/x)"]);
}

#[test]
fn p10_a_snapshot_that_cannot_be_read_keeps_only_itself() {
    let view = with(unused(B), A, SnapshotView::Unknown("EIO".to_owned()));
    let hold = "hold llama CacheUnknown: what is on disk cannot be read: EIO";
    unwanted(Some(LONG_AGO), view).check(&["evict llama B", hold]);
    unwanted(Some(LONG_AGO), with(empty("llama", None), A, SnapshotView::Unknown("EIO".to_owned()))).check(&[hold]);
}

#[test]
fn p08_a_folder_that_is_not_ours_is_left_alone() {
    World::new()
        .has("llama", CacheView { record: Seen::Absent, has_skeleton: false, ..empty("llama", None) })
        .check(&[]);
}

#[test]
fn p08_a_foreign_current_keeps_a_folder_from_being_removed() {
    let view = CacheView { current: Current::Foreign("a file".to_owned()), ..empty("llama", None) };
    unwanted(Some(LONG_AGO), view)
        .check(&["hold llama CurrentIsForeign: `current` is a file, which this agent did not make; move it away"]);
}

#[test]
fn what_cannot_be_read_is_held() {
    let hold = "hold llama CacheUnknown: what is on disk cannot be read: EIO";
    World::new().sees("llama", Seen::Unknown("EIO".to_owned())).check(&[hold]);
    let view = CacheView { record: Seen::Unknown("EIO".to_owned()), ..serving("llama", A) };
    World::new().has("llama", view).check(&[hold]);
}

#[test]
fn a_rejected_document_spares_its_cache() {
    unwanted(Some(LONG_AGO), serving("llama", A))
        .rejects("llama.yaml", Some("llama"))
        .check(&["hold document llama.yaml Rejected: spec: is not a map"]);
}

#[test]
fn a_cache_that_is_worked_on_is_not_touched() {
    unwanted(Some(LONG_AGO), serving("llama", A)).runs(JobKey::Clean(id("llama")), JobKind::Evict(A)).check(&[]);
}

#[test]
fn while_what_is_asked_for_may_be_hidden_nothing_counts_as_unwanted() {
    let mut world = unwanted(Some(LONG_AGO), serving("llama", A));
    world.desired.may_hide_caches = true;
    world.check(&[]);
}
