//! A long listing takes little memory. Alone in its program: the figure is that of the whole process.

use std::fs;

use stokehold_core::source::{S3Source, Source};
use stokehold_origin::{Origins, S3Credentials, S3Options};
use stokehold_tests::conformance;
use stokehold_tests::lab::fault_s3::{Checksums, FaultS3, Synthetic};

/// Keys listed.
const KEYS: u64 = 100_000;
/// Most that the process may grow, in KiB: 64 MiB, of which the listing itself takes some 40.
const GROWTH_MAX_KIB: u64 = 64 << 10;

/// A figure of this process in KiB, by its name in `/proc/self/status`.
fn status_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).expect("a figure")
}

#[tokio::test]
async fn a_hundred_thousand_keys_are_listed_within_64_mib() {
    let server = FaultS3::start().expect("server");
    let rule = |prefix: &str, count| {
        let prefix = prefix.to_owned();
        Synthetic { prefix, count, len: 1 << 20, seed: 1, checksums: Checksums::None }
    };
    server.put_synthetic("warm", rule("m/", 10));
    server.put_synthetic("many", rule("m/shard/of/a/model/part-", KEYS));
    let (access_key, secret_key) = ("lab".to_owned(), "lab".to_owned());
    let origins = Origins::new(S3Options {
        credentials: S3Credentials::Fixed { access_key, secret_key },
        endpoint: Some(server.endpoint()),
        region: Some("us-east-1".to_owned()),
        path_style: None,
    });
    let source = |bucket| Source::S3(S3Source::new(bucket, "m").expect("a source"));
    // Roots of trust, pools and the like are paid before: they do not grow with the listing.
    conformance::list(&origins, &source("warm")).await.expect("lists");

    let before = status_kib("VmRSS");
    let listing = conformance::list(&origins, &source("many")).await.expect("lists");
    let grown = status_kib("VmHWM").saturating_sub(before);
    assert_eq!(listing.entries.len() as u64, KEYS);
    println!("{KEYS} keys: the process grew by {grown} KiB at most");
    assert!(grown < GROWTH_MAX_KIB, "{grown} KiB");
}
