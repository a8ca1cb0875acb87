//! Nearest neighbor guidance (Park et al.): the energy of a row times its similarity to confident training rows.
//!
//! With `E = log sum exp(logits)`, `u = x / |x|` and the bank of training rows `b_i = E_i u_i`:
//! `confidence = E(x) * mean of the k largest u(x) b_i`. The similarity of a row of zeros is 0.
//!
//! The paper assumes positive energies, as a softmax head trained with cross-entropy has them. The formula is used as it
//! is for negative energies as well, where its meaning changes: a training row with a negative energy is reversed in the
//! bank, and for a scored row with a negative energy a higher similarity means a lower confidence. So if most energies are
//! negative (for example if logits are minus distances), this is not the paper's score.
//!
//! The bank is stored in f32, and inner products are computed exactly in f64. The default of `k` is 10, as in the authors'
//! code and in pytorch-ood. The paper also uses 1% of the bank, here `fraction`.

use serde::{Deserialize, Serialize};

use super::energy::log_sum_exp;
use super::knn::check_k;
use super::neighbors::{Index, Metric, normalize_rows, unit_rows};
use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training, out_of_range};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::seed::Stream;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The number of neighbors, 1 to 10,000; all rows of the bank if there are fewer. Default: 10.
    pub k: usize,
    /// The fraction of the training rows in the bank, drawn at random; above 0 and at most 1. Default: 1.
    pub fraction: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { k: 10, fraction: 1.0 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "nnguide",
            summary: "energy times the similarity to the nearest training rows",
            reference: "Park, Jung, Teoh: Nearest Neighbor Guidance for Out-of-Distribution Detection, ICCV 2023",
            needs: Needs { features: true, logits: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        check_k(self.k)?;
        if self.fraction > 0.0 && self.fraction <= 1.0 {
            Ok(())
        } else {
            Err(out_of_range("fraction", self.fraction, "above 0 and at most 1"))
        }
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let mut bank = Vec::new();
        for i in self.bank_rows(rows.count, training.seed) {
            let energy = log_sum_exp(rows.logit_row(i), 1.0);
            let scaled = normalize_rows(rows.feature_row(i), rows.width());
            bank.extend(scaled.into_iter().map(|v| (energy * f64::from(v)) as f32));
        }
        Ok(Box::new(Nnguide { k: self.k, bank: Index::new(Metric::Inner, bank, rows.width(), self.k, pool) }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Nnguide { k: self.k, bank: Index::load(Metric::Inner, state, "bank", self.k)? }))
    }
}

impl Config {
    /// The training rows in the bank, in order.
    fn bank_rows(&self, count: usize, seed: u64) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        let wanted = (self.fraction * count as f64).ceil() as usize;
        if wanted < count {
            Stream::new(seed, "nnguide/bank").shuffle(&mut all);
            all.truncate(wanted);
            all.sort_unstable();
        }
        all
    }
}

struct Nnguide {
    k: usize,
    bank: Index,
}

impl Detector for Nnguide {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        self.bank.nearest(&normalize_rows(rows.features, self.bank.width()), self.k, None, |i, found| {
            let similarity = -found.iter().map(|n| n.value).sum::<f64>() / found.len() as f64;
            out[i] = log_sum_exp(rows.logit_row(i), 1.0) * similarity;
        });
    }

    fn save(&self, state: &mut StateDict) {
        self.bank.save(state, "bank");
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let k = self.k.min(self.bank.count());
        let unit = unit_rows(graph, rows.features()?);
        let similarity =
            self.bank.search_to_onnx(graph, unit, k, |graph, found| graph.reduce("ReduceMean", found.values, false))?;
        let energy = graph.log_sum_exp(rows.logits()?, 1.0);
        Ok(Scores { confidence: graph.op("Mul", &[energy, similarity]), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_definition() {
        let (width, classes, n) = (5, 3, 300);
        let mut s = Stream::new(8, "nnguide");
        let mut features: Vec<f32> = (0..n * width).map(|_| s.normal() as f32).collect();
        features[..width].fill(0.0);
        // Some energies are negative.
        let logits: Vec<f64> = (0..n * classes).map(|_| 4.0 * s.normal()).collect();
        let rows = Features { count: n, features: &features, logits: &logits };
        let lse = |i: usize| rows.logit_row(i).iter().map(|l| l.exp()).sum::<f64>().ln();
        assert!((0..n).any(|i| lse(i) < 0.0));
        let length = |x: &[f32]| x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt().max(1e-300);
        let training = Training { rows, classes, ..Training::default() };
        for k in [1, 10, 1000] {
            let detector = Config { k, ..Config::default() }.fit(&training, &Pool::new(2)).unwrap();
            let mut got = vec![0.0; n];
            detector.score(&rows, &mut got, &mut DetectorBuffers::default());
            for (i, got) in got.into_iter().enumerate() {
                let x = rows.feature_row(i);
                let mut all: Vec<f64> = (0..n)
                    .map(|j| {
                        let y = rows.feature_row(j);
                        let dot: f64 = x.iter().zip(y).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                        lse(j) * dot / length(x) / length(y)
                    })
                    .collect();
                all.sort_by(|a, b| b.total_cmp(a));
                all.truncate(k);
                let expected = lse(i) * all.iter().sum::<f64>() / all.len() as f64;
                assert!((got - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{k}, {i}: {got} {expected}");
            }
        }
    }

    #[test]
    fn bank_is_a_fraction_of_the_rows() {
        let config = Config { fraction: 0.25, ..Config::default() };
        let chosen = config.bank_rows(10, 1);
        assert_eq!(chosen.len(), 3);
        assert!(chosen.is_sorted() && chosen.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(chosen, config.bank_rows(10, 1));
        assert!((2..50).any(|seed| chosen != config.bank_rows(10, seed)));
        assert_eq!(Config::default().bank_rows(4, 1), [0, 1, 2, 3]);
        assert_eq!(Config { fraction: 1e-9, ..Config::default() }.bank_rows(4, 1).len(), 1);
    }
}
