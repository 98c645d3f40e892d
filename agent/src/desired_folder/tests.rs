//! Folders in, what is desired out.

#![expect(clippy::disallowed_methods, reason = "tests write as an editor does, not as the agent must")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;

mod documentation;

const LONG: Duration = Duration::from_secs(30);

fn cache(name: &str, path: &str) -> String {
    format!(
        "apiVersion: stokehold.dev/v1alpha1\nkind: InferenceCache\nmetadata: {{ name: {name}, namespace: a }}\n\
         spec:\n  weights:\n    source:\n      nodePath: {path}\n"
    )
}

fn policy(name: &str, prefix: &str) -> String {
    format!(
        "apiVersion: stokehold.dev/v1alpha1\nkind: CachePolicy\nmetadata: {{ name: {name} }}\n\
         spec: {{ allowedSources: {{ nodePaths: [{prefix}] }} }}\n"
    )
}

/// What is desired, as lines: accepted caches with their source, rejected places with the cache and the reason.
fn lines(desired: &Desired) -> Vec<String> {
    let accepted = desired.caches.values().map(|cache| {
        let source = cache.weights.as_ref().map(|weights| weights.source.to_string()).unwrap_or_default();
        let refused = if cache.refused.is_some() { " refused" } else { "" };
        format!("+ {} {source}{refused}", cache.id)
    });
    let rejected = desired.rejected.iter().map(|bad| {
        let cache = bad.cache.as_ref().map_or("?".to_owned(), ToString::to_string);
        format!("- {} {cache}: {}", bad.place, bad.reason)
    });
    accepted.chain(rejected).collect()
}

/// A folder with these files, read once.
fn check(files: &[(&str, &str)], want: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("written");
    }
    let found = lines(&read(folder.path()).expect("reads"));
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (found, want) in found.iter().zip(want) {
        assert!(found.starts_with(want), "\nfound: {found}\nwant:  {want}");
    }
}

#[test]
fn every_document_of_every_yaml_file_is_read_and_other_files_are_not() {
    let two = format!("# comment\n---\n{}---\n# nothing here\n---\n{}", cache("b", "/b"), cache("c", "/c"));
    check(
        &[
            ("1.yaml", &cache("a", "/a")),
            ("2.yml", &two),
            ("x.txt", "{"),
            (".y.yaml", "{"),
            ("z.yaml~", "{"),
            ("0.yaml", ""),
        ],
        &["+ a/a nodePath:/a", "+ a/b nodePath:/b", "+ a/c nodePath:/c"],
    );
}

#[test]
fn p10_a_broken_document_is_rejected_with_line_and_column_and_the_rest_goes_on() {
    let unknown = cache("b", "/b").replace("nodePath", "path");
    let text = format!("{}---\n{unknown}---\n{}", cache("a", "/a"), cache("c", "/c"));
    check(
        &[("1.yaml", &text), ("2.yaml", &cache("d", "/d"))],
        &[
            "+ a/a",
            "+ a/c",
            "+ a/d",
            "- 1.yaml:15:7 a/b: unknown field `path`, expected one of s3, fsx, nodePath, huggingFace, http, oci",
        ],
    );
}

#[test]
fn a_bad_value_is_named_with_its_place_and_what_is_allowed() {
    let with = |line: &str| format!("{}  {line}\n", cache("a", "/a"));
    for (line, want) in [
        ("limitPerNode: 200GB", "- f.yaml:8:17 a/a: \"200GB\" is not an amount of bytes; allowed"),
        ("retainAfterDelete: 5", "- f.yaml:8:22 a/a: \"5\" is not a length of time; allowed"),
        ("priority: high", "- f.yaml:8:13 a/a: not a whole number, in the line \"priority: high\""),
        ("limitPerNode: 0", "- f.yaml:1 a/a: spec.limitPerNode: \"0\" is not allowed; allowed"),
        ("priority: 1\n  priority: 2", "- f.yaml:9:3 a/a: "),
    ] {
        check(&[("f.yaml", &with(line))], &[want]);
    }
    check(&[("f.yaml", &cache("A_b", "/a"))], &["- f.yaml:3:19 ?: \"A_b\" is not a DNS label; allowed"]);
}

#[test]
fn another_kind_or_version_is_one_rejected_entry_that_names_those_that_are_read() {
    let allowed = "allowed: InferenceCache and CachePolicy of stokehold.dev/v1alpha1";
    check(
        &[
            ("1.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: x }\ndata: {}\n"),
            ("2.yaml", &cache("a", "/a").replace("v1alpha1", "v2")),
            ("3.yaml", &cache("b", "/b").replace("kind: InferenceCache\n", "")),
            ("4.yaml", &cache("c", "/c").replace("apiVersion: stokehold.dev/v1alpha1\n", "")),
        ],
        &[
            &format!("- 1.yaml:1 ?: kind: \"ConfigMap\" is not read; {allowed}"),
            &format!("- 2.yaml:1 a/a: apiVersion: \"stokehold.dev/v2\" is not read; {allowed}"),
            &format!("- 3.yaml:1 a/b: kind: is missing; {allowed}"),
            &format!("- 4.yaml:1 a/c: apiVersion: is missing; {allowed}"),
        ],
    );
}

