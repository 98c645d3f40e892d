//! Checks of single values of the configuration.
//!
//! In goes a key with what was said for it, out comes the value or an error with what is allowed. Deliberately absent: files.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use stokehold_core::api::ObjectName;

use super::{ConfigError, bad};

/// In which form the agent logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// A person must look.
    Error,
    /// Also: it went on, but it was not expected.
    Warn,
    /// Also: a state changed.
    Info,
    /// Also: why.
    Debug,
    /// Also: each step.
    Trace,
}

impl LogFormat {
    pub(super) const ALL: &'static [Self] = &[Self::Text, Self::Json];

    /// As configuration spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl LogLevel {
    pub(super) const ALL: &'static [Self] = &[Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// As configuration and log filters spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy + fmt::Display>(
    key: &'static str,
    said: Option<&str>,
    all: &[T],
    default: T,
) -> Result<T, ConfigError> {
    let Some(said) = said else { return Ok(default) };
    all.iter().copied().find(|one| one.to_string() == said).ok_or_else(|| {
        let words: Vec<String> = all.iter().map(ToString::to_string).collect();
        bad(key, said, &words.join(", "))
    })
}

/// A whole number between the first and the last of `range`; the middle one where nothing is said.
pub(super) fn in_range<T: TryFrom<u64>>(
    key: &'static str,
    said: Option<i64>,
    (min, default, max): (u64, u64, u64),
) -> Result<T, ConfigError> {
    let refused = || bad(key, &said.unwrap_or_default().to_string(), &format!("{min} to {max}"));
    let number = match said {
        None => default,
        Some(said) => u64::try_from(said).ok().filter(|said| (min..=max).contains(said)).ok_or_else(refused)?,
    };
    T::try_from(number).map_err(|_too_large| refused())
}

/// An absolute path without `..`.
pub(super) fn absolute(key: &'static str, path: &Path) -> Result<PathBuf, ConfigError> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if !path.is_absolute() || climbs {
        return Err(bad(key, &path.display().to_string(), "an absolute path without .."));
    }
    Ok(path.components().collect())
}

/// The name of a node, in lower case as the kubelet has it.
pub(super) fn host_name(key: &'static str, name: &str) -> Result<String, ConfigError> {
    match ObjectName::try_from(name.to_ascii_lowercase()) {
        Ok(name) => Ok(name.into()),
        Err(_bad) => Err(bad(
            key,
            name,
            "at most 253 of a-z, 0-9, - and ., each part starting and ending with a letter or digit",
        )),
    }
}
