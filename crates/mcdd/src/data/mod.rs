//! Tables and [images](images) from files, and their way to a network's inputs.
//!
//! [`Table::read`] brings whole files into memory for training; [`Schema::fit`] learns the preprocessing from
//! the training rows; [`Schema::reader`] reads a file for prediction block by block, in memory that does not
//! grow with the file.
//!
//! # Formats
//!
//! Found by content: CSV, TSV and other separated text; text separated by spaces; the `label index:value`
//! form; IDX; NPY; NPZ; Parquet. Text, IDX and NPY may be packed by gzip or `compress` (`.Z`), and may come from stdin (`-`).
//!
//! # Cells
//!
//! A cell that is empty, `NA`, `N/A`, `NaN` (in any case), `null`, `None` or `?` is missing. A column is one of
//! categories when none of its cells is a number, or when [`ReadOptions::categorical`] says so; numbers and
//! texts in one column are an error, and so is infinity. Rows in errors are the lines of a text file, from 1
//! with the header; in other formats the rows from 1.
//!
//! # Example
//!
//! ```
//! use mcdd::data::{Schema, digits};
//!
//! let table = digits();
//! let (train, test) = table.split_rows(0.25, 7)?;
//! let (schema, notices) = Schema::fit(&table, &train)?;
//! assert!(notices[0].contains("constant columns dropped"));
//! let inputs = schema.transform(&table, Some(&test))?;
//! assert_eq!(inputs.len(), test.len() * schema.width());
//! # Ok::<(), mcdd::Error>(())
//! ```

// Parts of the readers are used by some formats only.
#![cfg_attr(
    not(all(feature = "datasets", feature = "images", feature = "npz", feature = "parquet")),
    allow(dead_code, unused_imports)
)]

#[cfg(feature = "parquet")]
mod arrow;
mod batch;
#[cfg(feature = "parquet")]
mod batches;
mod builder;
mod cell;
mod column;
mod decode;
mod delimited;
mod digits;
mod encode;
mod guard;
mod idx;
pub mod images;
mod input;
mod labels;
mod libsvm;
mod lines;
mod lzw;
mod matrix;
mod npy;
#[cfg(feature = "npz")]
mod npz;
mod number;
mod options;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "images")]
mod pixels;
mod read;
mod reader;
mod row;
mod rows;
mod schema;
mod scores;
#[cfg(feature = "datasets")]
pub mod sets;
mod source;
mod table;
mod text;
mod transform;

pub use batch::Batch;
pub use builder::TableBuilder;
pub use cell::Cell;
pub use column::{Column, MISSING};
pub use digits::digits;
pub use images::{Augment, ImageShape, ImageSpec, Images, Loader, Loading, Prepared};
#[cfg(feature = "images")]
pub use images::{ImageBatch, ImageOptions, ImageReader};
pub use labels::Labels;
pub use matrix::{MatrixReader, labels};
pub use options::{Label, Part, ReadOptions};
#[cfg(feature = "images")]
pub use pixels::PixelReader;
pub use reader::Reader;
pub use row::RowCounts;
pub use rows::TableReader;
pub use schema::{CLAMP, ColumnKind, MAX_CATEGORIES, Schema, SchemaColumn};
pub use scores::scores;
pub use source::Source;
pub use table::{LabelColumn, Table};
pub use text::Notices;
pub(crate) use text::count;
#[cfg(feature = "datasets")]
pub(crate) use text::list;
