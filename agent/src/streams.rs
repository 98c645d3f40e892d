//! Turns on the link and the disk: core's arbiter, with the waiting that it leaves to others.
//!
//! In go claims, out come turns that end when they are dropped. Deliberately absent: who goes first, which is the arbiter's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_core::arbiter::{Arbiter, Claim, Ticket};
use tokio::sync::oneshot;

/// Hands out turns. Clones share them.
#[derive(Debug, Clone)]
pub struct Streams(Arc<Mutex<Board>>);

#[derive(Debug)]
struct Board {
    arbiter: Arbiter,
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
}

impl Board {
    fn grant(&mut self) {
        for ticket in self.arbiter.grant() {
            if let Some(waiting) = self.waiting.remove(&ticket) {
                // Whoever waited may have gone; its turn then ends when its claim is dropped.
                let _sent = waiting.send(());
            }
        }
    }
}

/// A turn, or the wait for one. Ends when dropped.
#[derive(Debug)]
pub struct Turn {
    streams: Streams,
    ticket: Ticket,
}

impl Streams {
    /// At most so many turns at a time.
    #[must_use]
    pub fn new(streams_max: u32) -> Self {
        Self(Arc::new(Mutex::new(Board { arbiter: Arbiter::new(streams_max), waiting: BTreeMap::new() })))
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Cancel-safe: a dropped wait gives up its claim.
    pub async fn turn(&self, claim: Claim) -> Turn {
        let (granted, turn) = {
            let mut board = self.board();
            let ticket = board.arbiter.claim(claim);
            let (sender, granted) = oneshot::channel();
            board.waiting.insert(ticket, sender);
            board.grant();
            (granted, Turn { streams: self.clone(), ticket })
        };
        // The board keeps the sender until it grants, and it lives as long as this.
        let _granted = granted.await;
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut board = self.streams.board();
        board.waiting.remove(&self.ticket);
        board.arbiter.release(self.ticket);
        board.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stokehold_core::hold::Subject;
    use stokehold_core::quantity::Bytes;

    use super::*;

    fn claim(priority: i32) -> Claim {
        Claim { subject: Subject::Node, priority, bytes: Bytes(1) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_ends_or_a_wait_that_is_dropped_lets_the_next_one_go() {
        let streams = Streams::new(1);
        let first = streams.turn(claim(0)).await;
        let gone = tokio::time::timeout(Duration::from_secs(1), streams.turn(claim(9))).await;
        assert!(gone.is_err(), "only one at a time");
        let (low, high) = (streams.turn(claim(0)), streams.turn(claim(5)));
        tokio::pin!(low, high);
        assert!(futures::poll!(&mut low).is_pending() && futures::poll!(&mut high).is_pending());
        drop(first);
        let turn = high.await;
        assert!(futures::poll!(&mut low).is_pending());
        drop(turn);
        low.await;
    }
}
