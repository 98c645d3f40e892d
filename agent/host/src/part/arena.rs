//! Buffers lent from a store with a hard ceiling.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stokehold_core::quantity::Bytes;

/// Most memory in buffers, unless told otherwise: 64 connections with one buffer each.
pub const ARENA_BYTES_MAX: Bytes = Bytes(64 << 20);
/// One buffer: large enough for the disk to stream, small enough to have one for each connection.
pub const BUFFER_BYTES: usize = 1 << 20;
/// Alignment of buffers and blocks for O_DIRECT: a multiple of the logical block of every NVMe format.
pub(crate) const ALIGNMENT: usize = 4_096;

/// Memory that starts at a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    /// Longer by one alignment, so that an aligned start lies within.
    space: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(length: usize) -> Self {
        let space = vec![0; length + ALIGNMENT];
        let start = space.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { space, start, length }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.space[self.start..self.start + self.length]
    }
}

/// Lends buffers up to a ceiling. Clones lend from the same store.
#[derive(Clone)]
pub struct Arena(Arc<Mutex<Store>>);

struct Store {
    bytes_max: usize,
    /// Memory that exists: lent or kept.
    bytes: usize,
    kept: Vec<AlignedBuffer>,
}

impl Arena {
    /// With this ceiling over all buffers, lent or kept for the next.
    #[must_use]
    pub fn new(ceiling: Bytes) -> Self {
        let bytes_max = usize::try_from(ceiling.0).unwrap_or(usize::MAX);
        Self(Arc::new(Mutex::new(Store { bytes_max, bytes: 0, kept: Vec::new() })))
    }

    /// A buffer of this many bytes, or none where it would pass the ceiling: try again when another was given back. Its content is
    /// whatever was in it.
    #[must_use]
    pub fn try_lend(&self, bytes: usize) -> Option<Loan> {
        let mut store = self.store();
        if let Some(at) = store.kept.iter().position(|buffer| buffer.length == bytes) {
            let buffer = store.kept.swap_remove(at);
            return Some(Loan { buffer: Some(buffer), from: self.clone() });
        }
        let cost = bytes.checked_add(ALIGNMENT)?;
        while store.bytes.saturating_add(cost) > store.bytes_max {
            let other = store.kept.pop()?;
            store.bytes -= other.space.len();
        }
        store.bytes += cost;
        drop(store);
        Some(Loan { buffer: Some(AlignedBuffer::new(bytes)), from: self.clone() })
    }

    /// How many buffers of this many bytes it lends at a time.
    #[must_use]
    pub fn loans_max(&self, bytes: usize) -> usize {
        self.store().bytes_max / (bytes + ALIGNMENT)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing in here can be left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store();
        write!(out, "Arena({} of {} bytes, {} buffers kept)", store.bytes, store.bytes_max, store.kept.len())
    }
}

/// A buffer that goes back when dropped.
#[derive(Debug)]
pub struct Loan {
    /// Taken out by `drop` alone.
    buffer: Option<AlignedBuffer>,
    from: Arena,
}

impl Loan {
    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.length)
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], AlignedBuffer::bytes)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.from.store().kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p11_no_more_is_lent_than_the_ceiling() {
        let arena = Arena::new(Bytes(3 * (4_096 + ALIGNMENT as u64)));
        let mut loans: Vec<Loan> = (0..3).map(|_| arena.try_lend(4_096).expect("room")).collect();
        assert!(arena.try_lend(4_096).is_none());
        loans.pop();
        assert!(arena.try_lend(4_096).is_some());
    }

    #[test]
    fn buffers_kept_make_room_for_one_of_another_size() {
        let arena = Arena::new(Bytes(64 << 10));
        drop(arena.try_lend(16 << 10));
        drop(arena.try_lend(20 << 10));
        assert!(arena.try_lend(50 << 10).is_some());
        assert!(arena.try_lend(1 << 20).is_none());
    }

    #[test]
    fn a_buffer_starts_where_o_direct_wants_it() {
        let arena = Arena::new(ARENA_BYTES_MAX);
        let mut loan = arena.try_lend(BUFFER_BYTES).expect("room");
        assert_eq!(loan.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        assert_eq!(loan.bytes().len(), BUFFER_BYTES);
    }
}
