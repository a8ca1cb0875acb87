//! Figures, tables and HTML pages about models and benchmarks.
//!
//! [`figure`] draws numbers as SVG and PNG. The functions here get the numbers from models and tables, [`mod@bench`] from the
//! results of a benchmark, and [`mod@model`] from the rows that a model has scored.
//!
//! ```
//! use mcdd::data::digits;
//! use mcdd::model::Model;
//! use mcdd::report::{figure::latent_spaces, latent_space};
//! use mcdd::train::{Preset, Settings};
//!
//! // A latent space with two features can be drawn.
//! let (known, unknown) = digits().select(&(0..400).collect::<Vec<_>>()).leave_out("7")?;
//! let settings = Settings::builder().preset(Preset::Paper).latent(2).epochs(2).build()?;
//! let model = Model::fit(&known, &settings)?;
//! let (space, _) = latent_space(&model, "Deep-MCDD", &known, &unknown)?;
//! let figure = latent_spaces("Digits", "Without 7.", model.classes(), "digit 7", &[space])?;
//! assert!(figure.svg().contains("Deep-MCDD"));
//! # Ok::<(), mcdd::Error>(())
//! ```

pub mod bench;
pub mod figure;
mod heat;
mod html;
mod latent;
pub mod model;
pub mod monitor;
mod page;
pub mod reproduction;
mod samples;
mod words;

use crate::head::HeadConfig;

pub use heat::heat_map;
pub use latent::{Shown, latent_space};
pub use samples::{Chosen, choose_images, choose_samples};

/// A method's name as papers write it: `Deep-MCDD` for `deep-mcdd`.
pub fn method_name(name: &str) -> &str {
    HeadConfig::all().iter().map(HeadConfig::about).find(|a| a.name == name).map_or(name, |a| a.title)
}
