//! The shapes of a graph's values: the one place that checks whether a graph is valid.

use super::graph::{Graph, Layer, Node};
use crate::error::{Error, Result};

/// More than any network needs; a file with more is damaged or hostile.
const MAX_NODES: usize = 10_000;
/// The same for the numbers of a value: a few nodes that double would reach any number.
const MAX_FEATURES: usize = 1 << 28;
/// The same for a tensor of parameters.
const MAX_PARAMETERS: usize = 1 << 32;

/// The shape of one row at some point of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number of features.
    Row(usize),
    /// Height, width and channels; the channels of a pixel are adjacent.
    Image([usize; 3]),
}

impl Shape {
    /// The number of values; does not overflow in a graph that was checked.
    pub fn len(self) -> usize {
        self.checked_len().unwrap_or(usize::MAX)
    }

    /// Whether there are no values.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Features of a row, or channels of a pixel.
    pub fn channels(self) -> usize {
        match self {
            Shape::Row(n) | Shape::Image([_, _, n]) => n,
        }
    }

    /// A row is an image of one pixel.
    pub fn image(self) -> [usize; 3] {
        match self {
            Shape::Row(n) => [1, 1, n],
            Shape::Image(sides) => sides,
        }
    }

    fn with_channels(self, n: usize) -> Shape {
        match self {
            Shape::Row(_) => Shape::Row(n),
            Shape::Image([h, w, _]) => Shape::Image([h, w, n]),
        }
    }

    fn checked_len(self) -> Option<usize> {
        let [h, w, c] = self.image();
        h.checked_mul(w)?.checked_mul(c).filter(|&n| n <= MAX_FEATURES)
    }
}

impl Graph {
    /// The number of latent features.
    ///
    /// # Errors
    /// If a node reads something that does not exist or does not fit.
    pub fn latent(&self) -> Result<usize> {
        self.widths().map(|w| w.last().copied().unwrap_or(self.input))
    }

    /// The number of features of every value, the input first; checks the whole graph.
    ///
    /// # Errors
    /// As for [`Graph::latent`].
    pub fn widths(&self) -> Result<Vec<usize>> {
        Ok(self.shapes()?.into_iter().map(Shape::len).collect())
    }

    /// The shape of every value, the input first; checks the whole graph.
    ///
    /// # Errors
    /// If a node reads something that does not exist or does not fit, or is larger than any network needs.
    pub fn shapes(&self) -> Result<Vec<Shape>> {
        if self.input == 0 || self.nodes.len() > MAX_NODES {
            return Err(Error::format("the network has no input or too many layers"));
        }
        let mut shapes = vec![Shape::Row(self.input)];
        for node in &self.nodes {
            let wrong = |what: &str| Error::format(format!("layer {:?} {what}", node.name));
            let mut inputs = Vec::with_capacity(node.from.len().min(MAX_NODES));
            for &from in &node.from {
                let shape = shapes.get(from).ok_or_else(|| wrong("reads a value that does not exist yet"))?;
                inputs.push(*shape);
            }
            let shape = output(node, &inputs).map_err(wrong)?;
            match shape.checked_len() {
                Some(0) => return Err(wrong("gives an image without pixels")),
                Some(_) => shapes.push(shape),
                None => return Err(wrong("has more features than any network needs")),
            }
        }
        Ok(shapes)
    }
}

/// The number of windows of `kernel` pixels that fit into `length`, `stride` apart.
fn windows(length: usize, kernel: usize, stride: usize) -> usize {
    length.checked_sub(kernel).map_or(0, |rest| rest / stride + 1)
}

