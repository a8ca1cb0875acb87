//! Reading for prediction: tables or images, block by block, in bounded memory.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::input::Input;
use super::kept::{KeptField, PassThrough};
use super::options::ReadOptions;
#[cfg(feature = "images")]
use super::pixels::PixelReader;
use super::rows::TableReader;
use super::schema::Schema;
use super::scores::ScoreReader;
use super::source::Source;
use super::text::Notices;
#[cfg(not(feature = "images"))]
use super::text::needs_feature;
use crate::error::{Error, Result};

/// A table or images, bound to what a model reads.
pub enum Reader {
    /// A table, by columns.
    Table(Box<TableReader>),
    /// Images of the model's shape.
    #[cfg(feature = "images")]
    Images(Box<PixelReader>),
}

/// Rows, or what a model said about rows.
pub enum RowsOrScores {
    /// Rows with the columns of the model, or images.
    Rows(Reader),
    /// The confidences of predictions that were written before.
    Scores(ScoreReader),
}

/// Whether a table has the columns of predictions.
fn is_predictions(source: &Source) -> bool {
    let has = |name: &str| source.names().iter().any(|n| n == name);
    source.named() && has("verdict") && has("confidence")
}

impl Reader {
    /// Whether there are labels.
    pub fn has_labels(&self) -> bool {
        match self {
            Reader::Table(r) => r.has_labels(),
            #[cfg(feature = "images")]
            Reader::Images(r) => r.has_labels(),
        }
    }

    /// The number of rows read so far.
    pub fn rows(&self) -> u64 {
        match self {
            Reader::Table(r) => r.rows(),
            #[cfg(feature = "images")]
            Reader::Images(r) => r.rows(),
        }
    }

    /// Reads the next rows, at most `max_rows` (at least one); `false` at the end, with an empty batch.
    ///
    /// # Errors
    /// If the rest of the file cannot be read.
    pub fn next(&mut self, max_rows: usize, out: &mut Batch) -> Result<bool> {
        match self {
            Reader::Table(r) => r.next(max_rows, out),
            #[cfg(feature = "images")]
            Reader::Images(r) => r.next(max_rows, out),
        }
    }

    /// The columns that are passed through ([`ReadOptions::pass_through`]), as [`Batch::kept`] has them.
    pub fn kept(&self) -> Vec<KeptField> {
        match self {
            Reader::Table(r) => r.kept(),
            #[cfg(feature = "images")]
            Reader::Images(_) => Vec::new(),
        }
    }

    /// What the user should know about the rows read so far.
    pub fn notices(&self) -> Notices {
        match self {
            Reader::Table(r) => r.notices(),
            #[cfg(feature = "images")]
            Reader::Images(r) => r.notices(),
        }
    }
}

impl Schema {
    /// Opens a file for prediction.
    ///
    /// # Errors
    /// If the file cannot be read, or lacks a column of the model.
    pub fn reader(&self, path: &Path, options: &ReadOptions) -> Result<Reader> {
        if let Some(image) = &self.image {
            if options.pass_through != PassThrough::None {
                return Err(Error::setting("`keep` is for tables, and the model is for images")
                    .hint("leave `keep` out: the first column of the output names the image"));
            }
            #[cfg(feature = "images")]
            return Ok(Reader::Images(Box::new(PixelReader::open(image, path, options)?)));
            #[cfg(not(feature = "images"))]
            {
                let _ = image;
                return Err(needs_feature("image files", "images").at_file(path));
            }
        }
        self.reader_of(options, |options| Source::open(path, options)).map_err(|e| e.at_file(path))
    }

    /// Opens a file of rows, or of predictions that this model has written: a table with the columns `verdict` and `confidence`.
    ///
    /// # Errors
    /// As for [`Schema::reader`].
    pub fn rows_or_scores(&self, path: &Path, options: &ReadOptions) -> Result<RowsOrScores> {
        let stdin = path == Path::new("-");
        let header = self.named.then_some(true).or(options.header);
        let table = ReadOptions { header, ..options.clone() };
        if self.image.is_some() {
            // Standard input has no images.
            let predictions = if path.is_dir() { None } else { Source::open(path, &table).ok().filter(is_predictions) };
            return match predictions {
                Some(source) => Ok(RowsOrScores::Scores(ScoreReader::new(source, Some("confidence"))?)),
                None if stdin => Err(Error::data("the standard input has no predictions")
                    .at_file(path)
                    .hint("give the output of `predict`, or images as files")),
                None => self.reader(path, options).map(RowsOrScores::Rows),
            };
        }
        let source = Source::open(path, &table).map_err(|e| e.at_file(path))?;
        let own = self.columns.iter().any(|c| c.name == "confidence");
        if !own && is_predictions(&source) {
            return Ok(RowsOrScores::Scores(ScoreReader::new(source, Some("confidence"))?));
        }
        self.reader_of(options, |_| Ok(source)).map_err(|e| e.at_file(path)).map(RowsOrScores::Rows)
    }

    /// Reads a stream for prediction: any format but Parquet, NPZ and Excel, each also gzipped. Memory
    /// does not grow with the stream. `name` stands for it in errors.
    ///
    /// # Errors
    /// If the stream cannot be read, or lacks a column of the model; if the format must be read from its end
    /// (Parquet, NPZ, Excel: give its bytes to [`Schema::reader_from_bytes`]); if the model reads images.
    pub fn reader_from(&self, reader: impl Read + Send + 'static, name: &str, options: &ReadOptions) -> Result<Reader> {
        let name = Path::new(name);
        self.reader_of(options, |options| Source::from_input(Input::from_read(Box::new(reader), name)?, options))
            .map_err(|e| e.at_file(name))
    }

    /// Reads the content of a file for prediction, of any format of tables. `name` stands for it in errors.
    ///
    /// # Errors
    /// If the content cannot be read, or lacks a column of the model; if the model reads images.
    pub fn reader_from_bytes(&self, bytes: impl Into<Arc<[u8]>>, name: &str, options: &ReadOptions) -> Result<Reader> {
        let name = Path::new(name);
        self.reader_of(options, |options| Source::from_input(Input::from_bytes(bytes.into(), name)?, options))
            .map_err(|e| e.at_file(name))
    }

    /// Binds the columns of an opened table.
    pub(super) fn reader_of(
        &self,
        options: &ReadOptions,
        open: impl FnOnce(&ReadOptions) -> Result<Source>,
    ) -> Result<Reader> {
        self.check_reads_tables()?;
        Ok(Reader::Table(Box::new(TableReader::open(self, options, open)?)))
    }
}
