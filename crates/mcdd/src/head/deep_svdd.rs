//! Deep SVDD (Ruff et al., ICML 2018): one sphere around the latents of all rows, whatever their class.
//!
//! With `d = |z - c|^2`, the one-class loss is the mean of `d`, and the soft-boundary one
//! `R^2 + (1/nu) mean max(0, d - R^2)`. The center is the mean latent of the untrained network, moved away from 0 where
//! it is close, and then fixed; the radius is the `1 - nu` quantile of the distances, updated at the end of each epoch. The
//! layers below have no biases: with them the network could map every input to `c` and the loss would be 0.
//!
//! It does not use labels and does not classify. The confidence is `R^2 - d`, with a radius of 0 for the one-class form.

use serde::{Deserialize, Serialize};

use super::{About, CenterUpdates, Head, LossBuffers, Objective, fixed, out_of_range, square_f64};
use crate::compute::pool::Pool;
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params};
use crate::onnx::{Builder, Scores, Value, wide};
use crate::seed::Stream;
use crate::stats::moments;

/// Whether the sphere has a radius.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// The loss is the distance of every row from the center.
    #[default]
    OneClass,
    /// The loss is the distance of the rows outside a radius.
    Soft,
}

/// The settings of Deep SVDD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Whether the sphere has a radius.
    pub boundary: Boundary,
    /// Soft boundary: the fraction of rows outside, between 0 and 1; 0.1.
    pub nu: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { boundary: Boundary::OneClass, nu: 0.1 }
    }
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "deep-svdd",
        title: "Deep-SVDD",
        summary: "one sphere around all rows, without labels; does not classify",
        reference: "Ruff et al.: Deep One-Class Classification, ICML 2018",
    };

    fn check(&self) -> Result<()> {
        if self.nu > 0.0 && self.nu < 1.0 {
            return Ok(());
        }
        Err(out_of_range("nu", self.nu, "a fraction between 0 and 1"))
    }

    fn specs(&self, _classes: usize, latent: usize) -> Vec<ParamSpec> {
        vec![fixed("center", vec![latent]), fixed("squared_radius", vec![1])]
    }

    /// The center is 0 until the first update of the centers.
    fn build(&self, classes: usize, latent: usize, _seed: &mut Stream) -> Box<dyn Head> {
        Box::new(DeepSvdd { config: self.clone(), params: Params::new(self.specs(classes, latent)) })
    }

    fn classifies(&self) -> bool {
        false
    }

    fn center_updates(&self) -> CenterUpdates {
        match self.boundary {
            Boundary::OneClass => CenterUpdates::Once,
            Boundary::Soft => CenterUpdates::EachEpoch,
        }
    }

    /// With biases the network could map every input to the center.
    fn allows_bias(&self) -> bool {
        false
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct DeepSvdd {
    config: Config,
    params: Params,
}

const CENTER: usize = 0;
const SQUARED_RADIUS: usize = 1;
/// The least absolute value of an element of the center: weights of 0 would map every row to a center of 0.
const AWAY: f32 = 0.1;

impl DeepSvdd {
    fn center(&self) -> &[f32] {
        self.params.get(CENTER)
    }

    fn squared_radius(&self) -> f32 {
        self.params.get(SQUARED_RADIUS)[0]
    }
}

impl Head for DeepSvdd {
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
        let weight = if self.config.boundary == Boundary::Soft { 1.0 / self.config.nu } else { 1.0 };
        let scale = weight / batch as f64;
        let mut loss = f64::from(radius) * y.len() as f64 / batch as f64;
        for (z, dz) in z.chunks_exact(latent).zip(dz.chunks_exact_mut(latent)) {
            let d = vector::squared_distance(z, self.center());
            if d > radius || self.config.boundary == Boundary::OneClass {
                loss += scale * f64::from(d - radius);
                vector::to_many(dz, z, self.center(), &[[2.0 * scale as f32, 0.0]]);
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
            for (c, m) in self.params.get_mut(CENTER).iter_mut().zip(mean) {
                let m = m as f32;
                *c = if m.abs() >= AWAY { m } else { AWAY.copysign(m) };
            }
        }
        if self.config.boundary == Boundary::Soft {
            let mut distances: Vec<f32> =
                z.chunks_exact(latent).map(|z| vector::squared_distance(z, self.center())).collect();
            let last = distances.len().saturating_sub(1);
            let at = ((1.0 - self.config.nu) * last as f64).round() as usize;
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

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        let center = graph.constant(&[1, self.center().len()], &wide(self.center()));
        let difference = graph.op("Sub", &[z, center]);
        let squares = graph.squares(difference, false);
        let radius = graph.number(f64::from(self.squared_radius()));
        Ok(Scores { confidence: graph.op("Sub", &[radius, squares]), logits: None })
    }
}

#[cfg(test)]
impl super::tests::Reference for Config {
    fn variants() -> Vec<Self> {
        vec![Config { boundary: Boundary::Soft, nu: 0.4 }]
    }

    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{mean_loss, square};
        let radius = params[SQUARED_RADIUS][0];
        mean_loss(z, y, latent, |z, _| match self.boundary {
            Boundary::OneClass => square(z, &params[CENTER]),
            Boundary::Soft => radius + (square(z, &params[CENTER]) - radius).max(0.0) / self.nu,
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, _y: usize) -> Option<f64> {
        Some(match self.boundary {
            Boundary::OneClass => -score.confidence,
            Boundary::Soft => score.params[SQUARED_RADIUS][0] + (-score.confidence).max(0.0) / self.nu,
        })
    }
}
