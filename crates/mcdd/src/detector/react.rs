//! ReAct: the energy of the logits after features are clipped from above, `log sum_k exp(w_k min(x, c) + b_k)`.
//!
//! The threshold `c` is the same for all features: a percentile of all activations of all training rows, with linear
//! interpolation. The default of 0.9 is the paper's. Features are not clipped from below.

use serde::{Deserialize, Serialize};

use super::energy::log_sum_exp;
use super::last_layer::{LinearLayer, Packed};
use super::{
    About, Detector, DetectorBuffers, Features, FitDetector, MAX_FEATURE, MAX_SQUARE_WIDTH, Needs, StateDict, Training,
    out_of_range,
};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores, wide};

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The fraction of the training activations that is not clipped, above 0 and at most 1. Default: 0.9.
    pub percentile: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { percentile: 0.9 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "react",
            summary: "energy of the logits after features are clipped at a percentile",
            reference: "Sun, Guo, Li: ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021",
            needs: Needs { features: true, logits: true, linear: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        if self.percentile > 0.0 && self.percentile <= 1.0 {
            return Ok(());
        }
        Err(out_of_range("percentile", self.percentile, "above 0 and at most 1"))
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let layer = LinearLayer::of(training, pool)?;
        let threshold = quantile(training.rows.features.to_vec(), self.percentile);
        Ok(Box::new(React { packed: layer.pack(), layer, threshold }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let [classes, width] = state.shape("weight")?;
        if width != state.width() || classes != state.classes() {
            return Err(state.invalid("the last layer has an invalid shape"));
        }
        let weight = state.take_f32("weight", &[classes, width])?;
        let bias = state.take_f64("bias", &[classes])?;
        let threshold = state.take_f32("threshold", &[1])?[0];
        let layer = LinearLayer { width, weight, bias };
        if threshold.abs() > MAX_FEATURE || !layer.is_in_range() {
            return Err(state.invalid("the threshold or the last layer is out of range"));
        }
        Ok(Box::new(React { packed: layer.pack(), layer, threshold }))
    }
}

/// The quantile `p` of the values, with linear interpolation.
fn quantile(mut values: Vec<f32>, p: f64) -> f32 {
    let position = p * (values.len() - 1) as f64;
    let index = (position as usize).min(values.len() - 1);
    let (_, &mut below, higher) = values.select_nth_unstable_by(index, f32::total_cmp);
    let above = higher.iter().copied().reduce(f32::min).unwrap_or(below);
    let (below, above) = (f64::from(below), f64::from(above));
    (below + (position - index as f64) * (above - below)) as f32
}

struct React {
    layer: LinearLayer,
    packed: Packed,
    threshold: f32,
}

impl Detector for React {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        let [clipped, products] = &mut scratch.f32s;
        clipped.clear();
        clipped.extend(rows.features.iter().map(|v| v.min(self.threshold)));
        self.packed.logits(clipped, products, &mut scratch.f64s);
        for (out, logits) in out.iter_mut().zip(scratch.f64s.chunks_exact(self.layer.classes())) {
            *out = log_sum_exp(logits, 1.0);
        }
    }

    fn save(&self, state: &mut StateDict) {
        let classes = self.layer.classes();
        state.put_f32("weight", &[classes, self.layer.width], &self.layer.weight);
        state.put_f64("bias", &[classes], &self.layer.bias);
        state.put_f32("threshold", &[1], &[self.threshold]);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let limit = graph.number(f64::from(self.threshold));
        let clipped = graph.op("Min", &[rows.features()?, limit]);
        let products = graph.times(clipped, &wide(&self.layer.weight), self.layer.width);
        let bias = graph.constant(&[1, self.layer.classes()], &self.layer.bias);
        let logits = graph.op("Add", &[products, bias]);
        Ok(Scores { confidence: graph.log_sum_exp(logits, 1.0), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::last_layer::tests::{Example, naive};
    use super::*;
    use crate::detector::{DetectorConfig, Fitted};

    #[test]
    fn matches_definition_with_given_and_estimated_layer() {
        let (e, test) = (Example::new(400, 8, 3, 1), Example::new(50, 8, 3, 2));
        let pool = Pool::new(1);
        for p in [0.9, 0.37, 1.0] {
            let mut sorted = e.features.clone();
            sorted.sort_by(f32::total_cmp);
            let position = p * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[position as usize], sorted[(position as usize + 1).min(sorted.len() - 1)]);
            let c = low + (high - low) * position.fract() as f32;
            let clipped: Vec<f32> = test.features.iter().map(|v| v.min(c)).collect();
            let logits = naive(&clipped, &e.weight, &e.bias, 8);
            let config = DetectorConfig::from(Config { percentile: p });
            for given in [true, false] {
                let scores =
                    Fitted::new(&config, &e.training(given), &pool).unwrap().score(&test.rows(), &pool).unwrap();
                for (s, l) in scores.iter().zip(logits.chunks(3)) {
                    let energy = l.iter().map(|v| v.exp()).sum::<f64>().ln();
                    assert!((s - energy).abs() < 1e-4 * (1.0 + energy.abs()), "{s} {energy}");
                }
            }
        }
    }

    #[test]
    fn quantiles_interpolate() {
        let values = vec![4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(quantile(values.clone(), 0.5), 3.0);
        assert_eq!(quantile(values.clone(), 0.9), 4.6);
        assert_eq!(quantile(values.clone(), 1.0), 5.0);
        assert_eq!(quantile(values, 1e-9), 1.0);
        assert_eq!(quantile(vec![7.0], 0.9), 7.0);
    }

    #[test]
    fn setting_ranges() {
        for percentile in [0.0, -0.5, 1.1, f64::NAN] {
            assert!(Config { percentile }.check().is_err());
        }
    }
}
