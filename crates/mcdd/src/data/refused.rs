//! Cells and rows that cannot be used, where reading goes on after them.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result, Row};

/// How many places are remembered.
pub(super) const PLACES: usize = 5;

/// Cells of a column, or rows, that could not be used.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub count: usize,
    /// The first errors.
    pub first: Vec<Error>,
    /// Of a column, its first texts with their files and rows: they may be the mistakes in a column of numbers.
    pub texts: Vec<(Arc<Path>, Row, String)>,
}

impl Refused {
    pub(super) fn add(&mut self, error: Error) {
        self.count += 1;
        if self.first.len() < PLACES {
            self.first.push(error);
        }
    }
}

/// Rows that could not be used, by what is to be done about them.
#[derive(Debug, Default)]
pub(crate) struct RefusedRows(Vec<Refused>);

impl RefusedRows {
    /// Notes a row.
    ///
    /// # Errors
    /// If the error is not about the data: then reading cannot go on.
    fn add(&mut self, error: Error) -> Result<()> {
        if error.kind() != Kind::Data {
            return Err(error);
        }
        let same = |other: &&mut Refused| other.first.first().is_some_and(|e| e.hint_text() == error.hint_text());
        match self.0.iter_mut().find(same) {
            Some(refused) => refused.add(error),
            None => self.0.push(Refused { count: 1, first: vec![error], texts: Vec::new() }),
        }
        Ok(())
    }

    /// Adds those of another file.
    pub(super) fn append(&mut self, other: RefusedRows) {
        for more in other.0 {
            let hint = more.first.first().and_then(Error::hint_text);
            let same = |refused: &&mut Refused| refused.first.first().and_then(Error::hint_text) == hint;
            match self.0.iter_mut().find(same) {
                Some(refused) => {
                    refused.count += more.count;
                    refused.first.extend(more.first);
                    refused.first.truncate(PLACES);
                }
                None => self.0.push(more),
            }
        }
    }

    /// Whether no row was passed over; what is wrong with a header does not count.
    pub(super) fn no_rows(&self) -> bool {
        !self.0.iter().flat_map(|refused| &refused.first).any(|error| error.row().is_some())
    }

    pub(super) fn kinds(&self) -> &[Refused] {
        &self.0
    }
}

/// What a reader of rows keeps besides their cells: where they begin, and which ones were passed over.
#[derive(Debug, Default)]
pub(crate) struct RowLog {
    /// The lines of a text, or the rows of a worksheet, where the rows that were read last begin, counted from 1.
    pub lines: Vec<u64>,
    /// For each row that was passed over since, how many of those rows lie before it.
    pub gaps: Vec<usize>,
    /// The rows that were passed over; none if they are errors.
    refused: Option<RefusedRows>,
}

impl RowLog {
    /// A log that passes over rows that cannot be used.
    pub(super) fn passing_over() -> RowLog {
        RowLog { refused: Some(RefusedRows::default()), ..RowLog::default() }
    }

    /// Begins with other rows.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.gaps.clear();
    }

    pub(super) fn passes_over(&self) -> bool {
        self.refused.is_some()
    }

    /// A row, or a name in a header, that cannot be used: an error, unless they are passed over.
    pub(super) fn refuse(&mut self, error: Error) -> Result<()> {
        match &mut self.refused {
            Some(refused) => {
                self.gaps.push(self.lines.len());
                refused.add(error)
            }
            None => Err(error),
        }
    }

    /// The rows that were passed over.
    pub(super) fn refused(&mut self) -> RefusedRows {
        self.refused.take().unwrap_or_default()
    }
}
