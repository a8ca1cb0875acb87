//! A tree of bounding boxes, so that a query visits few rows.
//!
//! Rows are turned into their principal axes (`axes.rs`) and split at the median of the axis with the largest range until 16
//! are left, a leaf. Each leaf has a bounding box, each 16 boxes have one around them, and so on up to at most 16 boxes at the
//! top. A query visits the nearest box first and skips boxes that are farther than its neighbors so far. Latents of a trained
//! network lie near surfaces of few dimensions, and a query among them visits few leaves. For rows without such structure
//! it would have to visit almost all. So a walk has a budget; a walk that does not end within it is left to brute force. If
//! stored rows do not find their neighbors within it, the rows are taken as they are, and if that does not help, no tree is used.
//!
//! # The bound
//! All sums are of squared differences, computed in f32. A difference has a relative error of at most `u = 2^-24`, and so has
//! each of at most `w` additions of nonnegative terms. The sum of a pair whose squared distance is `d`, and that of a box around
//! its row, is therefore at most `d (1 + u)^(w + 2) <= d (1 + gamma)` with `gamma = (w + 2) u / (1 - (w + 2) u)`, up to underflow.
//! A row or a box with a larger sum is farther than `d`. In the same way a sum gives the largest distance that its row may have,
//! so that for one neighbor only the rows that may be the nearest are computed exactly. For rows as they are the margin is
//! relative to the distance, independent of where they are; turning them adds an error that is relative to their distance from
//! the center.

// Loops over the lanes of several arrays are clearest, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::axes::{Axes, Turned};
use super::{Index, MAX_SQUARED_NORM, Neighbor, UNDERFLOW, sum_error};
use crate::compute::gemm::{Line, NR, ZERO};
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd::{self, Kernel, Simd};

/// The smallest number of rows for which a walk is faster than brute force.
const MIN_ROWS: usize = 512;
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
    /// The directions of the rows below, unless these are as given.
    axes: Option<Axes>,
    /// The indices of the rows, 16 per leaf.
    ids: Vec<[u32; NR]>,
    /// The rows of each leaf as columns.
    leaves: Vec<Line>,
    /// Boxes of the leaves, boxes of 16 of these, and so on.
    levels: Vec<Level>,
    /// The number of leaves and groups of boxes that a walk may visit.
    pub(super) budget: usize,
}

/// Boxes in groups of 16: for each feature (of the axes, the first ones) a line of lower ends and one of upper ends.
#[derive(Debug)]
struct Level {
    count: usize,
    /// The number of features.
    first: usize,
    lines: Vec<[Line; 2]>,
}

/// The results of some walks.
pub(super) struct Found {
    /// The nearest rows that were found, `k` for each query, nearest first; [`NOTHING`] in place of those that are missing.
    pub(super) best: Vec<Neighbor>,
    /// Of each query, whether these are the nearest of all rows.
    pub(super) complete: Vec<bool>,
}

/// Farther than all rows.
const NOTHING: Neighbor = Neighbor { value: f64::INFINITY, row: usize::MAX };

/// A leaf or a group of boxes on the way of a walk.
#[derive(Clone, Copy)]
struct Visit {
    /// Of the rows or boxes that were not visited yet, the squared distance with its last four bits replaced by the place,
    /// so that the smallest one is found by one operation on 16 integers. They are rounded down by this, so that no box is
    /// left out.
    keys: [u32; NR],
    /// The level of the boxes.
    level: u32,
    /// The place of the first box among those of the level.
    first: u32,
}

/// Not below any squared distance.
const VISITED: u32 = u32::MAX;
/// The bits of a key that are its place.
const PLACE: u32 = NR as u32 - 1;

impl Tree {
    /// The tree of the rows of an index, if it is faster than brute force.
    pub(super) fn of(index: &Index, pool: &Pool) -> Option<Tree> {
        if !(MIN_ROWS..NONE as usize).contains(&index.count()) || index.width > MAX_WIDTH {
            return None;
        }
        let turned = Tree::turned(index, pool).filter(|tree| tree.is_fast(index));
        turned.or_else(|| Some(Tree::as_given(index, pool)).filter(|tree| tree.is_fast(index)))
    }