/// The shape of a node's output.
fn output(node: &Node, inputs: &[Shape]) -> Result<Shape, &'static str> {
    let no_fit = "does not fit the value it reads";
    let several = matches!(node.layer, Layer::Concat | Layer::Add);
    let Some(&shape) = inputs.first().filter(|_| several || inputs.len() == 1) else {
        return Err("must read one value");
    };
    match node.layer {
        Layer::Bins { ref bins } => match shape {
            Shape::Row(n) if !bins.is_empty() && bins.iter().all(|bin| bin.is_valid(n)) => {
                Ok(Shape::Row(n.saturating_add(bins.len())))
            }
            _ => Err("has a bin that does not fit the value it reads"),
        },
        Layer::Linear { inputs, outputs, bias: _ } if shape == Shape::Row(inputs) && outputs > 0 => {
            small(&[inputs, outputs])?;
            Ok(Shape::Row(outputs))
        }
        Layer::BatchNorm { training, .. }
            if !(training.momentum > 0.0 && training.momentum < 1.0) || training.bias_rate == 0 =>
        {
            Err("has a momentum that is not between 0 and 1, or a rate of 0")
        }
        Layer::BatchNorm { features, .. } if features == shape.channels() => Ok(shape),
        Layer::Clip { limit } if !(limit > 0.0 && limit.is_finite()) => Err("has a limit that is not a number above 0"),
        Layer::Scale { factor } if factor == 0.0 || !factor.is_finite() => {
            Err("has a factor that is 0 or not a number")
        }
        Layer::Relu | Layer::Gelu | Layer::Scale { .. } | Layer::Clip { .. } => Ok(shape),
        Layer::Image { height, width, channels } => {
            let image = Shape::Image([height, width, channels]);
            let fits = matches!(shape, Shape::Row(n) if image.checked_len() == Some(n));
            if fits { Ok(image) } else { Err(no_fit) }
        }
        Layer::Concat => {
            let mut channels = 0usize;
            for other in inputs {
                if other.with_channels(1) != shape.with_channels(1) {
                    return Err("concatenates values that have different sizes");
                }
                channels = channels.saturating_add(other.channels());
            }
            Ok(shape.with_channels(channels))
        }
        Layer::Add if inputs.iter().all(|&other| other == shape) => Ok(shape),
        Layer::Add => Err("adds values that have different shapes"),
        Layer::Conv2d { inputs, outputs, kernel, stride, padding, .. } => {
            let Shape::Image([height, width, channels]) = shape else { return Err(no_fit) };
            if channels != inputs || outputs == 0 || stride == 0 || kernel.contains(&0) {
                return Err(no_fit);
            }
            small(&[inputs, outputs, kernel[0], kernel[1]])?;
            // More padding than that would give pixels that see only zeros.
            if padding >= kernel[0].max(2) || padding >= kernel[1].max(2) {
                return Err("has more padding than its window is wide");
            }
            let [h, w] = [(height, kernel[0]), (width, kernel[1])].map(|(l, k)| windows(l + 2 * padding, k, stride));
            Ok(Shape::Image([h, w, outputs]))
        }
        Layer::AvgPool { kernel, stride } => pooled(shape, kernel, stride, 0, no_fit),
        Layer::MaxPool { kernel, stride, padding } => pooled(shape, kernel, stride, padding, no_fit),
        Layer::GlobalAvgPool | Layer::GlobalMaxPool if matches!(shape, Shape::Image(_)) => {
            Ok(Shape::Row(shape.channels()))
        }
        Layer::GlobalAvgPool | Layer::GlobalMaxPool | Layer::Linear { .. } | Layer::BatchNorm { .. } => Err(no_fit),
    }
}

/// The shape of the windows of an image.
fn pooled(
    shape: Shape,
    kernel: usize,
    stride: usize,
    padding: usize,
    no_fit: &'static str,
) -> Result<Shape, &'static str> {
    let Shape::Image([height, width, channels]) = shape else { return Err(no_fit) };
    if kernel == 0 || stride == 0 {
        return Err(no_fit);
    }
    // As in PyTorch. So the windows are not more than the pixels, and each has some of them.
    if padding > kernel / 2 {
        return Err("has more padding than half of its window");
    }
    let [h, w] = [height, width].map(|side| windows(side.saturating_add(2 * padding), kernel, stride));
    Ok(Shape::Image([h, w, channels]))
}

