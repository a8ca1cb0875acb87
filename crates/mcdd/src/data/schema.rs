//! Preprocessing: what the columns were in training, and how they become the network's inputs.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::categories::{self, Choice, MAX_CATEGORIES};
use super::column::Column;
use super::convert::convert;
use super::decide::Decisions;
use super::delimited::MAX_COLUMNS;
use super::form::Form;
use super::images::ImageSpec;
use super::table::{LabelColumn, Table};
use super::text::{Notices, count, list, quoted, shown};
use super::time::Cycle;
use crate::error::{Error, Result};

/// Standardized values are clamped to this many deviations, so that sums of squares stay finite in `f32`.
pub const CLAMP: f64 = 1e9;

/// The columns of the training data and their statistics. It is stored in the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// Whether columns are matched by name; else by position.
    pub named: bool,
    /// The feature columns in the order of the training data.
    pub columns: Vec<SchemaColumn>,
    /// The column that held the labels.
    #[serde(default)]
    pub label: Option<LabelColumn>,
    /// The shape and normalization of images, where the model reads images instead of columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
}

/// One column of the training data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchemaColumn {
    /// Its name.
    pub name: String,
    /// How its numbers are written; `None` for plain numbers and for texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// How it becomes inputs.
    #[serde(flatten)]
    pub kind: ColumnKind,
}

/// How a column becomes inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ColumnKind {
    /// One input: `(value - mean) / std`, 0 for a missing cell, clamped to ±[`CLAMP`].
    Numeric {
        /// The mean over the training rows.
        mean: f64,
        /// The standard deviation over the training rows, with the divisor n.
        std: f64,
        /// Whether a second input is 1 where the cell is missing: training had missing cells.
        indicator: bool,
    },
    /// Dates or times. The first input is the time in seconds, as a number; then two for each cycle, sine and cosine; all 0
    /// for a missing cell.
    Time {
        /// The mean over the training rows, in seconds since 1970-01-01, or since midnight for times without a date.
        mean: f64,
        /// The standard deviation over the training rows, with the divisor n.
        std: f64,
        /// The cycles that the training rows show.
        cycles: Vec<Cycle>,
        /// Whether a last input is 1 where the cell is missing.
        indicator: bool,
    },
    /// One input for each category, 1 for the cell's own; all 0 for a missing cell or one not seen in training.
    Categorical {
        /// The categories in training, in the order of their texts.
        categories: Vec<String>,
        /// Whether an input is 1 for all other texts: training had rare ones.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        other: bool,
        /// Whether a last input is 1 where the cell is missing.
        indicator: bool,
    },
    /// No input.
    Dropped {
        /// The reason: `constant`, `empty`, `identifier`, `asked` or `text` (free text).
        why: String,
    },
}

impl ColumnKind {
    /// The number of inputs.
    pub fn width(&self) -> usize {
        match self {
            ColumnKind::Numeric { indicator, .. } => 1 + usize::from(*indicator),
            ColumnKind::Time { cycles, indicator, .. } => 1 + 2 * cycles.len() + usize::from(*indicator),
            ColumnKind::Categorical { categories, other, indicator } => {
                categories.len() + usize::from(*other) + usize::from(*indicator)
            }
            ColumnKind::Dropped { .. } => 0,
        }
    }

