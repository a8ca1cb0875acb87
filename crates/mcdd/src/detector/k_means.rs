//! K-means clustering with greedy k-means++ initialization.

use crate::compute::pool::{Pool, chunks};
use crate::compute::vector::squared_distance;
use crate::seed::Stream;
use crate::stats::moments::class_means;

/// The largest number of iterations.
const ITERATIONS: usize = 100;

/// K-means clustering.
pub(super) struct KMeans<'a> {
    /// The rows.
    pub(super) z: &'a [f32],
    /// The number of features per row.
    pub(super) width: usize,
    pub(super) pool: &'a Pool,
}

impl KMeans<'_> {
    /// The cluster of each row, out of at most `wanted`.
    pub(super) fn run(&self, wanted: usize, seed: u64) -> Vec<u32> {
        let mut centers = self.initial_centers(wanted, seed);
        let mut labels = self.nearest(&centers);
        for _ in 0..ITERATIONS {
            let (means, counts) = class_means(self.z, self.width, &labels, centers.len() / self.width);
            let moved = centers.chunks_exact_mut(self.width).zip(means.chunks_exact(self.width)).zip(&counts);
            // An empty cluster keeps its center.
            for ((center, mean), _) in moved.filter(|(_, n)| **n > 0) {
                center.iter_mut().zip(mean).for_each(|(c, &m)| *c = m as f32);
            }
            let next = self.nearest(&centers);
            if next == labels {
                break;
            }
            labels = next;
        }
        labels
    }

    /// The squared distance of each row to a point.
    fn distances(&self, point: &[f32]) -> Vec<f64> {
        let mut out = vec![0.0; self.z.len() / self.width];
        self.pool.split(chunks(&mut out, 1024), |i, out| {
            for (o, z) in out.iter_mut().zip(self.z[i * 1024 * self.width..].chunks_exact(self.width)) {
                *o = f64::from(squared_distance(z, point));
            }
        });
        out
    }

    /// The nearest center of each row; the first one in case of ties.
    fn nearest(&self, centers: &[f32]) -> Vec<u32> {
        let mut out = vec![0; self.z.len() / self.width];
        self.pool.split(chunks(&mut out, 1024), |i, out| {
            for (o, z) in out.iter_mut().zip(self.z[i * 1024 * self.width..].chunks_exact(self.width)) {
                let mut best = f32::INFINITY;
                for (c, center) in centers.chunks_exact(self.width).enumerate() {
                    let distance = squared_distance(z, center);
                    if distance < best {
                        (best, *o) = (distance, c as u32);
                    }
                }
            }
        });
        out
    }

    /// Greedy k-means++: each next center is a row, drawn with a probability proportional to its squared distance to the
    /// nearest center. Of a few such draws, the one with the lowest remaining sum is taken. Ends early when every row is a
    /// center.
    fn initial_centers(&self, wanted: usize, seed: u64) -> Vec<f32> {
        let mut s = Stream::new(seed, "gmm");
        let row = |r: usize| &self.z[r * self.width..(r + 1) * self.width];
        let first = s.below(self.z.len() / self.width);
        let mut centers = row(first).to_vec();
        let mut open = self.distances(row(first));
        let draws = 2 + libm::log(wanted as f64) as usize;
        while centers.len() < wanted * self.width {
            let all: f64 = open.iter().sum();
            if all <= 0.0 {
                break;
            }
            let mut best: Option<(f64, usize, Vec<f64>)> = None;
            for _ in 0..draws {
                let mut at = s.uniform() * all;
                let passed = |w: &f64| {
                    at -= w;
                    at < 0.0
                };
                // Rounding may leave a small rest at the end.
                let drawn = open.iter().position(passed);
                let drawn = drawn.or_else(|| open.iter().rposition(|&w| w > 0.0)).unwrap_or(0);
                let left: Vec<f64> = self.distances(row(drawn)).iter().zip(&open).map(|(a, b)| a.min(*b)).collect();
                let sum: f64 = left.iter().sum();
                if best.as_ref().is_none_or(|b| sum < b.0) {
                    best = Some((sum, drawn, left));
                }
            }
            if let Some((_, drawn, left)) = best {
                centers.extend(row(drawn));
                open = left;
            }
        }
        centers
    }
}
