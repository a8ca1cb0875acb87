//! The score scale of a member: mean and standard deviation of its confidences on the calibration rows.
//!
//! The confidences of members are standardized before they are averaged, so that all members have the same weight and the
//! out-of-range penalty has a unit. The confidence of a single member without such a penalty is used as it is.

use crate::error::{Error, Kind, Result};

/// With fewer calibration rows than this, the variance is pooled over all members.
const ENOUGH_ROWS: usize = 30;

/// Mean and standard deviation of a member's confidences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoreScale {
    pub mean: f64,
    pub deviation: f64,
}

impl Default for ScoreScale {
    fn default() -> Self {
        ScoreScale { mean: 0.0, deviation: 1.0 }
    }
}

impl ScoreScale {
    /// Whether confidences are standardized: with several members, or with an out-of-range penalty.
    pub(super) fn needed(members: usize, penalty: bool) -> bool {
        members > 1 || penalty
    }

    /// From the confidences of each member on the rows that it left out.
    ///
    /// # Errors
    /// If the mean or the standard deviation is not finite.
    pub(super) fn fit(scores: &[Vec<f64>]) -> Result<Vec<ScoreScale>> {
        let moments = |scores: &Vec<f64>| {
            let n = scores.len().max(1) as f64;
            let mean = scores.iter().map(|s| s / n).sum::<f64>();
            (mean, scores.iter().map(|s| (s - mean) * (s - mean) / n).sum::<f64>())
        };
        let all: Vec<(f64, f64)> = scores.iter().map(moments).collect();
        let pooled = all.iter().map(|(_, variance)| variance / all.len() as f64).sum::<f64>();
        let few = scores.iter().any(|s| s.len() < ENOUGH_ROWS);
        let scale = |&(mean, variance): &(f64, f64)| {
            let deviation = libm::sqrt(if few { pooled } else { variance });
            if !(mean.is_finite() && deviation.is_finite()) {
                return Err(not_finite());
            }
            // If all confidences are equal there is nothing to divide by.
            Ok(ScoreScale { mean, deviation: if deviation > 1e-12 * mean.abs() { deviation } else { 1.0 } })
        };
        all.iter().map(scale).collect()
    }

    /// A confidence in standard deviations from the mean.
    pub(super) fn standardize(&self, score: f64) -> f64 {
        (score - self.mean) / self.deviation
    }
}

/// The error for a model whose confidences are useless.
pub(super) fn not_finite() -> Error {
    Error::new(Kind::Diverged, "the confidences of the trained model are not finite").hint("lower `lr`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_end_up_on_one_scale() {
        let first: Vec<f64> = (0..100).map(|i| f64::from(i % 10)).collect();
        let second: Vec<f64> = first.iter().map(|s| 3.0 - 1000.0 * s).collect();
        for (scores, scale) in [&first, &second].iter().zip(ScoreScale::fit(&[first.clone(), second.clone()]).unwrap())
        {
            let standard: Vec<f64> = scores.iter().map(|&s| scale.standardize(s)).collect();
            let mean = standard.iter().sum::<f64>() / 100.0;
            let variance = standard.iter().map(|s| s * s).sum::<f64>() / 100.0;
            assert!(mean.abs() < 1e-9 && (variance - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_variance_of_few_rows_is_pooled() {
        let scales = ScoreScale::fit(&[vec![0.0, 2.0], vec![5.0, 5.001], vec![1.0, 1.0]]).unwrap();
        assert!(scales.iter().all(|s| s.deviation == scales[0].deviation && s.deviation > 0.5));
        assert_eq!(ScoreScale::fit(&[vec![4.0; 64]]).unwrap(), [ScoreScale { mean: 4.0, deviation: 1.0 }]);
        assert!(ScoreScale::fit(&[[f64::MIN, 1.0].repeat(25)]).is_err());
    }
}
