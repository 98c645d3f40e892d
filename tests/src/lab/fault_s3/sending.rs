//! The body of an answer on its way: sent whole, or cut, stalled, bent or slowed where the test ordered it.
//!
//! In: bytes and a [`Shape`]. Out: frames for hyper, and the count of them in the log. A cut or stall comes after
//! *exactly* its bytes have gone to the kernel: the body waits for the connection's flush.
//! Deliberately absent: which fault applies; `answer` decides.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
    time::Instant,
};

use crate::lab::fault_s3::{content::Body, log::End, world::Entry};

/// Bytes of a frame: large enough to cost little, small enough that counts in the log stay current.
const FRAME_BYTES: u64 = 256 << 10;
/// Frames a second of a slowed body.
const SLOW_FRAMES: u64 = 20;

/// What happens to a body; places are counted from its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub(super) cut_at: Option<u64>,
    pub(super) stall_at: Option<u64>,
    pub(super) flip_at: Option<u64>,
    pub(super) bytes_per_second: Option<u64>,
}

/// A fault ended the body: hyper then drops the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a fault ended the body")
    }
}

impl std::error::Error for Cut {}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Cut>> + Send>>;

/// The body type of every answer.
pub(super) type Answered = StreamBody<Frames>;

/// A part of an object, or a document, and what happens to it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) body: Body,
    /// Place in `body` of the first byte sent.
    pub(super) from: u64,
    pub(super) len: u64,
    pub(super) shape: Shape,
}

/// A piece being sent.
#[derive(Debug)]
pub(super) struct Sending {
    piece: Piece,
    entry: Entry,
    flushes: watch::Receiver<u64>,
    releases: watch::Receiver<()>,
    sent: u64,
    started: Instant,
}

impl Sending {
    /// `piece` as an answer whose line in the log is `entry`, over the connection whose flushes these are.
    pub(super) fn new(
        piece: Piece,
        entry: Entry,
        flushes: watch::Receiver<u64>,
        releases: watch::Receiver<()>,
    ) -> Self {
        Self { piece, entry, flushes, releases, sent: 0, started: Instant::now() }
    }

    pub(super) fn into_body(mut self) -> Answered {
        if self.piece.len == 0 {
            self.entry.end(End::Complete);
        }
        StreamBody::new(Box::pin(stream::unfold(Some(self), |this| async { this?.next().await })))
    }

    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Cut>, Option<Self>)> {
        if self.piece.shape.stall_at == Some(self.sent) {
            self.piece.shape.stall_at = None;
            self.flushed().await;
            self.entry.stalled();
            // An error means that the server is going: then the answer goes with it.
            self.releases.changed().await.ok()?;
            self.entry.resumed();
        }
        if self.piece.shape.cut_at == Some(self.sent) {
            self.flushed().await;
            self.entry.end(End::Cut);
            return Some((Err(Cut), None));
        }
        if self.sent == self.piece.len {
            return None;
        }
        let count = self.frame_bytes();
        self.pace(count).await;
        let mut bytes = self.piece.body.read(self.piece.from + self.sent, count);
        if let Some(at) = self.piece.shape.flip_at.and_then(|at| at.checked_sub(self.sent))
            && at < count
        {
            let mut bent = bytes.to_vec();
            bent[at as usize] = !bent[at as usize];
            bytes = bent.into();
        }
        self.sent += count;
        self.entry.sent(count);
        // Here and not at the end of the stream: hyper does not ask again once the announced length is there.
        if self.sent == self.piece.len {
            self.entry.end(End::Complete);
        }
        Some((Ok(Frame::data(bytes)), Some(self)))
    }

    /// Bytes of the next frame: up to the next place where something happens.
    fn frame_bytes(&self) -> u64 {
        let most = match self.piece.shape.bytes_per_second {
            Some(speed) => FRAME_BYTES.min((speed / SLOW_FRAMES).max(1)),
            None => FRAME_BYTES,
        };
        let places = [self.piece.shape.cut_at, self.piece.shape.stall_at].into_iter().flatten();
        let next = places.filter(|place| *place > self.sent).min();
        most.min(next.unwrap_or(self.piece.len).min(self.piece.len) - self.sent)
    }

    /// Wait until the frame of `count` bytes may end at the ordered speed.
    async fn pace(&self, count: u64) {
        if let Some(speed) = self.piece.shape.bytes_per_second {
            let due = (self.sent + count) as f64 / speed.max(1) as f64;
            tokio::time::sleep_until(self.started + Duration::from_secs_f64(due)).await;
        }
    }

    /// Wait until all frames given so far are with the kernel. hyper flushes after each round of polling the body, so
    /// the next flush that ends covers them.
    async fn flushed(&mut self) {
        self.flushes.mark_unchanged();
        // Woken again: hyper skips the flush of a round in which it polls the body twice and finds nothing to write.
        tokio::task::yield_now().await;
        // An error means that the connection is gone, and nothing is left to wait for.
        drop(self.flushes.changed().await);
    }
}

/// A connection that says when all given to it was passed to the kernel.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    flushes: watch::Sender<u64>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> (Self, watch::Receiver<u64>) {
        let (flushes, seen) = watch::channel(0);
        (Self { stream, flushes }, seen)
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper calls this only when its own buffer is empty; TCP has none that could be flushed.
        self.flushes.send_modify(|count| *count += 1);
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
