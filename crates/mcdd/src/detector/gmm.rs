//! Gaussian mixture, fitted to all rows by expectation maximization; labels are not used.
//!
//! `confidence = log sum_c w_c N(x | mu_c, S_c)`, the log density with all its constants.
//!
//! The fit is initialized by k-means (with k-means++ from the seed). It ends when the mean log density of the rows changes
//! by less than `tolerance`, or after `iterations` iterations. In each iteration `regularization` is added to the diagonal
//! of each covariance, so that no component shrinks to a point; if the features are so small that it would dominate, a
//! thousandth of their mean variance is added instead. Components that k-means leaves empty, because there are too few
//! distinct rows, are removed. By default there are as many components as classes, or 8 without classes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::k_means::KMeans;
use super::mahalanobis::{check_covariance_memory, load_gaussians, save_gaussians};
use super::{
    About, BLOCK, Detector, DetectorBuffers, Features, FitDetector, MAX_SQUARE_WIDTH, Needs, StateDict, Training,
    out_of_range,
};
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::gaussians::{Covariance, Gaussians};
use crate::stats::moments::{mean, scatter_of};
use crate::stats::whitening::{MIN_VARIANCE, Whitening, positive_variances};

/// Smaller responsibilities are ignored: they would be lost to rounding.
const MIN_RESPONSIBILITY: f64 = 1e-20;
/// The default number of components without classes.
const COMPONENTS: usize = 8;

/// Settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The number of Gaussians, 1 to 10,000. Default (auto): the number of classes, or 8 without classes; at most the
    /// number of rows.
    pub components: Option<usize>,
    /// `full` (the default), `diagonal` (independent features) or `tied` (one for all components).
    pub covariance: Covariance,
    /// Added to each variance; 0 or more. Default: 1e-6.
    pub regularization: f64,
    /// The largest number of iterations, 1 to 100,000. Default: 100.
    pub iterations: usize,
    /// The change of the mean log density below which the fit ends; 0 or more. Default: 0.001.
    pub tolerance: f64,
}

impl Default for Config {
    fn default() -> Self {
        let covariance = Covariance::Full;
        Config { components: None, covariance, regularization: 1e-6, iterations: 100, tolerance: 1e-3 }
    }
}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "gmm",
            summary: "log density of a Gaussian mixture, fitted without labels",
            reference: "Dempster, Laird, Rubin: Maximum Likelihood from Incomplete Data via the EM Algorithm, Journal of \
                    the Royal Statistical Society B 1977",
            needs: Needs { features: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        if let Some(n) = self.components.filter(|n| !(1..=10_000).contains(n)) {
            return Err(out_of_range("components", n, "1 to 10,000, or auto"));
        }
        if !(0.0..=1e30).contains(&self.regularization) {
            return Err(out_of_range("regularization", self.regularization, "0 or more"));
        }
        if !(1..=100_000).contains(&self.iterations) {
            return Err(out_of_range("iterations", self.iterations, "1 to 100,000"));
        }
        if !(self.tolerance >= 0.0 && self.tolerance.is_finite()) {
            return Err(out_of_range("tolerance", self.tolerance, "0 or more"));
        }
        Ok(())
    }

    fn max_width(&self) -> usize {
        MAX_SQUARE_WIDTH
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let auto = if training.classes > 0 { training.classes } else { COMPONENTS };
        let components = self.components.unwrap_or(auto.min(rows.count));
        if components > rows.count {
            let rule = format!("at most the number of rows, {}", rows.count);
            return Err(out_of_range("components", components, &rule));
        }
        if self.covariance == Covariance::Full {
            check_covariance_memory(components, rows.width())?;
        }
        let em = Em::new(rows.features, rows.width(), self, pool);
        Ok(Mixture::boxed(em.run(components, training.seed)))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Ok(Mixture::boxed(load_gaussians(state, "", self.covariance, state.width())?))
    }
}

struct Mixture {
    gaussians: Gaussians,
    log_weights: Vec<f64>,
}

