//! NumPy arrays (`.npy`).

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::cell::Cell;
use super::column::ColumnBuilder;
use super::delimited::MAX_COLUMNS;
use super::input::{RowSource, read_error};
use super::kept::KeptType;
use crate::error::{Error, Result};

const AGAIN: &str = "write the array again with numpy.save, as numbers of a plain type such as float32";

/// A header is a line of text; the format allows more than anyone writes.
const MAX_HEADER: usize = 1 << 16;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    Bytes,
    Unicode,
}

/// An array's header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    kind: Kind,
    /// Bytes of one value.
    size: usize,
    big_endian: bool,
    fortran: bool,
    pub rows: u64,
    /// Values of one row.
    pub width: usize,
    /// The shape of one row.
    shape: Vec<usize>,
}

impl Header {
    /// Reads magic, version and header.
    pub(super) fn read(input: &mut dyn Read, file: &Path) -> Result<Header> {
        let mut start = [0u8; 8];
        take(input, &mut start, file)?;
        if &start[..6] != b"\x93NUMPY" {
            return Err(Error::data("it is not a NumPy array").at_file(file).hint(AGAIN));
        }
        let length = match start[6] {
            1 => {
                let mut bytes = [0u8; 2];
                take(input, &mut bytes, file)?;
                usize::from(u16::from_le_bytes(bytes))
            }
            2 | 3 => {
                let mut bytes = [0u8; 4];
                take(input, &mut bytes, file)?;
                u32::from_le_bytes(bytes) as usize
            }
            other => {
                return Err(Error::data(format!("version {other} of the NPY format is not known"))
                    .at_file(file)
                    .hint(AGAIN));
            }
        };
        if length > MAX_HEADER {
            return Err(Error::data("the array's header is too long").at_file(file).hint(AGAIN));
        }
        let mut header = vec![0u8; length];
        take(input, &mut header, file)?;
        Header::parse(&header).map_err(|message| Error::data(message).at_file(file).hint(AGAIN))
    }

