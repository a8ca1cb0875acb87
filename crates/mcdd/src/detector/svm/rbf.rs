//! The Gaussian kernel `exp(-|x - y|^2)` of scaled rows with many points.
//!
//! Distances are sums of squared differences, not `|x|^2 + |y|^2 - 2xy`. This takes one more subtraction per element, and
//! loses no digits for rows that are close to each other and far from the origin. Each value is one chain of fused
//! multiply-adds in the order of the features. So it is independent of the other rows in the block, symmetric, and exactly
//! 1 for equal rows.

// Loops over the lanes of several arrays are clearest, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use crate::compute::gemm::{Line, NR, Panels, ZERO, pack_transposed};
use crate::compute::simd::{self, Kernel, Simd};

/// Rows whose distances to a panel of points are computed together.
const ROWS: usize = 4;
/// Panels that one row is compared with at a time.
const WIDE: usize = 4;

/// `exp(-t)` for `t >= 0` with a relative error of about 1e-7, without a branch; 0 from 87.7 on, where f32 underflows.
#[inline(always)]
pub(super) fn exp_minus(t: f32) -> f32 {
    // Adding this constant rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 1.5 * (1u32 << 23) as f32;
    // ln 2 in two parts; the first has few bits, so that its product with a small integer is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let t = if t < 88.0 { t } else { 88.0 };
    let z = t.mul_add(-std::f32::consts::LOG2_E, ROUND);
    let n = z - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, -t));
    // The Taylor series up to r^7: |r| is at most 0.35, so the remainder is below 1e-8.
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = r.mul_add(p, c);
    }
    // 2^n; n is -127 for the largest t, whose bits are those of 0.
    p * f32::from_bits((z.to_bits() << 23).wrapping_add(127 << 23))
}

/// Points packed into panels of 16, feature by feature; the last panel is padded with zeros.
#[derive(Clone, Debug)]
pub(super) struct Points {
    lines: Vec<Line>,
    count: usize,
    width: usize,
}

impl Points {
    /// Packs rows of `width` features; `width` must not be 0.
    pub(super) fn new(rows: &[f32], width: usize) -> Points {
        let count = rows.len() / width;
        let mut lines = vec![ZERO; Panels::lines(width, count)];
        pack_transposed(&mut lines, rows, width, count, 0);
        Points { lines, count, width }
    }

    /// The number of points.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The number of features per point.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The points as rows.
    pub(super) fn rows(&self) -> Vec<f32> {
        let at = |i: usize, k: usize| self.lines[i / NR * self.width + k].0[i % NR];
        (0..self.count).flat_map(|i| (0..self.width).map(move |k| at(i, k))).collect()
    }

    /// Computes the kernel of one row with the points of the panels from `first` on, as many as fit into `out`.
    pub(super) fn kernel_row(&self, row: &[f32], first: usize, out: &mut [f32]) {
        assert!(row.len() == self.width && out.len().is_multiple_of(NR));
        let lines = &self.lines[first * self.width..][..out.len() / NR * self.width];
        simd::dispatch(OneRow { row, lines, out });
    }

    /// Computes `sum_j w_j K(x, x_j)` for each row. `weights` are padded with zeros to whole panels; `lanes` is a buffer.
    pub(super) fn sums(&self, rows: &[f32], weights: &[f64], out: &mut [f64], lanes: &mut Vec<f64>) {
        assert!(rows.len() == out.len() * self.width && weights.len() == self.count.next_multiple_of(NR));
        lanes.clear();
        lanes.resize(out.len() * NR, 0.0);
        simd::dispatch(Sums { rows, points: self, weights, lanes });
        for (out, lanes) in out.iter_mut().zip(lanes.as_chunks::<NR>().0) {
            *out = lanes.iter().sum();
        }
    }
}

struct OneRow<'a> {
    row: &'a [f32],
    lines: &'a [Line],
    out: &'a mut [f32],
}

impl Kernel for OneRow<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let k = self.row.len();
        let mut groups = self.lines.chunks_exact(WIDE * k);
        let mut outs = self.out.chunks_exact_mut(WIDE * NR);
        for (lines, out) in groups.by_ref().zip(outs.by_ref()) {
            let (l0, rest) = lines.split_at(k);
            let (l1, rest) = rest.split_at(k);
            let (l2, l3) = rest.split_at(k);
            let mut acc = [[0.0f32; NR]; WIDE];
            for ((((&x, l0), l1), l2), l3) in self.row.iter().zip(l0).zip(l1).zip(l2).zip(l3) {
                for j in 0..NR {
                    acc[0][j] = add_square(x - l0.0[j], acc[0][j]);
                    acc[1][j] = add_square(x - l1.0[j], acc[1][j]);
                    acc[2][j] = add_square(x - l2.0[j], acc[2][j]);
                    acc[3][j] = add_square(x - l3.0[j], acc[3][j]);
                }
            }
            for (out, acc) in out.as_chunks_mut::<NR>().0.iter_mut().zip(&acc) {
                exponentials(acc, out);
            }
        }
        let rest = outs.into_remainder().as_chunks_mut::<NR>().0;
        for (lines, out) in groups.remainder().chunks_exact(k).zip(rest) {
            let mut acc = [0.0f32; NR];
            for (&x, line) in self.row.iter().zip(lines) {
                for j in 0..NR {
                    acc[j] = add_square(x - line.0[j], acc[j]);
                }
            }
            exponentials(&acc, out);
        }
    }
}

