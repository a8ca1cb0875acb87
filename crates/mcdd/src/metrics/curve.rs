//! ROC and precision-recall curves, with a point for each distinct score.

use serde::Serialize;

use super::Positive;
use super::ties::TieGroups;
use crate::error::Result;

/// A point of the ROC curve, ID as positive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RocPoint {
    /// The fraction of OOD rows with a score of at least `threshold`.
    pub fpr: f64,
    /// The fraction of ID rows with a score of at least `threshold`.
    pub tpr: f64,
    /// Infinite at the first point, which accepts no row.
    pub threshold: f64,
}

/// A point of a precision-recall curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrPoint {
    /// The fraction of positive rows that are selected.
    pub recall: f64,
    /// The fraction of selected rows that are positive.
    pub precision: f64,
    /// With ID as positive, rows with at least this score are selected; with OOD, rows with at most this score.
    pub threshold: f64,
}

/// The ROC curve, ID as positive, from (0, 0) to (1, 1).
///
/// # Errors
/// If a side is empty or a score is NaN.
pub fn roc(id: &[f64], ood: &[f64]) -> Result<Vec<RocPoint>> {
    let groups = TieGroups::new(id, ood)?;
    let (n_id, n_ood) = (groups.n_id as f64, groups.n_ood as f64);
    let start = RocPoint { fpr: 0.0, tpr: 0.0, threshold: f64::INFINITY };
    let points = groups.cumulative().zip(&groups.scores).map(|((tp, fp), &threshold)| RocPoint {
        fpr: fp as f64 / n_ood,
        tpr: tp as f64 / n_id,
        threshold,
    });
    Ok(std::iter::once(start).chain(points).collect())
}

/// The precision-recall curve, in order of increasing recall. It has no point at recall 0, where no row is selected and
/// precision is not defined.
///
/// # Errors
/// If a side is empty or a score is NaN.
pub fn precision_recall(id: &[f64], ood: &[f64], positive: Positive) -> Result<Vec<PrPoint>> {
    Ok(pr_points(&TieGroups::new(id, ood)?, positive))
}

pub(super) fn pr_points(groups: &TieGroups, positive: Positive) -> Vec<PrPoint> {
    let (mut tp, mut fp) = (0u64, 0u64);
    let mut points = Vec::with_capacity(groups.scores.len());
    let mut select = |group: usize| {
        let c = groups.counts[group];
        let (hit, miss, n) = match positive {
            Positive::Id => (c.id, c.ood, groups.n_id),
            Positive::Ood => (c.ood, c.id, groups.n_ood),
        };
        tp += u64::from(hit);
        fp += u64::from(miss);
        points.push(PrPoint {
            recall: tp as f64 / n as f64,
            precision: tp as f64 / (tp + fp) as f64,
            threshold: groups.scores[group],
        });
    };
    match positive {
        Positive::Id => (0..groups.scores.len()).for_each(&mut select),
        Positive::Ood => (0..groups.scores.len()).rev().for_each(&mut select),
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::detection;

    const ID: [f64; 4] = [4.0, 3.0, 3.0, 1.0];
    const OOD: [f64; 3] = [3.0, 1.0, 0.0];

    #[test]
    fn roc_by_hand() {
        let points: Vec<_> = roc(&ID, &OOD).unwrap().iter().map(|p| (p.fpr, p.tpr, p.threshold)).collect();
        let third = 1.0 / 3.0;
        assert_eq!(
            points,
            [(0.0, 0.0, f64::INFINITY), (0.0, 0.25, 4.0), (third, 0.75, 3.0), (2.0 * third, 1.0, 1.0), (1.0, 1.0, 0.0)]
        );
    }

    #[test]
    fn the_area_of_steps_is_the_average_precision() {
        let found = detection(&ID, &OOD).unwrap();
        for (positive, expected) in [(Positive::Id, found.aupr_id), (Positive::Ood, found.aupr_ood)] {
            let mut before = 0.0;
            let mut area = 0.0;
            for p in precision_recall(&ID, &OOD, positive).unwrap() {
                area += (p.recall - before) * p.precision;
                before = p.recall;
            }
            assert_eq!(before, 1.0);
            assert!((area - expected).abs() < 1e-15);
        }
    }
}
