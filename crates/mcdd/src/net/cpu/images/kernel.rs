//! The two products that convolutions are made of, in tiles of 6 x 16 as in [`super::super::gemm`].
//!
//! Each number of the output is one chain of fused multiply-adds in a fixed order, whatever the tile, the company of other
//! images or the instruction set.

use super::super::gemm::{Line, MR, NR, ZERO};
#[cfg(target_arch = "x86_64")]
use super::super::simd;
use super::conv::{Place, Run, Window};

/// Pixels times weights: `out = start + windows x weights`.
pub struct Product<'a> {
    pub window: &'a Window,
    /// Which of the window's places to compute.
    pub places: &'a [Place],
    /// The panels of the weights.
    pub lines: &'a [Line],
    /// Output channels.
    pub n: usize,
    /// The images, one after the other, `image` numbers each; place offsets count from `first` numbers before the first.
    pub input: &'a [f32],
    pub image: usize,
    pub first: usize,
    pub images: usize,
    /// The output: `pixel` numbers for each pixel, of which `n` from `offset` on are written, and `out_image` for each
    /// image; the numbers of places count from `first_pixel`.
    pub out: &'a mut [f32],
    pub pixel: usize,
    pub out_image: usize,
    pub offset: usize,
    pub first_pixel: usize,
    pub start: &'a [Line],
}

impl Product<'_> {
    pub fn run(mut self) {
        let (k, panels) = (self.window.k, self.n.div_ceil(NR));
        assert!(self.lines.len() == panels * k && self.start.len() == panels);
        if self.places.is_empty() || self.images == 0 {
            return;
        }
        // All that the tiles read and write lies inside; the kernels rely on it.
        let reach = self.window.runs.iter().map(|r| r.offset + r.length).max().unwrap_or(0);
        for place in self.places {
            let (from, to) = (place.from as usize, place.to as usize);
            assert!(from >= self.first && from - self.first + reach <= self.image && to >= self.first_pixel);
            assert!((to - self.first_pixel) * self.pixel + self.offset + self.n <= self.out_image);
        }
        assert!(self.input.len() >= self.images * self.image && self.out.len() >= self.images * self.out_image);
        for panel in 0..panels {
            let mut from = 0;
            let mut lines = &self.lines[panel * k..(panel + 1) * k];
            for &to in &self.window.ends {
                let runs = &self.window.runs[from..to];
                let count = runs.iter().map(|r| r.length).sum();
                let (block, rest) = lines.split_at(count);
                self.panel(panel, runs, block, from == 0);
                (from, lines) = (to, rest);
            }
        }
    }

    /// All pixels of one panel, for some runs.
    fn panel(&mut self, panel: usize, runs: &[Run], lines: &[Line], first: bool) {
        let width = NR.min(self.n - panel * NR);
        let column = self.offset + panel * NR;
        let total = self.places.len() * self.images;
        let (mut image, mut at) = (0, 0);
        for row in (0..total).step_by(MR) {
            let rows = MR.min(total - row);
            // A tile at the end repeats its last pixel and drops what comes of it.
            let mut from = [0usize; MR];
            let mut to = [0usize; MR];
            for r in 0..MR {
                if r < rows {
                    let place = self.places[at];
                    from[r] = image * self.image + place.from as usize - self.first;
                    to[r] = image * self.out_image + (place.to as usize - self.first_pixel) * self.pixel + column;
                    at += 1;
                    if at == self.places.len() {
                        (image, at) = (image + 1, 0);
                    }
                } else {
                    (from[r], to[r]) = (from[rows - 1], to[rows - 1]);
                }
            }
            #[cfg(target_arch = "x86_64")]
            if rows == MR && width == NR && simd::has_avx2() {
                let start = first.then_some(&self.start[panel]);
                // SAFETY: the features are there; `run` has checked what is read and written.
                unsafe {
                    let a = from.map(|f| self.input.as_ptr().add(f));
                    let c = to.map(|t| self.out.as_mut_ptr().add(t));
                    x86::tile(a, runs, lines, c, start);
                }
                continue;
            }
            let mut acc = [self.start[panel]; MR];
            if !first {
                for (line, &to) in acc.iter_mut().zip(&to).take(rows) {
                    line.0[..width].copy_from_slice(&self.out[to..to + width]);
                }
            }
            multiply(self.input, from, runs, lines, &mut acc);
            for (line, &to) in acc.iter().zip(&to).take(rows) {
                copy_line(&line.0, &mut self.out[to..to + width]);
            }
        }
    }
}

/// Copies the beginning of a line; the usual lengths are known to the compiler.
fn copy_line(line: &[f32; NR], to: &mut [f32]) {
    match to.len() {
        NR => to.copy_from_slice(line),
        12 => to.copy_from_slice(&line[..12]),
        8 => to.copy_from_slice(&line[..8]),
        n => to.copy_from_slice(&line[..n]),
    }
}

