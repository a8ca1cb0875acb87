//! Deep-MCDD (Lee, Yu, Yu, KDD 2020): each class is an isotropic Gaussian in the latent space.
//!
//! With `D_k(z) = |z - mu_k|^2 / (2 sigma_k^2) + d log sigma_k` (Eq. 4), the loss of a row of class `y` is
//! `D_y - (1/nu) log softmax(-D + b)_y` (Eq. 5), and the confidence `-min_k D_k` (Eq. 7). The authors' code has
//! `nu D_y + CE`; that is this loss times `nu`, so the minimum is the same and the step sizes of SGD differ.
//!
//! `log sigma >= 0` is kept by projection after each update, not by a ReLU inside, whose gradient would be 0 from the
//! first step on. The squared distances are sums of squared differences: `|z|^2 - 2 z mu + |mu|^2` would cancel where
//! it matters most, close to a mean.

use serde::{Deserialize, Serialize};

use super::{About, Head, LossBuffers, Objective, out_of_range, square_f64};
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params, xavier};
use crate::onnx::{Builder, Scores, Value, wide};
use crate::seed::Stream;

/// How the standard deviations of the classes are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sigma {
    /// Fixed at 1; the default, because it measured better (`docs/decisions/0003-sigma.md`).
    #[default]
    One,
    /// Learned, at least 1.
    Learned,
}

/// The settings of Deep-MCDD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The weight of the distance term relative to the classification term, above 0. The paper uses 1 for tables.
    pub nu: f64,
    /// Whether the deviations are learned.
    pub sigma: Sigma,
}

