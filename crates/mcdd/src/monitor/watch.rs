//! A monitor: the evidence of the confidences, and of the parts that are watched.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cells::Cells;
use super::evidence::{Change, Evidence};
use super::history::{History, Point};
use crate::data::{ColumnKind, Schema, SchemaColumn};
use crate::error::{Error, Result};
use crate::model::{Calibration, Predictions};

/// The p-values at which cells of confidences end.
const LOW: [f64; 5] = [0.01, 0.02, 0.05, 0.1, 0.2];
/// The cells of a column.
const COLUMN: [f64; 5] = [1.0 / 6.0, 2.0 / 6.0, 0.5, 4.0 / 6.0, 5.0 / 6.0];
/// The fewest reference rows of a class whose confidences are watched.
const CLASS_ROWS: usize = 19;
/// The most columns that are watched.
const MOST_COLUMNS: usize = 1000;
/// Stands for a missing cell: above all values.
const MISSING: f64 = f64::MAX;

/// What a part is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The confidences of rows of this predicted class.
    Class(String),
    /// How often each class is predicted.
    Labels,
    /// The values of this column.
    Column(String),
}

/// A quantity with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Watched {
    pub(super) cells: Cells,
    pub(super) evidence: Evidence,
    /// The row of the stream at which it was found to have changed.
    pub(super) alarm: Option<u64>,
}

impl Watched {
    fn new(name: &str, values: impl IntoIterator<Item = f64>, change: Change) -> Watched {
        let fractions = if change == Change::Low { &LOW } else { &COLUMN };
        let cells = Cells::new(name, values, fractions);
        let evidence = Evidence::new(change, cells.gaps());
        Watched { cells, evidence, alarm: None }
    }

    fn add(&mut self, value: f64, row: u64, limit: f64) {
        self.evidence.add(self.cells.gaps(), self.cells.cell(value, row));
        if self.alarm.is_none() && self.evidence.value() >= limit {
            self.alarm = Some(row);
        }
    }
}

/// A class or column, and the evidence that it changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding<'a> {
    /// What it is.
    pub part: &'a Part,
    /// The evidence: an e-value.
    pub evidence: f64,
    /// The row at which the evidence was enough to name it, counted from 1.
    pub changed: Option<u64>,
}

/// The state of a monitor in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct About<'a> {
    /// The rows so far.
    pub rows: u64,
    /// How many of them have a p-value of at most 5%.
    pub low: u64,
    /// The probability of a false alarm that is allowed.
    pub alpha: f64,
    /// The evidence against "the rows are like the calibration rows".
    pub evidence: f64,
    /// The evidence at which the alarm is raised.
    pub limit: f64,
    /// The row at which it was raised, counted from 1.
    pub alarm: Option<u64>,
    /// How often it was started again.
    pub restarts: u64,
    /// Classes and columns, those with the most evidence first.
    pub parts: Vec<Finding<'a>>,
}

/// Watches a stream of rows. See the [module](super).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Monitor {
    /// Identifies the calibration rows.
    pub(super) calibration: String,
    pub(super) alpha: f64,
    pub(super) rows: u64,
    pub(super) low: u64,
    /// The confidence below which a p-value is at most 5%.
    low_confidence: f64,
    pub(super) restarts: u64,
    pub(super) score: Watched,
    pub(super) parts: Vec<(Part, Watched)>,
    pub(super) history: History,
}

/// A short name for the calibration rows of a model.
pub(super) fn name_of(calibration: &Calibration) -> String {
    let mut hash = Sha256::new();
    calibration.scores().iter().for_each(|s| hash.update(s.to_le_bytes()));
    hash.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect()
}

impl Monitor {
    /// A monitor of rows that are compared with these calibration rows. `alpha` is the probability of a false alarm over the
    /// whole stream.
    ///
    /// # Errors
    /// If `alpha` is not between 0 and 1, or there are fewer than 9 calibration rows.
    pub fn new(calibration: &Calibration, alpha: f64) -> Result<Monitor> {
        if !(alpha > 0.0 && alpha < 1.0) {
            return Err(Error::setting(format!("`alpha` is {alpha}"))
                .hint("give the probability of a false alarm, such as 0.01"));
        }
        let n = calibration.scores().len();
        if n < 9 {
            return Err(Error::data(format!("the model has {n} calibration rows, and a monitor needs 9 or more"))
                .hint("train it on more rows, or raise `calibration_fraction`"));
        }
        Ok(Monitor {
            calibration: name_of(calibration),
            alpha,
            rows: 0,
            low: 0,
            low_confidence: calibration.threshold(0.95)?.confidence,
            restarts: 0,
            score: Watched::new("confidence", calibration.scores().iter().copied(), Change::Low),
            parts: Vec::new(),
            history: History::default(),
        })
    }

    /// Also watches the classes and the columns of a model, against these reference rows and their predictions: rows that are
    /// as they should be, and that were not used for training. `x` has the inputs of the rows; those of images are not watched.
    ///
    /// # Errors
    /// If there are no rows, or rows were already added.
    pub fn watch_parts(
        &mut self,
        schema: &Schema,
        classes: &[String],
        x: &[f32],
        predictions: &Predictions,
    ) -> Result<()> {
        if self.rows > 0 {
            return Err(Error::setting("the monitor has already seen rows").hint("give the reference at the start"));
        }
        if predictions.rows() == 0 {
            return Err(Error::data("the reference has no rows").hint("give rows that were not used for training"));
        }
        self.parts.clear();
        if !predictions.class.is_empty() {
            let labels = predictions.class.iter().map(|&c| f64::from(c));
            self.parts.push((Part::Labels, Watched::new("labels", labels, Change::Any)));
            for (c, class) in classes.iter().enumerate() {
                let of_class = |(&k, &confidence): (&u32, &f64)| (k as usize == c).then_some(confidence);
                let values: Vec<f64> =
                    predictions.class.iter().zip(&predictions.confidence).filter_map(of_class).collect();
                if values.len() >= CLASS_ROWS {
                    let watched = Watched::new(&format!("class {class}"), values, Change::Low);
                    self.parts.push((Part::Class(class.clone()), watched));
                }
            }
        }
        let width = schema.width();
        for (name, at, kind) in columns(schema) {
            let values = x.chunks_exact(width).map(|row| value(&row[at..at + kind.width()], kind));
            let watched = Watched::new(&format!("column {name}"), values, Change::Any);
            self.parts.push((Part::Column(name.into()), watched));
        }
        Ok(())
    }

