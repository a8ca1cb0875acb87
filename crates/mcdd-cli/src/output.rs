//! The output of predictions: its format, and a file or standard output.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::ValueEnum;
use mcdd::stream::{self, Columns, Destination, Output, Summary};

/// The format of the output
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Csv,
    Jsonl,
    Parquet,
}

impl From<Format> for stream::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Csv => stream::Format::Csv,
            Format::Jsonl => stream::Format::JsonLines,
            Format::Parquet => stream::Format::Parquet,
        }
    }
}

/// Options of the commands that write predictions.
#[derive(clap::Args, Clone, Debug)]
pub struct Writing {
    /// Output format
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,

    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Writing {
    /// Lets `work` write its predictions.
    pub fn write(&self, columns: Columns, work: impl FnOnce(Output) -> mcdd::Result<Summary>) -> mcdd::Result<Summary> {
        let mut stdout = BufWriter::with_capacity(1 << 16, io::stdout());
        let to = match &self.output {
            Some(path) => Destination::File(path),
            None => Destination::Writer(&mut stdout, "standard output"),
        };
        work(Output { format: self.format.into(), columns, to })
    }
}
