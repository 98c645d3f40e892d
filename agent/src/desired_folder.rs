//! What is desired of a standalone node: a folder of YAML files.
//!
//! In goes a folder; out come its documents, checked, and what could not be read with file, line, column and reason. A file that
//! breaks never makes a cache unwanted: what was last read in it stays rejected by name, so that its bytes stay, and the policies
//! last read in it stay in force. Deliberately absent: any write.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use stokehold_core::api::{CachePolicyDocument, Document};
use stokehold_core::desired::{Desired, DesiredCache, Offered, Rejected, Unreadable, desired};
use stokehold_core::name::CacheId;

mod document;
mod watch;

use document::{Piece, pieces};
pub use watch::watch;

/// Largest file that is read: a thousand documents fit.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files of the folder: bounds the memory and the time of one reading.
pub const FILES_MAX: usize = 1_000;

/// The folder as such cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be listed.
    #[error("could not list the folder of desired files {}", folder.display())]
    List {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There are too many files to look at.
    #[error("the folder of desired files {} holds more than {FILES_MAX} YAML files", folder.display())]
    TooMany {
        /// The folder.
        folder: PathBuf,
    },
}

/// A folder of YAML files, and what was last read in each.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    remembered: BTreeMap<String, Remembered>,
    /// Each cache as it was last asked for, while anything still asks for it.
    good: BTreeMap<CacheId, DesiredCache>,
    last: Desired,
}

/// What was last recognised in one file.
#[derive(Debug, Clone, Default)]
struct Remembered {
    caches: BTreeSet<CacheId>,
    policies: Vec<(String, CachePolicyDocument)>,
}

/// Reads a folder once.
///
/// # Errors
/// [`FolderError`] where the folder as such cannot be read; a bad file in it is a rejected entry.
pub fn read(folder: &Path) -> Result<Desired, FolderError> {
    Folder::open(folder).map(|(_folder, desired)| desired)
}