    /// The tree of the rows along their principal axes, if these can be found.
    pub(super) fn turned(index: &Index, pool: &Pool) -> Option<Tree> {
        let (axes, rows) = Axes::of(&index.rows, index.width, &index.center, pool)?;
        let first = axes.first;
        Some(Tree::new(&rows, index.width, first, Some(axes), pool))
    }

    /// The tree of the rows as they are.
    pub(super) fn as_given(index: &Index, pool: &Pool) -> Tree {
        Tree::new(&index.rows, index.width, index.width, None, pool)
    }

    /// The tree of rows of `width` features, with boxes of the first ones.
    fn new(rows: &[f32], width: usize, first: usize, axes: Option<Axes>, pool: &Pool) -> Tree {
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
        let mut levels = vec![Level::new(ids.len(), first, |leaf, f| {
            let row = |j: usize| rows[ids[leaf][j] as usize * width + f];
            ends((0..NR).filter(|&j| ids[leaf][j] != NONE).map(|j| [row(j); 2]))
        })];
        while let Some(below) = levels.last().filter(|l| l.count > NR) {
            levels.push(Level::new(below.count.div_ceil(NR), first, |group, f| {
                let [low, high] = &below.lines[group * first + f];
                ends((0..NR.min(below.count - group * NR)).map(|j| [low.0[j], high.0[j]]))
            }));
        }
        let budget = ids.len() / BUDGET_DIVISOR;
        Tree { axes, ids, leaves, levels, budget }
    }

    /// Whether a walk for `k` neighbors may be faster than brute force.
    pub(super) fn supports(k: usize) -> bool {
        (1..=MAX_K).contains(&k)
    }

    /// The `k` nearest rows of each query within the budget; `k` is at least 1.
    pub(super) fn walk(&self, index: &Index, queries: &[f32], k: usize, own: Option<usize>) -> Found {
        let count = queries.len() / index.width;
        let mut found = Found { best: vec![NOTHING; count * k], complete: vec![false; count] };
        let turned = self.axes.as_ref().map(|axes| axes.turn(queries));
        simd::dispatch(Walk { tree: self, index, queries, turned, k, own, found: &mut found });
        found
    }

    /// A leaf that is near a query.
    #[inline(always)]
    fn home(&self, query: &[f32]) -> u32 {
        let mut group = 0;
        for level in self.levels.iter().rev() {
            let visit = Visit::of(level, query, 0, group * NR);
            let nearest = visit.keys.iter().fold(VISITED, |a, &b| a.min(b)) & PLACE;
            group = (group * NR + nearest as usize).min(level.count - 1);
        }
        group as u32
    }

    /// Whether most of some stored rows find their nearest neighbor within the budget.
    fn is_fast(&self, index: &Index) -> bool {
        let step = index.count() / TRIALS;
        let ended = (0..TRIALS).filter(|i| {
            let row = i * step;
            let query = &index.rows[row * index.width..][..index.width];
            self.walk(index, query, 1, Some(row)).complete[0]
        });
        ended.count() > TRIALS * 3 / 4
    }
}

impl Level {
    fn new(count: usize, first: usize, ends: impl Fn(usize, usize) -> [f32; 2]) -> Level {
        // Boxes that do not exist are infinitely far away.
        let mut lines = vec![[Line([f32::INFINITY; NR]); 2]; count.div_ceil(NR) * first];
        for i in 0..count {
            for f in 0..first {
                let [low, high] = &mut lines[i / NR * first + f];
                [low.0[i % NR], high.0[i % NR]] = ends(i, f);
            }
        }
        Level { count, first, lines }
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
    turned: Option<Turned>,
    k: usize,
    own: Option<usize>,
    found: &'a mut Found,
}

/// A query, and what is visited in its place.
struct Query<'a> {
    given: &'a [f32],
    turned: &'a [f32],
    /// The factors by which a distance may grow and shrink when rows are turned, and what is added to it or taken away.
    stretch: f64,
    shrink: f64,
    error: f64,
}

