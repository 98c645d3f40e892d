//! Publishing a staged snapshot: make it durable, freeze it, write what it is made of, rename it into place, point to it.
//!
//! Every await is a point where power may fail; the order makes each of them harmless. Readers see all of a snapshot or nothing.
//! Deliberately absent: any decision whether to publish.

use crate::checksum::{Crc64, SnapshotId, Strength};
use crate::file_op::{FileError, FileKind, FileOp, FileStat};
use crate::layout::{CacheLayout, TreePath, current_target};
use crate::port::{Disk, Tree};
use crate::quantity::Bytes;
use crate::record::{Manifest, ManifestFile, RECORD_VERSION, encode};
use crate::staging::{StageFile, StageOrder};
use crate::time::WallTime;

/// Files from this size are synced one by one, smaller ones by one sync of the filesystem: 5,000 small ones took 0.3 s that way
/// and up to 10 s one by one.
const SYNC_ALONE_MIN: Bytes = Bytes(1 << 20);
/// Mode of a published file: nobody writes it.
const FILE_MODE: u32 = 0o444;
/// Mode of a published folder.
const FOLDER_MODE: u32 = 0o555;

/// What the manifest says beyond what was staged.
#[derive(Debug, Clone)]
pub struct Publication {
    /// The source, without endpoint and credentials.
    pub identity: String,
    /// Which source and choice of files this is for.
    pub origin_fingerprint: String,
    /// The moment.
    pub now: WallTime,
    /// Whether files get the immutable flag.
    pub immutable: bool,
}

/// Publishes what was staged and proven under its name; not yet pointed to by `current`.
///
/// # Errors
/// What the disk says. Repeating the whole of it is safe.
pub async fn publish<D: Disk>(
    tree: Tree<'_, D>,
    order: &StageOrder,
    whole: &[Crc64],
    publication: &Publication,
) -> Result<Manifest, FileError> {
    let layout = &order.layout;
    for file in order.files.iter().filter(|file| file.size >= SYNC_ALONE_MIN) {
        tree.act(FileOp::SyncData { path: order.incoming(file) }).await?;
    }
    freeze(tree, order, publication.immutable).await?;
    // After the last change of any ctime and before any is written down.
    tree.act(FileOp::SyncFs).await?;
    let manifest = manifest(tree, order, whole, publication).await?;
    let bytes = encode(&manifest);
    tree.act(FileOp::Replace { path: layout.manifest.clone(), bytes, mode: FILE_MODE }).await?;
    tree.act(FileOp::Rename { from: layout.incoming.clone(), to: layout.published.clone() }).await?;
    tree.act(FileOp::SyncDir { path: layout.published.parent() }).await?;
    tree.act(FileOp::SyncDir { path: layout.incoming.parent() }).await?;
    // Only now: an unprivileged owner cannot move a folder that it may not write.
    tree.act(FileOp::SetMode { path: layout.published.clone(), mode: FOLDER_MODE }).await?;
    tree.act(FileOp::Unlink { path: layout.journal.clone(), unused_only: false }).await?;
    Ok(manifest)
}

async fn freeze<D: Disk>(tree: Tree<'_, D>, order: &StageOrder, immutable: bool) -> Result<(), FileError> {
    for file in &order.files {
        let path = order.incoming(file);
        tree.act(FileOp::SetMode { path: path.clone(), mode: FILE_MODE }).await?;
        if immutable {
            tree.act(FileOp::SetImmutable { path, immutable: true }).await?;
        }
    }
    for folder in order.folders.iter().rev() {
        let path = order.layout.incoming.entry(folder);
        tree.act(FileOp::SetMode { path, mode: FOLDER_MODE }).await?;
    }
    Ok(())
}

async fn manifest<D: Disk>(
    tree: Tree<'_, D>,
    order: &StageOrder,
    whole: &[Crc64],
    publication: &Publication,
) -> Result<Manifest, FileError> {
    let mut files = Vec::with_capacity(order.files.len());
    for (file, crc) in order.files.iter().zip(whole) {
        let path = order.incoming(file);
        let stat = tree.stat(path.clone()).await?;
        if stat.kind != FileKind::File || stat.size != file.size || crc.bytes != file.size.0 {
            let op = FileOp::Stat { path };
            let message = format!("is {:?} of {} bytes, and {} were staged", stat.kind, stat.size.0, file.size.0);
            return Err(FileError::new(&op, crate::file_op::FileFault::Foreign, message));
        }
        files.push(manifest_file(file, *crc, &stat));
    }
    let proof =
        |file: &StageFile| file.checksum.as_ref().map_or(Strength::Size, |checksum| Strength::of(checksum.kind));
    Ok(Manifest {
        version: RECORD_VERSION,
        snapshot: order.snapshot,
        identity: publication.identity.clone(),
        origin_fingerprint: publication.origin_fingerprint.clone(),
        // A file without bytes is proven by its length.
        verified: order.files.iter().filter(|file| file.size.0 > 0).map(proof).min().unwrap_or(Strength::Digest),
        published_at: publication.now,
        bytes: order.files.iter().map(|file| file.size).sum(),
        files,
    })
}

fn manifest_file(file: &StageFile, crc: Crc64, stat: &FileStat) -> ManifestFile {
    ManifestFile {
        path: file.path.clone(),
        size: file.size,
        pin: file.pin.clone(),
        checksum: file.checksum.clone(),
        crc64nvme: crc.checksum().hex,
        inode: stat.inode,
        mtime_ns: stat.mtime_ns,
        ctime_ns: stat.ctime_ns,
    }
}

/// Points `current` to a published snapshot, or to `empty`. Finishes what a crash may have left of its publication.
///
/// # Errors
/// What the disk says. Repeating it is safe.
pub async fn point_current<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    snapshot: Option<SnapshotId>,
) -> Result<(), FileError> {
    if let Some(id) = snapshot {
        let published: TreePath = layout.snapshot(id).published;
        tree.act(FileOp::SyncDir { path: published.parent() }).await?;
        tree.act(FileOp::SetMode { path: published, mode: FOLDER_MODE }).await?;
    }
    tree.act(FileOp::Link { path: layout.current(), target: current_target(snapshot) }).await
}
