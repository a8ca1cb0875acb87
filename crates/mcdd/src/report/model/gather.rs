//! Collects rows as they are scored.

use std::collections::BTreeMap;

use super::best::Lowest;
use super::picture::Thumbnails;
use super::positions::{Levels, Thresholds};
use crate::data::Unseen;
use crate::error::{self, Result};
use crate::model::{Model, Predictions};
use crate::report::html::name;
use crate::seed::Stream;

/// The largest numbers of rows in the plane; fewer if they have images.
const KNOWN: usize = 2000;
const UNKNOWN: usize = 1000;
/// The largest size of all images together, in characters.
const PICTURES: usize = 900_000;
/// The largest number of inputs of all drawn rows together.
const INPUTS: usize = 1 << 25;
/// The largest number of classes; all others are merged into the last one.
pub(super) const MOST_CLASSES: usize = 60;
/// Rows of a group of notable rows.
const GROUP: usize = 9;

/// Whether a row is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Known, with its class if it has a label.
    Known(Option<usize>),
    /// Of one of the unknown sets.
    Unknown(usize),
}

/// The location of a row.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its number in its file, and its line if that is known.
    pub row: error::Row,
    /// The name of an image.
    pub file: Option<&'a str>,
    /// Its cells that hold a category not seen in training.
    pub unseen: &'a [Unseen],
}

impl Place<'_> {
    /// A row of a table.
    pub fn row(row: impl Into<error::Row>) -> Place<'static> {
        Place { row: row.into(), file: None, unseen: &[] }
    }
}

/// A row that may be shown.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub set: usize,
    pub row: error::Row,
    pub file: Option<String>,
    pub truth: Option<usize>,
    pub label: Option<String>,
    pub predicted: Option<usize>,
    pub probability: Option<f64>,
    pub confidence: f64,
    pub p_value: f64,
    pub level: usize,
    pub x: Vec<f32>,
    pub unseen: Vec<Unseen>,
}

/// An unknown set.
pub(super) struct Unknown {
    pub name: String,
    /// Rows added in batches.
    pub rows: u64,
    pub confidence: Vec<f64>,
    pub levels: Levels,
    pub sample: Lowest<Row>,
    /// The rows with the highest confidence.
    pub nearest: Lowest<Row>,
    random: Stream,
}

/// Takes rows as they are scored; memory grows by a few numbers per row.
pub struct Gather<'a> {
    pub(super) model: &'a Model,
    pub(super) thresholds: Thresholds,
    seed: u64,
    pub(super) pictures: Option<Thumbnails>,
    pub(super) confidence: Vec<f64>,
    /// Whether labeled rows were classified correctly, and the probability of the predicted class.
    pub(super) right: Vec<bool>,
    pub(super) probability: Vec<f64>,
    pub(super) levels: Levels,
    pub(super) counts: BTreeMap<[usize; 3], usize>,
    pub(super) sample: Vec<Lowest<Row>>,
    pub(super) least: Vec<Lowest<Row>>,
    pub(super) mistakes: Lowest<Row>,
    pub(super) sets: Vec<Unknown>,
    /// The expected number of sets, which limits the drawn rows of each.
    planned: usize,
    random: Stream,
    /// Known rows added in batches.
    pub(super) known_rows: u64,
    /// The unknown set of rows with labels that are not classes of the model.
    pub(super) foreign: Option<usize>,
}

