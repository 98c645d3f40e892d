//! Buckets of the faulty server: kept objects beside a made listing of any size.
//!
//! In: objects, and rules for made ones. Out: an object by key, a page of a listing. A made listing of a million keys
//! costs no memory: key, size, ETag and bytes follow from the index. Deliberately absent: versions, delimiters.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, OnceLock},
};

use crate::lab::{
    fault_s3::content::{Body, Checksums},
    seed,
};

/// A rule that makes objects: `<prefix><nine digits>`, each of `len` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// Start of every key.
    pub prefix: String,
    /// How many keys, at most a thousand million.
    pub count: u64,
    /// Bytes of each object.
    pub len: u64,
    /// Seed of the bytes; each object has a stream of its own.
    pub seed: u64,
    /// Checksum of each object.
    pub checksums: Checksums,
}

impl Synthetic {
    /// Key of the object at `index`, counted from 0.
    pub fn key(&self, index: u64) -> String {
        format!("{}{index:09}", self.prefix)
    }

    /// Bytes of the object at `index`.
    pub fn body(&self, index: u64) -> Body {
        Body::Seeded { seed: seed::mix(self.seed ^ seed::mix(index)), len: self.len }
    }

    fn object(&self, index: u64) -> Object {
        Object::new(self.body(index), self.checksums)
    }

    fn find(&self, key: &str) -> Option<Object> {
        let index = key.strip_prefix(&self.prefix)?.parse().ok()?;
        (index < self.count && self.key(index) == key).then(|| self.object(index))
    }

    /// Index of the first key that is not before `bound`: keys rise with their index, so halving finds it.
    fn first(&self, bound: Bound<&str>) -> u64 {
        let before = |key: &str| match bound {
            Bound::Unbounded => false,
            Bound::Included(limit) => key < limit,
            Bound::Excluded(limit) => key <= limit,
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// An object as stored.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) body: Body,
    pub(super) etag: String,
    pub(super) checksums: Checksums,
    /// Computed when first asked for: it reads the whole object.
    checksum: Arc<OnceLock<Option<(&'static str, String)>>>,
}

impl Object {
    pub(super) fn new(body: Body, checksums: Checksums) -> Self {
        Self { etag: body.etag(), body, checksums, checksum: Arc::default() }
    }

    pub(super) fn checksum(&self) -> Option<&(&'static str, String)> {
        self.checksum.get_or_init(|| self.checksums.of(&self.body)).as_ref()
    }
}

/// One bucket.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    objects: BTreeMap<String, Object>,
    synthetic: Option<Synthetic>,
}

/// One page of a listing, and whether keys are left after it.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) entries: Vec<(String, Object)>,
    pub(super) is_truncated: bool,
}

impl Bucket {
    pub(super) fn put(&mut self, key: &str, object: Object) {
        self.objects.insert(key.to_owned(), object);
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.objects.remove(key);
    }

    pub(super) fn set_synthetic(&mut self, synthetic: Synthetic) {
        self.synthetic = Some(synthetic);
    }

    pub(super) fn object(&self, key: &str) -> Option<Object> {
        self.objects.get(key).cloned().or_else(|| self.synthetic.as_ref()?.find(key))
    }

    /// Up to `max` objects whose keys start with `prefix` and come after `after`, in order of their keys.
    pub(super) fn page(&self, prefix: &str, after: Option<&str>, max: usize) -> Page {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix),
        };
        let kept = self.objects.range::<str, _>((from, Bound::Unbounded));
        let kept = kept.map(|(key, object)| (key.clone(), object.clone()));
        let kept = kept.take_while(|(key, _)| key.starts_with(prefix)).take(max + 1);
        let mut entries: BTreeMap<String, Object> = BTreeMap::new();
        if let Some(rule) = &self.synthetic {
            let made = (rule.first(from)..rule.count).map(|index| (rule.key(index), index));
            let made = made.take_while(|(key, _)| key.starts_with(prefix)).take(max + 1);
            entries.extend(made.map(|(key, index)| (key, rule.object(index))));
        }
        // A kept object hides a made one of the same key, as in `object`.
        entries.extend(kept);
        let is_truncated = entries.len() > max;
        Page { entries: entries.into_iter().take(max).collect(), is_truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Synthetic {
        Synthetic { prefix: "m/".to_owned(), count: 1_000_000, len: 10, seed: 1, checksums: Checksums::None }
    }

    fn keys(bucket: &Bucket, prefix: &str, after: Option<&str>, max: usize) -> Vec<String> {
        bucket.page(prefix, after, max).entries.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn a_page_starts_after_its_token_and_mixes_kept_and_made_keys_in_order() {
        let mut bucket = Bucket::default();
        bucket.set_synthetic(rule());
        bucket.put("a", Object::new(Body::bytes("x"), Checksums::None));
        bucket.put("m/000000001a", Object::new(Body::bytes("x"), Checksums::None));
        assert_eq!(keys(&bucket, "", None, 3), ["a", "m/000000000", "m/000000001"]);
        assert_eq!(keys(&bucket, "", Some("m/000000001"), 2), ["m/000000001a", "m/000000002"]);
        assert_eq!(keys(&bucket, "m/0000000", Some("a"), 1), ["m/000000000"]);
        assert_eq!(keys(&bucket, "m/", Some("m/000999998"), 9), ["m/000999999"]);
        assert!(keys(&bucket, "z", None, 9).is_empty());
    }

    #[test]
    fn a_made_key_is_found_only_as_it_is_written() {
        let mut bucket = Bucket::default();
        bucket.set_synthetic(rule());
        assert!(bucket.object("m/000999999").is_some());
        for wrong in ["m/001000000", "m/5", "m/+00000005", "000000005"] {
            assert!(bucket.object(wrong).is_none(), "{wrong}");
        }
    }
}
