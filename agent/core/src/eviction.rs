//! Giving bytes up: withdraw, look, rename aside, wait, look again, delete what nobody uses.
//!
//! The label is withdrawn before any of this begins. Bytes that somebody uses, or may use, are put back or left where they are.
//! Deliberately absent: the choice of what goes.

use std::time::Duration;

use crate::checksum::SnapshotId;
use crate::file_op::{FileError, FileFault, FileKind, FileOp, User};
use crate::layout::{CacheLayout, TreePath, condemned_tree, current_target};
use crate::port::{Disk, Tree};
use crate::publishing::point_current;
use crate::seen::Seen;

/// Between the two looks: whoever resolved the path just before it was renamed has opened it by then.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(10);
/// Mode of a folder whose content is about to go.
const OPEN_MODE: u32 = 0o755;
/// Mode of a published folder.
const FOLDER_MODE: u32 = 0o555;

/// Why bytes were not given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvictError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] FileError),
    /// Somebody uses them.
    #[error("{} users, the first is {:?}", .0.len(), .0.first())]
    InUse(Vec<User>),
    /// It could not be told whether somebody uses them.
    #[error("cannot tell whether it is in use: {0}")]
    UsersUnknown(String),
}

async fn unused<D: Disk>(tree: Tree<'_, D>, path: &TreePath) -> Result<(), EvictError> {
    match tree.users(path.clone()).await? {
        Seen::Absent => Ok(()),
        Seen::Present(users) if users.is_empty() => Ok(()),
        Seen::Present(users) => Err(EvictError::InUse(users)),
        Seen::Unknown(why) => Err(EvictError::UsersUnknown(why)),
    }
}

/// Evicts a snapshot: its folder, then its manifest. Where only one of the two is there, that one goes.
///
/// # Errors
/// [`EvictError`]; then the snapshot is where it was and `current` points where it did, or what is left of it stands among the
/// condemned trees, to be looked at again.
pub async fn evict<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    id: SnapshotId,
    random: u64,
) -> Result<(), EvictError> {
    let places = layout.snapshot(id);
    // What nothing vouches for is not pointed to again, whoever still uses it.
    let is_vouched_for = match tree.stat(places.manifest.clone()).await {
        Ok(_) => true,
        Err(error) if error.fault == FileFault::NotFound => false,
        Err(error) => return Err(error.into()),
    };
    let was_current = match tree.read_link(layout.current()).await {
        Ok(target) => target == current_target(Some(id)),
        Err(error) if matches!(error.fault, FileFault::NotFound | FileFault::Foreign) => false,
        // It may point here, and would dangle.
        Err(error) => return Err(error.into()),
    };
    if was_current {
        // Looked at before too: `current` of what is in use does not move for a moment at every try. What nothing vouches for is
        // not pointed to any longer, whoever uses it.
        if is_vouched_for {
            unused(tree, &places.published).await?;
        }
        point_current(tree, layout, None).await?;
    }
    let aside = condemned_tree(id, random);
    if let Err(error) = condemn(tree, &places.published, &aside, FOLDER_MODE).await {
        if was_current && is_vouched_for {
            point_current(tree, layout, Some(id)).await?;
        }
        return Err(error);
    }
    // Without a manifest nothing vouches for a folder of this name any more.
    remove_if_there(tree, places.manifest).await?;
    tree.act(FileOp::SyncDir { path: layout.snapshots() }).await?;
    delete_condemned(tree, &aside).await
}

