//! Gaussian discriminant analysis, in closed form.

use super::{Head, HeadConfig, Scratch};
use crate::net::{ParamSpec, Params};
use crate::stats::gaussians::Covariance;

/// The head; see the module's text.
#[derive(Clone, Debug)]
pub struct Gda {
    covariance: Covariance,
    shrinkage: Option<f64>,
    classes: usize,
    params: Params,
}

impl Gda {
    /// Its parameters for so many classes on so many features.
    pub(super) fn specs(_covariance: Covariance, classes: usize, latent: usize) -> Vec<ParamSpec> {
        vec![ParamSpec { trained: false, ..ParamSpec::of_head("mu", vec![classes, latent]) }]
    }

    /// Nothing until it is settled.
    pub fn new(covariance: Covariance, shrinkage: Option<f64>, classes: usize, latent: usize) -> Gda {
        Gda { covariance, shrinkage, classes, params: Params::new(Self::specs(covariance, classes, latent)) }
    }
}

impl Head for Gda {
    fn config(&self) -> HeadConfig {
        HeadConfig::Gda { covariance: self.covariance, shrinkage: self.shrinkage }
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn params(&self) -> &Params {
        &self.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    fn loss(&self, _: &[f32], _: &[u32], _: usize, _: &mut [f32], _: &mut [f32], _: &mut Scratch) -> f64 {
        0.0
    }

    fn score(&self, _z: &[f32], _logits: &mut [f64], _distances: &mut [f64]) -> f64 {
        0.0
    }

    fn has_distances(&self) -> bool {
        true
    }

    fn logit_gradient(&self, _z: &[f32], _dlogits: &[f64], dz: &mut [f32]) {
        dz.fill(0.0);
    }
}
