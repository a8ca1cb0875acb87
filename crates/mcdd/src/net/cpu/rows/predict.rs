//! Prediction: each row by itself, on the calling thread.

use std::sync::Arc;

use super::super::layout::CpuParams;
use super::compile::{CompiledSteps, Step, compile};
use super::engine::{Pass, RowEngine, concat_rows};
use super::input::{InputStage, sized};
use crate::compute::gemm::{Line, Panels, ZERO, pack_transposed, product};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::net::engine::{InputGradient, Network, NetworkBuffers};
use crate::net::graph::Graph;
use crate::net::params::Params;
use crate::onnx::{Builder, Value};

/// A multi-layer perceptron for prediction.
#[derive(Clone, Debug)]
pub(crate) struct RowNetwork {
    graph: Graph,
    input: InputStage,
    steps: Vec<Step>,
    /// Whether the latent vector is the input followed by the last step's output.
    concat: bool,
    latent: usize,
    packed: Vec<Vec<Line>>,
    params: Params,
    /// The parameters without batch normalization, where there was any.
    folded: Option<Params>,
}

/// Rows that go through all layers together: what is between two layers stays in the cache.
const TOGETHER: usize = 768;

/// Buffers of one thread.
#[derive(Default)]
struct RowBuffers {
    /// What the first layer reads, and what is between the layers, of some rows.
    read: Vec<f32>,
    values: [Vec<f32>; 2],
    last: Vec<f32>,
    /// Results of all rows.
    latent: Vec<f32>,
    hidden: Vec<f32>,
}

impl RowNetwork {
    pub(crate) fn new(graph: &Graph, params: &Params) -> Result<RowNetwork> {
        let (plain, folded) = match graph.has_batch_norm() {
            true => graph.folded(params).map(|(g, p)| (Some(g), Some(p)))?,
            false => (None, None),
        };
        let CompiledSteps { input, steps, concat } = compile(plain.as_ref().unwrap_or(graph))?;
        let used = folded.as_ref().unwrap_or(params);
        let packed = steps
            .iter()
            .map(|s| {
                let mut lines = vec![ZERO; Panels::lines(s.inputs, s.outputs)];
                pack_transposed(&mut lines, used.get(s.weight), s.inputs, s.outputs, 0);
                lines
            })
            .collect();
        let (concat, latent) = (concat.is_some(), graph.latent()?);
        Ok(RowNetwork { graph: graph.clone(), input, steps, concat, latent, packed, params: params.clone(), folded })
    }

    /// The latent vectors of some rows, and what the last layer reads. `x` is what the first layer reads.
    fn pass(
        &self,
        x: &[f32],
        values: &mut [Vec<f32>; 2],
        last: &mut Vec<f32>,
        latent: &mut [f32],
        mut hidden: Option<&mut [f32]>,
    ) {
        let Some(first) = self.steps.first() else {
            latent.copy_from_slice(x);
            return;
        };
        let rows = x.len() / first.inputs;
        let params = self.folded.as_ref().unwrap_or(&self.params);
        let outputs = self.steps[self.steps.len() - 1].outputs;
        // Each layer but the last reads one buffer and writes the other.
        let [mut from, mut to] = values.each_mut();
        let end = self.steps.len() - 1;
        for (i, (step, packed)) in self.steps.iter().zip(&self.packed).enumerate() {
            let input = if i == 0 { x } else { &from[..rows * step.inputs] };
            let panels = Panels::new(packed, step.inputs, step.outputs);
            let then = step.then(step.bias.map(|b| params.get(b)));
            if i < end {
                product(input, panels, sized(to, rows * step.outputs), then);
                (from, to) = (to, from);
            } else {
                let output = if self.concat { sized(last, rows * outputs) } else { &mut *latent };
                product(input, panels, output, then);
                if let Some(hidden) = hidden.take() {
                    hidden.copy_from_slice(input);
                }
            }
        }
        if self.concat {
            concat_rows(x, first.inputs, &last[..rows * outputs], outputs, latent);
        }
    }
}

impl Network for RowNetwork {
    fn input(&self) -> usize {
        self.graph.input
    }

    fn latent(&self) -> usize {
        self.latent
    }

    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        self.latents_and_hidden(x, buffers).0
    }

    fn latents_and_hidden<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> (&'b [f32], Option<&'b [f32]>) {
        let RowBuffers { read, values, last, latent, hidden } = buffers.get();
        let width = self.input.width;
        let rows = x.len() / width;
        let latent = sized(latent, rows * self.latent);
        let inner = self.steps.last().filter(|_| self.steps.len() > 1).map(|last| last.inputs);
        let hidden = sized(hidden, rows * inner.unwrap_or(0));
        for (i, x) in x.chunks(TOGETHER * width).enumerate() {
            let (from, to) = (i * TOGETHER, i * TOGETHER + x.len() / width);
            let latent = &mut latent[from * self.latent..to * self.latent];
            let hidden = inner.map(|inner| &mut hidden[from * inner..to * inner]);
            self.pass(self.input.forward(x, read), values, last, latent, hidden);
        }
        (latent, inner.map(|_| &*hidden).filter(|_| !self.concat))
    }

    fn params(&self) -> &Params {
        &self.params
    }

    fn layers(&self) -> usize {
        self.graph.layer_ends().len()
    }

    fn to_onnx(&self, graph: &mut Builder, x: Value) -> Result<Vec<Value>> {
        self.graph.to_onnx(&self.params, graph, x)
    }

    fn part(&self, layer: usize) -> Result<Arc<dyn Network>> {
        let (graph, params) = super::super::part(&self.graph, &self.params, layer)?;
        Ok(Arc::new(RowNetwork::new(&graph, &params)?))
    }

    fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
        let (graph, params) = self.graph.folded(&self.params)?;
        let params = CpuParams::new(&params);
        let engine = match graph.nodes.is_empty() {
            true => None,
            false => {
                let mut engine = RowEngine::new(&graph)?;
                engine.load(&params, &Pool::new(1));
                Some(engine)
            }
        };
        Ok(Arc::new(RowGradient { engine, params }))
    }
}

