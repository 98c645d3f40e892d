//! The journal of one staging: which bytes of which file have been written, and up to where that is durable.
//!
//! In go finished pieces; out come bytes to append, and after a restart what can be trusted. Records up to the last watermark are
//! trusted; later ones are only claims, to be proven by reading the bytes again. Deliberately absent: file names. A snapshot's id
//! fixes the sorted list of its files, so their index says enough. What the id does not fix (which inode a POSIX file was) is noted
//! as a pin before the first piece of its file.
//!
//! Layout, little-endian: a header of 32 bytes (`STOKEJNL`, version u32, zero u32, snapshot id 8 bytes, CRC-64/NVME of the first 24),
//! then records of 40 bytes (kind u32, file u32, offset u64, length u64, value u64, CRC-64/NVME of the first 32).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::checksum::{Crc64, SnapshotId};
use crate::port::ByteRange;
use crate::time::Millis;

const MAGIC: &[u8; 8] = b"STOKEJNL";
/// Version of the layout above.
pub const JOURNAL_VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const RECORD_BYTES: usize = 40;
const KIND_PIECE: u32 = 1;
const KIND_WATERMARK: u32 = 2;
const KIND_DISCARD: u32 = 3;
const KIND_PIN: u32 = 4;

/// A watermark at least every so many bytes: at the rate of a fast disk a quarter second of work, lost only with the power.
pub const WATERMARK_BYTES: u64 = 256 << 20;
/// A watermark at least this often while bytes arrive.
pub const WATERMARK_PERIOD: Duration = Duration::from_secs(1);

/// A run of bytes of one file that was written, with the CRC of what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index in the listing.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// How many, and their CRC.
    pub crc: Crc64,
}

impl Piece {
    /// Which bytes.
    #[must_use]
    pub const fn range(&self) -> ByteRange {
        ByteRange { start: self.offset, end: self.offset.saturating_add(self.crc.bytes) }
    }
}

/// What a journal says after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pieces that were durable before the last watermark.
    pub trusted: Vec<Piece>,
    /// Pieces noted after it: to be proven.
    pub claimed: Vec<Piece>,
    /// Files discarded after it: to be discarded again, since what stands behind the watermark is cut off.
    pub discarded: Vec<u32>,
    /// What files were tied to when their pieces were noted.
    pub pins: BTreeMap<u32, u64>,
    /// Those of them that stand before the last watermark.
    pub trusted_pins: BTreeMap<u32, u64>,
    /// Length of the trusted part, its last watermark included. Claims behind it are cut off and noted anew once proven, so that
    /// no later watermark can vouch for one that was not. Zero: there is no journal to go on with.
    pub length: u64,
}

impl Recovered {
    /// Files of which any piece is noted.
    #[must_use]
    pub fn noted_files(&self) -> BTreeSet<u32> {
        self.trusted.iter().chain(&self.claimed).map(|piece| piece.file).collect()
    }

    /// Nothing of these files counts any more; those of which something was noted are to be discarded for good.
    pub fn forget(&mut self, files: &BTreeSet<u32>) {
        let noted = self.noted_files();
        self.discarded.extend(files.intersection(&noted));
        self.trusted.retain(|piece| !files.contains(&piece.file));
        self.claimed.retain(|piece| !files.contains(&piece.file));
    }
}

fn sealed<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let crc = Crc64::of(&bytes[..N - 8]).crc;
    bytes[N - 8..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn is_sealed(bytes: &[u8]) -> bool {
    let (body, seal) = bytes.split_at(bytes.len() - 8);
    Crc64::of(body).crc.to_le_bytes() == seal
}

fn header(id: SnapshotId) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&JOURNAL_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.0);
    sealed(bytes)
}

fn record(kind: u32, file: u32, offset: u64, length: u64, value: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&file.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    bytes[24..32].copy_from_slice(&value.to_le_bytes());
    sealed(bytes)
}

/// Reads a journal of this snapshot. Anything that is not one (torn, foreign, of another version) gives nothing to trust and
/// length zero: it is begun anew.
#[must_use]
pub fn recover(bytes: &[u8], id: SnapshotId) -> Recovered {
    let mut recovered = Recovered::default();
    let Some((head, records)) = bytes.split_at_checked(HEADER_BYTES) else { return recovered };
    if head != header(id) {
        return recovered;
    }
    recovered.length = HEADER_BYTES as u64;
    let mut read = recovered.length;
    for bytes in records.chunks_exact(RECORD_BYTES) {
        if !is_sealed(bytes) {
            break;
        }
        read += RECORD_BYTES as u64;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes of forty"));
        let kind = word(0) as u32;
        let file = (word(0) >> 32) as u32;
        match kind {
            KIND_PIECE => {
                recovered.claimed.push(Piece { file, offset: word(8), crc: Crc64 { bytes: word(16), crc: word(24) } })
            }
            KIND_WATERMARK => {
                recovered.trusted.append(&mut recovered.claimed);
                recovered.discarded.clear();
                recovered.trusted_pins.clone_from(&recovered.pins);
                recovered.length = read;
            }
            KIND_DISCARD => {
                recovered.trusted.retain(|piece| piece.file != file);
                recovered.claimed.retain(|piece| piece.file != file);
                recovered.discarded.push(file);
            }
            KIND_PIN => drop(recovered.pins.insert(file, word(24))),
            _newer_kind => break,
        }
    }
    recovered
}

