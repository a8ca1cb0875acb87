//! Mahalanobis distance of features of length 1.
//!
//! `confidence = -min_k M_k(x / |x|)`, with `M_k` as in `mahalanobis`, fitted on features that were divided by their
//! lengths as well. The lengths of features vary between rows far more than a Gaussian allows, and tell little about
//! what a row is. A row of zeros stays what it is.

use serde::{Deserialize, Serialize};

use super::mahalanobis::{labeled, logits, put, score, take};
use super::neighbors::unit;
use super::{About, Detector, DetectorBuffers, Features, Method, Needs, Store, Training};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::stats::gaussians::{Covariance, Gaussians, Labeled};

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Method for Config {
    const ABOUT: About = About {
        name: "mahalanobis++",
        summary: "mahalanobis on features divided by their length",
        reference: "Mueller, Hein: Mahalanobis++: Improving OOD Detection via Feature Normalization, ICML 2025",
        needs: Needs { features: true, labels: true, ..Needs::NONE },
    };

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let x = unit(training.rows.features, training.rows.width());
        let sample = Labeled { x: &x, ..labeled(training) };
        Ok(Box::new(Normalized(Gaussians::fit(&sample, Covariance::Tied, Some(0.0), pool))))
    }

    fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Normalized(take(store, "", Covariance::Tied, store.width())?)))
    }
}

struct Normalized(Gaussians);

impl Detector for Normalized {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.0, &unit(rows.features, rows.width()), out, scratch);
    }

    fn save(&self, store: &mut Store) {
        put(store, "", &self.0);
    }

    fn classes(&self) -> usize {
        self.0.classes()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        logits(&self.0, &unit(rows.features, rows.width()), out, scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::super::mahalanobis::tests::{blobs, close, naive, training};
    use super::*;
    use crate::detector::Fitted;
    use crate::stats::gaussians::nearest;

    #[test]
    fn by_definition_and_whatever_the_length() {
        let (x, labels) = blobs(500, 9);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let fitted = Fitted::new(&Config {}.into(), &training, &pool).unwrap();
        let (expected, _) = naive(&unit(&x, 9), &labels);
        let scores = fitted.score(&training.rows, &pool).unwrap();
        scores.iter().zip(expected).for_each(|(&got, expected)| close(got, -nearest(&expected)));
        let long: Vec<f32> = x.iter().map(|v| 1e9 * v).collect();
        let again = fitted.score(&Features { features: &long, ..training.rows }, &pool).unwrap();
        scores.iter().zip(again).for_each(|(&a, b)| close(b, a));
    }

    #[test]
    fn lengths_become_one_and_zero_stays() {
        assert_eq!(unit(&[3.0, 4.0, 0.0, 0.0, 1e-30, 0.0, 1e15, 0.0], 2), [0.6, 0.8, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    }
}
