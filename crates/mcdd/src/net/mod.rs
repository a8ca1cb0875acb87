//! Networks as values, and the engine that runs them.

pub mod cpu;
