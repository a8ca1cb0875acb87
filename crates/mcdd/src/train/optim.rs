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
    /// Straight up from `start` at the beginning to 1, and straight down to `end`.
    Triangle {
        /// The rate at the beginning, relative to the highest, in `0..1`.
        start: f64,
        /// The fraction of the run at which it is highest, in `0..1`.
        peak: f64,
        /// The rate at the end, relative to the highest, in `0..1`.
        end: f64,
    },
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
            Schedule::Triangle { start, peak, end } => match done < *peak {
                true => start + (1.0 - start) * done / peak,
                false => 1.0 - (1.0 - end) * (done - peak) / (1.0 - peak),
            },
            Schedule::Steps { at, factor } => at.iter().filter(|&&a| done >= a).fold(1.0, |r, _| r * factor),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub fn check(&self) -> Result<()> {
        match self {
            Schedule::Triangle { start, peak, end } if ![start, peak, end].iter().all(|v| (0.0..1.0).contains(*v)) => {
                Err(Error::setting("the schedule's start, peak and end must be at least 0 and below 1"))
            }
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
        let triangle = Schedule::Triangle { start: 0.2, peak: 0.25, end: 0.1 };
        for (step, rate) in [(0, 0.2), (1, 0.52), (5, 0.7), (10, 0.1)] {
            assert!((triangle.at(step, 10) - rate).abs() < 1e-12, "{step}");
        }
        assert!(Schedule::Triangle { start: 0.2, peak: 1.0, end: 0.1 }.check().is_err());
        assert!(Optimizer::Sgd { momentum: 1.0 }.check().is_err());
    }
}
