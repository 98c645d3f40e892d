//! The faulty server is S3 to the AWS SDK, until a fault is ordered; then it fails exactly as ordered.

use std::time::Instant;

use aws_sdk_s3::{
    Client,
    error::ProvideErrorMetadata as _,
    operation::get_object::{GetObjectOutput, builders::GetObjectFluentBuilder},
    primitives::ByteStream,
    types::{ChecksumMode, ChecksumType},
};
use bytes::Bytes;

use super::*;
use crate::lab::{
    bucket::{Bucket, Upload},
    seed,
};

const LEN: u64 = 1_000_000;
const BODY: Body = Body::Seeded { seed: 5, len: LEN };

/// A server with `models/a` of a million bytes, a client without retries, the object's ETag.
fn served() -> (FaultS3, Client, String) {
    let server = FaultS3::start().expect("it starts");
    let etag = server.put("models", "a", BODY, Checksums::Crc64Nvme);
    let client = server.access().client();
    (server, client, etag)
}

fn get(client: &Client) -> GetObjectFluentBuilder {
    client.get_object().bucket("models").key("a")
}

/// All bytes that arrive, and whether the body ended well.
async fn drain(got: GetObjectOutput) -> (Vec<u8>, bool) {
    let (mut all, mut body): (Vec<u8>, ByteStream) = (Vec::new(), got.body);
    loop {
        match body.next().await {
            Some(Ok(bytes)) => all.extend_from_slice(&bytes),
            Some(Err(_)) => return (all, false),
            None => return (all, true),
        }
    }
}

fn bytes(from: u64, count: u64) -> Bytes {
    BODY.read(from, count)
}

#[tokio::test]
async fn a_whole_get_and_a_range_give_the_bytes_and_are_counted() {
    let (server, client, etag) = served();
    let whole = get(&client).send().await.expect("get");
    assert_eq!((whole.e_tag(), whole.content_length()), (Some(etag.as_str()), Some(LEN as i64)));
    assert!(drain(whole).await == (bytes(0, LEN).to_vec(), true));

    let part = get(&client).range("bytes=300001-700000").if_match(&etag).send().await.expect("range");
    assert_eq!(part.content_range(), Some("bytes 300001-700000/1000000"));
    assert!(drain(part).await == (bytes(300_001, 400_000).to_vec(), true));

    let log = server.log();
    assert_eq!((log.gets(), log.body_bytes("a"), log.object_bytes()), (2, 1_400_000, 1_400_000));
    assert_eq!(log.requests[1].range, Some((300_001, 700_000)));
    assert_eq!(log.requests[1].if_match.as_deref(), Some(etag.as_str()));
    assert_eq!((log.requests[1].status, log.requests[1].end, log.open()), (206, End::Complete, 0));
}

#[tokio::test]
async fn refusals_carry_s3s_codes() {
    let (_server, client, _) = served();
    let stale = get(&client).if_match("\"no\"").send().await.expect_err("412");
    assert_eq!(stale.code(), Some("PreconditionFailed"));
    assert_eq!(stale.raw_response().map(|raw| raw.status().as_u16()), Some(412));
    let outside = get(&client).range("bytes=1000000-").send().await.expect_err("416");
    assert_eq!(outside.code(), Some("InvalidRange"));
    let key = client.get_object().bucket("models").key("b").send().await.expect_err("404");
    assert!(key.into_service_error().is_no_such_key());
    let bucket = client.list_objects_v2().bucket("other").send().await.expect_err("404");
    assert!(bucket.into_service_error().is_no_such_bucket());
    let head = client.head_object().bucket("models").key("b").send().await.expect_err("404");
    assert!(head.into_service_error().is_not_found());
}

#[tokio::test]
async fn checksums_are_told_for_whole_objects_when_asked() {
    let (server, client, _) = served();
    server.put("models", "sha", BODY, Checksums::Sha256);
    server.put("models", "crc32c", Body::bytes("123456789"), Checksums::Crc32c);
    let head = |key| client.head_object().bucket("models").key(key).checksum_mode(ChecksumMode::Enabled).send();
    let crc = head("a").await.expect("head");
    let expected = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes(0, LEN));
    let expected = aws_smithy_types::base64::encode(expected.to_be_bytes());
    assert_eq!(crc.checksum_crc64_nvme(), Some(expected.as_str()));
    assert_eq!((crc.checksum_type(), crc.content_length()), (Some(&ChecksumType::FullObject), Some(LEN as i64)));
    assert!(head("sha").await.expect("head").checksum_sha256().is_some_and(|text| text.len() == 44));
    // The published check value of CRC-32C: 0xe3069283.
    assert_eq!(head("crc32c").await.expect("head").checksum_crc32_c(), Some("4waSgw=="));

    // The SDK verifies a whole GET by it.
    let whole = get(&client).checksum_mode(ChecksumMode::Enabled).send().await.expect("get");
    assert!(drain(whole).await.1);
    server.put("models", "a", BODY, Checksums::WrongCrc64Nvme);
    let whole = get(&client).checksum_mode(ChecksumMode::Enabled).send().await.expect("get");
    assert!(!drain(whole).await.1, "a wrong checksum is noticed");
    let part = get(&client).range("bytes=0-9").checksum_mode(ChecksumMode::Enabled).send().await.expect("get");
    assert_eq!(part.checksum_crc64_nvme(), None, "S3 has no checksum of a range");
    assert_eq!(server.log().heads(), 3);
}

