//! Forward and backward through a multi-layer perceptron, with buffers allocated once.
//!
//! Threads share the packed weights of a [`RowEngine`]. Each takes some rows through a [`Pass`] of its own, forward and
//! backward, without waiting for the others.

use super::super::layout::CpuParams;
use super::super::norm::{Affine, Batch, MOMENTUM};
use super::compile::{CompiledSteps, Step, compile, unsupported};
use crate::compute::gemm::{
    Columns, Line, NR, Panels, Then, WEIGHT_ROWS, ZERO, column_sums, pack, pack_transposed, product, weight_gradient,
};
use crate::compute::pool::{Pool, pieces};
use crate::error::{Error, Result};
use crate::net::graph::Graph;

/// The packed lines of a layer's weights, for the forward and for the backward pass.
#[derive(Clone, Debug)]
struct PackedLines {
    forward: std::ops::Range<usize>,
    backward: std::ops::Range<usize>,
}

/// One task of the parallel loop that packs: some panels of a layer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    step: usize,
    backward: bool,
    first: usize,
}

/// Panels that one task packs.
const PANELS: usize = 4;

/// A compiled graph with its weights in the two packed forms that forward and backward passes read.
pub(crate) struct RowEngine {
    clip: Option<f32>,
    steps: Vec<Step>,
    weights: Vec<Line>,
    packed: Vec<PackedLines>,
    pieces: Vec<Piece>,
    /// Where each piece ends in `weights`.
    ends: Vec<usize>,
}

impl RowEngine {
    /// Compiles `graph`; call [`RowEngine::load`] before the first pass.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub(crate) fn new(graph: &Graph) -> Result<RowEngine> {
        let CompiledSteps { clip, steps, concat } = compile(graph)?;
        if let Some(name) = concat {
            return Err(unsupported(name));
        }
        if steps.is_empty() {
            return Err(Error::format("there are no layers to train"));
        }
        let (mut packed, mut list, mut ends) = (Vec::new(), Vec::new(), Vec::new());
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
            // The gradient of the input is rarely needed: see `Pass::input_gradient`.
            let backward = if step > 0 { add(true, s.outputs, s.inputs) } else { 0..0 };
            packed.push(PackedLines { forward, backward });
        }
        Ok(RowEngine { clip, steps, weights: vec![ZERO; end], packed, pieces: list, ends })
    }

    /// Packs new parameter values; call it after each update.
    pub(crate) fn load(&mut self, params: &CpuParams, pool: &Pool) {
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

    /// Updates the running means and variances by those of the last batch, which the passes have left among the
    /// gradients. Each pass has about the same number of rows.
    pub(crate) fn update_running_stats(&self, params: &mut CpuParams, gradients: &[Vec<f32>]) {
        let weight = MOMENTUM / gradients.len().max(1) as f32;
        for norm in self.steps.iter().filter_map(|s| s.norm) {
            for i in [norm + 2, norm + 3] {
                let range = params.range(i);
                let running = params.get_mut(i);
                running.iter_mut().for_each(|r| *r *= 1.0 - MOMENTUM);
                for part in gradients {
                    running.iter_mut().zip(&part[range.clone()]).for_each(|(r, &v)| *r += weight * v);
                }
            }
        }
    }

    /// The number of latent features.
    pub(crate) fn latent(&self) -> usize {
        self.steps.last().map_or(0, |s| s.outputs)
    }

    fn forward(&self, i: usize) -> Panels<'_> {
        Panels::new(&self.weights[self.packed[i].forward.clone()], self.steps[i].inputs, self.steps[i].outputs)
    }

    fn backward(&self, i: usize) -> Panels<'_> {
        Panels::new(&self.weights[self.packed[i].backward.clone()], self.steps[i].outputs, self.steps[i].inputs)
    }
}