/// `acc += windows x lines` for six pixels.
fn multiply(input: &[f32], from: [usize; MR], runs: &[Run], lines: &[Line], acc: &mut [Line; MR]) {
    #[cfg(target_arch = "x86_64")]
    if simd::has_avx2() {
        // SAFETY: the features are there; `run` has checked what is read, and the lines written are those of `acc`.
        unsafe {
            let a = from.map(|f| input.as_ptr().add(f));
            let mut c = [std::ptr::null_mut(); MR];
            for (c, line) in c.iter_mut().zip(acc.iter_mut()) {
                *c = line.0.as_mut_ptr();
            }
            x86::tile(a, runs, lines, c, None);
        }
        return;
    }
    multiply_portable(input, from, runs, lines, acc);
}

/// What defines the bits.
fn multiply_portable(input: &[f32], from: [usize; MR], runs: &[Run], lines: &[Line], acc: &mut [Line; MR]) {
    let mut lines = lines.iter();
    for run in runs {
        for (i, line) in (run.offset..run.offset + run.length).zip(&mut lines) {
            for (acc, from) in acc.iter_mut().zip(from) {
                let x = input[from + i];
                acc.0.iter_mut().zip(line.0).for_each(|(v, w)| *v = x.mul_add(w, *v));
            }
        }
    }
}

/// Gradients of weights: sums over pixels of six output gradients times sixteen inputs.
#[derive(Clone, Copy)]
pub struct Rows {
    pub images: usize,
    pub height: usize,
    pub width: usize,
    /// Numbers of A from one image to the next; its pixels lie together, six numbers each.
    pub a_image: usize,
    /// Lines of B from one image, one row and one pixel to the next.
    pub b_image: usize,
    pub b_row: usize,
    pub b_pixel: usize,
}

impl Rows {
    /// `acc += a^T b`, from the first numbers of `a` and of `b` on.
    pub fn run(&self, a: &[f32], b: &[Line], acc: &mut [Line; MR]) {
        if self.images * self.height * self.width == 0 {
            return;
        }
        assert!(a.len() >= (self.images - 1) * self.a_image + self.height * self.width * MR);
        let last = (self.images - 1) * self.b_image + (self.height - 1) * self.b_row + (self.width - 1) * self.b_pixel;
        assert!(b.len() > last);
        #[cfg(target_arch = "x86_64")]
        if simd::has_avx2() {
            // SAFETY: the features are there, and the lengths were just checked.
            unsafe { x86::gradient(self, a, b, acc) };
            return;
        }
        self.portable(a, b, acc);
    }

