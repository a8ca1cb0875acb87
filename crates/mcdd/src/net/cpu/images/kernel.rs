//! The two products that convolutions are made of, in tiles as in [`crate::compute::gemm`].
//!
//! Each number of the output is one chain of fused multiply-adds in a fixed order, independent of the tile, of the other
//! images in the batch and of the instruction set.

// Loops over the lanes of several arrays at once read best, and compile best, with an index.
#![allow(clippy::needless_range_loop)]

use super::geometry::{Place, Span, Window};
use crate::compute::gemm::{Line, MR, NR, ZERO};
use crate::compute::simd::{self, Kernel, Simd};

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
        let panels = self.n.div_ceil(NR);
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
        simd::dispatch(AllPanels { product: self, pairs });
    }
}

/// A product of pixels that were checked and listed.
struct AllPanels<'a, 'b> {
    product: Product<'a>,
    pairs: &'b [Pair],
}

impl Kernel for AllPanels<'_, '_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let panels = self.product.n.div_ceil(NR);
        let mut panel = 0;
        while panel < panels {
            if S::WIDE && panel + 1 < panels {
                self.panels::<S, MR, 2>(simd, panel);
                panel += 2;
            } else if S::WIDE {
                // Six pixels of a single panel would be too few sums to keep the multipliers busy.
                self.panels::<S, 8, 1>(simd, panel);
                panel += 1;
            } else {
                self.panels::<S, MR, 1>(simd, panel);
                panel += 1;
            }
        }
    }
}

impl AllPanels<'_, '_> {
    /// All pixels of `P` panels, in tiles of `R` pixels.
    #[inline(always)]
    fn panels<S: Simd, const R: usize, const P: usize>(&mut self, simd: S, first: usize) {
        let p = &mut self.product;
        let width = (P * NR).min(p.n - first * NR);
        let mut from = 0;
        // The lines that are done, of each panel.
        let mut done = 0;
        for &to in &p.window.ends {
            let spans = &p.window.spans[from..to];
            let count: usize = spans.iter().map(|s| s.length).sum();
            let mut lines: [&[Line]; P] = [&[]; P];
            for j in 0..P {
                lines[j] = &p.lines[(first + j) * p.panel_lines..][..p.window.k][done..done + count];
            }
            let start = (from == 0).then_some(&p.start[first..first + P]);
            done += count;
            let next = if done < p.window.k { first * p.panel_lines + done } else { (first + P) * p.panel_lines };
            let next = p.lines.get(next..).unwrap_or(&[]);
            let (input, column) = (p.input, first * NR);
            let mut part = Panel { input, out: p.out, column, width, spans, lines, next, start };
            // SAFETY: `Product::run` has checked what is read and written, and there is a line for each number of the spans.
            unsafe { part.run::<S, R>(simd, self.pairs) };
            from = to;
        }
    }
}

/// All pixels of `P` panels, for some spans; sums begin with `start`, or with the values of the output.
struct Panel<'a, const P: usize> {
    input: &'a [f32],
    out: &'a mut [f32],
    column: usize,
    width: usize,
    spans: &'a [Span],
    lines: [&'a [Line]; P],
    /// The lines that are read next, to prefetch.
    next: &'a [Line],
    start: Option<&'a [Line]>,
}

