//! Who gets room, in which order, and with which numbers the others are told no.

use super::staging::needed;
use super::*;

fn asking(names: &[&str]) -> World {
    names
        .iter()
        .fold(World::new(), |world, name| world.wants(wanted(name)).has(name, empty(name, Some(A))).listed(name, A))
}

#[test]
fn c045_what_is_larger_than_its_limit_is_refused_with_numbers() {
    asking(&["llama"]).wants(DesiredCache { limit: Some(gib(8)), ..wanted("llama") }).check(&[
        "hold llama OverLimit: needs 10.1 GiB beside 0 B in use, and limitPerNode is 8.0 GiB",
        "llama Held, target A",
    ]);
}

#[test]
fn c045_a_limit_counts_what_is_published_beside() {
    World::new()
        .wants(DesiredCache { limit: Some(gib(15)), ..with_weights("llama", |weights| weights.revision = Some(B)) })
        .has("llama", CacheView { record: Seen::Present(record("llama", Some(B))), ..serving("llama", A) })
        .listed("llama", B)
        .check(&[
            "hold llama OverLimit: needs 10.1 GiB beside 10.0 GiB in use, and limitPerNode is 15.0 GiB",
            "llama Held, target B, serves A",
        ]);
}

#[test]
fn c045_what_does_not_fit_on_the_disk_is_refused_with_numbers() {
    asking(&["llama"]).free(gib(6)).check(&[
        "hold llama NoRoom: needs 10.1 GiB, and 6.0 GiB can be promised \
         (free space less head-room and what is promised to others)",
        "llama Held, target A",
    ]);
}

#[test]
fn c054_what_has_more_files_than_the_disk_has_inodes_is_refused_with_numbers() {
    let mut world = asking(&["llama"]);
    let root = world.root();
    (root.room.inodes, root.room.inodes_available, root.headroom_inodes) = (1_000, 100, 50);
    world.check(&["hold llama NoInodes: needs 76 inodes, and 50 are free", "llama Held, target A"]);
}

#[test]
fn what_is_promised_to_others_is_not_promised_again() {
    asking(&["llama"]).promised("mistral", gib(95)).sees("mistral", Seen::Unknown("EIO".to_owned())).check(&[
        "hold mistral CacheUnknown: what is on disk cannot be read: EIO",
        "hold llama NoRoom: needs 10.1 GiB, and 5.0 GiB can be promised \
         (free space less head-room and what is promised to others)",
        "llama Held, target A",
    ]);
}

#[test]
fn p04_a_promise_that_the_disk_can_no_longer_keep_is_not_staged_on() {
    asking(&["llama"]).promised("llama", needed()).free(gib(6)).check(&[
        "shrink to",
        "hold llama NoRoom: needs 10.1 GiB, and 6.0 GiB can be promised \
         (free space less head-room and what is promised to others)",
        "llama Held, target A",
    ]);
}

#[test]
fn promises_shrink_before_others_grow() {
    asking(&["llama"])
        .wants(wanted("mistral"))
        .has("mistral", serving("mistral", B))
        .listed("mistral", B)
        .promised("mistral", gib(11))
        .promised("gone", gib(5))
        .check(&[
            "shrink to mistral=10.0 GiB",
            "grow to llama=10.1 GiB mistral=10.0 GiB",
            "llama Staging, target A",
            "mistral Ready, target B, serves B",
        ]);
}

#[test]
fn freed_means_seen_freed() {
    asking(&["llama"]).free(gib(15)).promised("gone", gib(10)).check(&[
        "shrink to",
        "hold llama NoRoom: needs 10.1 GiB, and 5.0 GiB can be promised \
         (free space less head-room and what is promised to others)",
        "llama Held, target A",
    ]);
}

#[test]
fn a_promise_is_kept_while_its_cache_cannot_be_read_or_is_worked_on() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", Some(A)))
        .listed("llama", A)
        .runs(JobKey::Stage(id("llama")), JobKind::Stage(A))
        .promised("llama", gib(20))
        .wants(wanted("mistral"))
        .sees("mistral", Seen::Unknown("EIO".to_owned()))
        .listed("mistral", A)
        .promised("mistral", gib(20))
        .check(&[
            "hold mistral CacheUnknown: what is on disk cannot be read: EIO",
            "llama Staging, target A",
            "mistral Held",
        ]);
}

