//! Mahalanobis distance of normalized features.
//!
//! `confidence = -min_k M_k(x / |x|)`, with `M_k` as in `mahalanobis`, fitted on normalized features as well. Feature norms
//! vary between rows far more than a Gaussian allows, and carry little information about the class of a row. A row of
//! zeros stays zero.

use serde::{Deserialize, Serialize};

use super::mahalanobis::{labeled, load_gaussians, logits, save_gaussians, score, to_onnx};
use super::neighbors::{normalize_rows, unit_rows};
use super::{About, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::gaussians::{Covariance, Gaussians, Labeled};

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "mahalanobis++",
            summary: "mahalanobis on features divided by their norm",
            reference: "Mueller, Hein: Mahalanobis++: Improving OOD Detection via Feature Normalization, ICML 2025",
            needs: Needs { features: true, labels: true, ..Needs::NONE },
        }
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let x = normalize_rows(training.rows.features, training.rows.width());
        let sample = Labeled { x: &x, ..labeled(training) };
        Ok(Box::new(Normalized(Gaussians::fit(&sample, Covariance::Tied, Some(0.0), pool))))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Box::new(Normalized(load_gaussians(state, "", Covariance::Tied, state.width())?)))
    }
}

struct Normalized(Gaussians);

impl Detector for Normalized {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.0, &normalize_rows(rows.features, rows.width()), out, scratch);
    }

    fn save(&self, state: &mut StateDict) {
        save_gaussians(state, "", &self.0);
    }

    fn classes(&self) -> usize {
        self.0.classes()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        logits(&self.0, &normalize_rows(rows.features, rows.width()), out, scratch);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let unit = unit_rows(graph, rows.features()?);
        Ok(to_onnx(&self.0, graph, unit))
    }
}

#[cfg(test)]
mod tests {
    use super::super::mahalanobis::tests::{blobs, close, naive, training};
    use super::*;
    use crate::detector::Fitted;
    use crate::stats::gaussians::nearest;

    #[test]
    fn matches_definition_for_any_norm() {
        let (x, labels) = blobs(500, 9);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let fitted = Fitted::new(&Config {}, &training, &pool).unwrap();
        let (expected, _) = naive(&normalize_rows(&x, 9), &labels);
        let scores = fitted.score(&training.rows, &pool).unwrap();
        scores.iter().zip(expected).for_each(|(&got, expected)| close(got, -nearest(&expected)));
        let long: Vec<f32> = x.iter().map(|v| 1e9 * v).collect();
        let again = fitted.score(&Features { features: &long, ..training.rows }, &pool).unwrap();
        scores.iter().zip(again).for_each(|(&a, b)| close(b, a));
    }

    #[test]
    fn norms_become_one_and_zero_stays_zero() {
        assert_eq!(
            normalize_rows(&[3.0, 4.0, 0.0, 0.0, 1e-30, 0.0, 1e15, 0.0], 2),
            [0.6, 0.8, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
        );
    }
}