impl<const P: usize> Panel<'_, P> {
    /// # Safety
    /// Every pair must be readable wherever a span says, there must be a line for each number of the spans, and room for the
    /// panels' columns where a pair says.
    #[inline(always)]
    unsafe fn run<S: Simd, const R: usize>(&mut self, simd: S, pairs: &[Pair]) {
        let (tiles, rest) = pairs.as_chunks::<R>();
        // Weights of deep layers come from far away: those that are next are fetched while these are used.
        let next = &self.next[..self.next.len().min(self.lines[0].len())];
        let mut fetched = next.chunks(next.len().div_ceil(tiles.len().max(1)).max(1));
        for tile in tiles {
            for line in fetched.next().unwrap_or(&[]) {
                simd::prefetch(line.0.as_ptr());
            }
            // SAFETY: the caller's promises.
            unsafe {
                if self.width == P * NR {
                    self.whole::<S, R>(simd, tile);
                } else {
                    self.through::<S, R>(simd, tile);
                }
            }
        }
        if !rest.is_empty() {
            // SAFETY: the caller's promises.
            unsafe { self.through::<S, R>(simd, rest) };
        }
    }

    /// `R` pixels and all columns, directly to the output.
    #[inline(always)]
    unsafe fn whole<S: Simd, const R: usize>(&mut self, simd: S, tile: &[Pair; R]) {
        let out = self.out.as_mut_ptr();
        let mut sums = [[simd.splat(0.0); P]; R];
        // SAFETY: the promises of `run`.
        unsafe {
            for r in 0..R {
                for j in 0..P {
                    let from = match self.start {
                        Some(start) => start.as_ptr().add(j).cast(),
                        None => out.add(tile[r][1] + self.column + j * NR).cast_const(),
                    };
                    sums[r][j] = simd.load(from);
                }
            }
            let sums = self.add(simd, tile.map(|[from, _]| self.input.as_ptr().add(from)), sums);
            for r in 0..R {
                for j in 0..P {
                    simd.store(sums[r][j], out.add(tile[r][1] + self.column + j * NR));
                }
            }
        }
    }

    /// At most `R` pixels, by way of lines of their own.
    #[inline(always)]
    unsafe fn through<S: Simd, const R: usize>(&mut self, simd: S, tile: &[Pair]) {
        let mut lines = [[ZERO; P]; R];
        let mut a = [self.input.as_ptr(); R];
        for r in 0..R {
            let [from, to] = tile[r.min(tile.len() - 1)];
            // SAFETY: the promises of `run`.
            a[r] = unsafe { a[r].add(from) };
            lines[r] = self.begin(to);
        }
        // SAFETY: the promises of `run`; lines have room for sixteen numbers.
        unsafe {
            if P == 1 && R == MR && self.width <= 12 {
                self.add_twelves(simd, a, &mut lines);
            } else {
                let mut sums = [[simd.splat(0.0); P]; R];
                for r in 0..R {
                    for j in 0..P {
                        sums[r][j] = simd.load(lines[r][j].0.as_ptr());
                    }
                }
                let sums = self.add(simd, a, sums);
                for r in 0..R {
                    for j in 0..P {
                        simd.store(sums[r][j], lines[r][j].0.as_mut_ptr());
                    }
                }
            }
        }
        for (&[_, to], lines) in tile.iter().zip(&lines) {
            self.finish(to, lines);
        }
    }

    /// `sums` plus the products of all spans.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize>(
        &self,
        simd: S,
        a: [*const f32; R],
        mut sums: [[S::Sixteen; P]; R],
    ) -> [[S::Sixteen; P]; R] {
        let mut lines = self.lines.map(|lines| lines.as_ptr().cast::<f32>());
        // SAFETY: the promises of `run`.
        unsafe {
            for span in self.spans {
                let mut i = span.offset;
                let end = span.offset + span.length;
                while i + 4 <= end {
                    for more in 0..4 {
                        sums = step(simd, a, i + more, lines.map(|line| line.add(more * NR)), sums);
                    }
                    i += 4;
                    lines = lines.map(|line| line.add(4 * NR));
                }
                while i < end {
                    sums = step(simd, a, i, lines, sums);
                    i += 1;
                    lines = lines.map(|line| line.add(NR));
                }
            }
        }
        sums
    }

    /// Adds the products of all spans to the first twelve columns of a single panel. With AVX2 the last four of two pixels
    /// share a vector.
    #[inline(always)]
    unsafe fn add_twelves<S: Simd, const R: usize>(&self, simd: S, a: [*const f32; R], lines: &mut [[Line; P]; R]) {
        // SAFETY: the promises of `run`; lines have room for sixteen numbers.
        unsafe {
            let [mut s0, mut s1, mut s2] = [0, 2, 4].map(|r| {
                let [low, high] = [r, r + 1].map(|r| lines[r % R][0].0.as_ptr());
                simd.load_twelves([low, high])
            });
            let mut line = self.lines[0].as_ptr().cast::<f32>();
            for span in self.spans {
                for i in span.offset..span.offset + span.length {
                    s0 = simd.mul_add_twelves([*a[0].add(i), *a[1 % R].add(i)], line, s0);
                    s1 = simd.mul_add_twelves([*a[2 % R].add(i), *a[3 % R].add(i)], line, s1);
                    s2 = simd.mul_add_twelves([*a[4 % R].add(i), *a[5 % R].add(i)], line, s2);
                    line = line.add(NR);
                }
            }
            for (r, sums) in [(0, s0), (2, s1), (4, s2)] {
                let [low, high] = [r, r + 1].map(|r| lines[r % R][0].0.as_mut_ptr());
                simd.store_twelves(sums, [low, high]);
            }
        }
    }

    #[inline(always)]
    fn begin(&self, to: usize) -> [Line; P] {
        let mut lines = [ZERO; P];
        match self.start {
            Some(start) => lines.copy_from_slice(start),
            None => {
                let from = &self.out[to + self.column..][..self.width];
                for (line, from) in lines.iter_mut().zip(from.chunks(NR)) {
                    line.0[..from.len()].copy_from_slice(from);
                }
            }
        }
        lines
    }

    #[inline(always)]
    fn finish(&mut self, to: usize, lines: &[Line; P]) {
        let to = &mut self.out[to + self.column..][..self.width];
        for (to, line) in to.chunks_mut(NR).zip(lines) {
            match to.len() {
                NR => to.copy_from_slice(&line.0),
                // The common lengths are known to the compiler.
                12 => to.copy_from_slice(&line.0[..12]),
                8 => to.copy_from_slice(&line.0[..8]),
                n => to.copy_from_slice(&line.0[..n]),
            }
        }
    }
}

