//! Exact nearest neighbors: by a tree of bounding boxes where that is fast (`tree.rs`), otherwise by brute force with
//! matrix products.
//!
//! The result is that of the definition: the `k` smallest of `sum (a - b)^2` (or the `k` largest of `sum a b`), computed
//! in f64 from f32 rows one pair at a time; ties go to the earlier row. Few pairs are computed that way. A matrix product
//! in f32 gives a lower bound for every pair, and only pairs whose bound is below the k-th best so far are computed
//! exactly: for rows in random order about `k log2(n / k)` of `n`.
//!
//! # The bound
//! With `u = 2^-24`, `gamma = (w + 1) u / (1 - (w + 1) u)` for width `w`, rows centered on `c` and rounded to f32
//! (`a' = a - c`, `b' = b - c`, each element with a relative error of at most `u`), and `A = |a'|^2`, `B = |b'|^2`:
//!
//! - A chain of multiply-adds in f32 that starts with `s = B (1/2 - g)` and subtracts each `a'_i b'_i` ends at an `x`
//!   within `gamma (B + A / 2)` of `s - a' b'`.
//! - So `|a' - b'|^2 = A + B - 2 a' b' >= A + 2 x + 2 (g - gamma) B - gamma A`.
//! - Centering changes a distance by at most `u (|a'| + |b'|)` and its square by at most `4 u (A + B)`. With
//!   `g = gamma + 4 u` the terms of the stored row cancel: `|a - b|^2 >= A + 2 x - 2 g A`.
//!
//! A pair with `x > (d - A) / 2 + g A` is therefore farther than `d`. The margin is relative to the norms of the two rows
//! of a pair, not to the largest norm: an outlier slows down only its own pairs. For inner products the chain starts with
//! `-1.1 g |b|`, and with `|a| <= 1` a pair with `x > -v` has a product below `v`.
//!
//! If the margin is wider than the differences between distances (for rows very far from a tight cluster), all pairs of
//! the cluster are computed in f64. This is slower, with the same result. The same holds for rows whose norms would
//! overflow f32.

mod axes;
mod nearest;
mod tree;

use std::cmp::Ordering;

use self::tree::Tree;
use super::{MAX_FEATURE, StateDict};
use crate::compute::gemm::{self, Line, Look, MR, NR, Panels, ZERO};
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};
use crate::error::Result;
use crate::onnx::{Attribute, Builder, Type, Value, wide};
use crate::stats::moments::mean;

/// Queries per block; more would not fit into the second-level cache.
const BLOCK: usize = 192;
/// Queries per block for a tree: of more, more are near each other.
const TREE_BLOCK: usize = 6144;
/// The largest number of neighbors of all queries of a block together. Buffers are twice as large: 2 MB.
const MAX_NEIGHBORS: usize = 1 << 17;
/// The largest squared norm whose products and sums do not overflow f32.
const MAX_SQUARED_NORM: f64 = 1e36;
/// The largest width with bounds. Wider rows would need a margin of some percent; all their pairs are computed exactly.
const MAX_WIDTH: usize = 1 << 17;
/// The unit roundoff of f32.
const U: f64 = 1.0 / (1u64 << 24) as f64;
/// An upper bound of the underflow error of one f32 operation.
const UNDERFLOW: f64 = 3e-45;

/// The measure of nearness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// The smallest squared Euclidean distance.
    Distance,
    /// The largest inner product. The norm of a query must be at most 1, up to rounding.
    Inner,
}

/// A neighbor of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Neighbor {
    /// The squared distance, or minus the inner product.
    pub(super) value: f64,
    /// The index of the stored row.
    pub(super) row: usize,
}

impl Eq for Neighbor {}

impl PartialOrd for Neighbor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbor {
    /// Nearer first; ties by the index of the row.
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.total_cmp(&other.value).then(self.row.cmp(&other.row))
    }
}

