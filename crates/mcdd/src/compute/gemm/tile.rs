//! Tiles of a product in registers.

use super::{Line, NR, Then, ZERO};
use crate::compute::simd::Simd;

/// `R` rows of `P` times sixteen columns.
pub(super) type Sums<S, const R: usize, const P: usize> = [[<S as Simd>::Sixteen; P]; R];

/// `sums += a b`: `a[r] + p * stride` is element (r, p) of A, and each of `b` has one line per inner index.
///
/// # Safety
/// Every `a[r]` must be readable at `p * stride` for each line `p`; all of `b` must have the same length.
#[inline(always)]
pub(super) unsafe fn add<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [*const f32; R],
    stride: usize,
    b: [&[Line]; P],
    mut sums: Sums<S, R, P>,
) -> Sums<S, R, P> {
    let count = b[0].len();
    let b = b.map(|lines| lines.as_ptr().cast::<f32>());
    let mut p = 0;
    // SAFETY: the caller's promises.
    unsafe {
        // Four at a time, so that counting does not take the place of multiplying.
        while p + 4 <= count {
            for more in 0..4 {
                sums = step(simd, a, stride, b, p + more, sums);
            }
            p += 4;
        }
        while p < count {
            sums = step(simd, a, stride, b, p, sums);
            p += 1;
        }
    }
    sums
}

/// Adds the products of the inner index `p`.
///
/// # Safety
/// As for [`add`], for this index.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [*const f32; R],
    stride: usize,
    b: [*const f32; P],
    p: usize,
    mut sums: Sums<S, R, P>,
) -> Sums<S, R, P> {
    // SAFETY: the caller's promises.
    unsafe {
        let mut lines = [simd.splat(0.0); P];
        for j in 0..P {
            lines[j] = simd.load(b[j].add(p * NR));
        }
        for r in 0..R {
            let x = simd.splat(*a[r].add(p * stride));
            for j in 0..P {
                sums[r][j] = simd.mul_add(x, lines[j], sums[r][j]);
            }
        }
    }
    sums
}

/// A tile of C, whose rows are `n` apart.
pub(super) struct Tile<'a> {
    pub c: &'a mut [f32],
    pub n: usize,
    pub row: usize,
    pub rows: usize,
    pub column: usize,
}

