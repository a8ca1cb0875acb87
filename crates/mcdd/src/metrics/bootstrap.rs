//! 95% percentile bootstrap intervals.
//!
//! Scores are sorted once. A replicate draws rows, counts them by tie group and makes one pass over the groups, so it
//! does not sort. Each replicate has its own random stream: the result does not depend on the number of threads, and
//! with the same seed two detectors are resampled with the same rows.

use std::num::NonZero;
use std::thread;

use serde::Serialize;

use super::detection::sweep;
use super::ties::{Counts, TieGroups};
use crate::compute::parallel_map;
use crate::error::{Error, Result};
use crate::seed::Stream;

/// A 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end; of a bootstrap interval the 2.5% quantile of the replicates.
    pub low: f64,
    /// The upper end; of a bootstrap interval the 97.5% quantile of the replicates.
    pub high: f64,
}

impl Interval {
    /// An interval for each of `N` metrics.
    pub(super) fn of<const N: usize>(replicates: Vec<[f64; N]>) -> [Interval; N] {
        std::array::from_fn(|metric| {
            let mut values: Vec<f64> = replicates.iter().map(|r| r[metric]).collect();
            values.sort_unstable_by(f64::total_cmp);
            Interval { low: quantile(&values, 0.025), high: quantile(&values, 0.975) }
        })
    }
}

/// Linear interpolation between order statistics (the default of NumPy and R); `sorted` is not empty.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

/// A 95% interval for each metric of a [`Detection`](super::Detection).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DetectionIntervals {
    /// Of [`Detection::auroc`](super::Detection::auroc).
    pub auroc: Interval,
    /// Of [`Detection::aupr_id`](super::Detection::aupr_id).
    pub aupr_id: Interval,
    /// Of [`Detection::aupr_ood`](super::Detection::aupr_ood).
    pub aupr_ood: Interval,
    /// Of [`Detection::tnr85`](super::Detection::tnr85).
    pub tnr85: Interval,
    /// Of [`Detection::tnr95`](super::Detection::tnr95).
    pub tnr95: Interval,
    /// Of [`Detection::fpr95_id`](super::Detection::fpr95_id).
    pub fpr95_id: Interval,
    /// Of [`Detection::fpr95_ood`](super::Detection::fpr95_ood).
    pub fpr95_ood: Interval,
    /// Of [`Detection::detection_accuracy`](super::Detection::detection_accuracy).
    pub detection_accuracy: Interval,
}

impl DetectionIntervals {
    /// The intervals in the order of [`Detection::rows`](super::Detection::rows).
    pub fn rows(&self) -> [Interval; 8] {
        [
            self.auroc,
            self.aupr_id,
            self.aupr_ood,
            self.tnr85,
            self.tnr95,
            self.fpr95_id,
            self.fpr95_ood,
            self.detection_accuracy,
        ]
    }
}

/// The 95% percentile bootstrap intervals of [`detection`](super::detection). ID and OOD rows are resampled separately,
/// with replacement.
///
/// `replicates` is at least 1 (typically 1000); `threads` is the number of threads, 0 for one on each core.
///
/// # Errors
/// If a side is empty, a score is NaN or `replicates` is 0.
pub fn bootstrap(id: &[f64], ood: &[f64], replicates: usize, seed: u64, threads: usize) -> Result<DetectionIntervals> {
    let groups = TieGroups::new(id, ood)?;
    let (n_id, n_ood) = (groups.n_id, groups.n_ood);
    let (id_groups, ood_groups) = groups.group_of.split_at(n_id);
    let values = replicate(replicates, seed, threads, || {
        let mut counts = vec![Counts::default(); groups.counts.len()];
        move |stream: &mut Stream| {
            counts.fill(Counts::default());
            resample(stream, n_id, |row| counts[id_groups[row] as usize].id += 1);
            resample(stream, n_ood, |row| counts[ood_groups[row] as usize].ood += 1);
            sweep(&counts, n_id, n_ood).rows().map(|row| row.value)
        }
    })?;
    let [auroc, aupr_id, aupr_ood, tnr85, tnr95, fpr95_id, fpr95_ood, detection_accuracy] = Interval::of(values);
    Ok(DetectionIntervals { auroc, aupr_id, aupr_ood, tnr85, tnr95, fpr95_id, fpr95_ood, detection_accuracy })
}

