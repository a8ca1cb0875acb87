//! Detectors: out-of-distribution scores on features and logits, one per file.
//!
//! A detector is fitted on in-distribution features (with labels and logits where it needs them) and gives each row a
//! confidence. Higher always means more in-distribution. A detector never sees a network, so it also works on features
//! that come from elsewhere. No out-of-distribution row ever reaches a fit.
//!
//! [`Scorer`](crate::model::Scorer) adds p-values, a threshold and a file.
//!
//! # Bring your own features
//!
//! [`Fitted`] checks all inputs and scores on several threads:
//!
//! ```
//! use mcdd::compute::pool::Pool;
//! use mcdd::detector::{DetectorConfig, Features, Fitted, Training};
//!
//! // 100 rows of 2 features, from any network.
//! let features: Vec<f32> = (0..200).map(|i| (i % 10) as f32).collect();
//! let training = Training { rows: Features { count: 100, features: &features, logits: &[] }, ..Training::default() };
//! let pool = Pool::new(2);
//! let knn = Fitted::new(&DetectorConfig::parse("knn:k=3")?, &training, &pool)?;
//!
//! let scores = knn.score(&Features { count: 2, features: &[4.0, 5.0, 50.0, -50.0], logits: &[] }, &pool)?;
//! assert!(scores[0] > scores[1]);
//! # Ok::<(), mcdd::Error>(())
//! ```
//!
//! # Write your own detector
//!
//! Implement [`FitDetector`] for its settings and [`Detector`] for what a fit returns. This works outside of this crate,
//! too; [`Fitted`] then checks inputs, runs threads and saves as for every other detector:
//!
//! ```
//! use mcdd::compute::pool::Pool;
//! use mcdd::detector::{
//!     About, Detector, DetectorBuffers, Features, FitDetector, Fitted, Needs, StateDict, Training,
//! };
//!
//! /// Minus the L1 distance to the mean of the training rows.
//! #[derive(Clone)]
//! struct Config;
//!
//! impl FitDetector for Config {
//!     fn about(&self) -> About {
//!         About {
//!             name: "l1",
//!             summary: "minus the L1 distance to the mean of the training rows",
//!             reference: "this page",
//!             needs: Needs { features: true, ..Needs::NONE },
//!         }
//!     }
//!
//!     fn fit(&self, training: &Training, _pool: &Pool) -> mcdd::Result<Box<dyn Detector>> {
//!         let rows = &training.rows;
//!         let mut mean = vec![0.0; rows.width()];
//!         for i in 0..rows.count {
//!             mean.iter_mut().zip(rows.feature_row(i)).for_each(|(m, &x)| *m += f64::from(x) / rows.count as f64);
//!         }
//!         Ok(Box::new(L1 { mean }))
//!     }
//!
//!     fn load(&self, state: &mut StateDict) -> mcdd::Result<Box<dyn Detector>> {
//!         Ok(Box::new(L1 { mean: state.take_f64("mean", &[state.width()])? }))
//!     }
//! }
//!
//! struct L1 {
//!     mean: Vec<f64>,
//! }
//!
//! impl Detector for L1 {
//!     fn score(&self, rows: &Features, out: &mut [f64], _buffers: &mut DetectorBuffers) {
//!         for (i, out) in out.iter_mut().enumerate() {
//!             *out = -rows.feature_row(i).iter().zip(&self.mean).map(|(&x, m)| (f64::from(x) - m).abs()).sum::<f64>();
//!         }
//!     }
//!
//!     fn save(&self, state: &mut StateDict) {
//!         state.put_f64("mean", &[self.mean.len()], &self.mean);
//!     }
//! }
//!
//! let training = Training {
//!     rows: Features { count: 3, features: &[1.0, 2.0, 3.0], logits: &[] },
//!     ..Training::default()
//! };
//! let pool = Pool::new(1);
//! let l1 = Fitted::new(&Config, &training, &pool)?;
//! assert_eq!(l1.score(&Features { count: 2, features: &[2.0, 7.0], logits: &[] }, &pool)?, [0.0, -5.0]);
//! # Ok::<(), mcdd::Error>(())
//! ```
//!
//! To make it part of this crate, put it into a file of this folder and add two lines to `mod.rs`: its `mod` line and an
//! entry in the list of detectors. The settings then also derive `Debug`, `Default`, `PartialEq`, `Serialize` and
//! `Deserialize`. Everything else ([`DetectorConfig::parse`], model files, the conformance tests) finds it there.
//!
//! A detector outside of this crate is not on that list: [`DetectorConfig::parse`] does not know its name, and a
//! [`Model`](crate::model::Model) or a [`Scorer`](crate::model::Scorer) cannot contain it.

