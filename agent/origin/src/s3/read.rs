//! Reading a range of an object.
//!
//! In goes a pinned object and a range, out go exactly its bytes into `fill`, or an error after those that came. Deliberately
//! absent: trust. Version, range and length of what comes are compared with what was asked.

use std::sync::atomic::Ordering;

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;

use stokehold_core::listing::{Entry, Pin};
use stokehold_core::port::{ByteRange, Fill, OriginError};
use stokehold_core::source::S3Source;

use crate::s3::fault::{Asked, chain};
use crate::s3::list::payer;
use crate::s3::{S3Origin, bare, key_of, quoted};

impl S3Origin {
    pub(super) async fn read_range(
        &self,
        source: &S3Source,
        entry: &Entry,
        pin: &Pin,
        range: ByteRange,
        fill: &mut dyn Fill,
    ) -> Result<(), OriginError> {
        if range.length() == 0 {
            return Ok(());
        }
        let key = key_of(source, entry);
        let answer = self.get(source, &key, pin, range).await?;
        let host = self.clients.reach(source).await.host;
        let asked = Asked { source, key: &key, host: host.as_deref() };
        check(&asked, entry, pin, range, &answer)?;
        pour(&asked, range.length(), answer.body, fill).await
    }

    /// Asks for the pinned version by name as well, unless that takes a right (`s3:GetObjectVersion`) that is not ours.
    async fn get(
        &self,
        source: &S3Source,
        key: &str,
        pin: &Pin,
        range: ByteRange,
    ) -> Result<GetObjectOutput, OriginError> {
        let version = pin.version_id.as_deref().filter(|_| pin.etag.is_none() || !self.versions_refused());
        match self.get_version(source, key, pin, version, range).await {
            Err(OriginError::Refused { .. }) if version.is_some() && pin.etag.is_some() => {
                let answer = self.get_version(source, key, pin, None, range).await?;
                self.versions_refused.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            answered => answered,
        }
    }

    async fn get_version(
        &self,
        source: &S3Source,
        key: &str,
        pin: &Pin,
        version: Option<&str>,
        range: ByteRange,
    ) -> Result<GetObjectOutput, OriginError> {
        self.ask(source, key, |client| {
            client
                .get_object()
                .bucket(&source.bucket)
                .key(key)
                .range(format!("bytes={}-{}", range.start, range.end - 1))
                .set_if_match(pin.etag.as_deref().map(quoted))
                .set_version_id(version.map(ToOwned::to_owned))
                .set_request_payer(payer(source))
                .send()
        })
        .await
    }
}

/// Whether the answer is what was asked for, as far as its head tells.
fn check(
    asked: &Asked<'_>,
    entry: &Entry,
    pin: &Pin,
    range: ByteRange,
    answer: &GetObjectOutput,
) -> Result<(), OriginError> {
    match (answer.e_tag().map(bare), pin.etag.as_deref()) {
        (Some(served), Some(pinned)) if served == pinned => {}
        // A service that does not know If-Match.
        (Some(_), Some(_)) => return Err(OriginError::Changed { what: asked.what() }),
        (None, Some(_)) => return Err(asked.broken("it was sent without an ETag")),
        (_, None) => {}
    }
    let (first, last) = (range.start, range.end - 1);
    match answer.content_range() {
        Some(sent) if is_range(sent, first, last, entry.size.0) => {}
        Some(sent) => {
            let of = entry.size.0;
            return Err(asked.broken(format!("asked for bytes {first}-{last}/{of}, it sent {sent:?}")));
        }
        None if first == 0 && range.end == entry.size.0 => {}
        None => return Err(asked.broken(format!("asked for bytes {first}-{last}, it sent the whole"))),
    }
    match answer.content_length().map(u64::try_from) {
        Some(Ok(length)) if length == range.length() => Ok(()),
        Some(length) => {
            let length = length.map_or_else(|_| "less than no".to_owned(), |length| length.to_string());
            Err(asked.broken(format!("asked for {} bytes, it announced {length}", range.length())))
        }
        None => Ok(()),
    }
}

/// Whether a Content-Range says `bytes first-last/size`; the size may be `*`.
fn is_range(sent: &str, first: u64, last: u64, size: u64) -> bool {
    let parts = sent.trim().strip_prefix("bytes ").and_then(|rest| rest.split_once('/'));
    let Some((bounds, of)) = parts else { return false };
    let bounds = bounds.split_once('-').map(|(from, to)| (from.parse(), to.parse()));
    bounds == Some((Ok(first), Ok(last))) && (of == "*" || of.parse() == Ok(size))
}

/// Copies `length` bytes from the body, each once, and makes sure that the body ends there.
async fn pour(asked: &Asked<'_>, length: u64, mut body: ByteStream, fill: &mut dyn Fill) -> Result<(), OriginError> {
    let mut left = length;
    while let Some(frame) = body.next().await {
        let frame = frame.map_err(|error| asked.unreachable(cut(length, left, &chain(&error))))?;
        if frame.len() as u64 > left {
            return Err(asked.broken(format!("asked for {length} bytes, it sent more")));
        }
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let buffer = fill.buffer()?;
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            fill.filled(count)?;
            rest = &rest[count..];
        }
        left -= frame.len() as u64;
    }
    if left == 0 { Ok(()) } else { Err(asked.unreachable(cut(length, left, "end of body"))) }
}

fn cut(length: u64, left: u64, why: &str) -> String {
    format!("the body was cut short after {} of {length} bytes: {why}", length - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_must_say_exactly_what_was_asked() {
        assert!(is_range("bytes 10-19/100", 10, 19, 100));
        assert!(is_range("bytes 10-19/*", 10, 19, 100));
        for wrong in
            ["bytes 11-19/100", "bytes 10-20/100", "bytes 10-19/101", "bytes */100", "10-19/100", "bytes 10-19", ""]
        {
            assert!(!is_range(wrong, 10, 19, 100), "{wrong}");
        }
    }
}
