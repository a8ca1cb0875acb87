//! Classification accuracy on in-distribution rows.

use serde::Serialize;

use super::bootstrap::Interval;
use crate::error::{Error, Result};

/// The fraction of rows whose class was predicted correctly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Number of rows.
    pub n: usize,
    /// Number of correct rows.
    pub correct: usize,
    /// `correct / n`, between 0 and 1.
    pub accuracy: f64,
}

/// The accuracy, given whether the class of each row was predicted correctly.
///
/// # Errors
/// If there are no rows.
pub fn accuracy(correct: &[bool]) -> Result<Accuracy> {
    if correct.is_empty() {
        return Err(Error::data("there are no rows to compute the accuracy of"));
    }
    let (n, hits) = (correct.len(), correct.iter().filter(|&&c| c).count());
    Ok(Accuracy { n, correct: hits, accuracy: hits as f64 / n as f64 })
}

/// The 95% Wilson interval of the [`accuracy`]. With every row right it is not a single point, as a bootstrap interval would be.
///
/// # Errors
/// If there are no rows.
pub fn accuracy_interval(correct: &[bool]) -> Result<Interval> {
    /// The 97.5% quantile of the standard normal distribution.
    const Z: f64 = 1.959963984540054;
    let found = accuracy(correct)?;
    let (n, p) = (found.n as f64, found.accuracy);
    let center = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    // At the ends the formula is exact, and rounding is not.
    Ok(Interval {
        low: if found.correct == 0 { 0.0 } else { (center - half) / scale },
        high: if found.correct == found.n { 1.0 } else { (center + half) / scale },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn counts() {
        let correct: Vec<bool> = (0..400).map(|i| i % 10 != 0).collect();
        assert_eq!(accuracy(&correct).unwrap(), Accuracy { n: 400, correct: 360, accuracy: 0.9 });
        assert!(accuracy(&[]).is_err() && accuracy_interval(&[]).is_err());
    }

    /// The ends of a Wilson interval are the fractions from which the observed one is 1.96 standard errors away.
    #[test]
    fn ends_solve_the_equation() {
        for (hits, n) in [(0, 7), (1, 7), (5, 10), (10, 10), (360, 400)] {
            let correct: Vec<bool> = (0..n).map(|i| i < hits).collect();
            let Interval { low, high } = accuracy_interval(&correct).unwrap();
            let p = hits as f64 / n as f64;
            for end in [low, high] {
                let distance = (p - end).abs() / (end * (1.0 - end) / n as f64).sqrt();
                assert!(end == p || (distance - 1.959964).abs() < 1e-6, "{hits} of {n}: {end}");
            }
            assert!(low < high && low <= p && p <= high);
        }
    }

    #[test]
    fn covers_the_true_fraction() {
        let (mut stream, runs) = (Stream::new(1, "accuracy"), 4000);
        for truth in [0.5, 0.9, 0.97] {
            let covered = (0..runs)
                .filter(|_| {
                    let correct: Vec<bool> = (0..60).map(|_| stream.uniform() < truth).collect();
                    let Interval { low, high } = accuracy_interval(&correct).unwrap();
                    low <= truth && truth <= high
                })
                .count() as f64;
            assert!((0.92..0.99).contains(&(covered / f64::from(runs))), "{truth}: {covered}");
        }
    }
}
