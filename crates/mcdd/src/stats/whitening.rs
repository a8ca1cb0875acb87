//! Whitening: linear maps that make a covariance the identity.
//!
//! Each feature is first divided by its standard deviation, which leaves the correlation matrix R. With R = L L^T
//! (Cholesky), the covariance of `y = L^-1 z` is the identity, and `|y|^2` is the squared Mahalanobis distance, for
//! features of any scale.
//!
//! Directions in which the training rows do not vary must not be ignored, as the pseudo-inverse does: a row that differs
//! there is out-of-distribution. They cannot have infinite weight either. So
//! - if R has certainly no eigenvalue below [`MIN_VARIANCE`], which is 1e-8, it is used as it is;
//! - otherwise `MIN_VARIANCE` is added to its diagonal: in such directions the standard deviation is 1e-4;
//! - the standard deviation of a constant feature is 1e-4 of that of the median feature;
//! - if nothing varies, the covariance is the identity.
//!
//! `MIN_VARIANCE` is as small as the rounding errors of f32 features and products allow: they are amplified by at most
//! 1e4. A covariance with a condition number of 1e5 is not affected.

use crate::compute::gemm::{Line, Panels, Then, ZERO, pack_transposed, product};
use crate::compute::simd::{self, Kernel, Simd};

/// The smallest variance in any direction, for features of variance 1.
pub(crate) const MIN_VARIANCE: f64 = 1e-8;
/// The largest standardized value. Larger ones are clamped, so that all sums stay finite.
const MAX_STANDARDIZED: f64 = 1e12;
/// The largest element of a matrix: `MIN_VARIANCE^-1/2`, with a tolerance for rounding.
const MAX_ELEMENT: f32 = 2e4;

/// A whitening map: divides by standard deviations and removes correlations.
#[derive(Clone, Debug)]
pub(crate) struct Whitening {
    scale: Vec<f64>,
    matrix: Vec<f32>,
    lines: Vec<Line>,
    log_det: f64,
}

impl Whitening {
    /// The whitening of a finite `n` x `n` covariance. Variances of 0 are replaced as in [`positive_variances`].
    pub(crate) fn full(covariance: &[f64], n: usize) -> Whitening {
        let own: Vec<f64> = (0..n).map(|j| covariance[j * n + j]).collect();
        let variances = positive_variances(&own);
        let scale: Vec<f64> = variances.iter().map(|&v| 1.0 / libm::sqrt(v)).collect();
        let mut r: Vec<f64> = (0..n * n)
            .map(|ij| (ij / n, ij % n))
            .map(|(i, j)| if i == j { 1.0 } else { covariance[i * n + j] * scale[i] * scale[j] })
            .collect();
        let certain = |inverse: &[f64]| inverse.iter().map(|v| v * v).sum::<f64>() * MIN_VARIANCE <= 1.0;
        let found = cholesky(&r, n).map(|l| (invert(&l, n), l)).filter(|(inverse, _)| certain(inverse));
        let (inverse, l) = found.unwrap_or_else(|| {
            for j in 0..n {
                r[j * n + j] += MIN_VARIANCE;
            }
            // With that on the diagonal it succeeds for every covariance. For any other matrix, the features count as
            // independent.
            match cholesky(&r, n) {
                Some(l) => (invert(&l, n), l),
                None => (identity(n), identity(n)),
            }
        });
        let log_det = variances.iter().map(|&v| libm::log(v)).sum::<f64>()
            + (0..n).map(|j| 2.0 * libm::log(l[j * n + j])).sum::<f64>();
        let matrix = inverse.iter().map(|&v| (v as f32).clamp(-MAX_ELEMENT, MAX_ELEMENT)).collect();
        Whitening::of(scale, matrix, log_det)
    }

    /// The whitening of independent features with these variances, which must be positive.
    pub(crate) fn diagonal(variances: &[f64]) -> Whitening {
        let scale = variances.iter().map(|&v| 1.0 / libm::sqrt(v)).collect();
        Whitening::of(scale, Vec::new(), variances.iter().map(|&v| libm::log(v)).sum())
    }

