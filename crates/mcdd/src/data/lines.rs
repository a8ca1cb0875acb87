//! Lines and delimited records from a byte stream, in a buffer that grows with the longest record only.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::input::read_error;
use crate::error::{Error, Result};

/// The longest record. A longer one is a mistake (a quote that is never closed, a binary file), and a hostile file
/// must not fill the memory.
const MAX_RECORD: usize = 1 << 26;
const CHUNK: usize = 1 << 17;

/// A reader of lines.
pub(crate) struct Lines {
    input: Box<dyn Read + Send>,
    file: Arc<Path>,
    newline: u8,
    buffer: Vec<u8>,
    /// The bytes in use are `buffer[..filled]`.
    filled: usize,
    end_of_input: bool,
    /// The current record is `buffer[from..to]`; the next line starts at `next`.
    from: usize,
    to: usize,
    next: usize,
    /// The number of the current record's first line, and of the line after it, from 1.
    line: u64,
    next_line: u64,
    /// Bytes that have left the buffer.
    passed: u64,
}

impl Lines {
    pub(super) fn new(input: Box<dyn Read + Send>, file: Arc<Path>, newline: u8) -> Self {
        Lines {
            input,
            file,
            newline,
            buffer: Vec::new(),
            filled: 0,
            end_of_input: false,
            from: 0,
            to: 0,
            next: 0,
            line: 0,
            next_line: 1,
            passed: 0,
        }
    }

    /// Goes to the next line; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.from = self.next;
        self.line = self.next_line;
        self.lengthen()
    }

    /// Makes the current record one line longer; `false` at the end.
    pub(super) fn lengthen(&mut self) -> Result<bool> {
        let mut scanned = self.next;
        loop {
            if let Some(at) = memchr::memchr(self.newline, &self.buffer[scanned..self.filled]) {
                self.to = scanned + at;
                self.next = self.to + 1;
                break;
            }
            if self.end_of_input {
                if self.next == self.filled {
                    return Ok(false);
                }
                self.to = self.filled;
                self.next = self.filled;
                break;
            }
            scanned = self.filled;
            let moved = self.fill()?;
            scanned -= moved;
        }
        self.next_line += 1;
        self.cut_return();
        Ok(true)
    }

    /// Whole lines that follow the current record, as many as fit into about `wanted` bytes; without a last line that has no end.
    pub(super) fn ahead(&mut self, wanted: usize) -> Result<&[u8]> {
        self.from = self.next;
        self.to = self.next;
        while self.filled - self.next < wanted && !self.end_of_input {
            self.fill()?;
        }
        let all = &self.buffer[self.next..self.filled];
        let all = &all[..all.len().min(wanted)];
        Ok(&all[..memchr::memrchr(self.newline, all).map_or(0, |at| at + 1)])
    }

    /// Goes on after `bytes` of the lines ahead, which are `lines` lines.
    pub(super) fn skip(&mut self, bytes: usize, lines: u64) {
        self.next += bytes;
        (self.from, self.to) = (self.next, self.next);
        self.next_line += lines;
        self.line = self.next_line - 1;
    }

    /// How many lines the current record has.
    pub(super) fn count(&self) -> u64 {
        self.next_line - self.line
    }

    /// Cuts the current record after its first line; the next record begins with the second.
    pub(super) fn back_to_first(&mut self) {
        if let Some(at) = memchr::memchr(self.newline, &self.buffer[self.from..self.next]) {
            self.to = self.from + at;
            self.next = self.to + 1;
            self.next_line = self.line + 1;
            self.cut_return();
        }
    }

    /// Takes the line's own end off: inside a quoted field a carriage return is text.
    fn cut_return(&mut self) {
        if self.newline == b'\n' && self.to > self.from && self.buffer[self.to - 1] == b'\r' {
            self.to -= 1;
        }
    }

    /// Reads more, after moving the current record to the front; returns by how much it moved.
    fn fill(&mut self) -> Result<usize> {
        let moved = self.from;
        if moved > 0 {
            self.buffer.copy_within(moved..self.filled, 0);
            self.filled -= moved;
            self.passed += moved as u64;
            self.from = 0;
            self.to = self.to.saturating_sub(moved);
            self.next -= moved;
        }
        if self.filled > MAX_RECORD {
            return Err(Error::data(format!("the record is longer than {} MiB", MAX_RECORD >> 20))
                .at_file(&self.file)
                .at_line(self.line)
                .hint("check that it is a text file with a row on each line, and that quotes are closed"));
        }
        if self.buffer.len() < self.filled + CHUNK {
            let size = (self.filled + CHUNK).max(self.buffer.len() * 2);
            self.buffer.resize(size, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.end_of_input = true,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read_error(error, &self.file)),
            }
            return Ok(moved);
        }
    }

    /// The current record.
    #[inline]
    pub(super) fn current(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// The number of the current record's first line, from 1.
    #[inline]
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The number of the line after the current record, from 1.
    pub(super) fn next_number(&self) -> u64 {
        self.next_line
    }

    /// How many bytes of the content lie before the next line.
    pub(super) fn position(&self) -> u64 {
        self.passed + self.next as u64
    }

    pub(super) fn newline(&self) -> u8 {
        self.newline
    }

    pub(super) fn file(&self) -> &Arc<Path> {
        &self.file
    }
}

/// Calls `field` with each field of a line without quotes; stops where it returns an error.
#[inline]
pub(crate) fn split_plain<E>(
    record: &[u8],
    separator: u8,
    mut field: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = record;
    while let Some(at) = memchr::memchr(separator, rest) {
        field(&rest[..at])?;
        rest = &rest[at + 1..];
    }
    field(rest)
}

