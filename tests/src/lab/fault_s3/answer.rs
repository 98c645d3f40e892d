//! One request to the faulty server: understood, bent by its faults, answered.
//!
//! In: an HTTP request. Out: the answer S3 would give, or what the ordered faults make of it, and a line in the log.
//! Deliberately absent: signatures (anyone may do anything), versions, multipart uploads, delimiters.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, Response,
    body::Incoming,
    header::{HeaderMap, HeaderName, HeaderValue},
    http::response::Builder,
};
use tokio::{sync::watch, task};

use crate::lab::fault_s3::{
    content::{Body, Checksums},
    fault::{Fault, On},
    log::{self, End, Operation},
    sending::{Answered, Piece, Sending, Shape},
    store::Object,
    wire::{self, Asked, Listing},
    world::World,
};

/// S3's largest page.
const PAGE_MAX_KEYS: usize = 1000;

/// A request with what its answer needs.
struct Asking {
    world: Arc<World>,
    flushes: watch::Receiver<u64>,
    headers: HeaderMap,
    query: String,
    row: log::Request,
}

/// An answer that is not a success.
struct Refusal {
    status: u16,
    code: &'static str,
    retry_after: Option<u32>,
}

const fn refusal(status: u16, code: &'static str) -> Refusal {
    Refusal { status, code, retry_after: None }
}

/// Answer one request.
pub(super) async fn answer(
    world: Arc<World>,
    flushes: watch::Receiver<u64>,
    request: Request<Incoming>,
) -> Result<Response<Answered>, Infallible> {
    let (parts, body) = request.into_parts();
    let path = wire::decode(parts.uri.path()).unwrap_or_default();
    let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    let header = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let row = log::Request {
        operation: Operation::Other,
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        range: None,
        if_match: header("if-match").map(str::to_owned),
        status: 0,
        body_bytes: 0,
        faults: Vec::new(),
        end: End::Open,
    };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let asking = Asking { world, flushes, headers: parts.headers, query, row };
    let has_key = !asking.row.key.is_empty();
    let answered = match parts.method {
        _ if asking.row.bucket.is_empty() => asking.refuse(refusal(501, "NotImplemented")),
        Method::GET if has_key => asking.get(Operation::Get),
        Method::HEAD if has_key => asking.get(Operation::Head),
        Method::GET if asking.parameter("list-type").as_deref() == Some("2") => asking.list(),
        Method::HEAD => asking.head_bucket(),
        Method::PUT if has_key && asking.query.contains("uploadId") => asking.refuse(refusal(501, "NotImplemented")),
        Method::PUT if has_key => asking.put(body).await,
        Method::PUT if asking.query.is_empty() => asking.create_bucket(),
        Method::DELETE if has_key => asking.delete(),
        _ => asking.refuse(refusal(501, "NotImplemented")),
    };
    Ok(answered)
}

impl Asking {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn parameter(&self, name: &str) -> Option<String> {
        wire::parameter(&self.query, name)
    }

    /// GET and HEAD of an object.
    fn get(mut self, operation: Operation) -> Response<Answered> {
        self.row.operation = operation;
        let key = self.row.key.clone();
        let faults = self.hit(&if operation == Operation::Head { On::Head(key) } else { On::Get(key) });
        self.overwrite(&faults);
        if let Some(refusal) = ordered_refusal(&faults) {
            return self.refuse(refusal);
        }
        let object = match self.object() {
            Ok(object) => object,
            Err(refusal) => return self.refuse(refusal),
        };
        if self.header("if-match").is_some_and(|wanted| wanted != "*" && wanted != object.etag) {
            return self.refuse(refusal(412, "PreconditionFailed"));
        }
        let len = object.body.len();
        let (mut asked, mut status) = (wire::range(self.header("range"), len), 206);
        match asked {
            Asked::Outside => return self.refuse(refusal(416, "InvalidRange")),
            Asked::Part(first, last) => self.row.range = Some((first, last)),
            Asked::Whole => status = 200,
        }
        for fault in &faults {
            match (fault, asked) {
                (Fault::WholeObject, _) => (asked, status) = (Asked::Whole, 200),
                (Fault::ShiftedRange { by }, Asked::Part(first, last)) => asked = shifted(first, last, *by, len),
                _ => {}
            }
        }
        self.send_object(&object, asked, status, &faults)
    }

