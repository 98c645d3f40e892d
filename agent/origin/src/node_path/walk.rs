//! The walk over a tree: every regular file, and every link to one.
//!
//! In goes an open root, out come batches of files, in any order; it ends where it fails or nobody listens any more. Blocks its
//! thread. Deliberately absent: what becomes of the files; those that the filter leaves out are told too, as they are counted.

use std::os::fd::OwnedFd;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use nix::unistd::{AccessFlags, faccessat};
use tokio::sync::mpsc::Sender;

use stokehold_core::listing::{BadListing, FILES_MAX, Filter, StatGuard};
use stokehold_core::port::OriginError;
use stokehold_core::quantity::Bytes;

use super::{Tree, broken, guard_of, join, kind_of, size_of, special};

/// Files told at a time, about as many as an S3 page has.
const BATCH_FILES: usize = 1_000;

/// A file of the tree.
pub(super) struct Found {
    /// Below the root.
    pub(super) path: String,
    pub(super) size: Bytes,
    pub(super) guard: StatGuard,
}

pub(super) struct Walk<'a> {
    tree: &'a Tree<'a>,
    filter: &'a Filter,
    batches: Sender<Vec<Found>>,
    batch: Vec<Found>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(tree: &'a Tree<'a>, filter: &'a Filter, batches: Sender<Vec<Found>>) -> Self {
        Self { tree, filter, batches, batch: Vec::new() }
    }

    pub(super) fn run(mut self) -> Result<(), OriginError> {
        let walked = self.walk();
        // What was found before a failure is told before it: it may have a fault of its own.
        self.tell()?;
        walked
    }

    fn walk(&mut self) -> Result<(), OriginError> {
        // Folders still to be read, as paths below the root; the empty one is the root.
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            self.walk_folder(&folder, &mut folders)?;
            if folders.len() > FILES_MAX {
                return Err(BadListing::TooMany.into());
            }
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), OriginError> {
        let batch = std::mem::take(&mut self.batch);
        self.batches.blocking_send(batch).map_err(|_unheard| {
            let message = "nobody waits for its listing any more".to_owned();
            OriginError::Unreachable { origin: self.tree.full(""), message }
        })
    }

    fn walk_folder(&mut self, folder: &str, folders: &mut Vec<String>) -> Result<(), OriginError> {
        let tree = self.tree;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let below = if folder.is_empty() { "." } else { folder };
        let opened = tree.open_below(below, flags).map_err(|errno| tree.failed("open folder", folder, errno))?;
        let at = opened.try_clone().map_err(|error| broken(&tree.full(folder), &error.to_string()))?;
        let mut dir = Dir::from_fd(opened).map_err(|errno| tree.failed("read folder", folder, errno))?;
        for found in dir.iter() {
            let found = found.map_err(|errno| tree.failed("read folder", folder, errno))?;
            let name = match found.file_name().to_str() {
                Ok("." | "..") => continue,
                Ok(name) => name,
                Err(_) => {
                    let name = found.file_name().to_string_lossy();
                    return Err(broken(&tree.full(&join(folder, &name)), "its name is not UTF-8"));
                }
            };
            let path = join(folder, name);
            let stat = fstatat(&at, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|errno| tree.failed("stat", &path, errno))?;
            match kind_of(&stat) {
                SFlag::S_IFDIR => folders.push(path),
                SFlag::S_IFREG => self.push(&at, name, path, &stat)?,
                SFlag::S_IFLNK if self.filter.wants_key(&path) => {
                    let target = target_of(tree, &path)?;
                    self.push(&at, name, path, &target)?;
                }
                SFlag::S_IFLNK => {}
                other if self.filter.wants_key(&path) => return Err(broken(&tree.full(&path), special(other))),
                _special_and_left_out => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, folder: &OwnedFd, name: &str, path: String, stat: &FileStat) -> Result<(), OriginError> {
        if self.filter.wants_key(&path) {
            // Seen here, before anything is staged, rather than when its turn comes.
            faccessat(folder, name, AccessFlags::R_OK, AtFlags::AT_EACCESS)
                .map_err(|errno| self.tree.failed("read", &path, errno))?;
        }
        self.batch.push(Found { path, size: size_of(stat), guard: guard_of(stat) });
        if self.batch.len() < BATCH_FILES { Ok(()) } else { self.tell() }
    }
}

/// What a link inside the tree leads to; it must be a file inside the tree.
fn target_of(tree: &Tree<'_>, path: &str) -> Result<FileStat, OriginError> {
    let stat = match tree.open_below(path, OFlag::O_PATH) {
        Ok(target) => fstat(&target).map_err(|errno| tree.failed("stat", path, errno))?,
        Err(Errno::ENOENT) => return Err(broken(&tree.full(path), "it is a link that leads nowhere")),
        Err(errno) => return Err(tree.failed("follow link", path, errno)),
    };
    match kind_of(&stat) {
        SFlag::S_IFREG => Ok(stat),
        SFlag::S_IFDIR => Err(broken(&tree.full(path), "it is a link to a folder; only links to files are followed")),
        other => Err(broken(&tree.full(path), special(other))),
    }
}
