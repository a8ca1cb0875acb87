//! A sample of the rows of a table that is too large to be trained on as a whole, drawn while it is read.
//!
//! Every row has a random key, which depends on the seed and on its place in the data alone. A tenth of
//! the limit is divided evenly between the classes: each keeps so many of its rows, those with the smallest keys, so that a small
//! class is kept whole. The rest of the limit goes to the smallest keys of all other rows. Memory holds little more than the sample.

use super::column::{ColumnBuilder, MISSING};
use crate::seed::Stream;

/// How many rows of a table are kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLimit {
    /// The number of rows.
    pub rows: usize,
    /// The number of cells, for tables with many columns.
    pub cells: usize,
    /// The seed of the random sample.
    pub seed: u64,
}

impl RowLimit {
    /// What training takes without being asked: more rows than its steps see of a large table, and bounded memory.
    pub fn for_training(seed: u64) -> RowLimit {
        RowLimit { rows: 1_000_000, cells: 100_000_000, seed }
    }

    fn of(self, columns: usize) -> usize {
        self.rows.min(self.cells / columns.max(1)).max(1)
    }
}

/// How many rows more than one and a half times the limit are kept before some are dropped.
const SLACK: usize = 4096;

/// The class of a row without a label, among the codes of classes.
const UNLABELED: u32 = MISSING;

/// Which rows are kept, while a table is read.
#[derive(Debug)]
pub(super) struct Sampler {
    limit: usize,
    /// The number of rows of a class that are kept in any case, at least.
    least: usize,
    key: u64,
    /// The rows that are kept so far, and possibly not in the end: their numbers in the data, from 0, and classes.
    rows: Vec<(u32, u32)>,
    /// The number of rows of each class that were read, and the key above which they are dropped.
    classes: Vec<(usize, u64)>,
    /// The same for rows without a label.
    unlabeled: (usize, u64),
    /// The number of rows that were read.
    seen: usize,
    /// Above this key, too, a row is dropped at once.
    highest: u64,
}

impl Sampler {
    /// For a table of this many columns, whose classes need `least` rows.
    pub(super) fn new(limit: RowLimit, columns: usize, least: usize) -> Sampler {
        Sampler {
            limit: limit.of(columns),
            least,
            key: Stream::new(limit.seed, "row sample").next_u64(),
            rows: Vec::new(),
            classes: Vec::new(),
            unlabeled: (0, u64::MAX),
            seen: 0,
            highest: u64::MAX,
        }
    }

    /// How many more rows are kept at most until some are dropped.
    pub(super) fn room(&self) -> usize {
        self.most() + SLACK - self.rows.len().min(self.most())
    }

    /// With more rows than this some are dropped.
    fn most(&self) -> usize {
        self.limit + self.limit / 2 + SLACK
    }

    /// The number of rows without a label that were read.
    pub(super) fn unlabeled(&self) -> usize {
        self.unlabeled.0
    }

