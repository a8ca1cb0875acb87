//! Matrix products for batches of a few hundred rows.
//!
//! `C = A B` is computed in tiles that fit into registers: 6 x 16 with AVX2, which are 12 vectors of 8 lanes, and 6 x 32 with
//! AVX-512, which are 12 vectors of 16 lanes. B is packed into panels of 16 columns, so that the inner loop reads it in
//! order; A is not copied. Each element of C is one chain of fused multiply-adds in ascending order of the inner index, for
//! any tile, number of rows, number of threads and instruction set. So a model is the same, bit for bit, on any number of
//! threads and on any processor, and the prediction of a row is independent of the other rows in the batch.
//!
//! ```
//! use mcdd::compute::gemm::{Panels, Then, ZERO, pack, product};
//!
//! let (a, b) = ([1.0, 2.0], [3.0, 4.0, 5.0, 6.0]); // 1 x 2 and 2 x 2
//! let mut lines = vec![ZERO; Panels::lines(2, 2)];
//! pack(&mut lines, &b, 2, 2, 0);
//! let mut c = [0.0; 2];
//! product(&a, Panels::new(&lines, 2, 2), &mut c, Then::Keep);
//! assert_eq!(c, [13.0, 16.0]);
//! ```

// Loops over the lanes of several arrays are clearest, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

mod look;
mod tile;
mod weights;

pub(crate) use look::{Look, look};
pub(crate) use weights::{Columns, WEIGHT_ROWS, weight_gradient};

use super::simd::{self, Kernel, Simd};
use tile::Tile;

/// The number of rows of a tile.
pub(crate) const MR: usize = 6;
/// The number of columns of a tile and of a panel.
pub(crate) const NR: usize = 16;
/// The length of an inner block: a panel of B then takes 16 KB, half of the first-level cache.
const KC: usize = 256;

/// One row of a panel, aligned to a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [f32; NR]);

/// A line of zeros.
pub const ZERO: Line = Line([0.0; NR]);

/// A packed `k` x `n` matrix: panels of 16 columns, the last one padded with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a> {
    lines: &'a [Line],
    /// The number of lines of a panel, and the first of the `k` lines that count.
    stride: usize,
    first: usize,
    k: usize,
    n: usize,
}

impl<'a> Panels<'a> {
    /// The number of lines of a packed `k` x `n` matrix.
    pub fn lines(k: usize, n: usize) -> usize {
        n.div_ceil(NR) * k
    }

    /// The `k` x `n` matrix that was packed into `lines`.
    ///
    /// # Panics
    /// If the number of lines is not that of the matrix.
    pub fn new(lines: &'a [Line], k: usize, n: usize) -> Panels<'a> {
        assert!(lines.len() == Self::lines(k, n));
        Panels { lines, stride: k, first: 0, k, n }
    }

    /// Some rows of the matrix.
    pub(crate) fn rows(self, rows: std::ops::Range<usize>) -> Panels<'a> {
        assert!(rows.start <= rows.end && rows.end <= self.k);
        Panels { first: self.first + rows.start, k: rows.len(), ..self }
    }

    #[inline(always)]
    fn panel(&self, i: usize) -> &'a [Line] {
        &self.lines[i * self.stride + self.first..][..self.k]
    }
}

/// Packs the panels `first..` of `b`, a row-major `k` x `n` matrix, into `lines`, `k` lines per panel.
///
/// # Panics
/// If `b` is too short.
pub fn pack(lines: &mut [Line], b: &[f32], k: usize, n: usize, first: usize) {
    assert!(b.len() >= k * n);
    for (p, panel) in lines.chunks_mut(k.max(1)).enumerate() {
        let column = (first + p) * NR;
        let width = NR.min(n - column);
        if width == NR {
            for (line, row) in panel.iter_mut().zip(b.chunks_exact(n)) {
                if let Some(full) = row[column..].first_chunk::<NR>() {
                    line.0 = *full;
                }
            }
        } else {
            for (line, row) in panel.iter_mut().zip(b.chunks_exact(n)) {
                line.0[..width].copy_from_slice(&row[column..column + width]);
            }
        }
    }
}

/// Packs the panels `first..` of the transpose of `b`, a row-major `n` x `k` matrix.
pub(crate) fn pack_transposed(lines: &mut [Line], b: &[f32], k: usize, n: usize, first: usize) {
    assert!(b.len() >= k * n);
    for (p, panel) in lines.chunks_mut(k.max(1)).enumerate() {
        let column = (first + p) * NR;
        let rows = &b[column * k..(column + NR.min(n - column)) * k];
        if rows.len() == NR * k {
            // Blocks of 16 x 16, so that whole cache lines are read and written.
            for (block, lines) in panel.chunks_mut(NR).enumerate() {
                let from = block * NR;
                for (j, row) in rows.chunks_exact(k).enumerate() {
                    for (line, &v) in lines.iter_mut().zip(&row[from..]) {
                        line.0[j] = v;
                    }
                }
            }
        } else {
            for (j, row) in rows.chunks_exact(k.max(1)).enumerate() {
                for (line, &v) in panel.iter_mut().zip(row) {
                    line.0[j] = v;
                }
            }
        }
    }
}

