//! The house rules of `stokehold_tests::tidy`, held over this repository. Each test lists every place that breaks one.

use std::path::Path;

use stokehold_core::hold::REASONS;
use stokehold_core::metric::{METRICS, Metric, MetricKind, Stability};
use stokehold_core::report::{CONDITIONS, STATE_ANNOTATION, STORAGE_LABEL, WARM_LABEL_PREFIX, WEIGHTS_LABEL_PREFIX};
use stokehold_tests::tidy::{Finding, Tree, as_text, document, room, shape};

fn repository() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Tree::read(&root).expect("the repository can be read")
}

#[track_caller]
fn holds(check: impl Fn(&Tree) -> Vec<Finding>) {
    let found = as_text(&check(&repository()));
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn rooms_import_only_what_the_table_allows() {
    holds(room::imports);
}

#[test]
fn every_source_file_is_compiled() {
    holds(room::reachable);
}

#[test]
fn no_module_is_named_after_nothing() {
    holds(room::module_names);
}

#[test]
fn every_source_file_opens_with_its_purpose() {
    holds(shape::opens_with_purpose);
}

#[test]
fn nothing_is_left_unfinished() {
    holds(shape::finished);
}

#[test]
fn no_lint_is_silenced_without_a_word() {
    holds(shape::no_bare_allow);
}

#[test]
fn no_select_is_left_to_chance() {
    holds(shape::select_is_biased);
}

#[test]
fn files_and_functions_stay_within_their_ratchets() {
    holds(shape::ratchets);
}

#[test]
fn every_path_in_a_document_exists() {
    holds(document::paths_exist);
}

#[test]
fn every_promise_stands_in_its_document_with_its_tests() {
    holds(|tree| document::promises(tree, "docs/SEMANTICS.md"));
}

#[test]
fn holds_in_the_document_equal_the_table_in_core() {
    let table: Vec<String> = REASONS.iter().map(|(name, meaning)| document::row(name, &[meaning])).collect();
    holds(|tree| document::table_equals(tree, "docs/HOLDS.md", "Holds", &table));
}

#[test]
fn conditions_in_the_document_equal_the_table_in_core() {
    let table: Vec<String> = CONDITIONS.iter().map(|(name, meaning)| document::row(name, &[meaning])).collect();
    holds(|tree| document::table_equals(tree, "docs/METRICS.md", "Conditions", &table));
}

#[test]
fn labels_in_the_document_equal_those_in_core() {
    let keys = [
        format!("{WEIGHTS_LABEL_PREFIX}<slug>"),
        format!("{WARM_LABEL_PREFIX}<slug>"),
        STORAGE_LABEL.to_owned(),
        STATE_ANNOTATION.to_owned(),
    ];
    let table: Vec<String> = keys.iter().map(|key| document::row(key, &[])).collect();
    holds(|tree| document::table_equals(tree, "docs/METRICS.md", "Labels", &table));
}

#[test]
fn metrics_in_the_document_equal_the_table_in_core() {
    let metric_row = |metric: &Metric| {
        let kind = match metric.kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Histogram => "histogram",
        };
        let stability = match metric.stability {
            Stability::Stable => "stable",
            Stability::Experimental => "experimental",
        };
        document::row(metric.name, &[metric.help, kind, &metric.labels.join(", "), stability])
    };
    let table: Vec<String> = METRICS.iter().map(metric_row).collect();
    holds(|tree| document::table_equals(tree, "docs/METRICS.md", "Metrics", &table));
}
