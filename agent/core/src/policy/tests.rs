//! Policies and sources in, verdicts out, as tables.

use serde_json::{Value, json};

use super::*;

fn policy(name: &str, spec: &Value) -> Policy {
    let document = json!({ "apiVersion": "stokehold.dev/v1alpha1", "kind": "CachePolicy", "metadata": { "name": name }, "spec": spec });
    Policy::accept("f.yaml", serde_json::from_value(document).expect("reads")).expect("accepted")
}

/// What a cluster with these policies says of a source in namespace `team`, labelled `tier: gold`.
fn judge(policies: &[Policy], source: &Value) -> Option<String> {
    let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
    let namespace = "team".try_into().expect("a label");
    let source: SourceSpec = serde_json::from_value(source.clone()).expect("reads");
    Ruling::of(policies, &namespace, Mode::Cluster { namespace_labels: &labels }).refusal(&source)
}

#[test]
fn p12_without_a_policy_a_cluster_allows_by_name_and_refuses_what_is_private() {
    for (source, allowed) in [
        (json!({ "s3": { "bucket": "models" } }), true),
        (json!({ "s3": { "bucket": "models", "endpoint": "https://s3.example.com" } }), true),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://169.254.169.254" } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://127.0.0.1:9000" } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://[::1]:9000" } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://localhost:9000" } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://minio:9000" } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://minio.storage.svc" } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://minio.storage.svc.cluster.local." } }), false),
        (json!({ "s3": { "bucket": "models", "endpoint": "http://metadata.google.internal" } }), false),
        (json!({ "fsx": { "fileSystemId": "fs-1", "path": "/" } }), true),
        (json!({ "nodePath": "/mnt/models" }), false),
        (json!({ "huggingFace": { "repo": "a/b" } }), true),
        (json!({ "huggingFace": { "repo": "a/b", "endpoint": "http://10.1.2.3" } }), false),
        (json!({ "http": [ { "url": "https://example.com/a" } ] }), true),
        (json!({ "http": [ { "url": "https://example.com/a" }, { "url": "http://192.168.0.1/b" } ] }), false),
        (json!({ "oci": { "artifact": "ghcr.io/a/b:1" } }), true),
        (json!({ "oci": { "artifact": "a/b" } }), true),
        (json!({ "oci": { "artifact": "localhost/a" } }), false),
        (json!({ "oci": { "artifact": "10.0.0.1:5000/a" } }), false),
    ] {
        assert_eq!(judge(&[], &source).is_none(), allowed, "{source}");
    }
    assert_eq!(
        judge(&[], &json!({ "nodePath": "/mnt/x" })).as_deref(),
        Some("spec.weights.source.nodePath \"/mnt/x\" is refused unless a CachePolicy lists it, and none does")
    );
}

#[test]
fn a_list_that_is_set_allows_what_it_names_and_nothing_else() {
    let one = [policy(
        "tenants",
        &json!({ "allowedSources": {
            "buckets": [ { "bucket": "models-*", "prefix": "team" }, { "bucket": "shared" } ],
            "endpoints": ["http://minio.storage:9000"],
            "hosts": ["*.example.com", "10.0.0.7"],
            "nodePaths": ["/mnt/models/"],
            "registries": ["*.dkr.ecr.us-east-2.amazonaws.com", "reg.local:5000"],
            "fileSystems": []
        } }),
    )];
    for (source, allowed) in [
        (json!({ "s3": { "bucket": "models-a", "prefix": "team/llama" } }), true),
        (json!({ "s3": { "bucket": "models-a", "prefix": "team" } }), true),
        (json!({ "s3": { "bucket": "models-a", "prefix": "team-2/llama" } }), false),
        (json!({ "s3": { "bucket": "models-a" } }), false),
        (json!({ "s3": { "bucket": "shared" } }), true),
        (json!({ "s3": { "bucket": "other", "prefix": "team/" } }), false),
        (json!({ "s3": { "bucket": "shared", "endpoint": "http://MINIO.storage:9000/" } }), true),
        (json!({ "s3": { "bucket": "shared", "endpoint": "https://minio.storage:9000" } }), false),
        (json!({ "s3": { "bucket": "shared", "endpoint": "http://minio.storage" } }), false),
        (json!({ "s3": { "bucket": "shared", "endpoint": "https://s3.example.com" } }), false),
        (json!({ "fsx": { "fileSystemId": "fs-1", "path": "/" } }), false),
        (json!({ "nodePath": "/mnt/models" }), true),
        (json!({ "nodePath": "/mnt/models/a" }), true),
        (json!({ "nodePath": "/mnt/models/../../etc" }), false),
        (json!({ "nodePath": "/mnt/models2" }), false),
        (json!({ "nodePath": "/" }), false),
        (json!({ "huggingFace": { "repo": "a/b" } }), false),
        (json!({ "huggingFace": { "repo": "a/b", "endpoint": "https://hub.example.com" } }), true),
        (json!({ "http": [ { "url": "http://10.0.0.7/x" } ] }), true),
        (json!({ "oci": { "artifact": "reg.local:5000/a" } }), true),
        (json!({ "oci": { "artifact": "1234.dkr.ecr.us-east-2.amazonaws.com/a" } }), true),
        (json!({ "oci": { "artifact": "ghcr.io/a" } }), false),
    ] {
        assert_eq!(judge(&one, &source).is_none(), allowed, "{source}");
    }
    assert_eq!(
        judge(&one, &json!({ "s3": { "bucket": "other", "prefix": "x" } })).as_deref(),
        Some("CachePolicy tenants does not allow spec.weights.source.s3.bucket \"other\" with prefix \"x\"")
    );
}

