//! Virtual-logit matching (ViM): the energy of the logits minus a virtual logit, the norm of the features' residual
//! outside of the principal subspace: `log sum_k exp(l_k) - alpha |R (x - u)|`.
//!
//! - The origin `u = -W^+ b` is where all logits of the last layer are 0. In the pseudo-inverse, singular values of W below
//!   1e-6 of the largest count as 0.
//! - `R` projects onto the eigenvectors of `X^T X / n` of the training features around `u`, without the largest `dim`.
//! - `alpha` scales the virtual logit to the size of the others: the sum of the training rows' largest logits divided by
//!   the sum of their residual norms.
//!
//! `dim` follows the paper's rule: 1000 for 2048 features or more, 512 for 768 or more, otherwise half of the features.
//!
//! Not in the paper: if the training rows have no residual, 1e-5 of their distance from the origin is used instead, which
//! is above rounding errors, so that `alpha` is finite. If the sum of the largest logits is negative, its absolute value
//! is used; otherwise a larger residual would mean a higher confidence.

use serde::{Deserialize, Serialize};

use super::energy::log_sum_exp;
use super::last_layer::LinearLayer;
use super::{
    About, BLOCK, Detector, DetectorBuffers, Features, FitDetector, MAX_FEATURE, MAX_SQUARE_WIDTH, Needs, StateDict,
    Training, out_of_range,
};
use crate::compute::argmax;
use crate::compute::gemm::{Line, Panels, Then, ZERO, pack_transposed, product};
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores, wide};
use crate::stats::{Eigen, moments};

/// Squared singular values of the last layer below this fraction of the largest count as 0.
const RANK_TOLERANCE: f64 = 1e-12;
/// The smallest residual of the training rows, relative to their distance from the origin.
const MIN_RESIDUAL: f64 = 1e-5;

/// Settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The dimension of the principal subspace, 0 or more and below the number of features. Default (auto): the paper's
    /// rule.
    pub dim: Option<usize>,
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "vim",
            summary: "energy minus a virtual logit, the residual of the features outside of the principal subspace",
            reference: "Wang, Li, Feng, Zhang: ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022",
            needs: Needs { features: true, logits: true, linear: true, ..Needs::NONE },
        }
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let width = rows.width();
        let dim = self.dim.unwrap_or(match width {
            2048.. => 1000,
            768.. => 512,
            _ => width / 2,
        });
        if dim >= width {
            return Err(out_of_range("dim", dim, &format!("below the number of features, {width}")));
        }
        let origin = origin(&LinearLayer::of(training, pool)?);
        let scatter = moments::scatter(rows.features, width, &|_, c| c.copy_from_slice(&origin), pool);
        let residual = Eigen::of(&scatter, width).vectors[dim * width..].iter().map(|&v| v as f32).collect();
        let mut vim = Vim::new(origin, residual, 1.0);
        vim.alpha = vim.match_logits(rows, pool);
        Ok(Box::new(vim))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let [count, width] = state.shape("residual")?;
        if count == 0 || count > width || width != state.width() {
            return Err(state.invalid("the subspace has an invalid shape"));
        }
        let origin = state.take_f32("origin", &[width])?;
        let residual = state.take_f32("residual", &[count, width])?;
        let alpha = state.take_f64("alpha", &[1])?[0];
        if !(0.0..=1e100).contains(&alpha) || origin.iter().any(|v| v.abs() > MAX_FEATURE) {
            return Err(state.invalid("alpha or the origin is out of range"));
        }
        // Eigenvectors have norm 1, with a tolerance for rounding.
        if residual.iter().any(|v| v.abs() > 1.001) {
            return Err(state.invalid("an eigenvector is out of range"));
        }
        Ok(Box::new(Vim::new(origin, residual, alpha)))
    }
}

