//! A network as a value: a short list of layers that any engine can run and any writer can write.

use serde::{Deserialize, Serialize};

use super::params::{ParamSpec, Params};
use crate::error::{Error, Result};
use crate::seed::Stream;

/// What a node computes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The values it reads, one behind the other; as wide as all of them together.
    Concat,
}

/// A layer with its name and where its input comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
                Layer::Linear { .. } => return Err(wrong("does not fit the value it reads")),
                Layer::Relu | Layer::Concat => width,
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
            if let Layer::Linear { inputs, outputs, bias } = node.layer {
                let mut spec = |part: &str, shape: Vec<usize>, weight: bool| {
                    specs.push(ParamSpec {
                        name: format!("{}.{part}", node.name),
                        shape,
                        transposed: weight,
                        decay: weight,
                        trained: true,
                    });
                };
                spec("weight", vec![outputs, inputs], true);
                if bias {
                    spec("bias", vec![outputs], false);
                }
            }
        }
        specs
    }

    /// How many nodes it takes to the end of each layer: its activation, where it has one.
    pub fn layer_ends(&self) -> Vec<usize> {
        let begins = |i: usize| matches!(self.nodes[i].layer, Layer::Linear { .. });
        let mut ends: Vec<usize> = (1..self.nodes.len()).filter(|&i| begins(i)).collect();
        ends.push(self.nodes.len());
        ends
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

    /// Parameters with Xavier-uniform weights and zero biases.
    pub fn init(&self, seed: &mut Stream) -> Params {
        let mut params = Params::new(self.specs());
        for i in 0..params.specs().len() {
            if let &[outputs, inputs] = params.specs()[i].shape.as_slice() {
                xavier(params.get_mut(i), inputs, outputs, seed);
            }
        }
        params
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
    let mut nodes = Vec::new();
    stack(&mut nodes, "", input, hidden, latent);
    Graph { input, nodes }
}

/// An encoder and a generator, each like [`mlp`]: `input -> hidden -> code -> hidden, in reverse -> input`. The latent
/// vector is the input followed by its reconstruction.
pub fn autoencoder(input: usize, hidden: &[usize], code: usize) -> Graph {
    let back: Vec<usize> = hidden.iter().rev().copied().collect();
    let mut nodes = Vec::new();
    stack(&mut nodes, "encoder.", input, hidden, code);
    stack(&mut nodes, "generator.", code, &back, input);
    let from = vec![0, nodes.len()];
    nodes.push(Node { name: "both".into(), layer: Layer::Concat, from });
    Graph { input, nodes }
}

/// Linear layers with ReLU between them, reading the last value so far.
fn stack(nodes: &mut Vec<Node>, prefix: &str, mut inputs: usize, hidden: &[usize], last: usize) {
    let mut add = |name: String, layer| {
        let from = vec![nodes.len()];
        nodes.push(Node { name, layer, from });
    };
    for (i, &outputs) in hidden.iter().chain([&last]).enumerate() {
        add(format!("{prefix}fc{}", i + 1), Layer::Linear { inputs, outputs, bias: true });
        if i < hidden.len() {
            add(format!("{prefix}relu{}", i + 1), Layer::Relu);
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
