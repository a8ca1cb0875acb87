//! Training objectives on latent vectors, one per file.
//!
//! A head takes latent vectors and labels and returns the loss and its gradient. It owns its parameters (class means,
//! deviations, biases) and never sees a network, so the same head works on every engine and on features from elsewhere.
//!
//! To add a head, write its file with a `Config` that implements [`Objective`] and a type that implements [`Head`], and
//! add a line to the list below. The conformance tests, the command line and the documentation find it there. A head can
//! also be written outside of this crate: everything that takes a [`Head`] takes any implementation.
//!
//! ```
//! use mcdd::head::{HeadConfig, LossBuffers, posterior};
//! use mcdd::seed::Stream;
//!
//! // Two classes in a latent space of two dimensions.
//! let head = HeadConfig::parse("deep-mcdd:nu=0.5")?.build(2, 2, &mut Stream::new(0, "init"));
//! let (z, y) = ([0.2, 0.1, -0.4, 0.3], [0, 1]);
//! let (mut dz, mut gradients) = ([0.0; 4], vec![0.0; head.params().data.len()]);
//! let loss = head.loss(&z, &y, 2, &mut dz, &mut gradients, &mut LossBuffers::default());
//! assert!(loss.is_finite());
//!
//! let (mut logits, mut distances) = ([0.0; 2], [0.0; 2]);
//! let near = head.score(&z[..2], &mut logits, &mut distances);
//! posterior(&mut logits);
//! assert!((logits.iter().sum::<f64>() - 1.0).abs() < 1e-12);
//! assert!(near > head.score(&[50.0, -50.0], &mut logits, &mut distances));
//! # Ok::<(), mcdd::Error>(())
//! ```

mod alad;
mod deep_mcdd;
mod deep_ncm;
mod deep_svdd;
mod gda;
mod math;
mod protonet;
mod soft_mcdd;
mod softmax;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use deep_mcdd::Sigma;
pub use deep_svdd::Boundary;
pub use math::posterior;
pub use softmax::log_odds;

use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::net::{ParamSpec, Params};
use crate::onnx::{Builder, Scores, Value};
use crate::seed::Stream;
use crate::spec;
use math::{dot_f64, nearest_mean, nearest_mean_to_onnx, square_f64};

/// An objective with its parameters.
///
/// A head can be written outside of this crate. In this one the loss of a row is the squared distance to the center of its
/// class:
///
/// ```
/// use mcdd::head::{Head, LossBuffers};
/// use mcdd::net::{ParamSpec, Params};
///
/// struct Centers(Params);
///
/// impl Centers {
///     fn difference(&self, z: &[f32], class: usize) -> [f32; 2] {
///         [0, 1].map(|d| z[d] - self.0.get(0)[2 * class + d])
///     }
/// }
///
/// impl Head for Centers {
///     fn classes(&self) -> usize {
///         self.0.get(0).len() / 2
///     }
///     fn params(&self) -> &Params {
///         &self.0
///     }
///     fn params_mut(&mut self) -> &mut Params {
///         &mut self.0
///     }
///     fn has_distances(&self) -> bool {
///         true
///     }
///     fn loss(
///         &self, z: &[f32], y: &[u32], batch: usize, dz: &mut [f32], gradients: &mut [f32], _: &mut LossBuffers,
///     ) -> f64 {
///         gradients.fill(0.0);
///         let mut loss = 0.0;
///         for ((z, dz), &y) in z.chunks(2).zip(dz.chunks_mut(2)).zip(y) {
///             let difference = self.difference(z, y as usize);
///             loss += f64::from(difference[0].powi(2) + difference[1].powi(2)) / batch as f64;
///             dz.copy_from_slice(&difference.map(|d| 2.0 * d / batch as f32));
///         }
///         loss
///     }
///     fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64 {
///         for k in 0..self.classes() {
///             distances[k] = self.difference(z, k).iter().map(|d| f64::from(d * d)).sum();
///             logits[k] = -distances[k];
///         }
///         logits.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b))
///     }
///     fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
///         dz.fill(0.0);
///         for (k, &g) in dlogits.iter().enumerate() {
///             let difference = self.difference(z, k);
///             (0..2).for_each(|d| dz[d] -= 2.0 * g as f32 * difference[d]);
///         }
///     }
/// }
///
/// let shape = vec![2, 2];
/// let spec = ParamSpec { name: "centers".into(), shape, decay: false, trained: false, rate: 1 };
/// let mut head = Centers(Params::new(vec![spec]));
/// head.params_mut().data.copy_from_slice(&[1.0, 0.0, -1.0, 0.0]);
/// let (mut logits, mut distances) = ([0.0; 2], [0.0; 2]);
/// assert_eq!(head.score(&[2.0, 0.0], &mut logits, &mut distances), -1.0);
/// assert_eq!(distances, [1.0, 9.0]);
/// ```
pub trait Head: Send + Sync {
    /// The number of classes; 0 if the head does not classify.
    fn classes(&self) -> usize;
    /// The parameters.
    fn params(&self) -> &Params;
    /// The parameters, mutable.
    fn params_mut(&mut self) -> &mut Params;

