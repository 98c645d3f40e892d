//! An S3 server of ours that fails on order, in this process.
//!
//! In: objects, made listings, faults by key and count. Out: an endpoint, and a log of every request and byte.
//! It has threads of its own, so a test with a paused clock or a blocked thread does not stop it. Requests are not
//! authenticated. Deliberately absent: versions, multipart uploads, delimiters (they answer 501).

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::runtime::{Builder, Runtime};

use crate::lab::bucket::Access;

mod answer;
mod content;
mod fault;
mod log;
mod sending;
mod store;
mod wire;
mod world;

pub use content::{Body, Checksums};
pub use fault::{Fault, On, Times};
pub use log::{End, Log, Operation, Request};
pub use store::Synthetic;

use store::Object;
use world::World;

/// Threads that serve: two, so that one which reads an object for its checksum does not hold the others.
const THREADS: usize = 2;
/// Longest wait for a condition of the log, in real time.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A running server; ends when dropped, and stalled answers with it.
#[derive(Debug)]
pub struct FaultS3 {
    address: SocketAddr,
    world: Arc<World>,
    /// `None` only while being dropped.
    runtime: Option<Runtime>,
}

impl FaultS3 {
    /// Start on a free port of 127.0.0.1.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("fault-s3").enable_all().build()?;
        let world = World::new();
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(accept(listener, Arc::clone(&world)));
        Ok(Self { address, world, runtime: Some(runtime) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL of it; buckets are the first part of the path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How a client of the AWS SDK reaches it, without retries: here every request is counted.
    pub fn access(&self) -> Access {
        Access {
            endpoint: self.endpoint(),
            region: "us-east-1".to_owned(),
            access_key: "lab".to_owned(),
            secret_key: "lab".to_owned(),
            attempts: 1,
        }
    }

    /// Store an object; the bucket is made if needed. Gives its ETag, quotes included.
    pub fn put(&self, bucket: &str, key: &str, body: Body, checksums: Checksums) -> String {
        let object = Object::new(body, checksums);
        let etag = object.etag.clone();
        self.world.lock().buckets.entry(bucket.to_owned()).or_default().put(key, object);
        etag
    }

    /// Remove an object.
    pub fn remove(&self, bucket: &str, key: &str) {
        if let Some(bucket) = self.world.lock().buckets.get_mut(bucket) {
            bucket.remove(key);
        }
    }

    /// Give a bucket objects made by a rule, beside those put into it; a second rule replaces the first.
    pub fn put_synthetic(&self, bucket: &str, synthetic: Synthetic) {
        self.world.lock().buckets.entry(bucket.to_owned()).or_default().set_synthetic(synthetic);
    }

    /// Order a fault. Several may hit one request: the first refusal wins, changes of the body add up.
    pub fn fault(&self, on: impl Into<On>, fault: Fault, times: Times) {
        self.world.lock().orders.add(on.into(), fault, times);
    }

    /// Forget all orders; answers on their way keep theirs.
    pub fn clear_faults(&self) {
        self.world.lock().orders.clear();
    }

    /// Let the answers that are stalled now go on.
    pub fn release(&self) {
        self.world.release();
    }

    /// The log up to now.
    pub fn log(&self) -> Log {
        self.world.lock().log.clone()
    }

    /// Forget the requests logged so far. Only while none is open, as an open one still writes to its line.
    pub fn clear_log(&self) {
        let mut state = self.world.lock();
        assert_eq!(state.log.open(), 0, "a request is open: {:?}", state.log.requests.last());
        state.log = Log::default();
    }

    /// Wait until the log is as wanted. Panics with the log's end after a minute of real time, whatever clock the test
    /// runs on.
    pub async fn wait_for(&self, is_so: impl Fn(&Log) -> bool) {
        let mut changes = self.world.changes();
        let runtime = self.runtime.as_ref().expect("set until dropped");
        let mut limit = runtime.spawn(tokio::time::sleep(WAIT_LIMIT));
        loop {
            if is_so(&self.world.lock().log) {
                return limit.abort();
            }
            tokio::select! {
                biased;
                // Cancel-safe by its own documentation; the sender lives in `self.world`.
                _ = changes.changed() => {}
                // Cancel-safe: a handle keeps its task.
                _ = &mut limit => panic!("the log is not as wanted after {WAIT_LIMIT:?}: {:#?}", self.world.lock().log),
            }
        }
    }
}

impl Drop for FaultS3 {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Not waiting: a runtime must not be awaited for inside another one.
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, world: Arc<World>) {
    // An error ends it, and with it the test that asked: the listener is ours and nobody closes it.
    while let Ok((stream, _)) = listener.accept().await {
        let world = Arc::clone(&world);
        // Small answers are measured in requests a second; Nagle's delay would be the server's, not the client's.
        drop(stream.set_nodelay(true));
        tokio::spawn(async move {
            let (connection, flushes) = sending::Connection::new(stream);
            let service = service_fn(|request| answer::answer(Arc::clone(&world), flushes.clone(), request));
            // An error is a client that went away or a fault at work; the log tells which.
            drop(http1::Builder::new().serve_connection(TokioIo::new(connection), service).await);
        });
    }
}

#[cfg(test)]
mod tests;
