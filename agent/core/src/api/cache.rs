//! The spec of an `InferenceCache`: what one inference deployment wishes to find on its nodes.
//!
//! Deliberately absent: what is read of it in this release; that is said by [`desired`](crate::desired).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Glob, Placement, SourceSpec};
use crate::desired::{Update, Verification};
use crate::quantity::Bytes;
use crate::time::Period;

/// How long bytes stay after the object is gone, where nothing is said: long enough to mend a mistaken delete.
pub(super) const RETAIN_AFTER_DELETE: Period = Period::seconds(3_600);
/// How often an origin is listed, where nothing is said.
pub(super) const CHECK_INTERVAL: Period = Period::seconds(600);

/// What one inference deployment wishes to find on its nodes before a replica starts: images, weights, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceCacheSpec {
    /// The workload whose pod template says images and placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
    /// Images to have in containerd. Independent of weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRequest>,
    /// Which nodes the deployment could land on, as a pod spec says it. All nodes, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Weights to stage on local disk. Independent of images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsSpec>,
    /// Most bytes this deployment may use on one node, such as 200Gi. What the listing needs, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_per_node: Option<Bytes>,
    /// Higher stages first and gets its turns on the link first. A CachePolicy can cap it.
    #[serde(default)]
    pub priority: i32,
    /// How long bytes stay on a node after this object is deleted, such as 1h.
    #[serde(default = "retain_after_delete")]
    pub retain_after_delete: Period,
}

fn retain_after_delete() -> Period {
    RETAIN_AFTER_DELETE
}

/// A workload with a pod template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadRef {
    /// Group and version of the workload, such as apps/v1.
    pub api_version: String,
    /// Kind of the workload, such as Deployment.
    pub kind: String,
    /// Name of the workload in the namespace of this object.
    pub name: String,
}

/// An image to have in containerd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageRequest {
    /// The image, as a pod spec names it.
    pub image: String,
    /// Secrets with registry credentials, as in a pod spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalReference>,
    /// Whether the kubelet's image collection must leave it alone.
    #[serde(default)]
    pub pin: bool,
}

/// An object in the namespace of this one, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalReference {
    /// Its name.
    pub name: super::ObjectName,
}

/// What to do while the node takes no pods: it is cordoned, not ready or under a health check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhileUnschedulable {
    /// Use the time to stage.
    #[default]
    Stage,
    /// Wait until pods may land again.
    Pause,
}

/// Weights to stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WeightsSpec {
    /// Where they come from: exactly one kind.
    pub source: SourceSpec,
    /// Globs of files to take; empty takes all. One without / matches the basename.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<Glob>,
    /// Globs of files to leave, also of those that include takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Glob>,
    /// The version that must be served: a snapshot id (16 hex digits), or a commit or digest where the source has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// What happens when the origin offers another version.
    #[serde(default)]
    pub update: Update,
    /// How often the origin is listed, such as 10m. At least 10s.
    #[serde(default = "check_interval")]
    pub check_interval: Period,
    /// What proof is asked of the bytes.
    #[serde(default)]
    pub verification: Verification,
    /// Whose credentials are used; the agent's own, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<WeightsCredentials>,
}

fn check_interval() -> Period {
    CHECK_INTERVAL
}

/// Whose credentials are used: exactly one of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.secretRef) != has(self.roleArn)", "message": "exactly one of secretRef and roleArn must be set"
}]))]
pub struct WeightsCredentials {
    /// A Secret in the namespace of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// An IAM role to assume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_arn: Option<String>,
}

impl InferenceCacheSpec {
    /// Whether it wishes for images, said here or by its workload.
    #[must_use]
    pub fn asks_for_images(&self) -> bool {
        !self.images.is_empty() || self.workload_ref.is_some()
    }
}
