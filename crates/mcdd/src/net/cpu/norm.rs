//! Batch normalization with the ReLU that follows it: forward and backward over the rows of one pass.
//!
//! Features are processed in blocks whose sums stay in registers over all rows; each feature's sum is one chain in the order
//! of the rows, independent of the block.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use crate::compute::simd::{self, Kernel, Simd};
use crate::net::graph::inverse_deviation;

/// The weight of a batch in the running mean and variance, as in PyTorch.
pub(super) const MOMENTUM: f32 = 0.1;

/// What the backward pass needs from the forward pass, for each feature.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    mean: Vec<f32>,
    variance: Vec<f32>,
    /// One over the deviation.
    inverse: Vec<f32>,
    rows: usize,
}

/// The trained parameters of a layer.
#[derive(Clone, Copy)]
pub(super) struct Affine<'a> {
    /// One value for each feature.
    pub weight: &'a [f32],
    /// One value for each feature.
    pub bias: &'a [f32],
}

impl Batch {
    /// `out = weight (x - mean) / deviation + bias`, with negative values set to 0 if `relu`; `x` and `out` are stored row by
    /// row.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub(super) fn forward(&mut self, x: &[f32], affine: Affine, relu: bool, out: &mut [f32]) {
        let width = affine.weight.len();
        assert!(affine.bias.len() == width && x.len() == out.len() && x.len().is_multiple_of(width));
        self.rows = x.len() / width;
        for buffer in [&mut self.mean, &mut self.variance, &mut self.inverse] {
            buffer.clear();
            buffer.resize(width, 0.0);
        }
        simd::dispatch(Forward { batch: self, x, affine, relu, out });
    }

    /// Turns the gradient of the output (before the ReLU) in `dy` into that of `x`, and writes those of weight and bias.
    ///
    /// # Panics
    /// If the lengths do not fit those of the forward pass.
    pub(super) fn backward(&self, x: &[f32], weight: &[f32], dy: &mut [f32], d_weight: &mut [f32], d_bias: &mut [f32]) {
        let width = self.mean.len();
        assert!(x.len() == self.rows * width && dy.len() == x.len());
        assert!([weight.len(), d_weight.len(), d_bias.len()] == [width; 3]);
        simd::dispatch(Backward { batch: self, x, weight, dy, d_weight, d_bias });
    }

    /// The means and the unbiased variances of the last batch, for the running statistics.
    pub(super) fn statistics(&self, mean: &mut [f32], variance: &mut [f32]) {
        mean.copy_from_slice(&self.mean);
        let unbiased = self.rows as f32 / self.rows.saturating_sub(1).max(1) as f32;
        variance.iter_mut().zip(&self.variance).for_each(|(to, v)| *to = v * unbiased);
    }
}

/// Some features of each row of `x`, which has `width`.
#[inline(always)]
fn columns<const N: usize>(x: &[f32], width: usize, at: usize) -> impl Iterator<Item = &[f32; N]> {
    x.chunks_exact(width).filter_map(move |row| row.get(at..).and_then(<[f32]>::first_chunk))
}

#[inline(always)]
fn columns_mut<const N: usize>(x: &mut [f32], width: usize, at: usize) -> impl Iterator<Item = &mut [f32; N]> {
    x.chunks_exact_mut(width).filter_map(move |row| row.get_mut(at..).and_then(<[f32]>::first_chunk_mut))
}

/// Calls `block` for all features: in blocks of 32, then of 8, then one by one. A macro, because a closure would not be
/// compiled with its caller's instruction set.
macro_rules! in_blocks {
    ($kernel:ident) => {
        let width = $kernel.batch.mean.len();
        let mut at = 0;
        while at + 32 <= width {
            $kernel.block::<32>(at);
            at += 32;
        }
        while at + 8 <= width {
            $kernel.block::<8>(at);
            at += 8;
        }
        while at < width {
            $kernel.block::<1>(at);
            at += 1;
        }
    };
}

struct Forward<'a> {
    batch: &'a mut Batch,
    x: &'a [f32],
    affine: Affine<'a>,
    relu: bool,
    out: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        in_blocks!(self);
    }
}

