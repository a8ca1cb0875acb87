//! The pages of a Parquet file, by their headers: what they take in memory, and how many rows may be read at a time.
//!
//! The parquet crate makes memory for what a header announces, and a dictionary or a prefix of the cell before lets a few
//! bytes stand for many. So that memory is bounded by bytes and not by rows, the headers of a row group are read first.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::PageReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::guard::guard;
use super::thrift::{PageHeader, PageKind};
use crate::error::{Error, Result};

/// What the cells of the rows that are read at a time may take, unless one row takes more.
const BLOCK: u64 = 64 << 20;

/// What a page may take, whatever its length in the file is.
const FREE_PAGE: u64 = 32 << 20;

/// What a page may take at most.
const MAX_PAGE: u64 = 256 << 20;

/// How many times its length in the file a larger page may take.
pub(super) const MAX_RATIO: u64 = 32;

/// What the pages of all columns that are open at the same time may take, whatever the length of the file is.
const FREE_PAGES: u64 = 512 << 20;

/// What the values of a column of lists may take in a row group: all of them may be in one row.
const MAX_LISTS: u64 = 256 << 20;

/// A compressed page of this length or shorter cannot become large, whatever its header announces.
const SHORT: usize = 64 << 10;

/// The bytes of a Parquet file. Clones may be read at the same time.
#[derive(Clone)]
pub(crate) enum Handle {
    File { file: Arc<Mutex<File>>, length: u64 },
    Bytes(Bytes),
}

impl Length for Handle {
    fn len(&self) -> u64 {
        match self {
            Handle::File { length, .. } => *length,
            Handle::Bytes(bytes) => Length::len(bytes),
        }
    }
}

impl ChunkReader for Handle {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(match self {
            Handle::File { file, .. } => Box::new(BufReader::new(At { file: Arc::clone(file), at: start })),
            Handle::Bytes(bytes) => Box::new(bytes.get_read(start)?),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            Handle::File { file, length: end } => {
                if start.checked_add(length as u64).is_none_or(|to| to > *end) {
                    return Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond its end")));
                }
                let mut bytes = vec![0; length];
                At { file: Arc::clone(file), at: start }.read_exact(&mut bytes)?;
                Ok(bytes.into())
            }
            Handle::Bytes(bytes) => ChunkReader::get_bytes(bytes, start, length),
        }
    }
}

impl Handle {
    pub(crate) fn open(path: &Path) -> Result<Handle> {
        let opened = File::open(path).and_then(|file| file.metadata().map(|about| (file, about.len())));
        let (file, length) = opened.map_err(|e| Error::io(e, path))?;
        Ok(Handle::File { file: Arc::new(Mutex::new(file)), length })
    }
}

/// A file from some byte on. Its place is its own: several may read one file at the same time.
struct At {
    file: Arc<Mutex<File>>,
    at: u64,
}

impl Read for At {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.at))?;
        let count = file.read(to)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// What the pages of a column take.
#[derive(Default)]
struct Need {
    /// The largest page, and the dictionary.
    page: u64,
    dictionary: u64,
    /// A row, on average over the pages.
    row: u64,
    /// The longest cell that may occur many times.
    repeated: u64,
}

/// How many rows of a row group may be read at a time, `most` at most, if the columns are those of `leaf`.
///
/// # Errors
/// If a page is damaged, or would take far more memory than its bytes in the file can hold.
pub(crate) fn block_rows(
    input: &Handle,
    group: &RowGroupMetaData,
    leaf: &dyn Fn(usize) -> bool,
    most: usize,
    file: &Path,
) -> Result<usize> {
    let find = || -> Result<usize> {
        let (mut row, mut pages) = (0u64, 0u64);
        for (index, column) in group.columns().iter().enumerate().filter(|(index, _)| leaf(*index)) {
            let need = need(input, group, index).map_err(|e| e.at_column(column.column_path().string()))?;
            row = row.saturating_add(need.row.max(need.repeated));
            pages = pages.saturating_add(need.page).saturating_add(need.dictionary);
        }
        if pages > FREE_PAGES.max(input.len().saturating_mul(MAX_RATIO / 2)) {
            return Err(too_large(format!("the pages of all columns would take {} MiB at a time", pages >> 20)));
        }
        Ok(usize::try_from(BLOCK / row.max(1)).unwrap_or(most).clamp(1, most))
    };
    guard(find).unwrap_or_else(|| Err(damaged("its structure is inconsistent"))).map_err(|e| e.at_file(file))
}

fn damaged(message: impl std::fmt::Display) -> Error {
    Error::data(format!("the Parquet file is damaged or of an unsupported kind: {message}"))
        .hint("write the file again, uncompressed or with snappy, gzip, zstd or lz4")
}

fn too_large(message: String) -> Error {
    Error::data(message).hint("write the file again with smaller pages, and do not use it if it is not from you")
}

