//! The execution plan of a graph: a few steps that read and write stored images.
//!
//! Batch normalization, ReLU and GELU are not steps. They are noted with a value, and applied when it is read; so only the
//! outputs of convolutions, sums and means are written to memory. A concatenation is not a step either, where its parts can
//! be written side by side in the first place.

use super::act::Bend;
use super::conv::Conv;
use crate::error::{Error, Result};
use crate::net::graph::{Graph, Layer, NormTraining};

/// Stored images: `channels` numbers for each pixel. Number 0 is the network's input, which stays with the caller.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    /// Whether batch normalization needs its mean and variance.
    pub measured: bool,
}

impl Buffer {
    pub(super) fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// The number of values of one image.
    pub(super) fn len(&self) -> usize {
        self.pixels() * self.channels
    }
}

/// Some channels of a buffer, and what is applied to them when they are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub buffer: usize,
    pub offset: usize,
    pub channels: usize,
    /// The number of a batch normalization in [`Plan::norms`].
    pub norm: Option<usize>,
    /// The number of a factor in [`Plan::factors`], instead of a batch normalization.
    pub factor: Option<usize>,
    pub bend: Bend,
}

impl View {
    fn is_plain(&self) -> bool {
        self.norm.is_none() && self.factor.is_none() && self.bend == Bend::None
    }
}

/// A batch normalization of some channels of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm {
    pub buffer: usize,
    pub offset: usize,
    pub channels: usize,
    /// The number of its first parameter.
    pub parameter: usize,
    pub training: NormTraining,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// A convolution; a linear layer is one with a window of one pixel.
    Conv { conv: Box<Conv>, weight: usize, bias: Option<usize>, frozen: bool },
    /// Means or maxima of windows. Maxima are taken of plain values.
    Pool { of: PoolOf, kernel: [usize; 2], stride: usize, padding: usize },
    /// A sum: each input is added to the output's channels from its offset on.
    Sum,
}

/// What a pooling takes of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolOf {
    Mean,
    Max,
}

/// How a gradient is combined with that of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GradientMode {
    /// The first gradient, for all channels: it is written.
    Write,
    /// The first gradient, for some channels: the buffer is cleared before.
    Clear,
    /// It is added.
    Add,
}

/// What a step reads; `at` is the channel of the output that a sum adds it to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub view: View,
    pub at: usize,
    pub mode: GradientMode,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub inputs: Vec<Input>,
    pub buffer: usize,
    pub offset: usize,
    pub channels: usize,
    pub work: Work,
    /// Whether the loss depends on it.
    pub used: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub buffers: Vec<Buffer>,
    pub norms: Vec<Norm>,
    /// Constant factors and zeros, one for each channel.
    pub factors: Vec<[Vec<f32>; 2]>,
    pub steps: Vec<Step>,
    /// The buffer of the latent vectors.
    pub output: usize,
}

/// The largest number of values of all images of one row.
const MAX_VALUES: usize = 1 << 28;

/// A plan in progress; values may still be moved into wider buffers.
struct Builder {
    plan: Plan,
    values: Vec<View>,
}

