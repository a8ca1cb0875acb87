//! Objectives on latent vectors, one a file.
//!
//! A head gets latents and labels and gives the loss and its gradient. It owns its own parameters and never sees a
//! network, so that each works on any engine and on a user's own network. To add one: write its file, add it to
//! [`HeadConfig`] and to [`ALL`]; the conformance tests, the command line and the documentation find it there.

mod deep_mcdd;
mod softmax;

use serde::{Deserialize, Serialize};

pub use deep_mcdd::{DeepMcdd, Sigma};
pub use softmax::{Softmax, log_odds};

use crate::error::{Error, Result};
use crate::net::{ParamSpec, Params};
use crate::seed::Stream;

/// An objective with its parameters.
pub trait Head: Send + Sync {
    /// The settings that it was made with.
    fn config(&self) -> HeadConfig;
    /// The number of classes.
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
        scratch: &mut Scratch,
    ) -> f64;

    /// Brings the parameters back into their legal range after an update.
    fn project(&mut self) {}

    /// For one latent vector: the logits, whose softmax is the posterior; the distance to each class where the head
    /// has distances (else `distances` is left alone); and the confidence, higher for what is more in-distribution.
    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64;

    /// Whether [`Head::score`] gives distances.
    fn has_distances(&self) -> bool;
}

/// Buffers of [`Head::loss`], kept between steps.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Two numbers for each row and class.
    pairs: Vec<[f32; 2]>,
}

impl Scratch {
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
    /// A linear layer and cross-entropy.
    Softmax,
}

impl Default for HeadConfig {
    fn default() -> Self {
        HeadConfig::DeepMcdd { nu: 1.0, sigma: Sigma::One }
    }
}

impl HeadConfig {
    /// Its name in [`ALL`].
    pub fn name(&self) -> &'static str {
        match self {
            HeadConfig::DeepMcdd { .. } => "deep-mcdd",
            HeadConfig::Softmax => "softmax",
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        match *self {
            HeadConfig::DeepMcdd { nu, .. } if !(nu.is_finite() && nu > 0.0) => {
                Err(Error::setting(format!("nu is {nu}")).hint("nu is a number above 0; the paper uses 1 for tables"))
            }
            _ => Ok(()),
        }
    }

    /// The parameters of a head for so many classes on so many latent features, without values.
    pub fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
        match *self {
            HeadConfig::DeepMcdd { sigma, .. } => DeepMcdd::specs(sigma, classes, latent),
            HeadConfig::Softmax => Softmax::specs(classes, latent),
        }
    }

    /// A head for so many classes on so many latent features, with its first parameters.
    pub fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
        match *self {
            HeadConfig::DeepMcdd { nu, sigma } => Box::new(DeepMcdd::new(nu, sigma, classes, latent, seed)),
            HeadConfig::Softmax => Box::new(Softmax::new(classes, latent, seed)),
        }
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
        name: "softmax",
        summary: "linear layer and cross-entropy; confidence is the log-odds of the largest posterior (MSP)",
        reference: "Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017",
        config: || HeadConfig::Softmax,
    },
];

/// The default settings of the head called `name`.
///
/// # Errors
/// If there is none.
pub fn by_name(name: &str) -> Result<HeadConfig> {
    ALL.iter().find(|e| e.name == name).map(|e| (e.config)()).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|e| e.name).collect();
        Error::setting(format!("there is no method {name:?}")).hint(format!("the methods are {}", names.join(", ")))
    })
}

/// The posterior of each class from its logit, in place; returns the log of the sum of their exponentials.
pub fn posterior(logits: &mut [f64]) -> f64 {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let mut sum = 0.0;
    for v in logits.iter_mut() {
        *v = libm::exp(*v - largest);
        sum += *v;
    }
    for v in logits.iter_mut() {
        *v /= sum;
    }
    largest + libm::log(sum)
}

#[cfg(test)]
mod tests;
