//! The errors of a column: each names the file, the row, the column and what to do.

use std::path::Path;
use std::sync::Arc;

use super::super::form::Form;
use super::super::number::{self, Parsed};
use super::super::text::{quoted, shown};
use super::want::Want;
use crate::error::{Error, Result, Row};

/// The name of a column, and the file that its cells are from.
#[derive(Debug)]
pub(super) struct Place {
    pub name: String,
    pub file: Arc<Path>,
}

impl Place {
    /// The name for an error.
    pub(super) fn shown(&self) -> &str {
        shown(&self.name)
    }

    /// An error about the cell of a row.
    pub(super) fn at(&self, error: Error, row: Row) -> Error {
        error.at_file(&self.file).at_row(row).at_column(self.shown())
    }

    /// What to do about a cell that is not what the others are.
    pub(super) fn advice(&self) -> String {
        format!(
            "correct the cell or leave it empty; if the column holds categories, give `categorical` \"{0}\"; to leave it out, `drop` \"{0}\"",
            self.shown()
        )
    }

    /// The text of a cell.
    pub(super) fn utf8<'a>(&self, cell: &'a [u8], row: Row) -> Result<&'a str> {
        std::str::from_utf8(cell).map_err(|_| {
            self.at(Error::data("the text is not valid UTF-8"), row)
                .hint("save the file as UTF-8, or convert it with `iconv -t UTF-8`")
        })
    }

    #[cold]
    pub(super) fn infinite(&self, row: Row) -> Error {
        self.at(Error::data("the value is infinite or too large for a 64-bit number"), row)
            .hint("replace it by a finite number, or leave the cell empty if it is missing")
    }

    /// The error for a text that takes too much memory.
    #[cold]
    pub(super) fn too_long(&self, length: usize, most: usize, row: Row) -> Error {
        let (length, most) = (length >> 20, most >> 20);
        self.at(Error::data(format!("the cell has a text of {length} MiB, and {most} MiB is the most")), row)
            .hint("leave the column out, or make the text shorter")
    }

    /// The error for a date outside of the calendar.
    #[cold]
    pub(super) fn no_date(&self, row: Row) -> Error {
        self.at(Error::data("the date or time is outside of the years 1 to 9999, or of a day"), row)
            .hint("correct the value, or make it null if it is missing")
    }

    #[cold]
    pub(super) fn missing_label(&self, row: Row) -> Error {
        self.at(Error::data("the label is missing"), row)
            .hint("fill in the label or remove the row; an empty cell, NA, N/A, NaN, null, None and ? count as missing")
    }

    #[cold]
    pub(super) fn missing_number(&self, want: Want, row: Row) -> Error {
        let (what, hint) = match want {
            Want::Feature => ("a number is missing", "every row needs all its numbers: drop the row, or fill it in"),
            _ => (
                "the score is missing",
                "every row needs a score: drop the row from the file, or give it one (inf and -inf are allowed)",
            ),
        };
        self.at(Error::data(what), row).hint(hint)
    }

    #[cold]
    pub(super) fn not_in_form(&self, form: Option<&Form>, cell: &str, row: Row) -> Error {
        let error = match form {
            Some(form) => form.refuse(cell),
            None => Error::data(format!("{cell} is not a number")),
        };
        self.at(error, row)
    }

    #[cold]
    pub(super) fn not_a_number(&self, want: Want, cell: &[u8], bad: Parsed, row: Row) -> Error {
        match bad {
            Parsed::Infinite => return self.infinite(row),
            Parsed::Missing => return self.missing_number(want, row),
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
        } else if want == Want::Number {
            "the column was numeric in training: correct the cell, or leave it empty if it is missing".to_owned()
        } else if want == Want::Score {
            "every score is a number: correct the cell, or choose another column by `column`".to_owned()
        } else if want == Want::Feature && !first_line {
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
        self.at(Error::data(format!("{} is not a number, and the column holds numbers", quoted(text))), row).hint(hint)
    }
}
