//! The trained head's own confidence: for Deep-MCDD minus the distance to the nearest class (Eq. 7).
//!
//! It needs no fit; a model that has it scores with its head. Features from elsewhere have no head, so there is nothing
//! to fit on them: `gda` is the nearest thing.

use serde::{Deserialize, Serialize};

use super::{About, Detector, Method, Needs, Store, Training};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Method for Config {
    const ABOUT: About = About {
        name: "distance",
        summary: "the head's own confidence: what a --method gives by itself",
        reference: "Lee, Yu, Yu: Multi-Class Data Description for Out-of-distribution Detection, KDD 2020 (Eq. 7)",
        needs: Needs { head: true, ..Needs::NONE },
    };

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Err(Error::setting("distance is a trained head's own score and cannot be fitted on features"))
    }

    fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>> {
        Err(store.wrong("distance keeps nothing"))
    }
}
