//! The two products that convolutions are made of, in tiles of 6 x 16 as in [`crate::compute::gemm`].
//!
//! Each number of the output is one chain of fused multiply-adds in a fixed order, independent of the tile, of the other
//! images in the batch and of the instruction set.

use super::geometry::{Place, Span, Window};
use crate::compute::gemm::{Line, MR, NR, ZERO};
#[cfg(target_arch = "x86_64")]
use crate::compute::simd;

/// Pixels times weights: `out = start + windows x weights`.
pub(super) struct Product<'a> {
    pub window: &'a Window,
    /// Which of the window's places to compute.
    pub places: &'a [Place],
    /// The panels of the weights, each beginning `panel_lines` after the one before.
    pub lines: &'a [Line],
    pub panel_lines: usize,
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

/// Where a pixel is read and written.
type Pair = [usize; 2];

impl Product<'_> {
    /// Computes it; `pairs` is a buffer for a list of all pixels.
    pub(super) fn run(self, pairs: &mut Vec<Pair>) {
        let (k, panels) = (self.window.k, self.n.div_ceil(NR));
        assert!(self.start.len() == panels);
        if self.places.is_empty() || self.images == 0 {
            return;
        }
        // All that the tiles read and write is inside; the kernels rely on it.
        let reach = self.window.spans.iter().map(|s| s.offset + s.length).max().unwrap_or(0);
        pairs.clear();
        for image in 0..self.images {
            let add = |place: &Place| {
                let (from, to) = (place.from as usize, (place.to as usize).wrapping_sub(self.first_pixel));
                let from = from.wrapping_sub(self.first);
                assert!(from <= self.image && from + reach <= self.image && to < self.out_image);
                assert!(to * self.pixel + self.offset + self.n <= self.out_image);
                [image * self.image + from, image * self.out_image + to * self.pixel + self.offset]
            };
            pairs.extend(self.places.iter().map(add));
        }
        assert!(self.input.len() >= self.images * self.image && self.out.len() >= self.images * self.out_image);
        for panel in 0..panels {
            let width = NR.min(self.n - panel * NR);
            let mut from = 0;
            let mut lines = &self.lines[panel * self.panel_lines..][..k];
            for &to in &self.window.ends {
                let spans = &self.window.spans[from..to];
                let count = spans.iter().map(|s| s.length).sum();
                let (block, rest) = lines.split_at(count);
                let start = (from == 0).then_some(&self.start[panel]);
                let next = if rest.is_empty() { self.lines.get((panel + 1) * self.panel_lines..) } else { Some(rest) };
                let (input, column, next) = (self.input, panel * NR, next.unwrap_or(&[]));
                let mut part = Panel { input, out: self.out, column, width, spans, lines: block, next, start };
                part.run(pairs);
                (from, lines) = (to, rest);
            }
        }
    }
}

/// All pixels of one panel, for some spans; sums begin with `start`, or with the values of the output.
struct Panel<'a> {
    input: &'a [f32],
    out: &'a mut [f32],
    column: usize,
    width: usize,
    spans: &'a [Span],
    lines: &'a [Line],
    /// The lines that are read next, to prefetch.
    next: &'a [Line],
    start: Option<&'a Line>,
}

impl Panel<'_> {
    fn run(&mut self, pairs: &[Pair]) {
        #[cfg(target_arch = "x86_64")]
        if simd::has_avx2() {
            // SAFETY: the features are there; `Product::run` has checked what is read and written.
            unsafe { x86::panel(self, pairs) };
            return;
        }
        self.portable(pairs);
    }

    fn portable(&mut self, pairs: &[Pair]) {
        for &[from, to] in pairs {
            let mut acc = [self.begin(to)];
            multiply(self.input, [from], self.spans, self.lines, &mut acc);
            self.finish(to, &acc[0]);
        }
    }

    #[inline(always)]
    fn begin(&self, to: usize) -> Line {
        let mut line = ZERO;
        match self.start {
            Some(start) => line = *start,
            None => line.0[..self.width].copy_from_slice(&self.out[to + self.column..][..self.width]),
        }
        line
    }

    #[inline(always)]
    fn finish(&mut self, to: usize, line: &Line) {
        let to = &mut self.out[to + self.column..][..self.width];
        match to.len() {
            NR => to.copy_from_slice(&line.0),
            // The common lengths are known to the compiler.
            12 => to.copy_from_slice(&line.0[..12]),
            8 => to.copy_from_slice(&line.0[..8]),
            n => to.copy_from_slice(&line.0[..n]),
        }
    }
}

