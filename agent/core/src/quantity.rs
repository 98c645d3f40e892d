//! Amounts of bytes, as people write them and as the planner adds them.
//!
//! In goes a Kubernetes quantity (`200Gi`, `145G`, `1.5Ti`, `1024`), out comes a whole number of bytes. Deliberately absent:
//! arithmetic that wraps; a sum that would overflow stays at the largest value, which never fits anywhere.

use std::fmt;
use std::ops::{Add, AddAssign};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Binary and decimal suffixes of a Kubernetes quantity, longest first so that `Ki` is not read as `K`.
const SUFFIXES: &[(&str, u64)] = &[
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// A text that is not an amount of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an amount of bytes; allowed: a number with Ki, Mi, Gi, Ti, k, M, G, T or no suffix, such as 200Gi"
)]
pub struct BadQuantity(pub String);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `self - other`, or zero where `other` is larger.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Rounded up to whole blocks of `block` bytes.
    #[must_use]
    pub const fn rounded_up_to(self, block: u64) -> Self {
        Self(self.0.div_ceil(block).saturating_mul(block))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= *size {
                let tenths = u128::from(self.0) * 10 / u128::from(*size);
                return write!(out, "{}.{} {unit}", tenths / 10, tenths % 10);
            }
        }
        write!(out, "{} B", self.0)
    }
}

impl std::str::FromStr for Bytes {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let bad = || BadQuantity(text.to_owned());
        let (number, unit) = SUFFIXES
            .iter()
            .find_map(|(suffix, size)| text.strip_suffix(suffix).map(|number| (number, *size)))
            .unwrap_or((text, 1));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || number.ends_with('.') || fraction.len() > 9 {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_overflow| bad())?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_long| bad())?);
        let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().map_err(|_overflow| bad())? };
        // A fraction of a byte is rounded up, as Kubernetes does.
        let part = (part * u128::from(unit)).div_ceil(scale);
        let total = u128::from(whole) * u128::from(unit) + part;
        u64::try_from(total).map(Self).map_err(|_overflow| bad())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an amount of bytes such as 200Gi")
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Bytes, E> {
                Ok(Bytes(number))
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Bytes, E> {
                u64::try_from(number).map(Bytes).map_err(|_negative| E::custom(BadQuantity(number.to_string())))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true, "description": "An amount of bytes, such as 200Gi." })
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    fn check(text: &str, want: Option<u64>) {
        assert_eq!(text.parse::<Bytes>().ok(), want.map(Bytes), "{text}");
    }

    #[test]
    fn kubernetes_quantities_are_read_as_kubernetes_reads_them() {
        check("200Gi", Some(200 << 30));
        check("145G", Some(145_000_000_000));
        check("1.5Ki", Some(1536));
        check("0.1k", Some(100));
        check("0", Some(0));
        check("7", Some(7));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "Gi", "-1", "1 Gi", "1Gib", "1..5k", "1.", ".5k", "1e3", "99999999999Ei", "0x10"] {
            check(text, None);
        }
    }

    #[test]
    fn a_human_sees_one_decimal() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(200 << 30).to_string(), "200.0 GiB");
    }
}
