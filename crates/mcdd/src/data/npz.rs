//! Archives of NumPy arrays (`.npz`).
//!
//! The zip crate reads the directory; the arrays are read from the file as they are needed, so that memory
//! does not grow with them.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use super::column::ColumnBuilder;
use super::guard::guard;
use super::input::{RowSource, Storage};
use super::kept::KeptType;
use super::npy::Npy;
use super::text::list;
use super::zipped::reopen;
use crate::error::{Error, Result};

/// Columns of arrays with one dimension, side by side.
pub(crate) struct SideBySide(pub Vec<Npy>);

impl RowSource for SideBySide {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        let mut count = 0;
        for (array, column) in self.0.iter_mut().zip(columns.iter_mut()) {
            count = (array.left()).min(max as u64);
            array.fill_columns(count, std::slice::from_mut(column))?;
        }
        Ok(count as usize)
    }

    fn kept_type(&self, column: usize) -> KeptType {
        self.0.get(column).map_or(KeptType::Text, |array| array.kept_type(0))
    }
}

/// The directory of an archive.
pub(crate) struct Archive {
    file: Arc<Path>,
    storage: Storage,
    members: Vec<Member>,
}

struct Member {
    name: String,
    start: u64,
    packed: u64,
    size: u64,
    crc: u32,
    deflated: bool,
}

impl Archive {
    /// Reads the directory only.
    pub(super) fn open(file: &Arc<Path>, storage: &Storage) -> Result<Archive> {
        guard(|| Self::directory(file, storage)).unwrap_or_else(|| {
            Err(Error::data("the archive's directory is inconsistent")
                .at_file(file)
                .hint("write it again with numpy.savez or numpy.savez_compressed"))
        })
    }

    fn directory(file: &Arc<Path>, storage: &Storage) -> Result<Archive> {
        let bad = |message: String| {
            Error::data(message).at_file(file).hint("write it again with numpy.savez or numpy.savez_compressed")
        };
        let zip_error = |e: zip::result::ZipError| bad(format!("the archive is damaged or cut short ({e})"));
        let mut archive = zip::ZipArchive::new(reopen(file, storage)?).map_err(zip_error)?;
        let mut members = Vec::new();
        let mut others = Vec::new();
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index).map_err(zip_error)?;
            let name = entry.name().map_err(zip_error)?.into_owned();
            let Some(array) = name.strip_suffix(".npy") else {
                others.push(name);
                continue;
            };
            if entry.encrypted() {
                return Err(bad(format!("the member {name} is encrypted")));
            }
            let deflated = match entry.compression() {
                zip::CompressionMethod::Stored => false,
                zip::CompressionMethod::Deflated => true,
                other => {
                    return Err(bad(format!("the member {name} is compressed by {other}")));
                }
            };
            let start = entry.data_start().ok_or_else(|| bad(format!("the member {name} has no data")))?;
            members.push(Member {
                name: array.to_owned(),
                start,
                packed: entry.compressed_size(),
                size: entry.size(),
                crc: entry.crc32(),
                deflated,
            });
        }
        if members.is_empty() {
            let what = if others.iter().any(|name| name.starts_with("xl/")) {
                "it is an Excel file"
            } else {
                "it is a zip archive without NumPy arrays"
            };
            return Err(Error::data(format!("{what} ({})", list(&others)))
                .at_file(file)
                .hint("export the table as CSV, or write the arrays with numpy.savez"));
        }
        Ok(Archive { file: Arc::clone(file), storage: storage.clone(), members })
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|m| m.name.as_str()).collect()
    }

    /// Opens the array of this name; its data is read as it is needed.
    pub(super) fn array(&self, name: &str) -> Result<Npy> {
        let member = self.members.iter().find(|m| m.name == name).ok_or_else(|| {
            Error::data(format!("there is no array {name:?}; the arrays are: {}", list(&self.names())))
                .at_file(&self.file)
                .hint("name the arrays x and y")
        })?;
        let mut handle = reopen(&self.file, &self.storage)?;
        handle.seek(SeekFrom::Start(member.start)).map_err(|e| Error::io(e, &self.file))?;
        let raw = handle.take(member.packed);
        let (length, data): (_, Box<dyn Read + Send>) = if member.deflated {
            (None, Box::new(flate2::bufread::DeflateDecoder::new(raw)))
        } else {
            (Some(member.packed), Box::new(raw))
        };
        let checked = Checked { input: data, crc: flate2::Crc::new(), want: (member.size, member.crc), seen: 0 };
        Npy::open(Box::new(checked), length, &self.file).map_err(|e| e.at_column(name))
    }
}

/// Compares a member's checksum with its data at the end.
struct Checked {
    input: Box<dyn Read + Send>,
    crc: flate2::Crc,
    want: (u64, u32),
    seen: u64,
}

impl Read for Checked {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(out)?;
        self.crc.update(&out[..count]);
        self.seen += count as u64;
        if count == 0 && !out.is_empty() && (self.seen, self.crc.sum()) != self.want {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "length or checksum differ"));
        }
        Ok(count)
    }
}
