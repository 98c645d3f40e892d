//! The disk port on real files: every operation as its document says, and no link followed.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use stokehold_core::checksum::ChecksumKind;
use stokehold_core::file_op::TreeEntry;
use stokehold_core::quantity::Bytes;

use super::*;
use crate::root::RootOptions;

struct Place {
    folder: tempfile::TempDir,
    root: CacheRoot,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = CacheRoot::open(folder.path(), RootOptions::default()).expect("root");
        Self { folder, root }
    }

    fn real(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, content: &str) -> PathBuf {
        fs::write(self.real(path), content).expect("write");
        self.real(path)
    }

    fn act(&self, op: FileOp) -> Result<(), FileFault> {
        match perform(&self.root, &op) {
            Ok(Answer::Done) => Ok(()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.fault),
        }
    }

    fn ask(&self, op: FileOp) -> Result<Answer, FileFault> {
        perform(&self.root, &op).map_err(|error| error.fault)
    }
}

fn path(text: &str) -> TreePath {
    if text.is_empty() { TreePath::root() } else { TreePath::root().entry(text) }
}

fn is_superuser() -> bool {
    nix::unistd::geteuid().is_root()
}

fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// A filesystem of one megabyte on a folder, where we may mount.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn on(folder: &Path) -> Option<Self> {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(folder).status();
        status.is_ok_and(|status| status.success()).then(|| Self(folder.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn every_op_on(at: &str) -> Vec<FileOp> {
    let here = || path(at);
    vec![
        FileOp::MakeDir { path: here(), mode: 0o755 },
        FileOp::Allocate { path: here(), size: Bytes(10) },
        FileOp::Append { path: here(), at: 0, bytes: b"x".to_vec() },
        FileOp::SyncData { path: here() },
        FileOp::SyncDir { path: here() },
        FileOp::Replace { path: here(), bytes: b"x".to_vec(), mode: 0o644 },
        FileOp::Link { path: here(), target: "x".to_owned() },
        FileOp::Rename { from: here(), to: path("elsewhere") },
        FileOp::Rename { from: path("mine"), to: here() },
        FileOp::Exchange { one: here(), two: path("mine") },
        FileOp::SetMode { path: here(), mode: 0o777 },
        FileOp::SetImmutable { path: here(), immutable: true },
        FileOp::Unlink { path: here(), unused_only: false },
        FileOp::Unlink { path: here(), unused_only: true },
        FileOp::RemoveDir { path: here() },
        FileOp::Read { path: here(), size_max: Bytes(100) },
        FileOp::ReadLink { path: here() },
        FileOp::List { path: here() },
        FileOp::Walk { path: here() },
        FileOp::Stat { path: here() },
        FileOp::Checksum { path: here(), offset: 0, length: 1, kind: ChecksumKind::Sha256 },
        FileOp::Users { path: here() },
    ]
}

#[test]
fn p08_no_operation_goes_through_a_linked_folder() {
    let place = Place::new();
    let outside = tempfile::tempdir().expect("temporary folder");
    fs::write(outside.path().join("file"), "theirs").expect("write");
    place.write("mine", "mine");
    symlink(outside.path(), place.real("way-out")).expect("plant link");
    for op in every_op_on("way-out/file") {
        assert_eq!(place.ask(op.clone()), Err(FileFault::Foreign), "{op:?}");
    }
    assert_eq!(fs::read_to_string(outside.path().join("file")).expect("read"), "theirs");
    assert_eq!(fs::read_dir(outside.path()).expect("list").count(), 1);
}

#[test]
fn p08_no_operation_leaves_the_root_upwards() {
    let place = Place::new();
    fs::create_dir(place.real("folder")).expect("folder");
    for at in ["..", "../x", "folder/../mine", "folder/..", "/etc/passwd", "folder//x", "./mine"] {
        for op in every_op_on(at) {
            assert_eq!(place.ask(op.clone()), Err(FileFault::Denied), "{op:?}");
        }
    }
}

#[test]
fn p08_a_linked_file_is_not_written_read_or_changed() {
    let place = Place::new();
    let outside = tempfile::tempdir().expect("temporary folder");
    let theirs = outside.path().join("file");
    fs::write(&theirs, "theirs").expect("write");
    let before = fs::metadata(&theirs).expect("stat");
    symlink(&theirs, place.real("linked")).expect("plant link");
    let refused = |op: &FileOp| {
        !matches!(
            op,
            FileOp::Replace { .. }
                | FileOp::Link { .. }
                | FileOp::Rename { .. }
                | FileOp::Exchange { .. }
                | FileOp::Unlink { .. }
                | FileOp::ReadLink { .. }
                | FileOp::Stat { .. }
        )
    };
    for op in every_op_on("linked").into_iter().filter(refused) {
        assert_eq!(place.ask(op.clone()), Err(FileFault::Foreign), "{op:?}");
    }
    place.act(FileOp::Unlink { path: path("linked"), unused_only: true }).expect("the link itself goes");
    let after = fs::metadata(&theirs).expect("stat");
    assert_eq!((before.mode(), before.ctime_nsec()), (after.mode(), after.ctime_nsec()));
    assert_eq!(fs::read_to_string(&theirs).expect("read"), "theirs");
}

#[test]
fn p08_a_mount_below_the_root_is_neither_entered_nor_walked() {
    let place = Place::new();
    fs::create_dir_all(place.real("tree/mounted")).expect("folders");
    place.write("tree/ours", "ours");
    let Some(_mount) = SmallDisk::on(&place.real("tree/mounted")) else { return skipped("may not mount") };
    fs::write(place.real("tree/mounted/theirs"), "theirs").expect("write");
    for op in every_op_on("tree/mounted/theirs") {
        assert_eq!(place.ask(op.clone()), Err(FileFault::Foreign), "{op:?}");
    }
    let walked = walk(&place.root, &path("tree")).expect("walk");
    let kinds: Vec<_> = walked.iter().map(|entry| (entry.path.as_str(), entry.stat.kind)).collect();
    assert_eq!(kinds, [("mounted", FileKind::Other), ("ours", FileKind::File)]);
    assert_eq!(place.act(FileOp::RemoveDir { path: path("tree/mounted") }), Err(FileFault::InUse));
}

#[test]
fn a_folder_is_made_once_and_gets_its_mode_each_time() {
    let place = Place::new();
    let make = |mode| place.act(FileOp::MakeDir { path: path("folder"), mode });
    for mode in [0o1777, 0o555, 0o755] {
        make(mode).expect("made");
        assert_eq!(fs::metadata(place.real("folder")).expect("stat").mode() & 0o7777, mode);
    }
    assert_eq!(place.act(FileOp::MakeDir { path: path("no/parent"), mode: 0o755 }), Err(FileFault::NotFound));
    place.write("file", "");
    assert_eq!(place.act(FileOp::MakeDir { path: path("file"), mode: 0o755 }), Err(FileFault::Foreign));
}

#[test]
fn allocation_promises_blocks_and_keeps_content() {
    let place = Place::new();
    let allocate = |size| place.act(FileOp::Allocate { path: path("file"), size: Bytes(size) });
    let stat = || match place.ask(FileOp::Stat { path: path("file") }) {
        Ok(Answer::Stat(stat)) => stat,
        other => panic!("{other:?}"),
    };
    allocate(1 << 20).expect("allocated");
    assert_eq!(stat().size, Bytes(1 << 20));
    assert!(stat().allocated >= Bytes(1 << 20), "{:?}", stat());
    fs::OpenOptions::new()
        .write(true)
        .open(place.real("file"))
        .expect("open")
        .write_all_at(b"content", 5_000)
        .expect("write");
    allocate(2 << 20).expect("grown");
    let mut content = [0; 7];
    fs::File::open(place.real("file")).expect("open").read_exact_at(&mut content, 5_000).expect("read");
    assert_eq!((&content, stat().size), (b"content", Bytes(2 << 20)));
    allocate(5_003).expect("cut");
    assert_eq!((stat().size, stat().mode), (Bytes(5_003), 0o644));
    allocate(0).expect("emptied");
    assert_eq!(stat().size, Bytes(0));
}

#[test]
fn a_published_file_is_made_writable_when_it_is_allocated_again() {
    let place = Place::new();
    let file = place.write("file", "content");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("mode");
    place.act(FileOp::SetImmutable { path: path("file"), immutable: true }).expect("flag or nothing");
    if is_superuser() && fs::OpenOptions::new().append(true).open(&file).is_ok() {
        skipped("this filesystem has no immutable flag");
    }
    place.act(FileOp::Allocate { path: path("file"), size: Bytes(7) }).expect("allocated");
    assert_eq!(fs::read_to_string(&file).expect("read"), "content");
    assert_eq!(fs::metadata(&file).expect("stat").mode() & 0o777, 0o644);
}

#[test]
fn an_immutable_file_is_unlinked_and_one_that_may_not_be_flagged_is_no_error() {
    let place = Place::new();
    for unused_only in [false, true] {
        let file = place.write("file", "content");
        place.act(FileOp::SetImmutable { path: path("file"), immutable: true }).expect("flag or nothing");
        place.act(FileOp::Unlink { path: path("file"), unused_only }).expect("unlinked");
        assert!(!file.exists());
    }
    assert_eq!(place.act(FileOp::Unlink { path: path("file"), unused_only: true }), Err(FileFault::NotFound));
}

#[test]
fn c068_a_full_disk_says_so_and_leaves_the_file_empty() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let Some(_mount) = SmallDisk::on(folder.path()) else { return skipped("may not mount") };
    let root = CacheRoot::open(folder.path(), RootOptions::default()).expect("root");
    fs::write(folder.path().join("file"), "content").expect("write");
    let error = perform(&root, &FileOp::Allocate { path: path("file"), size: Bytes(4 << 20) }).expect_err("too large");
    assert_eq!(error.to_string(), "allocate file: ENOSPC: No space left on device");
    assert_eq!(error.fault, FileFault::NoSpace);
    assert_eq!(fs::metadata(folder.path().join("file")).expect("stat").len(), 0);
    let append = FileOp::Append { path: path("journal"), at: 0, bytes: vec![1; 4 << 20] };
    assert_eq!(perform(&root, &append).expect_err("too large").fault, FileFault::NoSpace);
    let Ok(Answer::Room(room)) = perform(&root, &FileOp::Room) else { panic!("no room") };
    assert_eq!(room.capacity, Bytes(1 << 20));
    assert!(room.available < room.capacity);
}

#[test]
fn c068_a_read_only_disk_says_so() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let Some(_mount) = SmallDisk::on(folder.path()) else { return skipped("may not mount") };
    let root = CacheRoot::open(folder.path(), RootOptions::default()).expect("root");
    let locked = Command::new("mount").args(["-o", "remount,ro"]).arg(folder.path()).status();
    if !locked.is_ok_and(|status| status.success()) {
        return skipped("open for writing: the lock keeps it from being made read-only");
    }
    let made = perform(&root, &FileOp::MakeDir { path: path("folder"), mode: 0o755 });
    assert_eq!(made.expect_err("read-only").fault, FileFault::ReadOnly);
}

