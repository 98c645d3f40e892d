//! A source of weights, checked: where the bytes are, in terms an origin can act on.
//!
//! In goes the schema's `source`, out comes exactly one kind with its parts checked. Deliberately absent: credentials.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where weights come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A prefix of a bucket.
    S3(S3Source),
    /// A POSIX tree that is mounted on the node: an absolute path.
    NodePath(String),
}

/// A prefix of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Source {
    /// The bucket.
    pub bucket: String,
    /// Keys start with this; what follows is the path below the snapshot. Empty, or ends with `/`.
    pub prefix: String,
    /// Region; else what the environment says.
    pub region: Option<String>,
    /// Another S3-compatible service; else AWS, or what the environment says.
    pub endpoint: Option<String>,
    /// Whether requests say that the requester pays.
    pub requester_pays: bool,
}

/// A source that cannot be used as written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} {why}")]
pub struct BadSource {
    /// Which field.
    pub field: &'static str,
    /// What it says.
    pub value: String,
    /// What is wrong, and what is allowed.
    pub why: &'static str,
}

impl S3Source {
    /// Checks bucket and prefix. A prefix without a `/` at its end gets one, so that `llama` never takes in `llama-2`.
    ///
    /// # Errors
    /// [`BadSource`] names the field.
    pub fn new(bucket: &str, prefix: &str) -> Result<Self, BadSource> {
        let bad = |field, value: &str, why| Err(BadSource { field, value: value.to_owned(), why });
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/".contains(&byte);
        if bucket.len() < 3 || bucket.len() > 255 || !bucket.bytes().all(letters) {
            return bad("bucket", bucket, "is not a bucket name or access point ARN");
        }
        if prefix.starts_with('/') || prefix.contains('\0') || prefix.len() > 1_023 {
            return bad("prefix", prefix, "may not start with /, hold a NUL or be longer than 1023 bytes");
        }
        let mut prefix = prefix.to_owned();
        if !prefix.is_empty() && !prefix.ends_with('/') {
            prefix.push('/');
        }
        Ok(Self { bucket: bucket.to_owned(), prefix, region: None, endpoint: None, requester_pays: false })
    }
}

impl Source {
    /// A POSIX tree at an absolute path without `..`.
    ///
    /// # Errors
    /// [`BadSource`] where the path is not like that.
    pub fn node_path(path: &str) -> Result<Self, BadSource> {
        let bad = |why| Err(BadSource { field: "nodePath", value: path.to_owned(), why });
        if !path.starts_with('/') || path.contains('\0') || path.len() > 2_048 {
            return bad("is not an absolute path of at most 2048 bytes");
        }
        if path.split('/').any(|part| part == "..") {
            return bad("has a part that is ..");
        }
        let trimmed = path.trim_end_matches('/');
        Ok(Self::NodePath(if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() }))
    }

    /// Names the source without endpoint and credentials; part of the snapshot's id.
    #[must_use]
    pub fn identity(&self) -> String {
        match self {
            Self::S3(s3) => format!("s3://{}/{}", s3.bucket, s3.prefix),
            Self::NodePath(path) => format!("nodePath:{path}"),
        }
    }

    /// Who answers for it: sources of one place fail together, and one that does not answer must not keep others waiting.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::S3(s3) => {
                let part = |part: &Option<String>| part.clone().unwrap_or_default();
                format!("s3 {} {} {}", part(&s3.endpoint), part(&s3.region), s3.bucket)
            }
            // Which of them share a mount is not known here.
            Self::NodePath(_) => "nodePath".to_owned(),
        }
    }

    /// The kind of origin, as metrics label it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::S3(_) => "s3",
            Self::NodePath(_) => "nodePath",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.identity())
    }
}
