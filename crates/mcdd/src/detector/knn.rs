//! Distance to the k-th nearest training row (Sun et al., after Ramaswamy et al. for outliers in tables):
//! `confidence = -|x - x_(k)|`.
//!
//! Neighbors are exact. All training rows are kept unless `rows` limits their number. Then random rows of the large
//! classes are dropped, and small classes stay complete. With `spread` the rows that are kept are spread evenly instead:
//! each is the one that is farthest from those before it (Gonzalez, Clustering to minimize the maximum intercluster distance,
//! 1985), so that no training row is far from a kept one. That needs fewer rows, if the nearest one is all that counts.
//!
//! The paper normalizes deep features first. This helps if the norm depends more on the network's certainty than on the
//! input. Here it is a setting, off by default: in tables, and in features trained with distances, the norm is
//! informative. A row of zeros is not normalized.
//!
//! With `log` the confidence is minus the logarithm of the distance. The order is the same, but differences between near
//! rows count as much as those between far ones, which an average over several networks needs. Distances below a tenth of
//! the median distance between training rows are raised to that value. Otherwise 0 would have no logarithm, and
//! duplicates of training rows would dominate the scale of the confidences.
//!
//! The default of `k` is 5. The paper uses 50 and more, for 50,000 images and more; tables are smaller, and their classes
//! may have a few dozen rows.

use serde::{Deserialize, Serialize};

use super::neighbors::{Index, Metric, normalize_rows, unit_rows};
use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::pool::{Pool, chunks};
use crate::compute::vector::squared_distance;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::seed::Stream;
use crate::stats::moments::mean;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The rank of the neighbor, 1 to 10,000; the farthest row if there are fewer. Default: 5.
    pub k: usize,
    /// Whether rows are divided by their norm first. Default: no.
    pub normalize: bool,
    /// Whether the confidence is minus the logarithm of the distance. Default: no.
    pub log: bool,
    /// The largest number of training rows to keep, 1 or more. Default: all.
    pub rows: Option<usize>,
    /// Whether these are spread evenly instead of random. Default: no.
    pub spread: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { k: 5, normalize: false, log: false, rows: None, spread: false }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "knn",
            summary: "minus the distance to the k-th nearest training row",
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
        let width = rows.width();
        let limit = self.rows.unwrap_or(rows.count);
        let some = if self.spread { limit.max(CANDIDATES) } else { limit };
        let features: Vec<f32> = if some < rows.count {
            balanced_subset(training, some).into_iter().flat_map(|i| rows.feature_row(i)).copied().collect()
        } else {
            rows.features.to_vec()
        };
        let mut features = if self.normalize { normalize_rows(&features, width) } else { features };
        if self.spread && limit * width < features.len() {
            features = farthest_first(&features, width, limit, pool);
        }
        let index = Index::new(Metric::Distance, features, rows.width(), self.k, pool);
        let floor = if self.log { smallest_distance(&index, self.k) } else { 0.0 };
        Ok(Box::new(Knn { config: self.clone(), index, floor }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let floor = if self.log { state.take_f64("floor", &[1])?[0] } else { 0.0 };
        if self.log && !(floor > 0.0 && floor.is_finite()) {
            return Err(state.invalid("the smallest distance is not a positive number"));
        }
        Ok(Box::new(Knn { config: self.clone(), index: Index::load(Metric::Distance, state, "rows", self.k)?, floor }))
    }
}

/// `limit` of the training rows, in their order. Only the largest classes lose rows, and these end up equally large up to
/// one row.
fn balanced_subset(training: &Training, limit: usize) -> Vec<usize> {
    let mut classes = vec![Vec::new(); training.classes.max(1)];
    for row in 0..training.rows.count {
        classes[training.labels.map_or(0, |l| l[row] as usize)].push(row);
    }
    // The smallest class first: what it does not use of its quota goes to the larger ones.
    classes.sort_by_key(|rows| (rows.len(), rows.first().copied()));
    let (mut left, mut kept) = (limit, Vec::with_capacity(limit));
    let count = classes.len();
    for (i, rows) in classes.iter_mut().enumerate() {
        let quota = rows.len().min(left / (count - i));
        if quota < rows.len() {
            Stream::new(training.seed, &format!("knn/rows/{i}")).shuffle(rows);
        }
        kept.extend_from_slice(&rows[..quota]);
        left -= quota;
    }
    kept.sort_unstable();
    kept
}