/// `sums += number i of each of a x lines`.
///
/// # Safety
/// These numbers, and sixteen of each line, must be readable.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [*const f32; R],
    i: usize,
    lines: [*const f32; P],
    mut sums: [[S::Sixteen; P]; R],
) -> [[S::Sixteen; P]; R] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut b = [simd.splat(0.0); P];
        for j in 0..P {
            b[j] = simd.load(lines[j]);
        }
        for r in 0..R {
            let x = simd.splat(*a[r].add(i));
            for j in 0..P {
                sums[r][j] = simd.mul_add(x, b[j], sums[r][j]);
            }
        }
    }
    sums
}

/// Gradients of weights: for each kernel position, sums over pixels of six output gradients times sixteen inputs.
#[derive(Clone, Copy)]
pub(super) struct WeightGradient {
    pub images: usize,
    pub height: usize,
    pub width: usize,
    pub kernel: [usize; 2],
    /// Groups of six outputs.
    pub tiles: usize,
    /// Numbers of A from one image and from one group to the next; pixels are adjacent, six numbers each.
    pub a_image: usize,
    pub a_tile: usize,
    /// Lines of B from one image, one row and one pixel to the next, and from one row of the kernel to the next.
    pub b_image: usize,
    pub b_row: usize,
    pub b_pixel: usize,
    pub b_kernel_row: usize,
}

impl WeightGradient {
    /// `sums += a^T b`, from the first numbers of `a` and of `b` on; `sums` has six lines for each kernel position and group.
    pub(super) fn run(&self, a: &[f32], b: &[Line], sums: &mut [Line]) {
        let pixels = self.images * self.height * self.width;
        if pixels * self.tiles * self.kernel[0] * self.kernel[1] == 0 {
            return;
        }
        let last = (self.images - 1) * self.a_image + (self.tiles - 1) * self.a_tile;
        assert!(a.len() >= last + self.height * self.width * MR);
        let last = (self.images - 1) * self.b_image + (self.height - 1) * self.b_row + (self.width - 1) * self.b_pixel;
        assert!(b.len() > last + (self.kernel[0] - 1) * self.b_kernel_row + self.kernel[1] - 1);
        assert!(sums.len() == self.kernel[0] * self.kernel[1] * self.tiles * MR);
        simd::dispatch(Gradient { of: *self, a, b, sums });
    }
}

struct Gradient<'a> {
    of: WeightGradient,
    a: &'a [f32],
    b: &'a [Line],
    sums: &'a mut [Line],
}

