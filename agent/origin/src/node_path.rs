//! A POSIX tree that is mounted on the node: FSx for Lustre, EFS, NFS, a local folder.
//!
//! In goes an absolute path, out come its regular files and ranges of them. Symbolic links are followed as long as they stay in
//! the tree and lead to a file, which is listed under the link's path; the kernel holds every open below the root (openat2).
//! Links to folders and links that leave the tree are errors: a source whose files are links to elsewhere, such as
//! `snapshots/<revision>` of a Hugging Face cache, must be named by the folder that holds both links and targets, narrowed by
//! `include`. Deliberately absent: checksums, which POSIX does not keep; the stat guard stands for the version. It
//! sees no finer than the filesystem's clock, some milliseconds: a file written twice within them looks written once.
//!
//! A mount whose server is gone hangs whoever asks it, and nothing wakes him. So listing and pinning ask on threads apart, at most
//! four of them; dropping the future leaves such a thread to itself. Both must be polled within a tokio runtime. Reading a
//! range blocks the thread that polls it, for the whole range: poll it on threads that are there for that.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::uio::pread;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::{JoinHandle, spawn_blocking};

use stokehold_core::listing::{Entry, ListingBuilder, Pin, StatGuard};
use stokehold_core::port::{ByteRange, Fill, Origin, OriginError, Pinned};
use stokehold_core::quantity::Bytes;
use stokehold_core::source::Source;

use walk::Walk;

mod walk;

/// How often an open is repeated when the kernel saw a rename race it (EAGAIN): each repeat needs another rename at that moment.
const OPEN_TRIES_MAX: u32 = 8;
/// Threads that ask mounts at a time: those that hang must leave most of the process's blocking threads to the disk.
const ASKED_MAX: usize = 4;
/// Batches of found files on their way to the listing: the walk goes on while one is taken in.
const BATCHES_MAX: usize = 2;

/// One for all of the process, as the blocking threads are.
static ASKED: Semaphore = Semaphore::const_new(ASKED_MAX);

/// Reads POSIX trees. Has no state.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodePathOrigin;

impl Origin for NodePathOrigin {
    async fn list(&self, source: &Source, into: &mut ListingBuilder) -> Result<(), OriginError> {
        let path = root_of(source)?;
        let (batches, mut found) = mpsc::channel(BATCHES_MAX);
        let filter = into.filter().clone();
        let walk = apart(path, move |path| Walk::new(&Tree::open(path)?, &filter, batches).run()).await;
        while let Some(batch) = found.recv().await {
            for file in batch {
                into.push(&file.path, file.size, file.guard.mtime_ns.to_string(), pin_of(file.guard), None)?;
            }
        }
        end_of(path, walk).await
    }

    async fn pin(&self, source: &Source, entry: &Entry) -> Result<Pinned, OriginError> {
        let path = root_of(source)?;
        let wanted = entry.clone();
        let look = apart(path, move |path| {
            let tree = Tree::open(path)?;
            let (_file, guard) = tree.open_file(&wanted)?;
            if guard.mtime_ns.to_string() != wanted.token {
                return Err(tree.changed(&wanted));
            }
            Ok(Pinned { pin: pin_of(guard), checksum: None })
        });
        end_of(path, look.await).await
    }

    async fn read_into(
        &self,
        source: &Source,
        entry: &Entry,
        pin: &Pin,
        range: ByteRange,
        fill: &mut dyn Fill,
    ) -> Result<(), OriginError> {
        if range.length() == 0 {
            return Ok(());
        }
        let tree = Tree::open(root_of(source)?)?;
        let (file, guard) = tree.open_file(entry)?;
        if pin.stat.as_ref() != Some(&guard) {
            return Err(tree.changed(entry));
        }
        let read = tree.read(&file, entry, range, fill);
        // Looked at after a failure too: a file cut short is a change, not a fault of the disk.
        let after = fstat(&file).map_err(|errno| tree.failed("stat", entry.path.as_str(), errno))?;
        if guard_of(&after) != guard {
            return Err(tree.changed(entry));
        }
        read
    }
}

/// Starts to ask the mount at this path on a thread of its own, once one is free.
async fn apart<T, F>(path: &str, ask: F) -> JoinHandle<Result<T, OriginError>>
where
    T: Send + 'static,
    F: FnOnce(&str) -> Result<T, OriginError> + Send + 'static,
{
    let permit: SemaphorePermit<'static> = ASKED.acquire().await.expect("it is never closed");
    let path = path.to_owned();
    spawn_blocking(move || {
        // Given back when the mount has answered, whether or not anybody still waits.
        let _permit = permit;
        ask(&path)
    })
}

async fn end_of<T>(path: &str, asked: JoinHandle<Result<T, OriginError>>) -> Result<T, OriginError> {
    asked.await.unwrap_or_else(|ended| {
        let message = format!("the thread that asked it ended: {ended}");
        Err(OriginError::Unreachable { origin: path.to_owned(), message })
    })
}

