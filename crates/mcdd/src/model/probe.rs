//! A detector on what a member's network makes of the input.

use crate::compute::pool::{Pool, chunks};
use crate::detector::{
    Detect, DetectorBuffers, Features, Fitted, LastLayer, On, StateDict, Training, clamp_features, clamp_logits,
};
use crate::error::Result;
use crate::head::Head;
use crate::net::cpu::{self, Engine, Pass, Predictor};
use crate::net::{Graph, Params};
use crate::train::Examples;

/// The parts of the network whose outputs a detector looks at.
fn views(detect: &Detect, graph: &Graph, params: &Params) -> Result<Vec<View>> {
    let widths = graph.widths()?;
    let all = graph.nodes.len();
    let nodes: Vec<usize> = match detect.on() {
        On::Latents => vec![all],
        On::Inputs => vec![0],
        On::Layers => graph.layer_ends(),
    };
    let view = |nodes: usize| {
        let part = Graph { input: graph.input, nodes: graph.nodes[..nodes].to_vec() };
        let whole = nodes == all;
        let net = match nodes {
            0 => None,
            _ if whole => None,
            _ => Some(Predictor::new(&part, &first_params(&part, params))?),
        };
        Ok(View { part, width: widths[nodes], whole, net, engine: None })
    };
    nodes.into_iter().map(view).collect()
}

/// A part of the network, from the input on.
struct View {
    part: Graph,
    width: usize,
    /// Whether it is all of it.
    whole: bool,
    /// Runs it, where it is neither nothing nor all.
    net: Option<Predictor>,
    /// Runs it back to the input, where the detector moves the input; batch normalization is part of the layers.
    engine: Option<(Engine, Params)>,
}

/// The parameters of a part of a network: those that come first.
fn first_params(part: &Graph, all: &Params) -> Params {
    let mut params = Params::new(part.specs());
    let n = params.data.len();
    params.data.copy_from_slice(&all.data[..n]);
    params
}

/// A detector with the parts of the network that it looks at.
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
    net: cpu::ForwardBuffers,
    pass: Pass,
    ignored: Vec<f32>,
    detector: DetectorBuffers,
}

/// What a detector is fitted on.
#[derive(Clone, Copy)]
pub(super) struct Fit<'a> {
    /// What the network was trained on.
    pub rows: Examples<'a>,
    /// Their classes, where they have any.
    pub labels: Option<&'a [u32]>,
    pub classes: usize,
    pub seed: u64,
}

