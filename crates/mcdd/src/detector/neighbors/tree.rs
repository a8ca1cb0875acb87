//! A tree of bounding boxes, so that a query visits few rows.
//!
//! Rows are split at the median of the feature with the largest range until 16 are left, a leaf. Each leaf has a bounding
//! box, each 16 boxes have one around them, and so on up to at most 16 boxes at the top. A query visits the nearest box
//! first and skips boxes that are farther than its neighbors so far. Latents of a trained network lie near surfaces of few
//! dimensions, and a query among them visits about 20 of thousands of leaves. For rows without such structure it would
//! have to visit almost all. So a walk has a budget; a walk that does not end within it is left to brute force. If stored
//! rows do not find their neighbors within it, no tree is used.
//!
//! # The bound
//! All sums are of squared differences, computed in f32 from the given rows. A difference has a relative error of at most
//! `u = 2^-24`, and so has each of at most `w` additions of nonnegative terms. The sum of a pair whose squared distance is
//! `d`, and that of a box around its row, is therefore at most `d (1 + u)^(w + 2) <= d (1 + gamma)` with
//! `gamma = (w + 2) u / (1 - (w + 2) u)`, up to underflow. A row or a box with a larger sum is farther than `d`. The margin
//! is relative to the distance, independent of where the rows are.

// Loops over the lanes of several arrays are clearest, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::{Index, MAX_SQUARED_NORM, Neighbor, UNDERFLOW, sum_error};
use crate::compute::gemm::{Line, NR, ZERO};
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};

/// The smallest number of rows for which a walk is faster than brute force.
const MIN_ROWS: usize = 4000;
/// The largest number of neighbors for which it is faster.
const MAX_K: usize = 10;
/// The largest width; the boxes of wider rows exclude almost nothing.
const MAX_WIDTH: usize = 256;
/// The budget of a walk is the number of leaves divided by this: about twice the time of brute force.
const BUDGET_DIVISOR: usize = 4;
/// The remaining walks of a block are skipped if more than this plus half of the successful ones have failed.
const MAX_FAILURES: usize = 8;
/// Stored rows whose walks decide whether the tree is used.
const TRIALS: usize = 64;
/// Rows of a node that determine its split feature.
const SAMPLE: usize = 128;
/// The index of a row that does not exist.
const NONE: u32 = u32::MAX;

/// The rows of an index by leaves, and their bounding boxes.
#[derive(Debug)]
pub(super) struct Tree {
    /// The indices of the rows, 16 per leaf.
    ids: Vec<[u32; NR]>,
    /// The rows of each leaf as columns.
    leaves: Vec<Line>,
    /// Boxes of the leaves, boxes of 16 of these, and so on.
    levels: Vec<Level>,
    /// The number of leaves and groups of boxes that a walk may visit.
    pub(super) budget: usize,
}

/// Boxes in groups of 16: for each feature a line of lower ends and one of upper ends.
#[derive(Debug)]
struct Level {
    count: usize,
    lines: Vec<[Line; 2]>,
}

/// The result of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The nearest rows found, nearest first.
    pub(super) best: Vec<Neighbor>,
    /// Whether these are the nearest of all rows.
    pub(super) complete: bool,
}

/// A leaf (level 0) or the group of boxes of the level below, with the squared distance to the query.
#[derive(Clone, Copy)]
struct Node {
    sum: f32,
    level: u32,
    at: u32,
}

impl Tree {
    /// The tree of the rows of an index, if it is faster than brute force.
    pub(super) fn of(index: &Index, pool: &Pool) -> Option<Tree> {
        if !(MIN_ROWS..NONE as usize).contains(&index.count()) || index.width > MAX_WIDTH {
            return None;
        }
        Some(Tree::new(&index.rows, index.width, pool)).filter(|tree| tree.is_fast(index))
    }

    /// The tree of rows of `width` features.
    pub(super) fn new(rows: &[f32], width: usize, pool: &Pool) -> Tree {
        let count = rows.len() / width;
        let mut order: Vec<u32> = (0..count as u32).collect();
        sort_into_leaves(&mut order, rows, width, &mut Vec::with_capacity(count));
        let mut ids = vec![[NONE; NR]; count.div_ceil(NR)];
        ids.as_flattened_mut()[..count].copy_from_slice(&order);
        let mut leaves = vec![Line([f32::INFINITY; NR]); ids.len() * width];
        pool.split(chunks(&mut leaves, width), |leaf, lines| {
            for (j, &id) in ids[leaf].iter().enumerate().filter(|(_, id)| **id != NONE) {
                let row = &rows[id as usize * width..][..width];
                lines.iter_mut().zip(row).for_each(|(line, &v)| line.0[j] = v);
            }
        });
        let mut levels = vec![Level::new(ids.len(), width, |leaf, f| {
            let row = |j: usize| rows[ids[leaf][j] as usize * width + f];
            ends((0..NR).filter(|&j| ids[leaf][j] != NONE).map(|j| [row(j); 2]))
        })];
        while let Some(below) = levels.last().filter(|l| l.count > NR) {
            levels.push(Level::new(below.count.div_ceil(NR), width, |group, f| {
                let [low, high] = &below.lines[group * width + f];
                ends((0..NR.min(below.count - group * NR)).map(|j| [low.0[j], high.0[j]]))
            }));
        }
        let budget = ids.len() / BUDGET_DIVISOR;
        Tree { ids, leaves, levels, budget }
    }