    fn parse(header: &[u8]) -> Result<Header, String> {
        let bad = || "the array's header is damaged".to_owned();
        let text = std::str::from_utf8(header).map_err(|_| bad())?;
        let value = |key: &str| -> Result<&str, String> {
            let at = [format!("'{key}':"), format!("\"{key}\":")]
                .iter()
                .find_map(|k| text.find(k.as_str()).map(|at| at + k.len()))
                .ok_or_else(bad)?;
            Ok(text[at..].trim_start())
        };
        let fortran = value("fortran_order")?;
        let fortran = if fortran.starts_with("True") {
            true
        } else if fortran.starts_with("False") {
            false
        } else {
            return Err(bad());
        };
        let shape = value("shape")?.strip_prefix('(').and_then(|s| s.split_once(')')).ok_or_else(bad)?.0;
        let mut dims = Vec::new();
        for part in shape.split(',') {
            let part = part.trim().trim_end_matches('L');
            if !part.is_empty() {
                dims.push(part.parse::<u64>().map_err(|_| bad())?);
            }
            if dims.len() > 32 {
                return Err(bad());
            }
        }
        let descr = value("descr")?;
        let Some(quote) = descr.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return Err("the array has fields with names, which is not supported".into());
        };
        let descr = descr[1..].split_once(quote).ok_or_else(bad)?.0;
        let big_endian = descr.starts_with('>');
        let plain = descr.trim_start_matches(['<', '>', '|', '=']);
        let mut letters = plain.chars();
        let letter = letters.next().ok_or_else(bad)?;
        if letter == 'O' {
            return Err(
                "the array holds Python objects (a pickle), which are not read because they can run code".into()
            );
        }
        let count: usize =
            letters.as_str().parse().map_err(|_| format!("values of the type {descr:?} are not supported"))?;
        let (kind, size) = match (letter, count) {
            ('b', 1) => (Kind::Bool, 1),
            ('i', 1 | 2 | 4 | 8) => (Kind::Int, count),
            ('u', 1 | 2 | 4 | 8) => (Kind::Uint, count),
            ('f', 2 | 4 | 8) => (Kind::Float, count),
            ('S' | 'a', 1..=4096) => (Kind::Bytes, count),
            ('U', 1..=4096) => (Kind::Unicode, count * 4),
            _ => return Err(format!("values of the type {descr:?} are not supported")),
        };
        let Some((&rows, row)) = dims.split_first() else {
            return Err("the array has no dimension".into());
        };
        let width = row
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(d))
            .filter(|&n| n <= MAX_COLUMNS as u64)
            .ok_or_else(|| format!("a row of the array has more than {MAX_COLUMNS} values"))?;
        let total = rows.checked_mul(width).and_then(|n| n.checked_mul(size as u64));
        if total.is_none() {
            return Err(bad());
        }
        if rows == 0 || width == 0 {
            return Err("the array is empty".into());
        }
        Ok(Header {
            kind,
            size,
            big_endian,
            fortran: fortran && dims.len() > 1,
            rows,
            width: width as usize,
            shape: row.iter().map(|&d| d as usize).collect(),
        })
    }

    /// The length of the array's data, which [`Header::parse`] has checked not to overflow.
    pub(super) fn bytes(&self) -> u64 {
        self.rows * self.width as u64 * self.size as u64
    }

    fn push(&self, value: &[u8], column: &mut ColumnBuilder, row: u64) -> Result<()> {
        match self.kind {
            Kind::Bytes => {
                let end = value.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
                column.push(&value[..end], row)
            }
            Kind::Unicode => {
                let mut text = String::new();
                for unit in value.chunks_exact(4) {
                    let unit: [u8; 4] = unit.try_into().unwrap_or_default();
                    let unit = if self.big_endian { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) };
                    if unit == 0 {
                        break;
                    }
                    text.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                column.push(text.as_bytes(), row)
            }
            Kind::Float => {
                let bits = self.bits(value);
                match self.size {
                    2 => column.push_number(half::f16::from_bits(bits as u16).to_f64(), row),
                    // A label's digits are those of the stored precision.
                    4 => column.push_cell(Cell::F32(f32::from_bits(bits as u32)), row),
                    _ => column.push_number(f64::from_bits(bits), row),
                }
            }
            Kind::Int => {
                let unused = 64 - 8 * self.size as u32;
                let value = (self.bits(value) << unused) as i64 >> unused;
                column.push_cell(Cell::Int(value), row)
            }
            Kind::Uint => column.push_cell(Cell::Uint(self.bits(value)), row),
            Kind::Bool => {
                let value = value[0] != 0;
                column.record(Cell::Bool(value), |column| column.push_number(f64::from(u8::from(value)), row))
            }
        }
    }

    #[inline]
    fn bits(&self, value: &[u8]) -> u64 {
        let mut bytes = [0u8; 8];
        if self.big_endian {
            bytes[8 - value.len()..].copy_from_slice(value);
            u64::from_be_bytes(bytes)
        } else {
            bytes[..value.len()].copy_from_slice(value);
            u64::from_le_bytes(bytes)
        }
    }
}

/// Fills `bytes`; an error where the file is cut short.
fn take(input: &mut dyn Read, bytes: &mut [u8], file: &Path) -> Result<()> {
    input.read_exact(bytes).map_err(|error| {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            Error::data("the file ends before the array does")
                .at_file(file)
                .hint("the file is cut short: fetch or make it again")
        } else {
            read_error(error, file)
        }
    })
}

/// Rows of one array.
pub(crate) struct Npy {
    header: Header,
    input: Box<dyn Read + Send>,
    file: Arc<Path>,
    row: u64,
    buffer: Vec<u8>,
    /// An array in Fortran order has its rows spread over the whole data, so that it is kept in memory.
    whole: Option<Vec<u8>>,
}

impl Npy {
    /// Reads the header; `length` is that of the file where it is known, and is compared with the header.
    pub(super) fn open(mut input: Box<dyn Read + Send>, length: Option<u64>, file: &Arc<Path>) -> Result<Npy> {
        let header = Header::read(&mut input, file)?;
        if let Some(length) = length
            && header.bytes() > length
        {
            return Err(Error::data(format!(
                "the file ends before the array does: its header announces {} x {} values, which do not fit {length} bytes",
                header.rows, header.width
            ))
            .at_file(file)
            .hint("the file is cut short: fetch or make it again"));
        }
        Ok(Npy { header, input, file: Arc::clone(file), row: 0, buffer: Vec::new(), whole: None })
    }

    pub(super) fn width(&self) -> usize {
        self.header.width
    }

