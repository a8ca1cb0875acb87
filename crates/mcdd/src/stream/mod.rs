//! Prediction block by block, from any source to any destination, in memory that does not grow with the data.
//!
//! A source is anything that implements [`Blocks`]: the [`Reader`](crate::data::Reader) of a file or folder
//! ([`Schema::reader`](crate::data::Schema::reader)), or an iterator of batches. [`predict`] writes the predictions of a
//! [`Model`](crate::model::Model) as CSV, TSV, JSON or Parquet; [`score`] does the same for a
//! [`Scorer`](crate::model::Scorer) and files of features. [`for_each`] and [`predict_each`] hand out the blocks instead.
//! The next blocks are read while the current one is processed.
//!
//! ```
//! use mcdd::{compute::pool::Pool, data::digits, model::Model, stream, train::{Preset, Settings}};
//! use mcdd::data::Batch;
//!
//! let table = digits();
//! let model = Model::fit(&table, &Settings::builder().preset(Preset::Fast).epochs(2).build()?)?;
//! let width = model.schema().width();
//!
//! // Any iterator of batches is a source.
//! let x = model.schema().transform(&table, None)?;
//! let batches = x.chunks(1000 * width).map(|x| Ok(Batch { rows: x.len() / width, x: x.to_vec(), ..Batch::default() }));
//! let mut csv = Vec::new();
//! let to = stream::Destination::Writer(&mut csv, "memory");
//! let output = stream::Output { format: stream::Format::Csv, columns: stream::Columns::default(), to };
//! let summary = stream::predict(&model, [Ok(batches)], model.threshold()?, output, Pool::shared())?;
//!
//! assert_eq!(summary.rows, table.rows() as u64);
//! assert!(csv.starts_with(b"label,verdict,confidence,p_value\n"));
//! # Ok::<(), mcdd::Error>(())
//! ```

mod blocks;
mod csv;
mod features;
mod json;
mod kept;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
mod pipeline;
mod predict;
#[cfg(test)]
mod tests;
mod writer;

pub use blocks::{BLOCK_ROWS, Blocks, for_each};
pub use csv::{Csv, csv_cell};
pub use features::{FeatureFiles, TrainingFiles, fit_scorer};
pub use json::Json;
pub use output::{Destination, Format, Output};
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use predict::{Summary, predict, predict_each, score, without_labels};
pub use writer::{Block, Columns, Layout, Writer, verdict};
