//! Columns, and how they are built cell by cell.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::cell::Cell;
use super::number::{self, Parsed};
use super::text::{quoted, shown};
use crate::error::{Error, Result};

/// The code of a missing text cell.
pub const MISSING: u32 = u32::MAX;

/// One column of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers; NaN is a missing cell.
    Number(Vec<f64>),
    /// Categories.
    Text {
        /// For each row an index into `names`; [`MISSING`] (`u32::MAX`) is a missing cell.
        codes: Vec<u32>,
        /// The categories in the order of their appearance.
        names: Vec<String>,
    },
}

impl Column {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Number(values) => values.len(),
            Column::Text { codes, .. } => codes.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a column of a file is wanted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Not at all: its cells are not looked at.
    Skip,
    /// What its first cell is; the others must be the same.
    Auto,
    /// Numbers.
    Number,
    /// Categories.
    Text,
    /// Labels, of which none may be missing.
    Label,
    /// Labels that may be missing.
    OptionalLabel,
    /// Numbers of which none may be missing, and which may be infinite.
    Score,
    /// Finite numbers of which none may be missing.
    Feature,
}

/// Distinct texts and their codes.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub codes: Vec<u32>,
    pub names: Vec<String>,
    /// By the bytes of the cell, so that a cell that was seen before is neither checked nor normalized again.
    seen: HashMap<Box<[u8]>, u32>,
    /// By the normalized text.
    by_name: HashMap<String, u32>,
    last: (Vec<u8>, u32),
}

impl Texts {
    #[inline]
    fn known(&mut self, cell: &[u8]) -> Option<u32> {
        if !cell.is_empty() && self.last.0 == cell {
            return Some(self.last.1);
        }
        let code = *self.seen.get(cell)?;
        self.remember(cell, code);
        Some(code)
    }

    fn remember(&mut self, cell: &[u8], code: u32) {
        self.last.0.clear();
        self.last.0.extend_from_slice(cell);
        self.last.1 = code;
    }

    fn add(&mut self, cell: &[u8], name: &str) -> u32 {
        let code = match self.by_name.get(name) {
            Some(&code) => code,
            None => {
                // 2^32 - 1 distinct texts do not fit a machine's memory before they fill the codes.
                let code = self.names.len() as u32;
                self.names.push(name.to_owned());
                self.by_name.insert(name.to_owned(), code);
                code
            }
        };
        self.seen.insert(cell.into(), code);
        self.remember(cell, code);
        code
    }

    fn clear(&mut self) {
        self.codes.clear();
        self.names.clear();
        self.seen.clear();
        self.by_name.clear();
        self.last.0.clear();
    }
}

/// The cells read so far.
#[derive(Debug)]
pub(crate) enum Cells {
    Skip,
    /// Only missing cells so far.
    Undecided(usize),
    Number(Vec<f64>),
    Text(Texts),
}

/// How many places are remembered of cells that cannot be used.
const PLACES: usize = 5;

/// The cells of a column that could not be used, where reading goes on after them.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub count: usize,
    /// The first errors.
    pub first: Vec<Error>,
    /// The first texts, with their files and rows: they may be the mistakes in a column of numbers.
    pub texts: Vec<(Arc<Path>, u64, String)>,
}

/// A column that is being read.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    pub cells: Cells,
    pub want: Want,
    name: String,
    file: Arc<Path>,
    /// Where an [`Want::Auto`] column turned out to be text, for the error when a number follows.
    first_text: Option<(Arc<Path>, u64, String)>,
    /// The files and rows of the first labels that are missing.
    pub unlabeled: Vec<(Arc<Path>, u64)>,
    /// Cells that were passed over; none if they are errors.
    pub refused: Option<Box<Refused>>,
}

impl ColumnBuilder {
    pub(crate) fn new(name: &str, want: Want, file: Arc<Path>) -> Self {
        let cells = match want {
            Want::Skip => Cells::Skip,
            Want::Auto => Cells::Undecided(0),
            Want::Number | Want::Score | Want::Feature => Cells::Number(Vec::new()),
            Want::Text | Want::Label | Want::OptionalLabel => Cells::Text(Texts::default()),
        };
        let name = name.to_owned();
        ColumnBuilder { cells, want, name, file, first_text: None, unlabeled: Vec::new(), refused: None }
    }

    /// Passes over cells that cannot be used from now on: they count as missing and are noted.
    pub(crate) fn pass_over(&mut self) {
        self.refused = Some(Box::default());
    }

    /// A cell that cannot be used: an error, unless such cells are passed over.
    #[cold]
    fn refuse(&mut self, error: Error) -> Result<()> {
        let Some(refused) = &mut self.refused else {
            return Err(error);
        };
        refused.count += 1;
        if refused.first.len() < PLACES {
            refused.first.push(error);
        }
        match &mut self.cells {
            Cells::Skip => {}
            Cells::Undecided(rows) => *rows += 1,
            Cells::Number(values) => values.push(f64::NAN),
            Cells::Text(texts) => texts.codes.push(MISSING),
        }
        Ok(())
    }

