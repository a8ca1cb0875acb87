//! Figures: numbers in, SVG and PNG out.
//!
//! A figure is a list of primitives (`scene.rs`) with two writers: SVG with real text, for light and dark backgrounds, and PNG
//! in one of the two [`Theme`]s. The font is embedded, so the same numbers give the same bytes on every system.
//!
//! ```
//! use mcdd::report::figure::{Theme, Value, BarPanel, bars};
//!
//! let value = |mean| Some(Value { mean, deviation: Some(1.5) });
//! let panel = BarPanel {
//!     title: "gas".into(),
//!     unit: "%".into(),
//!     groups: vec!["AUROC".into()],
//!     values: vec![vec![value(91.0)], vec![value(97.5)]],
//! };
//! let figure = bars("Two methods", "Mean over five folds.", &["softmax".into(), "deep-mcdd".into()], &[panel])?;
//! assert!(figure.svg().starts_with("<svg") && figure.png(Theme::Dark)?.starts_with(b"\x89PNG"));
//! # Ok::<(), mcdd::Error>(())
//! ```

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
pub use color::{SERIES, Theme};
pub(in crate::report) use color::{classes, variables};
pub use curves::{Curve, CurvePanel, curves};
pub use latent::{LatentSpace, Point, STEPS, Sphere, View, latent_spaces};
pub use lines::{LinePanel, lines};
pub use samples::{Cell, ClassSamples, MOST_CELLS, Sample, SampleKind, samples};

use self::scene::Scene;
use crate::error::{Error, Result};

/// A figure, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    title: String,
    scene: Scene,
}

impl Figure {
    /// The title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// As SVG: for a file, or to be embedded in a page with other figures.
    pub fn svg(&self) -> String {
        svg::write(&self.scene, &self.title)
    }

    /// As an SVG element for a page with the rules of [`classes`].
    pub(in crate::report) fn embedded(&self) -> String {
        svg::embedded(&self.scene, &self.title)
    }

    /// Whether an SVG file has this figure's title.
    pub(in crate::report) fn same_title(&self, svg: &[u8]) -> bool {
        svg::has_title(svg, &self.title)
    }

    /// As PNG.
    ///
    /// # Errors
    /// If it is too large.
    pub fn png(&self, theme: Theme) -> Result<Vec<u8>> {
        png::write(&self.scene, theme)
    }
}

/// A mean and its standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, if known.
    pub deviation: Option<f64>,
}

/// A number as text with at most `digits` significant digits and commas between thousands.
pub fn short_number(value: f64, digits: usize) -> String {
    axis::short(value, digits)
}

/// An error if a number cannot be drawn.
fn check_numbers(mut numbers: impl Iterator<Item = f64>) -> Result<()> {
    if numbers.all(|v| v.abs() <= 1e100) {
        return Ok(());
    }
    Err(Error::data("a number of the figure is not finite, or too large to be drawn"))
}

#[cfg(test)]
mod tests;
