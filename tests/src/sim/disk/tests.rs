//! The simulated disk by hand: what is durable, what a crash may take, and what it never may.

use stokehold_core::file_op::FileKind;
use stokehold_core::port::Tree;

use super::*;
use crate::sim::script::Stage;

fn path(text: &str) -> TreePath {
    text.split('/').fold(TreePath::root(), |path, part| path.entry(part))
}

async fn act(stage: &Stage, op: FileOp) {
    stage.disk.perform(op).await.expect("done");
}

async fn file(stage: &Stage, name: &str, content: &[u8]) {
    act(stage, FileOp::Allocate { path: path(name), size: Bytes(content.len() as u64) }).await;
    stage.disk.write_at(&path(name), 0, content).expect("written");
}

/// Runs once per seed on a blank disk; the disk loses power at the end.
async fn after_power_loss<Work: Future<Output = ()>>(seed: u64, work: impl FnOnce(Stage) -> Work) -> Stage {
    let stage = Stage::new(seed, DiskShape::default());
    work(stage.clone()).await;
    stage.disk.crash_now(CrashKind::PowerLoss);
    stage.disk.restart();
    stage
}

const SEEDS: u64 = 60;

#[tokio::test(start_paused = true)]
async fn what_was_synced_survives_and_what_was_not_may_not() {
    let content = crate::lab::seed::bytes(3, 20_000);
    let (mut names_kept, mut contents) = (0, std::collections::BTreeSet::new());
    for seed in 0..SEEDS {
        let stage = after_power_loss(seed, |stage| {
            let content = content.clone();
            async move {
                act(&stage, FileOp::MakeDir { path: path("synced"), mode: 0o755 }).await;
                act(&stage, FileOp::SyncDir { path: TreePath::root() }).await;
                file(&stage, "synced/file", &content).await;
                act(&stage, FileOp::SyncData { path: path("synced/file") }).await;
                act(&stage, FileOp::SyncDir { path: path("synced") }).await;
                file(&stage, "synced/data-only", &content).await;
                act(&stage, FileOp::SyncData { path: path("synced/data-only") }).await;
                file(&stage, "synced/name-only", &content).await;
                act(&stage, FileOp::SyncDir { path: path("synced") }).await;
                file(&stage, "synced/nothing", &content).await;
            }
        })
        .await;
        assert_eq!(stage.disk.peek("synced/file"), Some(content.clone()), "seed {seed}");
        assert_eq!(stage.disk.peek("synced/data-only"), Some(content.clone()), "its name came before a later sync");
        contents.insert(stage.disk.peek("synced/name-only").expect("its name is durable"));
        names_kept += u64::from(stage.disk.peek("synced/nothing").is_some());
    }
    assert!(names_kept > 0 && names_kept < SEEDS, "{names_kept}");
    assert!(contents.contains(&content) && contents.contains(&Vec::new()), "whole, and of no length");
    let zeros = |bytes: &&Vec<u8>| bytes.len() == content.len() && bytes.iter().all(|byte| *byte == 0);
    assert!(contents.iter().any(|bytes| zeros(&bytes)), "of full length without a byte");
    let torn = |bytes: &&Vec<u8>| {
        let block = bytes.get(4_096..8_192).unwrap_or_default();
        block.contains(&0) && block != &content[4_096..8_192] && block.iter().any(|byte| *byte != 0)
    };
    assert!(contents.iter().filter(torn).count() > 0, "torn within a block");
}

#[tokio::test(start_paused = true)]
async fn a_rename_across_folders_happens_whole_or_not_at_all() {
    let mut moved = 0;
    for seed in 0..SEEDS {
        let stage = after_power_loss(seed, |stage| async move {
            for folder in ["a", "b", "a/tree"] {
                act(&stage, FileOp::MakeDir { path: path(folder), mode: 0o755 }).await;
            }
            act(&stage, FileOp::SyncFs).await;
            act(&stage, FileOp::Rename { from: path("a/tree"), to: path("b/tree") }).await;
        })
        .await;
        let paths = stage.disk.paths();
        let (before, after) = (paths.contains(&"a/tree".to_owned()), paths.contains(&"b/tree".to_owned()));
        assert!(before != after, "seed {seed}: {paths:?}");
        moved += u64::from(after);
    }
    assert!(moved > 0 && moved < SEEDS, "{moved}");
}

