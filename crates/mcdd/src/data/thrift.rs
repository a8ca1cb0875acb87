//! The header of a Parquet page, in Thrift's compact protocol: only what is needed to know what the page takes.

use std::io::{self, Read};

use parquet::basic::Encoding;

/// No header is longer; statistics may have long texts.
const MAX_HEADER: u64 = 16 << 20;

/// How deep structures may lie in each other.
const MAX_DEPTH: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Values, nulls among them, and how many bytes of levels, which are not compressed, are before them.
    Data {
        values: u64,
        encoding: Option<Encoding>,
        levels: u64,
    },
    Dictionary,
    Other,
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub kind: PageKind,
    /// Its length in memory and in the file.
    pub unpacked: u64,
    pub packed: u64,
}

impl PageHeader {
    /// Reads a header; returns its length too.
    pub(super) fn read(input: impl Read) -> io::Result<(PageHeader, u64)> {
        let mut thrift = Thrift { input: input.take(MAX_HEADER) };
        let (mut unpacked, mut packed, mut kind) = (None, None, PageKind::Other);
        let mut last = 0;
        while let Some((id, form)) = thrift.field(&mut last)? {
            match (id, form) {
                (2, I32) => unpacked = u64::try_from(thrift.integer()?).ok(),
                (3, I32) => packed = u64::try_from(thrift.integer()?).ok(),
                // The second version has the encoding behind the numbers of nulls and of rows.
                (5, STRUCT) => kind = thrift.data(2)?,
                (8, STRUCT) => kind = thrift.data(4)?,
                (7, STRUCT) => {
                    thrift.skip(form, 0)?;
                    kind = PageKind::Dictionary;
                }
                _ => thrift.skip(form, 0)?,
            }
        }
        let length = MAX_HEADER - thrift.input.limit();
        let (unpacked, packed) = unpacked.zip(packed).ok_or_else(|| invalid("a page has no length"))?;
        Ok((PageHeader { kind, unpacked, packed }, length))
    }
}

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

struct Thrift<R> {
    input: io::Take<R>,
}

impl<R: Read> Thrift<R> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn unsigned(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid("a number in the header of a page is too long"))
    }

    fn integer(&mut self) -> io::Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The number and the form of the next field of a structure; none at its end.
    fn field(&mut self, last: &mut i64) -> io::Result<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Ok(None);
        }
        *last = match byte >> 4 {
            0 => self.integer()?,
            step => last.saturating_add(i64::from(step)),
        };
        Ok(Some((*last, byte & 15)))
    }

    /// The header of a page of data, whose encoding is in the field `encoding`.
    fn data(&mut self, encoding: i64) -> io::Result<PageKind> {
        let (mut values, mut found, mut levels, mut last) = (0, None, 0u64, 0);
        while let Some((id, form)) = self.field(&mut last)? {
            match (id, form) {
                (1, I32) => values = u64::try_from(self.integer()?).map_err(|_| invalid("a page has no values"))?,
                (id, I32) if id == encoding => found = named(self.integer()?),
                // Only the second version has numbers there.
                (5 | 6, I32) => levels = levels.saturating_add(u64::try_from(self.integer()?).unwrap_or(0)),
                _ => self.skip(form, 0)?,
            }
        }
        Ok(PageKind::Data { values, encoding: found, levels })
    }

    fn skip(&mut self, form: u8, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(invalid("the header of a page is too deep"));
        }
        match form {
            TRUE | FALSE => Ok(()),
            I8 => self.byte().map(|_| ()),
            4..=I64 => self.unsigned().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let length = self.unsigned()?;
                self.pass(length)
            }
            LIST | SET => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.unsigned()? } else { u64::from(head >> 4) };
                // In a list a truth value is a byte.
                let form = if matches!(head & 15, TRUE | FALSE) { I8 } else { head & 15 };
                (0..count).try_for_each(|_| self.skip(form, depth + 1))
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, form)) = self.field(&mut last)? {
                    self.skip(form, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(invalid("the header of a page has an unknown field")),
        }
    }

    fn pass(&mut self, length: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.input.by_ref().take(length), &mut io::sink())?;
        if passed < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// The encodings that are looked at, by their numbers in the format.
fn named(number: i64) -> Option<Encoding> {
    match number {
        0 => Some(Encoding::PLAIN),
        #[allow(deprecated)] // files have it
        2 => Some(Encoding::PLAIN_DICTIONARY),
        7 => Some(Encoding::DELTA_BYTE_ARRAY),
        8 => Some(Encoding::RLE_DICTIONARY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_damaged_ones_are_errors() {
        // Type 0, 300 bytes that take 100 in the file, and five values with the encoding 8 (RLE_DICTIONARY).
        let header = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 0xc8, 0x01, 0x2c, 0x15, 10, 0x15, 16, 0x15, 6, 0x15, 6, 0, 0];
        let data = PageKind::Data { values: 5, encoding: Some(Encoding::RLE_DICTIONARY), levels: 0 };
        let (page, length) = PageHeader::read(&[&header[..], b"more"].concat()[..]).unwrap();
        assert_eq!((page.kind, page.unpacked, page.packed, length), (data, 300, 100, header.len() as u64));
        for cut in 0..header.len() {
            assert!(PageHeader::read(&header[..cut]).is_err(), "{cut}");
        }
        // Structures in structures, and a negative length.
        assert!(PageHeader::read(&[0x9c; 100][..]).is_err());
        assert!(PageHeader::read(&[0x25, 1, 0x15, 2, 0][..]).is_err());
        assert!(PageHeader::read(&[0xff; 100][..]).is_err());
    }
}
