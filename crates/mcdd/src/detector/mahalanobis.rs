//! Mahalanobis distance to the nearest class, with one covariance for all classes.
//!
//! `confidence = -min_k M_k(x)`, `M_k(x) = (x - mu_k)^T S^-1 (x - mu_k)`, where `mu_k` are the means of the classes and S is
//! the scatter of the rows around the means of their classes, divided by the number of rows. It classifies by
//! `-M_k / 2`, the posterior of Gaussians with equal priors.
//!
//! S is not shrunk. Where it is singular it is not inverted by a pseudo-inverse, which is blind to all directions in
//! which the training rows never vary: [`crate::stats::whitening`] says what is done instead. This is the distance on
//! the features as they are; several layers and input perturbation, which the paper has too, are in
//! `mahalanobis-ensemble`.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, Method, Needs, Store, Training};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::stats::gaussians::{Covariance, Gaussians, Labeled, nearest};
use crate::stats::whitening::Whitening;

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Method for Config {
    const ABOUT: About = About {
        name: "mahalanobis",
        summary: "minus the Mahalanobis distance to the nearest class, one covariance for all",
        reference: "Lee, Lee, Lee, Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and \
                    Adversarial Attacks, NeurIPS 2018",
        needs: Needs { features: true, labels: true, ..Needs::NONE },
    };

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Mahalanobis(Gaussians::fit(&labeled(training), Covariance::Tied, Some(0.0), pool))))
    }

    fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Mahalanobis(take(store, "", Covariance::Tied, store.width())?)))
    }
}

/// The rows of a training with their labels.
pub(super) fn labeled<'a>(training: &Training<'a>) -> Labeled<'a> {
    Labeled {
        x: training.rows.features,
        width: training.rows.width(),
        labels: training.labels.unwrap_or_default(),
        classes: training.classes,
    }
}

/// Keeps Gaussians under names that begin with `prefix`.
pub(super) fn put(store: &mut Store, prefix: &str, gaussians: &Gaussians) {
    let name = |name: &str| format!("{prefix}{name}");
    let (classes, width, each) = (gaussians.classes(), gaussians.width(), gaussians.whitenings().len());
    store.put_f64(&name("means"), &[classes, width], gaussians.means());
    store.put_f64(&name("counts"), &[classes], gaussians.counts());
    let collect = |f: fn(&Whitening) -> &[f64]| -> Vec<f64> {
        gaussians.whitenings().iter().flat_map(|w| f(w).iter().copied()).collect()
    };
    store.put_f64(&name("scale"), &[each, width], &collect(Whitening::scale));
    let log_dets: Vec<f64> = gaussians.whitenings().iter().map(Whitening::log_det).collect();
    store.put_f64(&name("log-det"), &[each], &log_dets);
    if gaussians.covariance() != Covariance::Diagonal {
        let matrices: Vec<f32> = gaussians.whitenings().iter().flat_map(|w| w.matrix().iter().copied()).collect();
        store.put_f32(&name("whitening"), &[each, width, width], &matrices);
    }
}

/// Takes them back.
/// Refuses covariances of their own for so many classes that they would not fit into memory.
pub(super) fn affordable(classes: usize, width: usize) -> Result<()> {
    let bytes = (classes as f64) * (width as f64) * (width as f64) * 12.0;
    if bytes > 8e9 {
        return Err(Error::data(format!("{classes} covariances of {width} features would take {:.0} GB", bytes / 1e9))
            .hint("give covariance=tied or covariance=diagonal"));
    }
    Ok(())
}

/// Takes back what [`put`] has stored, for rows of a wanted width.
pub(super) fn take(store: &mut Store, prefix: &str, covariance: Covariance, wanted: usize) -> Result<Gaussians> {
    let name = |name: &str| format!("{prefix}{name}");
    let [classes, width] = store.shape::<2>(&name("means"))?;
    let nonsense = "its Gaussians do not fit together";
    if classes == 0 || width == 0 || width != wanted {
        return Err(store.wrong(nonsense));
    }
    let each = if covariance == Covariance::Tied { 1 } else { classes };
    let means = store.take_f64(&name("means"), &[classes, width])?;
    let counts = store.take_f64(&name("counts"), &[classes])?;
    let scale = store.take_f64(&name("scale"), &[each, width])?;
    let log_dets = store.take_f64(&name("log-det"), &[each])?;
    let matrices = match covariance {
        Covariance::Diagonal => Vec::new(),
        _ => store.take_f32(&name("whitening"), &[each, width, width])?,
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
        .ok_or_else(|| store.wrong(nonsense))
}

/// Minus the distance to the nearest class, for each row.
pub(super) fn score(gaussians: &Gaussians, features: &[f32], out: &mut [f64], scratch: &mut DetectorBuffers) {
    let classes = gaussians.classes();
    scratch.wide.resize(out.len() * classes, 0.0);
    gaussians.distances(features, &mut scratch.wide, &mut scratch.floats);
    for (o, distances) in out.iter_mut().zip(scratch.wide.chunks_exact(classes)) {
        *o = -nearest(distances);
    }
}

/// The logits that belong to it.
pub(super) fn logits(gaussians: &Gaussians, features: &[f32], out: &mut [f64], scratch: &mut DetectorBuffers) {
    gaussians.distances(features, out, &mut scratch.floats);
    out.iter_mut().for_each(|o| *o *= -0.5);
}

struct Mahalanobis(Gaussians);

impl Detector for Mahalanobis {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.0, rows.features, out, scratch);
    }

    fn save(&self, store: &mut Store) {
        put(store, "", &self.0);
    }

    fn classes(&self) -> usize {
        self.0.classes()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        logits(&self.0, rows.features, out, scratch);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::detector::Fitted;
    use crate::seed::Stream;
    use nalgebra::{DMatrix, DVector};

    /// Correlated rows of three classes.
    pub fn blobs(rows: usize, width: usize) -> (Vec<f32>, Vec<u32>) {
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

    pub fn training<'a>(x: &'a [f32], labels: &'a [u32]) -> Training<'a> {
        let rows = Features { count: labels.len(), features: x, logits: &[] };
        Training { rows, labels: Some(labels), classes: 3, ..Training::default() }
    }

    /// Distances to each class under the pooled covariance, and to the mean of all under that of all: by definition.
    pub fn naive(x: &[f32], labels: &[u32]) -> (Vec<[f64; 3]>, Vec<f64>) {
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

    pub fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{got} {expected}");
    }

    #[test]
    fn by_definition() {
        let (x, labels) = blobs(500, 12);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let fitted = Fitted::new(&Config {}.into(), &training, &pool).unwrap();
        let (expected, _) = naive(&x, &labels);
        let scores = fitted.score(&training.rows, &pool).unwrap();
        let logits = fitted.logits(&training.rows, &pool).unwrap().unwrap();
        for (r, expected) in expected.iter().enumerate() {
            close(scores[r], -nearest(expected));
            (0..3).for_each(|k| close(logits[r * 3 + k], -0.5 * expected[k]));
        }
    }
}