    /// Whether training rows lacked cells of this column.
    pub(crate) fn has_indicator(&self) -> bool {
        matches!(self, ColumnKind::Numeric { indicator: true, .. } | ColumnKind::Categorical { indicator: true, .. })
    }
}

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
    /// [`Profile::left_out`]: super::profile::Profile::left_out
    ///
    /// # Errors
    /// As [`Schema::fit`].
    ///
    /// # Panics
    /// As [`Schema::fit`].
    pub fn fit_without(table: &Table, rows: &[usize], identifiers: &[&str]) -> Result<(Schema, Notices)> {
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

        let mut notices = decisions.notices();
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
        Ok((schema, notices))
    }

    /// The inputs of a model that reads images.
    pub fn of_images(image: ImageSpec) -> Schema {
        Schema { named: false, columns: Vec::new(), label: None, image: Some(image) }
    }

    /// The number of network inputs.
    pub fn width(&self) -> usize {
        match &self.image {
            Some(image) => image.shape().values(),
            None => self.columns.iter().map(|c| c.kind.width()).sum(),
        }
    }

    /// An error if the model reads images.
    pub(super) fn check_reads_tables(&self) -> Result<()> {
        match &self.image {
            Some(_) => Err(Error::data("the model reads images, and this is a table").hint("give images")),
            None => Ok(()),
        }
    }

    /// The names of the inputs: `petal width`, `color=red`, `age missing`.
    pub fn input_names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.width());
        for SchemaColumn { name, kind, .. } in &self.columns {
            let indicator = match kind {
                ColumnKind::Numeric { indicator, .. } => {
                    names.push(name.clone());
                    *indicator
                }
                ColumnKind::Time { cycles, indicator, .. } => {
                    names.push(name.clone());
                    let parts =
                        |cycle: &Cycle| ["sine", "cosine"].map(|part| format!("{name} {} {part}", cycle.name()));
                    names.extend(cycles.iter().flat_map(parts));
                    *indicator
                }
                ColumnKind::Categorical { categories, other, indicator } => {
                    names.extend(categories.iter().map(|category| format!("{name}={category}")));
                    names.extend(other.then(|| format!("{name} other")));
                    *indicator
                }
                ColumnKind::Dropped { .. } => false,
            };
            if indicator {
                names.push(format!("{name} missing"));
            }
        }
        names
    }

    /// For each column the position of its name; an error lists the names that are missing.
    pub(crate) fn bind_names(&self, found: &HashMap<&str, usize>, names: &[String]) -> Result<Vec<Option<usize>>> {
        let mut bound = Vec::with_capacity(self.columns.len());
        let mut missing = Vec::new();
        for column in &self.columns {
            let at = found.get(column.name.as_str()).copied();
            if column.kind.width() == 0 {
                bound.push(None);
                continue;
            }
            if at.is_none() {
                missing.push(&column.name);
            }
            bound.push(at);
        }
        match missing.first() {
            None => Ok(bound),
            Some(first) => Err(Error::data(format!(
                "{} of the model {} missing: {}; the file has: {}",
                if missing.len() == 1 { "a column" } else { "columns" },
                if missing.len() == 1 { "is" } else { "are" },
                list(&missing),
                list(names)
            ))
            .at_column(first.as_str())
            .hint("give a file with the columns of the training data, under the same names in its first row")),
        }
    }

    pub(crate) fn wrong_count(&self, found: usize, what: &str) -> Error {
        let needed = self.columns.len();
        Error::data(format!("there are {found} {what} where the model needs {needed}"))
            .at_column((found.min(needed) + 1).to_string())
            .hint(format!("give {needed} columns in the order of the training data, or {} with the label", needed + 1))
    }

    /// Checks a schema from an untrusted file.
    ///
    /// # Errors
    /// If it could not have been made by [`Schema::fit`].
    pub fn validate(&self) -> Result<()> {
        let bad = |message: String| Error::format(message).hint("the model file is damaged: train or fetch it again");
        if let Some(image) = &self.image {
            image.validate()?;
            if !self.columns.is_empty() || self.label.is_some() {
                return Err(bad("the model reads images, but has columns".into()));
            }
            return Ok(());
        }
        if self.columns.len() > MAX_COLUMNS || self.width() > 2 * MAX_COLUMNS {
            return Err(bad("the model has too many columns".into()));
        }
        if self.width() == 0 {
            return Err(bad("the model has no input".into()));
        }
        let mut names = HashSet::new();
        for SchemaColumn { name, form, kind } in &self.columns {
            if !names.insert(name) {
                return Err(bad(format!("the model has two columns {}", quoted(name))));
            }
            if let Some(form) = form {
                form.validate().map_err(|why| bad(format!("the form of the column {}: {why}", quoted(name))))?;
            }
            let fits = match kind {
                ColumnKind::Numeric { .. } => !matches!(form, Some(Form::Time(_))),
                ColumnKind::Time { cycles, .. } => {
                    let distinct = cycles.iter().enumerate().all(|(i, cycle)| !cycles[..i].contains(cycle));
                    matches!(form, Some(Form::Time(_))) && distinct
                }
                ColumnKind::Categorical { .. } | ColumnKind::Dropped { .. } => form.is_none(),
            };
            if !fits {
                return Err(bad(format!("the form of the column {} does not fit its kind", quoted(name))));
            }
            match kind {
                ColumnKind::Numeric { mean, std, .. } | ColumnKind::Time { mean, std, .. } => {
                    if !mean.is_finite() || !std.is_finite() || *std <= 0.0 {
                        return Err(bad(format!("the statistics of the column {} are out of range", quoted(name))));
                    }
                }
                ColumnKind::Categorical { categories, .. } => {
                    let distinct: HashSet<_> = categories.iter().collect();
                    if categories.is_empty() || categories.len() > MAX_CATEGORIES || distinct.len() != categories.len()
                    {
                        return Err(bad(format!("the categories of the column {} are invalid", quoted(name))));
                    }
                }
                ColumnKind::Dropped { .. } => {}
            }
        }
        if let Some(label) = &self.label {
            if self.named && names.contains(&label.name) && label.position.is_some() {
                return Err(bad("the label is a feature as well".into()));
            }
            if label.position.is_some_and(|at| at > self.columns.len()) {
                return Err(bad("the label's position is out of range".into()));
            }
        }
        Ok(())
    }
}

