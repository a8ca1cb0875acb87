//! Arrow record batches as tables.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};

use super::arrow;
use super::column::ColumnBuilder;
use super::input::RowSource;
use super::kept::KeptType;
use super::options::ReadOptions;
use super::reader::Reader;
use super::schema::Schema;
use super::source::Source;
use super::table::Table;
use crate::error::{Error, Result};

/// Rows of record batches.
struct Batches {
    batches: std::vec::IntoIter<RecordBatch>,
    types: Vec<DataType>,
    /// The positions of the columns that are read, once they are known.
    wanted: Option<Vec<usize>>,
    current: Option<RecordBatch>,
    next: usize,
    row: u64,
}

impl RowSource for Batches {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        if self.wanted.is_none() {
            self.wanted = Some(arrow::wanted(&self.types, columns)?);
        }
        let mut rows = 0;
        while rows < max {
            let Some(batch) = self.current.as_ref().filter(|batch| self.next < batch.num_rows()) else {
                self.current = self.batches.next();
                self.next = 0;
                if self.current.is_none() {
                    break;
                }
                continue;
            };
            let part = (max - rows).min(batch.num_rows() - self.next);
            for &index in self.wanted.iter().flatten() {
                let range = self.next..self.next + part;
                arrow::push(batch.column(index), range, &mut columns[index], self.row + 1)?;
            }
            self.next += part;
            self.row += part as u64;
            rows += part;
        }
        Ok(rows)
    }

    fn kept_type(&self, column: usize) -> KeptType {
        self.types.get(column).map_or(KeptType::Text, |kind| KeptType::Arrow(kind.clone()))
    }

    fn remaining(&self) -> Option<usize> {
        let current = self.current.as_ref().map_or(0, |batch| batch.num_rows() - self.next);
        Some(current + self.batches.as_slice().iter().map(RecordBatch::num_rows).sum::<usize>())
    }
}

fn source(batches: &[RecordBatch]) -> Result<Source> {
    let Some(first) = batches.first() else {
        return Err(Error::data("there are no record batches").hint("give at least one"));
    };
    let schema: SchemaRef = first.schema();
    for batch in batches {
        let same = batch
            .schema()
            .fields()
            .iter()
            .map(|f| (f.name(), f.data_type()))
            .eq(schema.fields().iter().map(|f| (f.name(), f.data_type())));
        if !same {
            return Err(Error::data("the record batches have different columns")
                .hint("give batches with the same names and types, in the same order"));
        }
    }
    let all: Vec<RecordBatch> = batches.to_vec();
    let rows = Batches {
        batches: all.into_iter(),
        types: schema.fields().iter().map(|f| f.data_type().clone()).collect(),
        wanted: None,
        current: None,
        next: 0,
        row: 0,
    };
    Source::from_rows(arrow::names(&schema)?, Box::new(rows))
}

impl Table {
    /// A table from Arrow record batches of one schema. Columns, labels and missing cells are found as in a Parquet
    /// file: numbers, booleans and decimals are numbers, dates and times are read as times, texts are categories unless
    /// all of them are numbers or dates, nulls are missing cells; dictionaries count as their values. Rows in errors count from 1 over all batches.
    ///
    /// # Errors
    /// If the batches differ in their columns, a type cannot be used, or no labels are found, unless
    /// [`Label::None`](super::Label::None) is given.
    pub fn from_record_batches(batches: &[RecordBatch], options: &ReadOptions) -> Result<Table> {
        Table::from_source(source(batches)?, options)
    }
}

impl Schema {
    /// A reader of Arrow record batches for prediction.
    ///
    /// # Errors
    /// If the batches lack a column of the model.
    pub fn reader_from_record_batches(&self, batches: &[RecordBatch], options: &ReadOptions) -> Result<Reader> {
        self.reader_of(options, |_| source(batches))
    }
}
