//! Documents in, what is desired out, as tables.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::api::{Document, InferenceCacheDocument};

fn document(namespace: &str, name: &str, spec: &Value) -> Document {
    let document = json!({
        "apiVersion": "stokehold.dev/v1alpha1", "kind": "InferenceCache",
        "metadata": { "name": name, "namespace": namespace }, "spec": spec
    });
    Document::InferenceCache(Box::new(serde_json::from_value(document).expect("reads")))
}

fn policy(name: &str, spec: &Value) -> Document {
    let document = json!({
        "apiVersion": "stokehold.dev/v1alpha1", "kind": "CachePolicy", "metadata": { "name": name }, "spec": spec
    });
    Document::CachePolicy(Box::new(serde_json::from_value(document).expect("reads")))
}

fn offered(place: &str, document: Document) -> Offered {
    Offered { place: place.to_owned(), document: Ok(document) }
}

fn unreadable(place: &str, cache: Option<CacheId>, may_be_policy: bool) -> Offered {
    let unreadable = Unreadable { hides_caches: cache.is_none(), cache, may_be_policy, reason: "broken".to_owned() };
    Offered { place: place.to_owned(), document: Err(unreadable) }
}

fn id(text: &str) -> CacheId {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    CacheId::new(namespace, name).expect("labels")
}

/// Accepts one spec; as text what became of it.
fn accepted(spec: &Value) -> Result<DesiredCache, String> {
    let desired = desired(vec![offered("f.yaml:1", document("a", "llama", spec))]);
    match desired.rejected.as_slice() {
        [] => Ok(desired.caches.into_values().next().expect("neither accepted nor rejected")),
        [one] => {
            assert_eq!((one.place.as_str(), one.cache.clone()), ("f.yaml:1", Some(id("a/llama"))));
            Err(one.reason.clone())
        }
        several => panic!("{several:?}"),
    }
}

fn node_path(more: &Value) -> Value {
    let mut weights = json!({ "source": { "nodePath": "/models/llama" } });
    let fields = weights.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    json!({ "weights": weights })
}

#[test]
fn an_s3_source_is_accepted_with_all_that_it_says() {
    let cache = accepted(&json!({
        "weights": {
            "source": { "s3": { "bucket": "models", "prefix": "llama", "region": "us-east-2", "endpoint": "http://127.0.0.1:8333", "requesterPays": true } },
            "include": ["*.safetensors"], "exclude": ["a/**"], "revision": "0123456789abcdef", "update": "Automatic",
            "checkInterval": "30s", "verification": "Required"
        },
        "limitPerNode": "200Gi", "priority": 5, "retainAfterDelete": "2d"
    }))
    .expect("accepted");
    let weights = cache.weights.expect("weights");
    assert_eq!(weights.source.to_string(), "s3://models/llama/");
    let Source::S3(s3) = &weights.source else { panic!("{:?}", weights.source) };
    assert_eq!(
        (s3.region.as_deref(), s3.endpoint.as_deref(), s3.requester_pays),
        (Some("us-east-2"), Some("http://127.0.0.1:8333"), true)
    );
    assert_eq!(weights.revision.expect("pinned").to_string(), "0123456789abcdef");
    assert_eq!((weights.update, weights.verification), (Update::Automatic, Verification::Required));
    assert_eq!(weights.check_interval, Duration::from_secs(30));
    assert_eq!(
        (cache.limit, cache.priority, cache.retain_after_delete),
        (Some(Bytes(200 << 30)), 5, Duration::from_secs(172_800))
    );
    assert!(cache.asks_for_weights && !cache.asks_for_images && cache.refused.is_none());
    assert!(cache.not_in_this_release.is_empty());
}

