//! Residual networks (He, Zhang, Ren, Sun 2016) for small images.
//!
//! [`resnet`] is the form for 32 x 32 pixels that Lee et al. 2018 and the authors of Deep-MCDD use: no pooling before the
//! first block, a window of 3 x 3 at the start. [`small_resnet`] is that paper's own family for CIFAR-10 with 6n + 2 layers,
//! with a projection (its option B) where the size changes. Parameters have the names of the common PyTorch code
//! (`conv1`, `layer1.0.bn1`, `layer2.0.shortcut.0`, `linear`).
//! [`classic_resnet`] is the form for 224 x 224 pixels, with a window of 7 x 7 and pooling at the start, with the names of torchvision
//! (`layer2.0.downsample.0`).

use super::graph::{Graph, Layer, Node};
use crate::error::{Error, Result};

/// A graph in progress: each method adds a node and returns the number of its output.
pub(super) struct Build(Graph);

impl Build {
    /// Starts with an image of this height, width and number of channels.
    pub(super) fn new([height, width, channels]: [usize; 3]) -> (Build, usize) {
        let input = height.saturating_mul(width).saturating_mul(channels);
        let mut build = Build(Graph { input, nodes: Vec::new() });
        let image = build.add("image", Layer::Image { height, width, channels }, &[0]);
        (build, image)
    }

    pub(super) fn add(&mut self, name: impl Into<String>, layer: Layer, from: &[usize]) -> usize {
        self.0.nodes.push(Node { name: name.into(), layer, from: from.to_vec() });
        self.0.nodes.len()
    }

    /// A convolution without bias that keeps the size, or halves it with a stride of 2.
    pub(super) fn conv(
        &mut self,
        name: String,
        from: usize,
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
    ) -> usize {
        let [inputs, outputs] = channels;
        let padding = kernel / 2;
        let layer = Layer::Conv2d { inputs, outputs, kernel: [kernel; 2], stride, padding, bias: false, frozen: false };
        self.add(name, layer, &[from])
    }

    pub(super) fn norm(&mut self, name: String, from: usize, features: usize) -> usize {
        self.add(name, Layer::batch_norm(features), &[from])
    }

    pub(super) fn relu(&mut self, name: String, from: usize) -> usize {
        self.add(name, Layer::Relu, &[from])
    }

    /// The mean over the image and, with `latent`, a linear layer called `name` after it.
    pub(super) fn finish(mut self, from: usize, features: usize, name: &str, latent: Option<usize>) -> Result<Graph> {
        let mean = self.add("pool", Layer::GlobalAvgPool, &[from]);
        self.with_linear(mean, features, name, latent)
    }

    /// With `latent`, a linear layer called `name` of a row.
    pub(super) fn with_linear(
        mut self,
        row: usize,
        features: usize,
        name: &str,
        latent: Option<usize>,
    ) -> Result<Graph> {
        if let Some(outputs) = latent {
            self.add(name, Layer::Linear { inputs: features, outputs, bias: true }, &[row]);
        }
        self.0.shapes()?;
        Ok(self.0)
    }
}

/// The number of blocks of each of four stages.
fn blocks_of(depth: usize) -> Result<[usize; 4]> {
    match depth {
        18 => Ok([2, 2, 2, 2]),
        34 => Ok([3, 4, 6, 3]),
        _ => {
            let error = Error::setting(format!("there is no ResNet with four stages and {depth} layers"));
            Err(error.hint("use 18 or 34"))
        }
    }
}

/// Four stages of 64 to 512 channels: 18 or 34 layers. `factor` times as many channels; the latent vector is the mean of each
/// channel, or `latent` features of a linear layer after it.
///
/// # Errors
/// If there is no such depth, or an image cannot have this size.
pub fn resnet(image: [usize; 3], depth: usize, factor: usize, latent: Option<usize>) -> Result<Graph> {
    let blocks = blocks_of(depth)?;
    stages(image, &blocks, 64, factor, latent)
}

