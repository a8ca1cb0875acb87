//! A table in memory: columns, labels, and the ways to divide it.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::column::{Column, ColumnBuilder, MISSING, Want};
use super::column_list;
use super::labels::{self, Labels};
use super::recognize::Points;
use super::text::{Notices, count, positional_name, shown};
use crate::error::{Error, Result, Row};

/// The column that held the labels.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LabelColumn {
    /// Its name.
    pub name: String,
    /// Its position among the file's columns, from 0; none where the labels were not in a column.
    pub position: Option<usize>,
}

/// What reading left out of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// The number of rows without a label.
    pub unlabeled: usize,
    /// The files and rows of the first of them.
    pub first: Vec<(Arc<Path>, Row)>,
    /// The number of rows that a class needs.
    pub least: usize,
    /// Classes with fewer rows, and their numbers of rows.
    pub classes: Vec<(String, usize)>,
}

/// Columns of numbers and categories, with a label for each row where there are labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The names of the feature columns.
    pub names: Vec<String>,
    /// Whether the names are from the data; else columns are matched by position.
    pub named: bool,
    /// The feature columns, all of the same length.
    pub columns: Vec<Column>,
    /// The classes of the rows.
    pub labels: Option<Labels>,
    /// Columns left out by [`ReadOptions::drop`]: the position among the feature columns, and the name.
    pub(crate) dropped: Vec<(usize, String)>,
    /// Columns to train on even if they look like an identifier.
    pub(super) kept: Vec<String>,
    pub(super) left_out: LeftOut,
    pub(crate) label_column: Option<LabelColumn>,
    /// Rows with equal numbers belong together: see [`ReadOptions::group`].
    pub(crate) groups: Option<Vec<u32>>,
    pub(super) rows: usize,
    pub(super) files: Vec<Arc<Path>>,
    /// How many rows each file has.
    pub(super) file_rows: Vec<usize>,
    pub(super) notices: Notices,
    pub(super) written: Written,
}

/// How the cells were written and asked for. It helps to read columns whose texts leave two readings, and is no part of what
/// makes two tables equal.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// The separator of a text file.
    pub separator: Option<u8>,
    /// The points of the numbers of each column.
    pub points: Vec<Points>,
    /// The names of the columns that are categories because the caller asked for it.
    pub categorical: Vec<String>,
    /// The rows of the data, from 0, if they are not all there or not in their order.
    pub rows: Vec<u32>,
}

impl PartialEq for Written {
    fn eq(&self, _: &Written) -> bool {
        true
    }
}

impl Table {
    /// A table from an array in row-major order, in single or double precision. NaN is a missing cell.
    ///
    /// # Errors
    /// If the lengths do not fit each other, or a value is infinite.
    pub fn from_rows<T: Copy + Into<f64>, S: AsRef<str>>(
        x: &[T],
        columns: usize,
        labels: Option<&[S]>,
    ) -> Result<Table> {
        if columns == 0 || x.is_empty() || !x.len().is_multiple_of(columns) {
            return Err(Error::data(format!("{} values are not rows of {columns}", x.len()))
                .hint("give rows * columns values, and at least one row"));
        }
        let rows = x.len() / columns;
        if let Some(at) = x.iter().position(|&v| v.into().is_infinite()) {
            return Err(Error::data("the value is infinite")
                .at_row((at / columns + 1) as u64)
                .at_column((at % columns + 1).to_string())
                .hint("replace it by a finite number, or by NaN if it is missing"));
        }
        let labels = match labels {
            Some(labels) if labels.len() != rows => {
                return Err(Error::data(format!("{} for {}", count(labels.len(), "label"), count(rows, "row")))
                    .hint("give one label for each row"));
            }
            Some(labels) => {
                let mut column = ColumnBuilder::new("label", Want::Label, Path::new("").into());
                for (row, label) in labels.iter().enumerate() {
                    column.push(label.as_ref().as_bytes(), row as u64 + 1).map_err(|_| {
                        Error::data("the label is missing")
                            .at_row(row as u64 + 1)
                            .hint("give a label that is not empty, NA, N/A, NaN, null, NULL, None or ?")
                    })?;
                }
                column.finish().and_then(Labels::sorted)
            }
            None => None,
        };
        Ok(Table {
            names: (0..columns).map(positional_name).collect(),
            named: false,
            columns: (0..columns)
                .map(|c| Column::Number(x.iter().skip(c).step_by(columns).map(|&v| v.into()).collect()))
                .collect(),
            labels,
            dropped: Vec::new(),
            kept: Vec::new(),
            left_out: LeftOut::default(),
            label_column: None,
            groups: None,
            rows,
            files: Vec::new(),
            file_rows: Vec::new(),
            notices: Notices::new(),
            written: Written::default(),
        })
    }

