//! ODIN: the maximum softmax probability at a high temperature, with input perturbation.
//!
//! The score is `log p - log(1 - p)` of the largest posterior of `softmax(logits / T)`, whose order is that of the
//! posterior itself. Before scoring, the model moves the input by `epsilon` times the sign of the gradient of `log max
//! softmax(logits / T)`: this detector computes the gradient with respect to the logits, and the model propagates it back
//! to the input. For features or logits from elsewhere there is no network, and only the temperature has an effect.
//!
//! Defaults: T = 1000 and epsilon = 0.0014, which the paper recommends. The paper tunes both on out-of-distribution rows;
//! here they are fixed settings, as no such row is used. Epsilon is in units of the network's inputs.

use serde::{Deserialize, Serialize};

use super::energy::check_temperature;
use super::{
    About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, needs_gradients, out_of_range,
};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::head::log_odds;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The divisor of the logits, from 1e-6 to 1e9. Default: 1000.
    pub temperature: f64,
    /// The size of the input perturbation, from 0 (none) to 1000. Default: 0.0014.
    pub epsilon: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { temperature: 1000.0, epsilon: 0.0014 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "odin",
            summary: "maximum softmax probability at a high temperature, with input perturbation",
            reference: "Liang, Li, Srikant: Enhancing The Reliability of Out-of-distribution Image Detection in Neural \
                    Networks, ICLR 2018",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        if !(0.0..=1000.0).contains(&self.epsilon) {
            return Err(out_of_range("epsilon", self.epsilon, "from 0 to 1000"));
        }
        check_temperature(self.temperature)
    }

    fn learns(&self) -> bool {
        false
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Odin(self.clone())))
    }

    fn load(&self, _state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Odin(self.clone())))
    }
}

struct Odin(Config);

impl Detector for Odin {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            scratch.f64s.clear();
            scratch.f64s.extend(rows.logit_row(i).iter().map(|v| v / self.0.temperature));
            *out = log_odds(&scratch.f64s);
        }
    }

    fn epsilon(&self) -> f64 {
        self.0.epsilon
    }

    fn perturbation_gradient(&self, _part: usize, row: &Features, _features: &mut [f32], logits: &mut [f64]) {
        log_posterior_gradient(row.logits, self.0.temperature, logits);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        if self.0.epsilon > 0.0 {
            return Err(needs_gradients("odin"));
        }
        let temperature = graph.number(self.0.temperature);
        let logits = graph.op("Div", &[rows.logits()?, temperature]);
        Ok(Scores { confidence: graph.log_odds(logits, rows.classes), logits: None })
    }
}

/// The gradient of the log of the largest posterior: `(1 - p) / T` for its own logit and `-p_k / T` for the others.
/// `1 - p` is computed as the sum of the other posteriors, so that it does not round to 0.
fn log_posterior_gradient(logits: &[f64], temperature: f64, out: &mut [f64]) {
    let best = argmax(logits);
    let mut others = 0.0;
    for (k, (out, v)) in out.iter_mut().zip(logits).enumerate() {
        if k != best {
            *out = libm::exp((v - logits[best]) / temperature);
            others += *out;
        }
    }
    out[best] = -others;
    let scale = -1.0 / (temperature * (1.0 + others));
    out.iter_mut().for_each(|v| *v *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log_max(logits: &[f64], t: f64) -> f64 {
        let sum: f64 = logits.iter().map(|v| (v / t).exp()).sum();
        logits.iter().fold(f64::NEG_INFINITY, |m, v| m.max(v / t)) - sum.ln()
    }

    proptest! {
        #[test]
        fn gradient_matches_finite_differences(
            l in proptest::collection::vec(-5.0f64..5.0, 2..7),
            t in prop_oneof![Just(1.0), Just(10.0), Just(1000.0)],
        ) {
            let mut g = vec![0.0; l.len()];
            log_posterior_gradient(&l, t, &mut g);
            for k in 0..l.len() {
                let h = 1e-6 * t;
                let at = |step: f64| {
                    let mut moved = l.clone();
                    moved[k] += step;
                    log_max(&moved, t)
                };
                let mut sorted = l.clone();
                sorted.sort_by(f64::total_cmp);
                // If two classes are almost tied, a step changes which one is the largest.
                if sorted[l.len() - 1] - sorted[l.len() - 2] > 4.0 * h {
                    prop_assert!((g[k] * t - (at(h) - at(-h)) / (2.0 * h) * t).abs() < 1e-5);
                }
            }
        }

        #[test]
        fn same_order_as_the_posterior(
            a in proptest::collection::vec(-5.0f64..5.0, 3), b in proptest::collection::vec(-5.0f64..5.0, 3)
        ) {
            let logits = [a.clone(), b.clone()].concat();
            let mut out = [0.0; 2];
            let rows = Features { count: 2, features: &[], logits: &logits };
            Odin(Config { temperature: 10.0, epsilon: 0.0 }).score(&rows, &mut out, &mut DetectorBuffers::default());
            let (a, b) = (log_max(&a, 10.0), log_max(&b, 10.0));
            prop_assume!((a - b).abs() > 1e-9);
            prop_assert_eq!(out[0] > out[1], a > b);
        }
    }

    #[test]
    fn setting_ranges() {
        assert!(Config { temperature: 0.0, epsilon: 0.1 }.check().is_err());
        for epsilon in [-0.1, f64::NAN, 1e4] {
            assert!(Config { temperature: 1.0, epsilon }.check().is_err());
        }
        let mut out = [0.0; 2];
        let rows = Features { count: 2, features: &[], logits: &[1e30, -1e30, 1e30, 1e30] };
        Odin(Config { temperature: 1e-6, epsilon: 0.0 }).score(&rows, &mut out, &mut DetectorBuffers::default());
        assert!(out.iter().all(|v| v.is_finite()));
    }
}
