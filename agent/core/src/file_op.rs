//! File operations as data: all that protocols ask of a disk, and all it can answer.
//!
//! The host performs them below the cache root with the kernel's help against links; the simulation performs them on a disk that
//! loses what was not synced. Each is safe to repeat. Deliberately absent: data bytes of weights, which go through
//! [`Fill`](crate::port::Fill).

use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, ChecksumKind};
use crate::layout::TreePath;
use crate::quantity::Bytes;
use crate::seen::Seen;

/// One thing to do on the disk.
#[expect(missing_docs, reason = "each variant's doc names its fields; a line per `path` would say nothing")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOp {
    /// Make a folder with this mode; one that is there already gets the mode. A link or file there is `Foreign`. The parent must exist.
    MakeDir { path: TreePath, mode: u32 },
    /// Make a regular file of this length with its blocks promised by the filesystem, or give one that is there that length and
    /// promise; content that is there stays. Mode 0644, a cleared immutable flag. A failure leaves the file empty.
    Allocate { path: TreePath, size: Bytes },
    /// Cut or make the file to length `at`, then write `bytes` there. For journals.
    Append { path: TreePath, at: u64, bytes: Vec<u8> },
    /// `fdatasync` of a file.
    SyncData { path: TreePath },
    /// `fsync` of a folder.
    SyncDir { path: TreePath },
    /// `syncfs` of the filesystem that holds the root.
    SyncFs,
    /// Make or replace a small file at once and durably: write aside, sync, rename, sync the folder.
    Replace { path: TreePath, bytes: Vec<u8>, mode: u32 },
    /// Make or replace a symbolic link at once and durably. `target` is relative. A folder in its place is `Exists`.
    Link { path: TreePath, target: String },
    /// Rename; something at `to` is `Exists` (RENAME_NOREPLACE).
    Rename { from: TreePath, to: TreePath },
    /// Exchange two names at once (RENAME_EXCHANGE).
    Exchange { one: TreePath, two: TreePath },
    /// Set permission bits of a file or folder, not through a link.
    SetMode { path: TreePath, mode: u32 },
    /// Set or clear the immutable flag of a file. Without the capability, or where the filesystem has no such flag, nothing happens.
    SetImmutable { path: TreePath, immutable: bool },
    /// Remove a file or link. With `unused_only` a file somebody has open, mapped or hidden in another namespace is `InUse`: a write
    /// lease is taken before. An immutable flag is cleared first.
    Unlink { path: TreePath, unused_only: bool },
    /// Remove an empty folder.
    RemoveDir { path: TreePath },
    /// The content of a small file, at most `size_max` bytes; a larger one is `TooLarge`.
    Read { path: TreePath, size_max: Bytes },
    /// The target of a symbolic link; anything else there is `Foreign`.
    ReadLink { path: TreePath },
    /// The names in a folder, sorted.
    List { path: TreePath },
    /// Everything below a folder, parents first, sorted by path within the folder; the folder itself is not in it.
    Walk { path: TreePath },
    /// What is at a path, not following a link.
    Stat { path: TreePath },
    /// The checksum of `length` bytes from `offset`, read from the disk rather than from memory where that can be asked for.
    Checksum { path: TreePath, offset: u64, length: u64, kind: ChecksumKind },
    /// Who uses a file or anything below a folder.
    Users { path: TreePath },
    /// Capacity and room of the filesystem, measured at the root.
    Room,
}