/// `acc += windows x lines`: the order of operations that defines the bits.
fn multiply<const N: usize>(input: &[f32], from: [usize; N], spans: &[Span], lines: &[Line], acc: &mut [Line; N]) {
    let mut lines = lines.iter();
    for span in spans {
        for (i, line) in (span.offset..span.offset + span.length).zip(&mut lines) {
            for (acc, from) in acc.iter_mut().zip(from) {
                let x = input[from + i];
                acc.0.iter_mut().zip(line.0).for_each(|(v, w)| *v = x.mul_add(w, *v));
            }
        }
    }
}

/// Gradients of weights: sums over pixels of six output gradients times sixteen inputs.
#[derive(Clone, Copy)]
pub(super) struct WeightGradient {
    pub images: usize,
    pub height: usize,
    pub width: usize,
    /// Numbers of A from one image to the next; pixels are adjacent, six numbers each.
    pub a_image: usize,
    /// Lines of B from one image, one row and one pixel to the next.
    pub b_image: usize,
    pub b_row: usize,
    pub b_pixel: usize,
}

impl WeightGradient {
    /// `acc += a^T b`, from the first numbers of `a` and of `b` on.
    pub(super) fn run(&self, a: &[f32], b: &[Line], acc: &mut [Line; MR]) {
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
    use super::{Line, MR, NR, Pair, Panel, Span, WeightGradient, ZERO};
    use std::arch::x86_64::{
        __m256, _MM_HINT_T1, _mm_loadu_ps, _mm_prefetch, _mm_storeu_ps, _mm256_blend_ps, _mm256_broadcast_ps,
        _mm256_broadcast_ss, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_load_ps,
        _mm256_loadu_ps, _mm256_set_m128, _mm256_setzero_ps, _mm256_store_ps, _mm256_storeu_ps,
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

    /// All pixels of a panel.
    ///
    /// # Safety
    /// Needs AVX2 and FMA; every pair must be readable wherever a span says, there must be a line for each number of the
    /// spans, and room for the panel's columns where a pair says.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn panel(p: &mut Panel, pairs: &[Pair]) {
        let input = p.input.as_ptr();
        if p.width == NR {
            let (tiles, rest) = pairs.as_chunks::<MR>();
            let out = p.out.as_mut_ptr();
            // Weights of deep layers come from far away: those that are next are fetched while these are used.
            let next = &p.next[..p.next.len().min(p.lines.len())];
            let mut fetched = next.chunks(next.len().div_ceil(tiles.len().max(1)).max(1));
            for tile in tiles {
                for line in fetched.next().unwrap_or(&[]) {
                    _mm_prefetch::<_MM_HINT_T1>(line.0.as_ptr().cast());
                }
                // SAFETY: the caller's promises.
                unsafe {
                    let c = tile.map(|[_, to]| out.add(to + p.column));
                    six(tile.map(|[from, _]| input.add(from)), p.spans, p.lines, c, p.start);
                }
            }
            for tile in rest.chunks(MR) {
                // SAFETY: as above.
                unsafe { through(p, tile) };
            }
        } else {
            for tile in pairs.chunks(MR) {
                // SAFETY: the caller's promises.
                unsafe { through(p, tile) };
            }
        }
    }

    /// A tile of at most six pixels by way of lines of its own.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn through(p: &mut Panel, tile: &[Pair]) {
        let mut acc = [ZERO; MR];
        let mut a = [p.input.as_ptr(); MR];
        for (r, line) in acc.iter_mut().enumerate() {
            let [from, to] = tile[r.min(tile.len() - 1)];
            // SAFETY: the promises of `panel`.
            a[r] = unsafe { a[r].add(from) };
            *line = p.begin(to);
        }
        let mut c = [std::ptr::null_mut(); MR];
        for (c, line) in c.iter_mut().zip(acc.iter_mut()) {
            *c = line.0.as_mut_ptr();
        }
        // SAFETY: the promises of `panel`; lines have room for sixteen numbers.
        unsafe {
            if p.width <= 12 {
                twelve(a, p.spans, p.lines, c);
            } else {
                six(a, p.spans, p.lines, c, None);
            }
        }
        for (&[_, to], line) in tile.iter().zip(&acc) {
            p.finish(to, line);
        }
    }

