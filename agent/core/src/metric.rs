//! Every metric there is: one table, and the samples that follow from a report.
//!
//! Deliberately absent: a registry. The agent makes one from this table and may add nothing to it.

use crate::observed::Observed;
use crate::plan::Plan;
use crate::report::Report;
use crate::seen::Seen;

/// What a metric promises to those who read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Stays.
    Stable,
    /// May change with a note in the changelog.
    Experimental,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Goes up and down; set from the report of each pass.
    Gauge,
    /// Only goes up while the process lives.
    Counter,
    /// Durations, seconds.
    Histogram,
}

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// What it promises.
    pub stability: Stability,
}

/// Upper bounds of duration histograms, seconds: from a second to two hours, since a large model takes forty minutes.
pub const DURATION_BUCKETS: &[f64] =
    &[1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 3_600.0, 7_200.0];

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, [$($label:literal),*], $stability:ident, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
                stability: Stability::$stability,
            };
        )*

        /// All metrics, in the order of the documentation.
        pub const METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO = "stokehold_build_info", Gauge, ["version"], Stable,
        "Always 1; the label says which release runs.";
    CAPACITY = "stokehold_capacity_bytes", Gauge, [], Stable,
        "Bytes of the filesystem that holds the cache root.";
    AVAILABLE = "stokehold_available_bytes", Gauge, [], Stable,
        "Bytes of it that the agent may still write, head-room not taken off.";
    HEADROOM = "stokehold_headroom_bytes", Gauge, [], Stable,
        "Bytes that are left free for others.";
    PROMISED = "stokehold_promised_bytes", Gauge, ["namespace", "name"], Stable,
        "Bytes promised to a cache.";
    USED = "stokehold_used_bytes", Gauge, ["namespace", "name"], Stable,
        "Bytes of blocks that a cache takes on the disk.";
    READY = "stokehold_ready", Gauge, ["namespace", "name", "kind"], Stable,
        "1 while what a cache asks for of this kind is here and verified, else 0.";
    HELD = "stokehold_holds", Gauge, ["reason"], Stable,
        "Things that are wanted and not done, by reason.";
    HOLD_SHORT = "stokehold_hold_short_bytes", Gauge, ["namespace", "name"], Experimental,
        "Bytes that are missing for a snapshot to fit.";
    JOBS = "stokehold_jobs", Gauge, ["kind"], Stable,
        "Jobs under way.";
    STAGE_DONE = "stokehold_stage_done_bytes", Gauge, ["namespace", "name"], Stable,
        "Bytes of the target that are here.";
    STAGE_TOTAL = "stokehold_stage_total_bytes", Gauge, ["namespace", "name"], Stable,
        "Bytes of the target.";
    FETCHED = "stokehold_fetched_bytes_total", Counter, ["origin"], Stable,
        "Body bytes read from origins and written.";
    REUSED = "stokehold_reused_bytes_total", Counter, [], Stable,
        "Bytes that were on the disk already when a staging went on.";
    PARTS = "stokehold_parts_total", Counter, ["outcome"], Stable,
        "Ranges fetched, by how they ended: whole, broken, throttled, stalled, final.";
    LISTINGS = "stokehold_listings_total", Counter, ["outcome"], Stable,
        "Listings of origins, by outcome: listed, failed.";
    STAGES = "stokehold_stage_seconds", Histogram, ["outcome"], Stable,
        "How long stagings took, by outcome: published, failed, cancelled.";
    EVICTIONS = "stokehold_evictions_total", Counter, ["outcome"], Stable,
        "Snapshots given up, by outcome: evicted, in_use, failed.";
    CORRUPT = "stokehold_corrupt_total", Counter, [], Stable,
        "Files that were not what the origin vouches for or what was published.";
    PASSES = "stokehold_passes_total", Counter, [], Stable,
        "Passes of the loop.";
    PASS_SECONDS = "stokehold_pass_seconds", Gauge, [], Experimental,
        "How long the last pass took.";
    CONFIG_UNKNOWN = "stokehold_config_unknown_keys", Gauge, [], Stable,
        "Keys of the configuration that this release does not know.";
}

/// One value of a gauge.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Which metric.
    pub metric: &'static Metric,
    /// Values of its labels, in order.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has only floats; 2^53 bytes is 8 PiB")]
fn sample(metric: &'static Metric, labels: &[&str], value: u64) -> Sample {
    debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
    Sample { metric, labels: labels.iter().map(ToString::to_string).collect(), value: value as f64 }
}

/// The gauges that follow from one pass.
#[must_use]
pub fn samples(observed: &Observed, plan: &Plan, report: &Report) -> Vec<Sample> {
    let mut samples = Vec::new();
    if let Seen::Present(root) = &observed.root {
        samples.push(sample(&CAPACITY, &[], root.room.capacity.0));
        samples.push(sample(&AVAILABLE, &[], root.room.available.0));
        samples.push(sample(&HEADROOM, &[], root.headroom.0));
        for (cache, promised) in &root.promised {
            samples.push(sample(&PROMISED, &[cache.namespace.as_str(), cache.name.as_str()], promised.0));
        }
    }
    for (cache, seen) in &observed.caches {
        if let Seen::Present(view) = seen {
            samples.push(sample(&USED, &[cache.namespace.as_str(), cache.name.as_str()], view.used.0));
        }
    }
    for (cache, verdict) in &plan.verdicts {
        let names = [cache.namespace.as_str(), cache.name.as_str()];
        let label = format!("{}{}", crate::report::WEIGHTS_LABEL_PREFIX, cache.slug());
        let is_ready = report.labels.contains_key(&label);
        samples.push(sample(&READY, &[names[0], names[1], "weights"], u64::from(is_ready)));
        samples.push(sample(&STAGE_DONE, &names, verdict.bytes_done.0));
        samples.push(sample(&STAGE_TOTAL, &names, verdict.bytes_total.0));
    }
    for (name, _) in crate::hold::REASONS {
        let count = report.holds.iter().filter(|hold| hold.reason.name() == *name).count();
        samples.push(sample(&HELD, &[name], count as u64));
    }
    for hold in &report.holds {
        if let (Some(cache), Some(short)) = (hold.subject.cache(), hold.reason.short_by()) {
            samples.push(sample(&HOLD_SHORT, &[cache.namespace.as_str(), cache.name.as_str()], short.0));
        }
    }
    for kind in ["list", "stage", "clean", "sweep"] {
        let count = observed.jobs.keys().filter(|key| key.kind() == kind).count();
        samples.push(sample(&JOBS, &[kind], count as u64));
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_distinct_in_base_units_and_say_what_counts_up() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(metric.name.starts_with("stokehold_"), "{}", metric.name);
            assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }

    #[test]
    fn c146_a_download_of_forty_minutes_has_a_bucket_of_its_own() {
        assert!(DURATION_BUCKETS.iter().any(|bound| *bound >= 2_400.0 && bound.is_finite()));
        assert!(DURATION_BUCKETS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
