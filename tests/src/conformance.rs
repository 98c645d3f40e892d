//! What every origin must do, whatever is behind it.
//!
//! In: an origin and a [`Ground`] that it reads. Out: nothing, or a panic that says which rule is broken. Deliberately absent:
//! what only one kind of origin can do (checksums, bad keys, faults), which is tested beside it.

use std::future::Future;

use stokehold_core::listing::{BadListing, Entry, Filter, Listing, ListingBuilder};
use stokehold_core::port::{ByteRange, Origin, OriginError};
use stokehold_core::source::Source;

use crate::lab::seed;

mod collected;

pub use collected::Collected;

/// Files of the long listing: more than two pages of any service we know.
const MANY: usize = 2_500;

/// A place that an origin reads, as a test changes it.
pub trait Ground: Sync {
    /// The source that is this folder of it.
    fn source(&self, folder: &str) -> Source;

    /// Writes a file of this path below the place, or replaces one.
    fn put(&self, path: &str, bytes: Vec<u8>) -> impl Future<Output = ()> + Send;

    /// Removes a file.
    fn remove(&self, path: &str) -> impl Future<Output = ()> + Send;
}

/// Checks all rules on one origin.
pub async fn check(origin: &impl Origin, ground: &impl Ground) {
    files_are_listed_and_read(origin, ground).await;
    a_full_disk_ends_the_read(origin, ground).await;
    what_changed_or_went_away_is_never_read(origin, ground).await;
    long_listings_are_complete(origin, ground).await;
}

/// The listing of a source.
pub async fn list(origin: &impl Origin, source: &Source) -> Result<Listing, OriginError> {
    list_only(origin, source, &[]).await
}

/// The listing of a source, narrowed by globs.
pub async fn list_only(origin: &impl Origin, source: &Source, include: &[&str]) -> Result<Listing, OriginError> {
    let include: Vec<String> = include.iter().map(ToString::to_string).collect();
    let filter = Filter::new(&include, &[]).expect("globs");
    let mut builder = ListingBuilder::new(source.identity(), filter);
    origin.list(source, &mut builder).await?;
    Ok(builder.build()?)
}

/// Pins a file and reads a range of it.
pub async fn read(
    origin: &impl Origin,
    source: &Source,
    entry: &Entry,
    range: ByteRange,
) -> Result<Vec<u8>, OriginError> {
    let pinned = origin.pin(source, entry).await?;
    let mut fill = Collected::default();
    origin.read_into(source, entry, &pinned.pin, range, &mut fill).await?;
    Ok(fill.bytes)
}

/// The entry of this path.
pub fn entry_of<'a>(listing: &'a Listing, path: &str) -> &'a Entry {
    let found = listing.entries.iter().find(|entry| entry.path.as_str() == path);
    found.unwrap_or_else(|| panic!("{path} is not in {:?}", paths(listing)))
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| entry.path.as_str()).collect()
}

async fn files_are_listed_and_read(origin: &impl Origin, ground: &impl Ground) {
    let expected: [(&str, usize); 7] = [
        ("a b+c%41&=ü.txt", 11),
        ("config.json", 700),
        ("empty", 0),
        ("model.safetensors", 5_000_003),
        ("sub/.hidden", 1),
        ("sub/deep/er/x.bin", 65_537),
        ("sub/x.json", 4_096),
    ];
    for (number, (path, length)) in expected.iter().enumerate() {
        ground.put(&format!("files/{path}"), seed::bytes(number as u64, *length)).await;
    }
    ground.put("files-2/other", vec![1]).await;

    let source = ground.source("files");
    let listing = list(origin, &source).await.expect("lists");
    let listed: Vec<_> = listing.entries.iter().map(|entry| (entry.path.as_str(), entry.size.0 as usize)).collect();
    assert_eq!(listed, expected, "exactly what is below the source, and nothing of a folder whose name begins alike");
    assert_eq!(listing.folders, ["sub", "sub/deep", "sub/deep/er"]);
    assert_eq!(list(origin, &source).await.expect("lists again").id, listing.id, "unchanged content keeps its id");
    let narrow = list_only(origin, &source, &["*.json"]).await.expect("lists");
    assert_eq!(paths(&narrow), ["config.json", "sub/x.json"]);

    for (number, (path, length)) in expected.iter().enumerate() {
        let whole = seed::bytes(number as u64, *length);
        for range in ranges(*length as u64) {
            let got = read(origin, &source, entry_of(&listing, path), range).await;
            let got = got.unwrap_or_else(|error| panic!("{path} {range:?}: {error}"));
            assert!(got == whole[range.start as usize..range.end as usize], "{path} {range:?} gave other bytes");
        }
    }
    let beyond = ByteRange { start: 700, end: 701 };
    let error = read(origin, &source, entry_of(&listing, "config.json"), beyond).await;
    assert!(error.is_err(), "bytes that the file does not have must not be made up");
}

