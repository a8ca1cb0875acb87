//! Sums over differences of vectors, where distance heads spend most of their time.

use super::simd::{self, Kernel, Simd};

/// The number of partial sums of a squared distance: element `i` is added to sum `i % 32`.
const LANES: usize = 32;

/// `sum (a - b)^2`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(crate) fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    assert!(a.len() == b.len());
    let mut sum = 0.0;
    simd::dispatch(SquaredDistance { a, b, sum: &mut sum });
    sum
}

struct SquaredDistance<'a> {
    a: &'a [f32],
    b: &'a [f32],
    sum: &'a mut f32,
}

impl Kernel for SquaredDistance<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (a, rest_a) = self.a.as_chunks::<LANES>();
        let (b, rest_b) = self.b.as_chunks::<LANES>();
        let mut sums = [simd.splat(0.0); 2];
        for (a, b) in a.iter().zip(b) {
            sums = add_squares(simd, a, b, sums);
        }
        if !rest_a.is_empty() {
            // The rest, padded with zeros.
            let (mut a, mut b) = ([0.0f32; LANES], [0.0f32; LANES]);
            a[..rest_a.len()].copy_from_slice(rest_a);
            b[..rest_b.len()].copy_from_slice(rest_b);
            sums = add_squares(simd, &a, &b, sums);
        }
        *self.sum = simd.total(sums);
    }
}

#[inline(always)]
fn add_squares<S: Simd>(simd: S, a: &[f32; LANES], b: &[f32; LANES], mut sums: [S::Sixteen; 2]) -> [S::Sixteen; 2] {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: both have 32 numbers.
        let d = unsafe { simd.sub(simd.load(a.as_ptr().add(16 * i)), simd.load(b.as_ptr().add(16 * i))) };
        *sum = simd.mul_add(d, d, *sum);
    }
    sums
}

/// `out = sum_k w_k (a - b_k)` for one vector `a` and several contiguous vectors in `b`. `w_k` is the first number of each
/// pair; vectors of weight 0 are skipped.
///
/// # Panics
/// If the lengths do not match.
#[inline]
pub(crate) fn to_many(out: &mut [f32], a: &[f32], b: &[f32], weights: &[[f32; 2]]) {
    let n = out.len();
    assert!(a.len() == n && b.len() == n * weights.len());
    let pairs = Pairs { a, a_stride: 0, b, b_stride: n, weights, weight_stride: 1, count: weights.len() };
    pairs.sum(out);
}

/// `out = sum_i w_i (a_i - b)` for several contiguous vectors in `a` and one vector `b`. `w_i` is the first number of every
/// `stride`-th pair, starting at `first`; vectors of weight 0 are skipped.
///
/// # Panics
/// If the lengths do not match.
#[inline]
pub(crate) fn from_many(out: &mut [f32], a: &[f32], b: &[f32], weights: &[[f32; 2]], first: usize, stride: usize) {
    let n = out.len();
    let count = a.len().checked_div(n).unwrap_or(0);
    assert!(b.len() == n && a.len() == n * count && first < stride && weights.len() == count * stride);
    let weights = weights.get(first..).unwrap_or(&[]);
    let pairs = Pairs { a, a_stride: n, b, b_stride: 0, weights, weight_stride: stride, count };
    pairs.sum(out);
}

/// `out += factor v`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(crate) fn add_scaled(out: &mut [f32], factor: f32, v: &[f32]) {
    assert!(out.len() == v.len());
    simd::dispatch(AddScaled { out, factor, v });
}

struct AddScaled<'a> {
    out: &'a mut [f32],
    factor: f32,
    v: &'a [f32],
}

impl Kernel for AddScaled<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.out.iter_mut().zip(self.v).for_each(|(o, &v)| *o = self.factor.mul_add(v, *o));
    }
}

/// `[a x, b x, b y]`, the scalar products of two vectors `a` and `b` with `x` and `y`, each over the shorter one's length:
/// eight partial sums in f64, element `i` in sum `i % 8`.
pub(crate) fn dots_f64(a: &[f32], b: &[f32], x: &[f32], y: &[f32]) -> [f64; 3] {
    let mut sums = [[0.0f64; 8]; 3];
    simd::dispatch(Dots { a, b, x, y, sums: &mut sums });
    sums.map(|s| s.iter().sum())
}

struct Dots<'a> {
    a: &'a [f32],
    b: &'a [f32],
    x: &'a [f32],
    y: &'a [f32],
    sums: &'a mut [[f64; 8]; 3],
}

impl Kernel for Dots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Dots { a, b, x, y, sums } = self;
        let whole = a.len().min(b.len()).min(x.len()).min(y.len()) / 8;
        let chunks = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).zip(x.as_chunks::<8>().0);
        let [mut ax, mut bx, mut by] = *sums;
        for (((a, b), x), y) in chunks.zip(y.as_chunks::<8>().0) {
            for i in 0..8 {
                let [a, b, x, y] = [a[i], b[i], x[i], y[i]].map(f64::from);
                ax[i] += a * x;
                bx[i] += b * x;
                by[i] += b * y;
            }
        }
        *sums = [ax, bx, by];
        for (sums, [v, w]) in sums.iter_mut().zip([[a, x], [b, x], [b, y]]) {
            for (i, (v, w)) in v.iter().zip(w).enumerate().skip(8 * whole) {
                sums[i % 8] += f64::from(*v) * f64::from(*w);
            }
        }
    }
}

