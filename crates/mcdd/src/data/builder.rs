//! Tables from values in memory.

use std::path::Path;

use super::cell::Cell;
use super::column::{Column, ColumnBuilder, Want};
use super::recognize::Points;
use super::table::{LabelColumn, Table, Written};
use super::text::{count, positional_name, quoted};
use crate::error::{Error, Result};

/// Puts named columns together to a [`Table`]. It is the table that a Parquet file of the same columns gives.
///
/// ```
/// use mcdd::data::Table;
///
/// let width = [1.5, 0.25, f64::NAN]; // NaN is a missing cell
/// let kind = vec![Some("a"), None, Some("b")];
/// let table = Table::builder()
///     .column("width", &width)?
///     .column("kind", &kind)?
///     .categorical("code", [10_u64, 20, 10])?
///     .labels(["x", "y", "x"])?
///     .build()?;
/// assert_eq!((table.rows(), table.columns.len()), (3, 3));
/// assert_eq!(table.classes(), ["x", "y"]);
/// # Ok::<(), mcdd::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct TableBuilder {
    names: Vec<String>,
    columns: Vec<Column>,
    labels: Option<(LabelColumn, Column)>,
    groups: Option<Vec<u32>>,
    skip_unlabeled: bool,
    rows: Option<usize>,
    written: Written,
}

impl Table {
    /// Starts a table of named columns from values in memory.
    pub fn builder() -> TableBuilder {
        TableBuilder::default()
    }
}

impl TableBuilder {
    /// Appends a column: of numbers, or of texts where none of its values is a number. Texts that are numbers or dates in
    /// some form are read as such by the schema, others are categories. Values are taken as they are: a 64-bit number does
    /// not pass through 32 bits.
    ///
    /// # Errors
    /// If the name is used already, the number of rows differs from the other columns, a number is infinite, or numbers
    /// and texts are mixed. The error names the column and the row, from 1.
    pub fn column<'a, C: Into<Cell<'a>>>(
        self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = C>,
    ) -> Result<Self> {
        self.append(name.into(), Want::Auto, values)
    }

    /// Appends a column of categories, even where its values are numbers or dates.
    ///
    /// # Errors
    /// As [`TableBuilder::column`].
    pub fn categorical<'a, C: Into<Cell<'a>>>(
        self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = C>,
    ) -> Result<Self> {
        self.append(name.into(), Want::Text, values)
    }

    /// Sets the labels, as the column `label`.
    ///
    /// # Errors
    /// As [`TableBuilder::named_labels`].
    pub fn labels<'a, C: Into<Cell<'a>>>(self, values: impl IntoIterator<Item = C>) -> Result<Self> {
        self.named_labels("label", values)
    }

    /// Sets the labels, texts or integers, as a column of this name. Classes are in numeric order if all are numbers,
    /// else in the order of their texts. A file that has this column takes its labels from it at prediction.
    ///
    /// # Errors
    /// If there are labels already, the name is used already, the number of rows differs, or a label is missing.
    pub fn named_labels<'a, C: Into<Cell<'a>>>(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = C>,
    ) -> Result<Self> {
        if self.labels.is_some() {
            return Err(Error::data("the labels are given twice").hint("give one label for each row"));
        }
        let want = if self.skip_unlabeled { Want::OptionalLabel } else { Want::Label };
        let (name, column, _) = self.read(name.into(), want, values)?;
        self.labels = Some((LabelColumn { name, position: Some(self.columns.len()) }, column));
        Ok(self)
    }

    /// Leaves rows without a label out, and counts them ([`Table::notices`]); to be called before the labels are set.
    #[must_use]
    pub fn skip_unlabeled(mut self) -> Self {
        self.skip_unlabeled = true;
        self
    }

    /// Sets a group for each row, texts or integers. Rows of one group are never divided between training and calibration
    /// or test rows; a missing value is a group of its own. It is not a feature.
    ///
    /// # Errors
    /// If the number of rows differs.
    pub fn groups<'a, C: Into<Cell<'a>>>(mut self, values: impl IntoIterator<Item = C>) -> Result<Self> {
        self.groups = Some(self.read("group".into(), Want::Text, values)?.1.into_groups());
        Ok(self)
    }

    /// The table.
    ///
    /// # Errors
    /// If there are no columns or no rows, or no row has a label.
    pub fn build(self) -> Result<Table> {
        if self.columns.is_empty() {
            return Err(Error::data("the table has no columns").hint("give at least one column beside the labels"));
        }
        if self.rows == Some(0) {
            return Err(Error::data("the table has no rows").hint("give at least one row"));
        }
        let (label, labels) = self.labels.unzip();
        let table = Table::assemble(self.names, self.columns, None, label);
        let table = Table { groups: self.groups, written: self.written, ..table };
        match labels {
            Some(labels) => table.with_labels(labels, Vec::new(), None, self.skip_unlabeled),
            None => Ok(table),
        }
    }

