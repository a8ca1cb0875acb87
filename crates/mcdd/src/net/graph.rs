//! A network as a value: a list of layers that any engine can run.

use serde::{Deserialize, Serialize};

use super::params::{ParamSpec, Params, reverse_axes};
use crate::error::{Error, Result};
use crate::seed::Stream;

/// The operation of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "op")]
#[non_exhaustive]
pub enum Layer {
    /// `y = x W^T + b`.
    ///
    /// # Shapes
    /// input `[n, inputs]`, output `[n, outputs]`; parameters `weight [outputs, inputs]` and, if any, `bias [outputs]`.
    Linear {
        /// The number of input features.
        inputs: usize,
        /// The number of output features.
        outputs: usize,
        /// Whether there is a bias (there must not be one with Deep-SVDD).
        bias: bool,
    },
    /// `max(x, 0)`; same shape.
    Relu,
    /// `x P(X <= x)` for a standard normal `X`; same shape.
    Gelu,
    /// `weight (x - mean) / sqrt(variance + 1e-5) + bias`, feature by feature; same shape. In training, mean and variance are
    /// those of the batch, afterwards their running means: parameters `weight`, `bias`, `running_mean`
    /// and `running_var`, each `[features]`, as in PyTorch.
    BatchNorm {
        /// The number of features.
        features: usize,
        /// How it is trained.
        #[serde(default, skip_serializing_if = "NormTraining::is_default")]
        training: NormTraining,
    },
    /// `factor x`; same shape.
    Scale {
        /// Not 0.
        factor: f32,
    },
    /// Values clipped to `±limit`; same shape.
    Clip {
        /// Above 0.
        limit: f32,
    },
    /// The values it reads, followed by a piecewise-linear code of some of them: for each bin `(x - low) / (high - low)`,
    /// clipped to 0 and 1.
    Bins {
        /// At least one.
        bins: Vec<Bin>,
    },
    /// The concatenation of the values it reads. Images are concatenated channel by channel and must have the same height and
    /// width.
    Concat,
    /// A row read as an image: pixel by pixel from the upper left, line after line, the channels of a pixel together.
    Image {
        /// Pixels from top to bottom.
        height: usize,
        /// Pixels from left to right.
        width: usize,
        /// Values of a pixel.
        channels: usize,
    },
    /// A convolution over a zero-padded image.
    ///
    /// # Shapes
    /// input `[h, w, inputs]`, output `[(h + 2 padding - kernel) / stride + 1, the same for w, outputs]`; parameters
    /// `weight [outputs, inputs, kernel]` and, if any, `bias [outputs]`.
    Conv2d {
        /// The number of input channels.
        inputs: usize,
        /// The number of output channels.
        outputs: usize,
        /// Height and width of the window.
        kernel: [usize; 2],
        /// Pixels from one window to the next, in both directions.
        stride: usize,
        /// Pixels of zeros on each side.
        padding: usize,
        /// Whether there is a bias.
        bias: bool,
        /// Whether training leaves the weight as it is; the bias is trained.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        frozen: bool,
    },
    /// The mean of each channel in windows of an image; pixels that do not fill a window are left out.
    AvgPool {
        /// Height and width of a window.
        kernel: usize,
        /// Pixels from one window to the next.
        stride: usize,
    },
    /// The largest value of each channel in windows of an image; pixels that do not fill a window are left out.
    MaxPool {
        /// Height and width of a window.
        kernel: usize,
        /// Pixels from one window to the next.
        stride: usize,
        /// Pixels on each side that windows may reach beyond the image, and that are not counted.
        #[serde(default, skip_serializing_if = "is_zero")]
        padding: usize,
    },
    /// The mean of each channel over the whole image, as a row.
    GlobalAvgPool,
    /// The largest value of each channel over the whole image, as a row.
    GlobalMaxPool,
    /// The sum of the values it reads, which have the same shape.
    Add,
}

/// A part of the range of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(usize, f32, f32)", into = "(usize, f32, f32)")]
pub struct Bin {
    /// The number of the feature, from 0.
    pub feature: usize,
    /// Its code is 0 up to here.
    pub low: f32,
    /// Its code is 1 from here on; above `low`.
    pub high: f32,
}

impl From<(usize, f32, f32)> for Bin {
    fn from((feature, low, high): (usize, f32, f32)) -> Bin {
        Bin { feature, low, high }
    }
}

impl From<Bin> for (usize, f32, f32) {
    fn from(Bin { feature, low, high }: Bin) -> Self {
        (feature, low, high)
    }
}

