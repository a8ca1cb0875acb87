//! Definitions of other implementations, for comparison with numbers published with them.

use serde::Serialize;

use super::ties::TieGroups;
use super::{Positive, Row, curve::pr_points};
use crate::error::Result;

/// Definitions of another implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compat {
    /// The code published with Deep-MCDD, see [`authors`].
    Authors,
    /// OpenOOD 1.5, see [`openood`].
    Openood,
}

/// The result of [`detection_compat`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "compat", rename_all = "lowercase")]
pub enum CompatDetection {
    /// By the definitions of [`authors`].
    Authors(AuthorsDetection),
    /// By the definitions of [`openood`].
    Openood(OpenoodDetection),
}

/// Detection metrics as the code published with Deep-MCDD computes them; ID is positive except in `auout`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AuthorsDetection {
    /// Number of ID rows.
    pub n_id: usize,
    /// Number of OOD rows.
    pub n_ood: usize,
    /// The fraction of ID-OOD pairs with equal scores; each of them counts as an error here.
    pub tie_fraction: f64,
    /// True-negative rate where the true-positive rate is nearest to 85%.
    pub tnr85: f64,
    /// True-negative rate where the true-positive rate is nearest to 95%.
    pub tnr95: f64,
    /// Area under the ROC curve: P(ID > OOD), without ties.
    pub auroc: f64,
    /// Detection accuracy.
    pub dtacc: f64,
    /// Area under the precision-recall curve, ID as positive.
    pub auin: f64,
    /// Area under the precision-recall curve, OOD as positive.
    pub auout: f64,
}

/// Detection metrics as OpenOOD 1.5 computes them; OOD is positive except in `aupr_in`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OpenoodDetection {
    /// Number of ID rows.
    pub n_id: usize,
    /// Number of OOD rows.
    pub n_ood: usize,
    /// The fraction of ID-OOD pairs with equal scores.
    pub tie_fraction: f64,
    /// False-positive rate at 95% true-positive rate, OOD as positive.
    pub fpr95: f64,
    /// Area under the ROC curve.
    pub auroc: f64,
    /// Trapezoids under the precision-recall curve, ID as positive.
    pub aupr_in: f64,
    /// Trapezoids under the precision-recall curve, OOD as positive.
    pub aupr_out: f64,
}

impl CompatDetection {
    /// Numbers of ID and OOD rows.
    pub fn counts(&self) -> (usize, usize) {
        match self {
            Self::Authors(d) => (d.n_id, d.n_ood),
            Self::Openood(d) => (d.n_id, d.n_ood),
        }
    }

    /// The fraction of ID-OOD pairs with equal scores.
    pub fn tie_fraction(&self) -> f64 {
        match self {
            Self::Authors(d) => d.tie_fraction,
            Self::Openood(d) => d.tie_fraction,
        }
    }

    /// The metrics, with the names of the other implementation.
    pub fn rows(&self) -> Vec<Row> {
        use Positive::{Id, Ood};
        let row = |key, name, positive, value| Row { key, name, positive, value };
        match self {
            Self::Authors(d) => vec![
                row("tnr85", "TNR85", Id, d.tnr85),
                row("tnr95", "TNR95", Id, d.tnr95),
                row("auroc", "AUROC", Id, d.auroc),
                row("dtacc", "DTACC", Id, d.dtacc),
                row("auin", "AUIN", Id, d.auin),
                row("auout", "AUOUT", Ood, d.auout),
            ],
            Self::Openood(d) => vec![
                row("fpr95", "FPR@95", Ood, d.fpr95),
                row("auroc", "AUROC", Ood, d.auroc),
                row("aupr_in", "AUPR_IN", Id, d.aupr_in),
                row("aupr_out", "AUPR_OUT", Ood, d.aupr_out),
            ],
        }
    }
}

/// Computes the metrics with the definitions of [`authors`] or [`openood`].
///
/// # Errors
/// If a side is empty or a score is NaN.
pub fn detection_compat(id: &[f64], ood: &[f64], compat: Compat) -> Result<CompatDetection> {
    Ok(match compat {
        Compat::Authors => CompatDetection::Authors(authors(id, ood)?),
        Compat::Openood => CompatDetection::Openood(openood(id, ood)?),
    })
}