/// Stored rows that are searched for neighbors.
#[derive(Debug)]
pub(super) struct Index {
    metric: Metric,
    width: usize,
    rows: Vec<f32>,
    center: Vec<f32>,
    /// The negated centered rows, packed as columns.
    lines: Vec<Line>,
    /// The initial value of the sum of each row.
    starts: Vec<Line>,
    margin: f64,
    /// The tree, if it is faster than brute force.
    tree: Option<Tree>,
}

impl Index {
    /// Stores rows of `width` features, at least one of each, all finite. `k` is the number of neighbors that will be
    /// searched for; it affects the speed but not the results.
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
                // An inner product with a query of norm 1 may be as large as the largest f32, a square may not.
                let (size, factor) = match metric {
                    Metric::Distance => (squares, 0.5 - margin),
                    Metric::Inner => (libm::sqrt(squares), -1.1 * margin),
                };
                start[0].0[j] = if size > MAX_SQUARED_NORM || width > MAX_WIDTH {
                    f32::NEG_INFINITY
                } else {
                    (size * factor) as f32
                };
            }
        });
        let mut index = Index { metric, width, rows, center, lines, starts, margin, tree: None };
        if metric == Metric::Distance && Tree::supports(k) {
            index.tree = Tree::of(&index, pool);
        }
        index
    }

    /// Loads stored rows and packs them again.
    ///
    /// # Errors
    /// If there are none, or they are invalid.
    pub(super) fn load(metric: Metric, state: &mut StateDict, name: &str, k: usize) -> Result<Index> {
        let shape @ [count, width] = state.shape::<2>(name)?;
        let rows = state.take_f32(name, &shape)?;
        if count == 0 || width == 0 || width != state.width() {
            return Err(state.invalid("the rows have an invalid shape"));
        }
        Index::of_stored(metric, rows, state, k)
    }

    /// An index of at least one row that was stored.
    ///
    /// # Errors
    /// If a row is out of range.
    pub(super) fn of_stored(metric: Metric, rows: Vec<f32>, state: &StateDict, k: usize) -> Result<Index> {
        let width = state.width();
        if metric == Metric::Distance && !rows.iter().all(|v| v.abs() <= MAX_FEATURE) {
            return Err(state.invalid("a row is out of range"));
        }
        Ok(Index::new(metric, rows, width, k, &Pool::new(1)))
    }

    /// Stores the rows.
    pub(super) fn save(&self, state: &mut StateDict, name: &str) {
        state.put_f32(name, &[self.count(), self.width], &self.rows);
    }

    /// The number of rows.
    pub(super) fn count(&self) -> usize {
        self.rows.len() / self.width
    }

    /// The number of features per row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The rows as given.
    pub(super) fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// Calls `found` with the index of each query and its `k` nearest rows, nearest first; all rows if there are fewer.
    /// With `own`, query `i` is the stored row `own + i`, which is not a neighbor of itself.
    ///
    /// The result of a query is independent of the other queries.
    pub(super) fn nearest(
        &self,
        queries: &[f32],
        k: usize,
        own: Option<usize>,
        mut found: impl FnMut(usize, &[Neighbor]),
    ) {
        assert!(queries.len().is_multiple_of(self.width));
        let k = k.min(self.count() - usize::from(own.is_some()));
        // Whole tiles, for any `k`.
        let most = if self.tree.is_some() && Tree::supports(k) { TREE_BLOCK } else { BLOCK };
        let block = (MAX_NEIGHBORS / k.max(1)).clamp(MR, most) / MR * MR;
        for (b, queries) in queries.chunks(block * self.width).enumerate() {
            let from = b * block;
            if k == 1 && self.metric == Metric::Distance && self.tree.is_none() {
                let nearest = self.compare_for_nearest(queries, self.unknown(queries, own.map(|o| o + from)));
                for (i, nearest) in nearest.iter().enumerate() {
                    found(from + i, nearest.as_slice());
                }
                continue;
            }
            let own = own.map(|o| o + from);
            match self.tree.as_ref().filter(|_| Tree::supports(k)) {
                Some(tree) => {
                    let best = self.walk(tree, queries, k, own);
                    for (i, best) in best.chunks_exact(k).enumerate() {
                        found(from + i, best);
                    }
                }
                None => {
                    for (i, best) in self.compare_all(queries, k, self.unknown(queries, own)).iter().enumerate() {
                        found(from + i, best);
                    }
                }
            }
        }
    }

    /// The `k` nearest rows of each query of a block, nearest first, by the tree.
    fn walk(&self, tree: &Tree, queries: &[f32], k: usize, own: Option<usize>) -> Vec<Neighbor> {
        let width = self.width;
        let tree::Found { mut best, complete } = tree.walk(self, queries, k, own);
        // Walks that did not end: their neighbors are not farther than the worst row found.
        let open: Vec<usize> = (0..complete.len()).filter(|&q| !complete[q]).collect();
        if !open.is_empty() {
            let rest: Vec<f32> = open.iter().flat_map(|q| &queries[q * width..(q + 1) * width]).copied().collect();
            let worst = |q: usize| best[q * k + k - 1].value.next_up();
            let known = open.iter().map(|&q| Known { own: own.map(|o| o + q), worst: worst(q) }).collect();
            for (q, found) in open.into_iter().zip(self.compare_all(&rest, k, known)) {
                best[q * k..(q + 1) * k].copy_from_slice(&found);
            }
        }
        best
    }

    /// What is known before the search about queries, of which the first is the stored row `own`, if any.
    fn unknown(&self, queries: &[f32], own: Option<usize>) -> Vec<Known> {
        let count = queries.len() / self.width;
        (0..count).map(|q| Known { own: own.map(|o| o + q), worst: f64::INFINITY }).collect()
    }

    /// The `k` nearest rows of each query, nearest first, by brute force.
    fn compare_all(&self, queries: &[f32], k: usize, known: Vec<Known>) -> Vec<Vec<Neighbor>> {
        if k == 0 {
            return vec![Vec::new(); known.len()];
        }
        if k == 1 && self.metric == Metric::Distance {
            let nearest = self.compare_for_nearest(queries, known);
            return nearest.into_iter().map(|nearest| nearest.into_iter().collect()).collect();
        }
        let Centered { rows, squares, limits } = self.center(queries, &known);
        let room = (2 * k).min(self.count());
        let best = known.iter().map(|a| Candidates { found: Vec::with_capacity(room), worst: a.worst }).collect();
        let mut search = Search { index: self, queries, k, known, squares, best, limits };
        gemm::look(&rows, self.panels(), &self.starts, &mut search);
        let sorted = |mut best: Candidates| {
            best.found.sort_unstable();
            best.found.truncate(k);
            best.found
        };
        search.best.into_iter().map(sorted).collect()
    }

    /// The nearest row of each query, by brute force.
    fn compare_for_nearest(&self, queries: &[f32], known: Vec<Known>) -> Vec<Option<Neighbor>> {
        let Centered { rows, squares, limits } = self.center(queries, &known);
        let mut search = nearest::Search::new(self, queries, known, squares, limits);
        gemm::look(&rows, self.panels(), &self.starts, &mut search);
        search.finish()
    }

    /// The negated centered rows.
    fn panels(&self) -> Panels<'_> {
        Panels::new(&self.lines, self.width, self.count())
    }

    /// Centers queries.
    fn center(&self, queries: &[f32], known: &[Known]) -> Centered {
        let mut rows = Vec::with_capacity(queries.len());
        for query in queries.chunks_exact(self.width) {
            rows.extend(query.iter().zip(&self.center).map(|(v, c)| v - c));
        }
        let squares: Vec<f64> = rows.chunks_exact(self.width).map(|a| inner_product(a, a)).collect();
        let limit = |(a, &squares): (&Known, &f64)| {
            if a.worst < f64::INFINITY { self.limit(a.worst, squares) } else { f32::INFINITY }
        };
        let limits = known.iter().zip(&squares).map(limit).collect();
        Centered { rows, squares, limits }
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

    /// The sum above which a row is farther than `value` from a query whose squared centered norm is `squares`.
    fn limit(&self, value: f64, squares: f64) -> f32 {
        let sum_error = sum_error(self.width);
        let (limit, size) = match self.metric {
            // No later row is nearer than this, and ties go to the earlier row.
            Metric::Distance if value == 0.0 => return f32::NEG_INFINITY,
            Metric::Distance => ((value - squares) / 2.0 + self.margin * squares, value + squares),
            Metric::Inner => (value, value.abs()),
        };
        if squares > MAX_SQUARED_NORM {
            return f32::INFINITY;
        }
        ((limit + sum_error * size + (self.width + 2) as f64 * UNDERFLOW) as f32).next_up()
    }
}

