//! The CPU engine and its kernels.

pub mod gemm;
pub mod pool;
pub mod simd;