/// Gradients with respect to the input; batch normalization is part of the linear layers.
struct RowGradient {
    /// None for a network without layers.
    engine: Option<RowEngine>,
    params: CpuParams,
}

#[derive(Default)]
struct GradientBuffers {
    pass: Pass,
    gradient: Vec<f32>,
}

impl InputGradient for RowGradient {
    fn input_gradient<'b>(&self, x: &[f32], latent_gradient: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let GradientBuffers { pass, gradient } = buffers.get();
        let Some(engine) = &self.engine else {
            let to = sized(gradient, latent_gradient.len());
            to.copy_from_slice(latent_gradient);
            return to;
        };
        pass.forward(engine, &self.params, x);
        pass.latents_and_gradient().1.copy_from_slice(latent_gradient);
        pass.backward_hidden(engine, &self.params);
        let to = sized(gradient, x.len());
        pass.input_gradients(engine, &self.params, to);
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::graph::{Layer, Node, autoencoder, mlp};
    use crate::seed::Stream;

    #[test]
    fn an_autoencoder_gives_the_input_and_its_reconstruction() {
        let graph = autoencoder(5, &[4], 2);
        let params = graph.init(&mut Stream::new(1, "joined"));
        let mut plain = graph.clone();
        plain.nodes.pop();
        let (both, plain) = (RowNetwork::new(&graph, &params).unwrap(), RowNetwork::new(&plain, &params).unwrap());
        let x: Vec<f32> = (0..35).map(|i| (i as f32 * 0.7).sin()).collect();
        let (mut a, mut b) = (NetworkBuffers::default(), NetworkBuffers::default());
        let rows = both.latents(&x, &mut a).chunks_exact(10);
        assert_eq!(rows.len(), 7);
        for ((row, x), y) in rows.zip(x.chunks_exact(5)).zip(plain.latents(&x, &mut b).chunks_exact(5)) {
            assert_eq!((&row[..5], &row[5..]), (x, y));
        }
        assert!(RowEngine::new(&graph).err().unwrap().to_string().contains("cannot run layer"));
    }

    #[test]
    fn other_concatenations_are_refused() {
        let concat = |from: &[usize]| Node { name: "c".into(), layer: Layer::Concat, from: from.to_vec() };
        let mut alone = mlp(3, &[], 2);
        alone.nodes = vec![concat(&[0, 0])];
        let (mut reversed, mut inside, mut twice) = (mlp(3, &[], 2), mlp(3, &[], 2), mlp(3, &[], 2));
        reversed.nodes.push(concat(&[1, 0]));
        inside.nodes.push(concat(&[0, 1]));
        inside.nodes.push(Node { name: "r".into(), layer: Layer::Relu, from: vec![2] });
        twice.nodes.extend([concat(&[0, 1]), concat(&[0, 2])]);
        for graph in [alone, reversed, inside, twice] {
            graph.widths().unwrap();
            let params = Params::new(graph.specs());
            assert!(RowNetwork::new(&graph, &params).is_err(), "{graph:?}");
        }
    }

    #[test]
    fn parts_end_with_the_activations_of_layers() {
        let graph = mlp(3, &[5, 4], 2);
        let params = graph.init(&mut Stream::new(1, "parts"));
        let net = RowNetwork::new(&graph, &params).unwrap();
        let x = [0.5, -1.0, 2.0];
        let widths: Vec<usize> = (0..net.layers()).map(|l| net.part(l).unwrap().latent()).collect();
        assert_eq!((widths, net.part(3).is_err()), (vec![5, 4, 2], true));
        let mut buffers = NetworkBuffers::default();
        let hidden = net.part(0).unwrap().latents(&x, &mut buffers).to_vec();
        let sum = |o: usize| (0..3).map(|i| params.get(0)[o * 3 + i] * x[i]).sum::<f32>();
        assert!(hidden.iter().enumerate().all(|(o, h)| (h - sum(o).max(0.0)).abs() < 1e-6), "{hidden:?}");
        assert_eq!(net.part(2).unwrap().latents(&x, &mut buffers).to_vec(), net.latents(&x, &mut buffers));
        let before = net.part(1).unwrap().latents(&x, &mut buffers).to_vec();
        assert_eq!(net.latents_and_hidden(&x, &mut buffers).1, Some(&before[..]));
        assert_eq!(
            RowNetwork::new(&mlp(3, &[], 2), &mlp(3, &[], 2).init(&mut Stream::new(1, "one")))
                .unwrap()
                .latents_and_hidden(&x, &mut buffers)
                .1,
            None
        );
        // The inputs of an empty graph are its latents, and so are their gradients.
        let nothing = RowNetwork::new(&Graph { input: 3, nodes: Vec::new() }, &Params::empty()).unwrap();
        let gradient = nothing.input_gradient().unwrap();
        assert_eq!(gradient.input_gradient(&x, &[1.0, 2.0, 3.0], &mut buffers), [1.0, 2.0, 3.0]);
    }
}
