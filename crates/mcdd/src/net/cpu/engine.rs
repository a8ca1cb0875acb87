//! Runs a graph on the CPU: forward and backward, each layer a parallel loop, buffers allocated once.

use std::sync::Arc;

use super::gemm::{GradientScratch, Packed, Then, product, product_rows, weight_gradient};
use super::pool::Pool;
use crate::error::{Error, Result};
use crate::net::graph::{Graph, Layer};
use crate::net::params::Params;

/// A fused step: a linear layer and the ReLU that follows it, if one does.
#[derive(Clone, Debug)]
struct Step {
    inputs: usize,
    outputs: usize,
    weight: usize,
    bias: Option<usize>,
    relu: bool,
    /// What stands for the bias where the layer has none.
    no_bias: Vec<f32>,
}

/// What a graph becomes: steps, each reading the one before.
fn compile(graph: &Graph) -> Result<Vec<Step>> {
    graph.widths()?;
    let mut steps: Vec<Step> = Vec::new();
    let mut parameter = 0;
    for (i, node) in graph.nodes.iter().enumerate() {
        let unsupported = || Error::format(format!("the CPU engine cannot run layer {:?} where it stands", node.name));
        if node.from != [i] {
            return Err(unsupported());
        }
        match node.layer {
            Layer::Linear { inputs, outputs, bias } => {
                let no_bias = if bias { Vec::new() } else { vec![0.0; outputs] };
                let at = parameter;
                parameter += 1 + usize::from(bias);
                steps.push(Step { inputs, outputs, weight: at, bias: bias.then_some(at + 1), relu: false, no_bias });
            }
            Layer::Relu => match steps.last_mut() {
                Some(step) if !step.relu => step.relu = true,
                _ => return Err(unsupported()),
            },
        }
    }
    Ok(steps)
}

impl Step {
    fn then<'a>(&'a self, params: &'a Params) -> Then<'a> {
        let bias = self.bias.map_or(&self.no_bias[..], |b| params.get(b));
        if self.relu { Then::BiasRelu(bias) } else { Then::Bias(bias) }
    }
}

/// A network that trains: weights in the two packed forms that the passes read, activations and gradients.
pub struct Trainer {
    steps: Vec<Step>,
    pool: Arc<Pool>,
    /// For the forward pass, and transposed for the backward pass.
    packed: Vec<(Packed, Packed)>,
    /// The output of each step, batch x outputs.
    values: Vec<Vec<f32>>,
    /// The gradient of each step's output, before its ReLU.
    gradients: Vec<Vec<f32>>,
    input_gradient: Vec<f32>,
    scratch: GradientScratch,
    rows: usize,
}

