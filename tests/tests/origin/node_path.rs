//! What only a folder has: links, special files, rights.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use stokehold_core::port::{ByteRange, Origin as _, OriginError};
use stokehold_core::source::Source;
use stokehold_origin::NodePathOrigin;
use stokehold_tests::conformance::{self, Collected, Ground as _, entry_of};

use crate::ground::Folder;

async fn error_of(folder: &Folder) -> String {
    conformance::list(&NodePathOrigin, &folder.source("m")).await.expect_err("must not be listed").to_string()
}

#[tokio::test]
async fn a_link_inside_the_tree_gives_the_content_of_its_target() {
    let folder = Folder::new();
    folder.write("m/blobs/0123", b"weights");
    fs::create_dir_all(folder.path().join("m/snapshots/main")).expect("folders");
    symlink("../../blobs/0123", folder.path().join("m/snapshots/main/model.safetensors")).expect("link");
    let source = folder.source("m");
    let listing = conformance::list_only(&NodePathOrigin, &source, &["*.safetensors"]).await.expect("lists");
    let entry = entry_of(&listing, "snapshots/main/model.safetensors");
    assert_eq!(entry.size.0, 7);
    let read = conformance::read(&NodePathOrigin, &source, entry, ByteRange { start: 2, end: 7 }).await;
    assert_eq!(read.expect("reads"), b"ights");
}

#[tokio::test]
async fn links_that_leave_the_tree_or_lead_nowhere_are_named() {
    for (target, expected) in [
        ("../outside", "leaves the source"),
        ("/etc/hostname", "leaves the source"),
        ("missing", "leads nowhere"),
        ("link", "leads back to itself"),
        ("sub", "link to a folder"),
    ] {
        let folder = Folder::new();
        folder.write("outside", b"secret");
        folder.write("m/sub/file", b"x");
        symlink(target, folder.path().join("m/link")).expect("link");
        let error = error_of(&folder).await;
        assert!(error.contains("/m/link answered wrongly") && error.contains(expected), "{target}: {error}");
        let narrow = conformance::list_only(&NodePathOrigin, &folder.source("m"), &["file"]).await;
        assert!(narrow.is_ok(), "what the filter leaves out harms nobody: {narrow:?}");
    }
}

#[tokio::test]
async fn a_folder_swapped_for_a_link_to_elsewhere_is_not_followed() {
    let folder = Folder::new();
    folder.write("m/sub/file", b"good");
    folder.write("outside/file", b"evil");
    let source = folder.source("m");
    let listing = conformance::list(&NodePathOrigin, &source).await.expect("lists");
    let entry = entry_of(&listing, "sub/file");
    let pinned = NodePathOrigin.pin(&source, entry).await.expect("pins");
    fs::rename(folder.path().join("m/sub"), folder.path().join("m/away")).expect("rename");
    symlink("../outside", folder.path().join("m/sub")).expect("link");
    let mut fill = Collected::default();
    let range = ByteRange { start: 0, end: 4 };
    let read = NodePathOrigin.read_into(&source, entry, &pinned.pin, range, &mut fill).await;
    assert!(matches!(read, Err(OriginError::Broken { .. })), "{read:?}");
    assert!(fill.bytes.is_empty());
}

#[tokio::test]
async fn special_files_and_names_that_are_not_text_are_named() {
    let folder = Folder::new();
    folder.write("m/file", b"x");
    let _socket = UnixListener::bind(folder.path().join("m/sock")).expect("socket");
    let error = error_of(&folder).await;
    assert!(error.contains("/m/sock") && error.contains("socket"), "{error}");

    let folder = Folder::new();
    folder.write("m/file", b"x");
    let name = std::os::unix::ffi::OsStringExt::from_vec(b"bad\xff".to_vec());
    let name: std::ffi::OsString = name;
    fs::write(folder.path().join("m").join(name), b"x").expect("write");
    let error = error_of(&folder).await;
    assert!(error.contains("/m/bad") && error.contains("not UTF-8"), "{error}");
}

#[tokio::test]
async fn a_root_that_is_missing_or_a_file_is_named() {
    let folder = Folder::new();
    folder.write("file", b"x");
    let missing = folder.source("nothing");
    let error = conformance::list(&NodePathOrigin, &missing).await.expect_err("missing");
    let Source::NodePath(path) = missing else { panic!("a path") };
    assert_eq!(error, OriginError::Missing { what: path });
    let error = conformance::list(&NodePathOrigin, &folder.source("file")).await.expect_err("a file").to_string();
    assert!(error.contains("/file") && error.contains("not a folder"), "{error}");
}
