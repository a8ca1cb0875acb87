//! Reading protocol buffers, as far as ONNX needs them. Nothing is trusted: every length is compared with what is there.

use crate::error::{Error, Result};

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    /// An integer.
    Int(u64),
    /// Four bytes.
    Four([u8; 4]),
    /// Eight bytes.
    Eight([u8; 8]),
    /// A text, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of a message, one after the other.
pub(super) struct Fields<'a>(&'a [u8]);

/// A field with its number, and the bytes that encode it.
pub(super) type Numbered<'a> = (u64, Field<'a>, &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }

    /// The next field.
    ///
    /// # Errors
    /// If the message is damaged.
    pub(super) fn next(&mut self) -> Result<Option<Numbered<'a>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let start = self.0;
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Int(self.varint()?),
            1 => Field::Eight(self.take(8)?.try_into().map_err(|_| damaged())?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| damaged())?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Four(self.take(4)?.try_into().map_err(|_| damaged())?),
            _ => return Err(damaged()),
        };
        Ok(Some((key >> 3, field, &start[..start.len() - self.0.len()])))
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(head)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        Err(damaged())
    }
}

impl<'a> Field<'a> {
    /// The bytes of a text or a message.
    ///
    /// # Errors
    /// If it is a number.
    pub(super) fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(damaged()),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub(super) fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged())
    }

    /// An integer.
    ///
    /// # Errors
    /// If it is something else.
    pub(super) fn int(self) -> Result<i64> {
        match self {
            Field::Int(value) => Ok(value as i64),
            _ => Err(damaged()),
        }
    }

    /// Adds an integer, or integers that are packed.
    ///
    /// # Errors
    /// If it is something else.
    pub(super) fn ints(self, out: &mut Vec<i64>) -> Result<()> {
        match self {
            Field::Int(value) => out.push(value as i64),
            Field::Bytes(bytes) => {
                let mut packed = Fields(bytes);
                while !packed.0.is_empty() {
                    out.push(packed.varint()? as i64);
                }
            }
            _ => return Err(damaged()),
        }
        Ok(())
    }

    /// Adds a number, or numbers that are packed.
    ///
    /// # Errors
    /// If it is something else.
    pub(super) fn floats(self, out: &mut Vec<f32>) -> Result<()> {
        match self {
            Field::Four(bytes) => out.push(f32::from_le_bytes(bytes)),
            Field::Bytes(bytes) => out.extend(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b))),
            _ => return Err(damaged()),
        }
        Ok(())
    }
}

pub(super) fn damaged() -> Error {
    Error::data("is not an ONNX file, or is damaged").hint("export the network again, or copy the file again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_documentation_of_protocol_buffers_encodes() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0x80, 0x3f];
        let mut fields = Fields::of(&bytes);
        assert_eq!(fields.next().unwrap(), Some((1, Field::Int(150), &bytes[..3])));
        assert_eq!(fields.next().unwrap(), Some((2, Field::Bytes(b"hi"), &bytes[3..7])));
        assert_eq!(fields.next().unwrap(), Some((3, Field::Four(1f32.to_le_bytes()), &bytes[7..])));
        assert_eq!(fields.next().unwrap(), None);
        let mut ints = Vec::new();
        Field::Bytes(&[0x96, 0x01, 0x02]).ints(&mut ints).unwrap();
        assert_eq!(ints, [150, 2]);
    }

    #[test]
    fn lengths_beyond_the_end_are_errors() {
        for bytes in
            [&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..], &[0x12, 3, 1, 2], &[0x80; 12]]
        {
            assert!(Fields::of(bytes).next().is_err());
        }
        assert!(Fields::of(&[0x0b]).next().is_err(), "groups are not used");
    }
}
