//! Staging, proving, publishing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use stokehold_core::listing::{Pin, StatGuard};
use stokehold_core::port::{Pinned, Tree};
use stokehold_core::staging::StageError;
use stokehold_core::verification::{VerifyError, verify};
use stokehold_tests::sim::disk::{CrashKind, CrashPlan, DiskShape, Faults, IgnoredSync};
use stokehold_tests::sim::script::{Stage, for_each_crash_point};

use crate::ground::{
    FOLDER, Model, PIECE_BYTES, is_served, layout, made, model, offer, published, seen, settle, stage_model,
};

/// Different outcomes of each power loss.
const OUTCOMES: u64 = 5;

#[tokio::test(start_paused = true)]
async fn p01_p03_a_snapshot_cut_off_anywhere_is_served_whole_after_the_next_start() {
    for privileged in [true, false] {
        let shape = DiskShape { privileged, ..DiskShape::default() };
        let crashes = for_each_crash_point(
            &shape,
            OUTCOMES,
            |stage| async move { made(&stage).await },
            |stage| async move {
                let model = offer(&stage, 1);
                stage_model(&stage.disk, &model, &AtomicU64::new(0)).await.expect("staged");
            },
            |stage| async move {
                settle(&stage, &model(1)).await;
            },
        )
        .await;
        assert!(crashes > 500, "{crashes}");
    }
}

