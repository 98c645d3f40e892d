//! How a file opens, how long it and its functions may grow, and words that may not stay.

use super::source::{code_only, functions, line_count, without_tests};
use super::{Finding, Tree};

/// Lines of code a file may hold, tests not counted: more is two files.
const FILE_LINES_MAX: usize = 500;

/// Lines of code a function may hold: one screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Files that may be longer, with how long and why. It only ever shrinks.
const LONG_FILES: &[(&str, usize, &str)] = &[];

/// Functions that may be longer, as `path::name`, with how long and why. It only ever shrinks.
const LONG_FUNCTIONS: &[(&str, usize, &str)] = &[];

/// Marks of unfinished work; in two halves, so that this file does not find itself.
const UNFINISHED: &[&str] = &[concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];

/// Macros of unfinished work.
const UNFINISHED_MACROS: &[&str] = &["todo!", "unimplemented!"];

/// Every `.rs` file opens by saying what it is for.
#[must_use]
pub fn opens_with_purpose(tree: &Tree) -> Vec<Finding> {
    let silent = tree.ending(".rs").filter(|(_, text)| {
        let first = text.lines().next().unwrap_or_default();
        !first.starts_with("//! ")
    });
    silent.map(|(path, _)| Finding::new(path, 1, "opens without `//!` and what the file is for")).collect()
}

/// No mark of unfinished work, in code or in configuration.
#[must_use]
pub fn finished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ends = [".rs", ".toml", ".yaml", ".yml", ".sh", ".service", "Makefile", ".ci/run", ".proto", ".md"];
    for (path, text) in ends.iter().flat_map(|end| tree.ending(end)) {
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(mark) = words.find(|word| UNFINISHED.contains(word)) {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("{mark}: do it now, or say in docs what is not there"),
                ));
            }
        }
    }
    for (path, text) in tree.ending(".rs") {
        for (index, line) in code_only(text).lines().enumerate() {
            if let Some(name) = UNFINISHED_MACROS.iter().find(|name| line.contains(**name)) {
                findings.push(Finding::new(path, index + 1, format!("{name}: unfinished")));
            }
        }
    }
    findings
}

/// No lint is silenced without a word: `#[expect(lint, reason = "…")]` ends itself when it is no longer needed.
#[must_use]
pub fn no_bare_allow(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (index, line) in code_only(text).lines().enumerate() {
            if line.contains("#[allow(") || line.contains("#![allow(") {
                findings.push(Finding::new(path, index + 1, "allow: write expect, with a reason"));
            }
        }
    }
    findings
}

/// Every `select!` says `biased;` first: which arm wins must not be chance.
#[must_use]
pub fn select_is_biased(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let code = code_only(text);
        for (at, found) in code.match_indices("select!") {
            let inside = code[at + found.len()..].trim_start().trim_start_matches('{').trim_start();
            if !inside.starts_with("biased;") {
                let line = code[..at].matches('\n').count() + 1;
                findings.push(Finding::new(path, line, "select! without `biased;`"));
            }
        }
    }
    findings
}

/// No file and no function grows past its ratchet, and no exception outlives its need.
#[must_use]
pub fn ratchets(tree: &Tree) -> Vec<Finding> {
    ratchets_but(tree, LONG_FILES, LONG_FUNCTIONS)
}

fn ratchets_but(tree: &Tree, long_files: &[Exception], long_functions: &[Exception]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let code = code_only(text);
        let lines = if is_test_file(path) { 0 } else { line_count(&without_tests(&code)) };
        findings.extend(judge(path, 0, path, lines, FILE_LINES_MAX, long_files));
        for function in functions(&code) {
            let name = format!("{path}::{}", function.name);
            findings.extend(judge(path, function.line, &name, function.lines, FUNCTION_LINES_MAX, long_functions));
        }
    }
    findings
}

/// Name, lines allowed, reason.
type Exception = (&'static str, usize, &'static str);

fn judge(path: &str, line: usize, name: &str, lines: usize, max: usize, exceptions: &[Exception]) -> Option<Finding> {
    let exception = exceptions.iter().find(|(known, _, _)| *known == name);
    let allowed = exception.map_or(max, |(_, allowed, _)| *allowed);
    if lines > allowed {
        return Some(Finding::new(path, line, format!("{name} holds {lines} lines of code, {allowed} are allowed")));
    }
    if exception.is_some() && lines <= max {
        return Some(Finding::new(path, line, format!("{name} holds {lines} lines of code: its exception can go")));
    }
    None
}

/// Whether a whole file is tests: `name/tests.rs`, or anything in a `tests` folder that is not a room's `src`.
fn is_test_file(path: &str) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    path.ends_with("/tests.rs") || folders.ends_with("/tests") || folders.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::super::as_text;
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_found() {
        let tree = Tree::of(&[("a.rs", "//! Counts.\n"), ("b.rs", "use std::fs;\n//! Late.\n"), ("c.rs", "//!\n")]);
        let silent: Vec<String> = opens_with_purpose(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(silent, ["b.rs", "c.rs"]);
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_configuration() {
        let marks = format!("a = 1\n# {}: more\n", UNFINISHED[0]);
        let tree = Tree::of(&[
            ("a.toml", &marks),
            ("b.rs", "fn a() {\n    todo!()\n}\n"),
            ("c.rs", "// A todo! in a comment, a \"todo!\" in a literal, and EXXXTRA.\n"),
        ]);
        let found: Vec<(String, usize)> = finished(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [("a.toml".into(), 2), ("b.rs".into(), 2)]);
    }

    #[test]
    fn a_lint_silenced_without_a_word_is_found() {
        let tree =
            Tree::of(&[("a.rs", "#![allow(dead_code)]\n// #[allow(x)]\n#[expect(x, reason = \"y\")]\n#[allow(x)]\n")]);
        let lines: Vec<usize> = no_bare_allow(&tree).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 4]);
    }

    #[test]
    fn a_select_left_to_chance_is_found() {
        let fair = "tokio::select! {\n    () = stop => {}\n}\n";
        let tree = Tree::of(&[("a.rs", "select! {\n    biased;\n    // Why.\n}\n"), ("b.rs", fair)]);
        assert_eq!(as_text(&select_is_biased(&tree)), "b.rs:1: select! without `biased;`\n");
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_tests() {
        let short =
            "step();\n".repeat(FILE_LINES_MAX) + "// One more.\n\n#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n";
        let long = "step();\n".repeat(FILE_LINES_MAX + 1);
        let tree = Tree::of(&[
            ("a/short.rs", &short),
            ("tests/src/long.rs", &long),
            ("a/long/tests.rs", &long),
            ("tests/tests/long.rs", &long),
        ]);
        assert_eq!(
            as_text(&ratchets(&tree)),
            "tests/src/long.rs:0: tests/src/long.rs holds 501 lines of code, 500 are allowed\n"
        );
    }

    #[test]
    fn a_long_function_is_found_and_an_idle_exception_too() {
        let (short, long) = (function_of(FUNCTION_LINES_MAX), function_of(FUNCTION_LINES_MAX + 1));
        let tree = Tree::of(&[("a.rs", &short), ("b.rs", &long), ("c.rs", &long)]);
        let exceptions = [("a.rs::long", 90, "was long"), ("c.rs::long", 71, "a table")];
        assert_eq!(
            as_text(&ratchets_but(&tree, &[], &exceptions)),
            "a.rs:1: a.rs::long holds 70 lines of code: its exception can go\n\
             b.rs:1: b.rs::long holds 71 lines of code, 70 are allowed\n"
        );
    }
}