#[test]
fn a_file_that_has_other_names_is_not_written() {
    let place = Place::new();
    let outside = tempfile::tempdir().expect("temporary folder");
    let theirs = outside.path().join("theirs");
    fs::write(&theirs, "theirs").expect("write");
    if fs::hard_link(&theirs, place.real("linked")).is_err() {
        return skipped("two filesystems");
    }
    let append = FileOp::Append { path: path("linked"), at: 0, bytes: b"ours".to_vec() };
    assert_eq!(place.act(append), Err(FileFault::Foreign));
    assert_eq!(place.act(FileOp::Allocate { path: path("linked"), size: Bytes(0) }), Err(FileFault::Foreign));
    assert_eq!(fs::read_to_string(&theirs).expect("read"), "theirs");
}

#[test]
fn append_cuts_what_is_beyond_and_writes_there() {
    let place = Place::new();
    let append = |at, bytes: &str| place.act(FileOp::Append { path: path("j"), at, bytes: bytes.as_bytes().to_vec() });
    append(0, "onetwo").expect("made");
    append(3, "three").expect("cut");
    assert_eq!(fs::read_to_string(place.real("j")).expect("read"), "onethree");
    append(3, "three").expect("again");
    append(10, "x").expect("beyond");
    assert_eq!(fs::read(place.real("j")).expect("read"), b"onethree\0\0x");
    place.act(FileOp::SyncData { path: path("j") }).expect("sync");
    place.act(FileOp::SyncDir { path: TreePath::root() }).expect("sync");
    place.act(FileOp::SyncFs).expect("sync");
}