/// At most `limit` of the rows: the one that is nearest to the mean, then each time the one that is farthest from all before it.
/// Copies of a row are kept once. Ties go to the earlier row.
fn farthest_first(rows: &[f32], width: usize, limit: usize, pool: &Pool) -> Vec<f32> {
    let center: Vec<f32> = mean(rows, width).into_iter().map(|v| v as f32).collect();
    let count = rows.len() / width;
    let distance = |i: usize, to: &[f32]| squared_distance(&rows[i * width..(i + 1) * width], to);
    let first = (0..count).map(|i| distance(i, &center)).enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    let mut next = first.map_or(0, |(i, _)| i);
    // Of each row, the squared distance to the nearest kept one.
    let mut nearest = vec![f32::INFINITY; count];
    let mut kept = Vec::with_capacity(limit * width);
    loop {
        let new = &rows[next * width..(next + 1) * width];
        kept.extend_from_slice(new);
        if kept.len() == limit * width {
            return kept;
        }
        pool.split(chunks(&mut nearest, TOGETHER), |c, nearest| {
            for (i, nearest) in (c * TOGETHER..).zip(nearest) {
                *nearest = nearest.min(distance(i, new));
            }
        });
        next = (0..count).fold(0, |best, i| if nearest[i] > nearest[best] { i } else { best });
        if nearest[next] <= 0.0 {
            return kept;
        }
    }
}

/// Rows among which those that are spread evenly are chosen.
const CANDIDATES: usize = 20_000;
/// Rows whose distances are computed together.
const TOGETHER: usize = 2048;

/// A tenth of the median distance of training rows to their k-th neighbor; 1e-6 if all rows are equal.
fn smallest_distance(index: &Index, k: usize) -> f64 {
    let (rows, width) = (index.count(), index.width());
    let mut distances = Vec::new();
    for row in (0..rows).step_by(rows.div_ceil(SAMPLE)) {
        index.nearest(&index.rows()[row * width..(row + 1) * width], k, Some(row), |_, found| {
            distances.extend(found.last().map(|n| libm::sqrt(n.value)).filter(|&d| d > 0.0));
        });
    }
    distances.sort_by(f64::total_cmp);
    distances.get(distances.len() / 2).map_or(1e-6, |d| 0.1 * d)
}

/// Training rows that the median distance is computed from.
const SAMPLE: usize = 500;

/// Checks the range of a number of neighbors.
pub(super) fn check_k(k: usize) -> Result<()> {
    if (1..=10_000).contains(&k) { Ok(()) } else { Err(out_of_range("k", k, "from 1 to 10,000")) }
}

