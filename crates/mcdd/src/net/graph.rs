//! A network as a value: a short list of layers that any engine can run and any writer can write.

use serde::{Deserialize, Serialize};

use super::cpu::norm;
use super::params::{ParamSpec, Params};
use crate::error::{Error, Result};
use crate::seed::Stream;

/// What a node computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "op")]
#[non_exhaustive]
pub enum Layer {
    /// `y = x W^T + b`.
    ///
    /// # Shapes
    /// input `[n, inputs]`, output `[n, outputs]`; parameters `weight [outputs, inputs]` and, if any, `bias [outputs]`.
    Linear {
        /// Features of a row that comes in.
        inputs: usize,
        /// Features of a row that goes out.
        outputs: usize,
        /// Whether there is a bias (Deep-SVDD must not have one).
        bias: bool,
    },
    /// `max(x, 0)`; same shape.
    Relu,
    /// `weight (x - mean) / sqrt(variance + 1e-5) + bias`, feature by feature; same shape. In training mean and variance are
    /// those of the rows that pass together, afterwards their running means: parameters `weight`, `bias`, `running_mean`
    /// and `running_var`, each `[features]`, as in PyTorch.
    BatchNorm {
        /// Features of a row.
        features: usize,
    },
    /// Each value within `±limit`; same shape.
    Clip {
        /// Above 0.
        limit: f32,
    },
    /// The values it reads, one behind the other; as wide as all of them together.
    Concat,
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
    /// Features of an input row.
    pub input: usize,
    /// The layers.
    pub nodes: Vec<Node>,
}

/// More than any network for tables needs; a file that asks for more is damaged or hostile.
const MOST_NODES: usize = 10_000;
/// The same for the features of a value: a few nodes that double would reach any number.
const MOST_FEATURES: usize = 1 << 28;

impl Graph {
    /// The number of latent features.
    ///
    /// # Errors
    /// If a node reads something that does not exist or does not fit.
    pub fn latent(&self) -> Result<usize> {
        self.widths().map(|w| w.last().copied().unwrap_or(self.input))
    }

    /// The features of every value, the input first; checks the whole graph.
    ///
    /// # Errors
    /// As for [`Graph::latent`].
    pub fn widths(&self) -> Result<Vec<usize>> {
        if self.input == 0 || self.nodes.len() > MOST_NODES {
            return Err(Error::format("the network has no input or too many layers"));
        }
        let mut widths = vec![self.input];
        for node in &self.nodes {
            let wrong = |what: &str| Error::format(format!("layer {:?} {what}", node.name));
            if node.from.is_empty() || (node.from.len() > 1 && node.layer != Layer::Concat) {
                return Err(wrong("must read one value"));
            }
            let mut width = 0usize;
            for &from in &node.from {
                let more = *widths.get(from).ok_or_else(|| wrong("reads a value that does not exist yet"))?;
                width = width.saturating_add(more);
            }
            let width = match node.layer {
                Layer::Linear { inputs, outputs, .. } if inputs == width && outputs > 0 => outputs,
                Layer::BatchNorm { features } if features == width => width,
                Layer::Linear { .. } | Layer::BatchNorm { .. } => return Err(wrong("does not fit the value it reads")),
                Layer::Clip { limit } if !(limit > 0.0 && limit.is_finite()) => {
                    return Err(wrong("has a limit that is no number above 0"));
                }
                Layer::Relu | Layer::Clip { .. } | Layer::Concat => width,
            };
            if width > MOST_FEATURES {
                return Err(wrong("has more features than any network needs"));
            }
            widths.push(width);
        }
        Ok(widths)
    }

    /// The parameters, without values.
    pub fn specs(&self) -> Vec<ParamSpec> {
        let mut specs = Vec::new();
        for node in &self.nodes {
            let mut spec = |part: &str, shape: Vec<usize>, weight: bool, trained: bool| {
                let name = format!("{}.{part}", node.name);
                specs.push(ParamSpec { name, shape, transposed: weight, decay: weight, trained });
            };
            match node.layer {
                Layer::Linear { inputs, outputs, bias } => {
                    spec("weight", vec![outputs, inputs], true, true);
                    if bias {
                        spec("bias", vec![outputs], false, true);
                    }
                }
                Layer::BatchNorm { features } => {
                    for (part, trained) in
                        [("weight", true), ("bias", true), ("running_mean", false), ("running_var", false)]
                    {
                        spec(part, vec![features], false, trained);
                    }
                }
                Layer::Relu | Layer::Clip { .. } | Layer::Concat => {}
            }
        }
        specs
    }

    /// How many nodes it takes to the end of each layer: its activation, where it has one.
    pub fn layer_ends(&self) -> Vec<usize> {
        let begins = |i: &usize| matches!(self.nodes[*i].layer, Layer::Linear { .. });
        (0..self.nodes.len()).filter(begins).skip(1).chain([self.nodes.len()]).collect()
    }

    /// The same network with no bias in any layer.
    pub fn without_bias(mut self) -> Graph {
        for node in &mut self.nodes {
            if let Layer::Linear { bias, .. } = &mut node.layer {
                *bias = false;
            }
        }
        self
    }

