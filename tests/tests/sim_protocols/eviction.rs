//! Giving up a snapshot, dropping what is incoming, removing a cache.

use std::sync::atomic::AtomicU64;

use stokehold_core::eviction::{EvictError, discard_incoming, evict, remove_cache};
use stokehold_core::observed::{Current, SnapshotView};
use stokehold_core::port::Tree;
use stokehold_tests::sim::disk::{CrashKind, CrashPlan, DiskShape, Faults, Use};
use stokehold_tests::sim::script::{Stage, for_each_crash_point};

use crate::ground::{FOLDER, is_served, layout, made, model, offer, published, seen, settle, stage_model, sweep};

/// Different outcomes of each power loss.
const OUTCOMES: u64 = 5;

#[tokio::test(start_paused = true)]
async fn p06_an_eviction_cut_off_anywhere_leaves_a_snapshot_whole_or_unseen() {
    for privileged in [true, false] {
        for_each_crash_point(
            &DiskShape { privileged, ..DiskShape::default() },
            OUTCOMES,
            |stage| async move {
                let model = offer(&stage, 1);
                published(&stage, &model).await;
            },
            |stage| async move {
                evict(Tree(&stage.disk), &layout(), model(1).listing.id, 7).await.expect("evicted");
            },
            |stage| async move {
                sweep(&stage).await;
                let id = model(1).listing.id;
                evict(Tree(&stage.disk), &layout(), id, 8).await.expect("evicted for good");
                let view = seen(&stage).await;
                assert_eq!((view.current, view.snapshots.len()), (Current::Empty, 0));
                sweep(&stage).await;
                settle(&stage, &model(1)).await;
            },
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn p05_what_a_pod_uses_stays_and_is_served_again() {
    for how in [Use::Mount, Use::Bind, Use::Open] {
        let stage = Stage::new(1, DiskShape::default());
        let model = offer(&stage, 1);
        published(&stage, &model).await;
        let pod = stage.disk.pod_begins(FOLDER, how).expect("current");
        let evicted = evict(Tree(&stage.disk), &layout(), model.listing.id, 7).await;
        assert!(matches!(evicted, Err(EvictError::InUse(_))), "{how:?}: {evicted:?}");
        assert!(is_served(&stage, model.listing.id).await, "{how:?}");
        stage.disk.pod_ends(pod);
        evict(Tree(&stage.disk), &layout(), model.listing.id, 8).await.expect("unused now");
        stage.scene.assert_kept();
    }
}

#[tokio::test(start_paused = true)]
async fn p05_users_that_cannot_be_told_count_as_users() {
    let stage = Stage::new(1, DiskShape::default());
    let model = offer(&stage, 1);
    published(&stage, &model).await;
    stage.disk.set_faults(Faults { users_unknown_ppm: 1_000_000, ..Faults::default() });
    let evicted = evict(Tree(&stage.disk), &layout(), model.listing.id, 7).await;
    assert!(matches!(evicted, Err(EvictError::UsersUnknown(_))), "{evicted:?}");
    assert!(is_served(&stage, model.listing.id).await);
    stage.scene.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn p05_a_hidden_user_keeps_its_bytes_though_they_are_served_no_more() {
    let stage = Stage::new(1, DiskShape::default());
    let model = offer(&stage, 1);
    published(&stage, &model).await;
    let pod = stage.disk.pod_begins(FOLDER, Use::Hidden).expect("current");
    let evicted = evict(Tree(&stage.disk), &layout(), model.listing.id, 7).await;
    assert!(matches!(evicted, Err(EvictError::InUse(_))), "{evicted:?}");
    assert!(stage.disk.paths().iter().any(|path| path.starts_with("condemned/") && path.ends_with("two.bin")));
    stage.disk.pod_ends(pod);
    sweep(&stage).await;
    stage.scene.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn p05_a_pod_in_the_way_at_every_crash_of_an_eviction_keeps_what_it_uses() {
    for how in [Use::Mount, Use::Bind, Use::Open, Use::Hidden] {
        for_each_crash_point(
            &DiskShape::default(),
            2,
            |stage| async move {
                let model = offer(&stage, 1);
                published(&stage, &model).await;
                stage.disk.pod_begins(FOLDER, how).expect("current");
            },
            |stage| async move {
                evict(Tree(&stage.disk), &layout(), model(1).listing.id, 7).await.expect_err("in use");
            },
            |stage| async move {
                // The next start tries it all again while the pod, after kill -9, is still there.
                let tree = Tree(&stage.disk);
                let is_held = !stage.disk.pods().is_empty() && !is_gone(&stage).await;
                let again = evict(tree, &layout(), model(1).listing.id, 8).await;
                assert_eq!(again.is_err(), is_held, "{again:?}");
                for pod in stage.disk.pods() {
                    stage.disk.pod_ends(pod);
                }
                sweep(&stage).await;
                settle(&stage, &model(1)).await;
            },
        )
        .await;
    }
}

/// Whether nothing stands under the published name.
async fn is_gone(stage: &Stage) -> bool {
    matches!(seen(stage).await.snapshots.get(&model(1).listing.id), None | Some(SnapshotView::ManifestOnly))
}

#[tokio::test(start_paused = true)]
async fn what_is_incoming_is_dropped_wherever_the_crash_comes() {
    for_each_crash_point(
        &DiskShape::default(),
        OUTCOMES,
        |stage| async move {
            made(&stage).await;
            let model = offer(&stage, 1);
            let at = stage.disk.steps() + 70;
            stage.disk.crash_at(Some(CrashPlan { at, kind: CrashKind::ProcessDeath }));
            let ended = stage.until_crash(stage_model(&stage.disk, &model, &AtomicU64::new(0))).await;
            assert!(ended.is_none());
            stage.disk.restart();
        },
        |stage| async move {
            discard_incoming(Tree(&stage.disk), &layout(), model(1).listing.id, 7).await.expect("dropped");
        },
        |stage| async move {
            sweep(&stage).await;
            discard_incoming(Tree(&stage.disk), &layout(), model(1).listing.id, 8).await.expect("dropped for good");
            assert_eq!(seen(&stage).await.incoming.len(), 0);
            settle(&stage, &model(1)).await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_removed_wherever_the_crash_comes_and_can_be_made_again() {
    for_each_crash_point(
        &DiskShape::default(),
        OUTCOMES,
        |stage| async move { made(&stage).await },
        |stage| async move { remove_cache(Tree(&stage.disk), &layout(), 7).await.expect("removed") },
        |stage| async move {
            sweep(&stage).await;
            remove_cache(Tree(&stage.disk), &layout(), 8).await.expect("removed for good");
            assert!(!stage.disk.paths().iter().any(|path| path.starts_with(FOLDER)));
            made(&stage).await;
        },
    )
    .await;
}
