//! Operations on images pixel by pixel: copies into padded images, means and variances, and gradients.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::act::{Act, Bend, GELU, NONE, RELU, activate, slope};
use super::geometry::Padded;
use super::kernel::numbers;
use super::lanes::{Images, PixelShape, in_blocks, lanes};
use crate::compute::gemm::{Line, MR, NR, ZERO};
use crate::compute::simd::{self, Kernel, Simd};

/// Copies the rows `rows` of a padded image, zeros included, from an image of `size`.
pub(super) fn fill(
    padded: Padded,
    rows: std::ops::Range<usize>,
    size: [usize; 2],
    from: Images,
    image: usize,
    act: Act,
    to: &mut [f32],
) {
    let Padded { width, channels, before, .. } = padded;
    for (y, to) in rows.zip(to.chunks_exact_mut(width * channels)) {
        let Some(y) = y.checked_sub(before[0]).filter(|&y| y < size[0]) else {
            to.fill(0.0);
            continue;
        };
        to[..before[1] * channels].fill(0.0);
        to[(before[1] + size[1]) * channels..].fill(0.0);
        let shape = PixelShape { pixels: size[1], channels };
        let to = &mut to[before[1] * channels..];
        activate(act, from.from(image, y * size[1]), from.pixel, to, channels, shape, false);
    }
}

/// The same for the gradient of the output, which is stored in tiles of six channels.
pub(super) fn fill_from_sixes(
    padded: Padded,
    rows: std::ops::Range<usize>,
    size: [usize; 2],
    from: &[f32],
    to: &mut [f32],
) {
    let Padded { width, channels, before, .. } = padded;
    let pixels = size[0] * size[1];
    for (y, to) in rows.zip(to.chunks_exact_mut(width * channels)) {
        let Some(y) = y.checked_sub(before[0]).filter(|&y| y < size[0]) else {
            to.fill(0.0);
            continue;
        };
        to[..before[1] * channels].fill(0.0);
        to[(before[1] + size[1]) * channels..].fill(0.0);
        let to = to[before[1] * channels..].chunks_exact_mut(channels);
        for (p, to) in (y * size[1]..).zip(to.take(size[1])) {
            for tile in 0..channels.div_ceil(MR) {
                let (from, at) = (&from[(tile * pixels + p) * MR..], tile * MR);
                match (from.first_chunk::<8>(), to.get_mut(at..at + 8)) {
                    // Eight at once is one instruction; the two too many are overwritten by the next six.
                    (Some(from), Some(to)) => to.copy_from_slice(from),
                    _ => {
                        let n = MR.min(channels - at);
                        to[at..at + n].copy_from_slice(&from[..n]);
                    }
                }
            }
        }
    }
}

/// The term of a gradient through the batch's mean and variance, `g + a + b (x - mean)`, channel by channel.
#[derive(Clone, Copy, Default)]
pub(super) struct Correction<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub mean: &'a [f32],
}

/// The whole gradient of pixels that follow each other, into `to`; without corrections a copy.
struct Whole<'a, const CORRECT: bool> {
    gradient: &'a [f32],
    value: &'a [f32],
    pixel: usize,
    correction: Correction<'a>,
    to: &'a mut [f32],
    to_pixel: usize,
    shape: PixelShape,
}

/// One pixel of it; all slices have one value for each channel.
struct WholePixel<'a, const CORRECT: bool> {
    gradient: &'a [f32],
    value: &'a [f32],
    correction: Correction<'a>,
    to: &'a mut [f32],
}

impl<const CORRECT: bool> WholePixel<'_, CORRECT> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize) {
        let mut d = lanes::<N>(self.gradient, at);
        if CORRECT {
            let x = lanes::<N>(self.value, at);
            let [a, b, mean] = [self.correction.a, self.correction.b, self.correction.mean].map(|v| lanes::<N>(v, at));
            for j in 0..N {
                d[j] += b[j].mul_add(x[j] - mean[j], a[j]);
            }
        }
        self.to[at..at + N].copy_from_slice(&d);
    }

    #[inline(always)]
    fn run(mut self, channels: usize) {
        in_blocks!(channels, self.lane());
    }
}

impl<const CORRECT: bool> Kernel for Whole<'_, CORRECT> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let c = self.shape.channels;
        let Correction { a, b, mean } = self.correction;
        let correction =
            if CORRECT { Correction { a: &a[..c], b: &b[..c], mean: &mean[..c] } } else { Correction::default() };
        for p in 0..self.shape.pixels {
            let gradient = &self.gradient[p * self.pixel..][..c];
            let value = &self.value[p * self.pixel..][..c];
            let to = &mut self.to[p * self.to_pixel..][..c];
            WholePixel::<CORRECT> { gradient, value, correction, to }.run(c);
        }
    }
}

