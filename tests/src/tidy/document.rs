//! Documents stay true: paths they name exist, tests they name exist, their tables equal the code's.
//!
//! Deliberately absent: prose. Whether a sentence is right is for its reader to say.

use std::collections::BTreeSet;

use super::source::{code_only, functions};
use super::{Finding, Tree};

/// How many promises there are: P1 to P12.
const PROMISES: usize = 12;

/// Said in place of test names under a promise that has none yet.
const NO_TEST_YET: &str = "No test yet:";

/// Ends of names that are ours to keep when they stand in backticks with a `/`.
const FILE_ENDS: &[&str] = &[".rs", ".md", ".toml", ".yaml", ".yml", ".service", ".sh", ".proto"];

/// Every path of this repository that a document names, in backticks or as a link, exists.
#[must_use]
pub fn paths_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (line, span) in spans(text) {
            if looks_like_our_path(tree, span) && !tree.has(span.trim_end_matches('/')) {
                findings.push(Finding::new(path, line, format!("`{span}` does not exist")));
            }
        }
        for (line, target) in links(text) {
            let target = target.split('#').next().unwrap_or_default();
            let is_elsewhere = target.is_empty() || target.contains(':');
            if !is_elsewhere && !tree.has(&beside(path, target)) {
                findings.push(Finding::new(path, line, format!("the link to {target} leads nowhere")));
            }
        }
    }
    findings
}

/// Lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

/// What stands between backticks in prose.
fn spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, text)| text.split('`').skip(1).step_by(2).map(move |span| (line, span)))
}

/// Targets of links in prose.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, text)| {
        text.split("](").skip(1).filter_map(move |rest| rest.split_once(')').map(|(target, _)| (line, target)))
    })
}

/// Whether a span means a file or folder of this repository, rather than a path on a node or a pattern.
fn looks_like_our_path(tree: &Tree, span: &str) -> bool {
    let is_plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if !is_plain || span.starts_with('/') {
        return false;
    }
    match span.split_once('/') {
        Some((first, _)) => tree.has(first) || FILE_ENDS.iter().any(|end| span.ends_with(end)),
        None => span.ends_with(".md") || span.ends_with(".toml"),
    }
}