impl Bin {
    /// The increase of the code within the bin.
    pub(crate) fn slope(self) -> f32 {
        1.0 / (self.high - self.low)
    }

    /// Whether it is a part of one of so many features.
    pub(crate) fn is_valid(self, features: usize) -> bool {
        self.feature < features && self.low < self.high && self.slope().is_finite() && self.slope() > 0.0
    }
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// How a batch normalization is trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NormTraining {
    /// Whether the weight is trained; else it stays 1.
    pub scaled: bool,
    /// How far the running mean and variance move towards those of a batch, in `0..1`.
    pub momentum: f32,
    /// The factor of the bias's gradient, at least 1.
    pub bias_rate: u32,
}

impl Default for NormTraining {
    /// As in PyTorch.
    fn default() -> Self {
        NormTraining { scaled: true, momentum: 0.1, bias_rate: 1 }
    }
}

impl NormTraining {
    /// Whether it is as in PyTorch.
    pub fn is_default(&self) -> bool {
        *self == NormTraining::default()
    }
}

/// A layer with its name and where its input comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The name, which parameter names begin with.
    pub name: String,
    /// What it computes.
    #[serde(flatten)]
    pub layer: Layer,
    /// The values it reads: 0 is the network's input, `i + 1` the output of node `i`.
    pub from: Vec<usize>,
}

/// A network: nodes in the order in which they are computed; the last one's output is the latent vector. Without nodes
/// the latent vector is the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// The number of values of an input row.
    pub input: usize,
    /// The layers.
    pub nodes: Vec<Node>,
}

/// Parameters that batch normalization has.
const NORM_PARAMETERS: usize = 4;

impl Graph {
    /// The parameters, without values.
    pub fn specs(&self) -> Vec<ParamSpec> {
        let mut specs = Vec::new();
        for node in &self.nodes {
            let mut spec = |part: &str, shape: Vec<usize>, weight: bool, trained: bool| {
                let name = format!("{}.{part}", node.name);
                let rate = match (part, &node.layer) {
                    ("bias", Layer::BatchNorm { training, .. }) => training.bias_rate,
                    _ => 1,
                };
                specs.push(ParamSpec { name, shape, decay: weight, trained, rate });
            };
            match node.layer {
                Layer::Linear { inputs, outputs, bias } => {
                    spec("weight", vec![outputs, inputs], true, true);
                    if bias {
                        spec("bias", vec![outputs], false, true);
                    }
                }
                Layer::Conv2d { inputs, outputs, kernel: [height, width], bias, frozen, .. } => {
                    spec("weight", vec![outputs, inputs, height, width], true, !frozen);
                    if bias {
                        spec("bias", vec![outputs], false, true);
                    }
                }
                Layer::BatchNorm { features, training } => {
                    let trained =
                        [("weight", training.scaled), ("bias", true), ("running_mean", false), ("running_var", false)];
                    for (part, trained) in trained {
                        spec(part, vec![features], false, trained);
                    }
                }
                _ => {}
            }
        }
        specs
    }

    /// The number of nodes up to the end of each layer, including its activation.
    pub fn layer_ends(&self) -> Vec<usize> {
        let begins = |i: &usize| self.nodes[*i].layer.is_linear();
        (0..self.nodes.len()).filter(begins).skip(1).chain([self.nodes.len()]).collect()
    }

    /// The same network without biases.
    pub fn without_bias(mut self) -> Graph {
        for node in &mut self.nodes {
            if let Some(bias) = node.layer.bias_mut() {
                *bias = false;
            }
        }
        self
    }

