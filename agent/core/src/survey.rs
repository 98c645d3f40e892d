//! Looking at the cache tree: what stands in it, part by part, each seen, absent or unknown.
//!
//! In goes a disk, out comes what the planner needs of it. One part that cannot be read makes only itself unknown. Deliberately
//! absent: changing anything.

use std::collections::{BTreeMap, BTreeSet};

use crate::checksum::SnapshotId;
use crate::creation::{is_half_adopted, look_at_current};
use crate::file_op::{FileError, FileFault, FileKind};
use crate::layout::{CacheLayout, condemned, deployments, marker};
use crate::name::CacheId;
use crate::observed::{CacheView, Current, Published, SnapshotView};
use crate::port::{Disk, Tree};
use crate::quantity::Bytes;
use crate::record::{DeploymentRecord, MANIFEST_BYTES_MAX, Manifest, RECORD_BYTES_MAX, TreeRecord, decode};
use crate::seen::Seen;
use crate::verification::first_difference;

/// What stands in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeView {
    /// What was promised to whom.
    pub promised: Seen<BTreeMap<CacheId, Bytes>>,
    /// What is on disk for each cache. Unknown where the folders as such cannot be listed: a cache that does not show is then not
    /// known to be absent.
    pub caches: Seen<BTreeMap<CacheId, Seen<CacheView>>>,
    /// Trees renamed aside, by name.
    pub condemned: Seen<Vec<String>>,
}

fn seen<T>(looked: Result<T, FileError>) -> Seen<T> {
    match looked {
        Ok(found) => Seen::Present(found),
        Err(error) if error.fault == FileFault::NotFound => Seen::Absent,
        Err(error) => Seen::Unknown(error.to_string()),
    }
}

/// Whether a snapshot of a cache is served and stays.
type Served<'a> = dyn Fn(&CacheId, SnapshotId) -> bool + Sync + 'a;

/// Looks at all of the tree. Who uses a snapshot is not looked at where `is_served` says that it stays anyway: that look is the
/// dear one.
pub async fn survey<D, S>(tree: Tree<'_, D>, is_served: S) -> TreeView
where
    D: Disk,
    S: Fn(&CacheId, SnapshotId) -> bool + Sync,
{
    let promised = match seen(tree.read(marker(), RECORD_BYTES_MAX).await) {
        Seen::Present(bytes) => match TreeRecord::decode(&bytes) {
            Ok(record) => Seen::Present(record.promised),
            Err(error) => Seen::Unknown(format!("{}: {error}", marker())),
        },
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    };
    let condemned = seen(tree.list(condemned()).await.map(|names| names.into_iter().map(|(name, _)| name).collect()));
    TreeView { promised, caches: seen(caches(tree, &is_served).await), condemned }
}

async fn caches<D: Disk>(
    tree: Tree<'_, D>,
    is_served: &Served<'_>,
) -> Result<BTreeMap<CacheId, Seen<CacheView>>, FileError> {
    let mut caches = BTreeMap::new();
    for (namespace, kind) in or_nothing(tree.list(deployments()).await)? {
        if kind != FileKind::Folder {
            continue;
        }
        for (name, kind) in or_nothing(tree.list(deployments().entry(&namespace)).await)? {
            // What does not carry a name we could have given is not ours.
            let Ok(cache) = CacheId::new(&namespace, &name) else { continue };
            if kind == FileKind::Folder {
                let view = look_at_cache(tree, &CacheLayout::new(&cache), &|id| is_served(&cache, id)).await;
                caches.insert(cache, seen(view));
            }
        }
    }
    Ok(caches)
}

async fn look_at_cache<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    is_served: &(dyn Fn(SnapshotId) -> bool + Sync),
) -> Result<CacheView, FileError> {
    let record = match seen(tree.read(layout.deployment(), RECORD_BYTES_MAX).await) {
        Seen::Present(bytes) => match decode::<DeploymentRecord>(&bytes) {
            Ok(record) => Seen::Present(record),
            Err(error) => Seen::Unknown(format!("{}: {error}", layout.deployment())),
        },
        Seen::Absent => Seen::Absent,
        Seen::Unknown(why) => Seen::Unknown(why),
    };
    let current = look_at_current(tree, layout).await?;
    let names: BTreeSet<String> = tree.list(layout.folder()).await?.into_iter().map(|(name, _)| name).collect();
    let parts = [layout.snapshots(), layout.incoming_all(), layout.requests(), layout.empty(), layout.deployment()];
    let has_parts = parts.iter().all(|part| names.contains(part.name()));
    let has_current = matches!(current, Current::Empty | Current::Snapshot(_));
    let has_skeleton = has_parts && has_current && !is_half_adopted(tree, layout).await?;
    let incoming = look_at_incoming(tree, layout).await?;
    let (snapshots, published_bytes) = look_at_snapshots(tree, layout, is_served).await?;
    let used = published_bytes + incoming.values().copied().sum();
    Ok(CacheView { record, has_skeleton, current, snapshots, incoming, used })
}

