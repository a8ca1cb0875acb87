//! Shared compute: threads, matrix products and vector kernels.
//!
//! Everything numerical stands on this folder, and this folder stands on nothing else in the crate.

pub mod gemm;
mod parallel;
pub mod pool;
pub(crate) mod simd;
pub(crate) mod vector;

pub(crate) use parallel::parallel_map;

/// The index of the largest value; the first one if several are equal.
pub(crate) fn argmax(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, k| if values[k] > values[best] { k } else { best })
}
