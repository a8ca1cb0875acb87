//! Exact nearest neighbors: by boxes around rows where these lead there fast (`tree.rs`), else by brute force with matrix
//! products.
//!
//! The answer is that of the definition: the `k` smallest of `sum (a - b)^2` (or the `k` largest of `sum a b`), computed
//! in f64 from f32 rows one pair at a time, ties going to the earlier row. Almost no pair is really computed that way.
//! One product in f32 gives every pair a lower bound, and only pairs whose bound is below the k-th best so far are looked
//! at: for rows in no order some `k log2(n / k)` of `n`.
//!
//! # The bound
//! With `u = 2^-24`, `gamma = (w + 1) u / (1 - (w + 1) u)` for width `w`, rows centered on `c` and rounded to f32
//! (`a' = a - c`, `b' = b - c`, each element off by at most `u` of itself), and `A = |a'|^2`, `B = |b'|^2`:
//!
//! - A chain of multiply-adds in f32 that begins with `s = B (1/2 - g)` and takes away each `a'_i b'_i` ends at an `x`
//!   within `gamma (B + A / 2)` of `s - a' b'`.
//! - So `|a' - b'|^2 = A + B - 2 a' b' >= A + 2 x + 2 (g - gamma) B - gamma A`.
//! - Centring moves a distance by at most `u (|a'| + |b'|)`, its square by at most `4 u (A + B)`, and with
//!   `g = gamma + 4 u` what belongs to the stored row is paid: `|a - b|^2 >= A + 2 x - 2 g A`.
//!
//! A pair with `x > (d - A) / 2 + g A` is therefore farther than `d`. The margin is relative to the lengths of the two
//! rows of a pair, not to the longest one: an outlier costs time for itself only. For inner products the chain begins
//! with `-1.1 g |b|`, and with `|a| <= 1` a pair with `x > -v` has a product below `v`.
//!
//! Where the margin is wider than what there is to tell apart (rows very far from a tight cluster), all pairs of the
//! cluster are computed in f64: slower, with the same answer. The same goes for rows so long that f32 would overflow.

mod tree;

use std::cmp::Ordering;

use self::tree::Tree;
use super::{MAX_FEATURE, StateDict};
use crate::compute::gemm::{self, Line, Look, MR, NR, Panels, ZERO};
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd;
use crate::error::Result;
use crate::stats::moments::mean;

/// Queries answered together; more would push them out of the second-level cache.
const BLOCK: usize = 192;
/// Neighbors that the queries of a block have together, half of what they have room for: 2 MB.
const KEPT: usize = 1 << 17;
/// Squared lengths up to here leave f32 room for their products and sums.
const LONG: f64 = 1e36;
/// Features wider than this would need a margin of hundredths; there is none for them, and every pair is computed.
const WIDE: usize = 1 << 17;
/// Half a unit in the last place of 1.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// More than the smallest positive number: what an operation near 0 can lose.
const TINY: f64 = 3e-45;

/// What near means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// The smallest squared Euclidean distance.
    Distance,
    /// The largest inner product; queries must not be longer than 1 (but for rounding).
    Inner,
}

/// A neighbor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Neighbor {
    /// The squared distance, or minus the inner product.
    pub(super) value: f64,
    /// Its number among the stored rows.
    pub(super) row: usize,
}

impl Eq for Neighbor {}

impl PartialOrd for Neighbor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbor {
    /// Nearer first, ties by the number of the row.
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.total_cmp(&other.value).then(self.row.cmp(&other.row))
    }
}

/// Features among which neighbors are looked for.
#[derive(Debug)]
pub(super) struct Index {
    metric: Metric,
    width: usize,
    rows: Vec<f32>,
    center: Vec<f32>,
    /// The centered rows with their signs turned, packed as columns.
    lines: Vec<Line>,
    /// What the sum of each row begins with.
    starts: Vec<Line>,
    margin: f64,
    /// The way to the nearest rows that does not pass all others, where there is one.
    tree: Option<Tree>,
}

