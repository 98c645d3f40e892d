//! Content of files as the disk has it: sync and checksums.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::sys::uio::pread;
use nix::unistd::fdatasync;
use stokehold_core::checksum::{Checksum, ChecksumKind, Hasher};
use stokehold_core::file_op::FileFault;
use stokehold_core::layout::TreePath;

use super::open_file;
use crate::fault::{Refusal, uninterrupted};
use crate::part::{ALIGNMENT, AlignedBuffer};
use crate::root::CacheRoot;

/// One read of a checksum: large enough that the disk streams, small enough for a few of them at once.
const READ_BYTES: usize = 1 << 20;

pub(super) fn sync(root: &CacheRoot, path: &TreePath) -> Result<(), Refusal> {
    let file = open_file(root, path, OFlag::O_RDONLY, 0)?;
    uninterrupted(|| fdatasync(&file))?;
    forget(&file);
    Ok(())
}

/// Lets clean pages of a file go, so that those of serving pods stay. Advice only: what fails costs memory for a while.
fn forget(file: &OwnedFd) {
    let _advice = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

pub(super) fn checksum(
    root: &CacheRoot,
    path: &TreePath,
    offset: u64,
    length: u64,
    kind: ChecksumKind,
) -> Result<Checksum, Refusal> {
    let mut hasher = Hasher::new(kind);
    match open_file(root, path, OFlag::O_RDONLY | OFlag::O_DIRECT, 0) {
        Ok(file) => match feed(&file, offset, length, &mut hasher) {
            // Opened, but not to be read like this: this filesystem wants another alignment.
            Err(Refusal { errno: Some(Errno::EINVAL), .. }) => {}
            fed => return fed.map(|()| hasher.finish()),
        },
        Err(Refusal { errno: Some(Errno::EINVAL), .. }) => {}
        Err(refusal) => return Err(refusal),
    }
    let mut hasher = Hasher::new(kind);
    let file = open_file(root, path, OFlag::O_RDONLY, 0)?;
    // Dirty pages cannot be dropped, and what is in memory proves nothing of the disk.
    uninterrupted(|| fdatasync(&file))?;
    forget(&file);
    let fed = feed(&file, offset, length, &mut hasher);
    forget(&file);
    fed.map(|()| hasher.finish())
}

/// Reads whole blocks around the range and feeds what is in it.
fn feed(file: &OwnedFd, offset: u64, length: u64, hasher: &mut Hasher) -> Result<(), Refusal> {
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    let mut buffer = AlignedBuffer::new(READ_BYTES);
    let mut position = offset;
    while position < end {
        let block = position - position % ALIGNMENT as u64;
        let at = i64::try_from(block).map_err(|_beyond| Errno::EFBIG)?;
        let skip = (position - block) as usize;
        let read = uninterrupted(|| pread(file, buffer.bytes(), at))?;
        if read <= skip {
            let message = format!("the file ends at {}, before {end}", block + read as u64);
            return Err(Refusal::new(FileFault::Io, message));
        }
        let wanted = usize::try_from(end - position).unwrap_or(usize::MAX).min(read - skip);
        hasher.update(&buffer.bytes()[skip..skip + wanted]);
        position += wanted as u64;
    }
    Ok(())
}
