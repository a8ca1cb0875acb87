//! The backward pass through a batch.
//!
//! Every buffer has a gradient to which its readers add. A gradient through a batch normalization misses two terms that are
//! known only when all images are done, `a + b (x - mean)` with numbers a and b for each channel. They are summed apart and
//! added when the gradient is used. So each gradient is written once by each reader, and read once.

use super::super::layout::CpuParams;
use super::act::Act;
use super::buffers::{ConvBuffers, Out, sized};
use super::conv::Conv;
use super::engine::ImageEngine;
use super::forward::{band, group};
use super::kernel::{Product, WeightGradient};
use super::lanes::{Images, PixelShape};
use super::pixels::{Correction, Spread, fill_from_sixes, fill_lines, prefetch, whole, whole_in_sixes};
use super::plan::{GradientMode, Input, PoolOf, Step, Work};
use crate::compute::gemm::{Line, MR, NR, ZERO};
use crate::compute::pool::{Pool, chunks, pieces};
use crate::net::graph::inverse_deviation;

/// The numbers of pixels and lines of a block of the weights' gradient, so that they stay in the first-level cache.
const PIXELS: usize = 256;
const LINES: usize = 340;
/// The least number of tasks for the weights' gradient, if there are as many images.
const TASKS: usize = 16;
/// The largest number of lines of sums of a task: they should stay in the second-level cache.
const SUMS: usize = 8 * 1024;

impl ImageEngine {
    /// Propagates the gradient left in [`ImageEngine::latents_and_gradient`] back to the parameters. `x` must be the input of
    /// the last forward pass; `gradients` has the parameters' layout and is overwritten, with zeros for what is not trained.
    pub(super) fn backward(&mut self, params: &CpuParams, x: &[f32], gradients: &mut [f32], pool: &Pool) {
        if self.fixed {
            return gradients.fill(0.0);
        }
        self.statistics.iter_mut().for_each(|s| s.missing.fill([0.0; 2]));
        self.norms.iter_mut().for_each(|n| n.sums.fill([0.0; 2]));
        for i in (0..self.plan.steps.len()).rev() {
            if self.plan.steps[i].used {
                self.collect(i, pool);
                for k in 0..self.plan.steps[i].inputs.len() {
                    if self.plan.steps[i].inputs[k].view.buffer != 0 {
                        self.spread(i, k, params, x, pool);
                    }
                }
            }
            if let Work::Conv { weight, bias, frozen, .. } = self.plan.steps[i].work {
                let (to, used) = (params.range(weight), self.plan.steps[i].used);
                if used && !frozen {
                    self.weight_gradient(i, x, &mut gradients[to], pool);
                } else {
                    gradients[to].fill(0.0);
                }
                if let Some(bias) = bias {
                    let to = &mut gradients[params.range(bias)];
                    if used { self.bias_gradient(i, to) } else { to.fill(0.0) }
                }
            }
        }
        for (norm, scaled) in self.plan.norms.iter().zip(&self.norms) {
            let variance = &self.statistics[norm.buffer].variance[norm.offset..];
            let range = |i: usize| params.range(norm.parameter + i);
            for ((to, sums), &variance) in gradients[range(0)].iter_mut().zip(&scaled.sums).zip(variance) {
                *to = if norm.training.scaled { (sums[1] * inverse_deviation(variance)) as f32 } else { 0.0 };
            }
            gradients[range(1)].iter_mut().zip(&scaled.sums).for_each(|(to, sums)| *to = sums[0] as f32);
            gradients[range(2)].fill(0.0);
            gradients[range(3)].fill(0.0);
        }
    }

    /// The gradient with respect to the images `x` of the last forward pass, for an engine made by [`ImageEngine::fixed`];
    /// empty for others.
    pub(super) fn input_gradient(&mut self, params: &CpuParams, x: &[f32], pool: &Pool) -> &[f32] {
        if !self.fixed {
            return &[];
        }
        for i in (0..self.plan.steps.len()).rev().filter(|&i| self.plan.steps[i].used).collect::<Vec<_>>() {
            self.collect(i, pool);
            for k in 0..self.plan.steps[i].inputs.len() {
                self.spread(i, k, params, x, pool);
            }
        }
        &self.gradients[self.slots.of[0]][..x.len()]
    }

