//! A convolutional network for little compute, after Jordan 2024 (*94% on CIFAR-10 in 3.29 seconds on a single GPU*).
//!
//! Small windows of the image are first decorrelated by a convolution that training leaves as it is ([`whitening`]). Three stages
//! follow, each with two convolutions of 3 x 3 pixels, batch normalization without scales, GELU, and maxima of 2 x 2 pixels. The
//! latent vector is the largest value of each channel, or a linear layer of it.

use super::graph::{Graph, Layer, NormTraining};
use super::params::Params;
use super::resnet::Build;
use crate::error::{Error, Result};
use crate::seed::Stream;

/// The name of the first convolution.
const WHITEN: &str = "whiten";
/// Channels of the three stages, as multiples of those of the first.
const WIDTHS: [usize; 3] = [1, 4, 4];
/// The side of the image after the first convolution, about.
const SIDE: usize = 32;
/// The most directions of a window that are kept. Each gives two channels, with both signs.
const DIRECTIONS: usize = 12;

/// The factor of the pooled features, which keeps the first gradients small.
const SCALE: f32 = 1.0 / 9.0;

/// How its batch normalizations are trained.
const TRAINING: NormTraining = NormTraining { scaled: false, momentum: 0.4, bias_rate: 64 };

/// The network for images of this height, width and number of channels. Its first stage has `first` channels; in that paper 64.
///
/// # Errors
/// If the image is larger than any network takes, or `first` is not from 8 to 4,096.
pub fn cnn(image: [usize; 3], first: usize, latent: Option<usize>) -> Result<Graph> {
    if !(8..=4096).contains(&first) {
        return Err(Error::setting("the first stage must have 8 to 4,096 channels").hint("use cnn, cnn32 or cnn128"));
    }
    let [height, width, channels] = image;
    let (mut build, value) = Build::new(image);
    // A large image is cut into windows that do not overlap.
    let side = height.min(width);
    let stride = (side / SIDE).max(1);
    let kernel = [height, width].map(|length| if stride > 1 { stride } else { length.min(2) });
    let directions = (kernel[0] * kernel[1] * channels).min(DIRECTIONS * if stride > 1 { 2 } else { 1 });
    let layer = Layer::Conv2d {
        inputs: channels,
        outputs: 2 * directions,
        kernel,
        stride,
        padding: 0,
        bias: true,
        frozen: true,
    };
    let value = build.add(WHITEN, layer, &[value]);
    let mut value = build.add(format!("{WHITEN}.gelu"), Layer::Gelu, &[value]);
    let mut inputs = 2 * directions;
    let mut side = kernel.iter().zip([height, width]).map(|(k, length)| length.saturating_sub(*k) / stride + 1).min();
    for (stage, times) in WIDTHS.into_iter().enumerate() {
        let outputs = first * times;
        let name = |part: &str| format!("stage{}.{part}", stage + 1);
        value = build.conv(name("conv1"), value, [inputs, outputs], 3, 1);
        if let Some(long) = side.filter(|&side| side >= 2) {
            value = build.add(name("pool"), Layer::MaxPool { kernel: 2, stride: 2, padding: 0 }, &[value]);
            side = Some(long / 2);
        }
        for part in ["1", "2"] {
            if part == "2" {
                value = build.conv(name("conv2"), value, [outputs; 2], 3, 1);
            }
            let norm = Layer::BatchNorm { features: outputs, training: TRAINING };
            value = build.add(name(&format!("norm{part}")), norm, &[value]);
            value = build.add(name(&format!("gelu{part}")), Layer::Gelu, &[value]);
        }
        inputs = outputs;
    }
    let value = build.add("pool", Layer::GlobalMaxPool, &[value]);
    let value = build.add("scale", Layer::Scale { factor: SCALE }, &[value]);
    build.with_linear(value, inputs, "linear", latent)
}

/// The window of the first convolution of a [`cnn`]: height, width and the distance from one to the next.
pub(crate) fn window(graph: &Graph) -> Option<([usize; 2], usize)> {
    graph.nodes.iter().find(|n| n.name == WHITEN).and_then(|n| match n.layer {
        Layer::Conv2d { kernel, stride, frozen: true, .. } => Some((kernel, stride)),
        _ => None,
    })
}

