//! Objectives on latent vectors, one a file.
//!
//! A head gets latents and labels and gives the loss and its gradient. It owns its own parameters and never sees a
//! network, so that each works on any engine and on a user's own network. To add one: write its file, add it to
//! [`HeadConfig`] and to [`ALL`]; the conformance tests, the command line and the documentation find it there.

mod alad;
mod deep_mcdd;
mod deep_ncm;
mod deep_svdd;
mod gda;
mod protonet;
mod soft_mcdd;
mod softmax;

use serde::{Deserialize, Serialize};

pub use alad::Alad;
pub use deep_mcdd::{DeepMcdd, Sigma};
pub use deep_ncm::DeepNcm;
pub use deep_svdd::{Boundary, DeepSvdd};
pub use gda::Gda;
pub use protonet::Protonet;
pub use soft_mcdd::SoftMcdd;
pub use softmax::{Softmax, log_odds};

use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::net::{ParamSpec, Params};
use crate::seed::Stream;
use crate::spec;
use crate::stats::gaussians::Covariance;

/// An objective with its parameters.
pub trait Head: Send + Sync {
    /// The settings that it was made with.
    fn config(&self) -> HeadConfig;
    /// The number of classes that it tells apart; 0 if it does not classify.
    fn classes(&self) -> usize;
    /// Its parameters.
    fn params(&self) -> &Params;
    /// Its parameters, to change.
    fn params_mut(&mut self) -> &mut Params;

    /// The loss of some rows of a batch, their share of the batch's mean: the sum of their losses over `batch`, the
    /// number of all its rows. Writes the gradient with respect to the latents and to the head's parameters.
    ///
    /// # Shapes
    /// `z` and `dz` are `[n, latent]` by rows, `y` has n labels below [`Head::classes`], `gradients` the layout of
    /// [`Head::params`].
    fn loss(
        &self,
        z: &[f32],
        y: &[u32],
        batch: usize,
        dz: &mut [f32],
        gradients: &mut [f32],
        scratch: &mut LossBuffers,
    ) -> f64;

    /// Brings the parameters back into their legal range after an update.
    fn project(&mut self) {}

    /// Takes in, after each step, what [`Head::loss`] has written into `gradients` for the whole batch: the place for
    /// parameters that follow the latents by statistics and not by gradients.
    fn update_statistics(&mut self, _sums: &[f32]) {}

    /// Sets the parameters that follow from the latents of all training rows, as [`HeadConfig::center_updates`] says: before
    /// the first epoch (`epochs` is 0), or after each (`epochs` are over).
    ///
    /// # Errors
    /// If there is no solution.
    fn update_centers(&mut self, _z: &[f32], _y: &[u32], _epochs: usize, _pool: &Pool) -> Result<()> {
        Ok(())
    }

    /// For one latent vector: the logits, whose softmax is the posterior; the distance to each class where the head
    /// has distances (else `distances` is left alone); and the confidence, higher for what is more in-distribution.
    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64;

    /// Whether [`Head::score`] gives distances.
    fn has_distances(&self) -> bool;

    /// For one latent vector, `dz = sum_k dlogits_k * d logit_k / dz`.
    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]);
}

/// Buffers of [`Head::loss`], kept between steps.
#[derive(Clone, Debug, Default)]
pub struct LossBuffers {
    /// Two numbers for each row and class.
    pairs: Vec<[f32; 2]>,
}

impl LossBuffers {
    fn pairs(&mut self, n: usize) -> &mut [[f32; 2]] {
        if self.pairs.len() < n {
            self.pairs.resize(n, [0.0; 2]);
        }
        &mut self.pairs[..n]
    }
}

