//! One Gaussian per class: means, and tied, diagonal or full covariances.
//!
//! Squared Mahalanobis distances are `|W (x - mu)|^2` with a [`Whitening`] W. If the covariance is tied, a row is
//! multiplied by W once, and each class then takes a distance between two vectors.
//!
//! Covariances are the scatter divided by the number of rows. A class whose rows are all equal (or that has one row) gets
//! the tied covariance instead of its own. The standard deviation of a feature that is constant in a class is 1e-4 of its
//! standard deviation within classes. The distance to a class without rows is [`EMPTY_CLASS_DISTANCE`].

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub(crate) use super::covariance::Labeled;
use super::covariance::Moments;
use super::moments::scatter_of;
use super::whitening::{Whitening, dot, squared_distance};
use crate::compute::pool::Pool;
use crate::compute::simd::{self, Kernel, Simd};

/// The squared distance to a class without rows, larger than any other.
pub(crate) const EMPTY_CLASS_DISTANCE: f64 = 1e60;

/// The structure of the covariances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Covariance {
    /// One covariance for all classes, from the scatter of all rows around the means of their classes.
    #[default]
    Tied,
    /// One diagonal covariance per class: independent features.
    Diagonal,
    /// One full covariance per class.
    Full,
}

/// One Gaussian per class.
#[derive(Clone, Debug)]
pub(crate) struct Gaussians {
    covariance: Covariance,
    width: usize,
    counts: Vec<f64>,
    means: Vec<f64>,
    /// One, or one per class.
    whitenings: Vec<Whitening>,
    /// For a tied covariance: the mean of all rows.
    center: Vec<f64>,
    /// For a tied covariance: the whitened differences of the classes' means to `center`.
    whitened: Vec<f64>,
}

impl Gaussians {
    /// Fits the Gaussians. `shrinkage` is the weight of the identity, scaled to the same trace, in each covariance; `None`
    /// is the weight of Ledoit and Wolf, which is optimal on average for Gaussian rows.
    pub(crate) fn fit(sample: &Labeled, covariance: Covariance, shrinkage: Option<f64>, pool: &Pool) -> Gaussians {
        let moments = Moments::of(sample);
        let whitenings = match covariance {
            Covariance::Tied => vec![Whitening::full(&moments.tied(shrinkage, pool), sample.width)],
            Covariance::Diagonal => moments.diagonal(shrinkage),
            Covariance::Full => moments.full(shrinkage, pool),
        };
        Gaussians::new(covariance, moments.means, moments.counts.iter().map(|&n| n as f64).collect(), whitenings)
    }

    /// Fits the Gaussians of the classes with a tied covariance, and one Gaussian of all rows.
    pub(crate) fn with_background(sample: &Labeled, pool: &Pool) -> (Gaussians, Gaussians) {
        let moments = Moments::of(sample);
        let (width, rows) = (sample.width, sample.labels.len() as f64);
        let mut covariance = moments.tied(Some(0.0), pool);
        let shared = Whitening::full(&covariance, width);
        let counts: Vec<f64> = moments.counts.iter().map(|&n| n as f64).collect();
        let mean = weighted_mean(&moments.means, &counts);
        // Total scatter = within classes + between classes.
        let difference = |k: usize, out: &mut [f64]| {
            let weight = libm::sqrt(counts[k] / rows);
            for ((o, m), all) in out.iter_mut().zip(&moments.means[k * width..]).zip(&mean) {
                // Means that differ by rounding errors only are equal; otherwise a constant feature would vary.
                let same = (m - all).abs() <= 1e-12 * (m.abs() + all.abs());
                *o = if same { 0.0 } else { weight * (m - all) };
            }
        };
        let fill = |here: Range<usize>, out: &mut [f64]| {
            here.zip(out.chunks_exact_mut(width)).for_each(|(k, out)| difference(k, out));
        };
        let between = scatter_of(sample.classes, width, &fill, pool);
        covariance.iter_mut().zip(&between).for_each(|(c, b)| *c += b);
        let all = Whitening::full(&covariance, width);
        let background = Gaussians::new(Covariance::Tied, mean, vec![rows], vec![all]);
        (Gaussians::new(Covariance::Tied, moments.means, counts, vec![shared]), background)
    }

