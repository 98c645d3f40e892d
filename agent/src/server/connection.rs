//! Connections: a bounded number at a time, each for one request and a bounded time.
//!
//! In go listeners, out go answers of a function from a path. Deliberately absent: what is answered.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Connections at a time of one listener; Prometheus, two probes and a few people need ten.
const CONNECTIONS_MAX: usize = 64;
/// Longest life of a connection: whoever sends or reads slower than this is no scraper.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// Largest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// After an accept that failed for want of descriptors: time for some to come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

/// What answers paths.
pub(super) type Answer = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// Gives connections.
pub(super) trait Listener: Send + Sync {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one. Cancel-safe: a connection stays in the queue.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _peer)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _peer)| stream)
    }
}

/// Serves until `stop`.
pub(super) async fn serve(listener: impl Listener, answer: Answer, stop: CancellationToken) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        // Each arm is safe to drop: a token keeps its state, and a connection stays in the queue.
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.next() => accepted,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| std::future::ready(Ok::<_, Infallible>(respond(&answer, &request))));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // How it ended is the client's affair: gone, slow, or not HTTP.
            let _ended = tokio::time::timeout(CONNECTION_LIMIT, connection).await;
            drop(permit);
        });
    }
}

fn respond(answer: &Answer, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let reply = if is_read {
        answer(request.uri().path())
    } else {
        Reply {
            status: StatusCode::METHOD_NOT_ALLOWED,
            content_type: "text/plain",
            body: "allowed: GET, HEAD\n".to_owned(),
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(reply.content_type));
    if !is_read {
        headers.insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}
