//! Keys of an origin become paths here, after checking, and nowhere else.
//!
//! In goes an object key or a path below a source; out comes a path that stays below its folder, or the reason it cannot.
//! Deliberately absent: any clean-up of a bad key. A key that needs mending could collide with another one.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name of one folder or file: NAME_MAX of every filesystem we stage to.
const COMPONENT_LENGTH_MAX: usize = 255;
/// Longest path below the snapshot; leaves room for the root and our own folders within PATH_MAX (4,096).
const PATH_LENGTH_MAX: usize = 2_048;

/// Why a key cannot become a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// The key as such is not allowed.
    #[error("key {key:?} cannot become a path: {why}")]
    NotAPath {
        /// The key as the origin said it.
        key: String,
        /// Which rule it breaks.
        why: &'static str,
    },
    /// The same path twice.
    #[error("key {key:?} is listed twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// One key is a file, another needs a folder of the same name.
    #[error("key {key:?} is a file, and {below:?} needs a folder of that name")]
    FileAndFolder {
        /// The key that is a file.
        key: String,
        /// A key below it.
        below: String,
    },
}

/// A checked path of a file below a snapshot: `/`-separated, relative, without `.`, `..` or empty parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders it needs, outermost first: `a/b/c` needs `a` and `a/b`.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }

    /// Its last component.
    #[must_use]
    pub fn basename(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl TryFrom<&str> for ArtifactPath {
    type Error = BadKey;

    fn try_from(key: &str) -> Result<Self, BadKey> {
        let bad = |why| Err(BadKey::NotAPath { key: key.chars().take(PATH_LENGTH_MAX).collect(), why });
        if key.is_empty() {
            return bad("it is empty");
        }
        if key.len() > PATH_LENGTH_MAX {
            return bad("it is longer than 2048 bytes");
        }
        if key.contains('\0') {
            return bad("it holds a NUL");
        }
        for part in key.split('/') {
            match part {
                "" => return bad("it starts or ends with / or holds //"),
                "." => return bad("it has a part that is ."),
                ".." => return bad("it has a part that is .."),
                long if long.len() > COMPONENT_LENGTH_MAX => return bad("it has a part longer than 255 bytes"),
                _fits => {}
            }
        }
        Ok(Self(key.to_owned()))
    }
}

impl TryFrom<String> for ArtifactPath {
    type Error = BadKey;
    fn try_from(key: String) -> Result<Self, BadKey> {
        key.as_str().try_into()
    }
}

impl From<ArtifactPath> for String {
    fn from(path: ArtifactPath) -> Self {
        path.0
    }
}

impl fmt::Display for ArtifactPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Checks that sorted, distinct paths can stand in one tree, and returns the folders they need, parents first.
///
/// # Errors
/// [`BadKey::Twice`] or [`BadKey::FileAndFolder`] with the keys.
pub fn folders_of<'a>(paths: impl Iterator<Item = &'a ArtifactPath> + Clone) -> Result<BTreeSet<String>, BadKey> {
    let mut folders: BTreeSet<String> = BTreeSet::new();
    let mut last: Option<&ArtifactPath> = None;
    for path in paths.clone() {
        if last == Some(path) {
            return Err(BadKey::Twice { key: path.to_string() });
        }
        last = Some(path);
        for folder in path.folders() {
            if !folders.contains(folder) {
                folders.insert(folder.to_owned());
            }
        }
    }
    let clash = paths.clone().find(|path| folders.contains(path.as_str()));
    match clash {
        None => Ok(folders),
        Some(file) => {
            let inside = format!("{file}/");
            let below = paths.into_iter().find(|path| path.as_str().starts_with(&inside));
            Err(BadKey::FileAndFolder {
                key: file.to_string(),
                below: below.map(ToString::to_string).unwrap_or(inside),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c021_keys_that_escape_or_collide_are_refused_with_the_key_named() {
        let long = "x".repeat(256);
        let deep = "a/".repeat(1_024) + "b";
        for key in ["", "../../etc/x", "/abs", "a//b", "a/./b", "a/..", "a/", "nul\0", long.as_str(), deep.as_str()] {
            let error = ArtifactPath::try_from(key).expect_err(key);
            assert!(matches!(error, BadKey::NotAPath { key: ref named, .. } if key.starts_with(named.as_str())));
        }
        for key in ["a", "a/b", "..a", "a..b/c", ".hidden", &"x".repeat(255)] {
            assert!(ArtifactPath::try_from(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn a_file_and_a_folder_of_one_name_clash_even_when_others_sort_between() {
        let paths = ["model", "model-b", "model/config.json"].map(|key| ArtifactPath::try_from(key).expect("checked"));
        let error = folders_of(paths.iter()).expect_err("clash");
        assert_eq!(error, BadKey::FileAndFolder { key: "model".to_owned(), below: "model/config.json".to_owned() });
    }
}
