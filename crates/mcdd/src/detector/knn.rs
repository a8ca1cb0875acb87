//! Distance to the k-th nearest training row (Sun et al., after Ramaswamy et al. for outliers in tables):
//! `confidence = -|x - x_(k)|`.
//!
//! Neighbors are exact. All training rows are kept unless `rows` limits their number. Then random rows of the large
//! classes are dropped, and small classes stay complete. With `spread` the rows that are kept are spread evenly instead:
//! each is the one that is farthest from those before it (Gonzalez, Clustering to minimize the maximum intercluster distance,
//! 1985), so that no training row is far from a kept one. That needs fewer rows, if the nearest one is all that counts. With
//! `cover` their number follows from how near is near enough.
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
//! With `round` the rows are stored in 16 bits a number, half as many, if that changes distances by at most a hundredth of the median
//! distance between neighbors.
//!
//! The default of `k` is 5. The paper uses 50 and more, for 50,000 images and more; tables are smaller, and their classes
//! may have a few dozen rows.

use serde::{Deserialize, Serialize};

use super::kept_rows::{CANDIDATES, balanced_subset, covering, farthest_first, select};
use super::neighbors::{Index, Metric, normalize_rows, unit_rows};
use super::rounded_rows::RoundedRows;
use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};

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
    /// For `k` = 1: rows are dropped as long as the nearest kept row is within this fraction, 0 to 1, of the median distance
    /// between rows of different classes. None is dropped if half of the rows, or 4,000, would not be enough. Default: 0.
    pub cover: f64,
    /// Whether rows are stored in 16 bits a number where that is precise enough. Default: no.
    pub round: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { k: 5, normalize: false, log: false, rows: None, spread: false, cover: 0.0, round: false }
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
        if !(0.0..=1.0).contains(&self.cover) || (self.cover > 0.0 && self.k > 1) {
            return Err(out_of_range("cover", self.cover, "from 0 to 1, and 0 if k is above 1"));
        }
        check_k(self.k)
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let width = rows.width();
        let limit = self.rows.unwrap_or(rows.count);
        let some = if self.spread { limit.max(CANDIDATES) } else { limit };
        let (mut features, mut labels) = (rows.features.to_vec(), training.labels.map(<[u32]>::to_vec));
        if some < rows.count {
            let kept = balanced_subset(training.labels, rows.count, some, training.seed);
            features = select(&features, width, &kept);
            labels = labels.map(|labels| kept.iter().map(|&i| labels[i]).collect());
        }
        if self.normalize {
            features = normalize_rows(&features, width);
        }
        if self.spread && limit * width < features.len() {
            features = farthest_first(&features, width, limit, pool);
        } else if let (true, Some(labels)) = (self.cover > 0.0, labels) {
            features = covering(&features, width, &labels, self.cover, training.seed, pool).unwrap_or(features);
        }
        let rounded = self.round.then(|| RoundedRows::of(&features, width));
        let mut index = Index::new(Metric::Distance, features, width, self.k, pool);
        let smallest = if self.log || self.round { smallest_distance(&index, self.k) } else { 0.0 };
        let rounded = rounded.filter(|rounded| rounded.error() <= ROUNDING * smallest);
        if let Some(rounded) = &rounded {
            index = Index::new(Metric::Distance, rounded.rows(), width, self.k, pool);
        }
        let floor = if self.log { smallest } else { 0.0 };
        Ok(Box::new(Knn { config: self.clone(), index, rounded, floor }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let floor = if self.log { state.take_f64("floor", &[1])?[0] } else { 0.0 };
        if self.log && !(floor > 0.0 && floor.is_finite()) {
            return Err(state.invalid("the smallest distance is not a positive number"));
        }
        let rounded = match self.round && state.has("rows_steps") {
            true => Some(RoundedRows::load(state, "rows")?),
            false => None,
        };
        let index = match &rounded {
            Some(rounded) => Index::of_stored(Metric::Distance, rounded.rows(), state, self.k)?,
            None => Index::load(Metric::Distance, state, "rows", self.k)?,
        };
        Ok(Box::new(Knn { config: self.clone(), index, rounded, floor }))
    }
}

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