/// An open root, below which everything is looked up.
struct Tree<'a> {
    path: &'a str,
    root: OwnedFd,
}

impl<'a> Tree<'a> {
    fn open(path: &'a str) -> Result<Self, OriginError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match open(path, flags, Mode::empty()) {
            Ok(root) => Ok(Self { path, root }),
            Err(Errno::ENOTDIR) => Err(broken(path, "it is not a folder")),
            Err(errno) => Err(refusal(path, "open", errno)),
        }
    }

    /// Opens a listed file for reading. One of another kind or length than listed has changed.
    fn open_file(&self, entry: &Entry) -> Result<(OwnedFd, StatGuard), OriginError> {
        let path = entry.path.as_str();
        // Not blocking: a pipe may have taken the file's place, and opening it would wait for a writer.
        let file = self.open_below(path, OFlag::O_RDONLY | OFlag::O_NOCTTY | OFlag::O_NONBLOCK);
        let file = file.map_err(|errno| self.failed("open", path, errno))?;
        let stat = fstat(&file).map_err(|errno| self.failed("stat", path, errno))?;
        if kind_of(&stat) != SFlag::S_IFREG || size_of(&stat) != entry.size {
            return Err(self.changed(entry));
        }
        Ok((file, guard_of(&stat)))
    }

    fn open_below(&self, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let mut tries = 1;
        loop {
            let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
            match openat2(self.root.as_fd(), path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) if tries < OPEN_TRIES_MAX => tries += 1,
                opened => return opened,
            }
        }
    }

    fn read(&self, file: &OwnedFd, entry: &Entry, range: ByteRange, fill: &mut dyn Fill) -> Result<(), OriginError> {
        let mut at = range.start;
        while at < range.end {
            let buffer = fill.buffer()?;
            let most = usize::try_from(range.end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let offset = i64::try_from(at).map_err(|_| broken(&self.full(entry.path.as_str()), "no such offset"))?;
            match pread(file, &mut buffer[..most], offset) {
                Ok(0) => {
                    let message = format!("it ended at byte {at} of {}", entry.size.0);
                    return Err(OriginError::Unreachable { origin: self.full(entry.path.as_str()), message });
                }
                Ok(count) => {
                    fill.filled(count)?;
                    at += count as u64;
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.failed("read", entry.path.as_str(), errno)),
            }
        }
        Ok(())
    }

    fn full(&self, path: &str) -> String {
        if path.is_empty() { self.path.to_owned() } else { format!("{}/{path}", self.path.trim_end_matches('/')) }
    }

    fn changed(&self, entry: &Entry) -> OriginError {
        OriginError::Changed { what: self.full(entry.path.as_str()) }
    }

    fn failed(&self, act: &str, path: &str, errno: Errno) -> OriginError {
        refusal(&self.full(path), act, errno)
    }
}

fn root_of(source: &Source) -> Result<&str, OriginError> {
    match source {
        Source::NodePath(path) => Ok(path),
        Source::S3(_) => Err(broken(&source.to_string(), "it is not a path on this node")),
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn kind_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn size_of(stat: &FileStat) -> Bytes {
    Bytes(u64::try_from(stat.st_size).unwrap_or(0))
}

fn guard_of(stat: &FileStat) -> StatGuard {
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    StatGuard {
        device: stat.st_dev,
        inode: stat.st_ino,
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn pin_of(guard: StatGuard) -> Pin {
    Pin { stat: Some(guard), ..Pin::default() }
}

fn special(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFIFO => "it is a pipe; only files, folders and links can be staged",
        SFlag::S_IFSOCK => "it is a socket; only files, folders and links can be staged",
        SFlag::S_IFBLK | SFlag::S_IFCHR => "it is a device; only files, folders and links can be staged",
        _unknown => "it is neither file, folder nor link",
    }
}

fn broken(what: &str, why: &str) -> OriginError {
    OriginError::Broken { origin: what.to_owned(), message: why.to_owned() }
}

fn refusal(what: &str, act: &str, errno: Errno) -> OriginError {
    let origin = what.to_owned();
    let message = format!("{act}: {}", errno.desc());
    #[expect(clippy::wildcard_enum_match_arm, reason = "the kernel's list, not ours; what is unknown is tried again")]
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => OriginError::Missing { what: origin },
        Errno::EACCES | Errno::EPERM => OriginError::Refused { origin, message },
        Errno::EXDEV => broken(what, "it is a link that leaves the source; only links inside it are followed"),
        Errno::ELOOP => broken(what, "it is a link that leads back to itself, or through too many others"),
        Errno::ENAMETOOLONG => broken(what, "its path is too long"),
        _no_answer => OriginError::Unreachable { origin, message },
    }
}
