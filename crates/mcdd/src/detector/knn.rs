//! The distance to the k-th nearest training row (Sun et al., after Ramaswamy et al. for outliers in tables):
//! `confidence = -|x - x_(k)|`.
//!
//! Neighbors are exact. All training rows are kept unless `rows` says how many at the most: then large classes lose
//! rows, chosen by the seed, until all fit, and those with less than their share stay whole. The paper divides deep features by their length first, which
//! helps features whose length says more about a network's sureness than about the input. Here that is a setting, off
//! by default: in tables, and in features trained with distances, the length is information. With it, a row of
//! nothing but zeros stays what it is.
//!
//! With `log` the confidence is minus the logarithm of that distance. The order is the same, but differences between
//! near rows count as much as those between far ones, which is what an average over several networks needs. A distance of
//! 0 has no logarithm: distances below a tenth of what is usual between training rows are taken
//! for that, so that copies of training rows do not decide what is a usual confidence.
//!
//! The default of `k` is 5. The paper takes 50 and more, for 50,000 images and more; tables are smaller, and classes in
//! them may have a few dozen rows.

use serde::{Deserialize, Serialize};

use super::neighbors::{Index, Metric, normalize_rows};
use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::seed::Stream;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which neighbor, 1 to 10,000; the farthest one where there are fewer rows. Default: 5.
    pub k: usize,
    /// Whether rows are divided by their length first. Default: no.
    pub normalize: bool,
    /// Whether the confidence is minus the logarithm of the distance. Default: no.
    pub log: bool,
    /// Training rows kept at the most, 1 or more. Default: all.
    pub rows: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Config { k: 5, normalize: false, log: false, rows: None }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "knn",
            summary: "distance to the k-th nearest training row",
            reference: "Sun, Ming, Zhu, Li: Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022",
            needs: Needs { features: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        if self.rows == Some(0) {
            return Err(out_of_range("rows", 0, "1 or more"));
        }
        check_k(self.k)
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let kept: Vec<f32> = match self.rows {
            Some(most) if most < rows.count => {
                coreset(training, most).into_iter().flat_map(|i| rows.feature_row(i)).copied().collect()
            }
            _ => rows.features.to_vec(),
        };
        let features = if self.normalize { normalize_rows(&kept, rows.width()) } else { kept };
        let index = Index::new(Metric::Distance, features, rows.width(), self.k, pool);
        let floor = if self.log { floor(&index, self.k) } else { 0.0 };
        Ok(Box::new(Knn { config: self.clone(), index, floor }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let floor = if self.log { state.take_f64("floor", &[1])?[0] } else { 0.0 };
        if self.log && !(floor > 0.0 && floor.is_finite()) {
            return Err(state.invalid("its least distance is no number above 0"));
        }
        Ok(Box::new(Knn { config: self.clone(), index: Index::load(Metric::Distance, state, "rows", self.k)?, floor }))
    }
}

/// `most` of the training rows, in their order: no class keeps more than another that has lost rows, but for one.
fn coreset(training: &Training, most: usize) -> Vec<usize> {
    let mut classes = vec![Vec::new(); training.classes.max(1)];
    for row in 0..training.rows.count {
        classes[training.labels.map_or(0, |l| l[row] as usize)].push(row);
    }
    // The smallest first: what they leave of their share goes to the larger ones.
    classes.sort_by_key(|rows| (rows.len(), rows.first().copied()));
    let (mut left, mut kept) = (most, Vec::with_capacity(most));
    let count = classes.len();
    for (i, rows) in classes.iter_mut().enumerate() {
        let share = rows.len().min(left / (count - i));
        if share < rows.len() {
            Stream::new(training.seed, &format!("knn/rows/{i}")).shuffle(rows);
        }
        kept.extend_from_slice(&rows[..share]);
        left -= share;
    }
    kept.sort_unstable();
    kept
}

/// A tenth of the usual distance of a training row to its neighbors; 1e-6 where all are the same.
fn floor(index: &Index, k: usize) -> f64 {
    let (rows, width) = (index.count(), index.width());
    let mut usual = Vec::new();
    for row in (0..rows).step_by(rows.div_ceil(SAMPLE)) {
        index.nearest(&index.rows()[row * width..(row + 1) * width], k, Some(row), |_, found| {
            usual.extend(found.last().map(|n| libm::sqrt(n.value)).filter(|&d| d > 0.0));
        });
    }
    usual.sort_by(f64::total_cmp);
    usual.get(usual.len() / 2).map_or(1e-6, |d| 0.1 * d)
}

/// Training rows that are asked for what is usual.
const SAMPLE: usize = 500;

/// The range of every `k`.
pub(super) fn check_k(k: usize) -> Result<()> {
    if (1..=10_000).contains(&k) { Ok(()) } else { Err(out_of_range("k", k, "between 1 and 10,000")) }
}

struct Knn {
    config: Config,
    index: Index,
    /// With `log`, the least distance.
    floor: f64,
}

impl Detector for Knn {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        let normalized;
        let queries = if self.config.normalize {
            normalized = normalize_rows(rows.features, self.index.width());
            &normalized
        } else {
            rows.features
        };
        self.index.nearest(queries, self.config.k, None, |i, found| {
            let distance = found.last().map_or(0.0, |last| libm::sqrt(last.value));
            out[i] = if self.config.log { -libm::log(distance.max(self.floor)) } else { -distance };
        });
    }

    fn save(&self, state: &mut StateDict) {
        self.index.save(state, "rows");
        if self.config.log {
            state.put_f64("floor", &[1], &[self.floor]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::{DetectorConfig, Fitted};
    use crate::seed::Stream;

    fn rows(count: usize, width: usize, name: &str) -> Vec<f32> {
        let mut s = Stream::new(3, name);
        (0..count * width).map(|_| s.normal() as f32).collect()
    }

    fn score(config: &str, train: &[f32], test: &[f32], width: usize) -> Vec<f64> {
        let pool = Pool::new(2);
        let of = |x| Features { features: x, count: <[f32]>::len(x) / width, logits: &[] };
        let training = Training { rows: of(train), ..Training::default() };
        let fitted = Fitted::new(&DetectorConfig::parse(config).unwrap(), &training, &pool).unwrap();
        fitted.score(&of(test), &pool).unwrap()
    }

    #[test]
    fn by_definition() {
        let width = 7;
        let (train, test) = (rows(400, width, "train"), rows(250, width, "test"));
        for normalize in [false, true] {
            let length =
                |x: &[f32]| if normalize { x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt() } else { 1.0 };
            for k in [1, 5, 400, 1000] {
                let got = score(&format!("knn:k={k}:normalize={normalize}"), &train, &test, width);
                for (got, x) in got.iter().zip(test.chunks(width)) {
                    let distance = |y: &[f32]| {
                        let d = |(&a, &b): (&f32, &f32)| f64::from(a) / length(x) - f64::from(b) / length(y);
                        x.iter().zip(y).map(|p| d(p).powi(2)).sum::<f64>().sqrt()
                    };
                    let mut all: Vec<f64> = train.chunks(width).map(distance).collect();
                    all.sort_by(f64::total_cmp);
                    let expected = -all[k.min(400) - 1];
                    assert!((got - expected).abs() < 1e-6 * expected.abs(), "{k}: {got} {expected}");
                }
            }
        }
    }

    #[test]
    fn small_classes_stay_whole_when_rows_are_left_out() {
        // Three classes of 10, 100 and 1000 rows.
        let labels: Vec<u32> = (0..1110).map(|i| if i < 10 { 0 } else { 1 + u32::from(i >= 110) }).collect();
        let features = rows(1110, 2, "coreset");
        let training = Training {
            rows: Features { count: 1110, features: &features, logits: &[] },
            labels: Some(&labels),
            classes: 3,
            ..Training::default()
        };
        let sizes = |most: usize| {
            let kept = coreset(&training, most);
            assert!(kept.len() == most && kept.is_sorted_by(|a, b| a < b));
            [0, 1, 2].map(|c| kept.iter().filter(|&&r| labels[r] == c).count())
        };
        assert_eq!(sizes(300), [10, 100, 190]);
        assert_eq!(sizes(101), [10, 45, 46]);
        assert_eq!(sizes(2), [0, 1, 1]);
        let blind = Training { labels: None, classes: 0, ..training };
        assert_eq!(coreset(&blind, 50).len(), 50);
        assert_ne!(coreset(&blind, 50), coreset(&Training { seed: 1, ..blind }, 50));
        // What is kept is its own nearest neighbor.
        let pool = Pool::new(1);
        let fitted = Fitted::new(&DetectorConfig::parse("knn:k=1:rows=50").unwrap(), &blind, &pool).unwrap();
        let scores = fitted.score(&blind.rows, &pool).unwrap();
        assert!(coreset(&blind, 50).iter().all(|&r| scores[r] == 0.0));
        assert_eq!(scores.iter().filter(|&&s| s == 0.0).count(), 50);
    }

    #[test]
    fn a_logarithm_keeps_the_order_and_has_a_floor() {
        let (train, test) = (rows(300, 4, "train"), rows(100, 4, "test"));
        let (plain, log) = (score("knn:k=1", &train, &test, 4), score("knn:k=1:log=true", &train, &test, 4));
        let near = score("knn:k=1:log=true", &train, &train, 4);
        assert!(log.iter().filter(|&&l| l == near[0]).count() < 5);
        for (p, l) in plain.iter().zip(&log) {
            assert!((l + (-p).ln()).abs() < 1e-12 || *l == near[0]);
        }
        // Features that are there: as near as can be told, and finite.
        assert!(near.iter().all(|s| s.is_finite() && *s == near[0] && log.iter().all(|l| l <= s)));
        let same = score("knn:k=1:log=true", &[1.0; 40], &[1.0, 1.0, 2.0, 2.0], 2);
        assert!(same.iter().all(|s| s.is_finite()) && same[0] > same[1]);
    }

    #[test]
    fn k_has_a_range() {
        for wrong in
            ["knn:k=0", "knn:rows=0", "knn:k=10001", "lof:k=0", "nnguide:k=0", "nnguide:share=0", "nnguide:share=1.1"]
        {
            assert!(DetectorConfig::parse(wrong).is_err(), "{wrong}");
        }
        assert!(DetectorConfig::parse("knn:k=10000").is_ok());
    }
}
