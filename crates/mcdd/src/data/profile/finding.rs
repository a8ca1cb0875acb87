//! What a finding is.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::text::{list, shown};
use crate::error::Row;

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of problem it is.
    pub problem: Problem,
    /// The columns that it is about; none if it is about rows.
    pub columns: Vec<String>,
    /// What was found, without the names of the columns.
    pub what: String,
    /// Who acts on it.
    pub action: Action,
    /// What is done about it, or what to do. It names settings in backticks.
    pub remedy: String,
    /// How many cells, rows or classes it is about, where that can be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The first places, where they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
}

/// A row of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The row, from 1, the header not counted.
    pub row: u64,
    /// The line of a text, or the row of a worksheet, from 1, everything counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

impl Place {
    pub(in crate::data) fn new(file: &Path, row: Row) -> Place {
        Place { file: file.to_owned(), row: row.number, line: row.line.map(NonZeroU64::get) }
    }
}

/// The kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// No column is given or known as the label.
    NoLabel,
    /// Rows have no label.
    MissingLabels,
    /// Classes have too few rows to train on.
    SmallClasses,
    /// The labels are not classes, or all rows have the same.
    NotClasses,
    /// Rows, cells, or a whole column, cannot be used.
    Unreadable,
    /// A file, or its header, cannot be used.
    File,
    /// How a file is read: its encoding, its sheet.
    Reading,
    /// Cells that are numbers and do not look like it: dates, percentages, numbers with separators.
    Form,
    /// A column of texts most of which occur once.
    ManyTexts,
    /// A column that counts the rows or names each of them.
    Identifier,
    /// All cells of a column are equal.
    Constant,
    /// A column without any value.
    Empty,
    /// Cells are missing.
    MissingCells,
    /// A column that alone gives the label away.
    Leak,
    /// Almost all cells of a column are equal.
    NearlyConstant,
    /// Columns that are copies of others.
    RepeatedColumns,
    /// Rows that are copies of others.
    RepeatedRows,
    /// Rows that are equal except for their label.
    Contradictions,
    /// Classes of very different sizes.
    Imbalance,
}

/// Who acts on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The data must be changed: no setting helps.
    Change,
    /// Training stops unless a setting is given.
    Setting,
    /// Training does it by itself.
    Automatic,
    /// Training works; it is worth a look.
    Look,
}

impl Finding {
    /// A finding about some columns.
    pub(in crate::data) fn new(
        problem: Problem,
        action: Action,
        columns: &[&str],
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            problem,
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            what: what.into(),
            action,
            remedy: remedy.into(),
            count: None,
            places: Vec::new(),
        }
    }

    pub(in crate::data) fn count(mut self, count: usize) -> Finding {
        self.count = Some(count);
        self
    }

    /// The finding in one sentence, with the names of the columns.
    pub fn sentence(&self) -> String {
        let who = match &self.columns[..] {
            [] => String::new(),
            [one] => format!("column {}: ", shown(one)),
            many => format!("columns {}: ", list(&many.iter().map(|name| shown(name)).collect::<Vec<_>>())),
        };
        let separator = if self.remedy.is_empty() { "" } else { "; " };
        format!("{who}{}{separator}{}", self.what, self.remedy)
    }
}
