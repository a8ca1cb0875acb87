//! Matrix products for batches of a few hundred rows.
//!
//! `C = A B` is computed in tiles of 6 x 16: 12 vector accumulators of 8 lanes, which fit into the registers of AVX2. B is
//! packed into panels of 16 columns, so that the inner loop reads it in order; A is not copied. Each element of C is one
//! chain of fused multiply-adds in ascending order of the inner index, for any tile, number of rows, number of threads and
//! instruction set. So a model is the same, bit for bit, on any number of threads, and the prediction of a row is
//! independent of the other rows in the batch.
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

use super::simd;

/// The number of rows of a tile.
pub(crate) const MR: usize = 6;
/// The number of columns of a tile and of a panel.
pub(crate) const NR: usize = 16;
/// By how much a vector of 8 lanes is longer than a column of a tile.
const SPARE: usize = 8 - MR;
/// The length of an inner block: a panel of B then takes 16 KB, half of the first-level cache.
const KC: usize = 256;

/// One row of a panel, aligned to a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [f32; NR]);

/// The accumulators of a tile.
type Acc = [Line; MR];
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

impl simd::Kernel for ManyRows<'_> {
    #[inline(always)]
    fn run(self) {
        let ManyRows { a, b, c, add, then, m } = self;
        let (k, n) = (b.k, b.n);
        let block = block(k);
        let mut from = 0;
        loop {
            let to = (from + block).min(k);
            let (add, then) = (add || from > 0, if to == k { then } else { Then::Keep });
            for panel in 0..n.div_ceil(NR) {
                let lines = &b.panel(panel)[from..to];
                for row in (0..m).step_by(MR) {
                    let rows = MR.min(m - row);
                    let mut tile = Tile { c, n, row, rows, column: panel * NR };
                    // A tile at the lower edge repeats its last row and drops the results.
                    let at = |r: usize| &a[(row + r.min(rows - 1)) * k + from..][..to - from];
                    let rows = [at(0), at(1), at(2), at(3), at(4), at(5)];
                    // SAFETY: each row is as long as the panel.
                    if unsafe { tile.multiply(rows.map(<[f32]>::as_ptr), 1, lines, add, then) } {
                        continue;
                    }
                    let mut acc = if add { tile.load() } else { [ZERO; MR] };
                    multiply(rows, lines, &mut acc);
                    tile.finish(&mut acc, then);
                    tile.store(&acc);
                }
            }
            if to == k {
                return;
            }
            from = to;
        }
    }
}

/// The length of inner blocks of equal size, at most about `KC`.
fn block(k: usize) -> usize {
    k.div_ceil(k.div_ceil(KC).max(1)).max(1)
}

/// A tile of C.
struct Tile<'a> {
    c: &'a mut [f32],
    n: usize,
    row: usize,
    rows: usize,
    column: usize,
}

