//! The linear layer between features and logits, for detectors that use its weights.
//!
//! If it is not given, it is estimated from the features and logits of the training rows: the minimum-norm least-squares
//! solution with an intercept. Both are centered, and the normal equations are solved in f64 by the eigenvectors of the
//! features' scatter. Directions in which the features do not vary (dead columns, duplicates, fewer rows than features)
//! get no weight. It is an error if the logits are not a linear function of the features.

use super::Training;
use crate::compute::gemm::{Line, Panels, Then, ZERO, pack_transposed, product};
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};
use crate::error::{Error, Result};
use crate::stats::{Eigen, moments};

/// Eigenvalues below this fraction of the largest are rounding errors: the features are f32, so a column that is a
/// combination of others is one up to 1e-7, squared.
const RANK_TOLERANCE: f64 = 1e-11;
/// The largest root mean square error of a layer, relative to that of the centered logits.
const MAX_ERROR: f64 = 1e-3;
/// The rounding error of f32, relative to the largest value.
const ROUNDING: f64 = 1e-7;
/// The largest absolute weight. Larger ones are clamped, so that products with features stay finite in f32.
const MAX_WEIGHT: f32 = 1e15;
/// Rows that are summed at a time.
const BLOCK: usize = 512;

/// The layer `logits = features weight^T + bias`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinearLayer {
    /// The number of features.
    pub(super) width: usize,
    /// `[classes, width]`.
    pub(super) weight: Vec<f32>,
    /// `[classes]`.
    pub(super) bias: Vec<f64>,
}

impl LinearLayer {
    /// The given layer, or the one estimated from the training rows.
    ///
    /// # Errors
    /// If the features are of several layers, the given layer has another shape, or the logits are not a linear function
    /// of the features.
    pub(super) fn of(training: &Training, pool: &Pool) -> Result<LinearLayer> {
        if training.parts.len() > 1 {
            return Err(Error::setting("the features are of several layers, and this detector takes one")
                .hint("give the features of the layer right before the logits only"));
        }
        let (width, classes) = (training.rows.width(), training.rows.classes());
        let Some(given) = training.last_layer else { return LinearLayer::estimate(training, pool) };
        if given.weight.len() != width * classes || given.bias.len() != classes {
            return Err(Error::data(format!(
                "the last layer must have {classes} x {width} weights and {classes} biases"
            )));
        }
        if given.weight.iter().chain(given.bias).any(|v| !v.is_finite()) {
            return Err(Error::data("a weight of the last layer is not a finite number"));
        }
        let weight = given.weight.iter().map(|v| v.clamp(-MAX_WEIGHT, MAX_WEIGHT)).collect();
        Ok(LinearLayer { width, weight, bias: given.bias.iter().map(|&v| f64::from(v)).collect() })
    }

    fn estimate(training: &Training, pool: &Pool) -> Result<LinearLayer> {
        let rows = &training.rows;
        let (width, classes) = (rows.width(), rows.classes());
        let mut means = moments::mean(rows.features, width);
        let mut logit_means = vec![0.0; classes];
        for l in rows.logits.chunks_exact(classes) {
            logit_means.iter_mut().zip(l).for_each(|(m, v)| *m += v / rows.count as f64);
        }
        means.extend(&logit_means);
        let Normal { scatter, cross, squares } = Normal::of(training, &means, pool);
        let eigen = Eigen::of(&scatter, width);
        let rank = eigen.rank(RANK_TOLERANCE);
        let mut solution = vec![0.0; classes * width];
        let mut explained = 0.0;
        let mut along = vec![0.0; classes];
        for (i, value) in eigen.values.iter().enumerate().take(rank) {
            along.fill(0.0);
            for (v, cross) in eigen.vector(i).iter().zip(cross.chunks_exact(classes)) {
                along.iter_mut().zip(cross).for_each(|(a, c)| *a += v * c);
            }
            for (weight, a) in solution.chunks_exact_mut(width).zip(&along) {
                explained += a / value * a;
                weight.iter_mut().zip(eigen.vector(i)).for_each(|(w, v)| *w += a / value * v);
            }
        }
        // The rest of the sum of squares is the error. The logits may have been f32, whose rounding is not an error.
        let rounding = ROUNDING * rows.logits.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let missed = squares - explained - rows.logits.len() as f64 * rounding * rounding;
        if missed > MAX_ERROR * MAX_ERROR * squares {
            return Err(Error::data(format!(
                "the logits are not a linear function of the features: the best one is off by {:.2} %",
                100.0 * libm::sqrt(missed / squares)
            ))
            .hint("give the features of the layer right before the logits, or train a model with `method` softmax"));
        }
        let heavy = f64::from(MAX_WEIGHT);
        let weight: Vec<f32> = solution.iter().map(|v| v.clamp(-heavy, heavy) as f32).collect();
        // With the rounded weights, so that the mean of the logits is exact.
        let through =
            weight.chunks_exact(width).map(|w| w.iter().zip(&means).map(|(&w, m)| f64::from(w) * m).sum::<f64>());
        let bias = logit_means.iter().zip(through).map(|(l, t)| l - t).collect();
        Ok(LinearLayer { width, weight, bias })
    }