impl<'a> Whole<'a, false> {
    /// With corrections, if there are any.
    fn go(self) {
        if self.correction.a.is_empty() {
            simd::dispatch(self);
        } else {
            let Whole { gradient, value, pixel, correction, to, to_pixel, shape } = self;
            simd::dispatch(Whole::<'a, true> { gradient, value, pixel, correction, to, to_pixel, shape });
        }
    }
}

/// The whole gradient of an image's channels, pixel after pixel.
pub(super) fn whole(
    gradient: Images,
    value: Images,
    image: usize,
    correction: Correction,
    shape: PixelShape,
    to: &mut [f32],
) {
    let (pixel, to_pixel) = (gradient.pixel, shape.channels);
    let (gradient, value) = (gradient.from(image, 0), value.from(image, 0));
    Whole { gradient, value, pixel, correction, to, to_pixel, shape }.go();
}

/// The same in tiles of six channels; `row` is a buffer for some pixels.
pub(super) fn whole_in_sixes(
    gradient: Images,
    value: Images,
    image: usize,
    correction: Correction,
    shape: PixelShape,
    to: &mut [f32],
    row: &mut Vec<f32>,
) {
    let PixelShape { pixels, channels } = shape;
    let tiles = channels.div_ceil(MR);
    // Channels beyond the last are zeros.
    let to_pixel = tiles * MR;
    let some = 32.min(pixels);
    row.clear();
    row.resize(some * to_pixel + 2, 0.0);
    for first in (0..pixels).step_by(some) {
        let shape = PixelShape { pixels: some.min(pixels - first), channels };
        let (pixel, value) = (gradient.pixel, value.from(image, first));
        let gradient = gradient.from(image, first);
        Whole { gradient, value, pixel, correction, to: row, to_pixel, shape }.go();
        for (tile, to) in to.chunks_exact_mut(pixels * MR).enumerate().take(tiles) {
            let to = &mut to[first * MR..];
            for (p, from) in row[tile * MR..].chunks(to_pixel).take(shape.pixels).enumerate() {
                match (from.first_chunk::<8>(), to.get_mut(p * MR..p * MR + 8)) {
                    (Some(from), Some(to)) => to.copy_from_slice(from),
                    _ => to[p * MR..(p + 1) * MR].copy_from_slice(&from[..MR]),
                }
            }
        }
    }
}

/// Propagates the gradient of a value that was read through an [`Act`] to the buffer that it was read from.
pub(super) struct Spread<'a> {
    pub act: Act<'a>,
    /// The batch's mean, where there is batch normalization.
    pub mean: &'a [f32],
    /// The gradient, `pixel` numbers for each pixel.
    pub gradient: &'a [f32],
    pub gradient_pixel: usize,
    /// What was read; `to` is laid out in the same way.
    pub value: &'a [f32],
    pub pixel: usize,
    pub to: &'a mut [f32],
    pub shape: PixelShape,
    /// Whether `to` is written, or added to.
    pub write: bool,
    /// Sums of the gradient for each channel, followed by those of its products with `value - mean`; values are added to
    /// them. Not computed if empty.
    pub sums: &'a mut [f32],
}

struct Spreading<'a, const NORM: bool, const BEND: u8, const WRITE: bool>(Spread<'a>);

/// The number of pixels of a block: channels are read in order, and the values of a channel are loaded once for a block.
const SOME: usize = 4;

impl<const NORM: bool, const BEND: u8, const WRITE: bool> Spreading<'_, NORM, BEND, WRITE> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize, first: usize, last: usize) {
        let s = &mut self.0;
        let (mut scale, mut shift, mut mean) = ([1.0f32; N], [0.0f32; N], [0.0f32; N]);
        let (mut sum, mut product) = ([0.0f32; N], [0.0f32; N]);
        if NORM {
            scale = lanes(s.act.scale, at);
            shift = lanes(s.act.shift, at);
            if !s.sums.is_empty() {
                mean = lanes(s.mean, at);
                sum = lanes(s.sums, at);
                product = lanes(s.sums, s.shape.channels + at);
            }
        }
        let gradients = s.gradient[first * s.gradient_pixel + at..].chunks(s.gradient_pixel);
        let values = s.value[first * s.pixel + at..].chunks(s.pixel);
        let outs = s.to[first * s.pixel + at..].chunks_mut(s.pixel);
        for ((d, x), to) in gradients.zip(values).zip(outs).take(last - first) {
            let (Some(d), Some(x), Some(to)) = (d.first_chunk::<N>(), x.first_chunk::<N>(), to.first_chunk_mut::<N>())
            else {
                return;
            };
            let mut d = *d;
            if BEND != NONE {
                let mut y = *x;
                if NORM {
                    for j in 0..N {
                        y[j] = scale[j].mul_add(x[j], shift[j]);
                    }
                }
                d = slope::<BEND, N>(d, y);
            }
            if NORM {
                for j in 0..N {
                    sum[j] += d[j];
                    product[j] = d[j].mul_add(x[j] - mean[j], product[j]);
                    d[j] *= scale[j];
                }
            }
            for j in 0..N {
                to[j] = if WRITE { d[j] } else { to[j] + d[j] };
            }
        }
        if NORM && !s.sums.is_empty() {
            let second = s.shape.channels + at;
            s.sums[at..at + N].copy_from_slice(&sum);
            s.sums[second..second + N].copy_from_slice(&product);
        }
    }
}

