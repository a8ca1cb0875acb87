//! The levels of x86. Values of these types are made by [`super::dispatch_at`] only, in functions with the level's features.

// Every intrinsic needs a feature that the value proves.
#![allow(clippy::inline_always)]

use super::Simd;
use std::arch::x86_64::*;

/// The sum of eight numbers in the order of [`Simd::total`].
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn eight(v: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}

/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub(super) struct Avx2(pub(super) ());

impl Simd for Avx2 {
    type Sixteen = [__m256; 2];
    /// The first eight numbers of both, and the last four of both.
    type Twelves = [__m256; 3];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> [__m256; 2] {
        // SAFETY: the machine has the level; so below.
        [unsafe { _mm256_set1_ps(x) }; 2]
    }
    #[inline(always)]
    fn add(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn sub(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }
    #[inline(always)]
    fn mul_add(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
    #[inline(always)]
    fn unless_not_positive(self, v: [__m256; 2], z: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe {
            let zero = _mm256_setzero_ps();
            let [first, second] = [_mm256_cmp_ps::<_CMP_NLE_UQ>(z[0], zero), _mm256_cmp_ps::<_CMP_NLE_UQ>(z[1], zero)];
            [_mm256_and_ps(v[0], first), _mm256_and_ps(v[1], second)]
        }
    }
    #[inline(always)]
    fn where_positive(self, v: [__m256; 2], z: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe {
            let zero = _mm256_setzero_ps();
            let [first, second] = [_mm256_cmp_ps::<_CMP_GT_OQ>(z[0], zero), _mm256_cmp_ps::<_CMP_GT_OQ>(z[1], zero)];
            [_mm256_and_ps(v[0], first), _mm256_and_ps(v[1], second)]
        }
    }
    #[inline(always)]
    fn total(self, [a, b]: [[__m256; 2]; 2]) -> f32 {
        // SAFETY: as above.
        unsafe { eight(_mm256_add_ps(_mm256_add_ps(a[0], a[1]), _mm256_add_ps(b[0], b[1]))) }
    }
    #[inline(always)]
    fn any_not_above(self, v: [__m256; 2], limit: f32) -> bool {
        // SAFETY: as above.
        unsafe {
            let limit = _mm256_set1_ps(limit);
            let [a, b] = [_mm256_cmp_ps::<_CMP_NGT_UQ>(v[0], limit), _mm256_cmp_ps::<_CMP_NGT_UQ>(v[1], limit)];
            _mm256_movemask_ps(_mm256_or_ps(a, b)) != 0
        }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [__m256; 2] {
        // SAFETY: the caller's promise.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
    #[inline(always)]
    unsafe fn store(self, v: [__m256; 2], to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(to, v[0]);
            _mm256_storeu_ps(to.add(8), v[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_twelves(self, [low, high]: [*const f32; 2]) -> [__m256; 3] {
        // SAFETY: the caller's promise.
        unsafe {
            let last = _mm256_set_m128(_mm_loadu_ps(high.add(8)), _mm_loadu_ps(low.add(8)));
            [_mm256_loadu_ps(low), _mm256_loadu_ps(high), last]
        }
    }
    #[inline(always)]
    unsafe fn store_twelves(self, v: [__m256; 3], [low, high]: [*mut f32; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(low, v[0]);
            _mm256_storeu_ps(high, v[1]);
            _mm_storeu_ps(low.add(8), _mm256_castps256_ps128(v[2]));
            _mm_storeu_ps(high.add(8), _mm256_extractf128_ps::<1>(v[2]));
        }
    }
    #[inline(always)]
    unsafe fn mul_add_twelves(self, [x, y]: [f32; 2], b: *const f32, c: [__m256; 3]) -> [__m256; 3] {
        // SAFETY: the caller's promise.
        unsafe {
            let (first, last) = (_mm256_load_ps(b), _mm256_broadcast_ps(&*b.add(8).cast()));
            let (x, y) = (_mm256_set1_ps(x), _mm256_set1_ps(y));
            [
                _mm256_fmadd_ps(x, first, c[0]),
                _mm256_fmadd_ps(y, first, c[1]),
                _mm256_fmadd_ps(_mm256_blend_ps::<0xf0>(x, y), last, c[2]),
            ]
        }
    }
}

/// AVX-512 with F, BW, CD, DQ and VL.
#[derive(Clone, Copy)]
pub(super) struct Avx512(pub(super) ());

impl Simd for Avx512 {
    type Sixteen = __m512;
    type Twelves = [__m512; 2];
    const WIDE: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: the machine has the level; so below.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn unless_not_positive(self, v: __m512, z: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLE_UQ>(z, _mm512_setzero_ps()), v) }
    }
    #[inline(always)]
    fn where_positive(self, v: __m512, z: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(z, _mm512_setzero_ps()), v) }
    }
    #[inline(always)]
    fn total(self, [a, b]: [__m512; 2]) -> f32 {
        // SAFETY: as above.
        unsafe {
            let [a, b] = [a, b].map(|v| _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)));
            eight(_mm256_add_ps(a, b))
        }
    }
    #[inline(always)]
    fn any_not_above(self, v: __m512, limit: f32) -> bool {
        // SAFETY: as above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_NGT_UQ>(v, _mm512_set1_ps(limit)) != 0 }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, v: __m512, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn load_twelves(self, from: [*const f32; 2]) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        unsafe { [self.load(from[0]), self.load(from[1])] }
    }
    #[inline(always)]
    unsafe fn store_twelves(self, v: [__m512; 2], to: [*mut f32; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.store(v[0], to[0]);
            self.store(v[1], to[1]);
        }
    }
    #[inline(always)]
    unsafe fn mul_add_twelves(self, [x, y]: [f32; 2], b: *const f32, c: [__m512; 2]) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        let b = unsafe { self.load(b) };
        [self.mul_add(self.splat(x), b, c[0]), self.mul_add(self.splat(y), b, c[1])]
    }
}
