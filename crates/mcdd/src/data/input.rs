//! Opening a file: decompression, and what kind of file it is by its content.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use super::column::ColumnBuilder;
use super::encoding::{self, Decoder, Foreign};
use super::kept::KeptType;
use super::lzw;
use super::refused::RowLog;
use super::text::Notices;
use crate::error::{Error, Result};

/// A source of rows. One implementation for each format.
pub(crate) trait RowSource: Send {
    /// Appends the next rows to `columns`, which stand in the file's order: `max` of them, or fewer at the
    /// end of the file. A reader that finds more columns than there are may add some if
    /// [`RowSource::grows`] is true.
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize>;

    /// About how many rows are still to come, where the length of the file is known; never more than its bytes
    /// can hold, so that memory may be reserved for them.
    fn remaining(&self) -> Option<usize> {
        None
    }

    /// Whether the number of columns is known at the end only.
    fn grows(&self) -> bool {
        false
    }

    /// Adds no more columns from now on.
    fn fix_width(&mut self) {}

    /// The type of a column that is passed through to the output.
    fn kept_type(&self, _column: usize) -> KeptType {
        KeptType::Text
    }

    /// How many columns of the file were beyond `columns` and were left out.
    fn left_out(&self) -> usize {
        0
    }

    /// Looks further into a file whose columns are not all in its header, before the first row is read: for all of them, or
    /// until the `wanted` are found. Returns all columns that are known then.
    fn look_for(&mut self, _wanted: Option<&[&str]>) -> Result<Option<Vec<String>>> {
        Ok(None)
    }

    /// What the user should know about the rows read so far.
    fn notices(&self) -> Notices {
        Notices::new()
    }

    /// Where the rows of the last [`RowSource::fill`] begin, and which ones were passed over; none where the format has neither
    /// lines nor rows that cannot be used.
    fn log(&mut self) -> Option<&mut RowLog> {
        None
    }
}

/// How many bytes are read to find the format.
pub(crate) const PREFIX: usize = 1 << 16;

/// The kinds of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Npy,
    Zip,
    Parquet,
    /// Arrow's IPC format: a file (Feather) or a stream.
    Arrow,
    Idx,
    /// Another known format, or binary data.
    Foreign(&'static str),
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Npy => "a NumPy array (.npy)",
            Format::Zip => "a zip archive (.npz, .xlsx)",
            Format::Parquet => "a Parquet file",
            Format::Arrow => "an Arrow or Feather file",
            Format::Idx => "an IDX file",
            Format::Foreign(name) => name,
        }
    }
}

/// Where the bytes of an input are, for formats that are read from their end.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// In a file, which can be opened again.
    File,
    /// In a stream, which can be read once.
    Stream,
    /// In memory.
    Bytes(Arc<[u8]>),
}

/// An opened file, stream or byte array, decompressed if it is gzip or `.Z`, of which the start was read.
pub(crate) struct Input {
    /// The path, or the name of a stream.
    pub file: Arc<Path>,
    pub storage: Storage,
    pub packed: bool,
    /// Whether it can be opened again.
    pub again: bool,
    /// The start of the content.
    pub prefix: Vec<u8>,
    /// Whether `prefix` is everything.
    pub whole: bool,
    /// The length of the content, where it is known.
    pub length: Option<u64>,
    /// The encoding of a text that is not UTF-8, once it is known.
    pub foreign: Foreign,
    rest: Box<dyn Read + Send>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Input> {
        if path == Path::new("-") {
            return Self::from_read(Box::new(std::io::stdin()), path);
        }
        let file = File::open(path).map_err(|e| Error::io(e, path))?;
        let data = file.metadata().map_err(|e| Error::io(e, path))?;
        if data.is_dir() {
            return Err(Error::data("it is a folder, not a file").at_file(path).hint("give the files in it"));
        }
        // A pipe or a device has no length to compare with a header, and can be read once.
        match data.is_file() {
            true => Self::start(Box::new(file), path, Storage::File, Some(data.len())),
            false => Self::from_read(Box::new(file), path),
        }
    }

    /// Any stream; `name` stands for it in errors.
    pub(crate) fn from_read(raw: Box<dyn Read + Send>, name: &Path) -> Result<Input> {
        Self::start(raw, name, Storage::Stream, None)
    }

