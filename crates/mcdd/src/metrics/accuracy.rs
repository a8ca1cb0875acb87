//! Classification accuracy on in-distribution rows.

use serde::Serialize;

use super::bootstrap::{Interval, replicate, resample};
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

/// The 95% percentile bootstrap interval of the [`accuracy`]. The arguments are those of
/// [`bootstrap`](super::bootstrap); with the same seed the same rows are drawn.
///
/// # Errors
/// If there are no rows or no replicates.
pub fn accuracy_interval(correct: &[bool], replicates: usize, seed: u64, threads: usize) -> Result<Interval> {
    let n = accuracy(correct)?.n;
    let values = replicate(replicates, seed, threads, || {
        |stream: &mut _| {
            let mut hits = 0usize;
            resample(stream, n, |row| hits += usize::from(correct[row]));
            [hits as f64 / n as f64]
        }
    })?;
    let [interval] = Interval::of(values);
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_interval() {
        let correct: Vec<bool> = (0..400).map(|i| i % 10 != 0).collect();
        let a = accuracy(&correct).unwrap();
        assert_eq!(a, Accuracy { n: 400, correct: 360, accuracy: 0.9 });
        let i = accuracy_interval(&correct, 2000, 3, 0).unwrap();
        // Normal approximation: 0.9 +- 1.96 * sqrt(0.9 * 0.1 / 400).
        assert!((i.low - 0.8706).abs() < 0.006 && (i.high - 0.9294).abs() < 0.006, "{i:?}");
        assert_eq!(i, accuracy_interval(&correct, 2000, 3, 1).unwrap());
        let constant = accuracy_interval(&[true; 5], 10, 0, 2).unwrap();
        assert_eq!((constant.low, constant.high), (1.0, 1.0));
    }

    #[test]
    fn no_rows_and_no_replicates_are_errors() {
        assert!(accuracy(&[]).is_err());
        assert!(accuracy_interval(&[true], 0, 0, 0).is_err());
    }
}
