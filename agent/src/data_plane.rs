//! The data plane: a few threads that move bytes from sockets to the disk, apart from everything that decides.
//!
//! In go orders for ranges, out comes how far each got. Each thread has a runtime and connections of its own, so that a write that
//! waits for the disk delays nobody but its neighbours. Deliberately absent: retries, order and pace, which are core's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stokehold_core::checksum::Crc64;
use stokehold_core::port::{Origin as _, OriginError};
use stokehold_host::part::{ARENA_BYTES_MAX, Arena, BUFFER_BYTES, PartWriter};
use stokehold_host::root::CacheRoot;
use stokehold_origin::origins::Origins;
use tokio::runtime;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;

use crate::world::{Fetch, FetchError, FetchOrder, Fetched};

/// Threads that move bytes: two keep a 25 Gb/s link busy, and more would take cores from the engine that serves.
const THREADS_MAX: usize = 2;
/// Orders that wait in front of one thread; the transfer machine never has more in flight.
const ORDERS_WAITING_MAX: usize = 256;

type Order = (FetchOrder, oneshot::Sender<Fetched>);

/// The threads. Clones share them; they end when the last clone is gone.
#[derive(Debug, Clone)]
pub struct DataPlane {
    lanes: Arc<[mpsc::Sender<Order>]>,
    next: Arc<AtomicUsize>,
}

impl DataPlane {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(root: &CacheRoot, origins: &Origins) -> io::Result<Self> {
        let arena = Arena::new(ARENA_BYTES_MAX);
        let buffers = arena.loans_max(BUFFER_BYTES);
        let lent = Arc::new(Semaphore::new(buffers));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let lanes = (0..threads)
            .map(|index| {
                let (lane, orders) = mpsc::channel(ORDERS_WAITING_MAX);
                let mover = Mover {
                    root: root.clone(),
                    origins: origins.for_another_runtime(),
                    arena: arena.clone(),
                    lent: lent.clone(),
                };
                let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
                thread::Builder::new()
                    .name(format!("data-{index}"))
                    .spawn(move || LocalSet::new().block_on(&runtime, serve(orders, Arc::new(mover))))?;
                Ok(lane)
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { lanes: lanes.into(), next: Arc::default() })
    }
}

impl Fetch for DataPlane {
    fn fetch(&self, order: FetchOrder) -> impl Future<Output = Fetched> + Send + 'static {
        let lane = self.lanes[self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len()].clone();
        async move {
            // Whoever stops waiting wants nothing written any more.
            let _cancelled_when_dropped = order.cancel.clone().drop_guard();
            let (answer, answered) = oneshot::channel();
            let gone = || Fetched { written: Crc64::default(), error: Some(FetchError::Cancelled) };
            if lane.send((order, answer)).await.is_err() {
                return gone();
            }
            answered.await.unwrap_or_else(|_thread_ended| gone())
        }
    }
}

struct Mover {
    root: CacheRoot,
    origins: Origins,
    arena: Arena,
    lent: Arc<Semaphore>,
}

async fn serve(mut orders: mpsc::Receiver<Order>, mover: Arc<Mover>) {
    while let Some((order, answer)) = orders.recv().await {
        let mover = mover.clone();
        let _detached = tokio::task::spawn_local(async move {
            let fetched = mover.fetch(&order).await;
            // Whoever asked may have gone.
            let _sent = answer.send(fetched);
        });
    }
}

impl Mover {
    async fn fetch(&self, order: &FetchOrder) -> Fetched {
        let nothing = |error| Fetched { written: Crc64::default(), error: Some(error) };
        // Dropping the wait is safe: a permit is had or not.
        let permit = tokio::select! {
            biased;
            () = order.cancel.cancelled() => return nothing(FetchError::Cancelled),
            permit = self.lent.acquire() => permit,
        };
        let (Ok(_permit), Some(buffer)) = (permit, self.arena.try_lend(BUFFER_BYTES)) else {
            return nothing(FetchError::Cancelled);
        };
        let opened = PartWriter::open(&self.root, &order.to, order.range, buffer, order.progress.clone());
        let mut part = match opened {
            Ok(part) => part,
            Err(error) => return nothing(FetchError::Origin(error.into())),
        };
        // Dropping the read is safe: what was filled before is in the writer.
        let read = tokio::select! {
            biased;
            () = order.cancel.cancelled() => Err(FetchError::Cancelled),
            read = self.origins.read_into(&order.source, &order.entry, &order.pin, order.range, &mut part) => {
                read.map_err(FetchError::Origin)
            }
        };
        let finished = part.finish().map_err(|error| FetchError::Origin(OriginError::Disk(error)));
        Fetched { written: part.written(), error: read.err().or_else(|| finished.err()) }
    }
}