    /// Gaussians with these means, counts (or weights) and whitenings, whose shapes must match.
    pub(crate) fn new(
        covariance: Covariance,
        means: Vec<f64>,
        counts: Vec<f64>,
        whitenings: Vec<Whitening>,
    ) -> Gaussians {
        let width = means.len().checked_div(counts.len()).unwrap_or(0);
        let (mut center, mut whitened) = (Vec::new(), Vec::new());
        if let (Covariance::Tied, Some(shared)) = (covariance, whitenings.first()) {
            center = weighted_mean(&means, &counts);
            for mean in means.chunks_exact(width.max(1)) {
                let difference: Vec<f64> = mean.iter().zip(&center).map(|(m, c)| m - c).collect();
                whitened.extend(shared.apply_wide(&difference));
            }
        }
        Gaussians { covariance, width, counts, means, whitenings, center, whitened }
    }

    /// As [`Gaussians::new`], for parts from a file; `None` if they are invalid.
    pub(crate) fn from_parts(
        covariance: Covariance,
        means: Vec<f64>,
        counts: Vec<f64>,
        whitenings: Vec<Whitening>,
    ) -> Option<Gaussians> {
        let width = whitenings.first()?.scale().len();
        let classes = counts.len();
        let each = if covariance == Covariance::Tied { 1 } else { classes };
        let dense = covariance != Covariance::Diagonal;
        let fits = width > 0
            && Some(means.len()) == classes.checked_mul(width)
            && means.iter().all(|m| m.abs() <= 1e16)
            && counts.iter().all(|&n| (0.0..1e18).contains(&n))
            && counts.iter().any(|&n| n > 0.0)
            && whitenings.len() == each
            && whitenings.iter().all(|w| w.scale().len() == width && w.matrix().is_empty() != dense);
        fits.then(|| Gaussians::new(covariance, means, counts, whitenings))
    }

    /// The structure of the covariances.
    pub(crate) fn covariance(&self) -> Covariance {
        self.covariance
    }