    /// Whether it has batch normalization, so that the rows of a training batch affect each other.
    pub fn has_batch_norm(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.layer, Layer::BatchNorm { .. }))
    }

    /// The limit that its input is clipped at, if it is.
    pub fn clip(&self) -> Option<f32> {
        match self.nodes.first()?.layer {
            Layer::Clip { limit } => Some(limit),
            _ => None,
        }
    }

    /// The same network with a code of its inputs in bins beside them; a network whose layers follow each other.
    pub fn with_bins(mut self, bins: Vec<Bin>) -> Graph {
        let (at, codes) = (usize::from(self.clip().is_some()), bins.len());
        for node in &mut self.nodes[at..] {
            node.from.iter_mut().for_each(|from| *from += 1);
        }
        let first = self.nodes.iter_mut().find_map(|n| match &mut n.layer {
            Layer::Linear { inputs, .. } => Some(inputs),
            _ => None,
        });
        if let Some(inputs) = first {
            *inputs += codes;
        }
        self.nodes.insert(at, Node { name: "bins".into(), layer: Layer::Bins { bins }, from: vec![at] });
        self
    }

    /// Whether its input is an image.
    pub fn is_image(&self) -> bool {
        self.nodes.first().is_some_and(|n| matches!(n.layer, Layer::Image { .. }))
    }

    /// Parameters with Xavier-uniform weights (normal ones of variance 2 / (outputs * kernel) for convolutions, as He et
    /// al. 2015) and zero biases; batch normalization begins with weights of 1.
    pub fn init(&self, seed: &mut Stream) -> Params {
        let mut params = Params::new(self.specs());
        let mut at = 0;
        for node in &self.nodes {
            match node.layer {
                // Weights are drawn in the order kernel, inputs, outputs.
                Layer::Linear { inputs, outputs, .. } => {
                    let mut drawn = vec![0.0; inputs * outputs];
                    xavier(&mut drawn, inputs, outputs, seed);
                    reverse_axes(&drawn, [1, inputs, outputs], params.get_mut(at));
                }
                Layer::Conv2d { inputs, outputs, kernel: [height, width], .. } => {
                    let deviation = libm::sqrt(2.0 / (outputs * height * width) as f64);
                    let count = height * width * inputs * outputs;
                    let drawn: Vec<f32> = (0..count).map(|_| (seed.normal() * deviation) as f32).collect();
                    reverse_axes(&drawn, [height * width, inputs, outputs], params.get_mut(at));
                }
                Layer::BatchNorm { .. } => {
                    params.get_mut(at).fill(1.0);
                    params.get_mut(at + 3).fill(1.0);
                }
                _ => {}
            }
            at += node.layer.parameters();
        }
        params
    }

    /// The same network for prediction, with each batch normalization merged into the linear layer before it.
    ///
    /// # Errors
    /// If one follows something else, or the graph is invalid.
    pub fn folded(&self, params: &Params) -> Result<(Graph, Params)> {
        let (graph, folded) = self.folded_where_it_can(params)?;
        match graph.nodes.iter().find(|n| matches!(n.layer, Layer::BatchNorm { .. })) {
            None => Ok((graph, folded)),
            Some(node) => {
                let what = format!("layer {:?}: batch normalization must follow a linear layer", node.name);
                Err(Error::format(what))
            }
        }
    }

    /// The same network with each batch normalization merged into the linear layer or convolution before it, where that is
    /// possible; others stay.
    ///
    /// # Errors
    /// If the graph is invalid.
    pub fn folded_where_it_can(&self, params: &Params) -> Result<(Graph, Params)> {
        self.widths()?;
        let mut graph = Graph { input: self.input, nodes: Vec::new() };
        let mut tensors: Vec<Vec<f32>> = Vec::new();
        // The number in the new graph of each value of this one.
        let mut moved = vec![0];
        let mut readers = vec![0usize; self.nodes.len() + 1];
        self.nodes.iter().flat_map(|n| &n.from).for_each(|&f| readers[f] += 1);
        let mut at = 0;
        for (i, node) in self.nodes.iter().enumerate() {
            let count = node.layer.parameters();
            let foldable = node.from == [i] && i > 0 && self.nodes[i - 1].layer.is_linear() && readers[i] == 1;
            match (&node.layer, graph.nodes.last_mut().and_then(|n| n.layer.bias_mut())) {
                (&Layer::BatchNorm { features, .. }, Some(bias)) if foldable => {
                    let before = if *bias { tensors.pop() } else { None }.unwrap_or_else(|| vec![0.0; features]);
                    *bias = true;
                    let [weight, shift, mean, variance] = [0, 1, 2, 3].map(|j| params.get(at + j));
                    let scale: Vec<f64> =
                        weight.iter().zip(variance).map(|(&w, &v)| f64::from(w) * inverse_deviation(v)).collect();
                    if let Some(matrix) = tensors.last_mut() {
                        let inputs = matrix.len() / features;
                        for (row, s) in matrix.chunks_exact_mut(inputs.max(1)).zip(&scale) {
                            row.iter_mut().for_each(|w| *w = (f64::from(*w) * s) as f32);
                        }
                    }
                    let bias = before.iter().zip(mean).zip(shift).zip(&scale);
                    let moved = bias.map(|(((&b, &m), &h), s)| f64::from(h) + (f64::from(b) - f64::from(m)) * s);
                    tensors.push(moved.map(|v| v as f32).collect());
                }
                _ => {
                    let from = node.from.iter().map(|&f| moved[f]).collect();
                    graph.nodes.push(Node { from, ..node.clone() });
                    tensors.extend((at..at + count).map(|j| params.get(j).to_vec()));
                }
            }
            at += count;
            moved.push(graph.nodes.len());
        }
        let mut folded = Params::new(graph.specs());
        folded.data = tensors.concat();
        Ok((graph, folded))
    }
}