/// Refuses tensors that no network needs.
fn small(sides: &[usize]) -> Result<(), &'static str> {
    let product = sides.iter().try_fold(1usize, |p, &s| p.checked_mul(s));
    if product.is_some_and(|p| p <= MAX_PARAMETERS) {
        Ok(())
    } else {
        Err("has more parameters than any network needs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(layers: &[Layer]) -> Graph {
        let first = Layer::Image { height: 8, width: 6, channels: 3 };
        let node = |(i, layer): (usize, &Layer)| Node { name: format!("n{i}"), layer: layer.clone(), from: vec![i] };
        Graph { input: 144, nodes: [first].iter().chain(layers).enumerate().map(node).collect() }
    }

    fn conv(inputs: usize, kernel: [usize; 2], stride: usize, padding: usize) -> Layer {
        Layer::Conv2d { inputs, outputs: 4, kernel, stride, padding, bias: false, frozen: false }
    }

    #[test]
    fn images_have_the_shapes_of_pytorch() {
        let graph = image(&[
            conv(3, [3, 3], 1, 1),
            Layer::batch_norm(4),
            Layer::Relu,
            conv(4, [3, 3], 2, 1),
            conv(4, [1, 2], 1, 0),
            Layer::AvgPool { kernel: 2, stride: 2 },
            Layer::GlobalAvgPool,
            Layer::Linear { inputs: 4, outputs: 7, bias: true },
        ]);
        let [a, b] = [[8, 6, 4], [4, 3, 4]].map(Shape::Image);
        let row = Shape::Row;
        let wanted = [row(144), Shape::Image([8, 6, 3]), a, a, a, b, Shape::Image([4, 2, 4]), Shape::Image([2, 1, 4])];
        assert_eq!(graph.shapes().unwrap(), [&wanted[..], &[row(4), row(7)]].concat());
        assert_eq!(graph.latent().unwrap(), 7);
        assert_eq!(graph.specs()[0].shape, [4, 3, 3, 3]);
    }

    #[test]
    fn invalid_graphs_of_images_are_errors() {
        let most = usize::MAX;
        let wrong = [
            conv(2, [3, 3], 1, 1),
            conv(3, [0, 3], 1, 1),
            conv(3, [3, 3], 0, 1),
            conv(3, [3, 3], 1, most),
            conv(3, [most, most], 1, 0),
            conv(3, [9, 3], 1, 0),
            Layer::Conv2d {
                inputs: 3,
                outputs: most,
                kernel: [1, 1],
                stride: 1,
                padding: 0,
                bias: true,
                frozen: false,
            },
            Layer::AvgPool { kernel: 7, stride: 1 },
            Layer::AvgPool { kernel: 0, stride: 1 },
            Layer::AvgPool { kernel: 1, stride: 0 },
            Layer::Linear { inputs: 144, outputs: 3, bias: true },
            Layer::batch_norm(144),
            Layer::Image { height: 8, width: 6, channels: 3 },
        ];
        for layer in wrong {
            assert!(image(std::slice::from_ref(&layer)).shapes().is_err(), "{layer:?}");
        }
        for [height, width, channels] in [[0, 6, 3], [8, 6, 4], [most, most, most], [144, most, 1]] {
            let layer = Layer::Image { height, width, channels };
            let nodes = vec![Node { name: "i".into(), layer, from: vec![0] }];
            assert!(Graph { input: 144, nodes }.shapes().is_err());
        }
        // Values of different sizes are neither added nor concatenated.
        for layer in [Layer::Add, Layer::Concat] {
            let mut graph = image(&[conv(3, [3, 3], 2, 1)]);
            graph.nodes.push(Node { name: "both".into(), layer, from: vec![1, 2] });
            assert!(graph.shapes().is_err());
            graph.nodes[2].from = vec![2, 2];
            assert!(graph.shapes().is_ok());
        }
    }
}