#[inline(always)]
fn exponentials(t: &[f32; NR], out: &mut [f32; NR]) {
    for j in 0..NR {
        out[j] = exp_minus(t[j]);
    }
}

#[inline(always)]
fn add_square(d: f32, sum: f32) -> f32 {
    d.mul_add(d, sum)
}

struct Sums<'a> {
    rows: &'a [f32],
    points: &'a Points,
    weights: &'a [f64],
    lanes: &'a mut [f64],
}

impl Kernel for Sums<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let k = self.points.width;
        let count = self.rows.len() / k;
        let lanes = self.lanes.as_chunks_mut::<NR>().0;
        for (lines, weights) in self.points.lines.chunks_exact(k).zip(self.weights.as_chunks::<NR>().0) {
            for first in (0..count).step_by(ROWS) {
                // A tile at the lower edge repeats the last row and drops its results.
                let at = |r: usize| &self.rows[(first + r).min(count - 1) * k..][..k];
                let (x0, x1, x2, x3) = (at(0), at(1), at(2), at(3));
                let mut acc = [[0.0f32; NR]; ROWS];
                for ((((line, &x0), &x1), &x2), &x3) in lines.iter().zip(x0).zip(x1).zip(x2).zip(x3) {
                    for j in 0..NR {
                        acc[0][j] = add_square(x0 - line.0[j], acc[0][j]);
                        acc[1][j] = add_square(x1 - line.0[j], acc[1][j]);
                        acc[2][j] = add_square(x2 - line.0[j], acc[2][j]);
                        acc[3][j] = add_square(x3 - line.0[j], acc[3][j]);
                    }
                }
                for (lanes, acc) in lanes[first..].iter_mut().zip(&acc) {
                    let mut kernel = [0.0; NR];
                    exponentials(acc, &mut kernel);
                    for j in 0..NR {
                        lanes[j] += weights[j] * f64::from(kernel[j]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use proptest::prelude::*;

    #[test]
    fn exponential_has_seven_digits() {
        for i in 0..200_000 {
            let t = i as f32 * 87.3 / 200_000.0;
            let exact = libm::exp(-f64::from(t));
            assert!((f64::from(exp_minus(t)) / exact - 1.0).abs() < 2e-7, "{t}");
        }
        assert_eq!(exp_minus(0.0), 1.0);
        assert!(exp_minus(1e-20) == 1.0 && exp_minus(87.3) > 0.0 && exp_minus(87.5) < 1e-37);
        assert_eq!([87.8, 88.0, 1e30, f32::MAX, f32::INFINITY].map(exp_minus), [0.0; 5]);
    }

    fn random(n: usize, seed: u64) -> Vec<f32> {
        let mut s = Stream::new(seed, "rbf");
        (0..n).map(|_| s.normal() as f32).collect()
    }

    proptest! {
        #[test]
        fn matches_definition_in_any_batch(points in 1usize..150, count in 1usize..14, width in 1usize..40) {
            let (y, x) = (random(points * width, 1), random(count * width, 2));
            let packed = Points::new(&y, width);
            prop_assert_eq!(packed.rows(), y.clone());
            let weights: Vec<f64> = (0..points.next_multiple_of(NR)).map(|j| if j < points { j as f64 } else { 0.0 }).collect();
            let (mut out, mut lanes) = (vec![0.0; count], Vec::new());
            packed.sums(&x, &weights, &mut out, &mut lanes);
            for (i, x) in x.chunks(width).enumerate() {
                let kernel = |y: &[f32]| {
                    let d: f64 = x.iter().zip(y).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
                    libm::exp(-d)
                };
                let mut row = vec![0.0; points.next_multiple_of(NR)];
                packed.kernel_row(x, 0, &mut row);
                for (j, y) in y.chunks(width).enumerate() {
                    prop_assert!((f64::from(row[j]) - kernel(y)).abs() < 2e-6);
                    let (mut back, alone) = ([0.0; NR], Points::new(x, width));
                    alone.kernel_row(y, 0, &mut back);
                    prop_assert_eq!(back[0], row[j]);
                }
                let expected: f64 = y.chunks(width).enumerate().map(|(j, y)| j as f64 * kernel(y)).sum();
                prop_assert!((out[i] - expected).abs() < 2e-6 * (points * points) as f64);
                let mut alone = [0.0];
                packed.sums(x, &weights, &mut alone, &mut lanes);
                prop_assert_eq!(alone[0], out[i]);
                let last = points.div_ceil(NR) - 1;
                let mut part = [0.0; NR];
                packed.kernel_row(x, last, &mut part);
                prop_assert_eq!(&part[..], &row[last * NR..]);
            }
        }
    }

    #[test]
    fn kernel_of_far_and_equal_rows() {
        let far = [-1e15f32, 1e15, f32::MAX];
        let points = Points::new(&[1e15, 1e15, 1e15, -1e15, 1e15, f32::MAX, 0.0, 0.0, -f32::MAX], 3);
        let mut row = [0.5; NR];
        points.kernel_row(&far, 0, &mut row);
        assert_eq!(row[..3], [0.0, 1.0, 0.0]);
    }
}
