//! The choice of a model's detector and of the features that it is applied to.

use serde::{Deserialize, Serialize};

use super::DetectorConfig;
use crate::error::{Error, Result};
use crate::head::{HeadConfig, Loop};
use crate::spec;

/// The features that a detector is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The latent vectors.
    Latents,
    /// The inputs of the network, before clipping.
    Inputs,
    /// The outputs of all layers, concatenated.
    Layers,
    /// The outputs of the last hidden layer and the latent vectors, concatenated.
    LastTwo,
}

/// A model's detector and the features that it is applied to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detect {
    /// The detector, which gives the confidence; `distance` is the head's own score.
    #[serde(flatten)]
    pub detector: DetectorConfig,
    /// The features; `None` is automatic: all layers for `mahalanobis-ensemble`, otherwise the latents.
    pub on: Option<On>,
}

impl Default for Detect {
    fn default() -> Self {
        Detect { detector: super::config::Distance {}.into(), on: None }
    }
}

impl Detect {
    /// Parses a detector as users type it, with `on` among its settings: `knn:k=10:on=inputs`.
    ///
    /// # Errors
    /// If there is no such name or setting, or a setting is out of range.
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
            Some("last-two") => Some(On::LastTwo),
            Some(other) => {
                return Err(Error::setting(format!("on is {other:?}"))
                    .hint("on must be auto, latents, inputs, layers or last-two"));
            }
        };
        Ok(Detect { detector: DetectorConfig::parse(&format!("{name}{others}"))?, on })
    }

    /// Whether the confidence is the head's own score.
    pub fn is_own(&self) -> bool {
        self.detector.about().needs.head
    }

    /// Checks the ranges of the settings, and that the detector can be used with a method.
    ///
    /// # Errors
    /// If a setting is out of range, or the detector needs an input that the method does not have.
    pub fn check(&self, method: &HeadConfig) -> Result<()> {
        self.detector.check()?;
        let (name, needs, method_name) = (self.detector.name(), self.detector.about().needs, method.name());
        let invalid = |what: String, hint: &str| Err(Error::setting(what).hint(hint));
        if self.on.is_some() && !needs.features {
            return invalid(format!("{name} uses no features"), "leave out on=…");
        }
        if needs.logits && !method.classifies() {
            let hint = "choose a `detector` that needs features only, or another `method`";
            return invalid(format!("{name} needs logits, and {method_name} does not classify"), hint);
        }
        if needs.linear && !method.has_linear_logits() {
            let what = format!("{name} needs a linear last layer, and {method_name} does not have one");
            return invalid(what, "set `method` to softmax");
        }
        if needs.linear && self.on() != On::Latents {
            return invalid(format!("{name} needs the latents, which the last layer takes"), "leave out on=…");
        }
        if matches!(self.detector, DetectorConfig::MahalanobisEnsemble(_)) && method.trained_by() == Loop::Adversarial {
            let what = format!("{name} needs gradients of the input, and {method_name} does not have them");
            return invalid(what, "set `detector` to mahalanobis, or choose another `method`");
        }
        Ok(())
    }

    /// The features that it is applied to, with the automatic choice resolved.
    pub fn on(&self) -> On {
        match (self.on, &self.detector) {
            (Some(on), _) => on,
            (None, DetectorConfig::MahalanobisEnsemble(_)) => On::Layers,
            (None, _) => On::Latents,
        }
    }
}
