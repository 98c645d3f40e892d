//! What came of a one-off stage, as one object.

use std::time::Duration;

use serde::Serialize;
use stokehold_core::checksum::{SnapshotId, Strength};
use stokehold_core::quantity::Bytes;
use stokehold_core::source::Source;

use super::asked::Target;
use crate::job::stage::Staged;

/// The object that `--output json` ends with; scripts rely on its fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    source: String,
    target: String,
    snapshot: SnapshotId,
    files: usize,
    bytes: Bytes,
    fetched_bytes: Bytes,
    reused_bytes: Bytes,
    requests: u64,
    seconds: f64,
    verified: Strength,
}

impl Summary {
    pub(super) fn of(source: &Source, target: &Target, staged: &Staged, took: Duration) -> Self {
        Self {
            source: source.to_string(),
            target: target.parent.join(&target.name).display().to_string(),
            snapshot: staged.manifest.snapshot,
            files: staged.manifest.files.len(),
            bytes: staged.manifest.bytes,
            fetched_bytes: staged.fetched,
            reused_bytes: staged.reused,
            requests: staged.requests,
            // Milliseconds are enough.
            seconds: Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)).as_secs_f64(),
            verified: staged.manifest.verified,
        }
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let how = match self.verified {
            Strength::Size => "by length, since the origin offers no checksum of every file",
            Strength::Crc => "by the origin's CRC of every file",
            Strength::Digest => "by the origin's digest of every file",
        };
        let plural = if self.files == 1 { "" } else { "s" };
        let came = if self.fetched_bytes == Bytes::ZERO {
            "it was there already, nothing was fetched".to_owned()
        } else {
            let rate = Bytes(rate(self.fetched_bytes, self.seconds));
            let reused = match self.reused_bytes {
                Bytes::ZERO => String::new(),
                reused => format!(", {reused} were there already"),
            };
            format!(
                "{} fetched in {:.1} s ({rate}/s) with {} requests{reused}",
                self.fetched_bytes, self.seconds, self.requests
            )
        };
        format!(
            "{} has {} file{plural}, {}, snapshot {}\n{came}\nverified {how}\n",
            self.target, self.files, self.bytes, self.snapshot
        )
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rate for people"
)]
fn rate(bytes: Bytes, seconds: f64) -> u64 {
    (bytes.0 as f64 / seconds.max(0.001)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(fetched: u64, reused: u64) -> Summary {
        Summary {
            source: "s3://models/llama/".to_owned(),
            target: "/models/llama".to_owned(),
            snapshot: SnapshotId([0x1f; 8]),
            files: 12,
            bytes: Bytes(4 << 30),
            fetched_bytes: Bytes(fetched),
            reused_bytes: Bytes(reused),
            requests: 512,
            seconds: 2.0,
            verified: Strength::Crc,
        }
    }

    #[test]
    fn people_read_what_is_there_what_it_took_and_how_it_was_proven() {
        assert_eq!(
            summary(3 << 30, 1 << 30).table(),
            "/models/llama has 12 files, 4.0 GiB, snapshot 1f1f1f1f1f1f1f1f\n\
             3.0 GiB fetched in 2.0 s (1.5 GiB/s) with 512 requests, 1.0 GiB were there already\n\
             verified by the origin's CRC of every file\n"
        );
        assert!(summary(0, 4 << 30).table().contains("it was there already, nothing was fetched"));
    }

    #[test]
    fn scripts_find_the_fields_they_rely_on() {
        let object = serde_json::to_value(summary(1, 2)).expect("serialises");
        for field in ["files", "bytes", "fetched_bytes", "reused_bytes", "requests", "seconds"] {
            assert!(object[field].is_number(), "{field}");
        }
        assert_eq!(object["verified"], "crc");
    }
}