/// Pairs of vectors `a + i a_stride` and `b + i b_stride`, each with a weight.
struct Pairs<'a> {
    a: &'a [f32],
    a_stride: usize,
    b: &'a [f32],
    b_stride: usize,
    weights: &'a [[f32; 2]],
    weight_stride: usize,
    count: usize,
}

impl Pairs<'_> {
    #[inline]
    fn sum(self, out: &mut [f32]) {
        simd::dispatch(SumOfPairs { pairs: self, out });
    }

    /// Computes `16 N` elements, whose sums stay in registers over all pairs.
    ///
    /// # Safety
    /// `at + 16 N` must be within `out`, and `a`, `b` and `weights` as long as the strides and the count require.
    #[inline(always)]
    unsafe fn block<S: Simd, const N: usize>(&self, simd: S, out: &mut [f32], at: usize) {
        let mut sums = [simd.splat(0.0); N];
        // SAFETY: the caller's promises.
        unsafe {
            for i in 0..self.count {
                let w = self.weights.get_unchecked(i * self.weight_stride)[0];
                if w != 0.0 {
                    let w = simd.splat(w);
                    let a = self.a.as_ptr().add(i * self.a_stride + at);
                    let b = self.b.as_ptr().add(i * self.b_stride + at);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let d = simd.sub(simd.load(a.add(16 * v)), simd.load(b.add(16 * v)));
                        *sum = simd.mul_add(w, d, *sum);
                    }
                }
            }
            for (v, sum) in sums.into_iter().enumerate() {
                simd.store(sum, out.as_mut_ptr().add(at + 16 * v));
            }
        }
    }
}

struct SumOfPairs<'a, 'b> {
    pairs: Pairs<'a>,
    out: &'b mut [f32],
}

impl Kernel for SumOfPairs<'_, '_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let SumOfPairs { pairs, out } = self;
        let mut at = 0;
        // SAFETY: `to_many` and `from_many` have checked the lengths; `at` plus the width is within every vector.
        unsafe {
            while at + 32 <= out.len() {
                pairs.block::<S, 2>(simd, out, at);
                at += 32;
            }
            if at + 16 <= out.len() {
                pairs.block::<S, 1>(simd, out, at);
                at += 16;
            }
        }
        let rest = &mut out[at..];
        if rest.is_empty() {
            return;
        }
        rest.fill(0.0);
        for i in 0..pairs.count {
            let w = pairs.weights[i * pairs.weight_stride][0];
            if w != 0.0 {
                let a = &pairs.a[i * pairs.a_stride + at..][..rest.len()];
                let b = &pairs.b[i * pairs.b_stride + at..][..rest.len()];
                for ((o, a), b) in rest.iter_mut().zip(a).zip(b) {
                    *o = w.mul_add(a - b, *o);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_versions_give_the_same_bits(n in 1usize..150, count in 1usize..7, stride in 1usize..4, seed in 0u64..99) {
            let mut s = Stream::new(seed, "vector");
            let mut random = |n: usize| (0..n).map(|_| s.normal() as f32).collect::<Vec<f32>>();
            let (one, many) = (random(n), random(n * count));
            let mut lanes = [0.0f32; LANES];
            for (i, (a, b)) in one.iter().zip(&many).enumerate() {
                lanes[i % LANES] = (a - b).mul_add(a - b, lanes[i % LANES]);
            }
            let eight = std::array::from_fn(|i| (lanes[i] + lanes[i + 8]) + (lanes[i + 16] + lanes[i + 24]));
            let tree = |v: [f32; 8]| ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
            prop_assert_eq!(squared_distance(&one, &many[..n]), tree(eight));
            let weights: Vec<[f32; 2]> =
                random(count * stride).into_iter().map(|w| [if w < -0.5 { 0.0 } else { w }, 1.0]).collect();
            let fold = |j: usize, w: &dyn Fn(usize) -> f32, flip: bool| {
                (0..count).fold(0.0f32, |sum, i| {
                    let d = if flip { many[i * n + j] - one[j] } else { one[j] - many[i * n + j] };
                    if w(i) == 0.0 { sum } else { w(i).mul_add(d, sum) }
                })
            };
            let mut out = vec![f32::NAN; n];
            to_many(&mut out, &one, &many, &weights[..count]);
            for (j, &o) in out.iter().enumerate() {
                prop_assert_eq!(o, fold(j, &|i| weights[i][0], false));
            }
            let longer = [&one[..], &[0.3]].concat();
            let dot = |a: &[f32], b: &[f32]| {
                let mut sums = [0.0f64; 8];
                for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
                    sums[i % 8] += f64::from(a) * f64::from(b);
                }
                sums.iter().sum::<f64>()
            };
            let (a, b) = (&many[..n], &longer[..]);
            prop_assert_eq!(dots_f64(a, b, &one, &longer), [dot(a, &one), dot(b, &one), dot(b, &longer)]);
            let mut sum = one.clone();
            add_scaled(&mut sum, 0.3, &many[..n]);
            for ((&s, &a), &b) in sum.iter().zip(&one).zip(&many) {
                prop_assert_eq!(s, 0.3f32.mul_add(b, a));
            }
            for first in 0..stride {
                from_many(&mut out, &many, &one, &weights, first, stride);
                for (j, &o) in out.iter().enumerate() {
                    prop_assert_eq!(o, fold(j, &|i| weights[i * stride + first][0], true));
                }
            }
        }
    }
}
