//! A detector on the outputs of a member's network.

use std::sync::Arc;

use crate::compute::pool::{Pool, chunks};
use crate::detector::{
    Detect, DetectorBuffers, Features, FitDetector as _, Fitted, LastLayer, MAX_FEATURE, MAX_LOGIT, On, StateDict,
    Training, clamp_features, clamp_logits,
};
use crate::error::Result;
use crate::head::Head;
use crate::net::{InputGradient, Network, NetworkBuffers};
use crate::onnx::{self, Builder, Type, Value};
use crate::train::Examples;

/// What a detector sees of a network.
struct View {
    source: Source,
    width: usize,
    /// Whether it is the layer before the last.
    hidden: bool,
    /// For a detector that moves the input: the gradient with respect to it. None where the view is the input.
    gradient: Option<Arc<dyn InputGradient>>,
}

enum Source {
    Inputs,
    /// The output of a layer before the last, and its number.
    Layer(usize, Arc<dyn Network>),
    Latents,
}

fn views(detect: &Detect, net: &dyn Network) -> Result<Vec<View>> {
    let last = net.layers().saturating_sub(1);
    let sources = match detect.on() {
        On::Latents => vec![Source::Latents],
        On::Inputs => vec![Source::Inputs],
        on @ (On::Layers | On::LastTwo) => {
            let first = if on == On::Layers { 0 } else { last.saturating_sub(1) };
            let layer = |l: usize| Ok(Source::Layer(l, net.part(l)?));
            let mut layers = (first..last).map(layer).collect::<Result<Vec<_>>>()?;
            layers.push(Source::Latents);
            layers
        }
    };
    let view = |source: Source| {
        let width = match &source {
            Source::Inputs => net.input(),
            Source::Layer(_, part) => part.latent(),
            Source::Latents => net.latent(),
        };
        let hidden = matches!(source, Source::Layer(layer, _) if layer + 1 == last);
        View { source, width, hidden, gradient: None }
    };
    Ok(sources.into_iter().map(view).collect())
}

/// A detector with its views of the network.
pub(super) struct Probe {
    views: Vec<View>,
    fitted: Fitted,
    width: usize,
}

/// Buffers of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    features: Vec<f32>,
    moved: Vec<f32>,
    logits: Vec<f64>,
    net: NetworkBuffers,
    detector: DetectorBuffers,
}

/// Some rows, their latents, and the outputs of the layer before the last if they are at hand.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    pub x: &'a [f32],
    pub z: &'a [f32],
    pub hidden: Option<&'a [f32]>,
}

/// What a detector is fitted on.
#[derive(Clone, Copy)]
pub(super) struct Fit<'a> {
    /// The rows that the network was trained on.
    pub rows: Examples<'a>,
    /// Their classes, where they have any.
    pub labels: Option<&'a [u32]>,
    pub classes: usize,
    pub seed: u64,
}

/// A member's network and head.
#[derive(Clone, Copy)]
pub(super) struct Host<'a> {
    pub net: &'a dyn Network,
    pub head: &'a dyn Head,
}

impl Host<'_> {
    /// The logits of latent vectors.
    fn logits(&self, z: &[f32], rows: usize, out: &mut Vec<f64>) {
        let classes = self.head.classes();
        let latent = z.len().checked_div(rows).unwrap_or(0);
        let mut distances = vec![0.0; classes];
        out.resize(rows * classes, 0.0);
        if classes > 0 {
            for (z, logits) in z.chunks_exact(latent).zip(out.chunks_exact_mut(classes)) {
                self.head.score(z, logits, &mut distances);
            }
        }
    }
}

