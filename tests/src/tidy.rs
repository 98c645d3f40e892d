//! House rules that neither the compiler nor clippy can hold, as functions from the repository's text to findings.
//!
//! In: a [`Tree`], read from disk or made by hand. Out: a [`Finding`] for each place that breaks a rule. Each check is
//! tried on a bad sample beside it; `tests/tests/tidy.rs` runs them all on this repository.
//! Deliberately absent: what `cargo deny` holds (licences, bans, sources), and repairs: a finding says what to change.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

pub mod document;
pub mod room;
pub mod shape;
pub mod source;

/// Folders that are not ours to judge: what Cargo builds, what git keeps, what tests downloaded.
const NOT_OURS: &[&str] = &["target", ".git", ".cache"];

/// The repository as text: path from its root, `/`-separated, to content.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads all files below `root`; bytes that are not UTF-8 are replaced, since only text is judged.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// A made tree.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
                self.read_folder(&entry.path(), &format!("{prefix}{name}/"))?;
            } else if kind.is_file() {
                let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
                self.files.insert(format!("{prefix}{name}"), text);
            }
        }
        Ok(())
    }

    /// The text of one file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a file or a folder of that path is there.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }

    /// Files whose name ends so, with their text, in order of path.
    pub fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, from the root of the repository.
    pub path: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// What is wrong, and what to do instead.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Findings as lines of text, for one expectation in a test.
#[must_use]
pub fn as_text(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}
