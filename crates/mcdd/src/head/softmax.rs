//! The softmax classifier: a linear layer on the latents and cross-entropy.
//!
//! Its confidence is the maximum softmax probability as log-odds, `log p - log(1 - p)` of the largest posterior, in
//! f64 from the logits: as a probability it would saturate at 1 and tie thousands of rows.

use serde::{Deserialize, Serialize};

use super::{About, Head, LossBuffers, Objective, dot_f64};
use crate::compute::vector::add_scaled;
use crate::net::{ParamSpec, Params, xavier};
use crate::seed::Stream;

/// The softmax classifier has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Config {}

impl Objective for Config {
    const ABOUT: About = About {
        name: "softmax",
        title: "Softmax",
        summary: "linear layer and cross-entropy; confidence is the log-odds of the largest posterior (MSP)",
        reference: "Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017",
    };

    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        let weight = ParamSpec { decay: true, ..ParamSpec::of_head("weight", vec![classes, latent]) };
        vec![weight, ParamSpec::of_head("bias", vec![classes])]
    }

    /// Xavier-uniform weights, biases 0.
    fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        let mut params = Params::new(self.specs(classes, latent));
        xavier(params.get_mut(WEIGHT), latent, classes, seed);
        Box::new(Softmax { latent, params })
    }

    fn has_linear_logits(&self) -> bool {
        true
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct Softmax {
    latent: usize,
    params: Params,
}

const WEIGHT: usize = 0;
const BIAS: usize = 1;

impl Softmax {
    fn weight(&self, class: usize) -> &[f32] {
        &self.params.get(WEIGHT)[class * self.latent..(class + 1) * self.latent]
    }
}

impl Head for Softmax {
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
                pair[0] = (dot_f64(z, self.weight(k)) + f64::from(bias[k])) as f32;
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
            *logit = dot_f64(z, self.weight(k)) + f64::from(self.params.get(BIAS)[k]);
        }
        log_odds(logits)
    }

    fn has_distances(&self) -> bool {
        false
    }

    fn last_layer(&self) -> Option<(&[f32], &[f32])> {
        Some((self.params.get(WEIGHT), self.params.get(BIAS)))
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
impl super::tests::Reference for Config {
    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{cross_entropy, mean_loss};
        mean_loss(z, y, latent, |z, y| {
            let logit = |(w, b): (&[f64], &f64)| z.iter().zip(w).map(|(z, w)| z * w).sum::<f64>() + b;
            let logits: Vec<f64> = params[WEIGHT].chunks(latent).zip(&params[BIAS]).map(logit).collect();
            cross_entropy(&logits, y)
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, y: usize) -> Option<f64> {
        Some(-score.posterior[y].ln())
    }
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
