//! The root of a cache tree: taken by one agent, marked as ours, and the door through which everything below it is opened.
//!
//! In goes the path of a folder, out comes a [`CacheRoot`] or why it cannot be ours. Paths below it are resolved by the kernel:
//! never through a link, never on to another mount, never out. Deliberately absent: what stands below and why.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, mkdirat};
use stokehold_core::file_op::{FileFault, FileOp};
use stokehold_core::layout::{self, SnapshotLayout, TreePath};
use stokehold_core::quantity::Bytes;

use crate::fault::{Refusal, uninterrupted};
use crate::marker::{BadMarker, Marker};
use crate::{disk, durable, sys};

mod claim;
mod lock;

/// Largest marker that is read: 4 million caches would not fill it.
const MARKER_BYTES_MAX: Bytes = Bytes(64 << 20);
/// Mode of the root where we make it, and of `deployments`: pods go through them.
const FOLDER_MODE: u32 = 0o755;
/// Mode of `condemned`: nobody but us goes there; who has its files open keeps them.
const CONDEMNED_MODE: u32 = 0o700;

/// How a root is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct RootOptions {
    /// Make the folder if it is missing; its parent must be there. Without it a disk that is not mounted is noticed.
    pub make_missing: bool,
}

/// Why a folder cannot be the root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Nothing there, and it was not asked to be made.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The root.
        path: PathBuf,
    },
    /// Another agent has it.
    #[error("{} is held by another agent{}", path.display(), pid.map(|pid| format!(", pid {pid}")).unwrap_or_default())]
    Held {
        /// The root.
        path: PathBuf,
        /// Its process, in its own PID namespace, as far as it said.
        pid: Option<u32>,
    },
    /// Somebody else's folder.
    #[error("{} holds {found:?} and no marker of ours", path.display())]
    Foreign {
        /// The root.
        path: PathBuf,
        /// The first thing in it that is not ours.
        found: String,
    },
    /// Written by a newer release.
    #[error("{} has format {found}, this release knows up to {known}", path.display())]
    Newer {
        /// The root.
        path: PathBuf,
        /// Format of the tree.
        found: u32,
        /// Newest format that we know.
        known: u32,
    },
    /// The marker is there and cannot be used.
    #[error("{} has a marker that cannot be used", path.display())]
    BadMarker {
        /// The root.
        path: PathBuf,
        /// Why.
        source: BadMarker,
    },
    /// The system refused.
    #[error("cannot {act} {}", path.display())]
    System {
        /// What was attempted.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An operation below the root failed.
    #[error(transparent)]
    Disk(#[from] stokehold_core::file_op::FileError),
}

/// An open root that this process has to itself. Clones share it; the last one dropped gives it back.
#[derive(Clone)]
pub struct CacheRoot(Arc<Held>);

struct Held {
    folder: OwnedFd,
    path: PathBuf,
    /// Closing it releases the lock.
    _lock: OwnedFd,
}

impl fmt::Debug for CacheRoot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("CacheRoot").field(&self.0.path).finish()
    }
}

impl CacheRoot {
    /// Takes the root: locks it, marks it where it is blank, makes its two folders, and removes what a crash left aside.
    ///
    /// # Errors
    /// [`RootError`]; a folder that is refused as somebody else's is left as it was.
    pub fn open(path: &Path, options: RootOptions) -> Result<Self, RootError> {
        if options.make_missing {
            make_root(path)?;
        }
        let (folder, path) = open_folder(path)?;
        let mut marked = claim::is_marked(&folder, &path)?;
        if !marked {
            claim::check_blank(&folder, &path)?;
        }
        let lock = lock::take(&folder, &path)?;
        let root = Self(Arc::new(Held { folder, path, _lock: lock }));
        if !marked {
            // Another agent may have marked it between our look and our lock.
            marked = claim::is_marked(&root.0.folder, root.path())?;
        }
        if marked {
            root.marker()?;
        } else {
            root.write_marker(&Marker::fresh())?;
        }
        for (path, mode) in [(layout::deployments(), FOLDER_MODE), (layout::condemned(), CONDEMNED_MODE)] {
            disk::perform(&root, &FileOp::MakeDir { path, mode })?;
        }
        disk::perform(&root, &FileOp::SyncDir { path: TreePath::root() })?;
        claim::sweep(&root);
        Ok(root)
    }

    /// Takes the hidden folder beside a one-off stage of `name` in somebody's folder. Nothing but that folder, with the lock in it,
    /// is made; `name` must be one component of a path.
    ///
    /// # Errors
    /// [`RootError`]
    pub fn open_one_off(parent: &Path, name: &str) -> Result<Self, RootError> {
        let (folder, path) = open_folder(parent)?;
        let work_name = SnapshotLayout::one_off_work(name);
        let work_path = path.join(work_name.as_str());
        let system = |act, errno: Errno| RootError::System { act, path: work_path.clone(), source: errno.into() };
        if name.contains('/') {
            return Err(system("make folder", Errno::EINVAL));
        }
        match mkdirat(&folder, work_name.as_str(), Mode::from_bits_truncate(FOLDER_MODE)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(system("make folder", errno)),
        }
        let work = resolve(folder.as_fd(), work_name.as_str(), OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)
            .map_err(|errno| system("open", errno))?;
        let lock = lock::take(&work, &work_path)?;
        durable::sweep(&work).map_err(|errno| system("remove what was left aside in", errno))?;
        Ok(Self(Arc::new(Held { folder, path, _lock: lock })))
    }