    /// The number of features per row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.counts.len()
    }

    /// The number of rows of each class; for a mixture, the weights of the components.
    pub(crate) fn counts(&self) -> &[f64] {
        &self.counts
    }

    /// The mean of each class, one after the other.
    pub(crate) fn means(&self) -> &[f64] {
        &self.means
    }

    /// The whitenings: one, or one per class.
    pub(crate) fn whitenings(&self) -> &[Whitening] {
        &self.whitenings
    }

    /// The logarithm of the fraction of rows in each class; `-`[`EMPTY_CLASS_DISTANCE`] for a class without rows.
    pub(crate) fn log_priors(&self) -> Vec<f64> {
        let all: f64 = self.counts.iter().sum();
        self.counts.iter().map(|&n| if n > 0.0 { libm::log(n / all) } else { -EMPTY_CLASS_DISTANCE }).collect()
    }

    fn whitening(&self, class: usize) -> &Whitening {
        &self.whitenings[if self.whitenings.len() == 1 { 0 } else { class }]
    }

    /// Computes the squared distance of each row to each class, `[count, classes]`.
    pub(crate) fn distances(&self, x: &[f32], out: &mut [f64], buffers: &mut [Vec<f32>; 2]) {
        let classes = self.classes();
        let count = out.len() / classes.max(1);
        if self.covariance == Covariance::Tied {
            self.whitenings[0].apply(x, &self.center, buffers);
            simd::dispatch(Distances { y: &buffers[1], width: self.width, means: &self.whitened, classes, out });
            self.refine(x, &buffers[0], out);
        } else {
            let mut own = vec![0.0; count];
            let origin = vec![0.0; self.width];
            for k in (0..classes).filter(|&k| self.counts[k] > 0.0) {
                self.whitenings[k].apply(x, &self.means[k * self.width..(k + 1) * self.width], buffers);
                let y = &buffers[1];
                simd::dispatch(Distances { y, width: self.width, means: &origin, classes: 1, out: &mut own });
                out.iter_mut().skip(k).step_by(classes).zip(&own).for_each(|(o, d)| *o = *d);
            }
        }
        for k in (0..classes).filter(|&k| self.counts[k] == 0.0) {
            out.iter_mut().skip(k).step_by(classes).for_each(|o| *o = EMPTY_CLASS_DISTANCE);
        }
    }

    /// Recomputes the rows whose distances may have a relative error above 1e-4 from f32: rows that are far from the mean
    /// of all data and close to a class.
    fn refine(&self, x: &[f32], standardized: &[f32], out: &mut [f64]) {
        let size = |v: &[f32]| libm::sqrt(v.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>());
        // An upper bound of the rounding error of the standardized row after the product with the matrix.
        let growth = size(self.whitenings[0].matrix()).max(1.0) * f64::from(f32::EPSILON);
        let rows = x.chunks_exact(self.width).zip(standardized.chunks_exact(self.width));
        for ((x, z), out) in rows.zip(out.chunks_exact_mut(self.classes())) {
            if growth * size(z) > 5e-5 * libm::sqrt(nearest(out)) {
                self.distances_wide(x, out);
            }
        }
    }

    /// The squared distances of one row to the classes that have rows, in f64.
    pub(crate) fn distances_wide(&self, x: &[f32], out: &mut [f64]) {
        for (k, o) in out.iter_mut().enumerate().filter(|(k, _)| self.counts[*k] > 0.0) {
            let mean = &self.means[k * self.width..(k + 1) * self.width];
            let difference: Vec<f64> = x.iter().zip(mean).map(|(&x, m)| f64::from(x) - m).collect();
            let y = self.whitening(k).apply_wide(&difference);
            *o = dot(&y, &y);
        }
    }

    /// Computes `log N(x | class)` of each row for each class, without the constant `-width/2 log(2 pi)`,
    /// `[count, classes]`.
    pub(crate) fn log_densities(&self, x: &[f32], out: &mut [f64], buffers: &mut [Vec<f32>; 2]) {
        self.distances(x, out, buffers);
        let log_dets: Vec<f64> = (0..self.classes()).map(|k| self.whitening(k).log_det()).collect();
        for row in out.chunks_exact_mut(log_dets.len().max(1)) {
            for (o, log_det) in row.iter_mut().zip(&log_dets) {
                *o = if *o == EMPTY_CLASS_DISTANCE { -EMPTY_CLASS_DISTANCE } else { -0.5 * (*o + log_det) };
            }
        }
    }

    /// The gradient of minus the squared distance to the nearest class, at one row.
    pub(crate) fn confidence_gradient(&self, x: &[f32], out: &mut [f32]) {
        let mut distances = vec![0.0; self.classes()];
        self.distances(x, &mut distances, &mut Default::default());
        let nearest = (1..distances.len()).fold(0, |best, k| if distances[k] < distances[best] { k } else { best });
        let mean = &self.means[nearest * self.width..(nearest + 1) * self.width];
        let difference: Vec<f64> = x.iter().zip(mean).map(|(&x, m)| f64::from(x) - m).collect();
        let w = self.whitening(nearest);
        let back = w.transposed(&w.apply_wide(&difference));
        // For such large values only the direction matters.
        let largest = f64::from(f32::MAX);
        out.iter_mut().zip(back).for_each(|(o, b)| *o = (-2.0 * b).clamp(-largest, largest) as f32);
    }
}

/// The squared distances in f64 between whitened rows and whitened means.
struct Distances<'a> {
    y: &'a [f32],
    width: usize,
    means: &'a [f64],
    classes: usize,
    out: &'a mut [f64],
}

impl Kernel for Distances<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut wide = vec![0.0f64; self.width];
        for (y, out) in self.y.chunks_exact(self.width).zip(self.out.chunks_exact_mut(self.classes)) {
            wide.iter_mut().zip(y).for_each(|(w, &y)| *w = f64::from(y));
            for (o, mean) in out.iter_mut().zip(self.means.chunks_exact(self.width)) {
                *o = squared_distance(&wide, mean);
            }
        }
    }
}

/// The smallest of some distances.
pub(crate) fn nearest(distances: &[f64]) -> f64 {
    distances.iter().copied().fold(f64::INFINITY, f64::min)
}

