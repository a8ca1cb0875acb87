//! The CPU engine and its kernels.

mod engine;
pub mod gemm;
pub mod images;
pub mod norm;
pub mod pool;
mod predictor;
pub mod simd;
pub mod vector;

pub(crate) use engine::join;
pub use engine::{Engine, Pass};
pub use images::{ImageEngine, ImagePredictor, ImageScratch};
pub use predictor::{Predictor, Scratch};

#[cfg(test)]
mod tests;
