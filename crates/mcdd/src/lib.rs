//! Classifiers that put a class on what they know and say "unknown" to what they don't.
//!
//! A network maps each row to a latent vector in which every class is an isotropic Gaussian; the distance to the
//! nearest one is the confidence (Deep-MCDD: Lee, Yu, Yu, KDD 2020). Rows held out of training turn it into a p-value
//! and a threshold.
//!
//! ```
//! use mcdd::{data::digits, model::Model, train::Settings};
//!
//! # fn main() -> mcdd::Result<()> {
//! let (known, unknown) = digits().leave_out("7")?;
//! let (train, test) = known.split(0.2, 0)?;
//! let model = Model::fit(&train, &Settings::default())?;
//! let threshold = model.threshold()?; // keeps 95% of known rows
//! let rejected = model.predict(&unknown)?.confidence.iter().filter(|&&c| !threshold.known(c)).count();
//! let kept = model.predict(&test)?.confidence.iter().filter(|&&c| threshold.known(c)).count();
//! assert!(rejected > unknown.rows() / 2 && kept > test.rows() * 8 / 10);
//! # Ok(())
//! # }
//! ```
//!
//! The parts, from left to right as data flows: [`data`], [`net`], [`head`], [`detector`], [`train`], [`model`];
//! [`stream`] predicts block by block, [`evaluate`] measures with [`metrics`], [`protocol`] compares methods and [`report`] draws.
//! [`detector`] also serves features from any other network.

pub mod compute;
pub mod container;
pub mod data;
pub mod detector;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod head;
pub mod metrics;
pub mod model;
pub mod net;
#[cfg(feature = "datasets")]
pub mod protocol;
#[cfg(feature = "figures")]
pub mod report;
pub mod seed;
pub mod spec;
mod stats;
pub mod stream;
pub mod train;

pub use error::{Error, Result};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
