//! Operations that remove something.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{UnlinkatFlags, unlinkat};
use stokehold_core::file_op::{FileFault, FileKind};
use stokehold_core::layout::TreePath;

use super::make::set_immutable_of;
use super::{kind_of, open_file};
use crate::fault::{Refusal, uninterrupted};
use crate::root::{CacheRoot, stat_of};
use crate::sys;

pub(super) fn unlink(root: &CacheRoot, path: &TreePath, unused_only: bool) -> Result<(), Refusal> {
    let there = root.open_below(path, OFlag::O_PATH, 0)?;
    let (folder, name) = root.open_parent(path, OFlag::O_PATH)?;
    let is_file = match kind_of(&stat_of(&there)?) {
        FileKind::File => true,
        FileKind::Folder => return Err(Refusal::new(FileFault::Foreign, "it is a folder")),
        // A link cannot be open or mapped, and leases and flags are for files only.
        FileKind::Link | FileKind::Other => false,
    };
    // Kept open until the name is gone: with it goes the lease.
    let leased = if is_file && unused_only { Some(lease(root, path)?) } else { None };
    let removed = uninterrupted(|| unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir));
    match removed {
        Err(Errno::EPERM) if is_file => {
            let file = leased.map_or_else(|| open_file(root, path, OFlag::O_RDONLY, 0), Ok)?;
            set_immutable_of(&file, false)?;
            Ok(uninterrupted(|| unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir))?)
        }
        done => Ok(done?),
    }
}

/// Sees users that no `/proc` shows. Where leases are not permitted or not known to the filesystem, what `/proc` shows must do.
fn lease(root: &CacheRoot, path: &TreePath) -> Result<OwnedFd, Refusal> {
    let file = open_file(root, path, OFlag::O_RDONLY, 0)?;
    match sys::take_write_lease(&file) {
        Ok(()) | Err(Errno::EINVAL | Errno::EACCES | Errno::EPERM | Errno::ENOLCK | Errno::EOPNOTSUPP) => Ok(file),
        Err(Errno::EAGAIN) => Err(Refusal::new(FileFault::InUse, "somebody has it open (no write lease)")),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn folder(root: &CacheRoot, path: &TreePath) -> Result<(), Refusal> {
    let (parent, name) = root.open_parent(path, OFlag::O_PATH)?;
    Ok(uninterrupted(|| unlinkat(&parent, name, UnlinkatFlags::RemoveDir))?)
}
