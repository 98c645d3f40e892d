//! What an origin holds right now: the files of a source, pinned, and the id that names exactly this state.
//!
//! In go the files an origin finds, in any order; out comes a sorted listing, or the key that cannot be staged. Memory is bounded
//! by [`FILES_MAX`]. Deliberately absent: endpoints and credentials. Every node and every credential computes the same id.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::checksum::{Checksum, Crc64, SnapshotId};
use crate::path::{ArtifactPath, BadKey, folders_of};
use crate::quantity::Bytes;

/// Most files of one snapshot. A listing of so many stays under half a gigabyte; a model has tens.
pub const FILES_MAX: usize = 1_000_000;

/// What a POSIX source looked like when it was listed; the guard that it is still the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatGuard {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Last change of content, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Last change of the inode, nanoseconds since 1970.
    pub ctime_ns: i128,
}

impl StatGuard {
    /// Tells one version of the file from another across restarts; without the device, whose number a remount changes.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = self.inode.to_le_bytes().to_vec();
        bytes.extend(self.mtime_ns.to_le_bytes());
        bytes.extend(self.ctime_ns.to_le_bytes());
        Crc64::of(&bytes).crc
    }
}

/// The version of one file: every byte read must belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// ETag, sent as If-Match. A token: never compared with content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Object version, where the bucket keeps versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    /// Stat guard of a POSIX source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stat: Option<StatGuard>,
}

/// One file of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it goes below the snapshot.
    pub path: ArtifactPath,
    /// Its length.
    pub size: Bytes,
    /// What the listing said of its version: ETag, commit, digest, or POSIX mtime. Part of the snapshot's id.
    pub token: String,
    /// How reads are tied to this version.
    pub pin: Pin,
    /// What the origin vouches for, where the listing already says so.
    pub checksum: Option<Checksum>,
}

/// Why a listing cannot be staged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadListing {
    /// A key cannot become a path.
    #[error(transparent)]
    Key(#[from] BadKey),
    /// More files than a snapshot may have.
    #[error("more than {FILES_MAX} files match; narrow `include`")]
    TooMany,
    /// Nothing there, or nothing that the filter lets through.
    #[error("no file matches: {seen} found, all of them left out by `include` and `exclude`, or none there at all")]
    Empty {
        /// How many files the origin has there.
        seen: u64,
    },
}

/// Which files of a source are wanted. A glob without `/` matches the basename.
#[derive(Debug, Clone)]
pub struct Filter {
    include: Option<Globs>,
    exclude: Globs,
}

#[derive(Debug, Clone)]
struct Globs {
    paths: GlobSet,
    names: GlobSet,
}

/// A text that is not a glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{glob:?} is not a glob: {why}")]
pub struct BadGlob {
    /// The text.
    pub glob: String,
    /// What is wrong with it.
    pub why: String,
}

impl Globs {
    fn new(globs: &[String]) -> Result<Self, BadGlob> {
        let mut paths = GlobSetBuilder::new();
        let mut names = GlobSetBuilder::new();
        for glob in globs {
            let bad = |error: globset::Error| BadGlob { glob: glob.clone(), why: error.kind().to_string() };
            let built = GlobBuilder::new(glob).literal_separator(true).build().map_err(bad)?;
            let _set = if glob.contains('/') { paths.add(built) } else { names.add(built) };
        }
        let bad = |error: globset::Error| BadGlob { glob: globs.join(", "), why: error.kind().to_string() };
        Ok(Self { paths: paths.build().map_err(bad)?, names: names.build().map_err(bad)? })
    }

    fn matches(&self, path: &ArtifactPath) -> bool {
        self.paths.is_match(path.as_str()) || self.names.is_match(path.basename())
    }
}

impl Filter {
    /// Files that match one of `include` (all, where that is empty) and none of `exclude`.
    ///
    /// # Errors
    /// [`BadGlob`] names the glob that cannot be read.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, BadGlob> {
        let include = if include.is_empty() { None } else { Some(Globs::new(include)?) };
        Ok(Self { include, exclude: Globs::new(exclude)? })
    }

    /// Whether this file is wanted.
    #[must_use]
    pub fn wants(&self, path: &ArtifactPath) -> bool {
        self.include.as_ref().is_none_or(|include| include.matches(path)) && !self.exclude.matches(path)
    }

    /// Whether a file of this key would be kept, so that an origin complains only of what matters. A key that cannot become a
    /// path is: [`ListingBuilder::push`] then says what is wrong with it.
    #[must_use]
    pub fn wants_key(&self, key: &str) -> bool {
        ArtifactPath::try_from(key).map_or(true, |path| self.wants(&path))
    }
}

/// A listing being made; an origin pushes what it finds.
#[derive(Debug)]
pub struct ListingBuilder {
    identity: String,
    filter: Filter,
    entries: Vec<Entry>,
    seen: u64,
}

impl ListingBuilder {
    /// Nothing found yet. `identity` names the source without endpoint and credentials.
    #[must_use]
    pub fn new(identity: String, filter: Filter) -> Self {
        Self { identity, filter, entries: Vec::new(), seen: 0 }
    }