impl Mixture {
    fn boxed(gaussians: Gaussians) -> Box<dyn Detector> {
        let log_weights = gaussians.log_priors();
        Box::new(Mixture { gaussians, log_weights })
    }
}

impl Detector for Mixture {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        scratch.f64s.resize(out.len() * self.log_weights.len(), 0.0);
        self.gaussians.log_densities(rows.features, &mut scratch.f64s, &mut scratch.f32s);
        for (o, row) in out.iter_mut().zip(scratch.f64s.chunks_exact_mut(self.log_weights.len())) {
            *o = to_responsibilities(row, &self.log_weights, self.gaussians.width());
        }
    }

    fn save(&self, state: &mut StateDict) {
        save_gaussians(state, "", &self.gaussians);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let densities = self.gaussians.log_densities_to_onnx(graph, rows.features()?);
        let weights = graph.constant(&[1, self.log_weights.len()], &self.log_weights);
        let densities = graph.op("Add", &[densities, weights]);
        let log = graph.log_sum_exp(densities, 1.0);
        let constant = -0.5 * self.gaussians.width() as f64 * libm::log(core::f64::consts::TAU);
        Ok(Scores { confidence: graph.shift(log, constant), logits: None })
    }
}

/// Replaces the log densities of a row under each component by the responsibilities of the components; returns the log
/// density of the mixture.
fn to_responsibilities(row: &mut [f64], log_weights: &[f64], width: usize) -> f64 {
    row.iter_mut().zip(log_weights).for_each(|(l, w)| *l += w);
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|l| *l = libm::exp(*l - largest));
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|l| *l /= sum);
    largest + libm::log(sum) - 0.5 * width as f64 * libm::log(core::f64::consts::TAU)
}

/// Expectation maximization.
struct Em<'a> {
    x: &'a [f32],
    width: usize,
    rows: usize,
    config: &'a Config,
    pool: &'a Pool,
    /// The mean of all rows as f32, so that the scatter of a constant feature is exactly 0.
    center: Vec<f32>,
    /// The variance of each feature, and the mean of them.
    variances: Vec<f64>,
    variance: f64,
    /// Added to the diagonals of the covariances.
    regularization: f64,
}

