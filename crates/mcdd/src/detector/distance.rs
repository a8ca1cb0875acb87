//! The trained head's own confidence: for Deep-MCDD, minus the distance to the nearest class (Eq. 7).
//!
//! It is not fitted: the model's head computes it. Features from elsewhere have no head; `gda` is the closest detector
//! for them.

use serde::{Deserialize, Serialize};

use super::{About, Detector, FitDetector, Needs, StateDict, Training};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "distance",
            summary: "the trained head's own confidence",
            reference: "Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection, KDD 2020 (Eq. 7)",
            needs: Needs { head: true, ..Needs::NONE },
        }
    }

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Err(Error::setting("distance is a trained head's own score and cannot be fitted on features"))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        Err(state.invalid("distance has no state"))
    }
}
