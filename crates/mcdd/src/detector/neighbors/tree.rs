//! Boxes around rows that lie together, so that a query looks at few of them.
//!
//! Features are halved at the median of their widest feature until 16 are left, a leaf; each leaf has a box, each 16 boxes
//! have one around them, and so on up to at most 16 at the top. A query goes down into the nearest box first and skips
//! those that are farther than what it has found. Latents of a trained network lie near surfaces of few dimensions, and a
//! query in their midst sees some 20 leaves of thousands; rows without such structure it would have to see nearly all.
//! So a walk has a budget, and what does not end within it is left to the matrix products; where stored rows do not find
//! each other within it, there are no boxes at all.
//!
//! # The bound
//! All sums here are of squares of differences, taken in f32 from the rows as they are: a difference is off by at most
//! `u = 2^-24` of itself, and each of at most `w` additions, of what is not negative, by `u` of what it gives. The sum of a
//! pair whose squared distance is `d`, and that of a box around its row, is therefore at most
//! `d (1 + u)^(w + 2) <= d (1 + gamma)` with `gamma = (w + 2) u / (1 - (w + 2) u)`, but for what vanishes below the smallest
//! f32. A row or a box whose sum is above that of `d` is farther: the margin is relative to the distance, wherever rows lie.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::{Index, LONG, Neighbor, TINY, loss};
use crate::compute::gemm::{Line, NR, ZERO};
use crate::compute::pool::{Pool, chunks};
use crate::compute::simd;

/// Features from which a walk is faster than all products.
const FEW: usize = 4000;
/// Neighbors up to which it is.
const MANY: usize = 10;
/// Features wider than this have boxes that tell nothing apart.
const WIDE: usize = 256;
/// A walk may visit one leaf or group of boxes for so many leaves: about twice the time that the products would take.
const SHARE: usize = 4;
/// How many walks of a block may fail beyond half as many as those that don't; then the others are not begun.
const FAILURES: usize = 8;
/// Stored rows asked whether a walk pays.
const ASKED: usize = 64;
/// Features of a node that choose its axis.
const SAMPLE: usize = 128;
/// In place of the number of a row where there is none.
const NONE: u32 = u32::MAX;

/// The rows of an index, leaf by leaf, and the boxes around them.
#[derive(Debug)]
pub(super) struct Tree {
    /// The number of each row, 16 for each leaf.
    ids: Vec<[u32; NR]>,
    /// The rows of each leaf as columns.
    leaves: Vec<Line>,
    /// Boxes of the leaves, boxes of 16 of these, and so on.
    levels: Vec<Level>,
    /// Leaves and groups of boxes that a walk may visit.
    pub(super) budget: usize,
}

/// Boxes, 16 and 16: for each feature a line of lower ends and one of upper ends.
#[derive(Debug)]
struct Level {
    count: usize,
    lines: Vec<[Line; 2]>,
}

/// What a walk has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The best so far, nearest first.
    pub(super) best: Vec<Neighbor>,
    /// Whether no other row can be among them.
    pub(super) all: bool,
}

/// A leaf (level 0) or the group of boxes (of the level below) in a box, with the sum of the box.
#[derive(Clone, Copy)]
struct Node {
    sum: f32,
    level: u32,
    at: u32,
}

impl Tree {
    /// Boxes for the rows of an index by distance, if they pay.
    pub(super) fn of(index: &Index, pool: &Pool) -> Option<Tree> {
        if !(FEW..NONE as usize).contains(&index.count()) || index.width > WIDE {
            return None;
        }
        Some(Tree::new(&index.rows, index.width, pool)).filter(|tree| tree.pays(index))
    }

    /// Boxes for `rows` of `width`.
    pub(super) fn new(rows: &[f32], width: usize, pool: &Pool) -> Tree {
        let count = rows.len() / width;
        let mut order: Vec<u32> = (0..count as u32).collect();
        halve(&mut order, rows, width, &mut Vec::with_capacity(count));
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
        let budget = ids.len() / SHARE;
        Tree { ids, leaves, levels, budget }
    }

