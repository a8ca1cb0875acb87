//! What every writer of predictions has in common.

use std::io;
use std::path::Path;

use crate::data::{BadImage, Kept, KeptField};
use crate::error::{Error, Result};
use crate::model::{Predictions, Threshold};

/// The columns besides `label`, `verdict`, `confidence` and `p_value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The probability of each class.
    pub probs: bool,
    /// The distance to each class.
    pub distances: bool,
    /// The name of each row as the first column, `image`.
    pub names: bool,
    /// A row for each image that could not be read, and why as the last column, `error`.
    pub errors: bool,
}

/// A block of rows.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The predictions.
    pub predictions: &'a Predictions,
    /// The name of each row, for [`Columns::names`].
    pub names: &'a [String],
    /// Images without a prediction, for [`Columns::errors`].
    pub bad: &'a [BadImage],
    /// The cells of the columns in [`Layout::kept`].
    pub kept: &'a [&'a Kept],
}

/// A row of a block: the index of its prediction, or an image without one.
pub(super) enum Entry<'a> {
    Row(usize),
    Bad(&'a BadImage),
}

impl<'a> Block<'a> {
    /// The rows in their order.
    pub(super) fn entries(&self, columns: Columns) -> Vec<Entry<'a>> {
        let mut bad = if columns.errors { self.bad } else { &[] }.iter().peekable();
        let mut entries = Vec::with_capacity(self.predictions.rows() + bad.len());
        for row in 0..self.predictions.rows() {
            while let Some(image) = bad.next_if(|image| image.before <= row) {
                entries.push(Entry::Bad(image));
            }
            entries.push(Entry::Row(row));
        }
        entries.extend(bad.map(Entry::Bad));
        entries
    }
}

/// The verdict of an image that could not be read.
pub(super) const FAILED: &str = "error";

/// What a writer needs to know besides the predictions.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// The columns of the input that are passed through, before all others, by their names in the output.
    pub kept: Vec<KeptField>,
    /// The names of the classes; empty if no classes are predicted.
    pub classes: &'a [String],
    /// Decides between `known` and `unknown`.
    pub threshold: Threshold,
    /// The columns.
    pub columns: Columns,
    /// What errors call the destination: a path, or a name such as `standard output`.
    pub destination: &'a Path,
}

impl Layout<'_> {
    /// The names of the columns, without those of the input.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.columns.names.then(|| "image".to_owned()).into_iter().collect();
        names.extend(["label", "verdict", "confidence", "p_value"].map(String::from));
        for (prefix, wanted) in [("prob", self.columns.probs), ("distance", self.columns.distances)] {
            if wanted {
                names.extend(self.classes.iter().map(|c| format!("{prefix}:{c}")));
            }
        }
        names.extend(self.columns.errors.then(|| "error".to_owned()));
        names
    }

    /// The values of row `i` for each class, and what they are.
    pub(super) fn by_class<'p>(
        &self,
        p: &'p Predictions,
        i: usize,
    ) -> impl Iterator<Item = (&'static str, &'p [f64])> + use<'p> {
        let probs = self.columns.probs.then(|| ("probs", p.posterior(i)));
        let distances = if self.columns.distances { p.distance(i).map(|d| ("distances", d)) } else { None };
        probs.into_iter().chain(distances)
    }

    pub(super) fn verdict(&self, confidence: f64) -> &'static str {
        verdict(self.threshold.known(confidence))
    }

    pub(super) fn error(&self, error: io::Error) -> Error {
        Error::io(error, self.destination)
    }
}

/// Writes predictions, block by block.
pub trait Writer {
    /// Adds a block of rows.
    ///
    /// # Errors
    /// If writing fails.
    fn write(&mut self, block: Block<'_>) -> Result<()>;

    /// Completes the output. Nothing can be written after it.
    ///
    /// # Errors
    /// If writing fails.
    fn finish(&mut self) -> Result<()>;
}

/// The word of the verdict column: `known` or `unknown`.
pub fn verdict(known: bool) -> &'static str {
    if known { "known" } else { "unknown" }
}
