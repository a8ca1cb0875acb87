//! The 6 x 16 tile with AVX2 and FMA.

use super::{Acc, Line, MR, Then};
use std::arch::x86_64::{
    __m256, _CMP_GT_OQ, _CMP_NLE_UQ, _mm256_add_ps, _mm256_and_ps, _mm256_broadcast_ss, _mm256_cmp_ps, _mm256_fmadd_ps,
    _mm256_load_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_store_ps, _mm256_storeu_ps,
};

/// Adds to a 6 x 16 tile; `a[r] + p * stride` is element (r, p) of A.
///
/// # Safety
/// The machine must have AVX2 and FMA; every `a[r]` must be readable at `p * stride` for each `p < b.len()`.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn tile(a: [*const f32; MR], stride: usize, b: &[Line], acc: &mut Acc) {
    // SAFETY: `Line` is aligned to 64 bytes and 16 floats long; the caller guarantees the reads of A.
    unsafe {
        let mut c: [[__m256; 2]; MR] = [[_mm256_setzero_ps(); 2]; MR];
        for (c, line) in c.iter_mut().zip(acc.iter()) {
            let start = line.0.as_ptr();
            *c = [_mm256_load_ps(start), _mm256_load_ps(start.add(8))];
        }
        add(a, stride, b, &mut c);
        for (c, line) in c.iter().zip(acc.iter_mut()) {
            let start = line.0.as_mut_ptr();
            _mm256_store_ps(start, c[0]);
            _mm256_store_ps(start.add(8), c[1]);
        }
    }
}

/// Computes a whole tile, added to C if `load`, and writes it to C, whose rows are `n` apart, after `then`, whose bias or
/// activation begins at the tile.
///
/// # Safety
/// As for [`tile`]; `c`, and the activation, must contain the whole tile, and a bias 16 numbers.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn whole_tile(
    a: [*const f32; MR],
    stride: usize,
    b: &[Line],
    c: &mut [f32],
    n: usize,
    load: bool,
    then: Then,
) {
    let zero = _mm256_setzero_ps();
    let mut sums = [[zero; 2]; MR];
    // SAFETY: as the caller guarantees.
    unsafe {
        if load {
            for (r, halves) in sums.iter_mut().enumerate() {
                let from = c.as_ptr().add(r * n);
                *halves = [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))];
            }
        }
        add(a, stride, b, &mut sums);
        match then {
            Then::Keep => {}
            Then::Bias(bias) => add_bias(&mut sums, bias),
            Then::BiasRelu(bias) => {
                add_bias(&mut sums, bias);
                for v in sums.as_flattened_mut() {
                    // Only what is 0 or less becomes 0: a sum that is not a number stays.
                    *v = _mm256_and_ps(*v, _mm256_cmp_ps::<_CMP_NLE_UQ>(*v, zero));
                }
            }
            Then::Where(z) => {
                for (r, halves) in sums.iter_mut().enumerate() {
                    for (half, v) in halves.iter_mut().enumerate() {
                        let z = _mm256_loadu_ps(z.as_ptr().add(r * n + 8 * half));
                        *v = _mm256_and_ps(*v, _mm256_cmp_ps::<_CMP_GT_OQ>(z, zero));
                    }
                }
            }
        }
        for (r, halves) in sums.into_iter().enumerate() {
            let to = c.as_mut_ptr().add(r * n);
            _mm256_storeu_ps(to, halves[0]);
            _mm256_storeu_ps(to.add(8), halves[1]);
        }
    }
}

/// Adds a bias of 16 numbers to each row.
///
/// # Safety
/// The machine must have AVX2; the bias must have 16 numbers.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn add_bias(sums: &mut [[__m256; 2]; MR], bias: &[f32]) {
    // SAFETY: as the caller guarantees.
    let bias = unsafe { [_mm256_loadu_ps(bias.as_ptr()), _mm256_loadu_ps(bias.as_ptr().add(8))] };
    for halves in sums {
        *halves = [_mm256_add_ps(halves[0], bias[0]), _mm256_add_ps(halves[1], bias[1])];
    }
}

/// `c += a b` in registers.
///
/// # Safety
/// As for [`tile`].
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn add(a: [*const f32; MR], stride: usize, b: &[Line], c: &mut [[__m256; 2]; MR]) {
    // SAFETY: as for `tile`.
    unsafe {
        for (p, line) in b.iter().enumerate() {
            let start = line.0.as_ptr();
            let (b0, b1) = (_mm256_load_ps(start), _mm256_load_ps(start.add(8)));
            for (c, a) in c.iter_mut().zip(a) {
                let x = _mm256_broadcast_ss(&*a.add(p * stride));
                c[0] = _mm256_fmadd_ps(x, b0, c[0]);
                c[1] = _mm256_fmadd_ps(x, b1, c[1]);
            }
        }
    }
}