    /// The cells that follow are from this file.
    pub(crate) fn set_file(&mut self, file: &Arc<Path>) {
        self.file = Arc::clone(file);
    }

    /// Forgets the cells and keeps the buffers.
    pub(crate) fn clear(&mut self) {
        match &mut self.cells {
            Cells::Skip => {}
            Cells::Undecided(rows) => *rows = 0,
            Cells::Number(values) => values.clear(),
            Cells::Text(texts) => texts.clear(),
        }
    }

    /// Makes room for more rows.
    pub(crate) fn reserve(&mut self, rows: usize) {
        match &mut self.cells {
            Cells::Skip | Cells::Undecided(_) => {}
            Cells::Number(values) => values.reserve_exact(rows),
            Cells::Text(texts) => texts.codes.reserve_exact(rows),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.cells {
            Cells::Skip => 0,
            Cells::Undecided(rows) => *rows,
            Cells::Number(values) => values.len(),
            Cells::Text(texts) => texts.codes.len(),
        }
    }

    /// Whether a number must be given as its text, because its digits are the label or category.
    pub(crate) fn wants_text(&self) -> bool {
        matches!(self.cells, Cells::Text(_))
    }

    /// Appends a cell of a text file.
    #[inline]
    pub(crate) fn push(&mut self, cell: &[u8], row: u64) -> Result<()> {
        self.take(cell, row).or_else(|error| self.refuse(error))
    }

    #[inline]
    fn take(&mut self, cell: &[u8], row: u64) -> Result<()> {
        match &mut self.cells {
            Cells::Skip => Ok(()),
            Cells::Number(values) => match number::parse(cell) {
                Parsed::Number(value) => {
                    values.push(value);
                    Ok(())
                }
                Parsed::Missing if !matches!(self.want, Want::Score | Want::Feature) => {
                    values.push(f64::NAN);
                    Ok(())
                }
                Parsed::Infinite if self.want == Want::Score => {
                    let negative = cell.trim_ascii_start().starts_with(b"-");
                    values.push(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
                    Ok(())
                }
                bad => Err(self.not_a_number(cell, bad, row)),
            },
            Cells::Text(texts) => {
                if let Some(code) = texts.known(cell) {
                    texts.codes.push(code);
                    return Ok(());
                }
                self.push_new_text(cell, row)
            }
            Cells::Undecided(rows) => {
                let missing = *rows;
                match number::parse(cell) {
                    Parsed::Missing => *rows += 1,
                    Parsed::Number(value) => self.become_number(missing, value),
                    Parsed::Infinite => return Err(self.infinite(row)),
                    Parsed::Text => {
                        let text = self.utf8(cell, row)?.to_owned();
                        self.first_text = Some((Arc::clone(&self.file), row, text));
                        let mut texts = Texts::default();
                        texts.codes.resize(missing, MISSING);
                        self.cells = Cells::Text(texts);
                        return self.push_new_text(cell, row);
                    }
                }
                Ok(())
            }
        }
    }

    /// Appends a number; NaN is a missing cell.
    #[inline]
    pub(crate) fn push_number(&mut self, value: f64, row: u64) -> Result<()> {
        match self.want {
            Want::Skip => {}
            Want::Score | Want::Feature if value.is_nan() => return Err(self.missing_number(row)),
            Want::Score => {}
            _ if value.is_infinite() => return self.refuse(self.infinite(row)),
            _ => {}
        }
        match &mut self.cells {
            Cells::Skip => Ok(()),
            Cells::Number(values) => {
                values.push(value);
                Ok(())
            }
            Cells::Undecided(rows) => {
                let missing = *rows;
                if value.is_nan() {
                    *rows += 1;
                } else {
                    self.become_number(missing, value);
                }
                Ok(())
            }
            Cells::Text(_) if value.is_nan() => self.push(b"", row),
            Cells::Text(_) => self.push(number::show(value).as_bytes(), row),
        }
    }

    /// Appends a value from memory. Where texts are wanted, a number is the text of its own precision.
    #[inline]
    pub(crate) fn push_cell(&mut self, cell: Cell<'_>, row: u64) -> Result<()> {
        match cell {
            Cell::Missing => self.push(b"", row),
            Cell::Text(text) => self.push(text.as_bytes(), row),
            Cell::Bool(value) if self.wants_text() => self.push(if value { b"true" } else { b"false" }, row),
            Cell::Bool(value) => self.push_number(f64::from(u8::from(value)), row),
            Cell::Int(value) if self.wants_text() => self.push(value.to_string().as_bytes(), row),
            Cell::Int(value) => self.push_number(value as f64, row),
            Cell::Uint(value) if self.wants_text() => self.push(value.to_string().as_bytes(), row),
            Cell::Uint(value) => self.push_number(value as f64, row),
            Cell::F32(value) if self.wants_text() && value.is_finite() && value != 0.0 => {
                self.push(value.to_string().as_bytes(), row)
            }
            Cell::F32(value) => self.push_number(f64::from(value), row),
            Cell::F64(value) => self.push_number(value, row),
        }
    }

    /// Appends cells that are zero because a sparse row does not have them.
    pub(crate) fn push_zeros(&mut self, count: usize) {
        match &mut self.cells {
            Cells::Skip => {}
            Cells::Number(values) => values.resize(values.len() + count, 0.0),
            Cells::Undecided(rows) => {
                if count > 0 {
                    let mut values = vec![f64::NAN; *rows];
                    values.resize(*rows + count, 0.0);
                    self.cells = Cells::Number(values);
                }
            }
            Cells::Text(texts) => {
                if count > 0 {
                    let code = texts.known(b"0").unwrap_or_else(|| texts.add(b"0", "0"));
                    texts.codes.resize(texts.codes.len() + count, code);
                }
            }
        }
    }

    fn become_number(&mut self, missing: usize, value: f64) {
        let mut values = vec![f64::NAN; missing];
        values.push(value);
        self.cells = Cells::Number(values);
    }

    #[cold]
    fn push_new_text(&mut self, cell: &[u8], row: u64) -> Result<()> {
        let trimmed = cell.trim_ascii();
        if number::is_missing(trimmed) {
            if self.want == Want::Label {
                return Err(Error::data("the label is missing")
                    .at_file(&self.file)
                    .at_row(row)
                    .at_column(self.shown())
                    .hint(
                        "fill in the label or remove the row; an empty cell, NA, N/A, NaN, null, None and ? count as missing",
                    ));
            }
            if self.want == Want::OptionalLabel && self.unlabeled.len() < PLACES {
                self.unlabeled.push((Arc::clone(&self.file), row));
            }
            if let Cells::Text(texts) = &mut self.cells {
                texts.codes.push(MISSING);
            }
            return Ok(());
        }
        if self.want == Want::Auto && matches!(number::parse(trimmed), Parsed::Number(_)) {
            return Err(self.mixed(trimmed, row));
        }
        let text = self.utf8(trimmed, row)?.to_owned();
        if let Some(refused) = self.refused.as_mut().filter(|refused| refused.texts.len() < PLACES) {
            refused.texts.push((Arc::clone(&self.file), row, text.clone()));
        }
        if let Cells::Text(texts) = &mut self.cells {
            let code = texts.add(cell, number::normal(&text));
            texts.codes.push(code);
        }
        Ok(())
    }

    fn utf8<'a>(&self, cell: &'a [u8], row: u64) -> Result<&'a str> {
        std::str::from_utf8(cell).map_err(|_| {
            Error::data("the text is not valid UTF-8")
                .at_file(&self.file)
                .at_row(row)
                .at_column(self.shown())
                .hint("save the file as UTF-8, or convert it with `iconv -t UTF-8`")
        })
    }

