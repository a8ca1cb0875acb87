//! Columns of the input that are passed through to the output, as they are in the file.

use std::borrow::Cow;
use std::fmt::{self, Write};

#[cfg(feature = "arrow")]
use arrow_array::ArrayRef;

#[cfg(feature = "arrow")]
use super::arrow_text;
use super::cell::Cell;
use super::number::write_shortest;
use super::text::{list, quoted, shown};
use crate::error::{Error, Result};

/// The columns of the input that are passed through to the output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PassThrough {
    /// None.
    #[default]
    None,
    /// All, in the order of the file.
    All,
    /// These, in this order: names as in the file or positions from 1. What is not the name of a column may be several,
    /// separated by commas.
    Columns(Vec<String>),
}

impl PassThrough {
    /// The columns that a user lists; `all` alone stands for all of them.
    pub fn from_list(columns: &[String]) -> PassThrough {
        match columns {
            [] => PassThrough::None,
            [all] if all == "all" => PassThrough::All,
            columns => PassThrough::Columns(columns.to_vec()),
        }
    }

    /// The positions among the names of a file's columns.
    ///
    /// # Errors
    /// If there is no such column.
    pub(super) fn find(&self, names: &[String]) -> Result<Vec<usize>> {
        let wanted = match self {
            PassThrough::None => return Ok(Vec::new()),
            PassThrough::All => return Ok((0..names.len()).collect()),
            PassThrough::Columns(wanted) => wanted,
        };
        let find = |wanted: &str| {
            let by_position = || shown(wanted).parse::<usize>().ok()?.checked_sub(1).filter(|&at| at < names.len());
            names.iter().position(|name| name == wanted).or_else(by_position)
        };
        let mut found = Vec::new();
        for text in wanted {
            let parts = if find(text).is_some() { vec![text.as_str()] } else { text.split(',').collect() };
            for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
                let at = find(part).ok_or_else(|| {
                    Error::data(format!("there is no column {}; the columns are: {}", quoted(part), list(names)))
                        .at_column(part)
                        .hint("give `keep` with names as they are in the file, positions from 1, or all")
                })?;
                if !found.contains(&at) {
                    found.push(at);
                }
            }
        }
        Ok(found)
    }
}

/// The type of a column that is passed through.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeptType {
    /// Texts, as they are written in the file.
    Text,
    /// Booleans.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// Numbers in single precision.
    F32,
    /// Numbers in double precision.
    F64,
    /// A type of Arrow.
    #[cfg(feature = "arrow")]
    Arrow(arrow_schema::DataType),
}

impl KeptType {
    /// Whether values can be written as texts.
    pub fn has_text(&self) -> bool {
        match self {
            #[cfg(feature = "arrow")]
            KeptType::Arrow(kind) => arrow_text::has_text(kind),
            _ => true,
        }
    }
}

impl fmt::Display for KeptType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "arrow")]
            KeptType::Arrow(kind) => write!(f, "{kind}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The name and the type of a column that is passed through.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptField {
    /// The name.
    pub name: String,
    /// The type.
    pub kind: KeptType,
}

