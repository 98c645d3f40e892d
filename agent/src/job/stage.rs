//! Staging and publishing one snapshot: core's machines, joined with what fetches and what writes.
//!
//! In goes a listing, out comes a published snapshot or the reason there is none; what was received is kept either way. Deliberately
//! absent: policy. The transfer machine asks, this does.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use stokehold_core::attempt::{Disposition, JobFailure};
use stokehold_core::desired::{DesiredWeights, Verification};
use stokehold_core::file_op::{FileError, FileFault};
use stokehold_core::hold::{Reason, Subject};
use stokehold_core::layout::{CacheLayout, SnapshotLayout};
use stokehold_core::listing::Listing;
use stokehold_core::metric::{CORRUPT, REUSED, STAGES};
use stokehold_core::port::{Origin, OriginError, Pinned, Tree};
use stokehold_core::publishing::{Publication, point_current, publish};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::Manifest;
use stokehold_core::staging::{StageError, StageOrder, Staging};
use stokehold_core::transfer::TransferLimits;

use self::mover::Mover;
use super::failure::{of_disk, of_origin, of_staging};
use super::{JobContext, JobEnd};
use crate::metrics::Metrics;
use crate::streams::Streams;
use crate::world::World;

mod in_hand;
mod mover;

/// So many files are pinned at a time, one small request each.
const PINS_AT_A_TIME: usize = 16;
/// What to stage, and how.
#[derive(Debug, Clone)]
pub struct StageJob {
    /// What is asked for.
    pub weights: DesiredWeights,
    /// What the origin offered.
    pub listing: Arc<Listing>,
    /// Where the snapshot stands.
    pub layout: SnapshotLayout,
    /// The cache it belongs to; a one-off stage has none.
    pub cache: Option<CacheLayout>,
    /// Limits of the transfer.
    pub limits: TransferLimits,
    /// Whether published files get the immutable flag.
    pub immutable: bool,
    /// Where turns on link and disk are had.
    pub streams: Streams,
    /// Higher gets its turns first.
    pub priority: i32,
    /// For what turns are asked.
    pub subject: Subject,
}

/// A snapshot that was staged.
#[derive(Debug, Clone)]
pub struct Staged {
    /// What it is made of.
    pub manifest: Manifest,
    /// Bytes that were fetched for it.
    pub fetched: Bytes,
    /// Bytes that were there already.
    pub reused: Bytes,
    /// Requests for bytes.
    pub requests: u64,
}

/// Why there is no snapshot.
#[derive(Debug, Clone)]
pub enum Stopped {
    /// It was told to stop.
    Cancelled,
    /// The origin is no longer what was listed.
    OriginChanged(JobFailure),
    /// It failed.
    Failed(JobFailure),
}

impl From<StageError> for Stopped {
    fn from(error: StageError) -> Self {
        Self::Failed(of_staging(&error))
    }
}

impl From<FileError> for Stopped {
    fn from(error: FileError) -> Self {
        Self::Failed(of_disk(&error))
    }
}

impl From<&OriginError> for Stopped {
    fn from(error: &OriginError) -> Self {
        let failure = of_origin(error);
        match error {
            OriginError::Changed { .. } | OriginError::Missing { .. } => Self::OriginChanged(failure),
            OriginError::Unreachable { .. }
            | OriginError::Refused { .. }
            | OriginError::Throttled { .. }
            | OriginError::Broken { .. }
            | OriginError::Listing(_)
            | OriginError::Disk(_) => Self::Failed(failure),
        }
    }
}

/// Stages as a job of the agent.
pub(crate) async fn run<W: World>(world: W, job: StageJob, metrics: Metrics, context: JobContext) -> JobEnd {
    let begun = world.now().monotonic;
    let (outcome, end) = match stage(&world, &job, &metrics, &context).await {
        Ok(staged) => ("published", JobEnd::Published(Box::new(staged.manifest))),
        Err(Stopped::Cancelled) => ("cancelled", JobEnd::Cancelled),
        Err(Stopped::OriginChanged(failure)) => ("failed", JobEnd::OriginChanged(failure)),
        Err(Stopped::Failed(failure)) => ("failed", JobEnd::Failed(failure)),
    };
    metrics.observe(&STAGES, &[outcome], world.now().monotonic.since(begun));
    if let JobEnd::Failed(JobFailure { reason: Reason::ChecksumMismatch { .. }, .. }) = &end {
        metrics.count(&CORRUPT, &[], 1);
    }
    end
}

