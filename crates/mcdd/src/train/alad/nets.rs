//! The five networks of ALAD, and spectral normalization.

use crate::compute::pool::Pool;
use crate::error::Result;
use crate::head::HeadConfig;
use crate::net::cpu::{CpuParams, RowEngine};
use crate::net::{Graph, Optimizer, OptimizerState, Params, Update, mlp};
use crate::seed::Stream;
use crate::train::Settings;

/// The number of power iterations before the first step; each later step does one.
const FIRST_ITERATIONS: usize = 20;
/// The smallest divisor.
const LEAST: f64 = 1e-12;

/// The largest singular value of a weight, by power iteration.
#[derive(Clone, Debug)]
pub(super) struct Norm {
    /// The number of the tensor.
    weight: usize,
    /// The singular vector on the side of the layer's inputs; a checkpoint needs only this one.
    pub left: Vec<f32>,
    right: Vec<f32>,
    sigma: f64,
}

impl Norm {
    fn new(weight: usize, inputs: usize, outputs: usize, seed: &mut Stream) -> Norm {
        let right = (0..outputs).map(|_| seed.normal() as f32).collect();
        Norm { weight, left: vec![0.0; inputs], right, sigma: 1.0 }
    }

    fn iterate(&mut self, weight: &[f32]) {
        let rows = weight.chunks_exact(self.right.len());
        let products: Vec<f64> = rows.map(|row| dot(row, &self.right)).collect();
        unit(&products, &mut self.left);
        self.measure(weight);
    }

    /// Computes the norm along `left`, and the other singular vector.
    fn measure(&mut self, weight: &[f32]) {
        let mut products = vec![0.0f64; self.right.len()];
        for (row, &l) in weight.chunks_exact(self.right.len()).zip(&self.left) {
            products.iter_mut().zip(row).for_each(|(p, &w)| *p += f64::from(l) * f64::from(w));
        }
        self.sigma = unit(&products, &mut self.right);
    }

    #[cfg(test)]
    pub(super) fn right(&self) -> &[f32] {
        &self.right
    }

    /// From the gradient with respect to `used = raw / sigma` to that with respect to `raw`, in place. The singular
    /// vectors count as constants, as at the maximum that they stand for their own change does not move sigma.
    fn chain(&self, used: &[f32], gradient: &mut [f32]) {
        let (inner, scale) = (dot(gradient, used) as f32, (1.0 / self.sigma) as f32);
        for (row, &l) in gradient.chunks_exact_mut(self.right.len()).zip(&self.left) {
            let along = inner * l;
            row.iter_mut().zip(&self.right).for_each(|(g, &r)| *g = scale * (*g - along * r));
        }
    }
}

/// Writes `from` at length 1 and returns its length.
fn unit(from: &[f64], to: &mut [f32]) -> f64 {
    let length = libm::sqrt(from.iter().map(|v| v * v).sum::<f64>()).max(LEAST);
    to.iter_mut().zip(from).for_each(|(t, &v)| *t = (v / length) as f32);
    length
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for ((l, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *l += f64::from(a) * f64::from(b);
        }
    }
    lanes.iter().sum()
}

/// One network, with its parameters in the engine's layout.
pub(super) struct Net {
    /// The parameters that the optimizer updates.
    pub raw: CpuParams,
    /// The parameters that the engine runs: the same with weights divided by their norms.
    pub used: CpuParams,
    pub engine: RowEngine,
    pub state: OptimizerState,
    /// The norms of the weights; empty where nothing is normalized.
    pub norms: Vec<Norm>,
    /// The moving average of `used`.
    pub average: CpuParams,
    gradient: Vec<Vec<f32>>,
}

impl Net {
    pub(super) fn new(
        graph: &Graph,
        normalized: bool,
        optimizer: &Optimizer,
        seed: &mut Stream,
        pool: &Pool,
    ) -> Result<Net> {
        let raw = CpuParams::new(&graph.init(seed));
        let weights = raw.specs().iter().enumerate().filter(|(_, s)| normalized && s.shape.len() == 2);
        let mut norms: Vec<Norm> = weights.map(|(i, s)| Norm::new(i, s.shape[1], s.shape[0], seed)).collect();
        for norm in &mut norms {
            (1..FIRST_ITERATIONS).for_each(|_| norm.iterate(raw.get(norm.weight)));
        }
        let state = OptimizerState::new(optimizer, raw.data().len());
        let gradient = vec![vec![0.0; raw.data().len()]];
        let (used, average) = (raw.clone(), raw.clone());
        let mut net = Net { used, raw, engine: RowEngine::new(graph)?, state, norms, average, gradient };
        net.norms.iter_mut().for_each(|n| n.iterate(net.raw.get(n.weight)));
        net.load(pool);
        net.average.clone_from(&net.used);
        Ok(net)
    }