/// A cell of a [`Kept`] column.
#[derive(Clone, Debug, PartialEq)]
pub enum KeptCell<'a> {
    /// No value.
    Null,
    /// A text.
    Text(Cow<'a, str>),
    /// A number, `true` or `false`, as text.
    Literal(Cow<'a, str>),
}

impl KeptCell<'_> {
    /// The text; empty if there is no value.
    pub fn text(&self) -> &str {
        match self {
            KeptCell::Null => "",
            KeptCell::Text(text) | KeptCell::Literal(text) => text,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Null,
    Text,
    Literal,
}

/// A block of a column that is passed through.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// All cells, one after the other.
    text: String,
    /// Where each ends, and what it is.
    cells: Vec<(usize, Form)>,
    /// The values of a column of Arrow, in place of cells.
    #[cfg(feature = "arrow")]
    arrays: Vec<ArrayRef>,
}

impl Kept {
    /// The number of rows.
    pub fn len(&self) -> usize {
        #[cfg(feature = "arrow")]
        let arrays: usize = self.arrays.iter().map(|a| a.len()).sum();
        #[cfg(not(feature = "arrow"))]
        let arrays = 0;
        self.cells.len() + arrays
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.cells.clear();
        #[cfg(feature = "arrow")]
        self.arrays.clear();
    }

    pub(super) fn push(&mut self, cell: Cell<'_>) {
        // Writing to a string does not fail.
        let _ = match cell {
            Cell::Missing => Ok(()),
            Cell::Text(text) => self.text.write_str(text),
            Cell::Bool(value) => write!(self.text, "{value}"),
            Cell::Int(value) => write!(self.text, "{value}"),
            Cell::Uint(value) => write!(self.text, "{value}"),
            Cell::F32(value) => write_shortest(&mut self.text, f64::from(value), value),
            Cell::F64(value) => write_shortest(&mut self.text, value, value),
        };
        let form = match cell {
            Cell::Missing => Form::Null,
            Cell::Text(_) => Form::Text,
            _ => Form::Literal,
        };
        self.cells.push((self.text.len(), form));
    }

    #[cfg(feature = "arrow")]
    pub(super) fn push_array(&mut self, values: ArrayRef) {
        self.arrays.push(values);
    }

    /// The values of a column of Arrow, piece by piece; empty for other columns.
    #[cfg(feature = "arrow")]
    pub(crate) fn arrays(&self) -> &[ArrayRef] {
        &self.arrays
    }

    /// The cell of a row; null if there is no such row.
    pub fn cell(&self, row: usize) -> KeptCell<'_> {
        #[cfg(feature = "arrow")]
        if !self.arrays.is_empty() {
            let mut at = row;
            for values in &self.arrays {
                if at < values.len() {
                    return match arrow_text::value(values.as_ref(), at) {
                        None => KeptCell::Null,
                        Some((text, true)) => KeptCell::Literal(text),
                        Some((text, false)) => KeptCell::Text(text),
                    };
                }
                at -= values.len();
            }
            return KeptCell::Null;
        }
        let Some(&(end, form)) = self.cells.get(row) else { return KeptCell::Null };
        let start = row.checked_sub(1).map_or(0, |before| self.cells[before].0);
        let text = Cow::Borrowed(&self.text[start..end]);
        match form {
            Form::Null => KeptCell::Null,
            Form::Text => KeptCell::Text(text),
            Form::Literal => KeptCell::Literal(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_position_once() {
        let names: Vec<String> = ["id", "a,b", "c", "2"].map(String::from).to_vec();
        let find = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&t| t.to_owned()).collect();
            PassThrough::from_list(&list).find(&names)
        };
        assert_eq!(find(&[]).unwrap(), [0usize; 0]);
        assert_eq!(find(&["all"]).unwrap(), [0, 1, 2, 3]);
        assert_eq!(find(&["c,id"]).unwrap(), [2, 0]);
        assert_eq!(find(&["a,b", "c"]).unwrap(), [1, 2]);
        // A name comes before a position.
        assert_eq!(find(&["2", "1", "id"]).unwrap(), [3, 0]);
        let e = find(&["id,x"]).unwrap_err();
        assert!(e.to_string().contains("\"x\"") && e.hint_text().unwrap().contains("`keep`"), "{e}");
    }

    #[test]
    fn cells_come_back_as_they_were() {
        let mut kept = Kept::default();
        let cells = [
            (Cell::Text(" 007"), KeptCell::Text(" 007".into())),
            (Cell::Missing, KeptCell::Null),
            (Cell::Text(""), KeptCell::Text("".into())),
            (Cell::Int(i64::MIN), KeptCell::Literal("-9223372036854775808".into())),
            (Cell::Uint(u64::MAX), KeptCell::Literal("18446744073709551615".into())),
            (Cell::F32(0.1), KeptCell::Literal("0.1".into())),
            (Cell::F64(1e300), KeptCell::Literal("1e300".into())),
            (Cell::F64(-0.25), KeptCell::Literal("-0.25".into())),
            (Cell::Bool(true), KeptCell::Literal("true".into())),
        ];
        for (cell, _) in &cells {
            kept.push(*cell);
        }
        for (row, (_, want)) in cells.iter().enumerate() {
            assert_eq!(&kept.cell(row), want);
        }
        assert_eq!((kept.len(), kept.cell(99)), (cells.len(), KeptCell::Null));
        kept.clear();
        assert!(kept.is_empty());
    }
}
