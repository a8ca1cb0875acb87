//! The range of every setting.

use super::{ImageSettings, Settings};
use crate::detector::{DetectorConfig, On};
use crate::error::{Error, Result};
use crate::head::{Loop, Sampling};

/// Widths and numbers of features.
const SIZES: std::ops::RangeInclusive<usize> = 1..=65_536;

impl Settings {
    /// Checks every range, and that the settings fit together.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    pub fn check(&self) -> Result<()> {
        let fraction = |v: f64| v > 0.0 && v < 1.0;
        let hidden = self.hidden.iter().find(|h| !SIZES.contains(h));
        let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
        let product = self.members.saturating_mul(self.epochs);
        let rules = [
            (
                hidden.is_none(),
                "`hidden`",
                hidden.map_or(String::new(), usize::to_string),
                "1 to 65,536 features per layer",
            ),
            (SIZES.contains(&self.latent), "`latent`", self.latent.to_string(), "1 to 65,536"),
            ((1..=300_000).contains(&self.epochs), "`epochs`", self.epochs.to_string(), "1 to 300,000"),
            ((1..=1_000_000).contains(&self.batch), "`batch`", self.batch.to_string(), "1 to 1,000,000"),
            (
                self.clip.is_none_or(|c| (1e-6..=1e6).contains(&c)),
                "`clip`",
                number(self.clip),
                "between 1e-6 and 1,000,000",
            ),
            (self.bins.is_none_or(|b| (2..=64).contains(&b)), "`bins`", self.bins.unwrap_or(0).to_string(), "2 to 64"),
            (self.steps != Some(0), "`steps`", "0".into(), "at least 1"),
            (self.lr > 0.0 && self.lr.is_finite(), "`lr`", self.lr.to_string(), "a number above 0"),
            (
                self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
                "`weight_decay`",
                self.weight_decay.to_string(),
                "a number of at least 0",
            ),
            (self.patience != Some(0), "`patience`", "0".into(), "at least 1"),
            (
                self.calibration_fraction.is_none_or(fraction),
                "`calibration_fraction`",
                self.calibration_fraction.unwrap_or(0.1).to_string(),
                "a fraction between 0 and 1",
            ),
            ((1..=100).contains(&self.members), "`members`", self.members.to_string(), "1 to 100"),
            (product <= 300_000, "`members` times `epochs`", product.to_string(), "at most 300,000"),
            (fraction(self.tpr), "`tpr`", self.tpr.to_string(), "a fraction between 0 and 1"),
        ];
        if let Some((_, name, value, rule)) = rules.iter().find(|(holds, ..)| !holds) {
            return Err(Error::setting(format!("{name} is {value}")).hint(format!("{name} must be {rule}")));
        }
        self.head.check()?;
        self.detector.check(&self.head)?;
        if self.head.sampling() != Sampling::Shuffled && self.batch < 4 {
            return Err(Error::setting(format!("{} makes episodes of {} rows", self.head.name(), self.batch))
                .hint("an episode needs two rows of two classes: give a `batch` of 4 or more"));
        }
        // Batches are about the same size, and one of two may be one row short.
        if self.batch_norm && self.head.allows_batch_norm() && self.batch < 3 {
            return Err(Error::setting(format!("batches of {} are too small for batch normalization", self.batch))
                .hint("give a `batch` of 3 or more, or turn `batch_norm` off"));
        }
        if let Some(image) = &self.image {
            self.check_images(image)?;
        }
        self.optimizer.check()?;
        self.schedule.check()
    }

    fn check_images(&self, image: &ImageSettings) -> Result<()> {
        if self.head.trained_by() != Loop::Gradients || !self.head.allows_batch_norm() {
            return Err(Error::setting(format!("{} is for tables, not for images", self.head.name()))
                .hint("give deep-mcdd, softmax or another `method` that trains a network"));
        }
        if !(0.0..1.0).contains(&image.warmup) {
            return Err(Error::setting(format!("`warmup` is {}", image.warmup))
                .hint("`warmup` must be a fraction of at least 0 and below 1"));
        }
        if let Some(latent) = image.latent.filter(|l| !SIZES.contains(l)) {
            return Err(Error::setting(format!("`latent` is {latent}")).hint("`latent` must be 1 to 65,536"));
        }
        let detector = &self.detector.detector;
        if self.detector.on() != On::Latents || matches!(detector, DetectorConfig::Odin(c) if c.epsilon > 0.0) {
            return Err(Error::setting(format!("{} uses the inputs or their gradients", detector.name()))
                .hint("for images give a `detector` on latents or logits, e.g. mahalanobis, knn or energy"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Preset;
    use super::*;
    use crate::head::HeadConfig;

    #[test]
    fn defaults_are_valid_and_each_range_is_checked() {
        for preset in Preset::ALL {
            preset.settings().check().unwrap();
        }
        let d = Settings::default;
        for (wrong, name) in [
            (Settings { hidden: vec![128, 0], ..d() }, "`hidden`"),
            (Settings { latent: 0, ..d() }, "`latent`"),
            (Settings { epochs: 0, ..d() }, "`epochs`"),
            (Settings { steps: Some(0), ..d() }, "`steps`"),
            (Settings { clip: Some(0.0), ..d() }, "`clip`"),
            (Settings { bins: Some(1), ..d() }, "`bins`"),
            (Settings { bins: Some(65), ..d() }, "`bins`"),
            (Settings { clip: Some(f64::NAN), ..d() }, "`clip`"),
            (Settings { batch: 2, ..d() }, "`batch`"),
            (Settings { batch: 0, ..d() }, "`batch`"),
            (Settings { lr: f64::NAN, ..d() }, "`lr`"),
            (Settings { weight_decay: -1.0, ..d() }, "`weight_decay`"),
            (Settings { patience: Some(0), ..d() }, "`patience`"),
            (Settings { calibration_fraction: Some(1.0), ..d() }, "`calibration_fraction`"),
            (Settings { members: 0, ..d() }, "`members`"),
            (Settings { members: 100, epochs: 3001, ..d() }, "`members` times `epochs`"),
            (Settings { tpr: 1.0, ..d() }, "`tpr`"),
            (Settings { batch: 3, head: HeadConfig::parse("protonet").unwrap(), ..d() }, "`batch`"),
        ] {
            let e = wrong.check().unwrap_err();
            assert!(e.hint_text().unwrap().contains(name), "{e}: {:?}", e.hint_text());
        }
    }
}
