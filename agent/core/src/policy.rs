//! What a namespace may ask for: `CachePolicy` documents, evaluated.
//!
//! In go policies and a source; out comes nothing, or one sentence that names the policy and the value. Deliberately absent:
//! resolving names. Whoever connects judges the address that a name led to, and each redirect, with [`is_public`].

use std::collections::BTreeMap;
use std::fmt;

use globset::GlobBuilder;

use crate::api::{
    AllowedBucket, AllowedSources, CachePolicyDocument, CachePolicySpec, Glob, Host, LabelOperator, LabelRequirement,
    ObjectName, SourceSpec, WebUrl, is_label_key, is_label_value, read_host, split_port,
};
use crate::desired::Rejected;
use crate::name::KubeNamespace;
use crate::quantity::Bytes;

mod address;

pub use address::{is_public, is_public_host};

/// The label that every namespace has: its own name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The hub that is meant where none is named.
const DEFAULT_HUB: &str = "huggingface.co";
/// The registry that is meant where none is named.
const DEFAULT_REGISTRY: &str = "docker.io";

/// A policy that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: ObjectName,
    /// What it allows.
    pub spec: CachePolicySpec,
}

/// Where documents come from; it decides what holds without a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode<'a> {
    /// A folder that belongs to the administrator of the host: without a policy file all is allowed, with one it is as in a
    /// cluster.
    Standalone,
    /// A cluster, where tenants write documents.
    Cluster {
        /// Labels of the namespace in hand.
        namespace_labels: &'a BTreeMap<String, String>,
    },
}

impl Policy {
    /// Checks what needs more than one field.
    ///
    /// # Errors
    /// [`Rejected`] names the field and what is allowed.
    pub fn accept(place: &str, document: CachePolicyDocument) -> Result<Self, Rejected> {
        let bad = |reason: String| Rejected { place: place.to_owned(), cache: None, reason };
        if let Some(namespace) = &document.metadata.namespace {
            return Err(bad(format!(
                "metadata.namespace: {:?} must not be set; a CachePolicy belongs to no namespace and says by spec.namespaceSelector which it binds",
                namespace.as_str()
            )));
        }
        let spec = document.spec;
        for (key, value) in &spec.namespace_selector.match_labels {
            if !is_label_key(key) || !is_label_value(value) {
                return Err(bad(format!("spec.namespaceSelector.matchLabels: {key:?}: {value:?} is not a label")));
            }
        }
        for (at, requirement) in spec.namespace_selector.match_expressions.iter().enumerate() {
            requirement.check().map_err(|why| bad(format!("spec.namespaceSelector.matchExpressions[{at}]{why}")))?;
        }
        for path in spec.allowed_sources.node_paths.iter().flatten() {
            crate::source::Source::node_path(path)
                .map_err(|error| bad(format!("spec.allowedSources.nodePaths: {error}")))?;
        }
        Ok(Self { name: document.metadata.name, spec })
    }

