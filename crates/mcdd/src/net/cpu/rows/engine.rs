//! Forward and backward through a multi-layer perceptron, with buffers allocated once.
//!
//! Threads share the packed weights of a [`RowEngine`]. Each takes some rows through a [`Pass`] of its own, forward and
//! backward, without waiting for the others.

use std::ops::Range;

use super::super::layout::CpuParams;
use super::super::norm::{Affine, Batch, MOMENTUM};
use super::compile::{CompiledSteps, Step, compile, unsupported};
use super::input::{InputStage, sized};
use crate::compute::gemm::{
    Columns, Line, NR, Panels, Then, WEIGHT_ROWS, ZERO, add_product, column_sums, pack, pack_transposed, product,
    weight_gradient,
};
use crate::compute::pool::{Pool, pieces};
use crate::error::{Error, Result};
use crate::net::graph::Graph;

/// The packed lines of a layer's weights, for the forward and for the backward pass.
#[derive(Clone, Debug)]
struct PackedLines {
    forward: Range<usize>,
    backward: Range<usize>,
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
    input: InputStage,
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
        let CompiledSteps { input, steps, concat } = compile(graph)?;
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
        Ok(RowEngine { input, steps, weights: vec![ZERO; end], packed, pieces: list, ends })
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

/// Rows that are concatenations of two vectors, in one or two halves; vectors that both halves have are multiplied once.
/// The bits are those of the concatenated rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs<'a> {
    /// The lengths of the two vectors.
    pub widths: [usize; 2],
    /// The first and the second vectors of each half, which have the same number of rows.
    pub halves: &'a [[&'a [f32]; 2]],
}

impl Pairs<'_> {
    /// The number of rows of a half.
    fn rows(&self) -> usize {
        self.halves.first().map_or(0, |[first, _]| first.len() / self.widths[0].max(1))
    }

    /// Whether half `i` has the first vectors of the half before it.
    fn repeats(&self, i: usize) -> bool {
        i > 0 && std::ptr::eq(self.halves[i][0], self.halves[i - 1][0])
    }
}

/// The input of the first layer.
#[derive(Clone, Copy)]
enum Input<'a> {
    Rows(&'a [f32]),
    Pairs(Pairs<'a>),
}

/// Forward and backward through a [`RowEngine`] for some rows, on one thread. Its buffers grow to the largest number of
/// rows, and nothing is allocated after that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    /// The output of each step, rows x outputs, and the gradient of it, before its ReLU.
    values: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    /// The input as the first layer reads it, where that is something else.
    read: Vec<f32>,
    /// The gradient with respect to it.
    read_gradient: Vec<f32>,
    /// For steps with batch normalization, its input and the statistics of the batch.
    raw: Vec<Vec<f32>>,
    batches: Vec<Batch>,
    packed: Vec<Line>,
    columns: Columns,
    input_weights: Vec<Line>,
    rows: usize,
    latent: usize,
}

impl Pass {
    /// The latent vectors of the rows in `x`, one after the other.
    pub(crate) fn forward(&mut self, engine: &RowEngine, params: &CpuParams, x: &[f32]) -> &[f32] {
        self.prepare(engine, x.len() / engine.input.width);
        let mut read = std::mem::take(&mut self.read);
        self.layer(engine, params, 0, Some(engine.input.forward(x, &mut read)));
        self.read = read;
        (1..engine.steps.len()).for_each(|i| self.layer(engine, params, i, None));
        self.latents()
    }

    /// The same for pairs; the engine must read its inputs as they are, and not begin with batch normalization.
    pub(crate) fn forward_pairs(&mut self, engine: &RowEngine, params: &CpuParams, pairs: Pairs) -> &[f32] {
        let (step, rows, [a, b]) = (&engine.steps[0], pairs.rows(), pairs.widths);
        debug_assert!(!engine.input.changes() && step.norm.is_none() && a + b == step.inputs);
        self.prepare(engine, rows * pairs.halves.len());
        let (weights, size) = (engine.forward(0), rows * step.outputs);
        let out = &mut self.values[0];
        for (i, [first, _]) in pairs.halves.iter().enumerate() {
            match pairs.repeats(i) {
                true => out.copy_within((i - 1) * size..i * size, i * size),
                false => product(first, weights.rows(0..a), &mut out[i * size..][..size], Then::Keep),
            }
        }
        let then = step.then(step.bias.map(|b| params.get(b)));
        for ([_, second], out) in pairs.halves.iter().zip(out.chunks_exact_mut(size.max(1))) {
            add_product(second, weights.rows(a..a + b), out, then);
        }
        (1..engine.steps.len()).for_each(|i| self.layer(engine, params, i, None));
        self.latents()
    }