#[tokio::test(start_paused = true)]
async fn a_synced_rename_stays_whichever_of_the_two_folders_was_synced() {
    for (seed, synced) in (0..20).flat_map(|seed| [(seed, "a"), (seed, "b")]) {
        let stage = after_power_loss(seed, |stage| async move {
            for folder in ["a", "b", "a/tree"] {
                act(&stage, FileOp::MakeDir { path: path(folder), mode: 0o755 }).await;
            }
            act(&stage, FileOp::SyncFs).await;
            act(&stage, FileOp::Rename { from: path("a/tree"), to: path("b/tree") }).await;
            act(&stage, FileOp::SyncDir { path: path(synced) }).await;
        })
        .await;
        assert!(stage.disk.paths().contains(&"b/tree".to_owned()), "seed {seed}, {synced} synced");
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_file_is_replaced_at_once_whenever_the_crash_comes() {
    let replace = |bytes: &[u8]| FileOp::Replace { path: path("record"), bytes: bytes.to_vec(), mode: 0o644 };
    let points = crate::sim::script::for_each_crash_point(
        &DiskShape::default(),
        10,
        |stage| async move { act(&stage, replace(b"one")).await },
        |stage| async move { act(&stage, replace(b"two")).await },
        |stage| async move {
            let found = stage.disk.peek("record").expect("always there");
            assert!(found == b"one" || found == b"two", "{found:?}");
            assert!(stage.disk.paths().iter().all(|path| !path.ends_with(".aside")), "asides are swept");
        },
    )
    .await;
    assert_eq!(points, 11 * 6, "before each of five steps, and after the last");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_says_so_and_gives_back_what_it_took() {
    let shape = DiskShape { capacity: Bytes(64 << 10), inodes: 8, ..DiskShape::default() };
    let stage = Stage::new(1, shape);
    let room = Tree(&stage.disk).room().await.expect("room");
    let allocate = |size| stage.disk.perform(FileOp::Allocate { path: path("file"), size: Bytes(size) });
    assert_eq!(allocate(1 << 20).await.expect_err("too large").fault, FileFault::NoSpace);
    assert_eq!(Tree(&stage.disk).stat(path("file")).await.expect("stat").size, Bytes(0));
    assert_eq!(Tree(&stage.disk).room().await.expect("room").available, room.available);
    allocate(8_192).await.expect("fits");
    assert_eq!(Tree(&stage.disk).room().await.expect("room").available, Bytes(room.available.0 - 8_192));
    for name in ["a", "b", "c"] {
        act(&stage, FileOp::MakeDir { path: path(name), mode: 0o755 }).await;
    }
    let full = stage.disk.perform(FileOp::MakeDir { path: path("d"), mode: 0o755 }).await;
    assert_eq!(full.expect_err("no inode").fault, FileFault::NoSpace);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_has_open_is_not_unlinked_and_what_only_a_lease_tells_does_not_show() {
    let stage = Stage::new(1, DiskShape::default());
    let cache = "deployments/ns/name";
    stage.disk.make_folder(&format!("{cache}/snapshots/0000000000000000"));
    act(&stage, FileOp::Link { path: path(&format!("{cache}/aside")), target: "x".to_owned() }).await;
    let name = format!("{cache}/incoming");
    stage.disk.make_folder(&name);
    file(&stage, &format!("{name}/file"), b"bytes").await;
    act(&stage, FileOp::Rename { from: path(&format!("{name}/file")), to: path("file") }).await;
    act(&stage, FileOp::Rename { from: path("file"), to: path(&format!("{cache}/snapshots/0000000000000000/file")) })
        .await;
    stage.disk.spoil(&format!("{cache}/snapshots/0000000000000000/file"));
    act(
        &stage,
        FileOp::Link { path: path(&format!("{cache}/current")), target: "snapshots/0000000000000000".to_owned() },
    )
    .await;
    for (how, shows, refuses) in
        [(Use::Mount, true, false), (Use::Bind, true, false), (Use::Open, true, true), (Use::Hidden, false, true)]
    {
        let pod = stage.disk.pod_begins(cache, how).expect("something is current");
        let snapshot = path(&format!("{cache}/snapshots/0000000000000000"));
        let users = Tree(&stage.disk).users(snapshot.clone()).await.expect("looked");
        let stokehold_core::seen::Seen::Present(users) = users else { panic!("{users:?}") };
        assert_eq!(!users.is_empty(), shows, "{how:?}");
        if refuses {
            let unlink = FileOp::Unlink { path: snapshot.entry("file"), unused_only: true };
            assert_eq!(stage.disk.perform(unlink).await.expect_err("open").fault, FileFault::InUse);
        }
        stage.disk.pod_ends(pod);
    }
    stage.scene.assert_kept();
}

#[tokio::test(start_paused = true)]
async fn a_frozen_folder_is_not_moved_by_an_unprivileged_owner() {
    let stage = Stage::new(1, DiskShape { privileged: false, ..DiskShape::default() });
    for folder in ["a", "b", "a/tree"] {
        act(&stage, FileOp::MakeDir { path: path(folder), mode: 0o755 }).await;
    }
    act(&stage, FileOp::SetMode { path: path("a/tree"), mode: 0o555 }).await;
    let rename = FileOp::Rename { from: path("a/tree"), to: path("b/tree") };
    assert_eq!(stage.disk.perform(rename.clone()).await.expect_err("frozen").fault, FileFault::Denied);
    act(&stage, FileOp::SetMode { path: path("a/tree"), mode: 0o755 }).await;
    act(&stage, rename).await;
    let stat = Tree(&stage.disk).stat(path("b/tree")).await.expect("stat");
    assert_eq!((stat.kind, stat.mode), (FileKind::Folder, 0o755));
}

#[tokio::test(start_paused = true)]
async fn a_dead_disk_answers_nothing_and_the_same_seed_gives_the_same_log() {
    let run = |seed| async move {
        let shape = DiskShape { takes_time: true, ..DiskShape::default() };
        let stage = Stage::new(seed, shape);
        stage.scene.clock.life_begins();
        stage.disk.crash_at(Some(CrashPlan { at: 7, kind: CrashKind::PowerLoss }));
        let work = async {
            for number in 0..100 {
                let path = path(&format!("folder-{number}"));
                act(&stage, FileOp::MakeDir { path, mode: 0o755 }).await;
            }
        };
        assert!(stage.until_crash(work).await.is_none());
        let asked = stage.disk.perform(FileOp::Room);
        let answered = tokio::time::timeout(Duration::from_secs(3_600), asked).await;
        assert!(answered.is_err(), "{answered:?}");
        stage.scene.log.text()
    };
    assert_eq!(run(5).await, run(5).await);
    assert_ne!(run(5).await, run(6).await);
}

#[tokio::test(start_paused = true)]
async fn p05_p08_what_must_stay_is_seen_to_go() {
    let broken = |stage: &Stage| stage.scene.broken().unwrap_or_default();
    let stage = Stage::new(1, DiskShape::default());
    stage.disk.plant_file("theirs/notes", b"theirs");
    act(&stage, FileOp::Rename { from: path("theirs"), to: path("condemned/theirs") }).await;
    assert!(broken(&stage).starts_with("P8: moving theirs"), "{}", broken(&stage));

    let stage = Stage::new(1, DiskShape::default());
    stage.disk.make_folder("deployments/ns/name/snapshots/0000000000000000");
    let link =
        FileOp::Link { path: path("deployments/ns/name/current"), target: "snapshots/0000000000000000".to_owned() };
    act(&stage, link).await;
    assert!(broken(&stage).starts_with("P1: deployments/ns/name/current leads to"), "{}", broken(&stage));
}
