//! Metrics in the format of Prometheus.

use std::time::Duration;

use mcdd::model::Predictions;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::models::Served;

/// Labels of a metric.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let pairs: Vec<(&str, &str)> = self.0.iter().map(|(k, v)| (*k, v.as_str())).collect();
        pairs.as_slice().encode(encoder)
    }
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// All metrics.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    seconds: Histograms,
    rows: Family<Labels, Counter>,
    unknown: Family<Labels, Counter>,
    p_values: Histograms,
    queued: Gauge,
    panics: Counter,
    spans_dropped: Gauge,
    alarm: Family<Labels, Gauge>,
    evidence: Family<Labels, Gauge<f64, AtomicU64>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let seconds: fn() -> Histogram =
            || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0]);
        let p_values: fn() -> Histogram = || Histogram::new([0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]);
        let mut m = Metrics {
            registry: Registry::with_prefix("mcdd"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            rows: Family::default(),
            unknown: Family::default(),
            p_values: Family::new_with_constructor(p_values),
            queued: Gauge::default(),
            panics: Counter::default(),
            spans_dropped: Gauge::default(),
            alarm: Family::default(),
            evidence: Family::default(),
        };
        let r = &mut m.registry;
        r.register("requests", "Requests by path and status", m.requests.clone());
        r.register("request_seconds", "Time from the head of a request to its answer", m.seconds.clone());
        r.register("rows", "Rows predicted", m.rows.clone());
        r.register("unknown_rows", "Rows predicted as unknown", m.unknown.clone());
        r.register("p_value", "P-values of rows", m.p_values.clone());
        r.register("queued_rows", "Rows that wait for a prediction", m.queued.clone());
        r.register("panics", "Requests that failed inside the server", m.panics.clone());
        r.register("spans_dropped", "Spans that the collector did not get", m.spans_dropped.clone());
        r.register("alarm", "1 if rows are no longer like the calibration rows", m.alarm.clone());
        r.register("evidence", "Evidence that rows changed; the alarm is raised at 1/alpha", m.evidence.clone());
        m
    }
}

impl Metrics {
    pub(crate) fn answered(&self, path: &str, status: u16, time: Duration) {
        let path = ("path", path.to_owned());
        self.requests.get_or_create(&Labels(vec![path.clone(), ("status", status.to_string())])).inc();
        self.seconds.get_or_create(&Labels(vec![path])).observe(time.as_secs_f64());
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    pub(crate) fn predicted(&self, served: &Served, predictions: &Predictions) {
        let labels = Labels(vec![("model", served.name.clone())]);
        self.rows.get_or_create(&labels).inc_by(predictions.rows() as u64);
        let unknown =
            served.model.threshold().map_or(0, |t| predictions.confidence.iter().filter(|&&c| !t.known(c)).count());
        self.unknown.get_or_create(&labels).inc_by(unknown as u64);
        let p_values = self.p_values.get_or_create(&labels);
        predictions.p_value.iter().for_each(|&p| p_values.observe(p));
    }

    /// The text, with the state of the models.
    pub(crate) fn text<'a>(
        &self,
        queued: usize,
        spans_dropped: u64,
        models: impl IntoIterator<Item = &'a Served>,
    ) -> String {
        self.queued.set(queued as i64);
        self.spans_dropped.set(spans_dropped as i64);
        for served in models {
            let labels = Labels(vec![("model", served.name.clone())]);
            if let Some(monitor) = &served.watch().monitor {
                self.alarm.get_or_create(&labels).set(i64::from(monitor.alarm().is_some()));
                self.evidence.get_or_create(&labels).set(monitor.evidence());
            }
        }
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
