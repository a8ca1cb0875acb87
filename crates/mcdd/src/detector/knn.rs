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
//! With `relative` a distance counts relative to those around the neighbor, as in a local outlier factor (`lof`): where training
//! rows are far from each other, so are new ones. Let `r` be the mean distance of the neighbor to its own three nearest
//! neighbors, and `c` the geometric mean of that over the rows of its class. The confidence gains `relative log(r c)`. Distances below
//! `r / 2` are raised to that value: a copy of a training row that lies alone is no better than one in a crowd.
//!
//! With `norm` the confidence gains `norm` times the logarithm of the norm of the row. A network moves the rows of its classes
//! away from the center of all rows; what it does not know it moves less. `norm` is below 1, so that the confidence falls with the distance all
//! the same.
//!
//! With `reduce` neighbors are searched among principal components of the features (`reduction.rs`), and the norm is that of
//! the components. Of few rows twice as many components are kept: they cost little there, and are worth more.
//!
//! With `round` the rows are stored in 16 bits a number, half as many, if that changes distances by at most a hundredth of the median
//! distance between neighbors.
//!
//! The default of `k` is 5. The paper uses 50 and more, for 50,000 images and more; tables are smaller, and their classes
//! may have a few dozen rows.

use serde::{Deserialize, Serialize};

