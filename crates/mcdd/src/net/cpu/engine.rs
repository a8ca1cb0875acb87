//! Runs a graph on the CPU: forward and backward, with buffers allocated once.
//!
//! A step is a handful of parallel loops: one over rows for the whole forward pass, one over rows for the gradients of
//! all layers' outputs, one that packs these, one for all weight gradients, and one that packs the new weights. What
//! a thread writes depends on nobody else's share, so the number of threads changes no bit.

use std::sync::Arc;

use super::gemm::{
    Line, MR, NR, Panels, Then, WEIGHT_ROWS, ZERO, column_sums, pack, pack_transposed, product, weight_gradient,
};
use super::pool::{Pool, chunks, pieces, row_chunks};
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

/// A matrix in a shared buffer of lines: where it lies, and its shape.
#[derive(Clone, Debug)]
struct Slot {
    at: std::ops::Range<usize>,
    k: usize,
    n: usize,
}

/// A piece of a parallel loop over several layers: some panels, or some rows of a gradient.
#[derive(Clone, Copy, Debug)]
struct Piece {
    step: usize,
    /// Weights for the way back; or the bias.
    other: bool,
    first: usize,
}

/// Cuts matrices into pieces of a few panels, and says where each piece ends in the shared buffer.
#[derive(Clone, Debug, Default)]
struct Layout {
    slots: Vec<Slot>,
    pieces: Vec<Piece>,
    ends: Vec<usize>,
}

/// Panels that one task packs.
const PANELS: usize = 4;

impl Layout {
    fn add(&mut self, step: usize, other: bool, k: usize, n: usize) {
        let start = self.ends.last().copied().unwrap_or(0);
        for first in (0..n.div_ceil(NR)).step_by(PANELS) {
            let last = (first + PANELS).min(n.div_ceil(NR));
            self.pieces.push(Piece { step, other, first });
            self.ends.push(start + last * k);
        }
        self.slots.push(Slot { at: start..start + Panels::lines(k, n), k, n });
    }

    fn lines(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}

impl Slot {
    fn panels<'a>(&self, lines: &'a [Line]) -> Panels<'a> {
        Panels::new(&lines[self.at.clone()], self.k, self.n)
    }
}

/// A network that trains: weights in the two packed forms that the passes read, activations and gradients.
pub struct Trainer {
    steps: Vec<Step>,
    pool: Arc<Pool>,
    /// The output of each step, batch x outputs, and the gradient of it, before its ReLU.
    values: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    widths: Vec<usize>,
    /// Weights: slot `2 i` of step `i` for the way forward, `2 i - 1` for the way back (step 0 has none).
    weights: Vec<Line>,
    weight_layout: Layout,
    /// The packed gradients of the outputs, slot `i` of step `i`, for this batch.
    packed: Vec<Line>,
    packed_layout: Layout,
    /// How the flat gradient of the parameters is cut.
    gradient_pieces: (Vec<Piece>, Vec<usize>),
    input_gradient: Vec<f32>,
    input_weights: Vec<Line>,
    rows: usize,
}

