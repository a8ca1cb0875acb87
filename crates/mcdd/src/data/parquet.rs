//! Parquet, by the parquet and arrow crates.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use super::arrow;
use super::column::ColumnBuilder;
use super::guard::guard;
use super::input::{RowSource, Storage};
use super::kept::KeptType;
use super::pages::{Handle, block_rows};
use crate::error::{Error, Result};

/// The rows that are read at a time, at most.
const BATCH: usize = 4096;

/// Runs code of the parquet crate on the file.
pub(crate) fn guarded<T>(file: &Path, run: impl FnOnce() -> Result<T, String>) -> Result<T> {
    guard(run).unwrap_or_else(|| Err("its structure is inconsistent".into())).map_err(|message| {
        Error::data(format!("the Parquet file is damaged or of an unsupported kind: {message}"))
            .at_file(file)
            .hint("write the file again, uncompressed or with snappy, gzip, zstd or lz4")
    })
}

/// Rows of a Parquet file.
pub(crate) struct Parquet {
    file: Arc<Path>,
    handle: Handle,
    metadata: ArrowReaderMetadata,
    /// The columns that are wanted, once it is known which.
    wanted: Option<Vec<usize>>,
    /// The next row group, and the rows of the one before it.
    group: usize,
    reader: Option<ParquetRecordBatchReader>,
    types: Vec<DataType>,
    /// The current batch: for each column that is wanted its position and values.
    batch: Vec<(usize, ArrayRef)>,
    length: usize,
    next: usize,
    row: u64,
}

impl Parquet {
    /// Reads the metadata; returns the column names too.
    pub(super) fn open(file: &Arc<Path>, storage: &Storage) -> Result<(Vec<String>, Parquet)> {
        let handle = match storage {
            Storage::Bytes(bytes) => Handle::Bytes(Bytes::from_owner(Arc::clone(bytes))),
            Storage::File | Storage::Stream => Handle::open(file)?,
        };
        let options = ArrowReaderOptions::new();
        let metadata = guarded(file, || ArrowReaderMetadata::load(&handle, options).map_err(|e| e.to_string()))?;
        let schema: SchemaRef = Arc::clone(metadata.schema());
        let parquet = Parquet {
            file: Arc::clone(file),
            handle,
            metadata,
            wanted: None,
            group: 0,
            reader: None,
            types: schema.fields().iter().map(|f| f.data_type().clone()).collect(),
            batch: Vec::new(),
            length: 0,
            next: 0,
            row: 0,
        };
        Ok((arrow::names(&schema).map_err(|e| e.at_file(file))?, parquet))
    }

    /// Finds the columns that are wanted, once it is known which.
    fn start(&mut self, columns: &[ColumnBuilder]) -> Result<()> {
        if self.wanted.is_some() {
            return Ok(());
        }
        let wanted = arrow::wanted(&self.types, columns).map_err(|e| e.at_file(&self.file))?;
        self.batch = wanted.iter().map(|&i| (i, arrow_array::new_empty_array(&DataType::Null))).collect();
        self.wanted = Some(wanted);
        Ok(())
    }

    /// Begins the next row group; `false` if there is none.
    fn next_group(&mut self) -> Result<bool> {
        let wanted = self.wanted.iter().flatten().copied();
        self.reader = reader(&self.handle, &self.metadata, wanted, self.group, BATCH, &self.file)?;
        self.group += 1;
        Ok(self.reader.is_some())
    }

    /// Reads the next batch; `false` at the end.
    fn load(&mut self) -> Result<bool> {
        (self.next, self.length) = (0, 0);
        while self.length == 0 {
            let (reader, batch) = (&mut self.reader, &mut self.batch);
            // The memory of the batch before is free again.
            batch.iter_mut().for_each(|(_, values)| *values = arrow_array::new_empty_array(&DataType::Null));
            let rows = guarded(&self.file, || {
                let Some(next) = reader.as_mut().and_then(Iterator::next) else {
                    return Ok(None);
                };
                let next: RecordBatch = next.map_err(|e| e.to_string())?;
                if next.num_columns() != batch.len() {
                    return Err("a batch lacks columns".into());
                }
                for ((_, values), column) in batch.iter_mut().zip(next.columns()) {
                    *values = Arc::clone(column);
                }
                Ok(Some(next.num_rows()))
            })?;
            match rows {
                Some(rows) => self.length = rows,
                None if self.next_group()? => {}
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The reader of columns in a row group, with at most `most` rows at a time; none after the last group.
///
/// # Errors
/// If a page is damaged, or would take far more memory than its bytes in the file can hold.
pub(crate) fn reader(
    handle: &Handle,
    metadata: &ArrowReaderMetadata,
    wanted: impl IntoIterator<Item = usize>,
    group: usize,
    most: usize,
    file: &Path,
) -> Result<Option<ParquetRecordBatchReader>> {
    let groups = metadata.metadata().row_groups();
    let Some(about) = groups.get(group) else { return Ok(None) };
    let mask = ProjectionMask::roots(metadata.parquet_schema(), wanted);
    let rows = block_rows(handle, about, &|leaf| mask.leaf_included(leaf), most, file)?;
    guarded(file, || {
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(handle.clone(), metadata.clone());
        let builder = builder.with_projection(mask).with_row_groups(vec![group]).with_batch_size(rows);
        builder.build().map(Some).map_err(|e| e.to_string())
    })
}

impl RowSource for Parquet {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        self.start(columns)?;
        let mut rows = 0;
        while rows < max {
            if self.next == self.length && !self.load()? {
                break;
            }
            let part = (max - rows).min(self.length - self.next);
            for (index, values) in &self.batch {
                arrow::push(values, self.next..self.next + part, &mut columns[*index], self.row + 1)?;
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
}