    fn append<'a, C: Into<Cell<'a>>>(
        mut self,
        name: String,
        want: Want,
        values: impl IntoIterator<Item = C>,
    ) -> Result<Self> {
        let (name, column, points) = self.read(name, want, values)?;
        if want == Want::Text {
            self.written.categorical.push(name.clone());
        }
        self.written.points.push(points);
        self.names.push(name);
        self.columns.push(column);
        Ok(self)
    }

    fn read<'a, C: Into<Cell<'a>>>(
        &mut self,
        name: String,
        want: Want,
        values: impl IntoIterator<Item = C>,
    ) -> Result<(String, Column, Points)> {
        let name = match name.trim() {
            "" => positional_name(self.columns.len()),
            trimmed if trimmed.len() == name.len() => name,
            trimmed => trimmed.to_owned(),
        };
        let label = self.labels.iter().map(|(label, _)| &label.name);
        if self.names.iter().chain(label).any(|known| *known == name) {
            return Err(Error::data(format!("two columns have the name {}", quoted(&name)))
                .at_column(name)
                .hint("give each column a name of its own"));
        }
        let values = values.into_iter();
        let mut column = ColumnBuilder::new(&name, want, Path::new("").into());
        column.reserve(values.size_hint().0);
        for (value, row) in values.zip(1..) {
            column.push_cell(value.into(), row)?;
        }
        let rows = column.len();
        let expected = *self.rows.get_or_insert(rows);
        if rows != expected {
            return Err(Error::data(format!(
                "the column has {}, and the table has {}",
                count(rows, "value"),
                count(expected, "row")
            ))
            .at_column(name)
            .hint("give one value for each row; None is a missing cell"));
        }
        column.check()?;
        let points = column.points.clone();
        // Only a skipped column has no cells.
        Ok((name, column.finish().unwrap_or_else(|| Column::Number(Vec::new())), points))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_precision() {
        let large = (1_u64 << 53) + 2;
        let table = Table::builder()
            .column("a", [0.1, 1e300])
            .and_then(|b| b.column("b", [large, 1]))
            .and_then(|b| b.column("c", [true, false]))
            .and_then(|b| b.categorical("d", [u64::MAX, u64::MAX - 1]))
            .and_then(|b| b.categorical("e", [Some(0.1_f32), None]))
            .and_then(|b| b.named_labels("kind", [i64::MIN, -1]))
            .and_then(TableBuilder::build)
            .unwrap();
        assert_eq!(table.columns[0], Column::Number(vec![0.1, 1e300]));
        assert_eq!(table.columns[1], Column::Number(vec![large as f64, 1.0]));
        // The words of a text file, which the schema reads as 1 and 0.
        assert_eq!(table.columns[2], Column::Text { codes: vec![0, 1], names: vec!["true".into(), "false".into()] });
        let names = vec!["18446744073709551615".into(), "18446744073709551614".into()];
        assert_eq!(table.columns[3], Column::Text { codes: vec![0, 1], names });
        assert_eq!(table.columns[4], Column::Text { codes: vec![0, u32::MAX], names: vec!["0.1".into()] });
        assert_eq!(table.classes(), ["-9223372036854775808", "-1"]);
        assert_eq!(table.label_column, Some(LabelColumn { name: "kind".into(), position: Some(5) }));
    }

    #[test]
    fn errors_name_column_and_row() {
        let start = || Table::builder().column("a", [1.0, 2.0]).unwrap();
        let e = start().column("b", [1.0, f64::INFINITY]).unwrap_err();
        assert_eq!((e.row(), e.column(), e.file()), (Some(2), Some("b"), None));
        assert!(e.to_string().starts_with("row 2, column b: "), "{e}");
        let e = start().column("b", ["1", "x"]).unwrap_err();
        assert_eq!((e.row(), e.column()), (Some(2), Some("b")));
        for e in [
            start().column("a", [1, 2]).unwrap_err(),
            start().column("b", [1, 2, 3]).unwrap_err(),
            start().labels([Some("x"), None]).unwrap_err(),
            start().labels(["x"]).unwrap_err(),
            start().labels(["x", "y"]).unwrap().labels(["x", "y"]).unwrap_err(),
            start().named_labels("a", ["x", "y"]).unwrap_err(),
            Table::builder().labels(["x"]).unwrap().build().unwrap_err(),
            Table::builder().column("a", [0.0; 0]).unwrap().build().unwrap_err(),
        ] {
            assert!(e.hint_text().is_some(), "{e}");
        }
    }
}
