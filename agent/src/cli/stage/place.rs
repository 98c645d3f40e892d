//! The place of a one-off stage: the folder that is to appear, and the hidden sibling that holds all that is not the result.
//!
//! In goes what stands there, out comes whether it is ours, and afterwards a sibling with one manifest. A folder that appears in
//! place of an older one of ours is exchanged with it at once. Every step may be the last one. Deliberately absent: fetching.

use stokehold_core::checksum::SnapshotId;
use stokehold_core::eviction::{EvictError, delete_condemned, delete_unpublished};
use stokehold_core::file_op::{FileError, FileFault, FileKind, FileOp};
use stokehold_core::hold::Reason;
use stokehold_core::layout::{SnapshotLayout, TreePath};
use stokehold_core::listing::ListingSummary;
use stokehold_core::plan::{bytes_needed, inodes_needed};
use stokehold_core::port::{Disk, Tree};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::{MANIFEST_BYTES_MAX, Manifest, decode, encode};
use stokehold_core::verification::first_difference;

/// The manifest of what is published.
const MANIFEST: &str = "manifest.json";
/// What manifests end with; one that is not [`MANIFEST`] belongs to a folder that was about to appear.
const MANIFEST_END: &str = ".json";
/// Where a folder waits to be exchanged with an older one; the older one is there for a moment afterwards.
const BESIDE: &str = "beside";
/// What an older folder is called from then on, with a number after it.
const OLDER: &str = "older-";
/// The host's lock.
const LOCK: &str = "lock";
/// Modes of a published manifest, of a published folder, and of one that is about to move.
const MANIFEST_MODE: u32 = 0o444;
const FOLDER_MODE: u32 = 0o555;
const MOVABLE_MODE: u32 = 0o755;

/// What stands where the folder is to appear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A folder without anything in it.
    Empty,
    /// What we published, with this manifest, as it was.
    Ours(Box<Manifest>),
    /// Something else, or ours and changed since.
    Foreign(String),
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] FileError),
    /// Not enough room.
    #[error("needs {needed}, and {free} are free on the filesystem of {at}; nothing was fetched")]
    NoRoom {
        /// Bytes, with what the filesystem takes.
        needed: Bytes,
        /// Bytes.
        free: Bytes,
        /// Where.
        at: String,
    },
    /// Not enough inodes.
    #[error("needs {needed} inodes, and {free} are free on the filesystem of {at}; nothing was fetched")]
    NoInodes {
        /// Files, folders and our own.
        needed: u64,
        /// So many.
        free: u64,
        /// Where.
        at: String,
    },
}

/// An older folder that was not deleted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// Where it is, from the parent of the folder.
    pub(super) path: String,
    /// Why it is kept.
    pub(super) why: String,
}

/// The place, under its lock.
pub(super) struct Place<'a, D> {
    tree: Tree<'a, D>,
    name: &'a str,
    work: TreePath,
    published: TreePath,
}

impl<'a, D: Disk> Place<'a, D> {
    pub(super) fn new(disk: &'a D, name: &'a str) -> Self {
        Self {
            tree: Tree(disk),
            name,
            work: SnapshotLayout::one_off_work(name),
            published: TreePath::root().entry(name),
        }
    }