impl Forward<'_> {
    /// The features `at..at + N`.
    #[inline(always)]
    fn block<const N: usize>(&mut self, at: usize) {
        let Forward { batch: Batch { mean, variance, inverse, rows }, x, affine, relu, out } = self;
        let width = mean.len();
        let factor = 1.0 / *rows as f32;
        let mut m = [0.0f32; N];
        for x in columns::<N>(x, width, at) {
            for j in 0..N {
                m[j] = x[j].mul_add(factor, m[j]);
            }
        }
        let mut v = [0.0f32; N];
        for x in columns::<N>(x, width, at) {
            for j in 0..N {
                let d = x[j] - m[j];
                v[j] = d.mul_add(d, v[j]);
            }
        }
        let (mut scale, mut bias) = ([0.0f32; N], [0.0f32; N]);
        for j in 0..N {
            v[j] *= factor;
            inverse[at + j] = inverse_deviation(v[j]) as f32;
            scale[j] = affine.weight[at + j] * inverse[at + j];
            bias[j] = affine.bias[at + j];
        }
        mean[at..at + N].copy_from_slice(&m);
        variance[at..at + N].copy_from_slice(&v);
        let floor = if *relu { 0.0 } else { f32::NEG_INFINITY };
        for (x, out) in columns::<N>(x, width, at).zip(columns_mut::<N>(out, width, at)) {
            for j in 0..N {
                let y = scale[j].mul_add(x[j] - m[j], bias[j]);
                out[j] = if y <= floor { floor } else { y };
            }
        }
    }
}

struct Backward<'a> {
    batch: &'a Batch,
    x: &'a [f32],
    weight: &'a [f32],
    dy: &'a mut [f32],
    d_weight: &'a mut [f32],
    d_bias: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        in_blocks!(self);
    }
}

impl Backward<'_> {
    /// The features `at..at + N`.
    #[inline(always)]
    fn block<const N: usize>(&mut self, at: usize) {
        let Backward { batch: Batch { mean, inverse, rows, .. }, x, weight, dy, d_weight, d_bias } = self;
        let width = mean.len();
        let factor = 1.0 / *rows as f32;
        let mut m = [0.0f32; N];
        m.copy_from_slice(&mean[at..at + N]);
        let (mut dw, mut db) = ([0.0f32; N], [0.0f32; N]);
        for (x, d) in columns::<N>(x, width, at).zip(columns::<N>(dy, width, at)) {
            for j in 0..N {
                dw[j] = d[j].mul_add(x[j] - m[j], dw[j]);
                db[j] += d[j];
            }
        }
        d_bias[at..at + N].copy_from_slice(&db);
        // dx = weight / deviation (dy - mean dy - normalized x * mean (dy * normalized x))
        let mut scale = [0.0f32; N];
        for j in 0..N {
            let i = inverse[at + j];
            scale[j] = weight[at + j] * i;
            dw[j] *= i;
            d_weight[at + j] = dw[j];
            dw[j] *= factor * i;
            db[j] *= factor;
        }
        for (x, d) in columns::<N>(x, width, at).zip(columns_mut::<N>(dy, width, at)) {
            for j in 0..N {
                d[j] = scale[j] * (d[j] - dw[j].mul_add(x[j] - m[j], db[j]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Level;
    use crate::seed::Stream;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_form_gives_the_same_bits(rows in 1usize..20, width in 1usize..70, relu in any::<bool>(), seed in 0u64..99) {
            let mut s = Stream::new(seed, "norm");
            let mut random = |n: usize| (0..n).map(|_| s.normal() as f32).collect::<Vec<f32>>();
            let (x, dy, weight, bias) = (random(rows * width), random(rows * width), random(width), random(width));
            let affine = Affine { weight: &weight, bias: &bias };
            let mut best = Batch::default();
            let mut out = vec![f32::NAN; x.len()];
            best.forward(&x, affine, relu, &mut out);
            let zeros = || vec![0.0; width];
            let mut plain = Batch { mean: zeros(), variance: zeros(), inverse: zeros(), rows };
            let mut again = vec![f32::NAN; x.len()];
            let forward = Forward { batch: &mut plain, x: &x, affine, relu, out: &mut again };
            // SAFETY: every machine has the portable level.
            unsafe { simd::dispatch_at(Level::Portable, forward) };
            prop_assert_eq!(&out, &again);
            prop_assert_eq!((&best.mean, &best.variance, &best.inverse), (&plain.mean, &plain.variance, &plain.inverse));

            let (mut d, mut dw, mut db) = (dy.clone(), vec![f32::NAN; width], vec![f32::NAN; width]);
            best.backward(&x, &weight, &mut d, &mut dw, &mut db);
            let (mut d2, mut dw2, mut db2) = (dy, vec![f32::NAN; width], vec![f32::NAN; width]);
            let backward =
                Backward { batch: &plain, x: &x, weight: &weight, dy: &mut d2, d_weight: &mut dw2, d_bias: &mut db2 };
            // SAFETY: as above.
            unsafe { simd::dispatch_at(Level::Portable, backward) };
            prop_assert_eq!((d, dw, db), (d2, dw2, db2));
        }
    }
}
