//! Where things stand in the cache tree, relative to its root.
//!
//! Out come [`TreePath`]s; there is no other way to make one, so every file operation stays below the root by construction.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::checksum::SnapshotId;
use crate::name::CacheId;
use crate::path::ArtifactPath;

/// A path below the cache root, made of checked parts. The root itself is the empty path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TreePath(String);

impl TreePath {
    /// The root.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// The path as text, `/`-separated and relative.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder it stands in; the root stands in itself.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.rsplit_once('/').map(|(folder, _)| folder.to_owned()).unwrap_or_default())
    }

    /// Its last part.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// A file of a snapshot below this folder.
    #[must_use]
    pub fn artifact(&self, path: &ArtifactPath) -> Self {
        self.child(path.as_str())
    }

    /// What a listing of this folder named. Names come from the kernel: neither empty, `.`, `..`, nor with `/` in them.
    #[must_use]
    pub fn entry(&self, name: &str) -> Self {
        self.child(name)
    }

    fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}/{name}", self.0)) }
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

/// The file that marks the tree as ours.
#[must_use]
pub fn marker() -> TreePath {
    TreePath("stokehold.json".to_owned())
}

/// All caches.
#[must_use]
pub fn deployments() -> TreePath {
    TreePath("deployments".to_owned())
}

/// What was renamed aside and is to be deleted.
#[must_use]
pub fn condemned() -> TreePath {
    TreePath("condemned".to_owned())
}

/// Where the parts of one cache stand.
#[derive(Debug, Clone)]
pub struct CacheLayout {
    folder: TreePath,
}

impl CacheLayout {
    /// Of this cache.
    #[must_use]
    pub fn new(cache: &CacheId) -> Self {
        Self { folder: deployments().child(cache.namespace.as_str()).child(cache.name.as_str()) }
    }

    /// The folder pods mount.
    #[must_use]
    pub fn folder(&self) -> TreePath {
        self.folder.clone()
    }

    /// The link to what is published now.
    #[must_use]
    pub fn current(&self) -> TreePath {
        self.folder.child("current")
    }

    /// What `current` points to when nothing is published.
    #[must_use]
    pub fn empty(&self) -> TreePath {
        self.folder.child("empty")
    }

    /// The file that tells a reader that `empty` is empty on purpose.
    #[must_use]
    pub fn cold_mark(&self) -> TreePath {
        self.empty().child(".stokehold-cold")
    }

    /// What the agent must know of the cache after a restart.
    #[must_use]
    pub fn deployment(&self) -> TreePath {
        self.folder.child("deployment.json")
    }

    /// What `wait` and scripts read.
    #[must_use]
    pub fn status(&self) -> TreePath {
        self.folder.child("status.json")
    }

    /// The one writable folder.
    #[must_use]
    pub fn requests(&self) -> TreePath {
        self.folder.child("requests")
    }

    /// Published snapshots and their manifests.
    #[must_use]
    pub fn snapshots(&self) -> TreePath {
        self.folder.child("snapshots")
    }

    /// What is being staged.
    #[must_use]
    pub fn incoming_all(&self) -> TreePath {
        self.folder.child("incoming")
    }

    /// The places of one snapshot.
    #[must_use]
    pub fn snapshot(&self, id: SnapshotId) -> SnapshotLayout {
        SnapshotLayout {
            published: self.snapshots().child(&id.to_string()),
            manifest: self.snapshots().child(&format!("{id}.json")),
            incoming: self.incoming_all().child(&id.to_string()),
            journal: self.incoming_all().child(&format!("{id}.journal")),
        }
    }
}

/// Where one snapshot stands before and after publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLayout {
    /// The published folder.
    pub published: TreePath,
    /// Its manifest.
    pub manifest: TreePath,
    /// The folder it is staged in.
    pub incoming: TreePath,
    /// The journal of the staging.
    pub journal: TreePath,
}

impl SnapshotLayout {
    /// For a one-off stage to the folder `name` of the root: all that is not the result stands in one hidden sibling.
    ///
    /// `name` must be one component of a path.
    #[must_use]
    pub fn one_off(name: &str, id: SnapshotId) -> Self {
        let work = Self::one_off_work(name);
        Self {
            published: TreePath(name.to_owned()),
            manifest: work.child("manifest.json"),
            incoming: work.child(&id.to_string()),
            journal: work.child(&format!("{id}.journal")),
        }
    }

    /// The hidden sibling of a one-off stage.
    #[must_use]
    pub fn one_off_work(name: &str) -> TreePath {
        TreePath(format!(".{name}.stokehold"))
    }
}

/// Where a tree goes before it is deleted. `random` keeps two deployments with one id apart.
#[must_use]
pub fn condemned_tree(id: SnapshotId, random: u64) -> TreePath {
    condemned().child(&format!("{id}.{random:016x}"))
}

/// How the target of `current` is written.
#[must_use]
pub fn current_target(id: Option<SnapshotId>) -> String {
    id.map_or_else(|| "empty".to_owned(), |id| format!("snapshots/{id}"))
}
