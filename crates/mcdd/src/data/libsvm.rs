//! The `label index:value index:value ...` form: features that are not written are zero.
//!
//! The newer files of the gas sensor data put a concentration after the class (`1;10.0 1:15596.16 ...`); the
//! class is what stands before the `;`. What follows a `#` is a comment.

use std::sync::Arc;

use super::column::{ColumnBuilder, Want};
use super::delimited::newline_of;
use super::input::{Input, RowSource};
use super::kept::KeptType;
use super::lines::{Lines, split_spaces};
use super::number::{self, Parsed};
use super::refused::RowLog;
use super::text::quoted;
use crate::error::{Error, Result, Row};

/// The largest index; a larger one is an error, because every index is a column.
pub(crate) const MAX_INDEX: usize = 100_000;

/// How many cells a file may unfold to: more than real files reach that are not meant as sparse
/// data, so that a few hostile bytes do not become gigabytes.
pub(super) fn most_cells(written: u64) -> u64 {
    20_000_000 + written.saturating_mul(200)
}

/// Whether a text is of this form, by its first line with content; `whole`: `prefix` is all of it.
pub(crate) fn looks_like(prefix: &[u8], whole: bool) -> bool {
    let newline = newline_of(prefix);
    let mut lines = prefix.split(|&b| b == newline).peekable();
    while let Some(line) = lines.next() {
        let mut line = strip_comment(line).trim_ascii();
        if line.is_empty() {
            continue;
        }
        // A line that the prefix cuts ends in half a token.
        if !whole && lines.peek().is_none() {
            let end = line.iter().rposition(u8::is_ascii_whitespace);
            line = &line[..end.unwrap_or(0)];
        }
        let (mut tokens, mut pairs) = (0usize, 0usize);
        let split = split_spaces(line, |token| {
            tokens += 1;
            if tokens == 1 {
                let label = !token.contains(&b':') && !token.contains(&b',');
                return if label { Ok(()) } else { Err(()) };
            }
            pairs += 1;
            pair(token).map(|_| ()).ok_or(())
        });
        return split.is_ok() && pairs > 0;
    }
    false
}

fn strip_comment(line: &[u8]) -> &[u8] {
    memchr::memchr(b'#', line).map_or(line, |at| &line[..at])
}

/// `index:value`; the index may be anything that fits, the value any text.
fn pair(token: &[u8]) -> Option<(usize, &[u8])> {
    let colon = memchr::memchr(b':', token)?;
    let (index, value) = (&token[..colon], &token[colon + 1..]);
    if index.is_empty() || index.len() > 9 || !index.iter().all(u8::is_ascii_digit) || value.is_empty() {
        return None;
    }
    let index = index.iter().fold(0usize, |n, &d| n * 10 + usize::from(d - b'0'));
    Some((index, value))
}

/// Rows of this form. Column 0 is the label, column `i` the feature with index `i`.
pub(crate) struct Libsvm {
    lines: Lines,
    /// Whether columns are added for indices that appear; else they are left out and counted.
    grow: bool,
    rows: u64,
    /// The rows that were read, without those that were passed over.
    read: usize,
    written: u64,
    widest: usize,
    left_out: usize,
    /// The row that last wrote each column, to find an index that is given twice.
    writer: Vec<u64>,
    pairs: Vec<(usize, f64)>,
    log: RowLog,
}

pub(crate) fn open(input: Input, skip: usize, log: RowLog) -> Libsvm {
    let newline = newline_of(&input.prefix);
    let file = Arc::clone(&input.file);
    Libsvm {
        lines: Lines::new(input.into_read(skip), file, newline),
        grow: true,
        rows: 0,
        read: 0,
        written: 0,
        widest: 0,
        left_out: 0,
        writer: Vec::new(),
        pairs: Vec::new(),
        log,
    }
}

