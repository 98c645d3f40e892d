//! Time as core knows it: an argument.
//!
//! Retention needs wall time, back-off needs a clock that never steps, and neither may be mistaken for the other.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Milliseconds on a clock that never steps back, since some start of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// This much later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` until this; zero if that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Wall time: whole seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub u64);

impl WallTime {
    /// This much later.
    #[must_use]
    pub const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait.as_secs()))
    }
}

impl fmt::Display for WallTime {
    /// As `2026-12-01T10:00:00Z`. Days to a date by the rule of the Gregorian calendar, counted from 1 March so that the leap day
    /// ends the year.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAYS_PER_400_YEARS: u64 = 146_097;
        /// Days from 0000-03-01 to 1970-01-01.
        const EPOCH: u64 = 719_468;
        let (days, seconds) = (self.0 / 86_400 + EPOCH, self.0 % 86_400);
        let (era, day) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let from_march = (5 * day + 2) / 153;
        let date = day - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(out, "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Identity of one boot of the machine, as the kernel gives it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

/// The moment a pass is made in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// For what people and retention mean by time.
    pub wall: WallTime,
    /// For back-off, deadlines and rates.
    pub monotonic: Millis,
    /// Tells a reboot from a restart.
    pub boot_id: BootId,
}

/// A length of time as people write it: `90s`, `10m`, `1h30m`, `2d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Duration);

/// A text that is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a length of time; allowed: whole numbers with d, h, m or s, such as 10m or 1h30m")]
pub struct BadPeriod(pub String);

impl Period {
    /// So many seconds.
    #[must_use]
    pub const fn seconds(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }
}

impl TryFrom<String> for Period {
    type Error = BadPeriod;

    fn try_from(text: String) -> Result<Self, BadPeriod> {
        let bad = || BadPeriod(text.clone());
        let mut seconds: u64 = 0;
        let mut number: Option<u64> = None;
        for letter in text.chars() {
            if let Some(digit) = letter.to_digit(10) {
                let so_far = number.unwrap_or(0).checked_mul(10).ok_or_else(bad)?;
                number = Some(so_far.checked_add(u64::from(digit)).ok_or_else(bad)?);
                continue;
            }
            let unit = match letter {
                'd' => 86_400,
                'h' => 3_600,
                'm' => 60,
                's' => 1,
                _other => return Err(bad()),
            };
            let part = number.take().ok_or_else(bad)?.checked_mul(unit).ok_or_else(bad)?;
            seconds = seconds.checked_add(part).ok_or_else(bad)?;
        }
        if text.is_empty() || number.is_some() {
            return Err(bad());
        }
        Ok(Self::seconds(seconds))
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.0.as_secs();
        if left == 0 {
            return out.write_str("0s");
        }
        for (letter, unit) in [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)] {
            if left >= unit {
                write!(out, "{}{letter}", left / unit)?;
                left %= unit;
            }
        }
        Ok(())
    }
}

impl JsonSchema for Period {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Period".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+[dhms])+$", "description": "A length of time, such as 10m." })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_reads_as_a_date() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(WallTime(seconds).to_string(), text);
        }
    }

    #[test]
    fn periods_are_read_and_written_alike() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("10m", 600), ("1h30m", 5_400), ("2d", 172_800)] {
            let period = Period::try_from(text.to_owned()).expect(text);
            assert_eq!(period, Period::seconds(seconds));
            assert_eq!(Period::try_from(period.to_string()), Ok(period));
        }
        for bad in ["", "10", "m", "1.5h", "-1s", "1w", "99999999999999999999s"] {
            assert!(Period::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
