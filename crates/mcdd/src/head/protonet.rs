//! Prototypical networks (Snell, Swersky, Zemel, NeurIPS 2017).
//!
//! A batch is an episode: some classes, and a few rows of each. The first of a class's rows (its shots) make its
//! prototype, their mean latent; each of the others (its queries) is classified by a softmax over
//! `-|z - c_k|^2`, and the loss is the mean cross-entropy of the queries. Gradients flow through the prototypes. At
//! prediction, the prototypes are the class means over all training rows, and the confidence is minus the squared distance to
//! the nearest.

use serde::{Deserialize, Serialize};

use super::{
    About, CenterUpdates, Head, LossBuffers, Objective, Sampling, fixed, nearest_mean, nearest_mean_to_onnx,
    out_of_range,
};
use crate::compute::pool::Pool;
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params};
use crate::onnx::{Builder, Scores, Value};
use crate::seed::Stream;
use crate::stats::moments;

/// The settings of prototypical networks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Rows of a class that make its prototype in an episode, at least 1; 5.
    pub shots: usize,
    /// Rows of a class that are compared with the prototypes, at least 1; 15.
    pub queries: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { shots: 5, queries: 15 }
    }
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "protonet",
        title: "ProtoNet",
        summary: "prototypical network: episodes, then the distance to the nearest class mean",
        reference: "Snell, Swersky, Zemel: Prototypical Networks for Few-shot Learning, NeurIPS 2017",
    };

    fn check(&self) -> Result<()> {
        for (name, value) in [("shots", self.shots), ("queries", self.queries)] {
            if !(1..=10_000).contains(&value) {
                return Err(out_of_range(name, value, "1 to 10,000"));
            }
        }
        Ok(())
    }

    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        vec![fixed("prototypes", vec![classes, latent])]
    }

    /// The prototypes are 0 until the first update of the centers.
    fn build(&self, classes: usize, latent: usize, _seed: &mut Stream) -> Box<dyn Head> {
        Box::new(Protonet { config: self.clone(), classes, latent, params: Params::new(self.specs(classes, latent)) })
    }

    fn center_updates(&self) -> CenterUpdates {
        CenterUpdates::EachEpoch
    }

    fn sampling(&self) -> Sampling {
        Sampling::Episodes { rows: self.shots + self.queries }
    }
}

impl Config {
    /// How many of a class's `rows` in an episode make the prototype: in proportion, but never all if there are two.
    fn support(&self, rows: usize) -> usize {
        let proportion = (rows * self.shots).div_ceil(self.shots + self.queries);
        if rows < 2 { rows } else { proportion.clamp(1, rows - 1) }
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct Protonet {
    config: Config,
    classes: usize,
    latent: usize,
    params: Params,
}

const PROTOTYPES: usize = 0;

impl Head for Protonet {
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
            let support = self.config.support(rows.len());
            for &i in &rows[..support] {
                prototype.iter_mut().zip(row(i)).for_each(|(p, &z)| *p += z / support as f32);
            }
        }
        let queries: usize = ways.iter().map(|(_, rows)| rows.len() - self.config.support(rows.len())).sum();
        if queries == 0 {
            return 0.0;
        }
        // The mean over the queries, weighted by the episode's fraction of the batch.
        let scale = y.len() as f64 / (batch as f64 * queries as f64);
        let mut back = vec![0.0f32; prototypes.len()];
        let mut weights = vec![[0.0f32; 2]; ways.len()];
        let mut loss = 0.0;
        for (way, (_, rows)) in ways.iter().enumerate() {
            for &i in &rows[self.config.support(rows.len())..] {
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
                    w[0] = 2.0 * scale as f32 * g;
                }
                let dz = &mut dz[i * latent..(i + 1) * latent];
                vector::to_many(dz, row(i), &prototypes, &weights);
                for ((back, p), w) in back.chunks_exact_mut(latent).zip(prototypes.chunks_exact(latent)).zip(&weights) {
                    back.iter_mut().zip(p).zip(row(i)).for_each(|((b, &p), &z)| *b += w[0] * (p - z));
                }
            }
        }
        for ((_, rows), back) in ways.iter().zip(back.chunks_exact(latent)) {
            let support = self.config.support(rows.len());
            for &i in &rows[..support] {
                dz[i * latent..(i + 1) * latent].iter_mut().zip(back).for_each(|(d, &b)| *d = b / support as f32);
            }
        }
        loss * scale
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

    fn means(&self) -> Option<&[f32]> {
        Some(self.params.get(PROTOTYPES))
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        let weights: Vec<[f32; 2]> = dlogits.iter().map(|&g| [-2.0 * g as f32, 0.0]).collect();
        vector::to_many(dz, z, self.params.get(PROTOTYPES), &weights);
    }

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        Ok(nearest_mean_to_onnx(graph, z, self.params.get(PROTOTYPES), self.latent, 1.0))
    }
}

#[cfg(test)]
impl super::tests::Reference for Config {
    fn variants() -> Vec<Self> {
        vec![Config { shots: 1, queries: 1 }]
    }

    /// The mean over the queries of an episode, whose first rows of each class are its shots.
    fn loss(&self, _params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{cross_entropy, square};
        let rows: Vec<&[f64]> = z.chunks(latent).collect();
        let mut classes = y.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let (mut prototypes, mut queries) = (Vec::new(), Vec::new());
        for (way, &class) in classes.iter().enumerate() {
            let members: Vec<usize> = (0..y.len()).filter(|&i| y[i] == class).collect();
            let n = members.len();
            let wanted = (n as f64 * self.shots as f64 / (self.shots + self.queries) as f64).ceil() as usize;
            let support = if n == 1 { 1 } else { wanted.clamp(1, n - 1) };
            let mean = |d: usize| members[..support].iter().map(|&i| rows[i][d]).sum::<f64>() / support as f64;
            prototypes.push((0..latent).map(mean).collect::<Vec<f64>>());
            queries.extend(members[support..].iter().map(|&i| (i, way)));
        }
        let losses = queries.iter().map(|&(i, way)| {
            let logits: Vec<f64> = prototypes.iter().map(|p| -square(rows[i], p)).collect();
            cross_entropy(&logits, way)
        });
        if queries.is_empty() { 0.0 } else { losses.sum::<f64>() / queries.len() as f64 }
    }

    /// The prototypes of an episode are not those of a score.
    fn loss_from_score(&self, _score: &super::tests::Scored, _y: usize) -> Option<f64> {
        None
    }
}