    /// Whether rows that pass together change each other's result while it is trained.
    pub fn has_batch_norm(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.layer, Layer::BatchNorm { .. }))
    }

    /// Where its input is clipped, if it is.
    pub fn clip(&self) -> Option<f32> {
        match self.nodes.first()?.layer {
            Layer::Clip { limit } => Some(limit),
            _ => None,
        }
    }

    /// Parameters with Xavier-uniform weights and zero biases; batch normalisation begins with weights of 1.
    pub fn init(&self, seed: &mut Stream) -> Params {
        let mut params = Params::new(self.specs());
        let mut at = 0;
        for node in &self.nodes {
            match node.layer {
                Layer::Linear { inputs, outputs, bias } => {
                    xavier(params.get_mut(at), inputs, outputs, seed);
                    at += 1 + usize::from(bias);
                }
                Layer::BatchNorm { .. } => {
                    params.get_mut(at).fill(1.0);
                    params.get_mut(at + 3).fill(1.0);
                    at += 4;
                }
                Layer::Relu | Layer::Clip { .. } | Layer::Concat => {}
            }
        }
        params
    }

    /// The same network for prediction: each batch normalisation becomes part of the linear layer before it.
    ///
    /// # Errors
    /// If one stands elsewhere, or the graph does not fit together.
    pub fn folded(&self, params: &Params) -> Result<(Graph, Params)> {
        self.widths()?;
        let mut graph = Graph { input: self.input, nodes: Vec::new() };
        let mut tensors: Vec<Vec<f32>> = Vec::new();
        // Which value of the new graph each value of this one has become.
        let mut moved = vec![0];
        let mut at = 0;
        for (i, node) in self.nodes.iter().enumerate() {
            if let Layer::BatchNorm { features } = node.layer {
                let after_linear = node.from == [i] && i > 0 && self.nodes[i - 1].layer.is_linear();
                let alone = self.nodes.iter().filter(|n| n.from.contains(&i)).count() == 1;
                let (Some(Node { layer: Layer::Linear { bias, .. }, .. }), true) =
                    (graph.nodes.last_mut(), after_linear && alone)
                else {
                    let what = format!("layer {:?}: batch normalisation must follow a linear layer", node.name);
                    return Err(Error::format(what));
                };
                let before = if *bias { tensors.pop() } else { None }.unwrap_or_else(|| vec![0.0; features]);
                *bias = true;
                let [weight, shift, mean, variance] = [0, 1, 2, 3].map(|j| params.get(at + j));
                let scale: Vec<f64> =
                    weight.iter().zip(variance).map(|(&w, &v)| f64::from(w) * norm::inverse_deviation(v)).collect();
                if let Some(matrix) = tensors.last_mut() {
                    for row in matrix.chunks_exact_mut(features) {
                        row.iter_mut().zip(&scale).for_each(|(w, s)| *w = (f64::from(*w) * s) as f32);
                    }
                }
                let bias = before.iter().zip(mean).zip(shift).zip(&scale);
                tensors.push(
                    bias.map(|(((&b, &m), &h), s)| (f64::from(h) + (f64::from(b) - f64::from(m)) * s) as f32).collect(),
                );
                at += 4;
            } else {
                let from = node.from.iter().map(|&f| moved[f]).collect();
                graph.nodes.push(Node { from, ..node.clone() });
                if let Layer::Linear { bias, .. } = node.layer {
                    let count = 1 + usize::from(bias);
                    tensors.extend((at..at + count).map(|j| params.get(j).to_vec()));
                    at += count;
                }
            }
            moved.push(graph.nodes.len());
        }
        let mut folded = Params::new(graph.specs());
        folded.data = tensors.concat();
        Ok((graph, folded))
    }
}

impl Layer {
    fn is_linear(&self) -> bool {
        matches!(self, Layer::Linear { .. })
    }
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

/// The same for inputs clipped at `±clip`, if at all, and with batch normalisation before each ReLU, if wanted.
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

/// Linear layers with ReLU between them, reading the last value so far. Before batch normalisation a bias would be
/// taken away again, so there is none.
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
            add(format!("{prefix}bn{n}"), Layer::BatchNorm { features: outputs });
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
    fn an_mlp_reads_like_its_paper() {
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
    fn a_graph_that_does_not_fit_is_an_error() {
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
    fn an_autoencoder_shows_the_input_beside_its_reconstruction() {
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
    fn concatenations_that_grow_without_bound_are_an_error() {
        let node = |from: Vec<usize>| Node { name: "both".into(), layer: Layer::Concat, from };
        let doubling = Graph { input: 3, nodes: (0..200).map(|i| node(vec![i, i])).collect() };
        assert!(doubling.latent().is_err());
        assert!(Graph { input: usize::MAX, nodes: vec![node(vec![0, 0])] }.latent().is_err());
        assert!(Graph { input: 3, nodes: vec![node(vec![])] }.latent().is_err());
        assert!(Graph { input: 3, nodes: vec![node(vec![0, 2])] }.latent().is_err());
        assert_eq!(Graph { input: 3, nodes: vec![node(vec![0, 0, 0])] }.latent().unwrap(), 9);
    }
}