impl Tile<'_> {
    fn width(&self) -> usize {
        NR.min(self.n - self.column)
    }

    fn load(&self) -> Acc {
        let mut acc = [ZERO; MR];
        for (r, line) in acc.iter_mut().enumerate().take(self.rows) {
            let at = (self.row + r) * self.n + self.column;
            line.0[..self.width()].copy_from_slice(&self.c[at..at + self.width()]);
        }
        acc
    }

    #[inline(always)]
    fn store(&mut self, acc: &Acc) {
        let width = self.width();
        for (r, line) in acc.iter().enumerate().take(self.rows) {
            let at = (self.row + r) * self.n + self.column;
            if width == NR {
                self.c[at..at + NR].copy_from_slice(&line.0);
            } else {
                self.c[at..at + width].copy_from_slice(&line.0[..width]);
            }
        }
    }

    /// Computes a full tile in registers: the product of six rows of A, whose elements are `stride` apart, and a panel of
    /// B, added to C if `add`. Returns false, and does nothing, if the tile is not full or AVX2 is missing.
    ///
    /// # Safety
    /// Every `a[r]` must be readable at `p * stride` for each `p < b.len()`.
    #[inline(always)]
    unsafe fn multiply(&mut self, a: [*const f32; MR], stride: usize, b: &[Line], add: bool, then: Then) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.rows == MR && self.width() == NR && simd::has_avx2() {
            let from = self.row * self.n + self.column;
            let whole = from..from + (MR - 1) * self.n + NR;
            let c = &mut self.c[whole.clone()];
            let then = match then {
                Then::Keep => Then::Keep,
                Then::Bias(bias) => Then::Bias(&bias[self.column..self.column + NR]),
                Then::BiasRelu(bias) => Then::BiasRelu(&bias[self.column..self.column + NR]),
                Then::Where(z) => Then::Where(&z[whole]),
            };
            // SAFETY: the machine has AVX2 and FMA; C and the activation contain a full tile, and the bias its columns;
            // the caller guarantees the reads of A.
            unsafe { x86::whole_tile(a, stride, b, c, self.n, add, then) };
            return true;
        }
        let _ = (a, stride, b, add, then);
        false
    }

    #[inline(always)]
    fn finish(&self, acc: &mut Acc, then: Then) {
        let width = self.width();
        match then {
            Then::Keep => {}
            Then::Bias(bias) | Then::BiasRelu(bias) => {
                let mut b = [0.0; NR];
                match bias[self.column..].first_chunk::<NR>() {
                    Some(full) => b = *full,
                    None => b[..width].copy_from_slice(&bias[self.column..self.column + width]),
                }
                let relu = matches!(then, Then::BiasRelu(_));
                for line in acc.iter_mut() {
                    for i in 0..NR {
                        let sum = line.0[i] + b[i];
                        line.0[i] = if relu && sum <= 0.0 { 0.0 } else { sum };
                    }
                }
            }
            Then::Where(activation) => {
                let z = &activation[self.row * self.n + self.column..];
                for (line, z) in acc.iter_mut().zip(z.chunks(self.n)).take(self.rows) {
                    line.0.iter_mut().zip(&z[..width]).for_each(|(v, &z)| *v = if z > 0.0 { *v } else { 0.0 });
                }
            }
        }
    }
}

/// `acc += a b` for one tile: six rows of A and one panel of B, all of the same inner length.
#[inline]
fn multiply(a: [&[f32]; MR], b: &[Line], acc: &mut Acc) {
    assert!(a.iter().all(|row| row.len() == b.len()));
    #[cfg(target_arch = "x86_64")]
    if simd::has_avx2() {
        // SAFETY: the machine has AVX2 and FMA, and the lengths were just checked.
        unsafe { x86::tile(a.map(<[f32]>::as_ptr), 1, b, acc) };
        return;
    }
    for (p, line) in b.iter().enumerate() {
        for (row, out) in a.iter().zip(acc.iter_mut()) {
            for (v, &w) in out.0.iter_mut().zip(&line.0) {
                *v = row[p].mul_add(w, *v);
            }
        }
    }
}

