//! Prototypical networks (Snell, Swersky, Zemel, NeurIPS 2017).
//!
//! A batch is an episode: some classes, and a few rows of each. The first of a class's rows (its shots) make its
//! prototype, their mean latent; each of the others (its queries) is put among the prototypes by a softmax over
//! `-|z - c_k|^2`, and the loss is the mean cross-entropy of the queries. Gradients flow through the prototypes. For
//! use, the prototypes are the class means over all training rows, and the confidence is minus the squared distance to
//! the nearest.

use super::{Head, HeadConfig, LossBuffers, nearest_mean};
use crate::compute::pool::Pool;
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params};
use crate::stats::moments;

/// The head; see the module's text.
#[derive(Clone, Debug)]
pub struct Protonet {
    shots: usize,
    queries: usize,
    classes: usize,
    latent: usize,
    params: Params,
}

const PROTOTYPES: usize = 0;

impl Protonet {
    /// Its parameters for so many classes on so many latent features.
    pub(super) fn specs(classes: usize, latent: usize) -> Vec<ParamSpec> {
        vec![ParamSpec { trained: false, ..ParamSpec::of_head("prototypes", vec![classes, latent]) }]
    }

    /// Prototypes at 0 until they are settled.
    pub fn new(shots: usize, queries: usize, classes: usize, latent: usize) -> Protonet {
        Protonet { shots, queries, classes, latent, params: Params::new(Self::specs(classes, latent)) }
    }

    /// How many of a class's `rows` in an episode make the prototype: its share, but never all where there are two.
    fn support(&self, rows: usize) -> usize {
        let share = (rows * self.shots).div_ceil(self.shots + self.queries);
        if rows < 2 { rows } else { share.clamp(1, rows - 1) }
    }
}

impl Head for Protonet {
    fn config(&self) -> HeadConfig {
        HeadConfig::Protonet { shots: self.shots, queries: self.queries }
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
        dz.fill(0.0);
        let latent = self.latent;
        // The classes of this episode, each with its rows in the order in which they come.
        let mut ways: Vec<(u32, Vec<usize>)> = Vec::new();
        let mut place = vec![usize::MAX; self.classes];
        for (i, &label) in y.iter().enumerate() {
            let way = &mut place[label as usize];
            if *way == usize::MAX {
                *way = ways.len();
                ways.push((label, Vec::new()));
            }
            ways[*way].1.push(i);
        }
        let row = |i: usize| &z[i * latent..(i + 1) * latent];
        let mut prototypes = vec![0.0f32; ways.len() * latent];
        for ((_, rows), prototype) in ways.iter().zip(prototypes.chunks_exact_mut(latent)) {
            let support = self.support(rows.len());
            for &i in &rows[..support] {
                prototype.iter_mut().zip(row(i)).for_each(|(p, &z)| *p += z / support as f32);
            }
        }
        let queries: usize = ways.iter().map(|(_, rows)| rows.len() - self.support(rows.len())).sum();
        if queries == 0 {
            return 0.0;
        }
        // The episode's mean, at its share of the batch.
        let share = y.len() as f64 / (batch as f64 * queries as f64);
        let mut back = vec![0.0f32; prototypes.len()];
        let mut weights = vec![[0.0f32; 2]; ways.len()];
        let mut loss = 0.0;
        for (way, (_, rows)) in ways.iter().enumerate() {
            for &i in &rows[self.support(rows.len())..] {
                let mut least = f32::INFINITY;
                for (w, p) in weights.iter_mut().zip(prototypes.chunks_exact(latent)) {
                    w[0] = vector::squared_distance(row(i), p);
                    least = least.min(w[0]);
                }
                let own = weights[way][0];
                let sum: f32 = weights.iter().map(|w| libm::expf(least - w[0])).sum();
                loss += f64::from(libm::logf(sum)) + (f64::from(own) - f64::from(least));
                for (k, w) in weights.iter_mut().enumerate() {
                    let g = f32::from(k == way) - libm::expf(least - w[0]) / sum;
                    w[0] = 2.0 * share as f32 * g;
                }
                let dz = &mut dz[i * latent..(i + 1) * latent];
                vector::to_many(dz, row(i), &prototypes, &weights);
                for ((back, p), w) in back.chunks_exact_mut(latent).zip(prototypes.chunks_exact(latent)).zip(&weights) {
                    back.iter_mut().zip(p).zip(row(i)).for_each(|((b, &p), &z)| *b += w[0] * (p - z));
                }
            }
        }
        for ((_, rows), back) in ways.iter().zip(back.chunks_exact(latent)) {
            let support = self.support(rows.len());
            for &i in &rows[..support] {
                dz[i * latent..(i + 1) * latent].iter_mut().zip(back).for_each(|(d, &b)| *d = b / support as f32);
            }
        }
        loss * share
    }

    fn update_centers(&mut self, z: &[f32], y: &[u32], _epochs: usize, _pool: &Pool) -> Result<()> {
        let (means, _) = moments::class_means(z, self.latent, y, self.classes);
        self.params.get_mut(PROTOTYPES).iter_mut().zip(means).for_each(|(m, v)| *m = v as f32);
        Ok(())
    }

    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64 {
        nearest_mean(z, self.params.get(PROTOTYPES), 1.0, logits, distances)
    }

    fn has_distances(&self) -> bool {
        true
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        let weights: Vec<[f32; 2]> = dlogits.iter().map(|&g| [-2.0 * g as f32, 0.0]).collect();
        vector::to_many(dz, z, self.params.get(PROTOTYPES), &weights);
    }
}
