//! Initial weights that depend on the training images.

use crate::data::{ImageSpec, Images};
use crate::net::cnn;
use crate::net::{Graph, Params};
use crate::seed::Stream;
use crate::stats::Eigen;

/// The most images that windows are taken from.
const IMAGES: usize = 5000;
/// Added to the variance of a direction of windows, so that those without contrast are not enlarged without limit.
const FLOOR: f64 = 5e-4;

/// The initial weights of a network whose first convolution decorrelates windows of the images; none for others, which begin at
/// random.
pub(crate) fn initial_weights(
    graph: &Graph,
    images: &Images,
    rows: &[usize],
    spec: &ImageSpec,
    seed: u64,
) -> Option<Params> {
    let (kernel, stride) = cnn::window(graph)?;
    let directions = directions(images, rows, spec, kernel, stride);
    Some(cnn::start(graph, &directions, &mut Stream::new(seed, "init/net/0")))
}

/// The eigenvectors of the second moments of windows, divided by the deviation in their direction, the largest first.
fn directions(images: &Images, rows: &[usize], spec: &ImageSpec, kernel: [usize; 2], stride: usize) -> Vec<Vec<f64>> {
    let shape = spec.shape();
    let n = kernel[0] * kernel[1] * shape.channels;
    let mut sums = vec![0.0f64; n * n];
    let (mut count, mut x, mut window) = (0.0, vec![0.0f32; shape.values()], vec![0.0f64; n]);
    for &row in rows.iter().take(IMAGES) {
        spec.transform_into(images.image(row), &mut x);
        for top in (0..=shape.height - kernel[0]).step_by(stride) {
            for left in (0..=shape.width - kernel[1]).step_by(stride) {
                for (i, value) in window.iter_mut().enumerate() {
                    let (channel, ky, kx) = (i / (kernel[0] * kernel[1]), i / kernel[1] % kernel[0], i % kernel[1]);
                    *value = f64::from(x[((top + ky) * shape.width + left + kx) * shape.channels + channel]);
                }
                for (sums, a) in sums.chunks_exact_mut(n).zip(&window) {
                    sums.iter_mut().zip(&window).for_each(|(sum, b)| *sum += a * b);
                }
                count += 1.0;
            }
        }
    }
    sums.iter_mut().for_each(|sum| *sum /= f64::max(count, 1.0));
    let eigen = Eigen::of(&sums, n);
    let scaled = |i: usize| {
        let factor = 1.0 / libm::sqrt(eigen.values[i].max(0.0) + FLOOR);
        eigen.vector(i).iter().map(|v| v * factor).collect()
    };
    (0..n).map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ImageShape;

    #[test]
    fn windows_become_uncorrelated() {
        let shape = ImageShape { height: 9, width: 8, channels: 3 };
        let mut seed = Stream::new(1, "windows");
        // Neighbors and channels depend on each other.
        let mut level = 128.0;
        let pixels: Vec<u8> = (0..40 * shape.values())
            .map(|_| {
                level = 0.8 * level + 0.2 * 255.0 * seed.uniform();
                level as u8
            })
            .collect();
        let images = Images::from_pixels::<&str>(&pixels, shape, None).unwrap();
        let rows: Vec<usize> = (0..40).collect();
        let spec = ImageSpec::fit(&images, &rows).unwrap();
        let found = directions(&images, &rows, &spec, [2, 2], 1);
        assert_eq!(found.len(), 12);
        // The second moments of the products with windows are the identity, but for the floor.
        let mut moments = vec![0.0; 144];
        let (mut count, mut x) = (0.0, vec![0.0f32; shape.values()]);
        for &row in &rows {
            spec.transform_into(images.image(row), &mut x);
            for (top, left) in (0..8).flat_map(|top| (0..7).map(move |left| (top, left))) {
                let at = |i: usize| f64::from(x[((top + i / 2 % 2) * 8 + left + i % 2) * 3 + i / 4]);
                let y: Vec<f64> = found.iter().map(|d| d.iter().enumerate().map(|(i, w)| w * at(i)).sum()).collect();
                (0..144).for_each(|ij| moments[ij] += y[ij / 12] * y[ij % 12]);
                count += 1.0;
            }
        }
        for (ij, moment) in moments.iter().enumerate() {
            let wanted = if ij / 12 == ij % 12 { 1.0 } else { 0.0 };
            assert!((moment / count - wanted).abs() < 0.05, "{ij}: {}", moment / count);
        }
    }
}
