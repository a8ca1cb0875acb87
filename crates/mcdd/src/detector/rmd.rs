//! Relative Mahalanobis distance: the distance to the nearest class minus the distance to the data as a whole.
//!
//! `confidence = -min_k (M_k(x) - M_0(x))`. `M_k` is the distance of `mahalanobis`. `M_0` is the distance to one Gaussian
//! with the mean and the covariance of all rows. Directions that do not separate classes contribute the same to both and
//! cancel. With a single class both are equal, so at least two classes are needed.
//!
//! It classifies as `mahalanobis` does: `M_0` is the same for all classes.

use serde::{Deserialize, Serialize};

use super::mahalanobis::{labeled, load_gaussians, logits, save_gaussians, score, to_onnx};
use super::{About, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::gaussians::{Covariance, EMPTY_CLASS_DISTANCE, Gaussians, nearest};

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "rmd",
            summary: "relative Mahalanobis distance: to the nearest class, minus the distance to all data",
            reference: "Ren et al.: A Simple Fix to Mahalanobis Distance for \
                    Improving Near-OOD Detection, ICML UDL Workshop 2021",
            needs: Needs { features: true, labels: true, ..Needs::NONE },
        }
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let labels = training.labels.unwrap_or_default();
        if labels.iter().all(|y| Some(y) == labels.first()) {
            return Err(Error::data("all rows are of one class").hint("rmd needs two classes; mahalanobis needs one"));
        }
        let (classes, all) = Gaussians::with_background(&labeled(training), pool);
        Ok(Box::new(Relative { classes, all }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let classes = load_gaussians(state, "", Covariance::Tied, state.width())?;
        let all = load_gaussians(state, "all-", Covariance::Tied, state.width())?;
        if all.classes() != 1 || all.width() != classes.width() {
            return Err(state.invalid("the shapes of the Gaussians do not match"));
        }
        Ok(Box::new(Relative { classes, all }))
    }
}

/// A distance to all data that is larger than the difference by this factor is computed again in f64.
const CANCELLATION: f64 = 4.0;

struct Relative {
    classes: Gaussians,
    all: Gaussians,
}

impl Detector for Relative {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.classes, rows.features, out, scratch);
        scratch.f64s.resize(out.len(), 0.0);
        self.all.distances(rows.features, &mut scratch.f64s, &mut scratch.f32s);
        out.iter_mut().zip(&scratch.f64s).for_each(|(o, all)| *o += all);
        // Far from all data the two distances are large and almost equal: the digits of f32 would cancel.
        let (width, mut own) = (self.classes.width(), vec![EMPTY_CLASS_DISTANCE; self.classes.classes()]);
        for ((o, all), x) in out.iter_mut().zip(&scratch.f64s).zip(rows.features.chunks_exact(width)) {
            if *all > CANCELLATION * o.abs().max(width as f64) {
                let mut all = [0.0];
                self.classes.distances_wide(x, &mut own);
                self.all.distances_wide(x, &mut all);
                *o = all[0] - nearest(&own);
            }
        }
    }

    fn save(&self, state: &mut StateDict) {
        save_gaussians(state, "", &self.classes);
        save_gaussians(state, "all-", &self.all);
    }

    fn classes(&self) -> usize {
        self.classes.classes()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        logits(&self.classes, rows.features, out, scratch);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let Scores { confidence, logits } = to_onnx(&self.classes, graph, rows.features()?);
        let all = self.all.distances_to_onnx(graph, rows.features()?);
        let all = graph.reduce("ReduceMin", all, false);
        Ok(Scores { confidence: graph.op("Add", &[confidence, all]), logits })
    }
}

#[cfg(test)]
mod tests {
    use super::super::mahalanobis::tests::{blobs, close, naive, training};
    use super::*;
    use crate::detector::Fitted;

    #[test]
    fn matches_definition() {
        let (x, labels) = blobs(500, 12);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let fitted = Fitted::new(&Config {}, &training, &pool).unwrap();
        let (classes, all) = naive(&x, &labels);
        for ((got, classes), all) in fitted.score(&training.rows, &pool).unwrap().into_iter().zip(classes).zip(all) {
            close(got, -(nearest(&classes) - all));
        }
    }

    /// Rows at a distance of thousands of deviations, where the two distances differ in their last digits.
    #[test]
    fn far_rows_keep_their_digits() {
        let (mut x, labels) = blobs(500, 12);
        let pool = Pool::new(2);
        let fitted = {
            let training = training(&x, &labels);
            let labeled = labeled(&training);
            let (classes, all) = Gaussians::with_background(&labeled, &pool);
            Relative { classes, all }
        };
        x.iter_mut().for_each(|v| *v = *v * 300.0 + 1e4);
        let (mut own, mut all) = (vec![0.0; fitted.classes.classes()], [0.0]);
        let mut got = vec![0.0; 500];
        let rows = training(&x, &labels).rows;
        fitted.score(&rows, &mut got, &mut DetectorBuffers::default());
        for (x, got) in x.chunks_exact(12).zip(got) {
            fitted.classes.distances_wide(x, &mut own);
            fitted.all.distances_wide(x, &mut all);
            let expected = all[0] - nearest(&own);
            let loss = 1e-5 * expected.abs().max(12.0);
            assert!((got - expected).abs() <= loss, "{got} instead of {expected}, from {}", all[0]);
        }
    }
}
