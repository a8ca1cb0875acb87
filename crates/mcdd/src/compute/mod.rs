//! Shared numerical code: thread pool, matrix products and vector kernels.
//!
//! All other modules may use this one. It uses nothing else in the crate.

pub(crate) mod bytes;
pub mod gemm;
mod parallel;
pub mod pool;
pub(crate) mod simd;
pub(crate) mod vector;

pub(crate) use parallel::parallel_map;
pub use simd::Level;

/// The index of the largest value; the first one in case of ties.
pub(crate) fn argmax(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, k| if values[k] > values[best] { k } else { best })
}
