//! The data of the plots.

use super::{Histogram, Metric, Percentage, Reliability, Set};
use crate::error::Result;
use crate::evaluate::OodEvaluation;
use crate::metrics::{self, Positive};
use crate::report::words::meaning;

/// Bins of the histogram.
const BINS: usize = 60;
/// The smallest distance between two points of a curve.
const STEP: f64 = 1.0 / 250.0;

/// Values beyond this are not drawn.
const FAR: f64 = 1e100;

/// Rounded to four decimals.
fn rounded(v: f64) -> f64 {
    libm::round(v * 1e4) / 1e4
}

/// The first point, the last one, and those between that are far enough from the one before.
fn thinned(points: impl Iterator<Item = [f64; 2]>) -> Vec<[f64; 2]> {
    let mut out: Vec<[f64; 2]> = Vec::new();
    let mut left = None;
    for p in points {
        let far = |q: &[f64; 2]| (p[0] - q[0]).abs() >= STEP || (p[1] - q[1]).abs() >= STEP;
        if out.last().is_none_or(far) {
            out.push(p);
            left = None;
        } else {
            left = Some(p);
        }
    }
    out.extend(left);
    out.iter().map(|p| p.map(rounded)).collect()
}

/// The curves of a set against the known rows, and its metrics.
pub(super) fn set(name: &str, known: &[f64], unknown: &[f64], found: &OodEvaluation) -> Result<Set> {
    let mut rows: Vec<Metric> = Vec::new();
    for m in found.metrics() {
        let name = format!("{}, positive: {}", m.name, m.positive);
        rows.push(Metric { name, percent: Percentage::new(m.value, m.interval95), meaning: meaning(m.key) });
    }
    let ties = Percentage::new(found.tie_fraction, None);
    rows.push(Metric { name: "Tied pairs".into(), percent: ties, meaning: meaning("tie_fraction") });
    let pr = |positive| -> Result<Vec<[f64; 2]>> {
        Ok(thinned(metrics::precision_recall(known, unknown, positive)?.iter().map(|p| [p.recall, p.precision])))
    };
    Ok(Set {
        name: name.to_owned(),
        rows: unknown.len(),
        metrics: rows,
        roc: thinned(metrics::roc(known, unknown)?.iter().map(|p| [p.fpr, p.tpr])),
        pr_known: pr(Positive::Id)?,
        pr_unknown: pr(Positive::Ood)?,
    })
}

/// The fraction of kept rows that are misclassified against the fraction of kept rows, from the most confident row on. Rows
/// of equal confidence are kept together.
pub(super) fn risk(confidence: &[f64], right: &[bool]) -> Vec<[f64; 2]> {
    let mut order: Vec<usize> = (0..right.len().min(confidence.len())).collect();
    order.sort_by(|&a, &b| confidence[b].total_cmp(&confidence[a]));
    let mut points = Vec::new();
    let mut wrong = 0;
    for (i, &row) in order.iter().enumerate() {
        wrong += usize::from(!right[row]);
        if order.get(i + 1).is_none_or(|&next| confidence[next] != confidence[row]) {
            points.push([(i + 1) as f64 / order.len() as f64, wrong as f64 / (i + 1) as f64]);
        }
    }
    thinned(points.into_iter())
}

/// Ten bins of the probability; the last one includes a probability of 1.
pub(super) fn reliability(probability: &[f64], right: &[bool]) -> Option<Reliability> {
    let mut sums = [(0.0, 0usize, 0usize); 10];
    for (&p, &r) in probability.iter().zip(right) {
        let s = &mut sums[((p * 10.0) as usize).min(9)];
        *s = (s.0 + p, s.1 + usize::from(r), s.2 + 1);
    }
    let n: usize = sums.iter().map(|s| s.2).sum();
    let bins: Vec<(f64, f64, usize)> =
        sums.iter().filter(|s| s.2 > 0).map(|&(p, r, n)| (p / n as f64, r as f64 / n as f64, n)).collect();
    let error = bins.iter().map(|(p, r, m)| (p - r).abs() * *m as f64 / n as f64).sum();
    (n > 0).then_some(Reliability { bins, error })
}

/// A range with most of the rows, and almost all known ones.
fn range(known: &[f64], sets: &[&[f64]]) -> (f64, f64) {
    let at = |values: &[f64], fraction: f64| values[((values.len() - 1) as f64 * fraction) as usize];
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let id = sorted(known);
    if id.is_empty() {
        return (0.0, 1.0);
    }
    let (from, to) = (at(&id, 0.005), at(&id, 0.995));
    let span = if to > from && (to - from).is_finite() { to - from } else { 1.0 };
    let ends = |values: &[f64]| (at(values, 0.01), at(values, 0.99));
    let unknown: Vec<(f64, f64)> = sets.iter().filter(|s| !s.is_empty()).map(|s| ends(&sorted(s))).collect();
    let low = unknown.iter().fold(at(&id, 0.001), |l, s| l.min(s.0)).max(from - 3.0 * span);
    let high = unknown.iter().fold(at(&id, 0.999), |h, s| h.max(s.1)).min(to + 2.0 * span);
    let (low, high) = (low.clamp(-FAR, FAR), high.clamp(-FAR, FAR));
    let least = 1e-9 * low.abs().max(1.0);
    if high - low > least { (low, high) } else { (low - least, low + least) }
}