    fn send_object(mut self, object: &Object, asked: Asked, status: u16, faults: &[Fault]) -> Response<Answered> {
        let len = object.body.len();
        let (first, mut count) = match asked {
            Asked::Part(first, last) => (first, last - first + 1),
            Asked::Whole | Asked::Outside => (0, len),
        };
        let mut response =
            Response::builder().status(status).header("etag", &object.etag).header("accept-ranges", "bytes");
        response =
            response.header("last-modified", wire::MODIFIED_HEADER).header("content-type", "binary/octet-stream");
        if let Asked::Part(first, last) = asked {
            response = response.header("content-range", format!("bytes {first}-{last}/{len}"));
        }
        // S3 has no checksum of an arbitrary range.
        if asked == Asked::Whole && self.header("x-amz-checksum-mode").is_some_and(|mode| mode == "ENABLED") {
            // It reads the whole object the first time.
            if let Some((name, value)) = task::block_in_place(|| object.checksum()) {
                response = response.header(format!("x-amz-checksum-{name}"), value);
                response = response.header("x-amz-checksum-type", "FULL_OBJECT");
            }
        }
        if faults.contains(&Fault::EmptyBody) {
            count = 0;
        }
        self.row.status = status;
        let sent = if self.row.operation == Operation::Head { 0 } else { count };
        let piece = Piece { body: object.body.clone(), from: first, len: sent, shape: shape(faults, count) };
        self.send(response.header("content-length", count), piece)
    }

    fn list(mut self) -> Response<Answered> {
        self.row.operation = Operation::List;
        self.row.key = self.parameter("prefix").unwrap_or_default();
        let faults = self.hit(&On::List);
        if let Some(refusal) = ordered_refusal(&faults) {
            return self.refuse(refusal);
        }
        if self.parameter("delimiter").is_some_and(|delimiter| !delimiter.is_empty()) {
            return self.refuse(refusal(501, "NotImplemented"));
        }
        let token = self.parameter("continuation-token");
        let after = match token.as_deref().map(wire::token_key) {
            Some(None) => return self.refuse(refusal(400, "InvalidArgument")),
            Some(Some(key)) => Some(key),
            None => self.parameter("start-after"),
        };
        let max_keys = self.parameter("max-keys").and_then(|text| text.parse().ok());
        let listing = Listing {
            bucket: self.row.bucket.clone(),
            prefix: self.row.key.clone(),
            max_keys: max_keys.unwrap_or(PAGE_MAX_KEYS).min(PAGE_MAX_KEYS),
            is_url_coded: self.parameter("encoding-type").as_deref() == Some("url"),
        };
        let state = self.world.lock();
        let bucket = state.buckets.get(&self.row.bucket);
        let page = bucket.map(|bucket| bucket.page(&listing.prefix, after.as_deref(), listing.max_keys));
        drop(state);
        let Some(page) = page else { return self.refuse(refusal(404, "NoSuchBucket")) };
        self.row.status = 200;
        self.send_document(Response::builder().status(200), &wire::listing(&listing, &page), &faults)
    }

    async fn put(mut self, body: Incoming) -> Response<Answered> {
        self.row.operation = Operation::Put;
        let Ok(body) = body.collect().await else { return self.refuse(refusal(400, "IncompleteBody")) };
        let mut bytes = body.to_bytes();
        if self.header("content-encoding").is_some_and(|coding| coding.contains("aws-chunked")) {
            let Some(inside) = wire::unchunk(&bytes) else { return self.refuse(refusal(400, "IncompleteBody")) };
            bytes = inside;
        }
        let stored = Body::bytes(bytes);
        let named = self.headers.keys().filter_map(|name| name.as_str().strip_prefix("x-amz-checksum-"));
        let trailing = self.header("x-amz-trailer").and_then(|name| name.strip_prefix("x-amz-checksum-"));
        let checksums = named.chain(trailing).find_map(Checksums::named).unwrap_or(Checksums::None);
        let said = checksums.name().and_then(|name| self.header(&format!("x-amz-checksum-{name}")));
        if said.is_some_and(|said| !wire::checksum_fits(checksums, &stored, said)) {
            return self.refuse(refusal(400, "BadDigest"));
        }
        let object = Object::new(stored, checksums);
        let etag = object.etag.clone();
        let put = self.world.lock().buckets.get_mut(&self.row.bucket).map(|bucket| bucket.put(&self.row.key, object));
        match put {
            Some(()) => self.send_empty(200, Some(("etag", etag))),
            None => self.refuse(refusal(404, "NoSuchBucket")),
        }
    }

    fn delete(mut self) -> Response<Answered> {
        self.row.operation = Operation::Delete;
        if let Some(bucket) = self.world.lock().buckets.get_mut(&self.row.bucket) {
            bucket.remove(&self.row.key);
        }
        self.send_empty(204, None)
    }

    fn create_bucket(self) -> Response<Answered> {
        self.world.lock().buckets.entry(self.row.bucket.clone()).or_default();
        self.send_empty(200, None)
    }

    fn head_bucket(self) -> Response<Answered> {
        let is_there = self.world.lock().buckets.contains_key(&self.row.bucket);
        if is_there { self.send_empty(200, None) } else { self.refuse(refusal(404, "NoSuchBucket")) }
    }

    fn hit(&mut self, on: &On) -> Vec<Fault> {
        let faults = self.world.lock().orders.hit(on);
        self.row.faults = faults.iter().map(Fault::name).collect();
        faults
    }