    /// Makes room for a number of rows.
    fn prepare(&mut self, engine: &RowEngine, rows: usize) {
        self.rows = rows;
        self.latent = engine.latent();
        self.values.resize(engine.steps.len(), Vec::new());
        self.gradients.resize(engine.steps.len(), Vec::new());
        self.raw.resize(engine.steps.len(), Vec::new());
        self.batches.resize(engine.steps.len(), Batch::default());
        for (i, step) in engine.steps.iter().enumerate() {
            sized(&mut self.gradients[i], rows * step.outputs);
            sized(&mut self.values[i], rows * step.outputs);
        }
    }

    /// Layer `i`, on `x` or on the output of the layer before it.
    fn layer(&mut self, engine: &RowEngine, params: &CpuParams, i: usize, x: Option<&[f32]>) {
        let step = &engine.steps[i];
        let n = self.rows * step.outputs;
        let (before, here) = self.values.split_at_mut(i);
        let input = x.or(before.last().map(|v| &v[..self.rows * step.inputs])).unwrap_or(&[]);
        let out = &mut here[0][..n];
        let then = step.then(step.bias.map(|b| params.get(b)));
        if let Some(affine) = affine(step, params) {
            let raw = sized(&mut self.raw[i], n);
            product(input, engine.forward(i), raw, then);
            self.batches[i].forward(raw, affine, step.relu, out);
        } else {
            product(input, engine.forward(i), out, then);
        }
    }

    /// The latent vectors of the last forward pass.
    pub(crate) fn latents(&self) -> &[f32] {
        self.values.last().map_or(&[], |values| &values[..self.rows * self.latent])
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
        let read = std::mem::take(&mut self.read);
        let x = if engine.input.changes() { &read[..self.rows * engine.input.outputs()] } else { x };
        self.propagate(engine, params, Some((Input::Rows(x), gradients)));
        self.read = read;
    }

    /// The same after [`Pass::forward_pairs`].
    pub(crate) fn backward_pairs(
        &mut self,
        engine: &RowEngine,
        params: &CpuParams,
        pairs: Pairs,
        gradients: &mut [f32],
    ) {
        self.propagate(engine, params, Some((Input::Pairs(pairs), gradients)));
    }

    /// The same without the gradients of the parameters, for [`Pass::input_gradient`] alone; the engine must not have batch
    /// normalization.
    pub(crate) fn backward_hidden(&mut self, engine: &RowEngine, params: &CpuParams) {
        debug_assert!(engine.steps.iter().all(|s| s.norm.is_none()));
        self.propagate(engine, params, None);
    }

    fn propagate(&mut self, engine: &RowEngine, params: &CpuParams, mut parameters: Option<(Input, &mut [f32])>) {
        for (i, step) in engine.steps.iter().enumerate().rev() {
            let (below, here) = self.gradients.split_at_mut(i);
            let dy = &mut here[0][..self.rows * step.outputs];
            if step.relu && i + 1 == engine.steps.len() {
                for (d, &v) in dy.iter_mut().zip(&self.values[i]) {
                    *d = if v > 0.0 { *d } else { 0.0 };
                }
            }
            if let (Some(affine), Some((_, gradients))) = (affine(step, params), &mut parameters) {
                let norm = step.norm.unwrap_or(0);
                let (batch, raw) = (&self.batches[i], &self.raw[i][..dy.len()]);
                let [d_weight, d_bias, mean, variance] =
                    four(&mut gradients[params.range(norm).start..params.range(norm + 3).end]);
                batch.backward(raw, affine.weight, dy, d_weight, d_bias);
                batch.statistics(mean, variance);
            }
            let hidden = i.checked_sub(1).map(|below| &self.values[below][..self.rows * step.inputs]);
            if let (Some(below), Some(hidden)) = (below.last_mut(), hidden) {
                let then = if engine.steps[i - 1].relu { Then::Where(hidden) } else { Then::Keep };
                product(dy, engine.backward(i), &mut below[..self.rows * step.inputs], then);
            }
            let Some((input, gradients)) = &mut parameters else { continue };
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
            let input = hidden.map_or(*input, Input::Rows);
            weights_gradient(input, step, dy, dw, &mut self.columns);
        }
    }

