//! Documents become what is desired: rules that need more than one field, a policy, or the whole set.
//!
//! In go documents with their places; out come accepted caches and rejected entries. One bad document costs nothing but itself.
//! Deliberately absent: reading files.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Desired, DesiredCache, DesiredWeights, Rejected};
use crate::api::{
    Document, InferenceCacheDocument, InferenceCacheSpec, Placement, S3SourceSpec, SourceSpec, WeightsSpec,
    WhileUnschedulable,
};
use crate::checksum::SnapshotId;
use crate::name::CacheId;
use crate::policy::{Mode, Policy, Ruling};
use crate::quantity::Bytes;
use crate::source::{S3Source, Source};

/// The namespace of a document that names none, as `kubectl` has it.
const DEFAULT_NAMESPACE: &str = "default";
/// Shortest pause between two listings of one origin: below it a fleet of agents is a load on the origin.
pub const CHECK_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Longest pause between two listings: a week. Above it is a slip of a digit.
pub const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Longest retention: ten years. Sums with it stay far from any limit of time.
pub const RETAIN_AFTER_DELETE_MAX: Duration = Duration::from_secs(3_650 * 86_400);
/// Longest text of a rejected value that is repeated in the reason, in letters.
const QUOTED_MAX: usize = 120;

/// One document as a reader found it.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// Where it stands: a file, with line where known.
    pub place: String,
    /// What stands there.
    pub document: Result<Document, Unreadable>,
}

/// A document that the reader could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which cache it would have been, where that much could be read.
    pub cache: Option<CacheId>,
    /// Whether it is, or may be, a `CachePolicy`: what it forbids is not known, so nothing is allowed until it can be read.
    pub may_be_policy: bool,
    /// Whether it may ask for caches that nothing else names.
    pub hides_caches: bool,
    /// What is wrong.
    pub reason: String,
}

/// All documents of a standalone node, in the order of their places: of two for one cache the first stands.
#[must_use]
pub fn desired(offered: Vec<Offered>) -> Desired {
    let mut rejected = Vec::new();
    let mut caches = Vec::new();
    let mut policies: BTreeMap<String, (String, Policy)> = BTreeMap::new();
    let mut unknown_policy = None;
    let mut may_hide_caches = false;
    for Offered { place, document } in offered {
        match document {
            Ok(Document::InferenceCache(document)) => caches.push((place, document)),
            Ok(Document::CachePolicy(document)) => match Policy::accept(&place, *document) {
                Ok(policy) => match policies.get(policy.name.as_str()) {
                    Some((first, _policy)) => {
                        let reason = format!("CachePolicy {} is already said in {first}", policy.name.as_str());
                        rejected.push(Rejected { place, cache: None, reason });
                    }
                    None => {
                        policies.insert(policy.name.as_str().to_owned(), (place, policy));
                    }
                },
                Err(bad) => {
                    unknown_policy.get_or_insert_with(|| bad.place.clone());
                    rejected.push(bad);
                }
            },
            Err(Unreadable { cache, may_be_policy, hides_caches, reason }) => {
                may_hide_caches |= hides_caches;
                if may_be_policy {
                    unknown_policy.get_or_insert_with(|| place.clone());
                }
                rejected.push(Rejected { place, cache, reason });
            }
        }
    }
    let policies: Vec<Policy> = policies.into_values().map(|(_place, policy)| policy).collect();
    let mut desired = Desired { caches: BTreeMap::new(), rejected, may_hide_caches };
    let mut places: BTreeMap<CacheId, String> = BTreeMap::new();
    for (place, document) in caches {
        match accept(&place, *document, &policies, Mode::Standalone) {
            Ok(mut cache) => {
                if let Some(first) = places.get(&cache.id) {
                    let reason = format!("{} is already asked for in {first}", cache.id);
                    desired.rejected.push(Rejected { place, cache: Some(cache.id), reason });
                    continue;
                }
                if let Some(policy) = &unknown_policy {
                    cache.refused = Some(format!(
                        "the CachePolicy in {policy} could not be read; until it can, no source is known to be allowed"
                    ));
                }
                places.insert(cache.id.clone(), place);
                desired.caches.insert(cache.id.clone(), cache);
            }
            Err(bad) => desired.rejected.push(bad),
        }
    }
    desired
}