/// Renames a tree aside after a look and looks again a while later; used, it is renamed back and gets `mode` again.
async fn condemn<D: Disk>(tree: Tree<'_, D>, from: &TreePath, aside: &TreePath, mode: u32) -> Result<(), EvictError> {
    match tree.act(FileOp::SetMode { path: from.clone(), mode: OPEN_MODE }).await {
        Ok(()) => {}
        Err(error) if error.fault == FileFault::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let mut looked = unused(tree, from).await;
    if looked.is_ok() {
        rename_durably(tree, from, aside).await?;
        tree.pause(SECOND_LOOK_AFTER).await;
        looked = unused(tree, aside).await;
        if looked.is_ok() {
            return Ok(());
        }
        rename_durably(tree, aside, from).await?;
    }
    tree.act(FileOp::SetMode { path: from.clone(), mode }).await?;
    looked
}

async fn rename_durably<D: Disk>(tree: Tree<'_, D>, from: &TreePath, to: &TreePath) -> Result<(), FileError> {
    tree.act(FileOp::Rename { from: from.clone(), to: to.clone() }).await?;
    tree.act(FileOp::SyncDir { path: to.parent() }).await?;
    tree.act(FileOp::SyncDir { path: from.parent() }).await
}

/// Deletes a tree that was renamed aside, file by file, each only while nobody uses it.
///
/// # Errors
/// [`EvictError::InUse`] at the first file that somebody has open; what was deleted before is gone.
pub async fn delete_condemned<D: Disk>(tree: Tree<'_, D>, path: &TreePath) -> Result<(), EvictError> {
    match unused(tree, path).await {
        Err(EvictError::Disk(error)) if error.fault == FileFault::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => delete_unpublished(tree, path).await,
    }
}

/// Deletes a tree that nobody was ever told of, file by file, each only while nobody has it open.
///
/// # Errors
/// [`EvictError::InUse`] at the first file that somebody has open; what was deleted before is gone.
pub async fn delete_unpublished<D: Disk>(tree: Tree<'_, D>, path: &TreePath) -> Result<(), EvictError> {
    let entries = match tree.walk(path.clone()).await {
        Ok(entries) => entries,
        Err(error) if error.fault == FileFault::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    tree.act(FileOp::SetMode { path: path.clone(), mode: OPEN_MODE }).await?;
    for folder in entries.iter().filter(|entry| entry.stat.kind == FileKind::Folder) {
        tree.act(FileOp::SetMode { path: path.entry(&folder.path), mode: OPEN_MODE }).await?;
    }
    // Parents come first in a walk, so backwards every folder is empty when its turn comes.
    for entry in entries.iter().rev() {
        let path = path.entry(&entry.path);
        let gone = match entry.stat.kind {
            FileKind::Folder => tree.act(FileOp::RemoveDir { path }).await,
            FileKind::File | FileKind::Link | FileKind::Other => {
                tree.act(FileOp::Unlink { path, unused_only: true }).await
            }
        };
        match gone {
            Ok(()) => {}
            Err(error) if error.fault == FileFault::NotFound => {}
            Err(error) if error.fault == FileFault::InUse => {
                let user = User { source: crate::file_op::UserSource::Lease, pid: None, path: error.path };
                return Err(EvictError::InUse(vec![user]));
            }
            Err(error) => return Err(error.into()),
        }
    }
    tree.act(FileOp::RemoveDir { path: path.clone() }).await?;
    tree.act(FileOp::SyncDir { path: path.parent() }).await?;
    Ok(())
}

/// Drops what was left half-way of a staging. Nobody reads it: it was never published.
///
/// # Errors
/// [`EvictError`] says what stands in the way.
pub async fn discard_incoming<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    id: SnapshotId,
    random: u64,
) -> Result<(), EvictError> {
    let places = layout.snapshot(id);
    // The journal goes first: without it nothing vouches for the bytes.
    remove_if_there(tree, places.journal).await?;
    tree.act(FileOp::SyncDir { path: layout.incoming_all() }).await?;
    let aside = condemned_tree(id, random);
    match rename_durably(tree, &places.incoming, &aside).await {
        Ok(()) => delete_condemned(tree, &aside).await,
        Err(error) if error.fault == FileFault::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the folder of a cache that has no snapshots any more, and its namespace's folder if that is empty then.
///
/// # Errors
/// [`EvictError`] says what stands in the way; the folder is where it was.
pub async fn remove_cache<D: Disk>(tree: Tree<'_, D>, layout: &CacheLayout, random: u64) -> Result<(), EvictError> {
    let aside = condemned_tree(SnapshotId([0; 8]), random);
    condemn(tree, &layout.folder(), &aside, OPEN_MODE).await?;
    delete_condemned(tree, &aside).await?;
    match tree.act(FileOp::RemoveDir { path: layout.folder().parent() }).await {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.fault, FileFault::NotEmpty | FileFault::NotFound) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn remove_if_there<D: Disk>(tree: Tree<'_, D>, path: TreePath) -> Result<(), FileError> {
    match tree.act(FileOp::Unlink { path, unused_only: false }).await {
        Err(error) if error.fault != FileFault::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
