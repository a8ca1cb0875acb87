//! The CPU engine and its kernels.

mod engine;
pub mod images;
pub mod norm;
mod predictor;

pub(crate) use engine::join;
pub use engine::{Engine, Pass};
pub use images::{ImageBuffers, ImageEngine, ImagePredictor};
pub use predictor::{ForwardBuffers, Predictor};

#[cfg(test)]
mod tests;
