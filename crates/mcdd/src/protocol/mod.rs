//! The paper's protocol: which rows are known, which are out-of-distribution, and what is measured.
//!
//! For tables each class in turn is left out as out-of-distribution (OOD), and the other classes are split into stratified
//! folds ([`Split`]). Image networks are trained on one data set and compared with others ([`images`]). Test rows and OOD
//! rows are only scored: threshold, epoch, scaling and weights come from the training rows alone. A [`Grid`] runs several
//! [`Method`]s on all of it, in parallel, and resumes where it was stopped.
//!
//! ```
//! use mcdd::data::digits;
//! use mcdd::protocol::{Method, scenario};
//! use mcdd::train::Run;
//!
//! let table = digits().select(&(0..500).collect::<Vec<_>>());
//! let mut method = Method::parse("softmax+msp")?;
//! method.settings.epochs = 5;
//! // Digit 7 is unknown; the first of five folds of the other digits is tested.
//! let result = scenario(&table, "7", 0, 5, &method.settings, &Run::default())?;
//! assert!(result.accuracy.is_some_and(|a| a > 0.5) && result.detection.auroc > 0.5);
//! # Ok::<(), mcdd::Error>(())
//! ```

mod caching;
mod grid;
pub mod images;
mod method;
mod networks;
pub mod published;
pub mod reproduction;
pub mod results;
mod split;
mod tables;

pub use grid::{CellKey, Experiment, Grid, GridCallback, Group, Outcome, Trial};
pub use method::Method;
pub use split::{ClassRole, Split, leave_one_out, scenario};
pub use tables::LeaveOneOut;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::metrics::{self, Detection};
use crate::model::{Model, Predictions};

/// What was measured with one class (or data set) as unknown and one fold as test rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The fraction of test rows that were classified correctly; none if the method does not classify.
    pub accuracy: Option<f64>,
    /// The test rows (in-distribution) against all rows of the unknown class (OOD).
    pub detection: Detection,
}

impl Scenario {
    /// Compares predictions of test rows, of which `correct` tells whether the class is right, with those of OOD rows.
    fn new(model: &Model, known: &Predictions, correct: &[bool], unknown: &Predictions) -> Result<Scenario> {
        let accuracy = if model.classifies() { Some(metrics::accuracy(correct)?.accuracy) } else { None };
        Ok(Scenario { accuracy, detection: metrics::detection(&known.confidence, &unknown.confidence)? })
    }
}

#[cfg(test)]
mod tests;
