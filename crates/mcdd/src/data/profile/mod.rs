//! What is wrong with a table, found before a model is trained on it.
//!
//! [`Profile::of`] lists [`Finding`]s: identifiers and row counters, columns that give the label away, columns and rows that
//! repeat others, columns with one value, classes of very different sizes. [`Model::fit_with`](crate::model::Model::fit_with)
//! leaves identifiers out and reports the rest. [`Check`](super::Check) also gathers what reading the files would stop at.
//!
//! ```
//! use mcdd::data::{Table, profile::{Problem, Profile}};
//!
//! let table = Table::builder()
//!     .column("id", 1..=100)?
//!     .column("width", (0..100).map(|i| f64::from(i * i % 97) / 7.0))?
//!     .labels((0..100).map(|i| if i < 50 { "a" } else { "b" }))?
//!     .build()?;
//! let profile = Profile::of(&table);
//! assert_eq!(profile.findings[0].problem, Problem::Identifier);
//! assert_eq!(profile.left_out(), ["id"]);
//! # Ok::<(), mcdd::Error>(())
//! ```

use serde::Serialize;

mod columns;
pub(super) mod finding;
mod identifier;
mod leak;
mod repeated;
#[cfg(test)]
mod tests;

pub use finding::{Action, Finding, Place, Problem};

use super::categories::{self, Choice};
use super::column::Column;
use super::convert::convert;
use super::decide::Decisions;
use super::form::Form;
use super::labels::Labels;
use super::table::Table;
use super::text::{Notices, count, list, quoted, shown};

/// The findings about a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// The findings, those about identifiers first.
    pub findings: Vec<Finding>,
    /// What reading left out of the table.
    #[serde(skip)]
    reading: Notices,
}

impl Profile {
    /// Looks at the columns, the rows and the labels of a table.
    pub fn of(table: &Table) -> Profile {
        // Columns that are the same in all rows, or left out, tell nothing about the others.
        let mut used = vec![true; table.columns.len()];
        let mut same = Vec::new();
        columns::one_value(table, &mut used, &mut same);
        let read = AsRead::of(table);
        let mut findings = identifiers(table, &read, &mut used);
        findings.append(&mut same);
        free_texts(table, &read, &mut used);
        let columns = read.columns(table);
        leak::find(table, &columns, &used, &mut findings);
        columns::nearly_constant(table, &columns, &used, &mut findings);
        columns::many_texts(table, &used, &mut findings);
        repeated::columns(table, &columns, &used, &mut findings);
        repeated::rows(table, &columns, &used, &mut findings);
        imbalance(table, &mut findings);
        columns::missing_cells(table, &columns, &used, &mut findings);
        Profile { findings, reading: table.notices() }
    }

    /// The columns that are left out of training: identifiers.
    pub fn left_out(&self) -> Vec<&str> {
        self.identifiers().flat_map(|f| &f.columns).map(String::as_str).collect()
    }

    fn identifiers(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.problem == Problem::Identifier && f.action == Action::Automatic)
    }

    /// What is done to the data before training: rows and columns that are left out.
    pub fn notices(&self) -> Notices {
        let mut notices = self.reading.clone();
        let identifiers: Vec<&Finding> = self.identifiers().collect();
        if !identifiers.is_empty() {
            let named: Vec<String> = identifiers
                .iter()
                .map(|f| format!("{} ({})", f.columns.iter().map(|c| shown(c)).collect::<Vec<_>>().join(", "), f.what))
                .collect();
            notices.push(format!(
                "{} left out: {}; `keep` trains on a column",
                count(identifiers.len(), "identifier"),
                list(&named)
            ));
        }
        notices
    }

    /// What is worth a look, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        self.findings.iter().filter(|f| f.action == Action::Look).map(Finding::sentence).collect()
    }
}

/// For each column whether it is trained on: whether it varies and is neither an identifier nor free text.
pub(super) fn used_columns(table: &Table) -> Vec<bool> {
    let mut used = vec![true; table.columns.len()];
    columns::one_value(table, &mut used, &mut Vec::new());
    let read = AsRead::of(table);
    identifiers(table, &read, &mut used);
    free_texts(table, &read, &mut used);
    used
}