/// Compiles a graph that begins with an image.
///
/// # Errors
/// If it has a layer that this engine cannot run, or needs too much memory.
pub(super) fn compile(graph: &Graph) -> Result<Plan> {
    let shapes = graph.shapes()?;
    let unsupported = |name: &str| Error::format(format!("the CPU engine cannot run layer {name:?} at this position"));
    let Some(Layer::Image { height, width, channels }) = graph.nodes.first().map(|n| n.layer.clone()) else {
        return Err(Error::format("the network does not begin with an image"));
    };
    let input = Buffer { height, width, channels, measured: false };
    let plan = Plan { buffers: vec![input], norms: Vec::new(), factors: Vec::new(), steps: Vec::new(), output: 0 };
    let whole = View { buffer: 0, offset: 0, channels, norm: None, factor: None, bend: Bend::None };
    let mut b = Builder { plan, values: vec![whole; 2] };
    let mut parameter = 0;
    let mut total = 0usize;
    for (i, node) in graph.nodes.iter().enumerate().skip(1) {
        if node.from.contains(&0) {
            return Err(unsupported(&node.name));
        }
        let from = b.values[node.from[0]];
        let shape = shapes[i + 1].image();
        let first = parameter;
        parameter += node.layer.parameters();
        let before = b.plan.buffers.len();
        let value = match node.layer {
            Layer::Relu => b.bend(from, Bend::Relu),
            Layer::Gelu => b.bend(from, Bend::Gelu),
            Layer::Scale { factor } => b.scale(from, factor),
            Layer::BatchNorm { training, .. } => b.norm(from, first, training),
            Layer::Linear { inputs, outputs, bias } => {
                let conv = Box::new(Conv::new([1, 1], [inputs, outputs], [1, 1], 1, 0)?);
                let bias = bias.then_some(first + 1);
                b.step(&[(from, 0)], shape, Work::Conv { conv, weight: first, bias, frozen: false })
            }
            Layer::Conv2d { inputs, outputs, kernel, stride, padding, bias, frozen } => {
                let sides = [b.plan.buffers[from.buffer].height, b.plan.buffers[from.buffer].width];
                let conv = Box::new(Conv::new(sides, [inputs, outputs], kernel, stride, padding)?);
                let bias = bias.then_some(first + 1);
                b.step(&[(from, 0)], shape, Work::Conv { conv, weight: first, bias, frozen })
            }
            Layer::AvgPool { kernel, stride } => {
                b.step(&[(from, 0)], shape, Work::Pool { of: PoolOf::Mean, kernel: [kernel; 2], stride, padding: 0 })
            }
            Layer::MaxPool { kernel, stride, padding } => {
                let from = if from.is_plain() { from } else { b.copy(from) };
                b.step(&[(from, 0)], shape, Work::Pool { of: PoolOf::Max, kernel: [kernel; 2], stride, padding })
            }
            Layer::GlobalAvgPool => {
                let kernel = [b.plan.buffers[from.buffer].height, b.plan.buffers[from.buffer].width];
                b.step(&[(from, 0)], shape, Work::Pool { of: PoolOf::Mean, kernel, stride: 1, padding: 0 })
            }
            Layer::GlobalMaxPool => {
                let from = if from.is_plain() { from } else { b.copy(from) };
                let kernel = [b.plan.buffers[from.buffer].height, b.plan.buffers[from.buffer].width];
                b.step(&[(from, 0)], shape, Work::Pool { of: PoolOf::Max, kernel, stride: 1, padding: 0 })
            }
            Layer::Add => {
                let inputs: Vec<(View, usize)> = node.from.iter().map(|&f| (b.values[f], 0)).collect();
                b.step(&inputs, shape, Work::Sum)
            }
            Layer::Concat => b.concat(&node.from, shape),
            Layer::Clip { .. } | Layer::Bins { .. } | Layer::Image { .. } => return Err(unsupported(&node.name)),
        };
        b.values.push(value);
        total = b.plan.buffers[before..].iter().fold(total, |t, new| t.saturating_add(new.len()));
        if let (true, Some(Work::Conv { conv, .. })) =
            (node.layer.parameters() < 3, b.plan.steps.last().map(|s| &s.work))
        {
            total = total.saturating_add(conv.padded.len()).saturating_add(conv.back_padded.len());
        }
        if total > MAX_VALUES {
            return Err(Error::format("the network needs more memory for an image than any machine has")
                .hint("give smaller images, e.g. `image_size` 64x64"));
        }
    }
    b.finish(&shapes.last().copied().map_or([1, 1, 1], |s| s.image()))
}

