//! Parquet, by the parquet and arrow crates.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;

use super::arrow;
use super::column::ColumnBuilder;
use super::guard::guard;
use super::input::{RowSource, Storage};
use super::kept::KeptType;
use super::pages::{Handle, block_rows};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Result};

/// The parts into which the columns are divided, for each thread: several, because columns take different times.
const PARTS: usize = 2;

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
    parts: Vec<Part>,
    types: Vec<DataType>,
    /// The current batch: the values of each column that is wanted.
    batch: Vec<ArrayRef>,
    length: usize,
    next: usize,
    row: u64,
}

/// Some of the columns of a row group, which are decoded at the same time as the others.
struct Part {
    reader: ParquetRecordBatchReader,
    /// The columns of its next batch, and how many rows they have; none at the end.
    next: Result<Option<(Vec<ArrayRef>, usize)>>,
}

impl Part {
    fn load(&mut self, file: &Path) {
        let reader = &mut self.reader;
        self.next = guarded(file, || {
            let Some(next) = reader.next() else { return Ok(None) };
            let next: RecordBatch = next.map_err(|e| e.to_string())?;
            Ok(Some((next.columns().to_vec(), next.num_rows())))
        });
    }
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
            parts: Vec::new(),
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
        self.wanted = Some(wanted);
        Ok(())
    }

    /// Begins the next row group; `false` if there is none.
    fn next_group(&mut self) -> Result<bool> {
        self.parts.clear();
        let wanted = self.wanted.as_deref().unwrap_or_default();
        let Some(group) = Group::find(&self.handle, &self.metadata, self.group, &self.file) else { return Ok(false) };
        let rows = group.rows(wanted, BATCH)?;
        let columns = wanted.len().div_ceil(PARTS * Pool::shared().threads()).max(1);
        // Without columns there are still rows.
        let none: [&[usize]; 1] = [&[]];
        let groups = wanted.chunks(columns).chain(none.into_iter().filter(|_| wanted.is_empty()));
        for columns in groups {
            self.parts.push(Part { reader: group.reader(columns, rows)?, next: Ok(None) });
        }
        self.group += 1;
        Ok(true)
    }

    /// Reads the next batch; `false` at the end.
    fn load(&mut self) -> Result<bool> {
        (self.next, self.length) = (0, 0);
        while self.length == 0 {
            // The memory of the batch before is free again.
            self.batch.clear();
            let file = &self.file;
            Pool::shared().split(chunks(&mut self.parts, 1), |_, part| part.iter_mut().for_each(|p| p.load(file)));
            let mut rows = None;
            for part in &mut self.parts {
                let next = std::mem::replace(&mut part.next, Ok(None))?;
                let count = next.as_ref().map(|(_, count)| *count);
                if *rows.get_or_insert(count) != count {
                    return guarded(file, || Err("its columns have different numbers of rows".into()));
                }
                self.batch.extend(next.into_iter().flat_map(|(columns, _)| columns));
            }
            match rows.flatten() {
                Some(_) if self.batch.len() != self.wanted.as_ref().map_or(0, Vec::len) => {
                    return guarded(file, || Err("a batch lacks columns".into()));
                }
                Some(rows) => self.length = rows,
                None if self.next_group()? => {}
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Appends rows of the current batch to the columns.
    fn push(&self, rows: Range<usize>, columns: &mut [ColumnBuilder]) -> Result<()> {
        let mut batch = self.wanted.iter().flatten().zip(&self.batch).peekable();
        let mut work: Vec<(&mut ColumnBuilder, &ArrayRef, Result<()>)> = Vec::with_capacity(self.batch.len());
        for (index, column) in columns.iter_mut().enumerate() {
            if let Some((_, values)) = batch.next_if(|(at, _)| **at == index) {
                work.push((column, values, Ok(())));
            }
        }
        let first = self.row + 1;
        Pool::shared().split(chunks(&mut work, 1), |_, work| {
            for (column, values, done) in work {
                *done = arrow::push(values, rows.clone(), column, first);
            }
        });
        work.into_iter().try_for_each(|(_, _, done)| done)
    }
}

/// A row group of a file.
struct Group<'a> {
    handle: &'a Handle,
    metadata: &'a ArrowReaderMetadata,
    index: usize,
    about: &'a RowGroupMetaData,
    file: &'a Path,
}

impl<'a> Group<'a> {
    /// None after the last group.
    fn find(handle: &'a Handle, metadata: &'a ArrowReaderMetadata, index: usize, file: &'a Path) -> Option<Group<'a>> {
        let about = metadata.metadata().row_groups().get(index)?;
        Some(Group { handle, metadata, index, about, file })
    }

    fn mask(&self, columns: &[usize]) -> ProjectionMask {
        ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied())
    }

    /// How many rows of these columns may be read at a time, `most` at most.
    ///
    /// # Errors
    /// If a page is damaged, or would take far more memory than its bytes in the file can hold.
    fn rows(&self, columns: &[usize], most: usize) -> Result<usize> {
        let mask = self.mask(columns);
        block_rows(self.handle, self.about, &|leaf| mask.leaf_included(leaf), most, self.file)
    }

    /// The reader of some columns, with `rows` rows at a time.
    fn reader(&self, columns: &[usize], rows: usize) -> Result<ParquetRecordBatchReader> {
        guarded(self.file, || {
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(self.handle.clone(), self.metadata.clone());
            let builder = builder.with_projection(self.mask(columns)).with_row_groups(vec![self.index]);
            builder.with_batch_size(rows).build().map_err(|e| e.to_string())
        })
    }
}

/// The reader of columns in a row group, with at most `most` rows at a time; none after the last group.
///
/// # Errors
/// If a page is damaged, or would take far more memory than its bytes in the file can hold.
#[cfg(feature = "images")]
pub(crate) fn reader(
    handle: &Handle,
    metadata: &ArrowReaderMetadata,
    wanted: impl IntoIterator<Item = usize>,
    group: usize,
    most: usize,
    file: &Path,
) -> Result<Option<ParquetRecordBatchReader>> {
    let Some(group) = Group::find(handle, metadata, group, file) else { return Ok(None) };
    let columns: Vec<usize> = wanted.into_iter().collect();
    group.reader(&columns, group.rows(&columns, most)?).map(Some)
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
            self.push(self.next..self.next + part, columns)?;
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