#[test]
fn what_is_not_allowed_is_rejected_with_path_value_and_what_is() {
    for (spec, why) in [
        (json!({}), "spec: asks for nothing; allowed: at least one of weights, images and workloadRef"),
        (
            json!({ "weights": { "source": {} } }),
            "spec.weights.source: is empty; exactly one of s3, fsx, nodePath, huggingFace, http, oci must be set",
        ),
        (
            json!({ "weights": { "source": { "nodePath": "/m", "s3": { "bucket": "abc" } } } }),
            "spec.weights.source: has s3 and nodePath; exactly one of s3, fsx, nodePath, huggingFace, http, oci must be set",
        ),
        (
            json!({ "weights": { "source": { "nodePath": "m" } } }),
            "spec.weights.source.nodePath: \"m\" is not an absolute path of at most 2048 bytes",
        ),
        (
            json!({ "weights": { "source": { "nodePath": "/m/../etc" } } }),
            "spec.weights.source.nodePath: \"/m/../etc\" has a part that is ..",
        ),
        (
            json!({ "weights": { "source": { "s3": { "bucket": "a b" } } } }),
            "spec.weights.source.s3.bucket: \"a b\" is not a bucket name or access point ARN",
        ),
        (
            json!({ "weights": { "source": { "s3": { "bucket": "abc", "region": "us east" } } } }),
            "spec.weights.source.s3.region: \"us east\" is not a region; allowed: letters, digits and -, such as us-east-2",
        ),
        (
            node_path(&json!({ "revision": "main" })),
            "spec.weights.revision: \"main\" is not a snapshot id; allowed: 16 lower-case hex digits, for a source of kind nodePath",
        ),
        (
            node_path(&json!({ "checkInterval": "9s" })),
            "spec.weights.checkInterval: \"9s\" is not allowed; allowed: 10s to 7d",
        ),
        (
            node_path(&json!({ "checkInterval": "8d" })),
            "spec.weights.checkInterval: \"8d\" is not allowed; allowed: 10s to 7d",
        ),
        (
            node_path(&json!({ "credentials": {} })),
            "spec.weights.credentials: exactly one of secretRef and roleArn must be set",
        ),
        (json!({ "images": [ { "image": "a b" } ] }), "spec.images[0].image: \"a b\" is not the name of an image"),
        (
            json!({ "images": [ { "image": "a" } ], "limitPerNode": 0 }),
            "spec.limitPerNode: \"0\" is not allowed; allowed: at least 1 byte, or leave it out",
        ),
        (
            json!({ "images": [ { "image": "a" } ], "retainAfterDelete": "4000d" }),
            "spec.retainAfterDelete: \"4000d\" is too long; allowed: 0s to 3650d",
        ),
        (
            json!({ "images": [ { "image": "a" } ], "placement": { "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [ { "matchExpressions": [ { "key": "a", "operator": "Gt", "values": ["x"] } ] } ] }
            } } } }),
            "spec.placement.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: [\"x\"] is not allowed; allowed: one whole number for Gt and Lt",
        ),
        (
            json!({ "images": [ { "image": "a" } ], "placement": { "tolerations": [ { "value": "x" } ] } }),
            "spec.placement.tolerations[0].operator: Equal needs a key; allowed without one: Exists",
        ),
    ] {
        assert_eq!(accepted(&spec).expect_err(why), why);
    }
}

#[test]
fn c149_what_this_release_does_not_act_on_is_listed_and_never_dropped_in_silence() {
    let cache = accepted(&json!({
        "workloadRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "llama" },
        "images": [ { "image": "vllm:1", "imagePullSecrets": [ { "name": "regcred" } ], "pin": true } ],
        "placement": {
            "nodeSelector": { "node.kubernetes.io/instance-type": "ml.p5.48xlarge" },
            "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                    { "matchExpressions": [ { "key": "zone", "operator": "In", "values": ["a"] } ], "matchFields": [ { "key": "metadata.name", "operator": "In", "values": ["n"] } ] }
                ] },
                "preferredDuringSchedulingIgnoredDuringExecution": [ { "weight": 1, "preference": {} } ]
            } },
            "tolerations": [ { "operator": "Exists" }, { "key": "gpu", "effect": "NoSchedule", "tolerationSeconds": 3 } ],
            "whileUnschedulable": "Pause"
        },
        "weights": { "source": { "huggingFace": { "repo": "a/b", "revision": "main" } }, "credentials": { "secretRef": { "name": "hub" } } }
    }))
    .expect("accepted");
    assert_eq!(
        cache.not_in_this_release,
        [
            "spec.workloadRef",
            "spec.images",
            "spec.placement.nodeSelector",
            "spec.placement.affinity",
            "spec.placement.tolerations",
            "spec.placement.whileUnschedulable",
            "spec.weights.source.huggingFace",
            "spec.weights.credentials",
        ]
    );
    assert!(cache.weights.is_none() && cache.asks_for_weights && cache.asks_for_images);
    for source in [
        json!({ "fsx": { "fileSystemId": "fs-0", "path": "/a" } }),
        json!({ "http": [] }),
        json!({ "oci": { "artifact": "r/a:1" } }),
    ] {
        let cache = accepted(&json!({ "weights": { "source": source } })).expect("accepted");
        assert!(cache.weights.is_none() && cache.asks_for_weights && cache.not_in_this_release.len() == 1);
    }
}