    /// One object found: its key below the source, and the rest of an entry. A key that ends with `/` and has no bytes is a
    /// folder marker and is passed over; a bad key that the filter leaves out harms nobody.
    ///
    /// # Errors
    /// [`BadListing`] names the key that cannot be staged, or says that there are too many.
    pub fn push(
        &mut self,
        key: &str,
        size: Bytes,
        token: String,
        pin: Pin,
        checksum: Option<Checksum>,
    ) -> Result<(), BadListing> {
        if size == Bytes::ZERO && (key.is_empty() || key.ends_with('/')) {
            return Ok(());
        }
        self.seen += 1;
        let path = ArtifactPath::try_from(key)?;
        if !self.filter.wants(&path) {
            return Ok(());
        }
        if self.entries.len() >= FILES_MAX {
            return Err(BadListing::TooMany);
        }
        self.entries.push(Entry { path, size, token, pin, checksum });
        Ok(())
    }

    /// Which files are kept.
    #[must_use]
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The listing, sorted and checked as a tree.
    ///
    /// # Errors
    /// [`BadListing`] where paths clash or nothing is left.
    pub fn build(mut self) -> Result<Listing, BadListing> {
        if self.entries.is_empty() {
            return Err(BadListing::Empty { seen: self.seen });
        }
        self.entries.sort_by(|one, two| one.path.cmp(&two.path));
        let folders = folders_of(self.entries.iter().map(|entry| &entry.path))?;
        let id = snapshot_id(&self.identity, &self.entries);
        let bytes = self.entries.iter().map(|entry| entry.size).sum();
        Ok(Listing {
            id,
            identity: self.identity,
            bytes,
            folders: folders.into_iter().collect(),
            entries: self.entries,
        })
    }
}

/// A source as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The id of the snapshot that staging this gives.
    pub id: SnapshotId,
    /// The source, without endpoint and credentials.
    pub identity: String,
    /// Sum of all sizes.
    pub bytes: Bytes,
    /// Folders below the snapshot, parents first.
    pub folders: Vec<String>,
    /// The files, sorted by path.
    pub entries: Vec<Entry>,
}

impl Listing {
    /// What the planner needs to know of it.
    #[must_use]
    pub fn summary(&self) -> ListingSummary {
        let blocks = self.entries.iter().map(|entry| entry.size.rounded_up_to(BLOCK)).sum();
        ListingSummary {
            snapshot: self.id,
            files: self.entries.len() as u64,
            folders: self.folders.len() as u64,
            bytes: self.bytes,
            blocks,
        }
    }
}

/// Allocation unit of the filesystems we stage to.
pub const BLOCK: u64 = 4_096;

/// A listing without its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingSummary {
    /// The snapshot's id.
    pub snapshot: SnapshotId,
    /// Number of files.
    pub files: u64,
    /// Number of folders below the snapshot.
    pub folders: u64,
    /// Sum of sizes.
    pub bytes: Bytes,
    /// Sum of sizes, each rounded up to whole blocks.
    pub blocks: Bytes,
}

/// The first 64 bits of SHA-256 over identity and sorted (path, size, token), each length-prefixed so that no two lists read alike.
fn snapshot_id(identity: &str, entries: &[Entry]) -> SnapshotId {
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    field(identity.as_bytes());
    for entry in entries {
        field(entry.path.as_str().as_bytes());
        field(&entry.size.0.to_be_bytes());
        field(entry.token.as_bytes());
    }
    let digest = hash.finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    SnapshotId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(files: &[(&str, u64, &str)], include: &[&str]) -> Result<Listing, BadListing> {
        let include: Vec<String> = include.iter().map(ToString::to_string).collect();
        let filter = Filter::new(&include, &[]).expect("globs");
        let mut builder = ListingBuilder::new("s3://b/p/".to_owned(), filter);
        for (key, size, token) in files {
            builder.push(key, Bytes(*size), (*token).to_owned(), Pin::default(), None)?;
        }
        builder.build()
    }

    #[test]
    fn the_id_does_not_depend_on_the_order_of_the_listing() {
        let one = list(&[("b", 1, "x"), ("a", 2, "y")], &[]).expect("lists");
        let two = list(&[("a", 2, "y"), ("b", 1, "x")], &[]).expect("lists");
        assert_eq!(one, two);
        assert_ne!(one.id, list(&[("a", 2, "z"), ("b", 1, "x")], &[]).expect("lists").id);
        assert_ne!(one.id, list(&[("a", 3, "y"), ("b", 1, "x")], &[]).expect("lists").id);
    }

    #[test]
    fn folder_markers_are_passed_over_and_empty_files_are_kept() {
        let listing = list(&[("", 0, "m"), ("sub/", 0, "m"), ("sub/__init__.py", 0, "e")], &[]).expect("lists");
        assert_eq!(listing.entries.len(), 1);
        assert_eq!(listing.folders, ["sub"]);
    }

    #[test]
    fn a_glob_without_slash_matches_the_basename_and_one_with_slash_the_path() {
        let files = [("a/m.safetensors", 1, ""), ("m.bin", 1, ""), ("a/b/c.json", 1, ""), ("c.json", 1, "")];
        let names = |include: &[&str]| -> Vec<String> {
            list(&files, include).expect("lists").entries.iter().map(|entry| entry.path.to_string()).collect()
        };
        assert_eq!(names(&["*.safetensors"]), ["a/m.safetensors"]);
        assert_eq!(names(&["a/*.json", "*.bin"]), ["m.bin"]);
        assert_eq!(names(&["a/**/*.json"]), ["a/b/c.json"]);
        assert_eq!(list(&files, &["*.none"]), Err(BadListing::Empty { seen: 4 }));
    }
}
