//! Rows that reading leaves out of a table: those without a label, and those of small classes.

use std::path::Path;
use std::sync::Arc;

use super::column::{Column, MISSING};
use super::column_list;
use super::labels::Labels;
use super::table::Table;
use super::text::{Notices, count, list, shown};
use crate::error::{Error, Result, Row};

/// The first rows of those that are missing something, for a message.
pub(super) fn some_rows(first: &[(Arc<Path>, Row)], all: usize) -> String {
    let one_file = first.windows(2).all(|w| w[0].0 == w[1].0);
    let show = |(file, row): &(Arc<Path>, Row)| match one_file {
        true => row.to_string(),
        false => format!("{row} of {}", file.display()),
    };
    let rows: Vec<String> = first.iter().map(show).collect();
    let more = if all > first.len() { ", …" } else { "" };
    format!("{} {}{more}", if all == 1 { "row" } else { "rows" }, rows.join(", "))
}

impl Table {
    /// Sets the labels from a column of texts. Rows without a label are left out if `skip`, else they are an error;
    /// `first` are the places of the first of them, where they are known, and `unlabeled` is their number if the table is a sample.
    pub(super) fn with_labels(
        mut self,
        column: Column,
        first: Vec<(Arc<Path>, Row)>,
        unlabeled: Option<usize>,
        skip: bool,
    ) -> Result<Table> {
        let Column::Text { codes, names } = column else {
            return Ok(self);
        };
        let labeled: Vec<usize> = (0..codes.len()).filter(|&row| codes[row] != MISSING).collect();
        let missing = unlabeled.unwrap_or(codes.len() - labeled.len());
        let codes: Vec<u32> = labeled.iter().map(|&row| codes[row]).collect();
        if missing > 0 {
            if !skip || labeled.is_empty() {
                return Err(self.unlabeled(missing, &first, labeled.is_empty()));
            }
            self = self.select(&labeled);
            self.left_out.unlabeled = missing;
            self.left_out.first = first;
        }
        // No code is missing any more.
        self.labels = Labels::sorted(Column::Text { codes, names });
        Ok(self)
    }

    fn unlabeled(&self, missing: usize, first: &[(Arc<Path>, Row)], all: bool) -> Error {
        let counts = "an empty cell, NA, N/A, NaN, null, None and ? count as missing";
        let (message, hint) = match (missing, first) {
            _ if all => ("no row has a label".to_owned(), format!("check `label`; {counts}")),
            (1, [(_, row)]) => {
                return self
                    .placed(Error::data("the label is missing").at_row(*row), first)
                    .hint(format!("leave the row out by `skip_unlabeled`, or fill in the label; {counts}"));
            }
            _ => (
                format!("{missing} labels are missing: {}", some_rows(first, missing)),
                format!("leave these rows out by `skip_unlabeled`, or fill in the labels; {counts}"),
            ),
        };
        self.placed(Error::data(message), first).hint(hint)
    }

    fn placed(&self, error: Error, first: &[(Arc<Path>, Row)]) -> Error {
        let error = match first.first() {
            Some((file, _)) => error.at_file(file),
            None => error,
        };
        match &self.label_column {
            Some(label) => error.at_column(shown(&label.name)),
            None => error,
        }
    }

    /// The table without its classes of fewer than `least` rows. [`Table::notices`] names them.
    ///
    /// ```
    /// use mcdd::data::Table;
    ///
    /// let table = Table::builder().column("x", [1, 2, 3, 4])?.labels(["a", "a", "b", "a"])?.build()?;
    /// let table = table.without_small_classes(2);
    /// assert_eq!((table.rows(), table.classes().len()), (3, 1));
    /// assert_eq!(table.notices(), ["1 class with fewer than 2 rows left out: b (1)"]);
    /// # Ok::<(), mcdd::Error>(())
    /// ```
    #[must_use]
    pub fn without_small_classes(self, least: usize) -> Table {
        let sizes = self.class_sizes();
        if sizes.iter().all(|&size| size >= least) {
            return self;
        }
        let small = self.classes().iter().zip(&sizes).filter(|(_, size)| **size < least);
        let small: Vec<(String, usize)> = small.map(|(class, &size)| (class.clone(), size)).collect();
        let mut table = self.with_classes(|class| sizes.get(class).is_some_and(|&size| size >= least));
        table.left_out.least = least;
        table.left_out.classes.extend(small);
        table
    }