    /// Whether a walk for so many neighbors may pay.
    pub(super) fn serves(k: usize) -> bool {
        (1..=MANY).contains(&k)
    }

    /// The `k` nearest rows of each query, at least 1, as far as the budget goes.
    pub(super) fn walk(&self, index: &Index, queries: &[f32], k: usize, own: Option<usize>) -> Vec<Found> {
        let mut found = vec![Found::default(); queries.len() / index.width];
        simd::dispatch(Walk { tree: self, index, queries, k, own, found: &mut found });
        found
    }

    /// Whether it pays to walk: of some stored rows, most must find their neighbor.
    fn pays(&self, index: &Index) -> bool {
        let step = index.count() / ASKED;
        let ended = (0..ASKED).filter(|i| {
            let row = i * step;
            let query = &index.rows[row * index.width..][..index.width];
            self.walk(index, query, 1, Some(row)).iter().all(|f| f.all)
        });
        ended.count() > ASKED * 3 / 4
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

/// The least of the lower ends and the greatest of the upper ones.
fn ends(all: impl Iterator<Item = [f32; 2]>) -> [f32; 2] {
    all.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], [l, h]| [low.min(l), high.max(h)])
}

/// Sorts rows into leaves, so that those of a leaf, and of 16, 256, ... leaves in a row, lie together.
fn halve(ids: &mut [u32], rows: &[f32], width: usize, keys: &mut Vec<(f32, u32)>) {
    let leaves = ids.len().div_ceil(NR);
    if leaves < 2 {
        return;
    }
    // The box above must hold a full group, so cuts go between groups as long as there are several.
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
    halve(left, rows, width, keys);
    halve(right, rows, width, keys);
}

/// The feature that goes furthest, by a sample.
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

impl simd::Kernel for Walk<'_> {
    #[inline(always)]
    fn run(self) {
        let Walk { tree, index, queries, k, own, found } = self;
        let mut stack = Vec::new();
        let (mut ended, mut failed) = (0, 0);
        for (q, (query, found)) in queries.chunks_exact(index.width).zip(found).enumerate() {
            if failed > ended / 2 + FAILURES {
                return;
            }
            let own = own.map_or(NONE, |own| (own + q) as u32);
            found.best.reserve_exact(k);
            found.all = walk(tree, index, query, k, own, &mut found.best, &mut stack);
            *(if found.all { &mut ended } else { &mut failed }) += 1;
        }
    }
}

/// Whether the walk of a query came to its end; `best` has the nearest rows seen.
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
            // The nearest first: the limit is then low for the others.
            while let Some(j) = least(&sums, &seen).filter(|&j| sums.0[j] <= limit) {
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
    // Sums may have overflowed there.
    if value > LONG {
        return f32::INFINITY;
    }
    // The margin of the products is the larger one.
    let margin = index.margin + loss(index.width);
    ((value * (1.0 + margin) + (index.width + 2) as f64 * TINY) as f32).next_up()
}

/// Puts boxes that may hold a neighbor on the stack, the nearest on top.
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

/// Whether all sums are.
#[inline(always)]
fn above(sums: &Line, limit: f32) -> bool {
    sums.0.iter().fold(true, |all, &sum| all & (sum > limit))
}

/// The position of the least sum that was not seen, the first of equal ones.
#[inline(always)]
fn least(sums: &Line, seen: &[bool; NR]) -> Option<usize> {
    let mut best = None;
    for (j, (&sum, &seen)) in sums.0.iter().zip(seen).enumerate() {
        if !seen && best.is_none_or(|b: usize| sum < sums.0[b]) {
            best = Some(j);
        }
    }
    best
}

/// The squared distances to 16 rows; two chains each, as one alone would wait for itself.
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

/// The squared distances to 16 boxes; 0 inside.
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
