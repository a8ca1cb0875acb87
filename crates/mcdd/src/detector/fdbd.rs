//! Distance to the decision boundaries (fDBD): the mean over all classes but the predicted one, c, of the distance of
//! the features to the boundary between the two, `|l_c - l_k| / |w_c - w_k|`, over their distance to the mean of the
//! training features.
//!
//! It has no settings. Classes whose weights are all but those of the predicted one (closer than 1e-6 of the largest
//! distance between two) have no boundary with it and are left out of the mean; if none is left, the score is 0. The
//! distance to the mean is at least 1e-8 of that of a typical training row, so that a row at the mean has a finite
//! score. The table of `|w_c - w_k|` takes 4 bytes for each pair of classes.

use serde::{Deserialize, Serialize};

use super::last_layer::LastLayer;
use super::{About, Detector, DetectorBuffers, Features, Method, Needs, Store, Training};
use crate::compute::argmax;
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::stats::moments;

/// Weights closer than this part of the largest distance are the same.
const SAME: f32 = 1e-6;
/// The least distance to the mean, as a part of the training rows' root mean square.
const NEAR: f64 = 1e-8;

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Method for Config {
    const ABOUT: About = About {
        name: "fdbd",
        summary: "mean distance to the decision boundaries, relative to the distance to the training mean",
        reference: "Liu, Qin: Fast Decision Boundary based Out-of-Distribution Detector, ICML 2024",
        needs: Needs { features: true, logits: true, linear: true, ..Needs::NONE },
    };

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let layer = LastLayer::of(training, pool)?;
        let features = training.rows.features;
        let mean = moments::mean(features, layer.width);
        let squares: f64 = features.chunks_exact(layer.width).map(|x| squared_distance(x, &mean)).sum();
        let typical = libm::sqrt(squares / training.rows.count as f64);
        let floor = NEAR * if typical > 0.0 { typical } else { 1.0 };
        Ok(Box::new(Fdbd { between: between(&layer, pool), mean, floor }))
    }

    fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>> {
        let (width, classes) = (store.width(), store.classes());
        if store.shape("between")? != [classes, classes] {
            return Err(store.wrong("the boundaries are of other classes"));
        }
        let between = store.take_f32("between", &[classes, classes])?;
        let mean = store.take_f64("mean", &[width])?;
        let floor = store.take_f64("floor", &[1])?[0];
        if between.iter().any(|&v| v < 0.0) || mean.iter().any(|v| v.abs() > 1e100) || !(1e-100..1e100).contains(&floor)
        {
            return Err(store.wrong("a distance is out of range"));
        }
        Ok(Box::new(Fdbd { between, mean, floor }))
    }
}

fn squared_distance(x: &[f32], mean: &[f64]) -> f64 {
    x.iter().zip(mean).map(|(&x, m)| (f64::from(x) - m) * (f64::from(x) - m)).sum()
}

/// The distances between the weights of each two classes; 0 for those without a boundary between them.
fn between(layer: &LastLayer, pool: &Pool) -> Vec<f32> {
    let classes = layer.classes();
    let mut table = vec![0.0f32; classes * classes];
    pool.split(chunks(&mut table, classes), |c, row| {
        for (k, out) in row.iter_mut().enumerate() {
            let squares = layer.class(c).iter().zip(layer.class(k)).map(|(&a, &b)| {
                let d = f64::from(a) - f64::from(b);
                d * d
            });
            *out = libm::sqrt(squares.sum()) as f32;
        }
    });
    let floor = SAME * table.iter().fold(0.0, |m, &v| v.max(m));
    table.iter_mut().filter(|v| **v <= floor).for_each(|v| *v = 0.0);
    table
}

struct Fdbd {
    /// `[classes, classes]`.
    between: Vec<f32>,
    mean: Vec<f64>,
    /// The least distance to the mean.
    floor: f64,
}

impl Detector for Fdbd {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            let logits = rows.logit_row(i);
            let best = argmax(logits);
            let (mut sum, mut count) = (0.0, 0usize);
            // The best class has no distance to itself and drops out like all without a boundary.
            for (l, &between) in logits.iter().zip(&self.between[best * logits.len()..]).filter(|(_, b)| **b > 0.0) {
                sum += (logits[best] - l) / f64::from(between);
                count += 1;
            }
            let distance = libm::sqrt(squared_distance(rows.feature_row(i), &self.mean)).max(self.floor);
            *out = sum / (count.max(1) as f64 * distance);
        }
    }

    fn save(&self, store: &mut Store) {
        let classes = self.between.len().isqrt();
        store.put_f32("between", &[classes, classes], &self.between);
        store.put_f64("mean", &[self.mean.len()], &self.mean);
        store.put_f64("floor", &[1], &[self.floor]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::last_layer::tests::Example;
    use super::*;
    use crate::detector::{DetectorConfig, Fitted};

    fn scores(e: &Example, test: &Example, given: bool) -> Vec<f64> {
        let (pool, config) = (Pool::new(1), DetectorConfig::from(Config {}));
        Fitted::new(&config, &e.training(given), &pool).unwrap().score(&test.rows(), &pool).unwrap()
    }

    #[test]
    fn by_definition_with_the_layer_given_and_found() {
        let (e, test) = (Example::new(300, 6, 4, 1), Example::new(40, 6, 4, 2));
        let mean: Vec<f64> =
            (0..6).map(|j| e.features.chunks(6).map(|x| f64::from(x[j])).sum::<f64>() / 300.0).collect();
        let (given, found) = (scores(&e, &test, true), scores(&e, &test, false));
        for i in 0..40 {
            let l = test.rows().logit_row(i);
            let c = argmax(l);
            let w = |k: usize, j: usize| f64::from(e.weight[k * 6 + j]);
            let apart = |k: usize| (0..6).map(|j| (w(c, j) - w(k, j)).powi(2)).sum::<f64>().sqrt();
            let sum: f64 = (0..4).filter(|&k| k != c).map(|k| (l[c] - l[k]).abs() / apart(k)).sum();
            let x = test.rows().feature_row(i);
            let distance = (0..6).map(|j| (f64::from(x[j]) - mean[j]).powi(2)).sum::<f64>().sqrt();
            let expected = sum / 3.0 / distance;
            assert!((given[i] - expected).abs() < 1e-6 * (1.0 + expected), "{} {expected}", given[i]);
            assert!((found[i] - expected).abs() < 1e-5 * (1.0 + expected), "{} {expected}", found[i]);
        }
    }

    #[test]
    fn classes_without_a_boundary_are_left_out() {
        // Classes 0 and 1 have the same weights; the row is at the boundary's distance 2 from class 2.
        let mut e = Example::new(20, 2, 3, 1);
        e.weight = vec![1.0, 0.0, 1.0, 0.0, -1.0, 0.0];
        e.bias = vec![1.0, 0.0, 0.0];
        e.features = [[2.0, 1.0], [-2.0, -1.0]].concat().repeat(10);
        e.relabel();
        // (3 - -2) / 2 over sqrt(5).
        assert!((scores(&e, &e, true)[0] - 2.5 / 5.0f64.sqrt()).abs() < 1e-9);
        e.weight.fill(0.5);
        e.relabel();
        assert!(scores(&e, &e, true).iter().all(|&s| s == 0.0));
    }

    #[test]
    fn a_row_at_the_mean_is_finite() {
        let mut e = Example::new(20, 2, 3, 1);
        e.features.fill(1.0);
        e.relabel();
        for given in [true, false] {
            assert!(scores(&e, &e, given).iter().all(|s| s.is_finite()));
        }
    }
}
