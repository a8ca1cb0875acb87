//! What people look at: figures of what methods do, tables and pages of how well they do it.
//!
//! [`figure`] draws numbers; the functions here get the numbers from models and tables, [`mod@bench`] from the results of a grid.

pub mod bench;
pub mod figure;
mod html;
mod latent;
pub mod model;
mod samples;

use crate::head::HeadConfig;

pub use latent::{Shown, latent_space};
pub use samples::{Chosen, choose_images, choose_samples};

/// A method's name as papers write it: `Deep-MCDD` for `deep-mcdd`.
pub fn method_name(name: &str) -> &str {
    HeadConfig::all().iter().map(HeadConfig::about).find(|a| a.name == name).map_or(name, |a| a.title)
}
