//! What a member's confidences are on held-out rows.
//!
//! Members are averaged in deviations from their means, so that none speaks louder than another, and what a network does not
//! see can be weighed against what it sees. A member that is alone and sees everything speaks for itself.

use crate::error::{Error, Kind, Result};

/// Held-out rows that tell a deviation; where there are fewer, all members together have to.
const ENOUGH: usize = 30;

/// Mean and deviation of a member's confidences.
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
    /// Whether members are standardized: several, or one that does not see everything.
    pub fn needed(members: usize, clipped: bool) -> bool {
        members > 1 || clipped
    }

    /// Of each member's confidences on the same rows.
    ///
    /// # Errors
    /// If they are not finite.
    pub fn of(scores: &[Vec<f64>]) -> Result<Vec<ScoreScale>> {
        let moments = |scores: &Vec<f64>| {
            let n = scores.len().max(1) as f64;
            let mean = scores.iter().map(|s| s / n).sum::<f64>();
            (mean, scores.iter().map(|s| (s - mean) * (s - mean) / n).sum::<f64>())
        };
        let all: Vec<(f64, f64)> = scores.iter().map(moments).collect();
        let pooled = all.iter().map(|(_, variance)| variance / all.len() as f64).sum::<f64>();
        let few = scores.first().is_none_or(|s| s.len() < ENOUGH);
        let usual = |&(mean, variance): &(f64, f64)| {
            let deviation = libm::sqrt(if few { pooled } else { variance });
            if !(mean.is_finite() && deviation.is_finite()) {
                return Err(
                    Error::new(Kind::Diverged, "training ended in confidences that are not finite").hint("lower --lr")
                );
            }
            // Where all are the same there is nothing to divide by.
            Ok(ScoreScale { mean, deviation: if deviation > 1e-12 * mean.abs() { deviation } else { 1.0 } })
        };
        all.iter().map(usual).collect()
    }

    /// A confidence in deviations from the mean.
    pub fn standardize(&self, score: f64) -> f64 {
        (score - self.mean) / self.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_end_up_on_one_scale() {
        let first: Vec<f64> = (0..100).map(|i| f64::from(i % 10)).collect();
        let second: Vec<f64> = first.iter().map(|s| 3.0 - 1000.0 * s).collect();
        for (scores, usual) in [&first, &second].iter().zip(ScoreScale::of(&[first.clone(), second.clone()]).unwrap()) {
            let standard: Vec<f64> = scores.iter().map(|&s| usual.standardize(s)).collect();
            let mean = standard.iter().sum::<f64>() / 100.0;
            let variance = standard.iter().map(|s| s * s).sum::<f64>() / 100.0;
            assert!(mean.abs() < 1e-9 && (variance - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn few_rows_do_not_make_a_member_loud() {
        let usual = ScoreScale::of(&[vec![0.0, 2.0], vec![5.0, 5.001], vec![1.0, 1.0]]).unwrap();
        assert!(usual.iter().all(|u| u.deviation == usual[0].deviation && u.deviation > 0.5));
        assert_eq!(ScoreScale::of(&[vec![4.0; 64]]).unwrap(), [ScoreScale { mean: 4.0, deviation: 1.0 }]);
        assert!(ScoreScale::of(&[[f64::MIN, 1.0].repeat(25)]).is_err());
    }
}