struct Knn {
    config: Config,
    index: Index,
    /// With `log`, the smallest distance.
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

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let mut queries = rows.features()?;
        if self.config.normalize {
            queries = unit_rows(graph, queries);
        }
        let k = self.config.k.min(self.index.count());
        let squares = self.index.search_to_onnx(graph, queries, k, |graph, found| {
            // The last of the nearest.
            let [from, to, axis] = [k as i64 - 1, k as i64, 1].map(|i| graph.constant_i64(&[1], &[i]));
            let last = graph.op("Slice", &[found.values, from, to, axis]);
            graph.op("Squeeze", &[last, axis])
        })?;
        let distance = graph.op("Sqrt", &[squares]);
        let found = match self.config.log {
            true => {
                let distance = graph.at_least(distance, self.floor);
                graph.op("Log", &[distance])
            }
            false => distance,
        };
        Ok(Scores { confidence: graph.op("Neg", &[found]), logits: None })
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
    fn matches_definition() {
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
    fn small_classes_stay_complete() {
        // Three classes of 10, 100 and 1000 rows.
        let labels: Vec<u32> = (0..1110).map(|i| if i < 10 { 0 } else { 1 + u32::from(i >= 110) }).collect();
        let features = rows(1110, 2, "coreset");
        let training = Training {
            rows: Features { count: 1110, features: &features, logits: &[] },
            labels: Some(&labels),
            classes: 3,
            ..Training::default()
        };
        let sizes = |limit: usize| {
            let kept = balanced_subset(&training, limit);
            assert!(kept.len() == limit && kept.is_sorted_by(|a, b| a < b));
            [0, 1, 2].map(|c| kept.iter().filter(|&&r| labels[r] == c).count())
        };
        assert_eq!(sizes(300), [10, 100, 190]);
        assert_eq!(sizes(101), [10, 45, 46]);
        assert_eq!(sizes(2), [0, 1, 1]);
        let unlabeled = Training { labels: None, classes: 0, ..training };
        assert_eq!(balanced_subset(&unlabeled, 50).len(), 50);
        assert_ne!(balanced_subset(&unlabeled, 50), balanced_subset(&Training { seed: 1, ..unlabeled }, 50));
        // A kept row is its own nearest neighbor.
        let pool = Pool::new(1);
        let fitted = Fitted::new(&DetectorConfig::parse("knn:k=1:rows=50").unwrap(), &unlabeled, &pool).unwrap();
        let scores = fitted.score(&unlabeled.rows, &pool).unwrap();
        assert!(balanced_subset(&unlabeled, 50).iter().all(|&r| scores[r] == 0.0));
        assert_eq!(scores.iter().filter(|&&s| s == 0.0).count(), 50);
    }

    #[test]
    fn spread_rows_cover_all_others() {
        let (train, width) = (rows(700, 3, "train"), 3);
        let all: Vec<&[f32]> = train.chunks(width).collect();
        let of = |limit: usize| {
            let kept = farthest_first(&train, width, limit, &Pool::new(2));
            assert_eq!(kept, farthest_first(&train, width, limit, &Pool::new(1)));
            kept
        };
        let kept = of(60);
        assert_eq!(kept.len(), 60 * width);
        let near =
            |x: &[f32], rows: &[f32]| rows.chunks(width).map(|y| squared_distance(x, y)).fold(f32::INFINITY, f32::min);
        // Every row is as near to a kept one as the kept ones are to each other, at least.
        let cover = all.iter().map(|x| near(x, &kept)).fold(0.0, f32::max);
        for (i, x) in kept.chunks(width).enumerate() {
            assert!(all.contains(&x));
            assert!(near(x, &[&kept[..i * width], &kept[(i + 1) * width..]].concat()) >= cover);
        }
        // Fewer rows are the first of more; copies are kept once.
        assert_eq!(of(20), kept[..20 * width]);
        let twice = [&train[..], &train].concat();
        assert_eq!(farthest_first(&twice, width, 1000, &Pool::new(1)).len(), train.len());
        // As a setting: only kept rows have a distance of 0.
        let scores = score("knn:k=1:rows=60:spread=true", &train, &train, width);
        assert_eq!(scores.iter().filter(|&&s| s == 0.0).count(), 60);
    }

    #[test]
    fn logarithm_keeps_the_order_and_has_a_floor() {
        let (train, test) = (rows(300, 4, "train"), rows(100, 4, "test"));
        let (plain, log) = (score("knn:k=1", &train, &test, 4), score("knn:k=1:log=true", &train, &test, 4));
        let near = score("knn:k=1:log=true", &train, &train, 4);
        assert!(log.iter().filter(|&&l| l == near[0]).count() < 5);
        for (p, l) in plain.iter().zip(&log) {
            assert!((l + (-p).ln()).abs() < 1e-12 || *l == near[0]);
        }
        // Training rows have the highest score, which is finite.
        assert!(near.iter().all(|s| s.is_finite() && *s == near[0] && log.iter().all(|l| l <= s)));
        let same = score("knn:k=1:log=true", &[1.0; 40], &[1.0, 1.0, 2.0, 2.0], 2);
        assert!(same.iter().all(|s| s.is_finite()) && same[0] > same[1]);
    }

    #[test]
    fn setting_ranges() {
        for wrong in [
            "knn:k=0",
            "knn:rows=0",
            "knn:k=10001",
            "lof:k=0",
            "nnguide:k=0",
            "nnguide:fraction=0",
            "nnguide:fraction=1.1",
        ] {
            assert!(DetectorConfig::parse(wrong).is_err(), "{wrong}");
        }
        assert!(DetectorConfig::parse("knn:k=10000").is_ok());
    }
}