/// The id of the cache that a document is about.
#[must_use]
pub fn id_of(document: &InferenceCacheDocument) -> CacheId {
    let namespace = document
        .metadata
        .namespace
        .clone()
        .unwrap_or_else(|| DEFAULT_NAMESPACE.try_into().expect("a constant that is a DNS label"));
    CacheId { namespace, name: document.metadata.name.clone() }
}

/// One document, checked.
///
/// # Errors
/// [`Rejected`] names the field, its value and what is allowed.
pub fn accept(
    place: &str,
    document: InferenceCacheDocument,
    policies: &[Policy],
    mode: Mode<'_>,
) -> Result<DesiredCache, Rejected> {
    let id = id_of(&document);
    let ruling = Ruling::of(policies, &id.namespace, mode);
    let spec = document.spec;
    check(&spec)
        .and_then(|()| weights(spec.weights.as_ref()))
        .map(|weights| DesiredCache {
            asks_for_weights: spec.weights.is_some(),
            asks_for_images: spec.asks_for_images(),
            // A cache alone may never use more than all caches of its namespace.
            limit: [spec.limit_per_node, ruling.bytes_per_node()].into_iter().flatten().min(),
            priority: ruling.priority(spec.priority),
            retain_after_delete: spec.retain_after_delete.0,
            not_in_this_release: not_in_this_release(&spec),
            refused: spec.weights.as_ref().and_then(|weights| ruling.refusal(&weights.source)),
            weights,
            id: id.clone(),
        })
        .map_err(|reason| Rejected { place: place.to_owned(), cache: Some(id), reason })
}

/// A sentence on a value that is not allowed.
fn bad<T>(path: &str, value: &str, why: &str) -> Result<T, String> {
    let quoted: String = value.chars().take(QUOTED_MAX).collect();
    Err(format!("{path}: {quoted:?} {why}"))
}

/// What needs no policy and no knowledge of origins.
fn check(spec: &InferenceCacheSpec) -> Result<(), String> {
    if spec.weights.is_none() && !spec.asks_for_images() {
        return Err("spec: asks for nothing; allowed: at least one of weights, images and workloadRef".to_owned());
    }
    if let Some(limit) = spec.limit_per_node.filter(|limit| *limit == Bytes::ZERO) {
        return bad(
            "spec.limitPerNode",
            &limit.0.to_string(),
            "is not allowed; allowed: at least 1 byte, or leave it out",
        );
    }
    let retain = spec.retain_after_delete;
    if retain.0 > RETAIN_AFTER_DELETE_MAX {
        return bad("spec.retainAfterDelete", &retain.to_string(), "is too long; allowed: 0s to 3650d");
    }
    for (at, image) in spec.images.iter().enumerate() {
        if image.image.is_empty() || image.image.contains(char::is_whitespace) {
            return bad(&format!("spec.images[{at}].image"), &image.image, "is not the name of an image");
        }
    }
    if let Some(placement) = &spec.placement {
        placement.check("spec.placement")?;
    }
    Ok(())
}

/// Most globs of one cache: together they are compiled to one automaton, and every listed key is matched with it.
const GLOBS_MAX: usize = 256;

