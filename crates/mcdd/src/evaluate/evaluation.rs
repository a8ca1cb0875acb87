//! The result of an evaluation.

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::metrics::{Detection, DetectionIntervals, Interval, Positive};
use crate::model::Threshold;

/// The settings of the 95% bootstrap intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// The number of replicates; 0 for no intervals.
    pub replicates: usize,
    /// The seed of the replicates.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Bootstrap { replicates: 1000, seed: 0 }
    }
}

impl Bootstrap {
    /// No intervals.
    pub fn none() -> Bootstrap {
        Bootstrap { replicates: 0, seed: 0 }
    }
}

/// The accuracy with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Between 0 and 1.
    pub value: f64,
    /// The 95% Wilson interval; `None` without replicates.
    pub interval95: Option<Interval>,
}

/// How well a model does on one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassEvaluation {
    /// The name of the class.
    pub name: String,
    /// The number of rows with this label.
    pub rows: usize,
    /// The fraction of these rows that are predicted as this class; `None` without rows, or if the model does not classify.
    pub recall: Option<f64>,
    /// The fraction of the rows predicted as this class that have this label; `None` without such rows.
    pub precision: Option<f64>,
    /// The fraction of the rows with this label that are kept as known; `None` without rows.
    pub kept: Option<f64>,
}

/// How well a set of out-of-distribution rows is detected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OodEvaluation {
    /// The name of the set.
    pub name: String,
    /// The number of rows.
    pub rows: usize,
    /// The fraction rejected as unknown.
    pub rejected: f64,
    /// The fraction of ID-OOD pairs with equal confidences.
    pub tie_fraction: f64,
    /// The detection metrics.
    #[serde(skip)]
    pub detection: Detection,
    /// Their intervals; `None` without replicates.
    #[serde(skip)]
    pub intervals: Option<DetectionIntervals>,
    #[serde(serialize_with = "by_key")]
    pub(super) metrics: Vec<Metric>,
}

impl OodEvaluation {
    /// The detection metrics with their intervals, in the order of [`Detection::rows`].
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }
}

/// A detection metric with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// The name for programs, such as `auroc`.
    #[serde(skip)]
    pub key: &'static str,
    /// The name for people, such as `AUROC`.
    pub name: &'static str,
    /// The positive class.
    pub positive: Positive,
    /// Between 0 and 1.
    pub value: f64,
    /// The 95% bootstrap interval; `None` without replicates.
    pub interval95: Option<Interval>,
}

fn by_key<S: Serializer>(metrics: &[Metric], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(metrics.len()))?;
    for metric in metrics {
        map.serialize_entry(metric.key, metric)?;
    }
    map.end()
}

/// How well a model does on in-distribution rows, overall and by class, and on sets of out-of-distribution rows.
///
/// It serializes to the JSON of the command's `evaluate`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The number of in-distribution rows.
    pub rows: usize,
    /// The accuracy; `None` without labels, or if the model does not classify.
    pub accuracy: Option<Estimate>,
    /// The fraction of in-distribution rows kept as known.
    pub kept: f64,
    /// The accuracy among the rows kept as known; `None` without such rows, and as for `accuracy`.
    pub accuracy_among_kept: Option<f64>,
    /// The threshold between known and unknown.
    pub threshold: Threshold,
    /// Each class of the model, in its order; empty without labels.
    pub classes: Vec<ClassEvaluation>,
    /// Each set of out-of-distribution rows.
    pub ood: Vec<OodEvaluation>,
    /// How the intervals were made.
    pub bootstrap: Bootstrap,
}
