//! Learning the preprocessing from the training rows.

use super::super::categories::{self, Choice};
use super::super::column::Column;
use super::super::convert::convert;
use super::super::decide::Decisions;
use super::super::form::Form;
use super::super::profile::finding::Finding;
use super::super::table::Table;
use super::super::text::{Notices, count, list, shown};
use super::super::time::Cycle;
use super::inputs::{ColumnKind, Schema, SchemaColumn};
use crate::error::{Error, Result};

impl Schema {
    /// Learns the preprocessing from these rows of a table. Statistics and categories are those of these rows, and no
    /// others. How the cells of a column are written is found over all rows of the table, so that all of them can be read.
    ///
    /// # Errors
    /// If no column is left.
    ///
    /// # Panics
    /// If a row is not below [`Table::rows`].
    pub fn fit(table: &Table, rows: &[usize]) -> Result<(Schema, Notices)> {
        Schema::fit_without(table, rows, &[])
    }

    /// As [`Schema::fit`], without some columns that are identifiers ([`Profile::left_out`]). At prediction they may be
    /// there or not.
    ///
    /// [`Profile::left_out`]: super::super::profile::Profile::left_out
    ///
    /// # Errors
    /// As [`Schema::fit`].
    ///
    /// # Panics
    /// As [`Schema::fit`].
    pub fn fit_without(table: &Table, rows: &[usize], identifiers: &[&str]) -> Result<(Schema, Notices)> {
        let (schema, read, more) = Schema::fit_with_findings(table, rows, identifiers)?;
        let notice = |f: &Finding| {
            let names: Vec<&str> = f.columns.iter().map(|name| shown(name)).collect();
            let separator = if f.remedy.is_empty() { "" } else { "; " };
            format!("{}: {}{separator}{}", list(&names), f.what, f.remedy)
        };
        Ok((schema, read.iter().map(notice).chain(more).collect()))
    }

    /// As [`Schema::fit_without`]: how columns were read, and the other notices.
    pub(crate) fn fit_with_findings(
        table: &Table,
        rows: &[usize],
        identifiers: &[&str],
    ) -> Result<(Schema, Vec<Finding>, Notices)> {
        let place = |error: Error| match table.files().next() {
            Some(file) => error.at_file(file),
            None => error,
        };
        if rows.is_empty() {
            return Err(place(Error::data("there are no training rows")).hint("give a file with rows"));
        }
        let mut columns = Vec::with_capacity(table.columns.len() + table.dropped.len());
        let mut dropped = table.dropped.iter().peekable();
        let (mut constant, mut empty) = (Vec::new(), Vec::new());
        let (mut missing_numbers, mut missing_texts) = ((0, 0), (0, 0));
        let mut decisions = Decisions::of(table);
        for (at, (name, column)) in table.names.iter().zip(&table.columns).enumerate() {
            while let Some((_, name)) = dropped.next_if(|(at, _)| *at == columns.len()) {
                columns.push(asked(name));
            }
            let decision = decisions.take(at);
            let (kind, missing) = match (column, &decision) {
                _ if identifiers.contains(&name.as_str()) => (ColumnKind::Dropped { why: "identifier".into() }, 0),
                (_, Some(decision)) => {
                    let converted = convert(&decision.form, column, table.written.points.get(at));
                    let (kind, missing) = fit_form(&decision.form, &converted.values, rows);
                    match &kind {
                        ColumnKind::Dropped { .. } => {}
                        ColumnKind::Time { cycles, .. } => decisions.read(name, decision, cycles),
                        _ => decisions.read(name, decision, &[]),
                    }
                    (kind, missing)
                }
                (Column::Number(values), None) => fit_number(values, rows),
                (Column::Text { codes, names }, None) => {
                    let forced = table.written.categorical.contains(name);
                    let (choice, missing) = categories::choose(codes, names, rows, forced);
                    decisions.chosen(name, &choice, rows.len() - missing);
                    (of_texts(choice, missing), missing)
                }
            };
            match &kind {
                ColumnKind::Dropped { why } if why == "text" || why == "identifier" => {}
                ColumnKind::Dropped { why } if why == "empty" => empty.push(shown(name)),
                ColumnKind::Dropped { .. } => constant.push(shown(name)),
                ColumnKind::Numeric { .. } | ColumnKind::Time { .. } => {
                    missing_numbers.0 += missing;
                    missing_numbers.1 += usize::from(missing > 0);
                }
                ColumnKind::Categorical { .. } => {
                    missing_texts.0 += missing;
                    missing_texts.1 += usize::from(missing > 0);
                }
            }
            let form = decision.map(|d| d.form).filter(|_| kind.width() > 0);
            columns.push(SchemaColumn { name: name.clone(), form, kind });
        }
        columns.extend(dropped.map(|(_, name)| asked(name)));

        let mut notices = Notices::new();
        if !constant.is_empty() {
            notices.push(format!("{} dropped: {}", count(constant.len(), "constant column"), list(&constant)));
        }
        if !empty.is_empty() {
            notices.push(format!("{} without any value dropped: {}", count(empty.len(), "column"), list(&empty)));
        }
        if missing_numbers.0 > 0 {
            notices.push(format!(
                "{} in {} imputed by the training mean",
                count(missing_numbers.0, "missing cell"),
                count(missing_numbers.1, "column")
            ));
        }
        if missing_texts.0 > 0 {
            notices.push(format!(
                "{} in {} of categories taken as no category",
                count(missing_texts.0, "missing cell"),
                count(missing_texts.1, "column")
            ));
        }
        let schema = Schema { named: table.named, columns, label: table.label_column.clone(), image: None };
        if schema.width() == 0 {
            return Err(place(Error::data("no column is left: every one is constant, empty or dropped"))
                .hint("give columns that differ between rows"));
        }
        schema.validate()?;
        Ok((schema, decisions.findings(), notices))
    }
}

