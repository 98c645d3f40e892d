//! What goes wrong at an origin gets its right name, and what came before is kept.

use std::time::Duration;

use stokehold_core::checksum::ChecksumKind;
use stokehold_core::listing::{Entry, Listing};
use stokehold_core::port::{ByteRange, Origin as _, OriginError};
use stokehold_core::source::{S3Source, Source};
use stokehold_origin::{Origins, S3Options};
use stokehold_tests::conformance::{self, Collected, entry_of};
use stokehold_tests::lab::fault_s3::{Body, Checksums, Fault, FaultS3, On, Times};
use stokehold_tests::lab::{port, seed};

use crate::ground::{origins, s3};

/// Bytes of the file that is read: several frames of the server.
const LENGTH: u64 = 1_000_000;
const KEY: &str = "m/file";
const RANGE: ByteRange = ByteRange { start: 1_001, end: 900_001 };

/// A server with one object, listed.
struct Story {
    server: FaultS3,
    origins: Origins,
    source: Source,
    listing: Listing,
}

impl Story {
    async fn new() -> Self {
        let server = FaultS3::start().expect("server");
        server.put("models", KEY, Body::Seeded { seed: 1, len: LENGTH }, Checksums::Crc64Nvme);
        let (origins, source) = (origins(&server.access()), s3("models", "m"));
        let listing = conformance::list(&origins, &source).await.expect("lists");
        Self { server, origins, source, listing }
    }

    fn entry(&self) -> &Entry {
        entry_of(&self.listing, "file")
    }

    /// Reads under a fault; what was filled, and how it ended.
    async fn read(&self, fault: Fault) -> (Vec<u8>, Result<(), OriginError>) {
        self.server.clear_faults();
        let pinned = self.origins.pin(&self.source, self.entry()).await.expect("pins");
        self.server.fault(KEY, fault, Times::Always);
        let mut fill = Collected::default();
        let read = self.origins.read_into(&self.source, self.entry(), &pinned.pin, RANGE, &mut fill).await;
        (fill.bytes, read)
    }

    async fn error(&self, fault: Fault) -> OriginError {
        let name = format!("{fault:?}");
        self.read(fault).await.1.expect_err(&name)
    }
}

#[tokio::test]
async fn c035_a_service_that_asks_to_slow_down_is_heard() {
    let story = Story::new().await;
    for (said, expected) in [(Some(7), Some(Duration::from_secs(7))), (None, None)] {
        let error = story.error(Fault::SlowDown { retry_after: said }).await;
        assert!(matches!(error, OriginError::Throttled { retry_after, .. } if retry_after == expected), "{error:?}");
    }
    assert_eq!(story.server.log().gets(), 2, "reads are not repeated here");
}