    /// The number of classes.
    pub(super) fn classes(&self) -> usize {
        self.bias.len()
    }

    /// The weights of a class.
    pub(super) fn class(&self, k: usize) -> &[f32] {
        &self.weight[k * self.width..(k + 1) * self.width]
    }

    /// Whether weights and biases are small enough for finite logits; those of a fit are.
    pub(super) fn is_in_range(&self) -> bool {
        self.weight.iter().all(|v| v.abs() <= MAX_WEIGHT) && self.bias.iter().all(|v| v.abs() <= 1e100)
    }

    /// Packs the layer for [`Packed::logits`].
    pub(super) fn pack(&self) -> Packed {
        let mut lines = vec![ZERO; Panels::lines(self.width, self.classes())];
        pack_transposed(&mut lines, &self.weight, self.width, self.classes(), 0);
        Packed { lines, width: self.width, bias: self.bias.clone() }
    }
}

/// A layer packed for matrix products.
pub(super) struct Packed {
    lines: Vec<Line>,
    width: usize,
    bias: Vec<f64>,
}

impl Packed {
    /// Computes the logits of rows of features, `[count, classes]`.
    pub(super) fn logits(&self, features: &[f32], products: &mut Vec<f32>, out: &mut Vec<f64>) {
        let classes = self.bias.len();
        products.clear();
        products.resize(features.len() / self.width * classes, 0.0);
        product(features, Panels::new(&self.lines, self.width, classes), products, Then::Keep);
        out.clear();
        for row in products.chunks_exact(classes) {
            out.extend(row.iter().zip(&self.bias).map(|(&v, b)| f64::from(v) + b));
        }
    }
}

/// The normal equations of centered features and logits.
struct Normal {
    /// `X^T X`, `[width, width]`.
    scatter: Vec<f64>,
    /// `X^T L`, `[width, classes]`.
    cross: Vec<f64>,
    /// The sum of the squared centered logits.
    squares: f64,
}

impl Normal {
    /// `means` are those of the features, followed by those of the logits. Every element is one sum over blocks of rows in
    /// their order, for any number of threads.
    fn of(training: &Training, means: &[f64], pool: &Pool) -> Normal {
        let rows = &training.rows;
        let (width, classes) = (rows.width(), rows.classes());
        let all = width + classes;
        let mut sums = vec![0.0; width * all];
        let mut squares = 0.0;
        let mut columns = vec![0.0; all * BLOCK];
        for from in (0..rows.count).step_by(BLOCK) {
            let count = BLOCK.min(rows.count - from);
            pool.split(chunks(&mut columns, BLOCK), |c, column| {
                for (r, v) in column.iter_mut().enumerate() {
                    // A short block is padded with zeros.
                    *v = if r >= count {
                        0.0
                    } else if c < width {
                        f64::from(rows.features[(from + r) * width + c]) - means[c]
                    } else {
                        rows.logits[(from + r) * classes + c - width] - means[c]
                    };
                }
            });
            pool.split(chunks(&mut sums, all), |i, sums| {
                let column = |j: usize| &columns[j * BLOCK..(j + 1) * BLOCK];
                simd::dispatch(Dots { one: column(i), many: &columns[i * BLOCK..], out: &mut sums[i..] });
            });
            squares += columns[width * BLOCK..].iter().map(|v| v * v).sum::<f64>();
        }
        let mut normal =
            Normal { scatter: vec![0.0; width * width], cross: Vec::with_capacity(width * classes), squares };
        for i in 0..width {
            for j in 0..width {
                // Only the upper triangle was summed.
                normal.scatter[i * width + j] = sums[i.min(j) * all + i.max(j)];
            }
            normal.cross.extend(&sums[i * all + width..(i + 1) * all]);
        }
        normal
    }
}