/// Initial weights of a [`cnn`]. The first convolution has the `directions` and their negatives, each as many values as a window
/// has, channel by channel; zeros where there are too few. The others begin as the identity where they can: output `i` is input
/// `i`; the rest is uniform, as in PyTorch.
pub(crate) fn start(graph: &Graph, directions: &[Vec<f64>], seed: &mut Stream) -> Params {
    let mut params = graph.init(seed);
    let mut at = 0;
    for node in &graph.nodes {
        match node.layer {
            Layer::Conv2d { outputs, frozen: true, .. } => {
                let (weight, half) = (params.get_mut(at), outputs / 2);
                let length = weight.len() / outputs;
                weight.fill(0.0);
                let (plus, minus) = weight.split_at_mut(half * length);
                for (rows, sign) in [(plus, 1.0), (minus, -1.0)] {
                    for (row, direction) in rows.chunks_exact_mut(length).zip(directions) {
                        row.iter_mut().zip(direction).for_each(|(w, d)| *w = (sign * d) as f32);
                    }
                }
            }
            Layer::Conv2d { inputs, outputs, kernel: [height, width], .. } => {
                let length = inputs * height * width;
                let bound = 1.0 / libm::sqrt(length as f64);
                for (i, row) in params.get_mut(at).chunks_exact_mut(length).enumerate().take(outputs) {
                    row.iter_mut().for_each(|w| *w = ((2.0 * seed.uniform() - 1.0) * bound) as f32);
                    if i < inputs {
                        row.fill(0.0);
                        row[(i * height + height / 2) * width + width / 2] = 1.0;
                    }
                }
            }
            _ => {}
        }
        at += node.layer.parameters();
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{ParamSpec, Shape};

    #[test]
    fn it_has_the_shapes_of_the_paper() {
        let graph = cnn([32, 32, 3], 64, Some(10)).unwrap();
        let trained: usize = graph.specs().iter().filter(|s| s.trained).map(ParamSpec::len).sum();
        // Convolutions of 3 x 3, biases of the first one and of the norms, and the last layer.
        let convolutions = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256);
        assert_eq!(trained, convolutions + 24 + 2 * (64 + 256 + 256) + 2560 + 10);
        let shapes = graph.shapes().unwrap();
        assert!(shapes.contains(&Shape::Image([31, 31, 24])) && shapes.contains(&Shape::Image([3, 3, 256])));
        assert_eq!(window(&graph), Some(([2, 2], 1)));
    }

    #[test]
    fn images_of_any_size_give_a_row() {
        for (image, side) in
            [([28, 28, 1], 27), ([64, 64, 3], 32), ([224, 200, 3], 33), ([1, 1, 1], 1), ([3, 40, 1], 2)]
        {
            let graph = cnn(image, 64, None).unwrap();
            let shapes = graph.shapes().unwrap();
            assert_eq!(shapes.last(), Some(&Shape::Row(256)), "{image:?}");
            assert_eq!(shapes[2].image()[1].min(shapes[2].image()[0]), side, "{image:?}");
        }
        assert!(cnn([8, 8, 3], 0, None).is_err() && cnn([0, 8, 3], 64, None).is_err());
    }

    #[test]
    fn it_begins_as_the_identity() {
        let graph = cnn([8, 8, 1], 64, None).unwrap();
        let directions = vec![vec![1.0, 2.0, 3.0, 4.0], vec![0.5; 4]];
        let params = start(&graph, &directions, &mut Stream::new(1, "start"));
        let whiten = params.get(0);
        assert_eq!(whiten.len(), 8 * 4);
        assert_eq!((&whiten[..4], &whiten[16..20]), (&[1.0, 2.0, 3.0, 4.0][..], &[-1.0, -2.0, -3.0, -4.0][..]));
        assert!(whiten[8..16].iter().all(|&w| w == 0.0));
        // The second convolution of a stage has as many inputs as outputs.
        let at = params.specs().iter().position(|s| s.name == "stage1.conv2.weight").unwrap();
        for (i, row) in params.get(at).chunks_exact(64 * 9).enumerate() {
            assert!(row.iter().enumerate().all(|(j, &w)| w == if j == i * 9 + 4 { 1.0 } else { 0.0 }));
        }
    }
}
