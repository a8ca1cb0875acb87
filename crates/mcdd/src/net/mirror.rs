//! Test-time flips: a network that sees each image and its mirror image, and gives the mean of both latent vectors.

use std::sync::Arc;

use super::engine::{InputGradient, Network, NetworkBuffers};
use super::params::Params;
use crate::error::Result;
use crate::onnx::{Builder, Value};

/// The mean of a network's latent vectors for an image and for its mirror image, left to right. `image` has the height, the
/// width and the number of channels of an input.
pub fn with_flips(net: Arc<dyn Network>, image: [usize; 3]) -> Arc<dyn Network> {
    Arc::new(Flipped { net, row: [image[1], image[2]] })
}

struct Flipped {
    net: Arc<dyn Network>,
    /// Width and channels.
    row: [usize; 2],
}

/// Buffers of a thread.
#[derive(Default)]
struct Space {
    inner: NetworkBuffers,
    flipped: Vec<f32>,
    out: Vec<f32>,
}

/// Writes the mirror images of `x` to `out`.
fn flip([width, channels]: [usize; 2], x: &[f32], out: &mut Vec<f32>) {
    out.clear();
    for row in x.chunks_exact(width * channels) {
        row.chunks_exact(channels).rev().for_each(|pixel| out.extend_from_slice(pixel));
    }
}

impl Network for Flipped {
    fn input(&self) -> usize {
        self.net.input()
    }

    fn latent(&self) -> usize {
        self.net.latent()
    }

    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let Space { inner, flipped, out } = buffers.get::<Space>();
        out.clear();
        out.extend_from_slice(self.net.latents(x, inner));
        flip(self.row, x, flipped);
        let other = self.net.latents(flipped, inner);
        out.iter_mut().zip(other).for_each(|(a, b)| *a = 0.5 * (*a + b));
        out
    }

    fn params(&self) -> &Params {
        self.net.params()
    }

    fn to_onnx(&self, graph: &mut Builder, x: Value) -> Result<Vec<Value>> {
        let [width, channels] = self.row;
        let pixels = self.net.input() / (width * channels).max(1);
        let ints = |graph: &mut Builder, values: &[i64]| graph.constant_i64(&[values.len()], values);
        let sides = ints(graph, &[0, pixels as i64, width as i64, channels as i64]);
        let images = graph.op("Reshape", &[x, sides]);
        let [last, before, axis] = [-1, i64::from(i32::MIN), 2].map(|v| ints(graph, &[v]));
        let mirrored = graph.op("Slice", &[images, last, before, axis, last]);
        let row = ints(graph, &[0, self.net.input() as i64]);
        let mirrored = graph.op("Reshape", &[mirrored, row]);
        // Both in one batch.
        let both = graph.concat(&[x, mirrored], 0);
        let layers = self.net.to_onnx(graph, both)?;
        let found = *layers.last().unwrap_or(&both);
        let halves = ints(graph, &[2, -1, self.net.latent() as i64]);
        let found = graph.op("Reshape", &[found, halves]);
        let [first, second] = [0, 1].map(|i| {
            let half = graph.constant_i64(&[], &[i]);
            graph.op("Gather", &[found, half])
        });
        let sum = graph.op("Add", &[first, second]);
        let half = graph.constant_f32(&[], &[0.5]);
        Ok(vec![graph.op("Mul", &[sum, half])])
    }

    fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
        Ok(Arc::new(FlippedGradient { net: self.net.input_gradient()?, row: self.row }))
    }
}

struct FlippedGradient {
    net: Arc<dyn InputGradient>,
    row: [usize; 2],
}

impl InputGradient for FlippedGradient {
    fn input_gradient<'b>(&self, x: &[f32], latent_gradient: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let Space { inner, flipped, out } = buffers.get::<Space>();
        flip(self.row, x, flipped);
        let other = self.net.input_gradient(flipped, latent_gradient, inner);
        flip(self.row, other, out);
        let own = self.net.input_gradient(x, latent_gradient, inner);
        out.iter_mut().zip(own).for_each(|(a, b)| *a = 0.5 * (*a + b));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each channel's values weighted by their column.
    struct Columns;

    impl Network for Columns {
        fn input(&self) -> usize {
            2 * 3 * 2
        }

        fn latent(&self) -> usize {
            2
        }

        fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
            let z = buffers.get::<Vec<f32>>();
            let sum = |image: &[f32], c: usize| (0..6).map(|p| (p % 3) as f32 * image[2 * p + c]).sum::<f32>();
            *z = x.chunks_exact(12).flat_map(|image| [sum(image, 0), sum(image, 1)]).collect();
            z
        }

        fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
            Ok(Arc::new(Columns))
        }
    }

    impl InputGradient for Columns {
        fn input_gradient<'b>(&self, _x: &[f32], dz: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
            let dx = buffers.get::<Vec<f32>>();
            *dx = dz.chunks_exact(2).flat_map(|dz| (0..12).map(|i| (i / 2 % 3) as f32 * dz[i % 2])).collect();
            dx
        }
    }

    #[test]
    fn an_image_and_its_mirror_image_are_the_same() {
        let net = with_flips(Arc::new(Columns), [2, 3, 2]);
        let x: Vec<f32> = (0..24).map(|i| (i * i % 7) as f32).collect();
        let mut mirrored = Vec::new();
        flip([3, 2], &x, &mut mirrored);
        assert_eq!(mirrored[..2], x[4..6]);
        let mut buffers = NetworkBuffers::default();
        let z = net.latents(&x, &mut buffers).to_vec();
        assert_eq!(net.latents(&mirrored, &mut buffers), z);
        // The weights of the columns are 0, 1, 2, and 1 on average.
        let sums = |c: usize| (0..6).map(|p| x[2 * p + c]).sum::<f32>();
        assert_eq!(z[..2], [sums(0), sums(1)]);
        let gradient = net.input_gradient().unwrap();
        assert_eq!(gradient.input_gradient(&x, &[1.0, 2.0, 3.0, 4.0], &mut buffers)[..4], [1.0, 2.0, 1.0, 2.0]);
        assert_eq!((net.input(), net.latent()), (12, 2));
    }
}