    /// The content of a file in memory; `name` stands for it in errors.
    pub(crate) fn from_bytes(bytes: Arc<[u8]>, name: &Path) -> Result<Input> {
        let length = bytes.len() as u64;
        let raw = Box::new(Cursor::new(Arc::clone(&bytes)));
        Self::start(raw, name, Storage::Bytes(bytes), Some(length))
    }

    fn start(mut raw: Box<dyn Read + Send>, path: &Path, storage: Storage, length: Option<u64>) -> Result<Input> {
        let (prefix, whole) = read_prefix(&mut raw, path)?;
        // A pipe is a file without a length.
        let again = length.is_some();
        let mut input = Input {
            file: path.into(),
            storage,
            packed: false,
            again,
            prefix,
            whole,
            length,
            foreign: Foreign::default(),
            rest: raw,
        };
        let gzip = input.prefix.starts_with(b"\x1f\x8b");
        if gzip || input.prefix.starts_with(lzw::MAGIC) {
            let raw = std::mem::replace(&mut input.rest, Box::new(std::io::empty()));
            let raw = Cursor::new(std::mem::take(&mut input.prefix)).chain(raw);
            input.rest = if gzip {
                Box::new(flate2::read::MultiGzDecoder::new(raw))
            } else {
                Box::new(lzw::Decoder::new(BufReader::new(raw)))
            };
            (input.prefix, input.whole) = read_prefix(&mut input.rest, path)?;
            input.packed = true;
            input.length = None;
        }
        Ok(input)
    }

    /// What the content is; an error where it cannot be read, or contradicts the file's name.
    pub(crate) fn format(&self) -> Result<Format> {
        let format = sniff(&self.prefix);
        let name = self.file.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let named_text = matches!(ending, "csv" | "tsv" | "txt" | "tab");
        let blank = self.prefix.trim_ascii().is_empty() || matches!(&self.prefix[..], b"\xef\xbb\xbf" | b"\xff\xfe");
        // JSON Lines without rows is an empty file; a table in any other format has at least a header.
        if blank && !(self.whole && matches!(ending, "jsonl" | "ndjson")) {
            return Err(empty(&self.file));
        }
        match format {
            Format::Foreign(what) => {
                let hint = if looks_like_image(&self.prefix) {
                    "for images choose an image network by `net`, e.g. resnet20, and give a folder with a sub-folder for each class"
                } else {
                    "give CSV, TSV, Excel (.xlsx), JSON Lines, Parquet, Arrow, NPY, NPZ, IDX or `label index:value` text"
                };
                Err(Error::data(format!("it is not a table: it seems to be {what}")).at_file(&self.file).hint(hint))
            }
            Format::Text if matches!(ending, "npy" | "npz" | "parquet" | "xlsx" | "feather" | "arrow") => {
                Err(Error::data(format!(
                    "it is named .{ending} but its content is not {}",
                    match ending {
                        "npy" => "a NumPy array",
                        "npz" => "a NumPy archive",
                        "parquet" => "Parquet",
                        "xlsx" => "an Excel workbook",
                        _ => "Arrow data",
                    }
                ))
                .at_file(&self.file)
                .hint("name text files .csv, .tsv or .txt; else the file is damaged: make it again"))
            }
            Format::Text => Ok(format),
            _ if named_text => Err(Error::data(format!(
                "it is named .{ending} but its content is binary: it seems to be {}",
                format.name()
            ))
            .at_file(&self.file)
            .hint("give the file its proper name, or give the text file")),
            Format::Parquet | Format::Zip if matches!(self.storage, Storage::Stream) => Err(Error::data(format!(
                "{} cannot be read from a stream, because its directory is at its end",
                format.name()
            ))
            .at_file(&self.file)
            .hint("save it to a file and give the path, or give all of its bytes")),
            Format::Parquet | Format::Zip if self.packed => {
                Err(Error::data(format!("{} in a compressed file cannot be read", format.name()))
                    .at_file(&self.file)
                    .hint("decompress it with `gunzip` first; it is compressed in itself"))
            }
            _ => Ok(format),
        }
    }