/// Which objective, with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
#[non_exhaustive]
pub enum HeadConfig {
    /// Eq. 5 of the paper.
    DeepMcdd {
        /// Weight of the distance term against the classification term; more than 0. The paper has 1 for tables.
        nu: f64,
        /// Whether the deviations are learned.
        sigma: Sigma,
    },
    /// Eq. 3 of the paper.
    SoftMcdd {
        /// Weight of the spheres' size against rows on their wrong side, more than 0: a sphere leaves out about
        /// `nu N` of its class's rows (N are all rows). Automatic is 0.01 over the number of classes.
        nu: Option<f64>,
    },
    /// A linear layer and cross-entropy.
    Softmax,
    /// Prototypical networks.
    Protonet {
        /// Rows of a class that make its prototype in an episode, at least 1; 5.
        shots: usize,
        /// Rows of a class that are compared with the prototypes, at least 1; 15.
        queries: usize,
    },
    /// Nearest class mean with online means.
    DeepNcm {
        /// What is left of a mean after a step, from 0 up to but not 1; 0.999.
        decay: f64,
    },
    /// One sphere for all rows; labels are not used.
    DeepSvdd {
        /// Whether the sphere has a radius.
        boundary: Boundary,
        /// Soft boundary: the share of rows outside, between 0 and 1; 0.1.
        nu: f64,
    },
    /// Adversarially learned anomaly detection; labels are not used.
    Alad {
        /// Features of the generator's code, at least 1; 32.
        code: usize,
        /// Features of each hidden layer of the discriminators, at least 1; 128.
        features: usize,
    },
    /// Gaussian discriminant analysis on the inputs, in closed form.
    Gda {
        /// What the classes share; tied.
        covariance: Covariance,
        /// How far covariances are drawn to a multiple of the identity, 0 to 1; 0. Automatic is Ledoit and Wolf's.
        shrinkage: Option<f64>,
    },
}

impl Default for HeadConfig {
    fn default() -> Self {
        HeadConfig::DeepMcdd { nu: 1.0, sigma: Sigma::One }
    }
}

/// How a method is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// A network and a head by the gradients of the head's loss.
    Gradients,
    /// A generator, an encoder and discriminators against each other.
    Adversarial,
    /// Not at all: one look at the inputs.
    ClosedForm,
}

/// When [`Head::update_centers`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CenterUpdates {
    /// Never.
    Never,
    /// Before the first epoch.
    Once,
    /// Before the first epoch and after each.
    EachEpoch,
}

/// How the rows of a batch are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Each row once an epoch, in random order.
    Shuffled,
    /// Some classes, and so many rows of each; the head's loss must see the whole batch at once.
    Episodes {
        /// Rows of a class.
        rows: usize,
    },
}

impl HeadConfig {
    /// Its name in [`ALL`].
    pub fn name(&self) -> &'static str {
        match self {
            HeadConfig::DeepMcdd { .. } => "deep-mcdd",
            HeadConfig::SoftMcdd { .. } => "soft-mcdd",
            HeadConfig::Softmax => "softmax",
            HeadConfig::Protonet { .. } => "protonet",
            HeadConfig::DeepNcm { .. } => "deep-ncm",
            HeadConfig::DeepSvdd { .. } => "deep-svdd",
            HeadConfig::Alad { .. } => "alad",
            HeadConfig::Gda { .. } => "gda",
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        let positive = |v: f64| v.is_finite() && v > 0.0;
        let wrong = |name: &str, value: String, rule: &str| {
            Err(Error::setting(format!("{name} is {value}")).hint(format!("{name} is {rule}")))
        };
        match *self {
            HeadConfig::DeepMcdd { nu, .. } if !positive(nu) => {
                wrong("nu", nu.to_string(), "a number above 0; the paper uses 1 for tables")
            }
            HeadConfig::SoftMcdd { nu: Some(nu) } if !positive(nu) => {
                wrong("nu", nu.to_string(), "a number above 0, or auto for 0.01 over the number of classes")
            }
            HeadConfig::Protonet { shots, .. } if !(1..=10_000).contains(&shots) => {
                wrong("shots", shots.to_string(), "1 to 10,000")
            }
            HeadConfig::Protonet { queries, .. } if !(1..=10_000).contains(&queries) => {
                wrong("queries", queries.to_string(), "1 to 10,000")
            }
            HeadConfig::DeepNcm { decay } if !(0.0..1.0).contains(&decay) => {
                wrong("decay", decay.to_string(), "a number from 0 up to but not 1")
            }
            HeadConfig::DeepSvdd { nu, .. } if !(nu > 0.0 && nu < 1.0) => {
                wrong("nu", nu.to_string(), "a share between 0 and 1")
            }
            HeadConfig::Alad { code, .. } if !(1..=65_536).contains(&code) => {
                wrong("code", code.to_string(), "1 to 65,536")
            }
            HeadConfig::Alad { features, .. } if !(1..=65_536).contains(&features) => {
                wrong("features", features.to_string(), "1 to 65,536")
            }
            HeadConfig::Gda { shrinkage: Some(s), .. } if !(0.0..=1.0).contains(&s) => {
                wrong("shrinkage", s.to_string(), "a number from 0 to 1, or auto")
            }
            _ => Ok(()),
        }
    }

