//! The softmax classifier: a linear layer on the latents and cross-entropy.
//!
//! Its confidence is the maximum softmax probability as log-odds, `log p - log(1 - p)` of the largest posterior, in
//! f64 from the logits: as a probability it would saturate at 1 and tie thousands of rows.

use super::{Head, HeadConfig, LossBuffers};
use crate::compute::vector::add_scaled;
use crate::net::{ParamSpec, Params, xavier};
use crate::seed::Stream;

/// The head; see the module's text.
#[derive(Clone, Debug)]
pub struct Softmax {
    latent: usize,
    params: Params,
}

const WEIGHT: usize = 0;
const BIAS: usize = 1;

impl Softmax {
    /// Its parameters for so many classes on so many latent features.
    pub(super) fn specs(classes: usize, latent: usize) -> Vec<ParamSpec> {
        let weight = ParamSpec { decay: true, ..ParamSpec::of_head("weight", vec![classes, latent]) };
        vec![weight, ParamSpec::of_head("bias", vec![classes])]
    }

    /// Xavier-uniform weights, biases 0.
    pub fn new(classes: usize, latent: usize, seed: &mut Stream) -> Softmax {
        let mut params = Params::new(Self::specs(classes, latent));
        xavier(params.get_mut(WEIGHT), latent, classes, seed);
        Softmax { latent, params }
    }

    fn weight(&self, class: usize) -> &[f32] {
        &self.params.get(WEIGHT)[class * self.latent..(class + 1) * self.latent]
    }
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

impl Head for Softmax {
    fn config(&self) -> HeadConfig {
        HeadConfig::Softmax
    }

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
        let bias = self.params.get(BIAS);
        let pairs = scratch.pairs(y.len() * classes);
        let mut loss = 0.0;
        let rows = z.chunks_exact(latent).zip(y).zip(dz.chunks_exact_mut(latent)).zip(pairs.chunks_exact_mut(classes));
        for (((z, &y), dz), row) in rows {
            let y = y as usize;
            let mut largest = f32::NEG_INFINITY;
            for (k, pair) in row.iter_mut().enumerate() {
                pair[0] = (dot(z, self.weight(k)) + f64::from(bias[k])) as f32;
                largest = largest.max(pair[0]);
            }
            let own = row[y][0];
            let sum: f32 = row.iter().map(|p| libm::expf(p[0] - largest)).sum();
            loss += f64::from(libm::logf(sum)) - (f64::from(own) - f64::from(largest));
            dz.fill(0.0);
            for (k, pair) in row.iter_mut().enumerate() {
                let p = libm::expf(pair[0] - largest) / sum;
                pair[0] = (p - f32::from(k == y)) / batch as f32;
                add_scaled(dz, pair[0], self.weight(k));
            }
        }
        let (weights, biases) = gradients.split_at_mut(classes * latent);
        for (k, (weight, bias)) in weights.chunks_exact_mut(latent).zip(biases).enumerate() {
            weight.fill(0.0);
            *bias = 0.0;
            for (z, row) in z.chunks_exact(latent).zip(pairs.chunks_exact(classes)) {
                let g = row[k][0];
                add_scaled(weight, g, z);
                *bias += g;
            }
        }
        loss / batch as f64
    }

    fn score(&self, z: &[f32], logits: &mut [f64], _distances: &mut [f64]) -> f64 {
        for (k, logit) in logits.iter_mut().enumerate() {
            *logit = dot(z, self.weight(k)) + f64::from(self.params.get(BIAS)[k]);
        }
        log_odds(logits)
    }

    fn has_distances(&self) -> bool {
        false
    }

    fn logit_gradient(&self, _z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        dz.fill(0.0);
        for (k, &g) in dlogits.iter().enumerate() {
            add_scaled(dz, g as f32, self.weight(k));
        }
    }
}

/// `log p - log(1 - p)` of the largest posterior: its logit against the log of the sum of all the others.
pub fn log_odds(logits: &[f64]) -> f64 {
    let best = (0..logits.len()).fold(0, |b, k| if logits[k] > logits[b] { k } else { b });
    let others = || logits.iter().enumerate().filter(|&(k, _)| k != best).map(|(_, &v)| v);
    let largest = others().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = others().map(|v| libm::exp(v - largest)).sum();
    logits[best] - largest - libm::log(sum)
}

#[cfg(test)]
mod tests {
    use super::log_odds;

    #[test]
    fn log_odds_do_not_saturate() {
        let p = |logits: &[f64]| {
            let sum: f64 = logits.iter().map(|v| v.exp()).sum();
            let p = logits.iter().fold(0.0f64, |m, v| m.max(v.exp() / sum));
            (p / (1.0 - p)).ln()
        };
        let logits = [1.0, -0.5, 2.5];
        assert!((log_odds(&logits) - p(&logits)).abs() < 1e-12);
        assert!(log_odds(&[100.0, 0.0, 0.0]) < log_odds(&[101.0, 0.0, 0.0]));
        assert_eq!(log_odds(&[900.0, 0.0]), 900.0);
    }
}
