//! Statistics that heads and detectors share: moments, eigenvectors, whitening, Gaussians.

mod covariance;
pub(crate) mod eigen;
pub(crate) mod gaussians;
pub(crate) mod moments;
mod to_onnx;
pub(crate) mod whitening;

pub(crate) use eigen::Eigen;
