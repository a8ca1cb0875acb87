//! Statistics of rows that heads and detectors share: moments, eigenvectors, Gaussians.

pub mod eigen;
pub mod gaussians;
pub mod moments;
pub mod whitening;

pub use eigen::Eigen;
pub use gaussians::{Covariance, Gaussians};