    #[cold]
    fn infinite(&self, row: u64) -> Error {
        Error::data("the value is infinite or too large for a 64-bit number")
            .at_file(&self.file)
            .at_row(row)
            .at_column(self.shown())
            .hint("replace it by a finite number, or leave the cell empty if it is missing")
    }

    #[cold]
    fn missing_number(&self, row: u64) -> Error {
        let (what, hint) = match self.want {
            Want::Feature => ("a number is missing", "every row needs all its numbers: drop the row, or fill it in"),
            _ => (
                "the score is missing",
                "every row needs a score: drop the row from the file, or give it one (inf and -inf are allowed)",
            ),
        };
        Error::data(what).at_file(&self.file).at_row(row).at_column(self.shown()).hint(hint)
    }

    #[cold]
    fn not_a_number(&self, cell: &[u8], bad: Parsed, row: u64) -> Error {
        match bad {
            Parsed::Infinite => return self.infinite(row),
            Parsed::Missing => return self.missing_number(row),
            _ => {}
        }
        let text = match self.utf8(cell.trim_ascii(), row) {
            Ok(text) => text,
            Err(error) => return error,
        };
        let hint = if text.contains(',')
            && matches!(number::parse(text.replacen(',', ".", 1).as_bytes()), Parsed::Number(_))
        {
            "write numbers with a decimal point, not a comma".to_owned()
        } else if self.want == Want::Number {
            "the column was numeric in training: correct the cell, or leave it empty if it is missing".to_owned()
        } else if self.want == Want::Feature && row > 1 {
            "features are numbers: correct the cell, or take the column out; `label` names a column of classes"
                .to_owned()
        } else if row == 1 {
            "if the first row holds the column names, give `header` yes".to_owned()
        } else {
            format!(
                "correct the cell or leave it empty; if the column holds categories, give `categorical` \"{}\"",
                self.shown()
            )
        };
        Error::data(format!("{} is not a number, and the column holds numbers", quoted(text)))
            .at_file(&self.file)
            .at_row(row)
            .at_column(self.shown())
            .hint(hint)
    }

