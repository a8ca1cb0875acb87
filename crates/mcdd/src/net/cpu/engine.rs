//! Runs a graph on the CPU: forward and backward, with buffers allocated once.
//!
//! Threads share the packed weights of an [`Engine`], and each takes some rows through a [`Pass`] of its own, forward and
//! back, without waiting for anybody.

use super::norm::{Affine, Batch, MOMENTUM};
use crate::compute::gemm::{
    Columns, Line, NR, Panels, Then, WEIGHT_ROWS, ZERO, column_sums, pack, pack_transposed, product, weight_gradient,
};
use crate::compute::pool::{Pool, pieces};
use crate::error::{Error, Result};
use crate::net::graph::{Graph, Layer};
use crate::net::params::Params;

/// A fused step: a linear layer with the batch normalization and the ReLU that follow it, if they do.
#[derive(Clone, Debug)]
struct Step {
    inputs: usize,
    outputs: usize,
    weight: usize,
    bias: Option<usize>,
    /// The first parameter of the batch normalization.
    norm: Option<usize>,
    relu: bool,
    /// What stands for the bias where the layer has none.
    no_bias: Vec<f32>,
}

fn unsupported(name: &str) -> Error {
    Error::format(format!("the CPU engine cannot run layer {name:?} where it stands"))
}

/// What a graph becomes: steps, each reading the one before. `clip` is what the input is clipped at first; `joined` is a
/// last layer that puts the input before the last step's output.
struct CompiledSteps<'a> {
    clip: Option<f32>,
    steps: Vec<Step>,
    joined: Option<&'a str>,
}

fn compile(graph: &Graph) -> Result<CompiledSteps<'_>> {
    graph.widths()?;
    let mut steps: Vec<Step> = Vec::new();
    let mut joined = None;
    let mut clip = None;
    let mut parameter = 0;
    for (i, node) in graph.nodes.iter().enumerate() {
        let unsupported = || unsupported(&node.name);
        let inputs = if node.layer == Layer::Concat { &[0, i][..] } else { &[i][..] };
        if node.from != inputs || joined.is_some() {
            return Err(unsupported());
        }
        match node.layer {
            Layer::Linear { inputs, outputs, bias } => {
                let no_bias = if bias { Vec::new() } else { vec![0.0; outputs] };
                let at = parameter;
                parameter += 1 + usize::from(bias);
                let bias = bias.then_some(at + 1);
                steps.push(Step { inputs, outputs, weight: at, bias, norm: None, relu: false, no_bias });
            }
            Layer::BatchNorm { .. } => match steps.last_mut() {
                Some(step) if !step.relu && step.norm.is_none() => {
                    step.norm = Some(parameter);
                    parameter += 4;
                }
                _ => return Err(unsupported()),
            },
            Layer::Clip { limit } if i == 0 => clip = Some(limit),
            Layer::Clip { .. } => return Err(unsupported()),
            Layer::Relu => match steps.last_mut() {
                Some(step) if !step.relu => step.relu = true,
                _ => return Err(unsupported()),
            },
            Layer::Image { .. } | Layer::Conv2d { .. } | Layer::AvgPool { .. } | Layer::GlobalAvgPool | Layer::Add => {
                return Err(unsupported());
            }
            Layer::Concat if steps.is_empty() || clip.is_some() => return Err(unsupported()),
            Layer::Concat => joined = Some(&*node.name),
        }
    }
    Ok(CompiledSteps { clip, steps, joined })
}

impl Step {
    /// What follows the product at once; a ReLU behind batch normalization does not.
    fn then<'a>(&'a self, params: &'a Params) -> Then<'a> {
        let relu = self.relu && self.norm.is_none();
        match self.bias {
            None if !relu => Then::Keep,
            _ => {
                let bias = self.bias.map_or(&self.no_bias[..], |b| params.get(b));
                if relu { Then::BiasRelu(bias) } else { Then::Bias(bias) }
            }
        }
    }

