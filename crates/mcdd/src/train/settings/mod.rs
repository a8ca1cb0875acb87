//! The settings of a training run: presets, every value that decides the result, and the builder that resolves them.

mod builder;
mod check;

pub use builder::{Augmentation, DataKind, OrOff, SettingsBuilder};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::optim::{Optimizer, Schedule};
use crate::data::{Augment, Border};
use crate::detector::{Detect, On, config};
use crate::error::{Error, Result};
use crate::head::{self, HeadConfig, Loop};
use crate::net::NetName;

/// The epoch whose weights are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// The last epoch.
    #[default]
    Last,
    /// The epoch with the lowest validation loss.
    Best,
}

/// A base configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Seven networks with batch normalization, and the distance to the nearest training row: `docs/default.md`.
    #[default]
    Best,
    /// The same with one network.
    Fast,
    /// The network and the training of the authors of Deep-MCDD, with a constant learning rate; the epoch with the lowest
    /// validation loss, where they choose one by test rows; the distance to the nearest class (`docs/reproduction.md`).
    Paper,
}

/// The most training rows that each network of a preset keeps for its neighbors: with five networks of 32 latent features 32 MB,
/// and all rows of an ordinary table.
const KEPT: usize = 50_000;
/// Rows are dropped where others are near: within this fraction of the median distance between rows of different classes.
const COVER: f64 = 0.015;
/// The principal components of the last two layers that neighbors are searched among.
const COMPONENTS: usize = 32;
/// How much a distance counts relative to those around the neighbor.
const RELATIVE: f64 = 0.3;
/// How much the norm of a row raises its confidence.
const NORM: f64 = 0.2;

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 3] = [Preset::Best, Preset::Fast, Preset::Paper];

    /// The name as users type it.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Best => "best",
            Preset::Fast => "fast",
            Preset::Paper => "paper",
        }
    }

    /// The settings of this preset for tables.
    pub fn settings(self) -> Settings {
        let paper = Settings {
            preset: self,
            clip: None,
            bins: None,
            hidden: vec![128, 128],
            batch_norm: false,
            latent: 128,
            head: HeadConfig::default(),
            detector: Detect::default(),
            epochs: 100,
            steps: None,
            batch: 200,
            lr: 1e-3,
            optimizer: Optimizer::default(),
            weight_decay: 0.0,
            schedule: Schedule::Constant,
            select: Select::default(),
            patience: None,
            calibration_fraction: None,
            per_class: false,
            members: 1,
            tpr: 0.95,
            seed: 0,
            image: None,
        };
        match self {
            Preset::Paper => Settings { select: Select::Best, ..paper },
            Preset::Best | Preset::Fast => Settings {
                clip: Some(5.0),
                bins: Some(8),
                batch_norm: true,
                latent: 32,
                detector: Detect {
                    detector: config::Knn {
                        k: 1,
                        log: true,
                        rows: Some(KEPT),
                        cover: COVER,
                        round: true,
                        relative: RELATIVE,
                        norm: NORM,
                        reduce: Some(COMPONENTS),
                        ..config::Knn::default()
                    }
                    .into(),
                    on: Some(On::LastTwo),
                },
                steps: Some(10_000),
                lr: 3e-3,
                schedule: Schedule::Cosine,
                members: if self == Preset::Best { 7 } else { 1 },
                ..paper
            },
        }
    }
}

/// Settings that only images have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImageSettings {
    /// The network. `hidden`, `latent`, `batch_norm` and `clip` of [`Settings`] are for tables.
    pub net: NetName,
    /// Latent features of a linear layer after the network; `None` takes the network's own features.
    pub latent: Option<usize>,
    /// Random augmentation of the training images.
    pub augment: Option<Augment>,
    /// Fraction of the run over which the learning rate rises from 0, in `0..1`.
    pub warmup: f64,
    /// SHA-256 of the file with the initial weights.
    pub init: Option<String>,
    /// Whether the network keeps its initial weights and only the head is trained.
    pub frozen: bool,
    /// Whether weights are averaged while they are trained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lookahead: bool,
    /// Test-time flips: whether the latent vector of an image is the mean over it and its mirror image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub test_flips: bool,
}

