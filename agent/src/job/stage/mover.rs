//! Doing what the transfer machine asks: fetches started, cancelled and taken in, turns had and given back, progress told.
//!
//! Deliberately absent: policy, and anything that happens before the first byte or after the last.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use stokehold_core::arbiter::Claim;
use stokehold_core::attempt::{Disposition, JobFailure};
use stokehold_core::checksum::Crc64;
use stokehold_core::hold::Reason;
use stokehold_core::journal::Piece;
use stokehold_core::listing::Entry;
use stokehold_core::metric::{FETCHED, PARTS};
use stokehold_core::port::{ByteRange, OriginError, Tree};
use stokehold_core::quantity::Bytes;
use stokehold_core::staging::Staging;
use stokehold_core::time::Millis;
use stokehold_core::transfer::{Ask, AttemptId, End, Event, Transfer};
use tokio_util::sync::CancellationToken;

use super::in_hand::InHandNote;
use super::{StageJob, Stopped};
use crate::job::JobContext;
use crate::metrics::Metrics;
use crate::streams::Turn;
use crate::world::{Fetch, FetchError, FetchOrder, Fetched, World};

/// How often bytes on their way are told to the transfer machine and shown to people.
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);

/// An attempt that is silent for this long leaves its turn to others, long before it is given up.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// What a transfer came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    /// Bytes that were fetched.
    pub(super) fetched: Bytes,
    /// Requests for them.
    pub(super) requests: u64,
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
pub(super) struct Mover<'a, W: World> {
    world: &'a W,
    job: &'a StageJob,
    metrics: &'a Metrics,
    context: &'a JobContext,
    hand: &'a InHandNote,
    staging: &'a mut Staging,
    entries: Vec<Arc<Entry>>,
    flights: BTreeMap<AttemptId, Flight>,
    fetches: FuturesUnordered<BoxFuture<'static, (AttemptId, Fetched)>>,
    failure: Option<Stopped>,
    moved: Moved,
    shown: (Millis, u64, u64),
}

impl<'a, W: World> Mover<'a, W> {
    pub(super) fn new(
        world: &'a W,
        job: &'a StageJob,
        metrics: &'a Metrics,
        context: &'a JobContext,
        hand: &'a InHandNote,
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

    /// Does it. Whatever the outcome, nothing is in flight any more, and what was written is noted.
    pub(super) async fn run(mut self) -> Result<Moved, Stopped> {
        let moved = self.move_all().await;
        if moved.is_err() {
            self.drain().await;
        }
        moved
    }

    async fn move_all(&mut self) -> Result<Moved, Stopped> {
        let gaps = self.staging.gaps();
        let mut transfer = Transfer::new(self.job.limits.clone(), &gaps, self.world.random(), self.now());
        loop {
            if self.tell_progress(&mut transfer) {
                self.hand.got_further(Tree(self.world.disk())).await?;
            }
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
                () = self.context.cancel.cancelled() => return Err(Stopped::Cancelled),
                Some((attempt, fetched)) = self.fetches.next(), if !self.fetches.is_empty() => {
                    if let Some(event) = self.take_in(attempt, &fetched).await? {
                        transfer.handle(event, self.now());
                    }
                }
                () = tokio::time::sleep(nap) => {
                    self.staging.mark_if_due(Tree(self.world.disk()), self.now()).await?;
                }
            }
        }
    }

    fn fetch(&mut self, attempt: AttemptId, file: u32, range: ByteRange) {
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
            // The turn ends with the flight, once what it brought is noted: a kill loses one part for each connection, not more.
            (attempt, world.fetch().fetch(order).await)
        }));
    }

    fn cancel(&self, attempt: AttemptId, outcome: &str) {
        if let Some(flight) = self.flights.get(&attempt) {
            self.metrics.count(&PARTS, &[outcome], 1);
            flight.cancel.cancel();
        }
    }

    /// Tells the machine and whoever watches how far it is; true where a byte is on the disk that was not before.
    fn tell_progress(&mut self, transfer: &mut Transfer) -> bool {
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
        on_the_way > 0
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