    /// The batch normalization's parameters, if there is one.
    fn affine<'a>(&self, params: &'a Params) -> Option<Affine<'a>> {
        self.norm.map(|n| Affine { weight: params.get(n), bias: params.get(n + 1) })
    }
}

/// Where a layer's weights lie among all the packed lines: for the way forward, and for the way back.
#[derive(Clone, Debug)]
struct Slots {
    forward: std::ops::Range<usize>,
    backward: std::ops::Range<usize>,
}

/// A piece of the parallel loop that packs: some panels of a layer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    step: usize,
    backward: bool,
    first: usize,
}

/// Panels that one task packs.
const PANELS: usize = 4;

/// A graph ready to train: its weights in the two packed forms that the passes read.
pub struct Engine {
    clip: Option<f32>,
    steps: Vec<Step>,
    weights: Vec<Line>,
    slots: Vec<Slots>,
    pieces: Vec<Piece>,
    /// Where each piece ends in `weights`.
    ends: Vec<usize>,
}

impl Engine {
    /// An engine for `graph`; call [`Engine::load`] before the first pass.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub fn new(graph: &Graph) -> Result<Engine> {
        let CompiledSteps { clip, steps, joined } = compile(graph)?;
        if let Some(name) = joined {
            return Err(unsupported(name));
        }
        if steps.is_empty() {
            return Err(Error::format("there are no layers to train"));
        }
        let (mut slots, mut list, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = 0;
        for (step, s) in steps.iter().enumerate() {
            let mut add = |backward: bool, k: usize, n: usize| {
                let start = end;
                for first in (0..n.div_ceil(NR)).step_by(PANELS) {
                    end = start + (first + PANELS).min(n.div_ceil(NR)) * k;
                    list.push(Piece { step, backward, first });
                    ends.push(end);
                }
                start..end
            };
            let forward = add(false, s.inputs, s.outputs);
            // The way back through the first layer leads to the input, which few ask for.
            let backward = if step > 0 { add(true, s.outputs, s.inputs) } else { 0..0 };
            slots.push(Slots { forward, backward });
        }
        Ok(Engine { clip, steps, weights: vec![ZERO; end], slots, pieces: list, ends })
    }

    /// Takes over new parameter values; call it after each update.
    pub fn load(&mut self, params: &Params, pool: &Pool) {
        let (steps, list) = (&self.steps, &self.pieces);
        pool.split(pieces(&mut self.weights, &self.ends), |i, lines| {
            let Piece { step, backward, first } = list[i];
            let s = &steps[step];
            let weight = params.get(s.weight);
            if backward {
                pack_transposed(lines, weight, s.outputs, s.inputs, first);
            } else {
                pack(lines, weight, s.inputs, s.outputs, first);
            }
        });
    }

    /// Lets the running means and variances follow those of the last batch, which the passes have left among the
    /// gradients; each pass has seen about as many rows as any other.
    pub fn update_running_stats(&self, params: &mut Params, gradients: &[Vec<f32>]) {
        let share = MOMENTUM / gradients.len().max(1) as f32;
        for norm in self.steps.iter().filter_map(|s| s.norm) {
            for i in [norm + 2, norm + 3] {
                let range = params.range(i);
                let running = params.get_mut(i);
                running.iter_mut().for_each(|r| *r *= 1.0 - MOMENTUM);
                for part in gradients {
                    running.iter_mut().zip(&part[range.clone()]).for_each(|(r, &v)| *r += share * v);
                }
            }
        }
    }

    /// The number of latent features.
    pub fn latent(&self) -> usize {
        self.steps.last().map_or(0, |s| s.outputs)
    }

    fn forward(&self, i: usize) -> Panels<'_> {
        Panels::new(&self.weights[self.slots[i].forward.clone()], self.steps[i].inputs, self.steps[i].outputs)
    }

    fn backward(&self, i: usize) -> Panels<'_> {
        Panels::new(&self.weights[self.slots[i].backward.clone()], self.steps[i].outputs, self.steps[i].inputs)
    }
}