impl Layer {
    /// A batch normalization that is trained as in PyTorch.
    pub fn batch_norm(features: usize) -> Layer {
        Layer::BatchNorm { features, training: NormTraining::default() }
    }

    fn is_linear(&self) -> bool {
        matches!(self, Layer::Linear { .. } | Layer::Conv2d { .. })
    }

    /// The number of its parameter tensors.
    pub(crate) fn parameters(&self) -> usize {
        match self {
            Layer::Linear { bias, .. } | Layer::Conv2d { bias, .. } => 1 + usize::from(*bias),
            Layer::BatchNorm { .. } => NORM_PARAMETERS,
            _ => 0,
        }
    }

    fn bias_mut(&mut self) -> Option<&mut bool> {
        match self {
            Layer::Linear { bias, .. } | Layer::Conv2d { bias, .. } => Some(bias),
            _ => None,
        }
    }
}

/// Added to a variance before its root is taken, as in PyTorch.
const EPS: f64 = 1e-5;

/// `1 / sqrt(variance + 1e-5)`.
pub(crate) fn inverse_deviation(variance: f32) -> f64 {
    1.0 / libm::sqrt(f64::from(variance).max(0.0) + EPS)
}

/// Fills `values` uniformly within ±sqrt(6 / (inputs + outputs)).
pub fn xavier(values: &mut [f32], inputs: usize, outputs: usize, seed: &mut Stream) {
    let bound = libm::sqrt(6.0 / (inputs + outputs) as f64);
    for v in values {
        *v = ((2.0 * seed.uniform() - 1.0) * bound) as f32;
    }
}

/// A multi-layer perceptron: `input -> hidden (ReLU) -> ... -> latent`, the last layer linear.
pub fn mlp(input: usize, hidden: &[usize], latent: usize) -> Graph {
    mlp_with(input, None, hidden, latent, false)
}

/// The same with inputs clipped at `±clip`, if given, and with batch normalization before each ReLU, if `batch_norm`.
pub fn mlp_with(input: usize, clip: Option<f32>, hidden: &[usize], latent: usize, batch_norm: bool) -> Graph {
    let clip = clip.map(|limit| Node { name: "clip".into(), layer: Layer::Clip { limit }, from: vec![0] });
    let mut nodes: Vec<Node> = clip.into_iter().collect();
    stack(&mut nodes, "", input, hidden, latent, batch_norm);
    Graph { input, nodes }
}

/// An encoder and a generator, each like [`mlp`]: `input -> hidden -> code -> hidden, in reverse -> input`. The latent
/// vector is the input followed by its reconstruction.
pub fn autoencoder(input: usize, hidden: &[usize], code: usize) -> Graph {
    let back: Vec<usize> = hidden.iter().rev().copied().collect();
    let mut nodes = Vec::new();
    stack(&mut nodes, "encoder.", input, hidden, code, false);
    stack(&mut nodes, "generator.", code, &back, input, false);
    let from = vec![0, nodes.len()];
    nodes.push(Node { name: "both".into(), layer: Layer::Concat, from });
    Graph { input, nodes }
}

