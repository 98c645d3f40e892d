//! What an object holds: kept bytes, or bytes made from a seed when they are asked for.
//!
//! In: bytes or (seed, length). Out: any range of it, its ETag, its checksums. A seeded object of any size costs no memory.
//! Deliberately absent: parts; every object is one piece.

use aws_smithy_types::base64;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest as CrcDigest};
use sha2::{Digest as _, Sha256};

use crate::lab::seed;

/// Bytes made at a time for a checksum of a whole object.
const CHUNK_BYTES: u64 = 1 << 20;

/// The bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// These bytes.
    Bytes(Bytes),
    /// The first `len` bytes of `seed`'s stream ([`seed::fill`]).
    Seeded {
        /// Seed of the stream.
        seed: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Which checksum the server stores with an object, and tells when asked with `x-amz-checksum-mode: ENABLED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// None, as for objects of old clients.
    None,
    /// CRC64NVME of the whole object.
    Crc64Nvme,
    /// CRC32C of the whole object.
    Crc32c,
    /// SHA-256 of the whole object.
    Sha256,
    /// A CRC64NVME that does not match the bytes.
    WrongCrc64Nvme,
}

impl Body {
    /// These bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Bytes(bytes.into())
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Seeded { len, .. } => *len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `count` bytes from `offset` on, which must lie inside.
    pub fn read(&self, offset: u64, count: u64) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.slice(offset as usize..(offset + count) as usize),
            Self::Seeded { seed, .. } => {
                let mut made = vec![0; count as usize];
                seed::fill(*seed, offset, &mut made);
                Bytes::from(made)
            }
        }
    }

    /// 32 hex digits in quotes: the same for the same content, another for other content.
    pub(super) fn etag(&self) -> String {
        match self {
            Self::Bytes(bytes) => format!("\"{}\"", hex::encode(&Sha256::digest(bytes)[..16])),
            // Cheap, as each entry of a made listing needs one.
            Self::Seeded { seed, len } => format!("\"{:016x}{:016x}\"", seed::mix(*seed), seed::mix(seed ^ !len)),
        }
    }

    fn chunks(&self) -> impl Iterator<Item = Bytes> {
        let len = self.len();
        (0..len).step_by(CHUNK_BYTES as usize).map(move |at| self.read(at, CHUNK_BYTES.min(len - at)))
    }

    fn crc(&self, algorithm: CrcAlgorithm) -> u64 {
        let mut digest = CrcDigest::new(algorithm);
        self.chunks().for_each(|chunk| digest.update(&chunk));
        digest.finalize()
    }
}

impl Checksums {
    /// Header name (without `x-amz-checksum-`) and value for `body`.
    pub(super) fn of(self, body: &Body) -> Option<(&'static str, String)> {
        let encoded = match self {
            Self::None => return None,
            Self::Crc64Nvme => base64::encode(body.crc(CrcAlgorithm::Crc64Nvme).to_be_bytes()),
            Self::WrongCrc64Nvme => base64::encode((!body.crc(CrcAlgorithm::Crc64Nvme)).to_be_bytes()),
            // The digest is wider than the checksum, which is its low half.
            Self::Crc32c => base64::encode((body.crc(CrcAlgorithm::Crc32Iscsi) as u32).to_be_bytes()),
            Self::Sha256 => {
                let mut digest = Sha256::new();
                body.chunks().for_each(|chunk| digest.update(&chunk));
                base64::encode(digest.finalize())
            }
        };
        self.name().map(|name| (name, encoded))
    }

    /// Name of the algorithm as in header names; `None` without one.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Crc64Nvme | Self::WrongCrc64Nvme => Some("crc64nvme"),
            Self::Crc32c => Some("crc32c"),
            Self::Sha256 => Some("sha256"),
        }
    }

    /// The one that a client asked for by its header name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Crc64Nvme, Self::Crc32c, Self::Sha256].into_iter().find(|one| one.name() == Some(name))
    }
}
