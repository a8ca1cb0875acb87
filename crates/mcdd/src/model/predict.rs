//! Verdicts for rows.

use super::probe::Buffers;
use super::range_penalty::RangePenalty;
use super::{Calibration, Model, ModelMember};
use crate::compute::argmax;
use crate::compute::pool::{Pool, chunks};
use crate::data::Table;
use crate::error::{Error, Result};
use crate::head::posterior;
use crate::net::NetworkBuffers;
use crate::train::{Examples, LabeledRows};

/// Rows that one thread takes at a time: enough for what a member keeps to stay in its cache for a while.
const BLOCK: usize = 768;
/// Numbers that it takes at the most: images are large.
const BLOCK_NUMBERS: usize = 1 << 21;

/// What a model says about some rows; a buffer that can be used again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    /// The number of classes.
    pub classes: usize,
    /// The most probable class of each row; empty where the model does not classify.
    pub class: Vec<u32>,
    /// Eq. 7, or a detector's score: higher for what is more like the training rows. Of several members, and where
    /// inputs are clipped, in deviations from what is usual on held-out rows; the mean over members.
    pub confidence: Vec<f64>,
    /// See [`Calibration::p_value`].
    pub p_value: Vec<f64>,
    /// The probability of each class, row by row (Eq. 6).
    pub posterior: Vec<f64>,
    /// The distance to each class, row by row (Eq. 4); empty where the method has none.
    pub distance: Vec<f64>,
}

impl Predictions {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.confidence.len()
    }

    /// The posterior of row `i`.
    pub fn posterior(&self, i: usize) -> &[f64] {
        &self.posterior[i * self.classes..(i + 1) * self.classes]
    }

    /// The distances of row `i`, where the method has them.
    pub fn distance(&self, i: usize) -> Option<&[f64]> {
        self.distance.get(i * self.classes..(i + 1) * self.classes)
    }

    pub(super) fn sized(&mut self, rows: usize, classes: usize, distances: bool) {
        self.classes = classes;
        self.class.resize(if classes > 0 { rows } else { 0 }, 0);
        self.confidence.resize(rows, 0.0);
        self.p_value.resize(rows, 0.0);
        self.posterior.resize(rows * classes, 0.0);
        self.distance.resize(if distances { rows * classes } else { 0 }, 0.0);
    }
}

/// Buffers of a thread that predicts.
#[derive(Clone, Debug, Default)]
pub struct PredictBuffers {
    net: NetworkBuffers,
    confidence: Vec<f64>,
    logits: Vec<f64>,
    distances: Vec<f64>,
    probe: Buffers,
}

/// The part of the output that one task writes.
struct Part<'a> {
    class: &'a mut [u32],
    confidence: &'a mut [f64],
    posterior: &'a mut [f64],
    distance: &'a mut [f64],
}

/// Those who are asked.
#[derive(Clone, Copy)]
pub(super) struct Ensemble<'a> {
    pub members: &'a [ModelMember],
    /// What they do not see, if they do not see everything.
    pub reach: Option<&'a RangePenalty>,
}

/// The members' mean opinion on some rows.
fn score(Ensemble { members, reach }: Ensemble, x: &[f32], classes: usize, out: Part, s: &mut PredictBuffers) {
    let rows = out.confidence.len();
    out.confidence.fill(0.0);
    out.posterior.fill(0.0);
    out.distance.fill(0.0);
    let share = 1.0 / members.len() as f64;
    for member in members {
        let z = member.net.latents(x, &mut s.net);
        s.logits.resize(rows * classes, 0.0);
        let probed = member.probe.as_ref();
        if let Some(probe) = probed {
            s.confidence.resize(rows, 0.0);
            probe.score(member.host(), x, z, &mut s.confidence, &mut s.logits, &mut s.probe);
            out.confidence.iter_mut().zip(&s.confidence).for_each(|(o, &c)| *o += share * member.usual.standardize(c));
        }
        // The head speaks where there is no detector, and of the classes where the detector is silent about them.
        if probed.is_none_or(|p| p.classes() == 0) {
            let told = member.head.classes();
            s.distances.resize(told, 0.0);
            for (i, z) in z.chunks_exact(z.len() / rows).enumerate() {
                let own = member.head.score(z, &mut s.logits[i * told..(i + 1) * told], &mut s.distances);
                out.confidence[i] += if probed.is_none() { share * member.usual.standardize(own) } else { 0.0 };
                if let Some(distance) = out.distance.get_mut(i * classes..(i + 1) * classes) {
                    distance.iter_mut().zip(&s.distances).for_each(|(d, &v)| *d += share * v);
                }
            }
        }
        if classes > 0 {
            for (logits, out) in s.logits.chunks_exact_mut(classes).zip(out.posterior.chunks_exact_mut(classes)) {
                posterior(logits);
                out.iter_mut().zip(logits).for_each(|(o, p)| *o += share * *p);
            }
        }
    }
    if let Some(reach) = reach {
        let rows = x.chunks_exact(reach.values().len());
        out.confidence.iter_mut().zip(rows).for_each(|(c, row)| *c -= reach.beyond(row));
    }
    // Where weights overflow, nothing is known.
    out.confidence.iter_mut().filter(|c| !c.is_finite()).for_each(|c| *c = f64::MIN);
    if classes > 0 {
        for (class, p) in out.class.iter_mut().zip(out.posterior.chunks_exact(classes)) {
            *class = argmax(p) as u32;
        }
    }
}

