//! Services that differ: other regions, other ETags, fewer rights, archived objects, listings that are not right.

use stokehold_core::port::{ByteRange, Origin as _, OriginError};
use stokehold_core::source::{S3Source, Source};
use stokehold_tests::conformance::{self, Collected, entry_of};

use crate::ground::s3;
use crate::scripted::{Answer, serve};

const OBJECT: &str = "<Contents><Key>m/file</Key><ETag>&quot;listed&quot;</ETag><Size>4</Size></Contents>";
const RANGE: ByteRange = ByteRange { start: 1, end: 3 };

#[tokio::test]
async fn the_region_of_a_bucket_is_learned_from_the_first_refusal() {
    let (origins, got) = serve(|head| {
        if head.contains("/eu-west-1/s3/aws4_request") {
            return Answer::page(OBJECT);
        }
        Answer::new("301 Moved Permanently\r\nx-amz-bucket-region: eu-west-1", "")
    });
    let source = s3("models", "m");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    assert_eq!(listing.entries.len(), 1);
    conformance::list(&origins, &source).await.expect("lists again");
    let regions: Vec<_> = got.try_iter().map(|head| head.contains("/eu-west-1/")).collect();
    assert_eq!(regions, [false, true, true], "asked wrongly once, then never again");
}

#[tokio::test]
async fn a_region_that_is_refused_as_well_ends_the_asking() {
    let (origins, got) = serve(|_| Answer::new("301 Moved Permanently\r\nx-amz-bucket-region: eu-west-1", ""));
    let error = conformance::list(&origins, &s3("models", "m")).await.expect_err("no region is right");
    assert!(matches!(error, OriginError::Broken { .. }), "{error:?}");
    assert_eq!(got.try_iter().count(), 2);
}

/// Serves another ETag than it lists.
fn ceph(head: &str, listed: &str) -> Answer {
    let matches = !head.contains("if-match:") || head.contains("if-match: \"served\"");
    match (head.split(' ').next(), matches) {
        (Some("HEAD"), true) => Answer::new("200 OK\r\netag: \"served\"\r\ncontent-length: 4", ""),
        (_, false) => Answer::new("412 Precondition Failed", ""),
        (_, true) if head.contains("list-type=2") => Answer::page(listed),
        (_, true) => Answer::new("206 Partial Content\r\netag: \"served\"\r\ncontent-range: bytes 1-2/4", "bc"),
    }
}

#[tokio::test]
async fn c011_a_service_that_lists_another_etag_than_it_serves_is_read() {
    let (origins, got) = serve(|head| ceph(head, OBJECT));
    let source = s3("models", "m");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    let read = conformance::read(&origins, &source, entry_of(&listing, "file"), RANGE).await;
    assert_eq!(read.expect("reads"), b"bc");
    assert_eq!(
        got.try_iter().count(),
        5,
        "one listing, HEAD with and without the listed ETag, the listing's word, one GET"
    );
}

#[tokio::test]
async fn c011_an_object_whose_listed_etag_changed_too_has_changed() {
    let listed = std::sync::atomic::AtomicUsize::new(0);
    let (origins, _got) = serve(move |head| {
        let pages =
            if head.contains("list-type=2") { listed.fetch_add(1, std::sync::atomic::Ordering::SeqCst) } else { 0 };
        ceph(
            head,
            if pages == 0 { OBJECT } else { "<Contents><Key>m/file</Key><ETag>new</ETag><Size>4</Size></Contents>" },
        )
    });
    let source = s3("models", "m");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    let pin = origins.pin(&source, entry_of(&listing, "file")).await;
    assert_eq!(pin, Err(OriginError::Changed { what: "s3://models/m/file".to_owned() }));
}

#[tokio::test]
async fn a_bucket_whose_versions_may_not_be_read_is_read_by_etag_alone() {
    let (origins, got) = serve(|head| match head.split(' ').next() {
        Some("HEAD") => Answer::new("200 OK\r\netag: \"listed\"\r\nx-amz-version-id: v1\r\ncontent-length: 4", ""),
        _ if head.contains("list-type=2") => Answer::page(OBJECT),
        _ if head.contains("versionId=v1") => Answer::new("403 Forbidden", ""),
        _ => Answer::new("206 Partial Content\r\netag: \"listed\"\r\ncontent-range: bytes 1-2/4", "bc"),
    });
    let source = s3("models", "m");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    let entry = entry_of(&listing, "file");
    let pinned = origins.pin(&source, entry).await.expect("pins");
    assert_eq!(pinned.pin.version_id.as_deref(), Some("v1"));
    for _ in 0..2 {
        let mut fill = Collected::default();
        origins.read_into(&source, entry, &pinned.pin, RANGE, &mut fill).await.expect("reads");
        assert_eq!(fill.bytes, b"bc");
    }
    let versions: Vec<_> = got.try_iter().skip(2).map(|head| head.contains("versionId")).collect();
    assert_eq!(versions, [true, false, false], "asked for once, then never again");
}

