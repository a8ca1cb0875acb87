//! Properties of the metrics on random scores, with ties and infinities.

use mcdd::metrics::{Detection, Positive, authors, bootstrap, detection, openood, precision_recall, roc};
use proptest::prelude::*;

const CLOSE: f64 = 1e-12;

/// Scores of one side: a few levels (ties), continuous, or both; sometimes infinite.
fn side() -> impl Strategy<Value = Vec<f64>> {
    let level = (-3i32..4).prop_map(f64::from);
    let score = prop_oneof![
        12 => level.clone(),
        12 => -4.0..4.0f64,
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(-0.0),
    ];
    prop_oneof![
        prop::collection::vec(level, 1..50),
        prop::collection::vec(-4.0..4.0f64, 1..50),
        prop::collection::vec(score, 1..50),
    ]
}

fn fraction(side: &[f64], condition: impl Fn(f64) -> bool) -> f64 {
    side.iter().filter(|&&s| condition(s)).count() as f64 / side.len() as f64
}

/// The definitions, taken literally: for each pair, each threshold and each row.
fn by_definition(id: &[f64], ood: &[f64]) -> Detection {
    let pairs = (id.len() * ood.len()) as f64;
    let (mut above, mut tied) = (0.0, 0.0);
    for a in id {
        above += ood.iter().filter(|&b| a > b).count() as f64;
        tied += ood.iter().filter(|&b| a == b).count() as f64;
    }
    // The mean over positive rows of the precision at their score.
    let precision = |positive: &[f64], negative: &[f64], sign: f64| {
        let at = |t: f64| {
            let hits = positive.iter().filter(|&&s| sign * s >= sign * t).count() as f64;
            let misses = negative.iter().filter(|&&s| sign * s >= sign * t).count() as f64;
            hits / (hits + misses)
        };
        positive.iter().map(|&t| at(t)).sum::<f64>() / positive.len() as f64
    };
    // (TPR, FPR) at each threshold with ID as positive, and with OOD.
    let scores = || id.iter().chain(ood).copied();
    let mut id_positive: Vec<(f64, f64)> =
        scores().map(|t| (fraction(id, |s| s >= t), fraction(ood, |s| s >= t))).collect();
    id_positive.push((0.0, 0.0));
    let ood_positive: Vec<(f64, f64)> =
        scores().map(|t| (fraction(ood, |s| s <= t), fraction(id, |s| s <= t))).collect();
    let least_fpr =
        |points: &[(f64, f64)], rate: f64| points.iter().filter(|p| p.0 >= rate).map(|p| p.1).fold(1.0, f64::min);
    let fpr95_id = least_fpr(&id_positive, 0.95);
    Detection {
        n_id: id.len(),
        n_ood: ood.len(),
        tie_fraction: tied / pairs,
        auroc: (above + 0.5 * tied) / pairs,
        aupr_id: precision(id, ood, 1.0),
        aupr_ood: precision(ood, id, -1.0),
        tnr85: 1.0 - least_fpr(&id_positive, 0.85),
        tnr95: 1.0 - fpr95_id,
        fpr95_id,
        fpr95_ood: least_fpr(&ood_positive, 0.95),
        detection_accuracy: id_positive.iter().map(|p| (p.0 + 1.0 - p.1) / 2.0).fold(0.0, f64::max),
    }
}

fn assert_close(found: &Detection, expected: &Detection) -> Result<(), TestCaseError> {
    prop_assert_eq!((found.n_id, found.n_ood), (expected.n_id, expected.n_ood));
    prop_assert!((found.tie_fraction - expected.tie_fraction).abs() < CLOSE);
    for (f, e) in found.rows().iter().zip(expected.rows()) {
        prop_assert!((f.value - e.value).abs() < CLOSE, "{:?}, not {:?}", f, e);
    }
    Ok(())
}

fn distinct(id: &[f64], ood: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = id.iter().chain(ood).map(|s| s + 0.0).collect();
    all.sort_unstable_by(f64::total_cmp);
    all.dedup();
    all
}

