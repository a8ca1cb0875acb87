//! Convolutions with windows of 3 x 3 in steps of one pixel by way of Winograd's minimal filtering (Lavin and Gray 2016):
//! four pixels of the output cost 16 products for each pair of channels, not 36.
//!
//! A tile of 4 x 4 pixels of the input and the window are brought to 16 numbers each; these are multiplied one by one, summed
//! over channels, and brought back to 2 x 2 pixels. All numbers are sums and halves, so little is lost in 32 bits. For
//! the backward pass the window is turned by 180 degrees, and inputs and outputs change places.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::buffers::{ConvBuffers, Out, TileBuffers, sized};
use super::geometry::{Padded, Place, Window};
use super::kernel::Product;
use crate::compute::gemm::{Line, NR};
use crate::compute::simd::{self, Kernel, Simd};

/// Numbers of a tile.
pub(super) const NUMBERS: usize = 16;
/// The number of tiles that are multiplied together; a multiple of six.
const TOGETHER: usize = 96;

/// One pass through a convolution: forward or backward.
#[derive(Clone, Debug)]
pub(super) struct Winograd {
    pub inputs: usize,
    pub outputs: usize,
    /// Input and output have the same size.
    size: [usize; 2],
    tiles: [usize; 2],
    pub padded: Padded,
    window: Window,
}

impl Winograd {
    pub(super) fn new(size: [usize; 2], inputs: usize, outputs: usize) -> Winograd {
        let tiles = size.map(|n| n.div_ceil(2));
        let [height, width] = tiles.map(|n| 2 * n + 2);
        let padded = Padded { height, width, channels: inputs, before: [1, 1] };
        let places = (0..TOGETHER).map(|t| Place { from: (t * inputs) as u32, to: t as u32 }).collect();
        let row = Padded { height: 1, width: TOGETHER, channels: inputs, before: [0, 0] };
        Winograd { inputs, outputs, size, tiles, padded, window: Window::new(row, [1, 1], places, Vec::new()) }
    }

    /// Tiles of an image.
    pub(super) fn count(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// Lines of a panel of the weights.
    pub(super) fn k(&self) -> usize {
        NUMBERS * self.inputs
    }

    /// Packs the panels `first..` of the weights, which are stored by place, input and output.
    pub(super) fn pack(&self, lines: &mut [Line], weight: &[f32], first: usize) {
        simd::dispatch(Pack { winograd: self, lines, weight, first, back: false });
    }

    /// The same weights for the backward pass, where inputs and outputs change places.
    pub(super) fn pack_back(&self, lines: &mut [Line], weight: &[f32], first: usize) {
        simd::dispatch(Pack { winograd: self, lines, weight, first, back: true });
    }

    /// Computes `images` images, whose padded copies are in `copy`; `start` is the bias, if any.
    pub(super) fn run(
        &self,
        copy: &[f32],
        images: usize,
        lines: &[Line],
        start: &[Line],
        out: &mut Out,
        tile_buffers: &mut TileBuffers,
    ) {
        let total = images * self.count();
        let zeros = vec![crate::compute::gemm::ZERO; start.len()];
        let k = self.inputs;
        for first in (0..total).step_by(TOGETHER) {
            let count = TOGETHER.min(total - first);
            let numbers = sized(&mut tile_buffers.numbers, NUMBERS * TOGETHER * self.inputs);
            for t in 0..count {
                let (image, y, x) = self.tile(first + t);
                let from = image * self.padded.len() + (2 * y * self.padded.width + 2 * x) * k;
                simd::dispatch(In {
                    from: &copy[from..],
                    row: self.padded.width * k,
                    to: &mut numbers[t * k..],
                    next: TOGETHER * k,
                    channels: k,
                });
            }
            let products = sized(&mut tile_buffers.products, NUMBERS * TOGETHER * self.outputs);
            for number in 0..NUMBERS {
                let length = TOGETHER * self.outputs;
                Product {
                    window: &self.window,
                    places: &self.window.places[..count],
                    lines: &lines[number * k..],
                    panel_lines: self.k(),
                    n: self.outputs,
                    input: &numbers[number * TOGETHER * k..],
                    image: TOGETHER * k,
                    first: 0,
                    images: 1,
                    out: &mut products[number * length..(number + 1) * length],
                    pixel: self.outputs,
                    out_image: length,
                    offset: 0,
                    first_pixel: 0,
                    start: &zeros,
                }
                .run(&mut tile_buffers.pairs);
            }
            for t in 0..count {
                let (image, y, x) = self.tile(first + t);
                let mut to = [None; 4];
                for (a, to) in to.iter_mut().enumerate() {
                    let (y, x) = (2 * y + a / 2, 2 * x + a % 2);
                    let pixel = y * self.size[1] + x;
                    let inside = y < self.size[0] && x < self.size[1];
                    *to = inside.then_some(image * out.image + pixel * out.pixel + out.offset);
                }
                let from = &products[t * self.outputs..];
                let next = TOGETHER * self.outputs;
                simd::dispatch(Back { from, next, out: out.data, to, start, channels: self.outputs });
            }
        }
    }

    /// Image, row and column of a tile.
    fn tile(&self, t: usize) -> (usize, usize, usize) {
        (t / self.count(), t / self.tiles[1] % self.tiles[0], t % self.tiles[1])
    }
}

impl ConvBuffers {
    /// A copied image, the buffer of the gradient, and those of tiles.
    pub(super) fn for_tiles(&mut self, copy: usize) -> (&mut [f32], &mut Vec<Line>, &mut TileBuffers) {
        (sized(&mut self.copy, copy), &mut self.other, &mut self.tile_buffers)
    }
}

/// Packs weights.
struct Pack<'a> {
    winograd: &'a Winograd,
    lines: &'a mut [Line],
    weight: &'a [f32],
    first: usize,
    back: bool,
}