    /// The content from its `skip`-th byte on, which must lie in the prefix.
    pub(crate) fn into_read(mut self, skip: usize) -> Box<dyn Read + Send> {
        self.prefix.drain(..skip.min(self.prefix.len()));
        if self.whole {
            Box::new(Cursor::new(self.prefix))
        } else {
            Box::new(Cursor::new(self.prefix).chain(self.rest))
        }
    }

    /// Opens it again, from its start, which works if [`Input::again`].
    pub(crate) fn reopen(&self) -> Result<Input> {
        match &self.storage {
            Storage::Bytes(bytes) => Self::from_bytes(Arc::clone(bytes), &self.file),
            Storage::File | Storage::Stream => Self::open(&self.file),
        }
    }

    /// A text as UTF-8, whatever its encoding is.
    pub(crate) fn decoded(mut self) -> Result<Input> {
        let raw = Cursor::new(self.prefix.clone()).chain(self.rest);
        let mut decoder = Decoder::new(Box::new(raw), &self.prefix);
        self.foreign = decoder.foreign();
        (self.prefix, self.whole) = read_prefix(&mut decoder, &self.file)?;
        // The length of UTF-16 is not that of its text.
        self.length = self.length.filter(|_| self.foreign.get().is_none());
        self.rest = Box::new(decoder);
        Ok(self)
    }

    /// Reads on until the prefix holds `lines` lines or `most` bytes.
    pub(crate) fn lengthen(&mut self, lines: usize, newline: u8, most: usize) -> Result<()> {
        while !self.whole
            && self.prefix.len() < most
            && memchr::memchr_iter(newline, &self.prefix).take(lines).count() < lines
        {
            let (more, whole) = read_prefix(&mut self.rest, &self.file)?;
            self.prefix.extend_from_slice(&more);
            self.whole = whole;
        }
        Ok(())
    }
}

/// The error that a file has no content.
pub(crate) fn empty(file: &Path) -> Error {
    Error::data("it is empty")
        .at_file(file)
        .hint("give a file with a row for each example; a table without rows has at least its header")
}

/// Reads [`PREFIX`] bytes, or up to the end; returns whether the end was reached.
fn read_prefix(input: &mut dyn Read, path: &Path) -> Result<(Vec<u8>, bool)> {
    let mut prefix = Vec::new();
    let mut limited = input.take(PREFIX as u64);
    limited.read_to_end(&mut prefix).map_err(|e| read_error(e, path))?;
    let whole = prefix.len() < PREFIX;
    Ok((prefix, whole))
}

/// An error while reading: the system's, or that of a damaged compressed file.
pub(crate) fn read_error(error: std::io::Error, path: &Path) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | UnexpectedEof => {
            Error::data(format!("the compressed data is damaged or cut short ({error})"))
                .at_file(path)
                .hint("fetch or make the file again")
        }
        _ => {
            let error = Error::io(error, path);
            if error.hint_text().is_some() {
                error
            } else {
                error.hint("check that the file can be read, and try again")
            }
        }
    }
}

fn sniff(start: &[u8]) -> Format {
    const FOREIGN: [(&[u8], &str); 17] = [
        (b"\x1f\x8b", "gzip inside gzip"),
        (b"PK\x05\x06", "an empty zip archive"),
        (b"BZh", "bzip2-compressed data"),
        (b"\xfd7zXZ\0", "xz-compressed data"),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"\x89HDF", "an HDF5 file"),
        (b"MATLAB 5.0", "a MATLAB file"),
        (b"SQLite format 3", "an SQLite database"),
        (b"FEA1", "a Feather file of version 1 (write it as version 2)"),
        (b"ORC", "an ORC file"),
        (b"\xd0\xcf\x11\xe0", "an Excel file of the old kind or with a password (save it as .xlsx)"),
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"%PDF", "a PDF document"),
        (b"\x80\x04\x95", "a Python pickle"),
        (b"\x7fELF", "a program"),
    ];
    if start.starts_with(b"\x93NUMPY") {
        return Format::Npy;
    }
    if start.starts_with(b"PAR1") {
        return Format::Parquet;
    }
    if start.starts_with(b"PK\x03\x04") {
        return Format::Zip;
    }
    if let [0, 0, 8 | 9 | 0x0b..=0x0e, 1..=8, ..] = start {
        return Format::Idx;
    }
    if start.starts_with(b"ARROW1\0\0") || start.starts_with(b"\xff\xff\xff\xff") && start.get(7) == Some(&0) {
        return Format::Arrow;
    }
    if encoding::utf32(start) {
        return Format::Foreign("text in UTF-32 (save it as UTF-8)");
    }
    for (magic, name) in FOREIGN {
        // "ORC" and "BZh" could begin a header of a text file; binary data goes on in binary.
        if start.starts_with(magic) && (magic[0] >= 0x7f || looks_binary(start)) {
            return Format::Foreign(name);
        }
    }
    if looks_binary(start) && encoding::utf16(start).is_none() {
        return Format::Foreign("binary data");
    }
    Format::Text
}