/// The path that `target` means in the document at `path`.
fn beside(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// All promises stand in the document in order, each with the tests that hold it, or with a word why there is none; and
/// every test it names exists.
#[must_use]
pub fn promises(tree: &Tree, path: &str) -> Vec<Finding> {
    let Some(text) = tree.text(path) else {
        return vec![Finding::new(path, 0, "is missing")];
    };
    let mut findings = Vec::new();
    let sections: Vec<&str> = text.split("\n## ").skip(1).filter(|section| section.starts_with('P')).collect();
    for number in 1..=PROMISES {
        let Some(section) = sections.get(number - 1).filter(|section| section.starts_with(&format!("P{number} ")))
        else {
            findings.push(Finding::new(path, 0, format!("P{number} is missing or out of order")));
            continue;
        };
        let prefix = format!("p{number:02}_");
        if !spans(section).any(|(_, span)| span.starts_with(&prefix)) && !section.contains(NO_TEST_YET) {
            findings.push(Finding::new(
                path,
                0,
                format!("P{number} names no `{prefix}` test and says no `{NO_TEST_YET}`"),
            ));
        }
    }
    let known = function_names(tree);
    for (line, span) in spans(text).filter(|(_, span)| is_test_name(span)) {
        if !known.contains(span) {
            findings.push(Finding::new(path, line, format!("no test is called {span}")));
        }
    }
    findings
}

/// Whether this is the name of a test of a promise (`p03_...`) or of a case (`c003_...`).
fn is_test_name(span: &str) -> bool {
    let number = span.split('_').next().unwrap_or_default();
    let digits = number.strip_prefix(['p', 'c']).unwrap_or_default();
    let is_word = span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word && span.len() > number.len() && digits.len() > 1 && digits.chars().all(|c| c.is_ascii_digit())
}

fn function_names(tree: &Tree) -> BTreeSet<String> {
    tree.ending(".rs").flat_map(|(_, text)| functions(&code_only(text))).map(|function| function.name).collect()
}

/// A row of a table as documents write it: the name in backticks, then the other cells.
#[must_use]
pub fn row(name: &str, cells: &[&str]) -> String {
    cells.iter().fold(format!("| `{name}` |"), |row, cell| row + " " + cell + " |")
}

/// The table under a heading equals the code's rows, in the same order; a document may add columns of its own.
#[must_use]
pub fn table_equals(tree: &Tree, path: &str, heading: &str, table: &[String]) -> Vec<Finding> {
    let Some(text) = tree.text(path) else {
        return vec![Finding::new(path, 0, "is missing")];
    };
    let rows = rows_under(text, heading);
    let mut findings = Vec::new();
    for (index, expected) in table.iter().enumerate() {
        match rows.get(index) {
            Some((_, row)) if row.starts_with(expected) => {}
            Some((line, _)) => findings.push(Finding::new(path, *line, format!("where the code says {expected}"))),
            None => findings.push(Finding::new(path, 0, format!("lacks {expected}"))),
        }
    }
    for (line, row) in rows.iter().skip(table.len()) {
        findings.push(Finding::new(path, *line, format!("is not in the code's table: {row}")));
    }
    findings
}

/// Rows that begin with a name in backticks, between this heading and the next.
fn rows_under<'a>(text: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    let mut is_under = false;
    let mut rows = Vec::new();
    for (number, line) in prose(text) {
        if line.starts_with('#') {
            is_under = line.trim_start_matches('#').trim() == heading;
        } else if is_under && line.starts_with("| `") {
            rows.push((number, line));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::as_text;
    use super::*;

    #[test]
    fn a_path_that_is_gone_is_found_and_other_spans_are_left_alone() {
        let text = "`agent/src/` `agent/gone.rs` `gone.md` `core/plan.rs`\n`/etc/x.yaml` `agent/<id>.rs` `make test`\n\
                    ```text\n`agent/fenced.rs`\n```\n[a](B.md#part) [b](gone/B.md) [c](https://example.org/x) [d](../agent/)\n";
        let tree = Tree::of(&[("docs/A.md", text), ("docs/B.md", ""), ("agent/src/lib.rs", "")]);
        assert_eq!(
            as_text(&paths_exist(&tree)),
            "docs/A.md:1: `agent/gone.rs` does not exist\n\
             docs/A.md:1: `gone.md` does not exist\n\
             docs/A.md:1: `core/plan.rs` does not exist\n\
             docs/A.md:6: the link to gone/B.md leads nowhere\n"
        );
    }

    #[test]
    fn a_promise_without_tests_or_with_invented_ones_is_found() {
        let mut text =
            String::from("# Promises\n\n## P1 Whole\n`p01_is_whole`, `p01_is_invented`\n\n## P2 One\nSilence.\n");
        for number in (3..=PROMISES).filter(|number| *number != 5) {
            text += &format!("\n## P{number} Name\n{NO_TEST_YET} later.\n");
        }
        let tree = Tree::of(&[("s.md", &text), ("a.rs", "fn p01_is_whole() {}\n// fn p01_is_invented() {}\n")]);
        let found = as_text(&promises(&tree, "s.md"));
        assert!(found.contains("s.md:0: P2 names no `p02_` test and says no `No test yet:`\n"), "{found}");
        assert!(found.contains("s.md:0: P5 is missing or out of order\n"), "{found}");
        assert!(found.contains("s.md:4: no test is called p01_is_invented\n"), "{found}");
        assert!(!found.contains("P1 ") && !found.contains("p01_is_whole"), "{found}");
    }

    #[test]
    fn a_table_that_differs_from_the_code_is_found() {
        let text = "| `Z` | Of another section. |\n# Table\n| name | meaning |\n|---|---|\n| `A` | First. | do x |\n\
                    | `C` | Third. |\n| `D` | Fourth. |\n## Next\n| `E` | Fifth. |\n";
        let tree = Tree::of(&[("t.md", text)]);
        let table = [row("A", &["First."]), row("B", &["Second."])];
        assert_eq!(
            as_text(&table_equals(&tree, "t.md", "Table", &table)),
            "t.md:6: where the code says | `B` | Second. |\n\
             t.md:7: is not in the code's table: | `D` | Fourth. |\n"
        );
        assert_eq!(as_text(&table_equals(&tree, "t.md", "Gone", &table[..1])), "t.md:0: lacks | `A` | First. |\n");
        assert_eq!(as_text(&table_equals(&tree, "gone.md", "Table", &[])), "gone.md:0: is missing\n");
    }
}