    /// The loss of some rows of a batch: the sum of their losses divided by `batch`, the number of rows of the whole
    /// batch. Writes the gradient with respect to the latents and to the head's parameters.
    ///
    /// # Shapes
    /// `z` and `dz` are `[n, latent]` by rows, `y` has n labels below [`Head::classes`], `gradients` has the layout of
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

    /// Projects the parameters onto their valid range after an update.
    fn project(&mut self) {}

    /// Called after each step with the sum of what [`Head::loss`] wrote into `gradients` for the whole batch. This is
    /// the place for parameters that follow statistics of the latents instead of gradients.
    fn update_statistics(&mut self, _sums: &[f32]) {}

    /// Sets the parameters that are computed from the latents of all training rows. Called as
    /// [`Objective::center_updates`] says: before the first epoch (`epochs` is 0) and after each (`epochs` are done).
    ///
    /// # Errors
    /// If there is no solution.
    fn update_centers(&mut self, _z: &[f32], _y: &[u32], _epochs: usize, _pool: &Pool) -> Result<()> {
        Ok(())
    }

    /// Scores one latent vector. Writes the logits, whose softmax is the posterior, and the distance to each class if
    /// the head has distances (otherwise `distances` is left as it is). Returns the confidence, which is higher for
    /// rows that are more in-distribution.
    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64;

    /// Whether [`Head::score`] writes distances.
    fn has_distances(&self) -> bool;

    /// For one latent vector, `dz = sum_k dlogits_k * d logit_k / dz`.
    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]);

    /// For heads with distances: the confidence of a row if `class` were the only class, from the output of
    /// [`Head::score`]. The largest of all classes is the row's confidence.
    fn class_confidence(&self, class: usize, _logits: &[f64], distances: &[f64]) -> f64 {
        -distances[class]
    }

    /// The class means (or centers) in the latent space, `[classes, latent]` by rows. A head with distances has them.
    fn means(&self) -> Option<&[f32]> {
        None
    }

    /// The logarithm of the standard deviation of each class, if the head has one per class.
    fn log_sigma(&self) -> Option<&[f32]> {
        None
    }

    /// The weight `[classes, latent]` and bias `[classes]` of the linear layer that makes the logits, if there is one.
    fn last_layer(&self) -> Option<(&[f32], &[f32])> {
        None
    }

    /// Writes [`Head::score`] into a graph of ONNX; `z` are latent vectors in f64, `[rows, latent]`.
    ///
    /// # Errors
    /// If it cannot be written, with the reason.
    fn to_onnx(&self, _graph: &mut Builder, _z: Value) -> Result<Scores> {
        Err(Error::setting("this head has no formula for ONNX"))
    }
}

/// Buffers of [`Head::loss`], kept between steps.
#[derive(Clone, Debug, Default)]
pub struct LossBuffers {
    pairs: Vec<[f32; 2]>,
}

