//! Staging one snapshot: make room, go on where a journal ends, take pieces in, prove whole files.
//!
//! In go a listing's files and finished pieces; out come file operations in the order that survives a crash between any two of
//! them. What is published afterwards is [`publishing`](crate::publishing)'s. Deliberately absent: fetching, and retrying.

use std::collections::BTreeSet;

use crate::checksum::{Checksum, ChecksumKind, Crc64, SnapshotId};
use crate::file_op::{FileError, FileFault, FileKind, FileOp};
use crate::journal::{Coverage, JournalWriter, Piece, Recovered, recover};
use crate::layout::{SnapshotLayout, TreePath};
use crate::listing::{Listing, Pin, StatGuard};
use crate::path::ArtifactPath;
use crate::port::{ByteRange, Disk, Pinned, Tree};
use crate::quantity::Bytes;
use crate::time::Millis;

/// Most of a journal that is read: records of 40 bytes for each part of 1 MiB of 1.6 TB.
const JOURNAL_BYTES_MAX: Bytes = Bytes(64 << 20);
/// Mode of a folder while it is staged into.
const FOLDER_MODE: u32 = 0o755;

/// What is to be staged.
#[derive(Debug, Clone)]
pub struct StageOrder {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Where it stands.
    pub layout: SnapshotLayout,
    /// Folders below the snapshot, parents first.
    pub folders: Vec<String>,
    /// Files, sorted by path as in the listing.
    pub files: Vec<StageFile>,
}

/// One file to stage.
#[derive(Debug, Clone)]
pub struct StageFile {
    /// Where it goes below the snapshot.
    pub path: ArtifactPath,
    /// Its length.
    pub size: Bytes,
    /// The version every read is tied to.
    pub pin: Pin,
    /// What the origin vouches for.
    pub checksum: Option<Checksum>,
}

impl StageOrder {
    /// Of a listing whose files have been pinned; `pinned` is in the listing's order.
    #[must_use]
    pub fn new(listing: &Listing, pinned: Vec<Pinned>, layout: SnapshotLayout) -> Self {
        let files = listing.entries.iter().zip(pinned).map(|(entry, pinned)| StageFile {
            path: entry.path.clone(),
            size: entry.size,
            pin: pinned.pin,
            checksum: pinned.checksum.or_else(|| entry.checksum.clone()),
        });
        Self { snapshot: listing.id, layout, folders: listing.folders.clone(), files: files.collect() }
    }

    /// Where a file of it is written.
    #[must_use]
    pub fn incoming(&self, file: &StageFile) -> TreePath {
        self.layout.incoming.artifact(&file.path)
    }
}

/// Why staging stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] FileError),
    /// A whole file is not what the origin vouches for. It is discarded and fetched again when staging goes on.
    #[error("{file} should be {expected} and is {found}")]
    Mismatch {
        /// Which file.
        file: ArtifactPath,
        /// What the origin vouches for.
        expected: Checksum,
        /// What arrived.
        found: Checksum,
    },
}

/// A staging in progress.
#[derive(Debug)]
pub struct Staging {
    order: StageOrder,
    coverage: Vec<Coverage>,
    journal: JournalWriter,
    /// Bytes that a journal of before proved to be there.
    reused: Bytes,
    /// Set once a sync of data failed: the kernel may have dropped what it could not write and call the next sync a success, so that
    /// no watermark may follow. What is not marked is read again when staging goes on.
    sync_failed: Option<FileError>,
}

impl Staging {
    /// Makes the folders, promises every byte by allocation before anything is fetched, and takes over what a journal of before
    /// proves to be there.
    ///
    /// # Errors
    /// [`StageError::Disk`]; where the disk was full, what was allocated for files without content is given back.
    pub async fn prepare<D: Disk>(tree: Tree<'_, D>, order: StageOrder, now: Millis) -> Result<Self, StageError> {
        let layout = &order.layout;
        tree.act(FileOp::MakeDir { path: layout.incoming.clone(), mode: FOLDER_MODE }).await?;
        for folder in &order.folders {
            tree.act(FileOp::MakeDir { path: layout.incoming.entry(folder), mode: FOLDER_MODE }).await?;
        }
        let mut recovered = match tree.read(layout.journal.clone(), JOURNAL_BYTES_MAX).await {
            Ok(bytes) => recover(&bytes, order.snapshot),
            Err(error) if matches!(error.fault, FileFault::NotFound | FileFault::TooLarge) => Recovered::default(),
            Err(error) => return Err(error.into()),
        };
        forget_other_versions(&order, &mut recovered);
        forget_lost_files(tree, &order, &mut recovered).await?;
        let (journal, header) = JournalWriter::new(&recovered, order.snapshot, now);
        let coverage = vec![Coverage::default(); order.files.len()];
        let mut staging = Self { coverage, order, journal, reused: Bytes(0), sync_failed: None };
        if let Some(header) = header {
            staging.append_at(tree, 0, header).await?;
        }
        staging.note_pins(tree, &recovered).await?;
        // Durable before the files are made anew: else a journal could vouch for zeros.
        for file in &recovered.discarded {
            staging.discard(tree, *file, now).await?;
        }
        staging.allocate(tree, &recovered).await?;
        staging.sync_folders(tree).await?;
        staging.take_over(tree, recovered).await?;
        Ok(staging)
    }

