//! Eigenvalues and eigenvectors of symmetric matrices.
//!
//! Householder reflections make the matrix tridiagonal, then QL steps with implicit shifts make it diagonal (Wilkinson and
//! Reinsch, *Handbook for Automatic Computation* II, 1971; Golub and Van Loan, *Matrix Computations*, 8.3). All loops run along
//! rows, in a fixed order and without fused operations: the result has the same bits on every processor.

/// QL iterations for one eigenvalue; two are usual, and more than ten are not known.
const ITERATIONS: usize = 50;

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
        let mut a: Vec<f64> =
            (0..n * n).map(|ij| 0.5 * (matrix[ij] / scale + matrix[(ij % n) * n + ij / n] / scale)).collect();
        let (mut diagonal, mut beside, mut w) = tridiagonal(&mut a, n);
        diagonalize(&mut diagonal, &mut beside, &mut w, n);
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));
        let mut vectors = Vec::with_capacity(n * n);
        for &i in &order {
            let v = &w[i * n..(i + 1) * n];
            let largest = (1..n).fold(0, |best, j| if v[j].abs() > v[best].abs() { j } else { best });
            let sign = if v[largest] < 0.0 { -1.0 } else { 1.0 };
            vectors.extend(v.iter().map(|x| sign * x));
        }
        Eigen { values: order.iter().map(|&i| scale * diagonal[i]).collect(), vectors }
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

/// A dot product in eight partial sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, rest_a) = a.as_chunks::<8>();
    let (b, rest_b) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f64>()
}

/// `to += factor * from`.
fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// `A = Q T Q'` with a tridiagonal `T`: its diagonal, the elements beside it (the first is 0), and `Q'`. `a` is overwritten.
fn tridiagonal(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut diagonal, mut beside) = (vec![0.0; n], vec![0.0; n]);
    // Row i is reflected onto its last element before the diagonal by 1 - u u' / h; u replaces the row.
    let mut h = vec![0.0; n];
    let mut p = vec![0.0; n];
    for i in (1..n).rev() {
        let (above, row) = a.split_at_mut(i * n);
        diagonal[i] = row[i];
        let u = &mut row[..i];
        let size = u.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        if i == 1 || size == 0.0 {
            beside[i] = u[i - 1];
            // Elements before the last are 0 here: no reflection.
            continue;
        }
        u.iter_mut().for_each(|v| *v /= size);
        let square = dot(u, u);
        let length = if u[i - 1] > 0.0 { -square.sqrt() } else { square.sqrt() };
        beside[i] = size * length;
        h[i] = square - u[i - 1] * length;
        u[i - 1] -= length;
        for (p, row) in p.iter_mut().zip(above.chunks_exact(n)) {
            *p = dot(&row[..i], u) / h[i];
        }
        let half = dot(u, &p[..i]) / (2.0 * h[i]);
        add(&mut p[..i], -half, u);
        for (j, row) in above.chunks_exact_mut(n).enumerate() {
            let (pj, uj) = (p[j], u[j]);
            row[..i].iter_mut().zip(u.iter().zip(&p)).for_each(|(a, (u, p))| *a -= pj * u + uj * p);
        }
    }
    diagonal[0] = a[0];
    let mut w = vec![0.0; n * n];
    (0..n).for_each(|i| w[i * n + i] = 1.0);
    for i in (1..n).filter(|&i| h[i] != 0.0) {
        let u = &a[i * n..i * n + i];
        for row in w.chunks_exact_mut(n).take(i) {
            let factor = -dot(&row[..i], u) / h[i];
            add(&mut row[..i], factor, u);
        }
    }
    (diagonal, beside, w)
}