/// The columns that training reads as numbers though they are texts: percentages, dates, numbers with separators.
struct AsRead {
    numbers: Vec<Option<Column>>,
    /// Whether these are dates or times.
    times: Vec<bool>,
}

impl AsRead {
    fn of(table: &Table) -> AsRead {
        let decisions = Decisions::of(table);
        let read = |at: usize| {
            let form = decisions.form(at)?;
            Some(Column::Number(convert(form, &table.columns[at], table.written.points.get(at)).values))
        };
        let all = 0..table.columns.len();
        let time = |at| matches!(decisions.form(at), Some(Form::Time(_)));
        AsRead { numbers: all.clone().map(read).collect(), times: all.map(time).collect() }
    }

    /// The columns as training reads them.
    fn columns<'a>(&'a self, table: &'a Table) -> Vec<&'a Column> {
        table.columns.iter().zip(&self.numbers).map(|(column, read)| read.as_ref().unwrap_or(column)).collect()
    }

    /// The same, with dates and times as they are written.
    fn columns_but_times<'a>(&'a self, table: &'a Table) -> Vec<&'a Column> {
        let mut columns = self.columns(table);
        for (at, column) in columns.iter_mut().enumerate().filter(|(at, _)| self.times[*at]) {
            *column = &table.columns[at];
        }
        columns
    }
}

/// Columns of free text are not used, unless there is nothing else.
fn free_texts(table: &Table, read: &AsRead, used: &mut [bool]) {
    let rows: Vec<usize> = (0..table.rows()).collect();
    let free = |at: usize| match &table.columns[at] {
        Column::Text { codes, names } if read.numbers[at].is_none() => {
            let forced = table.written.categorical.contains(&table.names[at]);
            matches!(categories::choose(codes, names, &rows, forced).0, Choice::FreeText(_))
        }
        _ => false,
    };
    let free: Vec<bool> = (0..used.len()).map(|at| used[at] && free(at)).collect();
    if used.iter().zip(&free).any(|(used, free)| *used && !free) {
        used.iter_mut().zip(free).for_each(|(used, free)| *used &= !free);
    }
}

/// Finds identifiers; they are no longer used, unless there is nothing else.
fn identifiers(table: &Table, read: &AsRead, used: &mut [bool]) -> Vec<Finding> {
    let columns = read.columns_but_times(table);
    let found: Vec<(usize, &str)> = identifier::find(table, &columns).into_iter().filter(|&(at, _)| used[at]).collect();
    if !found.is_empty() && found.len() == used.iter().filter(|used| **used).count() {
        let names: Vec<&str> = found.iter().map(|&(at, _)| table.names[at].as_str()).collect();
        let remedy = "it is trained on, because there is no other; a model of it says nothing about new rows";
        return vec![Finding::new(Problem::Identifier, Action::Look, &names, found[0].1, remedy)];
    }
    let left_out = |&(at, why): &(usize, &str)| {
        let name = table.names[at].as_str();
        let remedy = format!("left out; `keep` {} trains on it", quoted(shown(name)));
        Finding::new(Problem::Identifier, Action::Automatic, &[name], why, remedy)
    };
    found.iter().for_each(|&(at, _)| used[at] = false);
    found.iter().map(left_out).collect()
}

/// A class is small beside the largest if it has less than one of this many rows.
const IMBALANCE: usize = 50;

fn imbalance(table: &Table, findings: &mut Vec<Finding>) {
    let sizes = table.labels.as_ref().map_or(Vec::new(), Labels::sizes);
    let Some((largest, &most)) = sizes.iter().enumerate().max_by_key(|(_, size)| **size) else {
        return;
    };
    let small: Vec<String> = table
        .classes()
        .iter()
        .zip(&sizes)
        .filter(|(_, size)| **size > 0 && **size * IMBALANCE < most)
        .map(|(class, size)| format!("{class} ({size})"))
        .collect();
    if !small.is_empty() {
        let what = format!(
            "the largest class, {} ({most}), has over {IMBALANCE} times the rows of {}",
            table.classes()[largest],
            list(&small)
        );
        let remedy = "accuracy says little about the small classes: look at the recall of each";
        findings.push(Finding::new(Problem::Imbalance, Action::Look, &[], what, remedy).count(small.len()));
    }
}
