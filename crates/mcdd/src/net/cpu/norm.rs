//! Batch normalisation with the ReLU behind it: forward and back over the rows of one pass.
//!
//! Loops go over rows, and over the features within: sums of all features stay in the first-level cache, and each feature's
//! sum is one chain in the order of the rows.

use super::simd;

/// Added to a variance, as in PyTorch.
const EPS: f64 = 1e-5;
/// The share of a batch in the running mean and variance, as in PyTorch.
pub const MOMENTUM: f32 = 0.1;

/// `1 / sqrt(variance + 1e-5)`.
pub fn inverse_deviation(variance: f32) -> f64 {
    1.0 / libm::sqrt(f64::from(variance).max(0.0) + EPS)
}

/// What the way back needs of the way forward, for each feature.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    mean: Vec<f32>,
    variance: Vec<f32>,
    /// One over the deviation.
    inverse: Vec<f32>,
    rows: usize,
}

/// The trained parameters of a layer.
#[derive(Clone, Copy)]
pub struct Affine<'a> {
    /// By features.
    pub weight: &'a [f32],
    /// By features.
    pub bias: &'a [f32],
}

impl Batch {
    /// `out = weight (x - mean) / deviation + bias`, negatives becoming 0 if `relu`; `x` and `out` are by rows.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn forward(&mut self, x: &[f32], affine: Affine, relu: bool, out: &mut [f32]) {
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
    /// If the lengths do not fit those of the way forward.
    pub fn backward(&self, x: &[f32], weight: &[f32], dy: &mut [f32], d_weight: &mut [f32], d_bias: &mut [f32]) {
        let width = self.mean.len();
        assert!(x.len() == self.rows * width && dy.len() == x.len());
        assert!([weight.len(), d_weight.len(), d_bias.len()] == [width; 3]);
        simd::dispatch(Backward { batch: self, x, weight, dy, d_weight, d_bias });
    }

    /// The means of the last batch, and its variances as estimates for all rows, which the running ones follow.
    pub fn statistics(&self, mean: &mut [f32], variance: &mut [f32]) {
        mean.copy_from_slice(&self.mean);
        let unbiased = self.rows as f32 / self.rows.saturating_sub(1).max(1) as f32;
        variance.iter_mut().zip(&self.variance).for_each(|(to, v)| *to = v * unbiased);
    }
}

struct Forward<'a> {
    batch: &'a mut Batch,
    x: &'a [f32],
    affine: Affine<'a>,
    relu: bool,
    out: &'a mut [f32],
}

impl simd::Kernel for Forward<'_> {
    #[inline(always)]
    fn run(self) {
        let Forward { batch: Batch { mean, variance, inverse, rows }, x, affine, relu, out } = self;
        let width = mean.len();
        let share = 1.0 / *rows as f32;
        for x in x.chunks_exact(width) {
            mean.iter_mut().zip(x).for_each(|(m, &x)| *m += x);
        }
        mean.iter_mut().for_each(|m| *m *= share);
        for x in x.chunks_exact(width) {
            for ((v, &x), &m) in variance.iter_mut().zip(x).zip(&*mean) {
                let d = x - m;
                *v = d.mul_add(d, *v);
            }
        }
        for (v, i) in variance.iter_mut().zip(&mut *inverse) {
            *v *= share;
            *i = inverse_deviation(*v) as f32;
        }
        let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
        for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            let features = affine.weight.iter().zip(affine.bias).zip(mean.iter().zip(&*inverse));
            for ((o, &x), ((&w, &b), (&m, &i))) in out.iter_mut().zip(x).zip(features) {
                let y = (w * i).mul_add(x - m, b);
                *o = if y <= floor { floor } else { y };
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

impl simd::Kernel for Backward<'_> {
    #[inline(always)]
    fn run(self) {
        let Backward { batch: Batch { mean, inverse, rows, .. }, x, weight, dy, d_weight, d_bias } = self;
        let width = mean.len();
        d_weight.fill(0.0);
        d_bias.fill(0.0);
        for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
            let sums = d_weight.iter_mut().zip(&mut *d_bias).zip(mean);
            for (((dw, db), &m), (&x, &d)) in sums.zip(x.iter().zip(dy)) {
                *dw = d.mul_add(x - m, *dw);
                *db += d;
            }
        }
        d_weight.iter_mut().zip(inverse).for_each(|(dw, i)| *dw *= i);
        let share = 1.0 / *rows as f32;
        for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact_mut(width)) {
            let features = mean.iter().zip(inverse).zip(weight);
            let sums = d_weight.iter().zip(&*d_bias);
            for (((d, &x), ((&m, &i), &w)), (&dw, &db)) in dy.iter_mut().zip(x).zip(features).zip(sums) {
                let along = (x - m) * i;
                *d = w * i * (*d - share * along.mul_add(dw, db));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::cpu::simd::Kernel;
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
            Forward { batch: &mut plain, x: &x, affine, relu, out: &mut again }.run();
            prop_assert_eq!(&out, &again);
            prop_assert_eq!((&best.mean, &best.variance, &best.inverse), (&plain.mean, &plain.variance, &plain.inverse));

            let (mut d, mut dw, mut db) = (dy.clone(), vec![f32::NAN; width], vec![f32::NAN; width]);
            best.backward(&x, &weight, &mut d, &mut dw, &mut db);
            let (mut d2, mut dw2, mut db2) = (dy, vec![f32::NAN; width], vec![f32::NAN; width]);
            Backward { batch: &plain, x: &x, weight: &weight, dy: &mut d2, d_weight: &mut dw2, d_bias: &mut db2 }.run();
            prop_assert_eq!((d, dw, db), (d2, dw2, db2));
        }
    }
}
