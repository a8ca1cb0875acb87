//! Predictions as Apache Parquet.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::writer::{Layout, Writer};
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
        let schema = Arc::new(Schema::new(layout.names().iter().enumerate().map(field).collect::<Vec<_>>()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP))
            .build();
        let writer = ArrowWriter::try_new(to, Arc::clone(&schema), Some(properties));
        Ok(Parquet { layout, writer: writer.map_err(|e| layout.error(as_io(e)))?, schema })
    }

    fn block(&mut self, p: &Predictions, names: &[String]) -> Result<(), ParquetError> {
        let rows = 0..p.rows();
        let classes = self.layout.classes;
        let label = rows.clone().map(|i| p.class.get(i).map(|&c| classes[c as usize].as_str()));
        let verdicts = rows.clone().map(|i| self.layout.verdict(p.confidence[i]));
        let mut arrays: Vec<ArrayRef> = Vec::new();
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

impl<W: Write + Send> Writer for Parquet<'_, W> {
    fn write(&mut self, predictions: &Predictions, names: &[String]) -> Result<()> {
        self.block(predictions, names).map_err(|e| self.layout.error(as_io(e)))
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
