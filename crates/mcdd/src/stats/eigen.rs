//! Eigenvalues and eigenvectors of symmetric matrices.

use nalgebra::{DMatrix, SymmetricEigen};

/// Added to the diagonal during the decomposition, for matrices whose largest element is 1.
const SHIFT: f64 = 1.0;
/// The largest number of Jacobi sweeps; a handful is usually enough.
const SWEEPS: usize = 60;

/// The Jacobi eigenvalue algorithm, which is slow and always converges: the fallback if the fast algorithm fails.
fn jacobi(matrix: &[f64], n: usize) -> Eigen {
    let mut a = matrix.to_vec();
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                let off = a[p * n + q];
                if off.abs() <= f64::EPSILON * libm::sqrt((a[p * n + p] * a[q * n + q]).abs()) || off == 0.0 {
                    continue;
                }
                rotated = true;
                let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * off);
                let t = theta.signum() / (theta.abs() + libm::sqrt(1.0 + theta * theta));
                let t = if theta == 0.0 { 1.0 } else { t };
                let c = 1.0 / libm::sqrt(1.0 + t * t);
                let s = t * c;
                for k in 0..n {
                    let (x, y) = (a[k * n + p], a[k * n + q]);
                    (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[p * n + k], a[q * n + k]);
                    (a[p * n + k], a[q * n + k]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (v[p * n + k], v[q * n + k]);
                    (v[p * n + k], v[q * n + k]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
        if !rotated {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[j * n + j].total_cmp(&a[i * n + i]));
    let vectors = order.iter().flat_map(|&i| v[i * n..(i + 1) * n].to_vec()).collect();
    Eigen { values: order.iter().map(|&i| a[i * n + i]).collect(), vectors }
}

/// The eigendecomposition of a symmetric matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Eigen {
    /// The eigenvalues in descending order.
    pub(crate) values: Vec<f64>,
    /// The eigenvectors, one after the other, in the order of the values. Each has norm 1, and its element with the
    /// largest absolute value (the first one in case of ties) is positive.
    pub(crate) vectors: Vec<f64>,
}

impl Eigen {
    /// Decomposes a symmetric `n` x `n` matrix with finite elements.
    pub(crate) fn of(matrix: &[f64], n: usize) -> Eigen {
        assert!(matrix.len() == n * n);
        if n == 0 {
            return Eigen { values: Vec::new(), vectors: Vec::new() };
        }
        // Scaled to 1, so that squares neither overflow nor underflow.
        let size = matrix.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let scale = if size > 0.0 { size } else { 1.0 };
        let half = |i: usize, j: usize| 0.5 * (matrix[i * n + j] / scale + matrix[j * n + i] / scale);
        // The shift adds 1 to every value and changes no vector. Without it, rounding errors in place of the zero
        // eigenvalues of a matrix of low rank are so small that their squares underflow, and are then divided by.
        let shifted = DMatrix::from_fn(n, n, |i, j| half(i, j) + if i == j { SHIFT } else { 0.0 });
        let Some(found) = SymmetricEigen::try_new(shifted, f64::EPSILON, 1000 * n)
            .filter(|e| e.eigenvalues.iter().chain(e.eigenvectors.iter()).all(|v| v.is_finite()))
        else {
            return jacobi(matrix, n);
        };
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| found.eigenvalues[b].total_cmp(&found.eigenvalues[a]));
        let mut vectors = Vec::with_capacity(n * n);
        for &i in &order {
            let v = found.eigenvectors.column(i);
            let largest = (1..n).fold(0, |best, j| if v[j].abs() > v[best].abs() { j } else { best });
            let sign = if v[largest] < 0.0 { -1.0 } else { 1.0 };
            vectors.extend(v.iter().map(|x| sign * x));
        }
        Eigen { values: order.iter().map(|&i| scale * (found.eigenvalues[i] - SHIFT)).collect(), vectors }
    }

    /// The eigenvector of the `i`-th value.
    pub(crate) fn vector(&self, i: usize) -> &[f64] {
        let n = self.values.len();
        &self.vectors[i * n..(i + 1) * n]
    }

    /// The number of values that are positive and above `relative` times the largest; the others are rounding errors.
    pub(crate) fn rank(&self, relative: f64) -> usize {
        let floor = self.values.first().map_or(0.0, |v| v.max(0.0) * relative);
        self.values.iter().take_while(|&&v| v > floor && v > 0.0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    /// Dead features and fewer rows than features, as in networks with ReLU.
    #[test]
    fn rank_of_low_rank_matrices() {
        for (n, alive, seed) in [(64, 20, 1), (64, 3, 2), (128, 40, 3), (128, 10, 4), (128, 64, 5), (100, 1, 6)] {
            for seed in 0..20 + seed {
                let mut s = Stream::new(seed, "low rank");
                let rows: Vec<f64> =
                    (0..60 * n).map(|i| if i % n < alive { f64::from(s.uniform() as f32) } else { 0.0 }).collect();
                let mut a = vec![0.0; n * n];
                for row in rows.chunks(n) {
                    (0..n * n).for_each(|ij| a[ij] += row[ij / n] * row[ij % n]);
                }
                let e = Eigen::of(&a, n);
                assert!(e.values.iter().chain(&e.vectors).all(|v| v.is_finite()), "{n} {alive} {seed}");
                assert_eq!(e.rank(1e-11), alive.min(60), "{n} {alive} {seed}");
            }
        }
    }

    #[test]
    fn reconstructs_the_matrix() {
        for n in [1, 2, 7, 40] {
            let mut s = Stream::new(n as u64, "eigen");
            let half: Vec<f64> = (0..n * n).map(|_| s.normal()).collect();
            let a: Vec<f64> = (0..n * n).map(|ij| half[ij] + half[(ij % n) * n + ij / n]).collect();
            let e = Eigen::of(&a, n);
            assert!(e.values.is_sorted_by(|a, b| a >= b));
            for i in 0..n {
                for j in 0..n {
                    let sum: f64 = (0..n).map(|k| e.values[k] * e.vector(k)[i] * e.vector(k)[j]).sum();
                    assert!((sum - a[i * n + j]).abs() < 1e-10, "{n}");
                }
            }
        }
        assert_eq!(Eigen::of(&[0.0; 9], 3).values, [0.0; 3]);
        let a = [4.0, 1.0, 0.5, 1.0, 3.0, -1.0, 0.5, -1.0, 2.0];
        for (fast, slow) in Eigen::of(&a, 3).values.iter().zip(jacobi(&a, 3).values) {
            assert!((fast - slow).abs() < 1e-12);
        }
        assert_eq!(Eigen::of(&[1e200, 0.0, 0.0, 1e-200], 2).rank(1e-9), 1);
        assert_eq!(Eigen::of(&[], 0).rank(1e-9), 0);
    }
}
