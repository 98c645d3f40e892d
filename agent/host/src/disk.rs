//! Performs file operations of core below a cache root.
//!
//! In goes a [`FileOp`], out comes its [`Answer`] or a [`FileError`] that says what was attempted on what. Each is done on
//! descriptors that the kernel resolved below the root, and is safe to repeat. Deliberately absent: waiting, retries and choices.

use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::unistd::syncfs;
use stokehold_core::file_op::{Answer, FileError, FileFault, FileKind, FileOp};
use stokehold_core::layout::TreePath;

use crate::fault::{Refusal, uninterrupted};
use crate::root::{CacheRoot, stat_of};
use crate::{durable, users};

mod content;
mod look;
mod make;
mod remove;
mod walk;

pub(crate) use look::{kind_of, list, names, read};
pub(crate) use walk::walk;

/// Does it, and waits until it is done.
///
/// # Errors
/// [`FileError`] with the fault that protocols tell apart and what the system said.
pub fn perform(root: &CacheRoot, op: &FileOp) -> Result<Answer, FileError> {
    answer(root, op).map_err(|refusal| refusal.of(op))
}

fn answer(root: &CacheRoot, op: &FileOp) -> Result<Answer, Refusal> {
    match op {
        FileOp::MakeDir { path, mode } => make::folder(root, path, *mode).map(done),
        FileOp::Allocate { path, size } => make::allocate(root, path, size.0).map(done),
        FileOp::Append { path, at, bytes } => make::append(root, path, *at, bytes).map(done),
        FileOp::SyncData { path } => content::sync(root, path).map(done),
        FileOp::SyncDir { path } => make::sync_folder(root, path).map(done),
        FileOp::SyncFs => Ok(done(uninterrupted(|| syncfs(root.folder()))?)),
        FileOp::Replace { path, bytes, mode } => {
            let (folder, name) = root.open_parent(path, OFlag::O_RDONLY)?;
            durable::replace(&folder, name, bytes, *mode).map(done)
        }
        FileOp::Link { path, target } => make::link(root, path, target).map(done),
        FileOp::Rename { from, to } => make::rename(root, from, to).map(done),
        FileOp::Exchange { one, two } => make::exchange(root, one, two).map(done),
        FileOp::SetMode { path, mode } => make::set_mode(root, path, *mode).map(done),
        FileOp::SetImmutable { path, immutable } => make::set_immutable(root, path, *immutable).map(done),
        FileOp::Unlink { path, unused_only } => remove::unlink(root, path, *unused_only).map(done),
        FileOp::RemoveDir { path } => remove::folder(root, path).map(done),
        FileOp::Read { path, size_max } => read(root, path, *size_max).map(Answer::Content),
        FileOp::ReadLink { path } => look::read_link(root, path).map(Answer::Target),
        FileOp::List { path } => list(root, path).map(Answer::Names),
        FileOp::Walk { path } => walk(root, path).map(Answer::Tree),
        FileOp::Stat { path } => look::stat(root, path).map(Answer::Stat),
        FileOp::Checksum { path, offset, length, kind } => {
            content::checksum(root, path, *offset, *length, *kind).map(Answer::Checksum)
        }
        FileOp::Users { path } => users::of(root, path).map(Answer::Users),
        FileOp::Room => look::room(root).map(Answer::Room),
    }
}

fn done((): ()) -> Answer {
    Answer::Done
}

/// Opens a regular file; anything else at the path is `Foreign`. Never waits for the other end of a pipe.
pub(crate) fn open_file(root: &CacheRoot, path: &TreePath, flags: OFlag, mode: u32) -> Result<OwnedFd, Refusal> {
    let file = root.open_below(path, flags | OFlag::O_NONBLOCK, mode)?;
    let stat = stat_of(&file)?;
    match kind_of(&stat) {
        FileKind::File => Ok(file),
        FileKind::Folder | FileKind::Link | FileKind::Other => {
            Err(Refusal::new(FileFault::Foreign, "it is not a regular file"))
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests plant files as others would")]
mod tests;
