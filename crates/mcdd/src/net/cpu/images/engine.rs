//! Training: all images of a batch go through one step after the other, forward and backward.
//!
//! Batch normalization needs the statistics of the whole batch, so each step is a parallel loop over images. The result of
//! an image is independent of the thread and of how images are grouped, and sums over images are taken in order, so the bits
//! do not depend on the number of threads.

use std::sync::{Mutex, PoisonError};

use super::super::layout::CpuParams;
use super::act::Act;
use super::buffers::{ConvBuffers, Out};
use super::forward::{Part, group};
use super::kernel::start_lines;
use super::lanes::{Images, PixelShape};
use super::pixels::measure;
use super::plan::{Plan, Slots, Step, View, Work, compile};
use crate::compute::gemm::{Line, NR, ZERO};
use crate::compute::pool::{Pool, chunks, pieces};
use crate::error::Result;
use crate::net::graph::{Graph, inverse_deviation};

/// The statistics of a buffer's channels in a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Statistics {
    pub mean: Vec<f32>,
    pub variance: Vec<f32>,
    /// The term that gradients through batch normalization still miss: `[a, b]` of `a + b (x - mean)`.
    pub missing: Vec<[f64; 2]>,
}

/// A batch normalization as scale and shift.
#[derive(Clone, Debug, Default)]
pub(super) struct NormState {
    pub scale: Vec<f32>,
    pub shift: Vec<f32>,
    /// Sums of the gradient, and of its products with `x - mean`.
    pub sums: Vec<[f64; 2]>,
}

/// Where a convolution's packed weights are.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    pub forward: std::ops::Range<usize>,
    /// One for each class of pixels.
    pub back: Vec<std::ops::Range<usize>>,
}

/// One task of the parallel loop that packs: some panels of a step's weights, from `first` on.
#[derive(Clone, Copy, Debug)]
struct Piece {
    step: usize,
    class: Option<usize>,
    first: usize,
}

/// The number of panels of a task.
const PANELS: usize = 4;

/// Buffers that threads take and give back.
#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<ConvBuffers>>);

impl BufferPool {
    pub(super) fn with<T>(&self, body: impl FnOnce(&mut ConvBuffers) -> T) -> T {
        let mut scratch = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let out = body(&mut scratch);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        out
    }
}

/// A compiled graph with the buffers of a batch of images.
pub(super) struct ImageEngine {
    pub(super) plan: Plan,
    pub(super) images: usize,
    /// The values of each buffer; those of the input stay with the caller.
    pub(super) values: Vec<Vec<f32>>,
    pub(super) slots: Slots,
    /// The memory of gradients, by slot.
    pub(super) gradients: Vec<Vec<f32>>,
    pub(super) weights: Vec<Line>,
    pub(super) packed: Vec<Packed>,
    list: Vec<Piece>,
    ends: Vec<usize>,
    pub(super) statistics: Vec<Statistics>,
    pub(super) norms: Vec<NormState>,
    /// Two sums for each image and channel: the first of all channels of an image, then the second.
    pub(super) parts: Vec<f32>,
    /// The gradient of one step's output.
    pub(super) whole: Vec<f32>,
    /// Gradients of weights in tiles, before they are summed.
    pub(super) tiles: Vec<Line>,
    pub(super) start: Vec<Line>,
    pub(super) buffer_pool: BufferPool,
    /// Whether batch normalization uses its running statistics, and gradients go to the input instead of the parameters.
    pub(super) fixed: bool,
}

impl ImageEngine {
    /// Compiles `graph`; call [`ImageEngine::load`] before the first pass. Buffers grow to the largest batch; their memory
    /// is not allocated again after that.
    ///
    /// # Errors
    /// If the graph has a layer or a shape that this engine cannot run.
    pub(super) fn new(graph: &Graph) -> Result<ImageEngine> {
        ImageEngine::with(graph, false)
    }

    /// An engine for [`ImageEngine::input_gradient`]: nothing is trained, and batch normalization uses its running
    /// statistics, as in prediction.
    ///
    /// # Errors
    /// As for [`ImageEngine::new`].
    pub(super) fn fixed(graph: &Graph) -> Result<ImageEngine> {
        ImageEngine::with(graph, true)
    }

