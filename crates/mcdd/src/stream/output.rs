//! Output formats and destinations.

use std::io::Write;
use std::path::Path;

use super::kept::Passing;
use super::writer::{Block, Columns, Layout, Writer};
use super::{Csv, Json};
use crate::data::{Kept, KeptField};
use crate::error::{Error, Result};
use crate::files::write_beside;
use crate::model::Threshold;

/// The format of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// Tab-separated values with a header.
    Tsv,
    /// A JSON object on each line.
    JsonLines,
    /// A JSON array of objects.
    Json,
    /// Apache Parquet.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Format {
    /// The format that the extension of a file stands for: `.csv`, `.tsv`, `.jsonl` or `.ndjson`, `.json`, `.parquet`.
    /// Without an extension, or with one that stands for nothing, it is CSV.
    ///
    /// # Errors
    /// If the extension stands for a format that is not written.
    pub fn of_path(path: &Path) -> Result<Format> {
        let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let not_written = |what: String| {
            Err(Error::setting(what)
                .at_file(path)
                .hint("end the name in .csv, .tsv, .jsonl, .json or .parquet, or give `format`"))
        };
        Ok(match ending.as_str() {
            "tsv" | "tab" => Format::Tsv,
            "jsonl" | "ndjson" => Format::JsonLines,
            "json" => Format::Json,
            #[cfg(feature = "parquet")]
            "parquet" | "pq" => Format::Parquet,
            #[cfg(not(feature = "parquet"))]
            "parquet" | "pq" => return not_written("this build of mcdd does not write Parquet".into()),
            "gz" | "bz2" | "xz" | "zst" | "zip" | "z" | "xlsx" | "xls" | "npy" | "npz" | "arrow" | "feather"
            | "ipc" | "orc" | "html" => return not_written(format!("predictions are not written as .{ending}")),
            _ => Format::Csv,
        })
    }

    /// Whether columns have types.
    fn typed(self) -> bool {
        !matches!(self, Format::Csv | Format::Tsv | Format::JsonLines | Format::Json)
    }

    /// The names of the columns that are not from the input.
    fn names(self, layout: &Layout) -> Vec<String> {
        match self {
            Format::JsonLines | Format::Json => {
                ["image", "label", "verdict", "confidence", "p_value", "probs", "distances"].map(String::from).to_vec()
            }
            _ => layout.names(),
        }
    }

    /// Starts an output of this format.
    ///
    /// # Errors
    /// If writing fails.
    pub fn writer<'a, W: Write + Send + 'a>(self, layout: Layout<'a>, to: W) -> Result<Box<dyn Writer + 'a>> {
        Ok(match self {
            Format::Csv => Box::new(Csv::new(layout, to)?),
            Format::Tsv => Box::new(Csv::with_separator(layout, '\t', to)?),
            Format::JsonLines => Box::new(Json::lines(layout, to)),
            Format::Json => Box::new(Json::array(layout, to)),
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
            let layout = Layout { kept: Vec::new(), classes, threshold, columns, destination };
            let passing = Passing::new(format.typed());
            let mut writer = LazyWriter { format, layout, passing, to: Some(&mut *to), writer: None };
            let done = work(&mut writer)?;
            writer.start()?.finish()?;
            drop(writer);
            to.flush().map_err(|e| Error::io(e, destination))?;
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
    passing: Passing,
    to: Option<&'a mut (dyn Write + Send)>,
    writer: Option<Box<dyn Writer + 'a>>,
}

impl<'a> LazyWriter<'a> {
    fn start(&mut self) -> Result<&mut (dyn Writer + 'a)> {
        if let Some(to) = self.to.take() {
            self.writer = Some(self.format.writer(self.layout.clone(), to)?);
        }
        let gone = || Error::data("the output could not be started").at_file(self.layout.destination);
        self.writer.as_deref_mut().ok_or_else(gone)
    }

    /// A source begins, with these columns to pass through. Returns notices about their names.
    pub(super) fn source(&mut self, fields: Vec<KeptField>) -> Result<Vec<String>> {
        if self.passing.begun() {
            self.passing.next(&fields)?;
            return Ok(Vec::new());
        }
        let (kept, notices) = self.passing.first(fields, self.format.names(&self.layout))?;
        self.layout.kept = kept;
        Ok(notices)
    }

    /// Adds a block of rows; returns how many of them are unknown.
    pub(super) fn write(&mut self, block: Block<'_>, kept: &[Kept]) -> Result<u64> {
        let kept = self.passing.ordered(kept)?;
        self.start()?.write(Block { kept: &kept, ..block })?;
        Ok(block.predictions.confidence.iter().filter(|&&c| !self.layout.threshold.known(c)).count() as u64)
    }
}