#[test]
fn a_syntax_error_below_the_metadata_still_tells_which_cache_it_was() {
    check(&[("1.yaml", &format!("{}  include: [\"*.json\"\n", cache("a", "/a")))], &["- 1.yaml:"]);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("1.yaml"), format!("{}      x: [\n", cache("a", "/a"))).expect("written");
    let desired = read(folder.path()).expect("reads");
    assert_eq!(desired.rejected[0].cache.as_ref().map(ToString::to_string).as_deref(), Some("a/a"));
}

#[test]
fn of_two_files_for_one_cache_the_first_by_name_stands() {
    check(
        &[("b.yaml", &cache("a", "/b")), ("a.yaml", &cache("a", "/a"))],
        &["+ a/a nodePath:/a", "- b.yaml:1 a/a: a/a is already asked for in a.yaml:1"],
    );
}

#[test]
fn a_revision_of_digits_alone_is_still_a_text() {
    let text = |revision: &str| format!("{}    revision: {revision}\n", cache("a", "/a"));
    for revision in ["1234567890123456", "\"0123456789abcdef\"", "0123456789012345", "12345678901234e5"] {
        check(&[("f.yaml", &text(revision))], &["+ a/a"]);
    }
    check(&[("f.yaml", &text("null"))], &["+ a/a"]);
}

