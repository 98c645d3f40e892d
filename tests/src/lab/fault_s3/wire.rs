//! S3's text forms: percent-coding, queries, ranges, chunked uploads, XML.
//!
//! In: text of requests, objects of a page. Out: their parts, documents. Pure.
//! Deliberately absent: what they mean.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::lab::fault_s3::{
    content::{Body, Checksums},
    store::Page,
};

/// Time of every object, as listings and as headers say it: fixed, so that answers are the same in every run.
const MODIFIED_LISTED: &str = "2026-01-01T00:00:00.000Z";
pub(super) const MODIFIED_HEADER: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// What a `Range` header asks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of it: no such header, or one that S3 ignores.
    Whole,
    /// First and last byte.
    Part(u64, u64),
    /// Nothing that it has: 416.
    Outside,
}

/// Resolve a `Range` header against an object of `len` bytes.
pub(super) fn range(header: Option<&str>, len: u64) -> Asked {
    let Some((first, last)) = header.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return Asked::Whole;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    match (number(first), number(last)) {
        (Some(first), _) if first >= len => Asked::Outside,
        (Some(first), Some(last)) if last >= first => Asked::Part(first, last.min(len - 1)),
        (Some(first), None) if last.is_empty() => Asked::Part(first, len - 1),
        (None, Some(suffix)) if first.is_empty() && (suffix == 0 || len == 0) => Asked::Outside,
        (None, Some(suffix)) if first.is_empty() => Asked::Part(len.saturating_sub(suffix), len - 1),
        _ => Asked::Whole,
    }
}

/// Undo percent-coding; what is not UTF-8 then, or not coded well, is `None`.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Percent-code all but letters, digits and `-_.~/`, as S3 does for `encoding-type=url`.
fn encode(text: &str) -> String {
    let mut coded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            coded.push(char::from(byte));
        } else {
            write!(coded, "%{byte:02X}").expect("a String takes all text");
        }
    }
    coded
}

/// Value of `name` in a query; a name without `=` has an empty value.
pub(super) fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.into_iter().find(|(found, _)| *found == name).and_then(|(_, value)| decode(&value.replace('+', " ")))
}

/// The bytes inside an `aws-chunked` upload; `None` when it is not one.
pub(super) fn unchunk(mut rest: &[u8]) -> Option<Bytes> {
    let mut all = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&rest[..line_end]).ok()?;
        // `<hex size>;chunk-signature=...`
        let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
        if size == 0 {
            return Some(all.into());
        }
        rest = &rest[line_end + 2..];
        all.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

/// S3's error document.
pub(super) fn error(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{}</Message>\
         <RequestId>LAB</RequestId></Error>",
        escape(message)
    )
}

/// Parameters of a listing that its document repeats.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) bucket: String,
    pub(super) prefix: String,
    pub(super) max_keys: usize,
    pub(super) is_url_coded: bool,
}

/// ListObjectsV2's document of one page.
pub(super) fn listing(listing: &Listing, page: &Page) -> String {
    let name = |text: &str| if listing.is_url_coded { encode(text) } else { escape(text) };
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut put = |text: std::fmt::Arguments<'_>| xml.write_fmt(text).expect("a String takes all text");
    put(format_args!("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"));
    put(format_args!("<Name>{}</Name><Prefix>{}</Prefix>", listing.bucket, name(&listing.prefix)));
    put(format_args!("<KeyCount>{}</KeyCount><MaxKeys>{}</MaxKeys>", page.entries.len(), listing.max_keys));
    if listing.is_url_coded {
        put(format_args!("<EncodingType>url</EncodingType>"));
    }
    put(format_args!("<IsTruncated>{}</IsTruncated>", page.is_truncated));
    if let Some((last, _)) = page.entries.last().filter(|_| page.is_truncated) {
        put(format_args!("<NextContinuationToken>{}</NextContinuationToken>", token(last)));
    }
    for (key, object) in &page.entries {
        put(format_args!("<Contents><Key>{}</Key><LastModified>{MODIFIED_LISTED}</LastModified>", name(key)));
        let etag = object.etag.trim_matches('"');
        put(format_args!("<ETag>&quot;{etag}&quot;</ETag><Size>{}</Size>", object.body.len()));
        if let Some(algorithm) = object.checksums.name() {
            let algorithm = algorithm.to_uppercase();
            put(format_args!("<ChecksumAlgorithm>{algorithm}</ChecksumAlgorithm>"));
            put(format_args!("<ChecksumType>FULL_OBJECT</ChecksumType>"));
        }
        put(format_args!("<StorageClass>STANDARD</StorageClass></Contents>"));
    }
    put(format_args!("</ListBucketResult>"));
    xml
}

/// Continuation token: the last key, made opaque so that no client takes it for one.
fn token(key: &str) -> String {
    hex::encode(key)
}

/// The key inside a continuation token.
pub(super) fn token_key(token: &str) -> Option<String> {
    String::from_utf8(hex::decode(token).ok()?).ok()
}

/// Whether an upload's checksum header fits its bytes.
pub(super) fn checksum_fits(checksums: Checksums, body: &Body, said: &str) -> bool {
    checksums.of(body).is_some_and(|(_, value)| value == said)
}

fn escape(text: &str) -> String {
    if !text.contains(['&', '<', '>', '"', '\r', '\n', '\t']) {
        return text.to_owned();
    }
    let named = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // Legal in keys, but lost or refused as plain characters in XML 1.0.
    named.replace('\r', "&#13;").replace('\n', "&#10;").replace('\t', "&#9;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_resolve_as_s3_does() {
        assert_eq!(range(None, 10), Asked::Whole);
        assert_eq!(range(Some("bytes=2-5"), 10), Asked::Part(2, 5));
        assert_eq!(range(Some("bytes=2-500"), 10), Asked::Part(2, 9));
        assert_eq!(range(Some("bytes=2-"), 10), Asked::Part(2, 9));
        assert_eq!(range(Some("bytes=-3"), 10), Asked::Part(7, 9));
        assert_eq!(range(Some("bytes=10-11"), 10), Asked::Outside);
        assert_eq!(range(Some("bytes=0-0"), 0), Asked::Outside);
        assert_eq!(range(Some("bytes=5-2"), 10), Asked::Whole);
        assert_eq!(range(Some("items=1-2"), 10), Asked::Whole);
    }

    #[test]
    fn coding_and_its_undoing_are_inverse() {
        let odd = "a b/ü+&%\"<\n";
        assert_eq!(decode(&encode(odd)).as_deref(), Some(odd));
        assert_eq!(decode("%zz"), None);
        assert_eq!(parameter("list-type=2&prefix=a%2Fb+c", "prefix").as_deref(), Some("a/b c"));
    }

    #[test]
    fn a_chunked_upload_is_put_together() {
        let sent = b"3;chunk-signature=0\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AA==\r\n\r\n";
        assert_eq!(unchunk(sent).as_deref(), Some(&b"abcde"[..]));
        assert_eq!(unchunk(b"no chunks"), None);
    }
}
