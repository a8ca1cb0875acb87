//! The detection metrics, computed in one pass over the tie groups.

use serde::{Deserialize, Serialize};

use super::ties::{Counts, TieGroups};
use super::{Positive, Row};
use crate::error::Result;

/// How well a confidence separates ID from OOD rows; every metric is between 0 and 1.
///
/// A threshold `t` accepts a row as ID if its score is at least `t`. The thresholds are the scores that occur, and one
/// above all of them, so rows with equal scores are accepted or rejected together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Number of ID rows.
    pub n_id: usize,
    /// Number of OOD rows.
    pub n_ood: usize,
    /// The fraction of ID-OOD pairs with equal scores. A large fraction means that the score is saturated.
    pub tie_fraction: f64,
    /// Area under the ROC curve: P(ID > OOD) + P(tie) / 2. It is the same for both choices of the positive class.
    pub auroc: f64,
    /// Average precision with ID as positive (with steps, not trapezoids).
    pub aupr_id: f64,
    /// Average precision with OOD as positive.
    pub aupr_ood: f64,
    /// Best true-negative rate (OOD rejected) over thresholds that accept at least 85% of ID.
    pub tnr85: f64,
    /// Best true-negative rate (OOD rejected) over thresholds that accept at least 95% of ID.
    pub tnr95: f64,
    /// False-positive rate at 95% true-positive rate, ID as positive: the fraction of OOD accepted; `1 - tnr95`.
    pub fpr95_id: f64,
    /// False-positive rate at 95% true-positive rate, **OOD as positive**: the fraction of ID rejected if at least
    /// 95% of OOD is rejected. This is the FPR95 of OpenOOD and pytorch-ood.
    pub fpr95_ood: f64,
    /// The largest mean of true-positive and true-negative rate over all thresholds; at least one half.
    pub detection_accuracy: f64,
}

impl Detection {
    /// The metrics, in the order of reports.
    pub fn rows(&self) -> [Row; 8] {
        use Positive::{Id, Ood};
        let row = |key, name, positive, value| Row { key, name, positive, value };
        [
            row("auroc", "AUROC", Id, self.auroc),
            row("aupr_id", "AUPR", Id, self.aupr_id),
            row("aupr_ood", "AUPR", Ood, self.aupr_ood),
            row("tnr85", "TNR at 85% TPR", Id, self.tnr85),
            row("tnr95", "TNR at 95% TPR", Id, self.tnr95),
            row("fpr95_id", "FPR at 95% TPR", Id, self.fpr95_id),
            row("fpr95_ood", "FPR at 95% TPR", Ood, self.fpr95_ood),
            row("detection_accuracy", "Detection accuracy", Id, self.detection_accuracy),
        ]
    }
}

/// Computes how well confidences separate ID from OOD rows.
///
/// # Errors
/// If a side is empty or a score is NaN.
pub fn detection(id: &[f64], ood: &[f64]) -> Result<Detection> {
    let groups = TieGroups::new(id, ood)?;
    Ok(sweep(&groups.counts, groups.n_id, groups.n_ood))
}

