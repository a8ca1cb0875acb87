//! What is fuzzed: each function takes any bytes, and must return.

pub mod targets;
