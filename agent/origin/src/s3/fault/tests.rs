//! What answers of S3 mean.

use aws_sdk_s3::error::ErrorMetadata;
use aws_sdk_s3::operation::get_object::GetObjectError;
use aws_sdk_s3::primitives::SdkBody;

use super::*;

fn source() -> S3Source {
    S3Source {
        bucket: "models".to_owned(),
        prefix: "llama/".to_owned(),
        region: None,
        endpoint: None,
        requester_pays: false,
    }
}

fn meant(status: u16, code: &str, headers: &[(&'static str, &'static str)]) -> Fault {
    let mut raw = HttpResponse::new(status.try_into().expect("a status"), SdkBody::empty());
    for (name, value) in headers {
        raw.headers_mut().insert(*name, *value);
    }
    let mut meta = ErrorMetadata::builder().message("as\nthe service\tsays");
    if !code.is_empty() {
        meta = meta.code(code);
    }
    let error = SdkError::service_error(GetObjectError::generic(meta.build()), raw);
    fault(&Asked { source: &source(), key: "llama/w", host: Some("s3.example:9000") }, &error)
}

#[test]
fn each_answer_has_one_meaning() {
    for (status, code, expected) in [
        (503, "SlowDown", "s3://models/llama/w at s3.example:9000 asks to slow down"),
        (429, "", "s3://models/llama/w at s3.example:9000 asks to slow down"),
        (404, "NoSuchKey", "s3://models/llama/w does not exist"),
        (404, "", "s3://models/llama/w does not exist"),
        (404, "NoSuchBucket", "bucket models does not exist"),
        (412, "", "s3://models/llama/w changed at the origin"),
        (416, "InvalidRange", "s3://models/llama/w changed at the origin"),
        (403, "AccessDenied", "refused: HTTP 403 AccessDenied as the service says"),
        (400, "ExpiredToken", "refused: HTTP 400 ExpiredToken as the service says"),
        (403, "InvalidObjectState", "refused: it is archived and must be restored first"),
        (500, "InternalError", "did not answer: HTTP 500 InternalError as the service says"),
        (502, "", "did not answer: HTTP 502 as the service says"),
        (400, "InvalidArgument", "answered wrongly: HTTP 400 InvalidArgument as the service says"),
        (301, "PermanentRedirect", "answered wrongly: HTTP 301 PermanentRedirect as the service says"),
    ] {
        let error = meant(status, code, &[]).error.to_string();
        assert!(error.contains(expected), "{status} {code}: {error}");
    }
}

#[test]
fn c035_the_wait_that_a_service_asks_for_is_told_and_bounded() {
    let wait = |said| {
        let error = meant(503, "SlowDown", &[("retry-after", said)]).error;
        let OriginError::Throttled { retry_after, .. } = error else { panic!("{error}") };
        retry_after
    };
    assert_eq!(wait("7"), Some(Duration::from_secs(7)));
    assert_eq!(wait("999999999"), Some(RETRY_AFTER_MAX));
    assert_eq!(wait("Wed, 21 Oct 2026 07:28:00 GMT"), None);
}

#[test]
fn a_region_is_learned_only_from_answers_that_are_about_regions() {
    let header = [("x-amz-bucket-region", "eu-west-1")];
    for (status, code) in [(301, "PermanentRedirect"), (301, ""), (400, "AuthorizationHeaderMalformed"), (400, "")] {
        assert_eq!(meant(status, code, &header).region.as_deref(), Some("eu-west-1"), "{status} {code}");
    }
    for (status, code) in [(403, "AccessDenied"), (404, "NoSuchKey"), (400, "InvalidArgument")] {
        assert_eq!(meant(status, code, &header).region, None, "{status} {code}");
    }
}

#[test]
fn a_message_is_one_line_of_bounded_length() {
    let long = "word\n".repeat(10_000);
    assert_eq!(one_line("a\r\nb\t c\u{7}"), "a b c");
    assert_eq!(one_line(&long).len(), MESSAGE_LENGTH_MAX);
}