impl Tile<'_> {
    /// Computes the product of `R` rows of A, whose elements are `stride` apart, and `P` panels of B, added to C if `load`,
    /// followed by `then`.
    ///
    /// # Safety
    /// As for [`add`].
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd, const R: usize, const P: usize>(
        &mut self,
        simd: S,
        a: [*const f32; R],
        stride: usize,
        b: [&[Line]; P],
        load: bool,
        then: Then,
    ) {
        if self.rows == R && self.column + P * NR <= self.n {
            // SAFETY: the caller's promises.
            unsafe { self.whole(simd, a, stride, b, load, then) };
        } else {
            let mut lines = if load { self.load() } else { [[ZERO; P]; R] };
            // SAFETY: the caller's promises.
            unsafe { through(simd, a, stride, b, &mut lines) };
            self.finish(&mut lines, then);
            self.store(&lines);
        }
    }

    /// A tile that C contains as a whole.
    ///
    /// # Safety
    /// As for [`add`].
    #[inline(always)]
    unsafe fn whole<S: Simd, const R: usize, const P: usize>(
        &mut self,
        simd: S,
        a: [*const f32; R],
        stride: usize,
        b: [&[Line]; P],
        load: bool,
        then: Then,
    ) {
        let n = self.n;
        let from = self.row * n + self.column;
        let all = from..from + (R - 1) * n + P * NR;
        let columns = self.column..self.column + P * NR;
        let mut sums = [[simd.splat(0.0); P]; R];
        let c = self.c[all.clone()].as_mut_ptr();
        // SAFETY: C, and the activation, contain the whole tile, and the bias its columns: the slices have shown it.
        unsafe {
            if load {
                for r in 0..R {
                    for j in 0..P {
                        sums[r][j] = simd.load(c.add(r * n + j * NR));
                    }
                }
            }
            sums = add(simd, a, stride, b, sums);
            match then {
                Then::Keep => {}
                Then::Bias(bias) | Then::BiasRelu(bias) => {
                    let bias = bias[columns].as_ptr();
                    for j in 0..P {
                        let bias = simd.load(bias.add(j * NR));
                        for r in 0..R {
                            sums[r][j] = simd.add(sums[r][j], bias);
                            if matches!(then, Then::BiasRelu(_)) {
                                // A sum that is not a number stays.
                                sums[r][j] = simd.unless_not_positive(sums[r][j], sums[r][j]);
                            }
                        }
                    }
                }
                Then::Where(z) => {
                    let z = z[all].as_ptr();
                    for r in 0..R {
                        for j in 0..P {
                            sums[r][j] = simd.where_positive(sums[r][j], simd.load(z.add(r * n + j * NR)));
                        }
                    }
                }
            }
            for r in 0..R {
                for j in 0..P {
                    simd.store(sums[r][j], c.add(r * n + j * NR));
                }
            }
        }
    }

    fn width<const P: usize>(&self) -> usize {
        (P * NR).min(self.n - self.column)
    }

    fn load<const R: usize, const P: usize>(&self) -> [[Line; P]; R] {
        let mut lines = [[ZERO; P]; R];
        for (r, lines) in lines.iter_mut().enumerate().take(self.rows) {
            let c = &self.c[(self.row + r) * self.n + self.column..][..self.width::<P>()];
            for (line, c) in lines.iter_mut().zip(c.chunks(NR)) {
                line.0[..c.len()].copy_from_slice(c);
            }
        }
        lines
    }

    #[inline(always)]
    fn store<const R: usize, const P: usize>(&mut self, lines: &[[Line; P]; R]) {
        let width = self.width::<P>();
        for (r, lines) in lines.iter().enumerate().take(self.rows) {
            let c = &mut self.c[(self.row + r) * self.n + self.column..][..width];
            for (line, c) in lines.iter().zip(c.chunks_mut(NR)) {
                match c.first_chunk_mut::<NR>() {
                    Some(c) => *c = line.0,
                    None => c.copy_from_slice(&line.0[..c.len()]),
                }
            }
        }
    }

    #[inline(always)]
    fn finish<const R: usize, const P: usize>(&self, lines: &mut [[Line; P]; R], then: Then) {
        let width = self.width::<P>();
        for (r, lines) in lines.iter_mut().enumerate().take(self.rows) {
            match then {
                Then::Keep => {}
                Then::Bias(bias) | Then::BiasRelu(bias) => {
                    let relu = matches!(then, Then::BiasRelu(_));
                    for (line, bias) in lines.iter_mut().zip(bias[self.column..][..width].chunks(NR)) {
                        for (v, bias) in line.0.iter_mut().zip(bias) {
                            let sum = *v + bias;
                            *v = if relu && sum <= 0.0 { 0.0 } else { sum };
                        }
                    }
                }
                Then::Where(activation) => {
                    let z = &activation[(self.row + r) * self.n + self.column..][..width];
                    for (line, z) in lines.iter_mut().zip(z.chunks(NR)) {
                        line.0.iter_mut().zip(z).for_each(|(v, &z)| *v = if z > 0.0 { *v } else { 0.0 });
                    }
                }
            }
        }
    }
}

/// `lines += a b`, by way of registers.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn through<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [*const f32; R],
    stride: usize,
    b: [&[Line]; P],
    lines: &mut [[Line; P]; R],
) {
    let mut sums = [[simd.splat(0.0); P]; R];
    // SAFETY: a line is sixteen numbers; else the caller's promises.
    unsafe {
        for r in 0..R {
            for j in 0..P {
                sums[r][j] = simd.load(lines[r][j].0.as_ptr());
            }
        }
        sums = add(simd, a, stride, b, sums);
        for r in 0..R {
            for j in 0..P {
                simd.store(sums[r][j], lines[r][j].0.as_mut_ptr());
            }
        }
    }
}