#[test]
fn of_several_policies_one_that_allows_is_enough_and_the_smallest_limit_holds() {
    let bucket = |name: &str| json!({ "allowedSources": { "buckets": [ { "bucket": name } ] } });
    let two = [policy("one", &bucket("aaa")), policy("two", &bucket("bbb"))];
    assert_eq!(judge(&two, &json!({ "s3": { "bucket": "bbb" } })), None);
    let refusal = judge(&two, &json!({ "s3": { "bucket": "ccc" } })).expect("refused");
    assert!(refusal.starts_with("none of CachePolicies one, two allows"), "{refusal}");
    let limit = |bytes: &str, priority: i32| json!({ "limits": { "bytesPerNode": bytes, "priorityMax": priority } });
    let limits = [policy("one", &limit("2Gi", -5)), policy("two", &limit("1Gi", 7)), policy("three", &json!({}))];
    let namespace = "team".try_into().expect("a label");
    let ruling = Ruling::of(&limits, &namespace, Mode::Standalone);
    assert_eq!((ruling.bytes_per_node(), ruling.priority(100), ruling.priority(-9)), (Some(Bytes(1 << 30)), -5, -9));
}

#[test]
fn a_policy_binds_only_the_namespaces_that_it_selects() {
    let selecting = |selector: &Value| {
        let nothing = json!({ "namespaceSelector": selector, "allowedSources": { "buckets": [] } });
        judge(&[policy("p", &nothing)], &json!({ "s3": { "bucket": "models" } })).is_some()
    };
    let expression = |key: &str, operator: &str, values: &Value| {
        selecting(&json!({ "matchExpressions": [ { "key": key, "operator": operator, "values": values } ] }))
    };
    assert!(selecting(&json!({})));
    assert!(selecting(&json!({ "matchLabels": { "kubernetes.io/metadata.name": "team" } })));
    assert!(!selecting(&json!({ "matchLabels": { "kubernetes.io/metadata.name": "other" } })));
    assert!(!selecting(&json!({ "matchLabels": { "tier": "gold", "x": "y" } })));
    assert!(expression("tier", "In", &json!(["silver", "gold"])));
    assert!(!expression("tier", "NotIn", &json!(["gold"])));
    assert!(expression("none", "NotIn", &json!(["gold"])));
    assert!(expression("tier", "Exists", &json!([])));
    assert!(!expression("tier", "DoesNotExist", &json!([])));
}

#[test]
fn standalone_without_a_policy_all_is_allowed_and_with_one_it_binds() {
    let namespace = "team".try_into().expect("a label");
    let source: SourceSpec = serde_json::from_value(json!({ "nodePath": "/mnt/x" })).expect("reads");
    let refusal = |policies: &[Policy]| Ruling::of(policies, &namespace, Mode::Standalone).refusal(&source);
    assert_eq!(refusal(&[]), None);
    assert!(refusal(&[policy("p", &json!({}))]).is_some());
    assert_eq!(refusal(&[policy("p", &json!({ "allowedSources": { "nodePaths": ["/"] } }))]), None);
}

#[test]
fn a_policy_that_says_what_it_cannot_mean_is_rejected() {
    let reason = |metadata: &Value, spec: &Value| {
        let document = json!({ "apiVersion": "stokehold.dev/v1alpha1", "kind": "CachePolicy", "metadata": metadata, "spec": spec });
        Policy::accept("f.yaml", serde_json::from_value(document).expect("reads")).expect_err("rejected").reason
    };
    let name = json!({ "name": "p.example" });
    for (metadata, spec, why) in [
        (json!({ "name": "p", "namespace": "a" }), json!({}), "belongs to no namespace"),
        (name.clone(), json!({ "allowedSources": { "nodePaths": ["m"] } }), "\"m\" is not an absolute path"),
        (name.clone(), json!({ "namespaceSelector": { "matchLabels": { "a b": "c" } } }), "is not a label"),
        (
            name,
            json!({ "namespaceSelector": { "matchExpressions": [ { "key": "a", "operator": "In" } ] } }),
            "spec.namespaceSelector.matchExpressions[0].values: has 0; allowed: one or more for In and NotIn",
        ),
    ] {
        let reason = reason(&metadata, &spec);
        assert!(reason.contains(why), "{reason}");
    }
}

#[test]
fn p12_only_addresses_that_lead_out_are_public() {
    for (address, want) in [
        ("8.8.8.8", true),
        ("52.216.1.1", true),
        ("127.0.0.1", false),
        ("0.0.0.0", false),
        ("10.0.0.1", false),
        ("172.31.255.1", false),
        ("172.32.0.1", true),
        ("192.168.1.1", false),
        ("169.254.169.254", false),
        ("169.254.170.2", false),
        ("100.64.0.1", false),
        ("100.128.0.1", true),
        ("198.18.0.1", false),
        ("224.0.0.1", false),
        ("255.255.255.255", false),
        ("::", false),
        ("::1", false),
        ("fe80::1", false),
        ("fd00:ec2::254", false),
        ("ff02::1", false),
        ("2600:1f00::1", true),
        ("2001:db8::1", false),
        ("::ffff:169.254.169.254", false),
        ("::ffff:8.8.8.8", true),
        ("64:ff9b::169.254.169.254", false),
        ("64:ff9b::8.8.8.8", true),
        ("2002:a9fe:a9fe::1", false),
    ] {
        assert_eq!(is_public(address.parse().expect("an address")), want, "{address}");
    }
}
