//! The one-class support vector machine with a Gaussian kernel, which `ocsvm` and `svdd` share.
//!
//! With `K(x, y) = exp(-gamma |x - y|^2)`, the weights `a` of the `n` training rows are the solution of
//! `min 1/2 a'Ka` with `0 <= a_i <= 1` and `sum a = nu n`. Features are centered and scaled by `sqrt(gamma)` beforehand.
//! `solver` finds the weights, `rbf` computes kernels.

mod rbf;
mod solver;

use std::borrow::Cow;

use super::{DetectorBuffers, Features, MAX_FEATURE, StateDict, Training, out_of_range};
use crate::compute::gemm::NR;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::seed::Stream;
use crate::stats::moments::mean;
use rbf::Points;
use serde::{Deserialize, Serialize};

/// What both detectors are set by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// At most this share of the training rows ends up outside, and at least this share become support vectors: above 0
    /// and at most 1. Default 0.1, as in-distribution data are taken to be mostly clean.
    pub nu: f64,
    /// How fast the kernel falls with the squared distance, positive. Auto (the default) is
    /// `1 / (width * variance of all features)`, as scikit-learn's "scale".
    pub gamma: Option<f64>,
    /// Training rows at most, 1 or more. Default 20,000.
    pub rows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { nu: 0.1, gamma: None, rows: 20_000 }
    }
}

impl Settings {
    /// Checks the ranges.
    pub(super) fn check(&self) -> Result<()> {
        if !(self.nu > 0.0 && self.nu <= 1.0) {
            return Err(out_of_range("nu", self.nu, "above 0 and at most 1"));
        }
        if let Some(gamma) = self.gamma
            && !(gamma > 0.0 && gamma.is_finite())
        {
            return Err(out_of_range("gamma", gamma, "auto or a positive number"));
        }
        if self.rows == 0 {
            return Err(out_of_range("rows", self.rows, "1 or more"));
        }
        Ok(())
    }

    /// Finds the weights.
    pub(super) fn fit(&self, training: &Training, pool: &Pool) -> Solved {
        let rows = sample(&training.rows, self.rows, training.seed);
        let width = training.rows.width();
        let count = rows.len() / width;
        let gamma = self.gamma.unwrap_or_else(|| auto_gamma(&rows, width));
        let center = mean(&rows, width);
        let scale = libm::sqrt(gamma);
        let mut scaled = Vec::new();
        prepare(&rows, &center, scale, &mut scaled);
        let solution = solver::solve(&scaled, width, self.nu * count as f64, pool);
        let (points, weights) = solver::support(&scaled, width, &solution.weights);
        let machine = Machine { center, scale, points, total: weights.iter().sum(), weights };
        let pairs = solution.weights.iter().zip(&solution.gradient);
        let norm = pairs.map(|(a, g)| (a / machine.total) * (g / machine.total)).sum();
        Solved { machine, level: solution.level(), norm }
    }
}

/// What a fit finds.
pub(super) struct Solved {
    /// The support vectors.
    pub(super) machine: Machine,
    /// `f` at the support vectors on the boundary.
    pub(super) level: f64,
    /// `a'Ka` for weights that sum to 1.
    pub(super) norm: f64,
}

/// All rows, or as many of them as `most`, by the seed, in their order.
fn sample<'a>(rows: &Features<'a>, most: usize, seed: u64) -> Cow<'a, [f32]> {
    if rows.count <= most {
        return Cow::Borrowed(rows.features);
    }
    let mut order: Vec<usize> = (0..rows.count).collect();
    Stream::new(seed, "svm/rows").shuffle(&mut order);
    order.truncate(most);
    order.sort_unstable();
    order.into_iter().flat_map(|i| rows.feature_row(i)).copied().collect()
}

/// `1 / (width * variance of all elements)`; 1 if they are all the same.
fn auto_gamma(x: &[f32], width: usize) -> f64 {
    // Measured from the first, so that equal elements have no variance at all, whatever is rounded.
    let first = x.first().map_or(0.0, |&v| f64::from(v));
    let n = x.len().max(1) as f64;
    let mean = x.iter().map(|&v| f64::from(v) - first).sum::<f64>() / n;
    let variance = x.iter().map(|&v| f64::from(v) - first - mean).map(|d| d * d).sum::<f64>() / n;
    if variance > 0.0 { 1.0 / (width as f64 * variance) } else { 1.0 }
}

/// Support vectors with their weights: `f(x) = sum_j a_j K(x_j, x)`.
pub(super) struct Machine {
    center: Vec<f64>,
    scale: f64,
    points: Points,
    /// Filled up with zeros to whole panels.
    weights: Vec<f64>,
    total: f64,
}

/// Features as the kernel takes them. Values beyond ±[`MAX_FEATURE`] are far from everything but each other either way.
fn prepare(rows: &[f32], center: &[f64], scale: f64, out: &mut Vec<f32>) {
    let far = f64::from(MAX_FEATURE);
    out.clear();
    for row in rows.chunks_exact(center.len()) {
        let scaled = row.iter().zip(center).map(|(&x, c)| (f64::from(x) - c) * scale);
        out.extend(scaled.map(|v| v.clamp(-far, far) as f32));
    }
}

impl Machine {
    /// The sum of all weights, which no `f` is above.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// `f` of each row.
    pub(super) fn sums(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        prepare(rows.features, &self.center, self.scale, &mut scratch.f32s[0]);
        self.points.sums(&scratch.f32s[0], &self.weights, out, &mut scratch.f64s);
    }

    /// Stores it.
    pub(super) fn save(&self, state: &mut StateDict) {
        let (count, width) = (self.points.count(), self.points.width());
        state.put_f64("center", &[width], &self.center);
        state.put_f64("scale", &[1], &[self.scale]);
        state.put_f32("support", &[count, width], &self.points.rows());
        state.put_f64("weights", &[count], &self.weights[..count]);
    }

    /// Takes it back.
    pub(super) fn load(state: &mut StateDict) -> Result<Machine> {
        let [count, width] = state.shape("support")?;
        if count == 0 || width == 0 || width != state.width() {
            return Err(state.invalid("it has no support vectors of the right width"));
        }
        let center = state.take_f64("center", &[width])?;
        let scale = state.take_f64("scale", &[1])?[0];
        let support = state.take_f32("support", &[count, width])?;
        let mut weights = state.take_f64("weights", &[count])?;
        if scale <= 0.0 || weights.iter().any(|&w| !(w > 0.0 && w <= 1.0)) {
            return Err(state.invalid("a weight or the scale is outside its range"));
        }
        weights.resize(count.next_multiple_of(NR), 0.0);
        Ok(Machine { center, scale, points: Points::new(&support, width), total: weights.iter().sum(), weights })
    }
}