/// The form for large images: as [`resnet`], with a window of 7 x 7 that halves the image at the start, and a maximum of 3 x 3 that halves it
/// again. Parameters have torchvision's names.
///
/// # Errors
/// As for [`resnet`].
pub fn classic_resnet(image: [usize; 3], depth: usize, latent: Option<usize>) -> Result<Graph> {
    classic_stages(image, &blocks_of(depth)?, 64, latent)
}

fn classic_stages(image: [usize; 3], blocks: &[usize], first: usize, latent: Option<usize>) -> Result<Graph> {
    let (mut build, value) = Build::new(image);
    let value = build.conv("conv1".into(), value, [image[2], first], 7, 2);
    let value = build.norm("bn1".into(), value, first);
    let value = build.relu("relu".into(), value);
    let value = build.add("maxpool", Layer::MaxPool { kernel: 3, stride: 2, padding: 1 }, &[value]);
    let (value, width) = residual(&mut build, value, blocks, first, "downsample");
    build.finish(value, width, "linear", latent)
}

/// Three stages of 16 to 64 channels: 6n + 2 layers.
///
/// # Errors
/// As for [`resnet`].
pub fn small_resnet(image: [usize; 3], depth: usize, factor: usize, latent: Option<usize>) -> Result<Graph> {
    if depth < 8 || !(depth - 2).is_multiple_of(6) || depth > 1202 {
        let error = Error::setting(format!("there is no ResNet with three stages and {depth} layers"));
        return Err(error.hint("use 8, 20, 32 or 56 (6n + 2)"));
    }
    stages(image, &[(depth - 2) / 6; 3], 16, factor, latent)
}

pub(super) fn stages(
    image: [usize; 3],
    blocks: &[usize],
    first: usize,
    factor: usize,
    latent: Option<usize>,
) -> Result<Graph> {
    if !(1..=64).contains(&factor) {
        return Err(Error::setting("the width factor must be from 1 to 64"));
    }
    let (mut build, value) = Build::new(image);
    let width = first * factor;
    let value = build.conv("conv1".into(), value, [image[2], width], 3, 1);
    let value = build.norm("bn1".into(), value, width);
    let value = build.relu("relu1".into(), value);
    let (value, width) = residual(&mut build, value, blocks, width, "shortcut");
    build.finish(value, width, "linear", latent)
}

/// The stages of residual blocks, each but the first with half the size and twice the channels. Gives the value and its channels.
fn residual(build: &mut Build, from: usize, blocks: &[usize], first: usize, shortcut: &str) -> (usize, usize) {
    let (mut value, mut width) = (from, first);
    for (stage, &count) in blocks.iter().enumerate() {
        for i in 0..count {
            let halves = stage > 0 && i == 0;
            let channels = [width, if halves { 2 * width } else { width }];
            let name = format!("layer{}.{i}", stage + 1);
            value = block(build, &name, shortcut, value, channels, 1 + usize::from(halves));
            width = channels[1];
        }
    }
    (value, width)
}