/// Stages a snapshot, publishes it, and points `current` to it where there is one.
///
/// # Errors
/// [`Stopped`]; what was received is on the disk and in the journal.
pub async fn stage<W: World>(
    world: &W,
    job: &StageJob,
    metrics: &Metrics,
    context: &JobContext,
) -> Result<Staged, Stopped> {
    let tree = Tree(world.disk());
    let hand = in_hand::InHandNote::begin(world, job).await?;
    let staged = stage_in_hand(world, job, metrics, context, &hand).await;
    // Whatever the outcome, it is an orderly end. That the note stays says less than the outcome itself.
    if let Err(Stopped::Failed(failure)) = hand.end(tree).await {
        tracing::warn!(error = %failure, "the note that a staging is in hand stays");
    }
    staged
}

async fn stage_in_hand<W: World>(
    world: &W,
    job: &StageJob,
    metrics: &Metrics,
    context: &JobContext,
    hand: &in_hand::InHandNote,
) -> Result<Staged, Stopped> {
    let tree = Tree(world.disk());
    let pinned = pin_all(world, job, context).await?;
    let order = StageOrder::new(&job.listing, pinned, job.layout.clone());
    let mut staging = Staging::prepare(tree, order, world.now().monotonic).await?;
    metrics.count(&REUSED, &[], staging.reused().0);
    let moved = Mover::new(world, job, metrics, context, hand, &mut staging).run().await;
    // Also after a failure: what was received is not to be fetched again.
    let marked = staging.mark(tree, world.now().monotonic).await;
    let moved = moved?;
    marked?;
    staging.prove_all(tree, world.now().monotonic).await?;
    let whole = staging.whole().ok_or_else(|| {
        let why = "the transfer ended and bytes are missing".to_owned();
        Stopped::Failed(JobFailure { reason: Reason::OriginBroken { why }, disposition: Disposition::Retry })
    })?;
    let publication = Publication {
        identity: job.listing.identity.clone(),
        origin_fingerprint: job.weights.origin_fingerprint(),
        now: world.now().wall,
        immutable: job.immutable,
    };
    let manifest = publish(tree, staging.order(), &whole, &publication).await?;
    if let Some(cache) = &job.cache {
        point_current(tree, cache, Some(manifest.snapshot)).await?;
    }
    Ok(Staged { manifest, fetched: moved.fetched, reused: staging.reused(), requests: moved.requests })
}

/// Ties every file to its version, a few at a time, and asks for a checksum where one is required.
async fn pin_all<W: World>(world: &W, job: &StageJob, context: &JobContext) -> Result<Vec<Pinned>, Stopped> {
    let source = &job.weights.source;
    let mut entries = job.listing.entries.iter();
    let mut pins = FuturesOrdered::new();
    let mut pinned = Vec::with_capacity(job.listing.entries.len());
    loop {
        for entry in entries.by_ref().take(PINS_AT_A_TIME - pins.len()) {
            pins.push_back(world.origin().pin(source, entry));
        }
        // Each arm is safe to drop: pinning leaves nothing behind, and a token keeps its state.
        let next = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Err(Stopped::Cancelled),
            next = pins.next() => next,
        };
        match next {
            Some(Ok(pin)) => pinned.push(pin),
            Some(Err(error)) => return Err(Stopped::from(&error)),
            None => break,
        }
    }
    if job.weights.verification == Verification::Required {
        let unproven =
            job.listing.entries.iter().zip(&pinned).find(|(entry, pinned)| {
                entry.size > Bytes::ZERO && pinned.checksum.is_none() && entry.checksum.is_none()
            });
        if let Some((entry, _)) = unproven {
            let reason = Reason::NoChecksum { file: entry.path.to_string() };
            return Err(Stopped::Failed(JobFailure { reason, disposition: Disposition::AwaitChange }));
        }
    }
    Ok(pinned)
}

/// Whether the disk said that nothing is there.
fn is_missing(error: &FileError) -> bool {
    error.fault == FileFault::NotFound
}
