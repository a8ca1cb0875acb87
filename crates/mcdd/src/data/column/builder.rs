//! A column that is being read, cell by cell.

use std::path::Path;
use std::sync::Arc;

use super::super::cell::Cell;
use super::super::form::Form;
use super::super::kept::Kept;
use super::super::number::{self, Parsed};
use super::super::recognize::{self, Points};
use super::super::refused::{PLACES, Refused};
use super::super::text::quoted;
use super::auto::AutoTexts;
use super::place::Place;
use super::texts::Texts;
use super::values::{Column, MISSING};
use super::want::Want;
use crate::error::{Error, Result, Row};

/// Of the values from `from` on, keeps those that are marked.
fn keep_from<T: Copy>(values: &mut Vec<T>, from: usize, keep: &[bool]) {
    let mut to = from;
    for (at, _) in (from..values.len()).zip(keep).filter(|(_, keep)| **keep) {
        values[to] = values[at];
        to += 1;
    }
    values.truncate(to);
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

/// A column that is being read.
#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    pub cells: Cells,
    pub want: Want,
    /// How numbers are written; `None` for plain numbers.
    pub form: Option<Form>,
    /// Of plain numbers whose form is not known yet.
    pub points: Points,
    place: Place,
    auto: AutoTexts,
    /// The files and rows of the first labels that are missing.
    pub unlabeled: Vec<(Arc<Path>, Row)>,
    /// Cells that were passed over; none if they are errors.
    pub refused: Option<Box<Refused>>,
    /// Its cells as they are in the file, if they are passed through to the output.
    pub kept: Option<Kept>,
}

/// The longest text of a cell, as that of a row in a text file: it is copied several times.
const MAX_TEXT: usize = 64 << 20;