/// Adds the inner product of one column with each of many contiguous columns to `out`.
struct Dots<'a> {
    one: &'a [f64],
    many: &'a [f64],
    out: &'a mut [f64],
}

impl Kernel for Dots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        const LANES: usize = 16;
        for (other, out) in self.many.chunks_exact(self.one.len()).zip(self.out) {
            let mut sums = [0.0f64; LANES];
            for (a, b) in self.one.as_chunks::<LANES>().0.iter().zip(other.as_chunks::<LANES>().0) {
                for i in 0..LANES {
                    sums[i] = a[i].mul_add(b[i], sums[i]);
                }
            }
            *out += sums.iter().sum::<f64>();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::detector::{self, Features};
    use crate::error::Kind;
    use crate::seed::Stream;

    /// Features after a ReLU, and their logits under a linear layer.
    pub(crate) struct Example {
        pub count: usize,
        pub width: usize,
        pub classes: usize,
        pub features: Vec<f32>,
        pub weight: Vec<f32>,
        pub bias: Vec<f32>,
        pub logits: Vec<f64>,
    }

    impl Example {
        pub(crate) fn new(count: usize, width: usize, classes: usize, seed: u64) -> Example {
            let mut layer = Stream::new(3, "layer");
            let mut normal = |n: usize, size: f64| (0..n).map(|_| (size * layer.normal()) as f32).collect::<Vec<f32>>();
            let (weight, bias) = (normal(classes * width, 1.0), normal(classes, 2.0));
            let mut s = Stream::new(seed, "features");
            let features: Vec<f32> = (0..count * width).map(|_| (0.5 + s.normal()).max(0.0) as f32).collect();
            let mut example = Example { count, width, classes, features, weight, bias, logits: Vec::new() };
            example.update_logits();
            example
        }

        /// Recomputes the logits.
        pub(crate) fn update_logits(&mut self) {
            self.logits = naive(&self.features, &self.weight, &self.bias, self.width);
        }

        pub(crate) fn rows(&self) -> Features<'_> {
            Features { count: self.count, features: &self.features, logits: &self.logits }
        }

        /// With the layer, or without so that it is estimated.
        pub(crate) fn training(&self, given: bool) -> Training<'_> {
            let layer = detector::LastLayer { weight: &self.weight, bias: &self.bias };
            let last_layer = given.then_some(layer);
            Training { rows: self.rows(), classes: self.classes, last_layer, ..Training::default() }
        }
    }

    /// The logits, by definition.
    pub(crate) fn naive(features: &[f32], weight: &[f32], bias: &[f32], width: usize) -> Vec<f64> {
        let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>();
        let rows = features.chunks(width);
        rows.flat_map(|x| weight.chunks(width).zip(bias).map(move |(w, &b)| dot(x, w) + f64::from(b))).collect()
    }

    fn logits(layer: &LinearLayer, features: &[f32]) -> Vec<f64> {
        let mut out = Vec::new();
        layer.pack().logits(features, &mut Vec::new(), &mut out);
        out
    }

    fn close(a: &[f64], b: &[f64], tolerance: f64) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} {b}");
        }
    }

    #[test]
    fn full_rank_gives_the_layer() {
        for (count, width, classes) in [(40, 1, 2), (700, 12, 5), (2000, 30, 40)] {
            let e = Example::new(count, width, classes, 1);
            let found = LinearLayer::of(&e.training(false), &Pool::new(1)).unwrap();
            assert_eq!(found, LinearLayer::of(&e.training(false), &Pool::new(3)).unwrap());
            let given = LinearLayer::of(&e.training(true), &Pool::new(1)).unwrap();
            assert_eq!(given.weight, e.weight);
            for (a, b) in found.weight.iter().zip(&given.weight) {
                assert!((a - b).abs() < 1e-6 * (1.0 + b.abs()), "{a} {b}");
            }
            close(&found.bias, &given.bias, 1e-5);
            close(&logits(&found, &e.features), &e.logits, 1e-5);
            close(&logits(&given, &e.features), &e.logits, 1e-5);
        }
    }

    #[test]
    fn low_rank_gives_the_same_logits() {
        let mut e = Example::new(500, 10, 3, 1);
        for row in e.features.chunks_mut(10) {
            (row[2], row[5]) = (0.0, 3.5);
            row[7] = row[1] + row[3];
            row[8] = row[0];
        }
        e.update_logits();
        let found = LinearLayer::of(&e.training(false), &Pool::new(1)).unwrap();
        close(&logits(&found, &e.features), &e.logits, 1e-5);
        for k in 0..3 {
            // Constant columns get no weight, and duplicate columns get the same.
            let w = found.class(k);
            assert!(w[2].abs() < 1e-6 && w[5].abs() < 1e-6 && (w[0] - w[8]).abs() < 1e-5, "{w:?}");
        }
        // Fewer rows than features; one row; all rows equal.
        for count in [5, 1] {
            let e = Example::new(count, 10, 3, 2);
            let found = LinearLayer::of(&e.training(false), &Pool::new(1)).unwrap();
            close(&logits(&found, &e.features), &e.logits, 1e-4);
        }
        let mut same = Example::new(20, 4, 3, 1);
        same.features.fill(1e15);
        same.update_logits();
        let found = LinearLayer::of(&same.training(false), &Pool::new(1)).unwrap();
        assert!(logits(&found, &same.features).iter().all(|v| v.is_finite()));
    }

    #[test]
    fn nonlinear_logits_are_rejected() {
        let mut e = Example::new(300, 6, 3, 1);
        e.logits.iter_mut().for_each(|v| *v = v.abs());
        let error = LinearLayer::of(&e.training(false), &Pool::new(1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Data);
        assert!(error.to_string().contains("not a linear function"), "{error}");
        assert!(error.hint_text().unwrap().contains("right before the logits"));
        // Constant logits have no variance to explain, up to rounding.
        let mut e = Example::new(300, 6, 3, 1);
        e.logits.iter_mut().for_each(|v| *v = 0.1);
        let found = LinearLayer::of(&e.training(false), &Pool::new(1)).unwrap();
        close(&logits(&found, &e.features), &e.logits, 1e-6);
        e.features.fill(0.1);
        e.logits.iter_mut().enumerate().for_each(|(i, v)| *v = 0.1 * (i % 3) as f64);
        let found = LinearLayer::of(&e.training(false), &Pool::new(1)).unwrap();
        close(&logits(&found, &e.features), &e.logits, 1e-6);
        // Small noise is accepted, as in logits that were rounded in a file.
        let mut e = Example::new(300, 6, 3, 1);
        e.logits.iter_mut().for_each(|v| *v = (1e3 * *v).round() / 1e3);
        assert!(LinearLayer::of(&e.training(false), &Pool::new(1)).is_ok());
    }

    #[test]
    fn given_layer_is_checked() {
        let e = Example::new(30, 4, 3, 1);
        let pool = Pool::new(1);
        let with = |weight: &[f32], bias: &[f32]| {
            let last_layer = Some(detector::LastLayer { weight, bias });
            LinearLayer::of(&Training { last_layer, ..e.training(false) }, &pool)
        };
        assert!(with(&e.weight, &e.bias).is_ok());
        assert!(with(&e.weight[1..], &e.bias).is_err());
        assert!(with(&e.weight, &e.bias[1..]).is_err());
        assert!(with(&[f32::NAN; 12], &e.bias).is_err());
        assert!(with(&[f32::MAX; 12], &e.bias).is_ok());
        assert!(LinearLayer::of(&Training { parts: &[1, 3], ..e.training(true) }, &pool).is_err());
        assert!(LinearLayer::of(&Training { parts: &[4], ..e.training(true) }, &pool).is_ok());
    }
}