/// Forward and backward through an [`Engine`] for some rows, on one thread; its buffers grow to the most rows that it
/// meets, and nothing is allocated after that.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// The output of each step, rows x outputs, and the gradient of it, before its ReLU.
    values: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    /// The clipped input, where the engine clips.
    clipped: Vec<f32>,
    /// For steps with batch normalization, what it read and what it saw.
    raw: Vec<Vec<f32>>,
    batches: Vec<Batch>,
    packed: Vec<Line>,
    columns: Columns,
    input_gradient: Vec<f32>,
    input_weights: Vec<Line>,
    rows: usize,
    latent: usize,
}

impl Pass {
    /// The latent vectors of the rows in `x`, one after the other.
    pub fn forward(&mut self, engine: &Engine, params: &Params, x: &[f32]) -> &[f32] {
        self.rows = x.len() / engine.steps[0].inputs;
        self.latent = engine.latent();
        self.values.resize(engine.steps.len(), Vec::new());
        self.gradients.resize(engine.steps.len(), Vec::new());
        self.raw.resize(engine.steps.len(), Vec::new());
        self.batches.resize(engine.steps.len(), Batch::default());
        let x = clip(engine.clip, x, &mut self.clipped);
        for (i, step) in engine.steps.iter().enumerate() {
            let n = self.rows * step.outputs;
            sized(&mut self.gradients[i], n);
            let (before, here) = self.values.split_at_mut(i);
            let input = before.last().map_or(x, |v| &v[..self.rows * step.inputs]);
            let out = sized(&mut here[0], n);
            if let Some(affine) = step.affine(params) {
                let raw = sized(&mut self.raw[i], n);
                product(input, engine.forward(i), raw, step.then(params));
                self.batches[i].forward(raw, affine, step.relu, out);
            } else {
                product(input, engine.forward(i), out, step.then(params));
            }
        }
        self.latents_and_gradient().0
    }

    /// The latent vectors, and the buffer for the gradient of the loss with respect to them.
    pub fn latents_and_gradient(&mut self) -> (&[f32], &mut [f32]) {
        let n = self.rows * self.latent;
        match (self.values.last(), self.gradients.last_mut()) {
            (Some(values), Some(gradients)) => (&values[..n], &mut gradients[..n]),
            _ => (&[], &mut []),
        }
    }

    /// What the layer before the last has given, from the first row on.
    pub(crate) fn penultimate(&self) -> &[f32] {
        match self.values.as_slice() {
            [.., hidden, _] => hidden,
            _ => &[],
        }
    }

    /// Goes back from the gradient left in [`Pass::latents_and_gradient`] to that of the parameters.
    /// `x` must be the input of the last forward pass; `gradients` has the parameters' layout and is overwritten. In the
    /// place of the running means and variances it gets those of the batch, for [`Engine::update_running_stats`].
    pub fn backward(&mut self, engine: &Engine, params: &Params, x: &[f32], gradients: &mut [f32]) {
        let x = if engine.clip.is_some() { &self.clipped[..x.len()] } else { x };
        for (i, step) in engine.steps.iter().enumerate().rev() {
            let (below, here) = self.gradients.split_at_mut(i);
            let dy = &mut here[0][..self.rows * step.outputs];
            if step.relu && i + 1 == engine.steps.len() {
                for (d, &v) in dy.iter_mut().zip(&self.values[i]) {
                    *d = if v > 0.0 { *d } else { 0.0 };
                }
            }
            if let Some(affine) = step.affine(params) {
                let norm = step.norm.unwrap_or(0);
                let (batch, raw) = (&self.batches[i], &self.raw[i][..dy.len()]);
                let [d_weight, d_bias, mean, variance] =
                    four(&mut gradients[params.range(norm).start..params.range(norm + 3).end]);
                batch.backward(raw, affine.weight, dy, d_weight, d_bias);
                batch.statistics(mean, variance);
            }
            let input = if i == 0 { x } else { &self.values[i - 1][..self.rows * step.inputs] };
            if let Some(below) = below.last_mut() {
                let then = if engine.steps[i - 1].relu { Then::Where(input) } else { Then::Keep };
                product(dy, engine.backward(i), &mut below[..self.rows * step.inputs], then);
            }
            let lines = Panels::lines(self.rows, step.outputs);
            if self.packed.len() < lines {
                self.packed.resize(lines, ZERO);
            }
            let packed = &mut self.packed[..lines];
            pack(packed, dy, self.rows, step.outputs, 0);
            if let Some(bias) = step.bias {
                column_sums(packed, self.rows, &mut gradients[params.range(bias)]);
            }
            let dy = Panels::new(packed, self.rows, step.outputs);
            let dw = &mut gradients[params.range(step.weight)];
            for (c, dw) in dw.chunks_mut(WEIGHT_ROWS * step.outputs).enumerate() {
                weight_gradient(input, step.inputs, dy, c * WEIGHT_ROWS, dw, &mut self.columns);
            }
        }
    }