/// Forward and backward through a [`RowEngine`] for some rows, on one thread. Its buffers grow to the largest number of
/// rows, and nothing is allocated after that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    /// The output of each step, rows x outputs, and the gradient of it, before its ReLU.
    values: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    /// The clipped input, where the engine clips.
    clipped: Vec<f32>,
    /// For steps with batch normalization, its input and the statistics of the batch.
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
    pub(crate) fn forward(&mut self, engine: &RowEngine, params: &CpuParams, x: &[f32]) -> &[f32] {
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
            if let Some(affine) = affine(step, params) {
                let raw = sized(&mut self.raw[i], n);
                product(input, engine.forward(i), raw, step.then(step.bias.map(|b| params.get(b))));
                self.batches[i].forward(raw, affine, step.relu, out);
            } else {
                product(input, engine.forward(i), out, step.then(step.bias.map(|b| params.get(b))));
            }
        }
        self.latents_and_gradient().0
    }

    /// The latent vectors, and the buffer for the gradient of the loss with respect to them.
    pub(crate) fn latents_and_gradient(&mut self) -> (&[f32], &mut [f32]) {
        let n = self.rows * self.latent;
        match (self.values.last(), self.gradients.last_mut()) {
            (Some(values), Some(gradients)) => (&values[..n], &mut gradients[..n]),
            _ => (&[], &mut []),
        }
    }

    /// The output of the layer before the last, from the first row on.
    pub(crate) fn penultimate(&self) -> &[f32] {
        match self.values.as_slice() {
            [.., hidden, _] => hidden,
            _ => &[],
        }
    }

    /// Propagates the gradient left in [`Pass::latents_and_gradient`] back to the parameters.
    /// `x` must be the input of the last forward pass; `gradients` has the parameters' layout and is overwritten. In the
    /// place of the running means and variances it gets those of the batch, for [`RowEngine::update_running_stats`].
    pub(crate) fn backward(&mut self, engine: &RowEngine, params: &CpuParams, x: &[f32], gradients: &mut [f32]) {
        let x = if engine.clip.is_some() { &self.clipped[..x.len()] } else { x };
        for (i, step) in engine.steps.iter().enumerate().rev() {
            let (below, here) = self.gradients.split_at_mut(i);
            let dy = &mut here[0][..self.rows * step.outputs];
            if step.relu && i + 1 == engine.steps.len() {
                for (d, &v) in dy.iter_mut().zip(&self.values[i]) {
                    *d = if v > 0.0 { *d } else { 0.0 };
                }
            }
            if let Some(affine) = affine(step, params) {
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
    pub(crate) fn input_gradient(&mut self, engine: &RowEngine, params: &CpuParams) -> &[f32] {
        let Step { inputs, outputs, weight, .. } = engine.steps[0];
        self.input_weights.resize(Panels::lines(outputs, inputs), ZERO);
        pack_transposed(&mut self.input_weights, params.get(weight), outputs, inputs, 0);
        let panels = Panels::new(&self.input_weights, outputs, inputs);
        let dx = sized(&mut self.input_gradient, self.rows * inputs);
        product(&self.gradients[0][..self.rows * outputs], panels, dx, Then::Keep);
        if let Some(limit) = engine.clip {
            // A value beyond the limit has no gradient.
            dx.iter_mut().zip(&self.clipped).filter(|(_, x)| x.abs() >= limit).for_each(|(d, _)| *d = 0.0);
        }
        dx
    }
}

/// The parameters of a step's batch normalization, if it has one.
fn affine<'a>(step: &Step, params: &'a CpuParams) -> Option<Affine<'a>> {
    step.norm.map(|n| Affine { weight: params.get(n), bias: params.get(n + 1) })
}

/// The input as the first layer reads it.
pub(super) fn clip<'a>(limit: Option<f32>, x: &'a [f32], clipped: &'a mut Vec<f32>) -> &'a [f32] {
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

/// Concatenates each row of `a` with the row of `b`.
pub(crate) fn concat_rows(a: &[f32], a_width: usize, b: &[f32], b_width: usize, to: &mut [f32]) {
    let rows = a.chunks_exact(a_width).zip(b.chunks_exact(b_width));
    for (to, (a, b)) in to.chunks_exact_mut(a_width + b_width).zip(rows) {
        let (first, second) = to.split_at_mut(a_width);
        first.copy_from_slice(a);
        second.copy_from_slice(b);
    }
}

/// The first `n` values of a buffer that grows where it is too short.
pub(super) fn sized(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}