    /// Notes what the id does not fix of each file, before any piece of it is noted.
    async fn note_pins<D: Disk>(&mut self, tree: Tree<'_, D>, recovered: &Recovered) -> Result<(), StageError> {
        for index in 0..self.order.files.len() {
            let file = u32::try_from(index).expect("listings have at most a million files");
            let Some(stat) = &self.order.files[index].pin.stat else { continue };
            let fingerprint = stat.fingerprint();
            if recovered.trusted_pins.get(&file) != Some(&fingerprint) {
                let at = self.journal.length();
                let bytes = self.journal.pin(file, fingerprint);
                self.append_at(tree, at, bytes).await?;
            }
        }
        Ok(())
    }

    async fn allocate<D: Disk>(&self, tree: Tree<'_, D>, recovered: &Recovered) -> Result<(), StageError> {
        for file in &self.order.files {
            let Err(error) = tree.act(FileOp::Allocate { path: self.order.incoming(file), size: file.size }).await
            else {
                continue;
            };
            if matches!(error.fault, FileFault::NoSpace | FileFault::QuotaFull) {
                self.give_back(tree, recovered).await?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Gives back the blocks of files that hold nothing yet.
    async fn give_back<D: Disk>(&self, tree: Tree<'_, D>, recovered: &Recovered) -> Result<(), StageError> {
        let noted = recovered.noted_files();
        for (index, file) in self.order.files.iter().enumerate() {
            let holds_bytes = u32::try_from(index).is_ok_and(|index| noted.contains(&index));
            let path = self.order.incoming(file);
            if !holds_bytes && tree.stat(path.clone()).await.is_ok() {
                tree.act(FileOp::Append { path, at: 0, bytes: Vec::new() }).await?;
            }
        }
        Ok(())
    }

    /// The names of all files are durable before a journal can vouch for their content.
    async fn sync_folders<D: Disk>(&self, tree: Tree<'_, D>) -> Result<(), StageError> {
        let incoming = &self.order.layout.incoming;
        for folder in &self.order.folders {
            tree.act(FileOp::SyncDir { path: incoming.entry(folder) }).await?;
        }
        tree.act(FileOp::SyncDir { path: incoming.clone() }).await?;
        tree.act(FileOp::SyncDir { path: incoming.parent() }).await?;
        Ok(())
    }

    /// Counts what was durable, and of what was only noted whatever the disk still holds.
    async fn take_over<D: Disk>(&mut self, tree: Tree<'_, D>, recovered: Recovered) -> Result<(), StageError> {
        for piece in recovered.trusted {
            if self.fits(piece) {
                self.coverage[piece.file as usize].add(piece.offset, piece.crc);
            }
        }
        for piece in recovered.claimed {
            if !self.fits(piece) {
                continue;
            }
            let path = self.order.incoming(&self.order.files[piece.file as usize]);
            let found = tree.checksum(path, piece.offset, piece.crc.bytes, ChecksumKind::Crc64Nvme).await?;
            if found == piece.crc.checksum() {
                self.note(tree, piece).await?;
            }
        }
        self.reused = self.received();
        Ok(())
    }

    fn fits(&self, piece: Piece) -> bool {
        let size = self.order.files.get(piece.file as usize).map(|file| file.size.0);
        size.is_some_and(|size| piece.range().end <= size)
    }

    /// What is being staged.
    #[must_use]
    pub const fn order(&self) -> &StageOrder {
        &self.order
    }

    /// Bytes that are there.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.coverage.iter().map(|coverage| Bytes(coverage.bytes())).sum()
    }

    /// Bytes that were there when staging went on.
    #[must_use]
    pub const fn reused(&self) -> Bytes {
        self.reused
    }

    /// What is missing, file by file, in order.
    #[must_use]
    pub fn gaps(&self) -> Vec<(u32, ByteRange)> {
        let files = self.order.files.iter().zip(&self.coverage).enumerate();
        files
            .flat_map(|(index, (file, coverage))| {
                let index = u32::try_from(index).expect("listings have at most a million files");
                coverage.gaps(file.size.0).into_iter().map(move |gap| (index, gap))
            })
            .collect()
    }

    /// Takes in a piece that has been written, and proves its file if that is whole now.
    ///
    /// # Errors
    /// [`StageError::Mismatch`] where the file is whole and wrong; nothing of it counts any more.
    pub async fn record<D: Disk>(&mut self, tree: Tree<'_, D>, piece: Piece, now: Millis) -> Result<(), StageError> {
        if piece.crc.bytes == 0 || !self.fits(piece) {
            return Ok(());
        }
        self.note(tree, piece).await?;
        self.mark_if_due(tree, now).await?;
        let index = piece.file as usize;
        if self.coverage[index].whole(self.order.files[index].size.0).is_some() {
            self.prove(tree, piece.file, now).await?;
        }
        Ok(())
    }

    /// Syncs data and sets a watermark, where one is due.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn mark_if_due<D: Disk>(&mut self, tree: Tree<'_, D>, now: Millis) -> Result<(), StageError> {
        if self.journal.is_watermark_due(now) { self.mark(tree, now).await } else { Ok(()) }
    }

    /// Syncs data and sets a watermark now, so that a stop loses nothing.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn mark<D: Disk>(&mut self, tree: Tree<'_, D>, now: Millis) -> Result<(), StageError> {
        if let Some(error) = &self.sync_failed {
            return Err(error.clone().into());
        }
        for file in self.journal.unmarked_files() {
            let path = self.order.incoming(&self.order.files[file as usize]);
            if let Err(error) = tree.act(FileOp::SyncData { path }).await {
                return Err(self.sync_failed.insert(error).clone().into());
            }
        }
        let at = self.journal.length();
        let bytes = self.journal.watermark(now);
        self.append_at(tree, at, bytes).await?;
        tree.act(FileOp::SyncData { path: self.order.layout.journal.clone() }).await?;
        Ok(())
    }

