//! Means and maxima of windows.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::act::{Act, activate};
use super::lanes::{Images, PixelShape, in_blocks, lanes};
use crate::compute::simd::{self, Kernel, Simd};

/// The geometry of a pooling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    pub kernel: [usize; 2],
    pub stride: usize,
    /// Pixels on each side that windows reach beyond the image.
    pub padding: usize,
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub channels: usize,
}

impl Pool {
    /// The number of a pixel of the input: of the window of output pixel `y`, `x`, the one in row `ky` and column `kx`. Beyond the
    /// image it is the nearest pixel of it, which is in the window as well, so that it changes no maximum.
    #[inline(always)]
    fn at(&self, [y, x]: [usize; 2], [ky, kx]: [usize; 2]) -> usize {
        let inside = |at: usize, side: usize| at.saturating_sub(self.padding).min(side - 1);
        inside(y * self.stride + ky, self.input[0]) * self.input[1] + inside(x * self.stride + kx, self.input[1])
    }

    /// Means of windows of one image; `to` has `pixel` numbers for each of its pixels.
    pub(super) fn means(&self, from: Images, image: usize, act: Act, to: &mut [f32], pixel: usize) {
        let factor = 1.0 / (self.kernel[0] * self.kernel[1]) as f32;
        let channels = self.channels;
        for y in 0..self.output[0] {
            for x in 0..self.output[1] {
                let to = &mut to[(y * self.output[1] + x) * pixel..];
                to[..channels].fill(0.0);
                for ky in 0..self.kernel[0] {
                    for kx in 0..self.kernel[1] {
                        let shape = PixelShape { pixels: 1, channels };
                        let from_pixel = from.from(image, self.at([y, x], [ky, kx]));
                        activate(act, from_pixel, from.pixel, to, pixel, shape, true);
                    }
                }
                to[..channels].iter_mut().for_each(|v| *v *= factor);
            }
        }
    }

    /// The gradient of an image from that of its means, pixel after pixel.
    pub(super) fn back_means(&self, gradient: &[f32], to: &mut [f32]) {
        let factor = 1.0 / (self.kernel[0] * self.kernel[1]) as f32;
        let channels = self.channels;
        to.fill(0.0);
        for y in 0..self.output[0] {
            for x in 0..self.output[1] {
                let from = &gradient[(y * self.output[1] + x) * channels..][..channels];
                for ky in 0..self.kernel[0] {
                    for kx in 0..self.kernel[1] {
                        let at = self.at([y, x], [ky, kx]);
                        let to = &mut to[at * channels..(at + 1) * channels];
                        to.iter_mut().zip(from).for_each(|(t, f)| *t = f.mul_add(factor, *t));
                    }
                }
            }
        }
    }

    /// Maxima of windows of one image; `to` has `pixel` numbers for each of its pixels.
    pub(super) fn maxima(&self, from: Images, image: usize, to: &mut [f32], pixel: usize) {
        simd::dispatch(Maxima { pool: *self, from: from.from(image, 0), from_pixel: from.pixel, to, pixel });
    }

    /// The gradient of an image from that of its maxima, pixel after pixel: the first largest value of a window gets all.
    pub(super) fn back_maxima(&self, from: Images, image: usize, gradient: &[f32], to: &mut [f32]) {
        to.fill(0.0);
        simd::dispatch(BackMaxima { pool: *self, from: from.from(image, 0), from_pixel: from.pixel, gradient, to });
    }
}

struct Maxima<'a> {
    pool: Pool,
    from: &'a [f32],
    from_pixel: usize,
    to: &'a mut [f32],
    pixel: usize,
}

impl Maxima<'_> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize, here: [usize; 2]) {
        let mut most = [f32::NEG_INFINITY; N];
        for ky in 0..self.pool.kernel[0] {
            for kx in 0..self.pool.kernel[1] {
                let x = lanes::<N>(self.from, self.pool.at(here, [ky, kx]) * self.from_pixel + at);
                for j in 0..N {
                    // What is not a number stays visible.
                    most[j] = if most[j] >= x[j] { most[j] } else { x[j] };
                }
            }
        }
        let to = (here[0] * self.pool.output[1] + here[1]) * self.pixel + at;
        self.to[to..to + N].copy_from_slice(&most);
    }
}

impl Kernel for Maxima<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let Pool { output, channels, .. } = self.pool;
        for y in 0..output[0] {
            for x in 0..output[1] {
                in_blocks!(channels, self.lane([y, x]));
            }
        }
    }
}

struct BackMaxima<'a> {
    pool: Pool,
    from: &'a [f32],
    from_pixel: usize,
    gradient: &'a [f32],
    to: &'a mut [f32],
}

impl BackMaxima<'_> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize, here: [usize; 2]) {
        let Pool { kernel, output, channels, .. } = self.pool;
        let mut most = [f32::NEG_INFINITY; N];
        let mut place = [0u32; N];
        for tap in 0..kernel[0] * kernel[1] {
            let pixel = self.pool.at(here, [tap / kernel[1], tap % kernel[1]]);
            let x = lanes::<N>(self.from, pixel * self.from_pixel + at);
            for j in 0..N {
                let stays = most[j] >= x[j];
                most[j] = if stays { most[j] } else { x[j] };
                place[j] = if stays { place[j] } else { tap as u32 };
            }
        }
        let d = lanes::<N>(self.gradient, (here[0] * output[1] + here[1]) * channels + at);
        for tap in 0..kernel[0] * kernel[1] {
            let to = self.pool.at(here, [tap / kernel[1], tap % kernel[1]]) * channels + at;
            let to = &mut self.to[to..to + N];
            for j in 0..N {
                to[j] += if place[j] == tap as u32 { d[j] } else { 0.0 };
            }
        }
    }
}

impl Kernel for BackMaxima<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let Pool { output, channels, .. } = self.pool;
        for y in 0..output[0] {
            for x in 0..output[1] {
                in_blocks!(channels, self.lane([y, x]));
            }
        }
    }
}