pub(crate) fn no_names() -> Error {
    Error::data("it has no column names, and the model's columns are matched by name")
        .hint("give a file with the training data's column names in its first row, or Parquet")
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
    use super::super::column::MISSING;
    use super::super::form::{Decimal, Group, NumberForm, Words};
    use super::super::time::{DateOrder, TimeForm};
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
        let build = |b: super::super::TableBuilder| b.column("n", &numbers).and_then(|b| b.build()).unwrap();
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

    #[test]
    fn a_foreign_schema_is_checked() {
        let numeric = |name: &str, mean, std| SchemaColumn {
            name: name.into(),
            form: None,
            kind: ColumnKind::Numeric { mean, std, indicator: false },
        };
        let texts = |categories: &[&str]| SchemaColumn {
            name: "t".into(),
            form: None,
            kind: ColumnKind::Categorical {
                categories: categories.iter().map(|&c| c.into()).collect(),
                other: false,
                indicator: false,
            },
        };
        let schema = |columns: Vec<SchemaColumn>, label: Option<(&str, usize)>| Schema {
            named: true,
            columns,
            label: label.map(|(name, at)| LabelColumn { name: name.into(), position: Some(at) }),
            image: None,
        };
        let good = numeric("a", 0.0, 1.0);
        assert!(schema(vec![good.clone()], Some(("y", 1))).validate().is_ok());
        let number =
            |decimal, group, unit: &str| Some(Form::Number(NumberForm { decimal, group, unit: Some(unit.to_owned()) }));
        let when = |order, times, zone| Some(Form::Time(TimeForm { order, times, zone }));
        let formed = |form, column: &SchemaColumn| SchemaColumn { form, ..column.clone() };
        let timed = |form, cycles: &[Cycle]| SchemaColumn {
            name: "d".into(),
            form,
            kind: ColumnKind::Time { mean: 0.0, std: 1.0, cycles: cycles.to_vec(), indicator: false },
        };
        let day = when(DateOrder::DayFirst, false, false);
        for good in [
            formed(number(Decimal::Comma, Some(Group::Point), "€"), &good),
            formed(Some(Form::Boolean(Words::YesNo)), &good),
            timed(day.clone(), &[Cycle::DayOfWeek, Cycle::DayOfYear]),
        ] {
            schema(vec![good], None).validate().unwrap();
        }
        for bad in [
            formed(number(Decimal::Comma, Some(Group::Comma), "%"), &good),
            formed(number(Decimal::Point, None, "parsec"), &good),
            formed(day.clone(), &good),
            formed(day.clone(), &texts(&["x", "y"])),
            timed(None, &[]),
            timed(Some(Form::Boolean(Words::TF)), &[]),
            timed(day, &[Cycle::DayOfWeek, Cycle::DayOfWeek]),
            timed(when(DateOrder::Clock, false, false), &[]),
            timed(when(DateOrder::YearFirst, false, true), &[]),
        ] {
            let e = schema(vec![bad], None).validate().unwrap_err();
            assert!(e.hint_text().is_some(), "{e}");
        }
        for bad in [
            schema(vec![], None),
            schema(vec![good.clone(), good.clone()], None),
            schema(vec![numeric("a", f64::INFINITY, 1.0)], None),
            schema(vec![numeric("a", 0.0, 0.0)], None),
            schema(vec![numeric("a", 0.0, -1.0)], None),
            schema(vec![texts(&[])], None),
            schema(vec![texts(&["x", "x"])], None),
            schema(vec![good.clone()], Some(("a", 0))),
            schema(vec![good.clone()], Some(("y", 2))),
        ] {
            let e = bad.validate().unwrap_err();
            assert!(e.hint_text().is_some(), "{e}");
        }
    }
}
