//! The report on one model: kept, rejected and correctly classified rows at every threshold, and notable rows.
//!
//! [`Gather`] takes rows as they are scored and stores a few numbers of each. [`Gather::finish`] adds an
//! [`Evaluation`](crate::evaluate::Evaluation) of the same rows and computes the [`Report`], plain numbers and texts. [`Report::page`] writes it as one self-contained HTML page, and [`Report::figures`] draws its plots.

mod best;
mod curves;
mod figures;
mod finish;
mod gather;
mod page;
mod picture;
mod plane;
mod positions;
mod sources;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use gather::{Gather, Place, Side};
pub use sources::ReportData;

use crate::metrics::Interval;
use crate::report::figure::View;

/// Where the numbers come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// The title.
    pub title: String,
    /// The known rows, for example a file name.
    pub data: String,
    /// Whether the known rows are the calibration rows of the model.
    pub on_calibration_rows: bool,
    /// The command that was run.
    pub command: String,
    /// Notices about the rows.
    pub notices: Vec<String>,
}

/// A threshold and its effect. Texts are percentages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Position {
    /// The value of the setting `tpr`.
    pub tpr: String,
    /// A row is known if its confidence is at least this.
    pub threshold: f64,
    /// The fraction of new known rows that it is expected to keep, from the calibration rows.
    pub set_for: String,
    /// Whether there were too few calibration rows for `tpr`.
    pub short: bool,
    /// The fraction of known rows that are kept.
    pub kept: String,
    /// The fraction of kept known rows that are classified correctly.
    pub right: Option<String>,
    /// The fraction of each unknown set that is rejected.
    pub rejected: Vec<String>,
    /// A sentence with all of these.
    pub sentence: String,
    /// The numbers of kept known rows, of correctly classified ones among them, and of kept rows of each unknown set.
    pub counts: (usize, usize, Vec<usize>),
}

/// A fraction as a percentage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Percentage {
    /// With two decimals.
    pub value: String,
    /// The ends of the 95% interval; none without replicates.
    pub interval95: Option<[String; 2]>,
}

impl Percentage {
    fn new(value: f64, interval95: Option<Interval>) -> Percentage {
        Percentage { value: percent(value), interval95: interval95.map(|i| [i.low, i.high].map(percent)) }
    }
}

/// A metric of an unknown set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name, with the side that is positive.
    pub name: String,
    /// Its value.
    pub percent: Percentage,
    /// What it means.
    pub meaning: &'static str,
}

/// Unknown rows of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The number of rows.
    pub rows: usize,
    /// How well it is detected.
    pub metrics: Vec<Metric>,
    /// ROC: fractions of unknown and of known rows that are kept.
    pub roc: Vec<[f64; 2]>,
    /// Recall and precision with known rows as positives.
    pub pr_known: Vec<[f64; 2]>,
    /// Recall and precision with unknown rows as positives.
    pub pr_unknown: Vec<[f64; 2]>,
}

/// Confidences in bins of equal width; the first and the last bin include all rows beyond.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// The lower end of the first bin.
    pub low: f64,
    /// The upper end of the last bin.
    pub high: f64,
    /// Known rows.
    pub known: Vec<usize>,
    /// Rows of each unknown set.
    pub sets: Vec<Vec<usize>>,
    /// The numbers of rows below and above the range.
    pub outside: [usize; 2],
}

/// The reliability diagram: accuracy by predicted probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reliability {
    /// Mean probability of the predicted class, accuracy, and number of rows; for ten bins of the probability.
    pub bins: Vec<(f64, f64, usize)>,
    /// The expected calibration error: the mean difference of the two, weighted by rows.
    pub error: f64,
}

/// A class of the model, or all classes beyond the first ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Known rows with this label.
    pub rows: usize,
    /// Those of them that are classified correctly, kept or not.
    pub right: usize,
    /// The fraction of them that are classified correctly, as a percentage.
    pub recall: Option<String>,
    /// The fraction of the rows predicted as this class that have this label, as a percentage.
    pub precision: Option<String>,
    /// Its standard deviation, if the method has one.
    pub sigma: Option<f64>,
    /// The distance from its mean within which 95% of its drawn rows are, in the latent space of the first network.
    pub radius: Option<f64>,
    /// The position of its mean in the plane.
    pub mean: Option<[f64; 2]>,
    /// The same distance in the plane.
    pub circle: Option<f64>,
}

