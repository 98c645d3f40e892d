//! What origins ever held: every version of every file, by its ETag, for judging what is published.
//!
//! In: a manifest and the bytes on disk. Out: nothing, or in what they are not one listed version. Deliberately absent: what an
//! origin holds now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use stokehold_core::listing::{Filter, ListingBuilder};
use stokehold_core::record::Manifest;

/// One version of one file.
#[derive(Debug)]
pub struct Version {
    /// The source it is part of.
    pub identity: String,
    /// Path below the source.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// All versions. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Truth(Arc<Mutex<BTreeMap<String, Arc<Version>>>>);

impl Truth {
    /// A version came to be. ETags never repeat.
    ///
    /// # Panics
    /// Where this one did.
    pub fn add(&self, etag: &str, version: Arc<Version>) {
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(versions.insert(etag.to_owned(), version).is_none(), "the ETag {etag} came twice");
    }

    fn version(&self, etag: &str) -> Option<Arc<Version>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(etag).cloned()
    }

    /// Whether a snapshot is exactly what its id says: these files at these versions, byte by byte.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge<'a>(&self, manifest: &Manifest, bytes_of: impl Fn(&str) -> Option<&'a [u8]>) -> Result<(), String> {
        let everything = Filter::new(&[], &[]).map_err(|error| error.to_string())?;
        let mut listed = ListingBuilder::new(manifest.identity.clone(), everything);
        for file in &manifest.files {
            let path = file.path.as_str();
            let etag = file.pin.etag.clone().unwrap_or_default();
            let version = self.version(&etag).ok_or_else(|| format!("{path} has a version {etag:?} that never was"))?;
            if (version.identity.as_str(), version.path.as_str()) != (manifest.identity.as_str(), path) {
                return Err(format!("{path} is a version of {} in {}", version.path, version.identity));
            }
            let found = bytes_of(path).ok_or_else(|| format!("{path} is missing"))?;
            if let Some(at) = first_difference(found, &version.bytes) {
                let (found, expected) = (found.len(), version.bytes.len());
                return Err(format!("{path} differs from {etag} at byte {at} ({found} bytes, expected {expected})"));
            }
            let pushed = listed.push(path, file.size, etag, file.pin.clone(), None);
            pushed.map_err(|error| format!("{path}: {error}"))?;
        }
        let listing = listed.build().map_err(|error| error.to_string())?;
        if listing.id != manifest.snapshot {
            return Err(format!("its files make {} and not {}: a mix of versions", listing.id, manifest.snapshot));
        }
        Ok(())
    }
}

/// Where two runs of bytes begin to differ.
fn first_difference(one: &[u8], two: &[u8]) -> Option<usize> {
    if one == two {
        return None;
    }
    Some(one.iter().zip(two).position(|(one, two)| one != two).unwrap_or_else(|| one.len().min(two.len())))
}
