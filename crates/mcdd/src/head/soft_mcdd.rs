//! Soft-boundary MCDD (Lee, Yu, Yu, KDD 2020, Eq. 3): each class is a sphere.
//!
//! **The equation.** With `d_ik = |z_i - c_k|^2` and `alpha_ik` 1 for a row's own class and -1 for every other, the objective
//! is `sum_k [R_k^2 + 1/(nu N) sum_i max(0, alpha_ik (d_ik - R_k^2))]`: rows belong inside their own sphere and outside all
//! others. The paper minimizes it in turns: the network by gradients with the spheres fixed, then the centers and radii
//! with the network fixed.
//!
//! **Why it cannot be minimized as it is.** It is homogeneous: multiplying latents, centers and radii by `s` multiplies it by
//! `s^2`, so its minimum is 0, where all rows are one point. Exact minimization over centers and radii ends there
//! (accuracy 11% on MNIST). The authors' code sets a center to its class's mean and a radius to the 0.9 quantile of its class's
//! distances. Then nothing fixes the scale either: rows that are pushed out of a sphere enlarge their own, and both grow
//! without end.
//!
//! **What is done.** The loss of the network is Eq. 3, with its weights. The spheres are updated at the end of each epoch:
//!
//! - The centers fix the scale. They are orthogonal and of equal length from the start, and stay there, as the center of Deep
//!   SVDD does. Every latent near 0 is outside of all spheres, so that the first epochs pull and do not push.
//! - The radius is the `1 - nu` quantile of the distances of its class, as in Deep SVDD and in the authors' code. This is the
//!   minimum of Eq. 3 over `R_k` where no rows of other classes are inside, with the number of rows of the class for N:
//!   with the N of all rows, classes with less than `nu N` rows would have no sphere.
//! - A radius is at most half the distance between two centers: spheres touch, and never overlap. Without this bound a row of an
//!   overlap is pushed out of one sphere whose radius then follows the rows outside.
//!
//! The confidence is `max_k R_k^2 - d_k`, and the class is the one that has it. The form and `nu` were chosen on tables that the
//! paper does not use; Drive alone had a part in it (`docs/decisions/0007-soft-mcdd.md`).

use serde::{Deserialize, Serialize};

use super::{About, CenterUpdates, Head, LossBuffers, Objective, fixed, out_of_range, square_f64};
use crate::compute::pool::{Pool, chunks};
use crate::compute::vector;
use crate::error::Result;
use crate::net::{ParamSpec, Params};
use crate::onnx::{Builder, Scores, Value, wide};
use crate::seed::Stream;

/// The settings of Soft-MCDD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The weight of the spheres' size relative to rows on the wrong side, between 0 and 1: about this fraction of the rows
    /// of a class is outside of its sphere.
    pub nu: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { nu: 0.3 }
    }
}

impl Objective for Config {
    const ABOUT: About = About {
        name: "soft-mcdd",
        title: "Soft-MCDD",
        summary: "each class a sphere; confidence is how deep inside the best of them",
        reference: "Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection, KDD 2020 (Eq. 3)",
    };

    fn check(&self) -> Result<()> {
        if self.nu > 0.0 && self.nu < 1.0 {
            return Ok(());
        }
        Err(out_of_range("nu", self.nu, "a fraction between 0 and 1"))
    }

    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        vec![fixed("centers", vec![classes, latent]), fixed("squared_radii", vec![classes])]
    }

    /// Spheres of the largest radius, so that they touch.
    fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        let mut params = Params::new(self.specs(classes, latent));
        for (c, v) in params.get_mut(CENTERS).iter_mut().zip(centers(classes, latent, seed).into_iter().flatten()) {
            *c = v as f32;
        }
        params.get_mut(SQUARED_RADII).fill(LARGEST_SQUARED_RADIUS);
        Box::new(SoftMcdd { nu: self.nu, latent, params })
    }

    fn center_updates(&self) -> CenterUpdates {
        CenterUpdates::EachEpoch
    }
}

/// The head with its parameters.
#[derive(Clone, Debug)]
struct SoftMcdd {
    nu: f64,
    latent: usize,
    params: Params,
}

