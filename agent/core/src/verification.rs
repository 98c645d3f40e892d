//! Reading a published snapshot again: are its bytes still what was published?
//!
//! Where they are, the manifest takes over the times the files have now; where they are not, the manifest goes and with it the
//! claim. Deliberately absent: repair. What is corrupt is staged anew.

use crate::checksum::ChecksumKind;
use crate::file_op::{FileError, FileFault, FileKind, FileOp, FileStat, TreeEntry};
use crate::layout::SnapshotLayout;
use crate::port::{Disk, Tree};
use crate::record::{MANIFEST_BYTES_MAX, Manifest, ManifestFile, decode, encode};

/// Why a snapshot could not be vouched for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] FileError),
    /// A file is not what was published.
    #[error("{file} {what}")]
    Corrupt {
        /// Which file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
}

/// What a file in its folder must have in common with its line of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    /// Kind, length, inode and times: nobody touched it since.
    Untouched,
    /// Kind and length: its bytes are still to be read.
    Shape,
}

/// The first difference between a manifest and the files in its folder, as (file, what).
#[must_use]
pub fn first_difference(manifest: &Manifest, entries: &[TreeEntry]) -> Option<(String, String)> {
    first_unlike(manifest, entries, Likeness::Untouched)
}

/// Goes along both lists once, sorted by path.
fn first_unlike(manifest: &Manifest, entries: &[TreeEntry], likeness: Likeness) -> Option<(String, String)> {
    let mut found = entries.iter().filter(|entry| entry.stat.kind != FileKind::Folder).collect::<Vec<_>>();
    found.sort_by(|one, two| one.path.cmp(&two.path));
    let mut found = found.into_iter().peekable();
    for file in &manifest.files {
        match found.next_if(|entry| entry.path.as_str() <= file.path.as_str()) {
            Some(entry) if entry.path == file.path.as_str() => {
                if let Some(what) = difference(file, &entry.stat, likeness) {
                    return Some((file.path.to_string(), what));
                }
            }
            Some(extra) => return Some((extra.path.clone(), "is there and was not published".to_owned())),
            None => return Some((file.path.to_string(), "is missing".to_owned())),
        }
    }
    found.next().map(|extra| (extra.path.clone(), "is there and was not published".to_owned()))
}

fn difference(file: &ManifestFile, stat: &FileStat, likeness: Likeness) -> Option<String> {
    if stat.kind != FileKind::File {
        return Some(format!("is a {:?}, not a file", stat.kind));
    }
    if stat.size != file.size {
        return Some(format!("has {} bytes instead of {}", stat.size.0, file.size.0));
    }
    match likeness {
        Likeness::Shape => None,
        Likeness::Untouched if stat.inode != file.inode => Some("was replaced".to_owned()),
        Likeness::Untouched => {
            (stat.mtime_ns != file.mtime_ns || stat.ctime_ns != file.ctime_ns).then(|| "was touched".to_owned())
        }
    }
}

/// Reads every file and compares it with the manifest.
///
/// # Errors
/// [`VerifyError::Corrupt`] names the first wrong file; the manifest is gone then.
pub async fn verify<D: Disk>(tree: Tree<'_, D>, layout: &SnapshotLayout) -> Result<Manifest, VerifyError> {
    let bytes = tree.read(layout.manifest.clone(), MANIFEST_BYTES_MAX).await?;
    let manifest = decode::<Manifest>(&bytes);
    let checked = match manifest {
        Ok(manifest) => check(tree, layout, manifest).await,
        Err(error) => Err(VerifyError::Corrupt { file: layout.manifest.name().to_owned(), what: error.to_string() }),
    };
    match checked {
        Ok(manifest) => {
            let write = FileOp::Replace { path: layout.manifest.clone(), bytes: encode(&manifest), mode: 0o444 };
            tree.act(write).await?;
            Ok(manifest)
        }
        Err(corrupt @ VerifyError::Corrupt { .. }) => {
            tree.act(FileOp::Unlink { path: layout.manifest.clone(), unused_only: false }).await?;
            tree.act(FileOp::SyncDir { path: layout.manifest.parent() }).await?;
            Err(corrupt)
        }
        Err(disk @ VerifyError::Disk(_)) => Err(disk),
    }
}

async fn check<D: Disk>(
    tree: Tree<'_, D>,
    layout: &SnapshotLayout,
    mut manifest: Manifest,
) -> Result<Manifest, VerifyError> {
    let entries = tree.walk(layout.published.clone()).await?;
    if let Some((file, what)) = first_unlike(&manifest, &entries, Likeness::Shape) {
        return Err(VerifyError::Corrupt { file, what });
    }
    for file in &mut manifest.files {
        let corrupt = |what: String| VerifyError::Corrupt { file: file.path.to_string(), what };
        let path = layout.published.artifact(&file.path);
        let stat = match tree.stat(path.clone()).await {
            Ok(stat) => stat,
            Err(error) if error.fault == FileFault::NotFound => return Err(corrupt("is missing".to_owned())),
            Err(error) => return Err(error.into()),
        };
        // Looked at again: the times that the manifest takes over are those just before the bytes are read.
        if let Some(what) = difference(file, &stat, Likeness::Shape) {
            return Err(corrupt(what));
        }
        let found = tree.checksum(path, 0, file.size.0, ChecksumKind::Crc64Nvme).await?;
        if found.hex != file.crc64nvme {
            return Err(corrupt(format!("has crc64nvme {} instead of {}", found.hex, file.crc64nvme)));
        }
        file.inode = stat.inode;
        file.mtime_ns = stat.mtime_ns;
        file.ctime_ns = stat.ctime_ns;
    }
    Ok(manifest)
}
