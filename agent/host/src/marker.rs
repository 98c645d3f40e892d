//! The file `stokehold.json` at the root: that the tree is ours, and in which format.
//!
//! In goes its text, out comes a [`Marker`] or why it cannot be used. Deliberately absent: where it stands and how it is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The format that this release writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// What tells our marker from another tool's file of the same name.
const TREE: &str = "stokehold.dev/cache-tree";

/// What the marker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    /// Version of the format of the whole tree.
    pub format_version: u32,
    tree: String,
    /// Kernel project ids given out, by `namespace/name`.
    #[serde(default)]
    pub projects: BTreeMap<String, u32>,
    /// What another release of the same format wrote and this one does not know; kept when the marker is written again.
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

/// Why a marker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadMarker {
    /// Not JSON, or a field is missing.
    #[error("the marker cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// It is of something else.
    #[error("the marker is not of a Stokehold tree")]
    NotOurs,
    /// Written by a newer release.
    #[error("the tree has format {found}, this release knows up to {FORMAT_VERSION}")]
    Newer {
        /// Its format.
        found: u32,
    },
}

impl Marker {
    /// Of a new tree.
    #[must_use]
    pub fn fresh() -> Self {
        let (projects, other) = (BTreeMap::new(), BTreeMap::new());
        Self { format_version: FORMAT_VERSION, tree: TREE.to_owned(), projects, other }
    }

    /// Reads the text of a marker. The version is looked at first: a newer format may have other fields.
    ///
    /// # Errors
    /// [`BadMarker`]
    pub fn parse(text: &[u8]) -> Result<Self, BadMarker> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            format_version: u32,
            tree: String,
        }
        let head: Head = serde_json::from_slice(text).map_err(BadMarker::Unreadable)?;
        if head.tree != TREE {
            return Err(BadMarker::NotOurs);
        }
        if head.format_version > FORMAT_VERSION {
            return Err(BadMarker::Newer { found: head.format_version });
        }
        serde_json::from_slice(text).map_err(BadMarker::Unreadable)
    }

    /// The text to write.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("a map with text keys is always JSON");
        text.push(b'\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../tests/fixtures/stokehold.json");

    #[test]
    fn the_sample_of_format_1_is_read_and_kept_whole() {
        let marker = Marker::parse(SAMPLE.as_bytes()).expect("sample");
        assert_eq!(marker.format_version, 1);
        assert_eq!(marker.projects.get("inference/llama-70b"), Some(&1_000_001));
        let again = String::from_utf8(marker.text()).expect("text");
        assert_eq!(again, SAMPLE, "fields of a later release survive");
    }

    #[test]
    fn a_newer_format_is_told_apart_from_nonsense() {
        let newer = br#"{"formatVersion": 2, "tree": "stokehold.dev/cache-tree", "projects": []}"#;
        assert!(matches!(Marker::parse(newer), Err(BadMarker::Newer { found: 2 })));
        assert!(matches!(Marker::parse(b"{}"), Err(BadMarker::Unreadable(_))));
        assert!(matches!(Marker::parse(br#"{"formatVersion": 1, "tree": "other"}"#), Err(BadMarker::NotOurs)));
        assert_eq!(Marker::parse(&Marker::fresh().text()).expect("own text"), Marker::fresh());
    }
}