const CENTERS: usize = 0;
const SQUARED_RADII: usize = 1;
/// The distance of a center from 0 (`docs/decisions/0007-soft-mcdd.md` has another).
const LENGTH: f64 = 4.0;
/// Half the distance between orthogonal centers, squared.
const LARGEST_SQUARED_RADIUS: f32 = (LENGTH * LENGTH / 2.0) as f32;

/// Centers at least `LENGTH` from 0 and `sqrt(2) LENGTH` from each other: orthogonal and of this length, or, where there are
/// more classes than dimensions, random points as near to 0 as they come.
fn centers(classes: usize, latent: usize, seed: &mut Stream) -> Vec<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut all: Vec<Vec<f64>> = Vec::new();
    let mut deviation = LENGTH / (latent as f64).sqrt();
    while all.len() < classes {
        let mut new: Vec<f64> = (0..latent).map(|_| deviation * seed.normal()).collect();
        if classes <= latent {
            // Twice, because the first subtraction leaves a rounding error.
            for other in all.iter().chain(&all) {
                let part = dot(&new, other) / (LENGTH * LENGTH);
                new.iter_mut().zip(other).for_each(|(v, o)| *v -= part * o);
            }
            let factor = LENGTH / dot(&new, &new).sqrt();
            new.iter_mut().for_each(|v| *v *= factor);
        } else if dot(&new, &new) < LENGTH * LENGTH
            || all.iter().any(|o| dot(o, o) + dot(&new, &new) - 2.0 * dot(o, &new) < 2.0 * LENGTH * LENGTH)
        {
            deviation *= 1.01;
            continue;
        }
        all.push(new);
    }
    all
}

impl SoftMcdd {
    fn center(&self, class: usize) -> &[f32] {
        &self.params.get(CENTERS)[class * self.latent..(class + 1) * self.latent]
    }

    /// The squared radius of class `k`: the `1 - nu` quantile of the squared distances of its rows, or the largest that is
    /// allowed. None without rows.
    fn squared_radius(&self, k: usize, z: &[f32], y: &[u32]) -> Option<f32> {
        let rows = z.chunks_exact(self.latent).zip(y).filter(|&(_, &y)| y as usize == k);
        let mut distances: Vec<f32> = rows.map(|(z, _)| vector::squared_distance(z, self.center(k))).collect();
        let last = distances.len().checked_sub(1)?;
        let rank = ((1.0 - self.nu) * last as f64).round() as usize;
        Some(distances.select_nth_unstable_by(rank, f32::total_cmp).1.min(LARGEST_SQUARED_RADIUS))
    }
}

impl Head for SoftMcdd {
    fn classes(&self) -> usize {
        self.params.specs()[SQUARED_RADII].len()
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
        gradients.fill(0.0);
        let (classes, latent, radii) = (self.classes(), self.latent, self.params.get(SQUARED_RADII));
        let scale = 1.0 / (self.nu * batch as f64);
        let volume: f64 = radii.iter().map(|&r| f64::from(r)).sum();
        let mut loss = volume * y.len() as f64 / batch as f64;
        let pairs = scratch.pairs(classes);
        for ((z, &y), dz) in z.chunks_exact(latent).zip(y).zip(dz.chunks_exact_mut(latent)) {
            for (k, pair) in pairs.iter_mut().enumerate() {
                let alpha = if k == y as usize { 1.0 } else { -1.0 };
                let wrong = alpha * (vector::squared_distance(z, self.center(k)) - radii[k]);
                loss += scale * f64::from(wrong.max(0.0));
                pair[0] = if wrong > 0.0 { 2.0 * alpha * scale as f32 } else { 0.0 };
            }
            vector::to_many(dz, z, self.params.get(CENTERS), pairs);
        }
        loss
    }

    /// The radii follow the rows after each epoch. The untrained network's rows are far from all centers, so the first epoch
    /// has the largest radii.
    fn update_centers(&mut self, z: &[f32], y: &[u32], _epochs: usize, pool: &Pool) -> Result<()> {
        let mut radii = self.params.get(SQUARED_RADII).to_vec();
        let head = &*self;
        pool.split(chunks(&mut radii, 1), |k, radius| {
            radius[0] = head.squared_radius(k, z, y).unwrap_or(radius[0]);
        });
        self.params.get_mut(SQUARED_RADII).copy_from_slice(&radii);
        Ok(())
    }

    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64 {
        let mut best = f64::NEG_INFINITY;
        for (k, &radius) in self.params.get(SQUARED_RADII).iter().enumerate() {
            distances[k] = square_f64(z, self.center(k));
            logits[k] = f64::from(radius) - distances[k];
            best = best.max(logits[k]);
        }
        best
    }