    /// Six pixels and sixteen columns: what is in `c`, or `start` instead, plus the products of all spans.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn six(a: [*const f32; MR], spans: &[Span], lines: &[Line], c: [*mut f32; MR], start: Option<&Line>) {
        let mut sums: Sums = [[_mm256_setzero_ps(); 2]; MR];
        // SAFETY: the promises of `panel`.
        unsafe {
            for (sum, c) in sums.iter_mut().zip(c) {
                let from = start.map_or(c.cast_const(), |line| line.0.as_ptr());
                *sum = [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))];
            }
            let mut line = lines.as_ptr().cast::<f32>();
            for span in spans {
                let mut i = span.offset;
                let end = span.offset + span.length;
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

    /// Six pixels and the first twelve columns, added to what is in `c`: the last four of two pixels share a vector. Nine sums
    /// leave room in the registers for all else.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn twelve(a: [*const f32; MR], spans: &[Span], lines: &[Line], c: [*mut f32; MR]) {
        let mut wide = [_mm256_setzero_ps(); 6];
        let mut pairs = [_mm256_setzero_ps(); 3];
        // SAFETY: the promises of `panel`.
        unsafe {
            for q in 0..3 {
                let [low, high] = [c[2 * q], c[2 * q + 1]];
                wide[2 * q] = _mm256_loadu_ps(low);
                wide[2 * q + 1] = _mm256_loadu_ps(high);
                pairs[q] = _mm256_set_m128(_mm_loadu_ps(high.add(8)), _mm_loadu_ps(low.add(8)));
            }
            let mut line = lines.as_ptr().cast::<f32>();
            for span in spans {
                for i in span.offset..span.offset + span.length {
                    let b = _mm256_load_ps(line);
                    let rest = _mm256_broadcast_ps(&*line.add(8).cast());
                    for q in 0..3 {
                        let x = _mm256_broadcast_ss(&*a[2 * q].add(i));
                        let y = _mm256_broadcast_ss(&*a[2 * q + 1].add(i));
                        wide[2 * q] = _mm256_fmadd_ps(x, b, wide[2 * q]);
                        wide[2 * q + 1] = _mm256_fmadd_ps(y, b, wide[2 * q + 1]);
                        pairs[q] = _mm256_fmadd_ps(_mm256_blend_ps::<0xf0>(x, y), rest, pairs[q]);
                    }
                    line = line.add(16);
                }
            }
            for q in 0..3 {
                let [low, high] = [c[2 * q], c[2 * q + 1]];
                _mm256_storeu_ps(low, wide[2 * q]);
                _mm256_storeu_ps(high, wide[2 * q + 1]);
                _mm_storeu_ps(low.add(8), _mm256_castps256_ps128(pairs[q]));
                _mm_storeu_ps(high.add(8), _mm256_extractf128_ps::<1>(pairs[q]));
            }
        }
    }

    /// The tile of [`WeightGradient::run`].
    ///
    /// # Safety
    /// Needs AVX2 and FMA; `a` and `b` must hold what the rows say.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn gradient(rows: &WeightGradient, a: &[f32], b: &[Line], acc: &mut [Line; MR]) {
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
pub(super) fn numbers(lines: &mut [Line]) -> &mut [f32] {
    // SAFETY: a `Line` is sixteen numbers and nothing else.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * NR) }
}

/// The lines that sums begin with: the bias, or zeros.
pub(super) fn start_lines(bias: Option<&[f32]>, n: usize, lines: &mut Vec<Line>) {
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
            let spans: Vec<Span> = lengths.iter().enumerate().map(|(i, &length)| Span { offset: 45 * i, length }).collect();
            let lines: Vec<Line> =
                (0..lengths.iter().sum()).map(|_| Line(std::array::from_fn(|_| s.normal() as f32))).collect();
            let pairs: Vec<Pair> = (0..13).map(|i| [s.below(200), i * 20]).collect();
            for (width, start) in [(NR, None), (NR, Some(&lines[0])), (12, None), (5, Some(&lines[0])), (14, None)] {
                let mut best: Vec<f32> = (0..13 * 20).map(|i| i as f32).collect();
                let mut plain = best.clone();
                let panel = |out| Panel { input: &input, out, column: 2, width, spans: &spans, lines: &lines, next: &lines, start };
                panel(&mut best[..]).run(&pairs);
                panel(&mut plain[..]).portable(&pairs);
                prop_assert_eq!(best, plain);
            }
        }

        #[test]
        fn gradients_are_the_promised_chain((images, height, width, stride) in (1usize..4, 1usize..5, 1usize..8, 1usize..3), seed in 0u64..99) {
            let mut s = Stream::new(seed, "rows");
            let rows = WeightGradient {
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