impl<const NORM: bool, const BEND: u8, const WRITE: bool> Kernel for Spreading<'_, NORM, BEND, WRITE> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let PixelShape { pixels, channels } = self.0.shape;
        for first in (0..pixels).step_by(SOME) {
            let last = (first + SOME).min(pixels);
            in_blocks!(channels, self.lane(first, last));
        }
    }
}

impl Spread<'_> {
    pub(super) fn run(self) {
        macro_rules! go {
            ($norm:literal, $bend:ident, $write:literal) => {
                simd::dispatch(Spreading::<$norm, $bend, $write>(self))
            };
        }
        match (!self.act.scale.is_empty(), self.act.bend, self.write) {
            (false, Bend::None, false) => go!(false, NONE, false),
            (false, Bend::Relu, false) => go!(false, RELU, false),
            (false, Bend::Gelu, false) => go!(false, GELU, false),
            (true, Bend::None, false) => go!(true, NONE, false),
            (true, Bend::Relu, false) => go!(true, RELU, false),
            (true, Bend::Gelu, false) => go!(true, GELU, false),
            (false, Bend::None, true) => go!(false, NONE, true),
            (false, Bend::Relu, true) => go!(false, RELU, true),
            (false, Bend::Gelu, true) => go!(false, GELU, true),
            (true, Bend::None, true) => go!(true, NONE, true),
            (true, Bend::Relu, true) => go!(true, RELU, true),
            (true, Bend::Gelu, true) => go!(true, GELU, true),
        }
    }
}

/// Mean and sum of squared differences of each channel of an image.
struct Measure<'a> {
    from: &'a [f32],
    pixel: usize,
    shape: PixelShape,
    to: &'a mut [f32],
}

impl Measure<'_> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize) {
        let pixels = self.shape.pixels;
        let factor = 1.0 / pixels as f32;
        let (mut mean, mut squares) = ([0.0f32; N], [0.0f32; N]);
        for p in 0..pixels {
            let x = lanes::<N>(self.from, p * self.pixel + at);
            for j in 0..N {
                mean[j] += x[j];
            }
        }
        for j in 0..N {
            mean[j] *= factor;
        }
        for p in 0..pixels {
            let x = lanes::<N>(self.from, p * self.pixel + at);
            for j in 0..N {
                let d = x[j] - mean[j];
                squares[j] = d.mul_add(d, squares[j]);
            }
        }
        let second = self.shape.channels + at;
        self.to[at..at + N].copy_from_slice(&mean);
        self.to[second..second + N].copy_from_slice(&squares);
    }
}

impl Kernel for Measure<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        in_blocks!(self.shape.channels, self.lane());
    }
}

/// The mean of each channel of an image, followed by the sums of squared differences from it.
pub(super) fn measure(from: &[f32], pixel: usize, shape: PixelShape, to: &mut [f32]) {
    simd::dispatch(Measure { from, pixel, shape, to });
}

/// Reads one value of each cache line of these rows, in the order of memory, which is faster than the scattered reads of a
/// few channels that follow.
pub(super) fn prefetch(padded: Padded, rows: std::ops::Range<usize>, size: [usize; 2], from: Images, image: usize) {
    let [top, bottom] = [rows.start, rows.end].map(|y| y.saturating_sub(padded.before[0]).min(size[0]));
    let length = (bottom - top) * size[1] * from.pixel;
    let rows = &from.from(image, top * size[1])[..length.saturating_sub(from.offset)];
    std::hint::black_box(rows.iter().step_by(16).fold(0, |seen, v| seen ^ v.to_bits()));
}

/// The up to sixteen channels of panel `panel` of an activated and zero-padded image, with a line for each pixel of the rows
/// `rows` of the padded image.
#[allow(clippy::too_many_arguments)]
pub(super) fn fill_lines(
    padded: Padded,
    rows: std::ops::Range<usize>,
    size: [usize; 2],
    from: Images,
    image: usize,
    act: Act,
    panel: usize,
    to: &mut [Line],
) {
    let Padded { width, channels, before, .. } = padded;
    let first = panel * NR;
    let some = NR.min(channels - first);
    let act = if act.scale.is_empty() {
        act
    } else {
        Act { scale: &act.scale[first..first + some], shift: &act.shift[first..first + some], bend: act.bend }
    };
    for (y, to) in rows.zip(to.chunks_exact_mut(width)) {
        let Some(y) = y.checked_sub(before[0]).filter(|&y| y < size[0]) else {
            to.fill(ZERO);
            continue;
        };
        to[..before[1]].fill(ZERO);
        to[before[1] + size[1]..].fill(ZERO);
        let to = &mut to[before[1]..before[1] + size[1]];
        if some < NR {
            to.fill(ZERO);
        }
        let shape = PixelShape { pixels: size[1], channels: some };
        activate(act, &from.from(image, y * size[1])[first..], from.pixel, numbers(to), NR, shape, false);
    }
}