impl FileOp {
    /// What is attempted, and on what, for errors and logs.
    #[must_use]
    pub fn act(&self) -> (&'static str, TreePath) {
        match self {
            Self::MakeDir { path, .. } => ("make folder", path.clone()),
            Self::Allocate { path, .. } => ("allocate", path.clone()),
            Self::Append { path, .. } => ("append to", path.clone()),
            Self::SyncData { path } => ("sync", path.clone()),
            Self::SyncDir { path } => ("sync folder", path.clone()),
            Self::SyncFs => ("sync filesystem of", TreePath::root()),
            Self::Replace { path, .. } => ("replace", path.clone()),
            Self::Link { path, .. } => ("link", path.clone()),
            Self::Rename { from, .. } => ("rename", from.clone()),
            Self::Exchange { one, .. } => ("exchange", one.clone()),
            Self::SetMode { path, .. } => ("set mode of", path.clone()),
            Self::SetImmutable { path, .. } => ("set flags of", path.clone()),
            Self::Unlink { path, .. } => ("unlink", path.clone()),
            Self::RemoveDir { path } => ("remove folder", path.clone()),
            Self::Read { path, .. } => ("read", path.clone()),
            Self::ReadLink { path } => ("read link", path.clone()),
            Self::List { path } => ("list", path.clone()),
            Self::Walk { path } => ("walk", path.clone()),
            Self::Stat { path } => ("stat", path.clone()),
            Self::Checksum { path, .. } => ("checksum", path.clone()),
            Self::Users { path } => ("look for users of", path.clone()),
            Self::Room => ("measure room of", TreePath::root()),
        }
    }
}

/// What a disk answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// Content of a file.
    Content(Vec<u8>),
    /// Target of a link.
    Target(String),
    /// Names in a folder with what they are.
    Names(Vec<(String, FileKind)>),
    /// A tree.
    Tree(Vec<TreeEntry>),
    /// One file or folder.
    Stat(FileStat),
    /// A checksum.
    Checksum(Checksum),
    /// Who uses something: nobody is an empty list.
    Users(Seen<Vec<User>>),
    /// Room on the filesystem.
    Room(Room),
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A device, socket, pipe or anything else.
    Other,
}

/// What `stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// File, folder, link or other.
    pub kind: FileKind,
    /// Length in bytes. Proves nothing about content: allocation sets it.
    pub size: Bytes,
    /// Bytes of allocated blocks.
    pub allocated: Bytes,
    /// Permission bits.
    pub mode: u32,
    /// Inode number.
    pub inode: u64,
    /// Last change of content, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Last change of the inode, nanoseconds since 1970.
    pub ctime_ns: i128,
}

/// One entry of a walked tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path relative to the walked folder.
    pub path: String,
    /// What is there.
    pub stat: FileStat,
}

/// How somebody uses bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserSource {
    /// A mount in some process's namespace.
    Mount,
    /// An open file.
    Descriptor,
    /// A mapping.
    Map,
    /// A working directory.
    WorkingDirectory,
    /// A root directory.
    RootDirectory,
    /// The kernel refused a write lease: somebody hidden has it open.
    Lease,
}

/// One user of bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User {
    /// How it showed.
    pub source: UserSource,
    /// The process, where known.
    pub pid: Option<u32>,
    /// The path in use.
    pub path: String,
}

/// Room on the filesystem that holds the root, from `statvfs` at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// All bytes.
    pub capacity: Bytes,
    /// Bytes that may still be written by us (`f_bavail`).
    pub available: Bytes,
    /// All inodes; zero where the filesystem makes them as needed.
    pub inodes: u64,
    /// Inodes left.
    pub inodes_available: u64,
}

/// Why a file operation failed, as protocols tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileFault {
    /// Nothing there.
    NotFound,
    /// Something there already.
    Exists,
    /// A folder that is not empty.
    NotEmpty,
    /// A link, mount or kind of file that we did not put there.
    Foreign,
    /// No space or no inode left on the filesystem, or a limit is reached.
    NoSpace,
    /// A quota is reached.
    QuotaFull,
    /// Somebody uses it.
    InUse,
    /// The filesystem is read-only.
    ReadOnly,
    /// Not permitted.
    Denied,
    /// Larger than the caller takes.
    TooLarge,
    /// The device or filesystem failed, or anything else.
    Io,
}

/// A file operation that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{act} {path}: {message}")]
pub struct FileError {
    /// What was attempted.
    pub act: &'static str,
    /// On what.
    pub path: String,
    /// What kind of failure.
    pub fault: FileFault,
    /// What the system said.
    pub message: String,
}

impl FileError {
    /// Of this operation.
    #[must_use]
    pub fn new(op: &FileOp, fault: FileFault, message: impl Into<String>) -> Self {
        let (act, path) = op.act();
        Self { act, path: path.to_string(), fault, message: message.into() }
    }
}