impl Probe {
    /// Fits a detector on the training rows of a member; none if the head itself gives the score.
    pub(super) fn fit(detect: &Detect, host: Host, given: Fit, pool: &Pool) -> Result<Option<Probe>> {
        if detect.is_own() {
            return Ok(None);
        }
        let needs = detect.detector.about().needs;
        let views = views(detect, host.net)?;
        let width = views.iter().map(|v| v.width).sum();
        let block = given.rows.block();
        // A score that learns nothing needs no more than the shape of the rows.
        let rows = if detect.detector.learns() { given.rows.len() } else { given.rows.len().min(block) };
        let mut features = vec![0.0f32; rows * width];
        let mut logits = vec![0.0f64; rows * host.head.classes()];
        let parts = (chunks(&mut features, block * width), chunks(&mut logits, block * host.head.classes()));
        pool.split(parts, |i, (features, logits)| {
            let rows = features.len() / width;
            let mut buffer = Vec::new();
            let x = given.rows.x(i * block..i * block + rows, &mut buffer);
            let mut b = Buffers::default();
            let mut net = NetworkBuffers::default();
            let (z, hidden) = host.net.latents_and_hidden(x, &mut net);
            collect(&views, Outputs { x, z, hidden }, rows, features, &mut b.net);
            host.logits(z, rows, &mut b.logits);
            logits.copy_from_slice(&b.logits);
        });
        clamp_features(&mut features);
        clamp_logits(&mut logits);
        let widths: Vec<usize> = views.iter().map(|v| v.width).collect();
        let last_layer = host.head.last_layer().map(|(weight, bias)| LastLayer { weight, bias });
        let training = Training {
            rows: Features { count: rows, features: &features, logits: if needs.logits { &logits } else { &[] } },
            labels: given.labels.map(|labels| &labels[..rows]),
            classes: given.classes,
            parts: &widths,
            last_layer: last_layer.filter(|_| needs.linear),
            seed: given.seed,
        };
        let fitted = Fitted::new(&detect.detector, &training, pool)?;
        Probe::with(views, fitted, width, host).map(Some)
    }

    fn with(mut views: Vec<View>, fitted: Fitted, width: usize, host: Host) -> Result<Probe> {
        if fitted.detector().epsilon() > 0.0 {
            for view in &mut views {
                view.gradient = match &view.source {
                    Source::Inputs => None,
                    Source::Layer(_, part) => Some(part.input_gradient()?),
                    Source::Latents => Some(host.net.input_gradient()?),
                };
            }
        }
        Ok(Probe { views, fitted, width })
    }

    /// Stores the detector.
    pub(super) fn save(&self, store: &mut StateDict) {
        self.fitted.save(store);
    }

    /// Loads what [`Probe::save`] has stored.
    pub(super) fn load(detect: &Detect, host: Host, store: &mut StateDict) -> Result<Option<Probe>> {
        if detect.is_own() {
            return Ok(None);
        }
        let fitted = Fitted::load(&detect.detector, store)?;
        let views = views(detect, host.net)?;
        let width: usize = views.iter().map(|v| v.width).sum();
        let fits = (fitted.width() == width || fitted.width() == 0)
            && (fitted.logit_classes() == host.head.classes() || fitted.logit_classes() == 0);
        if !fits {
            return Err(store.invalid("it does not fit the network"));
        }
        Probe::with(views, fitted, width, host).map(Some)
    }

    /// The number of classes of the detector; 0 if it does not classify.
    pub(super) fn classes(&self) -> usize {
        self.fitted.detector().classes()
    }

    /// The confidences of some rows; and, where the detector classifies, its logits.
    pub(super) fn score(&self, host: Host, of: Outputs, out: &mut [f64], logits: &mut [f64], b: &mut Buffers) {
        let Outputs { x, z, .. } = of;
        let rows = out.len();
        b.features.resize(rows * self.width, 0.0);
        collect(&self.views, of, rows, &mut b.features, &mut b.net);
        let perturbs = self.fitted.detector().epsilon() > 0.0;
        if perturbs || self.fitted.logit_classes() > 0 {
            host.logits(z, rows, &mut b.logits);
        }
        if perturbs {
            self.perturb(host, x, rows, b);
        }
        clamp_features(&mut b.features);
        clamp_logits(&mut b.logits);
        let features = if self.fitted.width() > 0 { &b.features[..] } else { &[] };
        let own = if self.fitted.logit_classes() > 0 { &b.logits[..] } else { &[] };
        let block = Features { count: rows, features, logits: own };
        self.fitted.detector().score(&block, out, &mut b.detector);
        if self.classes() > 0 {
            self.fitted.detector().logits(&block, logits, &mut b.detector);
        }
    }