    fn of(scale: Vec<f64>, matrix: Vec<f32>, log_det: f64) -> Whitening {
        let n = scale.len();
        let mut lines = Vec::new();
        if !matrix.is_empty() {
            lines.resize(Panels::lines(n, n), ZERO);
            pack_transposed(&mut lines, &matrix, n, n, 0);
        }
        Whitening { scale, matrix, lines, log_det }
    }

    /// The whitening with these parts; `None` if they are invalid.
    pub(crate) fn from_parts(scale: Vec<f64>, matrix: Vec<f32>, log_det: f64) -> Option<Whitening> {
        let n = scale.len();
        let fits = (matrix.is_empty() || n.checked_mul(n) == Some(matrix.len()))
            && scale.iter().all(|s| (1e-20..=1e80).contains(s))
            && matrix.iter().all(|v| v.abs() <= MAX_ELEMENT)
            && log_det.abs() < 1e9;
        fits.then(|| Whitening::of(scale, matrix, log_det))
    }

    /// The reciprocal of the standard deviation of each feature.
    pub(crate) fn scale(&self) -> &[f64] {
        &self.scale
    }

    /// `L^-1`, row-major; empty if the features are independent.
    pub(crate) fn matrix(&self) -> &[f32] {
        &self.matrix
    }

    /// The logarithm of the determinant of the covariance.
    pub(crate) fn log_det(&self) -> f64 {
        self.log_det
    }

    /// Computes `y = W (x - center)` for each row of `x` in the second buffer. The first one gets the standardized rows.
    pub(crate) fn apply(&self, x: &[f32], center: &[f64], [z, y]: &mut [Vec<f32>; 2]) {
        let n = self.scale.len();
        z.resize(x.len(), 0.0);
        y.resize(x.len(), 0.0);
        let standardized = if self.matrix.is_empty() { &mut *y } else { &mut *z };
        simd::dispatch(Standardize { x, center, scale: &self.scale, out: standardized });
        if !self.matrix.is_empty() {
            product(z, Panels::new(&self.lines, n, n), y, Then::Keep);
        }
    }

    /// `y = W d` in f64, for the difference of one row to the center.
    pub(crate) fn apply_wide(&self, difference: &[f64]) -> Vec<f64> {
        let z: Vec<f64> = difference.iter().zip(&self.scale).map(|(d, s)| standard(d * s)).collect();
        if self.matrix.is_empty() {
            return z;
        }
        let dot = |row: &[f32]| row.iter().zip(&z).map(|(&w, z)| f64::from(w) * z).sum();
        self.matrix.chunks_exact(z.len().max(1)).map(dot).collect()
    }

    /// `W^T y`, the backward pass of a gradient.
    pub(crate) fn transposed(&self, y: &[f64]) -> Vec<f64> {
        let mut out = if self.matrix.is_empty() { y.to_vec() } else { vec![0.0; y.len()] };
        for (row, y) in self.matrix.chunks_exact(y.len().max(1)).zip(y) {
            out.iter_mut().zip(row).for_each(|(o, &w)| *o += f64::from(w) * y);
        }
        out.iter_mut().zip(&self.scale).for_each(|(o, s)| *o *= s);
        out
    }
}

fn standard(z: f64) -> f64 {
    z.clamp(-MAX_STANDARDIZED, MAX_STANDARDIZED)
}

/// `(x - center) * scale`, row by row.
struct Standardize<'a> {
    x: &'a [f32],
    center: &'a [f64],
    scale: &'a [f64],
    out: &'a mut [f32],
}

impl Kernel for Standardize<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let n = self.scale.len().max(1);
        for (x, out) in self.x.chunks_exact(n).zip(self.out.chunks_exact_mut(n)) {
            for (((o, &x), c), s) in out.iter_mut().zip(x).zip(self.center).zip(self.scale) {
                *o = ((f64::from(x) - c) * s).clamp(-MAX_STANDARDIZED, MAX_STANDARDIZED) as f32;
            }
        }
    }
}