    /// A number in a column that began with text. The error names the text cell, which is most often the mistake.
    #[cold]
    fn mixed(&self, number: &[u8], row: u64) -> Error {
        let number = String::from_utf8_lossy(number);
        let error = match &self.first_text {
            Some((file, text_row, text)) => Error::data(format!(
                "{} is not a number, but other cells of the column are (row {row}: {number})",
                quoted(text.trim())
            ))
            .at_file(file)
            .at_row(*text_row),
            None => Error::data(format!("{number} is a number among texts")).at_file(&self.file).at_row(row),
        };
        error.at_column(self.shown()).hint(format!(
            "correct the cell or leave it empty; if the column holds categories, give `categorical` \"{0}\"; to leave it out, `drop` \"{0}\"",
            self.shown()
        ))
    }

    /// The name for an error.
    pub(crate) fn shown(&self) -> &str {
        shown(&self.name)
    }

    /// The finished column; a column without any value is one of missing numbers.
    pub(crate) fn finish(self) -> Option<Column> {
        match self.cells {
            Cells::Skip => None,
            Cells::Undecided(rows) => Some(Column::Number(vec![f64::NAN; rows])),
            Cells::Number(values) => Some(Column::Number(values)),
            Cells::Text(texts) => Some(Column::Text { codes: texts.codes, names: texts.names }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(want: Want) -> ColumnBuilder {
        ColumnBuilder::new("width", want, Path::new("a.csv").into())
    }

    #[test]
    fn a_column_is_what_its_cells_are() {
        let mut b = builder(Want::Auto);
        for cell in ["", "NA", "1.5", "nan", "2"] {
            b.push(cell.as_bytes(), 1).unwrap();
        }
        match b.finish() {
            Some(Column::Number(v)) => {
                assert_eq!(v.len(), 5);
                assert!(v[0].is_nan() && v[1].is_nan() && v[3].is_nan());
                assert_eq!((v[2], v[4]), (1.5, 2.0));
            }
            other => panic!("{other:?}"),
        }

        let mut b = builder(Want::Auto);
        for cell in ["?", "red", " blue ", "red", "blue", ""] {
            b.push(cell.as_bytes(), 1).unwrap();
        }
        assert_eq!(
            b.finish(),
            Some(Column::Text { codes: vec![MISSING, 0, 1, 0, 1, MISSING], names: vec!["red".into(), "blue".into()] })
        );
    }

    #[test]
    fn numbers_and_texts_do_not_mix() {
        let mut b = builder(Want::Auto);
        b.push(b"1", 2).unwrap();
        let e = b.push(b"abc", 3).unwrap_err();
        assert_eq!((e.row(), e.column()), (Some(3), Some("width")));
        assert!(e.hint_text().unwrap().contains("`categorical`"));

        let mut b = builder(Want::Auto);
        b.push(b"abc", 2).unwrap();
        let e = b.push(b"1", 3).unwrap_err();
        assert_eq!(e.row(), Some(2), "the text is the mistake: {e}");
        assert!(e.to_string().contains("\"abc\"") && e.to_string().contains("row 3"));

        let mut b = builder(Want::Text);
        for cell in ["1", "abc", "1.0"] {
            b.push(cell.as_bytes(), 2).unwrap();
        }
        assert_eq!(b.finish(), Some(Column::Text { codes: vec![0, 1, 0], names: vec!["1".into(), "abc".into()] }));
    }

    #[test]
    fn bad_cells_are_named() {
        let mut b = builder(Want::Auto);
        let e = b.push(b"inf", 7).unwrap_err();
        assert_eq!((e.row(), e.column()), (Some(7), Some("width")));
        assert!(e.hint_text().is_some());
        let e = b.push(b"\xff", 8).unwrap_err();
        assert!(e.to_string().contains("UTF-8") && e.hint_text().is_some());
        let mut b = builder(Want::Number);
        let e = b.push(b"1,5", 8).unwrap_err();
        assert!(e.hint_text().unwrap().contains("decimal point"));
        assert!(b.push_number(f64::NEG_INFINITY, 9).is_err());
        let e = builder(Want::Label).push(b" NA", 4).unwrap_err();
        assert!(e.to_string().contains("label is missing") && e.row() == Some(4));
        builder(Want::OptionalLabel).push(b"", 4).unwrap();
    }
}
