//! Listing a prefix of a bucket.
//!
//! In goes the source, out go its objects into the builder, a page at a time. Deliberately absent: more than one page in memory,
//! and folders: S3 has none, and what looks like one is the builder's matter.

use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{Object, ObjectStorageClass, OptionalObjectAttributes, RequestPayer};

use stokehold_core::listing::{ListingBuilder, Pin};
use stokehold_core::port::OriginError;
use stokehold_core::quantity::Bytes;
use stokehold_core::source::S3Source;

use crate::s3::{S3Origin, bare, client};

/// Keys of one page: the most that S3 gives.
const PAGE_KEYS: i32 = 1_000;

impl S3Origin {
    pub(super) async fn list_all(&self, source: &S3Source, into: &mut ListingBuilder) -> Result<(), OriginError> {
        let mut token: Option<String> = None;
        loop {
            let page = self
                .ask(source, &source.prefix, |client| {
                    client
                        .list_objects_v2()
                        .bucket(&source.bucket)
                        .prefix(&source.prefix)
                        .max_keys(PAGE_KEYS)
                        .set_continuation_token(token.clone())
                        .optional_object_attributes(OptionalObjectAttributes::RestoreStatus)
                        .set_request_payer(payer(source))
                        .customize()
                        .config_override(client::patient())
                        .send()
                })
                .await?;
            for object in page.contents() {
                if let Err(why) = push(source, object, into)? {
                    let key = object.key().unwrap_or(&source.prefix);
                    return Err(self.broken(source, key, why).await);
                }
            }
            if !page.is_truncated().unwrap_or(false) {
                return Ok(());
            }
            let next = page.next_continuation_token.filter(|next| token.as_ref() != Some(next));
            let Some(next) = next else {
                return Err(self.broken(source, &source.prefix, "its listing goes on but does not say where").await);
            };
            token = Some(next);
        }
    }

    /// Whether the listing still shows this object as it was.
    pub(super) async fn is_listed(&self, source: &S3Source, key: &str, token: &str) -> Result<bool, OriginError> {
        let page = self
            .ask(source, key, |client| {
                client
                    .list_objects_v2()
                    .bucket(&source.bucket)
                    .prefix(key)
                    .max_keys(1)
                    .set_request_payer(payer(source))
                    .customize()
                    .config_override(client::patient())
                    .send()
            })
            .await?;
        let first = page.contents().first();
        Ok(first.is_some_and(|object| object.key() == Some(key) && token_of(object) == token))
    }
}

/// Pushes one object; the inner error says what is wrong with the listing or the object.
fn push(
    source: &S3Source,
    object: &Object,
    into: &mut ListingBuilder,
) -> Result<Result<(), &'static str>, OriginError> {
    let Some(key) = object.key().and_then(|key| key.strip_prefix(source.prefix.as_str())) else {
        return Ok(Err("it is listed, but not below the prefix that was asked for"));
    };
    let Some(size) = object.size().and_then(|size| u64::try_from(size).ok()) else {
        return Ok(Err("it is listed without a size"));
    };
    if is_archived(object) && into.filter().wants_key(key) {
        return Ok(Err("it is archived and must be restored first"));
    }
    let etag = object.e_tag().map(|etag| bare(etag).to_owned());
    into.push(key, Bytes(size), token_of(object), Pin { etag, ..Pin::default() }, None)?;
    Ok(Ok(()))
}

/// What stands for the version of a listed object: its ETag, or where a service lists none, when it was written.
fn token_of(object: &Object) -> String {
    match object.e_tag() {
        Some(etag) => bare(etag).to_owned(),
        None => object.last_modified().map(DateTime::as_nanos).unwrap_or_default().to_string(),
    }
}

fn is_archived(object: &Object) -> bool {
    let archived =
        matches!(object.storage_class(), Some(ObjectStorageClass::Glacier | ObjectStorageClass::DeepArchive));
    let restored = object.restore_status().is_some_and(|status| status.restore_expiry_date().is_some());
    archived && !restored
}

pub(super) fn payer(source: &S3Source) -> Option<RequestPayer> {
    source.requester_pays.then_some(RequestPayer::Requester)
}
