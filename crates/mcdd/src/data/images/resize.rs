//! Another size for an image: averages over triangles, as PIL's and torchvision's bilinear, to the bit.
//!
//! A new pixel is the weighted mean of the old ones around its center; the weights fall linearly to zero at a distance of one
//! new pixel (of one old pixel where the image grows). First every row, then every column. Weights have 22 bits, and the
//! values in between are bytes again.

use crate::compute::simd::{self, Kernel, Simd};

/// Bits of a weight. With 8 bits of a value, and weights whose sum is 1, a sum is below 2^31.
const BITS: u32 = 22;

/// What is added before the bits are dropped, so that values are rounded.
const HALF: i32 = 1 << (BITS - 1);

/// Values that are multiplied at a time: a multiple of 1 and 3 channels, and of the vectors of every processor.
const BLOCK: usize = 24;

/// Resizes pixels of `from` (height, width) with `channels` values each, 1 or 3, to `to`.
pub(super) fn resize(pixels: &[u8], channels: usize, from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    let (columns, rows) = (Weights::new(from.1, to.1), Weights::new(from.0, to.0));
    let narrow = if from.1 == to.1 { pixels.to_vec() } else { across(pixels, channels, from.1, &columns) };
    if from.0 == to.0 { narrow } else { down(&narrow, to.1 * channels, &rows) }
}

/// Which old pixels make each new one along one side.
struct Weights {
    /// For each new pixel the first old one, and where its weights are.
    spans: Vec<(usize, std::ops::Range<usize>)>,
    weights: Vec<i32>,
}

impl Weights {
    fn new(from: usize, to: usize) -> Weights {
        let scale = from as f64 / to as f64;
        let reach = scale.max(1.0);
        let mut all = Weights { spans: Vec::with_capacity(to), weights: Vec::new() };
        let mut shares = Vec::new();
        for i in 0..to {
            let center = (i as f64 + 0.5) * scale;
            // A float below 0 becomes 0.
            let first = (center - reach + 0.5) as usize;
            let last = ((center + reach + 0.5) as usize).min(from);
            shares.clear();
            shares.extend((first..last).map(|at| {
                let distance = ((at as f64 - center + 0.5) / reach).abs();
                (1.0 - distance).max(0.0)
            }));
            let sum: f64 = shares.iter().sum();
            let start = all.weights.len();
            all.weights.extend(shares.iter().map(|share| (0.5 + share / sum * f64::from(1 << BITS)) as i32));
            all.spans.push((first, start..all.weights.len()));
        }
        all
    }
}

/// Resizes every row.
fn across(pixels: &[u8], channels: usize, width: usize, weights: &Weights) -> Vec<u8> {
    let rows = pixels.len() / (width * channels);
    let longest = weights.spans.iter().map(|(_, span)| span.len()).max().unwrap_or(0);
    let padded = (longest * channels).next_multiple_of(BLOCK);
    // Each weight once for each channel, in blocks; behind the last one zeros.
    let mut blocks = vec![0; weights.spans.len() * padded];
    for ((_, span), block) in weights.spans.iter().zip(blocks.chunks_exact_mut(padded)) {
        let repeated = weights.weights[span.clone()].iter().flat_map(|&w| std::iter::repeat_n(w, channels));
        block.iter_mut().zip(repeated).for_each(|(slot, w)| *slot = w);
    }
    let mut out = vec![0; rows * weights.spans.len() * channels];
    let starts: Vec<usize> = weights.spans.iter().map(|(first, _)| first * channels).collect();
    // Behind a row there are zeros, so that the last block can be read.
    let mut row = vec![0; width * channels + padded];
    let new = out.chunks_exact_mut((starts.len() * channels).max(1));
    for (old, new) in pixels.chunks_exact(width * channels).zip(new) {
        row[..old.len()].copy_from_slice(old);
        simd::dispatch(Across { row: &row, starts: &starts, blocks: &blocks, padded, channels, out: new });
    }
    out
}

struct Across<'a> {
    row: &'a [u8],
    starts: &'a [usize],
    blocks: &'a [i32],
    padded: usize,
    channels: usize,
    out: &'a mut [u8],
}

impl Kernel for Across<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let weights = self.blocks.chunks_exact(self.padded);
        for ((&start, weights), out) in self.starts.iter().zip(weights).zip(self.out.chunks_exact_mut(self.channels)) {
            let mut sums = [0i32; BLOCK];
            let values = self.row[start..start + self.padded].as_chunks::<BLOCK>().0;
            for (values, weights) in values.iter().zip(weights.as_chunks::<BLOCK>().0) {
                for ((sum, &value), &weight) in sums.iter_mut().zip(values).zip(weights) {
                    *sum += i32::from(value) * weight;
                }
            }
            match out {
                [one] => *one = byte(sums.iter().sum()),
                _ => {
                    // Halves have whole pixels, down to one pixel; sums of integers have no order.
                    let [a, b] = halves::<12>(&sums);
                    let sums: [i32; 12] = std::array::from_fn(|i| a[i] + b[i]);
                    let [a, b] = halves::<6>(&sums);
                    let sums: [i32; 6] = std::array::from_fn(|i| a[i] + b[i]);
                    let [a, b] = halves::<3>(&sums);
                    out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = byte(a + b));
                }
            }
        }
    }
}

