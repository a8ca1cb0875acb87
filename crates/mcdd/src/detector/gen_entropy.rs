//! Generalized entropy (GEN): minus `sum_k p_k^gamma (1 - p_k)^gamma` over the classes with the largest posteriors.
//!
//! With a small `gamma`, small deviations from a one-hot posterior have a large effect. Terms are summed as in the paper,
//! not averaged, and posteriors are not clipped from below. `log p` and `log(1 - p)` are both computed from the
//! exponentials of the other classes' logits, so neither rounds to 0 when a class is almost certain: rows differ up to a
//! margin of about 740 / `gamma` over the second class.
//!
//! The defaults are the paper's: `gamma` 0.1 and the top 100 classes, or all if there are fewer.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores, Value};

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The exponent, above 0 and at most 10 (the paper studies 0 to 1). Default: 0.1.
    pub gamma: f64,
    /// The number of classes with the largest posteriors, 1 or more; all if there are fewer. Default: 100.
    pub top: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { gamma: 0.1, top: 100 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "gen",
            summary: "minus the generalized entropy of the largest posteriors",
            reference: "Liu, Lochman, Zach: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection, \
                    CVPR 2023",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        if !(self.gamma > 0.0 && self.gamma <= 10.0) {
            return Err(out_of_range("gamma", self.gamma, "above 0 and at most 10"));
        }
        if self.top == 0 {
            return Err(out_of_range("top", self.top, "1 or more"));
        }
        Ok(())
    }

    fn learns(&self) -> bool {
        false
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Gen(self.clone())))
    }

    fn load(&self, _state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Gen(self.clone())))
    }
}

struct Gen(Config);

impl Detector for Gen {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = 0.0 - generalized_entropy(rows.logit_row(i), self.0.gamma, self.0.top, &mut scratch.f64s);
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let (gamma, logits) = (self.0.gamma, rows.logits()?);
        let below = graph.below_best(logits, rows.classes);
        let log_sum = graph.log_sum_exp(below, 1.0);
        let sum = graph.op("Exp", &[log_sum]);
        let log_all = graph.log1p(sum);
        let term = |graph: &mut Builder, log_p: Value, log_rest: Value| {
            let both = graph.op("Add", &[log_p, log_rest]);
            let both = graph.scale(both, gamma);
            graph.op("Exp", &[both])
        };
        let own = graph.op("Neg", &[log_all]);
        let rest = graph.op("Sub", &[log_sum, log_all]);
        let mut total = term(graph, own, rest);
        // The best class is one of the top classes.
        let remaining = self.0.top - 1;
        if remaining > 0 {
            let others = match remaining < rows.classes - 1 {
                true => {
                    let count = graph.constant_i64(&[1], &[remaining as i64]);
                    let [values, _] = graph.ops("TopK", &[below, count], &[]);
                    values
                }
                false => below,
            };
            let axis = graph.constant_i64(&[1], &[1]);
            let [sum, log_all] = [sum, log_all].map(|v| graph.op("Unsqueeze", &[v, axis]));
            let exp = graph.op("Exp", &[others]);
            let rest = graph.op("Sub", &[sum, exp]);
            let rest = graph.at_least(rest, 0.0);
            let rest = graph.log1p(rest);
            let [log_p, log_rest] = [others, rest].map(|v| graph.op("Sub", &[v, log_all]));
            // Of a class with probability 0 this is 0.
            let terms = term(graph, log_p, log_rest);
            let terms = graph.reduce("ReduceSum", terms, false);
            total = graph.op("Add", &[total, terms]);
        }
        Ok(Scores { confidence: graph.op("Neg", &[total]), logits: None })
    }
}

/// The generalized entropy of the `top` largest posteriors.
fn generalized_entropy(logits: &[f64], gamma: f64, top: usize, others: &mut Vec<f64>) -> f64 {
    let best = argmax(logits);
    others.clear();
    others.extend(logits.iter().enumerate().filter(|&(k, _)| k != best).map(|(_, v)| v - logits[best]));
    let Some(second) = others.iter().copied().reduce(f64::max) else { return 0.0 };
    // All posteriors are exp(d) / (1 + sum), where d is the difference to the best logit; the logs do not underflow.
    let log_sum = second + libm::log(others.iter().map(|d| libm::exp(d - second)).sum());
    let sum = libm::exp(log_sum);
    let log_all = libm::log1p(sum);
    let term = |log_p: f64, log_rest: f64| libm::exp(gamma * (log_p + log_rest));
    let mut total = term(-log_all, log_sum - log_all);
    // The best class is one of the top classes.
    let remaining = top - 1;
    if remaining == 0 {
        return total;
    }
    if remaining < others.len() {
        others.select_nth_unstable_by(remaining - 1, |a, b| b.total_cmp(a));
        others.truncate(remaining);
    }
    for d in others.iter() {
        let rest = libm::log1p((sum - libm::exp(*d)).max(0.0));
        total += term(d - log_all, rest - log_all);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(logits: &[f64], gamma: f64, top: usize) -> f64 {
        let sum: f64 = logits.iter().map(|v| v.exp()).sum();
        let mut p: Vec<f64> = logits.iter().map(|v| v.exp() / sum).collect();
        p.sort_by(|a, b| b.total_cmp(a));
        p.iter().take(top).map(|p| p.powf(gamma) * (1.0 - p).powf(gamma)).sum()
    }

    proptest! {
        #[test]
        fn matches_definition(l in proptest::collection::vec(-5.0f64..5.0, 2..12), top in 1usize..15, gamma in 0.05..2.0) {
            let got = generalized_entropy(&l, gamma, top, &mut Vec::new());
            prop_assert!((got - naive(&l, gamma, top)).abs() < 1e-9, "{} {}", got, naive(&l, gamma, top));
        }
    }

    #[test]
    fn confident_rows_differ() {
        let mut last = f64::INFINITY;
        for lead in (1..7000).step_by(10) {
            let g = generalized_entropy(&[f64::from(lead), 0.0, -1.0], 0.1, 100, &mut Vec::new());
            assert!(g < last && g > 0.0, "{lead}");
            last = g;
        }
        for l in [[1e30, -1e30, 0.0], [1e30; 3], [-1e30; 3]] {
            assert!(generalized_entropy(&l, 10.0, 2, &mut Vec::new()).is_finite());
        }
    }

    #[test]
    fn setting_ranges() {
        for (gamma, top) in [(0.0, 5), (-1.0, 5), (f64::NAN, 5), (11.0, 5), (0.1, 0)] {
            assert!(Config { gamma, top }.check().is_err());
        }
    }
}