    /// The whole gradient of a step's output: for a convolution in tiles of six channels, else pixel by pixel.
    fn collect(&mut self, i: usize, pool: &Pool) {
        let step = &self.plan.steps[i];
        let shape = self.shape(step);
        let length = self.whole_length(step);
        let mut to = std::mem::take(&mut self.whole);
        if to.len() < self.images * length {
            to.resize(self.images * length, 0.0);
        }
        let this = &*self;
        let buffer = &this.plan.buffers[step.buffer];
        let channels = step.offset..step.offset + step.channels;
        let s = &this.statistics[step.buffer];
        let missing = s.missing.get(channels.clone()).unwrap_or(&[]);
        let [a, b] = [0, 1].map(|j| missing.iter().map(|l| l[j] as f32).collect::<Vec<f32>>());
        let correction = Correction { a: &a, b: &b, mean: s.mean.get(channels).unwrap_or(&[]) };
        let images = |data| Images { data, image: buffer.len(), pixel: buffer.channels, offset: step.offset };
        let gradient = images(&this.gradients[this.slots.of[step.buffer]]);
        let value = images(&this.values[step.buffer]);
        let sixes = matches!(step.work, Work::Conv { .. });
        let together = group(this.images, shape.pixels, pool.threads());
        pool.split(chunks(&mut to[..this.images * length], together * length), |task, to| {
            this.buffer_pool.with(|scratch| {
                for (image, to) in (task * together..).zip(to.chunks_exact_mut(length)) {
                    if sixes {
                        whole_in_sixes(gradient, value, image, correction, shape, to, &mut scratch.row);
                    } else {
                        whole(gradient, value, image, correction, shape, to);
                    }
                }
            });
        });
        self.whole = to;
    }

    fn shape(&self, step: &Step) -> PixelShape {
        PixelShape { pixels: self.plan.buffers[step.buffer].pixels(), channels: step.channels }
    }

    /// Numbers of the gradient of one image.
    fn whole_length(&self, step: &Step) -> usize {
        let PixelShape { pixels, channels } = self.shape(step);
        pixels * if matches!(step.work, Work::Conv { .. }) { channels.next_multiple_of(MR) } else { channels }
    }

    /// Propagates the gradient of a step's output to one of its inputs.
    fn spread(&mut self, i: usize, k: usize, params: &CpuParams, x: &[f32], pool: &Pool) {
        let n = self.images;
        let input = self.plan.steps[i].inputs[k];
        let view = input.view;
        let (length, pixels) = (self.plan.buffers[view.buffer].len(), self.plan.buffers[view.buffer].pixels());
        let slot = self.slots.of[view.buffer];
        let mut to = std::mem::take(&mut self.gradients[slot]);
        if input.mode == GradientMode::Clear {
            to[..n * length].fill(0.0);
        }
        let mut parts = std::mem::take(&mut self.parts);
        // Gradients flow through the mean and variance of a batch, but not through running ones.
        let wanted = if view.norm.is_some() && !self.fixed { n * 2 * view.channels } else { 0 };
        if parts.len() < wanted {
            parts.resize(wanted, 0.0);
        }
        parts[..wanted].fill(0.0);
        let together = group(n, self.plan.steps[i].rows(pixels), pool.threads());
        let this = &*self;
        let both = (
            chunks(&mut to[..n * length], together * length),
            chunks(&mut parts[..wanted], 2 * together * view.channels),
        );
        pool.split(both, |task, (to, parts)| {
            let values = if view.buffer == 0 { x } else { &this.values[view.buffer] };
            let values = &values[task * together * length..];
            this.buffer_pool.with(|scratch| this.spread_images(i, input, task * together, values, to, parts, scratch));
        });
        if let Some(norm) = view.norm.filter(|_| wanted > 0) {
            self.add_norm_sums(norm, &parts[..wanted], params);
        }
        self.gradients[slot] = to;
        self.parts = parts;
    }