fn weights(spec: Option<&WeightsSpec>) -> Result<Option<DesiredWeights>, String> {
    let Some(spec) = spec else { return Ok(None) };
    let path = "spec.weights";
    let interval = spec.check_interval;
    if interval.0 < CHECK_INTERVAL_MIN || interval.0 > CHECK_INTERVAL_MAX {
        return bad(&format!("{path}.checkInterval"), &interval.to_string(), "is not allowed; allowed: 10s to 7d");
    }
    if let Some(credentials) = &spec.credentials
        && credentials.secret_ref.is_some() == credentials.role_arn.is_some()
    {
        return Err(format!("{path}.credentials: exactly one of secretRef and roleArn must be set"));
    }
    let Some(source) = source(&spec.source)? else { return Ok(None) };
    let revision = match &spec.revision {
        None => None,
        Some(text) => match text.parse::<SnapshotId>() {
            Ok(id) => Some(id),
            Err(error) => return Err(format!("{path}.revision: {error}, for a source of kind {}", source.kind())),
        },
    };
    let count = spec.include.len() + spec.exclude.len();
    if count > GLOBS_MAX {
        return bad(&format!("{path}.include and exclude"), &format!("{count} globs"), "is too many; allowed: 256");
    }
    let globs = |list: &[crate::api::Glob]| list.iter().map(|glob| glob.as_str().to_owned()).collect();
    let weights = DesiredWeights {
        source,
        include: globs(&spec.include),
        exclude: globs(&spec.exclude),
        revision,
        update: spec.update,
        check_interval: interval.0,
        verification: spec.verification,
    };
    // Each glob was read alone; together they can still be too large to compile.
    weights.filter().map_err(|error| format!("{path}.include and exclude: {error}"))?;
    // With credentials of its own it must not be read with the agent's: those may reach more than its owner may.
    Ok(spec.credentials.is_none().then_some(weights))
}

/// The source where this release can read its kind.
fn source(spec: &SourceSpec) -> Result<Option<Source>, String> {
    let path = "spec.weights.source";
    match spec.kinds().as_slice() {
        [] => return Err(format!("{path}: is empty; exactly one of {} must be set", kinds_allowed())),
        [_one] => {}
        several => {
            return Err(format!(
                "{path}: has {}; exactly one of {} must be set",
                several.join(" and "),
                kinds_allowed()
            ));
        }
    }
    if let Some(s3) = &spec.s3 {
        return s3_source(s3).map(|source| Some(Source::S3(source))).map_err(|why| format!("{path}.s3.{why}"));
    }
    let node_path = spec.node_path.as_ref().map(|node_path| Source::node_path(node_path));
    node_path.transpose().map_err(|error| format!("{path}.{error}"))
}

fn kinds_allowed() -> String {
    crate::api::SOURCE_KINDS.join(", ")
}

fn s3_source(spec: &S3SourceSpec) -> Result<S3Source, String> {
    let source = S3Source::new(&spec.bucket, &spec.prefix).map_err(|error| error.to_string())?;
    let is_region = |region: &str| {
        !region.is_empty()
            && region.len() <= 63
            && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if let Some(region) = spec.region.as_deref().filter(|region| !is_region(region)) {
        return bad("region", region, "is not a region; allowed: letters, digits and -, such as us-east-2");
    }
    Ok(S3Source {
        region: spec.region.clone(),
        endpoint: spec.endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
        requester_pays: spec.requester_pays,
        ..source
    })
}

/// Fields that are set and that this release does not act on.
fn not_in_this_release(spec: &InferenceCacheSpec) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    let mut note = |is_set: bool, path: &str| {
        if is_set {
            fields.push(path.to_owned());
        }
    };
    note(spec.workload_ref.is_some(), "spec.workloadRef");
    note(!spec.images.is_empty(), "spec.images");
    if let Some(Placement { node_selector, affinity, tolerations, while_unschedulable }) = &spec.placement {
        note(!node_selector.is_empty(), "spec.placement.nodeSelector");
        note(affinity.is_some(), "spec.placement.affinity");
        note(!tolerations.is_empty(), "spec.placement.tolerations");
        note(*while_unschedulable != WhileUnschedulable::default(), "spec.placement.whileUnschedulable");
    }
    if let Some(weights) = &spec.weights {
        let SourceSpec { s3: _read, node_path: _also_read, fsx, hugging_face, http, oci } = &weights.source;
        note(fsx.is_some(), "spec.weights.source.fsx");
        note(hugging_face.is_some(), "spec.weights.source.huggingFace");
        note(http.is_some(), "spec.weights.source.http");
        note(oci.is_some(), "spec.weights.source.oci");
        note(weights.credentials.is_some(), "spec.weights.credentials");
    }
    fields
}
