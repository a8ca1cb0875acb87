//! Parquet, by the parquet and arrow crates.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::reader::ChunkReader;

use super::arrow;
use super::column::ColumnBuilder;
use super::guard::guard;
use super::input::{RowSource, Storage};
use super::kept::KeptType;
use crate::error::{Error, Result};

const BATCH: usize = 4096;

/// Runs code of the parquet crate on the file.
pub(crate) fn guarded<T>(file: &Path, run: impl FnOnce() -> Result<T, String>) -> Result<T> {
    guard(run).unwrap_or_else(|| Err("its structure is inconsistent".into())).map_err(|message| {
        Error::data(format!("the Parquet file is damaged or of an unsupported kind: {message}"))
            .at_file(file)
            .hint("write the file again, uncompressed or with snappy, gzip, zstd or lz4")
    })
}

/// The bytes of a file.
enum Handle {
    File(File),
    Bytes(Bytes),
}

/// Rows of a Parquet file.
pub(crate) struct Parquet {
    file: Arc<Path>,
    /// What is needed to start reading, once it is known which columns are wanted.
    unread: Option<(Handle, ArrowReaderMetadata)>,
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
            Storage::File | Storage::Stream => Handle::File(File::open(file).map_err(|e| Error::io(e, file))?),
        };
        let options = ArrowReaderOptions::new;
        let metadata = guarded(file, || {
            let loaded = match &handle {
                Handle::File(file) => ArrowReaderMetadata::load(file, options()),
                Handle::Bytes(bytes) => ArrowReaderMetadata::load(bytes, options()),
            };
            loaded.map_err(|e| e.to_string())
        })?;
        let schema: SchemaRef = Arc::clone(metadata.schema());
        let parquet = Parquet {
            file: Arc::clone(file),
            unread: Some((handle, metadata)),
            reader: None,
            types: schema.fields().iter().map(|f| f.data_type().clone()).collect(),
            batch: Vec::new(),
            length: 0,
            next: 0,
            row: 0,
        };
        Ok((arrow::names(&schema).map_err(|e| e.at_file(file))?, parquet))
    }

    /// Makes the reader of the columns that are wanted, once it is known which.
    fn start(&mut self, columns: &[ColumnBuilder]) -> Result<()> {
        let Some((handle, metadata)) = self.unread.take() else {
            return Ok(());
        };
        let wanted = arrow::wanted(&self.types, columns).map_err(|e| e.at_file(&self.file))?;
        let reader = guarded(&self.file, || match handle {
            Handle::File(file) => build(file, metadata, &wanted),
            Handle::Bytes(bytes) => build(bytes, metadata, &wanted),
        })?;
        self.reader = Some(reader);
        self.batch = wanted.into_iter().map(|i| (i, arrow_array::new_empty_array(&DataType::Null))).collect();
        Ok(())
    }

    /// Reads the next batch; `false` at the end.
    fn load(&mut self) -> Result<bool> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        let batch = &mut self.batch;
        self.length = guarded(&self.file, || {
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
                for ((_, values), column) in batch.iter_mut().zip(next.columns()) {
                    *values = Arc::clone(column);
                }
                return Ok(next.num_rows());
            }
        })?;
        self.next = 0;
        Ok(self.length > 0)
    }
}

fn build<T: ChunkReader + 'static>(
    input: T,
    metadata: ArrowReaderMetadata,
    wanted: &[usize],
) -> Result<ParquetRecordBatchReader, String> {
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(input, metadata);
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted.iter().copied());
    builder.with_projection(mask).with_batch_size(BATCH).build().map_err(|e| e.to_string())
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
