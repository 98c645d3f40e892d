//! A POSIX tree that is mounted on the node: FSx for Lustre, EFS, NFS, a local folder.
//!
//! In goes an absolute path, out come its regular files and ranges of them. Symbolic links are followed as long as they stay in
//! the tree and lead to a file, which is listed under the link's path; the kernel holds every open below the root (openat2).
//! Links to folders and links that leave the tree are errors: a source whose files are links to elsewhere, such as
//! `snapshots/<revision>` of a Hugging Face cache, must be named by the folder that holds both links and targets, narrowed by
//! `include`. Deliberately absent: checksums, which POSIX does not keep; the stat guard stands for the version. It
//! sees no finer than the filesystem's clock, some milliseconds: a file written twice within them looks written once.
//!
//! The functions are async by contract only: they block the thread that polls them, for a whole listing or a whole range. Poll
//! them on threads that are there for that.

use std::os::fd::{AsFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::uio::pread;
use nix::unistd::{AccessFlags, faccessat};

use stokehold_core::listing::{BadListing, Entry, FILES_MAX, ListingBuilder, Pin, StatGuard};
use stokehold_core::port::{ByteRange, Fill, Origin, OriginError, Pinned};
use stokehold_core::quantity::Bytes;
use stokehold_core::source::Source;

/// How often an open is repeated when the kernel saw a rename race it (EAGAIN): each repeat needs another rename at that moment.
const OPEN_TRIES_MAX: u32 = 8;

/// Reads POSIX trees. Has no state.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodePathOrigin;

impl Origin for NodePathOrigin {
    async fn list(&self, source: &Source, into: &mut ListingBuilder) -> Result<(), OriginError> {
        Tree::open(root_of(source)?)?.list(into)
    }

    async fn pin(&self, source: &Source, entry: &Entry) -> Result<Pinned, OriginError> {
        let tree = Tree::open(root_of(source)?)?;
        let (_file, guard) = tree.open_file(entry)?;
        if guard.mtime_ns.to_string() != entry.token {
            return Err(tree.changed(entry));
        }
        Ok(Pinned { pin: Pin { stat: Some(guard), ..Pin::default() }, checksum: None })
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

    fn list(&self, into: &mut ListingBuilder) -> Result<(), OriginError> {
        // Folders still to be read, as paths below the root; the empty one is the root.
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            self.list_folder(&folder, &mut folders, into)?;
            if folders.len() > FILES_MAX {
                return Err(BadListing::TooMany.into());
            }
        }
        Ok(())
    }

    fn list_folder(
        &self,
        folder: &str,
        folders: &mut Vec<String>,
        into: &mut ListingBuilder,
    ) -> Result<(), OriginError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let below = if folder.is_empty() { "." } else { folder };
        let opened = self.open_below(below, flags).map_err(|errno| self.failed("open folder", folder, errno))?;
        let at = opened.try_clone().map_err(|error| broken(&self.full(folder), &error.to_string()))?;
        let mut dir = Dir::from_fd(opened).map_err(|errno| self.failed("read folder", folder, errno))?;
        for found in dir.iter() {
            let found = found.map_err(|errno| self.failed("read folder", folder, errno))?;
            let name = match found.file_name().to_str() {
                Ok("." | "..") => continue,
                Ok(name) => name,
                Err(_) => {
                    let name = found.file_name().to_string_lossy();
                    return Err(broken(&self.full(&join(folder, &name)), "its name is not UTF-8"));
                }
            };
            let path = join(folder, name);
            let stat = fstatat(&at, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|errno| self.failed("stat", &path, errno))?;
            match kind_of(&stat) {
                SFlag::S_IFDIR => folders.push(path),
                SFlag::S_IFREG => self.push(&at, name, &path, &stat, into)?,
                SFlag::S_IFLNK if into.wants(&path) => {
                    let target = self.target_of(&path)?;
                    self.push(&at, name, &path, &target, into)?;
                }
                SFlag::S_IFLNK => {}
                other if into.wants(&path) => return Err(broken(&self.full(&path), special(other))),
                _special_and_left_out => {}
            }
        }
        Ok(())
    }

    fn push(
        &self,
        folder: &OwnedFd,
        name: &str,
        path: &str,
        stat: &FileStat,
        into: &mut ListingBuilder,
    ) -> Result<(), OriginError> {
        if into.wants(path) {
            // Seen here, before anything is staged, rather than when its turn comes.
            faccessat(folder, name, AccessFlags::R_OK, AtFlags::AT_EACCESS)
                .map_err(|errno| self.failed("read", path, errno))?;
        }
        let guard = guard_of(stat);
        let pin = Pin { stat: Some(guard.clone()), ..Pin::default() };
        into.push(path, size_of(stat), guard.mtime_ns.to_string(), pin, None)?;
        Ok(())
    }

    /// What a link inside the tree leads to; it must be a file inside the tree.
    fn target_of(&self, path: &str) -> Result<FileStat, OriginError> {
        let stat = match self.open_below(path, OFlag::O_PATH) {
            Ok(target) => fstat(&target).map_err(|errno| self.failed("stat", path, errno))?,
            Err(Errno::ENOENT) => return Err(broken(&self.full(path), "it is a link that leads nowhere")),
            Err(errno) => return Err(self.failed("follow link", path, errno)),
        };
        match kind_of(&stat) {
            SFlag::S_IFREG => Ok(stat),
            SFlag::S_IFDIR => {
                Err(broken(&self.full(path), "it is a link to a folder; only links to files are followed"))
            }
            other => Err(broken(&self.full(path), special(other))),
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