impl Builder {
    /// A step with a buffer of its own.
    fn step(&mut self, inputs: &[(View, usize)], [height, width, channels]: [usize; 3], work: Work) -> View {
        let buffer = self.plan.buffers.len();
        self.plan.buffers.push(Buffer { height, width, channels, measured: false });
        let inputs = inputs.iter().map(|&(view, at)| Input { view, at, mode: GradientMode::Add }).collect();
        self.plan.steps.push(Step { inputs, buffer, offset: 0, channels, work, used: false });
        View { buffer, offset: 0, channels, norm: None, factor: None, bend: Bend::None }
    }

    /// The value as it is, in a buffer of its own.
    fn copy(&mut self, view: View) -> View {
        let Buffer { height, width, .. } = self.plan.buffers[view.buffer];
        self.step(&[(view, 0)], [height, width, view.channels], Work::Sum)
    }

    fn bend(&mut self, from: View, bend: Bend) -> View {
        // Only ReLU after ReLU changes nothing.
        let once = from.bend == Bend::None || (from.bend, bend) == (Bend::Relu, Bend::Relu);
        let from = if once { from } else { self.copy(from) };
        View { bend, ..from }
    }

    fn scale(&mut self, from: View, factor: f32) -> View {
        let from = if from.is_plain() { from } else { self.copy(from) };
        self.plan.factors.push([vec![factor; from.channels], vec![0.0; from.channels]]);
        View { factor: Some(self.plan.factors.len() - 1), ..from }
    }

    fn norm(&mut self, from: View, parameter: usize, training: NormTraining) -> View {
        // A value must be stored to be measured; the input is not.
        let from = if from.is_plain() && from.buffer != 0 { from } else { self.copy(from) };
        self.plan.buffers[from.buffer].measured = true;
        let View { buffer, offset, channels, .. } = from;
        self.plan.norms.push(Norm { buffer, offset, channels, parameter, training });
        View { norm: Some(self.plan.norms.len() - 1), ..from }
    }

    fn concat(&mut self, from: &[usize], shape: [usize; 3]) -> View {
        let views: Vec<View> = from.iter().map(|&f| self.values[f]).collect();
        let whole = |v: &View| v.is_plain() && v.buffer != 0 && v.channels == self.plan.buffers[v.buffer].channels;
        let distinct = |(i, v): (usize, &View)| views[..i].iter().all(|w| w.buffer != v.buffer);
        if views.iter().all(whole) && views.iter().enumerate().all(distinct) {
            let first = views[0];
            for view in &views[1..] {
                self.append(first.buffer, view.buffer);
            }
            return View { channels: shape[2], ..first };
        }
        let mut at = 0;
        let mut inputs = Vec::with_capacity(views.len());
        for view in views {
            inputs.push((view, at));
            at += view.channels;
        }
        self.step(&inputs, shape, Work::Sum)
    }

    /// Appends a whole buffer to the channels of another.
    fn append(&mut self, to: usize, from: usize) {
        let start = self.plan.buffers[to].channels;
        let move_it = |buffer: &mut usize, offset: &mut usize| {
            if *buffer == from {
                (*buffer, *offset) = (to, *offset + start);
            }
        };
        self.values.iter_mut().for_each(|v| move_it(&mut v.buffer, &mut v.offset));
        self.plan.norms.iter_mut().for_each(|n| move_it(&mut n.buffer, &mut n.offset));
        for step in &mut self.plan.steps {
            move_it(&mut step.buffer, &mut step.offset);
            step.inputs.iter_mut().for_each(|i| move_it(&mut i.view.buffer, &mut i.view.offset));
        }
        self.plan.buffers[to].channels += self.plan.buffers[from].channels;
        self.plan.buffers[to].measured |= self.plan.buffers[from].measured;
        self.plan.buffers[from].channels = 0;
    }

    fn finish(mut self, shape: &[usize; 3]) -> Result<Plan> {
        let last = self.values[self.values.len() - 1];
        let alone = last.is_plain() && last.buffer != 0 && last.channels == self.plan.buffers[last.buffer].channels;
        let last = if alone { last } else { self.copy(last) };
        let mut plan = self.plan;
        plan.output = last.buffer;
        if plan.buffers[plan.output].len() != shape.iter().product::<usize>() {
            return Err(Error::format("the network's output does not fit together"));
        }
        plan.set_gradient_modes();
        Ok(plan)
    }
}

