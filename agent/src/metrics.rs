//! The registry behind `/metrics`, made from core's table and from nothing else.
//!
//! In go counts, durations and the samples of each pass; out comes the text Prometheus reads. Deliberately absent: names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use stokehold_core::metric::{BUILD_INFO, DURATION_BUCKETS, METRICS, Metric, MetricKind, Sample};

/// All metrics of this process. Clones share it.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Registered>);

#[derive(Debug)]
struct Registered {
    registry: Registry,
    gauges: BTreeMap<&'static str, GaugeVec>,
    counters: BTreeMap<&'static str, IntCounterVec>,
    histograms: BTreeMap<&'static str, HistogramVec>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All of the table, at zero.
    #[must_use]
    pub fn new() -> Self {
        const FITS: &str = "the table's names are checked by its tests";
        let registry = Registry::new();
        let (mut gauges, mut counters, mut histograms) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for metric in METRICS {
            let options = Opts::new(metric.name, metric.help);
            match metric.kind {
                MetricKind::Gauge => {
                    let gauge = GaugeVec::new(options, metric.labels).expect(FITS);
                    registry.register(Box::new(gauge.clone())).expect(FITS);
                    gauges.insert(metric.name, gauge);
                }
                MetricKind::Counter => {
                    let counter = IntCounterVec::new(options, metric.labels).expect(FITS);
                    registry.register(Box::new(counter.clone())).expect(FITS);
                    if metric.labels.is_empty() {
                        counter.with_label_values::<&str>(&[]).inc_by(0);
                    }
                    counters.insert(metric.name, counter);
                }
                MetricKind::Histogram => {
                    let options = HistogramOpts::from(options).buckets(DURATION_BUCKETS.to_vec());
                    let histogram = HistogramVec::new(options, metric.labels).expect(FITS);
                    registry.register(Box::new(histogram.clone())).expect(FITS);
                    histograms.insert(metric.name, histogram);
                }
            }
        }
        let metrics = Self(Arc::new(Registered { registry, gauges, counters, histograms }));
        metrics.set(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        metrics
    }

    /// Counts.
    pub fn count(&self, metric: &Metric, labels: &[&str], by: u64) {
        if let Some(counter) = self.0.counters.get(metric.name) {
            counter.with_label_values(labels).inc_by(by);
        }
    }

    /// Notes a duration.
    pub fn observe(&self, metric: &Metric, labels: &[&str], took: Duration) {
        if let Some(histogram) = self.0.histograms.get(metric.name) {
            histogram.with_label_values(labels).observe(took.as_secs_f64());
        }
    }

    /// Sets one gauge.
    pub fn set(&self, metric: &Metric, labels: &[&str], value: f64) {
        if let Some(gauge) = self.0.gauges.get(metric.name) {
            gauge.with_label_values(labels).set(value);
        }
    }

    /// Takes over the samples of a pass; what a metric among `owned` said before and does not say now is gone.
    pub fn replace(&self, owned: &[&Metric], samples: &[Sample]) {
        for metric in owned {
            if let Some(gauge) = self.0.gauges.get(metric.name) {
                gauge.reset();
            }
        }
        for sample in samples {
            let labels: Vec<&str> = sample.labels.iter().map(String::as_str).collect();
            self.set(sample.metric, &labels, sample.value);
        }
    }

    /// What Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        let encoded = TextEncoder::new().encode(&self.0.registry.gather(), &mut text);
        encoded.expect("writing to memory does not fail, and every family has its type");
        String::from_utf8_lossy(&text).into_owned()
    }
}