/// The whole, nothing, and odd pieces up to the last byte.
fn ranges(length: u64) -> Vec<ByteRange> {
    let pieces = [
        (0, length),
        (0, 0),
        (0, 1),
        (1, 2),
        (4_095, 4_097),
        (length / 3, length / 3 * 2),
        (length.max(1) - 1, length),
    ];
    let inside = pieces.into_iter().filter(|(start, end)| start <= end && *end <= length);
    inside.map(|(start, end)| ByteRange { start, end }).collect()
}

async fn a_full_disk_ends_the_read(origin: &impl Origin, ground: &impl Ground) {
    ground.put("full/file", seed::bytes(20, 3_000_000)).await;
    let source = ground.source("full");
    let listing = list(origin, &source).await.expect("lists");
    let entry = entry_of(&listing, "file");
    let pinned = origin.pin(&source, entry).await.expect("pins");
    let mut fill = Collected::with_room(1_000_000);
    let range = ByteRange { start: 0, end: entry.size.0 };
    let read = origin.read_into(&source, entry, &pinned.pin, range, &mut fill).await;
    assert!(matches!(read, Err(OriginError::Disk(_))), "{read:?}");
    assert!(fill.bytes == seed::bytes(20, 1_000_000), "what was filled before is good");
}

async fn what_changed_or_went_away_is_never_read(origin: &impl Origin, ground: &impl Ground) {
    ground.put("changing/one", seed::bytes(30, 5_000)).await;
    ground.put("changing/two", seed::bytes(31, 5_000)).await;
    let source = ground.source("changing");
    let before = list(origin, &source).await.expect("lists");
    let (one, two) = (entry_of(&before, "one"), entry_of(&before, "two"));
    let pinned = origin.pin(&source, one).await.expect("pins");
    let pinned_two = origin.pin(&source, two).await.expect("pins");

    ground.put("changing/one", seed::bytes(32, 5_000)).await;
    let range = ByteRange { start: 1, end: 4_000 };
    let mut fill = Collected::default();
    let read = origin.read_into(&source, one, &pinned.pin, range, &mut fill).await;
    assert!(matches!(read, Err(OriginError::Changed { .. })), "same length, other content: {read:?}");
    assert!(fill.bytes.is_empty(), "no byte of another version");
    let pin = origin.pin(&source, one).await;
    assert!(matches!(pin, Err(OriginError::Changed { .. })), "{pin:?}");
    let after = list(origin, &source).await.expect("lists");
    assert_ne!(after.id, before.id, "changed content gets another id");

    ground.remove("changing/two").await;
    let read = origin.read_into(&source, two, &pinned_two.pin, range, &mut fill).await;
    assert!(matches!(read, Err(OriginError::Missing { .. })), "{read:?}");
    let pin = origin.pin(&source, two).await;
    assert!(matches!(pin, Err(OriginError::Missing { .. })), "{pin:?}");
    let none = list(origin, &ground.source("nothing-here")).await;
    let is_said =
        matches!(none, Err(OriginError::Missing { .. } | OriginError::Listing(BadListing::Empty { seen: 0 })));
    assert!(is_said, "{none:?}");
}

async fn long_listings_are_complete(origin: &impl Origin, ground: &impl Ground) {
    let name = |number: usize| format!("{:02}/{number:04}", number % 7);
    for number in 0..MANY {
        ground.put(&format!("many/{}", name(number)), vec![0; number % 3]).await;
    }
    let listing = list(origin, &ground.source("many")).await.expect("lists");
    let mut expected: Vec<String> = (0..MANY).map(name).collect();
    expected.sort();
    assert_eq!(paths(&listing), expected);
    assert_eq!(listing.bytes.0, (0..MANY as u64).map(|number| number % 3).sum::<u64>());
}
