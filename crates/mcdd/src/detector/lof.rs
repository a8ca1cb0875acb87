//! Local outlier factor (Breunig et al.) for rows that were not in training: how much thinner a row's surroundings are
//! than those of its neighbors.
//!
//! With `N(x)` the `k` nearest training rows, `r(o)` the distance of a training row to its own k-th neighbor and
//! `lrd(x) = 1 / (mean over o in N(x) of max(|x - o|, r(o)) + 1e-10)`:
//! `confidence = -LOF(x) = -(mean over o in N(x) of lrd(o)) / lrd(x)`, about -1 inside and lower outside.
//!
//! These are the definitions of scikit-learn's `LocalOutlierFactor(novelty=True)`, with its 1e-10 for rows that lie on
//! top of each other, its default of 20 neighbors and `score_samples` for the confidence. A training row is no
//! neighbor of itself; among neighbors at the same distance, the `k` that come first count. As there, no more than
//! all but one of the training rows count as neighbors. A single row, which scikit-learn refuses, has no
//! neighbors: its `r` is 0.

use serde::{Deserialize, Serialize};

use super::knn::check_k;
use super::neighbors::{Index, Metric, Neighbor};
use super::{About, BLOCK, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;

/// Added to mean distances, so that the density of rows on top of each other has a limit.
const GUARD: f64 = 1e-10;
/// Neighbors that are kept between the two steps of a fit, 256 MB; with more of them, they are looked for twice.
const KEPT: usize = 1 << 24;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How many neighbors, 1 to 10,000; all others where there are fewer rows. Default: 20.
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
            summary: "local outlier factor: density around a row against that around its neighbors",
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
        Ok(Box::new(Lof::fit(index, self.k, pool, KEPT)))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let index = Index::load(Metric::Distance, state, "rows", self.k)?;
        let reach = state.take_f64("reach", &[index.count()])?;
        let density = state.take_f64("density", &[index.count()])?;
        if reach.iter().any(|&r| !(0.0..1e30).contains(&r))
            || density.iter().any(|&d| !(0.0..=1.1 / GUARD).contains(&d))
        {
            return Err(state.invalid("a distance or a density cannot be what it is"));
        }
        Ok(Box::new(Lof { k: neighbors(self.k, &index), index, reach, density }))
    }
}

/// How many neighbors count.
fn neighbors(k: usize, index: &Index) -> usize {
    k.min(index.count() - 1).max(1)
}

struct Lof {
    index: Index,
    k: usize,
    /// The distance of each row to its k-th neighbor.
    reach: Vec<f64>,
    /// `lrd` of each row.
    density: Vec<f64>,
}

impl Lof {
    /// Keeps neighbors between the steps if there are at most `kept` of them.
    fn fit(index: Index, k: usize, pool: &Pool, kept: usize) -> Lof {
        let (count, width) = (index.count(), index.width());
        let k = neighbors(k, &index);
        // One row has no neighbors at all.
        let each = k.min(count - 1);
        let keep = count.saturating_mul(each) <= kept;
        let none = Neighbor { value: 0.0, row: 0 };
        let mut all = vec![none; if keep { count * each } else { 0 }];
        let mut reach = vec![0.0; count];
        let block = |i: usize, rows: usize| &index.rows()[i * BLOCK * width..(i * BLOCK + rows) * width];
        pool.split((chunks(&mut reach, BLOCK), chunks(&mut all, BLOCK * each)), |i, (reach, all)| {
            index.nearest(block(i, reach.len()), each, Some(i * BLOCK), |q, found| {
                reach[q] = found.last().map_or(0.0, |last| libm::sqrt(last.value));
                if keep {
                    all[q * each..(q + 1) * each].copy_from_slice(found);
                }
            });
        });
        let mut density = vec![0.0; count];
        pool.split(chunks(&mut density, BLOCK), |i, density| {
            if keep {
                for (q, density) in density.iter_mut().enumerate() {
                    *density = local_density(&all[(i * BLOCK + q) * each..][..each], &reach);
                }
            } else {
                index.nearest(block(i, density.len()), each, Some(i * BLOCK), |q, found| {
                    density[q] = local_density(found, &reach);
                });
            }
        });
        Lof { index, k, reach, density }
    }
}

/// `lrd` of a row with these neighbors.
fn local_density(found: &[Neighbor], reach: &[f64]) -> f64 {
    let sum: f64 = found.iter().map(|n| libm::sqrt(n.value).max(reach[n.row])).sum();
    1.0 / (sum / found.len().max(1) as f64 + GUARD)
}

impl Detector for Lof {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        self.index.nearest(rows.features, self.k, None, |i, found| {
            let around = found.iter().map(|n| self.density[n.row]).sum::<f64>() / found.len() as f64;
            out[i] = -around / local_density(found, &self.reach);
        });
    }

    fn save(&self, state: &mut StateDict) {
        self.index.save(state, "rows");
        state.put_f64("reach", &[self.reach.len()], &self.reach);
        state.put_f64("density", &[self.density.len()], &self.density);
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

    /// The definition, with every distance.
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
    fn by_definition_with_and_without_keeping_neighbors() {
        let (width, k) = (3, 20);
        let mut train = rows(450, width, 1);
        // Copies, more of one row than there are neighbors.
        for i in 0..30 {
            train.copy_within(0..width, i * width);
        }
        let test = [rows(200, width, 2), train[..width * 40].to_vec()].concat();
        let expected = naive(&train, &test, width, k);
        let pool = Pool::new(2);
        for kept in [KEPT, 0] {
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
            let lof = Lof::fit(Index::new(Metric::Distance, rows(count, 2, 1), 2, 20, &pool), 20, &pool, KEPT);
            let mut got = [0.0; 2];
            let test = [rows(1, 2, 1), vec![100.0, 0.0]].concat();
            lof.score(&Features { count: 2, features: &test, logits: &[] }, &mut got, &mut DetectorBuffers::default());
            assert!(got[1] < got[0] && got[1].is_finite(), "{got:?}");
        }
    }

    /// What scikit-learn 1.9 gives for the same numbers.
    #[test]
    fn as_scikit_learn() {
        let point = |i: usize| [(i * i * 7919 % 1009) as f32 / 64.0, (i * i * i * 104_729 % 997) as f32 / 64.0];
        let train: Vec<f32> =
            (0..60).flat_map(|i| if i < 50 { point(i) } else { point(i - 50).map(|v| v / 4.0) }).collect();
        let test = [3.125, 2.25, 0.5, 7.875, 40.5, -4.125, 5.0625, 5.03125];
        let three = [-1.0119620333968744, -1.410983085295617, -11.366654287967998, -1.2968937225281238];
        let twenty = [-1.0148592877513845, -0.9982181536137699, -4.558809595049323, -0.9345469587196862];
        let pool = Pool::new(1);
        for (k, expected) in [(3, three), (20, twenty)] {
            let lof = Lof::fit(Index::new(Metric::Distance, train.clone(), 2, k, &pool), k, &pool, KEPT);
            let mut got = [0.0; 4];
            lof.score(&Features { count: 4, features: &test, logits: &[] }, &mut got, &mut DetectorBuffers::default());
            for (got, expected) in got.into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-9, "{got} {expected}");
            }
        }
    }
}
