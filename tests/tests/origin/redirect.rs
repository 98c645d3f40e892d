//! A bucket in another region than was said.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use stokehold_tests::conformance;
use stokehold_tests::lab::bucket::Access;

use crate::ground::{origins, s3};

const LISTING: &str = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents>\
    <Key>m/file</Key><ETag>&quot;abc&quot;</ETag><Size>4</Size></Contents></ListBucketResult>";

/// Requests that are answered: more than the test makes.
const REQUESTS_MAX: usize = 16;

/// The first request of a connection, up to its blank line.
fn head_of(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A service whose buckets are in `eu-west-1`; gives the heads of the requests it got.
fn elsewhere() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let endpoint = format!("http://{}", listener.local_addr().expect("address"));
    let (heads, got) = sync_channel(REQUESTS_MAX);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok).take(REQUESTS_MAX) {
            let head = head_of(&stream);
            let right = head.contains("/eu-west-1/s3/aws4_request");
            let (status, body) = if right { ("200 OK", LISTING) } else { ("301 Moved Permanently", "") };
            let answer = format!(
                "HTTP/1.1 {status}\r\nx-amz-bucket-region: eu-west-1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            heads.send(head).expect("the test is there");
            (&stream).write_all(answer.as_bytes()).expect("answers");
        }
    });
    (endpoint, got)
}

#[tokio::test]
async fn the_region_of_a_bucket_is_learned_from_the_first_refusal() {
    let (endpoint, got) = elsewhere();
    let (access_key, secret_key) = ("lab".to_owned(), "lab".to_owned());
    let access = Access { endpoint, region: "us-east-1".to_owned(), access_key, secret_key, attempts: 1 };
    let origins = origins(&access);
    let source = s3("models", "m");
    let listing = conformance::list(&origins, &source).await.expect("lists");
    assert_eq!(listing.entries.len(), 1);
    conformance::list(&origins, &source).await.expect("lists again");
    let regions: Vec<_> = got.try_iter().map(|head| head.contains("/eu-west-1/")).collect();
    assert_eq!(regions, [false, true, true], "asked wrongly once, then never again");
}
