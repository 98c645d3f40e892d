//! Operations that make, change or move something.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, RenameFlags, fallocate, renameat, renameat2};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, mkdirat};
use nix::sys::uio::pwrite;
use nix::unistd::{fsync, ftruncate};
use stokehold_core::file_op::{FileFault, FileKind};
use stokehold_core::layout::TreePath;

use super::{kind_of, open_file};
use crate::fault::{Refusal, uninterrupted};
use crate::root::{CacheRoot, stat_of};
use crate::{durable, sys};

/// Mode of files that are being written; publication makes it 0444.
const FILE_MODE: u32 = 0o644;

pub(super) fn folder(root: &CacheRoot, path: &TreePath, mode: u32) -> Result<(), Refusal> {
    if !path.as_str().is_empty() {
        let (parent, name) = root.open_parent(path, OFlag::O_PATH)?;
        match mkdirat(&parent, name, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let made = root.open_below(path, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
    // What was there may have another mode, and what was made has one cut by the umask.
    set_mode_of(&made, mode)
}

pub(super) fn allocate(root: &CacheRoot, path: &TreePath, size: u64) -> Result<(), Refusal> {
    let file = open_to_write(root, path)?;
    let length = i64::try_from(size).map_err(|_beyond| Refusal::from(Errno::EFBIG))?;
    set_mode_of(&file, FILE_MODE)?;
    let promised = uninterrupted(|| ftruncate_down(&file, length)).and_then(|()| promise(&file, length));
    if let Err(errno) = promised {
        // ext4 keeps the blocks it got and the length; what cannot be whole takes nothing.
        uninterrupted(|| ftruncate(&file, 0))?;
        return Err(errno.into());
    }
    Ok(())
}

/// Cuts what is longer, and leaves alone what is not.
fn ftruncate_down(file: &OwnedFd, length: i64) -> nix::Result<()> {
    if stat_of(file)?.stx_size > length.unsigned_abs() { ftruncate(file, length) } else { Ok(()) }
}

fn promise(file: &OwnedFd, length: i64) -> nix::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match uninterrupted(|| fallocate(file, FallocateFlags::empty(), 0, length)) {
        // The filesystem makes no promises; `allocated` of a stat tells.
        Err(Errno::EOPNOTSUPP) => uninterrupted(|| ftruncate(file, length)),
        done => done,
    }
}

pub(super) fn append(root: &CacheRoot, path: &TreePath, at: u64, bytes: &[u8]) -> Result<(), Refusal> {
    let file = open_to_write(root, path)?;
    let far = |_beyond| Refusal::from(Errno::EFBIG);
    let length = i64::try_from(at).map_err(far)?;
    uninterrupted(|| ftruncate(&file, length))?;
    let mut written = 0;
    while written < bytes.len() {
        let offset = i64::try_from(at.saturating_add(written as u64)).map_err(far)?;
        written += uninterrupted(|| pwrite(&file, &bytes[written..], offset))?;
    }
    Ok(())
}

/// Opens or makes a regular file that is ours alone to write: one that was published before is made writable again.
pub(crate) fn open_to_write(root: &CacheRoot, path: &TreePath) -> Result<OwnedFd, Refusal> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT;
    let file = match open_file(root, path, flags, FILE_MODE) {
        Err(Refusal { fault: FileFault::Denied, .. }) => {
            set_immutable(root, path, false)?;
            set_mode(root, path, FILE_MODE)?;
            open_file(root, path, flags, FILE_MODE)?
        }
        opened => opened?,
    };
    let names = stat_of(&file)?.stx_nlink;
    if names > 1 {
        let message = format!("it has {names} names (hard links): writing would change what the others show");
        return Err(Refusal::new(FileFault::Foreign, message));
    }
    Ok(file)
}

pub(super) fn sync_folder(root: &CacheRoot, path: &TreePath) -> Result<(), Refusal> {
    let folder = root.open_below(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
    Ok(uninterrupted(|| fsync(&folder))?)
}

pub(super) fn link(root: &CacheRoot, path: &TreePath, target: &str) -> Result<(), Refusal> {
    if target.is_empty() || target.starts_with('/') || target.split('/').any(|part| part == "..") {
        return Err(Refusal::new(FileFault::Denied, format!("a link to {target:?} would leave its folder")));
    }
    let (folder, name) = root.open_parent(path, OFlag::O_RDONLY)?;
    durable::link(&folder, name, target)
}

pub(super) fn rename(root: &CacheRoot, from: &TreePath, to: &TreePath) -> Result<(), Refusal> {
    let (old, old_name) = root.open_parent(from, OFlag::O_PATH)?;
    let (new, new_name) = root.open_parent(to, OFlag::O_PATH)?;
    match renameat2(&old, old_name, &new, new_name, RenameFlags::RENAME_NOREPLACE) {
        // The filesystem cannot refuse by itself. Nobody else makes names here, so that looking before will do.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
            match root.open_below(to, OFlag::O_PATH, 0) {
                Ok(_) => return Err(Errno::EEXIST.into()),
                Err(Refusal { fault: FileFault::NotFound, .. }) => {}
                Err(refusal) => return Err(refusal),
            }
            Ok(renameat(&old, old_name, &new, new_name)?)
        }
        done => Ok(done?),
    }
}

pub(super) fn exchange(root: &CacheRoot, one: &TreePath, two: &TreePath) -> Result<(), Refusal> {
    let (first, first_name) = root.open_parent(one, OFlag::O_PATH)?;
    let (second, second_name) = root.open_parent(two, OFlag::O_PATH)?;
    Ok(renameat2(&first, first_name, &second, second_name, RenameFlags::RENAME_EXCHANGE)?)
}

pub(super) fn set_mode(root: &CacheRoot, path: &TreePath, mode: u32) -> Result<(), Refusal> {
    let there = root.open_below(path, OFlag::O_PATH, 0)?;
    match kind_of(&stat_of(&there)?) {
        FileKind::File | FileKind::Folder => set_mode_of(&there, mode),
        FileKind::Link | FileKind::Other => Err(Refusal::new(FileFault::Foreign, "it is neither a file nor a folder")),
    }
}

fn set_mode_of(there: &OwnedFd, mode: u32) -> Result<(), Refusal> {
    use std::os::fd::AsRawFd as _;
    let mode = Mode::from_bits_truncate(mode);
    match fchmod(there, mode) {
        // A descriptor that is only a place (O_PATH): through /proc it can be changed even where we may not read it.
        Err(Errno::EBADF) => {
            let place = format!("/proc/self/fd/{}", there.as_raw_fd());
            Ok(fchmodat(nix::fcntl::AT_FDCWD, place.as_str(), mode, FchmodatFlags::FollowSymlink)?)
        }
        done => Ok(done?),
    }
}

pub(super) fn set_immutable(root: &CacheRoot, path: &TreePath, immutable: bool) -> Result<(), Refusal> {
    let file = open_file(root, path, OFlag::O_RDONLY, 0)?;
    set_immutable_of(&file, immutable)
}

/// Sets or clears the flag of an open file, where that is permitted and there is such a flag.
pub(super) fn set_immutable_of(file: &OwnedFd, immutable: bool) -> Result<(), Refusal> {
    let changed = sys::inode_flags(file).and_then(|flags| {
        let wanted = if immutable { flags | sys::FLAG_IMMUTABLE } else { flags & !sys::FLAG_IMMUTABLE };
        if wanted == flags { Ok(()) } else { sys::set_inode_flags(file, wanted) }
    });
    match changed {
        Ok(())
        | Err(Errno::EPERM | Errno::EACCES | Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS) => {
            Ok(())
        }
        Err(errno) => Err(errno.into()),
    }
}