impl Pack<'_> {
    /// The windows of the inputs `from..` and of one panel, sixteen inputs at a time.
    #[inline(always)]
    fn windows(&self, panel: usize, from: usize, windows: &mut [[[f32; NR]; 9]; NR]) {
        let Winograd { inputs, outputs, .. } = *self.winograd;
        let some = NR.min(outputs - panel * NR);
        let count = NR.min(inputs - from);
        for place in 0..9 {
            if self.back {
                // By output and input: whole rows are read, and turned.
                let matrix = &self.weight[(8 - place) * inputs * outputs + panel * NR * inputs..];
                for (j, row) in matrix.chunks_exact(inputs).take(some).enumerate() {
                    for (window, &v) in windows.iter_mut().zip(&row[from..from + count]) {
                        window[place][j] = v;
                    }
                }
            } else {
                let matrix = &self.weight[(place * inputs + from) * outputs + panel * NR..];
                for (i, window) in windows.iter_mut().enumerate().take(count) {
                    window[place][..some].copy_from_slice(&matrix[i * outputs..][..some]);
                }
            }
        }
    }
}

impl Kernel for Pack<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let inputs = self.winograd.inputs;
        let lines = std::mem::take(&mut self.lines);
        // What lies beyond the last output stays zero.
        let mut windows = [[[0.0f32; NR]; 9]; NR];
        for (panel, lines) in (self.first..).zip(lines.chunks_exact_mut(self.winograd.k())) {
            if self.winograd.outputs - panel * NR < NR {
                windows = [[[0.0; NR]; 9]; NR];
            }
            for from in (0..inputs).step_by(NR) {
                self.windows(panel, from, &mut windows);
                for (input, window) in (from..inputs).zip(&windows) {
                    for (number, line) in transform_window(window).into_iter().enumerate() {
                        lines[number * inputs + input] = Line(line);
                    }
                }
            }
        }
    }
}

