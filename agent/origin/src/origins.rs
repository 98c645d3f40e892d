//! All kinds of origin behind one.
//!
//! In goes a source of any kind, out comes what the origin of its kind says. Deliberately absent: any choice but that.

use stokehold_core::listing::{Entry, ListingBuilder, Pin};
use stokehold_core::port::{ByteRange, Fill, Origin, OriginError, Pinned};
use stokehold_core::source::Source;

use crate::node_path::NodePathOrigin;
use crate::s3::{S3Options, S3Origin};

/// Every kind of origin of this release. Clones are cheap and share connections and credentials.
#[derive(Debug, Clone)]
pub struct Origins {
    s3: S3Origin,
    node_path: NodePathOrigin,
}

impl Origins {
    /// S3 as `s3` says; nothing is asked of anyone yet.
    #[must_use]
    pub fn new(s3: S3Options) -> Self {
        Self { s3: S3Origin::new(s3), node_path: NodePathOrigin }
    }

    /// For a thread with a runtime of its own: the same settings and credentials, but connections of its own, which would
    /// otherwise stand still whenever the runtime that opened them does.
    #[must_use]
    pub fn for_another_runtime(&self) -> Self {
        Self { s3: self.s3.for_another_runtime(), node_path: self.node_path }
    }
}

impl Origin for Origins {
    async fn list(&self, source: &Source, into: &mut ListingBuilder) -> Result<(), OriginError> {
        match source {
            Source::S3(_) => self.s3.list(source, into).await,
            Source::NodePath(_) => self.node_path.list(source, into).await,
        }
    }

    async fn pin(&self, source: &Source, entry: &Entry) -> Result<Pinned, OriginError> {
        match source {
            Source::S3(_) => self.s3.pin(source, entry).await,
            Source::NodePath(_) => self.node_path.pin(source, entry).await,
        }
    }

    async fn read_into(
        &self,
        source: &Source,
        entry: &Entry,
        pin: &Pin,
        range: ByteRange,
        fill: &mut dyn Fill,
    ) -> Result<(), OriginError> {
        match source {
            Source::S3(_) => self.s3.read_into(source, entry, pin, range, fill).await,
            Source::NodePath(_) => self.node_path.read_into(source, entry, pin, range, fill).await,
        }
    }
}