    /// A table of columns of equal length, whose names are its own.
    pub(crate) fn assemble(
        names: Vec<String>,
        columns: Vec<Column>,
        labels: Option<Labels>,
        label_column: Option<LabelColumn>,
    ) -> Table {
        Table {
            rows: columns.first().map_or(0, Column::len),
            names,
            named: true,
            columns,
            labels,
            dropped: Vec::new(),
            kept: Vec::new(),
            left_out: LeftOut::default(),
            label_column,
            groups: None,
            files: Vec::new(),
            file_rows: Vec::new(),
            notices: Notices::new(),
            written: Written::default(),
        }
    }

    /// This table, whose listed columns are trained on even if they look like an identifier. They are given as those of
    /// [`ReadOptions::keep`](super::ReadOptions::keep).
    ///
    /// # Errors
    /// If there is no such column.
    pub fn keep_columns(mut self, columns: &[String]) -> Result<Table> {
        self.kept = column_list::find(columns, &self.names)?.into_iter().map(|at| self.names[at].clone()).collect();
        Ok(self)
    }

    /// This table, of which rows with equal numbers are never divided between training and calibration or test rows.
    ///
    /// # Errors
    /// If there is not one number for each row.
    pub fn with_groups(mut self, groups: Vec<u32>) -> Result<Table> {
        if groups.len() != self.rows {
            return Err(Error::data(format!("{} for {}", count(groups.len(), "group"), count(self.rows, "row")))
                .hint("give one group for each row"));
        }
        self.groups = Some(groups);
        Ok(self)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The classes; empty without labels.
    pub fn classes(&self) -> &[String] {
        self.labels.as_ref().map_or(&[], |labels| &labels.names)
    }

    /// The class of a row, as an index into [`Table::classes`].
    pub fn label(&self, row: usize) -> Option<u32> {
        self.labels.as_ref()?.codes.get(row).copied()
    }

    /// The class name of a row.
    pub fn label_name(&self, row: usize) -> Option<&str> {
        self.labels.as_ref()?.name(row)
    }

    /// How many rows each class has.
    pub fn class_sizes(&self) -> Vec<usize> {
        self.labels.as_ref().map_or(Vec::new(), Labels::sizes)
    }

    /// The files that the rows came from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(AsRef::as_ref)
    }

    /// The number of a row in the data that the table was made from, counted from 1 without the header: other than its index
    /// where rows were left out or [selected](Table::select).
    pub fn row_number(&self, row: usize) -> u64 {
        self.written.rows.get(row).map_or(row as u64, |&row| u64::from(row)) + 1
    }

    /// What a row is called: `row 3`, [as it is numbered](Table::row_number) in the data; `b.csv, row 3` for a table of several
    /// files, counted within the file.
    pub fn row_name(&self, row: usize) -> String {
        let row = (self.row_number(row) - 1) as usize;
        let (mut file, mut within) = (None, row);
        if self.file_rows.len() > 1 {
            for (path, &rows) in self.files.iter().zip(&self.file_rows) {
                if within < rows {
                    file = Some(path);
                    break;
                }
                within -= rows;
            }
        }
        match file {
            Some(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                format!("{name}, row {}", within + 1)
            }
            None => format!("row {}", row + 1),
        }
    }

    /// Checks that there are at least two classes, each with at least `rows` rows.
    pub fn check_classes(&self, rows: usize) -> Result<()> {
        let place = |error: Error| {
            let error = match self.files.first() {
                Some(file) => error.at_file(file),
                None => error,
            };
            match &self.label_column {
                Some(label) => error.at_column(shown(&label.name)),
                None => error,
            }
        };
        let remedy = format!(
            "leave these classes out by `min_class={rows}`, or add rows to them; if they are no classes, check `label`"
        );
        labels::check_classes(self.labels.as_ref(), rows, &remedy).map_err(place)
    }

    /// The rows with these indices, in this order; the classes stay.
    ///
    /// # Panics
    /// If an index is not below [`Table::rows`].
    pub fn select(&self, rows: &[usize]) -> Table {
        Table {
            names: self.names.clone(),
            named: self.named,
            columns: self
                .columns
                .iter()
                .map(|column| match column {
                    Column::Number(values) => Column::Number(rows.iter().map(|&r| values[r]).collect()),
                    Column::Text { codes, names } => {
                        Column::Text { codes: rows.iter().map(|&r| codes[r]).collect(), names: names.clone() }
                    }
                })
                .collect(),
            labels: self.labels.as_ref().map(|labels| labels.select(rows)),
            dropped: self.dropped.clone(),
            kept: self.kept.clone(),
            left_out: self.left_out.clone(),
            label_column: self.label_column.clone(),
            groups: self.groups.as_ref().map(|groups| rows.iter().map(|&r| groups[r]).collect()),
            rows: rows.len(),
            files: self.files.clone(),
            file_rows: self.file_rows.clone(),
            notices: self.notices.clone(),
            written: Written {
                rows: rows.iter().map(|&row| (self.row_number(row) - 1) as u32).collect(),
                separator: self.written.separator,
                points: self.written.points.iter().map(|points| points.select(rows)).collect(),
                categorical: self.written.categorical.clone(),
            },
        }
    }

