//! Learning rate schedules and optimizers.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
pub use crate::net::Optimizer;

/// A learning rate schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Schedule {
    /// A constant learning rate.
    Constant,
    /// Decay to 0 along half a cosine.
    #[default]
    Cosine,
    /// Multiplication by `factor` at each of these fractions of the run.
    Steps {
        /// Fractions in `0..1`, e.g. 0.5 and 0.75.
        at: Vec<f64>,
        /// E.g. 0.1.
        factor: f64,
    },
}

impl Schedule {
    /// The rate at `step` of `steps`, relative to the first.
    pub fn at(&self, step: u64, steps: u64) -> f64 {
        let done = step as f64 / steps.max(1) as f64;
        match self {
            Schedule::Constant => 1.0,
            Schedule::Cosine => 0.5 * (1.0 + libm::cos(core::f64::consts::PI * done)),
            Schedule::Steps { at, factor } => at.iter().filter(|&&a| done >= a).fold(1.0, |r, _| r * factor),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        match self {
            Schedule::Steps { at, factor }
                if !(at.iter().all(|a| (0.0..1.0).contains(a)) && *factor > 0.0 && *factor <= 1.0) =>
            {
                Err(Error::setting(
                    "the schedule's steps must be fractions between 0 and 1, its factor above 0 and at most 1",
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        assert_eq!(Schedule::Constant.at(7, 10), 1.0);
        assert_eq!(Schedule::Cosine.at(0, 10), 1.0);
        assert!((Schedule::Cosine.at(5, 10) - 0.5).abs() < 1e-12 && Schedule::Cosine.at(10, 10) < 1e-12);
        let steps = Schedule::Steps { at: vec![0.5, 0.75], factor: 0.1 };
        assert_eq!(steps.at(4, 10), 1.0);
        assert!((steps.at(5, 10) - 0.1).abs() < 1e-12 && (steps.at(9, 10) - 0.01).abs() < 1e-12);
        assert!(Schedule::Steps { at: vec![1.5], factor: 0.1 }.check().is_err());
        assert!(Optimizer::Sgd { momentum: 1.0 }.check().is_err());
    }
}
