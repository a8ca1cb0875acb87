//! Where a convolution reads and writes: windows as spans of numbers in a zero-padded image.
//!
//! An image is copied once, with its padding, and then read in place. Adjacent pixels of a window are one span of numbers,
//! so a window of 3 x 3 is three spans, whatever the stride. The backward pass is a convolution
//! of the gradient: with a stride of s, the pixels of the input fall into s x s classes, each with a part of the window.

use super::winograd::Winograd;
use crate::compute::gemm::{Line, pack, pack_transposed};
use crate::error::{Error, Result};

/// The number of lines of a panel that are used together: they stay in the first-level cache over all tiles.
const KC: usize = 288;
/// The largest number of values of a padded image.
const MAX_VALUES: usize = 1 << 28;

/// Adjacent numbers of a window; `offset` counts from the window's first.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub offset: usize,
    pub length: usize,
}

/// Where a pixel that is computed reads (its window's first number) and writes (its number in the output).
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub from: u32,
    pub to: u32,
}

/// One product: all pixels of a class with the window they have in common.
#[derive(Clone, Debug)]
pub struct Window {
    pub spans: Vec<Span>,
    /// The end of each block of spans.
    pub ends: Vec<usize>,
    pub places: Vec<Place>,
    /// Lines of a panel.
    pub k: usize,
    /// For the backward pass: the kernel positions, in the order of the lines.
    taps: Vec<[usize; 2]>,
}

/// A zero-padded image.
#[derive(Clone, Copy, Debug)]
pub struct Padded {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    /// Rows and columns of zeros before the first.
    pub before: [usize; 2],
}

impl Padded {
    pub fn len(&self) -> usize {
        self.height * self.width * self.channels
    }
}

#[derive(Clone, Debug)]
pub struct Conv {
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
    pub fn new(
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

    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Lines of a panel of the weights for the forward pass.
    pub fn forward_k(&self) -> usize {
        self.winograd.as_ref().map_or(self.forward.k, |w| w[0].k())
    }

    /// The same for a class of the backward pass.
    pub fn back_k(&self, class: usize) -> usize {
        self.winograd.as_ref().map_or(self.back[class].k, |w| w[1].k())
    }

    /// Packs the panels `first..` of the weights, which are ordered by kernel position, input and output.
    pub fn pack(&self, lines: &mut [Line], weight: &[f32], first: usize) {
        if let Some([forward, _]) = &self.winograd {
            return forward.pack(lines, weight, first);
        }
        pack(lines, weight, self.taps() * self.inputs, self.outputs, first);
    }

    /// Packs the panels `first..` of a class for the backward pass.
    pub fn pack_back(&self, lines: &mut [Line], weight: &[f32], window: &Window, first: usize) {
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

impl Window {
    /// A window of `count` pixels of an image.
    pub fn new(image: Padded, count: [usize; 2], places: Vec<Place>, taps: Vec<[usize; 2]>) -> Window {
        let whole = count[1] * image.channels;
        let k = count[0] * whole;
        // Pieces of equal length where a span is too long for one block.
        let piece = whole.div_ceil(whole.div_ceil(KC).max(1)).max(1);
        let (mut spans, mut ends, mut inside) = (Vec::new(), Vec::new(), 0);
        for y in 0..count[0] {
            for from in (0..whole).step_by(piece) {
                let length = piece.min(whole - from);
                if inside > 0 && inside + length > KC {
                    ends.push(spans.len());
                    inside = 0;
                }
                inside += length;
                spans.push(Span { offset: y * image.width * image.channels + from, length });
            }
        }
        ends.push(spans.len());
        let reach = spans.iter().map(|r| r.offset + r.length).max().unwrap_or(0);
        let last = places.iter().map(|p| p.from as usize).max().unwrap_or(0);
        assert!(k == 0 || last + reach <= image.len(), "a window reaches beyond its image");
        Window { spans, ends, places, k, taps }
    }
}