impl Kernel for Gradient<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let WeightGradient { kernel, tiles, .. } = self.of;
        let mut tile = 0;
        while tile < tiles {
            // With vectors of 16 numbers six sums are too few to keep the multipliers busy: positions of the kernel, or
            // groups of outputs, are computed together.
            let two = S::WIDE && kernel[1] == 1 && tile + 1 < tiles;
            for y in 0..kernel[0] {
                let mut x = 0;
                while x < kernel[1] {
                    // SAFETY: `WeightGradient::run` has checked the lengths; the groups and positions exist.
                    unsafe {
                        if two {
                            self.tiles::<S, 1, 2>(simd, tile, [y, x]);
                            x += 1;
                        } else if S::WIDE && x + 3 <= kernel[1] {
                            self.tiles::<S, 3, 1>(simd, tile, [y, x]);
                            x += 3;
                        } else if S::WIDE && x + 2 <= kernel[1] {
                            self.tiles::<S, 2, 1>(simd, tile, [y, x]);
                            x += 2;
                        } else {
                            self.tiles::<S, 1, 1>(simd, tile, [y, x]);
                            x += 1;
                        }
                    }
                }
            }
            tile += if two { 2 } else { 1 };
        }
    }
}

impl Gradient<'_> {
    /// `T` adjacent positions of the kernel and `G` groups of outputs.
    ///
    /// # Safety
    /// They must exist, and `a`, `b` and `sums` must have the lengths that [`WeightGradient::run`] checks.
    #[inline(always)]
    unsafe fn tiles<S: Simd, const T: usize, const G: usize>(&mut self, simd: S, tile: usize, [y, x]: [usize; 2]) {
        let w = &self.of;
        let at = |t: usize, g: usize| ((y * w.kernel[1] + x + t) * w.tiles + tile + g) * MR;
        let mut sums = [[[simd.splat(0.0); MR]; G]; T];
        // SAFETY: the caller's promises.
        unsafe {
            for t in 0..T {
                for g in 0..G {
                    for r in 0..MR {
                        sums[t][g][r] = simd.load(self.sums.as_ptr().add(at(t, g) + r).cast());
                    }
                }
            }
            for image in 0..w.images {
                let mut a = self.a.as_ptr().add(image * w.a_image + tile * w.a_tile);
                for row in 0..w.height {
                    let first = image * w.b_image + row * w.b_row + y * w.b_kernel_row + x;
                    let mut line = self.b.as_ptr().add(first);
                    let mut left = w.width;
                    while left >= 4 {
                        for _ in 0..4 {
                            sums = pixel(simd, a, w.a_tile, line, sums);
                            a = a.add(MR);
                            line = line.wrapping_add(w.b_pixel);
                        }
                        left -= 4;
                    }
                    for _ in 0..left {
                        sums = pixel(simd, a, w.a_tile, line, sums);
                        a = a.add(MR);
                        line = line.wrapping_add(w.b_pixel);
                    }
                }
            }
            for t in 0..T {
                for g in 0..G {
                    for r in 0..MR {
                        simd.store(sums[t][g][r], self.sums.as_mut_ptr().add(at(t, g) + r).cast());
                    }
                }
            }
        }
    }
}