/// Calls `field` with each field between runs of spaces and tabs.
#[inline]
pub(crate) fn split_spaces<E>(record: &[u8], mut field: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let space = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | 0x0c);
    let mut rest = record;
    loop {
        let Some(start) = rest.iter().position(|b| !space(b)) else {
            return Ok(());
        };
        rest = &rest[start..];
        let end = rest.iter().position(space).unwrap_or(rest.len());
        field(&rest[..end])?;
        rest = &rest[end..];
    }
}

/// Splits a record with quotes by the rules of RFC 4180, as the csv crate does: a quote counts at the start
/// of a field only, two of them inside are one, and what follows a closing quote is taken as it is.
/// `text` receives the fields one after the other, `ends` where each ends. `Some`: a quoted field is not closed, so the
/// record goes on in the next line, and splitting from this place, to be given as `open`.
pub(crate) fn split_quoted(
    record: &[u8],
    separator: u8,
    open: Option<usize>,
    text: &mut Vec<u8>,
    ends: &mut Vec<usize>,
) -> Option<usize> {
    if open.is_none() {
        text.clear();
        ends.clear();
    }
    let mut inside = open.is_some();
    let mut rest = &record[open.unwrap_or(0)..];
    loop {
        if inside || rest.first() == Some(&b'"') {
            rest = &rest[usize::from(!inside)..];
            inside = false;
            loop {
                let Some(at) = memchr::memchr(b'"', rest) else {
                    text.extend_from_slice(rest);
                    return Some(record.len());
                };
                text.extend_from_slice(&rest[..at]);
                rest = &rest[at + 1..];
                if rest.first() != Some(&b'"') {
                    break;
                }
                text.push(b'"');
                rest = &rest[1..];
            }
        }
        match memchr::memchr(separator, rest) {
            Some(at) => {
                text.extend_from_slice(&rest[..at]);
                ends.push(text.len());
                rest = &rest[at + 1..];
            }
            None => {
                text.extend_from_slice(rest);
                ends.push(text.len());
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn lines(text: &'static [u8]) -> Lines {
        Lines::new(Box::new(Cursor::new(text)), Path::new("-").into(), b'\n')
    }

    #[test]
    fn lines_end_as_they_like() {
        let mut l = lines(b"a\r\nb\n\nlast");
        let mut seen = Vec::new();
        while l.advance().unwrap() {
            seen.push((l.line(), l.current().to_vec()));
        }
        assert_eq!(seen, [(1, b"a".to_vec()), (2, b"b".to_vec()), (3, b"".to_vec()), (4, b"last".to_vec())]);
        assert!(!lines(b"").advance().unwrap());
    }

    #[test]
    fn records_can_span_lines_and_buffers() {
        let mut text = Vec::new();
        for i in 0..40_000 {
            text.extend_from_slice(format!("{i},\"x\ny\"\n").as_bytes());
        }
        let mut l = Lines::new(Box::new(Cursor::new(text)), Path::new("-").into(), b'\n');
        let (mut out, mut ends, mut count) = (Vec::new(), Vec::new(), 0u64);
        while l.advance().unwrap() {
            let mut open = None;
            loop {
                open = split_quoted(l.current(), b',', open, &mut out, &mut ends);
                if open.is_none() {
                    break;
                }
                assert!(l.lengthen().unwrap());
            }
            assert_eq!(l.line(), 2 * count + 1);
            assert_eq!(&out[..ends[0]], count.to_string().as_bytes());
            assert_eq!(&out[ends[0]..], b"x\ny");
            count += 1;
        }
        assert_eq!(count, 40_000);
    }

    #[test]
    fn a_record_can_be_cut_after_its_first_line() {
        let mut l = lines(b"a\"b\r\nc\nd");
        assert!(l.advance().unwrap() && l.lengthen().unwrap() && l.lengthen().unwrap() && !l.lengthen().unwrap());
        assert_eq!((l.current(), l.count()), (&b"a\"b\r\nc\nd"[..], 3));
        l.back_to_first();
        assert_eq!((l.current(), l.count(), l.line()), (&b"a\"b"[..], 1, 1));
        assert!(l.advance().unwrap());
        assert_eq!((l.current(), l.line()), (&b"c"[..], 2));
    }

    #[test]
    fn an_endless_record_is_refused() {
        let mut l = Lines::new(Box::new(std::io::repeat(b'x')), Path::new("f").into(), b'\n');
        let e = l.advance().unwrap_err();
        assert!(e.to_string().contains("longer than") && e.hint_text().is_some());
    }

    #[test]
    fn spaces_run_together() {
        let mut fields = Vec::new();
        let done: Result<(), ()> = split_spaces(b"  1 \t2  3 ", |f| {
            fields.push(f.to_vec());
            Ok(())
        });
        done.unwrap();
        assert_eq!(fields, [b"1", b"2", b"3"]);
    }

    proptest! {
        #[test]
        fn quoted_records_split_as_the_csv_crate_does(record in "[ab,\" ]{0,24}") {
            let (mut text, mut ends) = (Vec::new(), Vec::new());
            if !record.is_empty() && split_quoted(record.as_bytes(), b',', None, &mut text, &mut ends).is_none() {
                let mut fields = Vec::new();
                let mut start = 0;
                for &end in &ends {
                    fields.push(text[start..end].to_vec());
                    start = end;
                }
                let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(record.as_bytes());
                let want = reader.byte_records().next().unwrap().unwrap();
                prop_assert_eq!(fields, want.iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
            }
        }
    }
}
