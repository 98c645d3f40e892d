//! Where weights come from, as people write it.
//!
//! Deliberately absent: what an origin can act on; that is [`source`](crate::source).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WebUrl;

/// The kinds of source, as fields of `spec.weights.source`.
pub const SOURCE_KINDS: &[&str] = &["s3", "fsx", "nodePath", "huggingFace", "http", "oci"];

/// Where weights come from: exactly one of its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.s3), has(self.fsx), has(self.nodePath), has(self.huggingFace), has(self.http), has(self.oci)].filter(set, set).size() == 1",
    "message": "exactly one of s3, fsx, nodePath, huggingFace, http and oci must be set"
}]))]
pub struct SourceSpec {
    /// A prefix of an S3 bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3SourceSpec>,
    /// A folder of an FSx for Lustre file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsx: Option<FsxSourceSpec>,
    /// A folder already mounted on the node: an absolute path. In a cluster only where a CachePolicy allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_path: Option<String>,
    /// A repository of the Hugging Face hub, or of one that speaks its protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugging_face: Option<HuggingFaceSourceSpec>,
    /// Files by URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Vec<HttpFileSpec>>,
    /// An OCI artifact, ModelPack or modelcar image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciSourceSpec>,
}

/// A prefix of an S3 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct S3SourceSpec {
    /// The bucket, or the ARN of an access point.
    pub bucket: String,
    /// Keys below this are taken; llama means the folder llama/ and never llama-2. Empty takes the whole bucket.
    #[serde(default)]
    pub prefix: String,
    /// Region of the bucket; what the agent's environment says, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// URL of another S3-compatible service; AWS, or what the agent's environment says, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<WebUrl>,
    /// Whether requests say that the requester pays.
    #[serde(default)]
    pub requester_pays: bool,
}

/// A folder of an FSx for Lustre file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FsxSourceSpec {
    /// The file system, such as fs-0123456789abcdef0.
    pub file_system_id: String,
    /// The folder on it.
    pub path: String,
    /// How its bytes are read.
    #[serde(default)]
    pub via: FsxVia,
}

/// How the bytes of an FSx file system are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FsxVia {
    /// Through its mount on the node.
    #[default]
    Mount,
    /// From the bucket it is linked to.
    Bucket,
}

/// A repository of the Hugging Face hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HuggingFaceSourceSpec {
    /// The repository, such as meta-llama/Llama-3.1-70B.
    pub repo: String,
    /// Branch, tag or commit; main, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// URL of another hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<WebUrl>,
}

/// A file by URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpFileSpec {
    /// The URL.
    pub url: WebUrl,
    /// SHA-256 of its content in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// An OCI artifact, ModelPack or modelcar image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OciSourceSpec {
    /// The artifact, as registry/repository:tag or @digest.
    pub artifact: String,
}

impl SourceSpec {
    /// The kinds that are set; a good document has one.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        let Self { s3, fsx, node_path, hugging_face, http, oci } = self;
        let set =
            [s3.is_some(), fsx.is_some(), node_path.is_some(), hugging_face.is_some(), http.is_some(), oci.is_some()];
        SOURCE_KINDS.iter().zip(set).filter(|(_kind, is_set)| *is_set).map(|(kind, _)| *kind).collect()
    }
}