    fn object(&self) -> Result<Object, Refusal> {
        let state = self.world.lock();
        let bucket = state.buckets.get(&self.row.bucket).ok_or(refusal(404, "NoSuchBucket"))?;
        bucket.object(&self.row.key).ok_or(refusal(404, "NoSuchKey"))
    }

    /// Give the object the new content of an `Overwritten` fault; it keeps its kind of checksum.
    fn overwrite(&self, faults: &[Fault]) {
        for fault in faults {
            if let (Fault::Overwritten { with }, Ok(old)) = (fault, self.object()) {
                let new = Object::new(with.clone(), old.checksums);
                self.world.lock().buckets.entry(self.row.bucket.clone()).or_default().put(&self.row.key, new);
            }
        }
    }

    fn refuse(mut self, refusal: Refusal) -> Response<Answered> {
        self.row.status = refusal.status;
        let mut response = Response::builder().status(refusal.status);
        if let Some(seconds) = refusal.retry_after {
            response = response.header("retry-after", seconds);
        }
        let message = format!("{} {}/{}", refusal.code, self.row.bucket, self.row.key);
        self.send_document(response, &wire::error(refusal.code, &message), &[])
    }

    fn send_document(self, response: Builder, document: &str, faults: &[Fault]) -> Response<Answered> {
        let body = Bytes::copy_from_slice(document.as_bytes());
        let all = body.len() as u64;
        let len = if faults.contains(&Fault::EmptyBody) { 0 } else { all };
        // The answer to a HEAD announces a body and has none.
        let sent = if self.row.operation == Operation::Head { 0 } else { len };
        let response = response.header("content-type", "application/xml").header("content-length", len);
        self.send(response, Piece { body: Body::Bytes(body), from: 0, len: sent, shape: shape(faults, len) })
    }

    fn send_empty(mut self, status: u16, header: Option<(&'static str, String)>) -> Response<Answered> {
        self.row.status = status;
        let mut response = Response::builder().status(status);
        if let Some((name, value)) = header {
            response = response.header(HeaderName::from_static(name), value);
        }
        self.send(response, Piece { body: Body::Bytes(Bytes::new()), from: 0, len: 0, shape: Shape::default() })
    }

    fn send(self, response: Builder, piece: Piece) -> Response<Answered> {
        let entry = self.world.begin(self.row);
        let sending = Sending::new(piece, entry, self.flushes, self.world.releases());
        let response = response.header("x-amz-request-id", "LAB").header("server", "stokehold-lab");
        response.body(sending.into_body()).expect("headers are made of plain text here")
    }
}

/// The first fault that is a refusal.
fn ordered_refusal(faults: &[Fault]) -> Option<Refusal> {
    faults.iter().find_map(|fault| match fault {
        Fault::PreconditionFailed => Some(refusal(412, "PreconditionFailed")),
        Fault::SlowDown { retry_after } => Some(Refusal { status: 503, code: "SlowDown", retry_after: *retry_after }),
        Fault::ExpiredToken => Some(refusal(403, "ExpiredToken")),
        Fault::Refused { status, code } => Some(refusal(*status, code)),
        Fault::DropAfter { .. }
        | Fault::StallAfter { .. }
        | Fault::ShiftedRange { .. }
        | Fault::WholeObject
        | Fault::Overwritten { .. }
        | Fault::FlippedByte { .. }
        | Fault::Truncated { .. }
        | Fault::Slow { .. }
        | Fault::EmptyBody => None,
    })
}

/// What the faults do to a body of `len` bytes.
fn shape(faults: &[Fault], len: u64) -> Shape {
    let mut shape = Shape::default();
    for fault in faults {
        match fault {
            Fault::DropAfter { bytes } => shape.cut_at = Some((*bytes).min(len)),
            Fault::Truncated { missing } => shape.cut_at = Some(len.saturating_sub(*missing)),
            Fault::StallAfter { bytes } => shape.stall_at = Some((*bytes).min(len)),
            Fault::FlippedByte { at } => shape.flip_at = Some(*at),
            Fault::Slow { bytes_per_second } => shape.bytes_per_second = Some(*bytes_per_second),
            Fault::PreconditionFailed
            | Fault::SlowDown { .. }
            | Fault::ExpiredToken
            | Fault::Refused { .. }
            | Fault::ShiftedRange { .. }
            | Fault::WholeObject
            | Fault::Overwritten { .. }
            | Fault::EmptyBody => {}
        }
    }
    shape
}

/// A range of the same length `by` bytes further on, or before where the object ends.
fn shifted(first: u64, last: u64, by: u64, len: u64) -> Asked {
    if last + by < len {
        Asked::Part(first + by, last + by)
    } else {
        Asked::Part(first.saturating_sub(by), last.saturating_sub(by))
    }
}
