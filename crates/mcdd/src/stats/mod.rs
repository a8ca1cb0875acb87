//! Statistics of rows that heads and detectors share: moments, eigenvectors, Gaussians.

pub mod eigen;
pub mod gaussians;
pub mod moments;

pub use eigen::Eigen;