/// As [`multiply`], for columns of A gathered in groups of six.
#[inline]
fn multiply_columns(a: &[f32], b: &[Line], acc: &mut Acc) {
    assert!(a.len() == MR * b.len());
    #[cfg(target_arch = "x86_64")]
    if simd::has_avx2() {
        // SAFETY: the machine has AVX2 and FMA; row r of the tile is the r-th element of each group of six, and there are
        // as many groups as lines in `b`.
        unsafe {
            let at = |r| a.as_ptr().add(r);
            x86::tile([at(0), at(1), at(2), at(3), at(4), at(5)], MR, b, acc);
        }
        return;
    }
    for (column, line) in a.as_chunks::<MR>().0.iter().zip(b) {
        for (&x, out) in column.iter().zip(acc.iter_mut()) {
            for (v, &w) in out.0.iter_mut().zip(&line.0) {
                *v = x.mul_add(w, *v);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86;

/// A product with a single row: four panels at a time, so that eight chains of additions run in parallel.
struct OneRow<'a> {
    a: &'a [f32],
    b: Panels<'a>,
    c: &'a mut [f32],
    then: Then<'a>,
}

impl simd::Kernel for OneRow<'_> {
    #[inline(always)]
    fn run(self) {
        const WIDE: usize = 4;
        let n = self.b.n;
        let panels = n.div_ceil(NR);
        let mut panel = 0;
        while panel < panels {
            let wide = WIDE.min(panels - panel);
            let mut acc = [[0.0f32; NR]; WIDE];
            let lines = |w: usize| self.b.panel(panel + w);
            if wide == WIDE {
                let (l0, l1, l2, l3) = (lines(0), lines(1), lines(2), lines(3));
                for ((((&x, l0), l1), l2), l3) in self.a.iter().zip(l0).zip(l1).zip(l2).zip(l3) {
                    for j in 0..NR {
                        acc[0][j] = x.mul_add(l0.0[j], acc[0][j]);
                        acc[1][j] = x.mul_add(l1.0[j], acc[1][j]);
                        acc[2][j] = x.mul_add(l2.0[j], acc[2][j]);
                        acc[3][j] = x.mul_add(l3.0[j], acc[3][j]);
                    }
                }
            } else {
                for (w, acc) in acc.iter_mut().enumerate().take(wide) {
                    for (&x, line) in self.a.iter().zip(lines(w)) {
                        for (v, b) in acc.iter_mut().zip(line.0) {
                            *v = x.mul_add(b, *v);
                        }
                    }
                }
            }
            for (w, acc) in acc.into_iter().enumerate().take(wide) {
                let mut tile = Tile { c: self.c, n, row: 0, rows: 1, column: (panel + w) * NR };
                let mut lines = [ZERO; MR];
                lines[0] = Line(acc);
                tile.finish(&mut lines, self.then);
                tile.store(&lines);
            }
            panel += wide;
        }
    }
}

/// A visitor of the tiles of a product that is not stored.
pub(crate) trait Look {
    /// Called with the rows `row..row + rows` of the columns of panel `panel`. Further rows of the tile are meaningless.
    /// Mark it `#[inline(always)]`.
    fn look(&mut self, row: usize, rows: usize, panel: usize, tile: &[Line; MR]);
}

/// Computes `start + a b` on the calling thread and passes each complete tile to `look`. `a` is m x k and row-major, and
/// `start` is one line per panel. For any row, panels come in ascending order.
pub(crate) fn look(a: &[f32], b: Panels, start: &[Line], look: &mut impl Look) {
    let m = a.len().checked_div(b.k).unwrap_or(0);
    assert!(a.len() == m * b.k && start.len() == b.n.div_ceil(NR));
    simd::dispatch(Looking { a, b, start, look, m });
}

struct Looking<'a, L> {
    a: &'a [f32],
    b: Panels<'a>,
    start: &'a [Line],
    look: &'a mut L,
    m: usize,
}

impl<L: Look> simd::Kernel for Looking<'_, L> {
    #[inline(always)]
    fn run(self) {
        let Looking { a, b, start, look, m } = self;
        let k = b.k;
        let block = block(k);
        // Sums between inner blocks; a single tile if there is only one block.
        let mut waiting = vec![[ZERO; MR]; if block < k { m.div_ceil(MR) } else { 1 }];
        for (panel, &start) in start.iter().enumerate() {
            for from in (0..k).step_by(block) {
                let to = (from + block).min(k);
                let lines = &b.panel(panel)[from..to];
                for (t, row) in (0..m).step_by(MR).enumerate() {
                    let rows = MR.min(m - row);
                    let acc = &mut waiting[if block < k { t } else { 0 }];
                    if from == 0 {
                        *acc = [start; MR];
                    }
                    let at = |r: usize| &a[(row + r.min(rows - 1)) * k + from..][..to - from];
                    multiply([at(0), at(1), at(2), at(3), at(4), at(5)], lines, acc);
                    if to == k {
                        look.look(row, rows, panel, acc);
                    }
                }
            }
        }
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

/// The number of input features whose gradients are computed together: four tiles.
pub(crate) const WEIGHT_ROWS: usize = 4 * MR;

/// A buffer for the columns of x in groups of six, as the tiles of [`weight_gradient`] read them: 24 KB.
#[derive(Clone, Debug)]
pub(crate) struct Columns(Vec<f32>);

/// The size of one tile in [`Columns`].
const COLUMN: usize = MR * KC + SPARE;

impl Default for Columns {
    fn default() -> Self {
        Columns(vec![0.0; COLUMN * WEIGHT_ROWS / MR])
    }
}

/// Computes rows of the gradient of a linear layer's weight, `x^T dy`: those of the input features `first..`, as many as
/// `dw` has (at most [`WEIGHT_ROWS`]). `x` has `inputs` columns, and `dy` is packed. If `add`, they continue the sums in
/// `dw`.
pub(crate) fn weight_gradient(
    x: &[f32],
    inputs: usize,
    dy: Panels,
    first: usize,
    dw: &mut [f32],
    add: bool,
    columns: &mut Columns,
) {
    assert!(x.len() == dy.k * inputs && dw.len() <= WEIGHT_ROWS * dy.n);
    simd::dispatch(WeightGradient { x, inputs, dy, first, dw, add, columns: &mut columns.0 });
}

struct WeightGradient<'a> {
    x: &'a [f32],
    inputs: usize,
    dy: Panels<'a>,
    first: usize,
    dw: &'a mut [f32],
    add: bool,
    columns: &'a mut [f32],
}

impl simd::Kernel for WeightGradient<'_> {
    #[inline(always)]
    fn run(self) {
        let (batch, outputs, inputs) = (self.dy.k, self.dy.n, self.inputs);
        let features = self.dw.len().checked_div(outputs).unwrap_or(0);
        let length = block(batch);
        for from in (0..batch).step_by(length) {
            let to = (from + length).min(batch);
            let add = self.add || from > 0;
            for (t, columns) in self.columns.chunks_exact_mut(COLUMN).enumerate().take(features.div_ceil(MR)) {
                let first = self.first + t * MR;
                // To the end of x, not of the row: what a tile reads beyond its columns is dropped.
                for (k, x) in self.x[from * inputs + first..].chunks(inputs).take(to - from).enumerate() {
                    let to = &mut columns[k * MR..k * MR + MR + SPARE];
                    if let (Some(x), Some(to)) = (x.first_chunk::<{ MR + SPARE }>(), to.first_chunk_mut()) {
                        // Copying eight is one instruction; the last two are overwritten by the next six.
                        *to = *x;
                    } else {
                        let width = MR.min(x.len());
                        to[..width].copy_from_slice(&x[..width]);
                    }
                }
            }
            for panel in 0..outputs.div_ceil(NR) {
                let lines = &self.dy.panel(panel)[from..to];
                for (t, columns) in self.columns.chunks_exact(COLUMN).enumerate().take(features.div_ceil(MR)) {
                    let rows = MR.min(features - t * MR);
                    let mut tile = Tile { c: self.dw, n: outputs, row: t * MR, rows, column: panel * NR };
                    let columns = &columns[..MR * (to - from)];
                    let at = |r: usize| columns[r..].as_ptr();
                    let pointers = [at(0), at(1), at(2), at(3), at(4), at(5)];
                    // SAFETY: there are six numbers per line of the panel.
                    if unsafe { tile.multiply(pointers, MR, lines, add, Then::Keep) } {
                        continue;
                    }
                    let mut acc = if add { tile.load() } else { [ZERO; MR] };
                    multiply_columns(columns, lines, &mut acc);
                    tile.store(&acc);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
