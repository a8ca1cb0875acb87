//! Which detector gives a model's confidence, and on what.

use serde::{Deserialize, Serialize};

use super::DetectorConfig;
use crate::error::{Error, Result};
use crate::head::{HeadConfig, Loop};
use crate::spec;

/// What a detector looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The latent vectors.
    Latents,
    /// The rows as the network gets them, before it clips them.
    Inputs,
    /// Every layer's output.
    Layers,
}

/// Which detector gives a model's confidence, and what it looks at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detect {
    /// The detector; `distance` is the head's own score.
    #[serde(flatten)]
    pub detector: DetectorConfig,
    /// Automatic: every layer for `mahalanobis-ensemble`, else the latents.
    pub on: Option<On>,
}

impl Default for Detect {
    fn default() -> Self {
        Detect { detector: super::config::Distance {}.into(), on: None }
    }
}

impl Detect {
    /// A detector as users type it, with `on` among its settings: `knn:k=10:on=inputs`.
    ///
    /// # Errors
    /// If there is no such name or setting, with the nearest ones.
    pub fn parse(text: &str) -> Result<Detect> {
        let (name, settings) = spec::split(text)?;
        let on = settings.iter().rev().find(|(key, _)| *key == "on").map(|&(_, value)| value);
        let others: String =
            settings.iter().filter(|(key, _)| *key != "on").map(|(key, value)| format!(":{key}={value}")).collect();
        let on = match on {
            None | Some("auto") => None,
            Some("latents") => Some(On::Latents),
            Some("inputs") => Some(On::Inputs),
            Some("layers") => Some(On::Layers),
            Some(other) => {
                return Err(Error::setting(format!("a detector cannot look at {other:?}"))
                    .hint("on is latents, inputs or layers"));
            }
        };
        Ok(Detect { detector: DetectorConfig::parse(&format!("{name}{others}"))?, on })
    }

    /// Whether the head's own score is the confidence.
    pub fn is_own(&self) -> bool {
        self.detector.about().needs.head
    }

    /// Checks the ranges, and that it can look at what a method makes.
    ///
    /// # Errors
    /// If a setting is outside its range, or the detector needs what the method has not.
    pub fn check(&self, method: &HeadConfig) -> Result<()> {
        self.detector.check()?;
        let (name, needs, host) = (self.detector.name(), self.detector.about().needs, method.name());
        let refused = |what: String, hint: &str| Err(Error::setting(what).hint(hint));
        if self.on.is_some() && !needs.features {
            return refused(format!("{name} looks at no features"), "leave on=… out");
        }
        if needs.logits && !method.classifies() {
            let hint = "take a detector that looks at features alone, or another --method";
            return refused(format!("{name} needs logits, and {host} does not classify"), hint);
        }
        if needs.linear && !method.has_linear_logits() {
            return refused(format!("{name} needs a linear last layer, which {host} has not"), "give --method softmax");
        }
        if needs.linear && self.on() != On::Latents {
            return refused(format!("{name} looks at the latents, where the last layer begins"), "leave on=… out");
        }
        if matches!(self.detector, DetectorConfig::MahalanobisEnsemble(_)) && method.trained_by() == Loop::Adversarial {
            let what = format!("{name} follows gradients back to the input, which it cannot through {host}'s networks");
            return refused(what, "take mahalanobis, or another --method");
        }
        Ok(())
    }

    /// What it looks at.
    pub fn on(&self) -> On {
        match (self.on, &self.detector) {
            (Some(on), _) => on,
            (None, DetectorConfig::MahalanobisEnsemble(_)) => On::Layers,
            (None, _) => On::Latents,
        }
    }
}