    /// The real path of the root in our mount namespace, for messages and for telling users of it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether the path still leads to the folder that is held: it does not once that was moved away, or something was mounted over
    /// it, or its filesystem was unmounted. What is held can then be written still, and nobody finds it.
    ///
    /// # Errors
    /// What the system said.
    pub fn is_in_place(&self) -> io::Result<bool> {
        let held = stat_of(self.folder())?;
        let found = std::fs::metadata(&self.0.path)?;
        let device = libc::makedev(held.stx_dev_major, held.stx_dev_minor);
        Ok(found.ino() == held.stx_ino && found.dev() == device)
    }

    /// What the marker says now.
    ///
    /// # Errors
    /// [`RootError`]
    pub fn marker(&self) -> Result<Marker, RootError> {
        let text = disk::read(self, &layout::marker(), MARKER_BYTES_MAX)
            .map_err(|refusal| refusal.of(&FileOp::Read { path: layout::marker(), size_max: MARKER_BYTES_MAX }))?;
        Marker::parse(&text).map_err(|bad| match bad {
            BadMarker::Newer { found } => {
                RootError::Newer { path: self.path().to_owned(), found, known: crate::marker::FORMAT_VERSION }
            }
            bad @ (BadMarker::Unreadable(_) | BadMarker::NotOurs) => {
                RootError::BadMarker { path: self.path().to_owned(), source: bad }
            }
        })
    }

    /// Replaces the marker.
    ///
    /// # Errors
    /// [`RootError::Disk`]
    pub fn write_marker(&self, marker: &Marker) -> Result<(), RootError> {
        disk::perform(self, &FileOp::Replace { path: layout::marker(), bytes: marker.text(), mode: 0o644 })?;
        Ok(())
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.0.folder.as_fd()
    }

    /// Opens what stands at a path, never following a link or entering a mount on the way or at the end.
    pub(crate) fn open_below(&self, path: &TreePath, flags: OFlag, mode: u32) -> Result<OwnedFd, Refusal> {
        check(path)?;
        let text = if path.as_str().is_empty() { "." } else { path.as_str() };
        Ok(resolve(self.folder(), text, flags, mode)?)
    }

    /// Opens the folder that a path stands in, and gives the name it has there.
    pub(crate) fn open_parent<'path>(
        &self,
        path: &'path TreePath,
        flags: OFlag,
    ) -> Result<(OwnedFd, &'path str), Refusal> {
        if path.as_str().is_empty() {
            return Err(Refusal::new(FileFault::Denied, "the root itself has no name here"));
        }
        check(path)?;
        Ok((self.open_below(&path.parent(), flags | OFlag::O_DIRECTORY, 0)?, path.name()))
    }
}

/// Paths are made of checked parts, but may have come back from a record on disk.
fn check(path: &TreePath) -> Result<(), Refusal> {
    let bad = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
    if !path.as_str().is_empty() && path.as_str().split('/').any(bad) {
        return Err(Refusal::new(FileFault::Denied, "the path has a part that is empty, . or .., or holds a NUL"));
    }
    Ok(())
}

/// `openat2` with all that keeps it below and off links and mounts.
pub(crate) fn resolve(folder: BorrowedFd<'_>, path: &str, flags: OFlag, mode: u32) -> nix::Result<OwnedFd> {
    let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    // With O_PATH the kernel takes no flag that would mean nothing.
    let more = if flags.contains(OFlag::O_PATH) { OFlag::empty() } else { OFlag::O_NOCTTY };
    let flags = flags | more | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let how = OpenHow::new().flags(flags).mode(Mode::from_bits_truncate(mode)).resolve(within);
    uninterrupted(|| openat2(folder, path, how))
}

fn make_root(path: &Path) -> Result<(), RootError> {
    use std::os::unix::fs::DirBuilderExt as _;
    match std::fs::DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(RootError::System { act: "make folder", path: path.to_owned(), source }),
    }
    Ok(())
}

/// Opens a folder that people named; links on the way to it are theirs to use.
fn open_folder(path: &Path) -> Result<(OwnedFd, PathBuf), RootError> {
    let failed = |act, source: io::Error| {
        if source.kind() == io::ErrorKind::NotFound {
            RootError::Missing { path: path.to_owned() }
        } else {
            RootError::System { act, path: path.to_owned(), source }
        }
    };
    let real = std::fs::canonicalize(path).map_err(|error| failed("find", error))?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let folder = open(&real, flags, Mode::empty()).map_err(|errno| failed("open", errno.into()))?;
    Ok((folder, real))
}

/// `stat` of an open file, folder or link.
pub(crate) fn stat_of(fd: impl AsFd) -> nix::Result<libc::statx> {
    sys::stat_at(fd, c"")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests plant files as others would")]
mod tests;
