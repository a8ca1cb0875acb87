//! Arrow's IPC format: streams, and files (Feather version 2), which are a stream between two marks.
//!
//! Messages are read one after the other, so that a file needs no seeking and memory holds one record batch. The arrow
//! crates decode them; lengths are checked here before anything is allocated.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{CompressionType, Message, MessageHeader, convert::fb_to_schema, root_as_message};
use arrow_schema::{DataType, SchemaRef};

use super::arrow;
use super::column::ColumnBuilder;
use super::guard::guard;
use super::input::{Input, RowSource, read_error};
use super::pages::MAX_RATIO;
use crate::error::{Error, Result};

/// The mark of a file, at its start and its end.
const MAGIC: &[u8] = b"ARROW1";

/// How many zeros may follow the mark.
const MAX_PADDING: usize = 64;

/// The longest description of a message.
const MAX_HEADER: usize = 64 << 20;

/// The largest record batch, also when it is decompressed.
const MAX_BODY: u64 = 4 << 30;

/// What a record batch may take when it is decompressed, whatever its length in the file is.
const FREE_BODY: u64 = 256 << 20;

/// The LZ4 format makes one byte to 255 at most. A buffer that could become larger than this is counted first.
const LZ4_UNCHECKED: usize = (64 << 20) / 255;

/// A message: what it is, and its data.
type Parts = (Vec<u8>, Buffer);

/// Rows of a stream or file.
pub(crate) struct Ipc {
    file: Arc<Path>,
    input: Box<dyn Read + Send>,
    /// Whether it is a file, which has a footer.
    footer: bool,
    ended: bool,
    schema: SchemaRef,
    types: Vec<DataType>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// The positions of the columns that are read, once they are known.
    wanted: Option<Vec<usize>>,
    batch: Option<RecordBatch>,
    next: usize,
    row: u64,
}

fn bad(file: &Path, message: impl std::fmt::Display) -> Error {
    Error::data(format!("the Arrow data is damaged or of an unsupported kind: {message}"))
        .at_file(file)
        .hint("write it again, uncompressed or with lz4 or zstd, and close the writer")
}

/// Runs code of the arrow crates on the file.
fn guarded<T>(file: &Path, run: impl FnOnce() -> Result<T, String>) -> Result<T> {
    guard(run).unwrap_or_else(|| Err("its structure is inconsistent".into())).map_err(|message| bad(file, message))
}

impl Ipc {
    /// Reads the schema; returns the column names too.
    pub(super) fn open(input: Input) -> Result<(Vec<String>, Ipc)> {
        let file = Arc::clone(&input.file);
        let footer = input.prefix.starts_with(MAGIC);
        // After the mark of a file there are zeros up to the first message.
        let padding = || input.prefix.iter().skip(MAGIC.len()).take(MAX_PADDING).take_while(|b| **b == 0).count();
        let skip = if footer { MAGIC.len() + padding() } else { 0 };
        let mut input = input.into_read(skip);
        let Some((header, _)) = next_message(&mut input, &file)? else {
            return Err(bad(&file, "it has no schema"));
        };
        let schema = guarded(&file, || {
            let message = message(&header)?;
            let schema = message.header_as_schema().ok_or("it does not begin with a schema")?;
            Ok(Arc::new(fb_to_schema(schema)))
        })?;
        let names = arrow::names(&schema).map_err(|e| e.at_file(&file))?;
        let rows = Ipc {
            file,
            input,
            footer,
            ended: false,
            types: schema.fields().iter().map(|f| f.data_type().clone()).collect(),
            schema,
            dictionaries: HashMap::new(),
            wanted: None,
            batch: None,
            next: 0,
            row: 0,
        };
        Ok((names, rows))
    }

    /// Reads up to the next record batch with rows; `false` at the end.
    fn load(&mut self) -> Result<bool> {
        self.batch = None;
        self.next = 0;
        while !self.ended {
            let Some((header, body)) = next_message(&mut self.input, &self.file)? else {
                self.ended = true;
                return self.at_end().map(|()| false);
            };
            let Ipc { file, schema, dictionaries, wanted, .. } = self;
            // Without a projection where all columns are wanted: it takes the square of their number.
            let wanted = wanted.as_deref().filter(|wanted| wanted.len() < schema.fields().len());
            let batch = guarded(file, || decode(&header, &body, schema, dictionaries, wanted))?;
            if let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) {
                self.batch = Some(batch);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks what follows the last message: nothing in a stream, and in a file its directory and its mark.
    fn at_end(&mut self) -> Result<()> {
        let mut rest = Vec::new();
        let most = MAX_HEADER as u64 + 1;
        self.input.by_ref().take(most).read_to_end(&mut rest).map_err(|e| read_error(e, &self.file))?;
        if !self.footer {
            return if rest.is_empty() { Ok(()) } else { Err(bad(&self.file, "there is more data after its end")) };
        }
        let length = rest.strip_suffix(MAGIC).and_then(|rest| rest.split_last_chunk::<4>());
        match length {
            Some((footer, length)) if footer.len() == u32::from_le_bytes(*length) as usize => Ok(()),
            _ => Err(bad(&self.file, "its end is missing")),
        }
    }
}

/// The next message; `None` at the mark of the end.
fn next_message(input: &mut dyn Read, file: &Path) -> Result<Option<Parts>> {
    let mut start = [0; 8];
    take(input, &mut start, file)?;
    let [a, b, c, d, length @ ..] = start;
    if [a, b, c, d] != [0xff; 4] {
        return Err(bad(file, "a message does not begin as one"));
    }
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > MAX_HEADER {
        return Err(bad(file, format!("a message is described by {length} bytes")));
    }
    let header = take_vec(input, length as u64, file)?;
    let size = guarded(file, || Ok(message(&header)?.bodyLength()))?;
    let size = u64::try_from(size).ok().filter(|size| *size <= MAX_BODY);
    let size = size.ok_or_else(|| bad(file, format!("a record batch is larger than {} GiB", MAX_BODY >> 30)))?;
    Ok(Some((header, Buffer::from_vec(take_vec(input, size, file)?))))
}

fn take(input: &mut dyn Read, out: &mut [u8], file: &Path) -> Result<()> {
    input.read_exact(out).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => bad(file, "it is cut short"),
        _ => read_error(e, file),
    })
}

