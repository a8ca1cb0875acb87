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

pub(crate) mod cell;
mod concat;
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
mod npz;
mod number;
mod options;
mod parquet;
mod reader;
mod schema;
mod scores;
pub mod sets;
mod source;
mod table;

pub use cell::{Column, MISSING};
pub use digits::digits;
pub use images::{Augment, ImageBatch, ImageOptions, ImageReader, ImageSpec, Images, Loader, Loading, Prepared, Shape};
pub use labels::Labels;
pub use matrix::{MatrixReader, labels};
pub use options::{Label, ReadOptions};
pub use reader::{Batch, Reader};
pub(crate) use schema::count;
pub use schema::{CLAMP, ColumnKind, MAX_CATEGORIES, Notices, Schema, SchemaColumn};
pub use scores::scores;
pub use source::Source;
pub use table::{LabelColumn, Table};
