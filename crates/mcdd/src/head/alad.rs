//! Adversarially learned anomaly detection (Zenati et al., ICDM 2018): the reconstruction error of a generator.
//!
//! The latent vector is `[x, x']`, a row and its reconstruction `x' = G(E(x))`. The head holds the layer
//! `f(x, x') = ReLU(W [x, x'] + b)` of the discriminator that is trained to distinguish `(x, x)` from `(x, x')`, its weights
//! divided by their spectral norm, and the confidence is `-|f(x, x) - f(x, x')|_1`. The networks are trained against
//! each other by `train::alad`, not by the gradients of this head.
//!
//! It does not use labels and does not classify.

use serde::{Deserialize, Serialize};

use super::{About, Head, Loop, LossBuffers, Objective, fixed, out_of_range};
use crate::compute::vector::dots_f64;
use crate::error::Result;
use crate::net::{ParamSpec, Params, xavier};
use crate::onnx::{Builder, Scores, Value, wide};
use crate::seed::Stream;

/// The settings of ALAD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Features of the generator's code, at least 1; 32.
    pub code: usize,
    /// Features of each hidden layer of the discriminators, at least 1; 128.
    pub features: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { code: 32, features: 128 }
    }
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "alad",
        title: "ALAD",
        summary: "adversarial reconstruction error in a discriminator's features; does not classify",
        reference: "Zenati et al.: Adversarially Learned Anomaly Detection, ICDM 2018",
    };

    fn check(&self) -> Result<()> {
        for (name, value) in [("code", self.code), ("features", self.features)] {
            if !(1..=65_536).contains(&value) {
                return Err(out_of_range(name, value, "1 to 65,536"));
            }
        }
        Ok(())
    }

    /// The latent features are the input and its reconstruction.
    fn specs(&self, _classes: usize, latent: usize) -> Vec<ParamSpec> {
        vec![fixed("weight", vec![self.features, latent]), fixed("bias", vec![self.features])]
    }

    /// Random weights, until training copies those of the discriminator.
    fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        let mut params = Params::new(self.specs(classes, latent));
        xavier(params.get_mut(WEIGHT), latent, self.features, seed);
        Box::new(Alad { latent, params })
    }

    fn classifies(&self) -> bool {
        false
    }

    fn trained_by(&self) -> Loop {
        Loop::Adversarial
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct Alad {
    latent: usize,
    params: Params,
}

const WEIGHT: usize = 0;
const BIAS: usize = 1;

impl Alad {
    /// The features of `(x, x)` and of `(x, x')` before their ReLU, with the weights of `x` and of `x'`.
    fn features<'a>(&'a self, z: &'a [f32]) -> impl Iterator<Item = ([f64; 2], &'a [f32], &'a [f32])> {
        // A model file may claim an odd number of latent features; then the reconstruction has one feature more.
        let (x, other) = z.split_at(self.latent / 2);
        let rows = self.params.get(WEIGHT).chunks_exact(self.latent).zip(self.params.get(BIAS));
        rows.map(move |(row, &bias)| {
            let (first, second) = row.split_at(self.latent / 2);
            let [of_first, same, different] = dots_f64(first, second, x, other);
            let own = of_first + f64::from(bias);
            ([own + same, own + different], first, second)
        })
    }
}

/// `to += factor * v`, over the length of the shorter one.
fn add(to: &mut [f32], factor: f32, v: &[f32]) {
    to.iter_mut().zip(v).for_each(|(t, &v)| *t += factor * v);
}

impl Head for Alad {
    fn classes(&self) -> usize {
        0
    }

    fn params(&self) -> &Params {
        &self.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    fn loss(
        &self,
        z: &[f32],
        _y: &[u32],
        batch: usize,
        dz: &mut [f32],
        gradients: &mut [f32],
        _scratch: &mut LossBuffers,
    ) -> f64 {
        gradients.fill(0.0);
        let scale = 1.0 / batch as f32;
        let mut loss = 0.0;
        for (z, dz) in z.chunks_exact(self.latent).zip(dz.chunks_exact_mut(self.latent)) {
            dz.fill(0.0);
            let (dx, dother) = dz.split_at_mut(self.latent / 2);
            for ([same, other], first, second) in self.features(z) {
                let difference = same.max(0.0) - other.max(0.0);
                loss += difference.abs();
                let sign = if difference > 0.0 { scale } else { -scale };
                if difference != 0.0 && same > 0.0 {
                    add(dx, sign, first);
                    add(dx, sign, second);
                }
                if difference != 0.0 && other > 0.0 {
                    add(dx, -sign, first);
                    add(dother, -sign, second);
                }
            }
        }
        loss / batch as f64
    }

    fn score(&self, z: &[f32], _logits: &mut [f64], _distances: &mut [f64]) -> f64 {
        -self.features(z).map(|([same, other], ..)| (same.max(0.0) - other.max(0.0)).abs()).sum::<f64>()
    }

    fn has_distances(&self) -> bool {
        false
    }

    fn logit_gradient(&self, _z: &[f32], _dlogits: &[f64], dz: &mut [f32]) {
        dz.fill(0.0);
    }

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        let half = self.latent / 2;
        let (weight, bias) = (self.params.get(WEIGHT), self.params.get(BIAS));
        // The weights of `(x, x)` and of `(x, x')`, both for the whole latent vector.
        let (mut same, mut other) = (Vec::with_capacity(weight.len()), Vec::with_capacity(weight.len()));
        for row in weight.chunks_exact(self.latent) {
            let row = wide(row);
            same.extend((0..self.latent).map(|i| if i < half { row[i] + row[half + i] } else { 0.0 }));
            other.extend(row);
        }
        let bias = graph.constant(&[1, bias.len()], &wide(bias));
        let [same, other] = [same, other].map(|weight| {
            let products = graph.times(z, &weight, self.latent);
            let sum = graph.op("Add", &[products, bias]);
            graph.at_least(sum, 0.0)
        });
        let difference = graph.op("Sub", &[same, other]);
        let size = graph.op("Abs", &[difference]);
        let error = graph.reduce("ReduceSum", size, false);
        Ok(Scores { confidence: graph.op("Neg", &[error]), logits: None })
    }
}

#[cfg(test)]
impl super::tests::Reference for Config {
    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{mean_loss, row};
        mean_loss(z, y, latent, |z, _| {
            let (x, other) = z.split_at(latent / 2);
            let feature = |k: usize, second: &[f64]| {
                let (a, b) = row(&params[WEIGHT], k, latent).split_at(x.len());
                let dot = |w: &[f64], v: &[f64]| w.iter().zip(v).map(|(w, v)| w * v).sum::<f64>();
                (dot(a, x) + dot(b, second) + params[BIAS][k]).max(0.0)
            };
            (0..self.features).map(|k| (feature(k, x) - feature(k, other)).abs()).sum()
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, _y: usize) -> Option<f64> {
        Some(-score.confidence)
    }
}