impl Index {
    /// Takes rows of `width` features, at least one of each, all finite; `k` is how many neighbors will be asked for, which
    /// changes the time and not the answers.
    pub(super) fn new(metric: Metric, rows: Vec<f32>, width: usize, k: usize, pool: &Pool) -> Index {
        let count = rows.len() / width.max(1);
        assert!(width > 0 && count > 0 && rows.len() == count * width);
        let center = match metric {
            Metric::Distance => mean(&rows, width).into_iter().map(|v| v as f32).collect(),
            Metric::Inner => vec![0.0; width],
        };
        let rounding = (width as f64 + 1.0) * U;
        let margin = rounding / (1.0 - rounding) + 4.0 * U;
        let mut lines = vec![ZERO; Panels::lines(width, count)];
        let mut starts = vec![Line([f32::INFINITY; NR]); count.div_ceil(NR)];
        pool.split((chunks(&mut lines, width), chunks(&mut starts, 1)), |p, (lines, start)| {
            let rows = rows[p * NR * width..].chunks_exact(width).take(NR);
            for (j, row) in rows.enumerate() {
                let mut squares = 0.0;
                for ((line, &v), &c) in lines.iter_mut().zip(row).zip(&center) {
                    let d = v - c;
                    line.0[j] = -d;
                    squares += f64::from(d) * f64::from(d);
                }
                // An inner product with a query of length 1 may be as large as f32 goes, a square not.
                let (size, share) = match metric {
                    Metric::Distance => (squares, 0.5 - margin),
                    Metric::Inner => (libm::sqrt(squares), -1.1 * margin),
                };
                start[0].0[j] = if size > LONG || width > WIDE { f32::NEG_INFINITY } else { (size * share) as f32 };
            }
        });
        let mut index = Index { metric, width, rows, center, lines, starts, margin, tree: None };
        if metric == Metric::Distance && Tree::serves(k) {
            index.tree = Tree::of(&index, pool);
        }
        index
    }

    /// Takes back rows that were stored; their panels are made again.
    ///
    /// # Errors
    /// If there are none, or some that no fit can have left.
    pub(super) fn load(metric: Metric, state: &mut StateDict, name: &str, k: usize) -> Result<Index> {
        let shape @ [count, width] = state.shape::<2>(name)?;
        let rows = state.take_f32(name, &shape)?;
        if count == 0 || width == 0 || width != state.width() {
            return Err(state.invalid("it keeps no rows of the right width"));
        }
        if metric == Metric::Distance && rows.iter().any(|v| v.abs() > MAX_FEATURE) {
            return Err(state.invalid("a row is too far away"));
        }
        Ok(Index::new(metric, rows, width, k, &Pool::new(1)))
    }

    /// Stores the rows.
    pub(super) fn save(&self, state: &mut StateDict, name: &str) {
        state.put_f32(name, &[self.count(), self.width], &self.rows);
    }

    /// How many rows there are.
    pub(super) fn count(&self) -> usize {
        self.rows.len() / self.width
    }

    /// Features of each row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The rows, as they came.
    pub(super) fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// Hands `found` the number of each query and its `k` nearest rows, nearest first; fewer where there are not so many.
    /// With `own`, query `i` is the stored row `own + i`, which is no neighbor of itself.
    ///
    /// The answer to a query does not depend on the others.
    pub(super) fn nearest(
        &self,
        queries: &[f32],
        k: usize,
        own: Option<usize>,
        mut found: impl FnMut(usize, &[Neighbor]),
    ) {
        assert!(queries.len().is_multiple_of(self.width));
        let k = k.min(self.count() - usize::from(own.is_some()));
        // Whole tiles, however large `k` is.
        let block = (KEPT / k.max(1)).clamp(MR, BLOCK) / MR * MR;
        for (b, queries) in queries.chunks(block * self.width).enumerate() {
            let from = b * block;
            for (i, best) in self.answer(queries, k, own.map(|o| o + from)).iter().enumerate() {
                found(from + i, best);
            }
        }
    }

