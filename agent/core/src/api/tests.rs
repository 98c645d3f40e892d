//! Rules of the schema, as tables.

use serde_json::{Value, json};

use super::*;

fn read(spec: &Value) -> Result<InferenceCacheDocument, String> {
    let document = json!({
        "apiVersion": API_VERSION, "kind": KIND_CACHE, "metadata": { "name": "llama", "namespace": "a" }, "spec": spec
    });
    serde_json::from_value(document).map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_the_contract() {
    let spec = read(&json!({ "weights": { "source": { "nodePath": "/m" } } })).expect("reads").spec;
    assert_eq!((spec.priority, spec.retain_after_delete.to_string()), (0, "1h".to_owned()));
    let weights = spec.weights.expect("weights");
    assert_eq!(weights.check_interval.to_string(), "10m");
    assert_eq!(weights.update, crate::desired::Update::Manual);
    assert_eq!(weights.verification, crate::desired::Verification::BestOffered);
    assert!(weights.include.is_empty() && weights.revision.is_none());
}

#[test]
fn c149_an_unknown_field_is_an_error_at_every_level_and_names_what_is_known() {
    for (spec, field) in [
        (json!({ "weigths": {} }), "weigths"),
        (json!({ "weights": { "source": { "nodePath": "/m" }, "includes": [] } }), "includes"),
        (json!({ "weights": { "source": { "gcs": {} } } }), "gcs"),
        (json!({ "weights": { "source": { "s3": { "bucket": "b", "path": "x" } } } }), "path"),
        (json!({ "images": [ { "image": "a", "pinned": true } ] }), "pinned"),
        (json!({ "placement": { "affinity": { "podAffinity": {} } } }), "podAffinity"),
        (json!({ "placement": { "tolerations": [ { "keys": "a" } ] } }), "keys"),
    ] {
        let error = read(&spec).expect_err(field);
        assert!(error.contains(&format!("unknown field `{field}`")) && error.contains("expected"), "{error}");
    }
}

#[test]
fn values_are_checked_by_the_reader_and_the_message_says_what_is_allowed() {
    for (spec, why) in [
        (json!({ "limitPerNode": "200GB" }), "\"200GB\" is not an amount of bytes; allowed: a number with Ki"),
        (
            json!({ "retainAfterDelete": "1.5h" }),
            "\"1.5h\" is not a length of time; allowed: whole numbers with d, h, m or s",
        ),
        (json!({ "priority": "high" }), "expected i32"),
        (json!({ "weights": { "source": { "nodePath": "/m" }, "include": ["[a"] } }), "\"[a\" is not a glob"),
        (json!({ "weights": { "source": { "nodePath": "/m" }, "exclude": [""] } }), "\"\" is not a glob"),
        (
            json!({ "weights": { "source": { "nodePath": "/m" }, "update": "Auto" } }),
            "expected `Manual` or `Automatic`",
        ),
        (json!({ "placement": { "whileUnschedulable": "Stop" } }), "expected `Stage` or `Pause`"),
        (
            json!({ "weights": { "source": { "s3": { "bucket": "b", "endpoint": "minio:9000" } } } }),
            "\"minio:9000\" is not a usable URL: it has no scheme; allowed: http:// or https://",
        ),
    ] {
        let error = read(&spec).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn metadata_as_a_server_shows_it_is_read_and_a_name_must_be_a_label() {
    let full = json!({
        "apiVersion": API_VERSION, "kind": KIND_CACHE, "status": { "conditions": [] },
        "metadata": {
            "name": "llama", "labels": { "a": "b" }, "annotations": null, "uid": "1", "resourceVersion": "2", "generation": 3,
            "creationTimestamp": "2024-01-01T00:00:00Z", "managedFields": [ { "manager": "kubectl" } ], "finalizers": ["x"],
            "ownerReferences": [], "deletionTimestamp": null, "selfLink": "", "generateName": "x-"
        },
        "spec": { "images": [ { "image": "a" } ] }
    });
    let document: InferenceCacheDocument = serde_json::from_value(full).expect("reads");
    assert_eq!(document.metadata.namespace, None);
    let bad = json!({ "apiVersion": API_VERSION, "kind": KIND_CACHE, "metadata": { "name": "Llama.70b" }, "spec": {} });
    let error = serde_json::from_value::<InferenceCacheDocument>(bad).expect_err("not a label").to_string();
    assert!(error.contains("\"Llama.70b\" is not a DNS label"), "{error}");
}

#[test]
fn a_url_whose_host_two_programs_could_read_differently_is_refused() {
    let host = |text: &str| WebUrl::try_from(text.to_owned()).map(|url| url.host().to_string()).ok();
    for (good, want) in [
        ("https://S3.Example.com", "s3.example.com"),
        ("http://minio.:9000/", "minio"),
        ("http://10.0.0.1:9000", "10.0.0.1"),
        ("http://[::1]:80/x", "::1"),
        ("https://a_b.example.com/p?q=u@h", "a_b.example.com"),
    ] {
        assert_eq!(host(good).as_deref(), Some(want), "{good}");
    }
    for bad in [
        "",
        "example.com",
        "ftp://a",
        "http://",
        "http://:80",
        "http://a:0",
        "http://a:99999",
        "http://a:+8",
        "http://127.1",
        "http://2130706433",
        "http://0x7f.0.0.1",
        "http://0x7f000001",
        "http://a..b",
        "http://[::1",
        "http://[10.0.0.1]",
        "http://a b",
        "http://a\\b",
        "http://ä.example",
        "http://[::1]x",
        "http://%31",
    ] {
        assert_eq!(host(bad), None, "{bad}");
    }
    let error = WebUrl::try_from("https://user:secret@host/".to_owned()).expect_err("holds a password").to_string();
    assert!(!error.contains("secret"), "{error}");
}

/// Everything in a schema that Kubernetes would refuse, by path.
fn not_structural(path: &str, node: &Value, found: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match node {
        Value::Object(fields) => {
            for word in ["$ref", "$defs", "definitions", "oneOf", "anyOf", "const", "$schema"] {
                if fields.contains_key(word) && !path.ends_with(".properties") {
                    found.push(format!("{path}: {word}"));
                }
            }
            if fields.get("additionalProperties") == Some(&json!(false)) {
                found.push(format!("{path}: additionalProperties: false"));
            }
            if fields.get("type").is_some_and(Value::is_array) {
                found.push(format!("{path}: several types"));
            }
            if fields.contains_key("description") && !path.ends_with(".properties") {
                let is_typed = fields.contains_key("type") || fields.contains_key("x-kubernetes-int-or-string");
                if !is_typed {
                    found.push(format!("{path}: no type"));
                }
            }
            fields.iter().map(|(key, value)| (format!("{path}.{key}"), value)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (format!("{path}[{at}]"), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (path, child) in children {
        not_structural(&path, child, found);
    }
}

#[test]
fn both_schemas_are_structural_and_every_field_is_described() {
    for (name, schema) in
        [("cache", structural_schema::<InferenceCacheSpec>()), ("policy", structural_schema::<CachePolicySpec>())]
    {
        let mut found = Vec::new();
        not_structural(name, &schema, &mut found);
        described(name, &schema, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

fn described(path: &str, node: &Value, found: &mut Vec<String>) {
    for (key, field) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.{key}");
        if field.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
            found.push(format!("{path}: no description"));
        }
        described(&path, field, found);
        if let Some(items) = field.get("items") {
            described(&format!("{path}[]"), items, found);
        }
    }
}