impl Trainer {
    /// An engine for `graph`; it grows to the largest batch that it meets and allocates nothing after that.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub fn new(graph: &Graph, pool: Arc<Pool>) -> Result<Trainer> {
        let steps = compile(graph)?;
        let mut weight_layout = Layout::default();
        let (mut list, mut ends, mut end) = (Vec::new(), Vec::new(), 0);
        for (i, s) in steps.iter().enumerate() {
            // The way back through the first layer leads to the input, which few ask for.
            if i > 0 {
                weight_layout.add(i, true, s.outputs, s.inputs);
            }
            weight_layout.add(i, false, s.inputs, s.outputs);
            for first in (0..s.inputs).step_by(WEIGHT_ROWS) {
                end += WEIGHT_ROWS.min(s.inputs - first) * s.outputs;
                list.push(Piece { step: i, other: false, first });
                ends.push(end);
            }
            if s.bias.is_some() {
                end += s.outputs;
                list.push(Piece { step: i, other: true, first: 0 });
                ends.push(end);
            }
        }
        let empty = vec![Vec::new(); steps.len()];
        Ok(Trainer {
            pool,
            values: empty.clone(),
            gradients: empty,
            widths: steps.iter().map(|s| s.outputs).collect(),
            weights: vec![ZERO; weight_layout.lines()],
            weight_layout,
            packed: Vec::new(),
            packed_layout: Layout::default(),
            gradient_pieces: (list, ends),
            input_gradient: Vec::new(),
            input_weights: Vec::new(),
            rows: 0,
            steps,
        })
    }

    /// Takes over new parameter values; call it after each update.
    pub fn load(&mut self, params: &Params) {
        let Layout { pieces: list, ends, .. } = &self.weight_layout;
        self.pool.split(pieces(&mut self.weights, ends), |i, lines| {
            let Piece { step, other, first } = list[i];
            let s = &self.steps[step];
            let weight = params.get(s.weight);
            if other {
                pack_transposed(lines, weight, s.outputs, s.inputs, first);
            } else {
                pack(lines, weight, s.inputs, s.outputs, first);
            }
        });
    }

    /// Makes room for a batch of `rows` rows.
    fn resize(&mut self, rows: usize) {
        if rows == self.rows {
            return;
        }
        self.rows = rows;
        for ((value, gradient), step) in self.values.iter_mut().zip(&mut self.gradients).zip(&self.steps) {
            sized(value, rows * step.outputs);
            sized(gradient, rows * step.outputs);
        }
        // Empties its lists and fills them again within what they hold already.
        let Layout { slots, pieces, ends } = &mut self.packed_layout;
        (slots.clear(), pieces.clear(), ends.clear());
        for (i, step) in self.steps.iter().enumerate() {
            self.packed_layout.add(i, false, rows, step.outputs);
        }
        if self.packed.len() < self.packed_layout.lines() {
            self.packed.resize(self.packed_layout.lines(), ZERO);
        }
    }

    /// The latent vectors of the rows in `x`, one after the other.
    pub fn forward(&mut self, x: &[f32], params: &Params) -> &[f32] {
        let inputs = self.steps[0].inputs;
        self.resize(x.len() / inputs);
        let (steps, slots, weights) = (&self.steps, &self.weight_layout.slots, &self.weights);
        let chunk = self.pool.chunk(self.rows, MR);
        self.pool.split(row_chunks(&mut self.values, &self.widths, self.rows, chunk), |c, mut values| {
            for (i, step) in steps.iter().enumerate() {
                let panels = slots[2 * i].panels(weights);
                if i == 0 {
                    let output = values.one(0);
                    let rows = output.len() / step.outputs;
                    product(&x[c * chunk * inputs..][..rows * inputs], panels, output, step.then(params));
                } else {
                    let (input, output) = values.pair(i - 1, i);
                    product(input, panels, output, step.then(params));
                }
            }
        });
        self.latents()
    }

    /// The latent vectors of the last forward pass.
    pub fn latents(&self) -> &[f32] {
        let last = self.steps.len() - 1;
        &self.values[last][..self.rows * self.widths[last]]
    }

    /// The latent vectors, and the buffer for the gradient of the loss with respect to them.
    pub fn latents_and_gradient(&mut self) -> (&[f32], &mut [f32]) {
        let last = self.steps.len() - 1;
        let n = self.rows * self.widths[last];
        (&self.values[last][..n], &mut self.gradients[last][..n])
    }

    /// Goes back from the gradient left in [`Trainer::latents_and_gradient`] to that of the parameters.
    /// `x` must be the input of the last forward pass, and `gradients` have the parameters' layout.
    pub fn backward(&mut self, x: &[f32], gradients: &mut [f32]) {
        let (steps, values, rows) = (&self.steps, &self.values, self.rows);
        let (slots, weights) = (&self.weight_layout.slots, &self.weights);
        let chunk = self.pool.chunk(rows, MR);
        self.pool.split(row_chunks(&mut self.gradients, &self.widths, rows, chunk), |c, mut gradients| {
            let last = steps.len() - 1;
            if steps[last].relu {
                let at = c * chunk * steps[last].outputs;
                for (d, &v) in gradients.one(last).iter_mut().zip(&values[last][at..]) {
                    *d = if v > 0.0 { *d } else { 0.0 };
                }
            }
            for i in (1..steps.len()).rev() {
                let (dy, dx) = gradients.pair(i, i - 1);
                let activation = &values[i - 1][c * chunk * steps[i].inputs..][..dx.len()];
                let then = if steps[i - 1].relu { Then::Where(activation) } else { Then::Keep };
                product(dy, slots[2 * i - 1].panels(weights), dx, then);
            }
        });

        let Layout { pieces: list, ends, slots } = &self.packed_layout;
        self.pool.split(pieces(&mut self.packed, ends), |i, lines| {
            let Piece { step, first, .. } = list[i];
            pack(lines, &self.gradients[step], rows, steps[step].outputs, first);
        });

        let (list, ends) = &self.gradient_pieces;
        let packed = &self.packed;
        self.pool.split(pieces(gradients, ends), |i, out| {
            let Piece { step, other, first } = list[i];
            let Step { inputs, .. } = steps[step];
            if other {
                column_sums(&packed[slots[step].at.clone()], rows, out);
            } else {
                let input = if step == 0 { x } else { &values[step - 1][..rows * inputs] };
                weight_gradient(input, inputs, slots[step].panels(packed), first, out);
            }
        });
    }

    /// The gradient with respect to the input, after [`Trainer::backward`] with the same parameters.
    pub fn input_gradient(&mut self, params: &Params) -> &[f32] {
        let Step { inputs, outputs, weight, .. } = self.steps[0];
        let lines = &mut self.input_weights;
        lines.resize(Panels::lines(outputs, inputs), ZERO);
        let each = self.pool.chunk(inputs.div_ceil(NR), 1);
        self.pool.split(chunks(lines, each * outputs), |i, lines| {
            pack_transposed(lines, params.get(weight), outputs, inputs, i * each);
        });
        let panels = Panels::new(lines, outputs, inputs);
        let dy = &self.gradients[0];
        let chunk = self.pool.chunk(self.rows, MR);
        let dx = sized(&mut self.input_gradient, self.rows * inputs);
        self.pool.split(chunks(dx, chunk * inputs), |c, dx| {
            let rows = dx.len() / inputs;
            product(&dy[c * chunk * outputs..][..rows * outputs], panels, dx, Then::Keep);
        });
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
    packed: Vec<Vec<Line>>,
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
        let packed = steps
            .iter()
            .map(|s| {
                let mut lines = vec![ZERO; Panels::lines(s.inputs, s.outputs)];
                pack(&mut lines, params.get(s.weight), s.inputs, s.outputs, 0);
                lines
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
            let panels = Panels::new(packed, step.inputs, step.outputs);
            product(input, panels, sized(to, rows * step.outputs), step.then(&self.params));
        }
        let last = self.steps.len() - 1;
        &scratch.values[last % 2][..rows * self.steps[last].outputs]
    }
}
