//! The single nearest row of each query, by brute force.
//!
//! For one neighbor the bounds of a matrix product are enough to tell which rows may be the nearest, and only these are
//! computed exactly, at the end: mostly one.
//!
//! # The bound
//! In the terms of [`super`], a sum `x` is at most `gamma (B + A / 2)` above `B (1/2 - g) - a' b'`, up to rounding of its first
//! term, and centering changes the square by at most `4 u (A + B)`. So `|a - b|^2 <= A + 2 x + 6 g B + 2 g A`, with some
//! room. The row that gives the least of these is a limit for all others.

use super::{Index, Known, Neighbor, UNDERFLOW};
use crate::compute::gemm::{Line, Look, NR};

pub(super) struct Search<'a> {
    index: &'a Index,
    queries: &'a [f32],
    known: Vec<Known>,
    /// The squared norm of each centered query.
    squares: Vec<f64>,
    /// For each query, the sum above which a row is not the nearest.
    limits: Vec<f32>,
    /// Rows that may be the nearest.
    found: Vec<Candidate>,
}

struct Candidate {
    query: usize,
    row: usize,
    sum: f32,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        index: &'a Index,
        queries: &'a [f32],
        known: Vec<Known>,
        squares: Vec<f64>,
        limits: Vec<f32>,
    ) -> Search<'a> {
        let found = Vec::with_capacity(16 * known.len());
        Search { index, queries, known, squares, limits, found }
    }

    /// An upper bound of the squared distance of a pair.
    #[inline(always)]
    fn at_most(&self, query: usize, row: usize, sum: f32) -> f64 {
        let (a, margin) = (self.squares[query], self.index.margin);
        let start = f64::from(self.index.starts[row / NR].0[row % NR]);
        // A row whose norm is too large has no bound.
        if !(start.is_finite() && sum.is_finite()) {
            return f64::INFINITY;
        }
        let b = start / (0.5 - margin);
        let all = a + 2.0 * f64::from(sum) + 6.0 * margin * b + 2.0 * margin * a;
        // The last term is for sums of tiny numbers.
        all.max(0.0) + 4.0 * (self.index.width + 2) as f64 * UNDERFLOW
    }

    /// The nearest row of each query.
    pub(super) fn finish(self) -> Vec<Option<Neighbor>> {
        let width = self.index.width;
        let mut best: Vec<Option<Neighbor>> = vec![None; self.known.len()];
        for &Candidate { query, row, sum } in &self.found {
            let above = sum > self.limits[query];
            if !above {
                let value = self.index.value(&self.queries[query * width..(query + 1) * width], row);
                let new = Neighbor { value, row };
                best[query] = Some(best[query].map_or(new, |b| b.min(new)));
            }
        }
        best
    }
}

impl Look for Search<'_> {
    #[inline(always)]
    fn limit(&self, row: usize) -> f32 {
        self.limits[row]
    }

    #[inline(never)]
    fn look(&mut self, query: usize, panel: usize, line: &Line) {
        let own = self.known[query].own;
        for (j, &sum) in line.0.iter().enumerate() {
            let row = panel * NR + j;
            if sum > self.limits[query] || row >= self.index.count() || own == Some(row) {
                continue;
            }
            self.found.push(Candidate { query, row, sum });
            let at_most = self.at_most(query, row, sum);
            if at_most < f64::INFINITY {
                let limit = self.index.limit(at_most, self.squares[query]);
                self.limits[query] = self.limits[query].min(limit);
            }
        }
    }
}
