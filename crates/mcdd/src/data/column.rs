//! Columns, and how they are built cell by cell.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::cell::Cell;
use super::form::Form;
use super::kept::Kept;
use super::number::{self, Parsed};
use super::recognize::{self, FEW_TEXTS, Points};
use super::text::{quoted, shown};
use crate::error::{Error, Result, Row};

/// The code of a missing text cell.
pub const MISSING: u32 = u32::MAX;

/// One column of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers; NaN is a missing cell.
    Number(Vec<f64>),
    /// Texts: categories, or numbers and dates in a form that the schema reads.
    Text {
        /// For each row an index into `names`; [`MISSING`] (`u32::MAX`) is a missing cell.
        codes: Vec<u32>,
        /// The different texts in the order of their appearance.
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

    /// A number for each row: rows with equal cells have equal numbers, and a missing cell is equal to no other.
    pub(super) fn into_groups(self) -> Vec<u32> {
        let (mut codes, mut next) = match self {
            Column::Text { codes, names } => (codes, names.len() as u32),
            Column::Number(values) => (vec![MISSING; values.len()], 0),
        };
        for code in codes.iter_mut().filter(|code| **code == MISSING) {
            *code = next;
            next += 1;
        }
        codes
    }
}

/// What a column of a file is wanted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Not at all: its cells are not looked at.
    Skip,
    /// Numbers, or texts where a cell is not a plain number. Numbers among texts are an error, unless all are numbers in
    /// some form.
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
    /// By the bytes of the cell, so that a cell that was seen before is neither checked nor normalized again; and by the
    /// normalized text.
    seen: HashMap<Box<[u8]>, u32>,
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
        let code = match self.seen.get(name.as_bytes()) {
            Some(&code) => code,
            None => {
                // 2^32 - 1 distinct texts do not fit a machine's memory before they fill the codes.
                let code = self.names.len() as u32;
                self.names.push(name.to_owned());
                self.seen.insert(name.as_bytes().into(), code);
                code
            }
        };
        if cell != name.as_bytes() {
            self.seen.insert(cell.into(), code);
        }
        self.remember(cell, code);
        code
    }

    fn clear(&mut self) {
        self.codes.clear();
        self.names.clear();
        self.seen.clear();
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
    pub texts: Vec<(Arc<Path>, Row, String)>,
}

/// A column that is being read.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    pub cells: Cells,
    pub want: Want,
    /// How numbers are written; `None` for plain numbers.
    pub form: Option<Form>,
    /// Of plain numbers whose form is not known yet.
    pub points: Points,
    name: String,
    file: Arc<Path>,
    auto: AutoTexts,
    /// The files and rows of the first labels that are missing.
    pub unlabeled: Vec<(Arc<Path>, Row)>,
    /// Cells that were passed over; none if they are errors.
    pub refused: Option<Box<Refused>>,
    /// Its cells as they are in the file, if they are passed through to the output.
    pub kept: Option<Kept>,
}

/// What is known about the texts of an [`Want::Auto`] column.
#[derive(Debug, Default)]
struct AutoTexts {
    /// The first text that is not a number in any form, for the error when a number follows.
    word: Option<(Arc<Path>, Row, String)>,
    /// Whether a cell is a plain number.
    plain: bool,
    /// For each text the row where it was first found; row 0 where that is not known.
    rows: Vec<Row>,
    /// The number of texts from which on they are from this file.
    files: Vec<(usize, Arc<Path>)>,
}

impl ColumnBuilder {
    pub(crate) fn new(name: &str, want: Want, file: Arc<Path>) -> Self {
        let cells = match want {
            Want::Skip => Cells::Skip,
            Want::Auto => Cells::Undecided(0),
            Want::Number | Want::Score | Want::Feature => Cells::Number(Vec::new()),
            Want::Text | Want::Label | Want::OptionalLabel => Cells::Text(Texts::default()),
        };
        // Where the form is known, the points do not matter.
        let points = Points { decimal: want != Want::Auto, grouped: Vec::new() };
        ColumnBuilder {
            cells,
            want,
            form: None,
            points,
            name: name.to_owned(),
            file,
            auto: AutoTexts::default(),
            unlabeled: Vec::new(),
            refused: None,
            kept: None,
        }
    }