/// All metrics from the counts at each distinct score, highest first; groups may be empty, as in a bootstrap replicate.
pub(super) fn sweep(counts: &[Counts], n_id: usize, n_ood: usize) -> Detection {
    let (n_id_f, n_ood_f) = (n_id as f64, n_ood as f64);
    let (n_id_u, n_ood_u) = (n_id as u64, n_ood as u64);
    // Rates are compared as integers: tp / n >= 85 / 100.
    let at_least = |count: u64, percent: u64, n: u64| count * 100 >= percent * n;

    let (mut tp, mut fp) = (0u64, 0u64); // accepted at or above the current score
    let (mut ordered, mut tied) = (0u64, 0u64); // pairs
    let (mut precision_id, mut precision_ood) = (0.0, 0.0);
    let (mut fp85, mut fp95) = (None, None);
    let mut id_rejected95 = n_id_u;
    let mut best = 0i64; // of tp * n_ood - fp * n_id; 0 is the threshold above all scores
    for c in counts {
        let (id, ood) = (u64::from(c.id), u64::from(c.ood));
        // With OOD as positive, a threshold at this score selects the rows at or below it.
        let (id_below, ood_below) = (n_id_u - tp, n_ood_u - fp);
        if at_least(ood_below, 95, n_ood_u) {
            id_rejected95 = id_below;
        }
        ordered += ood * tp;
        tied += id * ood;
        tp += id;
        fp += ood;
        // An empty group adds zero; `max` avoids dividing zero by zero.
        precision_id += (id * tp) as f64 / (tp + fp).max(1) as f64;
        precision_ood += (ood * ood_below) as f64 / (id_below + ood_below).max(1) as f64;
        if fp85.is_none() && at_least(tp, 85, n_id_u) {
            fp85 = Some(fp);
        }
        if fp95.is_none() && at_least(tp, 95, n_id_u) {
            fp95 = Some(fp);
        }
        best = best.max((tp * n_ood_u) as i64 - (fp * n_id_u) as i64);
    }
    let pairs = n_id_u * n_ood_u;
    let fp85 = fp85.unwrap_or(n_ood_u);
    let fp95 = fp95.unwrap_or(n_ood_u);
    Detection {
        n_id,
        n_ood,
        tie_fraction: tied as f64 / pairs as f64,
        auroc: (2 * ordered + tied) as f64 / (2 * pairs) as f64,
        aupr_id: (precision_id / n_id_f).min(1.0),
        aupr_ood: (precision_ood / n_ood_f).min(1.0),
        tnr85: (n_ood_u - fp85) as f64 / n_ood_f,
        tnr95: (n_ood_u - fp95) as f64 / n_ood_f,
        fpr95_id: fp95 as f64 / n_ood_f,
        fpr95_ood: id_rejected95 as f64 / n_id_f,
        detection_accuracy: (pairs as i64 + best) as f64 / (2 * pairs) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_by_hand() {
        // Highest first: 4 ID | 3 ID, OOD | 2 ID | 1 OOD OOD.
        let d = detection(&[4.0, 3.0, 2.0], &[3.0, 1.0, 1.0]).unwrap();
        assert_eq!((d.n_id, d.n_ood), (3, 3));
        assert_eq!(d.tie_fraction, 1.0 / 9.0);
        assert_eq!(d.auroc, (7.0 + 0.5) / 9.0);
        assert!((d.aupr_id - (1.0 + 2.0 / 3.0 + 3.0 / 4.0) / 3.0).abs() < 1e-15);
        assert!((d.aupr_ood - (2.0 + 3.0 / 5.0) / 3.0).abs() < 1e-15);
        assert_eq!((d.tnr85, d.tnr95, d.fpr95_id), (2.0 / 3.0, 2.0 / 3.0, 1.0 / 3.0));
        // All OOD rows are at or below 3, and two of three ID rows.
        assert_eq!(d.fpr95_ood, 2.0 / 3.0);
        assert_eq!(d.detection_accuracy, 5.0 / 6.0); // (1 + 2/3) / 2
    }

    #[test]
    fn extremes() {
        let equal = detection(&[1.0; 4], &[1.0; 12]).unwrap();
        assert_eq!((equal.auroc, equal.tie_fraction, equal.detection_accuracy), (0.5, 1.0, 0.5));
        assert_eq!((equal.aupr_id, equal.aupr_ood), (0.25, 0.75));
        assert_eq!((equal.tnr95, equal.fpr95_id, equal.fpr95_ood), (0.0, 1.0, 1.0));
        let apart = detection(&[f64::INFINITY, 1.0], &[0.0, f64::NEG_INFINITY]).unwrap();
        assert_eq!((apart.auroc, apart.aupr_id, apart.aupr_ood), (1.0, 1.0, 1.0));
        assert_eq!((apart.tnr85, apart.fpr95_ood, apart.detection_accuracy), (1.0, 0.0, 1.0));
        let wrong = detection(&[0.0], &[1.0]).unwrap();
        assert_eq!((wrong.auroc, wrong.tnr85, wrong.fpr95_ood, wrong.detection_accuracy), (0.0, 0.0, 1.0, 0.5));
    }

    #[test]
    fn a_rate_that_is_exactly_reached_counts() {
        // 20 ID rows: 17 are 85%, 19 are 95%.
        let id: Vec<f64> = (1..=20).map(f64::from).collect();
        let d = detection(&id, &[3.5, 1.5, 1.25, 0.0]).unwrap();
        assert_eq!((d.tnr85, d.tnr95), (1.0, 0.75));
    }
}
