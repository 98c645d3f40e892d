//! What the agent keeps beside the data: one JSON record per file, each with a version.
//!
//! Yesterday's record must be readable by today's code and an unknown field must not hurt; samples stand in `tests/fixtures`.
//! Deliberately absent: anything that could be measured instead.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, SnapshotId, Strength};
use crate::listing::Pin;
use crate::name::CacheId;
use crate::path::ArtifactPath;
use crate::quantity::Bytes;
use crate::time::WallTime;

/// Version of every record here. A record of a higher one is not read, and what it describes is left alone.
pub const RECORD_VERSION: u32 = 1;
/// A small record fits in this; a larger file is not one of ours.
pub const RECORD_BYTES_MAX: Bytes = Bytes(1 << 20);
/// A manifest has a line per file: the largest listing times half a kilobyte.
pub const MANIFEST_BYTES_MAX: Bytes = Bytes(512 << 20);

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// Not JSON of this shape.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Made by a newer release.
    #[error("has version {found}, and this release reads up to {RECORD_VERSION}")]
    Newer {
        /// The version it has.
        found: u32,
    },
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Reads a record, its version first.
///
/// # Errors
/// [`BadRecord`] says why it cannot be read.
pub fn decode<R: DeserializeOwned>(bytes: &[u8]) -> Result<R, BadRecord> {
    let unreadable = |error: serde_json::Error| BadRecord::Unreadable(error.to_string());
    let Versioned { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if version > RECORD_VERSION {
        return Err(BadRecord::Newer { found: version });
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}

/// Writes a record, with a newline at its end for people who look at it.
#[must_use]
pub fn encode<R: Serialize>(record: &R) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(record).expect("records have string keys and no failing serializer");
    bytes.push(b'\n');
    bytes
}

/// What `stokehold.json` says the tree is.
pub const TREE_KIND: &str = "stokehold.dev/cache-tree";

/// `stokehold.json`: the mark that the tree is ours, and what was promised to whom. What else stands in it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeRecord {
    /// Version of the format of the whole tree; at most [`RECORD_VERSION`].
    pub format_version: u32,
    /// [`TREE_KIND`].
    pub tree: String,
    /// Bytes promised to each cache. A cache that cannot be read still counts with this.
    #[serde(default)]
    pub promised: BTreeMap<CacheId, Bytes>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

impl Default for TreeRecord {
    fn default() -> Self {
        Self {
            format_version: RECORD_VERSION,
            tree: TREE_KIND.to_owned(),
            promised: BTreeMap::new(),
            other: BTreeMap::new(),
        }
    }
}

impl TreeRecord {
    /// Reads it.
    ///
    /// # Errors
    /// [`BadRecord`] says why it cannot be read.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| BadRecord::Unreadable(error.to_string()))?;
        if record.format_version > RECORD_VERSION {
            return Err(BadRecord::Newer { found: record.format_version });
        }
        Ok(record)
    }
}

/// `deployment.json`: what the agent must know of a cache after a restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeploymentRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The snapshot decided on for this source, until another is decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<SnapshotId>,
    /// Which source and choice of files the target belongs to.
    #[serde(default)]
    pub origin_fingerprint: String,
    /// How long bytes stay once unwanted, in seconds, as last asked.
    pub retain_after_delete_s: u64,
    /// As last asked.
    #[serde(default)]
    pub priority: i32,
    /// Since when nobody asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted_since: Option<WallTime>,
    /// The job in hand, noted before it starts and cleared when it ends in any orderly way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_hand: Option<InHand>,
}

/// A staging that was begun and has not ended in an orderly way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InHand {
    /// What was being staged.
    pub snapshot: SnapshotId,
    /// How often it was begun without a byte arriving and without an orderly end.
    pub starts: u32,
    /// When it was last begun.
    pub begun_at: WallTime,
}

/// `snapshots/<id>.json`: what a published snapshot is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The id it is named by.
    pub snapshot: SnapshotId,
    /// The source, without endpoint and credentials.
    pub identity: String,
    /// Which source and choice of files it was made for.
    pub origin_fingerprint: String,
    /// The weakest proof among its files.
    pub verified: Strength,
    /// When it was published.
    pub published_at: WallTime,
    /// Sum of sizes.
    pub bytes: Bytes,
    /// Its files, sorted by path.
    pub files: Vec<ManifestFile>,
}

/// One file of a published snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Where it stands below the snapshot.
    pub path: ArtifactPath,
    /// Its length.
    pub size: Bytes,
    /// The version at the origin that every byte belongs to.
    pub pin: Pin,
    /// What the origin vouched for and what matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// CRC-64/NVME of what was written, in hex, for later looks at the disk.
    pub crc64nvme: String,
    /// Inode number as published.
    pub inode: u64,
    /// Last change of content as published, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Last change of the inode as published, nanoseconds since 1970.
    pub ctime_ns: i128,
}

/// `status.json`: what `wait` and scripts read in the folder that pods mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// `Ready`, `Staging`, `Held` or `Cold`.
    pub phase: String,
    /// The snapshot that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// The snapshot that is being staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<SnapshotId>,
    /// Bytes of it that are there.
    pub bytes_done: Bytes,
    /// Bytes it will have.
    pub bytes_total: Bytes,
    /// Why not, in one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Until when the agent vouches for this record.
    pub vouched_until: WallTime,
}
