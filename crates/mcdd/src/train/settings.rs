//! What a training run is told.

use serde::{Deserialize, Serialize};

use super::optim::{Optimizer, Schedule};
use crate::data::Augment;
use crate::detector::{Detect, DetectorConfig, On, config};
use crate::error::{Error, Result};
use crate::head::{self, HeadConfig, Loop, Sampling};
use crate::net::NetName;

/// Which epoch's weights are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// The last one's.
    #[default]
    Last,
    /// The one with the lowest loss on the validation-out rows.
    Best,
}

/// Settings that go well together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Five networks with batch normalization, and the distance to the nearest training row: `docs/default.md`.
    #[default]
    Best,
    /// The same with one network.
    Fast,
    /// What the authors of Deep-MCDD published: their network, a constant rate, the distance to the nearest class.
    Paper,
}

/// Training rows that each network of a preset keeps for its neighbors: with five networks of 32 latent features 32 MB,
/// and all rows of an ordinary table.
const KEPT: usize = 50_000;

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 3] = [Preset::Best, Preset::Fast, Preset::Paper];

    /// The name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Best => "best",
            Preset::Fast => "fast",
            Preset::Paper => "paper",
        }
    }

    /// Its settings.
    pub fn settings(self) -> Settings {
        let paper = Settings {
            preset: self,
            clip: None,
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
            calibration_fraction: 0.1,
            members: 1,
            tpr: 0.95,
            seed: 0,
            image: None,
        };
        match self {
            Preset::Paper => paper,
            Preset::Best | Preset::Fast => Settings {
                clip: Some(5.0),
                batch_norm: true,
                latent: 32,
                detector: Detect {
                    detector: config::Knn { k: 1, log: true, rows: Some(KEPT), ..config::Knn::default() }.into(),
                    on: None,
                },
                steps: Some(10_000),
                lr: 3e-3,
                schedule: Schedule::Cosine,
                members: if self == Preset::Best { 5 } else { 1 },
                ..paper
            },
        }
    }
}

/// What images have and tables have not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// The network; `hidden`, `latent`, `batch_norm` and `clip` are for tables.
    pub net: NetName,
    /// Latent features, of a linear layer behind the network; without, those of the network itself.
    pub latent: Option<usize>,
    /// How training images are changed at random.
    pub augment: Option<Augment>,
    /// The share of the run over which the learning rate rises from 0, from 0 to below 1.
    pub warmup: f64,
    /// The SHA-256 of the file whose weights training began with.
    pub init: Option<String>,
    /// Whether the network stays as it began, and only the head is trained.
    pub frozen: bool,
}

/// Everything that decides what comes out of training; stored in the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where these settings began; the others may have been changed since.
    pub preset: Preset,
    /// The network gets inputs within so many deviations of their mean, 1e-6 to 1e6; what is beyond still counts against a
    /// row. Not for alad and gda.
    pub clip: Option<f64>,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Whether each hidden layer has batch normalization before its ReLU; never where a method must not have a bias, or has
    /// networks of its own.
    pub batch_norm: bool,
    /// Latent features.
    pub latent: usize,
    /// The objective.
    pub head: HeadConfig,
    /// What gives the confidence.
    pub detector: Detect,
    /// Passes over the training rows, at least 1.
    pub epochs: usize,
    /// Steps of a network at the most, at least 1: large tables get fewer epochs, but always one.
    pub steps: Option<usize>,
    /// LabeledRows of a step, at least 1; 200.
    pub batch: usize,
    /// The first learning rate, above 0.
    pub lr: f64,
    /// Adam or SGD; Adam.
    pub optimizer: Optimizer,
    /// L2 penalty on weights, at least 0; 0.
    pub weight_decay: f64,
    /// Of the learning rate.
    pub schedule: Schedule,
    /// Which epoch is kept; the last.
    pub select: Select,
    /// Stop after so many epochs without a lower loss on the validation-out rows; never.
    pub patience: Option<usize>,
    /// Share of the rows validation out for calibration and watching, between 0 and 1; 0.1.
    pub calibration_fraction: f64,
    /// Networks in the ensemble, 1 to 100.
    pub members: usize,
    /// Share of known rows that the threshold should keep, between 0 and 1; 0.95.
    pub tpr: f64,
    /// Fixes everything random; 0.
    pub seed: u64,
    /// For images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Preset::default().settings()
    }
}

/// Deep-MCDD's nu on images, where none is given.
pub const IMAGE_NU: f64 = 0.1;

impl Settings {
    /// What the authors of Deep-MCDD trained networks for images with, and as many epochs as a CPU has time for.
    pub fn for_images(net: NetName) -> Settings {
        Settings {
            clip: None,
            head: head::config::DeepMcdd { nu: IMAGE_NU, ..Default::default() }.into(),
            epochs: 30,
            batch: 128,
            lr: 0.1,
            optimizer: Optimizer::Sgd { momentum: 0.9 },
            weight_decay: 1e-4,
            schedule: Schedule::Steps { at: vec![0.5, 0.75], factor: 0.1 },
            image: Some(ImageSettings {
                net,
                latent: None,
                augment: Some(Augment::default()),
                warmup: 0.0,
                init: None,
                frozen: false,
            }),
            ..Preset::Paper.settings()
        }
    }

    /// Whether the network stays as it began.
    pub(super) fn frozen(&self) -> bool {
        self.image.as_ref().is_some_and(|i| i.frozen)
    }

