//! Deep nearest class mean (Guerriero, Caputo, Mensink, ICLR workshop 2018): softmax over `-|z - mu_k|^2 / 2`.
//!
//! The means are not trained by gradients: after each step the mean of a class becomes `decay` times itself and `1 - decay` times the
//! mean latent of its rows in the batch. They are initialized to the class means under the untrained network. The confidence is minus the squared distance to the nearest mean.
//!
//! The default decay is high, because with fast updates means and latents diverge together: on the gas sensors a decay of
//! 0.9 ended in a validation loss of 2e10 and 62% accuracy, 0.99 in 73 and 93.9%, 0.999 in 0.07 and 99.6%
//! (`mcdd train … --method deep-ncm:decay=…`).

use serde::{Deserialize, Serialize};

use super::{
    About, CenterUpdates, Head, LossBuffers, Objective, fixed, nearest_mean, nearest_mean_to_onnx, out_of_range,
};
use crate::compute::pool::Pool;
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params};
use crate::onnx::{Builder, Scores, Value};
use crate::seed::Stream;
use crate::stats::moments;

/// The settings of Deep-NCM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The weight of the old mean in an update, at least 0 and below 1; 0.999.
    pub decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { decay: 0.999 }
    }
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "deep-ncm",
        title: "Deep-NCM",
        summary: "softmax over distances to class means that follow the latents online",
        reference: "Guerriero, Caputo, Mensink: DeepNCM: Deep Nearest Class Mean Classifiers, ICLR Workshop 2018",
    };

    fn check(&self) -> Result<()> {
        if (0.0..1.0).contains(&self.decay) {
            return Ok(());
        }
        Err(out_of_range("decay", self.decay, "at least 0 and below 1"))
    }

    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        // `loss` counts the rows of each class in the place of `count`'s gradient; the parameter itself stays 0.
        vec![fixed("mu", vec![classes, latent]), fixed("count", vec![classes])]
    }

    /// The means are 0 until the first update of the centers.
    fn build(&self, classes: usize, latent: usize, _seed: &mut Stream) -> Box<dyn Head> {
        Box::new(DeepNcm { config: self.clone(), latent, params: Params::new(self.specs(classes, latent)) })
    }

    fn center_updates(&self) -> CenterUpdates {
        CenterUpdates::Once
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct DeepNcm {
    config: Config,
    latent: usize,
    params: Params,
}

const MEANS: usize = 0;
const COUNT: usize = 1;

impl DeepNcm {
    fn mean(&self, class: usize) -> &[f32] {
        &self.params.get(MEANS)[class * self.latent..(class + 1) * self.latent]
    }
}

impl Head for DeepNcm {
    fn classes(&self) -> usize {
        self.params.specs()[COUNT].len()
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
        scratch: &mut LossBuffers,
    ) -> f64 {
        let (classes, latent) = (self.classes(), self.latent);
        let pairs = scratch.pairs(classes);
        let scale = 1.0 / batch as f32;
        let (sums, counts) = gradients.split_at_mut(classes * latent);
        sums.fill(0.0);
        counts.fill(0.0);
        let mut loss = 0.0;
        for ((z, &y), dz) in z.chunks_exact(latent).zip(y).zip(dz.chunks_exact_mut(latent)) {
            let y = y as usize;
            let mut least = f32::INFINITY;
            for (k, pair) in pairs.iter_mut().enumerate() {
                pair[0] = 0.5 * vector::squared_distance(z, self.mean(k));
                least = least.min(pair[0]);
            }
            let own = pairs[y][0];
            let sum: f32 = pairs.iter().map(|p| libm::expf(least - p[0])).sum();
            loss += f64::from(libm::logf(sum)) + (f64::from(own) - f64::from(least));
            for (k, pair) in pairs.iter_mut().enumerate() {
                pair[0] = scale * (f32::from(k == y) - libm::expf(least - pair[0]) / sum);
            }
            vector::to_many(dz, z, self.params.get(MEANS), pairs);
            counts[y] += 1.0;
            sums[y * latent..(y + 1) * latent].iter_mut().zip(z).for_each(|(s, &z)| *s += z);
        }
        loss / batch as f64
    }

    fn update_statistics(&mut self, sums: &[f32]) {
        let (sums, counts) = sums.split_at(self.params.range(MEANS).end);
        let (keep, latent) = (self.config.decay as f32, self.latent);
        let means = self.params.get_mut(MEANS).chunks_exact_mut(latent);
        for ((mean, sum), &count) in means.zip(sums.chunks_exact(latent)).zip(counts).filter(|(_, c)| **c > 0.0) {
            for (m, &s) in mean.iter_mut().zip(sum) {
                *m = keep * *m + (1.0 - keep) * (s / count);
            }
        }
    }

    fn update_centers(&mut self, z: &[f32], y: &[u32], epochs: usize, _pool: &Pool) -> Result<()> {
        if epochs == 0 {
            let (means, _) = moments::class_means(z, self.latent, y, self.classes());
            self.params.get_mut(MEANS).iter_mut().zip(means).for_each(|(m, v)| *m = v as f32);
        }
        Ok(())
    }

    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64 {
        nearest_mean(z, self.params.get(MEANS), 0.5, logits, distances)
    }

    fn has_distances(&self) -> bool {
        true
    }

    fn means(&self) -> Option<&[f32]> {
        Some(self.params.get(MEANS))
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        // d(-|z - mu|^2 / 2) / dz = -(z - mu)
        let weights: Vec<[f32; 2]> = dlogits.iter().map(|&g| [-g as f32, 0.0]).collect();
        vector::to_many(dz, z, self.params.get(MEANS), &weights);
    }

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        Ok(nearest_mean_to_onnx(graph, z, self.params.get(MEANS), self.latent, 0.5))
    }
}

#[cfg(test)]
impl super::tests::Reference for Config {
    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{cross_entropy, mean_loss, square};
        mean_loss(z, y, latent, |z, y| {
            let logits: Vec<f64> = params[MEANS].chunks(latent).map(|mean| -0.5 * square(z, mean)).collect();
            cross_entropy(&logits, y)
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, y: usize) -> Option<f64> {
        Some(-score.posterior[y].ln())
    }
}