impl ImageSettings {
    /// A network, without anything else.
    fn of(net: NetName) -> ImageSettings {
        ImageSettings {
            net,
            latent: None,
            augment: None,
            warmup: 0.0,
            init: None,
            frozen: false,
            lookahead: false,
            test_flips: false,
        }
    }
}

/// Everything that decides the result of training; stored in the model.
///
/// Build it with [`Settings::builder`], or start from [`Preset::settings`]. Fields may be changed afterwards; training
/// checks them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Settings {
    /// The base configuration; the other settings may differ from it.
    pub preset: Preset,
    /// Inputs are clipped to this many standard deviations around their mean, 1e-6 to 1e6, before the network; values
    /// out of range lower a row's confidence. Not for alad and gda.
    pub clip: Option<f64>,
    /// Bins of a numeric input, 2 to 64. With Deep-MCDD and four networks or more the last two are for the class: their `nu`
    /// is smaller, the class comes from them, and the confidence from the others. The last one reads its inputs also as
    /// a piecewise-linear code with this many parts, each with the same number of rows; with fewer parts if there are many
    /// inputs, and with none if there are more than 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bins: Option<usize>,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Whether each hidden layer has batch normalization before its ReLU. Ignored by methods that must not have a bias
    /// or that have networks of their own.
    pub batch_norm: bool,
    /// Number of latent features.
    pub latent: usize,
    /// The objective.
    pub head: HeadConfig,
    /// The detector that gives the confidence.
    pub detector: Detect,
    /// Passes over the training rows, at least 1.
    pub epochs: usize,
    /// Maximum number of steps per network, at least 1: large tables get fewer epochs, but at least one.
    pub steps: Option<usize>,
    /// Rows per step, at least 1; 200.
    pub batch: usize,
    /// Initial learning rate, above 0.
    pub lr: f64,
    /// Adam or SGD; Adam.
    pub optimizer: Optimizer,
    /// L2 penalty on weights, at least 0; 0.
    pub weight_decay: f64,
    /// Learning rate schedule.
    pub schedule: Schedule,
    /// The epoch whose weights are kept; the last.
    pub select: Select,
    /// Stop after this many epochs without a lower validation loss; `None` never stops early.
    pub patience: Option<usize>,
    /// Fraction of the rows that each network leaves out of its training, for calibration and validation; above 0 and
    /// below 1. Several networks leave out different rows. `None` is 0.1, and more for small tables: see
    /// [`Settings::left_out`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_fraction: Option<f64>,
    /// Whether each predicted class is calibrated by its own rows, so that the threshold keeps the same fraction of every
    /// class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_class: bool,
    /// Networks in the ensemble, 1 to 100.
    pub members: usize,
    /// Fraction of known rows that the threshold keeps, between 0 and 1; 0.95.
    pub tpr: f64,
    /// Random seed; 0.
    pub seed: u64,
    /// Settings for images; `None` for tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Preset::default().settings()
    }
}

/// Default `nu` of Deep-MCDD on images: that of the paper.
pub const IMAGE_NU: f64 = 0.1;
/// Default `nu` of Deep-MCDD with [`NetName::Cnn`], chosen by left-out classes (`docs/reproduction.md`).
pub(super) const CNN_NU: f64 = 0.03;

impl Settings {
    /// A builder without any values; it fills in what is not given.
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// Whether training needs labels: the method classifies, or the detector uses the classes.
    pub fn needs_labels(&self) -> bool {
        self.head.classifies() || self.detector.detector.about().needs.labels
    }

    /// The defaults for images. A [`NetName::Cnn`] has a training of its own for [`Preset::Best`] and [`Preset::Fast`]; other
    /// networks have that of the authors of Deep-MCDD, with fewer epochs for a CPU.
    ///
    /// # Errors
    /// If the preset is for other networks.
    pub fn for_images(net: NetName, preset: Preset) -> Result<Settings> {
        match (net, preset) {
            (NetName::Cnn { .. }, Preset::Paper) => Err(Error::setting(format!("the paper has no network {net}"))
                .hint("give resnet34 or densenet100 as `net`, or leave out `net` or `preset`")),
            (NetName::Cnn { .. }, _) => Ok(Settings::for_cnn(net, preset)),
            (_, Preset::Fast) => Err(Error::setting(format!("there is no fast preset for {net}"))
                .hint("leave out `preset`, or give cnn as `net`")),
            (_, Preset::Best | Preset::Paper) => Ok(Settings::for_resnet(net)),
        }
    }

