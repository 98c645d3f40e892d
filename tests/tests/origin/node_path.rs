//! What only a folder has: links, special files, rights.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use nix::unistd::{Uid, setfsuid};

use stokehold_core::file_op::FileError;
use stokehold_core::port::{ByteRange, Fill, Origin as _, OriginError};
use stokehold_core::source::Source;
use stokehold_origin::NodePathOrigin;
use stokehold_tests::conformance::{self, Collected, Ground as _, entry_of};
use stokehold_tests::lab;

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
    let name = OsString::from_vec(b"bad\xff".to_vec());
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

/// Does something to the source after the first bytes were taken.
struct Meddling<F> {
    inner: Collected,
    once: Option<F>,
}

impl<F: FnOnce() + Send> Fill for Meddling<F> {
    fn buffer(&mut self) -> Result<&mut [u8], FileError> {
        self.inner.buffer()
    }

    fn filled(&mut self, count: usize) -> Result<(), FileError> {
        if let Some(meddle) = self.once.take() {
            meddle();
        }
        self.inner.filled(count)
    }
}

#[tokio::test]
async fn a_file_that_is_written_cut_or_replaced_while_it_is_read_has_changed() {
    let length = 100_000;
    type Meddle = fn(&Folder);
    let ways: [(&str, Meddle); 3] = [
        ("written", |folder| folder.write("m/file", &[1; 100_000])),
        ("cut", |folder| folder.write("m/file", &[0; 10])),
        ("touched", |folder| {
            let path = folder.path().join("m/file");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("mode");
        }),
    ];
    for (way, meddle) in ways {
        let folder = Folder::new();
        folder.write("m/file", &vec![0; length]);
        let source = folder.source("m");
        let listing = conformance::list(&NodePathOrigin, &source).await.expect("lists");
        let entry = entry_of(&listing, "file");
        let pinned = NodePathOrigin.pin(&source, entry).await.expect("pins");
        // The clock of the filesystem moves in steps; wait for the next one, so that the change is seen to be one.
        lab::until("another time of the filesystem", Duration::from_secs(10), || {
            folder.write("clock", b"x");
            let time = fs::metadata(folder.path().join("clock")).expect("clock");
            let now = i128::from(time.ctime()) * 1_000_000_000 + i128::from(time.ctime_nsec());
            (now > pinned.pin.stat.as_ref()?.ctime_ns).then_some(())
        })
        .expect("time passes");
        let mut fill = Meddling { inner: Collected::default(), once: Some(|| meddle(&folder)) };
        let range = ByteRange { start: 0, end: length as u64 };
        let read = NodePathOrigin.read_into(&source, entry, &pinned.pin, range, &mut fill).await;
        assert!(matches!(read, Err(OriginError::Changed { .. })), "{way}: {read:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_may_not_be_read_is_named_before_anything_is_staged() {
    let folder = Folder::new();
    folder.write("m/secret", b"x");
    folder.write("m/open", b"x");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    fs::set_permissions(folder.path().join("m/secret"), fs::Permissions::from_mode(0o000)).expect("mode");
    // Root may read everything; this thread and those it starts go on as nobody (uid 65534) as far as files are concerned.
    let before = setfsuid(Uid::from_raw(65_534));
    let listed = conformance::list(&NodePathOrigin, &folder.source("m")).await;
    let narrow = conformance::list_only(&NodePathOrigin, &folder.source("m"), &["open"]).await;
    setfsuid(before);
    let error = listed.expect_err("may not be read");
    assert!(matches!(error, OriginError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("/m/secret refused: read: Permission denied"), "{error}");
    assert!(narrow.is_ok(), "what the filter leaves out harms nobody: {narrow:?}");
}
