//! What is asked of the node, and the models behind it, as people change both.

use std::time::Duration;

use stokehold_core::checksum::ChecksumKind;
use stokehold_core::desired::{Desired, DesiredCache, DesiredWeights, Update, Verification};
use stokehold_core::name::CacheId;
use stokehold_core::quantity::Bytes;
use stokehold_core::source::{S3Source, Source};

use crate::lab::seed;
use crate::sim::origin::SimOrigin;
use crate::sim::rng::Rng;

/// Where files of a model may stand.
const PATHS: &[&str] =
    &["config.json", "model-1.safetensors", "model-2.safetensors", "tokenizer/vocab.json", "a/b/c/deep.bin", "empty"];
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = 60_000;

/// One cache that was ever asked for.
#[derive(Debug, Clone)]
pub(super) struct AskedCache {
    pub(super) cache: DesiredCache,
    pub(super) is_wanted: bool,
}

/// All caches, wanted now or not.
pub(super) struct Asked {
    pub(super) caches: Vec<AskedCache>,
}

impl Asked {
    pub(super) fn new(rng: &mut Rng, count: u64, origin: &SimOrigin) -> Self {
        let caches = (0..count).map(|number| {
            // Now and then two deployments serve one model.
            let model = if rng.chance(200_000) { 0 } else { number };
            let source = S3Source::new("models", &format!("m{model}")).expect("a good source");
            AskedCache { cache: cache(rng, number, Source::S3(source)), is_wanted: true }
        });
        let asked = Self { caches: caches.collect() };
        for source in asked.sources() {
            for path in PATHS {
                if rng.chance(600_000) {
                    put(rng, origin, &source, path);
                }
            }
            put(rng, origin, &source, PATHS[1]);
        }
        asked
    }

    /// Each source once.
    pub(super) fn sources(&self) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::new();
        for asked in &self.caches {
            if let Some(weights) = &asked.cache.weights
                && !sources.contains(&weights.source)
            {
                sources.push(weights.source.clone());
            }
        }
        sources
    }

    /// What is wanted now.
    pub(super) fn desired(&self) -> Desired {
        let wanted = self.caches.iter().filter(|asked| asked.is_wanted);
        let caches = wanted.map(|asked| (asked.cache.id.clone(), asked.cache.clone()));
        Desired { caches: caches.collect(), ..Desired::default() }
    }
}

fn cache(rng: &mut Rng, number: u64, source: Source) -> DesiredCache {
    let weights = DesiredWeights {
        source,
        include: Vec::new(),
        exclude: Vec::new(),
        revision: None,
        update: if rng.chance(600_000) { Update::Automatic } else { Update::Manual },
        check_interval: Duration::from_secs(*rng.pick(&[10, 60, 120, 600])),
        verification: Verification::BestOffered,
    };
    DesiredCache {
        id: CacheId::new("ns", &format!("cache-{number}")).expect("a good name"),
        weights: Some(weights),
        asks_for_weights: true,
        asks_for_images: false,
        limit: rng.chance(200_000).then(|| Bytes(rng.between(17, 40) << 20)),
        priority: i32::try_from(rng.below(3)).unwrap_or(0),
        retain_after_delete: Duration::from_secs(*rng.pick(&[0, 5, 60, 600])),
        not_in_this_release: Vec::new(),
        refused: None,
    }
}

/// A file, or a new version of one.
pub(super) fn put(rng: &mut Rng, origin: &SimOrigin, source: &Source, path: &str) {
    let size = match path {
        "empty" => 0,
        "config.json" => rng.between(1, 2_000),
        _shard => rng.between(1, FILE_BYTES_MAX),
    };
    let kinds = [
        None,
        Some(ChecksumKind::Crc64Nvme),
        Some(ChecksumKind::Crc64Nvme),
        Some(ChecksumKind::Sha256),
        Some(ChecksumKind::Crc32c),
    ];
    let bytes = seed::bytes(rng.draw(), usize::try_from(size).unwrap_or_default());
    origin.put(source, path, bytes, *rng.pick(&kinds));
}

/// A place for a file.
pub(super) fn path(rng: &mut Rng) -> &'static str {
    rng.pick::<&'static str>(PATHS)
}
