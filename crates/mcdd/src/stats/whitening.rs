//! Linear maps under which a covariance becomes the identity.
//!
//! Each feature is first divided by its standard deviation, which leaves the correlation matrix R. With R = L L^T
//! (Cholesky), `y = L^-1 z` has the identity for its covariance, and `|y|^2` is the squared Mahalanobis distance,
//! whatever the scales of the features.
//!
//! A direction in which the training rows never vary must not be forgotten, as the pseudo-inverse does: a row that
//! moves there is strange. Nor can it weigh infinitely. So
//! - if R is certain to have no eigenvalue below [`LEAST`], which is 1e-8, it is used as it is;
//! - else `LEAST` is added to its diagonal: in those directions the rows vary as if by 1e-4 of a standard deviation;
//! - a constant feature counts as one that varies by 1e-4 of the standard deviation of the median feature;
//! - where nothing varies at all, the covariance is taken for the identity.
//!
//! `LEAST` is as small as the rounding of f32 features and products allows: it is amplified by 1e4 at most. A
//! covariance with a condition number of 1e5 is far from it.

use crate::compute::gemm::{Line, Panels, Then, ZERO, pack_transposed, product};
use crate::compute::simd;

/// The least variance in any direction, for features of variance 1.
pub(crate) const LEAST: f64 = 1e-8;
/// No feature is further away than this many standard deviations, so that all sums stay finite.
const FURTHEST: f64 = 1e12;
/// No element of a matrix is larger: `LEAST^-1/2`, and some room for rounding.
const LARGEST: f32 = 2e4;

/// Divides by standard deviations and takes correlations away.
#[derive(Clone, Debug)]
pub(crate) struct Whitening {
    scale: Vec<f64>,
    matrix: Vec<f32>,
    lines: Vec<Line>,
    log_det: f64,
}

impl Whitening {
    /// For a covariance, `n` x `n`, finite. A feature of variance 0 counts as [`least_variances`] says.
    pub(crate) fn full(covariance: &[f64], n: usize) -> Whitening {
        let own: Vec<f64> = (0..n).map(|j| covariance[j * n + j]).collect();
        let variances = least_variances(&own);
        let scale: Vec<f64> = variances.iter().map(|&v| 1.0 / libm::sqrt(v)).collect();
        let mut r: Vec<f64> = (0..n * n)
            .map(|ij| (ij / n, ij % n))
            .map(|(i, j)| if i == j { 1.0 } else { covariance[i * n + j] * scale[i] * scale[j] })
            .collect();
        let certain = |inverse: &[f64]| inverse.iter().map(|v| v * v).sum::<f64>() * LEAST <= 1.0;
        let found = cholesky(&r, n).map(|l| (invert(&l, n), l)).filter(|(inverse, _)| certain(inverse));
        let (inverse, l) = found.unwrap_or_else(|| {
            for j in 0..n {
                r[j * n + j] += LEAST;
            }
            // With that on the diagonal it always succeeds; and if a matrix was no covariance at all, the features
            // count as independent.
            match cholesky(&r, n) {
                Some(l) => (invert(&l, n), l),
                None => (identity(n), identity(n)),
            }
        });
        let log_det = variances.iter().map(|&v| libm::log(v)).sum::<f64>()
            + (0..n).map(|j| 2.0 * libm::log(l[j * n + j])).sum::<f64>();
        let matrix = inverse.iter().map(|&v| (v as f32).clamp(-LARGEST, LARGEST)).collect();
        Whitening::of(scale, matrix, log_det)
    }

    /// For features that are independent, of these variances, which must be positive.
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

    /// The same from its parts, or none if they make no sense.
    pub(crate) fn from_parts(scale: Vec<f64>, matrix: Vec<f32>, log_det: f64) -> Option<Whitening> {
        let n = scale.len();
        let fits = (matrix.is_empty() || n.checked_mul(n) == Some(matrix.len()))
            && scale.iter().all(|s| (1e-20..=1e80).contains(s))
            && matrix.iter().all(|v| v.abs() <= LARGEST)
            && log_det.abs() < 1e9;
        fits.then(|| Whitening::of(scale, matrix, log_det))
    }

