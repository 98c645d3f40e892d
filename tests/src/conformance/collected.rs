//! Bytes read from an origin, kept in memory.
//!
//! In: bytes by way of [`Fill`]. Out: all of them, in order. The buffers lent are small and of an odd length, so that reads cross
//! them at every kind of place. Deliberately absent: a disk.

use stokehold_core::file_op::{FileError, FileFault};
use stokehold_core::port::Fill;

/// Length of each buffer lent; prime, so that no frame or page ends with one.
const BUFFER_BYTES: usize = 8_191;

/// What was read.
#[derive(Debug)]
pub struct Collected {
    /// The bytes.
    pub bytes: Vec<u8>,
    buffer: Vec<u8>,
    room: usize,
}

impl Default for Collected {
    fn default() -> Self {
        Self::with_room(usize::MAX)
    }
}

impl Collected {
    /// Takes so many bytes, and then is full as a disk is.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        Self { bytes: Vec::new(), buffer: vec![0; BUFFER_BYTES], room }
    }
}

impl Fill for Collected {
    fn buffer(&mut self) -> Result<&mut [u8], FileError> {
        let count = BUFFER_BYTES.min(self.room - self.bytes.len());
        if count == 0 {
            let (path, message) = ("collected".to_owned(), "no room left".to_owned());
            return Err(FileError { act: "write", path, fault: FileFault::NoSpace, message });
        }
        Ok(&mut self.buffer[..count])
    }

    fn filled(&mut self, count: usize) -> Result<(), FileError> {
        self.bytes.extend_from_slice(&self.buffer[..count]);
        Ok(())
    }
}