/// Replaces variances of 0 by [`MIN_VARIANCE`] times the median of the others, or by 1 if all are 0.
pub(crate) fn positive_variances(own: &[f64]) -> Vec<f64> {
    let mut positive: Vec<f64> = own.iter().copied().filter(|&v| v > 0.0).collect();
    positive.sort_by(f64::total_cmp);
    let least = positive.get(positive.len() / 2).map_or(1.0, |median| MIN_VARIANCE * median);
    own.iter().map(|&v| if v > 0.0 { v } else { least }).collect()
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|ij| if ij / n == ij % n { 1.0 } else { 0.0 }).collect()
}

/// The lower triangular L of `a = L L^T`; `None` if `a` is not positive definite up to rounding.
fn cholesky(a: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut l = vec![0.0; n * n];
    for i in 0..n {
        let (before, row) = l.split_at_mut(i * n);
        for j in 0..i {
            row[j] = (a[i * n + j] - dot(&row[..j], &before[j * n..j * n + j])) / before[j * n + j];
        }
        let pivot = a[i * n + i] - dot(&row[..i], &row[..i]);
        if pivot.is_nan() || pivot <= 1e-13 * a[i * n + i] {
            return None;
        }
        row[i] = libm::sqrt(pivot);
    }
    Some(l)
}

/// The inverse of a lower triangular matrix.
fn invert(l: &[f64], n: usize) -> Vec<f64> {
    // By columns, so that both factors of a sum are contiguous.
    let mut columns = vec![0.0; n * n];
    for (j, column) in columns.chunks_exact_mut(n.max(1)).enumerate() {
        column[j] = 1.0 / l[j * n + j];
        for i in j + 1..n {
            column[i] = -dot(&l[i * n + j..i * n + i], &column[j..i]) / l[i * n + i];
        }
    }
    (0..n * n).map(|ij| columns[ij % n * n + ij / n]).collect()
}

/// `sum a b`, in a fixed order.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut out = 0.0;
    simd::dispatch(Dot { a, b, out: &mut out });
    out
}

struct Dot<'a> {
    a: &'a [f64],
    b: &'a [f64],
    out: &'a mut f64,
}

impl Kernel for Dot<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.out = lanes(self.a, self.b, |a, b, sum| a.mul_add(b, sum));
    }
}

/// `sum (a - b)^2`, in a fixed order; inlined into kernels.
#[inline(always)]
pub(crate) fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    lanes(a, b, |a, b, sum| (a - b).mul_add(a - b, sum))
}