#[inline(always)]
fn halves<const N: usize>(sums: &[i32]) -> [&[i32; N]; 2] {
    let (halves, _) = sums.as_chunks::<N>();
    [&halves[0], &halves[1]]
}

/// Resizes every column of rows with `width` values.
fn down(values: &[u8], width: usize, weights: &Weights) -> Vec<u8> {
    let mut out = vec![0; weights.spans.len() * width];
    for ((first, span), out) in weights.spans.iter().zip(out.chunks_exact_mut(width.max(1))) {
        simd::dispatch(Down { rows: &values[first * width..], width, weights: &weights.weights[span.clone()], out });
    }
    out
}

struct Down<'a> {
    rows: &'a [u8],
    width: usize,
    weights: &'a [i32],
    out: &'a mut [u8],
}

impl Kernel for Down<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (part, out) in self.out.chunks_mut(BLOCK).enumerate() {
            let mut sums = [0i32; BLOCK];
            for (row, &weight) in self.rows.chunks_exact(self.width).zip(self.weights) {
                let values = &row[part * BLOCK..part * BLOCK + out.len()];
                let add = |(sum, &value): (&mut i32, &u8)| *sum += i32::from(value) * weight;
                // A whole block has a length that the compiler knows.
                match <&[u8; BLOCK]>::try_from(values) {
                    Ok(values) => sums.iter_mut().zip(values).for_each(add),
                    Err(_) => sums.iter_mut().zip(values).for_each(add),
                }
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = byte(sum));
        }
    }
}

#[inline(always)]
fn byte(sum: i32) -> u8 {
    ((sum + HALF) >> BITS).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::simd::for_each_level;

    /// The definition, in floating point: each value is within one of it.
    fn mean(pixels: &[u8], channels: usize, (h, w): (usize, usize), to: (usize, usize)) -> Vec<f64> {
        let share = |i: usize, at: usize, from: usize, to: usize| {
            let scale = from as f64 / to as f64;
            (1.0 - ((at as f64 + 0.5 - (i as f64 + 0.5) * scale) / scale.max(1.0)).abs()).max(0.0)
        };
        let mut out = Vec::new();
        for (y, x, c) in (0..to.0).flat_map(|y| (0..to.1).flat_map(move |x| (0..channels).map(move |c| (y, x, c)))) {
            let (mut sum, mut all) = (0.0, 0.0);
            for (row, column) in (0..h).flat_map(|row| (0..w).map(move |column| (row, column))) {
                let weight = share(y, row, h, to.0) * share(x, column, w, to.1);
                sum += weight * f64::from(pixels[(row * w + column) * channels + c]);
                all += weight;
            }
            out.push(sum / all);
        }
        out
    }

    fn picture(channels: usize, (h, w): (usize, usize)) -> Vec<u8> {
        let value = |i: usize| {
            let (c, x, y) = (i % channels, i / channels % w, i / channels / w);
            (x * 37 + y * 101 + c * 53 + x * y * 7) as u8
        };
        (0..h * w * channels).map(value).collect()
    }

    #[test]
    fn as_the_definition_has_it() {
        for (channels, from, to) in [
            (1, (1, 1), (5, 3)),
            (3, (1, 1), (1, 1)),
            (3, (9, 13), (4, 5)),
            (1, (5, 7), (11, 16)),
            (3, (2, 300), (2, 9)),
            (1, (130, 2), (3, 50)),
            (3, (40, 41), (41, 40)),
        ] {
            let pixels = picture(channels, from);
            let got = resize(&pixels, channels, from, to);
            let want = mean(&pixels, channels, from, to);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                assert!((f64::from(*got) - want).abs() <= 1.01, "{got} {want}, {channels} {from:?} {to:?}");
            }
        }
    }

    /// Values by Pillow: `scripts/resize_fixture.py`.
    #[test]
    fn as_pillow_has_it() {
        #[derive(serde::Deserialize)]
        struct Case {
            channels: usize,
            from: (usize, usize),
            to: (usize, usize),
            pixels: Vec<u8>,
        }
        let cases: Vec<Case> = serde_json::from_str(include_str!("../../../tests/fixtures/resize.json")).unwrap();
        assert!(cases.len() > 4);
        for case in cases {
            let got = resize(&picture(case.channels, case.from), case.channels, case.from, case.to);
            assert_eq!(got, case.pixels, "{:?} to {:?}", case.from, case.to);
        }
    }

    #[test]
    fn the_same_at_every_level() {
        let (width, to) = (211, 40);
        let row = picture(3, (1, width));
        let weights = Weights::new(width, to);
        let mut found: Vec<Vec<u8>> = Vec::new();
        for_each_level(|level| {
            let mut out = vec![0; to * 3];
            for ((first, span), out) in weights.spans.iter().zip(out.chunks_exact_mut(3)) {
                let kernel = Down { rows: &row[first * 3..], width: 3, weights: &weights.weights[span.clone()], out };
                // SAFETY: the machine has the level.
                unsafe { simd::dispatch_at(level, kernel) };
            }
            found.push(out);
        });
        assert!(found.iter().all(|f| *f == across(&row, 3, width, &weights)));
    }
}
