//! Prediction: each image by itself, on the calling thread.

use std::sync::{Arc, Mutex, PoisonError};

use super::super::layout::CpuParams;
use super::act::Act;
use super::buffers::{ConvBuffers, Out};
use super::engine::ImageEngine;
use super::forward::Part;
use super::kernel::start_lines;
use super::lanes::Images;
use super::plan::{Plan, Slots, View, Work, compile};
use crate::compute::gemm::{Line, NR, ZERO};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::net::engine::{InputGradient, Network, NetworkBuffers};
use crate::net::graph::{Graph, inverse_deviation};
use crate::net::params::Params;
use crate::onnx::{Builder, Value};

/// The number of images that go through all layers together. The results are independent of it.
const TOGETHER: usize = 4;

/// A convolutional network for prediction.
#[derive(Clone, Debug)]
pub(crate) struct ImageNetwork {
    graph: Graph,
    plan: Plan,
    slots: Slots,
    /// Packed weights and biases of each step.
    weights: Vec<Vec<Line>>,
    starts: Vec<Vec<Line>>,
    /// Scale and shift of each batch normalization that is left.
    norms: Vec<[Vec<f32>; 2]>,
    params: Params,
}

/// Buffers of one thread.
#[derive(Default)]
struct ImageBuffers {
    slots: Vec<Vec<f32>>,
    scratch: ConvBuffers,
    latents: Vec<f32>,
}

impl ImageNetwork {
    /// Batch normalization becomes part of the convolution before it where it can.
    pub(crate) fn new(graph: &Graph, params: &Params) -> Result<ImageNetwork> {
        let (folded_graph, folded) = graph.folded_where_it_can(params)?;
        let folded = CpuParams::new(&folded);
        let plan = compile(&folded_graph)?;
        let slots = Slots::new(&plan.buffers, &plan.value_lifetimes());
        let (mut weights, mut starts) = (Vec::new(), Vec::new());
        for step in &plan.steps {
            let (mut lines, mut start) = (Vec::new(), Vec::new());
            if let Work::Conv { conv, weight, bias, .. } = &step.work {
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
        Ok(ImageNetwork { graph: graph.clone(), plan, slots, weights, starts, norms, params: params.clone() })
    }

    fn run<'b>(&self, x: &[f32], buffers: &'b mut ImageBuffers) -> &'b [f32] {
        let (input, latent) = (self.input(), self.latent());
        let images = x.len() / input;
        let ImageBuffers { slots, scratch, latents } = buffers;
        latents.resize(images * latent, 0.0);
        slots.resize(self.slots.sizes.len(), Vec::new());
        for (slot, &size) in slots.iter_mut().zip(&self.slots.sizes) {
            let n = images.min(TOGETHER) * size;
            if slot.len() < n {
                slot.resize(n, 0.0);
            }
        }
        for (x, to) in x.chunks(TOGETHER * input).zip(latents.chunks_mut(TOGETHER * latent)) {
            self.run_some(x, slots, scratch);
            to.copy_from_slice(&slots[self.slots.of[self.plan.output]][..to.len()]);
        }
        latents
    }

    /// Runs up to [`TOGETHER`] images through all steps.
    fn run_some(&self, x: &[f32], slots: &mut [Vec<f32>], scratch: &mut ConvBuffers) {
        let buffers = &self.plan.buffers;
        let images = x.len() / buffers[0].len();
        for (i, step) in self.plan.steps.iter().enumerate() {
            let mut data = std::mem::take(&mut slots[self.slots.of[step.buffer]]);
            let act = |View { norm, factor, bend, .. }: View| match norm
                .map(|n| &self.norms[n])
                .or(factor.map(|f| &self.plan.factors[f]))
            {
                Some([scale, shift]) => Act { scale, shift, bend },
                None => Act { bend, ..Act::default() },
            };
            let acts: Vec<Act> = step.inputs.iter().map(|i| act(i.view)).collect();
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

impl Network for ImageNetwork {
    fn input(&self) -> usize {
        self.plan.buffers[0].len()
    }

    fn latent(&self) -> usize {
        self.plan.buffers[self.plan.output].len()
    }

    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        self.run(x, buffers.get())
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
        Ok(Arc::new(ImageNetwork::new(&graph, &params)?))
    }

    fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
        let params = CpuParams::new(&self.params);
        // Building an engine once shows that it can be built.
        let first = engine(&self.graph, &params)?;
        Ok(Arc::new(ImageGradient { graph: self.graph.clone(), params, engines: Mutex::new(vec![first]) }))
    }
}

/// An engine with fixed running statistics.
fn engine(graph: &Graph, params: &CpuParams) -> Result<ImageEngine> {
    let mut engine = ImageEngine::fixed(graph)?;
    engine.load(params, &Pool::new(1));
    Ok(engine)
}

/// Gradients with respect to the images. Threads take engines and give them back.
struct ImageGradient {
    graph: Graph,
    params: CpuParams,
    engines: Mutex<Vec<ImageEngine>>,
}

/// The gradient of the last call.
#[derive(Default)]
struct GradientBuffers(Vec<f32>);

impl InputGradient for ImageGradient {
    fn input_gradient<'b>(&self, x: &[f32], latent_gradient: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let to = &mut buffers.get::<GradientBuffers>().0;
        to.clear();
        let taken = self.engines.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut engine) = taken.or_else(|| engine(&self.graph, &self.params).ok()) else {
            to.resize(x.len(), 0.0);
            return to;
        };
        let pool = Pool::new(1);
        engine.forward(&self.params, x, &pool);
        engine.latents_and_gradient().1.copy_from_slice(latent_gradient);
        to.extend_from_slice(engine.input_gradient(&self.params, x, &pool));
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).push(engine);
        to
    }
}
