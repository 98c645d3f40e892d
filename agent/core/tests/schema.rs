//! The schemas that a cluster is given, beside the code they are made from.
//!
//! A change of the API shows as a change of `tests/fixtures/api/*.schema.json`, where it is reviewed as a diff. To renew them:
//! `STOKEHOLD_RENEW=1 cargo test -p stokehold-core --test schema`.

#![expect(clippy::disallowed_methods, reason = "a test that keeps files fresh reads and writes them")]

use std::path::Path;

use stokehold_core::api::{CachePolicySpec, InferenceCacheSpec, structural_schema};

#[test]
fn the_recorded_schemas_are_fresh() {
    for (name, schema) in
        [("cache", structural_schema::<InferenceCacheSpec>()), ("policy", structural_schema::<CachePolicySpec>())]
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/api/{name}.schema.json"));
        let fresh = format!("{schema:#}\n");
        if std::env::var_os("STOKEHOLD_RENEW").is_some() {
            std::fs::write(&path, &fresh).expect("the fixture can be written");
        }
        let recorded = std::fs::read_to_string(&path).expect("the fixture is there");
        assert!(
            recorded == fresh,
            "{name}.schema.json is stale: STOKEHOLD_RENEW=1 cargo test -p stokehold-core --test schema"
        );
    }
}