/// The algorithm of the code published with Deep-MCDD, which is that of Lee et al. 2018 and, before it, ODIN.
///
/// Rows are removed one at a time, lowest score first. Of rows with equal scores, ID rows are removed first, so a tie
/// counts as an error; a softmax that saturates at 1.0 is at a disadvantage. The true-negative rates are those of the
/// first point whose true-positive rate is nearest to the required one, which may be below it. The precision-recall
/// curves end in fixed points, which lowers their areas by about 0.5 / n.
///
/// # Errors
/// If a side is empty or a score is NaN.
pub fn authors(id: &[f64], ood: &[f64]) -> Result<AuthorsDetection> {
    let groups = TieGroups::new(id, ood)?;
    let (n_id, n_ood) = (groups.n_id as f64, groups.n_ood as f64);

    // The rows accepted after each removal, from all to none.
    let (mut tp, mut fp) = (groups.n_id as u64, groups.n_ood as u64);
    let mut accepted = Vec::with_capacity(groups.n_id + groups.n_ood + 1);
    accepted.push((tp, fp));
    for c in groups.counts.iter().rev() {
        for _ in 0..c.id {
            tp -= 1;
            accepted.push((tp, fp));
        }
        for _ in 0..c.ood {
            fp -= 1;
            accepted.push((tp, fp));
        }
    }

    let tnr_nearest = |rate: f64| {
        let (mut nearest, mut at) = (f64::INFINITY, fp);
        for &(tp, fp) in &accepted {
            let gap = (tp as f64 / n_id - rate).abs();
            if gap < nearest {
                (nearest, at) = (gap, fp);
            }
        }
        1.0 - at as f64 / n_ood
    };
    let tpr = |tp: u64| tp as f64 / n_id;
    let fpr = |fp: u64| fp as f64 / n_ood;
    let inner = |point: fn(f64, f64, f64, f64) -> (f64, f64)| {
        accepted.iter().map(move |&(tp, fp)| point(tp as f64, fp as f64, n_id, n_ood))
    };

    let roc = inner(|tp, fp, n_id, n_ood| (tp / n_id, 1.0 - fp / n_ood));
    let auroc = -trapezoids([(1.0, 0.0)].into_iter().chain(roc).chain([(0.0, 1.0)]));
    let dtacc = accepted.iter().map(|&(tp, fp)| tpr(tp) + 1.0 - fpr(fp)).fold(0.0, f64::max) * 0.5;
    // A point without selected rows has no precision and is left out.
    let pin = inner(|tp, fp, n_id, _| (tp / n_id, tp / (tp + fp))).filter(|p| !p.1.is_nan());
    let auin = -trapezoids([(1.0, 0.5)].into_iter().chain(pin).chain([(0.0, 0.0)]));
    let pout = inner(|tp, fp, n_id, n_ood| {
        let (rejected_id, rejected_ood) = (n_id - tp, n_ood - fp);
        (1.0 - fp / n_ood, rejected_ood / (rejected_id + rejected_ood))
    })
    .filter(|p| !p.1.is_nan());
    let auout = trapezoids([(0.0, 0.0)].into_iter().chain(pout).chain([(1.0, 0.5)]));

    Ok(AuthorsDetection {
        n_id: groups.n_id,
        n_ood: groups.n_ood,
        tie_fraction: groups.tie_fraction(),
        tnr85: tnr_nearest(0.85),
        tnr95: tnr_nearest(0.95),
        auroc,
        dtacc,
        auin,
        auout,
    })
}

/// The definitions of OpenOOD 1.5, that is scikit-learn's `roc_curve` and `precision_recall_curve`.
///
/// There are two differences from [`detection`](super::detection). The areas under precision-recall curves are sums of
/// trapezoids and start at recall 0 and precision 1. And scikit-learn drops points of the ROC curve that lie midway
/// between their neighbors, so with ties the FPR at 95% may be that of a higher true-positive rate; without ties it is
/// [`Detection::fpr95_ood`](super::Detection::fpr95_ood).
///
/// # Errors
/// If a side is empty or a score is NaN.
pub fn openood(id: &[f64], ood: &[f64]) -> Result<OpenoodDetection> {
    let groups = TieGroups::new(id, ood)?;
    let (n_id, n_ood) = (groups.n_id as u64, groups.n_ood as u64);

    // Lowest score first, OOD as positive: the numbers of rejected (OOD, ID) rows.
    let (mut tp, mut fp) = (0u64, 0u64);
    let rejected: Vec<(u64, u64)> = groups
        .counts
        .iter()
        .rev()
        .map(|c| {
            tp += u64::from(c.ood);
            fp += u64::from(c.id);
            (tp, fp)
        })
        .collect();
    let midway = |i: usize| {
        i > 0 && i + 1 < rejected.len() && {
            let (a, b, c) = (rejected[i - 1], rejected[i], rejected[i + 1]);
            a.0 + c.0 == 2 * b.0 && a.1 + c.1 == 2 * b.1
        }
    };
    let reached = (0..rejected.len()).find(|&i| rejected[i].0 * 100 >= 95 * n_ood && !midway(i));
    let fpr95 = reached.map_or(1.0, |i| rejected[i].1 as f64 / n_id as f64);

    let aupr = |positive| {
        let points = pr_points(&groups, positive);
        trapezoids([(0.0, 1.0)].into_iter().chain(points.iter().map(|p| (p.recall, p.precision))))
    };
    Ok(OpenoodDetection {
        n_id: groups.n_id,
        n_ood: groups.n_ood,
        tie_fraction: groups.tie_fraction(),
        fpr95,
        auroc: super::detection::sweep(&groups.counts, groups.n_id, groups.n_ood).auroc,
        aupr_in: aupr(Positive::Id),
        aupr_out: aupr(Positive::Ood),
    })
}

