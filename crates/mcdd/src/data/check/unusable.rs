//! Cells and rows that cannot be used.

use std::path::Path;
use std::sync::Arc;

use super::super::column::{Cells, ColumnBuilder, MISSING};
use super::super::left_out::some_rows;
use super::super::profile::{Action, Finding, Place, Problem};
use super::super::refused::{Refused, RefusedRows};
use super::super::text::{count, quoted, shown};
use crate::error::{Error, Row};

/// The files and rows of errors.
fn places(errors: &[Error]) -> Vec<(Arc<Path>, Row)> {
    let place = |e: &Error| Some((e.file().unwrap_or(Path::new("")).into(), e.row_and_line()?));
    errors.iter().filter_map(place).collect()
}

/// Rows, and names in a header, that cannot be used: a finding for each kind.
pub(super) fn rows(refused: &RefusedRows) -> Vec<Finding> {
    let (rows, headers): (Vec<&Refused>, Vec<&Refused>) =
        refused.kinds().iter().partition(|kind| kind.first.iter().any(|error| error.row().is_some()));
    headers.into_iter().filter_map(header).chain(rows.into_iter().map(kind)).collect()
}

fn header(refused: &Refused) -> Option<Finding> {
    let (first, others) = refused.first.split_first()?;
    let mut finding = file(first).count(refused.count);
    for error in others {
        let place = error.column().filter(|_| error.file() == first.file());
        let text = place.map_or(error.to_string(), |column| format!("column {column}: {}", error.message()));
        finding.what.push_str(&format!("; {text}"));
    }
    if refused.count > refused.first.len() {
        finding.what.push_str("; …");
    }
    Some(finding)
}

/// A file, or its header, that cannot be used.
pub(super) fn file(error: &Error) -> Finding {
    let remedy = error.hint_text().unwrap_or_default();
    Finding::new(Problem::File, Action::Change, &[], error.to_string(), remedy)
}

fn kind(refused: &Refused) -> Finding {
    let places = places(&refused.first);
    let (first, remedy) = match refused.first.first() {
        Some(error) => (error.message(), error.hint_text().unwrap_or_default()),
        None => ("", ""),
    };
    let what = if refused.first.iter().all(|error| error.message() == first) {
        format!("{}: {first}", some_rows(&places, refused.count))
    } else {
        let each = |(place, error): (&(Arc<Path>, Row), &Error)| {
            format!("{}: {}", some_rows(std::slice::from_ref(place), 1), error.message())
        };
        let each: Vec<String> = places.iter().zip(&refused.first).map(each).collect();
        let more = if refused.count > each.len() { "; …" } else { "" };
        format!("{} cannot be read: {}{more}", count(refused.count, "row"), each.join("; "))
    };
    let mut finding = Finding::new(Problem::Unreadable, Action::Change, &[], what, remedy).count(refused.count);
    finding.places = places.iter().map(|(file, row)| Place::new(file, *row)).collect();
    finding
}

/// The cells of a column that cannot be used, and whether the column may be one of categories: not if that was `tried`.
pub(super) fn cells(name: &str, column: &ColumnBuilder, refused: &Refused, tried: bool) -> (Finding, bool) {
    // How many cells are numbers, how many are not, and whether as categories they would be few.
    let (numbers, texts, few, culprits) = match &column.cells {
        Cells::Number(values) => {
            let mut distinct: Vec<u64> = values.iter().filter(|v| !v.is_nan()).map(|v| v.to_bits()).collect();
            let numbers = distinct.len();
            distinct.sort_unstable();
            distinct.dedup();
            (numbers, refused.count, distinct.len() <= 50, false)
        }
        Cells::Text(found) => {
            let texts = found.codes.iter().filter(|&&code| code != MISSING).count();
            (refused.count, texts, found.names.len() <= 50, texts <= refused.count)
        }
        _ => (0, refused.count, false, false),
    };
    let (what, cells, places) = if culprits {
        let shown: Vec<String> =
            refused.texts.iter().map(|(_, row, text)| format!("{} (row {row})", quoted(text.trim()))).collect();
        let more = if texts > shown.len() { ", …" } else { "" };
        let what = format!(
            "{} in a column of numbers: {}{more}",
            if texts == 1 { "1 cell is not a number".to_owned() } else { format!("{texts} cells are not numbers") },
            shown.join(", ")
        );
        (what, texts, refused.texts.iter().map(|(file, row, _)| Place::new(file, *row)).collect::<Vec<_>>())
    } else {
        let places = places(&refused.first);
        let first = refused.first.first().map_or("", Error::message);
        let what =
            format!("{} cannot be used: {first} ({})", count(refused.count, "cell"), some_rows(&places, refused.count));
        (what, refused.count, places.iter().map(|(file, row)| Place::new(file, *row)).collect())
    };
    // Numbers with a few other cells among them are no categories.
    let categories = few && texts * 4 >= numbers && texts > 0 && !tried;
    let known = quoted(shown(name));
    let remedy = match categories {
        true => format!("take it as categories by `categorical` {known}, or correct the cells"),
        false => format!("correct the cells or leave them empty; else leave the column out by `drop` {known}"),
    };
    let mut finding = Finding::new(Problem::Unreadable, Action::Setting, &[name], what, remedy).count(cells);
    finding.places = places;
    (finding, categories)
}
