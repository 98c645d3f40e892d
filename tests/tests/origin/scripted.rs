//! A service that answers as a test says, for what neither of the other servers does.
//!
//! In: a function from the head of a request to an answer. Out: an endpoint, and the heads of all requests. One request a
//! connection. Deliberately absent: everything else of HTTP.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use stokehold_origin::Origins;
use stokehold_tests::lab::bucket::Access;

use crate::ground;

/// Requests that are answered: more than a test makes.
const REQUESTS_MAX: usize = 16;

/// Status line and headers, and the body; the length of the body is added, unless a header speaks of it.
pub(crate) struct Answer {
    head: String,
    body: String,
}

impl Answer {
    pub(crate) fn new(head: &str, body: impl Into<String>) -> Self {
        Self { head: head.to_owned(), body: body.into() }
    }

    /// A page of a listing.
    pub(crate) fn page(inside: &str) -> Self {
        Self::new("200 OK", format!("<?xml version=\"1.0\"?><ListBucketResult>{inside}</ListBucketResult>"))
    }
}

/// Starts it, and origins that reach it; its requests come one by one.
pub(crate) fn serve(answer: impl Fn(&str) -> Answer + Send + 'static) -> (Origins, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let endpoint = format!("http://{}", listener.local_addr().expect("address"));
    let (heads, got) = sync_channel(REQUESTS_MAX);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok).take(REQUESTS_MAX) {
            let head = head_of(&stream);
            let Answer { head: said, body } = answer(&head);
            // The test may be over, and nobody there to hear it.
            drop(heads.send(head));
            let length = format!("content-length: {}\r\n", body.len());
            let is_said = said.contains("content-length") || said.contains("transfer-encoding");
            let length = if is_said { "" } else { &length };
            drop((&stream).write_all(format!("HTTP/1.1 {said}\r\nconnection: close\r\n{length}\r\n{body}").as_bytes()));
        }
    });
    let (access_key, secret_key) = ("lab".to_owned(), "lab".to_owned());
    let access = Access { endpoint, region: "us-east-1".to_owned(), access_key, secret_key, attempts: 1 };
    (ground::origins(&access), got)
}

/// The first request of a connection, up to its blank line.
fn head_of(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}