mod choice;
mod distance;
mod energy;
mod entropy;
mod fdbd;
mod fitted;
mod gda;
mod gen_entropy;
mod gmm;
mod isolation_forest;
mod k_means;
mod kept_rows;
mod kl_matching;
mod knn;
mod last_layer;
mod lof;
mod mahalanobis;
mod mahalanobis_ensemble;
mod mahalanobis_normalized;
mod max_logit;
mod msp;
mod neighbors;
mod nnguide;
mod ocsvm;
mod odin;
mod react;
mod reduction;
mod rmd;
mod rounded_rows;
mod she;
mod state_dict;
mod svdd;
mod svm;
mod vim;

use serde::{Deserialize, Serialize};

pub use choice::{Detect, On};
pub use fitted::Fitted;
pub(crate) use fitted::{clamp_features, clamp_logits};
pub use state_dict::StateDict;
pub use svm::Settings as SvmSettings;

pub use crate::stats::gaussians::Covariance;

use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::onnx::{Builder, Features as Inputs, Scores};

/// The largest absolute value of a feature. Larger ones are clamped, so that squares and sums stay finite.
pub const MAX_FEATURE: f32 = 1e15;
/// The largest absolute value of a logit. Larger ones are clamped.
pub const MAX_LOGIT: f64 = 1e30;

/// Rows that one thread takes at a time.
const BLOCK: usize = 192;
/// The largest number of features of a detector that has a matrix of features by features: 2 GB in f64.
const MAX_SQUARE_WIDTH: usize = 16_384;

/// Features and logits of some rows, in row-major order.
///
/// # Shapes
/// `features [count, width]`, `logits [count, classes]`. Either may be empty if the detector does not use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features<'a> {
    /// The number of rows.
    pub count: usize,
    /// The features, `[count, width]`.
    pub features: &'a [f32],
    /// The logits, `[count, classes]`.
    pub logits: &'a [f64],
}

impl<'a> Features<'a> {
    /// The number of features per row.
    pub fn width(&self) -> usize {
        self.features.len().checked_div(self.count).unwrap_or(0)
    }

    /// The number of logits per row.
    pub fn classes(&self) -> usize {
        self.logits.len().checked_div(self.count).unwrap_or(0)
    }

    /// The features of row `i`.
    pub fn feature_row(&self, i: usize) -> &'a [f32] {
        &self.features[i * self.width()..(i + 1) * self.width()]
    }

    /// The logits of row `i`.
    pub fn logit_row(&self, i: usize) -> &'a [f64] {
        &self.logits[i * self.classes()..(i + 1) * self.classes()]
    }
}

/// The linear layer between features and logits: `logits = features weight^T + bias`.
///
/// # Shapes
/// `weight [classes, width]`, `bias [classes]`.
#[derive(Clone, Copy, Debug)]
pub struct LastLayer<'a> {
    /// The weights, `[classes, width]`.
    pub weight: &'a [f32],
    /// The biases, `[classes]`.
    pub bias: &'a [f32],
}

/// In-distribution rows to fit on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Training<'a> {
    /// The features and logits of the rows.
    pub rows: Features<'a>,
    /// The class of each row, if known.
    pub labels: Option<&'a [u32]>,
    /// The number of classes of the labels or of the logits; 0 if there are neither.
    pub classes: usize,
    /// If the features are the concatenated outputs of several layers, the width of each; empty for a single layer.
    pub parts: &'a [usize],
    /// The last layer, if known. Otherwise detectors that need it estimate it from features and logits.
    pub last_layer: Option<LastLayer<'a>>,
    /// The seed of everything random.
    pub seed: u64,
}

