//! Every operation of every protocol fails in turn: an error is never taken for an answer.

use std::sync::atomic::AtomicU64;

use stokehold_core::creation::create;
use stokehold_core::eviction::{discard_incoming, evict, remove_cache};
use stokehold_core::file_op::FileFault;
use stokehold_core::port::Tree;
use stokehold_core::verification::verify;
use stokehold_tests::sim::disk::{CrashKind, CrashPlan, DiskShape, Use};
use stokehold_tests::sim::script::{Stage, for_each_failure_point};

use crate::ground::{FOLDER, is_served, layout, made, model, offer, published, record, settle, stage_model, sweep};

/// What an operation may say. A read-only filesystem says so to all that change something, which is one more kind of error.
const FAULTS: &[FileFault] = &[FileFault::Io, FileFault::Denied];

async fn settles(stage: Stage) {
    settle(&stage, &model(1)).await;
}

async fn with_model(stage: Stage) {
    let model = offer(&stage, 1);
    published(&stage, &model).await;
}

#[tokio::test(start_paused = true)]
async fn p01_staging_and_publishing_bear_every_failure() {
    let failures = for_each_failure_point(
        &DiskShape::default(),
        &[FileFault::Io, FileFault::NoSpace],
        |stage| async move { made(&stage).await },
        |stage| async move {
            let model = offer(&stage, 1);
            // Whether it failed is not the question.
            let _staged = stage_model(&stage.disk, &model, &AtomicU64::new(0)).await;
        },
        settles,
    )
    .await;
    assert!(failures > 200, "{failures}");
}

#[tokio::test(start_paused = true)]
async fn p01_p06_eviction_bears_every_failure() {
    let evicting = |stage: Stage| async move {
        let _evicted = evict(Tree(&stage.disk), &layout(), model(1).listing.id, 7).await;
    };
    let failures = for_each_failure_point(&DiskShape::default(), FAULTS, with_model, evicting, settles).await;
    assert!(failures > 50, "{failures}");
}

#[tokio::test(start_paused = true)]
async fn p05_an_eviction_that_fails_in_any_way_keeps_what_a_pod_uses() {
    for how in [Use::Mount, Use::Bind, Use::Open] {
        for_each_failure_point(
            &DiskShape::default(),
            FAULTS,
            |stage| async move {
                with_model(stage.clone()).await;
                stage.disk.pod_begins(FOLDER, how).expect("current");
            },
            |stage| async move {
                evict(Tree(&stage.disk), &layout(), model(1).listing.id, 7).await.expect_err("in use");
            },
            |stage| async move {
                for pod in stage.disk.pods() {
                    stage.disk.pod_ends(pod);
                }
                settle(&stage, &model(1)).await;
            },
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_what_is_incoming_bears_every_failure() {
    for_each_failure_point(
        &DiskShape::default(),
        FAULTS,
        |stage| async move {
            made(&stage).await;
            let model = offer(&stage, 1);
            let at = stage.disk.steps() + 70;
            stage.disk.crash_at(Some(CrashPlan { at, kind: CrashKind::ProcessDeath }));
            assert!(stage.until_crash(stage_model(&stage.disk, &model, &AtomicU64::new(0))).await.is_none());
            stage.disk.restart();
        },
        |stage| async move {
            let _dropped = discard_incoming(Tree(&stage.disk), &layout(), model(1).listing.id, 7).await;
        },
        settles,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn making_and_removing_a_cache_bear_every_failure() {
    for_each_failure_point(
        &DiskShape::default(),
        FAULTS,
        |stage| async move { stage.disk.make_folder(&format!("{FOLDER}/current")) },
        |stage| async move {
            let _made = create(Tree(&stage.disk), &layout(), &record()).await;
        },
        |stage| async move { made(&stage).await },
    )
    .await;
    for_each_failure_point(
        &DiskShape::default(),
        FAULTS,
        |stage| async move { made(&stage).await },
        |stage| async move {
            let _removed = remove_cache(Tree(&stage.disk), &layout(), 7).await;
        },
        |stage| async move {
            sweep(&stage).await;
            made(&stage).await;
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn p06_a_verification_that_fails_vouches_for_nothing_new_and_loses_nothing() {
    let id = || model(1).listing.id;
    for_each_failure_point(
        &DiskShape::default(),
        FAULTS,
        |stage| async move {
            with_model(stage.clone()).await;
            stage.disk.touch(&format!("{FOLDER}/snapshots/{}/config.json", id()));
        },
        |stage| async move {
            let _verified = verify(Tree(&stage.disk), &layout().snapshot(id())).await;
        },
        |stage| async move {
            verify(Tree(&stage.disk), &layout().snapshot(id())).await.expect("its bytes were never wrong");
            assert!(is_served(&stage, id()).await);
        },
    )
    .await;
}