impl Default for Config {
    fn default() -> Self {
        Config { nu: 1.0, sigma: Sigma::One }
    }
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "deep-mcdd",
        title: "Deep-MCDD",
        summary: "each class an isotropic Gaussian; confidence is minus the distance to the nearest",
        reference: "Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection, KDD 2020",
    };

    fn check(&self) -> Result<()> {
        if self.nu.is_finite() && self.nu > 0.0 {
            return Ok(());
        }
        Err(out_of_range("nu", self.nu, "a number above 0; the paper uses 1 for tables"))
    }

    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        let trained = self.sigma == Sigma::Learned;
        vec![
            ParamSpec::of_head("mu", vec![classes, latent]),
            ParamSpec { trained, ..ParamSpec::of_head("log_sigma", vec![classes]) },
            ParamSpec::of_head("bias", vec![classes]),
        ]
    }

    /// Xavier-uniform means, sigma 1, biases 0.
    fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        let mut params = Params::new(self.specs(classes, latent));
        xavier(params.get_mut(MEANS), latent, classes, seed);
        Box::new(DeepMcdd { config: self.clone(), latent, params })
    }

    /// SGD takes the loss of the authors' code, which is `nu` times the paper's: with the paper's loss a small `nu`
    /// would make steps at which networks diverge.
    fn sgd_loss_scale(&self) -> f64 {
        self.nu
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct DeepMcdd {
    config: Config,
    latent: usize,
    params: Params,
}

const MEANS: usize = 0;
const LOG_SIGMA: usize = 1;
const BIAS: usize = 2;
/// A gradient below this is taken for 0: far below the precision of the sums, and far above the denormal numbers.
const NOTHING: f32 = 1e-20;

impl DeepMcdd {
    fn mean(&self, class: usize) -> &[f32] {
        &self.params.get(MEANS)[class * self.latent..(class + 1) * self.latent]
    }
}

/// `1 / sigma^2`.
fn precision(log_sigma: f32) -> f32 {
    if log_sigma == 0.0 { 1.0 } else { libm::expf(-2.0 * log_sigma) }
}

impl DeepMcdd {
    /// One row: its loss, the gradient of its latent vector, and for each class `dL/dD / sigma^2` with the squared
    /// distance. `constants` has `1 / sigma^2` and the logit at distance 0 of each class, `scale` is one over the number
    /// of rows of the batch.
    fn row(
        &self,
        z: &[f32],
        y: usize,
        scale: f32,
        constants: &[[f32; 2]],
        dz: &mut [f32],
        pairs: &mut [[f32; 2]],
    ) -> f64 {
        let means = self.params.get(MEANS);
        let inverse_nu = (1.0 / self.config.nu) as f32;
        let mut largest = f32::NEG_INFINITY;
        for ((pair, mean), &[precision, start]) in pairs.iter_mut().zip(means.chunks_exact(self.latent)).zip(constants)
        {
            let square = vector::squared_distance(z, mean);
            let logit = start - 0.5 * square * precision;
            *pair = [logit, square];
            largest = largest.max(logit);
        }
        let own = pairs[y][0];
        let mut sum = 0.0;
        for pair in pairs.iter_mut() {
            pair[0] = libm::expf(pair[0] - largest);
            sum += pair[0];
        }
        let cross_entropy = f64::from(libm::logf(sum)) - (f64::from(own) - f64::from(largest));
        let rest = inverse_nu / sum;
        for (k, (pair, &[precision, _])) in pairs.iter_mut().zip(constants).enumerate() {
            let hit = f32::from(k == y);
            let g = hit + (inverse_nu * hit - rest * pair[0]);
            // A class with a posterior of almost 0 adds nothing; after the first epochs most classes are such.
            pair[0] = if g.abs() < NOTHING { 0.0 } else { scale * g * precision };
        }
        vector::to_many(dz, z, means, pairs);
        f64::from(self.params.get(BIAS)[y]) - f64::from(own) + cross_entropy / self.config.nu
    }
}

impl Head for DeepMcdd {
    fn classes(&self) -> usize {
        self.params.specs()[BIAS].len()
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
        y: &[u32],
        batch: usize,
        dz: &mut [f32],
        gradients: &mut [f32],
        scratch: &mut LossBuffers,
    ) -> f64 {
        let (classes, latent) = (self.classes(), self.latent);
        let (constants, pairs) = scratch.pairs((1 + y.len()) * classes).split_at_mut(classes);
        let log_sigma = self.params.get(LOG_SIGMA);
        for ((c, &s), &b) in constants.iter_mut().zip(log_sigma).zip(self.params.get(BIAS)) {
            *c = [precision(s), b - latent as f32 * s];
        }
        let scale = 1.0 / batch as f32;
        let rows = z.chunks_exact(latent).zip(y).zip(dz.chunks_exact_mut(latent)).zip(pairs.chunks_exact_mut(classes));
        let loss: f64 = rows.map(|(((z, &y), dz), pairs)| self.row(z, y as usize, scale, constants, dz, pairs)).sum();
        let pairs = &*pairs;
        let (means, rest) = gradients.split_at_mut(self.params.range(MEANS).end);
        for (class, out) in means.chunks_exact_mut(latent).enumerate() {
            // d D_k / d mu_k = -(z - mu_k) / sigma_k^2
            vector::from_many(out, z, self.mean(class), pairs, class, classes);
            out.iter_mut().for_each(|v| *v = -*v);
        }
        let (d_log_sigma, d_bias) = rest.split_at_mut(classes);
        d_log_sigma.fill(0.0);
        d_bias.fill(0.0);
        for (row, &y) in pairs.chunks_exact(classes).zip(y) {
            // The bias moves the posterior only, not the distance term.
            d_bias[y as usize] += scale;
            for ((k, &[scaled, square]), &[precision, _]) in row.iter().enumerate().zip(&*constants) {
                // Back from `g / sigma^2`; a sigma so large that this is 0 has no gradient.
                let g = if scaled == 0.0 { 0.0 } else { scaled / precision };
                d_bias[k] -= g;
                if self.config.sigma == Sigma::Learned {
                    d_log_sigma[k] += g * (latent as f32 - square * precision);
                }
            }
        }
        loss / batch as f64
    }

    fn project(&mut self) {
        for s in self.params.get_mut(LOG_SIGMA) {
            *s = s.max(0.0);
        }
    }

    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64 {
        let (log_sigma, bias) = (self.params.get(LOG_SIGMA), self.params.get(BIAS));
        let mut nearest = f64::INFINITY;
        for k in 0..self.classes() {
            let sigma = f64::from(log_sigma[k]);
            let square = square_f64(z, self.mean(k));
            let distance = if sigma == 0.0 {
                0.5 * square
            } else {
                0.5 * square * libm::exp(-2.0 * sigma) + self.latent as f64 * sigma
            };
            distances[k] = distance;
            logits[k] = f64::from(bias[k]) - distance;
            nearest = nearest.min(distance);
        }
        -nearest
    }

    fn has_distances(&self) -> bool {
        true
    }

    fn means(&self) -> Option<&[f32]> {
        Some(self.params.get(MEANS))
    }

    fn log_sigma(&self) -> Option<&[f32]> {
        Some(self.params.get(LOG_SIGMA))
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        // d(b - D) / dz = -(z - mu) / sigma^2
        let log_sigma = self.params.get(LOG_SIGMA);
        let weights: Vec<[f32; 2]> =
            dlogits.iter().zip(log_sigma).map(|(&g, &s)| [-g as f32 * precision(s), 0.0]).collect();
        vector::to_many(dz, z, self.params.get(MEANS), &weights);
    }

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        let squares = graph.squared_distances(z, &wide(self.params.get(MEANS)), self.latent);
        let sigmas = wide(self.params.get(LOG_SIGMA));
        let factors: Vec<f64> = sigmas.iter().map(|s| 0.5 * libm::exp(-2.0 * s)).collect();
        let shifts: Vec<f64> = sigmas.iter().map(|s| self.latent as f64 * s).collect();
        let row = [1, sigmas.len()];
        let [factors, shifts, bias] =
            [factors, shifts, wide(self.params.get(BIAS))].map(|values| graph.constant(&row, &values));
        let scaled = graph.op("Mul", &[squares, factors]);
        let distances = graph.op("Add", &[scaled, shifts]);
        let logits = graph.op("Sub", &[bias, distances]);
        let nearest = graph.reduce("ReduceMin", distances, false);
        Ok(Scores { confidence: graph.op("Neg", &[nearest]), logits: Some(logits) })
    }
}

#[cfg(test)]
impl super::tests::Reference for Config {
    fn variants() -> Vec<Self> {
        [0.1, 3.0].map(|nu| Config { nu, sigma: Sigma::Learned }).to_vec()
    }

    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{cross_entropy, mean_loss, row, square};
        mean_loss(z, y, latent, |z, y| {
            let distance = |k: usize| {
                let sigma = params[LOG_SIGMA][k].exp();
                square(z, row(&params[MEANS], k, latent)) / (2.0 * sigma * sigma) + latent as f64 * params[LOG_SIGMA][k]
            };
            let logits: Vec<f64> = params[BIAS].iter().enumerate().map(|(k, b)| b - distance(k)).collect();
            distance(y) + cross_entropy(&logits, y) / self.nu
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, y: usize) -> Option<f64> {
        Some(score.distances[y] - score.posterior[y].ln() / self.nu)
    }
}
