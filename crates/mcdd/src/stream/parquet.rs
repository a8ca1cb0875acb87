//! Predictions as Apache Parquet.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::writer::{Block, Entry, FAILED, Layout, Writer};
use crate::data::{Kept, KeptCell, KeptType};
use crate::error::Result;

/// Rows of a row group.
const GROUP: usize = 1 << 16;

/// Writes Apache Parquet, compressed with Snappy.
pub struct Parquet<'a, W: Write + Send> {
    layout: Layout<'a>,
    writer: ArrowWriter<W>,
    schema: Arc<Schema>,
}

impl<'a, W: Write + Send> Parquet<'a, W> {
    /// Starts the file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(layout: Layout<'a>, to: W) -> Result<Self> {
        let texts = 2 + usize::from(layout.columns.names);
        let (names, errors) = (layout.names(), layout.columns.errors);
        let field = |(i, name): (usize, &String)| {
            let text = i < texts || errors && i + 1 == names.len();
            // The verdict is always there, and the numbers unless an image could not be read.
            let kind = if text { DataType::Utf8 } else { DataType::Float64 };
            Field::new(name, kind, i + 1 < texts || errors && i >= texts)
        };
        let mut fields: Vec<Field> =
            layout.kept.iter().map(|f| Field::new(&f.name, data_type(&f.kind), true)).collect();
        fields.extend(names.iter().enumerate().map(field));
        let schema = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP))
            .build();
        let writer = ArrowWriter::try_new(to, Arc::clone(&schema), Some(properties));
        let writer = writer.map_err(|e| layout.error(as_io(e)))?;
        Ok(Parquet { layout, writer, schema })
    }

    fn block(&mut self, block: Block<'_>) -> Result<(), ParquetError> {
        let (p, classes, columns) = (block.predictions, self.layout.classes, self.layout.columns);
        let entries = block.entries(columns);
        // The value of each row; null for an image that could not be read.
        let numbers = |value: &dyn Fn(usize) -> Option<f64>| -> ArrayRef {
            Arc::new(Float64Array::from_iter(entries.iter().map(|entry| match entry {
                Entry::Row(i) => value(*i),
                Entry::Bad(_) => None,
            })))
        };
        let texts = |text: &dyn Fn(&Entry<'_>) -> Option<String>| -> ArrayRef {
            Arc::new(StringArray::from_iter(entries.iter().map(text)))
        };
        let mut arrays: Vec<ArrayRef> = Vec::new();
        // Only tables pass columns through, and only images can be bad, so there is a cell for each row.
        for (field, column) in self.layout.kept.iter().zip(block.kept) {
            arrays.push(array(&field.kind, column)?);
        }
        if columns.names {
            arrays.push(texts(&|entry| match entry {
                Entry::Row(i) => block.names.get(*i).cloned(),
                Entry::Bad(image) => Some(image.name.clone()),
            }));
        }
        arrays.push(texts(&|entry| match entry {
            Entry::Row(i) => p.class.get(*i).map(|&c| classes[c as usize].clone()),
            Entry::Bad(_) => None,
        }));
        arrays.push(texts(&|entry| match entry {
            Entry::Row(i) => Some(self.layout.verdict(p.confidence[*i]).to_owned()),
            Entry::Bad(_) => Some(FAILED.to_owned()),
        }));
        arrays.push(numbers(&|i| p.confidence.get(i).copied()));
        arrays.push(numbers(&|i| p.p_value.get(i).copied()));
        for (_, values) in [(columns.probs, &p.posterior), (columns.distances, &p.distance)].iter().filter(|c| c.0) {
            for k in 0..classes.len() {
                arrays.push(numbers(&|i| values.get(i * classes.len() + k).copied()));
            }
        }
        if columns.errors {
            arrays.push(texts(&|entry| match entry {
                Entry::Row(_) => None,
                Entry::Bad(image) => Some(image.reason.clone()),
            }));
        }
        self.writer.write(&RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }
}

/// The type of a column that is passed through.
fn data_type(kind: &KeptType) -> DataType {
    match kind {
        KeptType::Text => DataType::Utf8,
        KeptType::Bool => DataType::Boolean,
        KeptType::Int => DataType::Int64,
        KeptType::Uint => DataType::UInt64,
        KeptType::F32 => DataType::Float32,
        KeptType::F64 => DataType::Float64,
        KeptType::Arrow(kind) => kind.clone(),
    }
}

/// The values of a column that is passed through.
fn array(kind: &KeptType, kept: &Kept) -> Result<ArrayRef, ParquetError> {
    let cells = || (0..kept.len()).map(|i| kept.cell(i));
    fn parsed<T: FromStr>(cell: KeptCell<'_>) -> Option<T> {
        cell.text().parse().ok()
    }
    Ok(match kind {
        KeptType::Text => Arc::new(StringArray::from_iter(cells().map(|cell| match cell {
            KeptCell::Null => None,
            KeptCell::Text(text) | KeptCell::Literal(text) => Some(text),
        }))),
        KeptType::Bool => Arc::new(BooleanArray::from_iter(cells().map(parsed::<bool>))),
        KeptType::Int => Arc::new(Int64Array::from_iter(cells().map(parsed))),
        KeptType::Uint => Arc::new(UInt64Array::from_iter(cells().map(parsed))),
        KeptType::F32 => Arc::new(Float32Array::from_iter(cells().map(parsed))),
        KeptType::F64 => Arc::new(Float64Array::from_iter(cells().map(parsed))),
        KeptType::Arrow(_) => match kept.arrays() {
            [one] => Arc::clone(one),
            pieces => {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                arrow_select::concat::concat(&pieces)?
            }
        },
    })
}

impl<W: Write + Send> Writer for Parquet<'_, W> {
    fn write(&mut self, block: Block<'_>) -> Result<()> {
        self.block(block).map_err(|e| self.layout.error(as_io(e)))
    }

    fn finish(&mut self) -> Result<()> {
        self.writer.finish().map_err(|e| self.layout.error(as_io(e)))?;
        self.writer.inner_mut().flush().map_err(|e| self.layout.error(e))
    }
}

/// The error of the destination, where that is the cause.
fn as_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        other => io::Error::other(other),
    }
}
