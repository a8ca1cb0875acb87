//! The ways to divide a table.

use super::profile;
use super::split::{self, Groups};
use super::table::Table;
use crate::error::Result;

impl Table {
    /// Rows that belong together: rows that are equal but for identifiers, and rows of one group
    /// ([`ReadOptions::group`](super::ReadOptions::group)).
    pub(crate) fn groups(&self) -> Groups {
        let used = profile::used_columns(self);
        let columns = self.columns.iter().zip(used).filter(|(_, used)| *used).map(|(column, _)| column);
        Groups::of_columns(columns, self.rows, self.groups.as_deref())
    }

    /// Divides the rows at random, class by class, into parts of about `1 - fraction` and `fraction`; every class keeps
    /// rows in the first part. Equal rows, and rows of one group, stay together. Rows keep their order.
    ///
    /// # Errors
    /// If `fraction` is not between 0 and 1.
    pub fn split(&self, fraction: f64, seed: u64) -> Result<(Table, Table)> {
        let (first, second) = self.split_rows(fraction, seed)?;
        Ok((self.select(&first), self.select(&second)))
    }

    /// The row indices of [`Table::split`].
    ///
    /// # Errors
    /// If `fraction` is not between 0 and 1.
    pub fn split_rows(&self, fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
        split::split_rows(self.labels.as_ref(), &self.groups(), fraction, seed)
    }

    /// Deals the rows into `k` folds at random, class by class. Equal rows, and rows of one group, stay together; if there
    /// are none, folds differ by at most one row in size and in each class. A class whose rows would all be in one fold
    /// is in none. Each fold is in ascending order.
    pub fn folds(&self, k: usize, seed: u64) -> Vec<Vec<usize>> {
        split::folds(self.labels.as_ref(), &self.groups(), k, seed, "folds")
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::{rows, table};
    use super::*;

    #[test]
    fn splits_are_stratified_and_repeatable() {
        let all = table(90, &["a", "b", "a"]);
        let (first, second) = all.split(0.2, 7).unwrap();
        assert_eq!((first.class_sizes(), second.class_sizes()), (vec![48, 24], vec![12, 6]));
        let mut union = [rows(&first), rows(&second)].concat();
        union.sort_by(f64::total_cmp);
        assert_eq!(union, rows(&all));
        assert_eq!(all.split(0.2, 7).unwrap(), (first.clone(), second));
        assert_ne!(all.split(0.2, 8).unwrap().0, first);
        // A class of one row stays in the first part.
        let (first, second) = table(3, &["a", "b", "a"]).split(0.9, 1).unwrap();
        assert_eq!((first.class_sizes(), second.class_sizes()), (vec![1, 1], vec![1, 0]));
        for fraction in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(all.split(fraction, 1).is_err());
        }
    }

    #[test]
    fn folds_are_stratified_and_repeatable() {
        let all = table(31, &["a", "b", "c"]);
        let folds = all.folds(4, 3);
        assert_eq!(folds, all.folds(4, 3));
        assert_ne!(folds, all.folds(4, 4));
        let mut union = folds.concat();
        union.sort_unstable();
        assert_eq!(union, (0..31).collect::<Vec<_>>());
        for fold in &folds {
            assert!((7..=8).contains(&fold.len()));
            let sizes = all.select(fold).class_sizes();
            assert!(sizes.iter().all(|s| (2..=3).contains(s)), "{sizes:?}");
        }
        assert!(all.folds(0, 1).is_empty());
    }

    /// A row counter does not make copies different.
    #[test]
    fn copies_stay_together_whatever_their_identifiers() {
        let copies = |i: usize| f64::from((i / 3) as u32 * 37 % 101);
        let all = Table::builder()
            .column("id", 0..300)
            .and_then(|t| t.column("x", (0..300).map(copies)))
            .and_then(|t| t.labels((0..300).map(|i| if i % 2 == 0 { "a" } else { "b" })))
            .and_then(|t| t.build())
            .unwrap();
        let (first, second) = all.split_rows(0.3, 1).unwrap();
        assert!((60..=120).contains(&second.len()));
        assert!(second.iter().all(|row| first.iter().all(|other| other / 3 != row / 3)));
        for fold in all.folds(4, 2) {
            assert!(
                fold.len() >= 60 && fold.iter().all(|row| (row / 3 * 3..row / 3 * 3 + 3).all(|r| fold.contains(&r)))
            );
        }
    }
}
