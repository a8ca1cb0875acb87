//! Mahalanobis distances of several layers, with input perturbation.
//!
//! Each layer p (see `Training::parts`) has its own `mahalanobis`, whose distance to the nearest class is D_p. With
//! `s_p = -log(1 + D_p)`, and its mean and standard deviation over the training rows,
//! `confidence = sum over p of w_p (s_p - mean_p) / std_p`, where the weights sum to 1.
//!
//! Differences from the paper:
//! - The paper weights the layers by a logistic regression that is fitted on out-of-distribution rows. Here no such row
//!   reaches a fit: all layers have the same weight unless `weights` is given. Scores are standardized, so that layers are
//!   comparable.
//! - The paper adds up the distances themselves. Squared distances have long tails: a few rows that are far away in one
//!   layer would set its standard deviation, and that layer alone would decide about far rows. The logarithm keeps the
//!   order within a layer and lets every layer contribute.
//!
//! With `epsilon`, a caller that has the network moves the input by `epsilon` times the sign of the gradient of -D_p
//! before it computes the features of layer p. The last layer classifies.

use serde::{Deserialize, Serialize};

use super::mahalanobis::{labeled, load_gaussians, logits, save_gaussians, score, to_onnx};
use super::{
    About, BLOCK, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training,
    needs_gradients, out_of_range,
};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Result};
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::gaussians::{Covariance, Gaussians, Labeled};

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The size of the input perturbation, from 0 (none) to 1e6. Default: 0.001.
    pub epsilon: f64,
    /// The weight of each layer, from the first on, as in `1/2/4`; 0 or more, not all 0. Default: equal weights.
    pub weights: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config { epsilon: 0.001, weights: None }
    }
}

