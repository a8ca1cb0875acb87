//! The output of predictions: its format, and a file or standard output.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::ValueEnum;
use mcdd::data::{PassThrough, ReadOptions};
use mcdd::stream::{self, Columns, Destination, Output, Summary};

use crate::places::Places;

/// The format of the output
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Csv,
    Tsv,
    /// A JSON object on each line
    Jsonl,
    /// A JSON array
    Json,
    Parquet,
}

impl From<Format> for stream::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Csv => stream::Format::Csv,
            Format::Tsv => stream::Format::Tsv,
            Format::Jsonl => stream::Format::JsonLines,
            Format::Json => stream::Format::Json,
            Format::Parquet => stream::Format::Parquet,
        }
    }
}

/// Options of the commands that write predictions.
#[derive(clap::Args, Clone, Debug)]
pub struct Writing {
    /// Columns of the input to pass through to the output, before its own columns: names or numbers from 1, or all
    #[arg(long, value_name = "COLUMN,…|all")]
    keep: Vec<String>,

    /// Output format [default: that of the extension of --output, else csv]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "csv|tsv|jsonl|json|parquet")]
    format: Option<Format>,

    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Writing {
    /// Checks, before anything is read, that the output can be written. Returns its format.
    pub fn check<'a>(&'a self, mut places: Places<'a>) -> mcdd::Result<stream::Format> {
        if let Some(path) = &self.output {
            places.file(path, "output")?;
        }
        match (self.format, &self.output) {
            (Some(format), _) => Ok(format.into()),
            (None, Some(path)) => stream::Format::of_path(path),
            (None, None) => Ok(stream::Format::Csv),
        }
    }

    /// Options of reading rows whose columns are passed through.
    pub fn keeping(&self, options: ReadOptions) -> ReadOptions {
        ReadOptions { pass_through: PassThrough::from_list(&self.keep), ..options }
    }

    /// Lets `work` write its predictions in this format.
    pub fn write(
        &self,
        format: stream::Format,
        columns: Columns,
        work: impl FnOnce(Output) -> mcdd::Result<Summary>,
    ) -> mcdd::Result<Summary> {
        let mut stdout = BufWriter::with_capacity(1 << 16, io::stdout());
        let to = match &self.output {
            Some(path) => Destination::File(path),
            None => Destination::Writer(&mut stdout, "standard output"),
        };
        work(Output { format, columns, to })
    }
}
