//! Mahalanobis distance to the nearest class, with one covariance for all classes.
//!
//! `confidence = -min_k M_k(x)`, `M_k(x) = (x - mu_k)^T S^-1 (x - mu_k)`, where `mu_k` are the means of the classes and S is
//! the scatter of the rows around the means of their classes, divided by the number of rows. It classifies by
//! `-M_k / 2`, the posterior of Gaussians with equal priors.
//!
//! S is not shrunk. If it is singular, no pseudo-inverse is used, as it ignores all directions in which the training rows
//! do not vary; see `stats/whitening.rs`. The features are used as they are. The paper's several layers and input
//! perturbation are in `mahalanobis-ensemble`.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::onnx::{Builder, Features as Inputs, Scores, Value};
use crate::stats::gaussians::{Covariance, Gaussians, Labeled, nearest};
use crate::stats::whitening::Whitening;

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "mahalanobis",
            summary: "minus the Mahalanobis distance to the nearest class, with one covariance for all classes",
            reference: "Lee, Lee, Lee, Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and \
                    Adversarial Attacks, NeurIPS 2018",
            needs: Needs { features: true, labels: true, ..Needs::NONE },
        }
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Mahalanobis(Gaussians::fit(&labeled(training), Covariance::Tied, Some(0.0), pool))))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Mahalanobis(load_gaussians(state, "", Covariance::Tied, state.width())?)))
    }
}

/// The training rows with their labels.
pub(super) fn labeled<'a>(training: &Training<'a>) -> Labeled<'a> {
    Labeled {
        x: training.rows.features,
        width: training.rows.width(),
        labels: training.labels.unwrap_or_default(),
        classes: training.classes,
    }
}

/// Stores Gaussians under names that begin with `prefix`.
pub(super) fn save_gaussians(state: &mut StateDict, prefix: &str, gaussians: &Gaussians) {
    let name = |name: &str| format!("{prefix}{name}");
    let (classes, width, each) = (gaussians.classes(), gaussians.width(), gaussians.whitenings().len());
    state.put_f64(&name("means"), &[classes, width], gaussians.means());
    state.put_f64(&name("counts"), &[classes], gaussians.counts());
    let collect = |f: fn(&Whitening) -> &[f64]| -> Vec<f64> {
        gaussians.whitenings().iter().flat_map(|w| f(w).iter().copied()).collect()
    };
    state.put_f64(&name("scale"), &[each, width], &collect(Whitening::scale));
    let log_dets: Vec<f64> = gaussians.whitenings().iter().map(Whitening::log_det).collect();
    state.put_f64(&name("log-det"), &[each], &log_dets);
    if gaussians.covariance() != Covariance::Diagonal {
        let matrices: Vec<f32> = gaussians.whitenings().iter().flat_map(|w| w.matrix().iter().copied()).collect();
        state.put_f32(&name("whitening"), &[each, width, width], &matrices);
    }
}

/// Returns an error if one full covariance per class would take more than 8 GB.
pub(super) fn check_covariance_memory(classes: usize, width: usize) -> Result<()> {
    let bytes = (classes as f64) * (width as f64) * (width as f64) * 12.0;
    if bytes > 8e9 {
        return Err(Error::data(format!("{classes} covariances of {width} features would take {:.0} GB", bytes / 1e9))
            .hint("use covariance=tied or covariance=diagonal"));
    }
    Ok(())
}

/// Loads what [`save_gaussians`] has stored, for rows with `expected` features.
pub(super) fn load_gaussians(
    state: &mut StateDict,
    prefix: &str,
    covariance: Covariance,
    expected: usize,
) -> Result<Gaussians> {
    let name = |name: &str| format!("{prefix}{name}");
    let [classes, width] = state.shape::<2>(&name("means"))?;
    let mismatch = "the shapes of the Gaussians do not match";
    if classes == 0 || width == 0 || width != expected {
        return Err(state.invalid(mismatch));
    }
    let each = if covariance == Covariance::Tied { 1 } else { classes };
    let means = state.take_f64(&name("means"), &[classes, width])?;
    let counts = state.take_f64(&name("counts"), &[classes])?;
    let scale = state.take_f64(&name("scale"), &[each, width])?;
    let log_dets = state.take_f64(&name("log-det"), &[each])?;
    let matrices = match covariance {
        Covariance::Diagonal => Vec::new(),
        _ => state.take_f32(&name("whitening"), &[each, width, width])?,
    };
    let square = matrices.len() / each;
    let whitening = |k: usize| {
        let scale = scale.get(k * width..(k + 1) * width)?.to_vec();
        let matrix = matrices.get(k * square..(k + 1) * square)?.to_vec();
        Whitening::from_parts(scale, matrix, *log_dets.get(k)?)
    };
    (0..each)
        .map(whitening)
        .collect::<Option<Vec<_>>>()
        .and_then(|whitenings| Gaussians::from_parts(covariance, means, counts, whitenings))
        .ok_or_else(|| state.invalid(mismatch))
}