fn need(input: &Handle, group: &RowGroupMetaData, index: usize) -> Result<Need> {
    let column = group.column(index);
    let description = column.column_descr();
    let width = match description.physical_type() {
        Type::BYTE_ARRAY => 0,
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(description.type_length()).unwrap_or(0),
        Type::INT96 => 12,
        _ => 8,
    };
    if width > FREE_PAGE {
        return Err(too_large(format!("its cells take {width} bytes each")));
    }
    let texts = description.physical_type() == Type::BYTE_ARRAY;
    let mut need = Need { row: width + 4, ..Need::default() };
    let (mut values, mut by_dictionary) = (0u64, false);
    pages(input, column, |page, at| {
        let size = page.unpacked;
        if size > MAX_PAGE || size > FREE_PAGE && size > page.packed.saturating_mul(MAX_RATIO) {
            let shown = size >> 20;
            return Err(too_large(format!("a page of {} bytes would take {shown} MiB in memory", page.packed)));
        }
        if page.packed > SHORT as u64 {
            let data = input.get_bytes(at, usize::try_from(page.packed).map_err(damaged)?).map_err(damaged)?;
            count(column.compression(), &data, page, size)?;
        }
        let PageKind::Data { values: rows, encoding, .. } = page.kind else {
            need.dictionary = need.dictionary.max(size);
            return Ok(());
        };
        values += rows;
        need.page = need.page.max(size);
        if texts {
            need.row = need.row.max(size.div_ceil(rows.max(1)));
        }
        match encoding {
            Some(Encoding::RLE_DICTIONARY) => by_dictionary = true,
            #[allow(deprecated)] // files have it
            Some(Encoding::PLAIN_DICTIONARY) => by_dictionary = true,
            // Each cell may repeat all of the cell before it.
            Some(Encoding::DELTA_BYTE_ARRAY) => need.repeated = need.repeated.max(size),
            _ => {}
        }
        Ok(())
    })?;
    if texts && by_dictionary {
        let longest = longest_entry(input, group, index).map_err(damaged)?;
        need.repeated = need.repeated.max(longest);
    }
    if description.max_rep_level() > 0 {
        let all = values.saturating_mul(need.row.max(need.repeated).max(8));
        if all > MAX_LISTS {
            return Err(Error::data(format!("its lists would take {} MiB in memory", all >> 20))
                .hint("leave the column out of `keep`, or write the file with smaller row groups"));
        }
    }
    Ok(need)
}

/// Calls `each` with the header of every page of a column, and with the place of its data.
fn pages(
    input: &Handle,
    column: &ColumnChunkMetaData,
    mut each: impl FnMut(PageHeader, u64) -> Result<()>,
) -> Result<()> {
    let (start, length) = column.byte_range();
    let end = start.checked_add(length).filter(|end| *end <= input.len());
    let end = end.ok_or_else(|| damaged("a column lies outside of the file"))?;
    let mut at = start;
    while at < end {
        let read = input.get_read(at).map_err(damaged)?;
        let (page, header) = PageHeader::read(read.take(end - at)).map_err(damaged)?;
        let data = at + header;
        at = data.checked_add(page.packed).filter(|next| *next <= end).ok_or_else(|| damaged("a page is cut short"))?;
        each(page, data)?;
    }
    Ok(())
}

/// Checks that a page does not become longer than its header announces, where the decoder does not look at it.
fn count(compression: Compression, data: &[u8], page: PageHeader, announced: u64) -> Result<()> {
    let levels = match page.kind {
        PageKind::Data { levels, .. } => usize::try_from(levels).unwrap_or(usize::MAX),
        _ => 0,
    };
    let data = data.get(levels..).unwrap_or_default();
    let decoder: Box<dyn Read + '_> = match compression {
        Compression::GZIP(_) => Box::new(flate2::read::MultiGzDecoder::new(data)),
        // Of several forms of LZ4 it is the one whose length is not limited.
        Compression::LZ4 => Box::new(lz4_flex::frame::FrameDecoder::new(data)),
        _ => return Ok(()),
    };
    // What is no such data is an error of the decoder, or not compressed.
    let found = std::io::copy(&mut decoder.take(announced + 1), &mut std::io::sink()).unwrap_or(0);
    if found > announced { Err(damaged("a page is longer than its header announces")) } else { Ok(()) }
}

/// The length of the longest text in the dictionary of a column.
fn longest_entry(input: &Handle, group: &RowGroupMetaData, index: usize) -> Result<u64, String> {
    let text = |e: parquet::errors::ParquetError| e.to_string();
    let rows = usize::try_from(group.num_rows()).map_err(|e| e.to_string())?;
    let mut reader =
        SerializedPageReader::new(Arc::new(input.clone()), group.column(index), rows, None).map_err(text)?;
    let Some(page) = reader.get_next_page().map_err(text)?.filter(|page| page.is_dictionary_page()) else {
        return Ok(0);
    };
    let (mut rest, mut longest) = (page.buffer().as_ref(), 0);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(u64::from(length));
        rest = after.get(length as usize..).ok_or("a dictionary is cut short")?;
    }
    Ok(longest)
}
