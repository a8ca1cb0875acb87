//! Output formats and destinations.

use std::io::Write;
use std::path::Path;

use super::writer::{Block, Columns, Layout, Writer};
use super::{Csv, JsonLines};
use crate::error::{Error, Result};
use crate::files::write_beside;
use crate::model::Threshold;

/// The format of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// A JSON object on each line.
    JsonLines,
    /// Apache Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Format {
    /// Starts an output of this format.
    ///
    /// # Errors
    /// If writing fails.
    pub fn writer<'a, W: Write + Send + 'a>(self, layout: Layout<'a>, to: W) -> Result<Box<dyn Writer + 'a>> {
        Ok(match self {
            Format::Csv => Box::new(Csv::new(layout, to)?),
            Format::JsonLines => Box::new(JsonLines::new(layout, to)),
            #[cfg(feature = "parquet")]
            Format::Parquet => Box::new(super::Parquet::new(layout, to)?),
        })
    }
}

/// Where an output goes.
pub enum Destination<'a> {
    /// A file, which is replaced when the output is complete.
    File(&'a Path),
    /// Any writer, with a name for errors.
    Writer(&'a mut (dyn Write + Send), &'a str),
}

/// Predictions as a file or a stream of bytes.
pub struct Output<'a> {
    /// The format.
    pub format: Format,
    /// The columns.
    pub columns: Columns,
    /// The destination.
    pub to: Destination<'a>,
}

impl Output<'_> {
    /// Opens the output, lets `work` write to it, and completes it.
    pub(super) fn write<T>(
        self,
        classes: &[String],
        threshold: Threshold,
        work: impl FnOnce(&mut LazyWriter) -> Result<T>,
    ) -> Result<T> {
        let Output { format, columns, to } = self;
        let through = |to: &mut (dyn Write + Send), destination: &Path| {
            let layout = Layout { classes, threshold, columns, destination };
            let mut writer = LazyWriter { format, layout, to: Some(&mut *to), writer: None };
            let done = work(&mut writer)?;
            writer.start()?.finish()?;
            drop(writer);
            to.flush().map_err(|e| layout.error(e))?;
            Ok(done)
        };
        match to {
            Destination::Writer(to, name) => through(to, Path::new(name)),
            Destination::File(path) => {
                let mut done = None;
                write_beside(path, |to| {
                    done = Some(through(to, path)?);
                    Ok(())
                })?;
                done.ok_or_else(|| Error::data("nothing was written").at_file(path))
            }
        }
    }
}

/// Starts the output with the first block, so that a source that cannot be read leaves no output.
pub(super) struct LazyWriter<'a> {
    format: Format,
    layout: Layout<'a>,
    to: Option<&'a mut (dyn Write + Send)>,
    writer: Option<Box<dyn Writer + 'a>>,
}

impl<'a> LazyWriter<'a> {
    fn start(&mut self) -> Result<&mut (dyn Writer + 'a)> {
        if let Some(to) = self.to.take() {
            self.writer = Some(self.format.writer(self.layout, to)?);
        }
        let gone = || Error::data("the output could not be started").at_file(self.layout.destination);
        self.writer.as_deref_mut().ok_or_else(gone)
    }

    /// Adds a block of rows; returns how many of them are unknown.
    pub(super) fn write(&mut self, block: Block<'_>) -> Result<u64> {
        self.start()?.write(block)?;
        Ok(block.predictions.confidence.iter().filter(|&&c| !self.layout.threshold.known(c)).count() as u64)
    }
}