/// Whether it begins as an image file does: PNG, JPEG, GIF, BMP, TIFF or WebP.
fn looks_like_image(start: &[u8]) -> bool {
    const MAGIC: [&[u8]; 6] = [b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*"];
    MAGIC.iter().any(|magic| start.starts_with(magic))
        || start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP")
}

/// A NUL, or more than a tenth of control characters, is not in a text.
fn looks_binary(start: &[u8]) -> bool {
    let start = &start[..start.len().min(PREFIX)];
    if memchr::memchr(0, start).is_some() {
        return true;
    }
    let control = |b: &&u8| **b < 0x20 && !matches!(**b, b'\t' | b'\n' | b'\r' | 0x0c);
    start.iter().filter(control).count() * 10 > start.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn content_decides() {
        for (start, want) in [
            (&b"a,b\n1,2\n"[..], Format::Text),
            (b"\x93NUMPY\x01\0", Format::Npy),
            (b"PAR1\x15\x04", Format::Parquet),
            (b"PK\x03\x04\0", Format::Zip),
            (b"\0\0\x08\x03\0\0", Format::Idx),
            (b"\xff\xfea\0", Format::Text),
            (b"a\0,\0b\0\n\0", Format::Text),
            (b"ARROW1\0\0\xff\xff\xff\xff", Format::Arrow),
            (b"\xff\xff\xff\xff\x10\x01\0\0", Format::Arrow),
            (b"ORC,BZh\n1,2\n", Format::Text),
            (b"\x89PNG\r\n", Format::Foreign("a PNG image")),
            (b"abc\0def", Format::Foreign("binary data")),
            (b"na\xefve,1\n", Format::Text),
        ] {
            assert_eq!(sniff(start), want, "{start:?}");
        }
    }

    #[test]
    fn names_must_fit_the_content() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content, part) in [
            ("a.csv", &b"\x93NUMPY\x01\0"[..], "NumPy"),
            ("a.csv", b"1,2\0\n", "binary"),
            ("b.txt", b"\0\0\x08\x01\0\0\0\0", "IDX"),
            ("a.npy", b"1,2\n", "not a NumPy array"),
            ("a.parquet", b"1,2\n", "not Parquet"),
            ("a.csv", b"", "empty"),
            ("a.csv", b" \r\n\n", "empty"),
            ("a.csv", b"\xef\xbb\xbf", "empty"),
            ("a.xlsx", b"1,2\n", "not an Excel workbook"),
            ("a.csv", b"\xff\xfe", "empty"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let e = Input::open(&path).unwrap().format().unwrap_err();
            assert!(e.to_string().contains(part), "{e}");
            assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
        }
        assert!(Input::open(folder.path()).is_err());
        assert!(Input::open(&folder.path().join("none")).is_err());
    }

    #[test]
    fn gzip_is_transparent_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv.gz");
        let text: Vec<u8> = (0..50_000).flat_map(|i| format!("{i},1\n").into_bytes()).collect();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let packed = gz.finish().unwrap();
        std::fs::write(&path, &packed).unwrap();
        let mut back = Vec::new();
        let input = Input::open(&path).unwrap();
        assert_eq!(input.format().unwrap(), Format::Text);
        input.into_read(0).read_to_end(&mut back).unwrap();
        assert_eq!(back, text);
        std::fs::write(&path, &packed[..20]).unwrap();
        let Err(e) = Input::open(&path) else { panic!() };
        assert!(e.to_string().contains("cut short") && e.hint_text().is_some());
    }
}
