//! One cache and one made model, and what an agent would do about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stokehold_core::checksum::{Checksum, ChecksumKind, Crc64, Hasher, SnapshotId};
use stokehold_core::creation::create;
use stokehold_core::eviction::{delete_condemned, evict};
use stokehold_core::journal::Piece;
use stokehold_core::layout::{CacheLayout, condemned};
use stokehold_core::listing::{Filter, Listing, ListingBuilder, Pin};
use stokehold_core::name::CacheId;
use stokehold_core::observed::{CacheView, Current, SnapshotView};
use stokehold_core::port::{Pinned, Tree};
use stokehold_core::publishing::{Publication, point_current, publish};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::{DeploymentRecord, RECORD_VERSION};
use stokehold_core::seen::Seen;
use stokehold_core::staging::{StageError, StageOrder, Staging};
use stokehold_core::survey::survey;
use stokehold_core::time::{Millis, WallTime};
use stokehold_tests::lab::seed;
use stokehold_tests::sim::disk::SimDisk;
use stokehold_tests::sim::script::Stage;
use stokehold_tests::sim::truth::Version;

/// The source of the model.
const IDENTITY: &str = "s3://models/m/";
/// Bytes that arrive at a time.
pub(crate) const PIECE_BYTES: u64 = 3_000;
/// Time between two pieces: a watermark is due after every third.
const PIECE_MS: u64 = 400;

/// A model of one version, as an origin lists it.
pub(crate) struct Model {
    pub(crate) listing: Listing,
    pub(crate) pinned: Vec<Pinned>,
    pub(crate) files: Vec<Vec<u8>>,
}

/// The model whose content comes from this number.
pub(crate) fn model(version: u64) -> Model {
    let shape: [(&str, usize, Option<ChecksumKind>); 5] = [
        ("config.json", 700, None),
        ("empty", 0, Some(ChecksumKind::Crc64Nvme)),
        ("shards/a/one.bin", 9_000, Some(ChecksumKind::Crc64Nvme)),
        ("shards/two.bin", 5_000, Some(ChecksumKind::Sha256)),
        ("shards/unproven", 4_096, None),
    ];
    let everything = Filter::new(&[], &[]).expect("no globs");
    let mut builder = ListingBuilder::new(IDENTITY.to_owned(), everything);
    let (mut files, mut pinned) = (Vec::new(), Vec::new());
    for (index, (path, size, vouched)) in shape.into_iter().enumerate() {
        let bytes = seed::bytes(version * 10 + index as u64, size);
        let etag = etag(version, path);
        let pin = Pin { etag: Some(etag.clone()), ..Pin::default() };
        builder.push(path, Bytes(size as u64), etag, pin.clone(), None).expect("a good key");
        pinned.push(Pinned { pin, checksum: vouched.map(|kind| checksum(kind, &bytes)) });
        files.push(bytes);
    }
    Model { listing: builder.build().expect("files"), pinned, files }
}

fn etag(version: u64, path: &str) -> String {
    format!("{path}-{version}")
}

fn checksum(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    let mut hasher = Hasher::new(kind);
    hasher.update(bytes);
    hasher.finish()
}

/// The origin holds this version.
pub(crate) fn offer(stage: &Stage, version: u64) -> Model {
    let model = model(version);
    for (entry, bytes) in model.listing.entries.iter().zip(&model.files) {
        let path = entry.path.to_string();
        let held = Version { identity: IDENTITY.to_owned(), path: path.clone(), bytes: bytes.clone() };
        stage.truth.add(&etag(version, &path), Arc::new(held));
    }
    model
}

/// The cache that all of this is about.
pub(crate) fn cache() -> CacheId {
    CacheId::new("ns", "name").expect("checked")
}

/// Its folder.
pub(crate) const FOLDER: &str = "deployments/ns/name";

pub(crate) fn layout() -> CacheLayout {
    CacheLayout::new(&cache())
}

pub(crate) fn record() -> DeploymentRecord {
    DeploymentRecord {
        version: RECORD_VERSION,
        target: None,
        origin_fingerprint: "of-the-model".to_owned(),
        retain_after_delete_s: 0,
        priority: 0,
        unwanted_since: None,
        in_hand: None,
    }
}

pub(crate) async fn made(stage: &Stage) {
    create(Tree(&stage.disk), &layout(), &record()).await.expect("made");
}