impl Folder {
    /// Reads the folder for the first time. A folder that is missing now is a mistake of configuration.
    ///
    /// # Errors
    /// [`FolderError`] where the folder as such cannot be read.
    pub fn open(path: &Path) -> Result<(Self, Desired), FolderError> {
        let mut folder = Self {
            path: path.to_owned(),
            remembered: BTreeMap::new(),
            good: BTreeMap::new(),
            last: Desired::default(),
        };
        folder.last = folder.look()?;
        let desired = folder.last.clone();
        Ok((folder, desired))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the folder again. One that cannot be read is never taken for empty: what was read last stays, and one more rejected
    /// entry, whose place is the folder, says why.
    pub fn read(&mut self) -> Desired {
        match self.look() {
            Ok(desired) => {
                self.last = desired;
                self.last.clone()
            }
            Err(error) => {
                let reason = match std::error::Error::source(&error) {
                    Some(cause) => format!("{error}: {cause}"),
                    None => error.to_string(),
                };
                let mut desired = self.last.clone();
                desired.rejected.push(Rejected { place: self.place(), cache: None, reason });
                desired
            }
        }
    }

    /// The folder as the place of a rejected entry.
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn look(&mut self) -> Result<Desired, FolderError> {
        let files = yaml_files(&self.path)?;
        self.remembered.retain(|file, _| files.contains(file));
        let mut offered = Vec::new();
        for file in files {
            let found = match read_file(&self.path.join(&file)) {
                Ok(text) => pieces(&file, &text),
                Err(reason) => {
                    let unreadable = Unreadable { cache: None, may_be_policy: false, hides_caches: true, reason };
                    vec![Piece { place: file.clone(), document: Err(unreadable) }]
                }
            };
            let remembered = self.remembered.entry(file).or_default();
            offered.extend(with_memory(found, remembered));
        }
        Ok(self.with_last_good(desired(offered)))
    }

    /// A document that breaks leaves its cache asked for as it last was: a slip of the pen does not send pods elsewhere. Not where
    /// policies stand in the folder: what was allowed then may be forbidden now.
    fn with_last_good(&mut self, mut desired: Desired) -> Desired {
        let has_policies = self.remembered.values().any(|remembered| !remembered.policies.is_empty());
        let broken: BTreeSet<CacheId> = desired.rejected.iter().filter_map(|rejected| rejected.cache.clone()).collect();
        self.good.retain(|id, _| broken.contains(id) && !has_policies);
        for (id, cache) in &self.good {
            desired.caches.entry(id.clone()).or_insert_with(|| cache.clone());
        }
        self.good.extend(desired.caches.iter().map(|(id, cache)| (id.clone(), cache.clone())));
        desired
    }
}

/// What a file says now, completed by what it last said where something in it cannot be recognised.
fn with_memory(mut found: Vec<Piece>, remembered: &mut Remembered) -> Vec<Offered> {
    let seen: BTreeSet<CacheId> = found.iter().filter_map(Piece::cache).collect();
    let hidden = found.iter().find(|piece| piece.hides()).cloned();
    let policies: Vec<(String, CachePolicyDocument)> = found
        .iter()
        .filter_map(|piece| match &piece.document {
            Ok(Document::CachePolicy(policy)) => Some((piece.place.clone(), (**policy).clone())),
            Ok(Document::InferenceCache(_)) | Err(_) => None,
        })
        .collect();
    let may_be_policy = found.iter().any(|piece| matches!(&piece.document, Err(bad) if bad.may_be_policy));
    let mut now = Remembered { caches: seen, policies };

    let mut lost: Vec<CacheId> = Vec::new();
    if hidden.is_some() {
        lost = remembered.caches.difference(&now.caches).cloned().collect();
    }
    let mut standing = Vec::new();
    if hidden.is_some() || may_be_policy {
        let is_said_now = |name| now.policies.iter().any(|(_place, policy)| &policy.metadata.name == name);
        standing = remembered.policies.iter().filter(|(_, old)| !is_said_now(&old.metadata.name)).cloned().collect();
    }
    if !standing.is_empty() {
        // The last good version stands in for what cannot be read.
        found.iter_mut().for_each(|piece| {
            if let Err(bad) = &mut piece.document {
                bad.may_be_policy = false;
            }
        });
    }
    now.caches.extend(lost.iter().cloned());
    now.policies.extend(standing.iter().cloned());
    *remembered = now;

    let mut offered = Vec::new();
    for piece in found {
        // Where it is known which caches a broken piece takes away, they are named instead.
        if piece.hides() && !lost.is_empty() {
            continue;
        }
        offered.push(Offered { place: piece.place, document: piece.document });
    }
    if let Some(Piece { place, document: Err(bad), .. }) = hidden {
        offered.extend(lost.into_iter().map(|cache| Offered {
            place: place.clone(),
            document: Err(Unreadable {
                cache: Some(cache),
                may_be_policy: false,
                hides_caches: false,
                reason: bad.reason.clone(),
            }),
        }));
    }
    offered.extend(
        standing
            .into_iter()
            .map(|(place, policy)| Offered { place, document: Ok(Document::CachePolicy(Box::new(policy))) }),
    );
    offered
}

/// Names of the YAML files of a folder, sorted. Hidden ones are the editors' and the kubelet's own.
fn yaml_files(folder: &Path) -> Result<BTreeSet<String>, FolderError> {
    let list = |source| FolderError::List { folder: folder.to_owned(), source };
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(list)? {
        let name = entry.map_err(list)?.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || !(name.ends_with(".yaml") || name.ends_with(".yml")) {
            continue;
        }
        files.insert(name);
        if files.len() > FILES_MAX {
            return Err(FolderError::TooMany { folder: folder.to_owned() });
        }
    }
    Ok(files)
}

/// The text of one file, or why it cannot be had.
fn read_file(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("could not be read: {error}");
    // A named pipe would be waited on for ever; a mounted ConfigMap is links, so links are followed.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(failed)?;
    let status = file.metadata().map_err(failed)?;
    if !status.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| format!("is not UTF-8 text: {error}"))
}

#[cfg(test)]
mod tests;