/// What a search in a graph of ONNX finds, nearest first.
pub(super) struct Found {
    /// The squared distances, or the inner products, `[rows, k]`.
    pub(super) values: Value,
    /// The indices of several stored rows, `[rows, k]`.
    rows: Option<Value>,
    /// What is smallest for the nearest row, of all rows.
    nearness: Value,
}

impl Found {
    /// The indices of the stored rows, `[rows, k]`.
    pub(super) fn rows(&self, graph: &mut Builder) -> Value {
        self.rows.unwrap_or_else(|| graph.op_with("ArgMin", &[self.nearness], &[("axis", Attribute::Int(1))]))
    }
}

impl Index {
    /// Writes the search for the `k` nearest rows into a graph of ONNX; `each` turns what is found for some queries into a
    /// number for each of them. Queries are compared block by block, so that memory does not grow with their number times
    /// that of the rows.
    pub(super) fn search_to_onnx(
        &self,
        graph: &mut Builder,
        queries: Value,
        k: usize,
        each: impl FnOnce(&mut Builder, Found) -> Value,
    ) -> Result<Value> {
        let (width, count) = (self.width, self.count());
        let rows = graph.constant_wide(&[count, width], &self.rows);
        let (queries, width, matrix) = match self.metric {
            Metric::Distance => {
                let center = graph.constant(&[1, width], &wide(&self.center));
                let [queries, rows] = [queries, rows].map(|v| graph.op("Sub", &[v, center]));
                (graph.with_squares(queries), width + 2, graph.distance_matrix(rows))
            }
            // Of minus the inner product, the nearest is the smallest as well.
            Metric::Inner => {
                let matrix = graph.op("Transpose", &[rows]);
                (queries, width, graph.op("Neg", &[matrix]))
            }
        };
        graph.by_blocks(queries, width, count, |graph, x| {
            let nearness = graph.op("MatMul", &[x, matrix]);
            let (values, rows) = match k {
                // Much faster than a sort.
                1 => (graph.reduce("ReduceMin", nearness, true), None),
                _ => {
                    let most = graph.constant_i64(&[1], &[k as i64]);
                    let [values, rows] = graph.ops("TopK", &[nearness, most], &[("largest", Attribute::Int(0))]);
                    (values, Some(rows))
                }
            };
            let values = match self.metric {
                Metric::Distance => graph.at_least(values, 0.0),
                Metric::Inner => graph.op("Neg", &[values]),
            };
            Ok(each(graph, Found { values, rows, nearness }))
        })
    }
}