/// The area under points `(x, y)`; negative where `x` decreases.
fn trapezoids(points: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut area = 0.0;
    let mut before: Option<(f64, f64)> = None;
    for (x, y) in points {
        if let Some((x0, y0)) = before {
            area += (x - x0) * (y + y0) / 2.0;
        }
        before = Some((x, y));
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[tnr85, tnr95, auroc, dtacc, auin, auout]`
    fn check_authors(id: &[f64], ood: &[f64], expected: [f64; 6]) {
        let found = detection_compat(id, ood, Compat::Authors).unwrap();
        for (row, expected) in found.rows().iter().zip(expected) {
            assert!((row.value - expected).abs() < 1e-15, "{row:?}, not {expected}");
        }
        // The order of the rows makes no difference.
        let reversed = |side: &[f64]| side.iter().rev().copied().collect::<Vec<_>>();
        assert_eq!(found, CompatDetection::Authors(authors(&reversed(id), &reversed(ood)).unwrap()));
    }

    #[test]
    fn authors_apart() {
        // Accepted (ID, OOD): (2,1) (2,0) (1,0) (0,0). The rate nearest to 85% is that of the first point, where
        // the OOD row is still accepted, so that even a perfect detector has a TNR of 0.
        // AUIN: (1,1/2) (1,2/3) (1,1) (1/2,1) (0,0). AUOUT: (0,0) (1,1) (1,1/2) (1,1/3) (1,1/2).
        check_authors(&[1.0, 2.0], &[0.0], [0.0, 0.0, 1.0, 1.0, 0.75, 0.5]);
    }

    #[test]
    fn authors_one_tie() {
        // (1,1) (0,1) (0,0): the tie counts as an error. AUIN: (1,1/2) (1,1/2) (0,0). AUOUT: (0,0) (0,0) (1,1/2) (1,1/2).
        check_authors(&[1.0], &[1.0], [0.0, 0.0, 0.0, 0.5, 0.25, 0.25]);
    }

    #[test]
    fn authors_ties_among_others() {
        // (4,2) (4,1) (3,1) (2,1) (1,1) (1,0) (0,0); 75% is nearest to 85%, 100% to 95%.
        // AUIN: 1/4 of (4/5 + 3/4)/2, (3/4 + 2/3)/2, (2/3 + 1/2)/2 and (1 + 0)/2.
        // AUOUT: 1/2 of (0 + 1)/2 and (1/4 + 2/5)/2.
        let expected = [0.5, 0.0, 5.0 / 8.0, 0.75, 77.0 / 120.0, 0.4125];
        check_authors(&[3.0, 2.0, 2.0, 1.0], &[0.0, 2.0], expected);
    }

    #[test]
    fn authors_wrong_way_round() {
        // (1,2) (0,2) (0,1) (0,0). AUIN: (1,1/2) (1,1/3) (0,0) (0,0) (0,0).
        // AUOUT: (0,0) (0,0) (1/2,1/2) (1,2/3) (1,1/2).
        let expected = [0.0, 0.0, 0.0, 0.5, 1.0 / 6.0, 0.125 + 7.0 / 24.0];
        check_authors(&[0.0], &[1.0, 2.0], expected);
    }

    #[test]
    fn authors_use_the_nearest_rate_even_below_the_required_one() {
        // Of seven ID rows six are 85.7%: the first point that has them still accepts two OOD rows, the best
        // one only one.
        let id: Vec<f64> = (1..=7).map(f64::from).collect();
        let d = authors(&id, &[0.5, 1.5, 2.5]).unwrap();
        assert!((d.tnr85 - 1.0 / 3.0).abs() < 1e-15);
        assert_eq!(super::super::detection(&id, &[0.5, 1.5, 2.5]).unwrap().tnr85, 2.0 / 3.0);
        // Of three, two (66.7%) are farther from 85% than three.
        assert_eq!(authors(&[1.0, 2.0, 3.0], &[1.5]).unwrap().tnr85, 0.0);
        // Of five, four (80%) are nearer than five.
        assert_eq!(authors(&[1.0, 2.0, 3.0, 4.0, 5.0], &[0.5, 3.5]).unwrap().tnr85, 0.5);
    }

    #[test]
    fn openood_by_hand() {
        // Lowest first: 0 OOD | 1 ID, OOD | 2 ID.
        let found = detection_compat(&[1.0, 2.0], &[0.0, 1.0], Compat::Openood).unwrap();
        // AUPR_IN: (0,1) (1/2,1) (1,2/3) (1,1/2); AUPR_OUT is the same by symmetry.
        let area = 0.5 + 0.5 * (1.0 + 2.0 / 3.0) / 2.0;
        for (row, expected) in found.rows().iter().zip([0.5, 7.0 / 8.0, area, area]) {
            assert!((row.value - expected).abs() < 1e-15, "{row:?}, not {expected}");
        }
        assert_eq!(found.counts(), (2, 2));
        assert_eq!(found.tie_fraction(), 0.25);
    }

    #[test]
    fn openood_drops_points_midway() {
        // Twenty thresholds on a straight line: all but the last are dropped, so 95% is reached only at 100%.
        let scores: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(openood(&scores, &scores).unwrap().fpr95, 1.0);
        assert_eq!(super::super::detection(&scores, &scores).unwrap().fpr95_ood, 0.95);
    }
}
