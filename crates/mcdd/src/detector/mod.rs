//! Scores on features, one a file.
//!
//! A detector is fitted on in-distribution features (and labels and logits, where it needs them) and gives each row a
//! confidence: higher for what is more in-distribution, everywhere. It never sees a network, so it serves features from
//! anywhere, and no out-of-distribution row ever reaches a fit. To add one: write its file with a [`Method`] and a
//! [`Detector`], and add a line to the list below; the conformance tests, the command line and `mcdd methods` find it
//! there.
//!
//! ```
//! use mcdd::detector::{DetectorConfig, Fitted, Features, Training};
//! use mcdd::compute::pool::Pool;
//!
//! let features: Vec<f32> = (0..200).map(|i| (i % 10) as f32).collect(); // 100 rows of 2, from any network
//! let training = Training { rows: Features { count: 100, features: &features, logits: &[] }, ..Training::default() };
//! let pool = Pool::new(2);
//! let knn = Fitted::new(&DetectorConfig::parse("knn:k=3")?, &training, &pool)?;
//! let scores = knn.score(&Features { count: 2, features: &[4.0, 5.0, 50.0, -50.0], logits: &[] }, &pool)?;
//! assert!(scores[0] > scores[1]);
//! # Ok::<(), mcdd::Error>(())
//! ```
//!
//! [`Scorer`](crate::model::Scorer) adds p-values, a threshold and a file.

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
mod rmd;
mod she;
mod store;
mod svdd;
mod svm;
mod vim;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use choice::{Detect, On};
pub use fitted::{Fitted, tame};
pub use store::Store;
pub use svm::Settings as SvmSettings;

use crate::compute::pool::Pool;
use crate::error::{Error, Result};

/// Features beyond this are taken for it: far away is far away, and squares and sums stay finite.
pub const FAR: f32 = 1e15;
/// The same for logits, which are wide.
pub const FAR_LOGIT: f64 = 1e30;

/// Features that one thread takes at a time.
const BLOCK: usize = 192;

/// Some rows, by rows.
///
/// # Shapes
/// `features [count, width]`, `logits [count, classes]`; either may be empty where a detector has no use for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features<'a> {
    /// How many.
    pub count: usize,
    /// Their features.
    pub features: &'a [f32],
    /// Their logits.
    pub logits: &'a [f64],
}

impl<'a> Features<'a> {
    /// Features for each row.
    pub fn width(&self) -> usize {
        self.features.len().checked_div(self.count).unwrap_or(0)
    }

    /// Logits for each row.
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
    /// By classes.
    pub weight: &'a [f32],
    /// By classes.
    pub bias: &'a [f32],
}

/// In-distribution rows to fit on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Training<'a> {
    /// The rows.
    pub rows: Features<'a>,
    /// A class for each row, where there are any.
    pub labels: Option<&'a [u32]>,
    /// The number of classes: of the labels, or of the logits; 0 where neither is there.
    pub classes: usize,
    /// Where the features come from several layers, the width of each; empty for one layer.
    pub parts: &'a [usize],
    /// The last layer, where it is known; else those that need it find it from features and logits.
    pub last_layer: Option<LastLayer<'a>>,
    /// Fixes everything random.
    pub seed: u64,
}

/// What a detector must be given, in training and for scoring; labels in training only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Feature vectors.
    pub features: bool,
    /// The classes of the training rows.
    pub labels: bool,
    /// Logits.
    pub logits: bool,
    /// Logits that are a linear layer's output on the features.
    pub linear: bool,
    /// The trained head itself.
    pub head: bool,
}

impl Needs {
    /// Nothing; to be changed field by field.
    pub const NONE: Needs = Needs { features: false, labels: false, logits: false, linear: false, head: false };
}

/// What is said about a detector.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct About {
    /// The name that users type.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// Where it was published.
    pub reference: &'static str,
    /// What it must be given.
    pub needs: Needs,
}

/// The settings of a detector; `Default` is what users get.
pub trait Method: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned {
    /// What it is.
    const ABOUT: About;

    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the setting that is outside its range.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Fits on in-distribution rows, which were checked against [`Method::ABOUT`]: whatever it needs is there, all
    /// numbers are finite, features are within ±[`FAR`] and
    /// logits within ±[`FAR_LOGIT`], and there is at least one row.
    ///
    /// # Errors
    /// If the rows cannot be used.
    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>>;

    /// Takes back what [`Detector::save`] has stored; nothing in it is trusted.
    ///
    /// # Errors
    /// If something is missing or makes no sense.
    fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>>;
}

/// Buffers of a thread that scores, kept between blocks.
#[derive(Clone, Debug, Default)]
pub struct DetectorBuffers {
    /// For whatever a detector likes.
    pub floats: [Vec<f32>; 2],
    /// The same, wide.
    pub wide: Vec<f64>,
}

/// A detector that was fitted.
pub trait Detector: Send + Sync {
    /// The confidence of each row, on the calling thread; finite for every finite input. A row's result must not
    /// depend on its company. Features have the shape of those in training and were checked as for [`Method::fit`].
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers);

    /// Stores everything but the settings.
    fn save(&self, store: &mut Store);

    /// The number of classes that it tells apart; 0 if it does not classify.
    fn classes(&self) -> usize {
        0
    }

    /// For those that classify: the logits of each row, whose softmax is the posterior, `[count, classes]`.
    fn logits(&self, _rows: &Features, _out: &mut [f64], _scratch: &mut DetectorBuffers) {}

    /// How far the input is to be moved against the gradient before scoring; 0 for not at all.
    fn epsilon(&self) -> f64 {
        0.0
    }

    /// For those with an [`Detector::epsilon`]: the gradient of what the move raises, for one row, with respect to the
    /// features of layer `part` and to the logits. Both come filled with zeros.
    fn ascent(&self, _part: usize, _row: &Features, _features: &mut [f32], _logits: &mut [f64]) {}
}

/// The one list of detectors: a file, its variant and the name that users type.
macro_rules! detectors {
    ($($module:ident $variant:ident $name:literal,)*) => {
        /// Which detector, with its settings.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum DetectorConfig {
            $(#[doc = $name] #[serde(rename = $name)] $variant($module::Config),)*
        }

        impl DetectorConfig {
            /// What it is.
            pub fn about(&self) -> About {
                match self { $(DetectorConfig::$variant(_) => <$module::Config as Method>::ABOUT,)* }
            }

            /// Checks the ranges.
            ///
            /// # Errors
            /// Names the setting that is outside its range.
            pub fn check(&self) -> Result<()> {
                match self { $(DetectorConfig::$variant(c) => c.check(),)* }
            }

            fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
                match self { $(DetectorConfig::$variant(c) => c.fit(training, pool),)* }
            }

            fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>> {
                match self { $(DetectorConfig::$variant(c) => c.load(store),)* }
            }

            /// The default settings of every detector.
            pub fn all() -> Vec<DetectorConfig> {
                vec![$(DetectorConfig::$variant($module::Config::default()),)*]
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
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.about().name
    }

    /// A detector by its name and settings, as users type it: `knn`, `knn:k=10`, `gmm:components=8:covariance=diagonal`.
    ///
    /// # Errors
    /// If there is no such name or setting, with the nearest ones.
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

/// A settings error of a detector.
fn out_of_range(name: &str, value: impl std::fmt::Display, rule: &str) -> Error {
    Error::setting(format!("{name} is {value}")).hint(format!("{name} is {rule}"))
}

#[cfg(test)]
mod tests;