    fn portable(&self, a: &[f32], b: &[Line], acc: &mut [Line; MR]) {
        for image in 0..self.images {
            let a = &a[image * self.a_image..];
            for (p, six) in a.as_chunks::<MR>().0.iter().take(self.height * self.width).enumerate() {
                let (y, x) = (p / self.width, p % self.width);
                let line = b[image * self.b_image + y * self.b_row + x * self.b_pixel];
                for (acc, d) in acc.iter_mut().zip(six) {
                    acc.0.iter_mut().zip(line.0).for_each(|(v, w)| *v = d.mul_add(w, *v));
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Line, MR, Rows, Run};
    use std::arch::x86_64::{
        __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_load_ps, _mm256_loadu_ps, _mm256_setzero_ps,
        _mm256_store_ps, _mm256_storeu_ps,
    };

    type Sums = [[__m256; 2]; MR];

    /// `sums += six numbers x a line`.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn step(a: [*const f32; MR], i: usize, line: *const f32, sums: &mut Sums) {
        // SAFETY: the caller's promise.
        unsafe {
            let (b0, b1) = (_mm256_load_ps(line), _mm256_load_ps(line.add(8)));
            for (sum, a) in sums.iter_mut().zip(a) {
                let x = _mm256_broadcast_ss(&*a.add(i));
                sum[0] = _mm256_fmadd_ps(x, b0, sum[0]);
                sum[1] = _mm256_fmadd_ps(x, b1, sum[1]);
            }
        }
    }

    /// A tile: what is in `c`, or `start` instead, plus the products of all runs.
    ///
    /// # Safety
    /// Needs AVX2 and FMA; every `a` must be readable wherever a run says, there must be a line for each number of the runs,
    /// and every `c` must have room for sixteen numbers.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn tile(a: [*const f32; MR], runs: &[Run], lines: &[Line], c: [*mut f32; MR], start: Option<&Line>) {
        let mut sums: Sums = [[_mm256_setzero_ps(); 2]; MR];
        // SAFETY: the caller's promises.
        unsafe {
            for (sum, c) in sums.iter_mut().zip(c) {
                let from = start.map_or(c.cast_const(), |line| line.0.as_ptr());
                *sum = [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))];
            }
            let mut line = lines.as_ptr().cast::<f32>();
            for run in runs {
                let mut i = run.offset;
                let end = run.offset + run.length;
                while i + 4 <= end {
                    step(a, i, line, &mut sums);
                    step(a, i + 1, line.add(16), &mut sums);
                    step(a, i + 2, line.add(32), &mut sums);
                    step(a, i + 3, line.add(48), &mut sums);
                    i += 4;
                    line = line.add(64);
                }
                while i < end {
                    step(a, i, line, &mut sums);
                    i += 1;
                    line = line.add(16);
                }
            }
            for (sum, c) in sums.iter().zip(c) {
                _mm256_storeu_ps(c, sum[0]);
                _mm256_storeu_ps(c.add(8), sum[1]);
            }
        }
    }

    /// The tile of [`Rows::run`].
    ///
    /// # Safety
    /// Needs AVX2 and FMA; `a` and `b` must hold what the rows say.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn gradient(rows: &Rows, a: &[f32], b: &[Line], acc: &mut [Line; MR]) {
        let mut sums: Sums = [[_mm256_setzero_ps(); 2]; MR];
        // SAFETY: the caller's promises; a `Line` is aligned.
        unsafe {
            for (sum, line) in sums.iter_mut().zip(acc.iter()) {
                *sum = [_mm256_load_ps(line.0.as_ptr()), _mm256_load_ps(line.0.as_ptr().add(8))];
            }
            let pixel = rows.b_pixel * 16;
            for image in 0..rows.images {
                let mut a = a.as_ptr().add(image * rows.a_image);
                let mut row = b.as_ptr().add(image * rows.b_image);
                for _ in 0..rows.height {
                    let mut line = row.cast::<f32>();
                    for _ in 0..rows.width / 4 {
                        for p in 0..4 {
                            let six = a.add(p * MR);
                            step([six, six.add(1), six.add(2), six.add(3), six.add(4), six.add(5)], 0, line, &mut sums);
                            line = line.add(pixel);
                        }
                        a = a.add(4 * MR);
                    }
                    for _ in 0..rows.width % 4 {
                        step([a, a.add(1), a.add(2), a.add(3), a.add(4), a.add(5)], 0, line, &mut sums);
                        line = line.add(pixel);
                        a = a.add(MR);
                    }
                    row = row.wrapping_add(rows.b_row);
                }
            }
            for (sum, line) in sums.iter().zip(acc.iter_mut()) {
                _mm256_store_ps(line.0.as_mut_ptr(), sum[0]);
                _mm256_store_ps(line.0.as_mut_ptr().add(8), sum[1]);
            }
        }
    }
}

/// Lines as the numbers that they are.
pub fn numbers(lines: &mut [Line]) -> &mut [f32] {
    // SAFETY: a `Line` is sixteen numbers and nothing else.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * NR) }
}

/// The lines that sums begin with: the bias, or zeros.
pub fn start_lines(bias: Option<&[f32]>, n: usize, lines: &mut Vec<Line>) {
    lines.clear();
    lines.resize(n.div_ceil(NR), ZERO);
    for (line, bias) in lines.iter_mut().zip(bias.unwrap_or(&[]).chunks(NR)) {
        line.0[..bias.len()].copy_from_slice(bias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_form_gives_the_same_bits(lengths in prop::collection::vec(1usize..40, 1..4), seed in 0u64..99) {
            let mut s = Stream::new(seed, "tiles");
            let input: Vec<f32> = (0..400).map(|_| s.normal() as f32).collect();
            let runs: Vec<Run> = lengths.iter().enumerate().map(|(i, &length)| Run { offset: 45 * i, length }).collect();
            let lines: Vec<Line> =
                (0..lengths.iter().sum()).map(|_| Line(std::array::from_fn(|_| s.normal() as f32))).collect();
            let from = std::array::from_fn(|_| s.below(200));
            let (mut best, mut plain) = ([lines[0]; MR], [lines[0]; MR]);
            multiply(&input, from, &runs, &lines, &mut best);
            multiply_portable(&input, from, &runs, &lines, &mut plain);
            prop_assert_eq!(best.map(|l| l.0), plain.map(|l| l.0));
        }

        #[test]
        fn gradients_are_the_promised_chain((images, height, width, stride) in (1usize..4, 1usize..5, 1usize..8, 1usize..3), seed in 0u64..99) {
            let mut s = Stream::new(seed, "rows");
            let rows = Rows {
                images, height, width, a_image: height * width * MR + 12,
                b_image: 100, b_row: width * stride + 2, b_pixel: stride,
            };
            let a: Vec<f32> = (0..images * rows.a_image).map(|_| s.normal() as f32).collect();
            let b: Vec<Line> = (0..images * 100).map(|_| Line(std::array::from_fn(|_| s.normal() as f32))).collect();
            let (mut best, mut plain) = ([b[0]; MR], [b[0]; MR]);
            rows.run(&a, &b, &mut best);
            rows.portable(&a, &b, &mut plain);
            prop_assert_eq!(best.map(|l| l.0), plain.map(|l| l.0));
        }
    }
}
