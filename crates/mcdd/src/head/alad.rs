//! Adversarially learned anomaly detection.

use super::{Head, HeadConfig, Scratch};
use crate::net::{ParamSpec, Params};
use crate::seed::Stream;

/// The head; see the module's text.
#[derive(Clone, Debug)]
pub struct Alad {
    code: usize,
    params: Params,
}

impl Alad {
    /// Its parameters on so many latent features: the input and its reconstruction.
    pub(super) fn specs(_latent: usize) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Before training.
    pub fn new(code: usize, latent: usize, _seed: &mut Stream) -> Alad {
        Alad { code, params: Params::new(Self::specs(latent)) }
    }
}

impl Head for Alad {
    fn config(&self) -> HeadConfig {
        HeadConfig::Alad { code: self.code }
    }

    fn classes(&self) -> usize {
        0
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
        false
    }

    fn logit_gradient(&self, _z: &[f32], _dlogits: &[f64], dz: &mut [f32]) {
        dz.fill(0.0);
    }
}
