//! Staging and publishing one snapshot: core's machines, joined with what fetches and what writes.
//!
//! In goes a listing, out comes a published snapshot or the reason there is none; what was received is kept either way. Deliberately
//! absent: policy. The transfer machine asks, this does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use stokehold_core::arbiter::Claim;
use stokehold_core::attempt::{Disposition, JobFailure};
use stokehold_core::checksum::Crc64;
use stokehold_core::desired::{DesiredWeights, Verification};
use stokehold_core::file_op::{FileError, FileFault};
use stokehold_core::hold::{Reason, Subject};
use stokehold_core::journal::Piece;
use stokehold_core::layout::{CacheLayout, SnapshotLayout};
use stokehold_core::listing::{Entry, Listing};
use stokehold_core::metric::{CORRUPT, FETCHED, PARTS, REUSED, STAGES};
use stokehold_core::port::{Origin, OriginError, Pinned, Tree};
use stokehold_core::publishing::{Publication, point_current, publish};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::Manifest;
use stokehold_core::staging::{StageError, StageOrder, Staging};
use stokehold_core::time::Millis;
use stokehold_core::transfer::{Ask, AttemptId, End, Event, Transfer, TransferLimits};
use tokio_util::sync::CancellationToken;

use super::failure::{of_disk, of_origin, of_staging};
use super::{JobContext, JobEnd};
use crate::metrics::Metrics;
use crate::streams::{Streams, Turn};
use crate::world::{Fetch, FetchError, FetchOrder, Fetched, World};

mod in_hand;

/// So many files are pinned at a time, one small request each.
const PINS_AT_A_TIME: usize = 16;
/// How often bytes on their way are told to the transfer machine and shown to people.
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);

/// An attempt that is silent for this long leaves its turn to others, long before it is given up.
const SILENT_AFTER: Duration = Duration::from_secs(3);

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
    // Whatever the outcome, it is an orderly end.
    hand.end(tree).await?;
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

/// What a transfer came to.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    fetched: Bytes,
    requests: u64,
}

struct Flight {
    file: u32,
    offset: u64,
    has_turn: Arc<AtomicBool>,
    turn: Arc<Mutex<Option<Turn>>>,
    moved_at: Millis,
    progress: Arc<AtomicU64>,
    told: u64,
    cancel: CancellationToken,
}

/// Does what the transfer machine asks until it is finished or gives up.
struct Mover<'a, W: World> {
    world: &'a W,
    job: &'a StageJob,
    metrics: &'a Metrics,
    context: &'a JobContext,
    hand: &'a in_hand::InHandNote,
    staging: &'a mut Staging,
    entries: Vec<Arc<Entry>>,
    flights: BTreeMap<AttemptId, Flight>,
    fetches: FuturesUnordered<BoxFuture<'static, (AttemptId, Fetched)>>,
    failure: Option<Stopped>,
    moved: Moved,
    shown: (Millis, u64, u64),
}

impl<'a, W: World> Mover<'a, W> {
    fn new(
        world: &'a W,
        job: &'a StageJob,
        metrics: &'a Metrics,
        context: &'a JobContext,
        hand: &'a in_hand::InHandNote,
        staging: &'a mut Staging,
    ) -> Self {
        Self {
            world,
            job,
            metrics,
            context,
            hand,
            entries: job.listing.entries.iter().cloned().map(Arc::new).collect(),
            flights: BTreeMap::new(),
            fetches: FuturesUnordered::new(),
            failure: None,
            moved: Moved::default(),
            shown: (world.now().monotonic, 0, 0),
            staging,
        }
    }

    fn now(&self) -> Millis {
        self.world.now().monotonic
    }

