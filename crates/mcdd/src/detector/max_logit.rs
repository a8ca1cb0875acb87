//! The largest logit.
//!
//! Softmax only keeps the differences between logits; how large they are says something about a row, too, and is
//! divided by nothing when there are many classes that share the probability.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, Method, Needs, Store, Training};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Method for Config {
    const ABOUT: About = About {
        name: "max-logit",
        summary: "the largest logit",
        reference: "Hendrycks et al.: Scaling Out-of-Distribution \
                    Detection for Real-World Settings, ICML 2022",
        needs: Needs { logits: true, ..Needs::NONE },
    };

    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Ok(Box::new(MaxLogit))
    }

    fn load(&self, _store: &mut Store) -> Result<Box<dyn Detector>> {
        Ok(Box::new(MaxLogit))
    }
}

struct MaxLogit;

impl Detector for MaxLogit {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            let logits = rows.logit_row(i);
            *out = logits[argmax(logits)];
        }
    }

    fn save(&self, _store: &mut Store) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_each_row() {
        let rows = Features { count: 2, features: &[], logits: &[1.0, -2.0, 3.5, -7.0, -6.0, -8.0] };
        let mut out = [0.0; 2];
        MaxLogit.score(&rows, &mut out, &mut DetectorBuffers::default());
        assert_eq!(out, [3.5, -6.0]);
    }
}