/// Two convolutions, and the input added to what they give.
fn block(
    build: &mut Build,
    name: &str,
    shortcut: &str,
    from: usize,
    [inputs, outputs]: [usize; 2],
    stride: usize,
) -> usize {
    let named = |part: &str| format!("{name}.{part}");
    let value = build.conv(named("conv1"), from, [inputs, outputs], 3, stride);
    let value = build.norm(named("bn1"), value, outputs);
    let value = build.relu(named("relu1"), value);
    let value = build.conv(named("conv2"), value, [outputs; 2], 3, 1);
    let value = build.norm(named("bn2"), value, outputs);
    let short = if stride == 1 && inputs == outputs {
        from
    } else {
        let short = build.conv(named(&format!("{shortcut}.0")), from, [inputs, outputs], 1, stride);
        build.norm(named(&format!("{shortcut}.1")), short, outputs)
    };
    let sum = build.add(named("add"), Layer::Add, &[value, short]);
    build.relu(named("relu2"), sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{ParamSpec, Shape};

    fn parameters(graph: &Graph) -> usize {
        graph.specs().iter().filter(|s| s.trained).map(ParamSpec::len).sum()
    }

    #[test]
    fn parameter_counts_match_common_pytorch_code() {
        // The counts of the common code for CIFAR-10 with ten outputs.
        let image = [32, 32, 3];
        assert_eq!(parameters(&resnet(image, 18, 1, Some(10)).unwrap()), 11_173_962);
        assert_eq!(parameters(&resnet(image, 34, 1, Some(10)).unwrap()), 21_282_122);
        // 269,722 with shortcuts that cut and pad; the two projections and their normalization are the rest.
        let twenty = small_resnet(image, 20, 1, Some(10)).unwrap();
        assert_eq!(parameters(&twenty), 269_722 + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64);
        let names: Vec<String> = twenty.specs().into_iter().map(|s| s.name).collect();
        for name in ["conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer3.0.shortcut.0.weight"] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        assert!(names.iter().any(|n| n == "layer2.0.shortcut.1.bias") && names.last().unwrap() == "linear.bias");
        assert!(!names.iter().any(|n| n.starts_with("layer1.0.shortcut")));
    }

    /// The counts of torchvision's resnet18 and resnet34, with 1000 classes.
    #[test]
    fn the_classic_form_is_that_of_torchvision() {
        let image = [224, 224, 3];
        assert_eq!(parameters(&classic_resnet(image, 18, Some(1000)).unwrap()), 11_689_512);
        let graph = classic_resnet(image, 34, Some(1000)).unwrap();
        assert_eq!(parameters(&graph), 21_797_672);
        let names: Vec<String> = graph.specs().into_iter().map(|s| s.name).collect();
        for name in ["conv1.weight", "bn1.running_mean", "layer1.2.bn2.weight", "layer4.0.downsample.1.running_var"] {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        assert!(!names.iter().any(|n| n.starts_with("layer1.0.downsample")));
        let sides: Vec<Shape> = graph.shapes().unwrap().into_iter().filter(|s| matches!(s, Shape::Image(_))).collect();
        assert_eq!(sides.last(), Some(&Shape::Image([7, 7, 512])));
        assert!(classic_resnet([1, 1, 1], 18, None).is_ok() && classic_resnet(image, 50, None).is_err());
    }

    /// Latent vectors of PyTorch, from its weights (`scripts/classic_resnet_fixture.py`).
    #[test]
    fn the_classic_form_gives_the_numbers_of_pytorch() {
        use crate::net::{NetworkBuffers, Weights, default_engine};
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/classic_resnet.safetensors");
        let bytes = std::fs::read(path).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let numbers = |name: &str| -> Vec<f32> {
            file.tensor(name).unwrap().data().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
        };
        let (x, wanted) = (numbers("fixture.images"), numbers("fixture.latents"));
        let graph = classic_stages([37, 50, 3], &[1, 2, 1, 1], 4, None).unwrap();
        let weights = Weights::read(std::path::Path::new(path), &graph).unwrap();
        assert_eq!(weights.unused, ["fc.bias", "fc.weight", "fixture.images", "fixture.latents"]);
        let net = default_engine().network(&graph, &weights.params).unwrap();
        let mut buffers = NetworkBuffers::default();
        let found = net.latents(&x, &mut buffers);
        assert_eq!((found.len(), wanted.len()), (3 * 32, 3 * 32));
        for (a, b) in found.iter().zip(&wanted) {
            assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{a} instead of {b}");
        }
    }

    #[test]
    fn images_of_any_size_give_a_row() {
        for image in [[1, 1, 1], [5, 7, 2], [28, 28, 1], [33, 17, 4]] {
            let graph = small_resnet(image, 8, 1, None).unwrap();
            assert_eq!(graph.shapes().unwrap().last(), Some(&Shape::Row(64)));
            assert_eq!(resnet(image, 18, 2, Some(5)).unwrap().latent().unwrap(), 5);
        }
        assert!(small_resnet([0, 3, 3], 8, 1, None).is_err());
        assert!(small_resnet([usize::MAX, 3, 3], 8, 1, None).is_err());
        assert!(small_resnet([8, 8, 3], 9, 1, None).is_err() && resnet([8, 8, 3], 50, 1, None).is_err());
        assert!(small_resnet([8, 8, 3], 8, 0, None).is_err());
    }
}