/// The inputs that a detector needs. Labels are needed for training only, the others for scoring as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Feature vectors.
    pub features: bool,
    /// The classes of the training rows.
    pub labels: bool,
    /// Logits.
    pub logits: bool,
    /// Logits that are a linear function of the features.
    pub linear: bool,
    /// The trained head itself.
    pub head: bool,
}

impl Needs {
    /// No inputs; a base for struct update syntax.
    pub const NONE: Needs = Needs { features: false, labels: false, logits: false, linear: false, head: false };
}

/// A description of a detector.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// The name that users type.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where it was published.
    pub reference: &'static str,
    /// The inputs that it needs.
    pub needs: Needs,
}

/// The settings of a detector, which describe, fit and load it.
pub trait FitDetector: Clone {
    /// The description of the detector.
    fn about(&self) -> About;

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// If a setting is out of range.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The largest number of features that the detector accepts.
    fn max_width(&self) -> usize {
        usize::MAX
    }

    /// Whether it learns anything from the rows that it is fitted on.
    fn learns(&self) -> bool {
        true
    }

    /// The rows of so many that [`FitDetector::fit`] uses, if not all. It needs no others.
    fn used_rows(&self, _labels: Option<&[u32]>, _count: usize, _seed: u64) -> Option<Vec<usize>> {
        None
    }

    /// Fits the detector on in-distribution rows.
    ///
    /// [`Fitted::new`] has checked the rows: there is at least one, everything that [`FitDetector::about`] lists as needed
    /// is present, all numbers are finite, features are within ±[`MAX_FEATURE`] and logits within ±[`MAX_LOGIT`].
    ///
    /// # Errors
    /// If the rows cannot be used.
    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>>;

    /// Loads what [`Detector::save`] has stored. The state may be damaged: check it.
    ///
    /// # Errors
    /// If a tensor is missing or invalid.
    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>>;
}

/// Scratch memory of one thread, kept between blocks of rows. A detector may use it for anything.
#[derive(Clone, Debug, Default)]
pub struct DetectorBuffers {
    /// Two buffers of f32.
    pub f32s: [Vec<f32>; 2],
    /// A buffer of f64.
    pub f64s: Vec<f64>,
}

/// A fitted detector.
pub trait Detector: Send + Sync {
    /// Writes the confidence of each row to `out`, on the calling thread.
    ///
    /// It is finite for every finite input, and independent of the other rows in the batch. The rows have the shape of
    /// those in training and were checked as for [`FitDetector::fit`].
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers);

    /// Stores everything but the settings. By default there is nothing to store.
    fn save(&self, _state: &mut StateDict) {}

    /// The number of classes that it predicts; 0 if it does not classify.
    fn classes(&self) -> usize {
        0
    }

    /// Writes the logits of each row, `[count, classes]`, if it classifies. Their softmax is the posterior.
    fn logits(&self, _rows: &Features, _out: &mut [f64], _scratch: &mut DetectorBuffers) {}

    /// The size of the input perturbation before scoring; 0 for none.
    fn epsilon(&self) -> f64 {
        0.0
    }

    /// The gradient that input perturbation follows, for one row: with respect to the features of layer `part` and to the
    /// logits. Both outputs are zeros at the start. Only called if [`Detector::epsilon`] is not 0.
    fn perturbation_gradient(&self, _part: usize, _row: &Features, _features: &mut [f32], _logits: &mut [f64]) {}

    /// Writes [`Detector::score`], and [`Detector::logits`] if it classifies, into a graph of ONNX.
    ///
    /// # Errors
    /// If standard operators cannot express it, with the reason.
    fn to_onnx(&self, _graph: &mut Builder, _rows: &Inputs) -> Result<Scores> {
        Err(Error::setting("this detector has no formula for ONNX"))
    }
}