    fn selects(&self, labels: &BTreeMap<&str, &str>) -> bool {
        let selector = &self.spec.namespace_selector;
        selector.match_labels.iter().all(|(key, value)| labels.get(key.as_str()) == Some(&value.as_str()))
            && selector.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelRequirement {
    fn check(&self) -> Result<(), String> {
        if !is_label_key(&self.key) {
            return Err(format!(".key: {:?} is not a label key", self.key));
        }
        let wants_values = match self.operator {
            LabelOperator::In | LabelOperator::NotIn => true,
            LabelOperator::Exists | LabelOperator::DoesNotExist => false,
        };
        if wants_values == self.values.is_empty() {
            let allowed =
                if wants_values { "one or more for In and NotIn" } else { "none for Exists and DoesNotExist" };
            return Err(format!(".values: has {}; allowed: {allowed}", self.values.len()));
        }
        Ok(())
    }

    fn matches(&self, labels: &BTreeMap<&str, &str>) -> bool {
        let found = labels.get(self.key.as_str());
        let is_listed = found.is_some_and(|found| self.values.iter().any(|value| value == found));
        match self.operator {
            LabelOperator::In => is_listed,
            LabelOperator::NotIn => !is_listed,
            LabelOperator::Exists => found.is_some(),
            LabelOperator::DoesNotExist => found.is_none(),
        }
    }
}

/// What holds for one namespace.
#[derive(Debug, Clone)]
pub struct Ruling<'a> {
    binding: Vec<&'a Policy>,
    allows_all: bool,
}

impl<'a> Ruling<'a> {
    /// The policies that select this namespace, and what holds where they are silent.
    #[must_use]
    pub fn of(policies: &'a [Policy], namespace: &KubeNamespace, mode: Mode<'_>) -> Self {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
        let allows_all = match mode {
            Mode::Standalone => policies.is_empty(),
            Mode::Cluster { namespace_labels } => {
                labels.extend(namespace_labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
                false
            }
        };
        // Last, so that no label given by hand can pass one namespace off as another.
        labels.insert(NAMESPACE_NAME_LABEL, namespace.as_str());
        Self { binding: policies.iter().filter(|policy| policy.selects(&labels)).collect(), allows_all }
    }

    /// Most bytes that all caches of this namespace may use on one node: the smallest that a policy says.
    #[must_use]
    pub fn bytes_per_node(&self) -> Option<Bytes> {
        self.binding.iter().filter_map(|policy| policy.spec.limits.bytes_per_node).min()
    }

    /// The priority that counts: the one asked for, or the lowest cap.
    #[must_use]
    pub fn priority(&self, asked: i32) -> i32 {
        self.binding.iter().filter_map(|policy| policy.spec.limits.priority_max).fold(asked, i32::min)
    }

    /// Why this source may not be read; `None` where it may.
    #[must_use]
    pub fn refusal(&self, source: &SourceSpec) -> Option<String> {
        if self.allows_all {
            return None;
        }
        let SourceSpec { s3, fsx, node_path, hugging_face, http, oci } = source;
        let s3 = s3.iter().find_map(|s3| {
            let bucket = self.judge(
                &format!("s3.bucket {:?} with prefix {:?}", s3.bucket, s3.prefix),
                |allowed| {
                    allowed.buckets.as_ref().map(|list| list.iter().any(|entry| covers(entry, &s3.bucket, &s3.prefix)))
                },
                true,
            );
            bucket.or_else(|| s3.endpoint.as_ref().and_then(|endpoint| self.endpoint(endpoint)))
        });
        let fsx = fsx.iter().find_map(|fsx| {
            let id = &fsx.file_system_id;
            self.judge(&format!("fsx.fileSystemId {id:?}"), |allowed| any(allowed.file_systems.as_ref(), id), true)
        });
        let node_path = node_path.iter().find_map(|path| self.node_path(path));
        let hub = hugging_face.iter().find_map(|hub| match &hub.endpoint {
            Some(endpoint) => self.host("huggingFace.endpoint", endpoint.host()),
            None => self.host("huggingFace", &Host::Name(DEFAULT_HUB.to_owned())),
        });
        let http = http.iter().flatten().find_map(|file| self.url(&file.url));
        let oci = oci.iter().find_map(|oci| self.registry("oci.artifact", &oci.artifact));
        s3.or(fsx).or(node_path).or(hub).or(http).or(oci)
    }

    /// Why nothing may be fetched from this URL; for files by URL, and for each redirect on the way.
    #[must_use]
    pub fn url(&self, url: &WebUrl) -> Option<String> {
        if self.allows_all { None } else { self.host("http.url", url.host()) }
    }

    fn endpoint(&self, endpoint: &WebUrl) -> Option<String> {
        self.judge(
            &format!("s3.endpoint {:?}", endpoint.as_str()),
            |allowed| allowed.endpoints.as_ref().map(|list| list.iter().any(|entry| entry.same_origin(endpoint))),
            is_public_host(endpoint.host()),
        )
    }

    fn host(&self, field: &str, host: &Host) -> Option<String> {
        let text = host.to_string();
        self.judge(
            &format!("{field} at host {text:?}"),
            |allowed| any(allowed.hosts.as_ref(), &text),
            is_public_host(host),
        )
    }

    fn registry(&self, field: &str, reference: &str) -> Option<String> {
        let registry = registry_of(reference);
        let is_public = split_port(&registry)
            .and_then(|(host, _port)| read_host(host).ok())
            .is_some_and(|host| is_public_host(&host));
        let what = format!("{field} {reference:?} at registry {registry:?}");
        self.judge(&what, |allowed| any(allowed.registries.as_ref(), &registry), is_public)
    }

    fn node_path(&self, path: &str) -> Option<String> {
        let is_below = |folder: &String| {
            let folder = folder.trim_end_matches('/');
            path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let climbs = path.split('/').any(|part| part == "..");
        let allows =
            |allowed: &AllowedSources| allowed.node_paths.as_ref().map(|list| !climbs && list.iter().any(is_below));
        self.judge(&format!("nodePath {path:?}"), allows, false)
    }

    /// One value against all policies: allowed if one allows it; else refused in the name of those that speak of its kind; and
    /// where none does, by the default.
    fn judge(&self, what: &str, allows: impl Fn(&AllowedSources) -> Option<bool>, default: bool) -> Option<String> {
        let verdicts: Vec<(&Policy, bool)> = self
            .binding
            .iter()
            .filter_map(|policy| allows(&policy.spec.allowed_sources).map(|verdict| (*policy, verdict)))
            .collect();
        if verdicts.iter().any(|(_policy, allowed)| *allowed) || (verdicts.is_empty() && default) {
            return None;
        }
        let names: Vec<&str> = verdicts.iter().map(|(policy, _)| policy.name.as_str()).collect();
        let refusal = Refusal { what, names: &names };
        Some(refusal.to_string())
    }
}

struct Refusal<'a> {
    what: &'a str,
    names: &'a [&'a str],
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names {
            [] => {
                write!(out, "spec.weights.source.{} is refused unless a CachePolicy lists it, and none does", self.what)
            }
            [name] => write!(out, "CachePolicy {name} does not allow spec.weights.source.{}", self.what),
            names => write!(out, "none of CachePolicies {} allows spec.weights.source.{}", names.join(", "), self.what),
        }
    }
}

