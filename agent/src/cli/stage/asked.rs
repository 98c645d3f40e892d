//! What a person names as source and target of a one-off stage, checked.

use std::path::{Path, PathBuf};

use stokehold_core::quantity::Bytes;
use stokehold_core::source::S3Source;

/// Schemes that are known and not read by this release.
const NOT_IN_THIS_RELEASE: &[&str] = &["hf", "oci", "https", "http", "fsx"];
/// What is read.
const ALLOWED: &str = "allowed: s3://BUCKET/PREFIX or the path of a folder";

/// A source as it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// A prefix of a bucket.
    S3(S3Source),
    /// A folder of this machine.
    Folder(PathBuf),
}

/// Reads the name of a source.
pub(super) fn source(text: &str) -> Result<Asked, String> {
    match text.split_once("://") {
        Some(("s3", rest)) => {
            let (bucket, prefix) = bucket_and_prefix(rest);
            S3Source::new(bucket, prefix).map(Asked::S3).map_err(|bad| format!("{bad}; {ALLOWED}"))
        }
        Some((scheme, _)) if NOT_IN_THIS_RELEASE.contains(&scheme) => {
            Err(format!("{scheme}:// sources are not in this release; {ALLOWED}"))
        }
        Some((scheme, _)) => Err(format!("{scheme}:// is not a kind of source; {ALLOWED}")),
        None if text.is_empty() => Err(format!("it is empty; {ALLOWED}")),
        None => Ok(Asked::Folder(PathBuf::from(text))),
    }
}

/// The ARN of an access point has one slash of its own.
fn bucket_and_prefix(rest: &str) -> (&str, &str) {
    let own = if rest.starts_with("arn:") { rest.find('/').map_or(0, |at| at + 1) } else { 0 };
    match rest[own..].find('/') {
        Some(at) => (&rest[..own + at], &rest[own + at + 1..]),
        None => (rest, ""),
    }
}

/// Where a folder is to appear: its parent and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The folder it appears in.
    pub parent: PathBuf,
    /// Its name there.
    pub name: String,
}

/// Longest name: the hidden sibling is eleven bytes longer, and names have 255.
const NAME_BYTES_MAX: usize = 240;

/// Reads the path of a target.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let path = Path::new(text);
    let Some(name) = path.file_name() else {
        return Err("it has no name at its end; allowed: the path of a folder that does not exist yet".to_owned());
    };
    let name = name.to_str().ok_or("its name is not UTF-8")?.to_owned();
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("its name is longer than {NAME_BYTES_MAX} bytes"));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    };
    Ok(Target { parent, name })
}

/// Reads the length of a part.
pub(super) fn part_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|bad: stokehold_core::quantity::BadQuantity| bad.to_string())?;
    let (min, max) = (1 << 20, 64 << 20);
    if (min..=max).contains(&size.0) { Ok(size) } else { Err("allowed: 1Mi to 64Mi".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_bucket_with_a_prefix_or_a_folder() {
        let s3 = |bucket, prefix| Ok(Asked::S3(S3Source::new(bucket, prefix).expect("checked")));
        assert_eq!(source("s3://models/llama"), s3("models", "llama/"));
        assert_eq!(source("s3://models/a/b/"), s3("models", "a/b/"));
        assert_eq!(source("s3://models"), s3("models", ""));
        let arn = "arn:aws:s3:us-east-2:123456789012:accesspoint/models";
        assert_eq!(source(&format!("s3://{arn}/llama")), s3(arn, "llama/"));
        assert_eq!(source(&format!("s3://{arn}")), s3(arn, ""));
        assert_eq!(source("./here"), Ok(Asked::Folder("./here".into())));
    }

    #[test]
    fn what_is_not_in_this_release_is_said_so() {
        for (text, want) in [
            ("hf://meta/llama@main", "hf:// sources are not in this release; allowed: s3://BUCKET/PREFIX or the path"),
            ("oci://ghcr.io/x", "oci:// sources are not in this release"),
            ("https://x/y", "https:// sources are not in this release"),
            ("gs://x/y", "gs:// is not a kind of source"),
            ("", "it is empty"),
            ("s3://a", "bucket: \"a\" is not a bucket name or access point ARN; allowed"),
        ] {
            let said = source(text).expect_err(text);
            assert!(said.starts_with(want), "{said}");
        }
    }

    #[test]
    fn a_target_has_a_name_in_a_folder() {
        let named = |parent: &str, name: &str| Ok(Target { parent: parent.into(), name: name.to_owned() });
        assert_eq!(target("/models/llama/"), named("/models", "llama"));
        assert_eq!(target("llama"), named(".", "llama"));
        assert_eq!(target("../llama"), named("..", "llama"));
        for bad in ["/", ".", "..", "a/..", &"x".repeat(241)] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_has_one_to_sixty_four_mebibytes() {
        assert_eq!(part_size("8Mi"), Ok(Bytes(8 << 20)));
        for bad in ["1Ki", "65Mi", "8MB"] {
            assert!(part_size(bad).is_err(), "{bad}");
        }
    }
}