    /// Whether it puts classes on rows. Those that do not use no labels either.
    pub fn classifies(&self) -> bool {
        !matches!(self, HeadConfig::DeepSvdd { .. } | HeadConfig::Alad { .. })
    }

    /// How it is trained.
    pub fn trained_by(&self) -> Loop {
        match self {
            HeadConfig::Alad { .. } => Loop::Adversarial,
            HeadConfig::Gda { .. } => Loop::ClosedForm,
            _ => Loop::Gradients,
        }
    }

    /// When its parameters are set from all latents.
    pub fn center_updates(&self) -> CenterUpdates {
        match self {
            HeadConfig::SoftMcdd { .. } | HeadConfig::Protonet { .. } => CenterUpdates::EachEpoch,
            HeadConfig::DeepSvdd { boundary: Boundary::Soft, .. } => CenterUpdates::EachEpoch,
            HeadConfig::DeepSvdd { .. } | HeadConfig::DeepNcm { .. } | HeadConfig::Gda { .. } => CenterUpdates::Once,
            _ => CenterUpdates::Never,
        }
    }

    /// How batches are drawn for it.
    pub fn sampling(&self) -> Sampling {
        match *self {
            HeadConfig::Protonet { shots, queries } => Sampling::Episodes { rows: shots + queries },
            _ => Sampling::Shuffled,
        }
    }

    /// Whether the layers below it may have biases: with them one sphere would shrink to a point, whatever comes in.
    pub fn allows_bias(&self) -> bool {
        !matches!(self, HeadConfig::DeepSvdd { .. })
    }

    /// Whether the network below it may have batch normalization: it has a bias of its own, and alad's networks are its own.
    pub fn allows_batch_norm(&self) -> bool {
        self.allows_bias() && self.trained_by() == Loop::Gradients
    }

    /// The parameters of a head for so many classes on so many latent features, without values.
    pub fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        match *self {
            HeadConfig::DeepMcdd { sigma, .. } => DeepMcdd::specs(sigma, classes, latent),
            HeadConfig::SoftMcdd { .. } => SoftMcdd::specs(classes, latent),
            HeadConfig::Softmax => Softmax::specs(classes, latent),
            HeadConfig::Protonet { .. } => Protonet::specs(classes, latent),
            HeadConfig::DeepNcm { .. } => DeepNcm::specs(classes, latent),
            HeadConfig::DeepSvdd { .. } => DeepSvdd::specs(latent),
            HeadConfig::Alad { features, .. } => Alad::specs(features, latent),
            HeadConfig::Gda { covariance, .. } => Gda::specs(covariance, classes, latent),
        }
    }

    /// A head for so many classes on so many latent features, with its first parameters.
    pub fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        match *self {
            HeadConfig::DeepMcdd { nu, sigma } => Box::new(DeepMcdd::new(nu, sigma, classes, latent, seed)),
            HeadConfig::SoftMcdd { nu } => Box::new(SoftMcdd::new(nu, classes, latent)),
            HeadConfig::Softmax => Box::new(Softmax::new(classes, latent, seed)),
            HeadConfig::Protonet { shots, queries } => Box::new(Protonet::new(shots, queries, classes, latent)),
            HeadConfig::DeepNcm { decay } => Box::new(DeepNcm::new(decay, classes, latent)),
            HeadConfig::DeepSvdd { boundary, nu } => Box::new(DeepSvdd::new(boundary, nu, latent)),
            HeadConfig::Alad { code, features } => Box::new(Alad::new(code, features, latent, seed)),
            HeadConfig::Gda { covariance, shrinkage } => Box::new(Gda::new(covariance, shrinkage, classes, latent)),
        }
    }

    /// A method by its name and settings, as users type it: `softmax`, `deep-mcdd:nu=0.1`.
    ///
    /// # Errors
    /// If there is no such name or setting, with the nearest ones.
    pub fn parse(text: &str) -> Result<HeadConfig> {
        let (name, settings) = spec::split(text)?;
        let entry = ALL.iter().find(|e| e.name == name).ok_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|e| e.name).collect();
            spec::unknown("method", name, &names)
        })?;
        let config = spec::with(&(entry.config)(), &settings)?;
        config.check()?;
        Ok(config)
    }
}