#[tokio::test]
async fn a_listing_comes_in_pages_and_in_order() {
    let (server, client, etag) = served();
    let odd = ["odd/a b", "odd/<&\">", "odd/ü\n", "odd/+%2F"];
    for key in odd {
        server.put("models", key, Body::bytes("x"), Checksums::None);
    }
    let made = Synthetic { prefix: "many/".to_owned(), count: 2500, len: 7, seed: 1, checksums: Checksums::Sha256 };
    server.put_synthetic("models", made.clone());
    let pages = client.list_objects_v2().bucket("models").prefix("many/").into_paginator().send();
    let pages = pages.collect::<Result<Vec<_>, _>>().await.expect("pages");
    let sizes: Vec<_> = pages.iter().map(|page| page.contents().len()).collect();
    assert_eq!((sizes, server.log().lists()), (vec![1000, 1000, 500], 3));
    let keys: Vec<_> = pages.iter().flat_map(|page| page.contents()).filter_map(|object| object.key()).collect();
    assert!(keys.iter().zip(0..).all(|(key, index)| *key == made.key(index)));

    let rest = client.list_objects_v2().bucket("models").max_keys(2).into_paginator().send();
    let rest = rest.collect::<Result<Vec<_>, _>>().await.expect("pages");
    assert_eq!(rest.iter().map(|page| page.contents().len()).sum::<usize>(), 2505);
    let first = &rest[0].contents()[0];
    assert_eq!((first.key(), first.e_tag(), first.size()), (Some("a"), Some(etag.as_str()), Some(LEN as i64)));
    let listed = client.list_objects_v2().bucket("models").prefix("odd/").send().await.expect("list");
    let mut listed: Vec<_> = listed.contents().iter().filter_map(|object| object.key()).collect();
    let mut odd = odd.to_vec();
    listed.sort_unstable();
    odd.sort_unstable();
    assert_eq!(listed, odd);
    for key in odd {
        client.get_object().bucket("models").key(key).send().await.expect("an odd key is found");
    }
    let one = client.get_object().bucket("models").key(made.key(2499)).send().await.expect("a made object");
    assert_eq!(drain(one).await.0, made.body(2499).read(0, 7));
}

#[tokio::test]
async fn uploads_are_stored_with_their_checksum_and_deleted() {
    let server = FaultS3::start().expect("it starts");
    let bucket = Bucket::create(&server.access(), "new").await.expect("bucket");
    let body = seed::bytes(1, 300_000);
    bucket.put("plain", body.clone(), Upload::Plain).await.expect("plain");
    bucket.put("crc", body.clone(), Upload::Crc64Nvme).await.expect("crc");
    bucket.put("sha", body.clone(), Upload::Sha256).await.expect("sha");
    let got = bucket.client().get_object().bucket("new").key("crc").checksum_mode(ChecksumMode::Enabled);
    let got = got.send().await.expect("get");
    assert!(got.checksum_crc64_nvme().is_some());
    assert!(drain(got).await == (body, true));
    let wrong = bucket.client().put_object().bucket("new").key("bad").checksum_crc64_nvme("AAAAAAAAAAA=");
    let wrong = wrong.body(ByteStream::from_static(b"x")).send().await.expect_err("refused");
    assert_eq!(wrong.code(), Some("BadDigest"));
    bucket.delete("crc").await.expect("delete");
    assert!(bucket.client().get_object().bucket("new").key("crc").send().await.is_err());
}

#[tokio::test]
async fn ordered_refusals_hit_so_often_and_no_more() {
    let (server, client, _) = served();
    let code = async || match get(&client).send().await {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().expect("a code").to_owned(),
    };
    server.fault("a", Fault::SlowDown { retry_after: Some(7) }, Times::Once);
    let slow = get(&client).send().await.expect_err("503");
    assert_eq!(slow.raw_response().and_then(|raw| raw.headers().get("retry-after")), Some("7"));
    assert_eq!(code().await, "ok");
    server.fault("a", Fault::PreconditionFailed, Times::Once);
    assert_eq!(code().await, "PreconditionFailed");
    server.fault("a", Fault::ExpiredToken, Times::First(2));
    assert_eq!((code().await, code().await, code().await), ("ExpiredToken".into(), "ExpiredToken".into(), "ok".into()));
    server.fault("a", Fault::Refused { status: 500, code: "InternalError" }, Times::Nth(2));
    assert_eq!((code().await, code().await), ("ok".into(), "InternalError".into()));
    server.fault(On::List, Fault::SlowDown { retry_after: None }, Times::Once);
    assert!(client.list_objects_v2().bucket("models").send().await.is_err());
    assert_eq!((server.log().faults("SlowDown"), server.log().with_status(403)), (2, 2));
}

