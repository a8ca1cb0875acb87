//! The softmax classifier: a linear layer on the latents and cross-entropy.
//!
//! Its confidence is the maximum softmax probability as log-odds, `log p - log(1 - p)` of the largest posterior, in
//! f64 from the logits: as a probability it would saturate at 1 and tie thousands of rows.
//!
//! With `logit-norm` the logits of a row are divided by their length and by a temperature (Wei et al., *Mitigating Neural Network
//! Overconfidence with Logit Normalization*, ICML 2022), so that longer logits do not lower the loss.

use serde::{Deserialize, Serialize};

use super::{About, Head, LossBuffers, Objective, dot_f64, out_of_range};
use crate::compute::vector::add_scaled;
use crate::error::Result;
use crate::net::{ParamSpec, Params, xavier};
use crate::onnx::{Builder, Scores, Value, wide};
use crate::seed::Stream;

/// The settings of the softmax classifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Label smoothing: the part of each label that is spread evenly over all classes, in `0..1`; 0.
    pub smoothing: f64,
    /// The temperature of normalized logits, e.g. 0.04; 0, which leaves logits as they are.
    #[serde(rename = "logit-norm")]
    pub logit_norm: f64,
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "softmax",
        title: "Softmax",
        summary: "linear layer and cross-entropy; confidence is the log-odds of the largest posterior (MSP)",
        reference: "Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017",
    };

    fn check(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.smoothing) {
            return Err(out_of_range("smoothing", self.smoothing, "a number of at least 0 and below 1"));
        }
        if self.logit_norm != 0.0 && !(1e-3..=1e3).contains(&self.logit_norm) {
            return Err(out_of_range("logit-norm", self.logit_norm, "0 for off, or a number from 0.001 to 1,000"));
        }
        Ok(())
    }

    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        let weight = ParamSpec { decay: true, ..ParamSpec::of_head("weight", vec![classes, latent]) };
        vec![weight, ParamSpec::of_head("bias", vec![classes])]
    }

    /// Xavier-uniform weights, biases 0.
    fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        let mut params = Params::new(self.specs(classes, latent));
        xavier(params.get_mut(WEIGHT), latent, classes, seed);
        Box::new(Softmax { latent, params, smoothing: self.smoothing as f32, temperature: self.logit_norm })
    }

    fn has_linear_logits(&self) -> bool {
        self.logit_norm == 0.0
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct Softmax {
    latent: usize,
    params: Params,
    smoothing: f32,
    /// Of normalized logits; 0 if they are not normalized.
    temperature: f64,
}

/// Shorter logits are not normalized further.
const MIN_LENGTH: f64 = 1e-7;

const WEIGHT: usize = 0;
const BIAS: usize = 1;

impl Softmax {
    fn weight(&self, class: usize) -> &[f32] {
        &self.params.get(WEIGHT)[class * self.latent..(class + 1) * self.latent]
    }

    /// What the logits are divided by: their length times the temperature, or 1.
    fn divisor(&self, squares: f64) -> f64 {
        if self.temperature == 0.0 { 1.0 } else { self.temperature * libm::sqrt(squares).max(MIN_LENGTH) }
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
        // What every class has of each label, and what its own class has besides.
        let (every, besides) = (self.smoothing / classes as f32, 1.0 - self.smoothing);
        let rows = z.chunks_exact(latent).zip(y).zip(dz.chunks_exact_mut(latent)).zip(pairs.chunks_exact_mut(classes));
        for (((z, &y), dz), row) in rows {
            let y = y as usize;
            for (k, pair) in row.iter_mut().enumerate() {
                pair[0] = (dot_f64(z, self.weight(k)) + f64::from(bias[k])) as f32;
            }
            let divisor = self.divisor(row.iter().map(|p| f64::from(p[0]).powi(2)).sum()) as f32;
            if self.temperature > 0.0 {
                // The second of each pair is the logit of length 1.
                row.iter_mut().for_each(|p| *p = [p[0] / divisor, p[0] / divisor * self.temperature as f32]);
            }
            let largest = row.iter().fold(f32::NEG_INFINITY, |m, p| m.max(p[0]));
            let own = row[y][0];
            let sum: f32 = row.iter().map(|p| libm::expf(p[0] - largest)).sum();
            let mut target = f64::from(own) - f64::from(largest);
            if self.smoothing > 0.0 {
                let mean = row.iter().map(|p| f64::from(p[0]) - f64::from(largest)).sum::<f64>() / classes as f64;
                target = f64::from(besides) * target + f64::from(self.smoothing) * mean;
            }
            loss += f64::from(libm::logf(sum)) - target;
            dz.fill(0.0);
            for (k, pair) in row.iter_mut().enumerate() {
                let p = libm::expf(pair[0] - largest) / sum;
                let target = if k == y { besides + every } else { every };
                pair[0] = (p - target) / batch as f32;
            }
            if self.temperature > 0.0 {
                // Only the part across the logits moves the normalized ones.
                let along: f32 = row.iter().map(|p| p[0] * p[1]).sum();
                row.iter_mut().for_each(|p| p[0] = (p[0] - along * p[1]) / divisor);
            }
            for (k, pair) in row.iter().enumerate() {
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
        let divisor = self.divisor(logits.iter().map(|l| l * l).sum());
        logits.iter_mut().for_each(|l| *l /= divisor);
        log_odds(logits)
    }

    fn has_distances(&self) -> bool {
        false
    }

    fn last_layer(&self) -> Option<(&[f32], &[f32])> {
        (self.temperature == 0.0).then(|| (self.params.get(WEIGHT), self.params.get(BIAS)))
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        dz.fill(0.0);
        let (mut divisor, mut along) = (1.0, 0.0);
        let logit = |k: usize| dot_f64(z, self.weight(k)) + f64::from(self.params.get(BIAS)[k]);
        if self.temperature > 0.0 {
            divisor = self.divisor((0..self.classes()).map(|k| logit(k).powi(2)).sum());
            along = dlogits.iter().enumerate().map(|(k, g)| g * logit(k)).sum::<f64>()
                * (self.temperature / divisor).powi(2);
        }
        for (k, &g) in dlogits.iter().enumerate() {
            let across = if along == 0.0 { g } else { g - along * logit(k) };
            add_scaled(dz, (across / divisor) as f32, self.weight(k));
        }
    }

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        let classes = self.classes();
        let products = graph.times(z, &wide(self.params.get(WEIGHT)), self.latent);
        let bias = graph.constant(&[1, classes], &wide(self.params.get(BIAS)));
        let mut logits = graph.op("Add", &[products, bias]);
        if self.temperature > 0.0 {
            let squares = graph.squares(logits, true);
            let length = graph.op("Sqrt", &[squares]);
            let length = graph.at_least(length, MIN_LENGTH);
            let divisor = graph.scale(length, self.temperature);
            logits = graph.op("Div", &[logits, divisor]);
        }
        Ok(Scores { confidence: graph.log_odds(logits, classes), logits: Some(logits) })
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
    fn variants() -> Vec<Self> {
        vec![Config { smoothing: 0.3, logit_norm: 0.0 }, Config { smoothing: 0.1, logit_norm: 0.5 }]
    }

    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{cross_entropy, mean_loss};
        mean_loss(z, y, latent, |z, y| {
            let logit = |(w, b): (&[f64], &f64)| z.iter().zip(w).map(|(z, w)| z * w).sum::<f64>() + b;
            let mut logits: Vec<f64> = params[WEIGHT].chunks(latent).zip(&params[BIAS]).map(logit).collect();
            if self.logit_norm > 0.0 {
                let length = logits.iter().map(|l| l * l).sum::<f64>().sqrt();
                logits.iter_mut().for_each(|l| *l /= length * self.logit_norm);
            }
            let every = (0..logits.len()).map(|k| cross_entropy(&logits, k)).sum::<f64>() / logits.len() as f64;
            (1.0 - self.smoothing) * cross_entropy(&logits, y) + self.smoothing * every
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, y: usize) -> Option<f64> {
        let every = score.posterior.iter().map(|p| -p.ln()).sum::<f64>() / score.posterior.len() as f64;
        Some((1.0 - self.smoothing) * -score.posterior[y].ln() + self.smoothing * every)
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
