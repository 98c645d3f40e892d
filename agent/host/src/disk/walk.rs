//! Everything below a folder, without following a link or entering a mount.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use stokehold_core::file_op::{FileFault, FileKind, TreeEntry};
use stokehold_core::layout::TreePath;
use stokehold_core::listing::FILES_MAX;

use super::look::told;
use crate::fault::Refusal;
use crate::root::{CacheRoot, resolve};
use crate::sys;

/// Most entries of a walk: as many folders as the most files of a snapshot, so that memory has a bound (200 bytes and a path each).
const ENTRIES_MAX: usize = 2 * FILES_MAX;
/// Deepest folder below the walked one: a path of 2,048 bytes has at most 1,024 parts.
const DEPTH_MAX: usize = 1_024;

/// Parents come before what is in them, as a path sorts before its extensions. What something is mounted on is `Other`: whatever
/// it looks like, it is not ours.
pub(crate) fn walk(root: &CacheRoot, path: &TreePath) -> Result<Vec<TreeEntry>, Refusal> {
    let top = root.open_below(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
    let mut entries: Vec<TreeEntry> = Vec::new();
    let mut ahead: Vec<String> = vec![String::new()];
    while let Some(within) = ahead.pop() {
        let folder = match open_folder(&top, &within) {
            Ok(folder) => folder,
            // It went, or turned into something else, since its parent was read: it is no folder now.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) if !within.is_empty() => continue,
            Err(errno) => return Err(Refusal { message: format!("{errno} ({within})"), ..Refusal::from(errno) }),
        };
        for name in raw_names(&folder)? {
            let stat = match sys::stat_at(&folder, &name) {
                Ok(stat) => stat,
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let text = name.to_string_lossy();
            let path = if within.is_empty() { text.into_owned() } else { format!("{within}/{text}") };
            let mut stat_told = told(&stat);
            if is_mount(&stat) {
                stat_told.kind = FileKind::Other;
            }
            if stat_told.kind == FileKind::Folder {
                ahead.push(path.clone());
            }
            entries.push(TreeEntry { path, stat: stat_told });
        }
        if entries.len() > ENTRIES_MAX || within.split('/').count() > DEPTH_MAX {
            let message = format!("it holds more than {ENTRIES_MAX} entries or {DEPTH_MAX} folders in each other");
            return Err(Refusal::new(FileFault::TooLarge, message));
        }
    }
    entries.sort_unstable_by(|one, two| one.path.cmp(&two.path));
    Ok(entries)
}

fn open_folder(top: &OwnedFd, within: &str) -> nix::Result<OwnedFd> {
    let path = if within.is_empty() { "." } else { within };
    resolve(top.as_fd(), path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)
}

fn raw_names(folder: &OwnedFd) -> nix::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::from_fd(folder.try_clone().map_err(|_full| Errno::EMFILE)?)?.iter() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_mount(stat: &libc::statx) -> bool {
    stat.stx_attributes & stat.stx_attributes_mask & u64::from(libc::STATX_ATTR_MOUNT_ROOT as u32) != 0
}
