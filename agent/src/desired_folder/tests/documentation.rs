//! The documentation of what people write is true: its examples are accepted, and no field is missing from its tables.
//!
//! Deliberately absent: whether defaults and allowed values are told right, which the schema's own tests know.

use serde_json::Value;
use stokehold_core::api::{CachePolicySpec, InferenceCacheSpec, structural_schema};

use super::*;

const TEXT: &str = include_str!("../../../../docs/OBJECTS.md");

/// Told in one row, as what a pod spec has there.
const TOLD_BY_POD_SPEC: &str = "spec.placement.affinity";

/// The text of every example.
fn examples() -> Vec<&'static str> {
    let blocks = TEXT.split("\n```yaml\n").skip(1);
    blocks.map(|rest| rest.split_once("\n```\n").expect("the example ends").0).collect()
}

#[test]
fn every_documented_example_is_accepted_beside_the_others_and_acted_on_in_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let examples = examples();
    assert!(examples.len() >= 2, "an example of each kind");
    for (at, example) in examples.iter().enumerate() {
        fs::write(folder.path().join(format!("{at}.yaml")), format!("{example}\n")).expect("written");
    }
    let found = read(folder.path()).expect("reads");
    assert_eq!(found.rejected, []);
    let documents = examples.iter().map(|example| example.matches("kind: InferenceCache").count()).sum::<usize>();
    assert_eq!(found.caches.len(), documents);
    for cache in found.caches.values() {
        assert_eq!((&cache.refused, cache.not_in_this_release.as_slice()), (&None, [].as_slice()), "{}", cache.id);
    }
    assert!(examples.iter().any(|example| example.contains("kind: CachePolicy")));
}

#[test]
fn every_field_of_both_kinds_stands_in_the_documentation() {
    let mut fields = Vec::new();
    collect("spec", &structural_schema::<InferenceCacheSpec>(), &mut fields);
    collect("spec", &structural_schema::<CachePolicySpec>(), &mut fields);
    assert!(fields.len() > 60, "{fields:#?}");
    let missing: Vec<&String> = fields.iter().filter(|field| !TEXT.contains(&format!("| `{field}` |"))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

fn collect(path: &str, schema: &Value, fields: &mut Vec<String>) {
    if path == TOLD_BY_POD_SPEC {
        return;
    }
    for (key, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.{key}");
        fields.push(path.clone());
        collect(&path, field, fields);
        if let Some(items) = field.get("items") {
            collect(&format!("{path}[]"), items, fields);
        }
    }
}