#[test]
fn a_link_is_replaced_at_once_but_never_a_folder() {
    let place = Place::new();
    let link = |target: &str| place.act(FileOp::Link { path: path("current"), target: target.to_owned() });
    link("snapshots/one").expect("made");
    link("empty").expect("replaced");
    assert_eq!(place.ask(FileOp::ReadLink { path: path("current") }), Ok(Answer::Target("empty".to_owned())));
    for outward in ["/etc", "../x", "a/../../x", ""] {
        assert_eq!(link(outward), Err(FileFault::Denied), "{outward:?}");
    }
    fs::remove_file(place.real("current")).expect("remove");
    fs::create_dir(place.real("current")).expect("folder");
    assert_eq!(link("empty"), Err(FileFault::Exists));
    assert_eq!(place.ask(FileOp::ReadLink { path: path("current") }), Err(FileFault::Foreign));
    place.act(FileOp::Link { path: path("aside"), target: "empty".to_owned() }).expect("made");
    place.act(FileOp::Exchange { one: path("aside"), two: path("current") }).expect("exchanged");
    assert_eq!(place.ask(FileOp::ReadLink { path: path("current") }), Ok(Answer::Target("empty".to_owned())));
    place.act(FileOp::RemoveDir { path: path("aside") }).expect("the folder stands there now");
}

