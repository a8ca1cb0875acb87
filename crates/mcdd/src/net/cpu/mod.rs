//! The CPU engine and its kernels.

mod engine;
pub mod gemm;
pub mod pool;
pub mod simd;
pub mod vector;

pub use engine::{Engine, Pass, Predictor, Scratch};
