//! All rules on all kinds of origin.

use stokehold_core::checksum::{ChecksumKind, Crc64, Hasher};
use stokehold_core::port::{Origin as _, OriginError};
use stokehold_tests::conformance::{self, entry_of};
use stokehold_tests::lab::bucket::{Bucket, Upload};
use stokehold_tests::lab::fault_s3::{Body, Checksums, FaultS3};
use stokehold_tests::lab::seaweed::Seaweed;
use stokehold_tests::lab::seed;

use crate::ground::{Bucketed, Folder, origins, s3};

#[tokio::test]
async fn a_folder_on_the_node_obeys_the_rules_of_every_origin() {
    conformance::check(&origins(&FaultS3::start().expect("server").access()), &Folder::new()).await;
}

#[tokio::test]
async fn the_faulty_server_without_faults_obeys_the_rules_of_every_origin() {
    let server = FaultS3::start().expect("server");
    let bucket = Bucket::create(&server.access(), "rules").await.expect("bucket");
    conformance::check(&origins(&server.access()), &Bucketed(bucket)).await;
}

/// One start for all rules of a real server: a start costs four seconds.
#[tokio::test]
async fn a_real_s3_server_obeys_the_rules_of_every_origin_and_vouches_for_content() {
    let Some(server) = Seaweed::start_or_skip() else { return };
    let bucket = Bucket::create(&server.access(), "rules").await.expect("bucket");
    let origins = origins(&server.access());
    conformance::check(&origins, &Bucketed(bucket.clone())).await;

    let body = seed::bytes(40, 6 << 20);
    bucket.put("sums/plain", body.clone(), Upload::Plain).await.expect("put");
    bucket.put("sums/crc", body.clone(), Upload::Crc64Nvme).await.expect("put");
    bucket.put("sums/sha256", body.clone(), Upload::Sha256).await.expect("put");
    bucket.put("sums/parts", body.clone(), Upload::Multipart { part_bytes: 5 << 20 }).await.expect("put");
    let source = s3("rules", "sums");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    let mut sha256 = Hasher::new(ChecksumKind::Sha256);
    sha256.update(&body);
    let (crc, sha256) = (Crc64::of(&body).checksum(), sha256.finish());
    for (path, expected) in [("plain", None), ("crc", Some(&crc)), ("parts", Some(&crc)), ("sha256", Some(&sha256))] {
        let pinned = origins.pin(&source, entry_of(&listing, path)).await.expect("pins");
        assert_eq!(pinned.checksum.as_ref(), expected, "{path}");
    }
}

#[tokio::test]
async fn a_version_that_is_kept_can_be_read_after_it_was_overwritten() {
    let Some(server) = Seaweed::start_or_skip() else { return };
    let bucket = Bucket::create(&server.access(), "versions").await.expect("bucket");
    bucket.enable_versioning().await.expect("versioning");
    bucket.put("m/file", seed::bytes(50, 9_000), Upload::Crc64Nvme).await.expect("put");
    let (origins, source) = (origins(&server.access()), s3("versions", "m"));
    let listing = conformance::list(&origins, &source).await.expect("lists");
    let entry = entry_of(&listing, "file");
    let pinned = origins.pin(&source, entry).await.expect("pins");
    assert!(pinned.pin.version_id.is_some());

    bucket.put("m/file", seed::bytes(51, 9_000), Upload::Crc64Nvme).await.expect("overwrite");
    let mut fill = conformance::Collected::default();
    let range = stokehold_core::port::ByteRange { start: 0, end: 9_000 };
    origins.read_into(&source, entry, &pinned.pin, range, &mut fill).await.expect("reads");
    assert!(fill.bytes == seed::bytes(50, 9_000));
}

#[tokio::test]
async fn c021_keys_that_cannot_become_paths_are_refused_with_the_key_named() {
    let server = FaultS3::start().expect("server");
    let origins = origins(&server.access());
    for (number, key) in ["../../x", "/abs", "a//b", "a/./b", "a/..", "not-empty/"].into_iter().enumerate() {
        let bucket = format!("bucket-{number}");
        server.put(&bucket, "m/good", Body::bytes("good"), Checksums::None);
        server.put(&bucket, &format!("m/{key}"), Body::bytes("bad"), Checksums::None);
        let error = conformance::list(&origins, &s3(&bucket, "m")).await.expect_err(key);
        assert!(matches!(error, OriginError::Listing(_)), "{key}: {error}");
        assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
    }
}

#[tokio::test]
async fn folder_markers_are_passed_over() {
    let server = FaultS3::start().expect("server");
    for (key, body) in [("m/", ""), ("m/sub/", ""), ("m/sub/file", "x")] {
        server.put("markers", key, Body::bytes(body), Checksums::None);
    }
    let listing = conformance::list(&origins(&server.access()), &s3("markers", "m")).await.expect("lists");
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.folders, ["sub"]);
}
