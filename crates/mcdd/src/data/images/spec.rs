//! From bytes to a network's inputs: each channel to mean 0 and deviation 1 over the training images.

use serde::{Deserialize, Serialize};

use super::memory::Images;
use super::shape::{ImageShape, MAX_SIDE};
use crate::error::{Error, Result};

/// The shape of a model's images and their normalization, as a model file keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// Rows of pixels.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Values of a pixel.
    pub channels: usize,
    /// The mean of each channel, of values from 0 to 1.
    pub mean: Vec<f32>,
    /// The deviation of each channel (divisor n), of values from 0 to 1; 1 for a channel that is constant.
    pub std: Vec<f32>,
}

/// For each channel the normalized value of each byte.
pub(super) type Levels = Vec<[f32; 256]>;

impl ImageSpec {
    /// Means and deviations of the images with these indices.
    ///
    /// # Errors
    /// If there are no rows, or an index is not below [`Images::rows`].
    pub fn fit(images: &Images, rows: &[usize]) -> Result<ImageSpec> {
        if rows.is_empty() || rows.iter().any(|&row| row >= images.rows()) {
            return Err(
                Error::data("there are no images to compute the normalization from").hint("give at least one image")
            );
        }
        let ImageShape { height, width, channels } = images.shape();
        // Integers have no rounding, so the order of rows does not matter.
        let mut counts = vec![[0u64; 256]; channels];
        for &row in rows {
            for pixel in images.image(row).chunks_exact(channels) {
                for (count, &value) in counts.iter_mut().zip(pixel) {
                    count[usize::from(value)] += 1;
                }
            }
        }
        let total = (rows.len() * height * width) as f64;
        let (mut mean, mut std) = (Vec::new(), Vec::new());
        for count in &counts {
            let sum: u64 = count.iter().zip(0u64..).map(|(n, value)| n * value).sum();
            let center = sum as f64 / total;
            let square =
                |(n, value): (&u64, u32)| *n as f64 * (f64::from(value) - center) * (f64::from(value) - center);
            let variance = count.iter().zip(0u32..).map(square).sum::<f64>() / total;
            let constant = count.iter().filter(|n| **n > 0).count() == 1;
            mean.push((center / 255.0) as f32);
            std.push(if constant { 1.0 } else { (libm::sqrt(variance) / 255.0) as f32 });
        }
        Ok(ImageSpec { height, width, channels, mean, std })
    }

    /// The shape of the images.
    pub fn shape(&self) -> ImageShape {
        ImageShape { height: self.height, width: self.width, channels: self.channels }
    }

    /// Checks values from a file or a user.
    ///
    /// # Errors
    /// If a size, a mean or a deviation is out of range.
    pub fn validate(&self) -> Result<()> {
        let sides = 1..=MAX_SIDE;
        if !sides.contains(&self.height) || !sides.contains(&self.width) || !matches!(self.channels, 1 | 3) {
            return Err(Error::format(format!("invalid image shape {}x{}x{}", self.height, self.width, self.channels)));
        }
        if self.mean.len() != self.channels || self.std.len() != self.channels {
            return Err(Error::format("there must be a mean and a deviation for each channel"));
        }
        // The least deviation of bytes that fit in memory is some 1e-8.
        let fits = |m: &f32, s: &f32| (-1e3..=1e3).contains(m) && (1e-9..=1e3).contains(s);
        if !self.mean.iter().zip(&self.std).all(|(m, s)| fits(m, s)) {
            return Err(Error::format("a channel's mean or deviation is out of range"));
        }
        Ok(())
    }

    /// The normalized value of each byte: one rounding from double precision.
    pub(super) fn levels(&self) -> Levels {
        let level =
            |value: usize, mean: f32, std: f32| ((value as f64 / 255.0 - f64::from(mean)) / f64::from(std)) as f32;
        self.mean.iter().zip(&self.std).map(|(&m, &s)| std::array::from_fn(|v| level(v, m, s))).collect()
    }