    /// One over the standard deviation of each feature.
    pub(crate) fn scale(&self) -> &[f64] {
        &self.scale
    }

    /// `L^-1`, by rows; empty if the features are independent.
    pub(crate) fn matrix(&self) -> &[f32] {
        &self.matrix
    }

    /// The logarithm of the determinant of the covariance.
    pub(crate) fn log_det(&self) -> f64 {
        self.log_det
    }

    /// `y = W (x - center)` for each row of `x`, into the second buffer; the first is for the work.
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

    /// `y = W d` for one difference to the center, in f64.
    pub(crate) fn apply_wide(&self, difference: &[f64]) -> Vec<f64> {
        let z: Vec<f64> = difference.iter().zip(&self.scale).map(|(d, s)| standard(d * s)).collect();
        if self.matrix.is_empty() {
            return z;
        }
        let dot = |row: &[f32]| row.iter().zip(&z).map(|(&w, z)| f64::from(w) * z).sum();
        self.matrix.chunks_exact(z.len().max(1)).map(dot).collect()
    }

    /// `W^T y`: the way back of a gradient.
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
    z.clamp(-FURTHEST, FURTHEST)
}

/// `(x - center) * scale`, row by row.
struct Standardize<'a> {
    x: &'a [f32],
    center: &'a [f64],
    scale: &'a [f64],
    out: &'a mut [f32],
}

impl simd::Kernel for Standardize<'_> {
    #[inline(always)]
    fn run(self) {
        let n = self.scale.len().max(1);
        for (x, out) in self.x.chunks_exact(n).zip(self.out.chunks_exact_mut(n)) {
            for (((o, &x), c), s) in out.iter_mut().zip(x).zip(self.center).zip(self.scale) {
                *o = ((f64::from(x) - c) * s).clamp(-FURTHEST, FURTHEST) as f32;
            }
        }
    }
}

/// The variances, with something positive for those that are 0: [`LEAST`] times the median of the others, or 1 if there
/// are no others.
pub(crate) fn least_variances(own: &[f64]) -> Vec<f64> {
    let mut positive: Vec<f64> = own.iter().copied().filter(|&v| v > 0.0).collect();
    positive.sort_by(f64::total_cmp);
    let least = positive.get(positive.len() / 2).map_or(1.0, |median| LEAST * median);
    own.iter().map(|&v| if v > 0.0 { v } else { least }).collect()
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|ij| if ij / n == ij % n { 1.0 } else { 0.0 }).collect()
}

/// The lower triangular L of `a = L L^T`, or none if `a` is not positive definite beyond rounding.
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
    // By columns, so that both sides of a sum lie in order.
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

impl simd::Kernel for Dot<'_> {
    #[inline(always)]
    fn run(self) {
        *self.out = lanes(self.a, self.b, |a, b, sum| a.mul_add(b, sum));
    }
}

/// `sum (a - b)^2`, in a fixed order; to be inlined into a kernel.
#[inline(always)]
pub(crate) fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    lanes(a, b, |a, b, sum| (a - b).mul_add(a - b, sum))
}

/// Sixteen sums side by side: element `i` goes to sum `i % 16`.
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
    fn agrees_with_the_inverse_where_the_condition_is_good() {
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
    fn a_way_that_training_never_went_is_far() {
        // Two equal features and a constant one.
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
    fn scales_do_not_matter() {
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
    fn the_transpose_is_the_transpose() {
        let mut s = Stream::new(3, "whitening");
        let w = Whitening::full(&by_rows(&covariance(9, 100.0, &mut s)), 9);
        let (a, b): (Vec<f64>, Vec<f64>) = (0..9).map(|_| (s.normal(), s.normal())).unzip();
        assert!((dot(&w.apply_wide(&a), &b) - dot(&a, &w.transposed(&b))).abs() < 1e-9);
        let w = Whitening::diagonal(&[4.0, 9.0]);
        assert_eq!(w.apply_wide(&[2.0, 3.0]), w.transposed(&[2.0, 3.0]));
    }
}