impl<'a> Gather<'a> {
    /// For a model, the fraction of known rows that its threshold should keep, and the largest number of unknown sets. The
    /// seed selects the rows that are drawn.
    ///
    /// # Errors
    /// If `tpr` is not between 0 and 1.
    pub fn new(model: &'a Model, tpr: f64, sets: usize, seed: u64) -> Result<Gather<'a>> {
        let pictures = Thumbnails::of(model.schema());
        let groups = model.classes().len().clamp(1, MOST_CLASSES);
        let each = if groups <= 10 { 3 } else { 1 };
        let known = most(KNOWN, model.schema().width(), pictures.as_ref());
        Ok(Gather {
            model,
            thresholds: Thresholds::new(model.calibration(), tpr)?,
            seed,
            pictures,
            confidence: Vec::new(),
            right: Vec::new(),
            probability: Vec::new(),
            levels: Levels::default(),
            counts: BTreeMap::new(),
            sample: vec![Lowest::new(known.div_ceil(groups)); groups],
            least: vec![Lowest::new(each); groups],
            mistakes: Lowest::new(GROUP),
            sets: Vec::new(),
            planned: sets.max(1),
            random: Stream::new(seed, "report/known"),
            known_rows: 0,
            foreign: None,
        })
    }

    /// Adds an unknown set and returns its index.
    pub fn set(&mut self, text: &str) -> usize {
        let n = self.sets.len();
        let rows = most(UNKNOWN, self.model.schema().width(), self.pictures.as_ref()).div_ceil(self.planned);
        self.sets.push(Unknown {
            name: name(text),
            rows: 0,
            confidence: Vec::new(),
            levels: Levels::default(),
            sample: Lowest::new(rows),
            nearest: Lowest::new(GROUP),
            random: Stream::new(self.seed, &format!("report/unknown/{n}")),
        });
        n
    }

    /// Adds row `i` of some predictions, whose inputs are `x`.
    pub fn add(&mut self, side: Side, at: Place, x: &[f32], label: Option<&str>, p: &Predictions, i: usize) {
        let confidence = p.confidence[i];
        let level = self.thresholds.level(confidence);
        let predicted = p.class.get(i).map(|&c| c as usize);
        let probability = predicted.map(|c| p.posterior(i)[c]);
        let p_value = p.p_value[i];
        let (set, truth) = match side {
            Side::Known(class) => (0, class),
            Side::Unknown(set) => (set + 1, None),
        };
        let kept = || {
            let (x, label) = (x.to_vec(), label.map(name));
            let Place { row, file, unseen } = at;
            let (file, unseen) = (file.map(name), unseen.to_vec());
            Row { set, row, file, truth, label, predicted, probability, confidence, p_value, level, x, unseen }
        };
        let classes = self.model.classes().len().min(MOST_CLASSES);
        // Rows without a label come after the classes and the sets, whose number is not yet known.
        let kind = match side {
            Side::Known(Some(class)) => class.min(MOST_CLASSES - 1),
            Side::Known(None) => usize::MAX,
            Side::Unknown(set) => classes + set,
        };
        *self.counts.entry([kind, predicted.unwrap_or(0).min(MOST_CLASSES - 1), level]).or_default() += 1;
        let Side::Unknown(set) = side else {
            let right = truth.zip(predicted).map(|(t, s)| t == s);
            self.levels.add(level, right == Some(true));
            self.confidence.push(confidence);
            self.right.extend(right);
            self.probability.extend(probability.filter(|_| right.is_some()));
            let group = truth.or(predicted).unwrap_or(0).min(MOST_CLASSES - 1);
            self.sample[group].offer(self.random.uniform(), kept);
            self.least[group].offer(confidence, kept);
            if right == Some(false) {
                self.mistakes.offer(-confidence, kept);
            }
            return;
        };
        let set = &mut self.sets[set];
        set.levels.add(level, false);
        set.confidence.push(confidence);
        set.sample.offer(set.random.uniform(), kept);
        set.nearest.offer(-confidence, kept);
    }
}

/// How many rows can be drawn within the limits of page size and memory.
fn most(rows: usize, width: usize, pictures: Option<&Thumbnails>) -> usize {
    let all = (KNOWN + UNKNOWN) as f64;
    let page = pictures.map_or(1.0, |p| PICTURES as f64 / (all * p.size() as f64));
    let memory = INPUTS as f64 / (all * width.max(1) as f64);
    (rows as f64 * page.min(memory).min(1.0)) as usize
}