/// Writes a journal: what to append, where, and when a watermark is due.
#[derive(Debug)]
pub struct JournalWriter {
    length: u64,
    unmarked: BTreeMap<u32, u64>,
    marked_at: Millis,
}

impl JournalWriter {
    /// Goes on after `recovered`, or begins: then the header is to be written first.
    #[must_use]
    pub fn new(recovered: &Recovered, id: SnapshotId, now: Millis) -> (Self, Option<Vec<u8>>) {
        let unmarked = BTreeMap::new();
        if recovered.length == 0 {
            let writer = Self { length: HEADER_BYTES as u64, unmarked, marked_at: now };
            return (writer, Some(header(id).to_vec()));
        }
        (Self { length: recovered.length, unmarked, marked_at: now }, None)
    }

    /// Where the next record goes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Notes a piece; the bytes to append at [`length`](Self::length) as it was before.
    pub fn piece(&mut self, piece: Piece) -> Vec<u8> {
        *self.unmarked.entry(piece.file).or_default() += piece.crc.bytes;
        self.grown(record(KIND_PIECE, piece.file, piece.offset, piece.crc.bytes, piece.crc.crc))
    }

    /// Notes what a file is tied to beyond what the snapshot's id says; to be noted before its first piece.
    pub fn pin(&mut self, file: u32, fingerprint: u64) -> Vec<u8> {
        self.grown(record(KIND_PIN, file, 0, 0, fingerprint))
    }

    /// Notes that nothing of this file counts any more. Holds for good once a watermark follows.
    pub fn discard(&mut self, file: u32) -> Vec<u8> {
        self.grown(record(KIND_DISCARD, file, 0, 0, 0))
    }

    fn grown(&mut self, bytes: [u8; RECORD_BYTES]) -> Vec<u8> {
        self.length += RECORD_BYTES as u64;
        bytes.to_vec()
    }

    /// Whether data should be synced and a watermark be written now.
    #[must_use]
    pub fn is_watermark_due(&self, now: Millis) -> bool {
        let bytes: u64 = self.unmarked.values().sum();
        bytes >= WATERMARK_BYTES || (bytes > 0 && now.since(self.marked_at) >= WATERMARK_PERIOD)
    }

    /// The files whose data must be synced before the watermark.
    #[must_use]
    pub fn unmarked_files(&self) -> Vec<u32> {
        self.unmarked.keys().copied().collect()
    }

    /// The watermark, to be appended only after those files are synced.
    pub fn watermark(&mut self, now: Millis) -> Vec<u8> {
        self.unmarked.clear();
        self.marked_at = now;
        self.grown(record(KIND_WATERMARK, 0, 0, 0, 0))
    }
}

/// The bytes of one file that are there, as pieces that do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    pieces: BTreeMap<u64, Crc64>,
}

impl Coverage {
    /// Adds a piece; one that overlaps what is there already, or is empty, changes nothing.
    pub fn add(&mut self, offset: u64, crc: Crc64) {
        let Some(end) = offset.checked_add(crc.bytes) else { return };
        let before = self.pieces.range(..=offset).next_back().map_or(0, |(start, piece)| start + piece.bytes);
        let after = self.pieces.range(offset..).next().map_or(u64::MAX, |(start, _)| *start);
        if crc.bytes > 0 && before <= offset && end <= after {
            self.pieces.insert(offset, crc);
        }
    }

