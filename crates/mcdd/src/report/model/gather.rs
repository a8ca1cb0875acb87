//! Rows as they come by, and what is kept of them.

use std::collections::BTreeMap;

use super::best::Lowest;
use super::picture::ImageRows;
use super::positions::{Levels, Thresholds};
use crate::error::Result;
use crate::model::{Model, Predictions};
use crate::report::html::name;
use crate::seed::Stream;

/// Rows in the plane at the most; fewer where they have pictures.
const KNOWN: usize = 2000;
const UNKNOWN: usize = 1000;
/// Characters that all pictures together may take.
const PICTURES: usize = 900_000;
/// Inputs that all drawn rows together may have.
const INPUTS: usize = 1 << 25;
/// Classes that are told apart; what is left of more is one.
pub(super) const MOST_CLASSES: usize = 60;
/// Rows of a group worth looking at.
const GROUP: usize = 9;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Known, with its class where it has a label.
    Known(Option<usize>),
    /// Of one of the unknown sets.
    Unknown(usize),
}

/// Where a row is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Counted in its file from 1.
    pub row: u64,
    /// The name of an image.
    pub file: Option<&'a str>,
}

impl Place<'_> {
    /// A row of a table.
    pub fn row(row: u64) -> Place<'static> {
        Place { row, file: None }
    }
}

/// A row that may be shown.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub set: usize,
    pub row: u64,
    pub file: Option<String>,
    pub truth: Option<usize>,
    pub label: Option<String>,
    pub said: Option<usize>,
    pub probability: Option<f64>,
    pub confidence: f64,
    pub p_value: f64,
    pub level: usize,
    pub x: Vec<f32>,
}

/// An unknown set.
pub(super) struct Unknown {
    pub name: String,
    pub confidence: Vec<f64>,
    pub levels: Levels,
    pub sample: Lowest<Row>,
    /// The rows that look most known.
    pub nearest: Lowest<Row>,
    random: Stream,
}

/// Takes rows as they are scored; memory grows by a few numbers a row.
pub struct Gather<'a> {
    pub(super) model: &'a Model,
    pub(super) thresholds: Thresholds,
    seed: u64,
    pub(super) pictures: Option<ImageRows>,
    pub(super) confidence: Vec<f64>,
    /// Whether labeled rows were put in their class, and with what probability.
    pub(super) right: Vec<bool>,
    pub(super) probability: Vec<f64>,
    pub(super) levels: Levels,
    pub(super) counts: BTreeMap<[usize; 3], usize>,
    pub(super) sample: Vec<Lowest<Row>>,
    pub(super) least: Vec<Lowest<Row>>,
    pub(super) mistakes: Lowest<Row>,
    pub(super) sets: Vec<Unknown>,
    /// How many sets there may be, so that the plane is not too full.
    planned: usize,
    random: Stream,
}

impl<'a> Gather<'a> {
    /// For a model, the share of known rows that its threshold should keep, and up to so many unknown sets; the seed chooses the
    /// rows that are drawn.
    ///
    /// # Errors
    /// If the share is none.
    pub fn new(model: &'a Model, tpr: f64, sets: usize, seed: u64) -> Result<Gather<'a>> {
        let pictures = ImageRows::of(model.schema());
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
        })
    }

    /// Begins an unknown set; it is left out of the report where it stays empty.
    pub fn set(&mut self, text: &str) -> usize {
        let n = self.sets.len();
        let rows = most(UNKNOWN, self.model.schema().width(), self.pictures.as_ref()).div_ceil(self.planned);
        self.sets.push(Unknown {
            name: name(text),
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
        let said = p.class.get(i).map(|&c| c as usize);
        let probability = said.map(|c| p.posterior(i)[c]);
        let p_value = p.p_value[i];
        let (set, truth) = match side {
            Side::Known(class) => (0, class),
            Side::Unknown(set) => (set + 1, None),
        };
        let kept = || {
            let (x, label) = (x.to_vec(), label.map(name));
            let Place { row, file } = at;
            let file = file.map(name);
            Row { set, row, file, truth, label, said, probability, confidence, p_value, level, x }
        };
        let classes = self.model.classes().len().min(MOST_CLASSES);
        // Rows without a label come after the classes and the sets, whose number is not known yet.
        let kind = match side {
            Side::Known(Some(class)) => class.min(MOST_CLASSES - 1),
            Side::Known(None) => usize::MAX,
            Side::Unknown(set) => classes + set,
        };
        *self.counts.entry([kind, said.unwrap_or(0).min(MOST_CLASSES - 1), level]).or_default() += 1;
        let Side::Unknown(set) = side else {
            let right = truth.zip(said).map(|(t, s)| t == s);
            self.levels.add(level, right == Some(true));
            self.confidence.push(confidence);
            self.right.extend(right);
            self.probability.extend(probability.filter(|_| right.is_some()));
            let group = truth.or(said).unwrap_or(0).min(MOST_CLASSES - 1);
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

/// How many rows can be drawn, as far as the page and the memory have room.
fn most(rows: usize, width: usize, pictures: Option<&ImageRows>) -> usize {
    let all = (KNOWN + UNKNOWN) as f64;
    let page = pictures.map_or(1.0, |p| PICTURES as f64 / (all * p.size() as f64));
    let memory = INPUTS as f64 / (all * width.max(1) as f64);
    (rows as f64 * page.min(memory).min(1.0)) as usize
}
