//! Verdicts for rows.

use super::{Calibration, Model, ModelMember};
use crate::data::Table;
use crate::error::{Error, Result};
use crate::head::posterior;
use crate::net::cpu;
use crate::net::cpu::pool::{Pool, chunks};
use crate::train::largest;

/// Rows that one thread takes at a time.
const BLOCK: usize = 96;

/// What a model says about some rows; a buffer that can be used again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    /// The number of classes.
    pub classes: usize,
    /// The most probable class of each row.
    pub class: Vec<u32>,
    /// Eq. 7: higher for what is more like the training rows.
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
        self.class.len()
    }

    /// The posterior of row `i`.
    pub fn posterior(&self, i: usize) -> &[f64] {
        &self.posterior[i * self.classes..(i + 1) * self.classes]
    }

    /// The distances of row `i`, where the method has them.
    pub fn distance(&self, i: usize) -> Option<&[f64]> {
        self.distance.get(i * self.classes..(i + 1) * self.classes)
    }

    fn sized(&mut self, rows: usize, classes: usize, distances: bool) {
        self.classes = classes;
        self.class.resize(rows, 0);
        self.confidence.resize(rows, 0.0);
        self.p_value.resize(rows, 0.0);
        self.posterior.resize(rows * classes, 0.0);
        self.distance.resize(if distances { rows * classes } else { 0 }, 0.0);
    }
}

/// Buffers of a thread that predicts.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    net: cpu::Scratch,
    logits: Vec<f64>,
    distances: Vec<f64>,
}

/// The part of the output that one task writes.
struct Part<'a> {
    class: &'a mut [u32],
    confidence: &'a mut [f64],
    posterior: &'a mut [f64],
    distance: &'a mut [f64],
}

/// The members' mean opinion on some rows.
fn score(members: &[ModelMember], x: &[f32], classes: usize, out: Part, s: &mut Scratch) {
    let rows = out.class.len();
    s.logits.resize(classes, 0.0);
    s.distances.resize(classes, 0.0);
    out.confidence.fill(0.0);
    out.posterior.fill(0.0);
    out.distance.fill(0.0);
    let share = 1.0 / members.len() as f64;
    for member in members {
        let z = member.net.latents(x, &mut s.net);
        let latent = z.len() / rows;
        for (i, z) in z.chunks_exact(latent).enumerate() {
            out.confidence[i] += share * member.head.score(z, &mut s.logits, &mut s.distances);
            posterior(&mut s.logits);
            for (p, &v) in out.posterior[i * classes..].iter_mut().zip(&s.logits) {
                *p += share * v;
            }
            if let Some(distance) = out.distance.get_mut(i * classes..(i + 1) * classes) {
                for (d, &v) in distance.iter_mut().zip(&s.distances) {
                    *d += share * v;
                }
            }
        }
    }
    for (class, p) in out.class.iter_mut().zip(out.posterior.chunks_exact(classes)) {
        *class = largest(p) as u32;
    }
}

/// The confidences of rows under members that have no calibration yet.
pub(super) fn confidences(members: &[ModelMember], x: &[f32], rows: usize, classes: usize) -> Vec<f64> {
    let mut out = Predictions::default();
    out.sized(rows, classes, false);
    let Predictions { class, confidence, posterior, distance, .. } = &mut out;
    score(members, x, classes, Part { class, confidence, posterior, distance }, &mut Scratch::default());
    out.confidence
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
        let (rows, k) = (x.len() / width, self.classes().len());
        out.sized(rows, k, self.has_distances());
        let parts = (
            (chunks(&mut out.class, BLOCK), chunks(&mut out.confidence, BLOCK)),
            (chunks(&mut out.posterior, BLOCK * k), chunks(&mut out.distance, BLOCK * k)),
        );
        pool.split(parts, |i, ((class, confidence), (posterior, distance))| {
            let x = &x[i * BLOCK * width..][..class.len() * width];
            let part = Part { class, confidence, posterior, distance };
            score(&self.members, x, k, part, &mut Scratch::default());
        });
        self.p_values(out);
        Ok(())
    }

    /// Predicts one row in place, without allocating: the way to serve single rows.
    ///
    /// # Errors
    /// As for [`Model::predict_rows`].
    pub fn predict_one(&self, x: &[f32], out: &mut Predictions, scratch: &mut Scratch) -> Result<()> {
        let (width, k) = (self.graph().input, self.classes().len());
        if x.len() != width || x.iter().any(|v| !v.is_finite()) {
            return Err(Error::data(format!("the input must be {width} finite numbers")));
        }
        out.sized(1, k, self.has_distances());
        let Predictions { class, confidence, posterior, distance, .. } = out;
        score(&self.members, x, k, Part { class, confidence, posterior, distance }, scratch);
        self.p_values(out);
        Ok(())
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
