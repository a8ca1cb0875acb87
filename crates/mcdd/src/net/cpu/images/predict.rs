//! Prediction: each image by itself, on the calling thread.

use super::forward::{ConvBuffers, Out, Part};
use super::kernel::start_lines;
use super::pixels::{Act, Images};
use super::plan::{Plan, Slots, Work, compile};
use crate::compute::gemm::{Line, NR, ZERO};
use crate::error::Result;
use crate::net::graph::Graph;
use crate::net::graph::inverse_deviation;
use crate::net::params::Params;

/// Images that go through all layers together; each gives what it gives alone.
const TOGETHER: usize = 4;

/// A network of images that only predicts: cheap to share between threads, each with its own [`ImageBuffers`].
#[derive(Clone, Debug)]
pub struct ImagePredictor {
    plan: Plan,
    slots: Slots,
    /// Of each step.
    weights: Vec<Vec<Line>>,
    starts: Vec<Vec<Line>>,
    /// Scale and shift of each batch normalization that is left.
    norms: Vec<[Vec<f32>; 2]>,
    params: Params,
}

/// Buffers of one thread that predicts.
#[derive(Clone, Debug, Default)]
pub struct ImageBuffers {
    slots: Vec<Vec<f32>>,
    scratch: ConvBuffers,
    latents: Vec<f32>,
}

impl ImagePredictor {
    /// Prepares `graph` with `params`; batch normalization becomes part of the convolution before it where it can.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub fn new(graph: &Graph, params: &Params) -> Result<ImagePredictor> {
        let (graph, folded) = graph.folded_where_it_can(params)?;
        let plan = compile(&graph)?;
        let slots = Slots::new(&plan.buffers, &plan.value_lives());
        let (mut weights, mut starts) = (Vec::new(), Vec::new());
        for step in &plan.steps {
            let (mut lines, mut start) = (Vec::new(), Vec::new());
            if let Work::Conv { conv, weight, bias } = &step.work {
                lines.resize(conv.outputs.div_ceil(NR) * conv.forward_k(), ZERO);
                conv.pack(&mut lines, folded.get(*weight), 0);
                start_lines(bias.map(|b| folded.get(b)), conv.outputs, &mut start);
            }
            weights.push(lines);
            starts.push(start);
        }
        let norms = plan.norms.iter().map(|n| {
            let [weight, bias, mean, variance] = [0, 1, 2, 3].map(|j| folded.get(n.parameter + j));
            let scale: Vec<f64> =
                weight.iter().zip(variance).map(|(&w, &v)| f64::from(w) * inverse_deviation(v)).collect();
            let shift = bias.iter().zip(mean).zip(&scale).map(|((&b, &m), s)| (f64::from(b) - f64::from(m) * s) as f32);
            let shift = shift.collect();
            [scale.into_iter().map(|s| s as f32).collect(), shift]
        });
        let norms = norms.collect();
        Ok(ImagePredictor { plan, slots, weights, starts, norms, params: params.clone() })
    }

    /// The parameters it was made with.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The latent vectors of the images in `x`, on the calling thread.
    pub fn latents<'s>(&self, x: &[f32], scratch: &'s mut ImageBuffers) -> &'s [f32] {
        let (input, latent) = (self.plan.buffers[0].len(), self.plan.buffers[self.plan.output].len());
        let images = x.len() / input;
        scratch.latents.resize(images * latent, 0.0);
        let ImageBuffers { slots, scratch: rooms, latents } = scratch;
        slots.resize(self.slots.sizes.len(), Vec::new());
        for (slot, &size) in slots.iter_mut().zip(&self.slots.sizes) {
            let n = images.min(TOGETHER) * size;
            if slot.len() < n {
                slot.resize(n, 0.0);
            }
        }
        for (x, to) in x.chunks(TOGETHER * input).zip(latents.chunks_mut(TOGETHER * latent)) {
            self.some(x, slots, rooms);
            to.copy_from_slice(&slots[self.slots.of[self.plan.output]][..to.len()]);
        }
        latents
    }

    fn some(&self, x: &[f32], slots: &mut [Vec<f32>], scratch: &mut ConvBuffers) {
        let buffers = &self.plan.buffers;
        let images = x.len() / buffers[0].len();
        for (i, step) in self.plan.steps.iter().enumerate() {
            let mut data = std::mem::take(&mut slots[self.slots.of[step.buffer]]);
            let act = |norm: Option<usize>, relu: bool| match norm {
                Some(n) => Act { scale: &self.norms[n][0], shift: &self.norms[n][1], relu },
                None => Act { relu, ..Act::default() },
            };
            let acts: Vec<Act> = step.inputs.iter().map(|i| act(i.view.norm, i.view.relu)).collect();
            let from: Vec<Option<Images>> = step
                .inputs
                .iter()
                .map(|i| {
                    let b = &buffers[i.view.buffer];
                    let data = if i.view.buffer == 0 { x } else { &slots[self.slots.of[i.view.buffer]] };
                    let images = Images { data, image: b.len(), pixel: b.channels, offset: i.view.offset };
                    (i.view.buffer != step.buffer).then_some(images)
                })
                .collect();
            let (weights, start) = (&self.weights[i], &self.starts[i]);
            let part = Part { step, buffers, weights, start, acts: &acts, from: &from, images };
            let b = &buffers[step.buffer];
            let length = images * b.len();
            let mut out = Out { data: &mut data[..length], image: b.len(), pixel: b.channels, offset: step.offset };
            part.run(&mut out, scratch);
            slots[self.slots.of[step.buffer]] = data;
        }
    }
}