#[test]
fn rename_never_replaces() {
    let place = Place::new();
    place.write("from", "from");
    place.write("to", "to");
    let rename = |from: &str, to: &str| place.act(FileOp::Rename { from: path(from), to: path(to) });
    assert_eq!(rename("from", "to"), Err(FileFault::Exists));
    assert_eq!(rename("absent", "new"), Err(FileFault::NotFound));
    rename("from", "new").expect("renamed");
    assert_eq!(fs::read_to_string(place.real("new")).expect("read"), "from");
    assert_eq!(fs::read_to_string(place.real("to")).expect("read"), "to");
}

#[test]
fn a_folder_that_holds_something_is_not_removed() {
    let place = Place::new();
    fs::create_dir(place.real("folder")).expect("folder");
    place.write("folder/file", "");
    let remove = |at: &str| place.act(FileOp::RemoveDir { path: path(at) });
    assert_eq!(remove("folder"), Err(FileFault::NotEmpty));
    assert_eq!(remove("folder/file"), Err(FileFault::Foreign));
    assert_eq!(remove(""), Err(FileFault::Denied));
    assert_eq!(place.act(FileOp::Unlink { path: path("folder"), unused_only: true }), Err(FileFault::Foreign));
}

#[test]
fn a_small_file_is_read_whole_or_not_at_all() {
    let place = Place::new();
    place.write("file", "12345");
    let read = |size_max| place.ask(FileOp::Read { path: path("file"), size_max: Bytes(size_max) });
    assert_eq!(read(5), Ok(Answer::Content(b"12345".to_vec())));
    assert_eq!(read(4), Err(FileFault::TooLarge));
    nix::unistd::mkfifo(&place.real("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
    assert_eq!(place.ask(FileOp::Read { path: path("pipe"), size_max: Bytes(1) }), Err(FileFault::Foreign));
    assert_eq!(place.ask(FileOp::Read { path: path(""), size_max: Bytes(1) }), Err(FileFault::Foreign));
}

#[test]
fn names_and_trees_come_sorted_with_parents_first() {
    let place = Place::new();
    fs::create_dir_all(place.real("tree/b/c")).expect("folders");
    for file in ["tree/b-1", "tree/b/c/2", "tree/a", "tree/b/0"] {
        place.write(file, "x");
    }
    symlink("nowhere", place.real("tree/z")).expect("link");
    let walked: Vec<TreeEntry> = walk(&place.root, &path("tree")).expect("walk");
    let found: Vec<_> = walked.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(found, ["a", "b", "b-1", "b/0", "b/c", "b/c/2", "z"]);
    let names = |names: &[(&str, FileKind)]| {
        Ok(Answer::Names(names.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()))
    };
    let listed = place.ask(FileOp::List { path: path("tree") });
    assert_eq!(
        listed,
        names(&[("a", FileKind::File), ("b", FileKind::Folder), ("b-1", FileKind::File), ("z", FileKind::Link)])
    );
}

#[test]
fn checksums_cover_exactly_their_range() {
    let place = Place::new();
    let content: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
    fs::write(place.real("file"), &content).expect("write");
    for (offset, length) in [(0, 3_000_001), (0, 0), (1, 5), (4_095, 2), (1_048_570, 1_048_580), (2_999_990, 11)] {
        for kind in [ChecksumKind::Crc64Nvme, ChecksumKind::Sha256] {
            let mut wanted = stokehold_core::checksum::Hasher::new(kind);
            wanted.update(&content[offset as usize..(offset + length) as usize]);
            let got = place.ask(FileOp::Checksum { path: path("file"), offset, length, kind });
            assert_eq!(got, Ok(Answer::Checksum(wanted.finish())), "{offset}+{length}");
        }
    }
    let beyond = FileOp::Checksum { path: path("file"), offset: 2_999_990, length: 12, kind: ChecksumKind::Crc32c };
    assert_eq!(place.ask(beyond), Err(FileFault::Io));
}

#[test]
fn p05_a_file_that_somebody_has_open_is_not_unlinked() {
    let place = Place::new();
    let file = place.write("file", "content");
    let unlink = || place.act(FileOp::Unlink { path: path("file"), unused_only: true });
    let mut reader =
        Command::new("sleep").arg("600").stdin(fs::File::open(&file).expect("open")).spawn().expect("sleep");
    assert_eq!(unlink(), Err(FileFault::InUse));
    assert!(file.exists());
    reader.kill().expect("kill");
    reader.wait().expect("wait");
    unlink().expect("nobody has it open any more");
    assert!(!file.exists());
}

#[test]
fn p05_a_file_that_is_only_mapped_is_not_unlinked() {
    let place = Place::new();
    let file = place.write("file", "content");
    let unlink = || place.act(FileOp::Unlink { path: path("file"), unused_only: true });
    let script = "import mmap,sys,time\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nf.close()\nprint('mapped',flush=True)\ntime.sleep(600)";
    let reader = Command::new("python3").args(["-c", script]).arg(&file).stdout(std::process::Stdio::piped()).spawn();
    let Ok(mut reader) = reader else { return skipped("no python3") };
    let mut said = [0; 6];
    std::io::Read::read_exact(reader.stdout.as_mut().expect("piped"), &mut said).expect("mapped");
    assert_eq!(unlink(), Err(FileFault::InUse));
    reader.kill().expect("kill");
    reader.wait().expect("wait");
    unlink().expect("not mapped any more");
}