    fn has_distances(&self) -> bool {
        true
    }

    fn class_confidence(&self, class: usize, logits: &[f64], _distances: &[f64]) -> f64 {
        logits[class]
    }

    fn means(&self) -> Option<&[f32]> {
        Some(self.params.get(CENTERS))
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        let weights: Vec<[f32; 2]> = dlogits.iter().map(|&g| [-2.0 * g as f32, 0.0]).collect();
        vector::to_many(dz, z, self.params.get(CENTERS), &weights);
    }

    fn to_onnx(&self, graph: &mut Builder, z: Value) -> Result<Scores> {
        let distances = graph.squared_distances(z, &wide(self.params.get(CENTERS)), self.latent);
        let radii = wide(self.params.get(SQUARED_RADII));
        let radii = graph.constant(&[1, radii.len()], &radii);
        let logits = graph.op("Sub", &[radii, distances]);
        Ok(Scores { confidence: graph.reduce("ReduceMax", logits, false), logits: Some(logits) })
    }
}

#[cfg(test)]
impl super::tests::Reference for Config {
    fn variants() -> Vec<Self> {
        vec![Config { nu: 0.05 }]
    }

    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        use super::tests::{mean_loss, row, square};
        let radii = &params[SQUARED_RADII];
        mean_loss(z, y, latent, |z, y| {
            let sphere = |k: usize| {
                let alpha = if k == y { 1.0 } else { -1.0 };
                radii[k] + (alpha * (square(z, row(&params[CENTERS], k, latent)) - radii[k])).max(0.0) / self.nu
            };
            (0..radii.len()).map(sphere).sum()
        })
    }

    fn loss_from_score(&self, score: &super::tests::Scored, y: usize) -> Option<f64> {
        let wrong = |(k, &l): (usize, &f64)| if k == y { (-l).max(0.0) } else { l.max(0.0) };
        let wrong: f64 = score.logits.iter().enumerate().map(wrong).sum();
        Some(score.params[SQUARED_RADII].iter().sum::<f64>() + wrong / self.nu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(nu: f64, classes: usize, latent: usize, seed: u64) -> SoftMcdd {
        let params = Config { nu }.build(classes, latent, &mut Stream::new(seed, "head")).params().clone();
        SoftMcdd { nu, latent, params }
    }

    /// Rows around the centers of a head, about as far as the largest radius or much nearer.
    fn rows(head: &SoftMcdd, n: usize, spread: f64, seed: u64) -> (Vec<f32>, Vec<u32>) {
        let mut s = Stream::new(seed, "rows");
        let y: Vec<u32> = (0..n).map(|_| s.below(head.classes()) as u32).collect();
        let scale = spread / (head.latent as f64).sqrt();
        let z = y.iter().flat_map(|&y| head.center(y as usize)).map(|&c| c + (scale * s.normal()) as f32).collect();
        (z, y)
    }

    /// Eq. 3 for one sphere and rows that are all of its class, as it is written.
    fn objective(nu: f64, r: f64, distances: &[f64]) -> f64 {
        r + distances.iter().map(|d| (d - r).max(0.0)).sum::<f64>() / (nu * distances.len() as f64)
    }

    #[test]
    fn the_largest_spheres_touch_and_do_not_overlap() {
        for (classes, latent) in [(2, 2), (10, 128), (128, 128), (10, 2), (6, 1), (1, 1), (7, 3)] {
            let head = head(0.3, classes, latent, 1);
            let half = f64::from(LARGEST_SQUARED_RADIUS).sqrt();
            for k in 0..classes {
                let norm = square_f64(head.center(k), &vec![0.0; latent]).sqrt();
                assert!(norm > LENGTH - 1e-4, "{classes} {latent}: {norm}");
                for j in 0..k {
                    let apart = square_f64(head.center(k), head.center(j)).sqrt();
                    assert!(apart > 2.0 * half - 1e-4, "{classes} {latent}: {apart}");
                    assert!(classes > latent || apart < 2.0 * half + 1e-4, "{classes} {latent}: {apart}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_radius_minimizes_eq_3_over_its_class(seed in 0u64..1000, n in 1usize..60, nu in 0.01f64..0.9) {
            let mut head = head(nu, 2, 3, seed);
            let (z, y) = rows(&head, n, 0.5, seed);
            let before = head.params.get(SQUARED_RADII).to_vec();
            head.update_centers(&z, &y, 1, &Pool::new(1)).unwrap();
            for (k, &before) in before.iter().enumerate() {
                let r = f64::from(head.params.get(SQUARED_RADII)[k]);
                let of_class = z.chunks(3).zip(&y).filter(|&(_, &y)| y as usize == k);
                let mut d: Vec<f64> = of_class.map(|(z, _)| square_f64(z, head.center(k))).collect();
                if d.is_empty() {
                    prop_assert_eq!(head.params.get(SQUARED_RADII)[k], before, "a class without rows keeps its sphere");
                    continue;
                }
                d.sort_by(f64::total_cmp);
                let outside = d.iter().filter(|&&d| d > r * (1.0 + 1e-6)).count() as f64;
                prop_assert!((outside - nu * (d.len() - 1) as f64).abs() < 0.5 + 1e-9, "{outside} of {} outside", d.len());
                // The rank is rounded, so the exact minimum is at this distance or at one beside it.
                let at = d.iter().position(|&d| d >= r * (1.0 - 1e-6)).unwrap_or(d.len() - 1);
                let near = &d[at.saturating_sub(1)..(at + 2).min(d.len())];
                let best = near.iter().map(|&r| objective(nu, r, &d)).fold(f64::INFINITY, f64::min);
                for &other in &d {
                    prop_assert!(objective(nu, other, &d) >= best * (1.0 - 1e-6));
                }
            }
        }

        #[test]
        fn updates_keep_the_centers_and_the_bound(seed in 0u64..200, spread in 0.1f64..50.0) {
            let mut head = head(0.1, 4, 6, seed);
            let (z, y) = rows(&head, 80, spread, seed);
            let centers = head.params.get(CENTERS).to_vec();
            for epoch in 0..3 {
                head.update_centers(&z, &y, epoch, &Pool::new(2)).unwrap();
            }
            prop_assert_eq!(head.params.get(CENTERS), &centers[..]);
            prop_assert!(head.params.get(SQUARED_RADII).iter().all(|&r| (0.0..=LARGEST_SQUARED_RADIUS).contains(&r)));
            if spread > 10.0 {
                prop_assert!(head.params.get(SQUARED_RADII).contains(&LARGEST_SQUARED_RADIUS));
            }
        }
    }

    /// Latents that move along the gradient of Eq. 3 with updates in between: they must end at their own centers, neither at
    /// one point nor ever farther away.
    #[test]
    fn the_alternation_neither_collapses_nor_grows() {
        let mut head = head(0.1, 5, 8, 3);
        let mut s = Stream::new(3, "start");
        let y: Vec<u32> = (0..100).map(|i| i % 5).collect();
        let mut z: Vec<f32> = (0..100 * 8).map(|_| s.normal() as f32).collect();
        for epoch in 0..50 {
            head.update_centers(&z, &y, epoch, &Pool::new(1)).unwrap();
            for _ in 0..10 {
                let (mut dz, mut g) = (vec![0.0; z.len()], vec![0.0; head.params.data.len()]);
                head.loss(&z, &y, 100, &mut dz, &mut g, &mut LossBuffers::default());
                z.iter_mut().zip(&dz).for_each(|(z, d)| *z -= 0.3 * d);
            }
        }
        for (z, &y) in z.chunks(8).zip(&y) {
            let (mut logits, mut distances) = ([0.0; 5], [0.0; 5]);
            head.score(z, &mut logits, &mut distances);
            let best = (0..5).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            assert_eq!(best as u32, y);
            assert!(distances[best] < f64::from(LARGEST_SQUARED_RADIUS) * 1.01, "{distances:?}");
        }
    }
}