    async fn run(mut self) -> Result<Moved, Stopped> {
        let gaps = self.staging.gaps();
        let mut transfer = Transfer::new(self.job.limits.clone(), &gaps, self.world.random(), self.now());
        loop {
            self.tell_progress(&mut transfer);
            let mut wake = self.now().after(PROGRESS_PERIOD);
            for ask in transfer.next(self.now()) {
                match ask {
                    Ask::Fetch { attempt, file, range, deadline: _ } => self.fetch(attempt, file, range),
                    Ask::Cancel(attempt) => self.cancel(attempt, "stalled"),
                    Ask::WaitUntil(at) => wake = wake.min(at),
                    Ask::Finished => return Ok(self.moved),
                    Ask::GiveUp => return Err(self.gave_up()),
                }
            }
            let nap = wake.since(self.now());
            // Each arm is safe to drop: a token and a set of futures keep their state, and a sleep has none.
            tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => return self.stop().await,
                Some((attempt, fetched)) = self.fetches.next(), if !self.fetches.is_empty() => {
                    let event = self.take_in(attempt, &fetched).await;
                    match event {
                        Ok(Some(event)) => transfer.handle(event, self.now()),
                        Ok(None) => {}
                        Err(stopped) => {
                            self.drain().await;
                            return Err(stopped);
                        }
                    }
                }
                () = tokio::time::sleep(nap) => {
                    self.staging.mark_if_due(Tree(self.world.disk()), self.now()).await?;
                }
            }
        }
    }

    fn fetch(&mut self, attempt: AttemptId, file: u32, range: stokehold_core::port::ByteRange) {
        let order = self.staging.order();
        let staged = &order.files[file as usize];
        let progress = Arc::new(AtomicU64::new(0));
        let cancel = CancellationToken::new();
        let world = self.world.clone();
        let streams = self.job.streams.clone();
        let has_turn = Arc::new(AtomicBool::new(false));
        let is_on = has_turn.clone();
        let turn = Arc::new(Mutex::new(None));
        let kept = turn.clone();
        let begun = self.now();
        let claim =
            Claim { subject: self.job.subject.clone(), priority: self.job.priority, bytes: Bytes(range.length()) };
        let order = FetchOrder {
            source: self.job.weights.source.clone(),
            entry: self.entries[file as usize].clone(),
            pin: staged.pin.clone(),
            range,
            to: order.incoming(staged),
            progress: progress.clone(),
            cancel: cancel.clone(),
        };
        self.moved.requests += 1;
        self.flights.insert(
            attempt,
            Flight { file, offset: range.start, has_turn, turn, moved_at: begun, progress, told: 0, cancel },
        );
        self.fetches.push(Box::pin(async move {
            // Each arm is safe to drop: a dropped wait gives up its claim.
            let turn = tokio::select! {
                biased;
                () = order.cancel.cancelled() => {
                    let nothing = Fetched { written: Crc64::default(), error: Some(FetchError::Cancelled) };
                    return (attempt, nothing);
                }
                turn = streams.turn(claim) => turn,
            };
            *locked(&kept) = Some(turn);
            is_on.store(true, Ordering::Relaxed);
            let fetched = world.fetch().fetch(order).await;
            locked(&kept).take();
            (attempt, fetched)
        }));
    }

    fn cancel(&self, attempt: AttemptId, outcome: &str) {
        if let Some(flight) = self.flights.get(&attempt) {
            self.metrics.count(&PARTS, &[outcome], 1);
            flight.cancel.cancel();
        }
    }

    fn tell_progress(&mut self, transfer: &mut Transfer) {
        let now = self.now();
        let mut on_the_way = 0;
        for (attempt, flight) in &mut self.flights {
            if !flight.has_turn.load(Ordering::Relaxed) {
                transfer.handle(Event::Waits { attempt: *attempt }, now);
                flight.moved_at = now;
            }
            let arrived = flight.progress.load(Ordering::Relaxed);
            let count = arrived.saturating_sub(flight.told);
            if count > 0 {
                flight.told = arrived;
                flight.moved_at = now;
                transfer.handle(Event::Bytes { attempt: *attempt, count }, now);
            }
            on_the_way += arrived;
            if now.since(flight.moved_at) >= SILENT_AFTER {
                locked(&flight.turn).take();
            }
        }
        let total = self.moved.fetched.0 + on_the_way;
        let (since, before, rate) = self.shown;
        let passed = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
        let mut rate = rate;
        if passed >= 1_000 {
            rate = total.saturating_sub(before).saturating_mul(1_000) / passed;
            self.shown = (now, total, rate);
        }
        let done = Bytes(self.staging.received().0.saturating_add(on_the_way)).min(self.job.listing.bytes);
        self.context.progress.show(done, self.job.listing.bytes, Bytes(rate), now);
    }

    /// Notes what an attempt brought, and says how it ended. An attempt that is not known any more says nothing.
    async fn take_in(&mut self, attempt: AttemptId, fetched: &Fetched) -> Result<Option<Event>, Stopped> {
        let Some(flight) = self.flights.remove(&attempt) else { return Ok(None) };
        // A file that changed while it was read may have given bytes of either version.
        let is_mixed = matches!(fetched.error, Some(FetchError::Origin(OriginError::Changed { .. })));
        let written = if is_mixed { 0 } else { fetched.written.bytes };
        if written > 0 {
            self.hand.got_further(Tree(self.world.disk())).await?;
            self.moved.fetched += Bytes(written);
            self.metrics.count(&FETCHED, &[self.job.weights.source.kind()], written);
            let piece = Piece { file: flight.file, offset: flight.offset, crc: fetched.written };
            self.staging.record(Tree(self.world.disk()), piece, self.now()).await?;
        }
        let (end, outcome) = match &fetched.error {
            None => (End::Whole, "whole"),
            Some(FetchError::Cancelled) => return Ok(Some(Event::Ended { attempt, written, end: End::Cancelled })),
            Some(FetchError::Origin(error)) => self.weigh(error),
        };
        self.metrics.count(&PARTS, &[outcome], 1);
        Ok(Some(Event::Ended { attempt, written, end }))
    }

    /// What a failed fetch means for the transfer. The gravest failure so far is what the job will say if it gives up.
    fn weigh(&mut self, error: &OriginError) -> (End, &'static str) {
        let (end, outcome) = match error {
            OriginError::Throttled { retry_after, .. } => (End::Throttled(*retry_after), "throttled"),
            OriginError::Unreachable { .. } | OriginError::Broken { .. } => (End::Broken, "broken"),
            OriginError::Refused { .. }
            | OriginError::Missing { .. }
            | OriginError::Changed { .. }
            | OriginError::Listing(_)
            | OriginError::Disk(_) => (End::Final, "final"),
        };
        let has_final = matches!(self.failure, Some(Stopped::OriginChanged(_)));
        if !has_final {
            self.failure = Some(Stopped::from(error));
        }
        (end, outcome)
    }

    fn gave_up(&mut self) -> Stopped {
        self.failure.take().unwrap_or_else(|| {
            let why = format!(
                "{} sent no byte for {:?}, again and again",
                self.job.weights.source, self.job.limits.stall_after
            );
            Stopped::Failed(JobFailure { reason: Reason::OriginUnreachable { why }, disposition: Disposition::Retry })
        })
    }

    async fn stop(mut self) -> Result<Moved, Stopped> {
        self.drain().await;
        Err(Stopped::Cancelled)
    }

    /// Ends what is in flight and notes what it brought.
    async fn drain(&mut self) {
        for flight in self.flights.values() {
            flight.cancel.cancel();
        }
        while let Some((attempt, fetched)) = self.fetches.next().await {
            // What cannot be noted is fetched again; the failure that led here is what counts.
            let _ended = self.take_in(attempt, &fetched).await;
        }
    }
}

fn locked(turn: &Mutex<Option<Turn>>) -> MutexGuard<'_, Option<Turn>> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the disk said that nothing is there.
fn is_missing(error: &FileError) -> bool {
    error.fault == FileFault::NotFound
}
