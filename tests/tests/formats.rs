//! Every format on disk: today's code reads yesterday's sample, and writes what it wrote then.
//!
//! Samples stand in `tests/fixtures/formats`. A change that breaks one of these tests breaks the cache of everybody who upgrades.
//! `STOKEHOLD_RENEW=1` writes samples that are missing; it never changes one that is there.

use std::fs;
use std::path::PathBuf;

use stokehold_core::checksum::{Checksum, ChecksumKind, Crc64, SnapshotId, Strength};
use stokehold_core::journal::{JournalWriter, Piece, Recovered, recover};
use stokehold_core::listing::{Pin, StatGuard};
use stokehold_core::name::CacheId;
use stokehold_core::quantity::Bytes;
use stokehold_core::record::{
    DeploymentRecord, InHand, Manifest, ManifestFile, RECORD_VERSION, StatusRecord, TreeRecord, decode, encode,
};
use stokehold_core::time::{Millis, WallTime};

const SNAPSHOT: SnapshotId = SnapshotId([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);

fn sample(name: &str, today: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/formats").join(name);
    if !path.exists() && std::env::var_os("STOKEHOLD_RENEW").is_some() {
        fs::write(&path, today).expect("the sample is written");
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; STOKEHOLD_RENEW=1 writes it", path.display()))
}

fn check<R>(name: &str, record: &R)
where
    R: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let today = encode(record);
    let sample = sample(name, &today);
    assert_eq!(&decode::<R>(&sample).expect(name), record, "what {name} says");
    assert_eq!(String::from_utf8_lossy(&today), String::from_utf8_lossy(&sample), "how {name} is written");
    let newer = String::from_utf8(sample).expect("JSON").replace("\"version\": 1", "\"version\": 2");
    assert!(decode::<R>(newer.as_bytes()).is_err(), "{name} of a newer release is not read");
}

#[test]
fn the_record_of_a_deployment_is_read_as_it_was_written() {
    let record = DeploymentRecord {
        version: RECORD_VERSION,
        target: Some(SNAPSHOT),
        origin_fingerprint: "00112233445566aa".to_owned(),
        retain_after_delete_s: 3_600,
        priority: -5,
        unwanted_since: Some(WallTime(1_796_000_000)),
        in_hand: Some(InHand { snapshot: SNAPSHOT, starts: 1, begun_at: WallTime(1_796_000_001) }),
    };
    check("deployment.json", &record);
}

#[test]
fn a_manifest_is_read_as_it_was_written() {
    let file = |path: &str, pin: Pin, checksum: Option<Checksum>| ManifestFile {
        path: path.try_into().expect("checked"),
        size: Bytes(5),
        pin,
        checksum,
        crc64nvme: Crc64::of(b"hello").checksum().hex,
        inode: 42,
        mtime_ns: 1_796_000_000_123_456_789,
        ctime_ns: 1_796_000_000_223_456_789,
    };
    let s3 = Pin { etag: Some("abc-2".to_owned()), version_id: Some("v1".to_owned()), stat: None };
    let guard = StatGuard { device: 1, inode: 2, mtime_ns: -1, ctime_ns: 4 };
    let posix = Pin { stat: Some(guard), ..Pin::default() };
    let checksum = Checksum { kind: ChecksumKind::Crc64Nvme, hex: Crc64::of(b"hello").checksum().hex };
    let manifest = Manifest {
        version: RECORD_VERSION,
        snapshot: SNAPSHOT,
        identity: "s3://models/llama/".to_owned(),
        origin_fingerprint: "00112233445566aa".to_owned(),
        verified: Strength::Size,
        published_at: WallTime(1_796_000_002),
        bytes: Bytes(10),
        files: vec![file("a/model.safetensors", s3, Some(checksum)), file("config.json", posix, None)],
    };
    check("manifest.json", &manifest);
}

#[test]
fn the_status_that_pods_read_is_read_as_it_was_written() {
    let status = StatusRecord {
        version: RECORD_VERSION,
        phase: "Staging".to_owned(),
        snapshot: None,
        staging: Some(SNAPSHOT),
        bytes_done: Bytes(7),
        bytes_total: Bytes(11),
        holds: vec!["NoRoom: needs 140.0 GiB".to_owned()],
        vouched_until: WallTime(1_796_000_120),
    };
    check("status.json", &status);
}

#[test]
fn the_record_of_the_tree_keeps_what_another_release_wrote() {
    let mut record = TreeRecord::default();
    let cache = CacheId::new("inference", "llama-70b").expect("checked");
    record.promised.insert(cache.clone(), Bytes(1 << 30));
    let sample = sample("stokehold.json", &encode(&record));
    assert_eq!(TreeRecord::decode(&sample).expect("it is read"), record);
    let text = String::from_utf8(sample).expect("JSON");
    let with_more = text.replacen('{', "{\"projects\": {\"inference/llama-70b\": 7340033}, \"later\": true,", 1);
    let kept = encode(&TreeRecord::decode(with_more.as_bytes()).expect("more is no harm"));
    let kept = String::from_utf8(kept).expect("JSON");
    assert!(kept.contains("7340033") && kept.contains("\"later\": true"), "{kept}");
    assert!(TreeRecord::decode(text.replace("\"formatVersion\": 1", "\"formatVersion\": 2").as_bytes()).is_err());
}

#[test]
fn a_journal_is_read_as_it_was_written() {
    let piece = |file, offset, bytes: &[u8]| Piece { file, offset, crc: Crc64::of(bytes) };
    let (mut writer, header) = JournalWriter::new(&Recovered::default(), SNAPSHOT, Millis(0));
    let mut bytes = header.expect("a new journal has a header");
    bytes.extend(writer.piece(piece(0, 0, b"hello")));
    bytes.extend(writer.piece(piece(1, 8_388_608, b"world")));
    bytes.extend(writer.watermark(Millis(1)));
    bytes.extend(writer.discard(1));
    bytes.extend(writer.piece(piece(2, 0, b"claimed")));
    let sample = sample("incoming.journal", &bytes);
    assert_eq!(sample, bytes);
    let recovered = recover(&sample, SNAPSHOT);
    assert_eq!(recovered.trusted, [piece(0, 0, b"hello")]);
    assert_eq!(recovered.claimed, [piece(2, 0, b"claimed")]);
    assert_eq!(recovered.discarded, [1]);
}
