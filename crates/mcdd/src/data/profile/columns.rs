//! Columns with one value, with nearly one, with too many texts, with missing cells.

use std::collections::HashMap;

use super::super::column::{Column, MISSING};
use super::super::table::Table;
use super::super::text::{count, positional_name, quoted, shown};
use super::finding::{Action, Finding, Problem};

/// A column is nearly constant if at most one of this many cells has another value.
const NEARLY: usize = 1000;
/// Texts from which a column may have too many.
const MANY: usize = 20;

/// Columns without two different values; they are no longer used.
pub(super) fn one_value(table: &Table, used: &mut [bool], findings: &mut Vec<Finding>) {
    let (mut constant, mut empty) = (Vec::new(), Vec::new());
    for ((name, column), used) in table.names.iter().zip(&table.columns).zip(used) {
        let (first, differs) = match column {
            Column::Number(values) => {
                let mut present = values.iter().filter(|v| !v.is_nan());
                let first = present.next();
                (first.is_some(), present.any(|v| Some(v) != first))
            }
            Column::Text { codes, .. } => {
                let mut present = codes.iter().filter(|&&code| code != MISSING);
                let first = present.next();
                (first.is_some(), present.any(|code| Some(code) != first))
            }
        };
        if !differs {
            if *used {
                if first { constant.push(name.as_str()) } else { empty.push(name.as_str()) }
            }
            *used = false;
        }
    }
    for (problem, names, what) in
        [(Problem::Constant, constant, "the same value in every row"), (Problem::Empty, empty, "no value in any row")]
    {
        if !names.is_empty() {
            findings.push(Finding::new(problem, Action::Automatic, &names, what, "left out").count(names.len()));
        }
    }
}

/// Columns of which nearly all cells are equal.
pub(super) fn nearly_constant(table: &Table, columns: &[&Column], used: &[bool], findings: &mut Vec<Finding>) {
    if !has_names(table) || table.rows() < 200 {
        return;
    }
    let most_others = (table.rows() / NEARLY).max(1);
    let nearly = |column: &Column| match column {
        Column::Number(values) => others(values.iter().map(|v| v.to_bits()), most_others),
        Column::Text { codes, .. } => others(codes.iter().map(|&code| u64::from(code)), most_others),
    };
    let found = table.names.iter().zip(columns).zip(used).filter(|((_, column), used)| **used && nearly(column));
    let names: Vec<&str> = found.map(|((name, _), _)| name.as_str()).collect();
    if !names.is_empty() {
        let what = format!("{} at most with another value than all other rows", count(most_others, "row"));
        let remedy = "a new row with another value may look unknown for this alone; leave such a column out by `drop`";
        findings.push(Finding::new(Problem::NearlyConstant, Action::Look, &names, what, remedy).count(names.len()));
    }
}

/// Whether all but `most` values are equal.
fn others(values: impl Iterator<Item = u64> + Clone, most: usize) -> bool {
    // The value of the majority, if there is one (Boyer and Moore).
    let (mut majority, mut votes) = (None, 0usize);
    for value in values.clone() {
        if votes == 0 {
            majority = Some(value);
        }
        if majority == Some(value) { votes += 1 } else { votes -= 1 }
    }
    values.filter(|value| Some(*value) != majority).take(most + 1).count() <= most
}

/// Columns that are categories because the user asked for it, with texts most of which occur once.
pub(super) fn many_texts(table: &Table, used: &[bool], findings: &mut Vec<Finding>) {
    for ((name, column), used) in table.names.iter().zip(&table.columns).zip(used) {
        let Column::Text { codes, .. } = column else {
            continue;
        };
        let mut sizes: HashMap<u32, usize> = HashMap::new();
        codes.iter().filter(|&&code| code != MISSING).for_each(|&code| *sizes.entry(code).or_default() += 1);
        let (texts, cells) = (sizes.len(), sizes.values().sum::<usize>());
        if *used && texts >= MANY && texts * 2 > cells && table.written.categorical.contains(name) {
            let what = format!("{texts} different texts in {}", count(cells, "row"));
            let remedy = format!(
                "a text that occurs once says nothing about new rows; leave it out by `drop` {}",
                quoted(shown(name))
            );
            findings.push(Finding::new(Problem::ManyTexts, Action::Look, &[name], what, remedy).count(texts));
        }
    }
}

/// Missing cells of the columns that are used.
pub(super) fn missing_cells(table: &Table, columns: &[&Column], used: &[bool], findings: &mut Vec<Finding>) {
    let missing = |column: &Column| match column {
        Column::Number(values) => values.iter().filter(|v| v.is_nan()).count(),
        Column::Text { codes, .. } => codes.iter().filter(|&&code| code == MISSING).count(),
    };
    let all = table.names.iter().zip(columns).zip(used).filter(|(_, used)| **used);
    let found: Vec<(&str, usize)> =
        all.map(|((name, column), _)| (name.as_str(), missing(column))).filter(|(_, missing)| *missing > 0).collect();
    if !found.is_empty() {
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        let cells = found.iter().map(|(_, missing)| missing).sum();
        let remedy = "numbers take the mean of the training rows, categories none, and a further input marks the cell";
        let what = count(cells, "missing cell");
        findings.push(Finding::new(Problem::MissingCells, Action::Automatic, &names, what, remedy).count(cells));
    }
}

/// Whether the columns have names of their own: pixels and sensors without any are not worth a word each.
pub(super) fn has_names(table: &Table) -> bool {
    table.named && !(0..table.names.len()).all(|at| table.names[at] == positional_name(at))
}
