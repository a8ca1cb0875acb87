//! Classifiers that put a class on what they know and say "unknown" to what they don't.
//!
//! Networks map each row to a latent vector in which every class is an isotropic Gaussian (Deep-MCDD: Lee, Yu, Yu,
//! KDD 2020). The distance of a row to the training rows gives a confidence, and calibration rows turn the confidence into
//! a p-value and a threshold. No out-of-distribution data is needed.
//!
//! # Quick start
//! ```
//! use mcdd::prelude::*;
//!
//! # fn main() -> mcdd::Result<()> {
//! let (known, unknown) = mcdd::data::digits().leave_out("7")?;
//! let (train, test) = known.split(0.2, 0)?;
//!
//! let model = Model::fit(&train, &Settings::default())?;
//! let threshold = model.threshold()?; // keeps 95% of in-distribution rows
//!
//! let kept = model.predict(&test)?.confidence.iter().filter(|&&c| threshold.known(c)).count();
//! let rejected = model.predict(&unknown)?.confidence.iter().filter(|&&c| !threshold.known(c)).count();
//! assert!(kept > test.rows() * 8 / 10 && rejected > unknown.rows() / 2);
//! # Ok(())
//! # }
//! ```
//! The repository's `crates/mcdd/examples` have more: tables from memory, your own features, a custom head, images,
//! streaming and evaluation.
//!
//! # Modules
//! Data flows from left to right, and a module uses only modules on its left: [`data`], [`net`], [`backbone`], [`head`], [`detector`],
//! [`train`], [`model`], [`evaluate`], [`monitor`], [`stream`], `protocol`, `report`; [`metrics`] and [`compute`] are used by many.
//!
//! | task | start at |
//! |---|---|
//! | read a file, or build a table from memory | [`data::Table`] |
//! | choose a method, a detector and other settings | [`train::Settings::builder`] |
//! | train, predict, explain, save and load | [`model::Model`] |
//! | score features of your own network | [`model::Scorer`], [`detector`] |
//! | predict a file that is larger than memory | [`stream::predict()`] |
//! | measure accuracy and detection | [`evaluate::Evaluation`], [`metrics`] |
//! | watch a stream for a change, select unknown rows at a false discovery rate | [`monitor`] |
//! | train on the features of an ONNX network | [`backbone`], [`model::Model::fit_with_backbone`] |
//! | write your own objective or engine | [`head::Head`], [`net::Engine`] |
//!
//! # Cargo features
//! `arrow`, `parquet`, `excel`, `npz`, `images`, `datasets`, `figures` and `backbone` are on by default. Without them the crate is the core: tables from
//! memory, text, JSON Lines, NPY and IDX files, training, models, detectors and metrics.

#![warn(missing_docs, unreachable_pub)]

pub mod backbone;
pub mod compute;
mod container;
pub mod data;
pub mod detector;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod head;
pub mod metrics;
pub mod model;
pub mod monitor;
pub mod net;
pub mod onnx;
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

/// What most programs need: `use mcdd::prelude::*;`.
pub mod prelude {
    pub use crate::data::{Images, ReadOptions, Table};
    pub use crate::evaluate::{Bootstrap, Evaluation};
    pub use crate::model::{Model, Predictions, Saved, Scorer, Threshold};
    pub use crate::train::{Preset, Settings};
}

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
