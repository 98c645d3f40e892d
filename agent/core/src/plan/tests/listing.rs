//! Folders made and mended, origins listed, targets decided on.

use super::*;

#[test]
fn a_missing_cache_is_created_and_listed() {
    World::new().wants(wanted("llama")).check(&["create llama", "list llama", "llama Cold"]);
}

#[test]
fn a_skeleton_that_a_kubelet_made_is_adopted() {
    let view = CacheView {
        record: Seen::Absent,
        has_skeleton: false,
        current: Current::RealEmptyFolder,
        ..empty("llama", None)
    };
    World::new()
        .wants(wanted("llama"))
        .has("llama", view)
        .listed("llama", A)
        .check(&["create llama target A", "llama Cold, target A"]);
}

#[test]
fn a_skeleton_with_a_part_missing_is_mended_while_it_serves() {
    let view = CacheView { has_skeleton: false, ..serving("llama", A) };
    World::new()
        .wants(wanted("llama"))
        .has("llama", view)
        .listed("llama", A)
        .check(&["create llama target A", "llama Ready, target A, serves A"]);
}

#[test]
fn a_foreign_current_is_held_and_left_alone() {
    let view = CacheView {
        has_skeleton: false,
        current: Current::Foreign("a folder with 3 entries".to_owned()),
        ..empty("llama", None)
    };
    World::new().wants(wanted("llama")).has("llama", view).listed("llama", A).check(&[
        "hold llama CurrentIsForeign: `current` is a folder with 3 entries, which this agent did not make; move it away",
        "llama Held",
    ]);
}

#[test]
fn an_unreadable_cache_is_held_and_untouched() {
    World::new()
        .wants(wanted("llama"))
        .sees("llama", Seen::Unknown("Input/output error".to_owned()))
        .listed("llama", A)
        .promised("llama", gib(20))
        .check(&["hold llama CacheUnknown: what is on disk cannot be read: Input/output error", "llama Held"]);
}

#[test]
fn a_cache_with_an_unreadable_record_is_held_and_untouched() {
    let view = CacheView { record: Seen::Unknown("has version 9".to_owned()), ..serving("llama", A) };
    World::new()
        .wants(wanted("llama"))
        .has("llama", view)
        .listed("llama", A)
        .check(&["hold llama CacheUnknown: what is on disk cannot be read: has version 9", "llama Held"]);
}

#[test]
fn an_unreadable_root_holds_everything() {
    let mut world = World::new()
        .wants(wanted("llama"))
        .wants(wanted("mistral"))
        .has("llama", serving("llama", A))
        .listed("llama", A);
    world.observed.root = Seen::Unknown("statvfs: I/O error".to_owned());
    world.observed.condemned = Seen::Present(vec!["old".to_owned()]);
    world.check(&[
        "hold node RootUnknown: the cache root cannot be used: statvfs: I/O error",
        "hold llama RootUnknown: the cache root cannot be used: statvfs: I/O error",
        "hold mistral RootUnknown: the cache root cannot be used: statvfs: I/O error",
        "llama Held",
        "mistral Held",
    ]);
}

#[test]
fn a_root_that_is_not_there_holds_everything() {
    let mut world = World::new().wants(wanted("llama"));
    world.observed.root = Seen::Absent;
    world.check(&[
        "hold node RootUnknown: the cache root cannot be used: it is not there",
        "hold llama RootUnknown: the cache root cannot be used: it is not there",
        "llama Held",
    ]);
}

#[test]
fn an_origin_is_not_listed_before_its_interval_is_over() {
    let world = World::new().wants(wanted("llama")).has("llama", serving("llama", A)).listed("llama", A);
    world.clone().later(599).check(&["llama Ready, target A, serves A"]);
    world.later(600).check(&["list llama", "llama Ready, target A, serves A"]);
}

#[test]
fn an_origin_is_listed_once_at_a_time() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", None))
        .runs(JobKey::List(id("llama")), JobKind::List)
        .check(&["llama Cold"]);
}