impl LossBuffers {
    /// `n` pairs of numbers, with any content.
    pub fn pairs(&mut self, n: usize) -> &mut [[f32; 2]] {
        if self.pairs.len() < n {
            self.pairs.resize(n, [0.0; 2]);
        }
        &mut self.pairs[..n]
    }
}

/// How a method is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// A network and a head by the gradients of the head's loss.
    Gradients,
    /// A generator, an encoder and discriminators against each other.
    Adversarial,
    /// In closed form from the inputs, without a network.
    ClosedForm,
}

/// When [`Head::update_centers`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CenterUpdates {
    /// Never.
    Never,
    /// Before the first epoch.
    Once,
    /// Before the first epoch and at the end of each.
    EachEpoch,
}

/// How the rows of a batch are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Each row once per epoch, in random order.
    Shuffled,
    /// A few classes with several rows each; [`Head::loss`] gets the whole batch at once.
    Episodes {
        /// Rows of each class.
        rows: usize,
    },
}

/// The description of a head.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// The name that users type.
    pub name: &'static str,
    /// The name as papers write it.
    pub title: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// The publication.
    pub reference: &'static str,
}

/// The settings of a head. `Default` is what users get.
pub trait Objective: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned {
    /// The description.
    const ABOUT: About;

    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the setting that is out of range.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The parameters of a head for `classes` classes on `latent` features, without values.
    fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec>;

    /// A head for `classes` classes on `latent` features, with its initial parameters.
    fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head>;

    /// Whether it assigns classes. A head that does not classify does not use labels.
    fn classifies(&self) -> bool {
        true
    }

    /// How it is trained.
    fn trained_by(&self) -> Loop {
        Loop::Gradients
    }

    /// When [`Head::update_centers`] is called.
    fn center_updates(&self) -> CenterUpdates {
        CenterUpdates::Never
    }

    /// How batches are drawn for it.
    fn sampling(&self) -> Sampling {
        Sampling::Shuffled
    }

    /// Whether the layers of the network below it may have biases.
    fn allows_bias(&self) -> bool {
        true
    }

    /// Whether its logits are a linear layer on the latents ([`Head::last_layer`]).
    fn has_linear_logits(&self) -> bool {
        false
    }

    /// The factor by which SGD scales the loss: its learning rate is multiplied and its weight decay divided by it.
    fn sgd_loss_scale(&self) -> f64 {
        1.0
    }
}

