//! Adversarially learned anomaly detection (Zenati et al., ICDM 2018): how well a row comes back from a generator.
//!
//! The latent vector is `[x, x']`, a row and its reconstruction `x' = G(E(x))`. The head holds the layer
//! `f(x, x') = ReLU(W [x, x'] + b)` of the discriminator that has learned to tell `(x, x)` from `(x, x')`, its weights
//! divided by their spectral norm, and the confidence is `-|f(x, x) - f(x, x')|_1`. The networks are trained against
//! each other by `train::alad`, not by the gradients of this head; they are given as any head's are.
//!
//! Labels are not used and no class is given.

use super::{Head, HeadConfig, LossBuffers};
use crate::net::{ParamSpec, Params, xavier};
use crate::seed::Stream;

/// The head; see the module's text.
#[derive(Clone, Debug)]
pub struct Alad {
    code: usize,
    latent: usize,
    params: Params,
}

pub(crate) const WEIGHT: usize = 0;
pub(crate) const BIAS: usize = 1;

impl Alad {
    /// Its parameters on so many latent features: the input and its reconstruction.
    pub(super) fn specs(features: usize, latent: usize) -> Vec<ParamSpec> {
        let fixed = |name, shape| ParamSpec { trained: false, ..ParamSpec::of_head(name, shape) };
        vec![fixed("weight", vec![features, latent]), fixed("bias", vec![features])]
    }

    /// Random features until the discriminator's are there.
    pub fn new(code: usize, features: usize, latent: usize, seed: &mut Stream) -> Alad {
        let mut params = Params::new(Self::specs(features, latent));
        xavier(params.get_mut(WEIGHT), latent, features, seed);
        Alad { code, latent, params }
    }

    /// The features of `(x, x)` and of `(x, x')` before their ReLU, with the weights of `x` and of `x'`.
    fn features<'a>(&'a self, z: &'a [f32]) -> impl Iterator<Item = ([f64; 2], &'a [f32], &'a [f32])> {
        // A file may say that the latent vector has an odd length; then the reconstruction has one feature more.
        let (x, other) = z.split_at(self.latent / 2);
        let rows = self.params.get(WEIGHT).chunks_exact(self.latent).zip(self.params.get(BIAS));
        rows.map(move |(row, &bias)| {
            let (first, second) = row.split_at(self.latent / 2);
            let own = dot(x, first) + f64::from(bias);
            ([own + dot(x, second), own + dot(other, second)], first, second)
        })
    }
}

/// In f64, so that no finite row overflows.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for ((l, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *l += f64::from(a) * f64::from(b);
        }
    }
    lanes.iter().sum()
}

/// `to += factor * v`, as far as both go.
fn add(to: &mut [f32], factor: f32, v: &[f32]) {
    to.iter_mut().zip(v).for_each(|(t, &v)| *t += factor * v);
}

impl Head for Alad {
    fn config(&self) -> HeadConfig {
        HeadConfig::Alad { code: self.code, features: self.params.specs()[BIAS].len() }
    }

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
        let share = 1.0 / batch as f32;
        let mut loss = 0.0;
        for (z, dz) in z.chunks_exact(self.latent).zip(dz.chunks_exact_mut(self.latent)) {
            dz.fill(0.0);
            let (dx, dother) = dz.split_at_mut(self.latent / 2);
            for ([same, other], first, second) in self.features(z) {
                let difference = same.max(0.0) - other.max(0.0);
                loss += difference.abs();
                let sign = if difference > 0.0 { share } else { -share };
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
}