    /// The training of the authors of Deep-MCDD.
    fn for_resnet(net: NetName) -> Settings {
        Settings {
            clip: None,
            head: head::config::DeepMcdd { nu: IMAGE_NU, ..Default::default() }.into(),
            epochs: 30,
            batch: 128,
            lr: 0.1,
            optimizer: Optimizer::sgd(),
            weight_decay: 1e-4,
            schedule: Schedule::steps(),
            image: Some(ImageSettings { augment: Some(Augment::default()), ..ImageSettings::of(net) }),
            ..Preset::Paper.settings()
        }
    }

    /// The training of Jordan 2024: few epochs of large batches, a rate that rises and falls, averaged weights.
    fn for_cnn(net: NetName, preset: Preset) -> Settings {
        let augment = Augment { crop_padding: 2, border: Border::Reflect, flip: true, alternate: true };
        Settings {
            preset,
            clip: None,
            head: head::config::Softmax::default().into(),
            detector: Detect { detector: config::Energy::default().into(), on: None },
            epochs: if preset == Preset::Fast { 5 } else { 16 },
            batch: 500,
            lr: 0.75,
            optimizer: Optimizer::Sgd { momentum: 0.85 },
            weight_decay: 1.3e-3,
            schedule: Schedule::Triangle { start: 0.2, peak: 0.23, end: 0.07 },
            select: Select::default(),
            image: Some(ImageSettings {
                augment: Some(augment),
                lookahead: true,
                test_flips: true,
                ..ImageSettings::of(net)
            }),
            ..Preset::Paper.settings()
        }
    }

    /// Names of the settings, other than the seed, that differ from the preset's.
    pub fn changed(&self) -> Vec<String> {
        let fields = |s: &Settings| match serde_json::to_value(s) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let preset = match &self.image {
            Some(image) => Settings::for_images(image.net, self.preset).unwrap_or(self.preset.settings()),
            None => self.preset.settings(),
        };
        let default = fields(&preset);
        let changed =
            fields(self).into_iter().filter(|(name, value)| name != "seed" && default.get(name) != Some(value));
        changed.map(|(name, _)| if name == "head" { "method".into() } else { name }).collect()
    }

    /// Whether the network keeps its initial weights.
    pub(super) fn frozen(&self) -> bool {
        self.image.as_ref().is_some_and(|i| i.frozen)
    }

    /// Whether weights are averaged while they are trained.
    pub(super) fn lookahead(&self) -> bool {
        self.image.as_ref().is_some_and(|i| i.lookahead)
    }

    /// The learning rate and the weight decay of a step. SGD minimizes Deep-MCDD's loss as the authors' code has it,
    /// which is `nu` times the paper's: with the paper's, a small `nu` would make steps too large for any network.
    pub(super) fn rate(&self, step: u64, steps: u64) -> (f64, f64) {
        let warmup = self.image.as_ref().map_or(0.0, |i| i.warmup) * steps as f64;
        let rise = if (step as f64) < warmup { (step + 1) as f64 / warmup.max(1.0) } else { 1.0 };
        let rate = self.lr * self.schedule.at(step, steps) * rise.min(1.0);
        let scale = self.head.sgd_loss_scale();
        match self.optimizer {
            Optimizer::Sgd { .. } => (rate * scale, self.weight_decay / scale),
            _ => (rate, self.weight_decay),
        }
    }

    /// The fraction of `rows` rows that each network leaves out. By default a tenth; of a small table up to a fifth, for 20
    /// calibration rows of a single network or 200 of several.
    pub fn left_out(&self, rows: usize) -> f64 {
        let enough = if self.members == 1 { 20.0 } else { 200.0 / self.members as f64 };
        self.calibration_fraction.unwrap_or((enough / rows.max(1) as f64).clamp(0.1, 0.2))
    }

    /// The number of epochs for `rows` training rows within the maximum number of steps.
    pub fn epochs_for(&self, rows: usize) -> usize {
        if self.head.trained_by() == Loop::ClosedForm {
            return self.epochs;
        }
        let each = rows.div_ceil(self.batch.max(1)).max(1);
        self.steps.map_or(self.epochs, |steps| self.epochs.min((steps / each).max(1)))
    }
}
