//! One blocking HTTP GET, over TCP or a Unix socket: how tests read `/metrics` and `/v1/status`.
//!
//! In: an address and a path. Out: status and body. Deliberately absent: TLS, redirects, keep-alive, streaming.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// Longest wait for a connection or for one read: an answer of our own server takes milliseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Largest answer read: metrics and status of a node stay far below it (P11).
const BODY_MAX_BYTES: u64 = 16 << 20;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// The body as text; what is not UTF-8 is replaced.
    pub body: String,
}

/// GET `path` from a TCP address.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    exchange(stream, path)
}

/// GET `path` from a Unix socket.
pub fn get_unix(socket: &Path, path: &str) -> io::Result<Answer> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    exchange(stream, path)
}

fn exchange(mut stream: impl Read + Write, path: &str) -> io::Result<Answer> {
    // HTTP/1.0: the server closes after the body, and never sends it in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n")?;
    let mut all = Vec::new();
    stream.take(BODY_MAX_BYTES).read_to_end(&mut all)?;
    parse(&all).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer to GET {path}")))
}

fn parse(all: &[u8]) -> Option<Answer> {
    let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&all[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: String::from_utf8_lossy(&all[end + 4..]).into_owned() })
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;
    use crate::lab::fault_s3::FaultS3;

    #[test]
    fn an_answer_over_tcp_has_status_and_body() {
        let server = FaultS3::start().expect("it starts");
        let answer = get(server.address(), "/bucket/key").expect("an answer");
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("<Code>NoSuchBucket</Code>"));
    }

    #[test]
    fn an_answer_over_a_unix_socket_is_read_to_its_end() {
        let folder = tempfile::tempdir().expect("folder");
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).expect("bound");
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0; 64];
            let count = stream.read(&mut asked).expect("a request");
            stream.write_all(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}").expect("answered");
            asked[..count].starts_with(b"GET /v1/status HTTP/1.0\r\n")
        });
        let answer = get_unix(&socket, "/v1/status").expect("an answer");
        assert_eq!(answer, Answer { status: 200, body: "{}".to_owned() });
        assert!(served.join().expect("served"));
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(parse(b"HTTP/1.1 many\r\n\r\n"), None);
    }
}