#[test]
fn p10_of_two_documents_for_one_cache_the_first_stands_and_the_second_names_it() {
    let spec = |path: &str| json!({ "weights": { "source": { "nodePath": path } } });
    let desired = desired(vec![
        offered("a.yaml:1", document("x", "one", &spec("/1"))),
        unreadable("b.yaml:1", None, false),
        offered("b.yaml:7", document("x", "one", &spec("/2"))),
        offered("b.yaml:9", document("y", "one", &spec("/3"))),
        offered("c.yaml:1", document("x", "two", &spec("none"))),
    ]);
    assert_eq!(desired.caches.keys().map(ToString::to_string).collect::<Vec<_>>(), ["x/one", "y/one"]);
    assert_eq!(desired.caches[&id("x/one")].weights.as_ref().expect("weights").source.to_string(), "nodePath:/1");
    let rejected: Vec<String> = desired.rejected.iter().map(|one| format!("{} {}", one.place, one.reason)).collect();
    assert_eq!(
        rejected,
        [
            "b.yaml:1 broken",
            "b.yaml:7 x/one is already asked for in a.yaml:1",
            "c.yaml:1 spec.weights.source.nodePath: \"none\" is not an absolute path of at most 2048 bytes",
        ]
    );
}

#[test]
fn a_rejected_document_does_not_take_the_place_of_a_good_one_after_it() {
    let desired = desired(vec![
        offered("a.yaml:1", document("x", "one", &json!({}))),
        offered("b.yaml:1", document("x", "one", &json!({ "images": [ { "image": "a" } ] }))),
    ]);
    assert_eq!((desired.caches.len(), desired.rejected.len()), (1, 1));
}

#[test]
fn a_policy_that_cannot_be_read_allows_nothing_until_it_can() {
    let wish = || offered("a.yaml:1", document("x", "one", &json!({ "weights": { "source": { "nodePath": "/1" } } })));
    let refused = |offers| desired(offers).caches[&id("x/one")].refused.clone();
    assert_eq!(refused(vec![wish()]), None);
    assert_eq!(refused(vec![wish(), unreadable("z.yaml:1", None, false)]), None);
    let broken = refused(vec![wish(), unreadable("z.yaml:1", None, true)]).expect("refused");
    assert!(broken.contains("the CachePolicy in z.yaml:1 could not be read"), "{broken}");
    let bad = policy("p", &json!({ "allowedSources": { "nodePaths": ["relative"] } }));
    assert!(refused(vec![wish(), offered("p.yaml:1", bad)]).is_some());
}

#[test]
fn a_policy_caps_priority_and_bytes_and_a_second_one_of_its_name_is_rejected() {
    let wish = json!({ "images": [ { "image": "a" } ], "priority": 9, "limitPerNode": "20Gi" });
    let limits = json!({ "limits": { "bytesPerNode": "10Gi", "priorityMax": 3 } });
    let desired = desired(vec![
        offered("a.yaml:1", document("x", "one", &wish)),
        offered("p.yaml:1", policy("p", &limits)),
        offered("q.yaml:1", policy("p", &json!({}))),
    ]);
    let cache = &desired.caches[&id("x/one")];
    assert_eq!((cache.priority, cache.limit), (3, Some(Bytes(10 << 30))));
    assert_eq!(desired.rejected[0].reason, "CachePolicy p is already said in p.yaml:1");
}

#[test]
fn a_document_without_a_namespace_is_in_the_default_one() {
    let bare = json!({ "apiVersion": "stokehold.dev/v1alpha1", "kind": "InferenceCache", "metadata": { "name": "n" }, "spec": {} });
    let bare: InferenceCacheDocument = serde_json::from_value(bare).expect("reads");
    assert_eq!(id_of(&bare), id("default/n"));
}
