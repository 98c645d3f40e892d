//! Work that outlives a pass: one job per key, bounded by the planner, visible to it, cancellable, and heard of when it ends.
//!
//! Deliberately absent: retrying. A job that fails says why; the planner decides whether and when it is begun again.

pub mod clean;
pub mod failure;
pub mod list;
pub mod stage;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stokehold_core::attempt::JobFailure;
use stokehold_core::listing::Listing;
use stokehold_core::observed::{JobKey, JobKind, JobView};
use stokehold_core::quantity::Bytes;
use stokehold_core::record::Manifest;
use stokehold_core::time::Millis;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Ends of jobs that wait to be taken in. The planner bounds the jobs themselves far below this.
const ENDS_WAITING_MAX: usize = 1_024;

/// How a job ended.
#[derive(Debug, Clone)]
pub enum JobEnd {
    /// An origin was listed.
    Listed(Arc<Listing>, String),
    /// A snapshot was published.
    Published(Box<Manifest>),
    /// It did what it was for.
    Done,
    /// It was told to stop, and what it had done is kept.
    Cancelled,
    /// It found that the origin is no longer what was listed.
    OriginChanged(JobFailure),
    /// It failed.
    Failed(JobFailure),
}

/// What a running job shows.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    rate: AtomicU64,
    moved_at: AtomicU64,
}

impl Progress {
    /// Nothing done yet.
    #[must_use]
    pub fn begun(now: Millis) -> Self {
        Self { moved_at: AtomicU64::new(now.0), ..Self::default() }
    }

    /// Sets what is there, what there will be, and the bytes a second.
    pub fn show(&self, done: Bytes, total: Bytes, rate: Bytes, now: Millis) {
        if self.done.swap(done.0, Ordering::Relaxed) != done.0 {
            self.moved_at.store(now.0, Ordering::Relaxed);
        }
        self.total.store(total.0, Ordering::Relaxed);
        self.rate.store(rate.0, Ordering::Relaxed);
    }

    /// What was last shown: what is there, what there will be, and the bytes a second.
    #[must_use]
    pub fn shown(&self) -> (Bytes, Bytes, Bytes) {
        let bytes = |number: &AtomicU64| Bytes(number.load(Ordering::Relaxed));
        (bytes(&self.done), bytes(&self.total), bytes(&self.rate))
    }
}

#[derive(Debug)]
struct Running {
    kind: JobKind,
    since: Millis,
    progress: Arc<Progress>,
    cancel: CancellationToken,
}

/// What a job is given to work with.
#[derive(Debug, Clone)]
pub struct JobContext {
    /// Where it shows how far it is.
    pub progress: Arc<Progress>,
    /// Tells it to stop.
    pub cancel: CancellationToken,
}

/// The board of running jobs; read by the loop and by whoever shows progress.
#[derive(Debug, Clone, Default)]
pub struct JobBoard(Arc<Mutex<BTreeMap<JobKey, Running>>>);

impl JobBoard {
    /// What runs now.
    #[must_use]
    pub fn view(&self) -> BTreeMap<JobKey, JobView> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let view = |job: &Running| {
            let (done, total, rate) = job.progress.shown();
            let moved_at = Millis(job.progress.moved_at.load(Ordering::Relaxed));
            let is_cancelled = job.cancel.is_cancelled();
            JobView { kind: job.kind, is_cancelled, done, total, rate, since: job.since, moved_at }
        };
        running.iter().map(|(key, job)| (key.clone(), view(job))).collect()
    }
}

/// Starts jobs and hears of their ends.
#[derive(Debug)]
pub struct Jobs {
    board: JobBoard,
    tracker: TaskTracker,
    stop: CancellationToken,
    ends: mpsc::Sender<(JobKey, JobKind, JobEnd)>,
    ended: mpsc::Receiver<(JobKey, JobKind, JobEnd)>,
}

impl Jobs {
    /// None yet. `stop` cancels all of them.
    #[must_use]
    pub fn new(board: JobBoard, stop: CancellationToken) -> Self {
        let (ends, ended) = mpsc::channel(ENDS_WAITING_MAX);
        Self { board, tracker: TaskTracker::new(), stop, ends, ended }
    }

    /// What runs now.
    #[must_use]
    pub fn view(&self) -> BTreeMap<JobKey, JobView> {
        self.board.view()
    }

    /// The board it shows on.
    #[must_use]
    pub fn board(&self) -> JobBoard {
        self.board.clone()
    }

    /// Starts a job, unless one with its key runs already.
    pub fn start<F, Work>(&self, key: JobKey, kind: JobKind, now: Millis, work: F)
    where
        F: FnOnce(JobContext) -> Work,
        Work: Future<Output = JobEnd> + Send + 'static,
    {
        let context = JobContext { progress: Arc::new(Progress::begun(now)), cancel: self.stop.child_token() };
        {
            let mut running = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
            if running.contains_key(&key) {
                return;
            }
            let (progress, cancel) = (context.progress.clone(), context.cancel.clone());
            running.insert(key.clone(), Running { kind, since: now, progress, cancel });
        }
        let work = work(context);
        let ends = self.ends.clone();
        self.tracker.spawn(async move {
            let end = work.await;
            // The loop may be gone; then nobody needs to know.
            let _sent = ends.send((key, kind, end)).await;
        });
    }

    /// Tells a job to stop.
    pub fn cancel(&self, key: &JobKey) {
        let running = self.board.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = running.get(key) {
            job.cancel.cancel();
        }
    }

    /// The next job that ended; it runs no more. Cancel-safe.
    pub async fn ended(&mut self) -> (JobKey, JobKind, JobEnd) {
        let end = self.ended.recv().await.expect("this holds a sender itself");
        self.board.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&end.0);
        end
    }

    /// A job that has ended already, if there is one.
    pub fn try_ended(&mut self) -> Option<(JobKey, JobKind, JobEnd)> {
        let end = self.ended.try_recv().ok()?;
        self.board.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&end.0);
        Some(end)
    }

    /// Stops all and waits until they have.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