/// The operation on each element of C after its sum is complete.
#[derive(Clone, Copy)]
pub enum Then<'a> {
    /// No operation.
    Keep,
    /// Adds a bias, one number per column.
    Bias(&'a [f32]),
    /// Adds a bias and applies a ReLU.
    BiasRelu(&'a [f32]),
    /// The backward pass of a ReLU: 0 where the activation, which has the shape of C, is not positive.
    Where(&'a [f32]),
}

/// `c = a b`, followed by `then`, on the calling thread; `a` is m x k and `c` is m x n, both row-major.
///
/// # Panics
/// If the shapes do not match.
pub fn product(a: &[f32], b: Panels, c: &mut [f32], then: Then) {
    multiply_all(a, b, c, false, then);
}

/// `c += a b`, followed by `then`: with the same bits as one product whose inner index runs over that of the product
/// already in `c`, and then over that of this one.
pub(crate) fn add_product(a: &[f32], b: Panels, c: &mut [f32], then: Then) {
    multiply_all(a, b, c, true, then);
}

fn multiply_all(a: &[f32], b: Panels, c: &mut [f32], add: bool, then: Then) {
    let (k, n) = (b.k, b.n);
    let m = c.len().checked_div(n).unwrap_or(0);
    assert!(c.len() == m * n && a.len() == m * k);
    match then {
        Then::Bias(bias) | Then::BiasRelu(bias) => assert!(bias.len() == n),
        Then::Where(activation) => assert!(activation.len() == m * n),
        Then::Keep => {}
    }
    if m == 1 && !add {
        simd::dispatch(OneRow { a, b, c, then });
    } else {
        simd::dispatch(ManyRows { a, b, c, add, then, m });
    }
}

/// A product with several rows.
struct ManyRows<'a> {
    a: &'a [f32],
    b: Panels<'a>,
    c: &'a mut [f32],
    add: bool,
    then: Then<'a>,
    m: usize,
}

impl Kernel for ManyRows<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let k = self.b.k;
        let panels = self.b.n.div_ceil(NR);
        let block = block(k);
        let mut from = 0;
        loop {
            let to = (from + block).min(k);
            let mut panel = 0;
            while panel < panels {
                if S::WIDE && panel + 1 < panels {
                    self.panels::<S, MR, 2>(simd, panel, 0, from..to);
                    panel += 2;
                    continue;
                }
                let mut row = 0;
                if S::WIDE {
                    // Six rows of a single panel would be too few sums to keep the multipliers busy.
                    row = self.m / (2 * MR) * (2 * MR);
                    self.panels::<S, { 2 * MR }, 1>(simd, panel, 0, from..to);
                }
                self.panels::<S, MR, 1>(simd, panel, row, from..to);
                panel += 1;
            }
            if to == k {
                return;
            }
            from = to;
        }
    }
}

impl ManyRows<'_> {
    /// Adds some of the inner index to the rows `first..` of `P` panels, in tiles of `R` rows. Tiles of more than `MR` rows
    /// leave the rest to smaller ones.
    #[inline(always)]
    fn panels<S: Simd, const R: usize, const P: usize>(
        &mut self,
        simd: S,
        panel: usize,
        first: usize,
        inner: std::ops::Range<usize>,
    ) {
        let (k, m, n) = (self.b.k, self.m, self.b.n);
        let add = self.add || inner.start > 0;
        let then = if inner.end == k { self.then } else { Then::Keep };
        let mut lines: [&[Line]; P] = [&[]; P];
        for j in 0..P {
            lines[j] = &self.b.panel(panel + j)[inner.clone()];
        }
        let end = if R > MR { m / R * R } else { m };
        for row in (first..end).step_by(R) {
            let rows = R.min(m - row);
            let mut pointers = [self.a.as_ptr(); R];
            for r in 0..R {
                // A tile at the lower edge repeats its last row and drops the results.
                let at = (row + r.min(rows - 1)) * k + inner.start;
                pointers[r] = self.a[at..][..inner.len()].as_ptr();
            }
            let mut tile = Tile { c: self.c, n, row, rows, column: panel * NR };
            // SAFETY: each row of A is as long as the lines.
            unsafe { tile.multiply(simd, pointers, 1, lines, add, then) };
        }
    }
}

/// The length of inner blocks of equal size, at most about `KC`.
fn block(k: usize) -> usize {
    k.div_ceil(k.div_ceil(KC).max(1)).max(1)
}

/// A product with a single row: four panels at a time, so that several chains of additions run in parallel.
struct OneRow<'a> {
    a: &'a [f32],
    b: Panels<'a>,
    c: &'a mut [f32],
    then: Then<'a>,
}

impl Kernel for OneRow<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let panels = self.b.n.div_ceil(NR);
        let mut panel = 0;
        while panel + 4 <= panels {
            self.panels::<S, 4>(simd, panel);
            panel += 4;
        }
        while panel < panels {
            self.panels::<S, 1>(simd, panel);
            panel += 1;
        }
    }
}

impl OneRow<'_> {
    #[inline(always)]
    fn panels<S: Simd, const P: usize>(&mut self, simd: S, panel: usize) {
        let mut lines: [&[Line]; P] = [&[]; P];
        for j in 0..P {
            lines[j] = self.b.panel(panel + j);
        }
        let mut tile = Tile { c: self.c, n: self.b.n, row: 0, rows: 1, column: panel * NR };
        // SAFETY: the row is as long as the lines.
        unsafe { tile.multiply(simd, [self.a.as_ptr()], 1, lines, false, self.then) };
    }
}

/// The column sums of packed panels of `rows` lines each, which are the gradient of a bias.
pub(crate) fn column_sums(lines: &[Line], rows: usize, out: &mut [f32]) {
    for (panel, out) in lines.chunks(rows.max(1)).zip(out.chunks_mut(NR)) {
        let mut total = [0.0f32; NR];
        for line in panel {
            for (t, v) in total.iter_mut().zip(line.0) {
                *t += v;
            }
        }
        out.copy_from_slice(&total[..out.len()]);
    }
}

#[cfg(test)]
mod tests;