    /// Normalizes whole images.
    ///
    /// # Panics
    /// If the lengths differ, or are not those of whole images.
    pub fn transform_into(&self, pixels: &[u8], out: &mut [f32]) {
        assert!(pixels.len() == out.len() && pixels.len().is_multiple_of(self.shape().values().max(1)));
        normalize(&self.levels(), pixels, out);
    }
}

/// Bytes by their levels; both begin with the first channel.
pub(super) fn normalize(levels: &[[f32; 256]], pixels: &[u8], out: &mut [f32]) {
    match levels {
        [gray] => out.iter_mut().zip(pixels).for_each(|(out, &v)| *out = gray[usize::from(v)]),
        [red, green, blue] => {
            for (out, pixel) in out.chunks_exact_mut(3).zip(pixels.chunks_exact(3)) {
                out[0] = red[usize::from(pixel[0])];
                out[1] = green[usize::from(pixel[1])];
                out[2] = blue[usize::from(pixel[2])];
            }
        }
        _ => unreachable!("images have one or three channels"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn images(pixels: Vec<u8>, channels: usize) -> Images {
        Images::from_pixels(pixels, ImageShape { height: 2, width: 2, channels }, None::<&[&str]>).unwrap()
    }

    proptest! {
        #[test]
        fn as_the_definition_says(pixels in proptest::collection::vec(any::<u8>(), 3 * 12..=3 * 12)) {
            let all = images(pixels.clone(), 3);
            let spec = ImageSpec::fit(&all, &[0, 2]).unwrap();
            for c in 0..3 {
                let values: Vec<f64> =
                    [&pixels[..12], &pixels[24..]].concat()[c..].iter().step_by(3).map(|&v| f64::from(v) / 255.0).collect();
                let mean = values.iter().sum::<f64>() / 8.0;
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 8.0;
                prop_assert!((f64::from(spec.mean[c]) - mean).abs() < 1e-6);
                if variance > 0.0 {
                    prop_assert!((f64::from(spec.std[c]) - variance.sqrt()).abs() < 1e-6);
                }
                let mut out = vec![0.0; 36];
                spec.transform_into(&pixels, &mut out);
                for row in 0..12 {
                    let (m, s) = (f64::from(spec.mean[c]), f64::from(spec.std[c]));
                    let want = (f64::from(pixels[row * 3 + c]) / 255.0 - m) / s;
                    prop_assert!((f64::from(out[row * 3 + c]) - want).abs() <= 1e-6 * want.abs());
                }
            }
            spec.validate().unwrap();
        }
    }

    #[test]
    fn a_constant_channel_is_zero() {
        let all = images(vec![7; 8], 1);
        let spec = ImageSpec::fit(&all, &[0, 1]).unwrap();
        assert_eq!(spec.std, [1.0]);
        let mut out = [1.0; 4];
        spec.transform_into(all.image(0), &mut out);
        assert!(out.iter().all(|v| v.abs() < 1e-7), "{out:?}");
        assert!(ImageSpec::fit(&all, &[]).is_err() && ImageSpec::fit(&all, &[2]).is_err());
    }

    #[test]
    fn hostile_values_are_refused() {
        let good = ImageSpec { height: 2, width: 3, channels: 1, mean: vec![0.5], std: vec![0.2] };
        good.validate().unwrap();
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<ImageSpec>(&text).unwrap(), good);
        for bad in [
            ImageSpec { height: 0, ..good.clone() },
            ImageSpec { width: usize::MAX, ..good.clone() },
            ImageSpec { channels: 2, mean: vec![0.0; 2], std: vec![1.0; 2], ..good.clone() },
            ImageSpec { mean: vec![], ..good.clone() },
            ImageSpec { mean: vec![f32::NAN], ..good.clone() },
            ImageSpec { std: vec![0.0], ..good.clone() },
            ImageSpec { std: vec![-1.0], ..good.clone() },
            ImageSpec { std: vec![1e-40], ..good.clone() },
            ImageSpec { std: vec![f32::INFINITY], ..good.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
