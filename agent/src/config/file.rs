//! The file of configuration: its shape, and which keys it has.
//!
//! In goes YAML text, out come its values as they were written and the keys that are not known. Deliberately absent: ranges.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use stokehold_core::api::WebUrl;
use stokehold_core::quantity::Bytes;

use super::check::in_range;
use super::{AVAILABLE_PERCENT, CONNECTIONS, ConfigError, Headroom, INODES_PERCENT, PART_BYTES, S3, Transfer, bad};
use crate::yaml;

/// Most unknown keys that are told: more is another file.
const UNKNOWN_MAX: usize = 100;

/// What the file says. Sections that are missing or empty say nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct File {
    pub(super) root: Option<PathBuf>,
    pub(super) desired: Option<PathBuf>,
    pub(super) state: Option<PathBuf>,
    pub(super) listen: Option<String>,
    pub(super) socket: Option<PathBuf>,
    pub(super) node_name: Option<String>,
    pub(super) containerd: Option<PathBuf>,
    pub(super) secrets: Option<PathBuf>,
    pub(super) allow_non_local: Option<bool>,
    pub(super) immutable: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(super) headroom: HeadroomFile,
    #[serde(deserialize_with = "or_default")]
    pub(super) transfer: TransferFile,
    #[serde(deserialize_with = "or_default")]
    pub(super) jobs: JobsFile,
    #[serde(deserialize_with = "or_default")]
    pub(super) s3: S3File,
    #[serde(deserialize_with = "or_default")]
    pub(super) log: LogFile,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HeadroomFile {
    available_percent: Option<i64>,
    inodes_percent: Option<i64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TransferFile {
    connections_max: Option<i64>,
    part_size: Option<Bytes>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobsFile {
    pub(super) stages_max: Option<i64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct S3File {
    anonymous: Option<bool>,
    endpoint: Option<WebUrl>,
    region: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LogFile {
    pub(super) format: Option<String>,
    pub(super) level: Option<String>,
}

impl File {
    /// The values of the file, and its unknown keys.
    pub(super) fn parse(place: &str, text: &str) -> Result<(Self, Vec<String>), ConfigError> {
        let failed = |error: serde_saphyr::Error| {
            let place = match yaml::place(&error) {
                Some((line, column)) => format!("{place}:{line}:{column}"),
                None => place.to_owned(),
            };
            ConfigError::Parse { place, reason: yaml::reason(&error, text) }
        };
        let is_empty = text.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        });
        if is_empty {
            return Ok((Self::default(), Vec::new()));
        }
        let file = yaml::read(text).map_err(failed)?;
        let written: Value = yaml::read(text).map_err(failed)?;
        let mut unknown = Vec::new();
        if let (Value::Object(written), Value::Object(known)) = (&written, &shape()) {
            collect_unknown("", written, known, &mut unknown);
        }
        Ok((file, unknown))
    }

    pub(super) fn headroom(&self) -> Result<Headroom, ConfigError> {
        let HeadroomFile { available_percent, inodes_percent } = self.headroom;
        Ok(Headroom {
            available_percent: in_range("headroom.availablePercent", available_percent, AVAILABLE_PERCENT)?,
            inodes_percent: in_range("headroom.inodesPercent", inodes_percent, INODES_PERCENT)?,
        })
    }

    pub(super) fn transfer(&self) -> Result<Transfer, ConfigError> {
        let (min, default, max) = PART_BYTES;
        let part_size = self.transfer.part_size.unwrap_or(Bytes(default));
        if !(min..=max).contains(&part_size.0) {
            return Err(bad("transfer.partSize", &part_size.to_string(), "1Mi to 64Mi"));
        }
        Ok(Transfer {
            connections_max: in_range("transfer.connectionsMax", self.transfer.connections_max, CONNECTIONS)?,
            part_size,
        })
    }

    pub(super) fn s3(&self) -> Result<S3, ConfigError> {
        let S3File { anonymous, endpoint, region } = &self.s3;
        let letters = |region: &&String| {
            !region.is_empty() && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if let Some(region) = region.as_ref().filter(|region| !letters(region)) {
            return Err(bad("s3.region", region, "letters, digits and -, such as us-east-2"));
        }
        Ok(S3 {
            anonymous: anonymous.unwrap_or(false),
            endpoint: endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
            region: region.clone(),
        })
    }
}

/// A section whose lines are all comments says nothing.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Every key of the file, as `section.key`, sorted.
#[must_use]
pub fn known_keys() -> Vec<String> {
    let Value::Object(sections) = shape() else { return Vec::new() };
    let mut keys = Vec::new();
    for (key, value) in sections {
        match value {
            Value::Object(inner) => keys.extend(inner.keys().map(|inner| format!("{key}.{inner}"))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => keys.push(key),
        }
    }
    keys.sort();
    keys
}

/// An empty file as JSON: its sections are objects, its keys are null.
fn shape() -> Value {
    serde_json::to_value(File::default()).expect("a struct of options becomes JSON")
}

fn collect_unknown(prefix: &str, written: &Map<String, Value>, known: &Map<String, Value>, unknown: &mut Vec<String>) {
    for (key, value) in written {
        match (known.get(key), value) {
            (None, _) if unknown.len() < UNKNOWN_MAX => unknown.push(format!("{prefix}{key}")),
            (Some(Value::Object(known)), Value::Object(value)) => {
                collect_unknown(&format!("{prefix}{key}."), value, known, unknown);
            }
            (None | Some(_), _) => {}
        }
    }
}
