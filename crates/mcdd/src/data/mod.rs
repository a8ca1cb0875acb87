//! Tables and [images]: reading them, and turning them into a network's inputs.
//!
//! A [`Table`] is in memory, for training. It comes from files ([`Table::read`]), from a stream or bytes
//! ([`Table::read_from`], [`Table::from_bytes`]), from values ([`Table::builder`], [`Table::from_rows`]) or from Arrow
//! record batches (`Table::from_record_batches`). [`Schema::fit`] learns the preprocessing from the training rows, and
//! [`Schema::transform`] applies it. For prediction, [`Schema::reader`] reads a file block by block in memory that does not
//! grow with the file, and [`Schema::encode_row`] encodes a single row.
//!
//! # Formats
//!
//! Formats are found by content: CSV, TSV and other separated text; text separated by spaces; `label index:value` text;
//! JSON Lines; IDX; NPY; NPZ (feature `npz`); Excel's `.xlsx` (feature `excel`); Parquet, Arrow streams and Feather files
//! (feature `parquet`). All but NPZ, Excel and Parquet may be compressed by gzip or `compress` (`.Z`), and may come from
//! stdin (`-`). Image files need the feature `images`. A format whose feature is off is an error that names the feature.
//!
//! Text is UTF-8, UTF-16 or Windows-1252, which is found and reported ([`Table::notices`], [`Reader::notices`]). In JSON
//! Lines each line is an object and its keys are the columns; a key that a row lacks is a missing cell. In an Excel sheet
//! the first row with a cell is the header, and dates are texts in ISO form.
//!
//! # Cells
//!
//! A cell that is empty, `NA`, `#NA`, `N/A`, `n/a`, `#N/A`, `<NA>`, `NaN` (in any case), `null`, `NULL`, `None` or `?` is missing. A column of texts is one of
//! numbers, booleans or dates if all of its cells are written in one [`Form`] (`29.7%`, `1.234,56`, `yes`, `31.12.2025`),
//! else it is categorical. [`ReadOptions::categorical`] lists columns that are categorical in any case. Numbers and texts
//! in one column are an error, and so is infinity. A row is counted from 1 within its file, the header and blank lines not
//! counted; errors add the line of a text where it differs, `row 3 (line 4)` ([`Row`](crate::error::Row)).
//!
//! # Examples
//!
//! From memory:
//!
//! ```
//! use mcdd::data::{Schema, Table};
//!
//! let table = Table::builder()
//!     .column("width", [1.4, 1.3, f64::NAN, 4.7])?
//!     .column("color", [Some("red"), None, Some("blue"), Some("red")])?
//!     .labels(["a", "a", "b", "b"])?
//!     .build()?;
//! let (schema, notices) = Schema::fit(&table, &[0, 1, 2, 3])?;
//! assert_eq!(schema.input_names(), ["width", "width missing", "color=blue", "color=red", "color missing"]);
//! assert_eq!(notices[0], "1 missing cell in 1 column imputed by the training mean");
//! let inputs = schema.transform(&table, None)?;
//! assert_eq!(inputs.len(), table.rows() * schema.width());
//! # Ok::<(), mcdd::Error>(())
//! ```
//!
//! From CSV, here in memory; [`Table::read`] and [`Schema::reader`] take paths:
//!
//! ```
//! use mcdd::data::{Batch, ReadOptions, Schema, Table};
//!
//! let options = ReadOptions::default();
//! let table = Table::from_bytes(&b"width,height,class\n1,2,a\n3,5,b\n"[..], "train.csv", &options)?;
//! let (schema, _) = Schema::fit(&table, &[0, 1])?;
//! let mut reader = schema.reader_from(std::io::Cursor::new("height,width\n5,1\n"), "new.csv", &options)?;
//! let mut batch = Batch::default();
//! while reader.next(1000, &mut batch)? {
//!     assert_eq!(batch.x, [-1.0, 1.0]); // columns are matched by name
//! }
//! # Ok::<(), mcdd::Error>(())
//! ```
//!
//! From Arrow:
//!
//! ```
//! # #[cfg(feature = "arrow")] {
//! use std::sync::Arc;
//!
//! use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
//! use mcdd::data::{ReadOptions, Table};
//!
//! let width: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.4), None]));
//! let class: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
//! let batch = RecordBatch::try_from_iter([("width", width), ("class", class)]).unwrap();
//! let table = Table::from_record_batches(&[batch], &ReadOptions::default())?;
//! assert_eq!((table.rows(), table.classes().len()), (2, 2));
//! # }
//! # Ok::<(), mcdd::Error>(())
//! ```

// Parts of the readers are used by some formats only.
#![cfg_attr(
    not(all(feature = "datasets", feature = "excel", feature = "images", feature = "npz", feature = "parquet")),
    allow(dead_code, unused_imports)
)]

#[cfg(feature = "arrow")]
mod arrow;
#[cfg(feature = "arrow")]
mod arrow_text;
mod batch;
#[cfg(feature = "arrow")]
mod batches;
mod builder;
mod categories;
mod cell;
mod check;
mod column;
mod column_list;
mod convert;
mod decide;
mod decimal;
mod decode;
mod delimited;
mod digits;
mod divide;
mod encode;
mod encoding;
#[cfg(feature = "excel")]
mod excel;
mod form;
mod guard;
mod idx;
pub mod images;
mod input;
#[cfg(feature = "parquet")]
mod ipc;
mod json_lines;
mod kept;
mod labels;
mod left_out;
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
mod pages;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "images")]
mod pixels;
mod plain_rows;
pub mod profile;
mod read;
mod reader;
mod recognize;
mod refused;
mod row;
mod rows;
mod sample;
mod schema;
mod scores;
#[cfg(feature = "datasets")]
pub mod sets;
mod source;
pub(crate) mod split;
mod table;
mod text;
#[cfg(feature = "parquet")]
mod thrift;
mod time;
mod to_onnx;
mod transform;
#[cfg(any(feature = "excel", feature = "npz"))]
mod zipped;

pub use batch::{BadImage, Batch, Unseen};
pub use builder::TableBuilder;
pub use categories::MAX_CATEGORIES;
pub use cell::Cell;
pub use check::{Check, Setting};
pub use column::{Column, MISSING};
pub use digits::digits;
pub use form::{Decimal, Form, Group, NumberForm, Words};
pub use images::{Augment, Border, ImageShape, ImageSpec, Images, Loader, Loading, Prepared};
#[cfg(feature = "images")]
pub use images::{ImageBatch, ImageOptions, ImageReader};
pub use kept::{Kept, KeptCell, KeptField, KeptType, PassThrough};
pub use labels::{Labels, MIN_CLASS_ROWS};
pub use matrix::{MatrixReader, labels};
pub use options::{Label, Part, ReadOptions};
#[cfg(feature = "images")]
pub use pixels::PixelReader;
pub use reader::{Reader, RowsOrScores};
pub use row::RowCounts;
pub use rows::TableReader;
pub use sample::RowLimit;
pub use schema::{CLAMP, ColumnKind, Schema, SchemaColumn};
pub use scores::{ScoreReader, scores};
pub use source::Source;
pub use table::{LabelColumn, Table};
pub use text::Notices;
pub(crate) use text::count;
#[cfg(feature = "datasets")]
pub(crate) use text::list;
pub use time::{Cycle, DateOrder, TimeForm};
pub(crate) use to_onnx::OnnxInputs;
