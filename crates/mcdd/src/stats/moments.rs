//! Means and scatter of rows.

// Loops over the lanes of several arrays compile best with an index.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};

/// The number of columns of a panel and of a tile of the scatter.
const PANEL: usize = 8;
/// The number of rows of a tile: 4 x 8 sums are eight vectors of four, which fit into the registers of AVX2.
const TILE: usize = PANEL / 2;
/// Rows of the data per inner block: a panel of them is 16 KB, half of the first-level cache.
const INNER: usize = 256;

/// The mean of all rows of `width` features.
pub(crate) fn mean(x: &[f32], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for row in x.chunks_exact(width.max(1)) {
        add(&mut sums, row);
    }
    let n = x.len().checked_div(width).unwrap_or(0).max(1);
    sums.iter_mut().for_each(|v| *v /= n as f64);
    sums
}

/// The mean of each class, one after the other, and the number of rows of each; the mean of an empty class is 0.
pub(crate) fn class_means(x: &[f32], width: usize, labels: &[u32], classes: usize) -> (Vec<f64>, Vec<usize>) {
    let mut sums = vec![0.0; classes * width];
    let mut counts = vec![0usize; classes];
    for (row, &y) in x.chunks_exact(width.max(1)).zip(labels) {
        let y = y as usize;
        add(&mut sums[y * width..(y + 1) * width], row);
        counts[y] += 1;
    }
    for (sum, &n) in sums.chunks_exact_mut(width.max(1)).zip(&counts) {
        sum.iter_mut().for_each(|v| *v /= n.max(1) as f64);
    }
    (sums, counts)
}

fn add(sums: &mut [f64], row: &[f32]) {
    for (s, &v) in sums.iter_mut().zip(row) {
        *s += f64::from(v);
    }
}

/// `sum (x - c)(x - c)^T` over all rows, `width` x `width`. `center` writes the `c` of a row. Differences and sums are f64,
/// so that directions of small variance are not lost beside those of large variance.
pub(crate) fn scatter(x: &[f32], width: usize, center: &(dyn Fn(usize, &mut [f32]) + Sync), pool: &Pool) -> Vec<f64> {
    let rows = x.len().checked_div(width).unwrap_or(0);
    let fill = |here: Range<usize>, out: &mut [f64]| {
        let mut c = vec![0.0f32; width];
        for (r, out) in here.zip(out.chunks_exact_mut(width)) {
            center(r, &mut c);
            for ((o, &x), &c) in out.iter_mut().zip(&x[r * width..(r + 1) * width]).zip(&c) {
                *o = f64::from(x) - f64::from(c);
            }
        }
    };
    scatter_of(rows, width, &fill, pool)
}

/// `sum v v^T` over `rows` vectors of `width` numbers, which `fill` writes for a range of rows. Each element is one chain
/// of fused multiply-adds over the rows in their order, for any number of threads. Only the upper triangle is computed.
pub(crate) fn scatter_of(
    rows: usize,
    width: usize,
    fill: &(dyn Fn(Range<usize>, &mut [f64]) + Sync),
    pool: &Pool,
) -> Vec<f64> {
    let panels = width.div_ceil(PANEL);
    if panels == 0 {
        return Vec::new();
    }
    // About a megabyte at a time: it fits into the second-level cache and keeps the pool busy.
    let blocks = ((1 << 17) / (panels * PANEL * INNER)).clamp(1, 16);
    let mut packed = vec![[0.0f64; PANEL]; blocks * panels * INNER];
    let mut sums = vec![[0.0f64; PANEL]; panels * PANEL * panels];
    for from in (0..rows).step_by(blocks * INNER) {
        let here = (rows - from).min(blocks * INNER);
        let block = |b: usize| from + b * INNER..from + here.min((b + 1) * INNER);
        let blocks = here.div_ceil(INNER);
        pool.split(chunks(&mut packed[..blocks * panels * INNER], panels * INNER), |b, packed| {
            pack_rows(packed, block(b), width, fill);
        });
        let packed = &packed[..];
        pool.split(chunks(&mut sums, PANEL * panels), |i, sums| {
            for (b, packed) in packed.chunks_exact(panels * INNER).take(blocks).enumerate() {
                simd::dispatch(Strip { packed, rows: block(b).len(), panel: i, sums });
            }
        });
    }
    let at = |i: usize, j: usize| sums[(i / PANEL * panels + j / PANEL) * PANEL + i % PANEL][j % PANEL];
    (0..width * width).map(|ij| (ij / width, ij % width)).map(|(i, j)| at(i.min(j), i.max(j))).collect()
}

