//! Minus the entropy of the posterior: `sum_k p_k log p_k` of `p = softmax(logits)`.
//!
//! It is computed from the differences to the largest logit, `d_k = l_k - l_max`. With `s`, the sum of `exp(d_k)` over
//! all classes but the best, the entropy is `log(1 + s) - sum_k d_k exp(d_k) / (1 + s)`. No term is negative, so nothing
//! cancels. Rows whose largest posterior rounds to 1 still differ, up to a margin of about 740 over the second class,
//! where `exp` underflows. Posteriors are not clipped from below, as some other programs do.

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
            name: "entropy",
            summary: "minus the entropy of the posterior",
            reference: "Lakshminarayanan, Pritzel, Blundell: Simple and Scalable Predictive Uncertainty Estimation using \
                    Deep Ensembles, NeurIPS 2017",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn learns(&self) -> bool {
        false
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Entropy))
    }

    fn load(&self, _state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Entropy))
    }
}

struct Entropy;

impl Detector for Entropy {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = 0.0 - entropy(rows.logit_row(i));
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let below = graph.below_best(rows.logits()?, rows.classes);
        let exp = graph.op("Exp", &[below]);
        let others = graph.reduce("ReduceSum", exp, false);
        // The product is 0 where the exponential is: for the best class and for very low logits.
        let zero = graph.number(0.0);
        let none = graph.op("Equal", &[exp, zero]);
        let below = graph.op("Where", &[none, zero, below]);
        let weighted = graph.op("Mul", &[below, exp]);
        let weighted = graph.reduce("ReduceSum", weighted, false);
        let all = graph.shift(others, 1.0);
        let mean = graph.op("Div", &[weighted, all]);
        let log = graph.log1p(others);
        Ok(Scores { confidence: graph.op("Sub", &[mean, log]), logits: None })
    }
}

fn entropy(logits: &[f64]) -> f64 {
    let best = argmax(logits);
    let (mut others, mut weighted) = (0.0, 0.0);
    for (k, v) in logits.iter().enumerate() {
        if k != best {
            let d = v - logits[best];
            let e = libm::exp(d);
            others += e;
            // The exponential of a very low logit is 0, and so is the product.
            weighted -= d * e;
        }
    }
    libm::log1p(others) + weighted / (1.0 + others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(logits: &[f64]) -> f64 {
        let sum: f64 = logits.iter().map(|v| v.exp()).sum();
        -logits.iter().map(|v| v.exp() / sum).map(|p| p * p.ln()).sum::<f64>()
    }

    #[test]
    fn confident_rows_differ() {
        let mut last = f64::INFINITY;
        for lead in 1..730 {
            let h = entropy(&[f64::from(lead), 0.0, 0.0]);
            assert!(h < last && h > 0.0, "{lead}");
            last = h;
        }
        assert_eq!(entropy(&[1e30, -1e30]), 0.0);
        assert!((entropy(&[1e30; 4]) - 4.0f64.ln()).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn matches_definition(l in proptest::collection::vec(-10.0f64..10.0, 2..9)) {
            prop_assert!((entropy(&l) - naive(&l)).abs() < 1e-12 * l.len() as f64);
        }
    }
}