impl Libsvm {
    /// Reads the pairs of the current line.
    fn parse(&mut self) -> Result<()> {
        self.rows += 1;
        let row = Row::at_line(self.rows, self.lines.line());
        let file = Arc::clone(self.lines.file());
        let fail = |error: Error, token: &[u8]| {
            let token = String::from_utf8_lossy(token);
            let column = token.split(':').next().unwrap_or_default();
            error.at_file(&file).at_row(row).at_column(column)
        };
        self.pairs.clear();
        let mut first = true;
        let line = strip_comment(self.lines.current());
        let (pairs, writer, rows) = (&mut self.pairs, &mut self.writer, self.rows);
        split_spaces(line, |token| {
            if std::mem::take(&mut first) {
                return Ok(());
            }
            let Some((index, value)) = pair(token) else {
                return Err(fail(
                    Error::data(format!("{} is not of the form index:value", quoted(&String::from_utf8_lossy(token))))
                        .hint("write each feature as index:value, with indices from 1"),
                    token,
                ));
            };
            if index == 0 || index > MAX_INDEX {
                return Err(fail(
                    Error::data(format!("the index {index} is not in 1..={MAX_INDEX}")).hint("indices count from 1"),
                    token,
                ));
            }
            if writer.len() <= index {
                writer.resize(index + 1, 0);
            }
            if std::mem::replace(&mut writer[index], rows) == rows {
                return Err(fail(
                    Error::data(format!("the index {index} is given twice")).hint("give each index once in a row"),
                    token,
                ));
            }
            let value = match number::parse(value) {
                Parsed::Number(value) => value,
                Parsed::Missing => f64::NAN,
                Parsed::Infinite => {
                    return Err(fail(
                        Error::data("the value is infinite or too large for a 64-bit number")
                            .hint("replace it by a finite number, or by NaN if it is missing"),
                        token,
                    ));
                }
                Parsed::Text => {
                    return Err(fail(
                        Error::data(format!("{} is not a number", quoted(&String::from_utf8_lossy(value))))
                            .hint("write each feature as index:value, with indices from 1"),
                        token,
                    ));
                }
            };
            pairs.push((index, value));
            Ok(())
        })
    }

    /// Appends the current line, whose pairs were read.
    fn append(&mut self, columns: &mut Vec<ColumnBuilder>) -> Result<()> {
        let row = Row::at_line(self.rows, self.lines.line());
        let file = Arc::clone(self.lines.file());
        self.read += 1;
        let line = strip_comment(self.lines.current()).trim_ascii();
        let token = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let class = memchr::memchr(b';', token).map_or(token, |at| &token[..at]);
        if let Some(label) = columns.first_mut() {
            label.push(class, row)?;
        }
        self.written += self.pairs.len() as u64;
        let widest = self.pairs.iter().map(|p| p.0).max().unwrap_or(0);
        if widest > self.widest {
            self.widest = widest;
            self.left_out = if self.grow { 0 } else { (widest + 1).saturating_sub(columns.len()) };
        }
        if self.grow {
            let cells = self.rows.saturating_mul(self.widest.max(columns.len()) as u64);
            if cells > most_cells(self.written) {
                return Err(Error::data(format!(
                    "the rows so far unfold to {cells} cells, of which {} are written",
                    self.written
                ))
                .at_file(&file)
                .at_row(row)
                .hint("data as sparse as this is not supported: keep fewer features"));
            }
            if columns.len() <= widest {
                // The label of this row is there already, its features are not.
                let before = columns
                    .iter()
                    .enumerate()
                    .map(|(index, column)| column.len().saturating_sub(usize::from(index == 0)))
                    .max()
                    .unwrap_or(0)
                    .max(self.read - 1);
                while columns.len() <= widest {
                    let name = feature_name(columns.len());
                    let mut column = ColumnBuilder::new(&name, Want::Auto, Arc::clone(&file));
                    column.push_zeros(before);
                    columns.push(column);
                }
            }
        }
        for &(index, value) in &self.pairs {
            if let Some(column) = columns.get_mut(index) {
                column.push_number(value, row)?;
            }
        }
        for (index, column) in columns.iter_mut().enumerate().skip(1) {
            if self.writer.get(index) != Some(&self.rows) {
                column.push_zeros(1);
            }
        }
        Ok(())
    }
}

/// The name of the feature with this index.
pub(crate) fn feature_name(index: usize) -> String {
    format!("column {index}")
}

impl RowSource for Libsvm {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        self.log.clear();
        let mut rows = 0;
        while rows < max && self.lines.advance()? {
            if strip_comment(self.lines.current()).trim_ascii().is_empty() {
                continue;
            }
            match self.parse() {
                Err(error) => self.log.refuse(error)?,
                Ok(()) => {
                    self.log.lines.push(self.lines.line());
                    self.append(columns)?;
                    rows += 1;
                }
            }
        }
        Ok(rows)
    }

    fn log(&mut self) -> Option<&mut RowLog> {
        Some(&mut self.log)
    }

    fn grows(&self) -> bool {
        self.grow
    }

    fn fix_width(&mut self) {
        self.grow = false;
    }

    fn kept_type(&self, column: usize) -> KeptType {
        if column == 0 { KeptType::Text } else { KeptType::F64 }
    }

    fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_recognized() {
        for (text, want) in [
            ("1 1:2.5 3:4\n", true),
            ("\n# note\n+1 1:2.5 # tail\n", true),
            ("1;10.000000 1:15596.16 2:1.8\n", true),
            ("cat 1:2", true),
            ("1 2 3\n", false),
            ("1,1:2\n", false),
            ("1 a:2\n", false),
            ("12:30 12:40\n", false),
            ("1\n", false),
            ("", false),
        ] {
            assert_eq!(looks_like(text.as_bytes(), true), want, "{text:?}");
        }
        assert!(looks_like(b"1 1:2.5 2:3 3", false));
    }
}
