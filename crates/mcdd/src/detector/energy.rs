//! Minus the free energy of the logits: `T log sum_k exp(l_k / T)`.
//!
//! It is the logarithm of the softmax's denominator, which posteriors do not contain. T is 1 by default, as in the paper.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The divisor of the logits, from 1e-6 to 1e9. Default: 1.
    pub temperature: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { temperature: 1.0 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "energy",
            summary: "minus the free energy: log-sum-exp of the logits",
            reference: "Liu, Wang, Owens, Li: Energy-based Out-of-distribution Detection, NeurIPS 2020",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        check_temperature(self.temperature)
    }

    fn learns(&self) -> bool {
        false
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Energy { temperature: self.temperature }))
    }

    fn load(&self, _state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Energy { temperature: self.temperature }))
    }
}

/// Checks that a temperature is in the range for which scores are finite.
pub(super) fn check_temperature(value: f64) -> Result<()> {
    if (1e-6..=1e9).contains(&value) {
        return Ok(());
    }
    Err(out_of_range("temperature", value, "from 0.000001 to 1000000000"))
}

struct Energy {
    temperature: f64,
}

impl Detector for Energy {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = log_sum_exp(rows.logit_row(i), self.temperature);
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let confidence = graph.log_sum_exp(rows.logits()?, self.temperature);
        Ok(Scores { confidence, logits: None })
    }
}

/// `T log sum_k exp(v_k / T)`, without overflow; 0 if there are no values.
pub(super) fn log_sum_exp(values: &[f64], temperature: f64) -> f64 {
    let Some(largest) = values.iter().copied().reduce(f64::max) else { return 0.0 };
    let sum: f64 = values.iter().map(|v| libm::exp((v - largest) / temperature)).sum();
    largest + temperature * libm::log(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn matches_definition() {
        let l = [1.0f64, -0.5, 2.5];
        for t in [0.5, 1.0, 10.0] {
            let expected = t * l.iter().map(|v| (v / t).exp()).sum::<f64>().ln();
            assert!((log_sum_exp(&l, t) - expected).abs() < 1e-12);
        }
        assert_eq!(log_sum_exp(&[1e30, -1e30], 1e-6), 1e30);
        assert!(log_sum_exp(&[1e30; 5], 1e9).is_finite());
        assert_eq!(log_sum_exp(&[], 1.0), 0.0);
    }

    #[test]
    fn temperature_range() {
        for t in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
            assert!(Config { temperature: t }.check().is_err());
        }
        assert_eq!(crate::detector::DetectorConfig::parse("energy:temperature=10").unwrap().name(), "energy");
    }

    proptest! {
        #[test]
        fn shifts_with_the_logits(l in proptest::collection::vec(-50.0f64..50.0, 1..9), c in -9.0f64..9.0) {
            let moved: Vec<f64> = l.iter().map(|v| v + c).collect();
            prop_assert!((log_sum_exp(&moved, 1.0) - log_sum_exp(&l, 1.0) - c).abs() < 1e-9);
        }
    }
}
