//! Bytes of one part on their way from a socket to the disk.
//!
//! In go bytes in order, as [`Fill`] lends room for them; out come whole buffers written where they belong, the CRC of what was
//! written, and page cache given back. Deliberately absent: which part, from where, and the journal that records it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::sys::uio::pwrite;
use stokehold_core::checksum::Crc64;
use stokehold_core::file_op::{FileError, FileFault};
use stokehold_core::layout::TreePath;
use stokehold_core::port::{ByteRange, Fill};

use crate::fault::{Refusal, uninterrupted};
use crate::root::CacheRoot;
use crate::{disk, sys};

mod arena;

pub(crate) use arena::{ALIGNMENT, AlignedBuffer};
pub use arena::{ARENA_BYTES_MAX, Arena, BUFFER_BYTES, Loan};

/// Writeback is started each time this much was written: often enough that a sync finds little left, seldom enough for large writes.
const WRITEBACK_BYTES: u64 = 8 << 20;
/// How far behind the writer pages are given back: those nearer are still on their way to the disk and would stay anyway.
const PAGES_KEPT_BYTES: u64 = 2 * WRITEBACK_BYTES;

/// Writes one range of one file.
#[derive(Debug)]
pub struct PartWriter {
    file: OwnedFd,
    path: TreePath,
    range: ByteRange,
    buffer: Loan,
    /// Bytes of the buffer that are filled and not written.
    pending: usize,
    written: Crc64,
    /// Up to where writeback was started.
    pushed: u64,
    progress: Arc<AtomicU64>,
    failed: Option<FileError>,
}

impl PartWriter {
    /// Opens the file, which must be there. `progress` grows by each byte written; parts may share it.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn open(
        root: &CacheRoot,
        path: &TreePath,
        range: ByteRange,
        buffer: Loan,
        progress: Arc<AtomicU64>,
    ) -> Result<Self, FileError> {
        let file = disk::open_file(root, path, OFlag::O_WRONLY, 0).map_err(|refusal| of(path, refusal))?;
        Ok(Self {
            file,
            path: path.clone(),
            range,
            buffer,
            pending: 0,
            written: Crc64::default(),
            pushed: range.start,
            progress,
            failed: None,
        })
    }

    /// What reached the file: always a run from the start of the range.
    #[must_use]
    pub fn written(&self) -> Crc64 {
        self.written
    }

    /// Writes what is still in the buffer. Also after a read that broke off: what came before is good.
    ///
    /// # Errors
    /// [`FileError`]; [`written`](Self::written) tells what arrived nevertheless.
    pub fn finish(&mut self) -> Result<Crc64, FileError> {
        self.flush()?;
        self.push(0);
        Ok(self.written)
    }

    fn position(&self) -> u64 {
        self.range.start + self.written.bytes
    }

    /// Room in the buffer that the range still has bytes for.
    fn room(&self) -> usize {
        let left = self.range.length() - self.written.bytes - self.pending as u64;
        usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.length() - self.pending)
    }

    fn flush(&mut self) -> Result<(), FileError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut from = 0;
        while from < self.pending {
            let rest = &self.buffer.bytes()[from..self.pending];
            let offset = i64::try_from(self.range.start + self.written.bytes).map_err(|_beyond| Errno::EFBIG);
            let count = match offset.and_then(|offset| uninterrupted(|| pwrite(&self.file, rest, offset))) {
                Ok(count) => count,
                Err(errno) => {
                    // Bytes that follow would leave a gap: nothing more is taken.
                    self.pending = 0;
                    return Err(self.failed.insert(of(&self.path, errno.into())).clone());
                }
            };
            self.written = self.written.then(Crc64::of(&rest[..count]));
            self.progress.fetch_add(count as u64, Ordering::Relaxed);
            from += count;
        }
        self.pending = 0;
        self.push(WRITEBACK_BYTES);
        Ok(())
    }

    /// Starts writeback of what was written since the last time if it is at least `least`, and lets earlier pages go. Both are
    /// advice: what fails costs memory for a while, and the sync before a watermark tells of errors.
    fn push(&mut self, least: u64) {
        let position = self.position();
        let new = position - self.pushed;
        if new == 0 || new < least {
            return;
        }
        let _started = sys::start_writeback(&self.file, self.pushed, new);
        self.pushed = position;
        let behind = self.written.bytes.saturating_sub(PAGES_KEPT_BYTES);
        if let (Ok(start), Ok(behind @ 1..)) = (i64::try_from(self.range.start), i64::try_from(behind)) {
            let _advice = posix_fadvise(&self.file, start, behind, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }
}

impl Fill for PartWriter {
    fn buffer(&mut self) -> Result<&mut [u8], FileError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let (pending, room) = (self.pending, self.room());
        Ok(&mut self.buffer.bytes()[pending..pending + room])
    }

    fn filled(&mut self, count: usize) -> Result<(), FileError> {
        if count > self.room() {
            let message = format!("{count} bytes came for {} that were asked for", self.room());
            return Err(of(&self.path, Refusal::new(FileFault::TooLarge, message)));
        }
        self.pending += count;
        if self.room() == 0 { self.flush() } else { Ok(()) }
    }
}

fn of(path: &TreePath, refusal: Refusal) -> FileError {
    FileError { act: "write part of", path: path.to_string(), fault: refusal.fault, message: refusal.message }
}

#[cfg(test)]
mod tests;