    fn with(graph: &Graph, fixed: bool) -> Result<ImageEngine> {
        let mut plan = compile(graph)?;
        if fixed {
            plan.buffers.iter_mut().for_each(|b| b.measured = false);
        }
        let slots = Slots::new(&plan.buffers, &plan.gradient_lifetimes(fixed));
        let (mut packed, mut list, mut ends, mut end) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (step, s) in plan.steps.iter().enumerate() {
            let mut here = Packed::default();
            if let Work::Conv { conv, .. } = &s.work {
                let mut add = |class: Option<usize>, k: usize, n: usize| {
                    let (start, panels) = (end, n.div_ceil(NR));
                    for first in (0..panels).step_by(PANELS) {
                        end = start + (first + PANELS).min(panels) * k;
                        list.push(Piece { step, class, first });
                        ends.push(end);
                    }
                    start..end
                };
                here.forward = add(None, conv.forward_k(), conv.outputs);
                if s.used && (fixed || s.inputs[0].view.buffer != 0) {
                    here.back = (0..conv.back.len()).map(|c| add(Some(c), conv.back_k(c), conv.inputs)).collect();
                }
            }
            packed.push(here);
        }
        let empty = |b: &super::plan::Buffer| {
            let n = if b.measured { b.channels } else { 0 };
            Statistics { mean: vec![0.0; n], variance: vec![0.0; n], missing: vec![[0.0; 2]; n] }
        };
        let scaled = |n: &super::plan::Norm| NormState {
            scale: vec![0.0; n.channels],
            shift: vec![0.0; n.channels],
            sums: vec![[0.0; 2]; n.channels],
        };
        Ok(ImageEngine {
            images: 0,
            values: vec![Vec::new(); plan.buffers.len()],
            gradients: vec![Vec::new(); slots.sizes.len()],
            weights: vec![ZERO; end],
            packed,
            list,
            ends,
            statistics: plan.buffers.iter().map(empty).collect(),
            norms: plan.norms.iter().map(scaled).collect(),
            parts: Vec::new(),
            whole: Vec::new(),
            tiles: Vec::new(),
            start: Vec::new(),
            buffer_pool: BufferPool::default(),
            fixed,
            slots,
            plan,
        })
    }

    /// The approximate number of bytes of the buffers for a batch of `images` images.
    pub(super) fn bytes(&self, images: usize) -> usize {
        let buffers = self.plan.buffers.iter().skip(1).map(|b| b.len());
        let whole = self.plan.buffers.iter().map(|b| b.len()).max();
        let numbers = buffers.chain(self.slots.sizes.iter().copied()).chain(whole).fold(0, usize::saturating_add);
        numbers.saturating_mul(images).saturating_mul(size_of::<f32>())
    }

    /// The number of latent features.
    pub(super) fn latent(&self) -> usize {
        self.plan.buffers[self.plan.output].len()
    }

    /// Packs new parameter values; call it after each update.
    pub(super) fn load(&mut self, params: &CpuParams, pool: &Pool) {
        let (steps, list) = (&self.plan.steps, &self.list);
        pool.split(pieces(&mut self.weights, &self.ends), |i, lines| {
            let Piece { step, class, first } = list[i];
            if let Work::Conv { conv, weight, .. } = &steps[step].work {
                match class {
                    None => conv.pack(lines, params.get(*weight), first),
                    Some(c) => conv.pack_back(lines, params.get(*weight), &conv.back[c], first),
                }
            }
        });
    }

    /// The latent vectors of the images in `x`, one after the other, in training mode.
    pub(super) fn forward(&mut self, params: &CpuParams, x: &[f32], pool: &Pool) -> &[f32] {
        self.images = x.len() / self.plan.buffers[0].len();
        let n = self.images;
        for (value, buffer) in self.values.iter_mut().zip(&self.plan.buffers).skip(1) {
            if value.len() < n * buffer.len() {
                value.resize(n * buffer.len(), 0.0);
            }
        }
        for (gradient, size) in self.gradients.iter_mut().zip(&self.slots.sizes) {
            if gradient.len() < n * size {
                gradient.resize(n * size, 0.0);
            }
        }
        for i in 0..self.plan.steps.len() {
            for k in 0..self.plan.steps[i].inputs.len() {
                if let Some(norm) = self.plan.steps[i].inputs[k].view.norm {
                    self.scale(norm, params);
                }
            }
            self.step(i, params, x, pool);
        }
        &self.values[self.plan.output][..n * self.latent()]
    }

    /// The latent vectors, and the buffer for the gradient of the loss with respect to them.
    pub(super) fn latents_and_gradient(&mut self) -> (&[f32], &mut [f32]) {
        let n = self.images * self.latent();
        let slot = self.slots.of[self.plan.output];
        (&self.values[self.plan.output][..n], &mut self.gradients[slot][..n])
    }

    /// Updates the running means and variances by those of the last batch.
    pub(super) fn update_running_stats(&self, params: &mut CpuParams) {
        if self.fixed {
            return;
        }
        for norm in &self.plan.norms {
            let s = &self.statistics[norm.buffer];
            let range = norm.offset..norm.offset + norm.channels;
            let count = self.count(norm.buffer);
            let unbiased = count / (count - 1.0).max(1.0);
            let momentum = norm.training.momentum;
            let follow = |running: &mut [f32], new: &[f32], factor: f64| {
                for (r, &v) in running.iter_mut().zip(new) {
                    *r = (f64::from(*r) * f64::from(1.0 - momentum) + f64::from(v) * factor * f64::from(momentum))
                        as f32;
                }
            };
            follow(params.get_mut(norm.parameter + 2), &s.mean[range.clone()], 1.0);
            follow(params.get_mut(norm.parameter + 3), &s.variance[range], unbiased);
        }
    }