impl Config {
    /// The weights of `layers` layers, normalized to sum to 1.
    fn weights(&self, layers: usize) -> Result<Vec<f64>> {
        let Some(text) = &self.weights else { return Ok(vec![1.0 / layers as f64; layers]) };
        let given: Option<Vec<f64>> = text.split('/').map(|w| w.parse().ok()).collect();
        let sum = given.iter().flatten().sum::<f64>();
        match given {
            Some(w) if w.len() == layers && w.iter().all(|&w| w >= 0.0) && sum > 0.0 && sum.is_finite() => {
                Ok(w.iter().map(|w| w / sum).collect())
            }
            _ => Err(out_of_range(
                "weights",
                text,
                &format!("{layers} numbers of 0 or more, one per layer, as in 1/2/4"),
            )),
        }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "mahalanobis-ensemble",
            summary: "Mahalanobis distances of several layers, with input perturbation",
            reference: "Lee, Lee, Lee, Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and \
                    Adversarial Attacks, NeurIPS 2018",
            needs: Needs { features: true, labels: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        if !(0.0..=1e6).contains(&self.epsilon) {
            return Err(out_of_range("epsilon", self.epsilon, "from 0 to 1,000,000"));
        }
        Ok(())
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let whole = [rows.width()];
        let widths = if training.parts.is_empty() { &whole[..] } else { training.parts };
        if widths.contains(&0) {
            return Err(Error::data("a layer has no features"));
        }
        let weights = self.weights(widths.len())?;
        let mut layers = Vec::with_capacity(widths.len());
        let mut first = 0;
        for (&width, weight) in widths.iter().zip(weights) {
            let mut x = Vec::new();
            columns(rows, first, width, &mut x);
            first += width;
            let sample = Labeled { x: &x, width, ..labeled(training) };
            let gaussians = Gaussians::fit(&sample, Covariance::Tied, Some(0.0), pool);
            layers.push(Layer::new(gaussians, weight, &x, pool));
        }
        Ok(Box::new(Ensemble { layers, epsilon: self.epsilon }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let [count, three] = state.shape::<2>("standard")?;
        let standard = state.take_f64("standard", &[count, three])?;
        // Scores are logarithms, so every fit is within these ranges.
        let valid = |s: &[f64]| s[0].abs() <= 1e3 && (1e-10..=1e3).contains(&s[1]) && (0.0..=1.0).contains(&s[2]);
        if count == 0 || three != 3 || !standard.chunks(3).all(valid) {
            return Err(state.invalid("the scale of a layer is out of range"));
        }
        let mut layers: Vec<Layer> = Vec::new();
        for (i, s) in standard.chunks(3).enumerate() {
            let [_, width] = state.shape::<2>(&format!("{i}-means"))?;
            let gaussians = load_gaussians(state, &format!("{i}-"), Covariance::Tied, width)?;
            if layers.first().is_some_and(|l| l.gaussians.classes() != gaussians.classes()) {
                return Err(state.invalid("the layers have different numbers of classes"));
            }
            layers.push(Layer { gaussians, mean: s[0], deviation: s[1], weight: s[2] });
        }
        if layers.iter().map(|l| l.gaussians.width()).sum::<usize>() != state.width() {
            return Err(state.invalid("the widths of the layers do not add up to the width of the features"));
        }
        Ok(Box::new(Ensemble { layers, epsilon: self.epsilon }))
    }
}

/// Copies the columns `first..first + width` of all rows.
fn columns(rows: &Features, first: usize, width: usize, out: &mut Vec<f32>) {
    out.clear();
    for row in rows.features.chunks_exact(rows.width().max(1)) {
        out.extend(row.iter().skip(first).take(width));
    }
}

struct Layer {
    gaussians: Gaussians,
    mean: f64,
    deviation: f64,
    weight: f64,
}

impl Layer {
    /// Computes the mean and the standard deviation of the scores on the training rows.
    fn new(gaussians: Gaussians, weight: f64, x: &[f32], pool: &Pool) -> Layer {
        let width = gaussians.width();
        let mut layer = Layer { gaussians, mean: 0.0, deviation: 1.0, weight };
        let mut scores = vec![0.0; x.len() / width];
        pool.split(chunks(&mut scores, BLOCK), |i, out| {
            let x = &x[i * BLOCK * width..][..out.len() * width];
            layer.score(x, out, &mut DetectorBuffers::default());
        });
        let n = scores.len().max(1) as f64;
        let mean = scores.iter().sum::<f64>() / n;
        let variance = scores.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n;
        // If all rows have the same score, there is no scale to divide by.
        let deviation = if variance > 1e-20 { libm::sqrt(variance) } else { 1.0 };
        layer.mean = mean;
        layer.deviation = deviation;
        layer
    }

    /// `(s - mean) / deviation` for each row.
    fn score(&self, x: &[f32], out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.gaussians, x, out, scratch);
        out.iter_mut().for_each(|o| *o = (-libm::log1p(-*o) - self.mean) / self.deviation);
    }
}

struct Ensemble {
    layers: Vec<Layer>,
    epsilon: f64,
}

impl Ensemble {
    fn width(&self) -> usize {
        self.layers.iter().map(|l| l.gaussians.width()).sum()
    }
}

impl Detector for Ensemble {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        if let [layer] = &self.layers[..] {
            return layer.score(rows.features, out, scratch);
        }
        let (mut x, mut own) = (Vec::new(), vec![0.0; out.len()]);
        out.fill(0.0);
        let mut first = 0;
        for layer in &self.layers {
            columns(rows, first, layer.gaussians.width(), &mut x);
            first += layer.gaussians.width();
            layer.score(&x, &mut own, scratch);
            out.iter_mut().zip(&own).for_each(|(o, s)| *o += s * layer.weight);
        }
    }

    fn save(&self, state: &mut StateDict) {
        let standard: Vec<f64> = self.layers.iter().flat_map(|l| [l.mean, l.deviation, l.weight]).collect();
        state.put_f64("standard", &[self.layers.len(), 3], &standard);
        for (i, layer) in self.layers.iter().enumerate() {
            save_gaussians(state, &format!("{i}-"), &layer.gaussians);
        }
    }

    fn classes(&self) -> usize {
        self.layers.last().map_or(0, |l| l.gaussians.classes())
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        if let Some(last) = self.layers.last() {
            let width = last.gaussians.width();
            let mut x = Vec::new();
            columns(rows, self.width() - width, width, &mut x);
            logits(&last.gaussians, &x, out, scratch);
        }
    }

    fn epsilon(&self) -> f64 {
        self.epsilon
    }

    fn perturbation_gradient(&self, part: usize, row: &Features, features: &mut [f32], _logits: &mut [f64]) {
        if let Some(layer) = self.layers.get(part) {
            layer.gaussians.confidence_gradient(row.features, features);
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        if self.epsilon > 0.0 {
            return Err(needs_gradients("mahalanobis-ensemble"));
        }
        let (mut confidence, mut logits, mut first) = (None, None, 0);
        for layer in &self.layers {
            let width = layer.gaussians.width();
            let [from, to] = [first, first + width].map(|i| graph.constant_i64(&[1], &[i as i64]));
            first += width;
            let axis = graph.constant_i64(&[1], &[1]);
            let part = graph.op("Slice", &[rows.features()?, from, to, axis]);
            let own = to_onnx(&layer.gaussians, graph, part);
            let distance = graph.op("Neg", &[own.confidence]);
            let log = graph.log1p(distance);
            let shifted = graph.shift(log, layer.mean);
            let score = graph.scale(shifted, -layer.weight / layer.deviation);
            confidence = Some(confidence.map_or(score, |sum| graph.op("Add", &[sum, score])));
            logits = own.logits;
        }
        let confidence = confidence.ok_or_else(|| Error::setting("the detector has no layers"))?;
        Ok(Scores { confidence, logits })
    }
}

#[cfg(test)]
mod tests {
    use super::super::mahalanobis::tests::{blobs, close, naive, training};
    use super::*;
    use crate::container::Container;
    use crate::detector::Fitted;
    use crate::stats::gaussians::nearest;

    fn standard(x: &[f32], labels: &[u32]) -> Vec<f64> {
        let s: Vec<f64> = naive(x, labels).0.iter().map(|d| -(1.0 + nearest(d)).ln()).collect();
        let mean = s.iter().sum::<f64>() / s.len() as f64;
        let deviation = (s.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / s.len() as f64).sqrt();
        s.iter().map(|s| (s - mean) / deviation).collect()
    }

    #[test]
    fn score_is_the_mean_of_standardized_layer_scores() {
        let (x, labels) = blobs(300, 10);
        let pool = Pool::new(2);
        let training = Training { parts: &[3, 7], ..training(&x, &labels) };
        let fitted = Fitted::new(&Config::default(), &training, &pool).unwrap();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        columns(&training.rows, 0, 3, &mut left);
        columns(&training.rows, 3, 7, &mut right);
        let (a, b) = (standard(&left, &labels), standard(&right, &labels));
        let scores = fitted.score(&training.rows, &pool).unwrap();
        for (&got, (a, b)) in scores.iter().zip(a.into_iter().zip(b)) {
            close(got, (a + b) / 2.0);
        }
        let logits = fitted.logits(&training.rows, &pool).unwrap().unwrap();
        naive(&right, &labels).0.iter().flatten().zip(&logits).for_each(|(d, &l)| close(l, -0.5 * d));
        let mut container = Container::default();
        fitted.save(&mut StateDict::new(&mut container, ""));
        let loaded = Fitted::load(fitted.config(), &mut StateDict::new(&mut container, "")).unwrap();
        assert_eq!(loaded.score(&training.rows, &pool).unwrap(), scores);
        let empty = Training { parts: &[3, 0, 7], ..training };
        assert!(Fitted::new(&Config::default(), &empty, &pool).is_err());
    }

    #[test]
    fn perturbation_gradient_takes_the_features_of_a_layer() {
        let (x, labels) = blobs(300, 5);
        let training = Training { parts: &[2, 3], ..training(&x, &labels) };
        let ensemble = Config::default().fit(&training, &Pool::new(1)).unwrap();
        let row = Features { count: 1, features: &x[2..5], logits: &[] };
        let mut got = [0.0f32; 3];
        ensemble.perturbation_gradient(1, &row, &mut got, &mut []);
        let mut right = Vec::new();
        columns(&training.rows, 2, 3, &mut right);
        let sample = Labeled { x: &right, width: 3, ..labeled(&training) };
        let mut expected = [0.0f32; 3];
        Gaussians::fit(&sample, Covariance::Tied, Some(0.0), &Pool::new(1))
            .confidence_gradient(&x[2..5], &mut expected);
        assert_eq!(got, expected);
        assert!(got.iter().any(|&v| v != 0.0));
    }
}