    /// How many bytes are there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.bytes).sum()
    }

    /// What is missing of a file of `size` bytes, in order.
    #[must_use]
    pub fn gaps(&self, size: u64) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (start, piece) in &self.pieces {
            if *start > at {
                gaps.push(ByteRange { start: at, end: *start });
            }
            at = start + piece.bytes;
        }
        if at < size {
            gaps.push(ByteRange { start: at, end: size });
        }
        gaps
    }

    /// The CRC of the whole file, where all of its `size` bytes are there.
    #[must_use]
    pub fn whole(&self, size: u64) -> Option<Crc64> {
        if !self.gaps(size).is_empty() {
            return None;
        }
        let whole = self.pieces.values().fold(Crc64::default(), |whole, piece| whole.then(*piece));
        (whole.bytes == size).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SnapshotId = SnapshotId([7; 8]);

    fn piece(file: u32, offset: u64, bytes: u64) -> Piece {
        Piece { file, offset, crc: Crc64 { crc: offset ^ 0xabcd, bytes } }
    }

    fn written() -> Vec<u8> {
        let (mut writer, head) = JournalWriter::new(&Recovered::default(), ID, Millis(0));
        let mut bytes = head.expect("a new journal has a header");
        bytes.extend(writer.piece(piece(0, 0, 8)));
        bytes.extend(writer.piece(piece(1, 0, 8)));
        bytes.extend(writer.watermark(Millis(1)));
        bytes.extend(writer.piece(piece(0, 8, 8)));
        assert_eq!(writer.length(), bytes.len() as u64);
        bytes
    }

    #[test]
    fn what_stands_before_the_watermark_is_trusted_and_what_follows_is_claimed() {
        let recovered = recover(&written(), ID);
        assert_eq!(recovered.trusted, [piece(0, 0, 8), piece(1, 0, 8)]);
        assert_eq!(recovered.claimed, [piece(0, 8, 8)]);
    }

    #[test]
    fn a_journal_cut_or_torn_anywhere_gives_a_prefix_and_never_more() {
        let whole = written();
        let all = recover(&whole, ID);
        for cut in 0..whole.len() {
            let recovered = recover(&whole[..cut], ID);
            assert!(recovered.length as usize <= cut);
            assert!(all.trusted.starts_with(&recovered.trusted) || recovered.trusted.is_empty());
            let mut torn = whole.clone();
            torn[cut] ^= 0x40;
            assert_ne!(recover(&torn, ID), all, "flip at {cut}");
        }
        assert_eq!(recover(&whole, SnapshotId([8; 8])), Recovered::default(), "another snapshot's journal");
    }

    #[test]
    fn a_discarded_file_is_forgotten_even_where_it_was_durable() {
        let mut bytes = written();
        let recovered = recover(&bytes, ID);
        let (mut writer, head) = JournalWriter::new(&recovered, ID, Millis(5));
        assert_eq!(head, None);
        assert_eq!(writer.length(), bytes.len() as u64 - 40, "the claim behind the watermark is cut off");
        bytes.truncate(bytes.len() - 40);
        bytes.extend(writer.discard(0));
        let recovered = recover(&bytes, ID);
        assert_eq!((recovered.trusted, recovered.discarded), (vec![piece(1, 0, 8)], vec![0]));
        bytes.extend(writer.watermark(Millis(6)));
        let recovered = recover(&bytes, ID);
        assert_eq!((recovered.trusted, recovered.discarded), (vec![piece(1, 0, 8)], vec![]));
        assert_eq!(recovered.length, bytes.len() as u64);
    }

    #[test]
    fn p02_what_a_file_was_tied_to_is_known_after_a_restart() {
        let (mut writer, head) = JournalWriter::new(&Recovered::default(), ID, Millis(0));
        let mut bytes = head.expect("a new journal has a header");
        bytes.extend(writer.pin(0, 7));
        bytes.extend(writer.piece(piece(0, 0, 8)));
        let unmarked = recover(&bytes, ID);
        assert_eq!((unmarked.pins, unmarked.trusted_pins), (BTreeMap::from([(0, 7)]), BTreeMap::new()));
        bytes.extend(writer.watermark(Millis(1)));
        bytes.extend(writer.pin(0, 8));
        let recovered = recover(&bytes, ID);
        assert_eq!((recovered.pins, recovered.trusted_pins), (BTreeMap::from([(0, 8)]), BTreeMap::from([(0, 7)])));
    }

    #[test]
    fn a_watermark_is_due_by_bytes_or_by_time_but_never_for_nothing() {
        let (mut writer, _) = JournalWriter::new(&Recovered::default(), ID, Millis(0));
        assert!(!writer.is_watermark_due(Millis(60_000)));
        let _appended = writer.piece(piece(3, 0, 1));
        assert!(!writer.is_watermark_due(Millis(999)) && writer.is_watermark_due(Millis(1_000)));
        let _appended = writer.piece(piece(4, 0, WATERMARK_BYTES));
        assert!(writer.is_watermark_due(Millis(1)));
        assert_eq!(writer.unmarked_files(), [3, 4]);
        let _appended = writer.watermark(Millis(2));
        assert!(!writer.is_watermark_due(Millis(60_000)));
    }

    #[test]
    fn coverage_knows_gaps_refuses_overlaps_and_combines() {
        let data = b"the quick brown fox";
        let mut coverage = Coverage::default();
        coverage.add(4, Crc64::of(&data[4..10]));
        coverage.add(8, Crc64::of(&data[8..12]));
        coverage.add(0, Crc64::of(&data[0..5]));
        assert_eq!(coverage.gaps(19), [ByteRange { start: 0, end: 4 }, ByteRange { start: 10, end: 19 }]);
        coverage.add(0, Crc64::of(&data[0..4]));
        coverage.add(10, Crc64::of(&data[10..]));
        assert_eq!(coverage.whole(19), Some(Crc64::of(data)));
        assert_eq!(Coverage::default().whole(0), Some(Crc64::default()));
    }
}
