//! Whether a folder may become our root, and what a crash left in one that is.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use stokehold_core::file_op::{FileFault, FileKind};
use stokehold_core::layout::{self, TreePath};
use stokehold_core::name::{CacheName, KubeNamespace};

use super::{CacheRoot, RootError, lock, resolve};
use crate::fault::Refusal;
use crate::{disk, durable};

/// Folders of a cache that asides may stand in, beside its own. Not `requests`: others write there.
const SWEPT: &[&str] = &["empty", "incoming", "snapshots"];

pub(super) fn is_marked(folder: &OwnedFd, path: &Path) -> Result<bool, RootError> {
    match resolve(folder.as_fd(), layout::marker().as_str(), OFlag::O_PATH, 0) {
        Ok(_) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => {
            Err(RootError::System { act: "look for the marker of", path: path.to_owned(), source: errno.into() })
        }
    }
}

/// Refuses a folder without marker that holds anything but what an interrupted start of ours, a kubelet's `DirectoryOrCreate`, or
/// a new filesystem leaves.
pub(super) fn check_blank(folder: &OwnedFd, path: &Path) -> Result<(), RootError> {
    let look = Look { folder, path };
    for (name, kind) in look.names(".")? {
        let ours = match name.as_str() {
            "deployments" => look.check_skeleton()?,
            "condemned" | "lost+found" => kind == FileKind::Folder && look.names(&name)?.is_empty(),
            lock::NAME => look.is_lock()?,
            aside => {
                kind == FileKind::File
                    && durable::aside_of(aside.as_bytes()).is_some_and(|of| of == layout::marker().as_str())
            }
        };
        if !ours {
            return Err(RootError::Foreign { path: path.to_owned(), found: name });
        }
    }
    Ok(())
}

struct Look<'a> {
    folder: &'a OwnedFd,
    path: &'a Path,
}

impl Look<'_> {
    fn failed(&self, name: &str, errno: Errno) -> RootError {
        RootError::System { act: "look into", path: self.path.join(name), source: errno.into() }
    }

    fn names(&self, name: &str) -> Result<Vec<(String, FileKind)>, RootError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        resolve(self.folder.as_fd(), name, flags, 0).and_then(disk::names).map_err(|errno| {
            if Refusal::from(errno).fault == FileFault::Foreign {
                RootError::Foreign { path: self.path.to_owned(), found: name.to_owned() }
            } else {
                self.failed(name, errno)
            }
        })
    }

    /// Folders `<namespace>/<name>/`, and in those nothing but a `current` that was mounted once: what is in that one is for the
    /// steps of its own cache to judge.
    fn check_skeleton(&self) -> Result<bool, RootError> {
        let folder = |kind| kind == FileKind::Folder;
        for (namespace, kind) in self.names("deployments")? {
            if !folder(kind) || KubeNamespace::try_from(namespace.as_str()).is_err() {
                return Ok(false);
            }
            for (name, kind) in self.names(&format!("deployments/{namespace}"))? {
                if !folder(kind) || CacheName::try_from(name.as_str()).is_err() {
                    return Ok(false);
                }
                let inside = self.names(&format!("deployments/{namespace}/{name}"))?;
                if !inside.iter().all(|(name, kind)| name == "current" && folder(*kind)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// A file `lock` is ours if it is empty or holds a pid.
    fn is_lock(&self) -> Result<bool, RootError> {
        let read = |errno| self.failed(lock::NAME, errno);
        let Ok(file) = resolve(self.folder.as_fd(), lock::NAME, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0) else {
            return Ok(false);
        };
        let mut content = [0; lock::CONTENT_LENGTH_MAX + 1];
        if disk::kind_of(&super::stat_of(&file).map_err(read)?) != FileKind::File {
            return Ok(false);
        }
        let length = nix::sys::uio::pread(&file, &mut content, 0).map_err(read)?;
        let pid = |byte: &u8| byte.is_ascii_digit() || *byte == b'\n';
        Ok(length <= lock::CONTENT_LENGTH_MAX && content[..length].iter().all(pid))
    }
}

/// Removes what a crash left aside, in the folders that we write small files and links to.
/// What cannot be swept does not keep the agent from starting: it takes a few kilobytes and does no harm.
pub(super) fn sweep(root: &CacheRoot) {
    let deployments = layout::deployments();
    sweep_one(root, &TreePath::root());
    for namespace in folders(root, &deployments) {
        for cache in folders(root, &namespace) {
            sweep_one(root, &cache);
            for name in SWEPT {
                sweep_one(root, &cache.entry(name));
            }
        }
    }
}

fn folders(root: &CacheRoot, path: &TreePath) -> Vec<TreePath> {
    let names = disk::list(root, path).unwrap_or_else(|refusal| {
        tracing::warn!(%path, error = refusal.message, "could not look for files that were never finished");
        Vec::new()
    });
    let folder = |(name, kind): (String, FileKind)| (kind == FileKind::Folder).then(|| path.entry(&name));
    names.into_iter().filter_map(folder).collect()
}

fn sweep_one(root: &CacheRoot, path: &TreePath) {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let swept = root.open_below(path, flags, 0).and_then(|folder| Ok(durable::sweep(folder)?));
    match swept {
        Ok(0) => {}
        Ok(files) => tracing::info!(%path, files, "removed files that were never finished"),
        Err(Refusal { fault: FileFault::NotFound, .. }) => {}
        Err(refusal) => {
            tracing::warn!(%path, error = refusal.message, "could not remove files that were never finished")
        }
    }
}