impl Kernel for Walk<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Walk { tree, index, queries, turned, k, own, found } = self;
        let (width, mut way) = (index.width, Vec::with_capacity(tree.levels.len()));
        let (mut ended, mut failed) = (0, 0);
        let turned_query = |q: usize| {
            let given = &queries[q * width..(q + 1) * width];
            match (&tree.axes, &turned) {
                (Some(axes), Some(turned)) => {
                    let (rows, error) = (&turned.rows[q * width..(q + 1) * width], turned.errors[q]);
                    Query { given, turned: rows, stretch: axes.stretch, shrink: axes.shrink, error }
                }
                _ => Query { given, turned: given, stretch: 1.0, shrink: 1.0, error: 0.0 },
            }
        };
        // Queries that are near each other one after the other: they visit the same leaves, which are in the cache then.
        let mut order: Vec<(u32, u32)> = (0..found.complete.len() as u32).map(|q| (0, q)).collect();
        for (home, q) in &mut order {
            *home = tree.home(turned_query(*q as usize).turned);
        }
        order.sort_unstable();
        let mut candidates: Vec<Candidate> = Vec::with_capacity(2 * order.len());
        for q in order.into_iter().map(|(_, q)| q as usize) {
            if failed > ended / 2 + MAX_FAILURES {
                break;
            }
            let own = own.map_or(NONE, |own| (own + q) as u32);
            let query = turned_query(q);
            let complete = query.error < f64::INFINITY
                && if k == 1 {
                    nearest(tree, index, &query, (q as u32, own), &mut candidates, &mut way)
                } else {
                    several(tree, index, &query, own, &mut found.best[q * k..(q + 1) * k], &mut way)
                };
            *(if complete { &mut ended } else { &mut failed }) += 1;
            found.complete[q] = complete;
        }
        // All at the end, so that rows are fetched from memory while others are computed.
        for Candidate { query, place, .. } in candidates {
            let (q, row) = (query as usize, tree.ids.as_flattened()[place as usize] as usize);
            let value = index.value(&queries[q * width..(q + 1) * width], row);
            found.best[q] = found.best[q].min(Neighbor { value, row });
        }
    }
}

/// A row that may be the nearest of a query.
struct Candidate {
    query: u32,
    /// Its place among the rows of the leaves.
    place: u32,
    sum: f32,
}

/// Collects the rows of which one is the nearest of a query. `numbers` are those of the query and of the row that it is. Returns
/// false if the budget was too small.
#[inline(always)]
fn nearest(
    tree: &Tree,
    index: &Index,
    query: &Query,
    numbers: (u32, u32),
    candidates: &mut Vec<Candidate>,
    way: &mut Vec<Visit>,
) -> bool {
    let (number, own) = numbers;
    let (before, mut last) = (candidates.len(), f32::INFINITY);
    let complete = walk(tree, query, last, way, |at, sums, mut limit| {
        let mut keys = keys(&sums);
        while let Some(j) = take_smallest(&mut keys, limit) {
            let sum = sums.0[j];
            // Rows that do not exist are infinitely far away.
            if own != NONE || sum == f32::INFINITY {
                let id = tree.ids[at][j];
                if id == NONE || id == own {
                    continue;
                }
            }
            candidates.push(Candidate { query: number, place: (at * NR + j) as u32, sum });
            limit = limit.min(limit_of(index, query, at_most(index, query, sum)));
        }
        last = limit;
        limit
    });
    let mut kept = before;
    for i in before..candidates.len() {
        if candidates[i].sum <= last {
            candidates.swap(kept, i);
            kept += 1;
        }
    }
    candidates.truncate(kept);
    complete
}

/// Collects the nearest rows in `best`. Returns false if the budget was too small.
#[inline(always)]
fn several(tree: &Tree, index: &Index, query: &Query, own: u32, best: &mut [Neighbor], way: &mut Vec<Visit>) -> bool {
    let last = best.len() - 1;
    walk(tree, query, f32::INFINITY, way, |at, sums, mut limit| {
        let mut keys = keys(&sums);
        // The nearest first, which lowers the limit for the others.
        while let Some(j) = take_smallest(&mut keys, limit) {
            let id = tree.ids[at][j];
            if id == NONE || id == own {
                continue;
            }
            let new = Neighbor { value: index.value(query.given, id as usize), row: id as usize };
            if new < best[last] {
                let place = best.partition_point(|b| *b < new);
                best[place..].rotate_right(1);
                best[place] = new;
                limit = limit_of(index, query, best[last].value);
            }
        }
        limit
    })
}