    /// The number of pixels of a buffer in the whole batch.
    pub(super) fn count(&self, buffer: usize) -> f64 {
        (self.images * self.plan.buffers[buffer].pixels()) as f64
    }

    /// Computes scale and shift of a batch normalization.
    fn scale(&mut self, norm: usize, params: &CpuParams) {
        let n = self.plan.norms[norm];
        let (weight, bias) = (params.get(n.parameter), params.get(n.parameter + 1));
        let (s, scaled) = (&self.statistics[n.buffer], &mut self.norms[norm]);
        let (mean, variance) = match self.fixed {
            true => (params.get(n.parameter + 2), params.get(n.parameter + 3)),
            false => (&s.mean[n.offset..], &s.variance[n.offset..]),
        };
        for c in 0..n.channels {
            let scale = f64::from(weight[c]) * inverse_deviation(variance[c]);
            scaled.scale[c] = scale as f32;
            scaled.shift[c] = (f64::from(bias[c]) - f64::from(mean[c]) * scale) as f32;
        }
    }

    fn step(&mut self, i: usize, params: &CpuParams, x: &[f32], pool: &Pool) {
        let (n, step) = (self.images, &self.plan.steps[i]);
        let Step { buffer, offset, channels, .. } = *step;
        let (length, pixels) = (self.plan.buffers[buffer].len(), self.plan.buffers[buffer].pixels());
        let pixel = self.plan.buffers[buffer].channels;
        let measured = self.plan.buffers[buffer].measured;
        let mut out = std::mem::take(&mut self.values[buffer]);
        let mut parts = std::mem::take(&mut self.parts);
        let wanted = if measured { n * 2 * channels } else { 0 };
        if parts.len() < wanted {
            parts.resize(wanted, 0.0);
        }
        if let Work::Conv { conv, bias, .. } = &step.work {
            start_lines(bias.map(|b| params.get(b)), conv.outputs, &mut self.start);
        }
        let together = group(n, step.rows(pixels), pool.threads());
        let this = &*self;
        let acts: Vec<Act> = step.inputs.iter().map(|i| this.act(&i.view)).collect();
        let weights = &this.weights[this.packed[i].forward.clone()];
        let both =
            (chunks(&mut out[..n * length], together * length), chunks(&mut parts[..wanted], 2 * together * channels));
        pool.split(both, |task, (data, parts)| {
            let images = data.len() / length;
            let from: Vec<Option<Images>> =
                step.inputs.iter().map(|i| this.images_of(&i.view, x, task * together, buffer)).collect();
            let part = Part {
                step,
                buffers: &this.plan.buffers,
                weights,
                start: &this.start,
                acts: &acts,
                from: &from,
                images,
            };
            let mut out = Out { data, image: length, pixel, offset };
            this.buffer_pool.with(|scratch| part.run(&mut out, scratch));
            for (image, to) in out.data.chunks_exact(length).zip(parts.chunks_exact_mut(2 * channels)) {
                measure(&image[offset..], pixel, PixelShape { pixels, channels }, to);
            }
        });
        if measured {
            merge(&parts[..wanted], pixels, channels, offset, &mut self.statistics[buffer]);
        }
        self.values[buffer] = out;
        self.parts = parts;
    }

    /// What is applied to a value when it is read.
    pub(super) fn act(&self, view: &View) -> Act<'_> {
        let bend = view.bend;
        match (view.norm, view.factor) {
            (Some(n), _) => Act { scale: &self.norms[n].scale, shift: &self.norms[n].shift, bend },
            (None, Some(f)) => Act { scale: &self.plan.factors[f][0], shift: &self.plan.factors[f][1], bend },
            (None, None) => Act { bend, ..Act::default() },
        }
    }

    /// The images of a view from number `first` on, unless they are in the buffer `taken`.
    pub(super) fn images_of<'a>(&'a self, view: &View, x: &'a [f32], first: usize, taken: usize) -> Option<Images<'a>> {
        let buffer = &self.plan.buffers[view.buffer];
        let data = if view.buffer == 0 { x } else { &self.values[view.buffer] };
        let image = buffer.len();
        let images = |data| Images { data, image, pixel: buffer.channels, offset: view.offset };
        (view.buffer != taken).then(|| images(&data[first * image..self.images * image]))
    }
}

/// Mean and variance of a batch from those of its images, which all have the same number of pixels.
fn merge(parts: &[f32], pixels: usize, channels: usize, offset: usize, to: &mut Statistics) {
    let images = parts.len() / (2 * channels);
    for c in 0..channels {
        let each = || parts.chunks_exact(2 * channels).map(|p| [f64::from(p[c]), f64::from(p[channels + c])]);
        let mean = each().map(|p| p[0]).sum::<f64>() / images as f64;
        let squares = each().map(|p| p[1] + pixels as f64 * (p[0] - mean) * (p[0] - mean)).sum::<f64>();
        to.mean[offset + c] = mean as f32;
        to.variance[offset + c] = (squares / (images * pixels) as f64) as f32;
    }
}
