//! Generalized entropy (GEN): minus `sum_k p_k^gamma (1 - p_k)^gamma` over the classes with the largest posteriors.
//!
//! With a small `gamma`, small deviations from a one-hot posterior count for much. Sums are taken as in the paper, not
//! means, and posteriors have no floor. `log p` and `log(1 - p)` both come from the exponentials of the other classes'
//! logits, so neither rounds to 0 when a class is all but certain: rows differ up to a lead of some 740 / `gamma` over
//! the second class.
//!
//! The defaults are the paper's: `gamma` 0.1 and the best 100 classes, or all where there are fewer.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, Method, Needs, Store, Training, out_of_range};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The exponent: 0.1 unless given, above 0 and at most 10 (the paper looks at 0 to 1).
    pub gamma: f64,
    /// How many classes, by their posteriors: 100 unless given, 1 or more; all where there are fewer.
    pub top: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { gamma: 0.1, top: 100 }
    }
}

impl Method for Config {
    const ABOUT: About = About {
        name: "gen",
        summary: "minus the generalized entropy of the largest posteriors",
        reference: "Liu, Lochman, Zach: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection, \
                    CVPR 2023",
        needs: Needs { logits: true, ..Needs::NONE },
    };

    fn check(&self) -> Result<()> {
        if !(self.gamma > 0.0 && self.gamma <= 10.0) {
            return Err(out_of_range("gamma", self.gamma, "above 0 and at most 10"));
        }
        if self.top == 0 {
            return Err(out_of_range("top", self.top, "1 or more"));
        }
        Ok(())
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Gen(self.clone())))
    }

    fn load(&self, _store: &mut Store) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Gen(self.clone())))
    }
}

struct Gen(Config);

impl Detector for Gen {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = 0.0 - generalized(rows.logit_row(i), self.0.gamma, self.0.top, &mut scratch.wide);
        }
    }

    fn save(&self, _store: &mut Store) {}
}

/// The generalized entropy of the `top` largest posteriors.
fn generalized(logits: &[f64], gamma: f64, top: usize, others: &mut Vec<f64>) -> f64 {
    let best = argmax(logits);
    others.clear();
    others.extend(logits.iter().enumerate().filter(|&(k, _)| k != best).map(|(_, v)| v - logits[best]));
    let Some(second) = others.iter().copied().reduce(f64::max) else { return 0.0 };
    // All posteriors are exp(d) / (1 + sum), where d is the distance to the best logit; the logs do not vanish.
    let log_sum = second + libm::log(others.iter().map(|d| libm::exp(d - second)).sum());
    let sum = libm::exp(log_sum);
    let log_all = libm::log1p(sum);
    let term = |log_p: f64, log_rest: f64| libm::exp(gamma * (log_p + log_rest));
    let mut total = term(-log_all, log_sum - log_all);
    // The best has taken one of the places.
    let places = top - 1;
    if places == 0 {
        return total;
    }
    if places < others.len() {
        others.select_nth_unstable_by(places - 1, |a, b| b.total_cmp(a));
        others.truncate(places);
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
        fn by_definition(l in proptest::collection::vec(-5.0f64..5.0, 2..12), top in 1usize..15, gamma in 0.05..2.0) {
            let got = generalized(&l, gamma, top, &mut Vec::new());
            prop_assert!((got - naive(&l, gamma, top)).abs() < 1e-9, "{} {}", got, naive(&l, gamma, top));
        }
    }

    #[test]
    fn confident_rows_differ() {
        let mut last = f64::INFINITY;
        for lead in (1..7000).step_by(10) {
            let g = generalized(&[f64::from(lead), 0.0, -1.0], 0.1, 100, &mut Vec::new());
            assert!(g < last && g > 0.0, "{lead}");
            last = g;
        }
        for l in [[1e30, -1e30, 0.0], [1e30; 3], [-1e30; 3]] {
            assert!(generalized(&l, 10.0, 2, &mut Vec::new()).is_finite());
        }
    }

    #[test]
    fn settings_have_ranges() {
        for (gamma, top) in [(0.0, 5), (-1.0, 5), (f64::NAN, 5), (11.0, 5), (0.1, 0)] {
            assert!(Config { gamma, top }.check().is_err());
        }
    }
}