    /// Whether a walk for `k` neighbors may be faster than brute force.
    pub(super) fn supports(k: usize) -> bool {
        (1..=MAX_K).contains(&k)
    }

    /// The `k` nearest rows of each query within the budget; `k` is at least 1.
    pub(super) fn walk(&self, index: &Index, queries: &[f32], k: usize, own: Option<usize>) -> Vec<Found> {
        let mut found = vec![Found::default(); queries.len() / index.width];
        simd::dispatch(Walk { tree: self, index, queries, k, own, found: &mut found });
        found
    }

    /// Whether most of some stored rows find their nearest neighbor within the budget.
    fn is_fast(&self, index: &Index) -> bool {
        let step = index.count() / TRIALS;
        let ended = (0..TRIALS).filter(|i| {
            let row = i * step;
            let query = &index.rows[row * index.width..][..index.width];
            self.walk(index, query, 1, Some(row)).iter().all(|f| f.complete)
        });
        ended.count() > TRIALS * 3 / 4
    }
}

impl Level {
    fn new(count: usize, width: usize, ends: impl Fn(usize, usize) -> [f32; 2]) -> Level {
        let mut lines = vec![[ZERO; 2]; count.div_ceil(NR) * width];
        for i in 0..count {
            for f in 0..width {
                let [low, high] = &mut lines[i / NR * width + f];
                [low.0[i % NR], high.0[i % NR]] = ends(i, f);
            }
        }
        Level { count, lines }
    }
}

/// The smallest lower end and the largest upper end.
fn ends(all: impl Iterator<Item = [f32; 2]>) -> [f32; 2] {
    all.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], [l, h]| [low.min(l), high.max(h)])
}

/// Sorts rows so that those of each leaf, and of each 16, 256, ... consecutive leaves, are close together.
fn sort_into_leaves(ids: &mut [u32], rows: &[f32], width: usize, keys: &mut Vec<(f32, u32)>) {
    let leaves = ids.len().div_ceil(NR);
    if leaves < 2 {
        return;
    }
    // A box of the next level must hold a full group, so cuts are between groups as long as there are several.
    let mut group = 1;
    while group * NR < leaves {
        group *= NR;
    }
    let cut = leaves.div_ceil(group).div_ceil(2) * group * NR;
    let axis = widest(ids, rows, width);
    keys.clear();
    keys.extend(ids.iter().map(|&id| (rows[id as usize * width + axis], id)));
    keys.select_nth_unstable_by(cut, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    ids.iter_mut().zip(keys.iter()).for_each(|(id, key)| *id = key.1);
    let (left, right) = ids.split_at_mut(cut);
    sort_into_leaves(left, rows, width, keys);
    sort_into_leaves(right, rows, width, keys);
}

/// The feature with the largest range in a sample.
fn widest(ids: &[u32], rows: &[f32], width: usize) -> usize {
    let mut spans = vec![[f32::INFINITY, f32::NEG_INFINITY]; width];
    for &id in ids.iter().step_by(ids.len().div_ceil(SAMPLE)) {
        for (span, &v) in spans.iter_mut().zip(&rows[id as usize * width..]) {
            *span = [span[0].min(v), span[1].max(v)];
        }
    }
    let span = |f: &usize| spans[*f][1] - spans[*f][0];
    (0..width).rev().max_by(|a, b| span(a).total_cmp(&span(b))).unwrap_or(0)
}

struct Walk<'a> {
    tree: &'a Tree,
    index: &'a Index,
    queries: &'a [f32],
    k: usize,
    own: Option<usize>,
    found: &'a mut [Found],
}

impl Kernel for Walk<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Walk { tree, index, queries, k, own, found } = self;
        let mut stack = Vec::new();
        let (mut ended, mut failed) = (0, 0);
        for (q, (query, found)) in queries.chunks_exact(index.width).zip(found).enumerate() {
            if failed > ended / 2 + MAX_FAILURES {
                return;
            }
            let own = own.map_or(NONE, |own| (own + q) as u32);
            found.best.reserve_exact(k);
            found.complete = walk(tree, index, query, k, own, &mut found.best, &mut stack);
            *(if found.complete { &mut ended } else { &mut failed }) += 1;
        }
    }
}