    /// Proves every file that was whole when staging went on, and empty ones; then every byte is there and as vouched for.
    ///
    /// # Errors
    /// [`StageError::Mismatch`] names the first wrong file.
    pub async fn prove_all<D: Disk>(&mut self, tree: Tree<'_, D>, now: Millis) -> Result<(), StageError> {
        for index in 0..self.order.files.len() {
            let index = u32::try_from(index).expect("listings have at most a million files");
            self.prove(tree, index, now).await?;
        }
        self.mark(tree, now).await
    }

    /// The CRC of each file, where all of them are whole.
    #[must_use]
    pub fn whole(&self) -> Option<Vec<Crc64>> {
        self.order.files.iter().zip(&self.coverage).map(|(file, coverage)| coverage.whole(file.size.0)).collect()
    }

    async fn prove<D: Disk>(&mut self, tree: Tree<'_, D>, index: u32, now: Millis) -> Result<(), StageError> {
        let file = &self.order.files[index as usize];
        let Some(whole) = self.coverage[index as usize].whole(file.size.0) else { return Ok(()) };
        let Some(expected) = file.checksum.clone() else { return Ok(()) };
        let found = match expected.kind {
            ChecksumKind::Crc64Nvme => whole.checksum(),
            // Not to be combined from parts: read once more, in order.
            kind @ (ChecksumKind::Crc32 | ChecksumKind::Crc32c | ChecksumKind::Sha256) => {
                tree.checksum(self.order.incoming(file), 0, file.size.0, kind).await?
            }
        };
        if found == expected {
            return Ok(());
        }
        let path = file.path.clone();
        self.discard(tree, index, now).await?;
        Err(StageError::Mismatch { file: path, expected, found })
    }

    async fn discard<D: Disk>(&mut self, tree: Tree<'_, D>, index: u32, now: Millis) -> Result<(), StageError> {
        self.coverage[index as usize] = Coverage::default();
        let at = self.journal.length();
        let bytes = self.journal.discard(index);
        self.append_at(tree, at, bytes).await?;
        self.mark(tree, now).await
    }

    async fn note<D: Disk>(&mut self, tree: Tree<'_, D>, piece: Piece) -> Result<(), StageError> {
        let at = self.journal.length();
        let bytes = self.journal.piece(piece);
        self.append_at(tree, at, bytes).await?;
        self.coverage[piece.file as usize].add(piece.offset, piece.crc);
        Ok(())
    }

    async fn append_at<D: Disk>(&self, tree: Tree<'_, D>, at: u64, bytes: Vec<u8>) -> Result<(), StageError> {
        tree.act(FileOp::Append { path: self.order.layout.journal.clone(), at, bytes }).await?;
        Ok(())
    }
}

/// A journal vouches only for pieces of the version that is staged now. The snapshot's id fixes that for every origin but a POSIX
/// tree, where a file may be another one of the same size and time.
fn forget_other_versions(order: &StageOrder, recovered: &mut Recovered) {
    let mut others = BTreeSet::new();
    for (index, file) in order.files.iter().enumerate() {
        let index = u32::try_from(index).expect("listings have at most a million files");
        let now = file.pin.stat.as_ref().map(StatGuard::fingerprint);
        if now.is_some() && recovered.pins.get(&index).copied() != now {
            others.insert(index);
        }
    }
    recovered.forget(&others);
}

/// A journal vouches for a file only while that file is there at its full length; what was lost beside the journal is discarded.
async fn forget_lost_files<D: Disk>(
    tree: Tree<'_, D>,
    order: &StageOrder,
    recovered: &mut Recovered,
) -> Result<(), StageError> {
    let noted = recovered.noted_files();
    let mut lost = BTreeSet::new();
    for (index, file) in order.files.iter().enumerate() {
        let index = u32::try_from(index).expect("listings have at most a million files");
        if !noted.contains(&index) {
            continue;
        }
        let is_there = match tree.stat(order.incoming(file)).await {
            Ok(stat) => stat.kind == FileKind::File && stat.size == file.size,
            Err(error) if error.fault == FileFault::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            lost.insert(index);
        }
    }
    recovered.forget(&lost);
    Ok(())
}
