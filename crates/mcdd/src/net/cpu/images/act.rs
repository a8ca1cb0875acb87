//! What is applied to a value when it is read: batch normalization, and ReLU or GELU.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::lanes::{PixelShape, in_blocks, lanes};
use crate::compute::gemm::NR;
use crate::compute::simd::{self, Kernel, Simd};

/// The activation function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Bend {
    #[default]
    None,
    Relu,
    Gelu,
}

/// The same as parameters of kernels.
pub(super) const NONE: u8 = 0;
pub(super) const RELU: u8 = 1;
pub(super) const GELU: u8 = 2;

/// `scale x + shift`, if these are not empty, and then the activation function.
#[derive(Clone, Copy, Default)]
pub(super) struct Act<'a> {
    pub scale: &'a [f32],
    pub shift: &'a [f32],
    pub bend: Bend,
}

/// The activation function of each lane.
#[inline(always)]
fn bent<const BEND: u8, const N: usize>(x: [f32; N]) -> [f32; N] {
    let mut y = x;
    match BEND {
        RELU => {
            for j in 0..N {
                y[j] = if x[j] <= 0.0 { 0.0 } else { x[j] };
            }
        }
        GELU => {
            let (below, _) = normal(x);
            for j in 0..N {
                y[j] = x[j] * below[j];
            }
        }
        _ => {}
    }
    y
}

/// The gradient `d` of the activation function's result as that of its argument `x`.
#[inline(always)]
pub(super) fn slope<const BEND: u8, const N: usize>(mut d: [f32; N], x: [f32; N]) -> [f32; N] {
    match BEND {
        RELU => {
            for j in 0..N {
                d[j] = if x[j] > 0.0 { d[j] } else { 0.0 };
            }
        }
        GELU => {
            let (below, density) = normal(x);
            for j in 0..N {
                d[j] *= x[j].mul_add(density[j], below[j]);
            }
        }
        _ => {}
    }
    d
}

/// Distribution function and density of the standard normal distribution, to about 1e-7. The same operations on every machine,
/// so the same bits.
#[inline(always)]
fn normal<const N: usize>(x: [f32; N]) -> ([f32; N], [f32; N]) {
    // erf(z) = 1 - t (a1 + t (a2 + ...)) exp(-z^2) with t = 1 / (1 + p z) (Abramowitz and Stegun, 7.1.26); here z is
    // |x| / sqrt(2), and the coefficients are halved.
    const P: f32 = 0.3275911 * std::f32::consts::FRAC_1_SQRT_2;
    const A: [f32; 5] = [0.530_702_7, -0.726_576, 0.710_706_9, -0.142_248_37, 0.127_414_8];
    const DENSITY: f32 = 0.398_942_3;
    let mut square = [0.0; N];
    for j in 0..N {
        square[j] = x[j] * x[j] * 0.5;
    }
    let exp = exp_minus(square);
    let (mut below, mut density) = ([0.0; N], [0.0; N]);
    for j in 0..N {
        let t = 1.0 / P.mul_add(x[j].abs(), 1.0);
        let polynomial = A[0].mul_add(t, A[1]).mul_add(t, A[2]).mul_add(t, A[3]).mul_add(t, A[4]) * t;
        let tail = polynomial * exp[j];
        below[j] = if x[j] < 0.0 { tail } else { 1.0 - tail };
        density[j] = DENSITY * exp[j];
    }
    (below, density)
}

/// `exp(-v)` for `v` of 0 or more; as for 87 for larger ones.
#[inline(always)]
fn exp_minus<const N: usize>(v: [f32; N]) -> [f32; N] {
    /// Added to a small number, it leaves the nearest integer in the last bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts, the first of which has few bits.
    const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const TAYLOR: [f32; 7] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    let mut out = [0.0; N];
    for j in 0..N {
        let v = if v[j] < 87.0 { v[j] } else { 87.0 };
        // exp(-v) = 2^n exp(r)
        let rounded = (-v).mul_add(std::f32::consts::LOG2_E, ROUND);
        let n = rounded - ROUND;
        let r = n.mul_add(-LN2[1], n.mul_add(-LN2[0], -v));
        let mut e = TAYLOR[0];
        for c in &TAYLOR[1..] {
            e = e.mul_add(r, *c);
        }
        let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
        out[j] = e.mul_add(r, 1.0) * power;
    }
    out
}

