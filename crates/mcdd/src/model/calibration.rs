//! Calibration: p-values, and the threshold that keeps a given fraction of in-distribution rows.

use serde::Serialize;

use crate::error::{Error, Result};

/// The confidences of the calibration rows, which are not used for training.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    scores: Vec<f64>,
}

/// The confidence that separates "known" from "unknown".
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// A row with this confidence or more is known.
    pub confidence: f64,
    /// The fraction of in-distribution rows to keep that was asked for.
    pub wanted: f64,
    /// The fraction that the calibration rows guarantee; below `wanted` if there are too few of them.
    pub tpr: f64,
}

impl Threshold {
    /// Whether a row with this confidence is known.
    pub fn known(&self, confidence: f64) -> bool {
        confidence >= self.confidence
    }

    /// A warning if the calibration rows are too few for the fraction that was asked for.
    pub fn shortfall(&self, calibration_rows: usize) -> Option<String> {
        let needed = (1.0 / (1.0 - self.wanted) * (1.0 - 1e-9)).ceil() as usize - 1;
        (self.tpr < self.wanted).then(|| {
            format!(
                "{calibration_rows} calibration rows are too few for a threshold that keeps {}% of in-distribution rows: \
                 {needed} are needed. The threshold is the lowest confidence among them, which keeps {:.1}%",
                (self.wanted * 1e6).round() / 1e4,
                self.tpr * 100.0
            )
        })
    }
}

impl Calibration {
    /// From confidences in any order.
    ///
    /// # Errors
    /// If there are none, or one is not finite.
    pub fn new(mut scores: Vec<f64>) -> Result<Calibration> {
        if scores.is_empty() || scores.iter().any(|s| !s.is_finite()) {
            return Err(Error::data("calibration needs at least one row, and finite confidences"));
        }
        scores.sort_by(f64::total_cmp);
        Ok(Calibration { scores })
    }

    /// The confidences, in ascending order.
    pub fn scores(&self) -> &[f64] {
        &self.scores
    }

    /// The conformal p-value: `(1 + calibration confidences <= this one) / (n + 1)`. Of in-distribution rows, a fraction of
    /// at most `a` has a p-value of `a` or less. This is approximate if the score scale comes from the same rows.
    pub fn p_value(&self, confidence: f64) -> f64 {
        let below = self.scores.partition_point(|&s| s <= confidence);
        (1 + below) as f64 / (self.scores.len() + 1) as f64
    }

    /// A confidence with this p-value: the lowest one that is not the confidence of a calibration row. P-values of
    /// another calibration are rounded to those of this one.
    ///
    /// # Errors
    /// If it is not between 0 and 1.
    pub fn confidence_at(&self, p_value: f64) -> Result<f64> {
        if !(p_value > 0.0 && p_value <= 1.0) {
            return Err(Error::data(format!("a p-value is {p_value}")).hint("p-values are above 0, and at most 1"));
        }
        let n = self.scores.len();
        let below = ((p_value * (n + 1) as f64).round() as usize).clamp(1, n + 1) - 1;
        Ok(below.checked_sub(1).map_or_else(|| self.scores[0].next_down(), |last| self.scores[last].next_up()))
    }

    /// The warning of [`Threshold::shortfall`] for a threshold of this calibration.
    pub fn warning(&self, threshold: &Threshold) -> Option<String> {
        threshold.shortfall(self.scores.len())
    }

    /// The threshold that keeps a fraction `tpr` of in-distribution rows: rows with a p-value of `1 - tpr` or less are
    /// unknown.
    ///
    /// # Errors
    /// If `tpr` is not between 0 and 1.
    pub fn threshold(&self, tpr: f64) -> Result<Threshold> {
        if !(tpr > 0.0 && tpr < 1.0) {
            return Err(Error::setting(format!("`tpr` is {tpr}"))
                .hint("give `tpr` as a fraction between 0 and 1, such as 0.95"));
        }
        let n = self.scores.len();
        // In floating point 1 - 0.9 is slightly less than 0.1.
        let rejected = ((1.0 - tpr) * (n + 1) as f64 * (1.0 + 1e-9)).floor() as usize;
        let guaranteed = if rejected == 0 { n as f64 / (n + 1) as f64 } else { tpr };
        let confidence = self.scores[rejected.clamp(1, n) - 1];
        Ok(Threshold { confidence, wanted: tpr, tpr: guaranteed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let c = Calibration::new((1..=19).rev().map(f64::from).collect()).unwrap();
        assert_eq!(c.p_value(0.0), 1.0 / 20.0);
        assert_eq!(c.p_value(1.0), 2.0 / 20.0);
        assert_eq!(c.p_value(99.0), 1.0);
        // 5% of 20 is one: below the lowest of the 19 a row is unknown.
        let t = c.threshold(0.95).unwrap();
        assert_eq!((t.confidence, t.tpr), (1.0, 0.95));
        assert!(t.known(1.0) && !t.known(0.999) && t.shortfall(19).is_none());
        assert_eq!(c.threshold(0.9).unwrap().confidence, 2.0);
        let t = c.threshold(0.96).unwrap();
        assert_eq!((t.confidence, t.tpr), (1.0, 0.95));
        assert!(c.warning(&t).unwrap().contains("24 are needed"));
        assert!(
            c.threshold(0.9999)
                .unwrap()
                .shortfall(19)
                .unwrap()
                .contains("keeps 99.99% of in-distribution rows: 9999 are")
        );
        assert!(c.threshold(1.0).is_err() && c.threshold(f64::NAN).is_err());
        assert!(Calibration::new(vec![]).is_err() && Calibration::new(vec![f64::NAN]).is_err());
    }

    proptest! {
        #[test]
        fn a_p_value_is_that_of_its_confidence(
            scores in proptest::collection::vec(-5i32..5, 1..60), at in -6i32..6,
        ) {
            let c = Calibration::new(scores.iter().map(|&s| f64::from(s)).collect()).unwrap();
            let p = c.p_value(f64::from(at));
            prop_assert_eq!(c.p_value(c.confidence_at(p).unwrap()), p);
            prop_assert!(c.confidence_at(0.0).is_err() && c.confidence_at(1.1).is_err() && c.confidence_at(f64::NAN).is_err());
        }

        #[test]
        fn the_threshold_agrees_with_the_p_value(
            scores in proptest::collection::vec(-5i32..5, 1..60), at in -6i32..6, tpr in 0.01f64..0.99,
        ) {
            let c = Calibration::new(scores.iter().map(|&s| f64::from(s)).collect()).unwrap();
            let t = c.threshold(tpr).unwrap();
            if t.tpr == t.wanted {
                prop_assert_eq!(!t.known(f64::from(at)), c.p_value(f64::from(at)) <= 1.0 - tpr + 1e-9);
            } else {
                prop_assert_eq!(t.confidence, c.scores()[0]);
            }
        }
    }
}