/// [`normalize_rows`] in a graph of ONNX.
pub(super) fn unit_rows(graph: &mut Builder, x: Value) -> Value {
    let squares = graph.squares(x, true);
    let norm = graph.op("Sqrt", &[squares]);
    let (zero, one) = (graph.number(0.0), graph.number(1.0));
    let none = graph.op("Equal", &[norm, zero]);
    let norm = graph.op("Where", &[none, one, norm]);
    let unit = graph.op("Div", &[x, norm]);
    let unit = graph.cast(unit, Type::F32);
    graph.cast(unit, Type::F64)
}

/// An upper bound of the relative error of a sum in f64.
#[inline(always)]
fn sum_error(width: usize) -> f64 {
    (width + 8) as f64 / (1u64 << 50) as f64
}

/// `sum (a - b)^2` in f64: element `i` is added to sum `i % 16`, and the sums are added in order.
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

/// The brute-force search of a block of queries.
struct Search<'a> {
    index: &'a Index,
    queries: &'a [f32],
    k: usize,
    known: Vec<Known>,
    /// The squared norm of each centered query.
    squares: Vec<f64>,
    /// The candidates of each query.
    best: Vec<Candidates>,
    /// For each query, the sum above which a row is not among the nearest.
    limits: Vec<f32>,
}

