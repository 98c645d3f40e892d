//! The schema of what people write: `InferenceCache` and `CachePolicy`, one for files and for Kubernetes.
//!
//! In goes text through any serde reader; out come documents whose parts are checked where a part can be checked alone, so that
//! the reader can say at which line it fails. An unknown field is an error: a field that nobody acts on is never passed over in
//! silence. Deliberately absent: rules that need two fields or a policy (see [`desired`](crate::desired)), and any reader.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::listing::{BadGlob, Filter};
use crate::name::{BadName, CacheName, KubeNamespace, LABEL_LENGTH_MAX};

mod cache;
mod placement;
mod policy;
mod schema;
mod source;
mod url;

pub use cache::{
    ImageRequest, InferenceCacheSpec, LocalReference, WeightsCredentials, WeightsSpec, WhileUnschedulable, WorkloadRef,
};
pub use placement::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Placement, PreferredTerm, Requirement, SelectorOperator,
    TaintEffect, Toleration, TolerationOperator,
};
pub use policy::{
    AllowedBucket, AllowedSources, CachePolicySpec, LabelOperator, LabelRequirement, NamespaceSelector, PolicyLimits,
};
pub use schema::structural_schema;
pub use source::{
    FsxSourceSpec, FsxVia, HttpFileSpec, HuggingFaceSourceSpec, OciSourceSpec, S3SourceSpec, SOURCE_KINDS, SourceSpec,
};
pub use url::{BadUrl, Host, WebUrl};
pub(crate) use url::{read_host, split_port};

/// The API group of all our kinds.
pub const GROUP: &str = "stokehold.dev";
/// The version of the schema that this release reads.
pub const VERSION: &str = "v1alpha1";
/// Group and version as documents write them.
pub const API_VERSION: &str = "stokehold.dev/v1alpha1";
/// The kind of one deployment's wishes.
pub const KIND_CACHE: &str = "InferenceCache";
/// The kind of what namespaces may wish for.
pub const KIND_POLICY: &str = "CachePolicy";

/// Longest name of a Kubernetes object: a DNS subdomain.
const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// What one deployment wishes for.
    InferenceCache(Box<InferenceCacheDocument>),
    /// What namespaces may wish for.
    CachePolicy(Box<CachePolicyDocument>),
}

/// An `InferenceCache` as a file or a server writes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceCacheDocument {
    /// Group and version; checked by whoever chose this type.
    pub api_version: String,
    /// The kind; checked by whoever chose this type.
    pub kind: String,
    /// Which cache.
    pub metadata: Metadata<CacheName>,
    /// What is wished for.
    pub spec: InferenceCacheSpec,
    /// Written by a server; passed over.
    pub status: Option<IgnoredAny>,
}

/// A `CachePolicy` as a file or a server writes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CachePolicyDocument {
    /// Group and version; checked by whoever chose this type.
    pub api_version: String,
    /// The kind; checked by whoever chose this type.
    pub kind: String,
    /// Which policy.
    pub metadata: Metadata<ObjectName>,
    /// What it allows.
    pub spec: CachePolicySpec,
    /// Written by a server; passed over.
    pub status: Option<IgnoredAny>,
}

/// The metadata of a document. What only a server sets may stand there, as in `kubectl get -o yaml`, and is passed over.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata<Name> {
    /// The name of the object.
    pub name: Name,
    /// Its namespace.
    pub namespace: Option<KubeNamespace>,
    /// Labels of the object.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the object.
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Set by a server.
    pub uid: Option<IgnoredAny>,
    /// Set by a server.
    pub resource_version: Option<IgnoredAny>,
    /// Set by a server.
    pub generation: Option<IgnoredAny>,
    /// Set by a server.
    pub generate_name: Option<IgnoredAny>,
    /// Set by a server.
    pub creation_timestamp: Option<IgnoredAny>,
    /// Set by a server.
    pub deletion_timestamp: Option<IgnoredAny>,
    /// Set by a server.
    pub deletion_grace_period_seconds: Option<IgnoredAny>,
    /// Set by a server.
    pub managed_fields: Option<IgnoredAny>,
    /// Set by a server.
    pub owner_references: Option<IgnoredAny>,
    /// Set by a server.
    pub finalizers: Option<IgnoredAny>,
    /// Set by a server.
    pub self_link: Option<IgnoredAny>,
}

/// The name of a cluster-scoped object: a DNS subdomain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ObjectName(String);

/// A text that is not a DNS subdomain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a DNS subdomain; allowed: at most 253 of a-z, 0-9, - and ., each part starting and ending with a letter or digit"
)]
pub struct BadObjectName(pub String);

impl ObjectName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ObjectName {
    type Error = BadObjectName;
    fn try_from(text: String) -> Result<Self, BadObjectName> {
        let label = |part: &str| -> Result<CacheName, BadName> { part.try_into() };
        if text.len() <= SUBDOMAIN_LENGTH_MAX && text.split('.').all(|part| label(part).is_ok()) {
            Ok(Self(text))
        } else {
            Err(BadObjectName(text))
        }
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> Self {
        name.0
    }
}

/// Longest glob: compiling one takes memory and time by its length, and no name of a file needs more.
const GLOB_BYTES_MAX: usize = 512;

/// A glob that can be read. Without `/` it matches the basename, with one the whole path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Glob(String);

impl Glob {
    /// The glob as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Glob {
    type Error = BadGlob;
    fn try_from(text: String) -> Result<Self, BadGlob> {
        if text.is_empty() {
            return Err(BadGlob { glob: text, why: "it is empty and matches nothing".to_owned() });
        }
        if text.len() > GLOB_BYTES_MAX {
            let glob = text.chars().take(32).collect::<String>() + "...";
            return Err(BadGlob { glob, why: format!("it has {} bytes; allowed: {GLOB_BYTES_MAX}", text.len()) });
        }
        Filter::new(std::slice::from_ref(&text), &[])?;
        Ok(Self(text))
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.0
    }
}

/// Whether a text can be the key of a Kubernetes label or taint: an optional DNS subdomain and `/`, then at most 63 of letters,
/// digits, `-`, `_` and `.`.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|prefix| ObjectName::try_from(prefix.to_owned()).is_ok());
    prefix_fits && !name.is_empty() && is_label_value(name)
}

/// Whether a text can be the value of a Kubernetes label: at most 63 of letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_LENGTH_MAX
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && edge(bytes.first())
        && edge(bytes.last())
}

#[cfg(test)]
mod tests;