    /// Looks at what stands there. A manifest that was written just before a crash is put where it belongs.
    pub(super) async fn look(&self) -> Result<Found, PlaceError> {
        let entries = match self.tree.stat(self.published.clone()).await {
            Err(error) if error.fault == FileFault::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error.into()),
            Ok(stat) if stat.kind != FileKind::Folder => return Ok(Found::Foreign(format!("it is a {:?}", stat.kind))),
            Ok(_folder) => self.tree.walk(self.published.clone()).await?,
        };
        if entries.is_empty() {
            return Ok(Found::Empty);
        }
        let mut why = "nothing says that it was staged".to_owned();
        for (path, manifest) in self.manifests().await? {
            match first_difference(&manifest, &entries) {
                None => {
                    if path.name() != MANIFEST {
                        self.write_manifest(&manifest).await?;
                    }
                    return Ok(Found::Ours(Box::new(manifest)));
                }
                Some((file, what)) if path.name() == MANIFEST => {
                    why = format!("{file} {what} since it was staged");
                }
                Some(_) => {}
            }
        }
        Ok(Found::Foreign(why))
    }

    async fn manifests(&self) -> Result<Vec<(TreePath, Manifest)>, PlaceError> {
        let mut manifests = Vec::new();
        for (name, kind) in self.tree.list(self.work.clone()).await? {
            if kind != FileKind::File || !name.ends_with(MANIFEST_END) {
                continue;
            }
            let path = self.work.entry(&name);
            let bytes = self.tree.read(path.clone(), MANIFEST_BYTES_MAX).await?;
            // One that cannot be read vouches for nothing.
            if let Ok(manifest) = decode(&bytes) {
                manifests.push((path, manifest));
            }
        }
        Ok(manifests)
    }

    async fn write_manifest(&self, manifest: &Manifest) -> Result<(), FileError> {
        let path = self.work.entry(MANIFEST);
        self.tree.act(FileOp::Replace { path, bytes: encode(manifest), mode: MANIFEST_MODE }).await
    }

    /// Where a snapshot is staged and published: at once where nothing stands there, else beside what does.
    pub(super) fn layout(&self, id: SnapshotId, found: &Found) -> SnapshotLayout {
        let layout = SnapshotLayout::one_off(self.name, id);
        match found {
            Found::Nothing => layout,
            Found::Empty | Found::Ours(_) | Found::Foreign(_) => SnapshotLayout {
                published: self.work.entry(BESIDE),
                manifest: self.work.entry(&format!("{id}{MANIFEST_END}")),
                ..layout
            },
        }
    }

    /// A snapshot that is whole and waits to be exchanged, where a run before came that far.
    pub(super) async fn waiting(&self, id: SnapshotId) -> Result<Option<Manifest>, PlaceError> {
        let entries = match self.tree.walk(self.work.entry(BESIDE)).await {
            Ok(entries) => entries,
            Err(error) if error.fault == FileFault::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let manifests = self.manifests().await?.into_iter().map(|(_, manifest)| manifest);
        let mut whole =
            manifests.filter(|manifest| manifest.snapshot == id && first_difference(manifest, &entries).is_none());
        Ok(whole.next())
    }

    /// Removes what stagings of other snapshots left, so that their room counts as free.
    pub(super) async fn drop_others(&self, id: SnapshotId) -> Result<(), FileError> {
        let own = id.to_string();
        for (name, kind) in self.tree.list(self.work.clone()).await? {
            let is_own = name.split_once('.').map_or(name.as_str(), |(stem, _)| stem) == own;
            if !(is_own || name == MANIFEST || name == LOCK) {
                self.remove(&name, kind).await?;
            }
        }
        Ok(())
    }

    /// Removes one thing in the sibling. A folder that was published stays while somebody uses it or may use it.
    async fn remove(&self, name: &str, kind: FileKind) -> Result<Option<Kept>, FileError> {
        let path = self.work.entry(name);
        if kind != FileKind::Folder {
            self.tree.act(FileOp::Unlink { path, unused_only: false }).await?;
            return Ok(None);
        }
        let was_published = name == BESIDE || name.starts_with(OLDER);
        let gone = if !was_published || self.tree.walk(path.clone()).await?.is_empty() {
            delete_unpublished(self.tree, &path).await
        } else {
            delete_condemned(self.tree, &path).await
        };
        let why = match gone {
            Ok(()) => return Ok(None),
            Err(EvictError::Disk(error)) => return Err(error),
            Err(EvictError::InUse(users)) => Reason::in_use(&users),
            Err(EvictError::UsersUnknown(why)) => Reason::UsersUnknown { why },
        };
        Ok(Some(Kept { path: path.to_string(), why: why.to_string() }))
    }

    /// Whether there is room for what is still missing.
    pub(super) async fn check_room(&self, listing: &ListingSummary, at: &str) -> Result<(), PlaceError> {
        let allocated = match self.tree.walk(self.work.entry(&listing.snapshot.to_string())).await {
            Ok(entries) => entries.iter().map(|entry| entry.stat.allocated).sum(),
            Err(error) if error.fault == FileFault::NotFound => Bytes::ZERO,
            Err(error) => return Err(error.into()),
        };
        let room = self.tree.room().await?;
        let needed = bytes_needed(listing).less(allocated);
        if needed > room.available {
            return Err(PlaceError::NoRoom { needed, free: room.available, at: at.to_owned() });
        }
        let needed = inodes_needed(listing);
        if room.inodes > 0 && allocated == Bytes::ZERO && needed > room.inodes_available {
            return Err(PlaceError::NoInodes { needed, free: room.inodes_available, at: at.to_owned() });
        }
        Ok(())
    }

    /// Exchanges the folder that waits with the one that stands there: readers see either, whole, and who reads the older one goes on
    /// reading it.
    pub(super) async fn exchange(&self, manifest: &Manifest, random: u64) -> Result<(), FileError> {
        let beside = self.work.entry(BESIDE);
        // An unprivileged owner cannot move a folder that it may not write.
        for path in [&beside, &self.published] {
            self.tree.act(FileOp::SetMode { path: path.clone(), mode: MOVABLE_MODE }).await?;
        }
        self.tree.act(FileOp::Exchange { one: beside.clone(), two: self.published.clone() }).await?;
        self.tree.act(FileOp::SyncDir { path: TreePath::root() }).await?;
        self.tree.act(FileOp::SyncDir { path: self.work.clone() }).await?;
        self.write_manifest(manifest).await?;
        let older = self.work.entry(&format!("{OLDER}{random:016x}"));
        self.tree.act(FileOp::Rename { from: beside, to: older }).await
    }

    /// Leaves nothing but the manifest in the sibling, and the folder closed to writers. Gives what had to be kept.
    pub(super) async fn finish(&self) -> Result<Vec<Kept>, FileError> {
        self.tree.act(FileOp::SetMode { path: self.published.clone(), mode: FOLDER_MODE }).await?;
        let mut kept = Vec::new();
        for (name, kind) in self.tree.list(self.work.clone()).await? {
            if name != MANIFEST && name != LOCK {
                kept.extend(self.remove(&name, kind).await?);
            }
        }
        // Last, since without it another run may begin.
        self.tree.act(FileOp::Unlink { path: self.work.entry(LOCK), unused_only: false }).await?;
        Ok(kept)
    }

    /// Removes the sibling if there is nothing in it but the lock.
    pub(super) async fn leave_as_found(&self) -> Result<(), FileError> {
        let names = self.tree.list(self.work.clone()).await?;
        if names.iter().any(|(name, _)| name != LOCK) {
            return Ok(());
        }
        self.tree.act(FileOp::Unlink { path: self.work.entry(LOCK), unused_only: false }).await?;
        self.tree.act(FileOp::RemoveDir { path: self.work.clone() }).await
    }
}