#[tokio::test(start_paused = true)]
async fn p03_after_kill_9_only_the_piece_in_flight_is_fetched_again() {
    let whole = model(1).listing.bytes.0;
    for step in 0.. {
        let stage = Stage::new(1, DiskShape::default());
        let model = offer(&stage, 1);
        made(&stage).await;
        let at = stage.disk.steps() + step;
        stage.disk.crash_at(Some(CrashPlan { at, kind: CrashKind::ProcessDeath }));
        let fetched = Arc::new(AtomicU64::new(0));
        let ended = stage.until_crash(stage_model(&stage.disk, &model, &fetched)).await.is_some();
        stage.disk.restart();
        stage.disk.open_root();
        let again = settle(&stage, &model).await;
        stage.scene.assert_kept();
        let sum = fetched.load(Ordering::Relaxed) + again;
        assert!(sum <= whole + PIECE_BYTES, "step {step}: {sum} bytes were fetched of {whole}");
        if ended {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p02_pieces_of_another_file_of_the_same_size_and_time_are_not_gone_on_with() {
    let tied_to = |model: Model, inode| {
        let guard = StatGuard { device: 1, inode, mtime_ns: 5, ctime_ns: 6 };
        let tie = |pinned: Pinned| Pinned { pin: Pin { stat: Some(guard.clone()), ..pinned.pin }, ..pinned };
        Model { pinned: model.pinned.into_iter().map(tie).collect(), ..model }
    };
    let whole = model(1).listing.bytes.0;
    for (other, is_same) in [(7, true), (8, false)] {
        for step in 0.. {
            let stage = Stage::new(1, DiskShape::default());
            let model = tied_to(offer(&stage, 1), 7);
            made(&stage).await;
            let at = stage.disk.steps() + step;
            stage.disk.crash_at(Some(CrashPlan { at, kind: CrashKind::ProcessDeath }));
            let fetched = Arc::new(AtomicU64::new(0));
            let ended = stage.until_crash(stage_model(&stage.disk, &model, &fetched)).await.is_some();
            assert!(!ended, "no step leaves two pieces and something to do");
            let before = fetched.load(Ordering::Relaxed);
            if before < 3 * PIECE_BYTES || before >= whole {
                continue;
            }
            stage.disk.restart();
            stage.disk.open_root();
            let again = settle(&stage, &tied_to(model, other)).await;
            assert_eq!(again < whole, is_same, "{again} bytes were fetched of {whole}, {before} were there");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p01_p02_a_new_version_beside_an_old_one_is_served_whole_or_not_at_all() {
    let crashes = for_each_crash_point(
        &DiskShape::default(),
        OUTCOMES,
        |stage| async move {
            let old = offer(&stage, 1);
            published(&stage, &old).await;
        },
        |stage| async move {
            let new = offer(&stage, 2);
            stage_model(&stage.disk, &new, &AtomicU64::new(0)).await.expect("staged");
        },
        |stage| async move {
            let (old, new) = (model(1), model(2));
            let served = [is_served(&stage, old.listing.id).await, is_served(&stage, new.listing.id).await];
            assert!(served[0] != served[1], "one of the two is served at any time: {served:?}");
            settle(&stage, &new).await;
        },
    )
    .await;
    assert!(crashes > 300, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn p01_a_second_crash_while_the_first_is_mended_changes_nothing() {
    // One crash half-way, by each kind; then one at every step of what mends it.
    for (kind, share) in [(CrashKind::ProcessDeath, 3), (CrashKind::PowerLoss, 3), (CrashKind::PowerLoss, 5)] {
        for_each_crash_point(
            &DiskShape::default(),
            4,
            |stage| async move {
                made(&stage).await;
                let model = offer(&stage, 1);
                stage.disk.crash_at(Some(CrashPlan { at: stage.disk.steps() + share * 20, kind }));
                let ended = stage.until_crash(stage_model(&stage.disk, &model, &AtomicU64::new(0))).await;
                assert!(ended.is_none());
                stage.disk.restart();
                stage.disk.open_root();
            },
            |stage| async move {
                settle(&stage, &model(1)).await;
            },
            |stage| async move {
                settle(&stage, &model(1)).await;
            },
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn p01_bytes_that_a_failed_sync_forgot_are_fetched_again() {
    let mut failures = 0;
    for seed in 0..200 {
        let stage = Stage::new(seed, DiskShape::default());
        let model = offer(&stage, 1);
        made(&stage).await;
        stage.disk.set_faults(Faults { io_error_ppm: 30_000, no_space_ppm: 10_000, ..Faults::default() });
        for _ in 0..5 {
            failures += u64::from(stage_model(&stage.disk, &model, &AtomicU64::new(0)).await.is_err());
        }
        stage.disk.set_faults(Faults::default());
        settle(&stage, &model).await;
        stage.disk.crash_now(CrashKind::PowerLoss);
        stage.disk.restart();
        stage.disk.open_root();
        settle(&stage, &model).await;
        stage.scene.assert_kept();
    }
    assert!(failures > 500, "{failures}");
}

#[tokio::test(start_paused = true)]
async fn p01_a_wrong_file_is_discarded_and_fetched_again() {
    for index in [2_usize, 3] {
        let stage = Stage::new(1, DiskShape::default());
        let good = offer(&stage, 1);
        made(&stage).await;
        let mut lie = model(1);
        lie.files[index][4_000] ^= 1;
        let staged = stage_model(&stage.disk, &lie, &AtomicU64::new(0)).await;
        assert!(matches!(staged, Err(StageError::Mismatch { .. })), "{staged:?}");
        let again = settle(&stage, &good).await;
        assert!(again >= good.files[index].len() as u64 && again < good.listing.bytes.0, "{again}");
        stage.scene.assert_kept();
    }
}

#[tokio::test(start_paused = true)]
async fn p01_a_lie_is_never_published_wherever_the_crash_comes() {
    for_each_crash_point(
        &DiskShape::default(),
        4,
        |stage| async move {
            offer(&stage, 1);
            made(&stage).await;
        },
        |stage| async move {
            let mut lie = model(1);
            lie.files[3][100] ^= 1;
            stage_model(&stage.disk, &lie, &AtomicU64::new(0)).await.expect_err("a lie");
        },
        |stage| async move {
            // Whatever is left of the lie, going on from it with the truth either succeeds or finds it and starts that file anew.
            let good = model(1);
            if stage_model(&stage.disk, &good, &AtomicU64::new(0)).await.is_err() {
                settle(&stage, &good).await;
            }
            assert!(is_served(&stage, good.listing.id).await);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn p06_a_touched_file_is_verified_and_a_spoiled_one_is_not_vouched_for_again() {
    let stage = Stage::new(1, DiskShape::default());
    let model = offer(&stage, 1);
    published(&stage, &model).await;
    let places = layout().snapshot(model.listing.id);
    let file = format!("{FOLDER}/snapshots/{}/shards/two.bin", model.listing.id);
    stage.disk.touch(&file);
    assert!(!is_served(&stage, model.listing.id).await);
    verify(Tree(&stage.disk), &places).await.expect("still what was published");
    assert!(is_served(&stage, model.listing.id).await);
    stage.disk.spoil(&file);
    let verified = verify(Tree(&stage.disk), &places).await;
    assert!(matches!(verified, Err(VerifyError::Corrupt { .. })), "{verified:?}");
    settle(&stage, &model).await;
    assert!(seen(&stage).await.snapshots.len() == 1);
    stage.scene.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_a_protocol_left_out_would_be_noticed() {
    for ignored in [IgnoredSync::Data, IgnoredSync::Folder] {
        let shape = DiskShape { ignores: Some(ignored), ..DiskShape::default() };
        let noticed = std::panic::AssertUnwindSafe(for_each_crash_point(
            &shape,
            OUTCOMES,
            |stage| async move { made(&stage).await },
            |stage| async move {
                let model = offer(&stage, 1);
                stage_model(&stage.disk, &model, &AtomicU64::new(0)).await.expect("staged");
            },
            |stage| async move {
                settle(&stage, &model(1)).await;
            },
        ));
        let noticed = noticed.catch_unwind().await.expect_err("a promise was broken");
        let text = noticed.downcast_ref::<String>().map(String::as_str).unwrap_or_default();
        assert!(text.contains("P1"), "{ignored:?}: {text}");
    }
}