#[test]
fn what_is_no_readable_regular_file_is_rejected_and_never_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("dir.yaml")).expect("made");
    nix::unistd::mkfifo(&path("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    symlink("nowhere", path("gone.yaml")).expect("made");
    fs::write(path("large.yaml"), vec![b'#'; FILE_BYTES_MAX as usize + 1]).expect("written");
    fs::write(path("latin.yaml"), [b'a', 0xe4]).expect("written");
    fs::write(path("ok.yaml"), cache("a", "/a")).expect("written");
    let found = lines(&read(folder.path()).expect("reads"));
    let starts = [
        "+ a/a",
        "- dir.yaml ?: is not a regular file",
        "- gone.yaml ?: could not be read: No such file",
        "- large.yaml ?: is larger than 1048576 bytes",
        "- latin.yaml ?: is not UTF-8 text",
        "- pipe.yaml ?: is not a regular file",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}

#[test]
fn p12_policies_in_the_folder_bind_and_a_broken_one_allows_nothing() {
    check(
        &[("1.yaml", &cache("in", "/ok/x")), ("2.yaml", &cache("out", "/no")), ("p.yaml", &policy("p", "/ok"))],
        &["+ a/in nodePath:/ok/x", "+ a/out nodePath:/no refused"],
    );
    check(
        &[("1.yaml", &cache("in", "/ok")), ("p.yaml", "kind: CachePolicy\nspec: [\n")],
        &["+ a/in nodePath:/ok refused", "- p.yaml:"],
    );
    check(
        &[("1.yaml", &cache("in", "/ok")), ("p.yaml", "spec: [\nkind: CachePolicy\n")],
        &["+ a/in nodePath:/ok refused", "- p.yaml:"],
    );
}

/// A folder that is changed step by step; after each the lines are these.
fn story(steps: &[(&str, Option<&str>, &[&str])]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut reader, _empty) = Folder::open(folder.path()).expect("opens");
    for (file, text, want) in steps {
        match text {
            Some(text) => fs::write(folder.path().join(file), text).expect("written"),
            None => fs::remove_file(folder.path().join(file)).expect("removed"),
        }
        let found = lines(&reader.read());
        assert_eq!(found.len(), want.len(), "{file}: {found:#?}");
        for (found, want) in found.iter().zip(*want) {
            assert!(found.starts_with(want), "\nfound: {found}\nwant:  {want}");
        }
    }
}

#[test]
fn p06_a_file_that_breaks_leaves_its_caches_as_they_last_were_until_it_is_mended_or_gone() {
    let good = format!("{}---\n{}", cache("a", "/a"), cache("b", "/b"));
    let half = format!("{}---\n  kind: [", cache("a", "/a"));
    story(&[
        ("f.yaml", Some(&good), &["+ a/a", "+ a/b"]),
        ("f.yaml", Some("}{"), &["+ a/a", "+ a/b", "- f.yaml:1:1 a/a: ", "- f.yaml:1:1 a/b: "]),
        ("g.yaml", Some(&cache("c", "/c")), &["+ a/a", "+ a/b", "+ a/c", "- f.yaml:1:1 a/a: ", "- f.yaml:1:1 a/b: "]),
        ("f.yaml", Some(&half), &["+ a/a", "+ a/b", "+ a/c", "- f.yaml:9:"]),
        ("f.yaml", Some("\u{0}"), &["+ a/a", "+ a/b", "+ a/c", "- f.yaml:1:", "- f.yaml:1:"]),
        ("f.yaml", Some(&cache("a", "/a")), &["+ a/a", "+ a/c"]),
        ("f.yaml", Some("}{"), &["+ a/a", "+ a/c", "- f.yaml:1:1 a/a: "]),
        ("f.yaml", None, &["+ a/c"]),
        ("f.yaml", Some("}{"), &["+ a/c", "- f.yaml:1:1 ?: "]),
    ]);
}

#[test]
fn p12_a_policy_file_that_breaks_keeps_its_last_good_policy_in_force() {
    let two = format!("{}---\n{}", policy("p", "/ok"), policy("q", "/too"));
    story(&[
        ("c.yaml", Some(&cache("in", "/ok")), &["+ a/in nodePath:/ok"]),
        ("d.yaml", Some(&cache("out", "/no")), &["+ a/in nodePath:/ok", "+ a/out nodePath:/no"]),
        ("p.yaml", Some(&two), &["+ a/in nodePath:/ok", "+ a/out nodePath:/no refused"]),
        ("p.yaml", Some("}{"), &["+ a/in nodePath:/ok", "+ a/out nodePath:/no refused", "- p.yaml:1:1 ?: "]),
        ("p.yaml", Some("}{ "), &["+ a/in nodePath:/ok", "+ a/out nodePath:/no refused", "- p.yaml:1:1 ?: "]),
        ("p.yaml", Some(&policy("p", "/no")), &["+ a/in nodePath:/ok refused", "+ a/out nodePath:/no"]),
        ("p.yaml", None, &["+ a/in nodePath:/ok", "+ a/out nodePath:/no"]),
    ]);
}

#[test]
fn a_folder_that_cannot_be_read_keeps_what_was_read_last() {
    let outer = tempfile::tempdir().expect("a folder");
    let path = outer.path().join("desired");
    assert!(matches!(Folder::open(&path), Err(FolderError::List { .. })));
    fs::create_dir(&path).expect("made");
    fs::write(path.join("a.yaml"), cache("a", "/a")).expect("written");
    let (mut folder, first) = Folder::open(&path).expect("opens");
    fs::rename(&path, outer.path().join("aside")).expect("moved");
    let lost = folder.read();
    assert_eq!(lost.caches, first.caches);
    let place = path.display().to_string();
    assert_eq!(lost.rejected.len(), 1);
    assert!(
        lost.rejected[0].place == place && lost.rejected[0].reason.ends_with("No such file or directory (os error 2)")
    );
    fs::rename(outer.path().join("aside"), &path).expect("moved back");
    assert_eq!(folder.read(), first);
    for at in 0..FILES_MAX {
        fs::write(path.join(format!("{at}.yaml")), "").expect("written");
    }
    let crowded = folder.read();
    assert_eq!(crowded.caches, first.caches);
    assert!(crowded.rejected[0].reason.contains("more than 1000 YAML files"));
}

#[test]
fn c150_anchors_that_multiply_and_deep_nesting_are_refused_in_bounded_time() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..40 {
        let before = format!("*a{}, ", at - 1).repeat(9);
        bomb.push_str(&format!("a{at}: &a{at} [{}]\n", before.trim_end_matches(", ")));
    }
    let deep = format!("spec: {}", "[".repeat(100_000));
    let wide = format!("spec: [{}]", "1, ".repeat(300_000));
    let many = "---\nkind: x\n".repeat(5_000);
    for text in [bomb, deep, wide] {
        let found = pieces("f.yaml", &text);
        assert!(found.len() == 1 && found[0].document.is_err(), "{:?}", found.len());
    }
    assert_eq!(pieces("f.yaml", &many).len(), 1_001);
}