/// What members that have no calibration yet say about some rows: no p-values.
pub(super) fn verdicts(ensemble: Ensemble, rows: Examples, pool: &Pool) -> Predictions {
    let mut out = Predictions::default();
    out.sized(rows.len(), ensemble.members.first().map_or(0, ModelMember::classes), false);
    if !rows.is_empty() {
        blocks(ensemble, rows, &mut out, pool);
    }
    out
}

/// Scores all rows, block by block.
fn blocks(ensemble: Ensemble, rows: Examples, out: &mut Predictions, pool: &Pool) {
    let k = out.classes;
    let block = BLOCK.min(BLOCK_NUMBERS / rows.width().max(1)).max(1);
    let parts = (
        (chunks(&mut out.class, block), chunks(&mut out.confidence, block)),
        (chunks(&mut out.posterior, block * k), chunks(&mut out.distance, block * k)),
    );
    pool.split(parts, |i, ((class, confidence), (posterior, distance))| {
        let mut buffer = Vec::new();
        let x = rows.x(i * block..i * block + confidence.len(), &mut buffer);
        score(ensemble, x, k, Part { class, confidence, posterior, distance }, &mut PredictBuffers::default());
    });
}

impl Model {
    /// Predicts rows that are ready for the network (see [`Schema::transform`](crate::data::Schema::transform) and
    /// [`Reader`](crate::data::Reader)), with all threads of `pool`. A row's result does not depend on its company.
    ///
    /// # Errors
    /// If `x` is no whole number of rows, or holds something that is not finite.
    pub fn predict_rows(&self, x: &[f32], out: &mut Predictions, pool: &Pool) -> Result<()> {
        let width = self.graph().input;
        if !x.len().is_multiple_of(width) || x.iter().any(|v| !v.is_finite()) {
            return Err(Error::data(format!("the input must be finite numbers, {width} for each row")));
        }
        out.sized(x.len() / width, self.n_classes(), self.has_distances());
        let y = vec![0; x.len() / width];
        blocks(self.ensemble(), Examples::Rows(LabeledRows { x, y: &y }), out, pool);
        self.p_values(out);
        Ok(())
    }

    /// Predicts rows or images that may not be ready yet, with all threads of `pool`.
    ///
    /// # Errors
    /// If they have another width than the network's input.
    pub fn predict_examples(&self, rows: Examples, pool: &Pool) -> Result<Predictions> {
        let mut out = Predictions::default();
        if rows.is_empty() {
            return Ok(out);
        }
        if rows.width() != self.graph().input {
            return Err(Error::data(format!("the input must be {} numbers for each row", self.graph().input)));
        }
        out.sized(rows.len(), self.n_classes(), self.has_distances());
        blocks(self.ensemble(), rows, &mut out, pool);
        self.p_values(&mut out);
        Ok(out)
    }

    /// Predicts one row in place, the way to serve single rows: without allocating, where the method gives the
    /// confidence itself.
    ///
    /// # Errors
    /// As for [`Model::predict_rows`].
    pub fn predict_one(&self, x: &[f32], out: &mut Predictions, scratch: &mut PredictBuffers) -> Result<()> {
        let (width, k) = (self.graph().input, self.n_classes());
        if x.len() != width || x.iter().any(|v| !v.is_finite()) {
            return Err(Error::data(format!("the input must be {width} finite numbers")));
        }
        out.sized(1, k, self.has_distances());
        let Predictions { class, confidence, posterior, distance, .. } = out;
        score(self.ensemble(), x, k, Part { class, confidence, posterior, distance }, scratch);
        self.p_values(out);
        Ok(())
    }

    fn ensemble(&self) -> Ensemble<'_> {
        Ensemble { members: &self.members, reach: self.reach.as_ref() }
    }

    /// The number of classes that rows are put in.
    fn n_classes(&self) -> usize {
        self.members.first().map_or(0, ModelMember::classes)
    }

    fn p_values(&self, out: &mut Predictions) {
        let calibration: &Calibration = self.calibration();
        for (p, &c) in out.p_value.iter_mut().zip(&out.confidence) {
            *p = calibration.p_value(c);
        }
    }

    /// Predicts the rows of a table, whose columns are matched as in training.
    ///
    /// # Errors
    /// If a column is missing or holds something else than in training.
    pub fn predict(&self, table: &Table) -> Result<Predictions> {
        let x = self.schema().transform(table, None)?;
        let mut out = Predictions::default();
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        self.predict_rows(&x, &mut out, &Pool::new(threads))?;
        Ok(out)
    }
}
