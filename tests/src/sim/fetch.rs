//! What moves bytes in the modelled world: a small buffer between a simulated origin and a simulated disk.
//!
//! Deliberately absent: threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stokehold::world::{Fetch, FetchError, FetchOrder, Fetched};
use stokehold_core::checksum::Crc64;
use stokehold_core::file_op::FileError;
use stokehold_core::layout::TreePath;
use stokehold_core::port::{ByteRange, Fill, Origin as _, OriginError};

use super::disk::SimDisk;
use super::origin::SimOrigin;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 2_048;

/// Moves bytes.
#[derive(Debug, Clone)]
pub struct SimFetch {
    disk: SimDisk,
    origin: SimOrigin,
}

impl SimFetch {
    /// Between these two.
    #[must_use]
    pub const fn new(disk: SimDisk, origin: SimOrigin) -> Self {
        Self { disk, origin }
    }
}

impl Fetch for SimFetch {
    fn fetch(&self, order: FetchOrder) -> impl Future<Output = Fetched> + Send + 'static {
        let Self { disk, origin } = self.clone();
        async move {
            let mut part = SimPart::new(disk.clone(), &order);
            // Dropping the read is safe: what was filled before is in the part.
            let read = tokio::select! {
                biased;
                () = order.cancel.cancelled() => Err(FetchError::Cancelled),
                read = origin.read_into(&order.source, &order.entry, &order.pin, order.range, &mut part) => {
                    read.map_err(FetchError::Origin)
                }
            };
            let finished = part.flush().map_err(|error| FetchError::Origin(OriginError::Disk(error)));
            disk.answers().await;
            Fetched { written: Crc64::of(&part.written), error: read.err().or_else(|| finished.err()) }
        }
    }
}

struct SimPart {
    disk: SimDisk,
    path: TreePath,
    range: ByteRange,
    buffer: Vec<u8>,
    pending: usize,
    /// All that was written: their CRC is made once, at the end.
    written: Vec<u8>,
    progress: Arc<AtomicU64>,
}

impl SimPart {
    fn new(disk: SimDisk, order: &FetchOrder) -> Self {
        Self {
            disk,
            path: order.to.clone(),
            range: order.range,
            buffer: vec![0; BUFFER_BYTES],
            pending: 0,
            written: Vec::new(),
            progress: order.progress.clone(),
        }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        let bytes = &self.buffer[..std::mem::take(&mut self.pending)];
        if bytes.is_empty() {
            return Ok(());
        }
        self.disk.write_at(&self.path, self.range.start + self.written.len() as u64, bytes)?;
        self.written.extend_from_slice(bytes);
        self.progress.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Fill for SimPart {
    fn buffer(&mut self) -> Result<&mut [u8], FileError> {
        let left = self.range.length() - (self.written.len() + self.pending) as u64;
        if self.pending == self.buffer.len() || left == 0 {
            self.flush()?;
        }
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len() - self.pending);
        Ok(&mut self.buffer[self.pending..self.pending + room])
    }

    fn filled(&mut self, count: usize) -> Result<(), FileError> {
        self.pending += count;
        if self.pending == self.buffer.len() { self.flush() } else { Ok(()) }
    }
}