    /// Writes [`Probe::score`] into a graph of ONNX. `layers` are the outputs of the network's layers in f32, `z` the latents in
    /// f64. Gives the confidence and, if it `classifies`, the logits: those of the detector, or else those of the head.
    pub(super) fn to_onnx(
        &self,
        graph: &mut Builder,
        host: Host,
        classifies: bool,
        x: Value,
        layers: &[Value],
        z: Value,
    ) -> Result<(Value, Option<Value>)> {
        let own = self.fitted.logit_classes() > 0 || (classifies && self.classes() == 0 && host.head.classes() > 0);
        let head = if own { host.head.to_onnx(graph, z)?.logits } else { None };
        let features = (self.fitted.width() > 0).then(|| {
            let parts: Vec<Value> = self
                .views
                .iter()
                .map(|view| match view.source {
                    Source::Inputs => x,
                    Source::Layer(layer, _) => *layers.get(layer).unwrap_or(&x),
                    Source::Latents => *layers.last().unwrap_or(&x),
                })
                .collect();
            let features = graph.concat(&parts, 1);
            let features = graph.cast(features, Type::F64);
            graph.clamp(features, f64::from(MAX_FEATURE), f64::from(MAX_FEATURE))
        });
        let logits = head.filter(|_| self.fitted.logit_classes() > 0).map(|l| graph.clamp(l, MAX_LOGIT, 0.0));
        let rows = onnx::Features { features, logits, classes: self.fitted.logit_classes() };
        let found = self.fitted.detector().to_onnx(graph, &rows)?;
        let logits = if self.classes() > 0 { found.logits } else { head };
        Ok((found.confidence, logits.filter(|_| classifies)))
    }

    /// Moves the input of each view along the sign of its gradient, and takes the features from there.
    fn perturb(&self, host: Host, x: &[f32], rows: usize, b: &mut Buffers) {
        let input = x.len() / rows;
        let detector = self.fitted.detector();
        let epsilon = detector.epsilon() as f32;
        let classes = host.head.classes();
        let mut at = 0;
        for (p, view) in self.views.iter().enumerate() {
            let mut gradient = vec![0.0f32; rows * view.width];
            for (i, gradient) in gradient.chunks_exact_mut(view.width).enumerate() {
                let features = &b.features[i * self.width + at..][..view.width];
                let row = Features { count: 1, features, logits: &b.logits[i * classes..(i + 1) * classes] };
                let mut by_logits = vec![0.0f64; classes];
                detector.perturbation_gradient(p, &row, gradient, &mut by_logits);
                if view.is_latents() && by_logits.iter().any(|&g| g != 0.0) {
                    let mut dz = vec![0.0f32; view.width];
                    host.head.logit_gradient(features, &by_logits, &mut dz);
                    gradient.iter_mut().zip(dz).for_each(|(g, d)| *g += d);
                }
            }
            b.moved.clear();
            b.moved.extend_from_slice(x);
            let by_input = match &view.gradient {
                Some(network) => network.input_gradient(x, &gradient, &mut b.net),
                None => &gradient,
            };
            step(&mut b.moved, by_input, epsilon);
            debug_assert_eq!(b.moved.len(), rows * input);
            let z = if view.is_latents() { host.net.latents(&b.moved, &mut b.net).to_vec() } else { Vec::new() };
            let of = Outputs { x: &b.moved, z: &z, hidden: None };
            let part = view.output(of, &mut b.net).to_vec();
            for (to, from) in b.features.chunks_exact_mut(self.width).zip(part.chunks_exact(view.width)) {
                to[at..at + view.width].copy_from_slice(from);
            }
            if view.is_latents() && self.fitted.logit_classes() > 0 {
                host.logits(&z, rows, &mut b.logits);
            }
            at += view.width;
        }
    }
}

/// `x + epsilon sign(gradient)`.
fn step(x: &mut [f32], gradient: &[f32], epsilon: f32) {
    for (x, &g) in x.iter_mut().zip(gradient) {
        if g != 0.0 && !g.is_nan() {
            *x += epsilon.copysign(g);
        }
    }
}

impl View {
    fn is_latents(&self) -> bool {
        matches!(self.source, Source::Latents)
    }

    /// What this view shows of some rows.
    fn output<'a>(&self, of: Outputs<'a>, buffers: &'a mut NetworkBuffers) -> &'a [f32] {
        match (&self.source, of.hidden.filter(|_| self.hidden)) {
            (Source::Inputs, _) => of.x,
            (Source::Layer(..), Some(hidden)) => hidden,
            (Source::Layer(_, part), None) => part.latents(of.x, buffers),
            (Source::Latents, _) => of.z,
        }
    }
}

/// The outputs of all views, side by side.
fn collect(views: &[View], of: Outputs, rows: usize, out: &mut [f32], buffers: &mut NetworkBuffers) {
    let width = out.len() / rows.max(1);
    let mut at = 0;
    for view in views {
        let part = view.output(of, buffers);
        for (to, from) in out.chunks_exact_mut(width).zip(part.chunks_exact(view.width)) {
            to[at..at + view.width].copy_from_slice(from);
        }
        at += view.width;
    }
}

#[cfg(test)]
mod tests;
