//! Which room may import which, which file belongs to which, and what a module may not be called.

use std::collections::BTreeSet;

use super::source::{code_only, modules};
use super::{Finding, Tree};

/// Which room may import which. A new arrow here is an architecture change: see docs/ARCHITECTURE.md.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("agent/core", &[]),
    ("agent/host", &["stokehold-core"]),
    ("agent/origin", &["stokehold-core"]),
    ("agent/cluster", &["stokehold-core"]),
    ("agent", &["stokehold-core", "stokehold-origin", "stokehold-host", "stokehold-cluster"]),
    ("tests", &["stokehold", "stokehold-core", "stokehold-origin", "stokehold-host", "stokehold-cluster"]),
];

/// Names that say nothing about what is inside.
const BANNED_MODULES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "data", "info", "mod"];

/// Every room imports only what the table allows, takes the workspace's lints, and stands in the table.
#[must_use]
pub fn imports(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, manifest) in tree.ending("Cargo.toml") {
        let Some(room) = path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else {
            findings.push(Finding::new(path, 0, "a room that the import table does not know"));
            continue;
        };
        for (line, name) in our_dependencies(manifest) {
            if !allowed.contains(&name.as_str()) {
                findings.push(Finding::new(path, line, format!("{room} may not import {name}")));
            }
        }
        if !manifest.contains("[lints]\nworkspace = true") {
            findings.push(Finding::new(path, 0, "does not take the workspace's lints"));
        }
    }
    findings
}

/// Our packages that stand in any dependency section, with their lines.
fn our_dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        }
        if in_dependencies {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let ours = words.filter(|word| *word == "stokehold" || word.starts_with("stokehold-"));
            found.extend(ours.map(|word| (index + 1, word.to_owned())));
        }
    }
    found
}

/// Every `.rs` file is compiled: a path of `mod` lines leads to it from the root of its crate.
#[must_use]
pub fn reachable(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<String> =
        tree.ending(".rs").map(|(path, _)| path.to_owned()).filter(|path| is_root(tree, path)).collect();
    while let Some(path) = open.pop() {
        let Some(text) = tree.text(&path) else {
            continue;
        };
        for (name, _, is_elsewhere) in modules(&code_only(text)) {
            if is_elsewhere {
                open.push(format!("{}{name}.rs", folder_of_modules(tree, &path)));
            }
        }
        reached.insert(path);
    }
    let lost = tree.ending(".rs").filter(|(path, _)| !reached.contains(*path));
    lost.map(|(path, _)| Finding::new(path, 0, "no mod line leads here: it is never compiled")).collect()
}

/// Whether Cargo takes this file as the root of a crate.
fn is_root(tree: &Tree, path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let file = parts.pop().unwrap_or_default();
    let is_package = |parts: &[&str]| {
        let manifest = parts.iter().map(|part| format!("{part}/")).collect::<String>() + "Cargo.toml";
        tree.text(&manifest).is_some()
    };
    match parts.as_slice() {
        [package @ .., "src"] => matches!(file, "lib.rs" | "main.rs") && is_package(package),
        [package @ .., "src", "bin"] | [package @ .., "tests" | "benches" | "examples"] => is_package(package),
        [package @ .., "src", "bin", _] | [package @ .., "tests" | "benches" | "examples", _] => {
            file == "main.rs" && is_package(package)
        }
        package => file == "build.rs" && is_package(package),
    }
}

/// Where the modules that `path` declares are looked for.
fn folder_of_modules(tree: &Tree, path: &str) -> String {
    if is_root(tree, path) {
        path.rsplit_once('/').map_or_else(String::new, |(folder, _)| format!("{folder}/"))
    } else {
        format!("{}/", path.trim_end_matches(".rs"))
    }
}

/// No module, by file or inline, has a name that says nothing; `mod.rs` is written `name.rs`.
#[must_use]
pub fn module_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        if BANNED_MODULES.contains(&stem) {
            findings.push(Finding::new(path, 0, format!("`{stem}` says nothing: name it after what it holds")));
        }
        for (name, line, _) in modules(&code_only(text)) {
            if BANNED_MODULES.contains(&name.as_str()) {
                findings.push(Finding::new(path, line, format!("`{name}` says nothing: name it after what it holds")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::as_text;
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    #[test]
    fn a_new_arrow_between_rooms_is_found_in_every_form() {
        let core = format!("{LINTS}[dev-dependencies]\nstokehold-host.workspace = true\n# stokehold-origin\n");
        let host = format!("{LINTS}[dependencies]\nstokehold-core.workspace = true\n[dependencies.stokehold-origin]\n");
        let origin =
            format!("{LINTS}[target.'cfg(unix)'.dependencies]\nx = {{ package = \"stokehold\", path = \"..\" }}\n");
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.dependencies]\nstokehold-host = { path = \"agent/host\" }\n"),
            ("agent/core/Cargo.toml", &core),
            ("agent/host/Cargo.toml", &host),
            ("agent/origin/Cargo.toml", &origin),
            ("agent/cluster/Cargo.toml", "[package]\nname = \"stokehold-cluster\"\n"),
            ("agent/attic/Cargo.toml", LINTS),
        ]);
        assert_eq!(
            as_text(&imports(&tree)),
            "agent/attic/Cargo.toml:0: a room that the import table does not know\n\
             agent/cluster/Cargo.toml:0: does not take the workspace's lints\n\
             agent/core/Cargo.toml:4: agent/core may not import stokehold-host\n\
             agent/host/Cargo.toml:5: agent/host may not import stokehold-origin\n\
             agent/origin/Cargo.toml:4: agent/origin may not import stokehold\n"
        );
    }

    #[test]
    fn a_file_that_no_mod_line_names_is_found() {
        let tree = Tree::of(&[
            ("agent/Cargo.toml", ""),
            ("agent/src/lib.rs", "pub mod plan;\n// mod ghost;\n"),
            ("agent/src/main.rs", ""),
            ("agent/src/plan.rs", "mod step;\n#[cfg(test)]\nmod tests;\n"),
            ("agent/src/plan/step.rs", ""),
            ("agent/src/plan/tests.rs", ""),
            ("agent/src/step.rs", ""),
            ("agent/src/ghost.rs", ""),
            ("agent/src/bin/extra.rs", ""),
            ("agent/tests/whole.rs", "mod part;\n"),
            ("agent/tests/part.rs", ""),
            ("agent/tests/folder/lost.rs", ""),
        ]);
        let lost: Vec<String> = reachable(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(lost, ["agent/src/ghost.rs", "agent/src/step.rs", "agent/tests/folder/lost.rs"]);
    }

    #[test]
    fn a_module_named_after_nothing_is_found() {
        let tree = Tree::of(&[("a/helper.rs", ""), ("b/mod.rs", ""), ("c.rs", "\npub mod util {}\nmod utility;\n")]);
        let found: Vec<(String, usize)> =
            module_names(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(found, [("a/helper.rs".into(), 0), ("b/mod.rs".into(), 0), ("c.rs".into(), 2)]);
    }
}