fn map(side: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    side.iter().map(|&s| f(s)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_quadratic_definition(id in side(), ood in side()) {
        assert_close(&detection(&id, &ood).unwrap(), &by_definition(&id, &ood))?;
    }

    #[test]
    fn every_metric_is_a_fraction(id in side(), ood in side()) {
        let d = detection(&id, &ood).unwrap();
        for row in d.rows() {
            prop_assert!((0.0..=1.0).contains(&row.value), "{:?}", row);
        }
        prop_assert!((0.0..=1.0).contains(&d.tie_fraction));
        prop_assert!(d.detection_accuracy >= 0.5);
        prop_assert!(d.tnr95 <= d.tnr85);
        prop_assert!((d.tnr95 + d.fpr95_id - 1.0).abs() < CLOSE);
        // An AUROC of one and a perfect threshold are equivalent.
        prop_assert_eq!(d.auroc == 1.0, d.detection_accuracy == 1.0);
    }

    #[test]
    fn only_the_order_of_scores_matters(id in side(), ood in side(), steps in prop::collection::vec(0.001..9.0f64, 100)) {
        let found = detection(&id, &ood).unwrap();
        let values = distinct(&id, &ood);
        // A random staircase that increases strictly, so that distinct values stay distinct.
        let stairs: Vec<f64> = steps.iter().scan(-200.0, |sum, s| { *sum += s; Some(*sum) }).collect();
        let staircase = |s: f64| stairs[values.iter().position(|&v| v == s).unwrap()];
        let (id2, ood2) = (map(&id, staircase), map(&ood, staircase));
        prop_assert_eq!(detection(&id2, &ood2).unwrap(), found);
        prop_assert_eq!(bootstrap(&id2, &ood2, 5, 1, 2).unwrap(), bootstrap(&id, &ood, 5, 1, 2).unwrap());
        prop_assert_eq!(authors(&id2, &ood2).unwrap(), authors(&id, &ood).unwrap());
        prop_assert_eq!(openood(&id2, &ood2).unwrap(), openood(&id, &ood).unwrap());
        // Smooth maps, where distinct values stay distinct after rounding.
        let maps: [fn(f64) -> f64; 4] = [f64::exp, f64::atan, f64::cbrt, |s| 3.0 * s - 1.0];
        for f in maps {
            if map(&values, f).windows(2).all(|w| w[0] < w[1]) {
                prop_assert_eq!(detection(&map(&id, f), &map(&ood, f)).unwrap(), found);
            }
        }
    }

    #[test]
    fn swapping_and_negating_exchanges_the_sides(id in side(), ood in side()) {
        let d = detection(&id, &ood).unwrap();
        let r = detection(&map(&ood, |s| -s), &map(&id, |s| -s)).unwrap();
        prop_assert_eq!((r.n_id, r.n_ood), (d.n_ood, d.n_id));
        prop_assert_eq!((r.tie_fraction, r.auroc, r.detection_accuracy), (d.tie_fraction, d.auroc, d.detection_accuracy));
        prop_assert_eq!((r.fpr95_id, r.fpr95_ood), (d.fpr95_ood, d.fpr95_id));
        prop_assert!((r.aupr_id - d.aupr_ood).abs() < CLOSE && (r.aupr_ood - d.aupr_id).abs() < CLOSE);
        // Negating the scores turns the AUROC into its complement.
        let n = detection(&map(&id, |s| -s), &map(&ood, |s| -s)).unwrap();
        prop_assert!((n.auroc + d.auroc - 1.0).abs() < CLOSE);
    }

    #[test]
    fn the_order_of_rows_and_copies_of_all_rows_change_nothing(id in side(), ood in side()) {
        let found = detection(&id, &ood).unwrap();
        let reversed = |side: &[f64]| side.iter().rev().copied().collect::<Vec<_>>();
        prop_assert_eq!(detection(&reversed(&id), &reversed(&ood)).unwrap(), found);
        let thrice = detection(&id.repeat(3), &ood.repeat(3)).unwrap();
        for (a, b) in thrice.rows().iter().zip(found.rows()) {
            prop_assert!((a.value - b.value).abs() < CLOSE, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn intervals_are_ordered_and_do_not_depend_on_threads(
        id in side(), ood in side(), seed: u64, replicates in 1usize..12, threads in 2usize..6,
    ) {
        let one = bootstrap(&id, &ood, replicates, seed, 1).unwrap();
        prop_assert_eq!(bootstrap(&id, &ood, replicates, seed, threads).unwrap(), one);
        for interval in one.rows() {
            prop_assert!(0.0 <= interval.low && interval.low <= interval.high && interval.high <= 1.0);
        }
    }

    #[test]
    fn the_areas_lie_under_the_curves(id in side(), ood in side()) {
        let found = detection(&id, &ood).unwrap();
        let points = roc(&id, &ood).unwrap();
        let area: f64 = points.windows(2).map(|w| (w[1].fpr - w[0].fpr) * (w[1].tpr + w[0].tpr) / 2.0).sum();
        prop_assert!((area - found.auroc).abs() < CLOSE);
        for (positive, expected) in [(Positive::Id, found.aupr_id), (Positive::Ood, found.aupr_ood)] {
            let points = precision_recall(&id, &ood, positive).unwrap();
            let before = std::iter::once(0.0).chain(points.iter().map(|p| p.recall));
            let area: f64 = points.iter().zip(before).map(|(p, r)| (p.recall - r) * p.precision).sum();
            prop_assert!((area - expected).abs() < CLOSE);
        }
    }

    #[test]
    fn compatibility_modes_relate_to_ours(id in side(), ood in side()) {
        let ours = detection(&id, &ood).unwrap();
        let theirs = authors(&id, &ood).unwrap();
        // There a tie counts as an error, here as one half.
        prop_assert!((theirs.auroc - (ours.auroc - ours.tie_fraction / 2.0)).abs() < CLOSE);
        prop_assert!(theirs.dtacc <= ours.detection_accuracy + CLOSE);
        let open = openood(&id, &ood).unwrap();
        prop_assert_eq!(open.auroc, ours.auroc);
        prop_assert!(open.fpr95 >= ours.fpr95_ood);
        if distinct(&id, &ood).len() == id.len() + ood.len() {
            prop_assert_eq!(open.fpr95, ours.fpr95_ood);
        }
    }
}