/// Sixteen parallel sums: element `i` is added to sum `i % 16`.
#[inline(always)]
fn lanes(a: &[f64], b: &[f64], step: impl Fn(f64, f64, f64) -> f64) -> f64 {
    const LANES: usize = 16;
    let n = a.len().min(b.len());
    let ((a, rest_a), (b, rest_b)) = (a[..n].as_chunks::<LANES>(), b[..n].as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            sums[i] = step(a[i], b[i], sums[i]);
        }
    }
    for (i, (&a, &b)) in rest_a.iter().zip(rest_b).enumerate() {
        sums[i] = step(a, b, sums[i]);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use nalgebra::{DMatrix, DVector};

    /// A random covariance with eigenvalues from 1 down to `1 / condition`.
    fn covariance(n: usize, condition: f64, s: &mut Stream) -> DMatrix<f64> {
        let q = DMatrix::from_fn(n, n, |_, _| s.normal()).qr().q();
        let values = DVector::from_fn(n, |i, _| condition.powf(-(i as f64) / (n.max(2) - 1) as f64));
        &q * DMatrix::from_diagonal(&values) * q.transpose()
    }

    fn by_rows(m: &DMatrix<f64>) -> Vec<f64> {
        m.transpose().as_slice().to_vec()
    }

    fn squared(w: &Whitening, x: &[f32], center: &[f64]) -> f64 {
        let mut buffers = [Vec::new(), Vec::new()];
        w.apply(x, center, &mut buffers);
        buffers[1].iter().map(|&v| f64::from(v) * f64::from(v)).sum()
    }

    #[test]
    fn matches_the_inverse_of_well_conditioned_matrices() {
        let mut s = Stream::new(1, "whitening");
        for (n, condition) in [(1, 1.0), (2, 1e5), (7, 1e3), (40, 1e5), (128, 1e4)] {
            let c = covariance(n, condition, &mut s);
            let root = c.clone().cholesky().unwrap().l();
            let w = Whitening::full(&by_rows(&c), n);
            assert!((w.log_det() - c.determinant().ln()).abs() < 1e-6 * n as f64);
            for _ in 0..20 {
                let x = &root * DVector::from_fn(n, |_, _| s.normal()) + DVector::from_element(n, 3.0);
                let narrow: Vec<f32> = x.iter().map(|&v| v as f32).collect();
                let d = DVector::from_fn(n, |i, _| f64::from(narrow[i]) - 3.0);
                let expected = d.dot(&(c.clone().try_inverse().unwrap() * &d));
                let got = squared(&w, &narrow, &vec![3.0; n]);
                assert!((got / expected - 1.0).abs() < 1e-4, "{n} {condition}: {got} {expected}");
                let wide: f64 = w.apply_wide(d.as_slice()).iter().map(|v| v * v).sum();
                assert!((wide / expected - 1.0).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn directions_without_variance_are_far() {
        // Two equal features and a constant feature.
        let c = [4.0, 4.0, 0.0, 4.0, 4.0, 0.0, 0.0, 0.0, 0.0];
        let w = Whitening::full(&c, 3);
        let at = |x: [f32; 3]| squared(&w, &x, &[0.0; 3]);
        assert!((at([2.0, 2.0, 0.0]) - 1.0).abs() < 1e-6);
        assert!((at([0.02, -0.02, 0.0]) / (2e-4 / 1e-8) - 1.0).abs() < 1e-3, "{}", at([0.02, -0.02, 0.0]));
        assert!((at([0.0, 0.0, 0.02]) / (1e-4 / 1e-8) - 1.0).abs() < 1e-3);
        assert!(at([1e15, -1e15, 1e15]).is_finite());
        assert_eq!(squared(&Whitening::full(&[0.0; 4], 2), &[3.0, 4.0], &[0.0; 2]), 25.0);
        assert_eq!(Whitening::full(&[0.0; 4], 2).log_det(), 0.0);
    }

    #[test]
    fn invariant_to_scale() {
        let mut s = Stream::new(2, "whitening");
        let c = by_rows(&covariance(4, 10.0, &mut s));
        let sizes = [1.0f64, 1e12, 1e-20, 1e3];
        let scaled: Vec<f64> = (0..16).map(|ij| c[ij] * sizes[ij / 4] * sizes[ij % 4]).collect();
        let x: Vec<f32> = (0..4).map(|_| s.normal() as f32).collect();
        let far: Vec<f32> = x.iter().zip(sizes).map(|(&x, s)| (f64::from(x) * s) as f32).collect();
        let (a, b) =
            (squared(&Whitening::full(&c, 4), &x, &[0.0; 4]), squared(&Whitening::full(&scaled, 4), &far, &[0.0; 4]));
        assert!((a / b - 1.0).abs() < 1e-5, "{a} {b}");
    }

    #[test]
    fn transposed_is_the_adjoint() {
        let mut s = Stream::new(3, "whitening");
        let w = Whitening::full(&by_rows(&covariance(9, 100.0, &mut s)), 9);
        let (a, b): (Vec<f64>, Vec<f64>) = (0..9).map(|_| (s.normal(), s.normal())).unzip();
        assert!((dot(&w.apply_wide(&a), &b) - dot(&a, &w.transposed(&b))).abs() < 1e-9);
        let w = Whitening::diagonal(&[4.0, 9.0]);
        assert_eq!(w.apply_wide(&[2.0, 3.0]), w.transposed(&[2.0, 3.0]));
    }
}