    /// The same for some images, from number `first` on, whose values are `values`.
    #[allow(clippy::too_many_arguments)]
    fn spread_images(
        &self,
        i: usize,
        input: Input,
        first: usize,
        values: &[f32],
        to: &mut [f32],
        parts: &mut [f32],
        scratch: &mut ConvBuffers,
    ) {
        let (step, view) = (&self.plan.steps[i], input.view);
        let buffer = &self.plan.buffers[view.buffer];
        let images = to.len() / buffer.len();
        let length = self.whole_length(step);
        let gradients = &self.whole[first * length..(first + images) * length];
        let mut target = Target {
            act: self.act(&view),
            mean: self.statistics[view.buffer].mean.get(view.offset..).unwrap_or(&[]),
            values,
            to,
            image: buffer.len(),
            pixel: buffer.channels,
            offset: view.offset,
            channels: view.channels,
            write: input.mode == GradientMode::Write,
            parts,
        };
        match &step.work {
            Work::Conv { conv, .. } => {
                let lines: Vec<&[Line]> = self.packed[i].back.iter().map(|r| &self.weights[r.clone()]).collect();
                back(conv, &lines, gradients, images, &mut target, scratch);
            }
            Work::Pool { of, .. } => {
                let pool = step.pool(&self.plan.buffers);
                let from = Images { data: values, image: buffer.len(), pixel: buffer.channels, offset: view.offset };
                for (image, gradient) in gradients.chunks_exact(length).enumerate() {
                    let copy = sized(&mut scratch.copy, buffer.pixels() * view.channels);
                    match of {
                        PoolOf::Mean => pool.back_means(gradient, copy),
                        PoolOf::Max => pool.back_maxima(from, image, gradient, copy),
                    }
                    target.take(image, 0..buffer.pixels(), copy, view.channels);
                }
            }
            Work::Sum => {
                for (image, gradient) in gradients.chunks_exact(length).enumerate() {
                    target.take(image, 0..buffer.pixels(), &gradient[input.at..], step.channels);
                }
            }
        }
    }

    /// Sums the gradients of a batch normalization over the images.
    fn add_norm_sums(&mut self, norm: usize, parts: &[f32], params: &CpuParams) {
        let n = self.plan.norms[norm];
        let factor = 1.0 / self.count(n.buffer);
        let weight = params.get(n.parameter);
        let (s, scaled) = (&mut self.statistics[n.buffer], &mut self.norms[norm]);
        for c in 0..n.channels {
            let each = |j: usize| parts[j * n.channels + c..].iter().step_by(2 * n.channels);
            let sums = [0, 1].map(|j| each(j).map(|&p| f64::from(p)).sum::<f64>());
            // dx = scale (dy - mean dy - (x - mean) / deviation^2 * mean (dy (x - mean)))
            let inverse = inverse_deviation(s.variance[n.offset + c]);
            let scale = f64::from(weight[c]) * inverse;
            let missing = &mut s.missing[n.offset + c];
            missing[0] -= scale * sums[0] * factor;
            missing[1] -= scale * inverse * inverse * sums[1] * factor;
            scaled.sums[c][0] += sums[0];
            scaled.sums[c][1] += sums[1];
        }
    }

    fn bias_gradient(&self, i: usize, to: &mut [f32]) {
        let step = &self.plan.steps[i];
        let (length, pixels) = (self.whole_length(step), self.shape(step).pixels);
        for (c, to) in to.iter_mut().enumerate() {
            let mut total = 0.0f64;
            for image in self.whole[..self.images * length].chunks_exact(length) {
                let tile = &image[c / MR * pixels * MR..][..pixels * MR];
                total += tile.iter().skip(c % MR).step_by(MR).map(|&d| f64::from(d)).sum::<f64>();
            }
            *to = total as f32;
        }
    }