    /// The gradient with respect to the input, after [`Pass::backward`] with the same parameters.
    pub fn input_gradient(&mut self, engine: &Engine, params: &Params) -> &[f32] {
        let Step { inputs, outputs, weight, .. } = engine.steps[0];
        self.input_weights.resize(Panels::lines(outputs, inputs), ZERO);
        pack_transposed(&mut self.input_weights, params.get(weight), outputs, inputs, 0);
        let panels = Panels::new(&self.input_weights, outputs, inputs);
        let dx = sized(&mut self.input_gradient, self.rows * inputs);
        product(&self.gradients[0][..self.rows * outputs], panels, dx, Then::Keep);
        if let Some(limit) = engine.clip {
            // A value beyond the limit has no say.
            dx.iter_mut().zip(&self.clipped).filter(|(_, x)| x.abs() >= limit).for_each(|(d, _)| *d = 0.0);
        }
        dx
    }
}

/// The input as the first layer reads it.
fn clip<'a>(limit: Option<f32>, x: &'a [f32], clipped: &'a mut Vec<f32>) -> &'a [f32] {
    let Some(limit) = limit else { return x };
    let to = sized(clipped, x.len());
    to.iter_mut().zip(x).for_each(|(to, x)| *to = x.clamp(-limit, limit));
    to
}

/// A buffer in four equal parts.
fn four(buffer: &mut [f32]) -> [&mut [f32]; 4] {
    let (ab, cd) = buffer.split_at_mut(buffer.len() / 2);
    let ((a, b), (c, d)) = (ab.split_at_mut(ab.len() / 2), cd.split_at_mut(cd.len() / 2));
    [a, b, c, d]
}

/// The rows of `a`, each followed by one of `b`.
pub(crate) fn join(a: &[f32], a_width: usize, b: &[f32], b_width: usize, to: &mut [f32]) {
    let rows = a.chunks_exact(a_width).zip(b.chunks_exact(b_width));
    for (to, (a, b)) in to.chunks_exact_mut(a_width + b_width).zip(rows) {
        let (first, second) = to.split_at_mut(a_width);
        first.copy_from_slice(a);
        second.copy_from_slice(b);
    }
}

/// The first `n` items of a buffer that grows when it must.
fn sized(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}

/// A network that only predicts: cheap to share between threads, each with its own [`RowScratch`].
#[derive(Clone, Debug)]
pub struct RowPredictor {
    clip: Option<f32>,
    steps: Vec<Step>,
    /// Whether the input stands before the last step's output.
    joined: bool,
    packed: Vec<Vec<Line>>,
    params: Params,
    /// The parameters without batch normalization, where there was any.
    folded: Option<Params>,
}

/// Buffers of one thread that predicts.
#[derive(Clone, Debug, Default)]
pub struct RowScratch {
    clipped: Vec<f32>,
    values: [Vec<f32>; 2],
    joined: Vec<f32>,
}