    /// The `k` best of each query of a block, nearest first.
    fn answer(&self, queries: &[f32], k: usize, own: Option<usize>) -> Vec<Vec<Neighbor>> {
        let width = self.width;
        let walked = self.tree.as_ref().filter(|_| Tree::serves(k)).map(|tree| tree.walk(self, queries, k, own));
        let Some(walked) = walked else {
            let asked = (0..queries.len() / width).map(|q| Asked { own: own.map(|o| o + q), worst: f64::INFINITY });
            return Search::run(self, queries, k, asked.collect());
        };
        // What a walk has left open: no row beyond the worst it has found is among the best.
        let open: Vec<usize> = (0..walked.len()).filter(|&q| !walked[q].all).collect();
        let mut out: Vec<Vec<Neighbor>> = walked.into_iter().map(|found| found.best).collect();
        if !open.is_empty() {
            let rest: Vec<f32> = open.iter().flat_map(|q| &queries[q * width..(q + 1) * width]).copied().collect();
            let worst = |q: usize| out[q].get(k - 1).map_or(f64::INFINITY, |n| n.value.next_up());
            let asked = open.iter().map(|&q| Asked { own: own.map(|o| o + q), worst: worst(q) }).collect();
            for (q, best) in open.into_iter().zip(Search::run(self, &rest, k, asked)) {
                out[q] = best;
            }
        }
        out
    }

    /// The exact value of a pair.
    #[inline(always)]
    fn value(&self, query: &[f32], row: usize) -> f64 {
        let row = &self.rows[row * self.width..(row + 1) * self.width];
        match self.metric {
            Metric::Distance => squared_distance(query, row),
            Metric::Inner => -inner_product(query, row),
        }
    }

    /// The sum above which a row is farther than `value` from a query whose centered square is `squares`.
    fn limit(&self, value: f64, squares: f64) -> f32 {
        let loss = loss(self.width);
        let (limit, size) = match self.metric {
            // No later row is nearer than this one, and ties go to the earlier.
            Metric::Distance if value == 0.0 => return f32::NEG_INFINITY,
            Metric::Distance => ((value - squares) / 2.0 + self.margin * squares, value + squares),
            Metric::Inner => (value, value.abs()),
        };
        if squares > LONG {
            return f32::INFINITY;
        }
        ((limit + loss * size + (self.width + 2) as f64 * TINY) as f32).next_up()
    }
}

/// What a sum in f64 itself can lose, with room to spare.
#[inline(always)]
fn loss(width: usize) -> f64 {
    (width + 8) as f64 / (1u64 << 50) as f64
}

/// `sum (a - b)^2` in f64: element `i` goes to sum `i % 16`, and the sums are added up in order.
#[inline(always)]
fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    sum_pairs(a, b, |a, b| (a - b) * (a - b))
}

/// `sum a b` in f64, in the same order.
#[inline(always)]
fn inner_product(a: &[f32], b: &[f32]) -> f64 {
    sum_pairs(a, b, |a, b| a * b)
}

#[inline(always)]
fn sum_pairs(a: &[f32], b: &[f32], f: impl Fn(f64, f64) -> f64) -> f64 {
    let mut sums = [0.0f64; 16];
    let (a, rest_a) = a.as_chunks::<16>();
    let (b, rest_b) = b.as_chunks::<16>();
    for (a, b) in a.iter().zip(b) {
        for ((s, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *s += f(f64::from(a), f64::from(b));
        }
    }
    for ((s, &a), &b) in sums.iter_mut().zip(rest_a).zip(rest_b) {
        *s += f(f64::from(a), f64::from(b));
    }
    sums.iter().sum()
}

/// A block of queries on the way through the rows.
struct Search<'a> {
    index: &'a Index,
    queries: &'a [f32],
    k: usize,
    asked: Vec<Asked>,
    /// The squared length of each centered query.
    squares: Vec<f64>,
    /// What may be among the best of each query.
    best: Vec<Best>,
    /// For each query, the sum above which a row is not among the best.
    limits: Vec<f32>,
}

/// What is known of a query.
struct Asked {
    /// The row that it is.
    own: Option<usize>,
    /// All of its best are below this.
    worst: f64,
}

/// The best of a query so far and some more: at `2 k` they are cut back to `k`. Next to a heap, which would be up to
/// date all the time, that takes a few more pairs and much less time for each.
struct Best {
    found: Vec<Neighbor>,
    /// What is not below this is not among the best.
    worst: f64,
}

