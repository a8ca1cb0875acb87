//! Local outlier factor (Breunig et al.) for new rows: the local density of a row's neighbors relative to its own.
//!
//! With `N(x)` the `k` nearest training rows, `r(o)` the distance of a training row to its own k-th neighbor (the
//! k-distance) and the local reachability density `lrd(x) = 1 / (mean over o in N(x) of max(|x - o|, r(o)) + 1e-10)`:
//! `confidence = -LOF(x) = -(mean over o in N(x) of lrd(o)) / lrd(x)`, about -1 for inliers and lower for outliers.
//!
//! These are the definitions of scikit-learn's `LocalOutlierFactor(novelty=True)`, with its 1e-10 for duplicate rows, its
//! default of 20 neighbors and its `score_samples`. A training row is not a neighbor of itself; among neighbors at the
//! same distance, the first ones count. As there, `k` is at most the number of training rows minus 1. A single training
//! row, which scikit-learn does not accept, has no neighbors: its `r` is 0.

use serde::{Deserialize, Serialize};

use super::knn::check_k;
use super::neighbors::{Index, Metric, Neighbor};
use super::{About, BLOCK, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Added to mean distances, so that the density of duplicate rows is finite.
const EPSILON: f64 = 1e-10;
/// The largest number of neighbors that are kept between the two steps of a fit, 256 MB; more are searched for twice.
const MAX_KEPT: usize = 1 << 24;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The number of neighbors, 1 to 10,000; all other rows if there are fewer. Default: 20.
    pub k: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { k: 20 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "lof",
            summary: "local outlier factor: the density around a row relative to that around its neighbors",
            reference: "Breunig, Kriegel, Ng, Sander: LOF: Identifying Density-Based Local Outliers, SIGMOD 2000",
            needs: Needs { features: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        check_k(self.k)
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let index = Index::new(Metric::Distance, rows.features.to_vec(), rows.width(), self.k, pool);
        Ok(Box::new(Lof::fit(index, self.k, pool, MAX_KEPT)))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let index = Index::load(Metric::Distance, state, "rows", self.k)?;
        let k_distance = state.take_f64("k_distance", &[index.count()])?;
        let density = state.take_f64("density", &[index.count()])?;
        if k_distance.iter().any(|&r| !(0.0..1e30).contains(&r))
            || density.iter().any(|&d| !(0.0..=1.1 / EPSILON).contains(&d))
        {
            return Err(state.invalid("a distance or a density is out of range"));
        }
        Ok(Box::new(Lof { k: neighbors(self.k, &index), index, k_distance, density }))
    }
}

/// The number of neighbors that count.
fn neighbors(k: usize, index: &Index) -> usize {
    k.min(index.count() - 1).max(1)
}

struct Lof {
    index: Index,
    k: usize,
    /// The k-distance of each row.
    k_distance: Vec<f64>,
    /// The local reachability density of each row.
    density: Vec<f64>,
}

impl Lof {
    /// Keeps neighbors between the two steps if there are at most `max_kept` of them.
    fn fit(index: Index, k: usize, pool: &Pool, max_kept: usize) -> Lof {
        let (count, width) = (index.count(), index.width());
        let k = neighbors(k, &index);
        // A single row has no neighbors.
        let each = k.min(count - 1);
        let keep = count.saturating_mul(each) <= max_kept;
        let none = Neighbor { value: 0.0, row: 0 };
        let mut all = vec![none; if keep { count * each } else { 0 }];
        let mut k_distance = vec![0.0; count];
        let block = |i: usize, rows: usize| &index.rows()[i * BLOCK * width..(i * BLOCK + rows) * width];
        pool.split((chunks(&mut k_distance, BLOCK), chunks(&mut all, BLOCK * each)), |i, (k_distance, all)| {
            index.nearest(block(i, k_distance.len()), each, Some(i * BLOCK), |q, found| {
                k_distance[q] = found.last().map_or(0.0, |last| libm::sqrt(last.value));
                if keep {
                    all[q * each..(q + 1) * each].copy_from_slice(found);
                }
            });
        });
        let mut density = vec![0.0; count];
        pool.split(chunks(&mut density, BLOCK), |i, density| {
            if keep {
                for (q, density) in density.iter_mut().enumerate() {
                    *density = local_density(&all[(i * BLOCK + q) * each..][..each], &k_distance);
                }
            } else {
                index.nearest(block(i, density.len()), each, Some(i * BLOCK), |q, found| {
                    density[q] = local_density(found, &k_distance);
                });
            }
        });
        Lof { index, k, k_distance, density }
    }
}

/// The local reachability density of a row with these neighbors.
fn local_density(found: &[Neighbor], k_distance: &[f64]) -> f64 {
    let sum: f64 = found.iter().map(|n| libm::sqrt(n.value).max(k_distance[n.row])).sum();
    1.0 / (sum / found.len().max(1) as f64 + EPSILON)
}

impl Detector for Lof {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        self.index.nearest(rows.features, self.k, None, |i, found| {
            let around = found.iter().map(|n| self.density[n.row]).sum::<f64>() / found.len() as f64;
            out[i] = -around / local_density(found, &self.k_distance);
        });
    }

    fn save(&self, state: &mut StateDict) {
        self.index.save(state, "rows");
        state.put_f64("k_distance", &[self.k_distance.len()], &self.k_distance);
        state.put_f64("density", &[self.density.len()], &self.density);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let confidence = self.index.search_to_onnx(graph, rows.features()?, self.k, |graph, found| {
            let count = self.density.len();
            let [reach, density] = [&self.k_distance, &self.density].map(|values| graph.constant(&[count], values));
            let rows = found.rows(graph);
            let [reach, density] = [reach, density].map(|values| graph.op("Gather", &[values, rows]));
            let distance = graph.op("Sqrt", &[found.values]);
            let reach = graph.op("Max", &[distance, reach]);
            let [reach, around] = [reach, density].map(|values| graph.reduce("ReduceMean", values, false));
            let reach = graph.shift(reach, EPSILON);
            let factor = graph.op("Mul", &[around, reach]);
            graph.op("Neg", &[factor])
        })?;
        Ok(Scores { confidence, logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    fn rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
        let mut s = Stream::new(seed, "lof");
        (0..count * width).map(|i| s.normal() as f32 * if (i / width).is_multiple_of(7) { 4.0 } else { 1.0 }).collect()
    }

    /// By definition, from all distances.
    fn naive(train: &[f32], test: &[f32], width: usize, k: usize) -> Vec<f64> {
        let distance = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum::<f64>().sqrt()
        };
        let nearest = |x: &[f32], own: Option<usize>| {
            let mut all: Vec<(f64, usize)> = train
                .chunks(width)
                .enumerate()
                .filter(|&(i, _)| own != Some(i))
                .map(|(i, o)| (distance(x, o), i))
                .collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            all.truncate(k);
            all
        };
        let own: Vec<_> = train.chunks(width).enumerate().map(|(i, x)| nearest(x, Some(i))).collect();
        let lrd =
            |n: &[(f64, usize)]| 1.0 / (n.iter().map(|&(d, o)| d.max(own[o][k - 1].0)).sum::<f64>() / k as f64 + 1e-10);
        let score = |x: &[f32]| {
            let n = nearest(x, None);
            -n.iter().map(|&(_, o)| lrd(&own[o])).sum::<f64>() / k as f64 / lrd(&n)
        };
        test.chunks(width).map(score).collect()
    }

    #[test]
    fn matches_definition_with_and_without_keeping_neighbors() {
        let (width, k) = (3, 20);
        let mut train = rows(450, width, 1);
        // More duplicates of one row than neighbors.
        for i in 0..30 {
            train.copy_within(0..width, i * width);
        }
        let test = [rows(200, width, 2), train[..width * 40].to_vec()].concat();
        let expected = naive(&train, &test, width, k);
        let pool = Pool::new(2);
        for kept in [MAX_KEPT, 0] {
            let lof = Lof::fit(Index::new(Metric::Distance, train.clone(), width, k, &pool), k, &pool, kept);
            let mut got = vec![0.0; 240];
            lof.score(
                &Features { count: 240, features: &test, logits: &[] },
                &mut got,
                &mut DetectorBuffers::default(),
            );
            for (got, expected) in got.iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-9 * expected.abs(), "{got} {expected}");
            }
        }
    }

    #[test]
    fn few_rows() {
        let pool = Pool::new(1);
        for count in 1..4 {
            let lof = Lof::fit(Index::new(Metric::Distance, rows(count, 2, 1), 2, 20, &pool), 20, &pool, MAX_KEPT);
            let mut got = [0.0; 2];
            let test = [rows(1, 2, 1), vec![100.0, 0.0]].concat();
            lof.score(&Features { count: 2, features: &test, logits: &[] }, &mut got, &mut DetectorBuffers::default());
            assert!(got[1] < got[0] && got[1].is_finite(), "{got:?}");
        }
    }

    /// The results of scikit-learn 1.9 for the same numbers.
    #[test]
    fn matches_scikit_learn() {
        let point = |i: usize| [(i * i * 7919 % 1009) as f32 / 64.0, (i * i * i * 104_729 % 997) as f32 / 64.0];
        let train: Vec<f32> =
            (0..60).flat_map(|i| if i < 50 { point(i) } else { point(i - 50).map(|v| v / 4.0) }).collect();
        let test = [3.125, 2.25, 0.5, 7.875, 40.5, -4.125, 5.0625, 5.03125];
        let three = [-1.0119620333968744, -1.410983085295617, -11.366654287967998, -1.2968937225281238];
        let twenty = [-1.0148592877513845, -0.9982181536137699, -4.558809595049323, -0.9345469587196862];
        let pool = Pool::new(1);
        for (k, expected) in [(3, three), (20, twenty)] {
            let lof = Lof::fit(Index::new(Metric::Distance, train.clone(), 2, k, &pool), k, &pool, MAX_KEPT);
            let mut got = [0.0; 4];
            lof.score(&Features { count: 4, features: &test, logits: &[] }, &mut got, &mut DetectorBuffers::default());
            for (got, expected) in got.into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-9, "{got} {expected}");
            }
        }
    }
}
