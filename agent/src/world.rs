//! The world as the loop sees it: a disk, origins, something that fetches, a clock, and somebody to report to.
//!
//! The real one is [`node`](crate::node); the simulation brings its own. Deliberately absent: anything that decides.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stokehold_core::checksum::Crc64;
use stokehold_core::layout::TreePath;
use stokehold_core::listing::{Entry, Pin};
use stokehold_core::observed::{QuotaMechanism, Storage};
use stokehold_core::port::{ByteRange, Disk, Origin, OriginError};
use stokehold_core::quantity::Bytes;
use stokehold_core::report::Report;
use stokehold_core::seen::Seen;
use stokehold_core::source::Source;
use stokehold_core::time::Now;
use tokio_util::sync::CancellationToken;

/// Facts of the cache root that no file operation tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFacts {
    /// Where it is on the machine.
    pub path: String,
    /// Bytes to leave free for others, of a filesystem with so many.
    pub headroom_percent: u64,
    /// Inodes to leave free for others, of a filesystem with so many.
    pub headroom_inodes_percent: u64,
    /// What kind of disk it is.
    pub storage: Seen<Storage>,
    /// What keeps a deployment within its limit.
    pub quota: QuotaMechanism,
}

/// A report could not be brought to where it is read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("bring the report to {to}: {message}")]
pub struct Unreported {
    /// Where it should have gone.
    pub to: String,
    /// What happened.
    pub message: String,
}

/// The world. Clones share it.
pub trait World: Clone + Send + Sync + 'static {
    /// The disk below the cache root.
    type Disk: Disk + 'static;
    /// Where bytes come from.
    type Origin: Origin + 'static;
    /// What moves them.
    type Fetch: Fetch + 'static;

    /// The disk.
    fn disk(&self) -> &Self::Disk;
    /// Where bytes come from.
    fn origin(&self) -> &Self::Origin;
    /// What moves them.
    fn fetch(&self) -> &Self::Fetch;
    /// The moment.
    fn now(&self) -> Now;
    /// A number drawn evenly from all of `u64`.
    fn random(&self) -> u64;
    /// What is known of the root now.
    fn root(&self) -> Seen<RootFacts>;
    /// Brings a report to where it is read: withdrawals are confirmed when this returns.
    fn say(&self, report: &Report) -> impl Future<Output = Result<(), Unreported>> + Send;
}

/// Moves the bytes of one range from an origin to the disk.
pub trait Fetch: Send + Sync {
    /// Fetches until the range is whole, something fails, or `order.cancel` is cancelled. Must be polled to its end to know what
    /// was written; a dropped future cancels.
    fn fetch(&self, order: FetchOrder) -> impl Future<Output = Fetched> + Send + 'static;
}

/// One range to fetch.
#[derive(Debug, Clone)]
pub struct FetchOrder {
    /// From where.
    pub source: Source,
    /// Which file.
    pub entry: Arc<Entry>,
    /// The version every byte must belong to.
    pub pin: Pin,
    /// Which bytes.
    pub range: ByteRange,
    /// Into which file, at the same offset.
    pub to: TreePath,
    /// Counts bytes on their way.
    pub progress: Arc<AtomicU64>,
    /// Stops it.
    pub cancel: CancellationToken,
}

/// How a fetch ended.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The bytes from the start of the range that were written, and their CRC.
    pub written: Crc64,
    /// Nothing where the range is whole.
    pub error: Option<FetchError>,
}

/// Why a range is not whole.
#[derive(Debug, Clone)]
pub enum FetchError {
    /// It was cancelled.
    Cancelled,
    /// The origin or the disk failed.
    Origin(OriginError),
}

/// `percent` of a whole.
#[must_use]
pub fn share(whole: u64, percent: u64) -> Bytes {
    Bytes(u64::try_from(u128::from(whole) * u128::from(percent) / 100).unwrap_or(u64::MAX))
}