    /// The gradient of a convolution's weights, from the gradient that [`ImageEngine::collect`] has left.
    fn weight_gradient(&mut self, i: usize, x: &[f32], to: &mut [f32], pool: &Pool) {
        let Work::Conv { conv, .. } = &self.plan.steps[i].work else { return };
        let n = self.images;
        let (panels, tiles) = (conv.inputs.div_ceil(NR), conv.outputs.div_ceil(MR));
        let task = conv.taps() * tiles * MR;
        // As many panels together as fit, for they read the same pixels; then as many groups of images as are needed.
        let together = (SUMS / task).clamp(1, panels);
        let cuts = panels.div_ceil(together);
        let groups = TASKS.div_ceil(cuts).min(n).max(1);
        let mut sums = std::mem::take(&mut self.tiles);
        if sums.len() < groups * panels * task {
            sums.resize(groups * panels * task, ZERO);
        }
        let ends: Vec<usize> = (0..groups)
            .flat_map(|g| (1..=cuts).map(move |c| (g * panels + (c * together).min(panels)) * task))
            .collect();
        let this = &*self;
        let view = this.plan.steps[i].inputs[0].view;
        let (act, length) = (this.act(&view), this.whole_length(&this.plan.steps[i]));
        if let Some(from) = this.images_of(&view, x, 0, usize::MAX) {
            pool.split(pieces(&mut sums, &ends), |t, sums| {
                let (group, cut) = (t / cuts, t % cuts);
                let images = n * group / groups..n * (group + 1) / groups;
                let some = WeightPanels { conv, from, act, first: cut * together, gradients: &this.whole, length };
                this.buffer_pool.with(|scratch| some.run(images, sums, scratch));
            });
        }
        let all = &sums[..groups * panels * task];
        pool.split(chunks(to, conv.inputs * conv.outputs), |tap, to| {
            sum_in_order(conv, all, groups, tap, to);
        });
        self.tiles = sums;
    }
}

/// The buffer that receives a gradient, for some images.
struct Target<'a> {
    act: Act<'a>,
    mean: &'a [f32],
    values: &'a [f32],
    to: &'a mut [f32],
    image: usize,
    pixel: usize,
    offset: usize,
    channels: usize,
    write: bool,
    parts: &'a mut [f32],
}

impl Target<'_> {
    /// The gradient of some pixels of an image, which has `gradient_pixel` numbers for each.
    fn take(&mut self, image: usize, pixels: std::ops::Range<usize>, gradient: &[f32], gradient_pixel: usize) {
        let at = image * self.image + pixels.start * self.pixel + self.offset;
        let sums =
            if self.parts.is_empty() { 0..0 } else { 2 * image * self.channels..2 * (image + 1) * self.channels };
        Spread {
            act: self.act,
            mean: self.mean,
            gradient,
            gradient_pixel,
            value: &self.values[at..],
            pixel: self.pixel,
            to: &mut self.to[at..],
            shape: PixelShape { pixels: pixels.len(), channels: self.channels },
            write: self.write,
            sums: &mut self.parts[sums],
        }
        .run();
    }
}

/// The backward pass through a convolution for some images.
fn back(
    conv: &Conv,
    lines: &[&[Line]],
    gradients: &[f32],
    images: usize,
    target: &mut Target,
    scratch: &mut ConvBuffers,
) {
    let Conv { input, output, back_padded: padded, inputs, .. } = *conv;
    let (row, length) = (padded.width * padded.channels, gradients.len() / images.max(1));
    let zeros = vec![ZERO; inputs.div_ceil(NR)];
    if let (Some([_, fewer]), [lines]) = (&conv.winograd, lines) {
        let (size, pixels) = (fewer.padded.len(), input[0] * input[1]);
        let (copy, other, tile_buffers) = scratch.for_tiles(images * size);
        for (from, to) in gradients.chunks_exact(length).zip(copy.chunks_exact_mut(size)) {
            fill_from_sixes(fewer.padded, 0..fewer.padded.height, output, from, to);
        }
        let data = sized(other, images * pixels * inputs);
        let mut out = Out { data, image: pixels * inputs, pixel: inputs, offset: 0 };
        fewer.run(copy, images, lines, &zeros, &mut out, tile_buffers);
        for (image, gradient) in out.data.chunks_exact(pixels * inputs).enumerate() {
            target.take(image, 0..pixels, gradient, inputs);
        }
        return;
    }
    let largest = padded.len().max(input[0] * input[1] * inputs);
    let rows = if conv.stride == 1 { band(input[0], images, largest) } else { input[0] };
    for first in (0..input[0]).step_by(rows) {
        let last = (first + rows).min(input[0]);
        let pixels = first * input[1]..last * input[1];
        let (mut top, mut bottom) = (0, padded.height);
        if rows < input[0] {
            let row_of = |pixel: usize| conv.back[0].places[pixel].from as usize / row;
            (top, bottom) = (row_of(pixels.start), row_of(pixels.end - 1) + conv.kernel[0]);
        }
        let image = (bottom - top) * row;
        let copy = sized(&mut scratch.copy, images * image);
        for (from, to) in gradients.chunks_exact(length).zip(copy.chunks_exact_mut(image)) {
            fill_from_sixes(padded, top..bottom, output, from, to);
        }
        let out_image = pixels.len() * inputs;
        let out = sized(&mut scratch.other, images * out_image);
        for (window, lines) in conv.back.iter().zip(lines) {
            Product {
                window,
                panel_lines: window.k,
                places: if rows < input[0] { &window.places[pixels.clone()] } else { &window.places },
                lines,
                n: inputs,
                input: copy,
                image,
                first: top * row,
                images,
                out,
                pixel: inputs,
                out_image,
                offset: 0,
                first_pixel: pixels.start,
                start: &zeros,
            }
            .run(&mut scratch.pairs);
        }
        for (image, gradient) in out.chunks_exact(out_image).enumerate() {
            target.take(image, pixels.clone(), gradient, inputs);
        }
    }
}

