//! What all connections of one faulty server share: buckets, orders for faults, the log.
//!
//! In: changes by the test and by requests. Out: what a request needs, and a wake-up after each change.
//! Deliberately absent: HTTP.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::lab::fault_s3::{
    fault::Orders,
    log::{End, Log, Request},
    store::Bucket,
};

/// Shared state of a server.
#[derive(Debug)]
pub(super) struct World {
    state: Mutex<State>,
    /// Wakes who waits for something in the log.
    changed: watch::Sender<()>,
    /// Wakes stalled answers.
    released: watch::Sender<()>,
}

/// The state itself.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) buckets: BTreeMap<String, Bucket>,
    pub(super) orders: Orders,
    pub(super) log: Log,
}

impl World {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: watch::channel(()).0, released: watch::channel(()).0 })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in one handler must not hide the log from the test that wants to show it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn releases(&self) -> watch::Receiver<()> {
        self.released.subscribe()
    }

    pub(super) fn release(&self) {
        self.released.send_replace(());
    }

    /// Put a request in the log; the entry follows its answer.
    pub(super) fn begin(self: &Arc<Self>, request: Request) -> Entry {
        let mut state = self.lock();
        let log = &mut state.log;
        log.open += 1;
        log.most_open = log.most_open.max(log.open);
        log.requests.push(request);
        let entry = Entry { index: log.requests.len() - 1, world: Arc::clone(self), is_ended: false };
        drop(state);
        self.changed.send_replace(());
        entry
    }
}

/// The log's line of one answer. Dropped before its end, the client hung up.
#[derive(Debug)]
pub(super) struct Entry {
    world: Arc<World>,
    index: usize,
    is_ended: bool,
}

impl Entry {
    pub(super) fn sent(&self, bytes: u64) {
        self.change(|request| request.body_bytes += bytes);
    }

    pub(super) fn stalled(&self) {
        self.change(|request| request.end = End::Stalled);
    }

    pub(super) fn resumed(&self) {
        self.change(|request| request.end = End::Open);
    }

    pub(super) fn end(&mut self, end: End) {
        if !self.is_ended {
            self.is_ended = true;
            self.world.lock().log.open -= 1;
            self.change(|request| request.end = end);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Request)) {
        change(&mut self.world.lock().log.requests[self.index]);
        self.world.changed.send_replace(());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end(End::HungUp);
    }
}
