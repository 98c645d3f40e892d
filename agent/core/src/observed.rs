//! What one pass saw on the node.
//!
//! Deliberately absent: `Option` for anything that was looked at. What could not be seen is unknown, and never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checksum::{SnapshotId, Strength};
use crate::file_op::{Room, User};
use crate::listing::ListingSummary;
use crate::name::CacheId;
use crate::quantity::Bytes;
use crate::record::DeploymentRecord;
use crate::seen::Seen;
use crate::time::{Millis, WallTime};

/// All that a pass saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The cache root.
    pub root: Seen<RootView>,
    /// What is on disk for each cache.
    pub caches: BTreeMap<CacheId, Seen<CacheView>>,
    /// Trees renamed aside that wait to be deleted, by name.
    pub condemned: Seen<Vec<String>>,
    /// What the origins offered when last listed by this process.
    pub listings: BTreeMap<CacheId, ListingView>,
    /// Work under way.
    pub jobs: BTreeMap<JobKey, JobView>,
}

/// The cache root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootView {
    /// Where it is on the machine.
    pub path: String,
    /// Bytes and inodes on its filesystem.
    pub room: Room,
    /// Bytes to leave free for others on the filesystem.
    pub headroom: Bytes,
    /// Inodes to leave free.
    pub headroom_inodes: u64,
    /// What was promised to whom.
    pub promised: BTreeMap<CacheId, Bytes>,
    /// What kind of disk it is.
    pub storage: Seen<Storage>,
    /// What keeps a deployment within its limit.
    pub quota: QuotaMechanism,
}

/// What kind of disk holds the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// Local NVMe.
    Nvme,
    /// Anything else.
    Other,
}

/// What keeps a deployment within its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaMechanism {
    /// The agent reserves before and measures after; the kernel enforces nothing.
    Accounting,
}

/// What is on disk for one cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheView {
    /// Its record.
    pub record: Seen<DeploymentRecord>,
    /// Whether all parts of its skeleton are there.
    pub has_skeleton: bool,
    /// What `current` is.
    pub current: Current,
    /// Snapshots by id.
    pub snapshots: BTreeMap<SnapshotId, SnapshotView>,
    /// What is being staged or was left half-way: bytes of allocated blocks.
    pub incoming: BTreeMap<SnapshotId, Bytes>,
    /// Bytes of allocated blocks of all of it.
    pub used: Bytes,
}

/// What `current` of a cache is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Current {
    /// Not there.
    Missing,
    /// Points to `empty`.
    Empty,
    /// Points to a snapshot.
    Snapshot(SnapshotId),
    /// A real, empty folder: made by a kubelet or container runtime in its place.
    RealEmptyFolder,
    /// Anything else.
    Foreign(String),
}

/// One snapshot on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotView {
    /// Folder and manifest are there and agree.
    Published(Published),
    /// Manifest without folder: not published.
    ManifestOnly,
    /// Folder without manifest: to be condemned.
    FolderOnly,
    /// Folder and manifest disagree about a file.
    Drifted {
        /// Which file.
        file: String,
        /// What is different.
        what: String,
    },
    /// Could not be read.
    Unknown(String),
}

/// A published snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Which source and choice of files it was made for.
    pub origin_fingerprint: String,
    /// The weakest proof among its files.
    pub verified: Strength,
    /// Number of files.
    pub files: u64,
    /// Sum of sizes.
    pub bytes: Bytes,
    /// When it was published.
    pub published_at: WallTime,
    /// Who uses it; looked at only where it is not what is served.
    pub users: Seen<Vec<User>>,
}

/// What an origin offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingView {
    /// Which source and choice of files was listed.
    pub origin_fingerprint: String,
    /// What it offered.
    pub summary: ListingSummary,
    /// When.
    pub listed_at: Millis,
    /// Set when a read found the origin changed since: it is to be listed again at once.
    pub is_stale: bool,
}

/// One job of a kind runs for one subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobKey {
    /// Listing the origin of a cache.
    List(CacheId),
    /// Staging for a cache. Never beside cleaning of the same cache.
    Stage(CacheId),
    /// Evicting, discarding, verifying or removing for a cache.
    Clean(CacheId),
    /// Deleting condemned trees.
    Sweep,
}

impl JobKey {
    /// Its kind, as metrics label it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Stage(_) => "stage",
            Self::Clean(_) => "clean",
            Self::Sweep => "sweep",
        }
    }

    /// The cache it works for, where it works for one.
    #[must_use]
    pub const fn cache(&self) -> Option<&CacheId> {
        match self {
            Self::List(cache) | Self::Stage(cache) | Self::Clean(cache) => Some(cache),
            Self::Sweep => None,
        }
    }
}

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobKind {
    /// Lists an origin.
    List,
    /// Stages and publishes a snapshot.
    Stage(SnapshotId),
    /// Evicts a snapshot.
    Evict(SnapshotId),
    /// Drops what was left half-way.
    Discard(SnapshotId),
    /// Reads a published snapshot again.
    Verify(SnapshotId),
    /// Removes a cache's folder.
    Remove,
    /// Deletes condemned trees.
    Sweep,
}

/// Work under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// What it does.
    pub kind: JobKind,
    /// Whether it has been told to stop.
    pub is_cancelled: bool,
    /// Bytes that are there.
    pub done: Bytes,
    /// Bytes there will be.
    pub total: Bytes,
    /// Bytes a second, lately.
    pub rate: Bytes,
    /// When it began.
    pub since: Millis,
    /// When it last got further; its beginning counts.
    pub moved_at: Millis,
}