/// Known and unknown rows in the same bins.
pub(super) fn histogram(known: &[f64], sets: &[&[f64]], threshold: f64) -> Histogram {
    let (low, high) = range(known, sets);
    let near = threshold.clamp(-FAR, FAR);
    let (low, high) = (low.min(near), high.max(near));
    let count = |values: &[f64]| {
        let mut bins = vec![0; BINS];
        for &v in values {
            let at = (v - low) / (high - low) * BINS as f64;
            bins[(at.max(0.0) as usize).min(BINS - 1)] += 1;
        }
        bins
    };
    let all = || sets.iter().chain([&known]).copied().flatten();
    let outside = [all().filter(|v| **v < low).count(), all().filter(|v| **v > high).count()];
    Histogram { low, high, known: count(known), sets: sets.iter().map(|s| count(s)).collect(), outside }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Bootstrap, Evaluator};
    use crate::model::Calibration;
    use crate::seed::Stream;

    #[test]
    fn risk_is_the_fraction_of_wrong_rows_among_kept_ones() {
        let confidence = [5.0, 4.0, 4.0, 3.0, 1.0];
        let right = [true, false, true, true, false];
        let wanted = [[0.2, 0.0], [0.6, 1.0 / 3.0], [0.8, 0.25], [1.0, 0.4]];
        for (found, wanted) in risk(&confidence, &right).iter().zip(wanted) {
            assert!((found[0] - wanted[0]).abs() < 1e-4 && (found[1] - wanted[1]).abs() < 1e-4, "{found:?}");
        }
        assert!(risk(&[], &[]).is_empty());
    }

    #[test]
    fn reliability_by_hand() {
        let found = reliability(&[0.95, 1.0, 0.85, 0.5], &[true, false, true, true]).unwrap();
        assert_eq!(found.bins.iter().map(|b| b.2).collect::<Vec<_>>(), [1, 1, 2]);
        assert_eq!(found.bins[2], (0.975, 0.5, 2));
        assert!((found.error - (0.5 + 0.15 + 2.0 * 0.475) / 4.0).abs() < 1e-12);
        assert!(reliability(&[], &[]).is_none());
    }

    #[test]
    fn curves_are_those_of_the_metrics_with_fewer_points() {
        let mut random = Stream::new(3, "curves");
        let known: Vec<f64> = (0..5000).map(|_| random.normal() + 1.5).collect();
        let unknown: Vec<f64> = (0..3000).map(|_| random.normal()).collect();
        let mut evaluator = Evaluator::new(&[], Calibration::new(vec![0.0]).unwrap().threshold(0.5).unwrap());
        known.iter().for_each(|&c| evaluator.add_row(c, None, None));
        let set = evaluator.ood_set("s");
        evaluator.add_ood(set, &unknown);
        let measured = evaluator.finish(Bootstrap::none()).unwrap();
        let found = super::set("s", &known, &unknown, &measured.ood[0]).unwrap();
        let all = metrics::roc(&known, &unknown).unwrap();
        assert!(found.roc.len() < 600 && all.len() > 7000);
        assert_eq!((found.roc[0], found.roc[found.roc.len() - 1]), ([0.0, 0.0], [1.0, 1.0]));
        let area: f64 = found.roc.windows(2).map(|w| (w[1][0] - w[0][0]) * (w[0][1] + w[1][1]) / 2.0).sum();
        assert!((area - metrics::detection(&known, &unknown).unwrap().auroc).abs() < 1e-3);
        assert_eq!(found.metrics.len(), 9);
        assert_eq!(found.metrics[0].percent.value, format!("{:.2}", 100.0 * measured.ood[0].detection.auroc));
    }

    #[test]
    fn every_row_is_in_a_bin_despite_outliers() {
        let known: Vec<f64> = (0..1000).map(|i| f64::from(i) / 1000.0).collect();
        let unknown = [f64::MIN, -1e9, -0.5, 0.2, 1e9];
        let h = histogram(&known, &[&unknown], 3.05);
        assert_eq!(h.high, 3.05);
        assert_eq!((h.known.iter().sum::<usize>(), h.sets[0].iter().sum::<usize>()), (1000, 5));
        assert!(h.low >= -3.1 && h.high <= 3.1 && h.outside[0] >= 2 && h.outside[1] >= 1);
        for odd in [vec![], vec![2.0; 9], vec![f64::MIN, f64::MAX], vec![f64::MIN]] {
            let h = histogram(&odd, &[], 2.0);
            assert!(h.low < h.high && h.known.iter().sum::<usize>() == odd.len(), "{h:?}");
        }
    }
}
