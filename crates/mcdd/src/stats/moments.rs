//! Means and scatter of rows.

use crate::net::cpu::gemm::{Columns, Panels, WEIGHT_ROWS, ZERO, pack, weight_gradient};
use crate::net::cpu::pool::{Pool, chunks};

/// Rows whose products are added in f32 before they go to f64.
const BLOCK: usize = 240;
/// Parts of the rows that have sums of their own; their number depends on the rows alone, so threads change nothing.
const PARTS: usize = 8;

/// The mean of all rows of `width` features.
pub fn mean(x: &[f32], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; width];
    for row in x.chunks_exact(width.max(1)) {
        add(&mut sums, row);
    }
    let n = x.len().checked_div(width).unwrap_or(0).max(1);
    sums.iter_mut().for_each(|v| *v /= n as f64);
    sums
}

/// The mean of each class, one after the other, and its number of rows; a class without rows has zeros.
pub fn class_means(x: &[f32], width: usize, labels: &[u32], classes: usize) -> (Vec<f64>, Vec<usize>) {
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

/// `sum (x - c)(x - c)^T` over all rows, `width` x `width`; `centre` fills in `c` for a row. The differences are f32,
/// their products are summed in f32 over a few hundred rows and in f64 beyond.
pub fn scatter(x: &[f32], width: usize, centre: &(dyn Fn(usize, &mut [f32]) + Sync), pool: &Pool) -> Vec<f64> {
    let rows = x.len().checked_div(width).unwrap_or(0);
    let part = rows.div_ceil(PARTS).next_multiple_of(BLOCK);
    let count = rows.div_ceil(part.max(1)).max(1);
    let mut sums = vec![0.0f64; count * width * width];
    pool.split(chunks(&mut sums, width * width), |i, sums| {
        let rows = i * part..rows.min((i + 1) * part);
        let mut differences = Vec::with_capacity(BLOCK * width);
        let mut lines = Vec::new();
        let mut products = vec![0.0f32; width * width];
        let mut columns = Columns::default();
        let mut c = vec![0.0f32; width];
        for from in rows.clone().step_by(BLOCK) {
            let here = from..(from + BLOCK).min(rows.end);
            differences.clear();
            for r in here.clone() {
                centre(r, &mut c);
                differences.extend(x[r * width..(r + 1) * width].iter().zip(&c).map(|(x, c)| x - c));
            }
            lines.clear();
            lines.resize(Panels::lines(here.len(), width), ZERO);
            pack(&mut lines, &differences, here.len(), width, 0);
            let panels = Panels::new(&lines, here.len(), width);
            for (p, out) in products.chunks_mut(WEIGHT_ROWS * width).enumerate() {
                weight_gradient(&differences, width, panels, p * WEIGHT_ROWS, out, &mut columns);
            }
            for (s, &p) in sums.iter_mut().zip(&products) {
                *s += f64::from(p);
            }
        }
    });
    let (first, others) = sums.split_at_mut(width * width);
    for other in others.chunks_exact(width * width) {
        first.iter_mut().zip(other).for_each(|(a, b)| *a += b);
    }
    sums.truncate(width * width);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn by_definition_and_on_any_number_of_threads() {
        for (rows, width) in [(1, 1), (5, 3), (1000, 7), (3000, 40)] {
            let mut s = Stream::new(rows as u64, "moments");
            let x: Vec<f32> = (0..rows * width).map(|_| 5.0 + s.normal() as f32).collect();
            let labels: Vec<u32> = (0..rows).map(|_| s.below(3) as u32).collect();
            let (means, counts) = class_means(&x, width, &labels, 4);
            assert_eq!((counts.iter().sum::<usize>(), counts[3]), (rows, 0));
            let narrow: Vec<f32> = means.iter().map(|&v| v as f32).collect();
            let centre = |r: usize, c: &mut [f32]| {
                let y = labels[r] as usize;
                c.copy_from_slice(&narrow[y * width..(y + 1) * width]);
            };
            let got = scatter(&x, width, &centre, &Pool::new(1));
            assert_eq!(got, scatter(&x, width, &centre, &Pool::new(3)));
            for i in 0..width {
                for j in 0..width {
                    let expected: f64 = (0..rows)
                        .map(|r| {
                            let y = labels[r] as usize;
                            let d = |k: usize| f64::from(x[r * width + k] - narrow[y * width + k]);
                            d(i) * d(j)
                        })
                        .sum();
                    assert!((got[i * width + j] - expected).abs() < 1e-5 * rows as f64, "{rows} {i} {j}");
                }
            }
        }
        assert!(mean(&[], 2).iter().all(|&v| v == 0.0));
    }
}
