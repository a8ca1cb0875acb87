//! Classifiers that put a class on what they know and say "unknown" to what they don't.

pub mod container;
pub mod data;
pub mod error;
pub mod files;
pub mod head;
pub mod metrics;
pub mod model;
pub mod net;
pub mod protocol;
pub mod seed;
pub mod train;

pub use error::{Error, Result};