/// Linear layers with ReLU between them, reading the last value so far. A bias before batch normalization would have no
/// effect, so there is none.
fn stack(nodes: &mut Vec<Node>, prefix: &str, mut inputs: usize, hidden: &[usize], last: usize, batch_norm: bool) {
    let mut add = |name: String, layer| {
        let from = vec![nodes.len()];
        nodes.push(Node { name, layer, from });
    };
    for (i, &outputs) in hidden.iter().chain([&last]).enumerate() {
        let is_last = i == hidden.len();
        let n = i + 1;
        add(format!("{prefix}fc{n}"), Layer::Linear { inputs, outputs, bias: is_last || !batch_norm });
        if batch_norm && !is_last {
            add(format!("{prefix}bn{n}"), Layer::batch_norm(outputs));
        }
        if !is_last {
            add(format!("{prefix}relu{n}"), Layer::Relu);
        }
        inputs = outputs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mlp_has_the_layers_of_the_paper() {
        let g = mlp(48, &[128, 128], 128);
        assert_eq!(g.latent().unwrap(), 128);
        let names: Vec<_> = g.specs().into_iter().map(|s| (s.name, s.shape)).collect();
        assert_eq!(names[0], ("fc1.weight".to_owned(), vec![128, 48]));
        assert_eq!(names[5], ("fc3.bias".to_owned(), vec![128]));
        let params = g.init(&mut Stream::new(1, "init"));
        let bound = (6.0f32 / 176.0).sqrt();
        assert!(params.get(0).iter().all(|v| v.abs() <= bound));
        assert!(params.get(0).iter().any(|v| v.abs() > 0.9 * bound));
        assert!(params.get(1).iter().all(|&v| v == 0.0));
    }

    #[test]
    fn bins_come_between_the_clipped_inputs_and_the_first_layer() {
        let bin = |feature, low, high| Bin { feature, low, high };
        let bins = vec![bin(0, -1.0, 0.5), bin(0, 0.5, 2.0), bin(3, 0.0, 1.0)];
        for clip in [None, Some(5.0)] {
            let plain = mlp_with(4, clip, &[8], 2, true);
            let graph = plain.clone().with_bins(bins.clone());
            let widths = [if clip.is_some() { &[4, 4, 7, 8][..] } else { &[4, 7, 8] }, &[8, 8, 2]].concat();
            assert_eq!(graph.widths().unwrap(), widths);
            assert_eq!((graph.clip(), graph.layer_ends().len()), (clip, 2));
            let text = serde_json::to_string(&graph).unwrap();
            assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph, "{text}");
        }
        for wrong in [bin(4, 0.0, 1.0), bin(0, 1.0, 1.0), bin(0, 2.0, 1.0), bin(0, f32::NAN, 1.0), bin(0, 0.0, 1e-40)] {
            assert!(mlp(4, &[8], 2).with_bins(vec![wrong]).widths().is_err(), "{wrong:?}");
        }
        assert!(mlp(4, &[8], 2).with_bins(vec![]).widths().is_err());
    }

    #[test]
    fn an_invalid_graph_is_an_error() {
        let mut g = mlp(4, &[8], 2);
        g.nodes[2].from = vec![7];
        assert!(g.widths().is_err());
        let mut g = mlp(4, &[8], 2);
        g.nodes[0].from = vec![];
        assert!(g.widths().is_err());
        let mut g = mlp(4, &[8], 2);
        g.input = 5;
        assert!(g.latent().is_err());
        assert_eq!(Graph { input: 3, nodes: vec![] }.latent().unwrap(), 3);
        assert!(Graph { input: 0, nodes: vec![] }.latent().is_err());
        let mut g = mlp(4, &[8], 2);
        g.nodes[1].from = vec![1, 1];
        assert!(g.widths().is_err(), "only a concatenation reads several values");
    }

    #[test]
    fn an_autoencoder_gives_the_input_and_its_reconstruction() {
        let g = autoencoder(7, &[5, 4], 3);
        assert_eq!(g.widths().unwrap(), [7, 5, 5, 4, 4, 3, 4, 4, 5, 5, 7, 14]);
        let names: Vec<_> = g.specs().into_iter().map(|s| s.name).collect();
        assert_eq!((names[0].as_str(), names[11].as_str()), ("encoder.fc1.weight", "generator.fc3.bias"));
        // Its parameters are those of its two halves.
        assert_eq!(Params::new(g.specs()).data.len(), {
            let halves = [mlp(7, &[5, 4], 3), mlp(3, &[4, 5], 7)];
            halves.iter().map(|g| Params::new(g.specs()).data.len()).sum::<usize>()
        });
    }

    #[test]
    fn concatenations_that_grow_without_limit_are_an_error() {
        let node = |from: Vec<usize>| Node { name: "both".into(), layer: Layer::Concat, from };
        let doubling = Graph { input: 3, nodes: (0..200).map(|i| node(vec![i, i])).collect() };
        assert!(doubling.latent().is_err());
        assert!(Graph { input: usize::MAX, nodes: vec![node(vec![0, 0])] }.latent().is_err());
        assert!(Graph { input: 3, nodes: vec![node(vec![])] }.latent().is_err());
        assert!(Graph { input: 3, nodes: vec![node(vec![0, 2])] }.latent().is_err());
        assert_eq!(Graph { input: 3, nodes: vec![node(vec![0, 0, 0])] }.latent().unwrap(), 9);
    }
}
