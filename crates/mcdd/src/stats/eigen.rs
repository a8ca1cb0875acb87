//! Eigenvalues and eigenvectors of symmetric matrices.

use nalgebra::DMatrix;

/// The eigenvalues in descending order, each with its vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Eigen {
    /// Descending.
    pub values: Vec<f64>,
    /// The vectors, one after the other, in the order of the values; each has length 1, and its largest element (by
    /// size, the first of equals) is positive.
    pub vectors: Vec<f64>,
}

impl Eigen {
    /// Of a symmetric `n` x `n` matrix with finite elements.
    pub fn of(matrix: &[f64], n: usize) -> Eigen {
        assert!(matrix.len() == n * n);
        if n == 0 {
            return Eigen { values: Vec::new(), vectors: Vec::new() };
        }
        // Scaled to 1, so that squares inside neither overflow nor vanish.
        let size = matrix.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let scale = if size > 0.0 { size } else { 1.0 };
        let found = DMatrix::from_fn(n, n, |i, j| 0.5 * (matrix[i * n + j] / scale + matrix[j * n + i] / scale))
            .symmetric_eigen();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| found.eigenvalues[b].total_cmp(&found.eigenvalues[a]));
        let mut vectors = Vec::with_capacity(n * n);
        for &i in &order {
            let v = found.eigenvectors.column(i);
            let largest = (1..n).fold(0, |best, j| if v[j].abs() > v[best].abs() { j } else { best });
            let sign = if v[largest] < 0.0 { -1.0 } else { 1.0 };
            vectors.extend(v.iter().map(|x| sign * x));
        }
        Eigen { values: order.iter().map(|&i| scale * found.eigenvalues[i]).collect(), vectors }
    }

    /// The vector of the `i`-th value.
    pub fn vector(&self, i: usize) -> &[f64] {
        let n = self.values.len();
        &self.vectors[i * n..(i + 1) * n]
    }

    /// How many values are positive and more than `relative` times the largest: the others are rounding.
    pub fn rank(&self, relative: f64) -> usize {
        let floor = self.values.first().map_or(0.0, |v| v.max(0.0) * relative);
        self.values.iter().take_while(|&&v| v > floor && v > 0.0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn vectors_and_values_make_the_matrix() {
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
        assert_eq!(Eigen::of(&[1e200, 0.0, 0.0, 1e-200], 2).rank(1e-9), 1);
        assert_eq!(Eigen::of(&[], 0).rank(1e-9), 0);
    }
}