#[tokio::test]
async fn archived_objects_are_named_unless_they_were_restored_or_left_out() {
    let archived =
        "<Contents><Key>m/cold.bin</Key><ETag>a</ETag><Size>4</Size><StorageClass>DEEP_ARCHIVE</StorageClass>";
    let restored = "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>\
        <RestoreExpiryDate>2030-01-01T00:00:00Z</RestoreExpiryDate></RestoreStatus>";
    let source = s3("models", "m");
    let (origins, got) = serve(move |_| Answer::page(&format!("{OBJECT}{archived}</Contents>")));
    let error = conformance::list(&origins, &source).await.expect_err("archived").to_string();
    assert!(error.contains("s3://models/m/cold.bin") && error.contains("must be restored first"), "{error}");
    assert!(got.recv().expect("a request").contains("x-amz-optional-object-attributes: RestoreStatus"));
    assert!(conformance::list_only(&origins, &source, &["file"]).await.is_ok());
    let (origins, _got) = serve(move |_| Answer::page(&format!("{OBJECT}{archived}{restored}</Contents>")));
    assert_eq!(conformance::list(&origins, &source).await.expect("lists").entries.len(), 2);
}

#[tokio::test]
async fn a_listing_that_is_not_right_is_refused() {
    for (page, expected) in [
        ("<IsTruncated>true</IsTruncated>", "does not say where"),
        ("<IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>", "does not say where"),
        ("<Contents><Key>other/file</Key><ETag>a</ETag><Size>4</Size></Contents>", "not below the prefix"),
        ("<Contents><Key>m/file</Key><ETag>a</ETag></Contents>", "without a size"),
    ] {
        let (origins, _got) = serve(move |_| Answer::page(page));
        let error = conformance::list(&origins, &s3("models", "m")).await.expect_err(expected).to_string();
        assert!(error.contains(expected), "{page}: {error}");
    }
}

#[tokio::test]
async fn bytes_beyond_those_asked_for_are_refused() {
    let chunked = "206 Partial Content\r\netag: \"served\"\r\ncontent-range: bytes 1-2/4\r\ntransfer-encoding: chunked";
    let (origins, _got) = serve(move |head| match head.starts_with("GET /models/m/file") {
        true => Answer::new(chunked, "3\r\nbcd\r\n0\r\n\r\n"),
        false => ceph(head, OBJECT),
    });
    let source = s3("models", "m");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    let read = conformance::read(&origins, &source, entry_of(&listing, "file"), RANGE).await;
    let Err(OriginError::Broken { message, .. }) = read else { panic!("{read:?}") };
    assert_eq!(message, "asked for 2 bytes, it sent more");
}

#[tokio::test]
async fn the_requester_pays_for_each_request_where_the_source_says_so() {
    let (origins, got) = serve(|head| ceph(head, OBJECT));
    let mut source = S3Source::new("models", "m").expect("a source");
    source.requester_pays = true;
    let source = Source::S3(source);
    let listing = conformance::list(&origins, &source).await.expect("lists");
    conformance::read(&origins, &source, entry_of(&listing, "file"), RANGE).await.expect("reads");
    assert!(got.try_iter().all(|head| head.contains("x-amz-request-payer: requester")));
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_named() {
    let (origins, _got) = serve(|_| Answer::page(OBJECT));
    for endpoint in ["minio:9000", "no url", "ftp://host"] {
        let mut source = S3Source::new("models", "m").expect("a source");
        source.endpoint = Some(endpoint.to_owned());
        let error = conformance::list(&origins, &Source::S3(source)).await.expect_err(endpoint);
        assert!(error.to_string().contains("not a valid URI"), "{error:?}");
    }
}

#[tokio::test]
async fn p11_an_answer_that_does_not_end_is_cut_off() {
    // Each would be read into memory whole: a page of a listing, and an error.
    const PAGE_BYTES: usize = 24 << 20;
    const ERROR_BYTES: usize = 1 << 20;
    let (origins, _got) = serve(|_| Answer::page(&format!("{OBJECT}<!--{}-->", "x".repeat(PAGE_BYTES))));
    let error = conformance::list(&origins, &s3("models", "m")).await.expect_err("the page is cut off");
    assert!(matches!(error, OriginError::Broken { .. } | OriginError::Unreachable { .. }), "{error:?}");
    let endless = format!("<Error><Code>AccessDenied</Code><Message>{}</Message></Error>", "x".repeat(ERROR_BYTES));
    let (origins, _got) = serve(move |_| Answer::new("403 Forbidden", endless.clone()));
    let error = conformance::list(&origins, &s3("models", "m")).await.expect_err("it is refused");
    assert!(error.to_string().len() < 4_096, "{} bytes of message", error.to_string().len());
}
