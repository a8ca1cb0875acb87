//! The one-class support vector machine with a Gaussian kernel, which `ocsvm` and `svdd` share.
//!
//! With `K(x, y) = exp(-gamma |x - y|^2)`, the weights `a` of the `n` training rows are the solution of
//! `min 1/2 a'Ka` with `0 <= a_i <= 1` and `sum a = nu n`. Rows are centered and scaled by `sqrt(gamma)` first.
//! `solver` computes the weights, `rbf` the kernel.

mod cache;
mod rbf;
mod solver;

use std::borrow::Cow;

use super::{DetectorBuffers, Features, MAX_FEATURE, StateDict, Training, out_of_range};
use crate::compute::gemm::NR;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Type, Value};
use crate::seed::Stream;
use crate::stats::moments::mean;
use rbf::Points;
use serde::{Deserialize, Serialize};

/// The settings of `ocsvm` and `svdd`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// An upper bound of the fraction of training rows outside the boundary, and a lower bound of the fraction of support
    /// vectors; above 0 and at most 1. Default: 0.1, as in-distribution data are assumed to be mostly clean.
    pub nu: f64,
    /// The coefficient of the kernel, positive. Default (auto): `1 / (width * variance of all features)`, as scikit-learn's
    /// "scale".
    pub gamma: Option<f64>,
    /// The largest number of training rows to use, 1 or more. Default: 20,000.
    pub rows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { nu: 0.1, gamma: None, rows: 20_000 }
    }
}

impl Settings {
    /// Checks the ranges of the settings.
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

    /// Fits the support vectors.
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

/// The result of a fit.
pub(super) struct Solved {
    /// The support vectors.
    pub(super) machine: Machine,
    /// The value of `f` on the boundary.
    pub(super) level: f64,
    /// `a'Ka` for weights that sum to 1.
    pub(super) norm: f64,
}

/// All rows, or a random sample of `limit` rows, in their order.
fn sample<'a>(rows: &Features<'a>, limit: usize, seed: u64) -> Cow<'a, [f32]> {
    if rows.count <= limit {
        return Cow::Borrowed(rows.features);
    }
    let mut order: Vec<usize> = (0..rows.count).collect();
    Stream::new(seed, "svm/rows").shuffle(&mut order);
    order.truncate(limit);
    order.sort_unstable();
    order.into_iter().flat_map(|i| rows.feature_row(i)).copied().collect()
}

/// `1 / (width * variance of all elements)`; 1 if all elements are equal.
fn auto_gamma(x: &[f32], width: usize) -> f64 {
    // Relative to the first element, so that the variance of equal elements is exactly 0.
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
    /// Padded with zeros to whole panels.
    weights: Vec<f64>,
    total: f64,
}

/// Centers and scales rows for the kernel. Values are clamped to ±[`MAX_FEATURE`], where the kernel is 0 anyway.
fn prepare(rows: &[f32], center: &[f64], scale: f64, out: &mut Vec<f32>) {
    let far = f64::from(MAX_FEATURE);
    out.clear();
    for row in rows.chunks_exact(center.len()) {
        let scaled = row.iter().zip(center).map(|(&x, c)| (f64::from(x) - c) * scale);
        out.extend(scaled.map(|v| v.clamp(-far, far) as f32));
    }
}

impl Machine {
    /// The sum of all weights, an upper bound of `f`.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// Writes `f` of each row to `out`.
    pub(super) fn sums(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        prepare(rows.features, &self.center, self.scale, &mut scratch.f32s[0]);
        self.points.sums(&scratch.f32s[0], &self.weights, out, &mut scratch.f64s);
    }

    /// [`Machine::sums`] in a graph of ONNX.
    pub(super) fn sums_to_onnx(&self, graph: &mut Builder, features: Value) -> Result<Value> {
        let (count, width) = (self.points.count(), self.points.width());
        let center = graph.constant(&[1, width], &self.center);
        let x = graph.op("Sub", &[features, center]);
        let x = graph.scale(x, self.scale);
        let x = graph.clamp(x, f64::from(MAX_FEATURE), 0.0);
        let x = graph.cast(x, Type::F32);
        let x = graph.cast(x, Type::F64);
        let points = graph.constant_wide(&[count, width], &self.points.rows());
        let (x, points) = (graph.with_squares(x), graph.distance_matrix(points));
        let weights = graph.constant(&[count, 1], &self.weights[..count]);
        graph.by_blocks(x, width + 2, count, |graph, x| {
            let squares = graph.distances(x, points);
            let power = graph.op("Neg", &[squares]);
            let kernel = graph.op("Exp", &[power]);
            let sums = graph.op("MatMul", &[kernel, weights]);
            let axis = graph.constant_i64(&[1], &[1]);
            Ok(graph.op("Squeeze", &[sums, axis]))
        })
    }

    /// Stores the support vectors.
    pub(super) fn save(&self, state: &mut StateDict) {
        let (count, width) = (self.points.count(), self.points.width());
        state.put_f64("center", &[width], &self.center);
        state.put_f64("scale", &[1], &[self.scale]);
        state.put_f32("support", &[count, width], &self.points.rows());
        state.put_f64("weights", &[count], &self.weights[..count]);
    }

    /// Loads the support vectors.
    pub(super) fn load(state: &mut StateDict) -> Result<Machine> {
        let [count, width] = state.shape("support")?;
        if count == 0 || width == 0 || width != state.width() {
            return Err(state.invalid("the support vectors have an invalid shape"));
        }
        let center = state.take_f64("center", &[width])?;
        let scale = state.take_f64("scale", &[1])?[0];
        let support = state.take_f32("support", &[count, width])?;
        let mut weights = state.take_f64("weights", &[count])?;
        if scale <= 0.0 || weights.iter().any(|&w| !(w > 0.0 && w <= 1.0)) {
            return Err(state.invalid("a weight or the scale is out of range"));
        }
        weights.resize(count.next_multiple_of(NR), 0.0);
        Ok(Machine { center, scale, points: Points::new(&support, width), total: weights.iter().sum(), weights })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::detector::{FitDetector, Fitted};

    pub(crate) fn fit<C: FitDetector>(config: &C, features: &[f32], width: usize) -> Fitted<C> {
        let rows = Features { count: features.len() / width, features, logits: &[] };
        let training = Training { rows, seed: 3, ..Training::default() };
        Fitted::new(config, &training, &Pool::new(1)).unwrap()
    }

    pub(crate) fn score<C: FitDetector>(fitted: &Fitted<C>, features: &[f32]) -> Vec<f64> {
        let rows = Features { count: features.len() / fitted.width(), features, logits: &[] };
        fitted.score(&rows, &Pool::new(1)).unwrap()
    }
}