/// Walks through the tree and collects the nearest rows in `best`. Returns false if the budget was too small.
#[inline(always)]
fn walk(
    tree: &Tree,
    index: &Index,
    query: &[f32],
    k: usize,
    own: u32,
    best: &mut Vec<Neighbor>,
    stack: &mut Vec<Node>,
) -> bool {
    let width = index.width;
    let mut limit = f32::INFINITY;
    stack.clear();
    stack.push(Node { sum: 0.0, level: tree.levels.len() as u32, at: 0 });
    let mut left = tree.budget;
    while let Some(Node { sum, level, at }) = stack.pop() {
        if sum > limit {
            continue;
        }
        if left == 0 {
            return false;
        }
        left -= 1;
        let at = at as usize;
        if level > 0 {
            let Level { count, lines } = &tree.levels[level as usize - 1];
            let sums = box_sums(query, &lines[at * width..(at + 1) * width]);
            push(stack, &sums.0[..NR.min(count - at * NR)], limit, level - 1, at * NR);
        } else {
            let sums = pair_sums(query, &tree.leaves[at * width..(at + 1) * width]);
            if above(&sums, limit) {
                continue;
            }
            let mut seen = [false; NR];
            // The nearest first, which lowers the limit for the others.
            while let Some(j) = smallest(&sums, &seen).filter(|&j| sums.0[j] <= limit) {
                seen[j] = true;
                let id = tree.ids[at][j];
                if id == NONE || id == own {
                    continue;
                }
                let new = Neighbor { value: index.value(query, id as usize), row: id as usize };
                if best.len() == k && best.last().is_some_and(|last| *last < new) {
                    continue;
                }
                best.truncate(k - 1);
                best.insert(best.partition_point(|b| *b < new), new);
                if let Some(last) = best.get(k - 1) {
                    limit = limit_of(index, last.value);
                }
            }
        }
    }
    true
}

/// The sum above which a row or a box is farther than `value`.
#[inline(always)]
fn limit_of(index: &Index, value: f64) -> f32 {
    // Sums may have overflowed.
    if value > MAX_SQUARED_NORM {
        return f32::INFINITY;
    }
    // The margin of brute force is the larger one.
    let margin = index.margin + sum_error(index.width);
    ((value * (1.0 + margin) + (index.width + 2) as f64 * UNDERFLOW) as f32).next_up()
}

/// Pushes the boxes that may contain a neighbor, the nearest on top.
#[inline(always)]
fn push(stack: &mut Vec<Node>, sums: &[f32], limit: f32, level: u32, first: usize) {
    let from = stack.len();
    for (j, &sum) in sums.iter().enumerate().filter(|(_, sum)| **sum <= limit) {
        let mut at = stack.len();
        stack.push(Node { sum, level, at: (first + j) as u32 });
        while at > from && stack[at - 1].sum < sum {
            stack.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Whether all sums are above the limit.
#[inline(always)]
fn above(sums: &Line, limit: f32) -> bool {
    sums.0.iter().fold(true, |all, &sum| all & (sum > limit))
}

/// The index of the smallest sum that was not seen; the first one in case of ties.
#[inline(always)]
fn smallest(sums: &Line, seen: &[bool; NR]) -> Option<usize> {
    let mut best = None;
    for (j, (&sum, &seen)) in sums.0.iter().zip(seen).enumerate() {
        if !seen && best.is_none_or(|b: usize| sum < sums.0[b]) {
            best = Some(j);
        }
    }
    best
}

/// The squared distances to 16 rows, in two chains of additions each to hide their latency.
#[inline(always)]
fn pair_sums(query: &[f32], lines: &[Line]) -> Line {
    let (mut even, mut odd) = ([0.0f32; NR], [0.0f32; NR]);
    let (query, rest) = query.as_chunks::<2>();
    let (lines, last) = lines.as_chunks::<2>();
    for (q, [first, second]) in query.iter().zip(lines) {
        for j in 0..NR {
            let (d, e) = (first.0[j] - q[0], second.0[j] - q[1]);
            even[j] = d.mul_add(d, even[j]);
            odd[j] = e.mul_add(e, odd[j]);
        }
    }
    for (&q, line) in rest.iter().zip(last) {
        for j in 0..NR {
            let d = line.0[j] - q;
            even[j] = d.mul_add(d, even[j]);
        }
    }
    for j in 0..NR {
        even[j] += odd[j];
    }
    Line(even)
}

/// The squared distances to 16 boxes; 0 inside of a box.
#[inline(always)]
fn box_sums(query: &[f32], lines: &[[Line; 2]]) -> Line {
    let mut sums = ZERO;
    for (&q, [low, high]) in query.iter().zip(lines) {
        for ((sum, &low), &high) in sums.0.iter_mut().zip(&low.0).zip(&high.0) {
            let (below, above) = (low - q, q - high);
            let d = if below > above { below } else { above };
            let d = if d > 0.0 { d } else { 0.0 };
            *sum = d.mul_add(d, *sum);
        }
    }
    sums
}