/// Adds the products of one pixel, for kernel positions whose lines follow each other and groups that are `group` numbers
/// apart.
///
/// # Safety
/// These numbers and lines must be readable.
#[inline(always)]
unsafe fn pixel<S: Simd, const T: usize, const G: usize>(
    simd: S,
    a: *const f32,
    group: usize,
    line: *const Line,
    mut sums: [[[S::Sixteen; MR]; G]; T],
) -> [[[S::Sixteen; MR]; G]; T] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut b = [simd.splat(0.0); T];
        for t in 0..T {
            b[t] = simd.load(line.add(t).cast());
        }
        for g in 0..G {
            for r in 0..MR {
                let d = simd.splat(*a.add(g * group + r));
                for t in 0..T {
                    sums[t][g][r] = simd.mul_add(d, b[t], sums[t][g][r]);
                }
            }
        }
    }
    sums
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
        fn products_are_the_promised_chain_at_every_level(
            lengths in prop::collection::vec(1usize..40, 1..4), n in 1usize..70, seed in 0u64..99,
        ) {
            let mut s = Stream::new(seed, "tiles");
            let mut random = |n: usize| (0..n).map(|_| s.normal() as f32).collect::<Vec<f32>>();
            let input = random(400);
            let spans: Vec<Span> = lengths.iter().enumerate().map(|(i, &length)| Span { offset: 45 * i, length }).collect();
            let (k, panels) = (lengths.iter().sum::<usize>(), n.div_ceil(NR));
            let mut line = || Line(std::array::from_fn(|_| random(1)[0]));
            let lines: Vec<Line> = (0..panels * k).map(|_| line()).collect();
            let start: Vec<Line> = (0..panels).map(|_| line()).collect();
            let mut ends: Vec<usize> = (1..=spans.len()).collect();
            if seed % 2 == 0 {
                ends = vec![spans.len()];
            }
            let pairs: Vec<Pair> = (0..13).map(|i| [17 * i % 200, i * 80 + 2]).collect();
            let mut expected = vec![f32::NAN; 13 * 80];
            for &[from, to] in &pairs {
                for c in 0..n {
                    let mut numbers = spans.iter().flat_map(|span| &input[from + span.offset..][..span.length]);
                    let column = &lines[c / NR * k..(c / NR + 1) * k];
                    expected[to + c] = column.iter().fold(start[c / NR].0[c % NR], |sum, line| {
                        numbers.next().map_or(f32::NAN, |x| x.mul_add(line.0[c % NR], sum))
                    });
                }
            }
            let window = Window { spans, ends, places: Vec::new(), k, taps: Vec::new() };
            simd::for_each_level(|level| {
                let mut out = vec![f32::NAN; 13 * 80];
                let product = Product {
                    window: &window, places: &[], lines: &lines, panel_lines: k, n, input: &input, image: 400, first: 0, images: 1,
                    out: &mut out, pixel: 80, out_image: 13 * 80, offset: 2, first_pixel: 0, start: &start,
                };
                // SAFETY: the level is there, and the pairs are inside.
                unsafe { simd::dispatch_at(level, AllPanels { product, pairs: &pairs }) };
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&out), bits(&expected), "{level:?}");
            });
        }

        #[test]
        fn gradients_are_the_promised_chain_at_every_level(
            (images, height, width, stride) in (1usize..4, 1usize..5, 1usize..8, 1usize..3),
            (ky, kx, tiles) in (1usize..4, 1usize..5, 1usize..4),
            seed in 0u64..99,
        ) {
            let mut s = Stream::new(seed, "rows");
            let b_kernel_row = width * stride + kx;
            let b_image = (height * stride + ky) * b_kernel_row;
            let of = WeightGradient {
                images, height, width, kernel: [ky, kx], tiles,
                a_image: tiles * height * width * MR + 12, a_tile: height * width * MR,
                b_image, b_row: b_kernel_row * stride, b_pixel: stride, b_kernel_row,
            };
            let a: Vec<f32> = (0..images * of.a_image).map(|_| s.normal() as f32).collect();
            let b: Vec<Line> = (0..images * b_image).map(|_| Line(std::array::from_fn(|_| s.normal() as f32))).collect();
            let first: Vec<Line> = (0..ky * kx * tiles * MR).map(|i| b[i % b.len()]).collect();
            let mut expected = first.clone();
            for (i, sums) in expected.iter_mut().enumerate() {
                let (tap, tile, r) = (i / MR / tiles, i / MR % tiles, i % MR);
                for p in 0..images * height * width {
                    let (image, y, x) = (p / width / height, p / width % height, p % width);
                    let d = a[image * of.a_image + tile * of.a_tile + (y * width + x) * MR + r];
                    let line = b[image * b_image + (y * stride + tap / kx) * b_kernel_row + x * stride + tap % kx];
                    sums.0.iter_mut().zip(line.0).for_each(|(v, w)| *v = d.mul_add(w, *v));
                }
            }
            simd::for_each_level(|level| {
                let mut sums = first.clone();
                // SAFETY: the level is there, and the lengths are those of the shape.
                unsafe { simd::dispatch_at(level, Gradient { of, a: &a, b: &b, sums: &mut sums }) };
                assert!(sums.iter().zip(&expected).all(|(a, b)| a.0 == b.0), "{level:?}");
            });
        }
    }
}
