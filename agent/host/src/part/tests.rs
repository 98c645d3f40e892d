//! Parts on real files: bytes and CRC of any split, and never a byte outside the range.

use std::fs;

use stokehold_core::file_op::FileOp;
use stokehold_core::quantity::Bytes;

use super::*;
use crate::root::RootOptions;

const SIZE: u64 = 300_000;

struct Place {
    folder: tempfile::TempDir,
    root: CacheRoot,
    arena: Arena,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = CacheRoot::open(folder.path(), RootOptions::default()).expect("root");
        let place = Self { folder, root, arena: Arena::new(ARENA_BYTES_MAX) };
        disk::perform(&place.root, &FileOp::Allocate { path: path(), size: Bytes(SIZE) }).expect("allocate");
        place
    }

    fn writer(&self, start: u64, end: u64, buffer: usize, progress: &Arc<AtomicU64>) -> PartWriter {
        let loan = self.arena.try_lend(buffer).expect("room");
        PartWriter::open(&self.root, &path(), ByteRange { start, end }, loan, Arc::clone(progress)).expect("open")
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("model")).expect("read")
    }
}

fn path() -> TreePath {
    TreePath::root().entry("model")
}

fn bytes(start: u64, end: u64) -> Vec<u8> {
    (start..end).map(|at| (at % 251) as u8 | 1).collect()
}

/// Numbers that look random and are the same each time.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Fills as a socket does: some bytes at a time, never more than there is room for.
fn pour(writer: &mut PartWriter, content: &[u8], state: &mut u64) {
    let mut from = 0;
    while from < content.len() {
        let buffer = writer.buffer().expect("room");
        assert!(!buffer.is_empty(), "never empty before the range is full");
        let count = (next(state) as usize % buffer.len() + 1).min(content.len() - from);
        buffer[..count].copy_from_slice(&content[from..from + count]);
        writer.filled(count).expect("taken");
        from += count;
    }
}

#[test]
fn content_and_checksum_are_right_however_the_bytes_come() {
    let mut state = 0x5eed;
    for buffer in [1, 4_096, 10_007, 1 << 20] {
        let place = Place::new();
        let progress = Arc::new(AtomicU64::new(0));
        let middle = if buffer == 1 { 7 } else { 123_457 };
        let end = if buffer == 1 { 20 } else { SIZE };
        // Parts are written side by side: the second first.
        for (start, end) in [(middle, end), (0, middle)] {
            let mut writer = place.writer(start, end, buffer, &progress);
            pour(&mut writer, &bytes(start, end), &mut state);
            assert!(writer.buffer().expect("full").is_empty());
            assert_eq!(writer.finish().expect("finished"), Crc64::of(&bytes(start, end)), "buffer of {buffer}");
        }
        assert_eq!(&place.content()[..end as usize], bytes(0, end));
        assert_eq!(progress.load(Ordering::Relaxed), end);
    }
}

#[test]
fn nothing_is_written_past_the_range() {
    let place = Place::new();
    let mut writer = place.writer(1_000, 2_000, 4_096, &Arc::default());
    assert_eq!(writer.buffer().expect("room").len(), 1_000);
    assert_eq!(writer.filled(1_001).expect_err("too many").fault, FileFault::TooLarge);
    pour(&mut writer, &bytes(1_000, 2_000), &mut 1);
    writer.filled(0).expect("nothing");
    assert_eq!(writer.filled(1).expect_err("full").fault, FileFault::TooLarge);
    writer.finish().expect("finished");
    let content = place.content();
    assert_eq!(&content[1_000..2_000], bytes(1_000, 2_000));
    assert!(content[..1_000].iter().chain(&content[2_000..]).all(|&byte| byte == 0));
    assert_eq!(content.len() as u64, SIZE);
}

#[test]
fn p03_what_came_before_a_read_broke_off_is_kept() {
    let place = Place::new();
    let mut writer = place.writer(0, SIZE, 100_000, &Arc::default());
    pour(&mut writer, &bytes(0, 150_000), &mut 3);
    assert!(writer.written().bytes <= 150_000);
    assert_eq!(writer.finish().expect("tail"), Crc64::of(&bytes(0, 150_000)));
    assert_eq!(writer.finish().expect("again"), writer.written());
    assert_eq!(&place.content()[..150_000], bytes(0, 150_000));
}

#[test]
fn after_a_failed_write_nothing_more_is_taken() {
    let place = Place::new();
    let mut writer = place.writer(0, SIZE, 4_096, &Arc::default());
    pour(&mut writer, &bytes(0, 4_096), &mut 5);
    // A file opened for reading refuses as a failing disk does.
    writer.file = fs::File::open(place.folder.path().join("model")).expect("open").into();
    writer.buffer().expect("room");
    let error = writer.filled(4_096).expect_err("refused");
    assert_eq!(error.to_string(), "write part of model: EBADF: Bad file number");
    assert_eq!(writer.buffer().expect_err("stays so"), error);
    assert_eq!(writer.finish().expect_err("stays so"), error);
    assert_eq!(writer.written(), Crc64::of(&bytes(0, 4_096)));
}

#[test]
fn a_part_goes_only_into_a_file_that_is_there() {
    let place = Place::new();
    let loan = place.arena.try_lend(1).expect("room");
    let absent = TreePath::root().entry("absent");
    let range = ByteRange { start: 0, end: 1 };
    let error = PartWriter::open(&place.root, &absent, range, loan, Arc::default()).expect_err("absent");
    assert_eq!(error.fault, FileFault::NotFound);
}
