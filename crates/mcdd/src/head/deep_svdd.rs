//! Deep SVDD (Ruff et al., ICML 2018): one sphere around the latents of all rows, whatever their class.
//!
//! With `d = |z - c|^2`, the one-class loss is the mean of `d`, and the soft-boundary one
//! `R^2 + (1/nu) mean max(0, d - R^2)`. The center is the mean latent of the untrained network, moved away from 0 where
//! it is close, and then fixed; the radius is the `1 - nu` quantile of the distances, set anew between epochs. The
//! layers below have no biases: with them the network could map every input to `c` and the loss would be 0.
//!
//! Labels are not used and no class is given. The confidence is `R^2 - d`, with a radius of 0 for the one-class form.

use serde::{Deserialize, Serialize};

use super::{Head, HeadConfig, LossBuffers, square_f64};
use crate::compute::pool::Pool;
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params};
use crate::stats::moments;

/// Whether the sphere has a radius.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// All rows are drawn to the center.
    #[default]
    OneClass,
    /// Rows outside a radius are drawn in.
    Soft,
}

/// The head; see the module's text.
#[derive(Clone, Debug)]
pub struct DeepSvdd {
    boundary: Boundary,
    nu: f64,
    params: Params,
}

const CENTRE: usize = 0;
const SQUARED_RADIUS: usize = 1;
/// No element of the center is closer to 0, where weights of 0 would lead every row.
const AWAY: f32 = 0.1;

impl DeepSvdd {
    /// Its parameters on so many latent features.
    pub(super) fn specs(latent: usize) -> Vec<ParamSpec> {
        let fixed = |name, shape| ParamSpec { trained: false, ..ParamSpec::of_head(name, shape) };
        vec![fixed("center", vec![latent]), fixed("squared_radius", vec![1])]
    }

    /// A center at 0 until it is settled.
    pub fn new(boundary: Boundary, nu: f64, latent: usize) -> DeepSvdd {
        DeepSvdd { boundary, nu, params: Params::new(Self::specs(latent)) }
    }

    fn center(&self) -> &[f32] {
        self.params.get(CENTRE)
    }

    fn squared_radius(&self) -> f32 {
        self.params.get(SQUARED_RADIUS)[0]
    }
}

impl Head for DeepSvdd {
    fn config(&self) -> HeadConfig {
        HeadConfig::DeepSvdd { boundary: self.boundary, nu: self.nu }
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

    fn loss(
        &self,
        z: &[f32],
        y: &[u32],
        batch: usize,
        dz: &mut [f32],
        gradients: &mut [f32],
        _scratch: &mut LossBuffers,
    ) -> f64 {
        gradients.fill(0.0);
        let (latent, radius) = (self.center().len(), self.squared_radius());
        let weight = if self.boundary == Boundary::Soft { 1.0 / self.nu } else { 1.0 };
        let share = weight / batch as f64;
        let mut loss = f64::from(radius) * y.len() as f64 / batch as f64;
        for (z, dz) in z.chunks_exact(latent).zip(dz.chunks_exact_mut(latent)) {
            let d = vector::squared_distance(z, self.center());
            if d > radius || self.boundary == Boundary::OneClass {
                loss += share * f64::from(d - radius);
                vector::to_many(dz, z, self.center(), &[[2.0 * share as f32, 0.0]]);
            } else {
                dz.fill(0.0);
            }
        }
        loss
    }

    fn update_centers(&mut self, z: &[f32], _y: &[u32], epochs: usize, _pool: &Pool) -> Result<()> {
        let latent = self.center().len();
        if epochs == 0 {
            let mean = moments::mean(z, latent);
            for (c, m) in self.params.get_mut(CENTRE).iter_mut().zip(mean) {
                let m = m as f32;
                *c = if m.abs() >= AWAY { m } else { AWAY.copysign(m) };
            }
        }
        if self.boundary == Boundary::Soft {
            let mut distances: Vec<f32> =
                z.chunks_exact(latent).map(|z| vector::squared_distance(z, self.center())).collect();
            let last = distances.len().saturating_sub(1);
            let at = ((1.0 - self.nu) * last as f64).round() as usize;
            if !distances.is_empty() {
                self.params.get_mut(SQUARED_RADIUS)[0] = *distances.select_nth_unstable_by(at, f32::total_cmp).1;
            }
        }
        Ok(())
    }

    fn score(&self, z: &[f32], _logits: &mut [f64], _distances: &mut [f64]) -> f64 {
        f64::from(self.squared_radius()) - square_f64(z, self.center())
    }

    fn has_distances(&self) -> bool {
        false
    }

    fn logit_gradient(&self, _z: &[f32], _dlogits: &[f64], dz: &mut [f32]) {
        dz.fill(0.0);
    }
}
