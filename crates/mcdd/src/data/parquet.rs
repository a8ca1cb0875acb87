//! Parquet, by the parquet and arrow crates.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::cell::{Builder, Want, positional_name, quoted};
use super::guard::guard;
use super::input::Rows;
use crate::error::{Error, Result};

const BATCH: usize = 4096;

/// Runs code of the parquet crate on the file.
pub(crate) fn guarded<T>(file: &Path, run: impl FnOnce() -> Result<T, String>) -> Result<T> {
    guard(run).unwrap_or_else(|| Err("its structure is inconsistent".into())).map_err(|message| {
        Error::data(format!("the Parquet file is damaged or of a kind not known here: {message}"))
            .at_file(file)
            .hint("make the file again, uncompressed or with snappy, gzip, zstd or lz4")
    })
}

/// Rows of a Parquet file.
pub(crate) struct Parquet {
    file: Arc<Path>,
    builder: Option<ParquetRecordBatchReaderBuilder<File>>,
    reader: Option<ParquetRecordBatchReader>,
    types: Vec<DataType>,
    /// The current batch: for each column that is wanted its position and values, all of them `f64` or text.
    batch: Vec<(usize, ArrayRef)>,
    length: usize,
    next: usize,
    row: u64,
}

impl Parquet {
    /// Reads the metadata; returns the column names too.
    pub fn open(file: &Arc<Path>) -> Result<(Vec<String>, Parquet)> {
        let handle = File::open(file).map_err(|e| Error::io(e, file))?;
        let builder = guarded(file, || ParquetRecordBatchReaderBuilder::try_new(handle).map_err(|e| e.to_string()))?;
        let schema = builder.schema();
        let mut seen = HashSet::new();
        let mut names = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            let name = match field.name().trim() {
                "" => positional_name(index),
                name => name.to_owned(),
            };
            if !seen.insert(name.clone()) {
                return Err(Error::data(format!("two columns have the name {}", quoted(&name)))
                    .at_file(file)
                    .at_column(name)
                    .hint("give each column a name of its own"));
            }
            names.push(name);
        }
        let types = schema.fields().iter().map(|f| f.data_type().clone()).collect();
        let parquet = Parquet {
            file: Arc::clone(file),
            builder: Some(builder),
            reader: None,
            types,
            batch: Vec::new(),
            length: 0,
            next: 0,
            row: 0,
        };
        Ok((names, parquet))
    }

    /// Makes the reader of the columns that are wanted, once it is known which.
    fn start(&mut self, columns: &[Builder]) -> Result<()> {
        let Some(builder) = self.builder.take() else {
            return Ok(());
        };
        let wanted: Vec<usize> =
            (0..self.types.len()).filter(|&i| columns.get(i).is_some_and(|c| c.want != Want::Skip)).collect();
        for &index in &wanted {
            if target(&self.types[index], false).is_none() {
                let name = columns[index].shown().to_owned();
                return Err(Error::data(format!("values of the type {} cannot be used", self.types[index]))
                    .at_file(&self.file)
                    .at_column(&name)
                    .hint(format!("make it a number or a text, or leave it out by --drop \"{name}\"")));
            }
        }
        let reader = guarded(&self.file, || {
            let mask = ProjectionMask::roots(builder.parquet_schema(), wanted.iter().copied());
            builder.with_projection(mask).with_batch_size(BATCH).build().map_err(|e| e.to_string())
        })?;
        self.reader = Some(reader);
        self.batch = wanted.into_iter().map(|i| (i, arrow_array::new_empty_array(&DataType::Null))).collect();
        Ok(())
    }

    /// Reads the next batch; `false` at the end.
    fn load(&mut self, columns: &[Builder]) -> Result<bool> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        let (batch, types) = (&mut self.batch, &self.types);
        let length = guarded(&self.file, || {
            loop {
                let Some(next) = reader.next() else {
                    return Ok(0);
                };
                let next: RecordBatch = next.map_err(|e| e.to_string())?;
                if next.num_rows() == 0 {
                    continue;
                }
                if next.num_columns() != batch.len() {
                    return Err("a batch lacks columns".into());
                }
                for (place, (index, values)) in batch.iter_mut().enumerate() {
                    let text = columns[*index].wants_text();
                    let to = target(&types[*index], text).unwrap_or(DataType::Utf8);
                    *values = arrow_cast::cast(next.column(place), &to).map_err(|e| e.to_string())?;
                }
                return Ok(next.num_rows());
            }
        })?;
        self.length = length;
        self.next = 0;
        Ok(length > 0)
    }
}

/// What a column is cast to, for a builder that wants text or not.
fn target(kind: &DataType, text: bool) -> Option<DataType> {
    use DataType::*;
    match kind {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64
        | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => Some(if text { Utf8 } else { Float64 }),
        Utf8 | LargeUtf8 | Utf8View | Null => Some(Utf8),
        Dictionary(_, values) => target(values, text),
        _ => None,
    }
}

impl Rows for Parquet {
    fn fill(&mut self, max: usize, columns: &mut Vec<Builder>) -> Result<usize> {
        self.start(columns)?;
        let mut rows = 0;
        while rows < max {
            if self.next == self.length && !self.load(columns)? {
                break;
            }
            let part = (max - rows).min(self.length - self.next);
            for (index, values) in &self.batch {
                let column = &mut columns[*index];
                let numbers = values.as_primitive_opt::<Float64Type>();
                let texts = values.as_string_opt::<i32>();
                for at in self.next..self.next + part {
                    let row = self.row + (at - self.next) as u64 + 1;
                    if values.is_null(at) {
                        column.push(b"", row)?;
                    } else if let Some(numbers) = numbers {
                        column.push_number(numbers.value(at), row)?;
                    } else if let Some(texts) = texts {
                        column.push(texts.value(at).as_bytes(), row)?;
                    }
                }
            }
            self.next += part;
            self.row += part as u64;
            rows += part;
        }
        Ok(rows)
    }
}
