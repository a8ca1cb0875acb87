//! Calibration by class: maps the confidences of rows of one predicted class to the scale of all rows.
//!
//! Rows of a rare or difficult class often have lower confidences than others, so one threshold for all rejects more of
//! them. Each class has a map from its own calibration scores to those of all classes, quantile by quantile. After it one
//! threshold keeps about the same fraction of the rows of every predicted class, and a p-value is the fraction of the known
//! rows of that class with a confidence as low or lower (Mondrian conformal prediction: Vovk, Gammerman, Shafer,
//! *Algorithmic Learning in a Random World*, 2005). Below its lowest score a class follows the scale of all rows at a
//! constant distance, so a class with few rows is not held to a threshold that these rows cannot set.

/// The largest number of points of a map.
const POINTS: usize = 200;

/// A map of confidences: linear between points, at a constant distance outside.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClassScale {
    /// Confidences and what they become, both ascending.
    points: Vec<[f64; 2]>,
}

impl ClassScale {
    /// The maps of the predicted classes of some rows. A class without rows keeps its confidences.
    pub(super) fn fit(confidence: &[f64], class: &[u32], classes: usize) -> Vec<ClassScale> {
        let mut all = confidence.to_vec();
        all.sort_by(f64::total_cmp);
        let mut own: Vec<Vec<f64>> = vec![Vec::new(); classes];
        for (&c, &class) in confidence.iter().zip(class) {
            if let Some(own) = own.get_mut(class as usize) {
                own.push(c);
            }
        }
        own.into_iter().map(|scores| ClassScale::between(scores, &all)).collect()
    }

    fn between(mut own: Vec<f64>, all: &[f64]) -> ClassScale {
        own.sort_by(f64::total_cmp);
        let n = own.len();
        let ranks = (0..n.min(POINTS)).map(|i| if n <= POINTS { i } else { i * (n - 1) / (POINTS - 1) });
        let mut points: Vec<[f64; 2]> = Vec::new();
        for rank in ranks {
            let point = [own[rank], quantile(all, (rank + 1) as f64 / (n + 1) as f64)];
            // Of equal scores the last one counts, as in a p-value.
            match points.last_mut() {
                Some(last) if last[0] == point[0] => *last = point,
                _ => points.push(point),
            }
        }
        ClassScale { points }
    }

    /// From stored values, in pairs; none unless both are finite and ascending.
    pub(super) fn from_values(values: &[f64]) -> Option<ClassScale> {
        let points: Vec<[f64; 2]> = values.chunks_exact(2).map(|p| [p[0], p[1]]).collect();
        let ascending = points.windows(2).all(|w| w[0][0] < w[1][0] && w[0][1] <= w[1][1]);
        let valid = ascending && values.iter().all(|v| v.is_finite()) && values.len() == 2 * points.len();
        valid.then_some(ClassScale { points })
    }

    /// The points, in pairs.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        self.points.iter().flatten().copied()
    }

    /// The number of points.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// A confidence on the scale of all rows.
    pub(super) fn map(&self, confidence: f64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return confidence };
        let at = self.points.partition_point(|p| p[0] <= confidence);
        let moved = match (at.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(at)) {
            (Some(low), Some(high)) => {
                low[1] + (high[1] - low[1]) * ((confidence - low[0]) / (high[0] - low[0])).clamp(0.0, 1.0)
            }
            (None, _) => confidence - first[0] + first[1],
            (_, None) => confidence - last[0] + last[1],
        };
        if moved.is_finite() { moved } else { confidence }
    }
}

/// The value below which a fraction of the sorted values lies: linear between values, the outermost outside.
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let at = (fraction * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, (sorted.len() - 1) as f64);
    let (low, rest) = (at.floor() as usize, at - at.floor());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + rest * (sorted[high] - sorted[low])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_end_up_on_one_scale() {
        // Class 1 has half as many rows, ten lower.
        let confidence: Vec<f64> =
            (0..300).map(|i| if i < 200 { f64::from(i) } else { f64::from(i - 200) - 50.0 }).collect();
        let class: Vec<u32> = (0..300).map(|i| u32::from(i >= 200)).collect();
        let scales = ClassScale::fit(&confidence, &class, 3);
        let mut all = confidence.clone();
        all.sort_by(f64::total_cmp);
        for level in [0.05, 0.1, 0.2, 0.5] {
            let threshold = quantile(&all, level);
            for (k, n) in [(0u32, 200.0), (1, 100.0)] {
                let own = confidence.iter().zip(&class).filter(|(_, y)| **y == k);
                let below = own.filter(|(c, _)| scales[k as usize].map(**c) < threshold).count() as f64 / n;
                assert!((below - level).abs() < 0.02, "{k} {level} {below}");
            }
        }
        // A class without rows, and values outside.
        assert_eq!(scales[2].map(3.5), 3.5);
        assert!(scales[1].map(-1e6) < scales[1].map(-60.0) && scales[1].map(1e6) > 1e5);
        assert!(scales[0].map(f64::MIN) < -1e300);
    }

    #[test]
    fn stored_values_are_checked() {
        let scale = &ClassScale::fit(&[1.0, 2.0, 2.0, 5.0], &[0; 4], 1)[0];
        let values: Vec<f64> = scale.values().collect();
        assert_eq!((ClassScale::from_values(&values).as_ref(), scale.len()), (Some(scale), 3));
        for wrong in [&[1.0, 2.0, 1.0, 3.0][..], &[1.0, 2.0, 3.0, 1.0], &[1.0, f64::NAN], &[1.0]] {
            assert!(ClassScale::from_values(wrong).is_none(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn maps_keep_the_order(scores in proptest::collection::vec(-9i32..9, 1..700), a in -12.0f64..12.0, b in -12.0f64..12.0) {
            let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            let class: Vec<u32> = (0..scores.len() as u32).map(|i| i % 2).collect();
            for scale in ClassScale::fit(&scores, &class, 2) {
                prop_assert!(a > b || scale.map(a) <= scale.map(b));
                prop_assert!(scale.map(a).is_finite());
            }
        }
    }
}
