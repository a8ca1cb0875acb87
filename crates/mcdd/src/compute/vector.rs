//! Sums over differences of vectors, where distance heads spend most of their time.
//!
//! Each function has a portable version, which defines its bits, and a version for AVX2 with the same bits.

use super::simd;

/// The number of partial sums of a squared distance: element `i` is added to sum `i % 32`.
const LANES: usize = 32;

/// `sum (a - b)^2`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(crate) fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    assert!(a.len() == b.len());
    #[cfg(target_arch = "x86_64")]
    if simd::has_avx2() {
        // SAFETY: the machine has these instructions, and the lengths are equal.
        return unsafe { x86::squared_distance(a, b) };
    }
    squared_distance_portable(a, b)
}

fn squared_distance_portable(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
        let d = a - b;
        lanes[i % LANES] = d.mul_add(d, lanes[i % LANES]);
    }
    let mut eight = [0.0f32; 8];
    for (i, e) in eight.iter_mut().enumerate() {
        *e = (lanes[i] + lanes[i + 8]) + (lanes[i + 16] + lanes[i + 24]);
    }
    tree(eight)
}

/// The sum of eight numbers in a fixed order.
#[inline(always)]
fn tree(v: [f32; 8]) -> f32 {
    ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
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

impl simd::Kernel for AddScaled<'_> {
    #[inline(always)]
    fn run(self) {
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

impl simd::Kernel for Dots<'_> {
    #[inline(always)]
    fn run(self) {
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
    fn sum(&self, out: &mut [f32]) {
        let mut from = 0;
        #[cfg(target_arch = "x86_64")]
        if simd::has_avx2() {
            // SAFETY: the machine has these instructions, and `to_many` and `from_many` have checked the lengths.
            from = unsafe { x86::sum(self, out) };
        }
        for (j, o) in out.iter_mut().enumerate().skip(from) {
            let mut total = 0.0f32;
            for i in 0..self.count {
                let w = self.weights[i * self.weight_stride][0];
                if w != 0.0 {
                    total = w.mul_add(self.a[i * self.a_stride + j] - self.b[i * self.b_stride + j], total);
                }
            }
            *o = total;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LANES, Pairs, tree};
    use std::arch::x86_64::{
        __m256, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
        _mm256_sub_ps,
    };

    /// # Safety
    /// The machine must have AVX2 and FMA; `a` and `b` must have the same length.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub(super) unsafe fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
        let whole = a.len() / LANES * LANES;
        let mut sums = [_mm256_setzero_ps(); 4];
        // SAFETY: `at + 32` is within both vectors, and within the padded tails.
        unsafe {
            let mut add = |a: *const f32, b: *const f32| {
                for (v, sum) in sums.iter_mut().enumerate() {
                    let d = _mm256_sub_ps(_mm256_loadu_ps(a.add(8 * v)), _mm256_loadu_ps(b.add(8 * v)));
                    *sum = _mm256_fmadd_ps(d, d, *sum);
                }
            };
            for at in (0..whole).step_by(LANES) {
                add(a.as_ptr().add(at), b.as_ptr().add(at));
            }
            if whole < a.len() {
                // The rest, padded with zeros.
                let (mut ta, mut tb) = ([0.0f32; LANES], [0.0f32; LANES]);
                ta[..a.len() - whole].copy_from_slice(&a[whole..]);
                tb[..a.len() - whole].copy_from_slice(&b[whole..]);
                add(ta.as_ptr(), tb.as_ptr());
            }
            let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            let mut eight = [0.0f32; 8];
            _mm256_storeu_ps(eight.as_mut_ptr(), sum);
            tree(eight)
        }
    }

    /// Computes the sums of all whole groups of 8 elements; returns the number of these elements.
    ///
    /// # Safety
    /// The machine must have AVX2 and FMA; `a`, `b` and `weights` must be as long as the strides and the count require.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub(super) unsafe fn sum(p: &Pairs, out: &mut [f32]) -> usize {
        let mut at = 0;
        // SAFETY: `at + width` is within every vector, as the caller guarantees.
        unsafe {
            while at + 32 <= out.len() {
                block::<4>(p, out, at);
                at += 32;
            }
            while at + 8 <= out.len() {
                block::<1>(p, out, at);
                at += 8;
            }
        }
        at
    }

    /// Computes `8 N` elements, whose sums stay in registers over all pairs.
    ///
    /// # Safety
    /// As for [`sum`]; `at + 8 N` must be within `out`.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn block<const N: usize>(p: &Pairs, out: &mut [f32], at: usize) {
        // SAFETY: as the caller guarantees.
        unsafe {
            let mut sums: [__m256; N] = [_mm256_setzero_ps(); N];
            for i in 0..p.count {
                let w = p.weights.get_unchecked(i * p.weight_stride)[0];
                if w != 0.0 {
                    let w = _mm256_set1_ps(w);
                    let a = p.a.as_ptr().add(i * p.a_stride + at);
                    let b = p.b.as_ptr().add(i * p.b_stride + at);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let d = _mm256_sub_ps(_mm256_loadu_ps(a.add(8 * v)), _mm256_loadu_ps(b.add(8 * v)));
                        *sum = _mm256_fmadd_ps(w, d, *sum);
                    }
                }
            }
            for (v, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_ps(out.as_mut_ptr().add(at + 8 * v), sum);
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
            prop_assert_eq!(squared_distance(&one, &many[..n]), squared_distance_portable(&one, &many[..n]));
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