/// `to = act(from)`, or `to += act(from)` if `ADD`, for pixels that follow each other.
struct Activate<'a, const NORM: bool, const BEND: u8, const ADD: bool> {
    act: Act<'a>,
    from: &'a [f32],
    from_pixel: usize,
    to: &'a mut [f32],
    to_pixel: usize,
    pixels: usize,
    channels: usize,
}

/// The channels of one pixel; all slices have the same length.
struct Pixel<'a, const NORM: bool, const BEND: u8, const ADD: bool> {
    scale: &'a [f32],
    shift: &'a [f32],
    from: &'a [f32],
    to: &'a mut [f32],
}

impl<const NORM: bool, const BEND: u8, const ADD: bool> Pixel<'_, NORM, BEND, ADD> {
    #[inline(always)]
    fn lane<const N: usize>(&mut self, at: usize) {
        let mut x = lanes::<N>(self.from, at);
        if NORM {
            let (scale, shift) = (lanes::<N>(self.scale, at), lanes::<N>(self.shift, at));
            for j in 0..N {
                x[j] = scale[j].mul_add(x[j], shift[j]);
            }
        }
        let y = bent::<BEND, N>(x);
        let out = &mut self.to[at..at + N];
        for j in 0..N {
            out[j] = if ADD { out[j] + y[j] } else { y[j] };
        }
    }

    #[inline(always)]
    fn run(mut self, channels: usize) {
        in_blocks!(channels, self.lane());
    }
}

impl<const NORM: bool, const BEND: u8, const ADD: bool> Kernel for Activate<'_, NORM, BEND, ADD> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let c = self.channels;
        let (scale, shift) = if NORM { (&self.act.scale[..c], &self.act.shift[..c]) } else { (&[][..], &[][..]) };
        // A panel's sixteen channels: scale and shift stay in registers.
        if let (NR, Some(scale), Some(shift)) = (c, scale.first_chunk::<NR>(), shift.first_chunk::<NR>()) {
            let (scale, shift) = (*scale, *shift);
            let pairs = self.from.chunks(self.from_pixel).zip(self.to.chunks_mut(self.to_pixel)).take(self.pixels);
            for (from, to) in pairs {
                if let (Some(from), Some(to)) = (from.first_chunk::<NR>(), to.first_chunk_mut::<NR>()) {
                    let mut y = [0.0; NR];
                    for j in 0..NR {
                        y[j] = scale[j].mul_add(from[j], shift[j]);
                    }
                    let y = bent::<BEND, NR>(y);
                    for j in 0..NR {
                        to[j] = if ADD { to[j] + y[j] } else { y[j] };
                    }
                }
            }
            return;
        }
        for p in 0..self.pixels {
            let from = &self.from[p * self.from_pixel..][..c];
            let to = &mut self.to[p * self.to_pixel..][..c];
            Pixel::<NORM, BEND, ADD> { scale, shift, from, to }.run(c);
        }
    }
}

/// `to = act(from)`, or `to += act(from)`.
pub(super) fn activate(
    act: Act,
    from: &[f32],
    from_pixel: usize,
    to: &mut [f32],
    to_pixel: usize,
    shape: PixelShape,
    add: bool,
) {
    let PixelShape { pixels, channels } = shape;
    macro_rules! go {
        ($norm:literal, $bend:ident, $add:literal) => {
            simd::dispatch(Activate::<$norm, $bend, $add> { act, from, from_pixel, to, to_pixel, pixels, channels })
        };
    }
    match (!act.scale.is_empty(), act.bend, add) {
        (false, Bend::None, false) if from_pixel == channels && to_pixel == channels => {
            to[..pixels * channels].copy_from_slice(&from[..pixels * channels]);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_and_its_slope_are_those_of_the_definition() {
        let gelu = |x: f64| 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()));
        for i in -4000..4000 {
            let x = i as f32 / 300.0;
            let wide = f64::from(x);
            let found = f64::from(bent::<GELU, 1>([x])[0]);
            assert!((found - gelu(wide)).abs() <= 3e-7 * wide.abs().max(1.0), "{x}: {found}");
            let slope = f64::from(slope::<GELU, 1>([1.0], [x])[0]);
            let wanted = (gelu(wide + 1e-5) - gelu(wide - 1e-5)) / 2e-5;
            assert!((slope - wanted).abs() <= 1e-6, "{x}: {slope} {wanted}");
        }
        assert_eq!(bent::<GELU, 3>([0.0, 1e30, -1e30]), [0.0, 1e30, -0.0]);
        assert!(bent::<GELU, 1>([f32::NAN])[0].is_nan());
        assert!(bent::<GELU, 1>([-20.0])[0].abs() < 1e-30);
    }
}