impl ColumnBuilder {
    pub(crate) fn new(name: &str, want: Want, file: Arc<Path>) -> Self {
        let cells = match want {
            Want::Skip => Cells::Skip,
            Want::Auto => Cells::Undecided(0),
            Want::Number | Want::Score | Want::Feature => Cells::Number(Vec::new()),
            Want::Text | Want::Label | Want::OptionalLabel => Cells::Text(Texts::default()),
        };
        // Where the form is known, the points do not matter.
        let points = if want == Want::Auto { Points::default() } else { Points::decimal() };
        ColumnBuilder {
            cells,
            want,
            form: None,
            points,
            place: Place { name: name.to_owned(), file },
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
    pub(crate) fn refuse(&mut self, error: Error) -> Result<()> {
        let Some(refused) = &mut self.refused else {
            return Err(error);
        };
        refused.add(error);
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
        self.place.file = Arc::clone(file);
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

    /// Of the rows from `from` on, keeps those that are marked.
    pub(crate) fn keep_rows(&mut self, from: usize, keep: &[bool]) {
        match &mut self.cells {
            Cells::Skip => return,
            Cells::Undecided(rows) => *rows -= keep.iter().filter(|keep| !**keep).count().min(*rows),
            Cells::Number(values) => keep_from(values, from, keep),
            Cells::Text(texts) => {
                keep_from(&mut texts.codes, from, keep);
                // Classes keep their numbers.
                if from == 0
                    && self.want != Want::OptionalLabel
                    && let Some(kept) = texts.prune()
                {
                    self.auto.select(&kept);
                }
            }
        }
        if !self.points.grouped.is_empty() || self.points.first.is_some_and(|first| first as usize >= from) {
            let rows: Vec<usize> = (0..from).chain((from..).zip(keep).filter(|(_, k)| **k).map(|(r, _)| r)).collect();
            self.points = self.points.select(&rows);
        }
    }

    /// The codes of its texts so far, if it has texts.
    pub(crate) fn codes(&self) -> Option<&[u32]> {
        match &self.cells {
            Cells::Text(texts) => Some(&texts.codes),
            _ => None,
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
            let text = self.place.utf8(cell, row)?;
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
                    Parsed::Infinite => return Err(self.place.infinite(row)),
                    Parsed::Text => {
                        let text = quoted(self.place.utf8(cell, row)?.trim());
                        return Err(self.place.not_in_form(self.form.as_ref(), &text, row));
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
                bad => Err(self.place.not_a_number(self.want, cell, bad, row)),
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
                    Parsed::Infinite => return Err(self.place.infinite(row)),
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
            Want::Score | Want::Feature if value.is_nan() => return Err(self.place.missing_number(self.want, row)),
            Want::Score => {}
            _ if value.is_infinite() => return self.refuse(self.place.infinite(row)),
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
                    None => Err(self.place.not_in_form(self.form.as_ref(), &number::show(value), row)),
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
            Cell::Bool(value) => self.push_bool(value, row),
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

    /// Appends a boolean: a number where numbers are wanted, else the word, so that a table with booleans is read as a text file
    /// with these words.
    pub(crate) fn push_bool(&mut self, value: bool, row: impl Into<Row>) -> Result<()> {
        match self.wants_text() || self.want == Want::Auto {
            true => self.push(if value { b"true" } else { b"false" }, row),
            false => self.push_number(f64::from(u8::from(value)), row),
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
                // With its point, which is then not between thousands.
                false if self.points.first.is_some_and(|first| first as usize == row) => format!("{value:?}"),
                false => number::show(value),
            };
            let code = match value.is_nan() {
                true => MISSING,
                false => texts.known(text.as_bytes()).unwrap_or_else(|| texts.add(text.as_bytes(), &text)),
            };
            texts.codes.push(code);
        }
        self.auto = AutoTexts::of_numbers(&texts);
        self.cells = Cells::Text(texts);
        self.points = Points::decimal();
    }

    #[cold]
    fn push_new_text(&mut self, cell: &[u8], row: Row) -> Result<()> {
        let trimmed = cell.trim_ascii();
        if number::is_missing(trimmed) {
            if self.want == Want::Label {
                return Err(self.place.missing_label(row));
            }
            if self.want == Want::OptionalLabel && self.unlabeled.len() < PLACES {
                self.unlabeled.push((Arc::clone(&self.place.file), row));
            }
            if let Cells::Text(texts) = &mut self.cells {
                texts.codes.push(MISSING);
            }
            return Ok(());
        }
        if trimmed.len() > MAX_TEXT {
            return Err(self.place.too_long(trimmed.len(), MAX_TEXT, row));
        }
        let text = self.place.utf8(trimmed, row)?.to_owned();
        let auto = self.want == Want::Auto;
        if auto {
            self.auto.look(&text, row, &self.place)?;
        }
        if let Some(refused) = self.refused.as_mut().filter(|refused| refused.texts.len() < PLACES) {
            refused.texts.push((Arc::clone(&self.place.file), row, text.clone()));
        }
        if let Cells::Text(texts) = &mut self.cells {
            let known = texts.names.len();
            // The form of the numbers is not known yet, and in some of them a point and zeros count.
            let code = texts.add(cell, if auto { &text } else { number::normal(&text) });
            texts.codes.push(code);
            if auto && texts.names.len() > known {
                self.auto.added(known, row, &self.place);
            }
        }
        Ok(())
    }

    /// Checks the texts of a column that is read whole.
    ///
    /// # Errors
    /// If nearly all cells are numbers or dates in one form: then the others are mistakes.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.cells {
            Cells::Text(texts) if self.want == Want::Auto => self.auto.check(texts, &self.place),
            _ => Ok(()),
        }
    }

    /// The error for a date outside of the calendar.
    #[cold]
    pub(crate) fn no_date(&self, row: impl Into<Row>) -> Error {
        self.place.no_date(row.into())
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.place.name
    }

    /// The name for an error.
    pub(crate) fn shown(&self) -> &str {
        self.place.shown()
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
