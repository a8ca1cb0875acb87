//! The out-of-range penalty: lowers the confidence of rows far outside the range of the training data.
//!
//! A network whose inputs are clipped to ±5 standard deviations cannot distinguish 6 from 6,000,000. Rows of a known
//! class exceed 5 from time to time, so that alone means little. What matters is how far a row lies outside the range of
//! the training rows. Its confidence, in standard deviations of the calibration scores, is lowered by `3 log(r)`. Here `r`
//! is the largest ratio, over the features, of the row's absolute value to the limit of the feature: the largest absolute
//! value in training, or the clipping limit if that is larger. The penalty is 0 for a row within the limits, 3.3 for one
//! three times as far out, and 21 for one a thousand times as far out. `docs/default.md` compares it with alternatives.

/// The limit of each feature.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RangePenalty {
    limits: Vec<f32>,
}

impl RangePenalty {
    /// Standard deviations for each factor of e.
    pub(super) const WEIGHT: f64 = 3.0;

    /// From some rows of `width` features; `clip` is the clipping limit of the network.
    pub(super) fn fit(x: &[f32], width: usize, rows: &[usize], clip: f32) -> RangePenalty {
        let mut limits = vec![clip; width];
        for row in rows {
            let row = &x[row * width..(row + 1) * width];
            limits.iter_mut().zip(row).for_each(|(limit, v)| *limit = limit.max(v.abs()));
        }
        RangePenalty { limits }
    }

    /// From stored limits; `None` unless all are positive and finite.
    pub(super) fn from_limits(limits: Vec<f32>) -> Option<RangePenalty> {
        limits.iter().all(|m| *m > 0.0 && m.is_finite()).then_some(RangePenalty { limits })
    }

    /// The limit of each feature.
    pub(super) fn limits(&self) -> &[f32] {
        &self.limits
    }

    /// How much the confidence of a row is lowered, in standard deviations.
    pub(super) fn penalty(&self, row: &[f32]) -> f64 {
        let ratio = row.iter().zip(&self.limits).fold(1.0f32, |r, (v, limit)| r.max(v.abs() / limit));
        Self::WEIGHT * libm::log(f64::from(ratio.min(f32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_outside_the_training_range_are_penalized() {
        let range = RangePenalty::fit(&[1.0, -8.0, 99.0, 99.0, -2.0, 3.0], 2, &[0, 2], 5.0);
        assert_eq!(range.limits(), [5.0, 8.0]);
        assert_eq!(range.penalty(&[-5.0, 8.0]), 0.0);
        assert_eq!(range.penalty(&[0.0, 0.0]), 0.0);
        assert!((range.penalty(&[-15.0, 12.0]) - 3.0 * 3f64.ln()).abs() < 1e-6);
        assert!(range.penalty(&[f32::MAX, 0.0]).is_finite());
        assert!(RangePenalty::from_limits(vec![1.0, 0.0]).is_none());
        assert!(RangePenalty::from_limits(vec![f32::NAN]).is_none());
        let tiny = RangePenalty::from_limits(vec![f32::MIN_POSITIVE]).unwrap();
        assert!(tiny.penalty(&[f32::MAX]).is_finite());
    }
}