impl<'a> Search<'a> {
    /// The `k` best of each query, nearest first.
    fn run(index: &'a Index, queries: &'a [f32], k: usize, asked: Vec<Asked>) -> Vec<Vec<Neighbor>> {
        let width = index.width;
        let count = queries.len() / width;
        if k == 0 {
            return vec![Vec::new(); count];
        }
        let mut centered = Vec::with_capacity(queries.len());
        for query in queries.chunks_exact(width) {
            centered.extend(query.iter().zip(&index.center).map(|(v, c)| v - c));
        }
        let squares: Vec<f64> = centered.chunks_exact(width).map(|a| inner_product(a, a)).collect();
        let room = (2 * k).min(index.count());
        let best = asked.iter().map(|a| Best { found: Vec::with_capacity(room), worst: a.worst }).collect();
        let limit = |(a, &squares): (&Asked, &f64)| {
            if a.worst < f64::INFINITY { index.limit(a.worst, squares) } else { f32::INFINITY }
        };
        let limits = asked.iter().zip(&squares).map(limit).collect();
        let mut search = Search { index, queries, k, asked, squares, best, limits };
        let panels = Panels::new(&index.lines, width, index.count());
        gemm::look(&centered, panels, &index.starts, &mut search);
        let sorted = |mut best: Best| {
            best.found.sort_unstable();
            best.found.truncate(k);
            best.found
        };
        search.best.into_iter().map(sorted).collect()
    }

    /// A pair that may be among the best. Features come in ascending order, so ties with what is there are lost.
    #[inline(always)]
    fn take(&mut self, q: usize, row: usize) {
        let Index { width, .. } = *self.index;
        let value = self.index.value(&self.queries[q * width..(q + 1) * width], row);
        let best = &mut self.best[q];
        if value >= best.worst {
            return;
        }
        best.found.push(Neighbor { value, row });
        // For the first time, or with as many again.
        if best.found.len() == self.k || best.found.len() == 2 * self.k {
            best.worst = best.found.select_nth_unstable(self.k - 1).1.value;
            best.found.truncate(self.k);
            self.limits[q] = self.index.limit(best.worst, self.squares[q]);
        }
    }
}

impl Look for Search<'_> {
    #[inline(always)]
    fn look(&mut self, row: usize, rows: usize, panel: usize, tile: &[Line; MR]) {
        for (r, line) in tile.iter().enumerate().take(rows) {
            let limit = self.limits[row + r];
            // Asked this way round, what is no number is not above: it came of an overflow and has to be computed.
            let above = line.0.iter().fold(true, |all, &v| all & (v > limit));
            if !above {
                closer(self, row + r, panel, line);
            }
        }
    }
}

/// Computes those pairs of a query and a panel that may be among the best: seldom, so out of the way of the loop.
#[cold]
#[inline(never)]
fn closer(search: &mut Search, q: usize, panel: usize, sums: &Line) {
    simd::dispatch(Closer { search, q, panel, sums });
}

struct Closer<'a, 'b> {
    search: &'a mut Search<'b>,
    q: usize,
    panel: usize,
    sums: &'a Line,
}

impl simd::Kernel for Closer<'_, '_> {
    #[inline(always)]
    fn run(self) {
        let Closer { search, q, panel, sums } = self;
        let own = search.asked[q].own;
        for (j, &sum) in sums.0.iter().enumerate() {
            let row = panel * NR + j;
            let above = sum > search.limits[q];
            if !above && row < search.index.count() && own != Some(row) {
                search.take(q, row);
            }
        }
    }
}

/// Features of `width` divided by their lengths; one of nothing but zeros stays.
pub(super) fn normalize_rows(rows: &[f32], width: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows.len());
    for row in rows.chunks_exact(width) {
        let length = libm::sqrt(inner_product(row, row));
        // Squares of f32 never vanish in f64, so the length is 0 for zeros only.
        let length = if length == 0.0 { 1.0 } else { length };
        out.extend(row.iter().map(|&v| (f64::from(v) / length) as f32));
    }
    out
}

#[cfg(test)]
mod tests;