    /// The evidence at which the alarm is raised: `1 / alpha`.
    pub fn limit(&self) -> f64 {
        1.0 / self.alpha
    }

    /// The evidence at which a part is named. Over all parts together, one that did not change is named with a
    /// probability of at most `alpha`.
    pub fn part_limit(&self) -> f64 {
        self.parts.len().max(1) as f64 / self.alpha
    }

    /// Adds a row of the stream by its confidence.
    pub fn add(&mut self, confidence: f64) {
        self.rows += 1;
        self.low += u64::from(confidence < self.low_confidence);
        self.score.add(confidence, self.rows, self.limit());
        self.history.add(self.rows, self.score.evidence.value());
    }

    /// Adds rows of the stream with their inputs and predictions, for the evidence of the parts too.
    pub fn add_rows(&mut self, schema: &Schema, classes: &[String], x: &[f32], predictions: &Predictions) {
        let first = self.rows;
        predictions.confidence.iter().for_each(|&c| self.add(c));
        if self.parts.is_empty() {
            return;
        }
        let (limit, width) = (self.part_limit(), schema.width());
        let places: Vec<_> = columns(schema).collect();
        for (part, watched) in &mut self.parts {
            match part {
                Part::Labels => {
                    for (row, &class) in (first + 1..).zip(&predictions.class) {
                        watched.add(f64::from(class), row, limit);
                    }
                }
                Part::Class(name) => {
                    let Some(wanted) = classes.iter().position(|c| c == name) else { continue };
                    let both = predictions.class.iter().zip(&predictions.confidence);
                    for (row, (_, &confidence)) in (first + 1..).zip(both).filter(|(_, (c, _))| **c as usize == wanted)
                    {
                        watched.add(confidence, row, limit);
                    }
                }
                Part::Column(name) => {
                    let Some((_, at, kind)) = places.iter().find(|p| p.0 == name) else { continue };
                    for (row, inputs) in (first + 1..).zip(x.chunks_exact(width)) {
                        watched.add(value(&inputs[*at..at + kind.width()], kind), row, limit);
                    }
                }
            }
        }
    }

    /// The evidence against "the rows are like the calibration rows".
    pub fn evidence(&self) -> f64 {
        self.score.evidence.value()
    }

    /// The row at which the alarm was raised, counted from 1.
    pub fn alarm(&self) -> Option<u64> {
        self.score.alarm
    }

    /// The number of rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// The highest evidence over time.
    pub fn history(&self) -> &[Point] {
        self.history.points()
    }

    /// The state in numbers.
    pub fn about(&self) -> About<'_> {
        let mut parts: Vec<Finding> = self
            .parts
            .iter()
            .map(|(part, w)| Finding { part, evidence: w.evidence.value(), changed: w.alarm })
            .collect();
        parts.sort_by(|a, b| b.evidence.total_cmp(&a.evidence));
        About {
            rows: self.rows,
            low: self.low,
            alpha: self.alpha,
            evidence: self.evidence(),
            limit: self.limit(),
            alarm: self.alarm(),
            restarts: self.restarts,
            parts,
        }
    }

    /// Starts again after an alarm. The evidence is 1, and the probability of a false alarm from here on is at most `alpha`, given
    /// everything before. The rows so far count as reference rows beside the calibration rows.
    pub fn restart(&mut self) {
        self.restarts = self.restarts.saturating_add(1);
        for watched in self.parts.iter_mut().map(|(_, w)| w).chain([&mut self.score]) {
            watched.alarm = None;
            watched.evidence.restart();
        }
    }
}

/// The columns that are watched: name, first input, kind.
fn columns(schema: &Schema) -> impl Iterator<Item = (&str, usize, &ColumnKind)> {
    let place = |at: &mut usize, column: &SchemaColumn| {
        let here = *at;
        *at += column.kind.width();
        Some(here)
    };
    let starts = schema.columns.iter().scan(0, place);
    schema
        .columns
        .iter()
        .zip(starts)
        .filter(|(column, _)| column.kind.width() > 0)
        .take(MOST_COLUMNS)
        .map(|(column, at)| (column.name.as_str(), at, &column.kind))
}

/// A column's value of a row as one number, from its inputs.
fn value(inputs: &[f32], kind: &ColumnKind) -> f64 {
    let missing = |indicator: bool| indicator && inputs.last().is_some_and(|&i| i != 0.0);
    match kind {
        ColumnKind::Numeric { indicator, .. } | ColumnKind::Time { indicator, .. } => {
            if missing(*indicator) {
                MISSING
            } else {
                inputs.first().map_or(0.0, |&v| f64::from(v))
            }
        }
        // The number of the category; a missing or new one comes after all.
        ColumnKind::Categorical { .. } => inputs.iter().position(|&i| i != 0.0).map_or(MISSING, |at| at as f64),
        ColumnKind::Dropped { .. } => 0.0,
    }
}