fn any(globs: Option<&Vec<Glob>>, text: &str) -> Option<bool> {
    globs.map(|globs| globs.iter().any(|glob| matches(glob, text)))
}

/// Compared in lower case, as hosts and buckets are.
fn matches(glob: &Glob, text: &str) -> bool {
    let glob = glob.as_str().to_ascii_lowercase();
    GlobBuilder::new(&glob)
        .literal_separator(true)
        .build()
        .is_ok_and(|glob| glob.compile_matcher().is_match(text.to_ascii_lowercase()))
}

fn covers(entry: &AllowedBucket, bucket: &str, prefix: &str) -> bool {
    let folder = |prefix: &str| {
        if prefix.is_empty() || prefix.ends_with('/') { prefix.to_owned() } else { format!("{prefix}/") }
    };
    matches(&entry.bucket, bucket) && folder(prefix).starts_with(&folder(&entry.prefix))
}

/// The registry of an image reference, as containerd reads it.
fn registry_of(reference: &str) -> String {
    match reference.split_once('/') {
        Some((first, _rest)) if first.contains(['.', ':']) || first == "localhost" => first.to_ascii_lowercase(),
        Some(_) | None => DEFAULT_REGISTRY.to_owned(),
    }
}

#[cfg(test)]
mod tests;
