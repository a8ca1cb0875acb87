//! Random changes that leave an image's class as it is.

use serde::{Deserialize, Serialize};

use super::shape::ImageShape;
use super::spec::normalize;
use crate::error::{Error, Result};
use crate::seed::Stream;

/// How training images are changed at random, each time anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Augment {
    /// An image is moved by up to so many pixels each way; black comes in, as from padding before normalization.
    pub crop_padding: usize,
    /// Whether an image is mirrored, left to right, with probability one half.
    pub flip: bool,
}

impl Default for Augment {
    /// What is usual for CIFAR.
    fn default() -> Self {
        Augment { crop_padding: 4, flip: true }
    }
}

/// What happens to one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// How far the upper left corner lies below and to the right of the padded image's.
    pub down: usize,
    pub right: usize,
    pub padding: usize,
    pub flip: bool,
}

impl Augment {
    /// Checks that something of an image is always left.
    ///
    /// # Errors
    /// If the padding is as large as an image.
    pub fn check(&self, shape: ImageShape) -> Result<()> {
        if self.crop_padding > 0 && self.crop_padding >= shape.height.min(shape.width) {
            return Err(Error::setting(format!(
                "a padding of {} could move images of {}x{} out of sight",
                self.crop_padding, shape.height, shape.width
            ))
            .hint("give larger images by `image_size`, or `augment` off"));
        }
        Ok(())
    }

    /// The change of the image at a place of an epoch, whose key is [`epoch_key`].
    pub(super) fn change(&self, key: u64, place: u64) -> Change {
        let mut bits = Bits(key ^ mix(place));
        let ways = self.crop_padding * 2 + 1;
        let (down, right) = (bits.below(ways), bits.below(ways));
        Change { down, right, padding: self.crop_padding, flip: self.flip && bits.next() >> 63 == 1 }
    }
}

/// The key of an epoch's changes. A stream for each image would cost more than the image itself.
pub(super) fn epoch_key(seed: u64, epoch: usize) -> u64 {
    Stream::new(seed, &format!("augment/{epoch}")).next_u64()
}

/// SplitMix64: a counter whose steps are mixed.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in `0..n`; the bias of a small `n` is below 2^-32.
    fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Change {
    /// Moves, mirrors and normalizes an image.
    pub(super) fn apply(self, levels: &[[f32; 256]], shape: ImageShape, pixels: &[u8], out: &mut [f32]) {
        let Change { down, right, padding, flip } = self;
        let ImageShape { height, width, channels } = shape;
        let black: [f32; 3] = std::array::from_fn(|c| levels.get(c).map_or(0.0, |levels| levels[0]));
        // Of a row of the result, these pixels come from the image: `x + right - padding` is below `width`.
        let from = padding.saturating_sub(right).min(width);
        let to = (width + padding).saturating_sub(right).min(width).max(from);
        for (y, row) in out.chunks_exact_mut(width * channels).enumerate() {
            let source = (y + down).checked_sub(padding).filter(|&y| y < height);
            let (from, to) = if source.is_some() { (from, to) } else { (0, 0) };
            let fill = |part: &mut [f32]| {
                part.chunks_exact_mut(channels).for_each(|pixel| pixel.copy_from_slice(&black[..channels]));
            };
            fill(&mut row[..from * channels]);
            fill(&mut row[to * channels..]);
            if let Some(source) = source {
                let start = source * width + (from + right).saturating_sub(padding).min(width);
                let pixels = &pixels[start * channels..(start + to - from) * channels];
                normalize(levels, pixels, &mut row[from * channels..to * channels]);
            }
            if flip {
                mirror(row, channels);
            }
        }
    }
}

/// Turns a row of pixels round.
fn mirror(row: &mut [f32], channels: usize) {
    match channels {
        1 => row.reverse(),
        _ => {
            // As numbers first, then the channels of each pixel.
            row.reverse();
            row.chunks_exact_mut(channels).for_each(<[f32]>::reverse);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By the definition: pad with black, cut, mirror.
    fn naive(change: Change, shape: ImageShape, pixels: &[u8]) -> Vec<u8> {
        let ImageShape { height, width, channels } = shape;
        let p = change.padding;
        let padded = |y: usize, x: usize, c: usize| {
            let inside = (p..p + height).contains(&y) && (p..p + width).contains(&x);
            if inside { pixels[((y - p) * width + x - p) * channels + c] } else { 0 }
        };
        let mut out = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let x = if change.flip { width - 1 - x } else { x };
                out.extend((0..channels).map(|c| padded(y + change.down, x + change.right, c)));
            }
        }
        out
    }

    fn levels(channels: usize) -> Vec<[f32; 256]> {
        (0..channels).map(|c| std::array::from_fn(|v| v as f32 + c as f32 * 1000.0)).collect()
    }

    proptest! {
        #[test]
        fn as_padding_and_cutting(
            (height, width, padding) in (1usize..7, 1usize..7, 0usize..9),
            channels in prop_oneof![Just(1usize), Just(3)],
            key: u64, place: u64,
        ) {
            let shape = ImageShape { height, width, channels };
            let pixels: Vec<u8> = (0..shape.values()).map(|i| (i * 37 % 255 + 1) as u8).collect();
            let change = Augment { crop_padding: padding, flip: true }.change(key, place);
            let mut out = vec![f32::NAN; shape.values()];
            change.apply(&levels(channels), shape, &pixels, &mut out);
            let want: Vec<f32> = naive(change, shape, &pixels)
                .iter().enumerate().map(|(i, &v)| f32::from(v) + (i % channels) as f32 * 1000.0).collect();
            prop_assert_eq!(out, want);
        }
    }

    #[test]
    fn changes_are_uniform_and_repeatable() {
        let augment = Augment::default();
        let key = epoch_key(7, 3);
        assert_eq!(key, epoch_key(7, 3));
        assert!(key != epoch_key(7, 4) && key != epoch_key(8, 3));
        let mut counts = [[[0usize; 2]; 9]; 9];
        for place in 0..81 * 2 * 200 {
            let change = augment.change(key, place);
            counts[change.down][change.right][usize::from(change.flip)] += 1;
        }
        // 200 each are expected, with a deviation of 14.
        assert!(counts.iter().flatten().flatten().all(|n| (130..270).contains(n)), "{counts:?}");
        let still = Augment { crop_padding: 0, flip: false }.change(key, 5);
        assert_eq!(still, Change { down: 0, right: 0, padding: 0, flip: false });
    }

    #[test]
    fn too_much_padding_is_refused() {
        let shape = ImageShape { height: 4, width: 8, channels: 1 };
        assert!(Augment::default().check(shape).is_err());
        assert!(Augment { crop_padding: 3, flip: true }.check(shape).is_ok());
        let one = ImageShape { height: 1, width: 1, channels: 1 };
        assert!(Augment { crop_padding: 0, flip: true }.check(one).is_ok());
    }
}
