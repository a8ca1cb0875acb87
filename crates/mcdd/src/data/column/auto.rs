//! The texts of a column whose form is not known yet: numbers and texts do not mix, and a few cells that are not what
//! nearly all others are, are mistakes.

use std::path::Path;
use std::sync::Arc;

use super::super::number::{self, Parsed};
use super::super::recognize::{self, FEW_TEXTS};
use super::super::text::quoted;
use super::place::Place;
use super::texts::Texts;
use crate::error::{Error, Result, Row};

/// What is known about the texts.
#[derive(Debug, Default)]
pub(super) struct AutoTexts {
    /// The first text that is not a number in any form, for the error when a number follows.
    word: Option<(Arc<Path>, Row, String)>,
    /// Whether a cell is a plain number.
    plain: bool,
    /// For each text the row where it was first found; row 0 where that is not known.
    rows: Vec<Row>,
    /// The number of texts from which on they are from this file.
    files: Vec<(usize, Arc<Path>)>,
}

impl AutoTexts {
    /// For a column of plain numbers that became these texts.
    pub(super) fn of_numbers(texts: &Texts) -> AutoTexts {
        let rows = vec![Row::from(0); texts.names.len()];
        AutoTexts { plain: !rows.is_empty(), rows, ..AutoTexts::default() }
    }

    /// Looks at a cell before it is added to the texts.
    ///
    /// # Errors
    /// If it is a number and another cell is none in any form, or the reverse.
    pub(super) fn look(&mut self, text: &str, row: Row, place: &Place) -> Result<()> {
        let plain = matches!(number::parse(text.as_bytes()), Parsed::Number(_));
        if self.word.is_none() && !plain && !recognize::number_like(text) {
            self.word = Some((Arc::clone(&place.file), row, text.to_owned()));
        }
        self.plain |= plain;
        match &self.word {
            Some(word) if self.plain => Err(mixed(word, text, row, place)),
            _ => Ok(()),
        }
    }

    /// A text was added: `known` others came before it.
    pub(super) fn added(&mut self, known: usize, row: Row, place: &Place) {
        self.rows.resize(known, Row::from(0));
        self.rows.push(row);
        if self.files.last().is_none_or(|(_, file)| *file != place.file) {
            self.files.push((known, Arc::clone(&place.file)));
        }
    }

    /// Only the texts at these places are left, in order.
    pub(super) fn select(&mut self, kept: &[usize]) {
        self.rows = kept.iter().map(|&at| self.rows.get(at).copied().unwrap_or(Row::from(0))).collect();
        for (from, _) in &mut self.files {
            *from = kept.partition_point(|at| at < from);
        }
    }

    /// Checks the texts of a column that is read whole.
    ///
    /// # Errors
    /// If nearly all cells are numbers or dates in one form: then the others are mistakes, and the column is not one of
    /// categories.
    pub(super) fn check(&self, texts: &Texts, place: &Place) -> Result<()> {
        let names: Vec<&str> = texts.names.iter().map(String::as_str).collect();
        let few = names.len() <= FEW_TEXTS && !self.plain;
        if few || recognize::find(&names).is_some() {
            return Ok(());
        }
        let Some(found) = recognize::nearly(&names) else {
            return match self.plain {
                true => Err(self.spoiled(0, &names, "a number, as other cells of the column are", place)),
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
        let Some(&first) =
            found.others.iter().find(|&&i| self.rows.get(i).is_none_or(|row| row.number > 0)).or(found.others.first())
        else {
            return Ok(());
        };
        if self.plain || others * 10 <= all {
            let most = format!("{}, as {} of {all} cells of the column are", found.form.expected(), all - others);
            return Err(self.spoiled(first, &names, &most, place));
        }
        Ok(())
    }

    /// The error that a text is not what the other cells are.
    #[cold]
    fn spoiled(&self, text: usize, names: &[&str], what: &str, place: &Place) -> Error {
        let name = names.get(text).copied().unwrap_or_default();
        let file = self.files.iter().rev().find(|(from, _)| *from <= text).map_or(&place.file, |(_, file)| file);
        let error = Error::data(format!("{} is not {what}", quoted(name))).at_file(file);
        let error = match self.rows.get(text) {
            Some(&row) if row.number > 0 => error.at_row(row),
            _ => error,
        };
        error.at_column(place.shown()).hint(place.advice())
    }
}

/// A number in a column with a text that is none in any form. The error names the text, which is most often the mistake.
#[cold]
fn mixed((file, text_row, text): &(Arc<Path>, Row, String), cell: &str, row: Row, place: &Place) -> Error {
    let number = if *text_row == row { String::new() } else { format!(" (row {row}: {cell})") };
    Error::data(format!("{} is not a number, but other cells of the column are{number}", quoted(text.trim())))
        .at_file(file)
        .at_row(*text_row)
        .at_column(place.shown())
        .hint(place.advice())
}