#[test]
fn a_listing_that_failed_waits_and_says_why() {
    let reason = Reason::OriginUnreachable { why: "connection refused".to_owned() };
    let world = World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", None))
        .failed(JobKey::List(id("llama")), reason);
    world.clone().check(&["hold llama OriginUnreachable: connection refused", "llama Held"]);
    world.later(2).check(&["list llama", "llama Cold"]);
}

#[test]
fn listings_take_turns() {
    let mut world = World::new();
    world.limits.lists_max = 2;
    world
        .wants(wanted("a"))
        .wants(wanted("b"))
        .wants(wanted("c"))
        .has("a", serving("a", A))
        .has("b", empty("b", None))
        .has("c", empty("c", None))
        .runs(JobKey::List(id("a")), JobKind::List)
        .check(&[
            "list b",
            "hold c WaitingForTurn: 2 others are being staged or go first",
            "a Ready, target A, serves A",
            "b Cold",
            "c Held",
        ]);
}

#[test]
fn p10_listings_of_one_place_keep_no_other_place_waiting() {
    let elsewhere = |weights: &mut DesiredWeights| {
        weights.source = Source::S3(crate::source::S3Source::new("models", "c/").expect("a bucket"));
    };
    let mut world = World::new();
    world.limits.lists_max = 1;
    world
        .wants(wanted("a"))
        .wants(wanted("b"))
        .wants(with_weights("c", elsewhere))
        .has("a", serving("a", A))
        .has("b", empty("b", None))
        .has("c", empty("c", None))
        .runs(JobKey::List(id("a")), JobKind::List)
        .check(&[
            "record c",
            "list c",
            "hold b WaitingForTurn: 1 others are being staged or go first",
            "a Ready, target A, serves A",
            "b Held",
            "c Cold",
        ]);
}

#[test]
fn a_stale_listing_is_made_anew_and_not_staged_from() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", Some(A)))
        .promised("llama", gib(20))
        .listed_as("llama", A, |listing| listing.is_stale = true)
        .check(&["shrink to", "list llama", "llama Cold, target A"]);
}

#[test]
fn a_listing_of_another_source_counts_for_nothing() {
    World::new()
        .wants(wanted("llama"))
        .has("llama", empty("llama", None))
        .listed_as("llama", A, |listing| listing.origin_fingerprint = "another".to_owned())
        .check(&["list llama", "llama Cold"]);
}

#[test]
fn the_first_listing_decides_the_target_and_it_is_recorded() {
    World::new().wants(wanted("llama")).has("llama", empty("llama", None)).listed("llama", A).check(&[
        "record llama target A",
        "grow to llama=10.1 GiB",
        "llama Staging, target A",
    ]);
}

#[test]
fn a_revision_wins_over_what_was_recorded() {
    World::new()
        .wants(with_weights("llama", |weights| weights.revision = Some(B)))
        .has("llama", serving("llama", A))
        .listed("llama", B)
        .check(&["record llama target B", "grow to llama=20.1 GiB", "llama Staging, target B, serves A"]);
}

#[test]
fn manual_keeps_the_recorded_target_and_offers_the_other() {
    World::new().wants(wanted("llama")).has("llama", serving("llama", A)).listed("llama", B).check(&[
        "hold llama UpdateAvailable: A is served, and the origin offers B; set revision to it, or update to Automatic",
        "llama Ready, target A, serves A",
    ]);
}

#[test]
fn automatic_follows_what_the_origin_offers() {
    World::new()
        .wants(with_weights("llama", |weights| weights.update = Update::Automatic))
        .has("llama", serving("llama", A))
        .listed("llama", B)
        .check(&["record llama target B", "grow to llama=20.1 GiB", "llama Staging, target B, serves A"]);
}