    /// Computes `used` from `raw` and the norms, and packs it.
    fn load(&mut self, pool: &Pool) {
        self.used.data_mut().copy_from_slice(self.raw.data());
        for norm in &self.norms {
            let scale = (1.0 / norm.sigma) as f32;
            self.used.get_mut(norm.weight).iter_mut().for_each(|w| *w *= scale);
        }
        self.engine.load(&self.used, pool);
    }

    /// The same after `raw` and the left vectors came from a checkpoint.
    pub(super) fn restore(&mut self, pool: &Pool) {
        self.norms.iter_mut().for_each(|n| n.measure(self.raw.get(n.weight)));
        self.load(pool);
    }

    /// Adds up the gradients of `used`, in order, as one with respect to `raw`.
    pub(super) fn collect<'a>(&mut self, parts: impl Iterator<Item = &'a Vec<f32>>) -> &[f32] {
        let sum = &mut self.gradient[0];
        sum.fill(0.0);
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(s, g)| *s += g);
        }
        for norm in &self.norms {
            let range = self.used.range(norm.weight);
            norm.chain(&self.used.data()[range.clone()], &mut sum[range]);
        }
        sum
    }

    /// One update along these gradients of `used`; averages keep the fraction `keep` of their values.
    pub(super) fn update<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a Vec<f32>>,
        update: &Update,
        keep: f64,
        pool: &Pool,
    ) {
        self.collect(parts);
        // The length of a normalized weight has no effect, so it needs no penalty.
        let weight_decay = if self.norms.is_empty() { update.weight_decay } else { 0.0 };
        let (specs, values) = self.raw.specs_and_data();
        Update { weight_decay, ..*update }.apply(specs, values, &self.gradient, &mut self.state, pool);
        self.norms.iter_mut().for_each(|n| n.iterate(self.raw.get(n.weight)));
        self.load(pool);
        let new = (1.0 - keep) as f32;
        self.average.data_mut().iter_mut().zip(self.used.data()).for_each(|(a, &v)| *a += new * (v - *a));
    }

    /// The averaged parameters.
    pub(super) fn averaged(&self) -> Params {
        let mut params = Params::new(self.average.specs().to_vec());
        self.average.store(&mut params);
        params
    }
}

/// The discriminators of a row with a code, of a row with itself or its reconstruction, and of a code with the same.
pub(super) const XZ: usize = 0;
pub(super) const XX: usize = 1;
pub(super) const ZZ: usize = 2;

/// All five networks.
pub(super) struct Nets {
    pub encoder: Net,
    pub generator: Net,
    pub discriminators: [Net; 3],
}

impl Nets {
    pub(super) fn new(
        input: usize,
        settings: &Settings,
        optimizer: &Optimizer,
        member: usize,
        pool: &Pool,
    ) -> Result<Nets> {
        let (code, features) = sizes(settings);
        let net = |name: &str, graph: Graph, normalized| {
            let mut seed = Stream::new(settings.seed, &format!("alad/init/{name}/{member}"));
            Net::new(&graph, normalized, optimizer, &mut seed, pool)
        };
        let back: Vec<usize> = settings.hidden.iter().rev().copied().collect();
        Ok(Nets {
            encoder: net("encoder", mlp(input, &settings.hidden, code), false)?,
            generator: net("generator", mlp(code, &back, input), false)?,
            discriminators: [
                net("xz", mlp(input + code, &[features, features], 1), true)?,
                net("xx", mlp(2 * input, &[features], 1), true)?,
                net("zz", mlp(2 * code, &[features], 1), true)?,
            ],
        })
    }

    /// Each with its name.
    pub(super) fn named(&mut self) -> impl Iterator<Item = (&'static str, &mut Net)> {
        let [xz, xx, zz] = &mut self.discriminators;
        [("encoder", &mut self.encoder), ("generator", &mut self.generator), ("xz", xz), ("xx", xx), ("zz", zz)]
            .into_iter()
    }
}

/// The number of features of a code, and of the discriminators' hidden layers.
pub(super) fn sizes(settings: &Settings) -> (usize, usize) {
    match &settings.head {
        HeadConfig::Alad(alad) => (alad.code, alad.features),
        // Not reached: no other method is trained here.
        _ => (settings.latent, settings.latent),
    }
}
