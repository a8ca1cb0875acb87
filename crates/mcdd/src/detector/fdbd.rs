//! Distance to the decision boundaries (fDBD): the mean of `|l_c - l_k| / |w_c - w_k|` over all classes k but the
//! predicted one, c, divided by the distance of the features to the mean of the training features. Each term is the
//! distance of the features to the boundary between c and k.
//!
//! Classes whose weights are almost equal to those of the predicted class (closer than 1e-6 of the largest distance
//! between two classes) have no boundary with it and are left out of the mean. If none remains, the score is 0. The
//! distance to the mean is at least 1e-8 of that of a typical training row, so that a row at the mean has a finite
//! score. The table of `|w_c - w_k|` takes 4 bytes per pair of classes.

use serde::{Deserialize, Serialize};

use super::last_layer::LinearLayer;
use super::{About, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training};
use crate::compute::argmax;
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::moments;

/// Weights closer than this fraction of the largest distance are equal.
const EQUAL: f32 = 1e-6;
/// The smallest distance to the mean, as a fraction of the training rows' root mean square distance.
const MIN_DISTANCE: f64 = 1e-8;

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "fdbd",
            summary: "mean distance to the decision boundaries, relative to the distance to the training mean",
            reference: "Liu, Qin: Fast Decision Boundary based Out-of-Distribution Detector, ICML 2024",
            needs: Needs { features: true, logits: true, linear: true, ..Needs::NONE },
        }
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let layer = LinearLayer::of(training, pool)?;
        let features = training.rows.features;
        let mean = moments::mean(features, layer.width);
        let squares: f64 = features.chunks_exact(layer.width).map(|x| squared_distance(x, &mean)).sum();
        let typical = libm::sqrt(squares / training.rows.count as f64);
        let floor = MIN_DISTANCE * if typical > 0.0 { typical } else { 1.0 };
        Ok(Box::new(Fdbd { between: between(&layer, pool), mean, floor }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let (width, classes) = (state.width(), state.classes());
        if state.shape("between")? != [classes, classes] {
            return Err(state.invalid("the boundaries have the wrong number of classes"));
        }
        let between = state.take_f32("between", &[classes, classes])?;
        let mean = state.take_f64("mean", &[width])?;
        let floor = state.take_f64("floor", &[1])?[0];
        if between.iter().any(|&v| v < 0.0) || mean.iter().any(|v| v.abs() > 1e100) || !(1e-100..1e100).contains(&floor)
        {
            return Err(state.invalid("a distance is out of range"));
        }
        Ok(Box::new(Fdbd { between, mean, floor }))
    }
}

fn squared_distance(x: &[f32], mean: &[f64]) -> f64 {
    x.iter().zip(mean).map(|(&x, m)| (f64::from(x) - m) * (f64::from(x) - m)).sum()
}

/// The distance between the weights of each pair of classes; 0 for pairs without a boundary.
fn between(layer: &LinearLayer, pool: &Pool) -> Vec<f32> {
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
    let floor = EQUAL * table.iter().fold(0.0, |m, &v| v.max(m));
    table.iter_mut().filter(|v| **v <= floor).for_each(|v| *v = 0.0);
    table
}

struct Fdbd {
    /// The distances between the weights of classes, `[classes, classes]`.
    between: Vec<f32>,
    mean: Vec<f64>,
    /// The smallest distance to the mean.
    floor: f64,
}

impl Detector for Fdbd {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            let logits = rows.logit_row(i);
            let best = argmax(logits);
            let (mut sum, mut count) = (0.0, 0usize);
            // The best class has distance 0 to itself and is left out, like all classes without a boundary.
            for (l, &between) in logits.iter().zip(&self.between[best * logits.len()..]).filter(|(_, b)| **b > 0.0) {
                sum += (logits[best] - l) / f64::from(between);
                count += 1;
            }
            let distance = libm::sqrt(squared_distance(rows.feature_row(i), &self.mean)).max(self.floor);
            *out = sum / (count.max(1) as f64 * distance);
        }
    }

    fn save(&self, state: &mut StateDict) {
        let classes = self.between.len().isqrt();
        state.put_f32("between", &[classes, classes], &self.between);
        state.put_f64("mean", &[self.mean.len()], &self.mean);
        state.put_f64("floor", &[1], &[self.floor]);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let logits = rows.logits()?;
        let (width, classes) = (self.mean.len(), rows.classes);
        let inverse: Vec<f64> = self.between.iter().map(|&b| if b > 0.0 { 1.0 / f64::from(b) } else { 0.0 }).collect();
        let count = |row: &[f32]| row.iter().filter(|b| **b > 0.0).count().max(1) as f64;
        let counts: Vec<f64> = self.between.chunks_exact(classes).map(count).collect();
        let [inverse, counts] = [graph.constant(&[classes, classes], &inverse), graph.constant(&[classes], &counts)];
        let best = graph.argmax(logits);
        let [inverse, counts] = [inverse, counts].map(|table| graph.op("Gather", &[table, best]));
        let largest = graph.reduce("ReduceMax", logits, true);
        let margins = graph.op("Sub", &[largest, logits]);
        let ratios = graph.op("Mul", &[margins, inverse]);
        let sum = graph.reduce("ReduceSum", ratios, false);
        let mean = graph.constant(&[1, width], &self.mean);
        let centered = graph.op("Sub", &[rows.features()?, mean]);
        let squares = graph.squares(centered, false);
        let distance = graph.op("Sqrt", &[squares]);
        let distance = graph.at_least(distance, self.floor);
        let divisor = graph.op("Mul", &[counts, distance]);
        Ok(Scores { confidence: graph.op("Div", &[sum, divisor]), logits: None })
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
    fn matches_definition_with_given_and_estimated_layer() {
        let (e, test) = (Example::new(300, 6, 4, 1), Example::new(40, 6, 4, 2));
        let mean: Vec<f64> =
            (0..6).map(|j| e.features.chunks(6).map(|x| f64::from(x[j])).sum::<f64>() / 300.0).collect();
        let (given, estimated) = (scores(&e, &test, true), scores(&e, &test, false));
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
            assert!((estimated[i] - expected).abs() < 1e-5 * (1.0 + expected), "{} {expected}", estimated[i]);
        }
    }

    #[test]
    fn classes_without_a_boundary_are_left_out() {
        // Classes 0 and 1 have the same weights; the distance between the weights of classes 0 and 2 is 2.
        let mut e = Example::new(20, 2, 3, 1);
        e.weight = vec![1.0, 0.0, 1.0, 0.0, -1.0, 0.0];
        e.bias = vec![1.0, 0.0, 0.0];
        e.features = [[2.0, 1.0], [-2.0, -1.0]].concat().repeat(10);
        e.update_logits();
        // (3 - -2) / 2 over sqrt(5).
        assert!((scores(&e, &e, true)[0] - 2.5 / 5.0f64.sqrt()).abs() < 1e-9);
        e.weight.fill(0.5);
        e.update_logits();
        assert!(scores(&e, &e, true).iter().all(|&s| s == 0.0));
    }

    #[test]
    fn a_row_at_the_mean_is_finite() {
        let mut e = Example::new(20, 2, 3, 1);
        e.features.fill(1.0);
        e.update_logits();
        for given in [true, false] {
            assert!(scores(&e, &e, given).iter().all(|s| s.is_finite()));
        }
    }
}
