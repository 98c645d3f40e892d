//! Checksums and digests: what an origin vouches for, what we compute, and how strong a match is.
//!
//! Deliberately absent: ETags. An ETag is a version token; it is never compared with content.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Which function a checksum was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumKind {
    /// CRC-64/NVME, the full-object checksum S3 gives by default; parts combine.
    Crc64Nvme,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// SHA-256.
    Sha256,
}

impl ChecksumKind {
    /// Its name as status shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "crc64nvme",
            Self::Crc32c => "crc32c",
            Self::Crc32 => "crc32",
            Self::Sha256 => "sha256",
        }
    }
}

/// A checksum of a whole file: kind and value in lower-case hex, most significant byte first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checksum {
    /// The function.
    pub kind: ChecksumKind,
    /// Its value in hex.
    pub hex: String,
}

impl Checksum {
    /// From the bytes of the value, most significant first, as S3 sends them in base64.
    #[must_use]
    pub fn from_bytes(kind: ChecksumKind, value: &[u8]) -> Self {
        Self { kind, hex: hex::encode(value) }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.kind.name(), self.hex)
    }
}

/// How the bytes of a file were proven, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// The origin offers nothing stronger than the length.
    Size,
    /// A CRC matched.
    Crc,
    /// A cryptographic digest matched.
    Digest,
}

impl Strength {
    /// What a match of this kind proves.
    #[must_use]
    pub const fn of(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Crc64Nvme | ChecksumKind::Crc32c | ChecksumKind::Crc32 => Self::Crc,
            ChecksumKind::Sha256 => Self::Digest,
        }
    }

    /// Its name as status shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Crc => "crc",
            Self::Digest => "digest",
        }
    }
}

/// A CRC-64/NVME of some bytes and how many they are, so that neighbours combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Crc64 {
    /// The CRC.
    pub crc: u64,
    /// How many bytes it covers.
    pub bytes: u64,
}

impl Crc64 {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes);
        Self { crc, bytes: bytes.len() as u64 }
    }

    /// Of these bytes followed by those of `next`.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        if self.bytes == 0 {
            return next;
        }
        if next.bytes == 0 {
            return self;
        }
        let crc = crc_fast::checksum_combine(crc_fast::CrcAlgorithm::Crc64Nvme, self.crc, next.crc, next.bytes);
        Self { crc, bytes: self.bytes + next.bytes }
    }

    /// As a checksum of a whole file.
    #[must_use]
    pub fn checksum(self) -> Checksum {
        Checksum::from_bytes(ChecksumKind::Crc64Nvme, &self.crc.to_be_bytes())
    }
}

/// A checksum being made of bytes that come in order.
#[derive(Debug)]
pub struct Hasher(Running);

#[derive(Debug)]
enum Running {
    Crc(ChecksumKind, crc_fast::Digest),
    Sha256(Sha256),
}

impl Hasher {
    /// Nothing fed yet.
    #[must_use]
    pub fn new(kind: ChecksumKind) -> Self {
        use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc, Crc64Nvme};
        let crc = |algorithm| Self(Running::Crc(kind, crc_fast::Digest::new(algorithm)));
        match kind {
            ChecksumKind::Crc64Nvme => crc(Crc64Nvme),
            ChecksumKind::Crc32c => crc(Crc32Iscsi),
            ChecksumKind::Crc32 => crc(Crc32IsoHdlc),
            ChecksumKind::Sha256 => Self(Running::Sha256(Sha256::new())),
        }
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Running::Crc(_, digest) => digest.update(bytes),
            Running::Sha256(digest) => digest.update(bytes),
        }
    }

    /// The checksum of all that was fed.
    #[must_use]
    pub fn finish(self) -> Checksum {
        match self.0 {
            Running::Crc(kind, digest) => {
                let value = digest.finalize().to_be_bytes();
                let width = if kind == ChecksumKind::Crc64Nvme { 8 } else { 4 };
                Checksum::from_bytes(kind, &value[8 - width..])
            }
            Running::Sha256(digest) => Checksum::from_bytes(ChecksumKind::Sha256, &digest.finalize()),
        }
    }
}

/// Which snapshot: the first 64 bits of a SHA-256 over what the origin listed, written as 16 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotId(pub [u8; 8]);

/// A text that is not a snapshot id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a snapshot id; allowed: 16 lower-case hex digits")]
pub struct BadSnapshotId(pub String);

impl TryFrom<String> for SnapshotId {
    type Error = BadSnapshotId;
    fn try_from(text: String) -> Result<Self, BadSnapshotId> {
        let mut id = [0; 8];
        let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        match hex::decode_to_slice(&text, &mut id) {
            Ok(()) if lower => Ok(Self(id)),
            Ok(()) | Err(_) => Err(BadSnapshotId(text)),
        }
    }
}

impl std::str::FromStr for SnapshotId {
    type Err = BadSnapshotId;
    fn from_str(text: &str) -> Result<Self, BadSnapshotId> {
        text.to_owned().try_into()
    }
}

impl From<SnapshotId> for String {
    fn from(id: SnapshotId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_combine_to_the_checksum_of_the_whole() {
        let whole: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for cut in [0, 1, 4_096, 99_999, 100_000] {
            let (head, tail) = whole.split_at(cut);
            assert_eq!(Crc64::of(head).then(Crc64::of(tail)), Crc64::of(&whole), "cut at {cut}");
        }
    }

    #[test]
    fn check_values_of_the_published_catalogues_hold() {
        let of = |kind| {
            let mut hasher = Hasher::new(kind);
            hasher.update(b"1234");
            hasher.update(b"56789");
            hasher.finish().hex
        };
        assert_eq!(of(ChecksumKind::Crc64Nvme), "ae8b14860a799888");
        assert_eq!(of(ChecksumKind::Crc32c), "e3069283");
        assert_eq!(of(ChecksumKind::Crc32), "cbf43926");
        assert_eq!(of(ChecksumKind::Sha256), "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
        assert_eq!(Crc64::of(b"123456789").checksum().hex, "ae8b14860a799888");
    }
}
