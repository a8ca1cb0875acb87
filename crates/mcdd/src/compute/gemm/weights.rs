//! The gradient of a linear layer's weight.

use super::tile::Tile;
use super::{KC, Line, MR, NR, Panels, Then, block};
use crate::compute::simd::{self, Kernel, Simd};

/// The number of input features whose gradients are computed together: four tiles.
pub(crate) const WEIGHT_ROWS: usize = 4 * MR;
/// By how much a vector of 8 lanes is longer than a column of a tile.
const SPARE: usize = 8 - MR;

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

impl Kernel for WeightGradient<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (batch, outputs, inputs) = (self.dy.k, self.dy.n, self.inputs);
        let features = self.dw.len().checked_div(outputs).unwrap_or(0);
        if batch == 0 && !self.add {
            // A sum of no rows.
            self.dw.fill(0.0);
        }
        let length = block(batch);
        for from in (0..batch).step_by(length) {
            let to = (from + length).min(batch);
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
            let panels = outputs.div_ceil(NR);
            let mut panel = 0;
            while panel < panels {
                if S::WIDE && panel + 1 < panels {
                    self.panels::<S, 2>(simd, panel, features, from..to);
                    panel += 2;
                } else {
                    self.panels::<S, 1>(simd, panel, features, from..to);
                    panel += 1;
                }
            }
        }
    }
}

impl WeightGradient<'_> {
    /// Adds some rows of the batch to `P` panels.
    #[inline(always)]
    fn panels<S: Simd, const P: usize>(
        &mut self,
        simd: S,
        panel: usize,
        features: usize,
        batch: std::ops::Range<usize>,
    ) {
        let add = self.add || batch.start > 0;
        let mut lines: [&[Line]; P] = [&[]; P];
        for j in 0..P {
            lines[j] = &self.dy.panel(panel + j)[batch.clone()];
        }
        for (t, columns) in self.columns.chunks_exact(COLUMN).enumerate().take(features.div_ceil(MR)) {
            let rows = MR.min(features - t * MR);
            let mut tile = Tile { c: self.dw, n: self.dy.n, row: t * MR, rows, column: panel * NR };
            let columns = &columns[..MR * batch.len()];
            let mut pointers = [columns.as_ptr(); MR];
            for r in 0..MR {
                pointers[r] = columns[r..].as_ptr();
            }
            // SAFETY: there are six numbers per line of the panel.
            unsafe { tile.multiply(simd, pointers, MR, lines, add, Then::Keep) };
        }
    }
}
