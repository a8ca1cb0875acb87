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
    /// An image is moved by up to so many pixels each way.
    pub crop_padding: usize,
    /// What comes in at the borders.
    #[serde(default, skip_serializing_if = "Border::is_black")]
    pub border: Border,
    /// Whether an image is mirrored, left to right, half of the time.
    pub flip: bool,
    /// Whether an image is mirrored in every other epoch, instead of at random.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alternate: bool,
}

/// What comes in at the borders of an image that is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Border {
    /// Black, as from padding before normalization.
    #[default]
    Black,
    /// The image itself, mirrored at the pixels of its border.
    Reflect,
}

impl Border {
    fn is_black(&self) -> bool {
        *self == Border::Black
    }
}

impl Default for Augment {
    /// What is usual for CIFAR.
    fn default() -> Self {
        Augment { crop_padding: 4, border: Border::Black, flip: true, alternate: false }
    }
}

/// What happens to one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// How far the upper left corner lies below and to the right of the padded image's.
    pub down: usize,
    pub right: usize,
    pub padding: usize,
    pub border: Border,
    pub flip: bool,
}

/// What the changes of an epoch depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EpochKey {
    epoch: u64,
    /// The same in all epochs.
    run: u64,
    odd: bool,
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

    /// The change of image `index` at a place of an epoch.
    pub(super) fn change(&self, key: EpochKey, place: u64, index: u64) -> Change {
        let mut bits = Bits(key.epoch ^ mix(place));
        let ways = self.crop_padding * 2 + 1;
        let (down, right) = (bits.below(ways), bits.below(ways));
        let flip = match self.alternate {
            false => bits.next() >> 63 == 1,
            true => (Bits(key.run ^ mix(index)).next() >> 63 == 1) != key.odd,
        };
        Change { down, right, padding: self.crop_padding, border: self.border, flip: self.flip && flip }
    }
}

/// The key of an epoch's changes. A stream for each image would cost more than the image itself.
pub(super) fn epoch_key(seed: u64, epoch: usize) -> EpochKey {
    let key = |name: &str| Stream::new(seed, name).next_u64();
    EpochKey { epoch: key(&format!("augment/{epoch}")), run: key("augment/flips"), odd: epoch % 2 == 1 }
}

/// The number of a row or column `at` beyond the border, mirrored at the border; `length` is that of the image.
fn reflected(at: isize, length: usize) -> usize {
    let last = length as isize - 1;
    let at = at.abs();
    (if at > last { 2 * last - at } else { at }).clamp(0, last) as usize
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
        let Change { down, right, padding, border, flip } = self;
        let ImageShape { height, width, channels } = shape;
        if border == Border::Reflect {
            let place = |at: usize, by: usize, length| reflected((at + by) as isize - padding as isize, length);
            for (y, row) in out.chunks_exact_mut(width * channels).enumerate() {
                let from = &pixels[place(y, down, height) * width * channels..][..width * channels];
                for (x, to) in row.chunks_exact_mut(channels).enumerate() {
                    let x = if flip { width - 1 - x } else { x };
                    normalize(levels, &from[place(x, right, width) * channels..][..channels], to);
                }
            }
            return;
        }
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
            if change.border == Border::Reflect {
                // Without repeating the border: 2 1 | 0 1 2 3 | 2 1.
                let mirror = |at: usize, n: usize| {
                    let ring: Vec<usize> = (0..n).chain((1..n.max(2) - 1).rev()).collect();
                    ring[(at + ring.len() * 9 - p) % ring.len()]
                };
                return pixels[(mirror(y, height) * width + mirror(x, width)) * channels + c];
            }
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
            (seed, epoch, place, reflect) in (any::<u64>(), 0usize..9, any::<u64>(), any::<bool>()),
        ) {
            let border = if reflect { Border::Reflect } else { Border::Black };
            let shape = ImageShape { height, width, channels };
            let pixels: Vec<u8> = (0..shape.values()).map(|i| (i * 37 % 255 + 1) as u8).collect();
            prop_assume!(padding < height.min(width) || padding == 0 || !reflect);
            let augment = Augment { crop_padding: padding, border, ..Augment::default() };
            let change = augment.change(epoch_key(seed, epoch), place, 0);
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
            let change = augment.change(key, place, 0);
            counts[change.down][change.right][usize::from(change.flip)] += 1;
        }
        // 200 each are expected, with a deviation of 14.
        assert!(counts.iter().flatten().flatten().all(|n| (130..270).contains(n)), "{counts:?}");
        let still = Augment { crop_padding: 0, flip: false, ..augment }.change(key, 5, 5);
        assert_eq!(still, Change { down: 0, right: 0, padding: 0, border: Border::Black, flip: false });
    }

    #[test]
    fn alternating_images_are_mirrored_in_every_other_epoch() {
        let augment = Augment { alternate: true, ..Augment::default() };
        let flips = |epoch| (0..1000).map(|i| augment.change(epoch_key(3, epoch), 999 - i, i).flip).collect::<Vec<_>>();
        let first = flips(0);
        assert!((400..600).contains(&first.iter().filter(|f| **f).count()));
        assert_eq!(flips(1), first.iter().map(|f| !f).collect::<Vec<_>>());
        assert_eq!(flips(2), first);
    }

    #[test]
    fn too_much_padding_is_refused() {
        let shape = ImageShape { height: 4, width: 8, channels: 1 };
        assert!(Augment::default().check(shape).is_err());
        assert!(Augment { crop_padding: 3, ..Augment::default() }.check(shape).is_ok());
        let one = ImageShape { height: 1, width: 1, channels: 1 };
        assert!(Augment { crop_padding: 0, ..Augment::default() }.check(one).is_ok());
    }
}