/// Queries around the mean of the rows.
struct Centered {
    rows: Vec<f32>,
    /// The squared norm of each.
    squares: Vec<f64>,
    /// For each, the sum above which a row is not among the nearest.
    limits: Vec<f32>,
}

/// What is known about a query before the search.
struct Known {
    /// The stored row that the query is, if any.
    own: Option<usize>,
    /// An upper bound of the values of its nearest rows.
    worst: f64,
}

/// The candidates of a query: at `2 k` they are reduced to the best `k`. Compared with a heap, which would always be
/// up to date, this computes slightly more pairs in much less time.
struct Candidates {
    found: Vec<Neighbor>,
    /// A row whose value is not below this is not among the nearest.
    worst: f64,
}

impl Search<'_> {
    /// Adds a pair that may be among the nearest. Rows come in ascending order, so ties with earlier rows are dropped.
    #[inline(always)]
    fn add(&mut self, q: usize, row: usize) {
        let Index { width, .. } = *self.index;
        let value = self.index.value(&self.queries[q * width..(q + 1) * width], row);
        let best = &mut self.best[q];
        if value >= best.worst {
            return;
        }
        best.found.push(Neighbor { value, row });
        // At `k` candidates for the first time, then at `2 k`.
        if best.found.len() == self.k || best.found.len() == 2 * self.k {
            best.worst = best.found.select_nth_unstable(self.k - 1).1.value;
            best.found.truncate(self.k);
            self.limits[q] = self.index.limit(best.worst, self.squares[q]);
        }
    }
}

impl Look for Search<'_> {
    #[inline(always)]
    fn limit(&self, row: usize) -> f32 {
        self.limits[row]
    }

    fn look(&mut self, row: usize, panel: usize, line: &Line) {
        check_panel(self, row, panel, line);
    }
}

/// Computes the pairs of a query and a panel that may be among the nearest. This is rare, so it is kept out of the loop.
#[cold]
#[inline(never)]
fn check_panel(search: &mut Search, q: usize, panel: usize, sums: &Line) {
    simd::dispatch(CheckPanel { search, q, panel, sums });
}

struct CheckPanel<'a, 'b> {
    search: &'a mut Search<'b>,
    q: usize,
    panel: usize,
    sums: &'a Line,
}

impl Kernel for CheckPanel<'_, '_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let CheckPanel { search, q, panel, sums } = self;
        let own = search.known[q].own;
        for (j, &sum) in sums.0.iter().enumerate() {
            let row = panel * NR + j;
            let above = sum > search.limits[q];
            if !above && row < search.index.count() && own != Some(row) {
                search.add(q, row);
            }
        }
    }
}

/// Rows of `width` features divided by their norms; a row of zeros stays zero.
pub(super) fn normalize_rows(rows: &[f32], width: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows.len());
    for row in rows.chunks_exact(width) {
        let norm = libm::sqrt(inner_product(row, row));
        // Squares of f32 do not underflow in f64, so the norm is 0 for zeros only.
        let norm = if norm == 0.0 { 1.0 } else { norm };
        out.extend(row.iter().map(|&v| (f64::from(v) / norm) as f32));
    }
    out
}

#[cfg(test)]
mod tests;