/// The training history of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trained {
    /// Loss on training rows, per epoch.
    pub loss: Vec<f64>,
    /// Loss on validation rows.
    pub validation_loss: Vec<f64>,
    /// Accuracy on validation rows; empty if the method does not classify.
    pub accuracy: Vec<f64>,
    /// The epoch of each value, from 1.
    pub epochs: Vec<usize>,
}

/// A row that is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its position in the plane.
    pub at: [f64; 2],
    /// 0 for the known rows, else the number of its unknown set from 1.
    pub set: usize,
    /// Its number in its file, from 1.
    pub row: u64,
    /// The line of its file, if that is known and another number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The file name of an image.
    pub file: Option<String>,
    /// The class of its color: that of its label, or the predicted one if it has no label.
    pub class: Option<usize>,
    /// Its label.
    pub label: Option<String>,
    /// The predicted class.
    pub predicted: Option<String>,
    /// The probability of the predicted class.
    pub probability: Option<f64>,
    /// Its confidence.
    pub confidence: f64,
    /// The p-value: the fraction of known rows whose confidence is as low or lower.
    pub p_value: f64,
    /// The first position at which it is known; the number of positions if there is none.
    pub level: usize,
    /// Its pixels, packed.
    pub picture: Option<String>,
}

/// A row with an explanation of its confidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// The index of its point.
    pub point: usize,
    /// The class that it is compared with; none for all training rows.
    pub class: Option<String>,
    /// Column, value, reference value, deviations, and the gain in confidence at the reference value.
    pub columns: Vec<(String, String, String, Option<f64>, f64)>,
    /// For an image the map of where it is strange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<Map>,
}

/// Where an image is strange.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Map {
    /// The side of a cell, as a part of the image's width.
    pub cell: f64,
    /// The number of cells in a row.
    pub columns: usize,
    /// For each cell, row by row, its gain as a part of the largest, from 0 to 1.
    pub shares: Vec<f64>,
    /// The largest gain in confidence.
    pub most: f64,
}

/// Notable rows of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The kind.
    pub title: String,
    /// A description.
    pub note: String,
    /// The rows.
    pub rows: Vec<Worth>,
}

/// The plane that rows are drawn in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plane {
    /// The names of its axes.
    pub axes: [String; 2],
    /// A description of what is drawn.
    pub caption: String,
    /// The section that is shown first.
    #[serde(serialize_with = "view")]
    pub view: View,
}

fn view<S: serde::Serializer>(view: &View, to: S) -> Result<S::Ok, S::Error> {
    [view.corner[0], view.corner[1], view.side].serialize(to)
}

/// The contents of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Where the numbers come from.
    pub about: About,
    /// Known rows.
    pub rows: usize,
    /// Accuracy on them, kept or not; none without labels or classes.
    pub accuracy: Option<Percentage>,
    /// Bootstrap replicates of the intervals; 0 if there are none.
    pub replicates: usize,
    /// Whether the model classifies.
    pub classifies: bool,
    /// The classes of the model.
    pub classes: Vec<Class>,
    /// The unknown sets.
    pub sets: Vec<Set>,
    /// Thresholds, the strictest first.
    pub positions: Vec<Position>,
    /// The position of the requested threshold.
    pub used: usize,
    /// The number of calibration rows.
    pub calibration_rows: usize,
    /// The true kind of a row (a class, then the sets, then rows without a label), the predicted class, the first position at
    /// which it is kept, and the number of such rows.
    pub counts: Vec<[usize; 4]>,
    /// Confidences.
    pub histogram: Histogram,
    /// Fractions of known rows that are kept, and of those that are misclassified.
    pub risk: Vec<[f64; 2]>,
    /// The predicted probabilities against the accuracy.
    pub reliability: Option<Reliability>,
    /// The networks.
    pub training: Vec<Trained>,
    /// The plane of the points.
    pub plane: Plane,
    /// Rows in it.
    pub points: Vec<Point>,
    /// Width, height and channels of the rows' images; none if rows are not images.
    pub picture: Option<[usize; 3]>,
    /// Whether the model was trained on images.
    pub images: bool,
    /// Notable rows.
    pub groups: Vec<Group>,
    /// Findings about the model.
    pub findings: Vec<String>,
    /// The training settings by name.
    pub settings: Vec<(String, String)>,
}

/// A fraction as a percentage.
fn percent(fraction: f64) -> String {
    format!("{:.2}", 100.0 * fraction)
}
