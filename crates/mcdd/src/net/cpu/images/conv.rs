//! Where a convolution reads and writes: windows as spans of numbers in a zero-padded image.
//!
//! An image is copied once, with its padding, and then read in place. Adjacent pixels of a window are one span of numbers,
//! so a window of 3 x 3 is three spans, whatever the stride. The backward pass is a convolution
//! of the gradient: with a stride of s, the pixels of the input fall into s x s classes, each with a part of the window.

use super::geometry::{Padded, Place, Window};
use super::winograd::Winograd;
use crate::compute::gemm::{Line, pack, pack_transposed};
use crate::error::{Error, Result};

/// The largest number of values of a padded image.
const MAX_VALUES: usize = 1 << 28;

#[derive(Clone, Debug)]
pub(super) struct Conv {
    pub inputs: usize,
    pub outputs: usize,
    pub kernel: [usize; 2],
    pub stride: usize,
    pub input: [usize; 2],
    pub output: [usize; 2],
    /// The input as the forward pass reads it.
    pub padded: Padded,
    pub forward: Window,
    /// The output's gradient as the backward pass reads it.
    pub back_padded: Padded,
    pub back: Vec<Window>,
    /// Winograd's algorithm for both passes, where it is faster.
    pub winograd: Option<[Winograd; 2]>,
}

/// The least number of channels for which Winograd's algorithm is faster.
const WINOGRAD: usize = 32;

impl Conv {
    /// # Errors
    /// If the padded image is larger than any network needs.
    pub(super) fn new(
        input: [usize; 2],
        [inputs, outputs]: [usize; 2],
        kernel: [usize; 2],
        stride: usize,
        padding: usize,
    ) -> Result<Conv> {
        let output = [0, 1].map(|i| (input[i] + 2 * padding - kernel[i]) / stride + 1);
        let around = |sides: [usize; 2], channels: usize, before: [usize; 2]| {
            let [height, width] = sides;
            let len = height.checked_mul(width).and_then(|n| n.checked_mul(channels));
            match len {
                Some(n) if n <= MAX_VALUES => Ok(Padded { height, width, channels, before }),
                _ => Err(Error::format("a convolution has more padding than any network needs")),
            }
        };
        let padded = around(input.map(|n| n + 2 * padding), inputs, [padding; 2])?;
        let place = |y: usize, x: usize| Place {
            from: ((y * padded.width + x) * stride * inputs) as u32,
            to: (y * output[1] + x) as u32,
        };
        let places = grid(output).map(|[y, x]| place(y, x)).collect();
        let forward = Window::new(padded, kernel, places, Vec::new());

        // Going back, the pixel y of the input got something from the places r + s j of the kernel, where r is (y + padding)
        // modulo s, and that came from the row q - j of the output, where q is (y + padding) / s.
        let most = kernel.map(|k| k.div_ceil(stride));
        let before = most.map(|m| m - 1);
        let sides = [0, 1].map(|i| before[i] + output[i].max((input[i] - 1 + padding) / stride + 1));
        let back_padded = around(sides, outputs, before)?;
        let mut back = Vec::new();
        for [ry, rx] in grid([0, 1].map(|i| stride.min(input[i] + padding))) {
            let r = [ry, rx];
            let count = [0, 1].map(|i| kernel[i].saturating_sub(r[i]).div_ceil(stride));
            // In the order of the output's rows, which the kernel's places go down in.
            let taps = grid(count).map(|j| [0, 1].map(|i| r[i] + stride * (count[i] - 1 - j[i]))).collect();
            // The first pixel of the class, and the number of pixels.
            let start = r.map(|r| (r + stride - padding % stride) % stride);
            let mine = [0, 1].map(|i| input[i].saturating_sub(start[i]).div_ceil(stride));
            let place = |at: [usize; 2]| {
                let [y, x] = [0, 1].map(|i| start[i] + stride * at[i]);
                let first = |v: usize, i: usize| (v + padding) / stride + before[i] + 1 - count[i];
                let from = (first(y, 0) * back_padded.width + first(x, 1)) * outputs;
                // Where the window has no places, nothing is read.
                Place { from: if count.contains(&0) { 0 } else { from as u32 }, to: (y * input[1] + x) as u32 }
            };
            let places: Vec<Place> = grid(mine).map(place).collect();
            if !places.is_empty() {
                back.push(Window::new(back_padded, count, places, taps));
            }
        }
        let fewer = kernel == [3, 3] && stride == 1 && padding == 1 && inputs.min(outputs) >= WINOGRAD;
        let winograd = fewer.then(|| [[inputs, outputs], [outputs, inputs]].map(|[i, o]| Winograd::new(input, i, o)));
        Ok(Conv { inputs, outputs, kernel, stride, input, output, padded, forward, back_padded, back, winograd })
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Lines of a panel of the weights for the forward pass.
    pub(super) fn forward_k(&self) -> usize {
        self.winograd.as_ref().map_or(self.forward.k, |w| w[0].k())
    }

    /// The same for a class of the backward pass.
    pub(super) fn back_k(&self, class: usize) -> usize {
        self.winograd.as_ref().map_or(self.back[class].k, |w| w[1].k())
    }

    /// Packs the panels `first..` of the weights, which are ordered by kernel position, input and output.
    pub(super) fn pack(&self, lines: &mut [Line], weight: &[f32], first: usize) {
        if let Some([forward, _]) = &self.winograd {
            return forward.pack(lines, weight, first);
        }
        pack(lines, weight, self.taps() * self.inputs, self.outputs, first);
    }

    /// Packs the panels `first..` of a class for the backward pass.
    pub(super) fn pack_back(&self, lines: &mut [Line], weight: &[f32], window: &Window, first: usize) {
        if let Some([_, back]) = &self.winograd {
            return back.pack_back(lines, weight, first);
        }
        let matrix = self.inputs * self.outputs;
        for (panel, lines) in (first..).zip(lines.chunks_mut(window.k.max(1))) {
            for (lines, [ky, kx]) in lines.chunks_mut(self.outputs).zip(&window.taps) {
                let tap = ky * self.kernel[1] + kx;
                pack_transposed(lines, &weight[tap * matrix..(tap + 1) * matrix], self.outputs, self.inputs, panel);
            }
        }
    }
}

/// All pairs below `sides`, row by row.
fn grid([height, width]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..height).flat_map(move |y| (0..width).map(move |x| [y, x]))
}