/// Walks through the tree. `leaf` gets each leaf that may have a row within the limit, with the sums of its rows, and gives the
/// new limit. Returns false if the budget was too small.
#[inline(always)]
fn walk(
    tree: &Tree,
    query: &Query,
    mut limit: f32,
    way: &mut Vec<Visit>,
    mut leaf: impl FnMut(usize, Line, f32) -> f32,
) -> bool {
    let width = query.turned.len();
    let mut left = tree.budget;
    let top = tree.levels.len() as u32 - 1;
    way.clear();
    way.push(Visit::of(&tree.levels[top as usize], query.turned, top, 0));
    while let Some(visit) = way.last_mut() {
        let Some(j) = take_smallest(&mut visit.keys, limit) else {
            way.pop();
            continue;
        };
        if left == 0 {
            return false;
        }
        left -= 1;
        let (level, at) = (visit.level, visit.first as usize + j);
        if level > 0 {
            // Boxes that do not exist are at the end of the last group, and are farther than all others.
            if at < tree.levels[level as usize].count {
                way.push(Visit::of(&tree.levels[level as usize - 1], query.turned, level - 1, at * NR));
            }
        } else if at < tree.ids.len() {
            let sums = pair_sums(query.turned, &tree.leaves[at * width..(at + 1) * width]);
            limit = leaf(at, sums, limit);
        }
    }
    true
}

/// The largest squared distance of a row with such a sum.
#[inline(always)]
fn at_most(index: &Index, query: &Query, sum: f32) -> f64 {
    let margin = 2.0 * (index.margin + sum_error(index.width));
    let value = (f64::from(sum) + (index.width + 2) as f64 * UNDERFLOW) * (1.0 + margin);
    match query.error {
        0.0 => value,
        error => {
            let distance = (libm::sqrt(value) + error) / query.shrink;
            distance * distance * (1.0 + 1e-12)
        }
    }
}

/// The sum above which a row or a box is farther than `value`.
#[inline(always)]
fn limit_of(index: &Index, query: &Query, value: f64) -> f32 {
    // Sums may have overflowed.
    if value > MAX_SQUARED_NORM {
        return f32::INFINITY;
    }
    let value = match query.error {
        0.0 => value,
        error => {
            let distance = query.stretch * libm::sqrt(value) + error;
            distance * distance
        }
    };
    // The margin of brute force is the larger one.
    let margin = index.margin + sum_error(index.width);
    ((value * (1.0 + margin) + (index.width + 2) as f64 * UNDERFLOW) as f32).next_up()
}

impl Visit {
    /// A group of boxes of a level, of which `first` is the first.
    #[inline(always)]
    fn of(level: &Level, query: &[f32], number: u32, first: usize) -> Visit {
        let from = first / NR * level.first;
        let sums = box_sums(query, &level.lines[from..from + level.first]);
        Visit { keys: keys(&sums), level: number, first: first as u32 }
    }
}

/// The sums, which are not negative, in the order of integers, with their places in the last four bits.
#[inline(always)]
fn keys(sums: &Line) -> [u32; NR] {
    let mut keys = [0; NR];
    for j in 0..NR {
        keys[j] = (sums.0[j].to_bits() & !PLACE) | j as u32;
    }
    keys
}

/// Removes the smallest key, and returns its place, unless its sum is above the limit.
#[inline(always)]
fn take_smallest(keys: &mut [u32; NR], limit: f32) -> Option<usize> {
    let smallest = keys.iter().fold(VISITED, |a, &b| a.min(b));
    if smallest == VISITED || f32::from_bits(smallest & !PLACE) > limit {
        return None;
    }
    let place = (smallest & PLACE) as usize;
    keys[place] = VISITED;
    Some(place)
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
