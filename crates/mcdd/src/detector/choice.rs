//! Which detector gives a model's confidence, and on what.

use serde::{Deserialize, Serialize};

use super::DetectorConfig;
use crate::error::{Error, Result};
use crate::spec;

/// What a detector looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The latent vectors.
    Latents,
    /// The rows as the network gets them.
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
        let on = settings.iter().filter(|(key, _)| *key == "on").map(|&(_, value)| value).last();
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

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        self.detector.check()
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