    /// A column of numbers in this form.
    pub(crate) fn in_form(name: &str, form: Option<Form>, file: Arc<Path>) -> Self {
        ColumnBuilder { form, ..ColumnBuilder::new(name, Want::Number, file) }
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
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
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

    /// Passes a cell through, where that is asked for, and then reads it by `read`.
    pub(crate) fn record(&mut self, cell: Cell<'_>, read: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.suspend(|kept| kept.push(cell), read)
    }

    /// Calls `keep` with the cells that are passed through, if they are, and then `read` without them.
    pub(crate) fn suspend(
        &mut self,
        keep: impl FnOnce(&mut Kept),
        read: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut kept = self.kept.take();
        if let Some(kept) = &mut kept {
            keep(kept);
        }
        let done = read(self);
        self.kept = kept;
        done
    }

    /// Appends a cell of a text file.
    #[inline]
    pub(crate) fn push(&mut self, cell: &[u8], row: impl Into<Row>) -> Result<()> {
        let row = row.into();
        if self.kept.is_some() {
            let text = self.utf8(cell, row)?;
            return self.record(Cell::Text(text), |column| column.push(cell, row));
        }
        self.take(cell, row).or_else(|error| self.refuse(error))
    }

    #[inline]
    fn take(&mut self, cell: &[u8], row: Row) -> Result<()> {
        match &mut self.cells {
            Cells::Skip => Ok(()),
            Cells::Number(values) if self.form.is_some() => {
                match self.form.as_ref().map_or(Parsed::Text, |form| form.parse(cell)) {
                    Parsed::Number(value) => values.push(value),
                    Parsed::Missing => values.push(f64::NAN),
                    Parsed::Infinite => return Err(self.infinite(row)),
                    Parsed::Text => {
                        let text = quoted(self.utf8(cell, row)?.trim());
                        return Err(self.not_in_form(&text, row));
                    }
                }
                Ok(())
            }
            Cells::Number(values) => match number::parse(cell) {
                Parsed::Number(value) => {
                    self.points.note(cell.trim_ascii(), value, values.len());
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
                Parsed::Text
                    if self.want == Want::Auto && std::str::from_utf8(cell).is_ok_and(recognize::number_like) =>
                {
                    self.become_text();
                    self.push(cell, row)
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
                    Parsed::Number(value) => {
                        self.points.note(cell.trim_ascii(), value, missing);
                        self.become_number(missing, value);
                    }
                    Parsed::Infinite => return Err(self.infinite(row)),
                    Parsed::Text => {
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
    pub(crate) fn push_number(&mut self, value: f64, row: impl Into<Row>) -> Result<()> {
        let row = row.into();
        if self.kept.is_some() {
            return self.record(Cell::F64(value), |column| column.push_number(value, row));
        }
        match self.want {
            Want::Skip => {}
            Want::Score | Want::Feature if value.is_nan() => return Err(self.missing_number(row)),
            Want::Score => {}
            _ if value.is_infinite() => return self.refuse(self.infinite(row)),
            _ => {}
        }
        match &mut self.cells {
            Cells::Skip => Ok(()),
            Cells::Number(values) => match &self.form {
                Some(form) => match form.number(value) {
                    Some(value) => {
                        values.push(value);
                        Ok(())
                    }
                    None => Err(self.not_in_form(&number::show(value), row)),
                },
                None => {
                    values.push(value);
                    Ok(())
                }
            },
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
    pub(crate) fn push_cell(&mut self, cell: Cell<'_>, row: impl Into<Row>) -> Result<()> {
        let row = row.into();
        if self.kept.is_some() {
            return self.record(cell, |column| column.push_cell(cell, row));
        }
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
        if let Some(kept) = &mut self.kept {
            (0..count).for_each(|_| kept.push(Cell::Int(0)));
        }
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

    /// Makes texts of the plain numbers so far, because a cell is a number in another form.
    #[cold]
    fn become_text(&mut self) {
        let Cells::Number(values) = &self.cells else {
            return;
        };
        let mut texts = Texts::default();
        let mut grouped = self.points.grouped.iter().peekable();
        for (row, &value) in values.iter().enumerate() {
            // With the zeros at its end, which may be those of thousands.
            let thousands = grouped.next_if(|&&at| at as usize == row).is_some();
            let text = match thousands {
                true => format!("{value:.3}"),
                false => number::show(value),
            };
            let code = match value.is_nan() {
                true => MISSING,
                false => texts.known(text.as_bytes()).unwrap_or_else(|| texts.add(text.as_bytes(), &text)),
            };
            texts.codes.push(code);
        }
        self.auto.plain = !texts.names.is_empty();
        self.auto.rows = vec![Row::from(0); texts.names.len()];
        self.cells = Cells::Text(texts);
        self.points = Points { decimal: true, grouped: Vec::new() };
    }

    #[cold]
    fn push_new_text(&mut self, cell: &[u8], row: Row) -> Result<()> {
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
        let text = self.utf8(trimmed, row)?.to_owned();
        let auto = self.want == Want::Auto;
        if auto {
            let plain = matches!(number::parse(trimmed), Parsed::Number(_));
            if self.auto.word.is_none() && !plain && !recognize::number_like(&text) {
                self.auto.word = Some((Arc::clone(&self.file), row, text.clone()));
            }
            self.auto.plain |= plain;
            if self.auto.plain && self.auto.word.is_some() {
                return Err(self.mixed(trimmed, row));
            }
        }
        if let Some(refused) = self.refused.as_mut().filter(|refused| refused.texts.len() < PLACES) {
            refused.texts.push((Arc::clone(&self.file), row, text.clone()));
        }
        if let Cells::Text(texts) = &mut self.cells {
            let known = texts.names.len();
            // The form of the numbers is not known yet, and in some of them a point and zeros count.
            let code = texts.add(cell, if auto { &text } else { number::normal(&text) });
            texts.codes.push(code);
            if auto && texts.names.len() > known {
                self.auto.rows.resize(known, Row::from(0));
                self.auto.rows.push(row);
                if self.auto.files.last().is_none_or(|(_, file)| *file != self.file) {
                    self.auto.files.push((known, Arc::clone(&self.file)));
                }
            }
        }
        Ok(())
    }

    /// Checks the texts of a column that is read whole.
    ///
    /// # Errors
    /// If nearly all cells are numbers or dates in one form: then the others are mistakes, and the column is not one of
    /// categories.
    pub(crate) fn check(&self) -> Result<()> {
        let Cells::Text(texts) = &self.cells else {
            return Ok(());
        };
        let names: Vec<&str> = texts.names.iter().map(String::as_str).collect();
        let few = names.len() <= FEW_TEXTS && !self.auto.plain;
        if self.want != Want::Auto || few || recognize::find(&names).is_some() {
            return Ok(());
        }
        let Some(found) = recognize::nearly(&names) else {
            return match self.auto.plain {
                true => Err(self.spoiled(0, "a number, as other cells of the column are")),
                false => Ok(()),
            };
        };
        let mut counts = vec![0usize; names.len()];
        for &code in &texts.codes {
            if let Some(count) = counts.get_mut(code as usize) {
                *count += 1;
            }
        }
        let all: usize = counts.iter().sum();
        let others: usize = found.others.iter().map(|&i| counts[i]).sum();
        let Some(&first) = found
            .others
            .iter()
            .find(|&&i| self.auto.rows.get(i).is_none_or(|row| row.number > 0))
            .or(found.others.first())
        else {
            return Ok(());
        };
        if self.auto.plain || others * 10 <= all {
            let most = format!("{}, as {} of {all} cells of the column are", found.form.expected(), all - others);
            return Err(self.spoiled(first, &most));
        }
        Ok(())
    }

    /// The error that a text is not what the other cells are.
    #[cold]
    fn spoiled(&self, text: usize, what: &str) -> Error {
        let name = match &self.cells {
            Cells::Text(texts) => texts.names.get(text).map_or("", String::as_str),
            _ => "",
        };
        let file = self.auto.files.iter().rev().find(|(from, _)| *from <= text).map_or(&self.file, |(_, file)| file);
        let error = Error::data(format!("{} is not {what}", quoted(name))).at_file(file);
        let error = match self.auto.rows.get(text) {
            Some(&row) if row.number > 0 => error.at_row(row),
            _ => error,
        };
        error.at_column(self.shown()).hint(self.advice())
    }

    fn advice(&self) -> String {
        format!(
            "correct the cell or leave it empty; if the column holds categories, give `categorical` \"{0}\"; to leave it out, `drop` \"{0}\"",
            self.shown()
        )
    }

    #[cold]
    fn not_in_form(&self, cell: &str, row: Row) -> Error {
        let error = match &self.form {
            Some(form) => form.refuse(cell),
            None => Error::data(format!("{cell} is not a number")),
        };
        error.at_file(&self.file).at_row(row).at_column(self.shown())
    }

    fn utf8<'a>(&self, cell: &'a [u8], row: Row) -> Result<&'a str> {
        std::str::from_utf8(cell).map_err(|_| {
            Error::data("the text is not valid UTF-8")
                .at_file(&self.file)
                .at_row(row)
                .at_column(self.shown())
                .hint("save the file as UTF-8, or convert it with `iconv -t UTF-8`")
        })
    }

    #[cold]
    fn infinite(&self, row: Row) -> Error {
        Error::data("the value is infinite or too large for a 64-bit number")
            .at_file(&self.file)
            .at_row(row)
            .at_column(self.shown())
            .hint("replace it by a finite number, or leave the cell empty if it is missing")
    }

    /// The error for a date outside of the calendar.
    #[cold]
    pub(crate) fn no_date(&self, row: impl Into<Row>) -> Error {
        Error::data("the date or time is outside of the years 1 to 9999, or of a day")
            .at_file(&self.file)
            .at_row(row)
            .at_column(self.shown())
            .hint("correct the value, or make it null if it is missing")
    }

    #[cold]
    fn missing_number(&self, row: Row) -> Error {
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
    fn not_a_number(&self, cell: &[u8], bad: Parsed, row: Row) -> Error {
        match bad {
            Parsed::Infinite => return self.infinite(row),
            Parsed::Missing => return self.missing_number(row),
            _ => {}
        }
        let text = match self.utf8(cell.trim_ascii(), row) {
            Ok(text) => text,
            Err(error) => return error,
        };
        let first_line = row.line.is_some_and(|line| line.get() == 1);
        let hint = if text.contains(',')
            && matches!(number::parse(text.replacen(',', ".", 1).as_bytes()), Parsed::Number(_))
        {
            "write numbers with a decimal point, not a comma".to_owned()
        } else if self.want == Want::Number {
            "the column was numeric in training: correct the cell, or leave it empty if it is missing".to_owned()
        } else if self.want == Want::Score {
            "every score is a number: correct the cell, or choose another column by `column`".to_owned()
        } else if self.want == Want::Feature && !first_line {
            "features are numbers: correct the cell, or take the column out; `label` names a column of classes"
                .to_owned()
        } else if first_line {
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

    /// A number in a column with a text that is none in any form. The error names the text, which is most often the mistake.
    #[cold]
    fn mixed(&self, cell: &[u8], row: Row) -> Error {
        let cell = String::from_utf8_lossy(cell);
        let error = match &self.auto.word {
            Some((file, text_row, text)) => {
                let number = if *text_row == row { String::new() } else { format!(" (row {row}: {cell})") };
                Error::data(format!(
                    "{} is not a number, but other cells of the column are{number}",
                    quoted(text.trim())
                ))
                .at_file(file)
                .at_row(*text_row)
            }
            None => Error::data(format!("{} is not a number", quoted(&cell))).at_file(&self.file).at_row(row),
        };
        error.at_column(self.shown()).hint(self.advice())
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.name
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
