//! Tying an object to the version that was listed, and learning what the service vouches for.
//!
//! In goes a listed object, out come its ETag, version and checksum. Only checksums of whole objects count: a composite one (of
//! parts' checksums, written `...-N`) cannot be computed without knowing the parts, so an object that has no other has none here.

use aws_sdk_s3::operation::head_object::HeadObjectOutput;
use aws_sdk_s3::types::{ChecksumMode, ChecksumType};
use aws_smithy_types::base64;

use stokehold_core::checksum::{Checksum, ChecksumKind};
use stokehold_core::listing::{Entry, Pin};
use stokehold_core::port::{OriginError, Pinned};
use stokehold_core::quantity::Bytes;
use stokehold_core::source::S3Source;

use crate::s3::list::payer;
use crate::s3::{S3Origin, bare, client, key_of, quoted};

/// The version of objects that were written while their bucket kept none; asking for it by this name needs a right of its own.
const NO_VERSION: &str = "null";

impl S3Origin {
    pub(super) async fn pin_object(&self, source: &S3Source, entry: &Entry) -> Result<Pinned, OriginError> {
        let key = key_of(source, entry);
        let changed = || OriginError::Changed { what: format!("s3://{}/{key}", source.bucket) };
        let listed = entry.pin.etag.as_deref();
        let head = match self.head(source, &key, listed).await {
            Ok(head) => head,
            // Changed, or a service that lists another ETag than it serves.
            Err(OriginError::Changed { .. }) => self.head(source, &key, None).await?,
            Err(other) => return Err(other),
        };
        if head.content_length().and_then(|size| u64::try_from(size).ok()).map(Bytes) != Some(entry.size) {
            return Err(changed());
        }
        let Some(served) = head.e_tag().map(bare).filter(|etag| !etag.is_empty()) else {
            return Err(self.broken(source, &key, "it has no ETag to tie reads to").await);
        };
        // The listing is asked after HEAD: what it still shows as before was so at the time of HEAD too.
        if listed != Some(served) && !self.is_listed(source, &key, &entry.token).await? {
            return Err(changed());
        }
        let version_id = head.version_id().filter(|version| *version != NO_VERSION).map(ToOwned::to_owned);
        let pin = Pin { etag: Some(served.to_owned()), version_id, stat: None };
        Ok(Pinned { pin, checksum: checksum_of(&head) })
    }

    async fn head(
        &self,
        source: &S3Source,
        key: &str,
        if_match: Option<&str>,
    ) -> Result<HeadObjectOutput, OriginError> {
        self.ask(source, key, |client| {
            client
                .head_object()
                .bucket(&source.bucket)
                .key(key)
                .set_if_match(if_match.map(quoted))
                .checksum_mode(ChecksumMode::Enabled)
                .set_request_payer(payer(source))
                .customize()
                .config_override(client::patient())
                .send()
        })
        .await
    }
}

/// The strongest checksum of the whole object.
fn checksum_of(head: &HeadObjectOutput) -> Option<Checksum> {
    if head.checksum_type() == Some(&ChecksumType::Composite) {
        return None;
    }
    let offered = [
        (ChecksumKind::Sha256, 32, head.checksum_sha256()),
        (ChecksumKind::Crc64Nvme, 8, head.checksum_crc64_nvme()),
        (ChecksumKind::Crc32c, 4, head.checksum_crc32_c()),
        (ChecksumKind::Crc32, 4, head.checksum_crc32()),
    ];
    offered.into_iter().find_map(|(kind, length, value)| {
        // A composite value that does not say so fails here: `-` is no letter of this alphabet.
        let bytes = base64::decode(value?).ok()?;
        (bytes.len() == length).then(|| Checksum::from_bytes(kind, &bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c012_only_checksums_of_whole_objects_count_and_a_digest_comes_first() {
        let sha256 = base64::encode([7; 32]);
        let crc = base64::encode([1, 2, 3, 4, 5, 6, 7, 8]);
        let head = HeadObjectOutput::builder().checksum_crc64_nvme(&crc);
        let kind = |head: &HeadObjectOutput| checksum_of(head).map(|checksum| checksum.to_string());
        assert_eq!(kind(&head.clone().build()).as_deref(), Some("crc64nvme:0102030405060708"));
        let both = head.clone().checksum_sha256(&sha256).build();
        assert_eq!(checksum_of(&both).map(|checksum| checksum.kind), Some(ChecksumKind::Sha256));
        let parts = HeadObjectOutput::builder().checksum_sha256(format!("{sha256}-3"));
        assert_eq!(kind(&parts.clone().build()), None);
        assert_eq!(kind(&head.checksum_type(ChecksumType::Composite).build()), None);
        assert_eq!(kind(&HeadObjectOutput::builder().e_tag("\"0123-2\"").build()), None);
    }
}
