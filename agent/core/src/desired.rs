//! What this node is asked to keep, checked.
//!
//! In go documents of the schema in [`api`](crate::api); out come the good ones as [`DesiredCache`] and the bad ones as
//! [`Rejected`], each with its reason. Deliberately absent: reading files, and any judgement about what the node can do.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::checksum::SnapshotId;
use crate::listing::{BadGlob, Filter};
use crate::name::CacheId;
use crate::quantity::Bytes;
use crate::source::Source;

mod accept;

pub use accept::{
    CHECK_INTERVAL_MAX, CHECK_INTERVAL_MIN, Offered, RETAIN_AFTER_DELETE_MAX, Unreadable, accept, desired, id_of,
};

/// All that is asked of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// The caches asked for.
    pub caches: BTreeMap<CacheId, DesiredCache>,
    /// What was offered and could not be read; nothing else is lost by it.
    pub rejected: Vec<Rejected>,
    /// A document could not even be recognised: it may ask for any cache, so nothing on disk counts as unwanted meanwhile.
    pub may_hide_caches: bool,
}

/// A document that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rejected {
    /// Where it stands: a file, with line and column where known.
    pub place: String,
    /// Which cache it would have been, where that much could be read. What is on disk for it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheId>,
    /// What is wrong: which field, which value, what is allowed.
    pub reason: String,
}

/// One cache that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredCache {
    /// Which.
    pub id: CacheId,
    /// Weights to stage.
    pub weights: Option<DesiredWeights>,
    /// Whether it asks for weights at all, even from a source that this release cannot read.
    pub asks_for_weights: bool,
    /// Whether it asks for images.
    pub asks_for_images: bool,
    /// Most bytes it may use here; else what the listing needs.
    pub limit: Option<Bytes>,
    /// Higher stages first and gets its turns on the link first.
    pub priority: i32,
    /// How long bytes stay after it is no longer asked for.
    pub retain_after_delete: Duration,
    /// Fields that are set and that this release does not act on, as paths such as `spec.images`.
    pub not_in_this_release: Vec<String>,
    /// Why a `CachePolicy` refuses it, where one does.
    pub refused: Option<String>,
}

/// Weights that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredWeights {
    /// Where they come from.
    pub source: Source,
    /// Globs of files to take; empty takes all.
    pub include: Vec<String>,
    /// Globs of files to leave.
    pub exclude: Vec<String>,
    /// The snapshot that must be served, where a person pinned one.
    pub revision: Option<SnapshotId>,
    /// What happens when the origin offers another snapshot.
    pub update: Update,
    /// How often the origin is listed.
    pub check_interval: Duration,
    /// What proof is asked of the bytes.
    pub verification: Verification,
}

/// What happens when the origin offers another snapshot than the one served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Update {
    /// It is offered, and served when `revision` names it.
    #[default]
    Manual,
    /// It is served.
    Automatic,
}

/// What proof is asked of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Verification {
    /// The strongest that the origin offers; status says which.
    #[default]
    BestOffered,
    /// A source that offers no checksum for a file is refused.
    Required,
}

impl DesiredWeights {
    /// The filter of its globs.
    ///
    /// # Errors
    /// [`BadGlob`] names the glob that cannot be read.
    pub fn filter(&self) -> Result<Filter, BadGlob> {
        Filter::new(&self.include, &self.exclude)
    }

    /// Tells whether something on disk was made for this source and this choice of files: 16 hex digits.
    #[must_use]
    pub fn origin_fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        field(&self.source.identity());
        for (list, globs) in [("include", &self.include), ("exclude", &self.exclude)] {
            field(list);
            globs.iter().for_each(|glob| field(glob));
        }
        hex::encode(&hash.finalize()[..8])
    }
}

#[cfg(test)]
mod tests;