#[test]
fn c014_a_target_that_changed_before_it_was_staged_is_held_with_both_ids() {
    World::new().wants(wanted("llama")).has("llama", empty("llama", Some(A))).listed("llama", B).check(&[
        "hold llama OriginChanged: A is the target, and the origin now offers B; \
         set revision to it, or update to Automatic",
        "llama Held, target A",
    ]);
}

#[test]
fn a_revision_that_is_not_offered_is_held_while_the_old_one_is_served() {
    World::new()
        .wants(with_weights("llama", |weights| weights.revision = Some(C)))
        .has("llama", CacheView { record: Seen::Present(record("llama", Some(C))), ..serving("llama", A) })
        .listed("llama", B)
        .check(&[
            "hold llama RevisionNotOffered: revision is C, and the origin offers B",
            "llama Held, target C, serves A",
        ]);
}

#[test]
fn a_snapshot_of_another_source_is_not_served() {
    let mut cache = wanted("llama");
    cache.weights = with_weights("another", |_weights| {}).weights;
    World::new().wants(cache).has("llama", serving("llama", A)).check(&["record llama", "list llama", "llama Cold"]);
}

#[test]
fn another_choice_of_files_is_not_served_until_it_is_staged() {
    let cache = with_weights("llama", |weights| weights.include = vec!["*.safetensors".to_owned()]);
    let chosen = cache.weights.as_ref().expect("has weights").origin_fingerprint();
    World::new()
        .wants(cache)
        .has("llama", serving("llama", A))
        .listed_as("llama", B, |listing| listing.origin_fingerprint = chosen)
        .check(&["record llama target B", "grow to llama=20.1 GiB", "llama Staging, target B"]);
}

#[test]
fn p03_a_choice_of_files_that_comes_to_the_same_snapshot_is_served_and_not_fetched_again() {
    let cache = with_weights("llama", |weights| weights.include = vec!["*".to_owned()]);
    let chosen = cache.weights.as_ref().expect("has weights").origin_fingerprint();
    World::new()
        .wants(cache)
        .has("llama", serving("llama", A))
        .listed_as("llama", A, |listing| listing.origin_fingerprint = chosen)
        .check(&["record llama target A", "llama Ready, target A, serves A"]);
}

#[test]
fn what_this_release_does_not_do_is_said_for_each_field_while_weights_go_on() {
    let mut cache = wanted("llama");
    cache.not_in_this_release = vec!["spec.images".to_owned(), "spec.placement".to_owned()];
    World::new().wants(cache).has("llama", serving("llama", A)).listed("llama", A).check(&[
        "hold images of llama NotInThisRelease: spec.images is set, and this release does not act on it",
        "hold llama NotInThisRelease: spec.placement is set, and this release does not act on it",
        "llama Ready, target A, serves A",
    ]);
}

#[test]
fn what_a_policy_refuses_is_held_without_a_step_and_not_served() {
    let cache = DesiredCache { refused: Some("nodePath /models is not allowed".to_owned()), ..wanted("llama") };
    let world = World::new().wants(cache);
    let expected = ["hold llama RefusedByPolicy: nodePath /models is not allowed", "llama Held"];
    world.clone().check(&expected);
    world.has("llama", serving("llama", A)).listed("llama", A).check(&expected);
}

#[test]
fn p10_a_document_that_cannot_be_read_is_said_and_stops_nothing_else() {
    World::new()
        .rejects("llama.yaml", None)
        .wants(wanted("mistral"))
        .has("mistral", serving("mistral", A))
        .listed("mistral", A)
        .check(&["hold document llama.yaml Rejected: spec: is not a map", "mistral Ready, target A, serves A"]);
}

#[test]
fn weights_alone_do_not_make_ready_what_asks_for_images_too() {
    let cache =
        DesiredCache { asks_for_images: true, not_in_this_release: vec!["spec.images".to_owned()], ..wanted("llama") };
    World::new().wants(cache).has("llama", serving("llama", A)).listed("llama", A).check(&[
        "hold images of llama NotInThisRelease: spec.images is set, and this release does not act on it",
        "llama Held, target A, serves A",
    ]);
}