fn weighted_mean(means: &[f64], counts: &[f64]) -> Vec<f64> {
    let width = means.len().checked_div(counts.len()).unwrap_or(0);
    let all: f64 = counts.iter().sum();
    let mut sum = vec![0.0; width];
    for (mean, n) in means.chunks_exact(width.max(1)).zip(counts) {
        sum.iter_mut().zip(mean).for_each(|(s, m)| *s += n / all * m);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use nalgebra::{DMatrix, DVector};
    use proptest::prelude::*;

    struct Data {
        x: Vec<f32>,
        labels: Vec<u32>,
        width: usize,
    }

    impl Data {
        /// Correlated rows of two classes out of three; the third has none.
        fn new(rows: usize, width: usize, seed: u64) -> Data {
            let mut s = Stream::new(seed, "gaussians");
            let mix: Vec<f64> = (0..width * width).map(|_| s.normal()).collect();
            let mut x = Vec::new();
            let labels: Vec<u32> = (0..rows).map(|r| 2 * (r % 2) as u32).collect();
            for &y in &labels {
                let z: Vec<f64> = (0..width).map(|_| s.normal()).collect();
                for i in 0..width {
                    let v: f64 = (0..width).map(|j| mix[i * width + j] * z[j] * (1.0 + f64::from(y))).sum();
                    x.push((v + 5.0 + 3.0 * f64::from(y) * i as f64) as f32);
                }
            }
            Data { x, labels, width }
        }

        fn sample(&self) -> Labeled<'_> {
            Labeled { x: &self.x, width: self.width, labels: &self.labels, classes: 3 }
        }

        /// The rows of one class, or of all, minus the mean of their class.
        fn centered(&self, class: Option<u32>) -> DMatrix<f64> {
            let row = |r: usize| DVector::from_fn(self.width, |j, _| f64::from(self.x[r * self.width + j]));
            let mut out = Vec::new();
            for k in (0..3).filter(|&k| class.is_none_or(|c| c == k)) {
                let own: Vec<_> = (0..self.labels.len()).filter(|&r| self.labels[r] == k).map(row).collect();
                let mean = self.mean(k);
                out.extend(own.into_iter().map(|x| (x - &mean).transpose()));
            }
            DMatrix::from_rows(&out)
        }

        fn mean(&self, class: u32) -> DVector<f64> {
            let mut sum = DVector::zeros(self.width);
            let mut n = 0.0;
            for (x, _) in self.x.chunks(self.width).zip(&self.labels).filter(|(_, y)| **y == class) {
                sum += DVector::from_fn(self.width, |j, _| f64::from(x[j]));
                n += 1.0;
            }
            sum / f64::max(n, 1.0)
        }
    }

    fn distances(g: &Gaussians, x: &[f32]) -> Vec<f64> {
        let mut out = vec![0.0; x.len() / g.width() * g.classes()];
        g.distances(x, &mut out, &mut Default::default());
        out
    }

    fn close(got: f64, expected: f64, what: &str) {
        assert!((got - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{what}: {got} {expected}");
    }

    /// Ledoit and Wolf by definition, from the squared error of each row.
    fn shrunk(x: &DMatrix<f64>) -> DMatrix<f64> {
        let (n, d) = (x.nrows() as f64, x.ncols());
        let s = x.transpose() * x / n;
        let target = DMatrix::identity(d, d) * (s.trace() / d as f64);
        let difference = (&s - &target).norm_squared();
        let errors: f64 = x.row_iter().map(|r| (r.transpose() * r - &s).norm_squared()).sum();
        let weight = (errors / (n * n)).min(difference) / difference;
        s * (1.0 - weight) + target * weight
    }

    #[test]
    fn distances_and_densities_match_definition() {
        let data = Data::new(400, 6, 1);
        let pool = Pool::new(2);
        let plain = |x: &DMatrix<f64>| x.transpose() * x / x.nrows() as f64;
        for covariance in [Covariance::Tied, Covariance::Diagonal, Covariance::Full] {
            for shrinkage in [None, Some(0.0), Some(0.3)] {
                if covariance == Covariance::Diagonal && shrinkage.is_none() {
                    continue; // Covered by the next test.
                }
                let g = Gaussians::fit(&data.sample(), covariance, shrinkage, &pool);
                let got = distances(&g, &data.x);
                let mut densities = vec![0.0; got.len()];
                g.log_densities(&data.x, &mut densities, &mut Default::default());
                for k in [0u32, 2] {
                    let x = data.centered((covariance != Covariance::Tied).then_some(k));
                    let mut s = match shrinkage {
                        None => shrunk(&x),
                        Some(l) => {
                            let s = plain(&x);
                            let mean = s.trace() / 6.0;
                            s * (1.0 - l) + DMatrix::identity(6, 6) * (l * mean)
                        }
                    };
                    if covariance == Covariance::Diagonal {
                        s = DMatrix::from_diagonal(&s.diagonal());
                    }
                    let inverse = s.clone().try_inverse().unwrap();
                    let log_det = s.determinant().ln();
                    for r in 0..50 {
                        let x = DVector::from_fn(6, |j, _| f64::from(data.x[r * 6 + j]));
                        let d = x - data.mean(k);
                        let expected = d.dot(&(&inverse * &d));
                        let what = format!("{covariance:?} {shrinkage:?} row {r} class {k}");
                        close(got[r * 3 + k as usize], expected, &what);
                        close(densities[r * 3 + k as usize], -0.5 * (expected + log_det), &what);
                        assert_eq!(
                            (got[r * 3 + 1], densities[r * 3 + 1]),
                            (EMPTY_CLASS_DISTANCE, -EMPTY_CLASS_DISTANCE)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn diagonal_shrinkage_matches_definition() {
        let data = Data::new(40, 5, 2);
        let g = Gaussians::fit(&data.sample(), Covariance::Diagonal, None, &Pool::new(1));
        for k in [0u32, 2] {
            let x = data.centered(Some(k));
            let n = x.nrows() as f64;
            let v: Vec<f64> = x.column_iter().map(|c| c.norm_squared() / n).collect();
            let mean = v.iter().sum::<f64>() / 5.0;
            let difference: f64 = v.iter().map(|v| (v - mean) * (v - mean)).sum();
            let errors: f64 =
                x.row_iter().map(|r| r.iter().zip(&v).map(|(x, v)| (x * x - v) * (x * x - v)).sum::<f64>()).sum();
            let weight = (errors / (n * n)).min(difference) / difference;
            for (s, v) in g.whitenings()[k as usize].scale().iter().zip(&v) {
                close(1.0 / (s * s), (1.0 - weight) * v + weight * mean, "variance");
            }
        }
    }

    #[test]
    fn background_is_the_gaussian_of_all_rows() {
        let data = Data::new(300, 5, 3);
        let pool = Pool::new(2);
        let (classes, background) = Gaussians::with_background(&data.sample(), &pool);
        let same = Gaussians::fit(&data.sample(), Covariance::Tied, Some(0.0), &pool);
        assert_eq!(distances(&classes, &data.x), distances(&same, &data.x));
        let one = vec![0; 300];
        let sample = Labeled { labels: &one, classes: 1, ..data.sample() };
        let all = Gaussians::fit(&sample, Covariance::Full, Some(0.0), &pool);
        for (a, b) in distances(&background, &data.x).into_iter().zip(distances(&all, &data.x)) {
            close(a, b, "background");
        }
    }

    #[test]
    fn singular_covariances_are_finite_and_detect_new_directions() {
        let pool = Pool::new(1);
        let mut constant = Data::new(200, 4, 4);
        constant.x.iter_mut().skip(1).step_by(4).for_each(|v| *v = 0.1);
        let mut double = Data::new(200, 4, 5);
        (0..200).for_each(|r| double.x[r * 4 + 1] = double.x[r * 4]);
        let few = Data::new(12, 40, 6);
        let mut equal = Data::new(20, 3, 7);
        equal.x.fill(0.3);
        for (name, data) in [("constant", constant), ("double", double), ("few", few), ("equal", equal)] {
            for covariance in [Covariance::Tied, Covariance::Diagonal, Covariance::Full] {
                for shrinkage in [None, Some(0.0)] {
                    let what = format!("{name} {covariance:?} {shrinkage:?}");
                    let g = Gaussians::fit(&data.sample(), covariance, shrinkage, &pool);
                    let own = distances(&g, &data.x[..data.width]);
                    let moved: Vec<f32> = (0..data.width).map(|j| data.x[j] + if j == 1 { 1.0 } else { 0.0 }).collect();
                    let far = distances(&g, &moved);
                    assert!(own.iter().chain(&far).all(|d| d.is_finite() && *d >= 0.0), "{what}");
                    let strict = shrinkage == Some(0.0) && covariance != Covariance::Diagonal;
                    if name == "constant" || (strict && name != "equal") {
                        assert!(nearest(&far) > nearest(&own) + if strict { 1e3 } else { 0.0 }, "{what}");
                    }
                    let mut densities = vec![0.0; 3];
                    g.log_densities(&moved, &mut densities, &mut Default::default());
                    assert!(densities.iter().all(|d| d.is_finite()), "{what}");
                }
            }
        }
    }

    #[test]
    fn confidence_gradient_matches_finite_differences() {
        let data = Data::new(300, 5, 8);
        for covariance in [Covariance::Tied, Covariance::Diagonal, Covariance::Full] {
            let g = Gaussians::fit(&data.sample(), covariance, Some(0.1), &Pool::new(1));
            for r in 0..20 {
                let x = &data.x[r * 5..(r + 1) * 5];
                let mut gradient = [0.0f32; 5];
                g.confidence_gradient(x, &mut gradient);
                for j in 0..5 {
                    let at = |step: f32| {
                        let mut x = x.to_vec();
                        x[j] += step;
                        (f64::from(x[j]), -nearest(&distances(&g, &x)))
                    };
                    let (up, down) = (at(1e-2), at(-1e-2));
                    let expected = (up.1 - down.1) / (up.0 - down.0);
                    assert!(
                        (f64::from(gradient[j]) - expected).abs() < 1e-2 * expected.abs().max(0.1),
                        "{covariance:?}: {} {expected}",
                        gradient[j]
                    );
                }
            }
        }
    }

    #[test]
    fn invalid_parts_are_rejected() {
        let data = Data::new(50, 3, 9);
        let g = Gaussians::fit(&data.sample(), Covariance::Tied, None, &Pool::new(1));
        let (m, c, w) = (g.means().to_vec(), g.counts().to_vec(), g.whitenings().to_vec());
        let parts = |kind, m: &[f64], c: &[f64], w: &[Whitening]| {
            Gaussians::from_parts(kind, m.to_vec(), c.to_vec(), w.to_vec())
        };
        assert_eq!(distances(&parts(Covariance::Tied, &m, &c, &w).unwrap(), &data.x), distances(&g, &data.x));
        assert!(parts(Covariance::Full, &m, &c, &w).is_none());
        assert!(parts(Covariance::Diagonal, &m, &c, &w).is_none());
        assert!(parts(Covariance::Tied, &m[1..], &c, &w).is_none());
        assert!(parts(Covariance::Tied, &m, &[0.0; 3], &w).is_none());
        assert!(parts(Covariance::Tied, &m, &[1.0, -1.0, 1.0], &w).is_none());
        assert!(parts(Covariance::Tied, &m, &c, &[]).is_none());
        assert!(parts(Covariance::Tied, &[1e30; 9], &c, &w).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn independent_of_threads_and_batches(rows in 2usize..400, width in 1usize..20, seed in 0u64..99) {
            let data = Data::new(rows, width, seed);
            for covariance in [Covariance::Tied, Covariance::Diagonal, Covariance::Full] {
                let g = Gaussians::fit(&data.sample(), covariance, None, &Pool::new(1));
                let h = Gaussians::fit(&data.sample(), covariance, None, &Pool::new(3));
                let all = distances(&g, &data.x);
                prop_assert_eq!(&all, &distances(&h, &data.x));
                prop_assert_eq!(&all[..3], &distances(&g, &data.x[..width])[..]);
            }
        }
    }
}
