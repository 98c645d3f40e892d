//! The spec of a `CachePolicy`: which sources and how much a namespace may ask for.
//!
//! Deliberately absent: what is decided with it; that is [`policy`](crate::policy).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Glob, WebUrl};
use crate::quantity::Bytes;

/// Which sources and how much some namespaces may ask for. Of several policies that select a namespace, a source is allowed if
/// one allows it, and the smallest limit holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CachePolicySpec {
    /// Which namespaces it binds. Not set, or empty: all.
    #[serde(default)]
    pub namespace_selector: NamespaceSelector,
    /// Which sources they may ask for.
    #[serde(default)]
    pub allowed_sources: AllowedSources,
    /// How much they may ask for.
    #[serde(default)]
    pub limits: PolicyLimits,
}

/// Selects namespaces by their labels; a namespace must match all of it. Every namespace has the label
/// kubernetes.io/metadata.name with its name, and outside a cluster that is its only one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceSelector {
    /// Labels with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// The label key.
    pub key: String,
    /// How it compares.
    pub operator: LabelOperator,
    /// What it is compared with: one or more for In and NotIn, none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// It is one of the values.
    In,
    /// It is none of the values, or not there.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// Which sources may be asked for. A list that is not set leaves the default: buckets, file systems, hubs and registries are
/// allowed by name; nodePath, addresses and private names are refused. A list that is set allows what it names and nothing else;
/// an empty one allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedSources {
    /// S3 buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<AllowedBucket>>,
    /// URLs of S3-compatible services: scheme, host and port must be equal. AWS itself needs no entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<WebUrl>>,
    /// Globs of FSx file system ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_systems: Option<Vec<Glob>>,
    /// Globs of hosts for http and huggingFace sources, such as *.example.com or 10.0.0.7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<Glob>>,
    /// Folders on the node: absolute paths. What lies below is allowed too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_paths: Option<Vec<String>>,
    /// Globs of registry hosts, with port where one is used, for oci sources and images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registries: Option<Vec<Glob>>,
}

/// Buckets that may be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedBucket {
    /// Glob of bucket names, such as models-*.
    pub bucket: Glob,
    /// The prefix of a source must lie in this folder; empty allows the whole bucket.
    #[serde(default)]
    pub prefix: String,
}

/// How much may be asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyLimits {
    /// Most bytes that all caches of one namespace may use on one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_node: Option<Bytes>,
    /// Highest priority; a higher one counts as this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<i32>,
}