/// Gradients of the weights of some panels of sixteen inputs: a tile for each kernel position and six outputs.
struct WeightPanels<'a> {
    conv: &'a Conv,
    from: Images<'a>,
    act: Act<'a>,
    first: usize,
    gradients: &'a [f32],
    length: usize,
}

impl WeightPanels<'_> {
    fn run(&self, images: std::ops::Range<usize>, sums: &mut [Line], scratch: &mut ConvBuffers) {
        let Conv { padded, input, output, kernel, stride, outputs, .. } = *self.conv;
        sums.fill(ZERO);
        // Several small images at a time, or some rows of a large one.
        let (pixels, tiles) = (output[0] * output[1], outputs.div_ceil(MR));
        let padded_pixels = padded.height * padded.width;
        let together = (PIXELS / pixels).min(LINES / padded_pixels).max(1);
        let rows = if together > 1 { output[0] } else { (PIXELS / output[1]).clamp(1, output[0]) };
        for first in images.clone().step_by(together) {
            let count = together.min(images.end - first);
            for row in (0..output[0]).step_by(rows) {
                let height = rows.min(output[0] - row);
                let (top, bottom) = (row * stride, (row + height - 1) * stride + kernel[0]);
                let b_image = (bottom - top) * padded.width;
                if scratch.other.len() < count * b_image {
                    scratch.other.resize(count * b_image, ZERO);
                }
                let lines = &mut scratch.other[..count * b_image];
                let gradient = WeightGradient {
                    images: count,
                    height,
                    width: output[1],
                    kernel,
                    tiles,
                    a_image: self.length,
                    a_tile: pixels * MR,
                    b_image,
                    b_row: stride * padded.width,
                    b_pixel: stride,
                    b_kernel_row: padded.width,
                };
                if sums.len() > 2 * self.conv.taps() * tiles * MR {
                    (first..first + count).for_each(|image| prefetch(padded, top..bottom, input, self.from, image));
                }
                for (panel, sums) in (self.first..).zip(sums.chunks_exact_mut(self.conv.taps() * tiles * MR)) {
                    for (image, lines) in (first..).zip(lines.chunks_exact_mut(b_image)) {
                        fill_lines(padded, top..bottom, input, self.from, image, self.act, panel, lines);
                    }
                    let a = &self.gradients[first * self.length + row * output[1] * MR..];
                    gradient.run(a, lines, sums);
                }
            }
        }
    }
}

/// The tiles of one kernel position, summed over all groups of images in order, as a matrix of inputs x outputs.
fn sum_in_order(conv: &Conv, sums: &[Line], groups: usize, tap: usize, to: &mut [f32]) {
    let outputs = conv.outputs;
    let (panels, rows) = (conv.inputs.div_ceil(NR), outputs.div_ceil(MR) * MR);
    let task = conv.taps() * rows;
    for panel in 0..panels {
        let inputs = NR.min(conv.inputs - panel * NR);
        for first in (0..outputs).step_by(NR) {
            let some = NR.min(outputs - first);
            let mut block = [[0.0f32; NR]; NR];
            for group in 0..groups {
                let lines = &sums[(group * panels + panel) * task + tap * rows + first..][..some];
                for (j, line) in lines.iter().enumerate() {
                    for (row, v) in block.iter_mut().zip(line.0) {
                        row[j] += v;
                    }
                }
            }
            for (c, row) in block.iter().enumerate().take(inputs) {
                to[(panel * NR + c) * outputs + first..][..some].copy_from_slice(&row[..some]);
            }
        }
    }
}
