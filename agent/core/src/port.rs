//! Where decisions meet the world: the traits that host, origin and simulation implement.
//!
//! Deliberately absent: a runtime. Futures are returned, never spawned; who polls them is the agent's business.

use std::future::Future;
use std::time::Duration;

use crate::checksum::{Checksum, ChecksumKind};
use crate::file_op::{Answer, FileError, FileKind, FileOp, FileStat, Room, TreeEntry, User};
use crate::layout::TreePath;
use crate::listing::{Entry, ListingBuilder, Pin};
use crate::quantity::Bytes;
use crate::seen::Seen;
use crate::source::Source;

/// A run of bytes of one file: `start..end`, end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// How many bytes.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A disk that performs file operations below one root.
pub trait Disk: Send + Sync {
    /// Does it, or says why not. Not cancel-safe: a dropped future may leave the operation done or not.
    fn perform(&self, op: FileOp) -> impl Future<Output = Result<Answer, FileError>> + Send;

    /// Waits. Protocols that look twice wait in between.
    fn pause(&self, wait: Duration) -> impl Future<Output = ()> + Send;
}

/// Lends buffers to whoever reads bytes, and takes them filled: sockets and disk meet here without a copy and without knowing
/// each other. Bytes come in order from the start of the range.
pub trait Fill: Send {
    /// Room for the next bytes; never empty before the range is full.
    ///
    /// # Errors
    /// [`FileError`] when the disk took no more; reading must stop.
    fn buffer(&mut self) -> Result<&mut [u8], FileError>;

    /// The first `count` bytes of the buffer last lent are filled.
    ///
    /// # Errors
    /// [`FileError`] when the disk took no more; reading must stop.
    fn filled(&mut self, count: usize) -> Result<(), FileError>;
}

/// A file whose version is fixed, as the staging of it needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// What every read is tied to.
    pub pin: Pin,
    /// The strongest full-file checksum that the origin offers.
    pub checksum: Option<Checksum>,
}

/// Why an origin did not give what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// No answer: name not resolved, connection refused or lost, body cut short, time out.
    #[error("{origin} did not answer: {message}")]
    Unreachable {
        /// Which origin.
        origin: String,
        /// What happened.
        message: String,
    },
    /// The origin says no: credentials missing, wrong or expired, or no right to it.
    #[error("{origin} refused: {message}")]
    Refused {
        /// Which origin.
        origin: String,
        /// What it said.
        message: String,
    },
    /// There is no such bucket, object or folder.
    #[error("{what} does not exist")]
    Missing {
        /// What was asked for.
        what: String,
    },
    /// The version that was pinned is no longer what the origin has.
    #[error("{what} changed at the origin")]
    Changed {
        /// Which file.
        what: String,
    },
    /// The origin asks to go slower.
    #[error("{origin} asks to slow down")]
    Throttled {
        /// Which origin.
        origin: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The origin answered against its protocol: a wrong range, a wrong length, an answer that cannot be read.
    #[error("{origin} answered wrongly: {message}")]
    Broken {
        /// Which origin.
        origin: String,
        /// What was wrong.
        message: String,
    },
    /// The listing cannot be staged.
    #[error(transparent)]
    Listing(#[from] crate::listing::BadListing),
    /// The disk took no more bytes.
    #[error(transparent)]
    Disk(#[from] FileError),
}

/// Where bytes come from.
pub trait Origin: Send + Sync {
    /// Pushes all files of the source into the builder. Memory beyond the builder's is bounded by one page.
    fn list(&self, source: &Source, into: &mut ListingBuilder) -> impl Future<Output = Result<(), OriginError>> + Send;

    /// Learns what one file can be tied to and checked by, once before it is read.
    fn pin(&self, source: &Source, entry: &Entry) -> impl Future<Output = Result<Pinned, OriginError>> + Send;

    /// Reads a range of the pinned version into `fill`, in order, all of it or an error. What was filled before an error is good.
    fn read_into(
        &self,
        source: &Source,
        entry: &Entry,
        pin: &Pin,
        range: ByteRange,
        fill: &mut dyn Fill,
    ) -> impl Future<Output = Result<(), OriginError>> + Send;
}

/// Typed access to a [`Disk`].
#[derive(Debug)]
pub struct Tree<'a, D>(pub &'a D);

impl<D> Clone for Tree<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Tree<'_, D> {}

macro_rules! typed {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) => $op:expr, $answer:ident($out:ty)) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// What the disk says.
        pub async fn $name(self, $($arg: $type),*) -> Result<$out, FileError> {
            let op = $op;
            let (act, path) = op.act();
            match self.0.perform(op).await? {
                Answer::$answer(value) => Ok(value),
                other => Err(out_of_turn(act, &path, &other)),
            }
        }
    };
}

fn out_of_turn(act: &'static str, path: &TreePath, answer: &Answer) -> FileError {
    let message = format!("the disk gave an answer to another question: {answer:?}");
    FileError { act, path: path.to_string(), fault: crate::file_op::FileFault::Io, message }
}

impl<D: Disk> Tree<'_, D> {
    /// Performs an operation that has no other answer than that it is done.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn act(self, op: FileOp) -> Result<(), FileError> {
        let (act, path) = op.act();
        let answer = self.0.perform(op).await?;
        if answer == Answer::Done { Ok(()) } else { Err(out_of_turn(act, &path, &answer)) }
    }

    /// Waits.
    pub async fn pause(self, wait: Duration) {
        self.0.pause(wait).await;
    }

    typed!(
        /// The content of a small file.
        read(path: TreePath, size_max: Bytes) => FileOp::Read { path, size_max }, Content(Vec<u8>)
    );
    typed!(
        /// The target of a link.
        read_link(path: TreePath) => FileOp::ReadLink { path }, Target(String)
    );
    typed!(
        /// The names in a folder.
        list(path: TreePath) => FileOp::List { path }, Names(Vec<(String, FileKind)>)
    );
    typed!(
        /// All below a folder.
        walk(path: TreePath) => FileOp::Walk { path }, Tree(Vec<TreeEntry>)
    );
    typed!(
        /// What is at a path.
        stat(path: TreePath) => FileOp::Stat { path }, Stat(FileStat)
    );
    typed!(
        /// A checksum of part of a file.
        checksum(path: TreePath, offset: u64, length: u64, kind: ChecksumKind)
            => FileOp::Checksum { path, offset, length, kind }, Checksum(Checksum)
    );
    typed!(
        /// Who uses a file or folder.
        users(path: TreePath) => FileOp::Users { path }, Users(Seen<Vec<User>>)
    );
    typed!(
        /// Room on the filesystem.
        room() => FileOp::Room, Room(Room)
    );
}
