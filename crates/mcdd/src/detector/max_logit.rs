//! The largest logit.
//!
//! Softmax keeps only the differences between logits. Their size is informative as well, and with many classes it does
//! not shrink as the largest probability does.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "max-logit",
            summary: "the largest logit",
            reference: "Hendrycks et al.: Scaling Out-of-Distribution \
                    Detection for Real-World Settings, ICML 2022",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn learns(&self) -> bool {
        false
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(MaxLogit))
    }

    fn load(&self, _state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(MaxLogit))
    }
}

struct MaxLogit;

impl Detector for MaxLogit {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            let logits = rows.logit_row(i);
            *out = logits[argmax(logits)];
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let confidence = graph.reduce("ReduceMax", rows.logits()?, false);
        Ok(Scores { confidence, logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_largest_logit_of_each_row() {
        let rows = Features { count: 2, features: &[], logits: &[1.0, -2.0, 3.5, -7.0, -6.0, -8.0] };
        let mut out = [0.0; 2];
        MaxLogit.score(&rows, &mut out, &mut DetectorBuffers::default());
        assert_eq!(out, [3.5, -6.0]);
    }
}
