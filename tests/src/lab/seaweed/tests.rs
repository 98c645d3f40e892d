//! SeaweedFS behaves like S3 in what the origin relies on.

use aws_sdk_s3::{error::ProvideErrorMetadata as _, types::ChecksumMode};

use super::*;
use crate::lab::{
    bucket::{Bucket, Upload},
    seed,
};

/// One start for all rules: a start costs four seconds.
#[tokio::test]
async fn a_real_s3_server_stores_checksums_serves_ranges_and_honours_if_match() {
    let Some(server) = Seaweed::start_or_skip() else { return };
    let bucket = Bucket::create(&server.access(), "models").await.expect("bucket");
    let body = seed::bytes(1, 6 << 20);
    let etag = bucket.put("a/one", body.clone(), Upload::Crc64Nvme).await.expect("put");
    let get = || bucket.client().get_object().bucket("models").key("a/one");

    let part = get().range("bytes=1000-1999").if_match(&etag).send().await.expect("ranged get");
    assert_eq!(part.content_range(), Some("bytes 1000-1999/6291456"));
    assert_eq!(part.body.collect().await.expect("body").into_bytes(), body[1000..2000]);

    let stale = get().if_match("\"0123456789abcdef0123456789abcdef\"").send().await.expect_err("stale");
    assert_eq!(stale.code(), Some("PreconditionFailed"));

    let head = bucket.client().head_object().bucket("models").key("a/one");
    let head = head.checksum_mode(ChecksumMode::Enabled).send().await.expect("head");
    let whole = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &body);
    let expected = aws_smithy_types::base64::encode(whole.to_be_bytes());
    assert_eq!(head.checksum_crc64_nvme(), Some(expected.as_str()));

    bucket.put("a/parts", body.clone(), Upload::Multipart { part_bytes: 5 << 20 }).await.expect("parts");
    bucket.put("a/plain", body.clone(), Upload::Plain).await.expect("plain");
    bucket.put("a/sha", body.clone(), Upload::Sha256).await.expect("sha256");
    let head = bucket.client().head_object().bucket("models").key("a/parts");
    let head = head.checksum_mode(ChecksumMode::Enabled).send().await.expect("head");
    assert_eq!(head.checksum_crc64_nvme(), Some(expected.as_str()), "parts combine to the whole object's checksum");

    let wrong = bucket.client().put_object().bucket("models").key("bad").checksum_crc64_nvme("AAAAAAAAAAA=");
    assert!(wrong.body(b"x".to_vec().into()).send().await.is_err(), "a wrong checksum is refused");
    let stranger = Access { secret_key: "wrong".to_owned(), attempts: 1, ..server.access() };
    assert!(stranger.client().list_buckets().send().await.is_err(), "credentials are checked");

    bucket.enable_versioning().await.expect("versioning");
    let second = bucket.put("a/one", seed::bytes(2, 1000), Upload::Plain).await.expect("overwrite");
    assert_ne!(etag, second);
    bucket.delete("a/plain").await.expect("delete");
    let listed = bucket.client().list_objects_v2().bucket("models").prefix("a/").send().await.expect("list");
    let keys: Vec<_> = listed.contents().iter().filter_map(|object| object.key()).collect();
    assert_eq!(keys, ["a/one", "a/parts", "a/sha"]);
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_files() {
    let Some(server) = Seaweed::start_or_skip() else { return };
    let (folder, address) = (server.folder.path().to_owned(), (Ipv4Addr::LOCALHOST, server.ports.s3));
    drop(server);
    assert!(!folder.exists());
    assert!(std::net::TcpStream::connect(address).is_err());
}