/// Packs rows into panels.
fn pack_rows(
    packed: &mut [[f64; PANEL]],
    rows: Range<usize>,
    width: usize,
    fill: &(dyn Fn(Range<usize>, &mut [f64]) + Sync),
) {
    const FEW: usize = 16;
    let mut values = vec![0.0; FEW * width];
    for first in rows.clone().step_by(FEW) {
        let few = first..(first + FEW).min(rows.end);
        let values = &mut values[..few.len() * width];
        fill(few.clone(), values);
        for (r, row) in few.zip(values.chunks_exact(width)) {
            for (panel, values) in packed.chunks_exact_mut(INNER).zip(row.chunks(PANEL)) {
                panel[r - rows.start][..values.len()].copy_from_slice(values);
            }
        }
    }
}

/// The rows of the scatter of one panel, from the diagonal on.
struct Strip<'a> {
    packed: &'a [[f64; PANEL]],
    rows: usize,
    panel: usize,
    sums: &'a mut [[f64; PANEL]],
}

impl Kernel for Strip<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let left = &self.packed[self.panel * INNER..][..self.rows];
        let right = self.packed.chunks_exact(INNER);
        for (right, sums) in right.zip(self.sums.as_chunks_mut::<PANEL>().0).skip(self.panel) {
            let (upper, lower) = sums.split_at_mut(TILE);
            tile::<0>(left, right, upper);
            tile::<TILE>(left, right, lower);
        }
    }
}

/// A tile of the scatter, for the columns of the left panel from `FIRST` on. `FIRST` is a constant, as the loop is not
/// vectorized otherwise.
#[inline(always)]
fn tile<const FIRST: usize>(left: &[[f64; PANEL]], right: &[[f64; PANEL]], sums: &mut [[f64; PANEL]]) {
    let mut acc = [[0.0f64; PANEL]; TILE];
    acc.copy_from_slice(sums);
    for (a, b) in left.iter().zip(right) {
        for r in 0..TILE {
            for c in 0..PANEL {
                acc[r][c] = a[FIRST + r].mul_add(b[c], acc[r][c]);
            }
        }
    }
    sums.copy_from_slice(&acc);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn matches_definition_on_any_number_of_threads() {
        for (rows, width) in [(1, 1), (5, 3), (1000, 7), (3000, 40)] {
            let mut s = Stream::new(rows as u64, "moments");
            let x: Vec<f32> = (0..rows * width).map(|_| 5.0 + s.normal() as f32).collect();
            let labels: Vec<u32> = (0..rows).map(|_| s.below(3) as u32).collect();
            let (means, counts) = class_means(&x, width, &labels, 4);
            assert_eq!((counts.iter().sum::<usize>(), counts[3]), (rows, 0));
            let narrow: Vec<f32> = means.iter().map(|&v| v as f32).collect();
            let center = |r: usize, c: &mut [f32]| {
                let y = labels[r] as usize;
                c.copy_from_slice(&narrow[y * width..(y + 1) * width]);
            };
            let got = scatter(&x, width, &center, &Pool::new(1));
            assert_eq!(got, scatter(&x, width, &center, &Pool::new(3)));
            for i in 0..width {
                for j in 0..width {
                    let expected: f64 = (0..rows)
                        .map(|r| {
                            let y = labels[r] as usize;
                            let d = |k: usize| f64::from(x[r * width + k]) - f64::from(narrow[y * width + k]);
                            d(i) * d(j)
                        })
                        .sum();
                    assert!((got[i * width + j] - expected).abs() < 1e-12 * rows as f64, "{rows} {i} {j}");
                }
            }
        }
        assert!(mean(&[], 2).iter().all(|&v| v == 0.0));
    }
}
