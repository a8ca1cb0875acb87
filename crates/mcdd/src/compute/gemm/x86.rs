//! The 6 x 16 tile with AVX2 and FMA.

use super::{Acc, Line, MR};
use std::arch::x86_64::{
    __m256, _CMP_GT_OQ, _mm256_and_ps, _mm256_broadcast_ss, _mm256_cmp_ps, _mm256_fmadd_ps, _mm256_load_ps,
    _mm256_loadu_ps, _mm256_setzero_ps, _mm256_store_ps, _mm256_storeu_ps,
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

/// Computes a whole tile and writes it to C, whose rows are `n` apart. If `WHERE`, elements become 0 where `z`, which
/// has the shape of C, is not positive.
///
/// # Safety
/// As for [`tile`]; `c`, and `z` if `WHERE`, must contain the whole tile.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn whole_tile<const WHERE: bool>(
    a: [*const f32; MR],
    stride: usize,
    b: &[Line],
    c: &mut [f32],
    n: usize,
    z: &[f32],
) {
    let zero = _mm256_setzero_ps();
    let mut sums = [[zero; 2]; MR];
    // SAFETY: as the caller guarantees.
    unsafe {
        add(a, stride, b, &mut sums);
        for (r, halves) in sums.into_iter().enumerate() {
            for (half, mut v) in halves.into_iter().enumerate() {
                let at = r * n + 8 * half;
                if WHERE {
                    v = _mm256_and_ps(v, _mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_loadu_ps(z.as_ptr().add(at)), zero));
                }
                _mm256_storeu_ps(c.as_mut_ptr().add(at), v);
            }
        }
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
