//! Many rows together: which of them are unknown at a false discovery rate, and how many are.
//!
//! - **Selection** (Bates, Candès, Lei, Romano, Sesia, *Testing for outliers with conformal p-values*, Annals of Statistics 2023):
//!   conformal p-values of one calibration set depend on each other positively, so that the procedure of Benjamini and Hochberg, with
//!   Storey's estimate of the fraction of known rows, keeps the false discovery rate. The false discovery rate is the mean, over
//!   calibration sets and batches, of the fraction of known rows among those that are selected.
//! - **Interval**: of `m` known rows, the number with a p-value above `λ = j / (n + 1)` has the beta-binomial distribution with
//!   parameters `n + 1 - j` and `j`, exactly if there are no ties. The numbers `m` that this count does not reject give an interval for
//!   the number of unknown rows. Its lower end holds whatever unknown rows look like; its upper end if their p-values are at most `λ`, which is 20%.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::model::{Calibration, Threshold};

/// How many rows of a batch have each p-value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PValues {
    /// At `k - 1` the rows with p-value `k / (n + 1)`.
    counts: Vec<u64>,
}

/// A batch, and the rows of it that are selected as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// The number of rows.
    pub rows: u64,
    /// The number of rows that are selected as unknown.
    pub selected: u64,
    /// The largest p-value that is selected; 0 if none is.
    pub p_value: f64,
    /// Storey's estimate of the number of unknown rows.
    pub estimate: f64,
}

impl PValues {
    /// Of no rows, for p-values of this calibration.
    pub fn new(calibration: &Calibration) -> PValues {
        PValues { counts: vec![0; calibration.scores().len() + 1] }
    }