    /// The key of a row: a bijective mixture of its number (the finalizer of SplitMix64).
    fn key(&self, row: u32) -> u64 {
        let mut z = self.key.wrapping_add(u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The number of rows of each class that are kept in any case.
    fn floor(&self) -> usize {
        (self.limit / 10 / self.classes.len().max(1)).max(self.least)
    }

    /// Looks at `count` rows that were read into the end of the columns, and drops some of them. `labels` is the column of labels
    /// among the columns, or the only one of `side`.
    pub(super) fn read(
        &mut self,
        count: usize,
        columns: &mut [ColumnBuilder],
        label: Option<usize>,
        side: &mut [ColumnBuilder],
    ) {
        let before = self.rows.len();
        let codes = label.and_then(|at| columns.get(at)).or(side.first()).and_then(ColumnBuilder::codes);
        let codes = codes.map(|codes| codes.get(before..).unwrap_or_default());
        let mut keep = Vec::with_capacity(count);
        for at in 0..count {
            let class = codes.map_or(0, |codes| codes.get(at).copied().unwrap_or(UNLABELED));
            // Rows have numbers of 32 bits; those beyond are passed over.
            let row = u32::try_from(self.seen).ok();
            let key = row.map_or(u64::MAX, |row| self.key(row));
            let (seen, highest) = match class {
                UNLABELED => &mut self.unlabeled,
                class => {
                    let needed = class as usize + 1;
                    if self.classes.len() < needed {
                        self.classes.resize(needed, (0, u64::MAX));
                    }
                    &mut self.classes[class as usize]
                }
            };
            *seen += 1;
            let kept = row.filter(|_| key <= self.highest || key <= *highest);
            self.seen += 1;
            keep.push(kept.is_some());
            self.rows.extend(kept.map(|row| (row, class)));
        }
        if keep.contains(&false) {
            columns.iter_mut().chain(side.iter_mut()).for_each(|column| column.keep_rows(before, &keep));
        }
        if self.rows.len() > self.most() {
            let most = self.limit;
            self.reduce(most, columns, side);
        }
    }

    /// At the end: only the sample is left.
    pub(super) fn finish(&mut self, columns: &mut [ColumnBuilder], side: &mut [ColumnBuilder]) {
        if self.seen <= self.limit {
            return;
        }
        let fixed: usize =
            self.classes.iter().chain([&self.unlabeled]).map(|(rows, _)| (*rows).min(self.floor())).sum();
        self.reduce(self.limit.saturating_sub(fixed), columns, side);
    }

    /// Keeps the first rows of each class, and of the others as many as `most`, in the order of their keys.
    fn reduce(&mut self, most: usize, columns: &mut [ColumnBuilder], side: &mut [ColumnBuilder]) {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_unstable_by_key(|&at| self.key(self.rows[at].0));
        let floor = self.floor();
        // Of each class, the last for rows without a label, how many are kept, and the highest key of these.
        let mut kept_of = vec![(0usize, u64::MAX); self.classes.len() + 1];
        let mut keep = vec![false; self.rows.len()];
        let mut others = 0;
        for at in order {
            let (row, class) = self.rows[at];
            let (kept, highest) = &mut kept_of[(class as usize).min(self.classes.len())];
            if *kept < floor {
                *kept += 1;
                *highest = if *kept == floor { self.key(row) } else { u64::MAX };
                keep[at] = true;
            } else if others < most {
                others += 1;
                keep[at] = true;
                self.highest = if others == most { self.key(row) } else { self.highest };
            }
        }
        for ((_, old), (_, new)) in self.classes.iter_mut().chain([&mut self.unlabeled]).zip(kept_of) {
            *old = new;
        }
        columns.iter_mut().chain(side).for_each(|column| column.keep_rows(0, &keep));
        let mut keep = keep.into_iter();
        self.rows.retain(|_| keep.next().unwrap_or(true));
    }

    /// The numbers of the kept rows in the data, from 0, and the number of all rows; none if all rows were kept.
    pub(super) fn outcome(self) -> Option<(Vec<u32>, usize)> {
        (self.seen > self.rows.len()).then(|| (self.rows.into_iter().map(|(row, _)| row).collect(), self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::super::column::Want;
    use super::super::{ReadOptions, Table};
    use super::*;
    use std::collections::BTreeMap;

    /// A table whose first column is the row number: `rows` of class a, one in 50 of b, and 7 of c.
    fn text(rows: usize) -> String {
        let class = |i: usize| match i {
            i if i % 997 == 5 && i < 7 * 997 => "c",
            i if i % 50 == 0 => "b",
            _ => "a",
        };
        let row = |i: usize| format!("{i},{}.5,t{},{}\n", i % 13, i % 4, class(i));
        "n,x,t,label\n".to_owned() + &(0..rows).map(row).collect::<String>()
    }

    fn read(text: &str, limit: RowLimit) -> Table {
        let options = ReadOptions { limit: Some(limit), keep: vec!["n".into()], ..ReadOptions::default() };
        Table::from_bytes(text.as_bytes().to_vec(), "a.csv", &options).unwrap()
    }

    #[test]
    fn the_sample_is_the_one_that_the_definition_gives() {
        let all = 40_000;
        let text = text(all);
        let limit = RowLimit { rows: 3000, cells: usize::MAX, seed: 3 };
        let table = read(&text, limit);
        assert_eq!((table.rows(), table.class_sizes()[2]), (3000, 7));
        // The definition: all keys at once.
        let sampler = Sampler::new(limit, 4, 0);
        let whole = Table::from_bytes(text.as_bytes().to_vec(), "a.csv", &ReadOptions::default()).unwrap();
        let mut by_class: BTreeMap<u32, Vec<(u64, usize)>> = BTreeMap::new();
        for row in 0..all {
            by_class.entry(whole.label(row).unwrap()).or_default().push((sampler.key(row as u32), row));
        }
        let (mut sample, mut others) = (Vec::new(), Vec::new());
        for rows in by_class.values_mut() {
            rows.sort_unstable();
            let floor = rows.len().min(100);
            sample.extend(rows[..floor].iter().map(|r| r.1));
            others.extend(rows[floor..].iter().copied());
        }
        others.sort_unstable();
        sample.extend(others[..3000 - sample.len()].iter().map(|r| r.1));
        sample.sort_unstable();
        assert_eq!(table.columns, whole.select(&sample).columns);
        assert_eq!(table.labels, whole.select(&sample).labels);
        let numbers: Vec<usize> = (0..table.rows()).map(|row| table.row_number(row) as usize - 1).collect();
        assert_eq!(numbers, sample);
        assert!(table.notices().iter().any(|n| n.contains("3,000 of 40,000 rows")), "{:?}", table.notices());
        // Another seed, another sample.
        let other = read(&text, RowLimit { seed: 4, ..limit });
        assert_ne!(other.columns, table.columns);
    }

    #[test]
    fn a_small_table_stays_as_it_is() {
        let text = text(500);
        let table = read(&text, RowLimit { rows: 500, cells: 5000, seed: 0 });
        let whole = Table::from_bytes(text.as_bytes().to_vec(), "a.csv", &ReadOptions::default()).unwrap();
        assert_eq!((&table.columns, table.notices().len()), (&whole.columns, whole.notices().len()));
        assert_eq!(read(&text, RowLimit { rows: 500, cells: 400, seed: 0 }).rows(), 100);
    }

    #[test]
    fn each_row_has_the_same_chance() {
        let mut counts = vec![0; 2000];
        let text: String = "n,label\n".to_owned() + &(0..2000).map(|i| format!("{i},a\n")).collect::<String>();
        for seed in 0..200 {
            let table = read(&text, RowLimit { rows: 500, cells: usize::MAX, seed });
            (0..table.rows()).for_each(|row| counts[table.row_number(row) as usize - 1] += 1);
        }
        // 200 draws with a probability of a quarter: 50 with a standard deviation of 6.1.
        assert_eq!(counts.iter().sum::<i32>(), 200 * 500);
        assert!(counts.iter().all(|&n| (15..=90).contains(&n)));
        let variance = counts.iter().map(|&n| f64::from((n - 50i32).pow(2))).sum::<f64>() / 2000.0;
        assert!((30.0..46.0).contains(&variance), "{variance}");
    }

    #[test]
    fn texts_that_are_in_no_row_any_more_take_no_memory() {
        let mut column = ColumnBuilder::new("t", Want::Auto, std::path::Path::new("a.csv").into());
        for i in 0..300_000u64 {
            column.push(format!("word{i}").as_bytes(), i + 1).unwrap();
        }
        let keep: Vec<bool> = (0..300_000).map(|i| i % 1000 == 7).collect();
        column.keep_rows(0, &keep);
        column.push(b"word1007", 300_001).unwrap();
        column.push(b"word0", 300_002).unwrap();
        column.check().unwrap();
        let Some(super::super::Column::Text { codes, names }) = column.finish() else { panic!() };
        assert_eq!((codes.len(), names.len()), (302, 301));
        assert_eq!((names[0].as_str(), names[1].as_str(), names[300].as_str()), ("word7", "word1007", "word0"));
        assert_eq!(codes[300..], [1, 300]);
    }
}
