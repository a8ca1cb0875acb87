//! The CPU engine and its kernels.

mod engine;
pub mod gemm;
pub mod images;
pub mod norm;
pub mod pool;
pub mod simd;
pub mod vector;

pub(crate) use engine::join;
pub use engine::{Engine, Pass, Predictor, Scratch};
pub use images::{ImageEngine, ImagePredictor, ImageScratch};

#[cfg(test)]
mod tests;
