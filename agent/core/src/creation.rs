//! Making the folder of one cache, or adopting what a kubelet made in its place.
//!
//! Every part is made where it is missing, so repeating it mends. Deliberately absent: touching anything that somebody else put
//! where `current` should be.

use std::collections::BTreeMap;

use crate::file_op::{FileError, FileFault, FileKind, FileOp};
use crate::layout::{CacheLayout, TreePath, current_target, deployments, marker};
use crate::name::CacheId;
use crate::observed::Current;
use crate::port::{Disk, Tree};
use crate::quantity::Bytes;
use crate::record::{DeploymentRecord, RECORD_BYTES_MAX, TreeRecord, encode};

/// Mode of folders that only the agent writes and anybody may read.
const FOLDER_MODE: u32 = 0o755;
/// Mode of the folder with unfinished files.
const INCOMING_MODE: u32 = 0o700;
/// Mode of the one folder that pods may write into; sticky, so that nobody removes another's request.
const REQUESTS_MODE: u32 = 0o1777;
/// Mode of what is never written again.
const FROZEN_FOLDER_MODE: u32 = 0o555;
/// Mode of records that anybody may read.
const RECORD_MODE: u32 = 0o644;

/// Why a cache could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] FileError),
    /// `current` is somebody else's.
    #[error("`current` is {0}")]
    CurrentIsForeign(String),
}

/// What `current` is.
///
/// # Errors
/// What the disk says, apart from that it is not there.
pub async fn look_at_current<D: Disk>(tree: Tree<'_, D>, layout: &CacheLayout) -> Result<Current, FileError> {
    let path = layout.current();
    let stat = match tree.stat(path.clone()).await {
        Ok(stat) => stat,
        Err(error) if error.fault == FileFault::NotFound => return Ok(Current::Missing),
        Err(error) => return Err(error),
    };
    match stat.kind {
        FileKind::Link => {
            let target = tree.read_link(path).await?;
            if target == current_target(None) {
                return Ok(Current::Empty);
            }
            let id = target.strip_prefix("snapshots/").and_then(|id| id.parse().ok());
            Ok(id.map_or_else(|| Current::Foreign(format!("a link to {target:?}")), Current::Snapshot))
        }
        FileKind::Folder if tree.list(path).await?.is_empty() => Ok(Current::RealEmptyFolder),
        FileKind::Folder => Ok(Current::Foreign("a folder with content".to_owned())),
        FileKind::File => Ok(Current::Foreign("a file".to_owned())),
        FileKind::Other => Ok(Current::Foreign("a device, socket or pipe".to_owned())),
    }
}

/// Makes all parts of a cache's folder that are missing, and its record.
///
/// # Errors
/// [`CreateError`]; what was made until then stays.
pub async fn create<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    record: &DeploymentRecord,
) -> Result<(), CreateError> {
    let folder = layout.folder();
    let make = |path: TreePath, mode| FileOp::MakeDir { path, mode };
    tree.act(make(deployments(), FOLDER_MODE)).await?;
    tree.act(make(folder.parent(), FOLDER_MODE)).await?;
    tree.act(make(folder.clone(), FOLDER_MODE)).await?;
    if let Current::Foreign(found) = look_at_current(tree, layout).await? {
        return Err(CreateError::CurrentIsForeign(found));
    }
    tree.act(make(layout.snapshots(), FOLDER_MODE)).await?;
    tree.act(make(layout.incoming_all(), INCOMING_MODE)).await?;
    tree.act(make(layout.requests(), REQUESTS_MODE)).await?;
    tree.act(make(layout.empty(), FOLDER_MODE)).await?;
    tree.act(FileOp::Replace { path: layout.cold_mark(), bytes: Vec::new(), mode: 0o444 }).await?;
    tree.act(FileOp::SetMode { path: layout.empty(), mode: FROZEN_FOLDER_MODE }).await?;
    let write = FileOp::Replace { path: layout.deployment(), bytes: encode(record), mode: RECORD_MODE };
    tree.act(write).await?;
    mend_current(tree, layout).await?;
    for path in [folder.clone(), folder.parent(), folder.parent().parent()] {
        tree.act(FileOp::SyncDir { path }).await?;
    }
    Ok(())
}

/// Where a folder that stood in the place of `current` waits to be removed.
fn adopted(layout: &CacheLayout) -> TreePath {
    layout.folder().entry(".current.adopted")
}

/// Whether an adoption was cut short before the folder that it took away was removed. One that is not empty is not ours to remove.
pub(crate) async fn is_half_adopted<D: Disk>(tree: Tree<'_, D>, layout: &CacheLayout) -> Result<bool, FileError> {
    match tree.list(adopted(layout)).await {
        Ok(names) => Ok(names.is_empty()),
        Err(error) if matches!(error.fault, FileFault::NotFound | FileFault::Foreign) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives `current` its first target. A real empty folder in its place is exchanged for the link and removed, so that no reader
/// ever finds nothing there.
async fn mend_current<D: Disk>(tree: Tree<'_, D>, layout: &CacheLayout) -> Result<(), CreateError> {
    let target = current_target(None);
    let aside = adopted(layout);
    // What an adoption that was cut short left there, whatever `current` is by now.
    match tree.act(FileOp::RemoveDir { path: aside.clone() }).await {
        Err(error) if !matches!(error.fault, FileFault::NotFound | FileFault::NotEmpty | FileFault::Foreign) => {
            return Err(error.into());
        }
        Ok(()) | Err(_) => {}
    }
    match look_at_current(tree, layout).await? {
        Current::Empty | Current::Snapshot(_) => Ok(()),
        Current::Missing => Ok(tree.act(FileOp::Link { path: layout.current(), target }).await?),
        Current::Foreign(found) => Err(CreateError::CurrentIsForeign(found)),
        Current::RealEmptyFolder => {
            tree.act(FileOp::Link { path: aside.clone(), target }).await?;
            tree.act(FileOp::Exchange { one: layout.current(), two: aside.clone() }).await?;
            tree.act(FileOp::RemoveDir { path: aside }).await?;
            Ok(())
        }
    }
}

/// Writes down what is promised to each cache; what else the tree's record says stays.
///
/// # Errors
/// What the disk says; a record that cannot be read is left as it is.
pub async fn write_promises<D: Disk>(tree: Tree<'_, D>, promised: &BTreeMap<CacheId, Bytes>) -> Result<(), FileError> {
    let read = FileOp::Read { path: marker(), size_max: RECORD_BYTES_MAX };
    let mut record = match tree.read(marker(), RECORD_BYTES_MAX).await {
        Ok(bytes) => {
            TreeRecord::decode(&bytes).map_err(|error| FileError::new(&read, FileFault::Foreign, error.to_string()))?
        }
        Err(error) if error.fault == FileFault::NotFound => TreeRecord::default(),
        Err(error) => return Err(error),
    };
    record.promised.clone_from(promised);
    tree.act(FileOp::Replace { path: marker(), bytes: encode(&record), mode: RECORD_MODE }).await
}

/// Writes a cache's record.
///
/// # Errors
/// What the disk says.
pub async fn write_record<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    record: &DeploymentRecord,
) -> Result<(), FileError> {
    tree.act(FileOp::Replace { path: layout.deployment(), bytes: encode(record), mode: RECORD_MODE }).await
}