    /// The gradient with respect to the inputs of all rows, after a backward pass with the same parameters.
    pub(crate) fn input_gradients(&mut self, engine: &RowEngine, params: &CpuParams, to: &mut [f32]) {
        let (rows, width) = (self.rows, engine.input.outputs());
        if !engine.input.changes() {
            return self.input_gradient(engine, params, 0..rows, 0..width, to);
        }
        let mut gradient = std::mem::take(&mut self.read_gradient);
        self.input_gradient(engine, params, 0..rows, 0..width, sized(&mut gradient, rows * width));
        engine.input.backward(&self.read[..rows * width], &gradient[..rows * width], to);
        self.read_gradient = gradient;
    }

    /// The gradient with respect to some of the values that the first layer reads, of some rows, after a backward pass with
    /// the same parameters.
    pub(crate) fn input_gradient(
        &mut self,
        engine: &RowEngine,
        params: &CpuParams,
        rows: Range<usize>,
        columns: Range<usize>,
        to: &mut [f32],
    ) {
        let Step { outputs, weight, .. } = engine.steps[0];
        self.input_weights.resize(Panels::lines(outputs, columns.len()), ZERO);
        let weights = &params.get(weight)[columns.start * outputs..columns.end * outputs];
        pack_transposed(&mut self.input_weights, weights, outputs, columns.len(), 0);
        let panels = Panels::new(&self.input_weights, outputs, columns.len());
        product(&self.gradients[0][rows.start * outputs..rows.end * outputs], panels, to, Then::Keep);
    }
}

/// The gradient of a layer's weight.
fn weights_gradient(input: Input, step: &Step, dy: Panels, dw: &mut [f32], columns: &mut Columns) {
    let mut part = |x: &[f32], width: usize, dy: Panels, dw: &mut [f32], add: bool| {
        for (c, dw) in dw.chunks_mut(WEIGHT_ROWS * step.outputs).enumerate() {
            weight_gradient(x, width, dy, c * WEIGHT_ROWS, dw, add, columns);
        }
    };
    match input {
        Input::Rows(x) => part(x, step.inputs, dy, dw, false),
        Input::Pairs(pairs) => {
            let (rows, [a, b]) = (pairs.rows(), pairs.widths);
            let (first, second) = dw.split_at_mut(a * step.outputs);
            for (i, [x, y]) in pairs.halves.iter().enumerate() {
                let dy = dy.rows(i * rows..(i + 1) * rows);
                part(x, a, dy, first, i > 0);
                // A vector beside itself has the same sums twice.
                match i == 0 && std::ptr::eq(*x, *y) {
                    true => second.copy_from_slice(first),
                    false => part(y, b, dy, second, i > 0),
                }
            }
        }
    }
}

/// The parameters of a step's batch normalization, if it has one.
fn affine<'a>(step: &Step, params: &'a CpuParams) -> Option<Affine<'a>> {
    step.norm.map(|n| Affine { weight: params.get(n), bias: params.get(n + 1) })
}

/// A buffer in four equal parts.
fn four(buffer: &mut [f32]) -> [&mut [f32]; 4] {
    let (ab, cd) = buffer.split_at_mut(buffer.len() / 2);
    let ((a, b), (c, d)) = (ab.split_at_mut(ab.len() / 2), cd.split_at_mut(cd.len() / 2));
    [a, b, c, d]
}

/// Concatenates each row of `a` with the row of `b`.
pub(super) fn concat_rows(a: &[f32], a_width: usize, b: &[f32], b_width: usize, to: &mut [f32]) {
    let rows = a.chunks_exact(a_width).zip(b.chunks_exact(b_width));
    for (to, (a, b)) in to.chunks_exact_mut(a_width + b_width).zip(rows) {
        let (first, second) = to.split_at_mut(a_width);
        first.copy_from_slice(a);
        second.copy_from_slice(b);
    }
}