    pub(super) fn rows(&self) -> u64 {
        self.header.rows
    }

    fn at_end(&mut self) -> Result<()> {
        let mut one = [0u8; 1];
        match self.input.read(&mut one) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Error::data("there is more data than the array's shape announces")
                .at_file(&self.file)
                .hint("the file is damaged, or holds more than one array: make it again")),
            Err(error) => Err(read_error(error, &self.file)),
        }
    }

    fn fill_fortran(&mut self, count: u64, columns: &mut [ColumnBuilder]) -> Result<()> {
        let header = &self.header;
        if self.whole.is_none() {
            let mut data = Vec::new();
            // Grows with the data, whatever the header announces.
            (&mut self.input).take(header.bytes()).read_to_end(&mut data).map_err(|e| read_error(e, &self.file))?;
            if (data.len() as u64) < header.bytes() {
                take(&mut std::io::empty(), &mut [0], &self.file)?;
            }
            self.whole = Some(data);
            self.at_end()?;
        }
        let header = &self.header;
        let data = self.whole.as_deref().unwrap_or_default();
        // The first index runs fastest in the file; within a row our last one does.
        let mut place = vec![0usize; header.shape.len()];
        for column in columns.iter_mut() {
            let mut stride = header.rows as usize;
            let mut offset = 0;
            for (at, size) in place.iter().zip(&header.shape) {
                offset += at * stride;
                stride *= size;
            }
            for row in self.row..self.row + count {
                let start = (offset + row as usize) * header.size;
                header.push(&data[start..start + header.size], column, row + 1)?;
            }
            for (at, &size) in place.iter_mut().zip(&header.shape).rev() {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
        }
        self.row += count;
        Ok(())
    }
}

impl RowSource for Npy {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        let count = (self.header.rows - self.row).min(max as u64);
        self.fill_columns(count, columns)?;
        Ok(count as usize)
    }

    fn kept_type(&self, _column: usize) -> KeptType {
        match (self.header.kind, self.header.size) {
            (Kind::Bool, _) => KeptType::Bool,
            (Kind::Int, _) => KeptType::Int,
            (Kind::Uint, _) => KeptType::Uint,
            (Kind::Float, 8) => KeptType::F64,
            (Kind::Float, _) => KeptType::F32,
            (Kind::Bytes | Kind::Unicode, _) => KeptType::Text,
        }
    }
}

impl Npy {
    /// How many rows are still to be read.
    pub(super) fn left(&self) -> u64 {
        self.header.rows - self.row
    }

    /// Appends the next `count` rows, which must be there.
    pub(super) fn fill_columns(&mut self, count: u64, columns: &mut [ColumnBuilder]) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        if self.header.fortran {
            return self.fill_fortran(count, columns);
        }
        let bytes = self.header.width * self.header.size;
        // A bounded part at a time, so that the buffer does not follow the header's promises.
        let most = ((1 << 20) / bytes).max(1) as u64;
        let end = self.row + count;
        while self.row < end {
            let part = most.min(end - self.row) as usize;
            self.buffer.resize(part * bytes, 0);
            take(&mut self.input, &mut self.buffer, &self.file)?;
            for values in self.buffer.chunks_exact(bytes) {
                self.row += 1;
                for (value, column) in values.chunks_exact(self.header.size).zip(columns.iter_mut()) {
                    self.header.push(value, column, self.row)?;
                }
            }
        }
        if self.row == self.header.rows {
            self.at_end()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let parse = |text: &str| Header::parse(text.as_bytes());
        let h = parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 4), }  \n").unwrap();
        assert_eq!((h.rows, h.width, h.size, h.kind), (3, 8, 4, Kind::Float));
        let h = parse("{'descr': '|S5', 'fortran_order': True, 'shape': (3,), }").unwrap();
        assert_eq!((h.rows, h.width, h.fortran), (3, 1, false));
        let h = parse("{'shape': (2, 3), 'fortran_order': True, 'descr': '>i2'}").unwrap();
        assert!(h.big_endian && h.fortran);
        for (text, part) in [
            ("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "pickle"),
            ("{'descr': '<c16', 'fortran_order': False, 'shape': (3,), }", "c16"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "fields"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "no dimension"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }", "empty"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 99999999999), }", "more than"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 9), }", "damaged"),
            ("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", "damaged"),
            ("nonsense", "damaged"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