/// The list of heads: a file, its variant and the name that users type.
macro_rules! heads {
    ($($module:ident $variant:ident $name:literal,)*) => {
        /// A head with its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum HeadConfig {
            $(#[doc = $name] #[serde(rename = $name)] $variant($module::Config),)*
        }

        impl HeadConfig {
            /// The description.
            pub fn about(&self) -> About {
                match self { $(HeadConfig::$variant(_) => <$module::Config as Objective>::ABOUT,)* }
            }

            /// Checks the ranges.
            ///
            /// # Errors
            /// Names the setting that is out of range.
            pub fn check(&self) -> Result<()> {
                match self { $(HeadConfig::$variant(c) => c.check(),)* }
            }

            /// The parameters of a head for `classes` classes on `latent` features, without values.
            pub fn specs(&self, classes: usize, latent: usize) -> Vec<ParamSpec> {
                match self { $(HeadConfig::$variant(c) => c.specs(classes, latent),)* }
            }

            /// A head for `classes` classes on `latent` features, with its initial parameters.
            pub fn build(&self, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
                match self { $(HeadConfig::$variant(c) => c.build(classes, latent, seed),)* }
            }

            /// Whether it assigns classes. A head that does not classify does not use labels.
            pub fn classifies(&self) -> bool {
                match self { $(HeadConfig::$variant(c) => c.classifies(),)* }
            }

            /// How it is trained.
            pub fn trained_by(&self) -> Loop {
                match self { $(HeadConfig::$variant(c) => c.trained_by(),)* }
            }

            /// When [`Head::update_centers`] is called.
            pub fn center_updates(&self) -> CenterUpdates {
                match self { $(HeadConfig::$variant(c) => c.center_updates(),)* }
            }

            /// How batches are drawn for it.
            pub fn sampling(&self) -> Sampling {
                match self { $(HeadConfig::$variant(c) => c.sampling(),)* }
            }

            /// Whether the layers of the network below it may have biases.
            pub fn allows_bias(&self) -> bool {
                match self { $(HeadConfig::$variant(c) => c.allows_bias(),)* }
            }

            /// Whether its logits are a linear layer on the latents.
            pub fn has_linear_logits(&self) -> bool {
                match self { $(HeadConfig::$variant(c) => c.has_linear_logits(),)* }
            }

            /// The factor by which SGD scales the loss: its learning rate is multiplied and its weight decay divided
            /// by it.
            pub fn sgd_loss_scale(&self) -> f64 {
                match self { $(HeadConfig::$variant(c) => c.sgd_loss_scale(),)* }
            }

            /// The default settings of every head.
            pub fn all() -> Vec<HeadConfig> {
                vec![$(HeadConfig::$variant($module::Config::default()),)*]
            }

            /// Settings of every head that change its formula, and the formulas to compare with.
            #[cfg(test)]
            fn variants() -> Vec<HeadConfig> {
                let mut all = HeadConfig::all();
                $(all.extend(<$module::Config as tests::Reference>::variants().into_iter().map(HeadConfig::$variant));)*
                all
            }

            #[cfg(test)]
            fn reference(&self) -> &dyn tests::Reference {
                match self { $(HeadConfig::$variant(c) => c,)* }
            }
        }

        $(impl From<$module::Config> for HeadConfig {
            fn from(config: $module::Config) -> Self {
                HeadConfig::$variant(config)
            }
        })*

        /// The settings of each head.
        pub mod config {
            $(pub use super::$module::Config as $variant;)*
        }
    };
}

heads! {
    deep_mcdd DeepMcdd "deep-mcdd",
    soft_mcdd SoftMcdd "soft-mcdd",
    softmax Softmax "softmax",
    protonet Protonet "protonet",
    deep_ncm DeepNcm "deep-ncm",
    deep_svdd DeepSvdd "deep-svdd",
    alad Alad "alad",
    gda Gda "gda",
}

impl Default for HeadConfig {
    fn default() -> Self {
        HeadConfig::DeepMcdd(config::DeepMcdd::default())
    }
}

impl HeadConfig {
    /// The name that users type.
    pub fn name(&self) -> &'static str {
        self.about().name
    }

    /// Whether the network below it may have batch normalization. It has a bias of its own, and methods that are not
    /// trained by gradients have their own networks or none.
    pub fn allows_batch_norm(&self) -> bool {
        self.allows_bias() && self.trained_by() == Loop::Gradients
    }

    /// A method by its name and settings, as users type it: `softmax`, `deep-mcdd:nu=0.1`.
    ///
    /// # Errors
    /// If there is no such name or setting, with the nearest ones.
    pub fn parse(text: &str) -> Result<HeadConfig> {
        let (name, settings) = spec::split(text)?;
        let all = Self::all();
        let Some(config) = all.iter().find(|c| c.name() == name) else {
            let names: Vec<_> = all.iter().map(HeadConfig::name).collect();
            return Err(spec::unknown("method", name, &names));
        };
        let config = spec::with(config, &settings)?;
        config.check()?;
        Ok(config)
    }
}

/// The error for a setting of a head that is out of range.
fn out_of_range(name: &str, value: impl std::fmt::Display, rule: &str) -> Error {
    Error::setting(format!("`{name}` is {value}")).hint(format!("`{name}` must be {rule}"))
}

/// A parameter that is not updated by gradients.
fn fixed(name: &str, shape: Vec<usize>) -> ParamSpec {
    ParamSpec { trained: false, ..ParamSpec::of_head(name, shape) }
}

#[cfg(test)]
mod tests;
