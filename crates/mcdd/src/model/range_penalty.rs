//! What clipping hides from a network.
//!
//! A network that gets its inputs within ±5 deviations cannot tell 6 from 6,000,000. Rows of a known class do go beyond 5
//! now and then, so that alone means little; how far a row goes beyond everything in training means something. Its
//! confidence, in deviations of held-out rows, is lowered by `3 log(r)`, where `r` is the largest ratio, over the features,
//! of its value to the largest in training or the limit, whichever is more: nothing for a row that stays within them, 3.3
//! for one that goes three times as far, 21 for one a thousand times as far. `docs/default.md` compares it with other ways.

/// Deviations for each factor of e.
const WEIGHT: f64 = 3.0;

/// How far each feature goes in training, and at least to where it is clipped.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RangePenalty {
    most: Vec<f32>,
}

impl RangePenalty {
    /// Of rows by rows.
    pub fn of(x: &[f32], width: usize, limit: f32) -> RangePenalty {
        let mut most = vec![limit; width];
        for row in x.chunks_exact(width) {
            most.iter_mut().zip(row).for_each(|(m, v)| *m = m.max(v.abs()));
        }
        RangePenalty { most }
    }

    /// From a file; none if it makes no sense.
    pub fn from_values(most: Vec<f32>) -> Option<RangePenalty> {
        most.iter().all(|m| *m > 0.0 && m.is_finite()).then_some(RangePenalty { most })
    }

    /// Of each feature.
    pub fn values(&self) -> &[f32] {
        &self.most
    }

    /// What a row's confidence is lowered by, in deviations.
    pub fn beyond(&self, row: &[f32]) -> f64 {
        let ratio = row.iter().zip(&self.most).fold(1.0f32, |r, (v, m)| r.max(v.abs() / m));
        WEIGHT * libm::log(f64::from(ratio.min(f32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_beyond_training_counts() {
        let reach = RangePenalty::of(&[1.0, -8.0, -2.0, 3.0], 2, 5.0);
        assert_eq!(reach.values(), [5.0, 8.0]);
        assert_eq!(reach.beyond(&[-5.0, 8.0]), 0.0);
        assert_eq!(reach.beyond(&[0.0, 0.0]), 0.0);
        assert!((reach.beyond(&[-15.0, 12.0]) - 3.0 * 3f64.ln()).abs() < 1e-6);
        assert!(reach.beyond(&[f32::MAX, 0.0]).is_finite());
        assert!(
            RangePenalty::from_values(vec![1.0, 0.0]).is_none() && RangePenalty::from_values(vec![f32::NAN]).is_none()
        );
        let tiny = RangePenalty::from_values(vec![f32::MIN_POSITIVE]).unwrap();
        assert!(tiny.beyond(&[f32::MAX]).is_finite());
    }
}