impl<'a> Em<'a> {
    fn new(x: &'a [f32], width: usize, config: &'a Config, pool: &'a Pool) -> Em<'a> {
        let rows = x.len() / width.max(1);
        let center: Vec<f32> = mean(x, width).iter().map(|&v| v as f32).collect();
        let mut variances = vec![0.0; width];
        for row in x.chunks_exact(width.max(1)) {
            for ((v, &x), &c) in variances.iter_mut().zip(row).zip(&center) {
                let d = f64::from(x) - f64::from(c);
                *v += d * d / rows as f64;
            }
        }
        let variance = variances.iter().sum::<f64>() / width.max(1) as f64;
        let small = if variance > 0.0 { 1e-3 * variance } else { f64::INFINITY };
        let regularization = config.regularization.min(small);
        Em { x, width, rows, config, pool, center, variances, variance, regularization }
    }

    fn row(&self, r: usize) -> &[f32] {
        &self.x[r * self.width..(r + 1) * self.width]
    }

    fn run(&self, components: usize, seed: u64) -> Gaussians {
        let (labels, components) = self.clusters(components, seed);
        let mut responsibilities = vec![0.0; self.rows * components];
        responsibilities.chunks_exact_mut(components).zip(&labels).for_each(|(row, &y)| row[y as usize] = 1.0);
        // The scatter around the mean of all rows. The tied covariance is this minus the scatter of the components' means.
        let scatter = (self.config.covariance == Covariance::Tied).then(|| self.scatter(&self.center, |_| 1.0));
        let mut gaussians = self.maximize(&responsibilities, components, scatter.as_deref());
        let mut before = f64::NEG_INFINITY;
        for _ in 0..self.config.iterations {
            let density = self.expect(&gaussians, &mut responsibilities);
            gaussians = self.maximize(&responsibilities, components, scatter.as_deref());
            if (density - before).abs() <= self.config.tolerance {
                break;
            }
            before = density;
        }
        gaussians
    }

    /// The E step: computes all responsibilities and returns the mean log density.
    fn expect(&self, gaussians: &Gaussians, responsibilities: &mut [f64]) -> f64 {
        let log_weights = gaussians.log_priors();
        let components = log_weights.len();
        let mut densities = vec![0.0; self.rows];
        let parts = (chunks(responsibilities, BLOCK * components), chunks(&mut densities, BLOCK));
        self.pool.split(parts, |i, (responsibilities, densities)| {
            let x = &self.x[i * BLOCK * self.width..][..densities.len() * self.width];
            gaussians.log_densities(x, responsibilities, &mut Default::default());
            for (row, d) in responsibilities.chunks_exact_mut(components).zip(densities) {
                *d = to_responsibilities(row, &log_weights, self.width);
            }
        });
        densities.iter().sum::<f64>() / self.rows as f64
    }

    /// The M step: the most likely Gaussians given the responsibilities.
    fn maximize(&self, responsibilities: &[f64], components: usize, scatter: Option<&[f64]>) -> Gaussians {
        let width = self.width;
        let weight = |r: usize, c: usize| responsibilities[r * components + c];
        // Slightly above the sum, as a component may have lost all its rows.
        let weights: Vec<f64> =
            (0..components).map(|c| (0..self.rows).map(|r| weight(r, c)).sum::<f64>() + 10.0 * f64::EPSILON).collect();
        let mut means = vec![0.0; components * width];
        self.pool.split(chunks(&mut means, width), |c, mean| {
            for r in (0..self.rows).filter(|&r| weight(r, c) > MIN_RESPONSIBILITY) {
                let weight = weight(r, c);
                mean.iter_mut().zip(self.row(r)).for_each(|(m, &x)| *m += weight * f64::from(x));
            }
            mean.iter_mut().for_each(|m| *m /= weights[c]);
        });
        let narrow = |c: usize| -> Vec<f32> { means[c * width..(c + 1) * width].iter().map(|&m| m as f32).collect() };
        let whitenings = match self.config.covariance {
            Covariance::Full => (0..components)
                .map(|c| self.whitening(self.scatter(&narrow(c), |r| weight(r, c)), weights[c]))
                .collect(),
            Covariance::Diagonal => (0..components)
                .map(|c| {
                    let mut sums = vec![0.0; width];
                    let center = narrow(c);
                    for r in (0..self.rows).filter(|&r| weight(r, c) > MIN_RESPONSIBILITY) {
                        for ((s, &x), &m) in sums.iter_mut().zip(self.row(r)).zip(&center) {
                            let d = f64::from(x) - f64::from(m);
                            *s += weight(r, c) * d * d;
                        }
                    }
                    // As for full covariances, a variance has a lower limit relative to that of the feature.
                    let least = self.variances.iter().map(|v| MIN_VARIANCE * v);
                    let variances: Vec<f64> =
                        sums.iter().zip(least).map(|(s, l)| (s / weights[c]).max(l) + self.regularization).collect();
                    Whitening::diagonal(&positive_variances(&variances))
                })
                .collect(),
            Covariance::Tied => vec![self.tied(scatter.unwrap_or_default(), &means, &weights)],
        };
        Gaussians::new(self.config.covariance, means, weights, whitenings)
    }

    /// The whitening of the covariance `scatter / weight`, with the regularization added.
    fn whitening(&self, mut scatter: Vec<f64>, weight: f64) -> Whitening {
        scatter.iter_mut().for_each(|s| *s /= weight);
        scatter.iter_mut().step_by(self.width + 1).for_each(|s| *s += self.regularization);
        Whitening::full(&scatter, self.width)
    }

    /// The tied covariance: the scatter of all rows minus that of the components' means.
    fn tied(&self, scatter: &[f64], means: &[f64], weights: &[f64]) -> Whitening {
        let fill = |here: Range<usize>, out: &mut [f64]| {
            for (c, out) in here.zip(out.chunks_exact_mut(self.width)) {
                let weight = libm::sqrt(weights[c]);
                for ((o, m), &all) in out.iter_mut().zip(&means[c * self.width..]).zip(&self.center) {
                    *o = weight * (m - f64::from(all));
                }
            }
        };
        let between = scatter_of(weights.len(), self.width, &fill, self.pool);
        self.whitening(scatter.iter().zip(between).map(|(s, b)| s - b).collect(), self.rows as f64)
    }

    /// `sum weight (x - center)(x - center)^T` over the rows.
    fn scatter(&self, center: &[f32], weight: impl Fn(usize) -> f64 + Sync) -> Vec<f64> {
        let own: Vec<usize> = (0..self.rows).filter(|&r| weight(r) > MIN_RESPONSIBILITY).collect();
        let fill = |here: Range<usize>, out: &mut [f64]| {
            for (&r, out) in own[here].iter().zip(out.chunks_exact_mut(self.width)) {
                let root = libm::sqrt(weight(r));
                for ((o, &x), &c) in out.iter_mut().zip(self.row(r)).zip(center) {
                    *o = root * (f64::from(x) - f64::from(c));
                }
            }
        };
        scatter_of(own.len(), self.width, &fill, self.pool)
    }

    /// The cluster of each row, and the number of clusters.
    fn clusters(&self, wanted: usize, seed: u64) -> (Vec<u32>, usize) {
        // All features are scaled by one number, which changes no cluster and keeps squares within f32.
        let scale = if self.variance > 0.0 { 1.0 / libm::sqrt(self.variance) } else { 1.0 };
        let z: Vec<f32> = (0..self.x.len())
            .map(|i| ((f64::from(self.x[i]) - f64::from(self.center[i % self.width])) * scale) as f32)
            .collect();
        let mut labels = KMeans { z: &z, width: self.width, pool: self.pool }.run(wanted, seed);
        // Renumber the clusters without gaps.
        let mut number = vec![None; wanted];
        let mut count = 0;
        for y in &mut labels {
            *y = *number[*y as usize].get_or_insert_with(|| {
                count += 1;
                count - 1
            });
        }
        (labels, count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detector::{DetectorConfig, Fitted};
    use crate::seed::Stream;
    use nalgebra::{DMatrix, DVector};

    /// Three groups, one of them with a larger variance.
    fn groups(rows: usize, width: usize) -> Vec<f32> {
        let mut s = Stream::new(4, "groups");
        let mut x = Vec::new();
        for r in 0..rows {
            let common = s.normal();
            let (size, mean) = [(1.0, 0.0), (1.0, 12.0), (3.0, -20.0)][r % 3];
            x.extend((0..width).map(|j| (mean * (j + 1) as f64 + size * (s.normal() + common)) as f32));
        }
        x
    }

    fn training(x: &[f32], width: usize) -> Training<'_> {
        let rows = Features { count: x.len() / width, features: x, logits: &[] };
        Training { rows, seed: 3, ..Training::default() }
    }

    #[test]
    fn finds_separate_groups() {
        let (rows, width) = (600, 4);
        let x = groups(rows, width);
        let pool = Pool::new(2);
        // The groups are so far apart that each component belongs to one of them.
        let all: Vec<DVector<f64>> =
            x.chunks(width).map(|r| DVector::from_iterator(width, r.iter().map(|&v| f64::from(v)))).collect();
        let groups: Vec<_> = (0..3)
            .map(|g| {
                let own: Vec<_> = all.iter().skip(g).step_by(3).collect();
                let mean = own.iter().fold(DVector::zeros(width), |sum, r| sum + *r) / own.len() as f64;
                let s =
                    own.iter().fold(DMatrix::zeros(width, width), |s, r| s + (*r - &mean) * (*r - &mean).transpose());
                (mean, s / own.len() as f64)
            })
            .collect();
        let shared = (&groups[0].1 + &groups[1].1 + &groups[2].1) / 3.0;
        for text in ["full", "diagonal", "tied"] {
            let config = DetectorConfig::parse(&format!("gmm:components=3:covariance={text}")).unwrap();
            let fitted = Fitted::new(&config, &training(&x, width), &pool).unwrap();
            let scores = fitted.score(&training(&x, width).rows, &pool).unwrap();
            for (r, x) in all.iter().enumerate() {
                let density = |(mean, s): &(DVector<f64>, DMatrix<f64>)| {
                    let s = match text {
                        "full" => s.clone(),
                        "tied" => shared.clone(),
                        _ => DMatrix::from_diagonal(&s.diagonal()),
                    } + DMatrix::identity(width, width) * 1e-6;
                    let d = x - mean;
                    let distance = d.dot(&(s.clone().try_inverse().unwrap() * &d));
                    (-0.5 * distance).exp() / (s.determinant() * core::f64::consts::TAU.powi(width as i32)).sqrt() / 3.0
                };
                let expected = groups.iter().map(density).sum::<f64>().ln();
                assert!((scores[r] - expected).abs() < 1e-4 * expected.abs(), "{text} {r}: {} {expected}", scores[r]);
            }
        }
    }

    #[test]
    fn every_iteration_increases_the_density() {
        let mut s = Stream::new(5, "overlap");
        let x: Vec<f32> = (0..1200).map(|i| (s.normal() + if i % 6 < 2 { 1.5 } else { 0.0 }) as f32).collect();
        let pool = Pool::new(2);
        for covariance in [Covariance::Full, Covariance::Diagonal, Covariance::Tied] {
            let config = Config { covariance, ..Config::default() };
            let em = Em::new(&x, 2, &config, &pool);
            let (labels, count) = em.clusters(3, 1);
            assert_eq!(count, 3);
            let mut responsibilities: Vec<f64> =
                labels.iter().flat_map(|&y| (0..3).map(move |k| f64::from(u8::from(k == y)))).collect();
            let scatter = em.scatter(&em.center, |_| 1.0);
            let mut before = f64::NEG_INFINITY;
            for _ in 0..30 {
                let gaussians = em.maximize(&responsibilities, 3, Some(&scatter));
                let density = em.expect(&gaussians, &mut responsibilities);
                assert!(density > before - 1e-6, "{covariance:?}: {density} after {before}");
                before = density;
            }
        }
    }

    #[test]
    fn k_means_finds_groups_and_accepts_duplicates() {
        let x = groups(90, 2);
        let pool = Pool::new(2);
        let labels = KMeans { z: &x, width: 2, pool: &pool }.run(3, 7);
        for r in 3..90 {
            assert_eq!(labels[r], labels[r % 3]);
        }
        assert_eq!(labels, KMeans { z: &x, width: 2, pool: &Pool::new(1) }.run(3, 7));
        let config = Config::default();
        let copies = [1.0f32, 2.0, 1.0, 2.0, 5.0, 5.0];
        let em = Em::new(&copies, 2, &config, &pool);
        assert_eq!(em.clusters(3, 1).1, 2);
    }

    #[test]
    fn features_of_any_scale() {
        let pool = Pool::new(1);
        let x = groups(120, 2);
        let ranks = |scores: &[f64]| {
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            order[..20].to_vec()
        };
        let config = DetectorConfig::parse("gmm:components=3").unwrap();
        let mut found = Vec::new();
        for size in [1.0f32, 1e-15, 1e12] {
            let scaled: Vec<f32> = x.iter().map(|v| v * size).collect();
            let training = training(&scaled, 2);
            let scores = Fitted::new(&config, &training, &pool).unwrap().score(&training.rows, &pool).unwrap();
            assert!(scores.iter().all(|s| s.is_finite()));
            found.push(ranks(&scores));
        }
        assert_eq!(found[0], found[2]);
        // Regularization is relatively larger for small features.
        assert!(found[1].iter().filter(|r| found[0].contains(r)).count() >= 15);
        let few = training(&x[..4], 2);
        assert!(Fitted::new(&config, &few, &pool).is_err());
        assert!(Fitted::new(&DetectorConfig::parse("gmm").unwrap(), &few, &pool).is_ok());
        for wrong in ["components=0", "iterations=0", "tolerance=-1", "regularization=-1", "covariance=round"] {
            assert!(DetectorConfig::parse(&format!("gmm:{wrong}")).is_err(), "{wrong}");
        }
    }
}
