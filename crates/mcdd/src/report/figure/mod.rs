//! Figures: numbers in, SVG and PNG out.
//!
//! A figure is a list of shapes (`scene.rs`) that two writers draw: as SVG with real text, right on light and on dark ground,
//! and as PNG in one of the two [`Theme`]s. The font is in the program, so the same numbers are the same bytes everywhere.

mod axis;
mod bars;
mod color;
mod contour;
mod curves;
mod font;
mod latent;
mod lines;
mod page;
mod png;
mod samples;
mod scene;
mod svg;

pub use bars::{BarPanel, bars};
pub(in crate::report) use color::variables;
pub use color::{SERIES, Theme};
pub use curves::{Curve, CurvePanel, curves};
pub use latent::{LatentSpace, Point, STEPS, Sphere, View, latent_spaces};
pub use lines::{LinePanel, lines};
pub use samples::{Cell, ClassSamples, Looks, MOST_CELLS, Sample, samples};

use self::scene::Scene;
use crate::error::{Error, Result};

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    title: String,
    scene: Scene,
}

impl Figure {
    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// As SVG: for a file, or for the inside of a page, where several may stand.
    pub fn svg(&self) -> String {
        svg::write(&self.scene, &self.title)
    }

    /// As PNG.
    ///
    /// # Errors
    /// If it is too large.
    pub fn png(&self, theme: Theme) -> Result<Vec<u8>> {
        png::write(&self.scene, theme)
    }
}

/// A number, and how far numbers like it are from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The number.
    pub mean: f64,
    /// The standard deviation, where it is known.
    pub deviation: Option<f64>,
}

/// A number as a text of at most so many digits that count, with commas between thousands.
pub fn short_number(value: f64, digits: usize) -> String {
    axis::short(value, digits)
}

/// Refuses what cannot be drawn.
fn check_numbers(mut numbers: impl Iterator<Item = f64>) -> Result<()> {
    if numbers.all(|v| v.abs() <= 1e100) {
        return Ok(());
    }
    Err(Error::data("a number of the figure is not finite, or far too large to be drawn"))
}

#[cfg(test)]
mod tests;