    /// The learning rate and the weight decay of a step. SGD takes Deep-MCDD's loss as its authors' code has it, which is
    /// `nu` times the paper's: with the paper's, a small `nu` would make steps that no network stands.
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

    /// The epochs that `rows` training rows get within the budget of steps.
    pub fn epochs_for(&self, rows: usize) -> usize {
        if self.head.trained_by() == Loop::ClosedForm {
            return self.epochs;
        }
        let each = rows.div_ceil(self.batch.max(1)).max(1);
        self.steps.map_or(self.epochs, |steps| self.epochs.min((steps / each).max(1)))
    }

    /// Checks every range.
    ///
    /// # Errors
    /// Names the first setting that is outside its range.
    pub fn check(&self) -> Result<()> {
        let sizes = 1..=65_536usize;
        let share = |v: f64| v > 0.0 && v < 1.0;
        let hidden = self.hidden.iter().find(|h| !sizes.contains(h));
        let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
        let product = self.members.saturating_mul(self.epochs);
        let rules = [
            (
                hidden.is_none(),
                "hidden",
                hidden.map_or(String::new(), usize::to_string),
                "1 to 65,536 features a layer",
            ),
            (sizes.contains(&self.latent), "latent", self.latent.to_string(), "1 to 65,536"),
            ((1..=300_000).contains(&self.epochs), "epochs", self.epochs.to_string(), "1 to 300,000"),
            ((1..=1_000_000).contains(&self.batch), "batch", self.batch.to_string(), "1 to 1,000,000"),
            (
                self.clip.is_none_or(|c| (1e-6..=1e6).contains(&c)),
                "clip",
                number(self.clip),
                "between 1e-6 and 1,000,000",
            ),
            (self.steps != Some(0), "steps", "0".into(), "at least 1"),
            (self.lr > 0.0 && self.lr.is_finite(), "lr", self.lr.to_string(), "a number above 0"),
            (
                self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
                "weight-decay",
                self.weight_decay.to_string(),
                "a number of at least 0",
            ),
            (self.patience != Some(0), "patience", "0".into(), "at least 1"),
            (
                share(self.calibration_fraction),
                "calibration_fraction",
                self.calibration_fraction.to_string(),
                "a share between 0 and 1",
            ),
            ((1..=100).contains(&self.members), "members", self.members.to_string(), "1 to 100"),
            (product <= 300_000, "members times epochs", product.to_string(), "at most 300,000"),
            (share(self.tpr), "tpr", self.tpr.to_string(), "a share between 0 and 1"),
        ];
        if let Some((_, name, value, rule)) = rules.iter().find(|(holds, ..)| !holds) {
            return Err(Error::setting(format!("{name} is {value}"))
                .hint(format!("{name} is {rule}; --help lists the settings with their defaults")));
        }
        self.head.check()?;
        self.detector.check(&self.head)?;
        if self.head.sampling() != Sampling::Shuffled && self.batch < 4 {
            return Err(Error::setting(format!("{} makes episodes of {} rows", self.head.name(), self.batch))
                .hint("an episode needs two rows of two classes: give a --batch of 4 or more"));
        }
        // Batches are about the same size, and one of two may be one row short.
        if self.batch_norm && self.head.allows_batch_norm() && self.batch < 3 {
            return Err(Error::setting(format!("batches of {} are too small to be normalized", self.batch))
                .hint("give a --batch of 3 or more, or --batch-norm off"));
        }
        if let Some(image) = &self.image {
            if self.head.trained_by() != Loop::Gradients || !self.head.allows_batch_norm() {
                return Err(Error::setting(format!("{} is for tables, not for images", self.head.name()))
                    .hint("take deep-mcdd, softmax or another method that trains a network"));
            }
            if !(0.0..1.0).contains(&image.warmup) {
                return Err(
                    Error::setting(format!("warmup is {}", image.warmup)).hint("give a share from 0 to below 1")
                );
            }
            if image.latent.is_some_and(|l| !sizes.contains(&l)) {
                return Err(Error::setting("latent is out of range").hint("give 1 to 65,536 latent features"));
            }
            if self.detector.on() != On::Latents
                || matches!(&self.detector.detector, DetectorConfig::Odin(c) if c.epsilon > 0.0)
            {
                return Err(Error::setting(format!(
                    "{} looks at the inputs, or moves them",
                    self.detector.detector.name()
                ))
                .hint("for images take a detector on latents or logits, e.g. mahalanobis, knn or energy"));
            }
        }
        self.optimizer.check()?;
        self.schedule.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_each_range_is_checked() {
        for preset in Preset::ALL {
            preset.settings().check().unwrap();
        }
        let d = Settings::default;
        for wrong in [
            Settings { hidden: vec![128, 0], ..d() },
            Settings { latent: 0, ..d() },
            Settings { epochs: 0, ..d() },
            Settings { steps: Some(0), ..d() },
            Settings { clip: Some(0.0), ..d() },
            Settings { clip: Some(f64::NAN), ..d() },
            Settings { batch: 2, ..d() },
            Settings { batch: 0, ..d() },
            Settings { lr: f64::NAN, ..d() },
            Settings { weight_decay: -1.0, ..d() },
            Settings { patience: Some(0), ..d() },
            Settings { calibration_fraction: 1.0, ..d() },
            Settings { members: 0, ..d() },
            Settings { tpr: 1.0, ..d() },
            Settings { batch: 3, head: HeadConfig::parse("protonet").unwrap(), ..d() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