impl RowPredictor {
    /// Prepares `graph` with `params`.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub fn new(graph: &Graph, params: &Params) -> Result<RowPredictor> {
        let (plain, folded) = match graph.has_batch_norm() {
            true => graph.folded(params).map(|(g, p)| (Some(g), Some(p)))?,
            false => (None, None),
        };
        let CompiledSteps { clip, steps, joined } = compile(plain.as_ref().unwrap_or(graph))?;
        let used = folded.as_ref().unwrap_or(params);
        let packed = steps
            .iter()
            .map(|s| {
                let mut lines = vec![ZERO; Panels::lines(s.inputs, s.outputs)];
                pack(&mut lines, used.get(s.weight), s.inputs, s.outputs, 0);
                lines
            })
            .collect();
        Ok(RowPredictor { clip, steps, joined: joined.is_some(), packed, params: params.clone(), folded })
    }

    /// The parameters it was made with.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The latent vectors of the rows in `x`, on the calling thread.
    pub fn latents<'s>(&self, x: &[f32], scratch: &'s mut RowScratch) -> &'s [f32] {
        let x = clip(self.clip, x, &mut scratch.clipped);
        let Some(first) = self.steps.first() else {
            let to = sized(&mut scratch.values[0], x.len());
            to.copy_from_slice(x);
            return to;
        };
        let rows = x.len() / first.inputs;
        let params = self.folded.as_ref().unwrap_or(&self.params);
        let [a, b] = &mut scratch.values;
        for (i, (step, packed)) in self.steps.iter().zip(&self.packed).enumerate() {
            let (from, to) = if i % 2 == 0 { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            let input = if i == 0 { x } else { &from[..rows * step.inputs] };
            let panels = Panels::new(packed, step.inputs, step.outputs);
            product(input, panels, sized(to, rows * step.outputs), step.then(params));
        }
        let last = self.steps.len() - 1;
        let (inputs, outputs) = (self.steps[0].inputs, self.steps[last].outputs);
        let values = &scratch.values[last % 2][..rows * outputs];
        if !self.joined {
            return values;
        }
        let joined = sized(&mut scratch.joined, rows * (inputs + outputs));
        join(x, inputs, values, outputs, joined);
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::graph::{Node, autoencoder, mlp};
    use crate::seed::Stream;

    #[test]
    fn a_joined_graph_gives_the_input_and_the_last_output() {
        let graph = autoencoder(5, &[4], 2);
        let params = graph.init(&mut Stream::new(1, "joined"));
        let mut plain = graph.clone();
        plain.nodes.pop();
        let (joined, plain) =
            (RowPredictor::new(&graph, &params).unwrap(), RowPredictor::new(&plain, &params).unwrap());
        let x: Vec<f32> = (0..35).map(|i| (i as f32 * 0.7).sin()).collect();
        let (mut a, mut b) = (RowScratch::default(), RowScratch::default());
        let rows = joined.latents(&x, &mut a).chunks_exact(10);
        assert_eq!(rows.len(), 7);
        for ((row, x), y) in rows.zip(x.chunks_exact(5)).zip(plain.latents(&x, &mut b).chunks_exact(5)) {
            assert_eq!((&row[..5], &row[5..]), (x, y));
        }
        assert!(Engine::new(&graph).err().unwrap().to_string().contains("cannot run layer"));
    }

    #[test]
    fn other_concatenations_are_refused() {
        let concat = |from: &[usize]| Node { name: "c".into(), layer: Layer::Concat, from: from.to_vec() };
        let mut alone = mlp(3, &[], 2);
        alone.nodes = vec![concat(&[0, 0])];
        let (mut turned, mut inside, mut twice) = (mlp(3, &[], 2), mlp(3, &[], 2), mlp(3, &[], 2));
        turned.nodes.push(concat(&[1, 0]));
        inside.nodes.push(concat(&[0, 1]));
        inside.nodes.push(Node { name: "r".into(), layer: Layer::Relu, from: vec![2] });
        twice.nodes.extend([concat(&[0, 1]), concat(&[0, 2])]);
        for graph in [alone, turned, inside, twice] {
            graph.widths().unwrap();
            let params = Params::new(graph.specs());
            assert!(RowPredictor::new(&graph, &params).is_err(), "{graph:?}");
        }
    }
}
