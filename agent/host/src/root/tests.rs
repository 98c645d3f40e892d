//! Taking a root: locked, marked, adopted or refused, and what is refused is left as it was.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use super::*;

fn open(path: &Path) -> Result<CacheRoot, RootError> {
    CacheRoot::open(path, RootOptions::default())
}

fn names(path: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.expect("entry").file_name().into_string().expect("UTF-8");
    let mut names: Vec<String> = fs::read_dir(path).expect("list").map(name).collect();
    names.sort();
    names
}

/// Opens a root that was given back: a child that another test is just starting has the lock too, until it runs its own program.
fn open_free(open: impl Fn() -> Result<CacheRoot, RootError>) -> CacheRoot {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match open() {
            Err(RootError::Held { .. }) if Instant::now() < patience => std::thread::yield_now(),
            opened => return opened.expect("free again"),
        }
    }
}

#[test]
fn a_blank_folder_is_marked_and_given_its_skeleton() {
    let place = tempfile::tempdir().expect("temporary folder");
    let root = open(place.path()).expect("open");
    assert_eq!(names(place.path()), ["condemned", "deployments", "lock", "stokehold.json"]);
    assert_eq!(root.marker().expect("marker"), Marker::fresh());
    assert_eq!(fs::read_to_string(place.path().join("lock")).expect("lock"), format!("{}\n", std::process::id()));
}

#[test]
fn a_second_opener_is_refused_and_told_the_pid_until_the_last_clone_is_dropped() {
    let place = tempfile::tempdir().expect("temporary folder");
    let root = open(place.path()).expect("open");
    let clone = root.clone();
    drop(root);
    let refused = open(place.path()).expect_err("held");
    assert!(matches!(refused, RootError::Held { pid: Some(pid), .. } if pid == std::process::id()), "{refused}");
    drop(clone);
    open_free(|| open(place.path()));
}

#[test]
fn p08_a_tree_of_somebody_else_is_refused_and_left_as_it_was() {
    for plant in
        ["notes.txt", "models/a.bin", "deployments/x.txt", "deployments/Inference/x/", "deployments/ns/name/weights/"]
    {
        let place = tempfile::tempdir().expect("temporary folder");
        let planted = place.path().join(plant);
        fs::create_dir_all(planted.parent().expect("parent")).expect("folders");
        if plant.ends_with('/') {
            fs::create_dir_all(&planted).expect("folder");
        } else {
            fs::write(&planted, "theirs").expect("file");
        }
        let before = names(place.path());
        let refused = open(place.path()).expect_err(plant);
        assert!(matches!(refused, RootError::Foreign { .. }), "{plant}: {refused}");
        assert_eq!(names(place.path()), before, "{plant}");
    }
}

#[test]
fn p08_links_in_place_of_our_names_are_refused() {
    for name in ["deployments", "condemned", "lock"] {
        let place = tempfile::tempdir().expect("temporary folder");
        let outside = tempfile::tempdir().expect("temporary folder");
        symlink(outside.path(), place.path().join(name)).expect("plant link");
        assert!(matches!(open(place.path()), Err(RootError::Foreign { .. })), "{name}");
        assert_eq!(names(outside.path()), [""; 0]);
    }
}

#[test]
fn what_a_kubelet_made_on_a_cold_node_is_adopted() {
    let place = tempfile::tempdir().expect("temporary folder");
    fs::create_dir_all(place.path().join("deployments/inference/llama-70b/current")).expect("skeleton");
    fs::create_dir(place.path().join("lost+found")).expect("new filesystem");
    fs::write(place.path().join("lock"), "12\n").expect("interrupted start");
    fs::write(place.path().join(".stokehold.json.12-0.aside"), "{").expect("interrupted start");
    open(place.path()).expect("open");
    assert_eq!(names(place.path()), ["condemned", "deployments", "lock", "lost+found", "stokehold.json"]);
}

#[test]
fn a_tree_of_a_newer_release_is_refused_as_such() {
    let place = tempfile::tempdir().expect("temporary folder");
    let marker = r#"{"formatVersion": 7, "tree": "stokehold.dev/cache-tree"}"#;
    fs::write(place.path().join("stokehold.json"), marker).expect("marker");
    assert!(matches!(open(place.path()), Err(RootError::Newer { found: 7, known: 1, .. })));
    fs::write(place.path().join("stokehold.json"), "{}").expect("marker");
    assert!(matches!(open(place.path()), Err(RootError::BadMarker { .. })));
}

#[test]
fn a_missing_root_is_made_only_when_asked() {
    let place = tempfile::tempdir().expect("temporary folder");
    let path = place.path().join("stokehold");
    assert!(matches!(open(&path), Err(RootError::Missing { .. })));
    CacheRoot::open(&path, RootOptions { make_missing: true }).expect("made");
    let far = place.path().join("not/mounted");
    assert!(CacheRoot::open(&far, RootOptions { make_missing: true }).is_err());
}

#[test]
fn what_a_crash_left_aside_is_swept_but_not_where_others_write() {
    let place = tempfile::tempdir().expect("temporary folder");
    drop(open(place.path()).expect("open"));
    let cache = place.path().join("deployments/ns/name");
    let (ours, theirs) = (cache.join("snapshots/.id.json.9-1.aside"), cache.join("requests/.a.9-1.aside"));
    for file in [&ours, &theirs] {
        fs::create_dir_all(file.parent().expect("parent")).expect("folder");
        fs::write(file, "").expect("file");
    }
    symlink("empty", cache.join(".current.9-2.aside")).expect("link");
    open_free(|| open(place.path()));
    assert!(!ours.exists());
    assert!(theirs.exists());
    assert_eq!(names(&cache), ["requests", "snapshots"]);
}

#[test]
fn a_one_off_stage_touches_nothing_but_its_hidden_folder() {
    let place = tempfile::tempdir().expect("temporary folder");
    fs::write(place.path().join("theirs"), "theirs").expect("file");
    let root = CacheRoot::open_one_off(place.path(), "llama").expect("open");
    assert_eq!(names(place.path()), [".llama.stokehold", "theirs"]);
    assert!(matches!(CacheRoot::open_one_off(place.path(), "llama"), Err(RootError::Held { .. })));
    let other = CacheRoot::open_one_off(place.path(), "mistral").expect("another model at the same time");
    drop(other);
    let work = SnapshotLayout::one_off_work("llama");
    disk::perform(&root, &FileOp::Unlink { path: work.entry("lock"), unused_only: false }).expect("unlink");
    drop(root);
    open_free(|| CacheRoot::open_one_off(place.path(), "llama"));
    assert!(CacheRoot::open_one_off(place.path(), "a/b").is_err());
}

#[test]
fn p06_a_root_that_was_moved_away_or_replaced_is_not_in_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, away) = (folder.path().join("root"), folder.path().join("away"));
    let root = CacheRoot::open(&path, RootOptions { make_missing: true }).expect("it is taken");
    assert!(root.is_in_place().expect("looked at"));
    fs::rename(&path, &away).expect("moved");
    assert!(root.is_in_place().is_err(), "nothing is there");
    fs::create_dir(&path).expect("another is made");
    assert!(!root.is_in_place().expect("looked at"), "another folder is there");
    fs::remove_dir(&path).expect("removed");
    fs::rename(&away, &path).expect("moved back");
    assert!(root.is_in_place().expect("looked at"));
}
