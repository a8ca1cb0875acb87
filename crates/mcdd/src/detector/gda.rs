//! Gaussian discriminant analysis: the log density of the most likely class.
//!
//! `confidence = max_k log N(x | mu_k, S_k)`, without the constant `-width/2 log(2 pi)`:
//! `-1/2 (M_k(x) + log det S_k)`. It classifies by `log prior_k + log N(x | mu_k, S_k)`, where the prior is the fraction of
//! training rows in the class.
//!
//! Covariances may be shrunk towards a multiple of the identity: by a given weight, or by Ledoit and Wolf's formula
//! (`shrinkage=auto`). The formula shrinks strongly if a class has fewer rows than features, or if features have long
//! tails. By default covariances are not shrunk (`head/gda.rs` has the measurements).

use serde::{Deserialize, Serialize};

use super::mahalanobis::{check_covariance_memory, labeled, load_gaussians, save_gaussians};
use super::{
    About, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training, out_of_range,
};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::gaussians::{Covariance, Gaussians};

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `tied` (one for all classes, the default), `diagonal` (independent features) or `full` (one per class).
    pub covariance: Covariance,
    /// The weight of the identity in each covariance, from 0 (the default) to 1; auto for Ledoit and Wolf's formula.
    pub shrinkage: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Config { covariance: Covariance::Tied, shrinkage: Some(0.0) }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "gda",
            summary: "log density of the most likely class, with one Gaussian per class",
            reference: "Hastie, Tibshirani, Friedman: The Elements of Statistical Learning, 2009 (section 4.3)",
            needs: Needs { features: true, labels: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        match self.shrinkage {
            Some(s) if !(0.0..=1.0).contains(&s) => Err(out_of_range("shrinkage", s, "from 0 to 1, or auto")),
            _ => Ok(()),
        }
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        if self.covariance == Covariance::Full {
            check_covariance_memory(training.classes, training.rows.width())?;
        }
        Ok(Gda::boxed(Gaussians::fit(&labeled(training), self.covariance, self.shrinkage, pool)))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Gda::boxed(load_gaussians(state, "", self.covariance, state.width())?))
    }
}

struct Gda {
    gaussians: Gaussians,
    log_priors: Vec<f64>,
}

impl Gda {
    fn boxed(gaussians: Gaussians) -> Box<dyn Detector> {
        let log_priors = gaussians.log_priors();
        Box::new(Gda { gaussians, log_priors })
    }
}

impl Detector for Gda {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        let classes = self.log_priors.len();
        scratch.f64s.resize(out.len() * classes, 0.0);
        self.gaussians.log_densities(rows.features, &mut scratch.f64s, &mut scratch.f32s);
        for (o, densities) in out.iter_mut().zip(scratch.f64s.chunks_exact(classes)) {
            *o = densities.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
    }

    fn save(&self, state: &mut StateDict) {
        save_gaussians(state, "", &self.gaussians);
    }

    fn classes(&self) -> usize {
        self.log_priors.len()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        self.gaussians.log_densities(rows.features, out, &mut scratch.f32s);
        for row in out.chunks_exact_mut(self.log_priors.len()) {
            row.iter_mut().zip(&self.log_priors).for_each(|(o, p)| *o += p);
        }
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let densities = self.gaussians.log_densities_to_onnx(graph, rows.features()?);
        let priors = graph.constant(&[1, self.log_priors.len()], &self.log_priors);
        let logits = graph.op("Add", &[densities, priors]);
        Ok(Scores { confidence: graph.reduce("ReduceMax", densities, false), logits: Some(logits) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::mahalanobis::tests::{blobs, close, naive, training};
    use super::*;
    use crate::container::Container;
    use crate::detector::{DetectorConfig, Fitted};
    use crate::stats::gaussians::nearest;

    #[test]
    fn tied_covariance_is_mahalanobis_with_priors() {
        let (x, labels) = blobs(500, 12);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let config = Config { shrinkage: Some(0.0), ..Config::default() };
        let fitted = Fitted::new(&config, &training, &pool).unwrap();
        let (expected, _) = naive(&x, &labels);
        let scores = fitted.score(&training.rows, &pool).unwrap();
        let logits = fitted.logits(&training.rows, &pool).unwrap().unwrap();
        let prior = |k: usize| labels.iter().filter(|&&y| y as usize == k).count() as f64 / 500.0;
        let constant = scores[0] + 0.5 * nearest(&expected[0]);
        for (r, expected) in expected.iter().enumerate() {
            close(scores[r], constant - 0.5 * nearest(expected));
            (0..3).for_each(|k| close(logits[r * 3 + k], constant - 0.5 * expected[k] + prior(k).ln()));
        }
    }

    #[test]
    fn every_covariance_classifies_and_reloads() {
        let (x, labels) = blobs(400, 6);
        let training = training(&x, &labels);
        let pool = Pool::new(1);
        for text in ["gda", "gda:covariance=diagonal", "gda:covariance=full", "gda:covariance=full:shrinkage=0.2"] {
            let fitted = Fitted::new(&DetectorConfig::parse(text).unwrap(), &training, &pool).unwrap();
            let logits = fitted.logits(&training.rows, &pool).unwrap().unwrap();
            let right = logits.chunks(3).zip(&labels).filter(|(l, y)| crate::compute::argmax(l) == **y as usize);
            assert!(right.count() > 280, "{text}");
            let mut container = Container::default();
            fitted.save(&mut StateDict::new(&mut container, ""));
            let loaded = Fitted::load(fitted.config(), &mut StateDict::new(&mut container, "")).unwrap();
            assert_eq!(loaded.score(&training.rows, &pool).unwrap(), fitted.score(&training.rows, &pool).unwrap());
        }
        assert!(DetectorConfig::parse("gda:shrinkage=1.5").is_err());
        assert!(DetectorConfig::parse("gda:covariance=round").is_err());
    }
}