/// The largest change of a distance by rounding, as a fraction of the smallest distance.
const ROUNDING: f64 = 0.1;
/// Training rows that the median distance is computed from.
const SAMPLE: usize = 500;

/// Checks the range of a number of neighbors.
pub(super) fn check_k(k: usize) -> Result<()> {
    if (1..=10_000).contains(&k) { Ok(()) } else { Err(out_of_range("k", k, "from 1 to 10,000")) }
}

struct Knn {
    config: Config,
    index: Index,
    /// The rows as they are stored, if not as they are.
    rounded: Option<RoundedRows>,
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
        match &self.rounded {
            Some(rounded) => rounded.save(state, "rows"),
            None => self.index.save(state, "rows"),
        }
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
    use crate::container::Container;
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
    fn only_kept_rows_have_a_distance_of_zero() {
        let (train, width) = (rows(700, 3, "train"), 3);
        for kept in ["rows=60", "rows=60:spread=true"] {
            let scores = score(&format!("knn:k=1:{kept}"), &train, &train, width);
            assert_eq!(scores.iter().filter(|&&s| s == 0.0).count(), 60);
        }
        // Two classes far from each other need few rows for their distance, and none is dropped without classes.
        let labels: Vec<u32> = (0..700).map(|i| i % 2).collect();
        let far: Vec<f32> =
            train.iter().enumerate().map(|(i, v)| v + if i / 3 % 2 == 0 { 0.0 } else { 30.0 }).collect();
        let pool = Pool::new(1);
        for (labels, cover, fewest, most) in
            [(Some(&labels[..]), 0.02, 20, 200), (None, 0.02, 700, 700), (Some(&labels), 0.0, 700, 700)]
        {
            let features = Features { count: 700, features: &far, logits: &[] };
            let training = Training { rows: features, labels, classes: 2, ..Training::default() };
            let config = DetectorConfig::parse(&format!("knn:k=1:cover={cover}")).unwrap();
            let scores = Fitted::new(&config, &training, &pool).unwrap().score(&features, &pool).unwrap();
            let zeros = scores.iter().filter(|&&s| s == 0.0).count();
            assert!((fewest..=most).contains(&zeros), "{cover}: {zeros}");
            assert!(scores.iter().all(|&s| s > -1.1), "within 2% of the distance between the classes");
        }
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
    fn rounded_rows_take_half_the_bytes_where_they_are_precise_enough() {
        let (train, test) = (rows(600, 4, "train"), rows(100, 4, "test"));
        let pool = Pool::new(1);
        fn of(x: &[f32]) -> Features<'_> {
            Features { features: x, count: x.len() / 4, logits: &[] }
        }
        let fit = |config: &str, train: &[f32]| {
            let training = Training { rows: of(train), ..Training::default() };
            let config = DetectorConfig::parse(config).unwrap();
            let fitted = Fitted::new(&config, &training, &pool).unwrap();
            let mut container = Container::default();
            fitted.save(&mut StateDict::new(&mut container, ""));
            let bytes = container.to_bytes("mcdd test 1").len();
            let loaded = Fitted::load(&config, &mut StateDict::new(&mut container, "")).unwrap();
            let scores = fitted.score(&of(&test), &pool).unwrap();
            assert_eq!(scores, loaded.score(&of(&test), &pool).unwrap());
            (scores, bytes)
        };
        let (plain, all) = fit("knn:k=1", &train);
        let (rounded, half) = fit("knn:k=1:round=true", &train);
        assert!(half + 600 * 4 * 2 < all + 400, "{half} {all}");
        assert!(plain != rounded && plain.iter().zip(&rounded).all(|(a, b)| (a - b).abs() < 1e-3));
        // One huge value would make the steps of its column as wide as the others are apart.
        let mut outlier = train.clone();
        outlier[0] = 1e9;
        let (plain, all) = fit("knn:k=1", &outlier);
        let (kept, same) = fit("knn:k=1:round=true", &outlier);
        assert!(plain == kept && same.abs_diff(all) < 200, "{same} {all}");
    }

    #[test]
    fn setting_ranges() {
        for wrong in [
            "knn:k=0",
            "knn:rows=0",
            "knn:k=1:cover=1.5",
            "knn:k=1:cover=-0.1",
            "knn:k=2:cover=0.1",
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