/// `-W^+ b`, computed from the smaller of `W W^T` and `W^T W`.
fn origin(layer: &LinearLayer) -> Vec<f32> {
    let (width, classes) = (layer.width, layer.classes());
    let mut u = vec![0.0f64; width];
    if classes <= width {
        // -W^T (W W^T)^+ b
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
        let gram = square(classes, |i, j| dot(layer.class(i), layer.class(j)));
        for (k, c) in solve(&gram, &layer.bias).into_iter().enumerate() {
            u.iter_mut().zip(layer.class(k)).for_each(|(u, &w)| *u -= c * f64::from(w));
        }
    } else {
        // -(W^T W)^+ W^T b
        let mut gram = vec![0.0; width * width];
        let mut right = vec![0.0; width];
        for (w, b) in layer.weight.chunks_exact(width).zip(&layer.bias) {
            for ((row, right), &a) in gram.chunks_exact_mut(width).zip(&mut right).zip(w) {
                row.iter_mut().zip(w).for_each(|(g, &c)| *g += f64::from(a) * f64::from(c));
                *right += f64::from(a) * b;
            }
        }
        u = solve(&gram, &right).into_iter().map(|v| -v).collect();
    }
    let far = f64::from(MAX_FEATURE);
    u.into_iter().map(|v| v.clamp(-far, far) as f32).collect()
}

fn square(n: usize, f: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..n * n).map(|ij| f(ij / n, ij % n)).collect()
}

/// `A^+ b` for a positive semidefinite matrix.
fn solve(matrix: &[f64], b: &[f64]) -> Vec<f64> {
    let eigen = Eigen::of(matrix, b.len());
    let mut x = vec![0.0; b.len()];
    for i in 0..eigen.rank(RANK_TOLERANCE) {
        let v = eigen.vector(i);
        let along = v.iter().zip(b).map(|(v, b)| v * b).sum::<f64>() / eigen.values[i];
        x.iter_mut().zip(v).for_each(|(x, v)| *x += along * v);
    }
    x
}

struct Vim {
    origin: Vec<f32>,
    /// The eigenvectors outside of the principal subspace, `[count, width]`.
    residual: Vec<f32>,
    /// The same, packed for matrix products.
    lines: Vec<Line>,
    alpha: f64,
}

impl Vim {
    fn new(origin: Vec<f32>, residual: Vec<f32>, alpha: f64) -> Vim {
        let width = origin.len();
        let count = residual.len() / width;
        let mut lines = vec![ZERO; Panels::lines(width, count)];
        pack_transposed(&mut lines, &residual, width, count, 0);
        Vim { origin, residual, lines, alpha }
    }

    /// The norm of each row's residual outside of the principal subspace; leaves `x - u` in the first buffer.
    fn residuals(&self, features: &[f32], out: &mut [f64], buffers: &mut [Vec<f32>; 2]) {
        let width = self.origin.len();
        let count = self.residual.len() / width;
        let [centered, parts] = buffers;
        centered.clear();
        for x in features.chunks_exact(width) {
            centered.extend(x.iter().zip(&self.origin).map(|(x, u)| x - u));
        }
        parts.clear();
        parts.resize(out.len() * count, 0.0);
        product(centered, Panels::new(&self.lines, width, count), parts, Then::Keep);
        for (out, part) in out.iter_mut().zip(parts.chunks_exact(count)) {
            *out = norm(part);
        }
    }