    /// Trains on these columns even if they look like an identifier. They are given as [`ReadOptions::keep`].
    ///
    /// [`ReadOptions::keep`]: super::ReadOptions::keep
    ///
    /// # Errors
    /// If there is no such column.
    pub fn keep(&mut self, columns: &[String]) -> Result<()> {
        let found = column_list::find(columns, &self.names)?;
        self.kept.extend(found.into_iter().map(|at| self.names[at].clone()));
        Ok(())
    }

    /// What the user should know about how the files were read, and what was left out: rows without a label, and small
    /// classes.
    pub fn notices(&self) -> Notices {
        let mut notices = self.notices.clone();
        let left_out = &self.left_out;
        if left_out.unlabeled > 0 {
            notices.push(format!("{} without a label left out", count(left_out.unlabeled, "row")));
        }
        if !left_out.classes.is_empty() {
            let named: Vec<String> = left_out.classes.iter().map(|(class, size)| format!("{class} ({size})")).collect();
            notices.push(format!(
                "{} with fewer than {} rows left out: {}",
                if named.len() == 1 { "1 class".to_owned() } else { format!("{} classes", named.len()) },
                left_out.least,
                list(&named)
            ));
        }
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::ReadOptions;
    use super::*;

    const TEXT: &str = "x,class\n1,a\n2,\n3,b\n4,NA\n5,a\n6,?\n7,c\n8,\n9,\n10,a\n11,\n12,b\n";

    fn read(options: &ReadOptions) -> Result<Table> {
        Table::from_bytes(TEXT.as_bytes(), "a.csv", options)
    }

    #[test]
    fn missing_labels_are_an_error_that_names_rows_and_the_setting() {
        let e = read(&ReadOptions::default()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "a.csv, column class: 6 labels are missing: rows 2 (line 3), 4 (line 5), 6 (line 7), 8 (line 9), 9 (line 10), …"
        );
        assert!(e.hint_text().unwrap().contains("`skip_unlabeled`"));
        let one = Table::from_bytes(&b"x,y\n1,a\n2,\n3,b\n"[..], "b.csv", &ReadOptions::default()).unwrap_err();
        assert_eq!(one.to_string(), "b.csv, row 2 (line 3), column y: the label is missing");
        let skip = ReadOptions { skip_unlabeled: true, ..ReadOptions::default() };
        let none = Table::from_bytes(&b"x,y\n1,\n2,NA\n"[..], "c.csv", &skip).unwrap_err();
        assert!(none.to_string().contains("no row has a label"), "{none}");
    }

    #[test]
    fn rows_without_a_label_and_small_classes_are_left_out_and_counted() {
        let skip = ReadOptions { skip_unlabeled: true, ..ReadOptions::default() };
        let table = read(&skip).unwrap();
        assert_eq!(table.columns, [Column::Number(vec![1.0, 3.0, 5.0, 7.0, 10.0, 12.0])]);
        assert_eq!((table.classes().join(","), table.class_sizes()), ("a,b,c".into(), vec![3, 2, 1]));
        assert_eq!(table.notices(), ["6 rows without a label left out"]);
        let table = read(&ReadOptions { min_class: 3, ..skip }).unwrap();
        assert_eq!((table.classes(), table.rows()), (&["a".to_owned()][..], 3));
        assert_eq!(table.notices()[1], "2 classes with fewer than 3 rows left out: b (2), c (1)");
        let e = read(&ReadOptions { skip_unlabeled: true, ..ReadOptions::default() }).unwrap().check_classes(2);
        let e = e.unwrap_err();
        assert!(e.to_string().contains("c (1)") && e.hint_text().unwrap().contains("`min_class=2`"), "{e}");
    }

    #[test]
    fn no_class_is_left() {
        let options = ReadOptions { skip_unlabeled: true, min_class: 99, ..ReadOptions::default() };
        let table = read(&options).unwrap();
        assert_eq!((table.rows(), table.classes().len()), (0, 0));
        let e = table.check_classes(5).unwrap_err();
        assert!(e.to_string().contains("no class is left") && e.hint_text().unwrap().contains("`min_class`"), "{e}");
    }

    #[test]
    fn tables_from_memory_can_skip_unlabeled_rows_too() {
        let start = || Table::builder().column("x", [1, 2, 3]).unwrap();
        assert!(start().labels([Some("a"), None, Some("b")]).is_err());
        let table = start().skip_unlabeled().labels([Some("a"), None, Some("b")]).unwrap().build().unwrap();
        assert_eq!(table.columns, [Column::Number(vec![1.0, 3.0])]);
        assert_eq!((table.label_name(1), table.notices().len()), (Some("b"), 1));
        let none = start().skip_unlabeled().labels([None::<&str>; 3]).unwrap().build().unwrap_err();
        assert!(none.hint_text().is_some());
    }
}