#[test]
fn stagings_go_by_priority_and_the_rest_wait_for_their_turn() {
    let mut world = asking(&["a", "b", "c"]);
    for (name, priority) in [("a", 0), ("b", 5), ("c", 9)] {
        let recorded = DeploymentRecord { priority, ..record(name, Some(A)) };
        world = world
            .wants(DesiredCache { priority, ..wanted(name) })
            .has(name, CacheView { record: Seen::Present(recorded), ..empty(name, None) })
            .promised(name, needed());
    }
    world.limits.stages_max = 1;
    world.check(&[
        "shrink to c=10.1 GiB",
        "stage c A 10.0 GiB at 9",
        "hold b WaitingForTurn: 1 others are being staged or go first",
        "hold a WaitingForTurn: 1 others are being staged or go first",
        "a Held, target A",
        "b Held, target A",
        "c Staging, target A",
    ]);
}

#[test]
fn p10_what_failed_before_goes_behind_what_did_not() {
    let mut world = asking(&["a", "b"])
        .promised("a", needed())
        .promised("b", needed())
        .failed(JobKey::Stage(id("a")), Reason::OriginUnreachable { why: "no byte came".to_owned() })
        .later(3);
    world.limits.stages_max = 1;
    world.check(&[
        "shrink to b=10.1 GiB",
        "stage b A 10.0 GiB at 0",
        "hold a WaitingForTurn: 1 others are being staged or go first",
        "a Held, target A",
        "b Staging, target A",
    ]);
}

#[test]
fn a_running_stage_counts_as_a_turn() {
    let mut world = asking(&["a", "b"]).promised("a", needed()).runs(JobKey::Stage(id("a")), JobKind::Stage(A));
    world.limits.stages_max = 1;
    world.check(&[
        "hold b WaitingForTurn: 1 others are being staged or go first",
        "a Staging, target A",
        "b Held, target A",
    ]);
}

#[test]
fn p10_a_stage_that_stands_still_keeps_nobody_from_a_turn() {
    let mut world = asking(&["a", "b"])
        .promised("a", needed())
        .promised("b", needed())
        .runs(JobKey::Stage(id("a")), JobKind::Stage(A));
    world.limits.stages_max = 1;
    world.now.monotonic = MONOTONIC.after(STILL_AFTER);
    world.check(&["stage b A 10.0 GiB at 0", "a Staging, target A", "b Staging, target A"]);
}

#[test]
fn whoever_waits_for_a_turn_keeps_no_room_from_a_higher_priority() {
    let recorded = DeploymentRecord { priority: 5, ..record("high", Some(A)) };
    let mut world = asking(&["running", "low"])
        .runs(JobKey::Stage(id("running")), JobKind::Stage(A))
        .promised("running", needed())
        .promised("low", needed())
        .wants(DesiredCache { priority: 5, ..wanted("high") })
        .has("high", CacheView { record: Seen::Present(recorded), ..empty("high", None) })
        .listed("high", A)
        .free(gib(25));
    world.limits.stages_max = 1;
    let promise_of_low = "shrink to running=10.1 GiB";
    assert_eq!(lines(&world.plan())[0], promise_of_low);
    world.root().promised.remove(&id("low"));
    world.check(&[
        "hold high WaitingForTurn: 1 others are being staged or go first",
        "hold low NoRoom: needs 10.1 GiB, and 4.7 GiB can be promised \
         (free space less head-room and what is promised to others)",
        "high Held, target A",
        "low Held, target A",
        "running Staging, target A",
    ]);
}

#[test]
fn p10_one_that_does_not_fit_does_not_keep_others_from_their_turn() {
    asking(&["big", "small"]).listed_as("big", A, |listing| listing.summary.blocks = gib(500)).check(&[
        "grow to small=10.1 GiB",
        "hold big NoRoom: needs 505.0 GiB, and 100.0 GiB can be promised \
             (free space less head-room and what is promised to others)",
        "big Held, target A",
        "small Staging, target A",
    ]);
}
