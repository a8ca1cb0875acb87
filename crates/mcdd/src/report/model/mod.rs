//! The report on one model: what it keeps, rejects and gets right, at every threshold, and the rows worth looking at.
//!
//! [`Gather`] takes rows as they are scored and keeps little of them; [`Gather::finish`] makes the [`Report`], plain numbers
//! and texts; [`Report::page`] writes it as one page that stands alone, and [`Report::figures`] draws its plots.

mod best;
mod curves;
mod figures;
mod finish;
mod gather;
mod page;
mod picture;
mod plane;
mod positions;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use gather::{Gather, Place, Side};

use crate::report::figure::View;

/// What is told about where the numbers come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// Above all.
    pub title: String,
    /// The known rows: a file, say.
    pub data: String,
    /// Whether the known rows are those that the model was calibrated on.
    pub held_out: bool,
    /// The command that made it.
    pub command: String,
    /// What was noticed while the rows were read.
    pub notices: Vec<String>,
}

/// A threshold that can be chosen, and what it does. Texts are percentages as `mcdd evaluate` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Position {
    /// What to pass as `--tpr`.
    pub tpr: String,
    /// A row with this confidence or more is known.
    pub threshold: f64,
    /// The share of known rows that the held-out rows vouch for.
    pub set_for: String,
    /// Whether the held-out rows were too few for what was asked.
    pub short: bool,
    /// The share of known rows that are kept.
    pub kept: String,
    /// The share of kept known rows that are put in their class.
    pub right: Option<String>,
    /// The share of each unknown set that is rejected.
    pub rejected: Vec<String>,
    /// All of it in one sentence.
    pub sentence: String,
    /// How many known rows are kept, how many of them are right, and how many rows of each unknown set are kept.
    pub counts: (usize, usize, Vec<usize>),
}

/// Unknown rows of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: usize,
    /// Metrics by name, as percentages.
    pub metrics: Vec<(String, String)>,
    /// ROC: shares of unknown and of known rows that are kept.
    pub roc: Vec<[f64; 2]>,
    /// Recall and precision where known rows are looked for.
    pub pr_known: Vec<[f64; 2]>,
    /// Recall and precision where unknown rows are looked for.
    pub pr_unknown: Vec<[f64; 2]>,
}

/// Confidences in bins of equal width; what lies further out is in the first and the last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// Where the first bin begins.
    pub low: f64,
    /// Where the last ends.
    pub high: f64,
    /// Known rows.
    pub known: Vec<usize>,
    /// Rows of each unknown set.
    pub sets: Vec<Vec<usize>>,
    /// Rows that lie further out, below and above.
    pub outside: [usize; 2],
}

/// How often the model is right where it says so with some probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reliability {
    /// Mean probability of the class that was said, share of rows that are right, and rows; for tenths of the probability.
    pub bins: Vec<(f64, f64, usize)>,
    /// Mean distance of the two, weighted by rows.
    pub error: f64,
}

/// A class of the model, or what is left of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Known rows with this label.
    pub rows: usize,
    /// Those that were put in it, kept or not.
    pub right: usize,
    /// Its learned or fixed deviation, where the method has one.
    pub sigma: Option<f64>,
    /// The distance from its mean, in the latent space of the first network, that 95% of its drawn rows are within.
    pub radius: Option<f64>,
    /// Where its mean is in the plane.
    pub mean: Option<[f64; 2]>,
    /// How far from there 95% of its drawn rows are, in the plane.
    pub circle: Option<f64>,
}

/// How a network's training went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trained {
    /// Loss on training rows, epoch by epoch.
    pub loss: Vec<f64>,
    /// Loss on held-out rows.
    pub validation_loss: Vec<f64>,
    /// Accuracy on held-out rows; empty where the method does not classify.
    pub accuracy: Vec<f64>,
    /// The epoch of each value, from 1.
    pub epochs: Vec<usize>,
}

/// A row that is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its place in the plane.
    pub at: [f64; 2],
    /// 0 for the known rows, else the number of its unknown set from 1.
    pub set: usize,
    /// Its number in its file, from 1.
    pub row: u64,
    /// The file of an image.
    pub file: Option<String>,
    /// The class whose color it has: that of its label, or what the model says where it has none.
    pub class: Option<usize>,
    /// Its label.
    pub label: Option<String>,
    /// What the model says.
    pub said: Option<String>,
    /// The probability of that.
    pub probability: Option<f64>,
    /// Its confidence.
    pub confidence: f64,
    /// The share of known rows that look as strange or stranger.
    pub p_value: f64,
    /// It is known from this position on; never, if it is the number of positions.
    pub level: usize,
    /// Its pixels, packed.
    pub picture: Option<String>,
}

/// A row with the reasons for its confidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worth {
    /// Which of the points it is.
    pub point: usize,
    /// What it is compared with: a class, or none for all training rows.
    pub class: Option<String>,
    /// Column, value, what is usual, deviations, and what the confidence gains.
    pub columns: Vec<(String, String, String, Option<f64>, f64)>,
}

/// Rows that are worth looking at for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The reason.
    pub title: String,
    /// What can be seen there.
    pub note: String,
    /// The rows.
    pub rows: Vec<Worth>,
}

/// The plane that rows are drawn in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plane {
    /// The names of its axes.
    pub axes: [String; 2],
    /// What is drawn, and what it does not say.
    pub caption: String,
    /// What is seen first.
    #[serde(serialize_with = "view")]
    pub view: View,
}

fn view<S: serde::Serializer>(view: &View, to: S) -> Result<S::Ok, S::Error> {
    [view.corner[0], view.corner[1], view.side].serialize(to)
}

/// Everything that a report shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Where it comes from.
    pub about: About,
    /// Known rows.
    pub rows: usize,
    /// Share of them that were put in their class, kept or not, as a percentage; none without labels or classes.
    pub accuracy: Option<String>,
    /// Whether the model puts rows in classes.
    pub classifies: bool,
    /// The classes of the model.
    pub classes: Vec<Class>,
    /// The unknown sets.
    pub sets: Vec<Set>,
    /// Thresholds, from the strictest on.
    pub positions: Vec<Position>,
    /// The position that was asked for.
    pub used: usize,
    /// How many rows were held out to calibrate on.
    pub held_out_rows: usize,
    /// What a row is (a class, then the sets, then rows without a label), what the model says (a class), the position from
    /// which on it is kept, and how many there are.
    pub counts: Vec<[usize; 4]>,
    /// Confidences.
    pub histogram: Histogram,
    /// Shares of known rows that are kept, and of those that are wrong.
    pub risk: Vec<[f64; 2]>,
    /// The probabilities against what came true.
    pub reliability: Option<Reliability>,
    /// The networks.
    pub training: Vec<Trained>,
    /// The plane of the points.
    pub plane: Plane,
    /// Rows in it.
    pub points: Vec<Point>,
    /// Width, height and values of a pixel of the pictures of rows; none where rows are no pictures.
    pub picture: Option<[usize; 3]>,
    /// Rows worth looking at.
    pub groups: Vec<Group>,
    /// What the model's user should know.
    pub findings: Vec<String>,
    /// The settings of training by name.
    pub settings: Vec<(String, String)>,
}

/// A share as a percentage, as the commands print it.
fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}
