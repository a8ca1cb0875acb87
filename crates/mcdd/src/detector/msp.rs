//! Maximum softmax probability as log-odds: `log p - log(1 - p)` of the largest posterior, in f64 from the logits.
//!
//! The order of rows is that of the probability. The probability itself would round to 1 and tie thousands of rows.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::head::log_odds;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "msp",
            summary: "maximum softmax probability, as log-odds",
            reference: "Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn learns(&self) -> bool {
        false
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Msp))
    }

    fn load(&self, _state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Msp))
    }
}

struct Msp;

impl Detector for Msp {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = log_odds(rows.logit_row(i));
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let confidence = graph.log_odds(rows.logits()?, rows.classes);
        Ok(Scores { confidence, logits: None })
    }
}