/// A line of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name that users type.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// Where it was published.
    pub reference: &'static str,
    /// Its default settings.
    pub config: fn() -> HeadConfig,
}

/// Every head.
pub const ALL: &[Entry] = &[
    Entry {
        name: "deep-mcdd",
        summary: "each class an isotropic Gaussian; confidence is minus the distance to the nearest",
        reference: "Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection, KDD 2020",
        config: HeadConfig::default,
    },
    Entry {
        name: "soft-mcdd",
        summary: "each class a sphere; confidence is how deep inside the best of them",
        reference: "Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection, KDD 2020 (Eq. 3)",
        config: || HeadConfig::SoftMcdd { nu: None },
    },
    Entry {
        name: "softmax",
        summary: "linear layer and cross-entropy; confidence is the log-odds of the largest posterior (MSP)",
        reference: "Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017",
        config: || HeadConfig::Softmax,
    },
    Entry {
        name: "protonet",
        summary: "prototypical network: episodes, then the distance to the nearest class mean",
        reference: "Snell, Swersky, Zemel: Prototypical Networks for Few-shot Learning, NeurIPS 2017",
        config: || HeadConfig::Protonet { shots: 5, queries: 15 },
    },
    Entry {
        name: "deep-ncm",
        summary: "softmax over distances to class means that follow the latents online",
        reference: "Guerriero, Caputo, Mensink: DeepNCM: Deep Nearest Class Mean Classifiers, ICLR Workshop 2018",
        config: || HeadConfig::DeepNcm { decay: 0.999 },
    },
    Entry {
        name: "deep-svdd",
        summary: "one sphere around all rows, without labels; does not classify",
        reference: "Ruff et al.: Deep One-Class Classification, ICML 2018",
        config: || HeadConfig::DeepSvdd { boundary: Boundary::OneClass, nu: 0.1 },
    },
    Entry {
        name: "alad",
        summary: "adversarial reconstruction error in a discriminator's features; does not classify",
        reference: "Zenati et al.: Adversarially Learned Anomaly Detection, ICDM 2018",
        config: || HeadConfig::Alad { code: 32, features: 128 },
    },
    Entry {
        name: "gda",
        summary: "a Gaussian for each class on the inputs themselves, in closed form",
        reference: "Hastie, Tibshirani, Friedman: The Elements of Statistical Learning, 2009 (section 4.3)",
        config: || HeadConfig::Gda { covariance: Covariance::Tied, shrinkage: Some(0.0) },
    },
];

/// The posterior of each class from its logit, in place; returns the log of the sum of their exponentials.
pub fn posterior(logits: &mut [f64]) -> f64 {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let mut sum = 0.0;
    for v in logits.iter_mut() {
        *v = libm::exp(*v - largest);
        sum += *v;
    }
    if !(sum.is_finite() && sum > 0.0) {
        // Logits that overflowed say nothing.
        let n = logits.len() as f64;
        logits.iter_mut().for_each(|v| *v = 1.0 / n);
        return largest;
    }
    for v in logits.iter_mut() {
        *v /= sum;
    }
    largest + libm::log(sum)
}

/// `|a - b|^2` in f64, so that rows far away and rows close together still differ.
fn square_f64(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for ((l, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            let d = f64::from(a) - f64::from(b);
            *l += d * d;
        }
    }
    lanes.iter().sum()
}

/// The squared distances of `z` to means that follow each other, minus `scale` times them as logits, and minus the
/// least of them as the confidence.
fn nearest_mean(z: &[f32], means: &[f32], scale: f64, logits: &mut [f64], distances: &mut [f64]) -> f64 {
    let mut least = f64::INFINITY;
    for ((mean, logit), distance) in means.chunks_exact(z.len()).zip(logits).zip(distances) {
        *distance = square_f64(z, mean);
        *logit = -scale * *distance;
        least = least.min(*distance);
    }
    -least
}

#[cfg(test)]
mod tests;
