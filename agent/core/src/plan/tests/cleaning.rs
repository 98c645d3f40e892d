//! What a cache no longer needs: one thing at a time, and nothing that is in use.

use super::*;

/// Serves B; A was served before.
fn superseded(users: Seen<Vec<User>>) -> World {
    let old = Published { users, ..published("llama") };
    let view = CacheView { used: gib(20), ..with(serving("llama", B), A, SnapshotView::Published(old)) };
    World::new().wants(wanted("llama")).has("llama", view).listed("llama", B)
}

fn found(view: SnapshotView) -> World {
    let view = with(serving("llama", A), A, view);
    World::new().wants(wanted("llama")).has("llama", view).listed("llama", A)
}

#[test]
fn a_superseded_snapshot_goes_once_the_target_is_current() {
    superseded(Seen::Present(Vec::new())).check(&["evict llama A", "llama Ready, target B, serves B"]);
}

#[test]
fn p05_a_superseded_snapshot_in_use_is_held() {
    superseded(Seen::Present(vec![user(), user()])).check(&[
        "hold llama InUse: 2 use it, the first is process 42 (Mount of snapshots/x)",
        "llama Ready, target B, serves B",
    ]);
}

#[test]
fn p05_a_superseded_snapshot_counts_as_in_use_where_it_could_not_be_told() {
    superseded(Seen::Unknown("EPERM".to_owned())).check(&[
        "hold llama UsersUnknown: cannot tell whether it is in use: EPERM",
        "llama Ready, target B, serves B",
    ]);
}

#[test]
fn a_snapshot_stays_until_its_successor_is_current() {
    let view = with(serving("llama", A), B, SnapshotView::Published(published("llama")));
    let view = CacheView { record: Seen::Present(record("llama", Some(B))), ..view };
    World::new()
        .wants(with_weights("llama", |weights| weights.revision = Some(B)))
        .has("llama", view)
        .listed("llama", B)
        .check(&["point llama B", "llama Cold, target B, serves A"]);
}

#[test]
fn p06_a_drifted_snapshot_is_verified_and_not_served() {
    found(SnapshotView::Drifted { file: "model.safetensors".to_owned(), what: "was touched".to_owned() }).check(&[
        "verify llama A",
        "hold llama Corrupt: model.safetensors was touched",
        "llama Held, target A",
    ]);
}

#[test]
fn a_folder_without_a_manifest_is_evicted() {
    found(SnapshotView::FolderOnly).check(&["evict llama A", "llama Cold, target A"]);
}

#[test]
fn an_unreadable_snapshot_is_held_and_not_staged_over() {
    found(SnapshotView::Unknown("EIO".to_owned()))
        .check(&["hold llama CacheUnknown: what is on disk cannot be read: EIO", "llama Held, target A"]);
}

#[test]
fn what_was_left_half_way_of_another_snapshot_is_discarded_before_anything_is_staged() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { incoming: [(B, gib(4))].into(), used: gib(4), ..empty("llama", Some(A)) })
        .listed("llama", A)
        .promised("llama", gib(20))
        .check(&["discard llama B", "shrink to llama=4.0 GiB", "llama Cold, target A"]);
}

#[test]
fn what_was_left_half_way_of_a_published_snapshot_is_discarded() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { incoming: [(A, gib(4))].into(), ..serving("llama", A) })
        .listed("llama", A)
        .check(&["discard llama A", "llama Ready, target A, serves A"]);
}

#[test]
fn one_thing_is_cleaned_at_a_time_and_first_what_keeps_the_target_from_being_served() {
    let drifted = SnapshotView::Drifted { file: "f".to_owned(), what: "is missing".to_owned() };
    let view = with(with(serving("llama", B), B, drifted), A, SnapshotView::FolderOnly);
    World::new()
        .wants(wanted("llama"))
        .has("llama", CacheView { incoming: [(C, gib(1))].into(), ..view })
        .listed("llama", B)
        .check(&["verify llama B", "hold llama Corrupt: f is missing", "llama Held, target B"]);
}

#[test]
fn p10_what_cannot_be_cleaned_away_keeps_no_other_snapshot_from_being_staged() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", with(empty("llama", Some(A)), B, SnapshotView::FolderOnly))
        .listed("llama", A)
        .failed(JobKey::Clean(id("llama")), Reason::UsersUnknown { why: "EPERM".to_owned() })
        .check(&[
            "grow to llama=10.1 GiB",
            "hold llama UsersUnknown: cannot tell whether it is in use: EPERM",
            "llama Staging, target A",
        ]);
}

#[test]
fn a_cleaning_that_failed_waits_and_says_why() {
    let reason = Reason::InUse { users: 1, first: "process 7".to_owned() };
    superseded(Seen::Present(Vec::new()))
        .failed(JobKey::Clean(id("llama")), reason)
        .check(&["hold llama InUse: 1 use it, the first is process 7", "llama Ready, target B, serves B"]);
}

#[test]
fn condemned_trees_are_swept_while_nothing_is_cleaned() {
    let world = |world: World| {
        let mut world = world;
        world.observed.condemned = Seen::Present(vec!["x.1".to_owned(), "y.2".to_owned()]);
        world
    };
    let ready = "llama Ready, target B, serves B";
    let in_use = superseded(Seen::Present(vec![user()]));
    assert_eq!(lines(&world(in_use.clone()).plan())[0], "sweep x.1 y.2");
    world(superseded(Seen::Present(Vec::new()))).check(&["evict llama A", ready]);
    let busy = World::new().runs(JobKey::Clean(id("llama")), JobKind::Evict(A));
    world(busy).check(&[]);
    world(World::new().runs(JobKey::Sweep, JobKind::Sweep)).check(&[]);
    let failed = World::new().failed(JobKey::Sweep, Reason::DiskError { why: "EIO".to_owned() });
    world(failed).check(&["hold node DiskError: EIO"]);
}