/// Steps of a small generator: no seed of the clock, so that a failure repeats.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn c150_no_bytes_and_no_mutation_of_a_good_file_make_the_reader_panic() {
    let good = format!(
        "{}---\n{}---\n{}",
        cache("a", "/a"),
        policy("p", "/ok"),
        include_str!("../../../tests/fixtures/api/cache.yaml")
    );
    let snippets = [
        "---\n",
        "&a ",
        "*a",
        "<<: ",
        "{",
        "}",
        "[",
        "]",
        ": ",
        "- ",
        "\t",
        "!!binary ",
        "\u{0}",
        "\u{feff}",
        "|\n",
        ">-\n",
        "'",
        "\"",
        "\\",
        "%YAML 1.2\n",
        "...\n",
        "~",
        "é",
        "\r",
    ];
    let mut state = 42;
    for _round in 0..500 {
        let mut text: Vec<char> = good.chars().collect();
        for _edit in 0..=next(&mut state) % 4 {
            let at = next(&mut state) % text.len();
            match next(&mut state) % 3 {
                0 => drop(text.remove(at)),
                1 => text.truncate(at.max(1)),
                _other => {
                    let snippet = snippets[next(&mut state) % snippets.len()];
                    drop(text.splice(at..at, snippet.chars()).collect::<Vec<_>>());
                }
            }
        }
        let _pieces = pieces("f.yaml", &text.into_iter().collect::<String>());
        let noise: Vec<u8> = (0..next(&mut state) % 200).map(|_| (next(&mut state) % 256) as u8).collect();
        let _pieces = pieces("f.yaml", &String::from_utf8_lossy(&noise));
    }
}

#[test]
fn the_sample_files_of_the_schema_are_read_whole() {
    let found = pieces("cache.yaml", include_str!("../../../tests/fixtures/api/cache.yaml"));
    assert!(found.len() >= 4 && found.iter().all(|piece| piece.document.is_ok()), "{found:#?}");
    let found = pieces("policy.yaml", include_str!("../../../tests/fixtures/api/policy.yaml"));
    assert!(!found.is_empty() && found.iter().all(|piece| piece.document.is_ok()), "{found:#?}");
}

async fn until(states: &mut tokio::sync::watch::Receiver<Desired>, want: impl Fn(&Desired) -> bool) {
    let found = tokio::time::timeout(LONG, states.wait_for(want)).await;
    found.expect("the state comes").expect("the watch lives");
}

fn has(id: &'static str) -> impl Fn(&Desired) -> bool {
    move |state| state.caches.keys().any(|found| found.to_string() == id)
}

#[tokio::test]
async fn edits_renames_links_and_a_lost_folder_are_seen_without_waiting_for_the_resync() {
    let outer = tempfile::tempdir().expect("a folder");
    let path = outer.path().join("desired");
    fs::create_dir(&path).expect("made");
    let (folder, first) = Folder::open(&path).expect("opens");
    let (sender, mut states) = tokio::sync::watch::channel(first);
    let stop = CancellationToken::new();
    let running = tokio::spawn(watch(folder, sender, stop.clone()));

    fs::write(path.join("a.yaml"), cache("a", "/a")).expect("written");
    until(&mut states, has("a/a")).await;
    // As editors save: aside, then over it.
    fs::write(path.join(".a.yaml.swp"), cache("b", "/b")).expect("written");
    fs::rename(path.join(".a.yaml.swp"), path.join("a.yaml")).expect("moved");
    until(&mut states, |state| has("a/b")(state) && !has("a/a")(state)).await;
    // As the kubelet shows a ConfigMap: a link to a folder, replaced in one step.
    for (version, name) in [("..1", "c"), ("..2", "d")] {
        fs::create_dir(path.join(version)).expect("made");
        fs::write(path.join(version).join("m.yaml"), cache(name, "/m")).expect("written");
    }
    symlink("..1", path.join("..data")).expect("linked");
    symlink("..data/m.yaml", path.join("m.yaml")).expect("linked");
    until(&mut states, has("a/c")).await;
    symlink("..2", path.join("..data_tmp")).expect("linked");
    fs::rename(path.join("..data_tmp"), path.join("..data")).expect("moved");
    until(&mut states, |state| has("a/d")(state) && !has("a/c")(state)).await;
    // A folder that is gone takes nothing with it, and one that comes back is watched again.
    fs::rename(&path, outer.path().join("aside")).expect("moved");
    until(&mut states, |state| !state.rejected.is_empty() && has("a/d")(state)).await;
    fs::create_dir(&path).expect("made");
    fs::write(path.join("e.yaml"), cache("e", "/e")).expect("written");
    until(&mut states, |state| state.rejected.is_empty() && has("a/e")(state) && !has("a/d")(state)).await;
    fs::remove_file(path.join("e.yaml")).expect("removed");
    until(&mut states, |state| state.caches.is_empty()).await;

    stop.cancel();
    tokio::time::timeout(LONG, running).await.expect("it stops").expect("it ends well");
}

#[test]
fn a_file_without_the_right_to_read_it_is_one_rejected_entry() {
    if nix::unistd::geteuid().is_root() {
        eprintln!("skipped: root may read every file");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.yaml");
    fs::write(&path, cache("a", "/a")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("changed");
    let found = lines(&read(folder.path()).expect("reads"));
    assert!(found.len() == 1 && found[0].starts_with("- a.yaml ?: could not be read: Permission denied"), "{found:#?}");
}