/// Makes a tridiagonal matrix diagonal. The rotations are applied to the rows of `w`, which become the eigenvectors.
fn diagonalize(d: &mut [f64], e: &mut [f64], w: &mut [f64], n: usize) {
    e.rotate_left(1); // e[i] is now between i and i + 1.
    // What is small relative to the largest elements is a rounding error: zeros of a matrix of low rank end there.
    let size = (0..n).map(|i| d[i].abs() + e[i].abs()).fold(0.0, f64::max);
    for l in 0..n {
        for _ in 0..ITERATIONS {
            let small =
                |i: &usize| e[*i].abs() <= f64::EPSILON * (d[*i].abs() + d[*i + 1].abs()).max(f64::EPSILON * size);
            let m = (l..n - 1).find(small).unwrap_or(n - 1);
            if m == l {
                break;
            }
            // The shift is the eigenvalue of the upper 2 x 2 block that is closer to d[l].
            let g = (d[l + 1] - d[l]) / (2.0 * e[l]);
            let r = libm::hypot(g, 1.0);
            let mut g = d[m] - d[l] + e[l] / (g + r.copysign(g));
            let (mut sine, mut cosine, mut change) = (1.0, 1.0, 0.0);
            let mut split = false;
            for i in (l..m).rev() {
                let (f, b) = (sine * e[i], cosine * e[i]);
                let r = libm::hypot(f, g);
                e[i + 1] = r;
                if r == 0.0 {
                    // The matrix falls into two parts.
                    d[i + 1] -= change;
                    e[m] = 0.0;
                    split = true;
                    break;
                }
                (sine, cosine) = (f / r, g / r);
                g = d[i + 1] - change;
                let r = (d[i] - g) * sine + 2.0 * cosine * b;
                change = sine * r;
                d[i + 1] = g + change;
                g = cosine * r - b;
                let (low, high) = w[i * n..(i + 2) * n].split_at_mut(n);
                for (x, y) in low.iter_mut().zip(high) {
                    (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
                }
            }
            if !split {
                d[l] -= change;
                e[l] = g;
                e[m] = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert_eq!(Eigen::of(&[1e200, 0.0, 0.0, 1e-200], 2).rank(1e-9), 1);
        assert_eq!(Eigen::of(&[], 0).rank(1e-9), 0);
    }
    proptest! {
        /// Any size, rank and spread of magnitudes, equal eigenvalues and rows of zeros included: values as by another
        /// implementation, orthogonal vectors, and the matrix again.
        #[test]
        fn decomposes_any_symmetric_matrix(
            seed in 0u64..1_000_000, n in 1usize..24, rank in 0usize..24, spread in 0i32..30, dead in 0usize..4,
        ) {
            let mut s = Stream::new(seed, "any");
            let mut a = vec![0.0; n * n];
            for k in 0..rank {
                let weight = if seed % 3 == 0 { 1.0 } else { 10f64.powi(-(s.below(spread as usize + 1) as i32)) };
                let sign = if k % 4 == 3 { -weight } else { weight };
                let v: Vec<f64> = (0..n).map(|i| if i < dead { 0.0 } else { s.normal() }).collect();
                (0..n * n).for_each(|ij| a[ij] += sign * v[ij / n] * v[ij % n]);
            }
            let size = a.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let e = Eigen::of(&a, n);
            let mut expected: Vec<f64> =
                nalgebra::DMatrix::from_row_slice(n, n, &a).symmetric_eigenvalues().iter().copied().collect();
            expected.sort_by(|a, b| b.total_cmp(a));
            for (value, expected) in e.values.iter().zip(&expected) {
                // The other implementation divides by 0 where squares underflow.
                prop_assert!(!expected.is_finite() || (value - expected).abs() <= 1e-12 * size * n as f64, "{value} {expected}");
            }
            for i in 0..n {
                for j in 0..n {
                    let inner: f64 = e.vector(i).iter().zip(e.vector(j)).map(|(a, b)| a * b).sum();
                    prop_assert!((inner - f64::from(i == j)).abs() < 1e-12, "{i} {j} {inner}");
                    let sum: f64 = (0..n).map(|k| e.values[k] * e.vector(k)[i] * e.vector(k)[j]).sum();
                    prop_assert!((sum - a[i * n + j]).abs() <= 1e-12 * size * n as f64);
                }
            }
        }
    }
}