    /// The `alpha` that scales residuals to the size of the logits.
    fn match_logits(&self, rows: &Features, pool: &Pool) -> f64 {
        let width = self.origin.len();
        // Each row's residual and its distance from the origin.
        let mut norms = vec![[0.0f64; 2]; rows.count];
        pool.split(chunks(&mut norms, BLOCK), |i, norms| {
            let mut buffers = <[Vec<f32>; 2]>::default();
            let mut residuals = vec![0.0; norms.len()];
            let from = i * BLOCK * width;
            self.residuals(&rows.features[from..from + norms.len() * width], &mut residuals, &mut buffers);
            for ((norms, residual), x) in norms.iter_mut().zip(residuals).zip(buffers[0].chunks_exact(width)) {
                *norms = [residual, norm(x)];
            }
        });
        let [residual, distance] = norms.iter().fold([0.0, 0.0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
        let logits: f64 = rows.logits.chunks_exact(rows.classes()).map(|l| l[argmax(l)]).sum();
        let residual = residual.max(MIN_RESIDUAL * distance);
        if residual > 0.0 { (logits.abs() / residual).min(1e100) } else { 1.0 }
    }
}

fn norm(v: &[f32]) -> f64 {
    libm::sqrt(v.iter().map(|&v| f64::from(v) * f64::from(v)).sum())
}

impl Detector for Vim {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        self.residuals(rows.features, out, &mut scratch.f32s);
        for (i, out) in out.iter_mut().enumerate() {
            *out = log_sum_exp(rows.logit_row(i), 1.0) - self.alpha * *out;
        }
    }

    fn save(&self, state: &mut StateDict) {
        let width = self.origin.len();
        state.put_f32("origin", &[width], &self.origin);
        state.put_f32("residual", &[self.residual.len() / width, width], &self.residual);
        state.put_f64("alpha", &[1], &[self.alpha]);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let width = self.origin.len();
        let origin = graph.constant(&[1, width], &wide(&self.origin));
        let centered = graph.op("Sub", &[rows.features()?, origin]);
        let parts = graph.times(centered, &wide(&self.residual), width);
        let squares = graph.squares(parts, false);
        let norm = graph.op("Sqrt", &[squares]);
        let virtual_logit = graph.scale(norm, self.alpha);
        let energy = graph.log_sum_exp(rows.logits()?, 1.0);
        Ok(Scores { confidence: graph.op("Sub", &[energy, virtual_logit]), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::last_layer::tests::{Example, naive};
    use super::*;
    use crate::detector::{DetectorConfig, Fitted};

    fn scores(config: &Config, e: &Example, test: &Example, given: bool) -> Vec<f64> {
        let pool = Pool::new(1);
        let config = DetectorConfig::from(config.clone());
        Fitted::new(&config, &e.training(given), &pool).unwrap().score(&test.rows(), &pool).unwrap()
    }

    fn close(a: &[f64], b: &[f64], tolerance: f64) {
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}");
        }
    }

    /// In f64, with the residual as the features minus their projection onto the principal subspace.
    fn by_definition(e: &Example, test: &Example, dim: usize) -> Vec<f64> {
        let width = e.width;
        let layer = LinearLayer::of(&e.training(true), &Pool::new(1)).unwrap();
        let u: Vec<f64> = origin(&layer).iter().map(|&v| f64::from(v)).collect();
        let centered = |e: &Example| -> Vec<Vec<f64>> {
            e.features.chunks(width).map(|x| x.iter().zip(&u).map(|(&x, u)| f64::from(x) - u).collect()).collect()
        };
        let x = centered(e);
        let covariance = square(width, |i, j| x.iter().map(|x| x[i] * x[j]).sum::<f64>() / e.count as f64);
        let eigen = Eigen::of(&covariance, width);
        let residual = |x: &Vec<f64>| {
            let mut left = x.clone();
            for i in 0..dim {
                let along: f64 = x.iter().zip(eigen.vector(i)).map(|(x, v)| x * v).sum();
                left.iter_mut().zip(eigen.vector(i)).for_each(|(l, v)| *l -= along * v);
            }
            left.iter().map(|v| v * v).sum::<f64>().sqrt()
        };
        let top: f64 = e.logits.chunks(e.classes).map(|l| l.iter().fold(f64::MIN, |m, &v| m.max(v))).sum();
        // The absolute value: with one feature, most logits of this example are negative.
        let alpha = top.abs() / x.iter().map(residual).sum::<f64>();
        let energy = test.logits.chunks(e.classes).map(|l| l.iter().map(|v| v.exp()).sum::<f64>().ln());
        energy.zip(centered(test)).map(|(e, x)| e - alpha * residual(&x)).collect()
    }

    #[test]
    fn matches_definition_with_given_and_estimated_layer() {
        for (width, classes, dim) in [(8, 3, None), (6, 11, Some(2)), (1, 2, None), (5, 3, Some(0))] {
            let (e, test) = (Example::new(400, width, classes, 1), Example::new(50, width, classes, 2));
            let config = Config { dim };
            let expected = by_definition(&e, &test, dim.unwrap_or(width / 2));
            close(&scores(&config, &e, &test, true), &expected, 1e-4);
            close(&scores(&config, &e, &test, false), &expected, 1e-4);
        }
    }

    #[test]
    fn logits_at_the_origin_are_zero() {
        let e = Example::new(10, 7, 4, 1);
        let layer = LinearLayer::of(&e.training(true), &Pool::new(1)).unwrap();
        assert!(naive(&origin(&layer), &e.weight, &e.bias, 7).iter().all(|l| l.abs() < 1e-4));
        // More classes than features: the normal equations W^T (W u + b) = 0.
        let e = Example::new(10, 3, 8, 1);
        let layer = LinearLayer::of(&e.training(true), &Pool::new(1)).unwrap();
        let logits = naive(&origin(&layer), &e.weight, &e.bias, 3);
        for j in 0..3 {
            let sum: f64 = e.weight.chunks(3).zip(&logits).map(|(w, l)| f64::from(w[j]) * l).sum();
            assert!(sum.abs() < 1e-4, "{sum}");
        }
        // Two classes with the same weights: the minimum-norm solution.
        let layer = LinearLayer { width: 2, weight: vec![1.0, 0.0, 1.0, 0.0], bias: vec![2.0, 4.0] };
        assert_eq!(origin(&layer), [-3.0, 0.0]);
    }

    #[test]
    fn alpha_is_finite_without_a_residual() {
        let mut e = Example::new(200, 6, 3, 1);
        // No bias, so the origin is 0; only three of six features vary.
        e.bias.fill(0.0);
        e.features.chunks_mut(6).for_each(|x| x[3..].fill(0.0));
        e.update_logits();
        let mut test = Example::new(20, 6, 3, 2);
        test.logits.fill(0.0);
        for given in [true, false] {
            let own = scores(&Config { dim: Some(3) }, &e, &e, given);
            let outside = scores(&Config { dim: Some(3) }, &e, &test, given);
            assert!(own.iter().all(|s| s.is_finite()));
            let least = own.iter().fold(f64::INFINITY, |m, &v| m.min(v));
            assert!(outside.iter().all(|s| s.is_finite() && *s < least));
        }
    }

    #[test]
    fn degenerate_rows_are_finite_with_estimated_layer() {
        let test = Example::new(20, 4, 3, 2);
        for value in [0.0, 1.0, 1e15, -1e15] {
            let mut e = Example::new(50, 4, 3, 1);
            e.features.fill(value);
            e.update_logits();
            assert!(scores(&Config::default(), &e, &test, false).iter().all(|s| s.is_finite()));
        }
        let one = Example::new(1, 4, 3, 1);
        assert!(scores(&Config::default(), &one, &test, false).iter().all(|s| s.is_finite()));
    }

    #[test]
    fn dim_must_be_below_the_width() {
        let e = Example::new(50, 4, 3, 1);
        let config = DetectorConfig::parse("vim:dim=4").unwrap();
        let error = Fitted::new(&config, &e.training(true), &Pool::new(1)).err().unwrap();
        assert!(error.to_string().contains("dim is 4"), "{error}");
        assert_eq!(DetectorConfig::parse("vim:dim=auto").unwrap(), Config::default().into());
    }
}
