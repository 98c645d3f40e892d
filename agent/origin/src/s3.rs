//! S3 and what speaks its protocol.
//!
//! In goes a bucket and prefix, out come its objects and ranges of them, every byte tied to the ETag that was listed. An ETag is
//! a token here, kept without its quotes: services differ in where they write them. Deliberately absent: retries of reads, which
//! the caller does with all its transfers in view (listing and HEAD, which are few, are retried here); decoding of keys that XML
//! cannot hold; archived objects of Intelligent-Tiering, which a listing does not tell apart and a read then refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use stokehold_core::listing::{Entry, ListingBuilder, Pin};
use stokehold_core::port::{ByteRange, Fill, Origin, OriginError, Pinned};
use stokehold_core::source::{S3Source, Source};

use crate::s3::client::Clients;
use crate::s3::fault::{Asked, fault};

mod client;
mod fault;
mod limit;
mod list;
mod pin;
mod read;

pub use client::{S3Credentials, S3Options};

/// Reads S3. Clones are cheap and share connections and credentials.
///
/// Must be polled in a tokio runtime with time and network. Connections belong to the runtime that opened them.
#[derive(Debug, Clone)]
pub struct S3Origin {
    clients: Arc<Clients>,
    /// Somebody may read the bucket but not its versions: from then on reads are tied by ETag alone.
    versions_refused: Arc<AtomicBool>,
}

impl S3Origin {
    /// With these settings; nothing is asked of anyone yet.
    #[must_use]
    pub fn new(options: S3Options) -> Self {
        Self { clients: Arc::new(Clients::new(options)), versions_refused: Arc::default() }
    }

    /// For a thread with a runtime of its own: the same settings and credentials, but connections of its own.
    #[must_use]
    pub fn for_another_runtime(&self) -> Self {
        Self {
            clients: Arc::new(self.clients.for_another_runtime()),
            versions_refused: Arc::clone(&self.versions_refused),
        }
    }

    /// Asks once, and once more where the answer says in which other region the bucket is.
    async fn ask<T, E, Answer>(
        &self,
        source: &S3Source,
        key: &str,
        request: impl Fn(Client) -> Answer,
    ) -> Result<T, OriginError>
    where
        Answer: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let reach = self.clients.reach(source).await;
        let asked = Asked { source, key, host: reach.host.as_deref() };
        let refused = match request(reach.client).await {
            Ok(answer) => return Ok(answer),
            Err(error) => fault(&asked, &error),
        };
        let Some(region) = refused.region.filter(|region| *region != reach.region) else {
            return Err(refused.error);
        };
        self.clients.learn(source, region);
        let reach = self.clients.reach(source).await;
        request(reach.client).await.map_err(|error| fault(&asked, &error).error)
    }

    /// Names a source, or an object of it, in errors that come from no answer of a service.
    async fn broken(&self, source: &S3Source, key: &str, message: impl Into<String>) -> OriginError {
        let host = self.clients.reach(source).await.host;
        Asked { source, key, host: host.as_deref() }.broken(message)
    }

    fn versions_refused(&self) -> bool {
        // Only saves requests; whichever value is seen, reads are right.
        self.versions_refused.load(Ordering::Relaxed)
    }
}

impl Origin for S3Origin {
    async fn list(&self, source: &Source, into: &mut ListingBuilder) -> Result<(), OriginError> {
        self.list_all(bucket_of(source)?, into).await
    }

    async fn pin(&self, source: &Source, entry: &Entry) -> Result<Pinned, OriginError> {
        self.pin_object(bucket_of(source)?, entry).await
    }

    async fn read_into(
        &self,
        source: &Source,
        entry: &Entry,
        pin: &Pin,
        range: ByteRange,
        fill: &mut dyn Fill,
    ) -> Result<(), OriginError> {
        self.read_range(bucket_of(source)?, entry, pin, range, fill).await
    }
}

fn bucket_of(source: &Source) -> Result<&S3Source, OriginError> {
    match source {
        Source::S3(s3) => Ok(s3),
        Source::NodePath(_) => {
            Err(OriginError::Broken { origin: source.to_string(), message: "it is not in S3".to_owned() })
        }
    }
}

fn key_of(source: &S3Source, entry: &Entry) -> String {
    format!("{}{}", source.prefix, entry.path)
}

/// An ETag without its quotes.
fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}

/// An ETag as HTTP wants it in If-Match.
fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}
