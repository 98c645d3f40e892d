//! Names from outside, checked once: Kubernetes namespaces and names, and the label slug made of them.
//!
//! Deliberately absent: any way to build one of these without the check.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Longest DNS label (RFC 1123) and longest name part of a Kubernetes label key.
pub const LABEL_LENGTH_MAX: usize = 63;

/// A text that is not a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a DNS label; allowed: 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit")]
pub struct BadName(pub String);

fn checked(text: &str) -> Result<String, BadName> {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let fits = !bytes.is_empty()
        && bytes.len() <= LABEL_LENGTH_MAX
        && bytes.iter().all(|&byte| alphanumeric(byte) || byte == b'-')
        && bytes.first().is_some_and(|&byte| alphanumeric(byte))
        && bytes.last().is_some_and(|&byte| alphanumeric(byte));
    if fits { Ok(text.to_owned()) } else { Err(BadName(text.to_owned())) }
}

macro_rules! dns_label {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<&str> for $name {
            type Error = BadName;
            fn try_from(text: &str) -> Result<Self, BadName> {
                checked(text).map(Self)
            }
        }
        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                checked(&text).map(Self)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

dns_label!(
    /// A Kubernetes namespace.
    KubeNamespace
);
dns_label!(
    /// The name of one deployment's cache in its namespace.
    CacheName
);

/// Which cache: namespace and name. Written `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheId {
    /// The namespace of the inference deployment.
    pub namespace: KubeNamespace,
    /// The name of its cache.
    pub name: CacheName,
}

impl CacheId {
    /// Checks both parts.
    ///
    /// # Errors
    /// [`BadName`] with the part that is not a DNS label.
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        Ok(Self { namespace: namespace.try_into()?, name: name.try_into()? })
    }

    /// The name part of this cache's label keys: `namespace.name`, cut and hashed where that is too long for a label key.
    ///
    /// Neither part may hold a dot, so no two caches share a slug; a cut one holds `_`, which no uncut one can.
    #[must_use]
    pub fn slug(&self) -> String {
        /// Hex digits of the hash that stands for what was cut: 64 bits.
        const HASH_DIGITS: usize = 16;
        let whole = format!("{}.{}", self.namespace, self.name);
        if whole.len() <= LABEL_LENGTH_MAX {
            return whole;
        }
        let hash = hex::encode(Sha256::digest(whole.as_bytes()));
        let kept = whole[..LABEL_LENGTH_MAX - HASH_DIGITS - 1].trim_end_matches(['-', '.']);
        format!("{kept}_{}", &hash[..HASH_DIGITS])
    }
}

impl fmt::Display for CacheId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for CacheId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CacheId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let (namespace, name) =
            text.split_once('/').ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not namespace/name")))?;
        Self::new(namespace, name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dns_labels_are_names() {
        for good in ["a", "llama-70b", "0", &"x".repeat(63)] {
            assert!(CacheName::try_from(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "..", "a_b", &"x".repeat(64)] {
            assert!(CacheName::try_from(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_slugs_are_cut_fit_a_label_key_and_stay_distinct() {
        let one = CacheId::new(&"n".repeat(40), &format!("{}a", "m".repeat(40))).expect("checked");
        let two = CacheId::new(&"n".repeat(40), &format!("{}b", "m".repeat(40))).expect("checked");
        assert!(one.slug().len() <= LABEL_LENGTH_MAX && two.slug().len() <= LABEL_LENGTH_MAX);
        assert_ne!(one.slug(), two.slug());
        assert_eq!(CacheId::new("inference", "llama-70b").expect("checked").slug(), "inference.llama-70b");
    }
}