/// Draws `n` of `n` rows with replacement.
pub(super) fn resample(stream: &mut Stream, n: usize, mut take: impl FnMut(usize)) {
    for _ in 0..n {
        take(stream.below(n));
    }
}

/// The largest number of replicates: all are in memory until the quantiles are computed.
const MAX_REPLICATES: usize = 10_000_000;

/// Runs the replicates in contiguous parts on `threads` threads; `worker` makes the state of a thread.
pub(super) fn replicate<const N: usize, F>(
    replicates: usize,
    seed: u64,
    threads: usize,
    worker: impl Fn() -> F + Sync,
) -> Result<Vec<[f64; N]>>
where
    F: FnMut(&mut Stream) -> [f64; N],
{
    if replicates == 0 {
        return Err(
            Error::setting("a bootstrap interval needs at least one replicate").hint("1000 is a typical number")
        );
    }
    if replicates > MAX_REPLICATES {
        return Err(Error::setting(format!("{replicates} replicates are too many")).hint("1000 is a typical number"));
    }
    let threads = match threads {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        n => n,
    };
    let part = replicates.div_ceil(threads.min(replicates));
    let values = parallel_map(replicates.div_ceil(part), threads, |t| {
        let mut work = worker();
        let range = t * part..replicates.min((t + 1) * part);
        range.map(|i| work(&mut Stream::new(seed, &format!("bootstrap/{i}")))).collect::<Vec<_>>()
    });
    Ok(values.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::detection;

    fn normal(n: usize, shift: f64, name: &str) -> Vec<f64> {
        let mut stream = Stream::new(5, name);
        (0..n).map(|_| stream.normal() + shift).collect()
    }

    #[test]
    fn quantiles_interpolate() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert!((quantile(&values, 0.025) - 2.5).abs() < 1e-12);
        assert!((quantile(&values, 0.975) - 97.5).abs() < 1e-12);
        assert_eq!(quantile(&[3.0], 0.975), 3.0);
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let (id, ood) = (normal(300, 1.0, "id"), normal(100, 0.0, "ood"));
        let one = bootstrap(&id, &ood, 50, 9, 1).unwrap();
        for threads in [0, 2, 3, 7, 64] {
            assert_eq!(bootstrap(&id, &ood, 50, 9, threads).unwrap(), one);
        }
        assert_ne!(bootstrap(&id, &ood, 50, 10, 1).unwrap(), one);
    }

    #[test]
    fn contains_the_estimate_and_has_the_right_width() {
        let (id, ood) = (normal(500, 1.0, "id"), normal(400, 0.0, "ood"));
        let found = detection(&id, &ood).unwrap();
        let intervals = bootstrap(&id, &ood, 1000, 0, 0).unwrap();
        for (row, i) in found.rows().iter().zip(intervals.rows()) {
            assert!(i.low <= row.value && row.value <= i.high, "{row:?} {i:?}");
        }
        // Hanley and McNeil's standard error of the AUROC.
        let (a, m, n) = (found.auroc, 500.0, 400.0);
        let (q1, q2) = (a / (2.0 - a), 2.0 * a * a / (1.0 + a));
        let variance = (a * (1.0 - a) + (m - 1.0) * (q1 - a * a) + (n - 1.0) * (q2 - a * a)) / (m * n);
        let width = (intervals.auroc.high - intervals.auroc.low) / (2.0 * 1.96 * variance.sqrt());
        assert!((0.85..1.15).contains(&width), "{width}");
    }

    #[test]
    fn single_rows_have_intervals_of_width_zero() {
        let i = bootstrap(&[1.0], &[0.0], 20, 0, 0).unwrap();
        assert!(i.rows().iter().all(|i| i.low == i.high));
        assert!(bootstrap(&[1.0], &[0.0], 0, 0, 0).is_err());
        assert!(bootstrap(&[1.0], &[f64::NAN], 5, 0, 0).is_err());
    }
}
