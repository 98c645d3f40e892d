//! What stands in the tree: content of small files, links, names, `stat`, room.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use nix::dir::{Dir, Type};
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::statvfs::fstatvfs;
use stokehold_core::file_op::{FileFault, FileKind, FileStat, Room};
use stokehold_core::layout::TreePath;
use stokehold_core::quantity::Bytes;

use super::open_file;
use crate::fault::Refusal;
use crate::root::{CacheRoot, stat_of};
use crate::sys;

/// Unit of `stx_blocks`, whatever the filesystem's blocks are.
const SECTOR_BYTES: u64 = 512;

pub(crate) fn read(root: &CacheRoot, path: &TreePath, size_max: Bytes) -> Result<Vec<u8>, Refusal> {
    let file = open_file(root, path, OFlag::O_RDONLY, 0)?;
    let size = stat_of(&file)?.stx_size;
    let too_large = |size: u64| {
        let message = format!("it has {size} bytes or more, at most {} are read", size_max.0);
        Err(Refusal::new(FileFault::TooLarge, message))
    };
    if size > size_max.0 {
        return too_large(size);
    }
    // It may grow while it is read.
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    File::from(file).take(size_max.0.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > size_max.0 {
        return too_large(content.len() as u64);
    }
    Ok(content)
}

pub(super) fn read_link(root: &CacheRoot, path: &TreePath) -> Result<String, Refusal> {
    let link = root.open_below(path, OFlag::O_PATH, 0)?;
    if kind_of(&stat_of(&link)?) != FileKind::Link {
        return Err(Refusal::new(FileFault::Foreign, "it is not a symbolic link"));
    }
    let target = readlinkat(&link, "")?;
    target.into_string().map_err(|_bytes| Refusal::new(FileFault::Foreign, "the target of the link is not UTF-8"))
}

pub(crate) fn list(root: &CacheRoot, path: &TreePath) -> Result<Vec<(String, FileKind)>, Refusal> {
    let folder = root.open_below(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
    let mut names = names(folder)?;
    names.sort_unstable();
    Ok(names)
}

/// The names in an open folder without `.` and `..`, unsorted. One that is not UTF-8 is shown with U+FFFD in it: it is no name of
/// ours, and nothing can be done with it by that name.
pub(crate) fn names(folder: OwnedFd) -> nix::Result<Vec<(String, FileKind)>> {
    let mut folder = Dir::from_fd(folder)?;
    let mut unknown = Vec::new();
    let mut names = Vec::new();
    for entry in folder.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            Some(Type::File) => FileKind::File,
            Some(Type::Directory) => FileKind::Folder,
            Some(Type::Symlink) => FileKind::Link,
            Some(Type::Fifo | Type::CharacterDevice | Type::BlockDevice | Type::Socket) => FileKind::Other,
            None => {
                unknown.push(name.to_owned());
                continue;
            }
        };
        names.push((name.to_string_lossy().into_owned(), kind));
    }
    for name in unknown {
        let kind = kind_of(&sys::stat_at(&folder, &name)?);
        names.push((name.to_string_lossy().into_owned(), kind));
    }
    Ok(names)
}

pub(super) fn stat(root: &CacheRoot, path: &TreePath) -> Result<FileStat, Refusal> {
    let there = root.open_below(path, OFlag::O_PATH, 0)?;
    Ok(told(&stat_of(&there)?))
}

pub(crate) fn kind_of(stat: &libc::statx) -> FileKind {
    match u32::from(stat.stx_mode) & libc::S_IFMT {
        libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Folder,
        libc::S_IFLNK => FileKind::Link,
        _other => FileKind::Other,
    }
}

/// What `statx` says, as core takes it.
pub(super) fn told(stat: &libc::statx) -> FileStat {
    let nanoseconds = |time: &libc::statx_timestamp| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    FileStat {
        kind: kind_of(stat),
        size: Bytes(stat.stx_size),
        allocated: Bytes(stat.stx_blocks * SECTOR_BYTES),
        mode: u32::from(stat.stx_mode) & 0o7777,
        inode: stat.stx_ino,
        mtime_ns: nanoseconds(&stat.stx_mtime),
        ctime_ns: nanoseconds(&stat.stx_ctime),
    }
}

pub(super) fn room(root: &CacheRoot) -> Result<Room, Refusal> {
    let found = fstatvfs(root.folder())?;
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(found.fragment_size()));
    Ok(Room {
        capacity: bytes(found.blocks()),
        available: bytes(found.blocks_available()),
        inodes: found.files(),
        inodes_available: found.files_available(),
    })
}
