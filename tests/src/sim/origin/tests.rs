//! The simulated origin by hand: what it serves, and each of its lies.

use stokehold_core::listing::Filter;
use stokehold_core::source::S3Source;

use super::*;
use crate::conformance::Collected;

fn source() -> Source {
    Source::S3(S3Source::new("models", "m").expect("a source"))
}

async fn listed(origin: &SimOrigin) -> Result<Vec<Entry>, OriginError> {
    let everything = Filter::new(&[], &[]).expect("no globs");
    let mut builder = ListingBuilder::new(source().identity(), everything);
    origin.list(&source(), &mut builder).await?;
    Ok(builder.build()?.entries)
}

#[tokio::test(start_paused = true)]
async fn what_is_pinned_is_read_and_what_changed_is_not() {
    let scene = Scene::new(1);
    let origin = SimOrigin::new(&scene, &Truth::default(), OriginFaults::default());
    let bytes = crate::lab::seed::bytes(1, 10_000);
    for path in ["a", "b/c", "b/d", "e"] {
        origin.put(&source(), path, bytes.clone(), Some(ChecksumKind::Crc64Nvme));
    }
    let entries = listed(&origin).await.expect("listed");
    assert_eq!(entries.len(), 4);
    let pinned = origin.pin(&source(), &entries[1]).await.expect("pinned");
    let range = ByteRange { start: 5, end: 9_000 };
    let mut fill = Collected::default();
    origin.read_into(&source(), &entries[1], &pinned.pin, range, &mut fill).await.expect("read");
    assert_eq!(fill.bytes, bytes[5..9_000]);
    origin.put(&source(), "b/c", bytes, None);
    let read = origin.read_into(&source(), &entries[1], &pinned.pin, range, &mut Collected::default()).await;
    assert!(matches!(read, Err(OriginError::Changed { .. })), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn an_origin_lies_only_where_a_checksum_would_tell() {
    let scene = Scene::new(2);
    let faults = OriginFaults { lies_ppm: 1_000_000, ..OriginFaults::default() };
    let origin = SimOrigin::new(&scene, &Truth::default(), faults);
    let bytes = crate::lab::seed::bytes(2, 3_000);
    origin.put(&source(), "proven", bytes.clone(), Some(ChecksumKind::Sha256));
    origin.put(&source(), "unproven", bytes.clone(), None);
    for entry in listed(&origin).await.expect("listed") {
        let mut fill = Collected::default();
        let range = ByteRange { start: 0, end: 3_000 };
        origin.read_into(&source(), &entry, &entry.pin, range, &mut fill).await.expect("read");
        assert_eq!(fill.bytes.len(), bytes.len());
        assert_eq!(fill.bytes == bytes, entry.path.as_str() == "unproven", "{}", entry.path);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_key_spoils_the_listing() {
    let origin = SimOrigin::new(&Scene::new(3), &Truth::default(), OriginFaults::default());
    origin.put(&source(), "a", vec![1], None);
    origin.set_bad_key(&source(), Some("../../etc/x"));
    assert!(matches!(listed(&origin).await, Err(OriginError::Listing(_))));
    origin.set_bad_key(&source(), None);
    assert_eq!(listed(&origin).await.expect("listed").len(), 1);
}