async fn look_at_incoming<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
) -> Result<BTreeMap<SnapshotId, Bytes>, FileError> {
    let mut incoming = BTreeMap::new();
    for (name, kind) in or_nothing(tree.list(layout.incoming_all()).await)? {
        let Ok(id) = name.trim_end_matches(".journal").parse::<SnapshotId>() else { continue };
        let allocated = incoming.entry(id).or_insert(Bytes::ZERO);
        if kind == FileKind::Folder {
            let entries = or_nothing(tree.walk(layout.snapshot(id).incoming).await)?;
            *allocated = entries.iter().map(|entry| entry.stat.allocated).sum();
        }
    }
    Ok(incoming)
}

async fn look_at_snapshots<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    is_served: &(dyn Fn(SnapshotId) -> bool + Sync),
) -> Result<(BTreeMap<SnapshotId, SnapshotView>, Bytes), FileError> {
    let names = or_nothing(tree.list(layout.snapshots()).await)?;
    let mut ids: BTreeMap<SnapshotId, (bool, bool)> = BTreeMap::new();
    for (name, kind) in names {
        let is_folder = kind == FileKind::Folder;
        let Ok(id) = (if is_folder { name.as_str() } else { name.trim_end_matches(".json") }).parse() else { continue };
        let (folder, manifest) = ids.entry(id).or_default();
        *folder |= is_folder;
        *manifest |= !is_folder;
    }
    let mut views = BTreeMap::new();
    let mut bytes = Bytes::ZERO;
    for (id, (has_folder, has_manifest)) in ids {
        let entries = if has_folder { or_nothing(tree.walk(layout.snapshot(id).published).await)? } else { Vec::new() };
        bytes += entries.iter().map(|entry| entry.stat.allocated).sum();
        let view = match (has_folder, has_manifest) {
            (true, false) => SnapshotView::FolderOnly,
            (false, _) => SnapshotView::ManifestOnly,
            (true, true) => look_at_snapshot(tree, layout, id, &entries, !is_served(id)).await,
        };
        views.insert(id, view);
    }
    Ok((views, bytes))
}

async fn look_at_snapshot<D: Disk>(
    tree: Tree<'_, D>,
    layout: &CacheLayout,
    id: SnapshotId,
    entries: &[crate::file_op::TreeEntry],
    looks_for_users: bool,
) -> SnapshotView {
    let places = layout.snapshot(id);
    let bytes = match tree.read(places.manifest, MANIFEST_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return SnapshotView::Unknown(error.to_string()),
    };
    let manifest = match decode::<Manifest>(&bytes) {
        Ok(manifest) if manifest.snapshot == id => manifest,
        Ok(other) => {
            let what = format!("is the manifest of {}", other.snapshot);
            return SnapshotView::Drifted { file: format!("{id}.json"), what };
        }
        Err(error) => return SnapshotView::Unknown(format!("{id}.json: {error}")),
    };
    if let Some((file, what)) = first_difference(&manifest, entries) {
        return SnapshotView::Drifted { file, what };
    }
    let users = if looks_for_users {
        match tree.users(places.published).await {
            Ok(users) => users,
            Err(error) => Seen::Unknown(error.to_string()),
        }
    } else {
        Seen::Unknown("not looked at: it is what is served".to_owned())
    };
    SnapshotView::Published(Published {
        origin_fingerprint: manifest.origin_fingerprint,
        verified: manifest.verified,
        files: manifest.files.len() as u64,
        bytes: manifest.bytes,
        published_at: manifest.published_at,
        users,
    })
}

fn or_nothing<T: Default>(looked: Result<T, FileError>) -> Result<T, FileError> {
    match looked {
        Err(error) if error.fault == FileFault::NotFound => Ok(T::default()),
        other => other,
    }
}