/// Registers detectors. Each entry is the module, the variant of [`DetectorConfig`] and the name that users type.
macro_rules! detectors {
    ($($module:ident $variant:ident $name:literal,)*) => {
        /// A detector with its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum DetectorConfig {
            $(
                #[doc = concat!("The detector `", $name, "`.")]
                #[serde(rename = $name)]
                $variant($module::Config),
            )*
        }

        impl DetectorConfig {
            /// Every detector, with its default settings.
            pub fn all() -> Vec<DetectorConfig> {
                vec![$(DetectorConfig::$variant($module::Config::default()),)*]
            }
        }

        impl FitDetector for DetectorConfig {
            fn about(&self) -> About {
                match self { $(DetectorConfig::$variant(c) => c.about(),)* }
            }

            fn check(&self) -> Result<()> {
                match self { $(DetectorConfig::$variant(c) => c.check(),)* }
            }

            fn max_width(&self) -> usize {
                match self { $(DetectorConfig::$variant(c) => c.max_width(),)* }
            }

            fn learns(&self) -> bool {
                match self { $(DetectorConfig::$variant(c) => c.learns(),)* }
            }

            fn used_rows(&self, labels: Option<&[u32]>, count: usize, seed: u64) -> Option<Vec<usize>> {
                match self { $(DetectorConfig::$variant(c) => c.used_rows(labels, count, seed),)* }
            }

            fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
                match self { $(DetectorConfig::$variant(c) => c.fit(training, pool),)* }
            }

            fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
                match self { $(DetectorConfig::$variant(c) => c.load(state),)* }
            }
        }

        $(impl From<$module::Config> for DetectorConfig {
            fn from(config: $module::Config) -> Self {
                DetectorConfig::$variant(config)
            }
        })*

        /// The settings of each detector.
        pub mod config {
            $(pub use super::$module::Config as $variant;)*
        }
    };
}

detectors! {
    distance Distance "distance",
    msp Msp "msp",
    max_logit MaxLogit "max-logit",
    energy Energy "energy",
    entropy Entropy "entropy",
    gen_entropy Gen "gen",
    kl_matching KlMatching "kl-matching",
    odin Odin "odin",
    mahalanobis Mahalanobis "mahalanobis",
    mahalanobis_ensemble MahalanobisEnsemble "mahalanobis-ensemble",
    rmd Rmd "rmd",
    mahalanobis_normalized MahalanobisNormalized "mahalanobis++",
    gda Gda "gda",
    knn Knn "knn",
    vim Vim "vim",
    react React "react",
    she She "she",
    fdbd Fdbd "fdbd",
    nnguide Nnguide "nnguide",
    gmm Gmm "gmm",
    ocsvm Ocsvm "ocsvm",
    svdd Svdd "svdd",
    isolation_forest IsolationForest "isolation-forest",
    lof Lof "lof",
}

impl DetectorConfig {
    /// The name of the detector.
    pub fn name(&self) -> &'static str {
        self.about().name
    }

    /// The description of the detector.
    pub fn about(&self) -> About {
        FitDetector::about(self)
    }

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<()> {
        FitDetector::check(self)
    }

    /// Parses a detector with its settings, as users type it: `knn`, `knn:k=10`, `gmm:components=8:covariance=diagonal`.
    ///
    /// # Errors
    /// If there is no such name or setting, or a setting is out of range.
    pub fn parse(text: &str) -> Result<DetectorConfig> {
        let (name, settings) = crate::spec::split(text)?;
        let all = Self::all();
        let Some(config) = all.iter().find(|c| c.name() == name) else {
            let names: Vec<_> = all.iter().map(DetectorConfig::name).collect();
            return Err(crate::spec::unknown("detector", name, &names));
        };
        let config = crate::spec::with(config, &settings)?;
        config.check()?;
        Ok(config)
    }
}

/// The error for a detector's setting that is out of range; `rule` completes "must be".
fn out_of_range(name: &str, value: impl std::fmt::Display, rule: &str) -> Error {
    Error::setting(format!("{name} is {value}")).hint(format!("{name} must be {rule}"))
}

/// The error for a detector that moves rows along a gradient before it scores them.
fn needs_gradients(name: &str) -> Error {
    Error::setting(format!(
        "{name} moves each row along the gradient of its score, and ONNX has no operators for gradients"
    ))
    .hint(format!("train or refit with `detector` {name}:epsilon=0, which leaves out the move"))
}

#[cfg(test)]
mod tests;
