//! What the origins offered, as this process last heard it.
//!
//! The list of files of a snapshot is kept only until it is published: a million names are half a gigabyte.

use std::collections::BTreeMap;
use std::sync::Arc;

use stokehold_core::checksum::SnapshotId;
use stokehold_core::desired::Desired;
use stokehold_core::listing::Listing;
use stokehold_core::name::CacheId;
use stokehold_core::observed::ListingView;
use stokehold_core::time::Millis;

#[derive(Debug)]
struct Heard {
    view: ListingView,
    listing: Option<Arc<Listing>>,
}

/// Listings by cache.
#[derive(Debug, Default)]
pub(super) struct Listings(BTreeMap<CacheId, Heard>);

impl Listings {
    /// Takes in a listing; true where it offers something else than the one before.
    pub(super) fn put(
        &mut self,
        cache: &CacheId,
        listing: Arc<Listing>,
        origin_fingerprint: String,
        now: Millis,
    ) -> bool {
        let view = ListingView { origin_fingerprint, summary: listing.summary(), listed_at: now, is_stale: false };
        let before = self.0.insert(cache.clone(), Heard { view, listing: Some(listing.clone()) });
        before.is_none_or(|before| before.view.summary.snapshot != listing.id)
    }

    /// It was found to be out of date.
    pub(super) fn mark_stale(&mut self, cache: &CacheId) {
        if let Some(heard) = self.0.get_mut(cache) {
            heard.view.is_stale = true;
        }
    }

    /// The files of a snapshot, while they are known. They are forgotten once it is published; should it be lost then, the origin
    /// is listed again.
    pub(super) fn files(&mut self, cache: &CacheId, snapshot: SnapshotId) -> Option<Arc<Listing>> {
        let heard = self.0.get_mut(cache)?;
        let files = heard.listing.clone().filter(|listing| listing.id == snapshot);
        if files.is_none() {
            heard.view.is_stale = true;
        }
        files
    }

    /// A snapshot was published: its list of files is not needed any more.
    pub(super) fn forget_files(&mut self, cache: &CacheId) {
        if let Some(heard) = self.0.get_mut(cache) {
            heard.listing = None;
        }
    }

    pub(super) fn views(&self) -> BTreeMap<CacheId, ListingView> {
        self.0.iter().map(|(cache, heard)| (cache.clone(), heard.view.clone())).collect()
    }

    pub(super) fn keep_only(&mut self, desired: &Desired) {
        self.0.retain(|cache, _| desired.caches.contains_key(cache));
    }

    /// When the next listing is due, if that lies ahead.
    pub(super) fn next_due(&self, desired: &Desired, now: Millis) -> Option<Millis> {
        let due = desired.caches.iter().filter_map(|(id, cache)| {
            let interval = cache.weights.as_ref()?.check_interval;
            Some(self.0.get(id)?.view.listed_at.after(interval))
        });
        due.filter(|at| *at > now).min()
    }
}