    /// Adds the p-values of rows.
    pub fn add(&mut self, p_values: &[f64]) {
        let whole = self.counts.len();
        for p in p_values {
            let at = (p * whole as f64).round() as usize;
            self.counts[at.clamp(1, whole) - 1] += 1;
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Half of the p-values: Storey's `λ`, times `n + 1`.
    fn half(&self) -> usize {
        self.counts.len() / 2
    }

    /// The rows with p-values above `at / (n + 1)`.
    fn above(&self, at: usize) -> u64 {
        self.counts[at..].iter().sum()
    }

    /// Selects unknown rows at a false discovery rate.
    ///
    /// # Errors
    /// If the rate is not between 0 and 1.
    pub fn select(&self, fdr: f64) -> Result<Selection> {
        if !(fdr > 0.0 && fdr < 1.0) {
            return Err(Error::setting(format!("`fdr` is {fdr}")).hint("give a fraction such as 0.05"));
        }
        let (whole, half, rows) = (self.counts.len() as f64, self.half(), self.rows());
        // At most all rows are known.
        let known = ((1 + self.above(half)) as f64 / (1.0 - half as f64 / whole)).min(rows as f64);
        let mut found = Selection { rows, selected: 0, p_value: 0.0, estimate: rows as f64 - known };
        let mut selected = 0;
        for (i, count) in self.counts[..half].iter().enumerate() {
            selected += count;
            let p_value = (i + 1) as f64 / whole;
            if selected > 0 && p_value * known <= fdr * selected as f64 * (1.0 + 1e-12) {
                found = Selection { selected, p_value, ..found };
            }
        }
        Ok(found)
    }

    /// An interval for the number of unknown rows among these. With a probability of at least `level` it contains their
    /// number, if their p-values are at most 20%; its lower end is valid in any case.
    ///
    /// # Errors
    /// If the level is not between 0 and 1.
    pub fn unknown_rows(&self, level: f64) -> Result<(u64, u64)> {
        if !(level > 0.0 && level < 1.0) {
            return Err(Error::setting(format!("`level` is {level}")).hint("give a fraction such as 0.95"));
        }
        let at = self.counts.len() / 5;
        let (rows, above) = (self.rows(), self.above(at));
        if at == 0 {
            return Ok((0, rows));
        }
        let law = Law { a: (self.counts.len() - at) as f64, b: at as f64 };
        let tail = (1.0 - level) / 2.0;
        // Fewest known rows with which `above` or more are not too improbable; most, with which `above` or fewer are not.
        let fewest = first(above, rows, |known| law.at_least(above, known) > tail);
        let most = first(above, rows + 1, |known| law.at_most(above, known) <= tail).max(above + 1) - 1;
        Ok((rows - most.min(rows), rows - fewest))
    }
}

/// The first number of a range that a monotone condition holds for, or its end.
fn first(mut low: u64, mut high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The beta-binomial distribution.
struct Law {
    a: f64,
    b: f64,
}

impl Law {
    /// The logarithm of the probability of `k` out of `n`.
    fn log_probability(&self, k: u64, n: u64) -> f64 {
        let (k, n) = (k as f64, n as f64);
        let choose = libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
        let beta = |x: f64, y: f64| libm::lgamma(x) + libm::lgamma(y) - libm::lgamma(x + y);
        choose + beta(k + self.a, n - k + self.b) - beta(self.a, self.b)
    }

    /// The probability of `from..=to` out of `n`: the largest term by its logarithm, the others from their ratios.
    fn between(&self, from: u64, to: u64, n: u64) -> f64 {
        let mode = ((self.a / (self.a + self.b) * n as f64) as u64).clamp(from, to);
        let ratio = |k: u64| {
            // The probability of k + 1 over that of k.
            let (j, n) = (k as f64, n as f64);
            (n - j) / (j + 1.0) * (j + self.a) / (n - j - 1.0 + self.b)
        };
        let largest = libm::exp(self.log_probability(mode, n));
        let (mut sum, mut term) = (largest, largest);
        for k in mode..to {
            term *= ratio(k);
            sum += term;
            if term < 1e-18 * sum {
                break;
            }
        }
        term = largest;
        for k in (from..mode).rev() {
            term /= ratio(k);
            sum += term;
            if term < 1e-18 * sum {
                break;
            }
        }
        sum.min(1.0)
    }

    fn at_most(&self, k: u64, n: u64) -> f64 {
        self.between(0, k.min(n), n)
    }

    fn at_least(&self, k: u64, n: u64) -> f64 {
        if k > n { 0.0 } else { self.between(k, n, n) }
    }
}

impl Selection {
    /// The threshold under which rows are selected.
    pub fn threshold(&self, calibration: &Calibration) -> Threshold {
        let scores = calibration.scores();
        let below = (self.p_value * (scores.len() + 1) as f64).round() as usize;
        let confidence = below.checked_sub(1).and_then(|i| scores.get(i)).copied().unwrap_or(f64::NEG_INFINITY);
        Threshold { confidence, wanted: 1.0 - self.p_value, tpr: 1.0 - self.p_value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;
    use proptest::prelude::*;

    fn calibration(n: usize) -> Calibration {
        Calibration::new((1..=n).map(|i| i as f64).collect()).unwrap()
    }

    #[test]
    fn selection_by_hand() {
        let c = calibration(99);
        let mut p = PValues::new(&c);
        // Three rows at 1%, one at 2%, six spread above one half.
        p.add(&[0.01, 0.01, 0.01, 0.02, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0]);
        let s = p.select(0.05).unwrap();
        // Known rows: min(10, 7 / 0.5) = 10. At 2%: 0.02 * 10 = 0.2 = 0.05 * 4. At 1%: 0.1 <= 0.15.
        assert_eq!((s.rows, s.selected, s.p_value, s.estimate), (10, 4, 0.02, 0.0));
        let t = s.threshold(&c);
        assert!(!t.known(1.9) && t.known(2.0) && c.p_value(1.9) == 0.02);
        assert_eq!(p.select(0.01).unwrap().selected, 0);
        assert!(p.select(0.01).unwrap().threshold(&c).known(-1e300));
        assert!(p.select(0.0).is_err() && p.unknown_rows(1.0).is_err());
        let none = PValues::new(&c);
        assert_eq!((none.select(0.05).unwrap().selected, none.unknown_rows(0.9).unwrap()), (0, (0, 0)));
    }

    #[test]
    fn the_beta_binomial_distribution_adds_up() {
        let law = Law { a: 5.0, b: 3.0 };
        let all: Vec<f64> = (0..=40).map(|k| libm::exp(law.log_probability(k, 40))).collect();
        assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for k in 0..=40 {
            let below: f64 = all[..=k].iter().sum();
            assert!((law.at_most(k as u64, 40) - below).abs() < 1e-12);
            assert!((law.at_least(k as u64, 40) - (1.0 - below + all[k])).abs() < 1e-12);
        }
        // By hand: one draw is a success with probability a / (a + b).
        assert!((law.at_least(1, 1) - 0.625).abs() < 1e-14);
    }

    /// Batches with a new calibration set each: the false discovery rate, and how often the interval contains the number.
    #[test]
    fn false_discoveries_and_intervals_hold_over_calibration_sets() {
        let mut random = Stream::new(3, "batches");
        let (batches, rows, unknown) = (400, 200, 30);
        let (mut fdp, mut power, mut inside) = (0.0, 0.0, 0);
        for _ in 0..batches {
            let c = Calibration::new((0..199).map(|_| random.normal()).collect()).unwrap();
            let scores: Vec<f64> = (0..rows).map(|i| random.normal() - if i < unknown { 3.5 } else { 0.0 }).collect();
            let p: Vec<f64> = scores.iter().map(|&s| c.p_value(s)).collect();
            let mut counts = PValues::new(&c);
            counts.add(&p);
            let threshold = counts.select(0.1).unwrap().threshold(&c);
            let chosen: Vec<usize> = (0..rows).filter(|&i| !threshold.known(scores[i])).collect();
            let right = chosen.iter().filter(|&&i| i < unknown).count();
            fdp += (chosen.len() - right) as f64 / chosen.len().max(1) as f64;
            power += right as f64 / unknown as f64;
            let (low, high) = counts.unknown_rows(0.9).unwrap();
            inside += usize::from((low..=high).contains(&(unknown as u64)));
        }
        let n = batches as f64;
        // Standard errors: about 0.005 and 0.015.
        assert!(fdp / n < 0.1 + 0.015 && fdp / n > 0.05 && power / n > 0.5, "{} {}", fdp / n, power / n);
        assert!(inside as f64 / n > 0.9 - 0.045, "{inside} of {batches}");
    }

    proptest! {
        #[test]
        fn selected_rows_are_those_below_the_threshold(
            n in 1usize..60, at in proptest::collection::vec(-3.0f64..80.0, 1..80), fdr in 0.01f64..0.9,
        ) {
            let c = calibration(n);
            let mut p = PValues::new(&c);
            p.add(&at.iter().map(|&s| c.p_value(s)).collect::<Vec<_>>());
            let s = p.select(fdr).unwrap();
            let t = s.threshold(&c);
            prop_assert_eq!(at.iter().filter(|&&s| !t.known(s)).count() as u64, s.selected);
            let (low, high) = p.unknown_rows(0.9).unwrap();
            prop_assert!(low <= high && high <= s.rows);
        }
    }
}