impl Schema {
    /// As [`Schema::fit`], where every column is a number and an input of its own, also if it is constant: for a network that was trained
    /// on these columns.
    ///
    /// # Errors
    /// As [`Schema::fit`], and if a column has no numbers.
    pub(crate) fn fit_numbers(table: &Table, rows: &[usize]) -> Result<(Schema, Notices)> {
        let (mut schema, notices) = Schema::fit(table, rows)?;
        for column in &mut schema.columns {
            let values = table.names.iter().position(|name| *name == column.name).map(|at| &table.columns[at]);
            column.kind = match (&column.kind, values) {
                (&ColumnKind::Numeric { mean, std, .. }, _) => ColumnKind::Numeric { mean, std, indicator: false },
                (ColumnKind::Dropped { why }, Some(Column::Number(values))) if why == "constant" => {
                    let mean = rows.iter().map(|&row| values[row]).find(|v| !v.is_nan()).unwrap_or(0.0);
                    ColumnKind::Numeric { mean, std: 1.0, indicator: false }
                }
                (ColumnKind::Dropped { why }, _) if why == "asked" => continue,
                _ => {
                    let error = Error::data("a backbone takes numbers, and this column has others, or none")
                        .at_column(column.name.clone())
                        .hint("leave it out with `drop`");
                    return Err(match table.files().next() {
                        Some(file) => error.at_file(file),
                        None => error,
                    });
                }
            };
        }
        schema.validate()?;
        let constant = |notice: &String| notice.contains("constant column");
        Ok((schema, notices.into_iter().filter(|n| !constant(n)).collect()))
    }
}

fn asked(name: &str) -> SchemaColumn {
    SchemaColumn { name: name.to_owned(), form: None, kind: ColumnKind::Dropped { why: "asked".into() } }
}

fn dropped(why: &str) -> ColumnKind {
    ColumnKind::Dropped { why: why.into() }
}

/// Mean and deviation of the present values, in two passes. Values beyond the square root of the range are
/// scaled by a power of two first, which is exact, so that nothing overflows.
fn fit_number(values: &[f64], rows: &[usize]) -> (ColumnKind, usize) {
    let present = || rows.iter().map(|&row| values[row]).filter(|v| !v.is_nan());
    let Some(first) = present().next() else {
        return (dropped("empty"), rows.len());
    };
    let (mut n, mut largest, mut differs) = (0usize, 0.0f64, false);
    for value in present() {
        n += 1;
        largest = largest.max(value.abs());
        differs |= value != first;
    }
    let missing = rows.len() - n;
    if !differs {
        return (dropped("constant"), missing);
    }
    let scale = if largest > 1e140 {
        2f64.powi(-600)
    } else if largest < 1e-140 {
        2f64.powi(600)
    } else {
        1.0
    };
    let mean = present().map(|v| v * scale).sum::<f64>() / n as f64;
    let square = present().map(|v| v * scale - mean).map(|d| d * d).sum::<f64>() / n as f64;
    let (mean, std) = (mean / scale, square.sqrt() / scale);
    if !std.is_finite() || std <= 0.0 {
        // Differences too small for the arithmetic count as none.
        return (dropped("constant"), missing);
    }
    let indicator = missing > 0;
    (ColumnKind::Numeric { mean, std, indicator }, missing)
}

/// As [`fit_number`], with the cycles of times.
fn fit_form(form: &Form, values: &[f64], rows: &[usize]) -> (ColumnKind, usize) {
    match (form, fit_number(values, rows)) {
        (Form::Time(form), (ColumnKind::Numeric { mean, std, indicator }, missing)) => {
            let present = rows.iter().map(|&row| values[row]).filter(|v| !v.is_nan());
            let cycles = Cycle::shown_by(*form, present);
            (ColumnKind::Time { mean, std, cycles, indicator }, missing)
        }
        (_, fitted) => fitted,
    }
}