/// Minus the distance to the nearest class for each row.
pub(super) fn score(gaussians: &Gaussians, features: &[f32], out: &mut [f64], scratch: &mut DetectorBuffers) {
    let classes = gaussians.classes();
    scratch.f64s.resize(out.len() * classes, 0.0);
    gaussians.distances(features, &mut scratch.f64s, &mut scratch.f32s);
    for (o, distances) in out.iter_mut().zip(scratch.f64s.chunks_exact(classes)) {
        *o = -nearest(distances);
    }
}

/// `-M_k / 2` for each row and class.
pub(super) fn logits(gaussians: &Gaussians, features: &[f32], out: &mut [f64], scratch: &mut DetectorBuffers) {
    gaussians.distances(features, out, &mut scratch.f32s);
    out.iter_mut().for_each(|o| *o *= -0.5);
}

/// [`score`] and [`logits`] in a graph of ONNX.
pub(super) fn to_onnx(gaussians: &Gaussians, graph: &mut Builder, features: Value) -> Scores {
    let distances = gaussians.distances_to_onnx(graph, features);
    let nearest = graph.reduce("ReduceMin", distances, false);
    let logits = graph.scale(distances, -0.5);
    Scores { confidence: graph.op("Neg", &[nearest]), logits: Some(logits) }
}

struct Mahalanobis(Gaussians);

impl Detector for Mahalanobis {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.0, rows.features, out, scratch);
    }

    fn save(&self, state: &mut StateDict) {
        save_gaussians(state, "", &self.0);
    }

    fn classes(&self) -> usize {
        self.0.classes()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        logits(&self.0, rows.features, out, scratch);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        Ok(to_onnx(&self.0, graph, rows.features()?))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::detector::Fitted;
    use crate::seed::Stream;
    use nalgebra::{DMatrix, DVector};

    /// Correlated rows of three classes.
    pub(crate) fn blobs(rows: usize, width: usize) -> (Vec<f32>, Vec<u32>) {
        let mut s = Stream::new(3, "mahalanobis");
        let labels: Vec<u32> = (0..rows).map(|_| s.below(3) as u32).collect();
        let mut x = Vec::new();
        for &y in &labels {
            let common = s.normal();
            x.extend((0..width).map(|j| {
                let mean = if j % 3 == y as usize { 2.5 } else { 1.0 };
                (mean + 0.7 * common + s.normal()) as f32
            }));
        }
        (x, labels)
    }

    pub(crate) fn training<'a>(x: &'a [f32], labels: &'a [u32]) -> Training<'a> {
        let rows = Features { count: labels.len(), features: x, logits: &[] };
        Training { rows, labels: Some(labels), classes: 3, ..Training::default() }
    }

    /// By definition: the distances to each class under the pooled covariance, and the distance to the mean of all rows
    /// under the covariance of all rows.
    pub(crate) fn naive(x: &[f32], labels: &[u32]) -> (Vec<[f64; 3]>, Vec<f64>) {
        let (n, width) = (labels.len(), x.len() / labels.len());
        let rows: Vec<DVector<f64>> =
            x.chunks(width).map(|r| DVector::from_iterator(width, r.iter().map(|&v| f64::from(v)))).collect();
        let mean = |keep: &dyn Fn(u32) -> bool| {
            let own: Vec<_> = rows.iter().zip(labels).filter(|(_, y)| keep(**y)).map(|(r, _)| r).collect();
            own.iter().fold(DVector::zeros(width), |sum, r| sum + *r) / own.len() as f64
        };
        let means: Vec<_> = (0..3).map(|k| mean(&|y| y == k)).collect();
        let all = mean(&|_| true);
        let covariance = |center: &dyn Fn(usize) -> DVector<f64>| {
            let sum = (0..n).fold(DMatrix::zeros(width, width), |sum, r| {
                let d = &rows[r] - center(r);
                sum + &d * d.transpose()
            });
            (sum / n as f64).try_inverse().unwrap()
        };
        let within = covariance(&|r| means[labels[r] as usize].clone());
        let total = covariance(&|_| all.clone());
        let distance = |d: DVector<f64>, inverse: &DMatrix<f64>| d.dot(&(inverse * &d));
        let own = rows.iter().map(|r| [0, 1, 2].map(|k: usize| distance(r - &means[k], &within))).collect();
        (own, rows.iter().map(|r| distance(r - &all, &total)).collect())
    }

    pub(crate) fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{got} {expected}");
    }

    #[test]
    fn matches_definition() {
        let (x, labels) = blobs(500, 12);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let fitted = Fitted::new(&Config {}, &training, &pool).unwrap();
        let (expected, _) = naive(&x, &labels);
        let scores = fitted.score(&training.rows, &pool).unwrap();
        let logits = fitted.logits(&training.rows, &pool).unwrap().unwrap();
        for (r, expected) in expected.iter().enumerate() {
            close(scores[r], -nearest(expected));
            (0..3).for_each(|k| close(logits[r * 3 + k], -0.5 * expected[k]));
        }
    }
}
