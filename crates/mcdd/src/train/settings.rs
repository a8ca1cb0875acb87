//! What a training run is told.

use serde::{Deserialize, Serialize};

use super::optim::{Optimizer, Schedule};
use crate::detector::Detect;
use crate::error::{Error, Result};
use crate::head::{HeadConfig, Sampling};

/// Which epoch's weights are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// The last one's.
    #[default]
    Last,
    /// The one with the lowest loss on the held-out rows.
    Best,
}

/// Everything that decides what comes out of training; stored in the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Widths of the hidden layers; 128, 128.
    pub hidden: Vec<usize>,
    /// Latent features; 128.
    pub latent: usize,
    /// The objective; Deep-MCDD with nu 1 and sigma 1.
    pub head: HeadConfig,
    /// What gives the confidence; the head's own score.
    pub detector: Detect,
    /// Passes over the training rows, at least 1; 100.
    pub epochs: usize,
    /// Rows of a step, at least 1; 200.
    pub batch: usize,
    /// The first learning rate, above 0; 0.001.
    pub lr: f64,
    /// Adam or SGD; Adam.
    pub optimizer: Optimizer,
    /// L2 penalty on weights, at least 0; 0.
    pub weight_decay: f64,
    /// Of the learning rate; cosine.
    pub schedule: Schedule,
    /// Which epoch is kept; the last.
    pub select: Select,
    /// Stop after so many epochs without a lower loss on the held-out rows; never.
    pub patience: Option<usize>,
    /// Share of the rows held out for calibration and watching, between 0 and 1; 0.1.
    pub holdout: f64,
    /// Networks in the ensemble, 1 to 100; 1.
    pub members: usize,
    /// Share of known rows that the threshold should keep, between 0 and 1; 0.95.
    pub tpr: f64,
    /// Fixes everything random; 0.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            hidden: vec![128, 128],
            latent: 128,
            head: HeadConfig::default(),
            detector: Detect::default(),
            epochs: 100,
            batch: 200,
            lr: 1e-3,
            optimizer: Optimizer::default(),
            weight_decay: 0.0,
            schedule: Schedule::default(),
            select: Select::default(),
            patience: None,
            holdout: 0.1,
            members: 1,
            tpr: 0.95,
            seed: 0,
        }
    }
}

impl Settings {
    /// Checks every range.
    ///
    /// # Errors
    /// Names the first setting that is outside its range.
    pub fn check(&self) -> Result<()> {
        let sizes = 1..=65_536usize;
        let share = |v: f64| v > 0.0 && v < 1.0;
        let hidden = self.hidden.iter().find(|h| !sizes.contains(h));
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
            (self.lr > 0.0 && self.lr.is_finite(), "lr", self.lr.to_string(), "a number above 0"),
            (
                self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
                "weight-decay",
                self.weight_decay.to_string(),
                "a number of at least 0",
            ),
            (self.patience != Some(0), "patience", "0".into(), "at least 1"),
            (share(self.holdout), "holdout", self.holdout.to_string(), "a share between 0 and 1"),
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
        self.optimizer.check()?;
        self.schedule.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_each_range_is_checked() {
        Settings::default().check().unwrap();
        let d = Settings::default;
        for wrong in [
            Settings { hidden: vec![128, 0], ..d() },
            Settings { latent: 0, ..d() },
            Settings { epochs: 0, ..d() },
            Settings { batch: 0, ..d() },
            Settings { lr: f64::NAN, ..d() },
            Settings { weight_decay: -1.0, ..d() },
            Settings { patience: Some(0), ..d() },
            Settings { holdout: 1.0, ..d() },
            Settings { members: 0, ..d() },
            Settings { tpr: 1.0, ..d() },
            Settings { batch: 3, head: HeadConfig::parse("protonet").unwrap(), ..d() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