/// What a column of texts becomes.
fn of_texts(choice: Choice, missing: usize) -> ColumnKind {
    match choice {
        Choice::Empty => dropped("empty"),
        Choice::Constant => dropped("constant"),
        Choice::FreeText(_) => dropped("text"),
        Choice::Keep(categories, others) => {
            ColumnKind::Categorical { categories, other: others > 0, indicator: missing > 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::categories::MAX_CATEGORIES;
    use super::super::super::column::MISSING;
    use super::*;

    fn numbers(values: &[f64]) -> Table {
        Table::assemble(vec!["a".into()], vec![Column::Number(values.to_vec())], None, None)
    }

    fn all(table: &Table) -> Vec<usize> {
        (0..table.rows()).collect()
    }

    #[test]
    fn statistics_are_those_of_the_training_rows() {
        let table = numbers(&[1.0, 3.0, 1e9, f64::NAN]);
        let (schema, notices) = Schema::fit(&table, &[0, 1]).unwrap();
        assert_eq!(schema.columns[0].kind, ColumnKind::Numeric { mean: 2.0, std: 1.0, indicator: false });
        assert!(notices.is_empty());
        let x = schema.transform(&table, None).unwrap();
        assert_eq!(x, [-1.0, 1.0, 1e9 - 2.0, 0.0]);
    }

    #[test]
    fn no_number_is_too_large_or_too_small() {
        for (values, mean, std) in [
            ([-1e308, 1e308, 1e308, 1e308], 0.5e308, 0.75f64.sqrt() * 1e308),
            ([-1e-300, 1e-300, 1e-300, 1e-300], 0.5e-300, 0.75f64.sqrt() * 1e-300),
            ([1e15, 1e15 + 2.0, 1e15, 1e15 + 2.0], 1e15 + 1.0, 1.0),
        ] {
            let table = numbers(&values);
            let (schema, _) = Schema::fit(&table, &all(&table)).unwrap();
            let ColumnKind::Numeric { mean: m, std: s, .. } = schema.columns[0].kind else { panic!() };
            assert!((m / mean - 1.0).abs() < 1e-12 && (s / std - 1.0).abs() < 1e-12, "{m} {s}");
            schema.validate().unwrap();
            let x = schema.transform(&table, None).unwrap();
            assert!(x.iter().all(|v| v.is_finite()));
        }
        let table = numbers(&[0.0, 1e-300, 0.0, 1.7e308]);
        let (schema, _) = Schema::fit(&table, &[0, 1]).unwrap();
        assert_eq!(schema.transform(&table, Some(&[3])).unwrap(), [1e9]);
    }

    #[test]
    fn constant_and_empty_columns_are_dropped() {
        for values in [&[0.1, 0.1, 0.1][..], &[f64::NAN, 0.1, 0.1]] {
            let table = numbers(values);
            let e = Schema::fit(&table, &all(&table)).unwrap_err();
            assert!(e.to_string().contains("no column is left") && e.hint_text().is_some());
        }
        assert_eq!(fit_number(&[f64::NAN; 2], &[0, 1]).0, dropped("empty"));
    }

    #[test]
    fn an_identifier_is_not_a_category() {
        let names: Vec<String> = (0..=MAX_CATEGORIES).map(|i| format!("id{i}")).collect();
        let numbers: Vec<usize> = (0..names.len()).collect();
        let build = |b: super::super::super::TableBuilder| b.column("n", &numbers).and_then(|b| b.build()).unwrap();
        let table = build(Table::builder().column("id", &names).unwrap());
        let (schema, notices) = Schema::fit(&table, &all(&table)).unwrap();
        assert_eq!(schema.columns[0].kind, dropped("text"));
        assert_eq!(
            notices,
            ["id: text (1001 different texts in 1001 cells); left out, `categorical` \"id\" makes categories of it"]
        );
        // On request they are categories, as many as there may be.
        let table = build(Table::builder().categorical("id", &names).unwrap());
        let (schema, notices) = Schema::fit(&table, &all(&table)).unwrap();
        assert_eq!(schema.width(), MAX_CATEGORIES + 2);
        assert_eq!(notices, ["id: 1000 categories; 1 rarer text is one category, other"]);
        let x = schema.transform(&table, None).unwrap();
        let ones = |row: usize| x[row * schema.width()..][..MAX_CATEGORIES + 1].iter().filter(|v| **v == 1.0).count();
        assert!((0..table.rows()).all(|row| ones(row) == 1));
        assert_eq!(schema.input_names()[MAX_CATEGORIES], "id other");
    }

    #[test]
    fn categories_that_are_numbers_match_by_their_text() {
        let column = Column::Text { codes: vec![0, 1, MISSING], names: vec!["2".into(), "1".into()] };
        let table = Table::assemble(vec!["a".into()], vec![column], None, None);
        let (schema, notices) = Schema::fit(&table, &all(&table)).unwrap();
        assert_eq!(schema.input_names(), ["a=1", "a=2", "a missing"]);
        assert_eq!(notices.len(), 1);
        let x = schema.transform(&numbers(&[1.0, f64::NAN, 3.0]), None).unwrap();
        assert_eq!(x, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    }
}
