//! The ways to divide a table.

use super::profile;
use super::split::{self, Groups};
use super::table::Table;
use crate::error::{Error, Result};
use crate::seed;

/// The rows that a sample has of each class at least.
const LEAST_SAMPLED: usize = 10;

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

    /// A random sample of at most `limit` rows, class by class in proportion to their sizes; but of each class at least ten
    /// rows, or all that it has, as far as the limit allows. Rows keep their order.
    ///
    /// # Errors
    /// If `limit` is 0.
    pub fn sample(self, limit: usize, seed: u64) -> Result<Table> {
        let rows = self.rows();
        if limit == 0 {
            return Err(
                Error::setting("a limit of 0 rows leaves nothing").hint("give a larger `limit`, or leave it out")
            );
        }
        if limit >= rows {
            return Ok(self);
        }
        let sizes = self.class_sizes();
        let least = LEAST_SAMPLED.min(limit / sizes.len().max(1));
        let small = |row: &usize| self.label(*row).is_some_and(|class| sizes[class as usize] * limit / rows < least);
        let (mut few, others): (Vec<usize>, Vec<usize>) = (0..rows).partition(small);
        seed::Stream::new(seed, "data/sample").shuffle(&mut few);
        let mut kept = vec![0; sizes.len()];
        few.retain(|&row| {
            let class = self.label(row).unwrap_or(0) as usize;
            kept[class] += 1;
            kept[class] <= least
        });
        let fraction = (limit - few.len()) as f64 / others.len() as f64;
        let (_, some) = match few.is_empty() {
            true => self.split_rows(fraction, seed)?,
            false => self.select(&others).split_rows(fraction, seed)?,
        };
        few.extend(some.into_iter().map(|row| others[row]));
        few.sort_unstable();
        Ok(self.select(&few))
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

    #[test]
    fn a_sample_has_rows_of_every_class() {
        let labels = (0..1000).map(|i| match i {
            0..12 => "rare",
            12..16 => "rarest",
            _ => ["a", "b"][i % 2],
        });
        let table = Table::builder().column("x", 0..1000).unwrap().labels(labels).unwrap().build().unwrap();
        let sizes = |limit: usize, seed: u64| {
            let some = table.clone().sample(limit, seed).unwrap();
            assert_eq!(some.classes().len(), table.classes().len());
            some.class_sizes()
        };
        assert_eq!(sizes(100, 0), [43, 43, 10, 4]);
        assert_eq!(sizes(20, 0)[2..], [5, 4]);
        assert_eq!(sizes(1000, 0), [492, 492, 12, 4]);
        let first = |seed: u64| table.clone().sample(100, seed).unwrap().columns;
        assert!(first(1) == first(1) && first(1) != first(2));
        assert!(table.clone().sample(0, 0).is_err());
        // Where all classes are large it is a part of a split.
        let large = table.without_small_classes(20);
        assert_eq!(large.clone().sample(100, 3).unwrap().columns, large.split(100.0 / 984.0, 3).unwrap().1.columns);
    }
}