    /// The index of a class. Its name may be a number written in another way.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn class_number(&self, class: &str) -> Result<usize> {
        labels::class_number(self.classes(), class)
    }

    /// Splits off a class: returns the rows of the other classes, and those of the class.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn leave_out(&self, class: &str) -> Result<(Table, Table)> {
        let out = self.class_number(class)?;
        Ok((self.with_classes(|c| c != out), self.with_classes(|c| c == out)))
    }

    /// The rows of some classes; the others are removed from the classes.
    pub fn with_classes(&self, keep: impl Fn(usize) -> bool) -> Table {
        let rows: Vec<usize> = (0..self.rows).filter(|&r| self.label(r).is_some_and(|c| keep(c as usize))).collect();
        let mut table = self.select(&rows);
        if let Some(labels) = &mut table.labels {
            labels.keep_classes(keep);
        }
        table
    }

    /// Writes the table as CSV with a header; the labels are the last column, called `label` unless they had a
    /// name in the data.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_csv(&self, w: impl Write) -> Result<()> {
        let failed = |error: csv::Error| match error.into_kind() {
            csv::ErrorKind::Io(error) => Error::io(error, Path::new("output")),
            other => Error::data(format!("the table cannot be written: {other:?}")),
        };
        let mut writer = csv::Writer::from_writer(w);
        let mut label = match &self.label_column {
            Some(column) if shown(&column.name) == column.name => column.name.clone(),
            _ => "label".to_owned(),
        };
        while self.names.contains(&label) {
            label.push('_');
        }
        let labeled = self.labels.is_some();
        for name in &self.names {
            writer.write_field(name).map_err(failed)?;
        }
        if labeled {
            writer.write_field(&label).map_err(failed)?;
        }
        writer.write_record(None::<&[u8]>).map_err(failed)?;
        let mut text = String::new();
        for row in 0..self.rows {
            for column in &self.columns {
                text.clear();
                match column {
                    Column::Number(values) if values[row].is_nan() => {}
                    Column::Number(values) => {
                        use std::fmt::Write as _;
                        // Writing to a string does not fail.
                        let _ = write!(text, "{}", values[row]);
                    }
                    Column::Text { codes, .. } if codes[row] == MISSING => {}
                    Column::Text { codes, names } => text.push_str(&names[codes[row] as usize]),
                }
                writer.write_field(&text).map_err(failed)?;
            }
            if labeled {
                writer.write_field(self.label_name(row).unwrap_or("")).map_err(failed)?;
            }
            writer.write_record(None::<&[u8]>).map_err(failed)?;
        }
        writer.flush().map_err(|e| Error::io(e, Path::new("output")))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Rows 0, 1, 2, ... with labels in turn.
    pub(in super::super) fn table(rows: usize, classes: &[&str]) -> Table {
        let x: Vec<f32> = (0..rows).map(|row| row as f32).collect();
        let labels: Vec<&str> = classes.iter().copied().cycle().take(rows).collect();
        Table::from_rows(&x, 1, Some(&labels)).unwrap()
    }

    /// The numbers of the first column.
    pub(in super::super) fn rows(table: &Table) -> Vec<f64> {
        match &table.columns[0] {
            Column::Number(values) => values.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn classes_have_an_order() {
        assert_eq!(table(3, &["10", "9", "-1"]).classes(), ["-1", "9", "10"]);
        assert_eq!(table(3, &["10", "9", "b"]).classes(), ["10", "9", "b"]);
        assert_eq!(table(2, &["1.0", "1"]).classes(), ["1"]);
    }

    #[test]
    fn a_class_can_be_left_out() {
        let all = table(7, &["a", "b", "c"]);
        let (rest, out) = all.leave_out("b").unwrap();
        assert_eq!((rest.classes(), rest.rows()), (&["a".to_owned(), "c".into()][..], 5));
        assert_eq!(rows(&rest), [0.0, 2.0, 3.0, 5.0, 6.0]);
        assert_eq!(rest.label_name(1), Some("c"));
        assert_eq!((out.classes(), rows(&out)), (&["b".to_owned()][..], vec![1.0, 4.0]));
        let e = all.leave_out("d").unwrap_err();
        assert!(e.to_string().contains("a, b, c") && e.hint_text().is_some());
        assert!(table(3, &["1", "2"]).leave_out("2.0").is_ok());
    }

    #[test]
    fn classes_are_checked() {
        table(6, &["a", "b"]).check_classes(3).unwrap();
        let e = table(6, &["a", "b"]).check_classes(4).unwrap_err();
        assert!(e.to_string().contains("a (3), b (3)"), "{e}");
        let numbers: Vec<String> = (0..50).map(|i| format!("0.{i}1")).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let e = table(50, &numbers).check_classes(2).unwrap_err();
        assert!(e.to_string().contains("look like numbers"), "{e}");
        let none = Table::from_rows(&[1.0], 1, None::<&[&str]>).unwrap();
        assert!(none.check_classes(1).is_err());
    }
}