#[tokio::test]
async fn a_cut_body_keeps_what_came_and_says_that_the_rest_did_not() {
    let story = Story::new().await;
    for (fault, kept) in [
        (Fault::DropAfter { bytes: 0 }, 0),
        (Fault::DropAfter { bytes: 123_457 }, 123_457),
        (Fault::Truncated { missing: 1 }, RANGE.length() - 1),
    ] {
        let (bytes, read) = story.read(fault.clone()).await;
        assert!(matches!(read, Err(OriginError::Unreachable { .. })), "{fault:?}: {read:?}");
        assert_eq!(bytes.len() as u64, kept, "{fault:?}");
        let mut expected = vec![0; bytes.len()];
        seed::fill(1, RANGE.start, &mut expected);
        assert!(bytes == expected, "{fault:?}");
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_never_taken() {
    let story = Story::new().await;
    for fault in [Fault::ShiftedRange { by: 10 }, Fault::WholeObject, Fault::EmptyBody] {
        let (bytes, read) = story.read(fault.clone()).await;
        assert!(matches!(read, Err(OriginError::Broken { .. })), "{fault:?}: {read:?}");
        assert!(bytes.is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn an_object_that_changed_is_named() {
    let story = Story::new().await;
    let changed = OriginError::Changed { what: "s3://models/m/file".to_owned() };
    assert_eq!(story.error(Fault::PreconditionFailed).await, changed);
    let with = Body::Seeded { seed: 2, len: LENGTH };
    assert_eq!(story.error(Fault::Overwritten { with }).await, changed);
    assert_eq!(story.origins.pin(&story.source, story.entry()).await, Err(changed));
    let etag = format!("\"{}\"", story.entry().token);
    assert!(story.server.log().gets_of(KEY).all(|get| get.if_match.as_ref() == Some(&etag)));
}

#[tokio::test]
async fn refusals_say_which_origin_and_what_it_said() {
    let story = Story::new().await;
    for (fault, code) in [
        (Fault::ExpiredToken, "ExpiredToken"),
        (Fault::Refused { status: 403, code: "AccessDenied" }, "AccessDenied"),
        (Fault::Refused { status: 403, code: "InvalidObjectState" }, "must be restored first"),
    ] {
        let error = story.error(fault).await;
        assert!(matches!(error, OriginError::Refused { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("s3://models/m/file at 127.0.0.1:") && text.contains(code), "{text}");
    }
    let error = story.error(Fault::Refused { status: 404, code: "NoSuchKey" }).await;
    assert_eq!(error, OriginError::Missing { what: "s3://models/m/file".to_owned() });
    let error = story.error(Fault::Refused { status: 500, code: "InternalError" }).await;
    assert!(matches!(error, OriginError::Unreachable { .. }), "{error:?}");
    let bucket = conformance::list(&story.origins, &s3("no-such-bucket", "m")).await.expect_err("no bucket");
    assert_eq!(bucket, OriginError::Missing { what: "bucket no-such-bucket".to_owned() });
}

#[tokio::test]
async fn an_endpoint_where_nobody_listens_is_unreachable() {
    let [port] = port::free();
    let mut source = S3Source::new("models", "m").expect("a source");
    source.endpoint = Some(format!("http://user:secret@127.0.0.1:{port}"));
    let story = Story::new().await;
    let error = conformance::list(&story.origins, &Source::S3(source)).await.expect_err("nobody listens");
    assert!(matches!(error, OriginError::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("s3://models/m/ at 127.0.0.1:{port} did not answer")), "{text}");
    assert!(text.contains("refused") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_listing_survives_a_page_that_fails_once() {
    let story = Story::new().await;
    for fault in [Fault::SlowDown { retry_after: None }, Fault::DropAfter { bytes: 100 }] {
        story.server.fault(On::List, fault.clone(), Times::Once);
        let again = conformance::list(&story.origins, &story.source).await;
        assert_eq!(again.as_ref(), Ok(&story.listing), "{fault:?}");
    }
    story.server.fault(On::List, Fault::DropAfter { bytes: 100 }, Times::Always);
    let error = conformance::list(&story.origins, &story.source).await.expect_err("always cut");
    assert!(matches!(error, OriginError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_bucket_that_is_public_is_read_without_credentials() {
    let story = Story::new().await;
    let options = S3Options {
        credentials: stokehold_origin::S3Credentials::Anonymous,
        endpoint: Some(story.server.endpoint()),
        region: Some("us-east-1".to_owned()),
        path_style: None,
    };
    let read = conformance::read(&Origins::new(options), &story.source, story.entry(), RANGE).await.expect("reads");
    assert_eq!(read.len() as u64, RANGE.length());
}

#[test]
fn threads_with_runtimes_of_their_own_share_nothing_that_stands_still() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let first = runtime();
    let story = first.block_on(Story::new());
    // From here on nobody polls the first runtime, and with it the connections it opened.
    for _ in 0..2 {
        let origins = story.origins.for_another_runtime();
        let read = runtime().block_on(conformance::read(&origins, &story.source, story.entry(), RANGE));
        assert_eq!(read.expect("reads").len() as u64, RANGE.length());
    }
}

#[tokio::test]
async fn the_checksum_that_is_stored_is_told() {
    let story = Story::new().await;
    for (checksums, expected) in [
        (Checksums::None, None),
        (Checksums::Crc32c, Some(ChecksumKind::Crc32c)),
        (Checksums::Crc64Nvme, Some(ChecksumKind::Crc64Nvme)),
        (Checksums::Sha256, Some(ChecksumKind::Sha256)),
    ] {
        story.server.put("models", KEY, Body::Seeded { seed: 1, len: LENGTH }, checksums);
        let pinned = story.origins.pin(&story.source, story.entry()).await.expect("pins");
        assert_eq!(pinned.checksum.map(|checksum| checksum.kind), expected);
    }
}
