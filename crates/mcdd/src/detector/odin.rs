//! ODIN: the maximum softmax probability at a high temperature, of an input moved a little to where it is higher.
//!
//! The score is `log p - log(1 - p)` of the largest posterior of `softmax(logits / T)`, whose order is that of the
//! posterior itself. Before that, the model moves the input by `epsilon` times the sign of the gradient of `log max
//! softmax(logits / T)`: this detector gives the gradient with respect to the logits, the model carries it back to
//! the input and scores again. With features or logits from elsewhere there is no network to go back through: only
//! the temperature acts.
//!
//! Defaults: T = 1000 and epsilon = 0.0014, which the paper recommends. It tunes both on out-of-distribution rows;
//! here they are what they are set to, as no such row is ever looked at. Epsilon is in units of the network's inputs.

use serde::{Deserialize, Serialize};

use super::energy::check_temperature;
use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::head::log_odds;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What logits are divided by: 1000 unless given, from 1e-6 to 1e9.
    pub temperature: f64,
    /// How far each input is moved: 0.0014 unless given, from 0 (not at all) to 1000.
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
            summary: "maximum softmax probability at a high temperature, of a perturbed input",
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
}

/// The gradient of the log of the largest posterior: `(1 - p) / T` for its own logit and `-p_k / T` for the others.
/// `1 - p` is the sum of the others, not a difference, so that it does not round to 0.
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
        fn the_gradient_is_that_of_the_log_posterior(
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
                // Where two classes are as good as tied, a step changes which one it is about.
                if sorted[l.len() - 1] - sorted[l.len() - 2] > 4.0 * h {
                    prop_assert!((g[k] * t - (at(h) - at(-h)) / (2.0 * h) * t).abs() < 1e-5);
                }
            }
        }

        #[test]
        fn the_order_is_that_of_the_posterior(
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
    fn settings_have_ranges() {
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