#[tokio::test]
async fn a_drop_and_a_truncation_come_after_exactly_their_bytes() {
    for (fault, arrived) in [
        (Fault::DropAfter { bytes: 0 }, 0),
        (Fault::DropAfter { bytes: 1 }, 1),
        (Fault::DropAfter { bytes: 123_457 }, 123_457),
        (Fault::DropAfter { bytes: 262_144 }, 262_144),
        (Fault::DropAfter { bytes: LEN }, LEN),
        (Fault::Truncated { missing: 1 }, LEN - 1),
    ] {
        let (server, client, _) = served();
        server.fault("a", fault.clone(), Times::Once);
        let got = get(&client).send().await.expect("the head comes");
        assert_eq!(got.content_length(), Some(LEN as i64));
        let (all, is_whole) = drain(got).await;
        assert_eq!((all.len() as u64, is_whole), (arrived, arrived == LEN), "{fault:?}");
        assert_eq!(server.log().body_bytes("a"), arrived);
        assert_eq!(server.log().requests[0].end, if arrived == LEN { End::Complete } else { End::Cut });
        assert!(drain(get(&client).send().await.expect("get")).await.1, "the next one is whole");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_holds_after_its_bytes_until_released_even_on_a_paused_clock() {
    let (server, client, _) = served();
    server.fault("a", Fault::StallAfter { bytes: 400_000 }, Times::Once);
    let got = get(&client).send().await.expect("the head comes");
    let drained = tokio::spawn(drain(got));
    server.wait_for(|log| log.stalled() == 1).await;
    assert_eq!(server.log().body_bytes("a"), 400_000);
    assert!(!drained.is_finished());
    server.release();
    assert!(drained.await.expect("drained") == (bytes(0, LEN).to_vec(), true));
    assert_eq!(server.log().stalled(), 0);
}

#[tokio::test]
async fn a_client_that_goes_away_is_seen() {
    let (server, client, _) = served();
    server.fault("a", Fault::StallAfter { bytes: 10 }, Times::Once);
    let got = get(&client).send().await.expect("the head comes");
    server.wait_for(|log| log.stalled() == 1).await;
    drop((got, client));
    server.wait_for(|log| log.requests[0].end == End::HungUp).await;
    assert_eq!((server.log().open(), server.log().most_open()), (0, 1));
}

#[tokio::test]
async fn wrong_ranges_say_what_they_are() {
    let (server, client, _) = served();
    server.fault("a", Fault::ShiftedRange { by: 5 }, Times::Once);
    let got = get(&client).range("bytes=10-19").send().await.expect("get");
    assert_eq!(got.content_range(), Some("bytes 15-24/1000000"));
    assert_eq!(drain(got).await.0, bytes(15, 10));
    server.fault("a", Fault::WholeObject, Times::Once);
    let got = get(&client).range("bytes=10-19").send().await.expect("get");
    assert_eq!((got.content_range(), got.content_length()), (None, Some(LEN as i64)));
    assert_eq!(server.log().requests[1].range, Some((10, 19)));
    server.fault("a", Fault::EmptyBody, Times::Once);
    let got = get(&client).send().await.expect("get");
    assert!(drain(got).await == (Vec::new(), true));
}

#[tokio::test]
async fn an_overwrite_between_two_ranges_changes_etag_and_bytes_for_good() {
    let (server, client, etag) = served();
    let with = Body::Seeded { seed: 6, len: LEN };
    server.fault("a", Fault::Overwritten { with: with.clone() }, Times::Nth(2));
    let first = get(&client).range("bytes=0-9").if_match(&etag).send().await.expect("old");
    assert_eq!(drain(first).await.0, bytes(0, 10));
    let second = get(&client).range("bytes=10-19").if_match(&etag).send().await.expect_err("changed");
    assert_eq!(second.code(), Some("PreconditionFailed"));
    let third = get(&client).range("bytes=10-19").send().await.expect("new");
    assert_ne!(third.e_tag(), Some(etag.as_str()));
    assert_eq!(drain(third).await.0, with.read(10, 10));
}

#[tokio::test]
async fn a_flipped_byte_changes_one_byte_and_no_length() {
    let (server, client, _) = served();
    server.fault("a", Fault::FlippedByte { at: 300_000 }, Times::Once);
    let (bent, is_whole) = drain(get(&client).send().await.expect("get")).await;
    assert!(is_whole);
    let right = bytes(0, LEN);
    let wrong: Vec<_> = (0..bent.len()).filter(|at| bent[*at] != right[*at]).collect();
    assert_eq!((bent.len(), wrong), (LEN as usize, vec![300_000]));
}

#[tokio::test]
async fn a_slow_body_takes_its_time() {
    let (server, client, _) = served();
    server.fault("a", Fault::Slow { bytes_per_second: 2_000_000 }, Times::Once);
    let started = Instant::now();
    assert!(drain(get(&client).send().await.expect("get")).await.1);
    let took = started.elapsed().as_millis();
    assert!(took >= 490, "a million bytes at two million a second took {took} ms");
}