/// A member's network and head.
#[derive(Clone, Copy)]
pub(super) struct Host<'a> {
    pub net: &'a Predictor,
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
    /// Fits on the rows that a member was trained on; none where the head's own score is wanted.
    pub fn fit(detect: &Detect, graph: &Graph, host: Host, given: Fit, pool: &Pool) -> Result<Option<Probe>> {
        if detect.is_own() {
            return Ok(None);
        }
        let needs = detect.detector.about().needs;
        let views = views(detect, graph, host.net.params())?;
        let width = views.iter().map(|v| v.width).sum();
        let rows = given.rows.len();
        let block = given.rows.block();
        let mut features = vec![0.0f32; rows * width];
        let mut logits = vec![0.0f64; rows * host.head.classes()];
        let parts = (chunks(&mut features, block * width), chunks(&mut logits, block * host.head.classes()));
        pool.split(parts, |i, (features, logits)| {
            let rows = features.len() / width;
            let mut buffer = Vec::new();
            let x = given.rows.x(i * block..i * block + rows, &mut buffer);
            let mut b = Buffers::default();
            let z = host.net.latents(x, &mut b.net).to_vec();
            collect(&views, x, &z, rows, features, &mut b.net);
            host.logits(&z, rows, &mut b.logits);
            logits.copy_from_slice(&b.logits);
        });
        clamp_features(&mut features);
        clamp_logits(&mut logits);
        let widths: Vec<usize> = views.iter().map(|v| v.width).collect();
        let last_layer = host.head.last_layer().map(|(weight, bias)| LastLayer { weight, bias });
        let training = Training {
            rows: Features { count: rows, features: &features, logits: if needs.logits { &logits } else { &[] } },
            labels: given.labels,
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
            for view in views.iter_mut().filter(|v| !v.part.nodes.is_empty()) {
                let (graph, params) = view.part.folded(&first_params(&view.part, host.net.params()))?;
                let mut engine = Engine::new(&graph)?;
                engine.load(&params, &Pool::new(1));
                view.engine = Some((engine, params));
            }
        }
        Ok(Probe { views, fitted, width })
    }

    /// Stores the detector.
    pub fn save(&self, store: &mut StateDict) {
        self.fitted.save(store);
    }

    /// Takes back what [`Probe::save`] has stored.
    pub fn load(detect: &Detect, graph: &Graph, host: Host, store: &mut StateDict) -> Result<Option<Probe>> {
        if detect.is_own() {
            return Ok(None);
        }
        let fitted = Fitted::load(&detect.detector, store)?;
        let views = views(detect, graph, host.net.params())?;
        let width: usize = views.iter().map(|v| v.width).sum();
        let fits = (fitted.width() == width || fitted.width() == 0)
            && (fitted.logit_classes() == host.head.classes() || fitted.logit_classes() == 0);
        if !fits {
            return Err(store.invalid("it does not fit the network"));
        }
        Probe::with(views, fitted, width, host).map(Some)
    }

    /// The number of classes that the detector tells apart.
    pub fn classes(&self) -> usize {
        self.fitted.detector().classes()
    }

    /// The confidences of some rows, `z` being their latents; and, where the detector classifies, its logits.
    pub fn score(&self, host: Host, x: &[f32], z: &[f32], out: &mut [f64], logits: &mut [f64], b: &mut Buffers) {
        let rows = out.len();
        b.features.resize(rows * self.width, 0.0);
        collect(&self.views, x, z, rows, &mut b.features, &mut b.net);
        host.logits(z, rows, &mut b.logits);
        if self.fitted.detector().epsilon() > 0.0 {
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

    /// Moves the input of each part along the sign of its gradient, and takes the features from there.
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
                if view.whole && by_logits.iter().any(|&g| g != 0.0) {
                    let mut dz = vec![0.0f32; view.width];
                    host.head.logit_gradient(features, &by_logits, &mut dz);
                    gradient.iter_mut().zip(dz).for_each(|(g, d)| *g += d);
                }
            }
            b.moved.clear();
            b.moved.extend_from_slice(x);
            if let Some((engine, params)) = &view.engine {
                b.pass.forward(engine, params, x);
                b.pass.latents_and_gradient().1.copy_from_slice(&gradient);
                b.ignored.resize(params.data.len(), 0.0);
                b.pass.backward(engine, params, x, &mut b.ignored);
                let by_input = b.pass.input_gradient(engine, params);
                step(&mut b.moved, by_input, epsilon);
            } else {
                step(&mut b.moved, &gradient, epsilon);
            }
            debug_assert_eq!(b.moved.len(), rows * input);
            let z = if view.whole { host.net.latents(&b.moved, &mut b.net).to_vec() } else { Vec::new() };
            let part = view.output(&b.moved, &z, &mut b.net).to_vec();
            for (to, from) in b.features.chunks_exact_mut(self.width).zip(part.chunks_exact(view.width)) {
                to[at..at + view.width].copy_from_slice(from);
            }
            if view.whole && self.fitted.logit_classes() > 0 {
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
    /// What this part makes of `x`, whose latents are `z`.
    fn output<'a>(&self, x: &'a [f32], z: &'a [f32], scratch: &'a mut cpu::ForwardBuffers) -> &'a [f32] {
        match &self.net {
            Some(net) => net.latents(x, scratch),
            None if self.whole => z,
            None => x,
        }
    }
}

/// The outputs of all parts, side by side.
fn collect(views: &[View], x: &[f32], z: &[f32], rows: usize, out: &mut [f32], scratch: &mut cpu::ForwardBuffers) {
    let width = out.len() / rows.max(1);
    let mut at = 0;
    for view in views {
        let part = view.output(x, z, scratch);
        for (to, from) in out.chunks_exact_mut(width).zip(part.chunks_exact(view.width)) {
            to[at..at + view.width].copy_from_slice(from);
        }
        at += view.width;
    }
}
