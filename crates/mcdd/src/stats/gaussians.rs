//! Gaussians of classes.

use serde::{Deserialize, Serialize};

/// What the classes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Covariance {
    /// One covariance for all classes.
    #[default]
    Tied,
    /// Variances of its own for each class, without correlations.
    Diagonal,
    /// A covariance of its own for each class.
    Full,
}
