//! What failed, how often, and when it is tried again.
//!
//! Deliberately absent: a clock and chance. The moment and the jitter are arguments.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hold::Reason;
use crate::observed::JobKey;
use crate::time::Millis;

/// First wait after a failure.
const BACKOFF_MIN: Duration = Duration::from_secs(2);
/// Longest wait between two tries of what may mend by itself.
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Wait before trying again what only a change is likely to mend: a person may have made it where we cannot see.
const BACKOFF_AWAIT_CHANGE: Duration = Duration::from_secs(600);

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It may work the next time.
    Retry,
    /// It will not, until something else changes.
    AwaitChange,
}

/// A job that did not do what it was for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct JobFailure {
    /// Why, as the hold will say.
    pub reason: Reason,
    /// Whether trying again can help.
    pub disposition: Disposition,
}

/// Failures of one job so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// How often in a row.
    pub failures: u32,
    /// The last one.
    pub last: JobFailure,
    /// When it may be tried again.
    pub retry_at: Millis,
}

/// All that failed and has not worked since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts {
    failed: BTreeMap<JobKey, Attempt>,
}

impl Attempts {
    /// A job failed. `jitter` is drawn evenly from all of `u64` and spreads the wait over its upper half.
    pub fn failed(&mut self, key: JobKey, failure: JobFailure, now: Millis, jitter: u64) {
        let failures = self.failed.get(&key).map_or(0, |attempt| attempt.failures).saturating_add(1);
        let wait = match failure.disposition {
            Disposition::Retry => backoff(BACKOFF_MIN, BACKOFF_MAX, failures, jitter),
            Disposition::AwaitChange => BACKOFF_AWAIT_CHANGE,
        };
        self.failed.insert(key, Attempt { failures, last: failure, retry_at: now.after(wait) });
    }

    /// A job worked, or what it was for changed.
    pub fn forget(&mut self, key: &JobKey) {
        self.failed.remove(key);
    }

    /// Forgets what is about a subject that is gone.
    pub fn retain(&mut self, keep: impl Fn(&JobKey) -> bool) {
        self.failed.retain(|key, _| keep(key));
    }

    /// The failure that still forbids this job, if one does.
    #[must_use]
    pub fn barring(&self, key: &JobKey, now: Millis) -> Option<&Attempt> {
        self.failed.get(key).filter(|attempt| now < attempt.retry_at)
    }

    /// The last failure of this job, whether or not it may be tried again.
    #[must_use]
    pub fn last(&self, key: &JobKey) -> Option<&Attempt> {
        self.failed.get(key)
    }

    /// When the next job may be tried again, if that lies ahead.
    #[must_use]
    pub fn next_retry(&self, now: Millis) -> Option<Millis> {
        self.failed.values().map(|attempt| attempt.retry_at).filter(|at| *at > now).min()
    }
}

/// A wait that doubles with each failure up to `max`, spread over its upper half by `jitter`.
#[must_use]
pub fn backoff(min: Duration, max: Duration, failures: u32, jitter: u64) -> Duration {
    let doubled = min.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(max);
    let half = doubled / 2;
    let part = u64::try_from(half.as_millis()).unwrap_or(u64::MAX);
    half + Duration::from_millis(if part == 0 { 0 } else { jitter % (part + 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_stay_capped_and_keep_at_least_half() {
        for failures in 1..80 {
            for jitter in [0, 1, u64::MAX] {
                let wait = backoff(BACKOFF_MIN, BACKOFF_MAX, failures, jitter);
                assert!(wait >= BACKOFF_MIN / 2 && wait <= BACKOFF_MAX, "{failures}: {wait:?}");
            }
        }
        assert_eq!(backoff(BACKOFF_MIN, BACKOFF_MAX, 3, 0), Duration::from_secs(4));
    }
}