impl Trainer {
    /// An engine for `graph`; it grows to the largest batch that it meets and allocates nothing after that.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub fn new(graph: &Graph, pool: Arc<Pool>) -> Result<Trainer> {
        let steps = compile(graph)?;
        let packed =
            steps.iter().map(|s| (Packed::new(s.inputs, s.outputs), Packed::new(s.outputs, s.inputs))).collect();
        let empty = vec![Vec::new(); steps.len()];
        Ok(Trainer {
            steps,
            pool,
            packed,
            values: empty.clone(),
            gradients: empty,
            input_gradient: Vec::new(),
            scratch: GradientScratch::default(),
            rows: 0,
        })
    }

    /// Takes over new parameter values; call it after each update.
    pub fn load(&mut self, params: &Params) {
        for (i, (step, (forward, backward))) in self.steps.iter().zip(&mut self.packed).enumerate() {
            let weight = params.get(step.weight);
            forward.pack(weight, &self.pool);
            // The first layer's is needed for the gradient of the input only.
            if i > 0 {
                backward.pack_transposed(weight, &self.pool);
            }
        }
    }

    /// The latent vectors of the rows in `x`, one after the other.
    pub fn forward(&mut self, x: &[f32], params: &Params) -> &[f32] {
        self.rows = x.len() / self.steps[0].inputs;
        for (i, step) in self.steps.iter().enumerate() {
            let (before, here) = self.values.split_at_mut(i);
            let input = before.last().map_or(x, |v| &v[..self.rows * step.inputs]);
            let output = sized(&mut here[0], self.rows * step.outputs);
            product(input, &self.packed[i].0, output, step.then(params), &self.pool);
        }
        self.latents()
    }

    /// The latent vectors of the last forward pass.
    pub fn latents(&self) -> &[f32] {
        let last = self.steps.len() - 1;
        &self.values[last][..self.rows * self.steps[last].outputs]
    }

    /// The latent vectors, and the buffer for the gradient of the loss with respect to them.
    pub fn latents_and_gradient(&mut self) -> (&[f32], &mut [f32]) {
        let last = self.steps.len() - 1;
        let n = self.rows * self.steps[last].outputs;
        (&self.values[last][..n], sized(&mut self.gradients[last], n))
    }

    /// Goes back from the gradient left in [`Trainer::latents_and_gradient`] to that of the parameters.
    /// `x` must be the input of the last forward pass, and `gradients` have the parameters' layout.
    pub fn backward(&mut self, x: &[f32], params: &Params, gradients: &mut [f32]) {
        for i in (0..self.steps.len()).rev() {
            let step = &self.steps[i];
            let (below, here) = self.gradients.split_at_mut(i);
            let dy = &mut here[0][..self.rows * step.outputs];
            if i == self.steps.len() - 1 && step.relu {
                for (d, &v) in dy.iter_mut().zip(&self.values[i]) {
                    *d = if v > 0.0 { *d } else { 0.0 };
                }
            }
            let input = if i == 0 { x } else { &self.values[i - 1][..self.rows * step.inputs] };
            if let Some(below) = below.last_mut() {
                let dx = sized(below, self.rows * step.inputs);
                let then = if self.steps[i - 1].relu { Then::Where(input) } else { Then::Keep };
                product(dy, &self.packed[i].1, dx, then, &self.pool);
            }
            // Weight and bias lie side by side in the flat buffer.
            let weight = params.range(step.weight);
            let end = step.bias.map_or(weight.end, |b| params.range(b).end);
            let (dw, db) = gradients[weight.start..end].split_at_mut(weight.len());
            let shape = (step.inputs, step.outputs);
            weight_gradient(input, dy, shape, dw, step.bias.map(|_| db), &mut self.scratch, &self.pool);
        }
    }

    /// The gradient with respect to the input, after [`Trainer::backward`].
    pub fn input_gradient(&mut self, params: &Params) -> &[f32] {
        let step = &self.steps[0];
        let packed = &mut self.packed[0].1;
        packed.pack_transposed(params.get(step.weight), &self.pool);
        let dx = sized(&mut self.input_gradient, self.rows * step.inputs);
        product(&self.gradients[0][..self.rows * step.outputs], packed, dx, Then::Keep, &self.pool);
        dx
    }
}

/// The first `n` items of a buffer that grows when it must.
fn sized(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}

/// A network that only predicts: cheap to share between threads, each with its own [`Scratch`].
#[derive(Clone, Debug)]
pub struct Predictor {
    steps: Vec<Step>,
    packed: Vec<Packed>,
    params: Params,
}

/// Buffers of one thread that predicts.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    values: [Vec<f32>; 2],
}

impl Predictor {
    /// Prepares `graph` with `params`.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub fn new(graph: &Graph, params: &Params) -> Result<Predictor> {
        let steps = compile(graph)?;
        let alone = Pool::new(1);
        let packed = steps
            .iter()
            .map(|s| {
                let mut p = Packed::new(s.inputs, s.outputs);
                p.pack(params.get(s.weight), &alone);
                p
            })
            .collect();
        Ok(Predictor { steps, packed, params: params.clone() })
    }

    /// The parameters it was made with.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The latent vectors of the rows in `x`, on the calling thread.
    pub fn latents<'s>(&self, x: &[f32], scratch: &'s mut Scratch) -> &'s [f32] {
        let rows = x.len() / self.steps[0].inputs;
        let [a, b] = &mut scratch.values;
        for (i, (step, packed)) in self.steps.iter().zip(&self.packed).enumerate() {
            let (from, to) = if i % 2 == 0 { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            let input = if i == 0 { x } else { &from[..rows * step.inputs] };
            product_rows(input, packed, sized(to, rows * step.outputs), step.then(&self.params));
        }
        let last = self.steps.len() - 1;
        &scratch.values[last % 2][..rows * self.steps[last].outputs]
    }
}
