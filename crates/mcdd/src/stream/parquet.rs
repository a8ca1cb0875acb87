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

use super::writer::{Layout, Writer};
use crate::data::{Kept, KeptCell, KeptType};
use crate::error::Result;
use crate::model::Predictions;

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
        let kind = |i: usize| if i < texts { DataType::Utf8 } else { DataType::Float64 };
        let field = |(i, name): (usize, &String)| Field::new(name, kind(i), i + 1 < texts);
        let mut fields: Vec<Field> =
            layout.kept.iter().map(|f| Field::new(&f.name, data_type(&f.kind), true)).collect();
        fields.extend(layout.names().iter().enumerate().map(field));
        let schema = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP))
            .build();
        let writer = ArrowWriter::try_new(to, Arc::clone(&schema), Some(properties));
        let writer = writer.map_err(|e| layout.error(as_io(e)))?;
        Ok(Parquet { layout, writer, schema })
    }

    fn block(&mut self, p: &Predictions, names: &[String], kept: &[&Kept]) -> Result<(), ParquetError> {
        let rows = 0..p.rows();
        let classes = self.layout.classes;
        let label = rows.clone().map(|i| p.class.get(i).map(|&c| classes[c as usize].as_str()));
        let verdicts = rows.clone().map(|i| self.layout.verdict(p.confidence[i]));
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (field, column) in self.layout.kept.iter().zip(kept) {
            arrays.push(array(&field.kind, column)?);
        }
        if self.layout.columns.names {
            arrays.push(Arc::new(StringArray::from_iter(rows.clone().map(|i| names.get(i)))));
        }
        arrays.push(Arc::new(StringArray::from_iter(label)));
        arrays.push(Arc::new(StringArray::from_iter_values(verdicts)));
        arrays.push(Arc::new(Float64Array::from(p.confidence.clone())));
        arrays.push(Arc::new(Float64Array::from(p.p_value.clone())));
        let columns = self.layout.columns;
        for (_, values) in [(columns.probs, &p.posterior), (columns.distances, &p.distance)].iter().filter(|c| c.0) {
            for k in 0..classes.len() {
                let column = values.iter().skip(k).step_by(classes.len());
                arrays.push(Arc::new(Float64Array::from_iter_values(column.copied())));
            }
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
    fn write(&mut self, predictions: &Predictions, names: &[String], kept: &[&Kept]) -> Result<()> {
        self.block(predictions, names, kept).map_err(|e| self.layout.error(as_io(e)))
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