use super::kept_rows::{CANDIDATES, balanced_subset, covering, farthest_first, select};
use super::neighbors::{Index, Metric, normalize_rows, unit_rows};
use super::reduction::Reduction;
use super::rounded_rows::RoundedRows;
use super::{
    About, BLOCK, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training,
    out_of_range,
};
use crate::compute::pool::{Pool, chunks};
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
    /// With `log` and `k` = 1: how much a distance counts relative to those around the neighbor, from 0 to 1. Default: 0.
    pub relative: f64,
    /// With `log`: how much the norm of a row raises its confidence, from 0 to below 1. Default: 0.
    pub norm: f64,
    /// The largest number of principal components that neighbors are searched among, 1 or more; twice as many if there are fewer
    /// than 200 training rows. Default: the features as they are.
    pub reduce: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            k: 5,
            normalize: false,
            log: false,
            rows: None,
            spread: false,
            cover: 0.0,
            round: false,
            relative: 0.0,
            norm: 0.0,
            reduce: None,
        }
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
        if !(0.0..=1.0).contains(&self.relative) || (self.relative > 0.0 && (self.k > 1 || !self.log)) {
            return Err(out_of_range("relative", self.relative, "from 0 to 1, and 0 without log or if k is above 1"));
        }
        if !(0.0..1.0).contains(&self.norm) || (self.norm > 0.0 && !self.log) {
            return Err(out_of_range("norm", self.norm, "from 0 to below 1, and 0 without log"));
        }
        if self.reduce == Some(0) {
            return Err(out_of_range("reduce", 0, "1 or more"));
        }
        check_k(self.k)
    }

    fn max_width(&self) -> usize {
        if self.reduce.is_some() { MAX_SQUARE_WIDTH } else { usize::MAX }
    }

    fn used_rows(&self, labels: Option<&[u32]>, count: usize, seed: u64) -> Option<Vec<usize>> {
        let limit = self.rows.unwrap_or(count);
        let some = if self.spread { limit.max(CANDIDATES) } else { limit };
        (some < count).then(|| balanced_subset(labels, count, some, seed))
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let (count, mut width) = (training.rows.count, training.rows.width());
        let limit = self.rows.unwrap_or(count);
        let (mut features, mut labels) = (training.rows.features.to_vec(), training.labels.map(<[u32]>::to_vec));
        let labels_of = |labels: Option<Vec<u32>>, kept: &[usize]| -> Option<Vec<u32>> {
            labels.map(|labels| kept.iter().map(|&i| labels[i]).collect())
        };
        if let Some(kept) = self.used_rows(training.labels, count, training.seed) {
            (features, labels) = (select(&features, width, &kept), labels_of(labels, &kept));
        }
        let reduction = self.reduce.map(|components| {
            let components = if count < FEW_ROWS { components.saturating_mul(2) } else { components };
            let rows = Features { count: features.len() / width, features: &features, logits: &[] };
            Reduction::fit(&Training { rows, ..*training }, components, pool)
        });
        if let Some(reduction) = &reduction {
            features = reduction.apply_all(&features, pool);
            width = reduction.components();
        }
        if self.normalize {
            features = normalize_rows(&features, width);
        }
        let spread = self.spread && limit * width < features.len();
        let kept = if spread {
            Some(farthest_first(&features, width, limit, pool))
        } else {
            let labels = labels.as_ref().filter(|_| self.cover > 0.0);
            labels.and_then(|labels| covering(&features, width, labels, self.cover, training.seed, pool))
        };
        let mut around = Vec::new();
        if let Some(kept) = kept {
            // What is around a row is what was there before others were dropped.
            if self.relative > 0.0 && !spread {
                let all = Index::new(Metric::Distance, features.clone(), width, AROUND, pool);
                let all = around_rows(&all, labels.as_deref(), smallest_distance(&all, self.k), pool);
                around = kept.iter().map(|&i| all[i]).collect();
            }
            (features, labels) = (select(&features, width, &kept), labels_of(labels, &kept));
        }
        let rounded = self.round.then(|| RoundedRows::of(&features, width));
        let mut index = Index::new(Metric::Distance, features, width, self.k, pool);
        let smallest = if self.log || self.round { smallest_distance(&index, self.k) } else { 0.0 };
        let rounded = rounded.filter(|rounded| rounded.error() <= ROUNDING * smallest);
        if let Some(rounded) = &rounded {
            index = Index::new(Metric::Distance, rounded.rows(), width, self.k, pool);
        }
        let floor = if self.log { smallest } else { 0.0 };
        if self.relative > 0.0 && around.is_empty() {
            around = around_rows(&index, labels.as_deref(), floor, pool);
        }
        Ok(Box::new(Knn { config: self.clone(), reduction, index, rounded, floor, around }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let floor = if self.log { state.take_f64("floor", &[1])?[0] } else { 0.0 };
        if self.log && !(floor > 0.0 && floor.is_finite()) {
            return Err(state.invalid("the smallest distance is not a positive number"));
        }
        let reduction = self.reduce.map(|_| Reduction::load(state)).transpose()?;
        if let Some(reduction) = &reduction {
            state.set_shape(reduction.components(), state.classes());
        }
        let rounded = match self.round && state.has("rows_steps") {
            true => Some(RoundedRows::load(state, "rows")?),
            false => None,
        };
        let index = match &rounded {
            Some(rounded) => Index::of_stored(Metric::Distance, rounded.rows(), state, self.k)?,
            None => Index::load(Metric::Distance, state, "rows", self.k)?,
        };
        let around = match self.relative > 0.0 {
            true => state.take_f32("around", &[index.count(), 2])?.as_chunks().0.to_vec(),
            false => Vec::new(),
        };
        Ok(Box::new(Knn { config: self.clone(), reduction, index, rounded, floor, around }))
    }
}

/// For each stored row the logarithm of its mean distance to its nearest neighbors, and the mean of that over the rows of its class.
fn around_rows(index: &Index, labels: Option<&[u32]>, floor: f64, pool: &Pool) -> Vec<[f32; 2]> {
    let (count, width) = (index.count(), index.width());
    let mut own = vec![floor; count];
    pool.split(chunks(&mut own, BLOCK), |i, own| {
        let rows = &index.rows()[i * BLOCK * width..(i * BLOCK + own.len()) * width];
        index.nearest(rows, AROUND, Some(i * BLOCK), |q, found| {
            let sum: f64 = found.iter().map(|n| libm::sqrt(n.value)).sum();
            own[q] = libm::log((sum / found.len().max(1) as f64).max(floor));
        });
    });
    let class = |row: usize| labels.map_or(0, |labels| labels[row] as usize);
    let mut sums = vec![(0.0, 0.0); (0..count).map(class).max().map_or(0, |last| last + 1)];
    for (row, own) in own.iter().enumerate() {
        let sum = &mut sums[class(row)];
        *sum = (sum.0 + own, sum.1 + 1.0);
    }
    let mean = |row: usize| sums[class(row)].0 / sums[class(row)].1;
    own.iter().enumerate().map(|(row, &own)| [own as f32, mean(row) as f32]).collect()
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
/// With fewer rows there are more components.
const FEW_ROWS: usize = 200;
/// Training rows that the median distance is computed from.
const SAMPLE: usize = 500;
/// Neighbors of a training row whose mean distance is compared with.
const AROUND: usize = 3;
/// The smallest distance to a training row, as a fraction of this mean.
const LEAST: f64 = 0.5;

/// Checks the range of a number of neighbors.
pub(super) fn check_k(k: usize) -> Result<()> {
    if (1..=10_000).contains(&k) { Ok(()) } else { Err(out_of_range("k", k, "from 1 to 10,000")) }
}

struct Knn {
    config: Config,
    reduction: Option<Reduction>,
    index: Index,
    /// The rows as they are stored, if not as they are.
    rounded: Option<RoundedRows>,
    /// With `log`, the smallest distance.
    floor: f64,
    /// With `relative`, for each row what [`around_rows`] gives.
    around: Vec<[f32; 2]>,
}

impl Knn {
    /// For each stored row the logarithm of the smallest distance to it, and what its confidence gains.
    fn relative(&self, row: usize) -> [f64; 2] {
        match self.around.get(row) {
            Some(around) => {
                let [own, class] = around.map(f64::from);
                [own + libm::log(LEAST), self.config.relative * (own + class)]
            }
            None => [f64::NEG_INFINITY, 0.0],
        }
    }
}

impl Detector for Knn {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        let Config { k, log, norm, .. } = self.config;
        let width = self.index.width();
        let mut queries = match &self.reduction {
            Some(reduction) => reduction.apply(rows.features, &mut scratch.f32s),
            None => rows.features,
        };
        let normalized;
        if self.config.normalize {
            normalized = normalize_rows(queries, width);
            queries = &normalized;
        }
        self.index.nearest(queries, k, None, |i, found| {
            let distance = found.last().map_or(0.0, |last| libm::sqrt(last.value));
            out[i] = match log {
                true => {
                    let [least, gain] = self.relative(found.last().map_or(0, |last| last.row));
                    gain - libm::log(distance.max(self.floor)).max(least)
                }
                false => -distance,
            };
        });
        if norm > 0.0 {
            for (out, query) in out.iter_mut().zip(queries.chunks_exact(width)) {
                let square: f64 = query.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
                *out += norm * libm::log(libm::sqrt(square).max(self.floor));
            }
        }
    }

    fn save(&self, state: &mut StateDict) {
        if let Some(reduction) = &self.reduction {
            reduction.save(state);
        }
        if self.config.relative > 0.0 {
            state.put_f32("around", &[self.around.len(), 2], self.around.as_flattened());
        }
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
        if let Some(reduction) = &self.reduction {
            queries = reduction.to_onnx(graph, queries);
        }
        if self.config.normalize {
            queries = unit_rows(graph, queries);
        }
        let k = self.config.k.min(self.index.count());
        let farness = self.index.search_to_onnx(graph, queries, k, |graph, found| {
            // The last of the nearest.
            let [from, to, axis] = [k as i64 - 1, k as i64, 1].map(|i| graph.constant_i64(&[1], &[i]));
            let last = graph.op("Slice", &[found.values, from, to, axis]);
            let last = graph.op("Squeeze", &[last, axis]);
            let distance = graph.op("Sqrt", &[last]);
            if !self.config.log {
                return distance;
            }
            let distance = graph.at_least(distance, self.floor);
            let log = graph.op("Log", &[distance]);
            if self.around.is_empty() {
                return log;
            }
            let rows = found.rows(graph);
            let rows = graph.op("Squeeze", &[rows, axis]);
            let [least, gain] = [0, 1].map(|part| {
                let values: Vec<f64> = (0..self.around.len()).map(|row| self.relative(row)[part]).collect();
                let values = graph.constant(&[values.len()], &values);
                graph.op("Gather", &[values, rows])
            });
            let log = graph.op("Max", &[log, least]);
            graph.op("Sub", &[log, gain])
        })?;
        let mut confidence = graph.op("Neg", &[farness]);
        if self.config.norm > 0.0 {
            let squares = graph.squares(queries, false);
            let norm = graph.op("Sqrt", &[squares]);
            let norm = graph.at_least(norm, self.floor);
            let log = graph.op("Log", &[norm]);
            let part = graph.scale(log, self.config.norm);
            confidence = graph.op("Add", &[confidence, part]);
        }
        Ok(Scores { confidence, logits: None })
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

    /// Two classes, of which the second is three times as wide.
    fn two_classes(count: usize, name: &str) -> (Vec<f32>, Vec<u32>) {
        let labels: Vec<u32> = (0..count as u32).map(|i| i % 2).collect();
        let at = |(i, v): (usize, f32)| if i / 3 % 2 == 0 { v } else { 3.0 * v + 20.0 };
        (rows(count, 3, name).into_iter().enumerate().map(at).collect(), labels)
    }

    fn fit(config: &str, train: &[f32], labels: &[u32], parts: &[usize]) -> Fitted {
        let rows = Features { count: labels.len(), features: train, logits: &[] };
        let training = Training { rows, labels: Some(labels), classes: 2, parts, ..Training::default() };
        Fitted::new(&DetectorConfig::parse(config).unwrap(), &training, &Pool::new(2)).unwrap()
    }

    fn scores(fitted: &Fitted, x: &[f32]) -> Vec<f64> {
        let rows = Features { count: x.len() / fitted.width(), features: x, logits: &[] };
        fitted.score(&rows, &Pool::new(2)).unwrap()
    }

    #[test]
    fn distances_relative_to_those_around_match_the_definition() {
        let ((train, labels), (test, _)) = (two_classes(200, "train"), two_classes(80, "test"));
        let all: Vec<&[f32]> = train.chunks(3).collect();
        let distance = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
        };
        let own = |row: usize| {
            let mut d: Vec<f64> = (0..200).filter(|&i| i != row).map(|i| distance(all[i], all[row])).collect();
            d.sort_by(f64::total_cmp);
            (d[..3].iter().sum::<f64>() / 3.0).ln()
        };
        let own: Vec<f64> = (0..200).map(own).collect();
        let class = |c: u32| (0..200).filter(|&i| labels[i] == c).map(|i| own[i] / 100.0).sum::<f64>();
        let found = scores(&fit("knn:k=1:log=true:relative=0.3:norm=0.2", &train, &labels, &[]), &test);
        let copies = [test.clone(), train.clone()].concat();
        let both = scores(&fit("knn:k=1:log=true:relative=0.3:norm=0.2", &train, &labels, &[]), &copies);
        assert_eq!(found, both[..80]);
        for (x, found) in copies.chunks(3).zip(both) {
            let near = |&i: &usize| distance(x, all[i]);
            let i = (0..200).min_by(|a, b| near(a).total_cmp(&near(b))).unwrap();
            let least = near(&i).max(0.5 * own[i].exp());
            let expected = -least.ln() + 0.3 * (own[i] + class(labels[i])) + 0.2 * distance(x, &[0.0; 3]).ln();
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn what_is_around_a_row_is_what_was_there_before_rows_were_dropped() {
        let (train, labels) = two_classes(600, "train");
        let far: Vec<f32> = [[-9.0, -9.0, -9.0], [50.0, 50.0, 50.0], [200.0, 0.0, 0.0]].concat();
        let confidences = |cover: &str| {
            let fitted = fit(&format!("knn:k=1:log=true:relative=1:cover={cover}"), &train, &labels, &[]);
            let mut state = Container::default();
            fitted.save(&mut StateDict::new(&mut state, ""));
            (scores(&fitted, &far), state.to_bytes("mcdd test 1").len())
        };
        let ((all, large), (some, small)) = (confidences("0"), confidences("0.1"));
        assert!(2 * small < large, "{small} {large}");
        // Those of a third of the rows would be nearly twice as far from each other, in each of two logarithms.
        assert!(all.iter().zip(&some).all(|(a, b)| (a - b).abs() < 0.2), "{all:?} {some:?}");
    }

    #[test]
    fn few_rows_have_more_components() {
        let rows_stored = |count: usize| {
            let labels = vec![0; count];
            let fitted = fit("knn:k=1:reduce=2", &rows(count, 6, "train"), &labels, &[]);
            let mut state = Container::default();
            let mut dict = StateDict::new(&mut state, "");
            fitted.save(&mut dict);
            dict.shape::<2>("rows").unwrap()
        };
        assert_eq!((rows_stored(199), rows_stored(200)), ([199, 4], [200, 2]));
    }

    #[test]
    fn a_copy_of_a_lonely_row_is_no_better_than_one_of_a_frequent_row() {
        // Rows of zeros and ones, as those of a table of switches.
        let mut s = Stream::new(8, "switches");
        let mut row = |p: f64| -> Vec<f32> { (0..6).map(|_| f32::from(u8::from(s.uniform() < p))).collect() };
        let mut train: Vec<f32> = (0..300).flat_map(|_| row(0.03)).collect();
        train.extend([0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let labels: Vec<u32> = (0..301).map(|i| i % 2).collect();
        for config in ["knn:k=1:log=true", "knn:k=1:log=true:relative=0.3"] {
            let fitted = fit(config, &train, &labels, &[]);
            let found = scores(&fitted, &[[0.0; 6], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]].concat());
            assert!(found.iter().all(|s| s.is_finite()));
            assert!(if config.contains("relative") { found[0] > found[1] } else { found[0] == found[1] });
        }
    }

    #[test]
    fn far_rows_are_less_confident_and_saved_rows_score_the_same() {
        let (train, labels) = two_classes(300, "train");
        let far: Vec<f32> = [1e2, 1e3, 1e6, 1e10, 1e15].iter().flat_map(|&v| [v, -v, v]).collect();
        for config in [
            "knn:k=1:log=true:relative=0.3:norm=0.2:reduce=2",
            "knn:k=1:log=true:relative=1:norm=0.9:reduce=9",
            "knn:k=1:log=true:relative=0.3:norm=0.2:reduce=3:cover=0.2:round=true",
            "knn:k=1:log=true:relative=0.3:norm=0.2:reduce=3:rows=50:spread=true",
            "knn:k=3:reduce=2:normalize=true",
        ] {
            let fitted = fit(config, &train, &labels, &[1, 2]);
            let found = scores(&fitted, &far);
            assert!(found.iter().all(|s| s.is_finite()), "{config} {found:?}");
            if config.contains("norm=0") {
                assert!(found.is_sorted_by(|a, b| a > b), "{config} {found:?}");
            }
            let mut container = Container::default();
            fitted.save(&mut StateDict::new(&mut container, ""));
            let loaded = Fitted::load(fitted.config(), &mut StateDict::new(&mut container, "")).unwrap();
            assert_eq!(scores(&loaded, &train), scores(&fitted, &train));
        }
        for config in ["relative=0.3", "k=2:log=true:relative=0.3", "norm=0.2", "log=true:norm=1", "reduce=0"] {
            assert!(DetectorConfig::parse(&format!("knn:{config}")).is_err(), "{config}");
        }
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
