//! Making a cache, and adopting what a kubelet made in its place.

use stokehold_core::creation::{CreateError, create, write_promises};
use stokehold_core::layout::marker;
use stokehold_core::observed::Current;
use stokehold_core::port::Tree;
use stokehold_core::quantity::Bytes;
use stokehold_core::record::TreeRecord;
use stokehold_core::seen::Seen;
use stokehold_tests::sim::disk::DiskShape;
use stokehold_tests::sim::script::{Stage, for_each_crash_point};

use crate::ground::{FOLDER, cache, layout, made, record, seen};

/// Different outcomes of each power loss.
const OUTCOMES: u64 = 20;

async fn is_whole(stage: Stage) {
    made(&stage).await;
    let view = seen(&stage).await;
    assert!(view.has_skeleton && view.current == Current::Empty, "{view:?}");
    assert_eq!(view.record, Seen::Present(record()));
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_made_wherever_the_crash_comes() {
    let nothing = |_stage| async {};
    let crashes = for_each_crash_point(
        &DiskShape::default(),
        OUTCOMES,
        nothing,
        |stage| async move { made(&stage).await },
        is_whole,
    )
    .await;
    assert!(crashes > 300, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn c074_an_empty_folder_in_the_place_of_current_is_adopted_and_readers_always_find_something() {
    for_each_crash_point(
        &DiskShape::default(),
        OUTCOMES,
        |stage| async move { stage.disk.make_folder(&format!("{FOLDER}/current")) },
        |stage| async move {
            made(&stage).await;
            let names = stage.disk.paths();
            assert!(!names.iter().any(|name| name.contains(".current")), "nothing is left aside: {names:?}");
        },
        |stage| async move {
            assert!(stage.disk.paths().contains(&format!("{FOLDER}/current")), "readers always find something");
            let is_aside = || stage.disk.paths().iter().any(|name| name.contains(".current"));
            let view = seen(&stage).await;
            assert!(!view.has_skeleton || !is_aside(), "who has a skeleton is not mended: {:?}", stage.disk.paths());
            made(&stage).await;
            assert!(!is_aside(), "nothing is left aside: {:?}", stage.disk.paths());
            is_whole(stage).await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn p08_a_folder_with_content_in_the_place_of_current_is_left_alone() {
    let stage = Stage::new(1, DiskShape::default());
    stage.disk.plant_file(&format!("{FOLDER}/current/model.bin"), b"theirs");
    let error = create(Tree(&stage.disk), &layout(), &record()).await.expect_err("foreign");
    assert!(matches!(error, CreateError::CurrentIsForeign(_)), "{error:?}");
    stage.scene.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn p04_promises_are_those_before_or_those_after_wherever_the_crash_comes() {
    let promises = |bytes| [(cache(), Bytes(bytes))].into_iter().collect();
    for_each_crash_point(
        &DiskShape::default(),
        OUTCOMES,
        |stage| async move { write_promises(Tree(&stage.disk), &promises(1)).await.expect("written") },
        |stage| async move { write_promises(Tree(&stage.disk), &promises(2)).await.expect("written") },
        |stage| async move {
            let text = stage.disk.peek(marker().as_str()).expect("the marker is always there");
            let record = TreeRecord::decode(&text).expect("whole");
            assert!(record.promised == promises(1) || record.promised == promises(2), "{record:?}");
        },
    )
    .await;
}