/// So many bytes, in memory that follows what is there and not what is announced.
fn take_vec(input: &mut dyn Read, length: u64, file: &Path) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    input.take(length).read_to_end(&mut out).map_err(|e| read_error(e, file))?;
    if (out.len() as u64) < length {
        return Err(bad(file, "it is cut short"));
    }
    Ok(out)
}

fn message(header: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(header).map_err(|e| e.to_string())
}

/// A record batch; nothing for a dictionary, which is kept.
fn decode(
    header: &[u8],
    body: &Buffer,
    schema: &SchemaRef,
    dictionaries: &mut HashMap<i64, ArrayRef>,
    wanted: Option<&[usize]>,
) -> Result<Option<RecordBatch>, String> {
    let message = message(header)?;
    let version = message.version();
    let text = |e: arrow_schema::ArrowError| e.to_string();
    match message.header_type() {
        MessageHeader::RecordBatch => {
            let batch = message.header_as_record_batch().ok_or("a record batch is missing")?;
            check(&batch, body)?;
            let decoder =
                RecordBatchDecoder::try_new(body, batch, Arc::clone(schema), dictionaries, &version).map_err(text)?;
            decoder.with_projection(wanted).read_record_batch().map(Some).map_err(text)
        }
        MessageHeader::DictionaryBatch => {
            let batch = message.header_as_dictionary_batch().ok_or("a dictionary is missing")?;
            check(&batch.data().ok_or("a dictionary has no data")?, body)?;
            read_dictionary(body, batch, schema, dictionaries, &version).map_err(text)?;
            Ok(None)
        }
        MessageHeader::NONE => Ok(None),
        other => Err(format!("a message of the kind {other:?}")),
    }
}

/// Checks the lengths that a record batch announces, before memory is made for them.
fn check(batch: &arrow_ipc::RecordBatch<'_>, body: &Buffer) -> Result<(), String> {
    let compression = batch.compression().map(|c| c.codec());
    let mut size = 0u64;
    for buffer in batch.buffers().iter().flatten() {
        let place = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = place.and_then(|(at, length)| body.get(at..at.checked_add(length)?));
        let bytes = bytes.ok_or("a buffer lies outside of its record batch")?;
        size = size.saturating_add(match (compression, bytes.split_first_chunk::<8>()) {
            (None, _) | (Some(_), None) => bytes.len() as u64,
            (Some(codec), Some((announced, packed))) => match i64::from_le_bytes(*announced) {
                -1 => packed.len() as u64,
                announced => {
                    let announced = u64::try_from(announced).map_err(|_| "a buffer has a negative length")?;
                    if codec == CompressionType::LZ4_FRAME && packed.len() > LZ4_UNCHECKED {
                        count_lz4(packed, announced)?;
                    }
                    announced
                }
            },
        });
    }
    if size > MAX_BODY {
        return Err(format!("a record batch is larger than {} GiB", MAX_BODY >> 30));
    }
    if size > FREE_BODY && size > (body.len() as u64).saturating_mul(MAX_RATIO) {
        let (packed, size) = (body.len(), size >> 20);
        return Err(format!("a record batch of {packed} bytes would take {size} MiB in memory"));
    }
    // Every value takes a bit at least, but for columns without any value.
    let rows = u64::try_from(batch.length()).map_err(|_| "a record batch has a negative length")?;
    if rows > (1 << 20) && rows / 8 > size {
        return Err(format!("a record batch of {size} bytes announces {rows} rows"));
    }
    Ok(())
}

/// Checks that a compressed buffer does not become longer than it announces, which its decoder does not look at.
fn count_lz4(packed: &[u8], announced: u64) -> Result<(), String> {
    let mut decoder = lz4_flex::frame::FrameDecoder::new(packed).take(announced + 1);
    let found = std::io::copy(&mut decoder, &mut std::io::sink()).map_err(|e| e.to_string())?;
    if found == announced { Ok(()) } else { Err("a buffer has another length than it announces".into()) }
}

impl RowSource for Ipc {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        if self.wanted.is_none() {
            self.wanted = Some(arrow::wanted(&self.types, columns).map_err(|e| e.at_file(&self.file))?);
        }
        let mut rows = 0;
        while rows < max {
            let Some(batch) = self.batch.as_ref().filter(|batch| self.next < batch.num_rows()) else {
                if self.load()? {
                    continue;
                }
                break;
            };
            let part = (max - rows).min(batch.num_rows() - self.next);
            for (&index, values) in self.wanted.iter().flatten().zip(batch.columns()) {
                arrow::push(values, self.next..self.next + part, &mut columns[index], self.row + 1)?;
            }
            self.next += part;
            self.row += part as u64;
            rows += part;
        }
        Ok(rows)
    }
}