/// Fetches what is missing of a model, proves and publishes it, and points to it. `fetched` counts bytes.
pub(crate) async fn stage_model(disk: &SimDisk, model: &Model, fetched: &AtomicU64) -> Result<(), StageError> {
    let tree = Tree(disk);
    let order = StageOrder::new(&model.listing, model.pinned.clone(), layout().snapshot(model.listing.id));
    let mut now = Millis(0);
    let mut staging = Staging::prepare(tree, order, now).await?;
    let moved = fetch(disk, model, &mut staging, fetched, &mut now).await;
    // Also after a failure, as the real job does: what was received is not to be fetched again.
    staging.mark(tree, now).await?;
    moved?;
    staging.prove_all(tree, now).await?;
    let whole = staging.whole().expect("every gap was filled");
    let publication = Publication {
        identity: IDENTITY.to_owned(),
        origin_fingerprint: "of-the-model".to_owned(),
        now: WallTime(0),
        immutable: true,
    };
    publish(tree, staging.order(), &whole, &publication).await?;
    point_current(tree, &layout(), Some(model.listing.id)).await?;
    Ok(())
}

async fn fetch(
    disk: &SimDisk,
    model: &Model,
    staging: &mut Staging,
    fetched: &AtomicU64,
    now: &mut Millis,
) -> Result<(), StageError> {
    for (file, gap) in staging.gaps() {
        let mut at = gap.start;
        while at < gap.end {
            let end = (at + PIECE_BYTES).min(gap.end);
            let bytes = &model.files[file as usize][at as usize..end as usize];
            let to = staging.order().incoming(&staging.order().files[file as usize]);
            disk.write(&to, at, bytes).await?;
            fetched.fetch_add(end - at, Ordering::Relaxed);
            *now = Millis(now.0 + PIECE_MS);
            staging.record(Tree(disk), Piece { file, offset: at, crc: Crc64::of(bytes) }, *now).await?;
            at = end;
        }
    }
    Ok(())
}

/// Makes the cache and publishes a model in it.
pub(crate) async fn published(stage: &Stage, model: &Model) {
    made(stage).await;
    stage_model(&stage.disk, model, &AtomicU64::new(0)).await.expect("published");
    assert_eq!(stage.disk.peek_link(&format!("{FOLDER}/current")), Some(format!("snapshots/{}", model.listing.id)));
}

/// What the agent sees of the cache.
pub(crate) async fn seen(stage: &Stage) -> CacheView {
    let Seen::Present(mut caches) = survey(Tree(&stage.disk), |_cache, _snapshot| false).await.caches else {
        panic!("caches cannot be listed")
    };
    match caches.remove(&cache()) {
        Some(Seen::Present(view)) => view,
        other => panic!("{other:?}"),
    }
}

/// Does what the planner would do until this model is served and nothing else is left; returns the bytes that it fetched for it.
pub(crate) async fn settle(stage: &Stage, model: &Model) -> u64 {
    let (tree, fetched) = (Tree(&stage.disk), AtomicU64::new(0));
    made(stage).await;
    sweep(stage).await;
    let view = seen(stage).await;
    let id = model.listing.id;
    for (other, found) in &view.snapshots {
        let is_good = *other == id && matches!(found, SnapshotView::Published(_));
        if !is_good {
            evict(tree, &layout(), *other, 99).await.expect("evicted");
        }
    }
    match view.snapshots.get(&id) {
        Some(SnapshotView::Published(_)) => point_current(tree, &layout(), Some(id)).await.expect("pointed to"),
        Some(_) | None => stage_model(&stage.disk, model, &fetched).await.expect("staged"),
    }
    let view = seen(stage).await;
    assert_eq!(view.current, Current::Snapshot(id));
    assert!(matches!(view.snapshots.get(&id), Some(SnapshotView::Published(_))), "{:?}", view.snapshots);
    assert_eq!(view.snapshots.len(), 1);
    fetched.into_inner()
}

/// Deletes what a crash left among the condemned.
pub(crate) async fn sweep(stage: &Stage) {
    let tree = Tree(&stage.disk);
    for (name, _) in tree.list(condemned()).await.expect("listed") {
        delete_condemned(tree, &condemned().entry(&name)).await.expect("nobody uses it");
    }
    assert_eq!(tree.list(condemned()).await.expect("listed"), Vec::new());
}

/// Whether a snapshot is where the agent would serve it from.
pub(crate) async fn is_served(stage: &Stage, id: SnapshotId) -> bool {
    let view = seen(stage).await;
    view.current == Current::Snapshot(id) && matches!(view.snapshots.get(&id), Some(SnapshotView::Published(_)))
}
