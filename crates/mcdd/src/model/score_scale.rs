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

    /// The same for one of the `n` confidences that the scale was computed from, by the scale of the others. A low confidence
    /// lowers the mean and raises the deviation, so its own scale makes it look more usual than a new row like it.
    pub(super) fn standardize_one_of(&self, score: f64, n: usize) -> f64 {
        if n < 2 {
            return self.standardize(score);
        }
        let (n, rest, away) = (n as f64, (n - 1) as f64, score - self.mean);
        let variance = self.deviation * self.deviation;
        // The pooled variance of few rows hardly depends on one of them.
        let others = if n < ENOUGH_ROWS as f64 { variance } else { n / rest * (variance - away * away / rest) };
        // One row that is the only one to differ would be divided by 0.
        n / rest * away / libm::sqrt(others.max(1e-6 * variance))
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
    fn one_of_the_rows_is_standardized_by_the_others() {
        let scores: Vec<f64> = (0..40).map(|i| f64::from(i * i % 17) - if i == 3 { 30.0 } else { 0.0 }).collect();
        let scale = ScoreScale::fit(std::slice::from_ref(&scores)).unwrap()[0];
        for (i, &score) in scores.iter().enumerate() {
            let mut others = scores.clone();
            others.remove(i);
            let expected = ScoreScale::fit(&[others]).unwrap()[0].standardize(score);
            assert!((scale.standardize_one_of(score, 40) - expected).abs() < 1e-9, "{i}");
        }
        let mut alone = vec![2.0; 40];
        alone[0] = -1.0;
        let scale = ScoreScale::fit(&[alone]).unwrap()[0];
        assert!(scale.standardize_one_of(-1.0, 40) < -1000.0 && scale.standardize_one_of(-1.0, 40).is_finite());
        assert_eq!(ScoreScale::fit(&[vec![4.0]]).unwrap()[0].standardize_one_of(4.0, 1), 0.0);
    }

    /// Five folds of 40 rows with a long tail. A threshold from all calibration rows keeps the fraction of new rows that it promises
    /// only if each calibration row is standardized by the others.
    #[test]
    fn a_threshold_keeps_what_it_promises() {
        use crate::seed::Stream;
        let mut random = Stream::new(0, "folds");
        let mut row = || random.normal() - if random.below(8) == 0 { 3.0 - 2.0 * random.normal() } else { 0.0 };
        let (repetitions, new_rows) = (3000, 40);
        let (mut kept, mut kept_by_own_scale) = (0, 0);
        for _ in 0..repetitions {
            let folds: Vec<Vec<f64>> = (0..5).map(|_| (0..40).map(|_| row()).collect()).collect();
            let scales = ScoreScale::fit(&folds).unwrap();
            // The largest of the ranks that are at most 10%, as in `calibration.rs`.
            let threshold = |standardize: &dyn Fn(&ScoreScale, f64) -> f64| {
                let all =
                    folds.iter().zip(&scales).flat_map(|(fold, scale)| fold.iter().map(|&s| standardize(scale, s)));
                let mut all: Vec<f64> = all.collect();
                all.sort_by(f64::total_cmp);
                all[19]
            };
            let others = threshold(&|scale, score| scale.standardize_one_of(score, 40));
            let own = threshold(&|scale, score| scale.standardize(score));
            for i in 0..new_rows {
                let score = scales[i % 5].standardize(row());
                kept += usize::from(score > others);
                kept_by_own_scale += usize::from(score > own);
            }
        }
        let fraction = |kept: usize| kept as f64 / (repetitions * new_rows) as f64;
        // The standard error is below 0.001.
        assert!((0.898..0.905).contains(&fraction(kept)), "{}", fraction(kept));
        assert!(fraction(kept_by_own_scale) < fraction(kept) - 0.002, "{}", fraction(kept_by_own_scale));
    }

    #[test]
    fn the_variance_of_few_rows_is_pooled() {
        let scales = ScoreScale::fit(&[vec![0.0, 2.0], vec![5.0, 5.001], vec![1.0, 1.0]]).unwrap();
        assert!(scales.iter().all(|s| s.deviation == scales[0].deviation && s.deviation > 0.5));
        assert_eq!(ScoreScale::fit(&[vec![4.0; 64]]).unwrap(), [ScoreScale { mean: 4.0, deviation: 1.0 }]);
        assert!(ScoreScale::fit(&[[f64::MIN, 1.0].repeat(25)]).is_err());
    }
}