/// `G g G^T` for sixteen outputs at a time.
#[inline(always)]
fn transform_window(g: &[[f32; NR]; 9]) -> [[f32; NR]; NUMBERS] {
    let three = |a: f32, b: f32, c: f32| [a, 0.5 * (a + b + c), 0.5 * (a - b + c), c];
    let mut out = [[0.0; NR]; NUMBERS];
    for j in 0..NR {
        let rows = [0, 1, 2].map(|x| three(g[x][j], g[3 + x][j], g[6 + x][j]));
        for y in 0..4 {
            for (x, v) in three(rows[0][y], rows[1][y], rows[2][y]).into_iter().enumerate() {
                out[4 * y + x][j] = v;
            }
        }
    }
    out
}

/// `B^T d B` of one tile, for all channels.
struct In<'a> {
    from: &'a [f32],
    row: usize,
    to: &'a mut [f32],
    /// From one of the sixteen numbers to the next.
    next: usize,
    channels: usize,
}

impl In<'_> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize) {
        let mut d = [[[0.0f32; N]; 4]; 4];
        for y in 0..4 {
            for x in 0..4 {
                let from = y * self.row + x * self.channels + at;
                d[y][x].copy_from_slice(&self.from[from..from + N]);
            }
        }
        let mut t = [[[0.0f32; N]; 4]; 4];
        for x in 0..4 {
            for j in 0..N {
                let [a, b, c, e] = [d[0][x][j], d[1][x][j], d[2][x][j], d[3][x][j]];
                [t[0][x][j], t[1][x][j], t[2][x][j], t[3][x][j]] = [a - c, b + c, c - b, b - e];
            }
        }
        for y in 0..4 {
            let mut out = [[0.0f32; N]; 4];
            for j in 0..N {
                let [a, b, c, e] = [t[y][0][j], t[y][1][j], t[y][2][j], t[y][3][j]];
                [out[0][j], out[1][j], out[2][j], out[3][j]] = [a - c, b + c, c - b, b - e];
            }
            for x in 0..4 {
                let to = (4 * y + x) * self.next + at;
                self.to[to..to + N].copy_from_slice(&out[x]);
            }
        }
    }
}

/// Calls a method for all lanes, as many at a time as a vector has, and then one by one.
macro_rules! in_vectors {
    ($channels:expr, $self:ident . $method:ident ()) => {
        let mut at = 0;
        while S::WIDE && at + 16 <= $channels {
            $self.$method::<16>(at);
            at += 16;
        }
        while at + 8 <= $channels {
            $self.$method::<8>(at);
            at += 8;
        }
        while at < $channels {
            $self.$method::<1>(at);
            at += 1;
        }
    };
}

impl Kernel for In<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        in_vectors!(self.channels, self.lane());
    }
}

/// `A^T m A` of one tile plus the bias, for all channels; pixels outside of the image are dropped.
struct Back<'a> {
    from: &'a [f32],
    next: usize,
    out: &'a mut [f32],
    to: [Option<usize>; 4],
    start: &'a [Line],
    channels: usize,
}

impl Back<'_> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize) {
        let mut t = [[[0.0f32; N]; 4]; 2];
        for x in 0..4 {
            let mut m = [[0.0f32; N]; 4];
            for y in 0..4 {
                let from = (4 * y + x) * self.next + at;
                m[y].copy_from_slice(&self.from[from..from + N]);
            }
            for j in 0..N {
                let [a, b, c, e] = [m[0][j], m[1][j], m[2][j], m[3][j]];
                [t[0][x][j], t[1][x][j]] = [a + b + c, b - c - e];
            }
        }
        let mut bias = [0.0f32; N];
        bias.copy_from_slice(&self.start[at / NR].0[at % NR..at % NR + N]);
        for y in 0..2 {
            let mut out = [[0.0f32; N]; 2];
            for j in 0..N {
                let [a, b, c, e] = [t[y][0][j], t[y][1][j], t[y][2][j], t[y][3][j]];
                [out[0][j], out[1][j]] = [a + b + c + bias[j], b - c - e + bias[j]];
            }
            for x in 0..2 {
                if let Some(to) = self.to[2 * y + x] {
                    self.out[to + at..to + at + N].copy_from_slice(&out[x]);
                }
            }
        }
    }
}

impl Kernel for Back<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        in_vectors!(self.channels, self.lane());
    }
}