impl Plan {
    /// Sets how each gradient is combined, from the last step to the first.
    fn set_gradient_modes(&mut self) {
        let mut reached = vec![false; self.buffers.len()];
        reached[self.output] = true;
        for step in self.steps.iter_mut().rev() {
            step.used = reached[step.buffer];
            if !step.used {
                continue;
            }
            for input in &mut step.inputs {
                let View { buffer, channels, .. } = input.view;
                input.mode = match (reached[buffer], channels == self.buffers[buffer].channels) {
                    (true, _) => GradientMode::Add,
                    (false, true) => GradientMode::Write,
                    (false, false) => GradientMode::Clear,
                };
                reached[buffer] = true;
            }
        }
    }
}

/// Memory that several buffers share, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// The slot of each buffer; any number for buffers without one.
    pub of: Vec<usize>,
    /// The number of values of one image in each slot.
    pub sizes: Vec<usize>,
}

impl Slots {
    /// `lifetimes` has the first and the last moment at which each buffer is needed.
    pub(super) fn new(buffers: &[Buffer], lifetimes: &[Option<[usize; 2]>]) -> Slots {
        let mut order: Vec<usize> = (0..buffers.len()).filter(|&b| lifetimes[b].is_some()).collect();
        order.sort_by_key(|&b| lifetimes[b].map(|l| l[0]));
        let mut slots = Slots { of: vec![0; buffers.len()], sizes: Vec::new() };
        let mut busy_until: Vec<usize> = Vec::new();
        for b in order {
            let [from, to] = lifetimes[b].unwrap_or_default();
            let size = buffers[b].len();
            let free = (0..busy_until.len()).filter(|&s| busy_until[s] < from);
            // The smallest that is large enough, else the largest, which grows.
            let best = free.min_by_key(|&s| (slots.sizes[s] < size, slots.sizes[s].abs_diff(size)));
            let slot = best.unwrap_or_else(|| {
                busy_until.push(0);
                slots.sizes.push(0);
                busy_until.len() - 1
            });
            busy_until[slot] = to;
            slots.sizes[slot] = slots.sizes[slot].max(size);
            slots.of[b] = slot;
        }
        slots
    }
}

impl Plan {
    /// When the gradient of each buffer is needed, counting steps from the last to the first; that of the input only if
    /// `input`.
    pub(super) fn gradient_lifetimes(&self, input: bool) -> Vec<Option<[usize; 2]>> {
        let mut lifetimes: Vec<Option<[usize; 2]>> = vec![None; self.buffers.len()];
        lifetimes[self.output] = Some([0, 0]);
        for (now, step) in self.steps.iter().rev().enumerate().filter(|(_, s)| s.used) {
            for buffer in step.inputs.iter().map(|i| i.view.buffer).chain([step.buffer]) {
                let lifetime = lifetimes[buffer].get_or_insert([now, now]);
                lifetime[1] = now;
            }
        }
        lifetimes[0] = lifetimes[0].filter(|_| input).map(|[from, _]| [from, usize::MAX]);
        lifetimes
    }

    /// The same for the values in the forward pass.
    pub(super) fn value_lifetimes(&self) -> Vec<Option<[usize; 2]>> {
        let mut lifetimes: Vec<Option<[usize; 2]>> = vec![None; self.buffers.len()];
        for (now, step) in self.steps.iter().enumerate() {
            for buffer in step.inputs.iter().map(|i| i.view.buffer).chain([step.buffer]) {
                let lifetime = lifetimes[buffer].get_or_insert([now, now]);
                lifetime[1] = now;
            }
        }
        if let Some(lifetime) = &mut lifetimes[self.output] {
            lifetime[1] = usize::MAX;
        }
        lifetimes[0] = None;
        lifetimes
    }
}
