//! Divides rows into parts: at random, class by class, and never apart from the rows that they belong with.
//!
//! Rows belong together if they are equal in every feature, whatever their labels, or if the user says so by a group. A
//! copy of a training row among the rows of a test or a calibration would be recognized, and would promise too much.

use std::collections::HashMap;

use super::column::Column;
use super::labels::Labels;
use crate::error::{Error, Result};
use crate::seed::Stream;

/// Rows that belong together, as numbers from 0 in the order of their first rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// The group of each row.
    of: Vec<u32>,
    /// The rows, group by group.
    rows: Vec<usize>,
    /// Where the rows of each group begin, and the end of the last.
    starts: Vec<usize>,
    /// Whether the user named groups: these are never divided. Equal rows are, if nothing else is possible: where classes
    /// have hardly any different rows, new rows are copies as well.
    named: bool,
}

impl Groups {
    /// Rows with equal keys belong together; so do rows with equal `named`, if given.
    fn new(keys: &[u128], named: Option<&[u32]>) -> Groups {
        // The number of a row's group, by way of the first row with the same key or name.
        let mut parent: Vec<u32> = (0..keys.len() as u32).collect();
        let mut first_key = HashMap::with_capacity(keys.len());
        let mut first_name = HashMap::new();
        for (row, key) in keys.iter().enumerate() {
            let row = row as u32;
            join(&mut parent, row, *first_key.entry(*key).or_insert(row));
            if let Some(name) = named.and_then(|n| n.get(row as usize)) {
                join(&mut parent, row, *first_name.entry(*name).or_insert(row));
            }
        }
        let mut numbers = vec![u32::MAX; keys.len()];
        let mut sizes: Vec<usize> = Vec::new();
        let mut of = Vec::with_capacity(keys.len());
        for row in 0..keys.len() as u32 {
            // The root is the first row of its group, so it has its number already.
            let root = root(&mut parent, row) as usize;
            if numbers[root] == u32::MAX {
                numbers[root] = sizes.len() as u32;
                sizes.push(0);
            }
            of.push(numbers[root]);
            sizes[numbers[root] as usize] += 1;
        }
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut at = 0;
        for size in &sizes {
            starts.push(at);
            at += size;
        }
        starts.push(at);
        let mut next = starts.clone();
        let mut rows = vec![0; keys.len()];
        for (row, &group) in of.iter().enumerate() {
            rows[next[group as usize]] = row;
            next[group as usize] += 1;
        }
        Groups { of, rows, starts, named: named.is_some() }
    }

    /// The rows of a table: equal rows, and rows of one named group, belong together.
    pub(super) fn of_columns<'a>(
        columns: impl IntoIterator<Item = &'a Column>,
        rows: usize,
        named: Option<&[u32]>,
    ) -> Groups {
        let mut keys = vec![0; rows];
        for column in columns {
            match column {
                Column::Number(values) => {
                    keys.iter_mut().zip(values).for_each(|(key, &v)| *key = mix(*key, bits(v)));
                }
                Column::Text { codes, .. } => {
                    keys.iter_mut().zip(codes).for_each(|(key, &code)| *key = mix(*key, u64::from(code)));
                }
            }
        }
        Groups::new(&keys, named)
    }

    /// Rows of `width` bytes, of which equal ones belong together.
    pub(super) fn of_bytes(bytes: &[u8], width: usize) -> Groups {
        let word = |part: &[u8]| part.iter().fold(0, |word, &b| word << 8 | u64::from(b));
        let key = |row: &[u8]| row.chunks(8).fold(0, |key, part| mix(key, word(part)));
        Groups::new(&bytes.chunks_exact(width.max(1)).map(key).collect::<Vec<_>>(), None)
    }

    /// Rows of numbers, of which equal ones belong together.
    pub(crate) fn of_numbers(rows: impl Iterator<Item = impl Iterator<Item = f64>>) -> Groups {
        Groups::new(&rows.map(|row| row.fold(0, |key, v| mix(key, bits(v)))).collect::<Vec<_>>(), None)
    }

    /// The rows on their own, if equal rows may be divided.
    fn divided(&self) -> Option<Groups> {
        let possible = !self.named && self.count() < self.len();
        possible.then(|| Groups::new(&(0..self.len() as u128).collect::<Vec<_>>(), None))
    }

    /// Whether the user named groups.
    pub(crate) fn named(&self) -> bool {
        self.named
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// The number of groups.
    pub(crate) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows that belong with a row, and itself.
    pub(crate) fn with(&self, row: usize) -> &[usize] {
        self.rows(self.of[row])
    }

    fn rows(&self, group: u32) -> &[usize] {
        &self.rows[self.starts[group as usize]..self.starts[group as usize + 1]]
    }
}

/// The bits of a number: the same for 0 and -0, and for every NaN, which is a missing cell.
fn bits(v: f64) -> u64 {
    if v.is_nan() { f64::NAN.to_bits() } else { (v + 0.0).to_bits() }
}

/// One step of a hash in 128 bits, so that different rows have different keys in practice. Rows whose keys are the same by
/// accident would merely stay together.
fn mix(key: u128, value: u64) -> u128 {
    const FACTOR: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
    let mixed = (key ^ u128::from(value)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(FACTOR);
    mixed ^ mixed >> 67
}

/// The first row of a row's group. Shortens the way for the next time.
fn root(parent: &mut [u32], row: u32) -> u32 {
    let mut at = row;
    while parent[at as usize] != at {
        parent[at as usize] = parent[parent[at as usize] as usize];
        at = parent[at as usize];
    }
    at
}

fn join(parent: &mut [u32], a: u32, b: u32) {
    let (a, b) = (root(parent, a), root(parent, b));
    parent[a.max(b) as usize] = a.min(b);
}

/// The part that a row is in, if it is in one.
type Part = Option<u32>;

/// The groups of each class (all as one class without labels), each class in a random order that depends on the seed and
/// the class only. A group counts for the class of its first row.
fn shuffled(labels: Option<&Labels>, groups: &Groups, seed: u64, purpose: &str) -> Vec<Vec<u32>> {
    let mut classes = vec![Vec::new(); labels.map_or(0, |l| l.names.len()).max(1)];
    for group in 0..groups.count() as u32 {
        let first = groups.rows(group).first();
        let class = first.and_then(|&row| labels?.codes.get(row)).map_or(0, |&code| code as usize);
        classes[class].push(group);
    }
    for (class, groups) in classes.iter_mut().enumerate() {
        Stream::new(seed, &format!("{purpose}/{class}")).shuffle(groups);
    }
    classes
}

/// Takes the groups of every class that would have all its rows in one part out of that part, so that each class has
/// rows outside of any part.
fn keep_classes_outside(labels: Option<&Labels>, groups: &Groups, parts: &mut [Part]) {
    let classes = labels.map_or(1, |l| l.names.len());
    let class = |row: usize| labels.and_then(|l| l.codes.get(row)).map_or(0, |&code| code as usize);
    // For each class the part of its first row, as long as all its rows are in it.
    let mut only: Vec<Option<Part>> = vec![None; classes];
    for row in 0..groups.len() {
        let part = parts[groups.of[row] as usize];
        let only = &mut only[class(row)];
        *only = match only {
            None => Some(part),
            Some(all) if *all == part => Some(part),
            Some(_) => Some(None),
        };
    }
    let inside: Vec<bool> = only.into_iter().map(|part| part.flatten().is_some()).collect();
    for row in 0..groups.len() {
        if inside[class(row)] {
            parts[groups.of[row] as usize] = None;
        }
    }
}

/// Divides rows at random, class by class, into parts of about `1 - fraction` and `fraction`, each in ascending order;
/// every class keeps rows in the first part.
pub(crate) fn split_rows(
    labels: Option<&Labels>,
    groups: &Groups,
    fraction: f64,
    seed: u64,
) -> Result<(Vec<usize>, Vec<usize>)> {
    if !(fraction > 0.0 && fraction < 1.0) {
        return Err(Error::setting(format!("a fraction of {fraction} cannot be split off"))
            .hint("give a fraction between 0 and 1, such as 0.2"));
    }
    let mut parts: Vec<Part> = vec![None; groups.count()];
    for class in shuffled(labels, groups, seed, "split") {
        let size = |group: &u32| groups.rows(*group).len();
        let wanted = (class.iter().map(size).sum::<usize>() as f64 * fraction).round() as usize;
        let mut taken = 0;
        // The last group of a class is never taken.
        for group in &class[..class.len().saturating_sub(1)] {
            // A group that is larger than what is wanted is taken if that comes closer.
            if 2 * taken + size(group) <= 2 * wanted && taken < wanted {
                parts[*group as usize] = Some(0);
                taken += size(group);
            }
        }
    }
    keep_classes_outside(labels, groups, &mut parts);
    if parts.iter().all(Option::is_none)
        && let Some(divided) = groups.divided()
    {
        return split_rows(labels, &divided, fraction, seed);
    }
    Ok((0..groups.len()).partition(|&row| parts[groups.of[row] as usize].is_none()))
}

/// Deals rows into `k` folds at random, class by class: each group goes to the fold with the fewest rows. Without groups,
/// folds differ by at most one row in size and in each class. A class whose rows would all be in one fold is in none.
/// Each fold is in ascending order.
pub(crate) fn folds(labels: Option<&Labels>, groups: &Groups, k: usize, seed: u64, purpose: &str) -> Vec<Vec<usize>> {
    let mut folds = vec![Vec::new(); k];
    if k == 0 {
        return folds;
    }
    let mut parts: Vec<Part> = vec![None; groups.count()];
    let mut sizes = vec![0; k];
    for class in shuffled(labels, groups, seed, purpose) {
        for group in class {
            let fewest = (0..k).min_by_key(|&fold| sizes[fold]).unwrap_or(0);
            parts[group as usize] = Some(fewest as u32);
            sizes[fewest] += groups.rows(group).len();
        }
    }
    if k > 1 {
        keep_classes_outside(labels, groups, &mut parts);
    }
    for (row, group) in groups.of.iter().enumerate() {
        if let Some(fold) = parts[*group as usize] {
            folds[fold as usize].push(row);
        }
    }
    match groups.divided().filter(|_| folds.iter().any(Vec::is_empty)) {
        Some(divided) => self::folds(labels, &divided, k, seed, purpose),
        None => folds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(codes: &[u32]) -> Labels {
        Labels { codes: codes.to_vec(), names: (0..4).map(|c| c.to_string()).collect() }
    }

    #[test]
    fn equal_rows_and_named_groups_belong_together() {
        let x = [1.0, 2.0, f64::NAN, 1.0, -0.0, f64::NAN, 0.0];
        let text = Column::Text { codes: vec![0, 0, 1, 0, 2, 1, 2], names: ["a", "b", "c"].map(String::from).to_vec() };
        let columns = [Column::Number(x.to_vec()), text];
        let groups = Groups::of_columns(&columns, 7, None);
        assert_eq!(groups.of, [0, 1, 2, 0, 3, 2, 3]);
        assert_eq!((groups.count(), groups.rows(2), groups.rows(0)), (4, &[2, 5][..], &[0, 3][..]));
        // Row 1 has the name of row 2, and row 4 that of row 0.
        let named = Groups::of_columns(&columns, 7, Some(&[7, 8, 8, 9, 7, 5, 6]));
        assert_eq!(named.of, [0, 1, 1, 0, 0, 1, 0]);
        assert_eq!(Groups::of_bytes(&[1, 2, 3, 1, 2, 3, 3, 2, 1], 3).of, [0, 0, 1]);
        assert_eq!(
            Groups::of_numbers([[1.0, -0.0], [2.0, 1.0], [1.0, 0.0]].map(IntoIterator::into_iter).into_iter()).of,
            [0, 1, 0]
        );
    }

    #[test]
    fn a_class_of_equal_rows_stays_outside() {
        // Class 1 has one group, class 2 has rows that are all equal to rows of class 0.
        let keys: Vec<u128> = [0, 1, 2, 3, 4, 5, 6, 7, 9, 9, 9, 0, 0].into();
        let codes = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2];
        let named: Vec<u32> = keys.iter().map(|&key| key as u32).collect();
        let groups = Groups::new(&keys, Some(&named));
        for seed in 0..20 {
            let (first, second) = split_rows(Some(&labels(&codes)), &groups, 0.4, seed).unwrap();
            assert_eq!(first.len() + second.len(), 13);
            assert!(!second.iter().any(|&row| row > 7 || row == 0) && !second.is_empty(), "{second:?}");
            let dealt = folds(Some(&labels(&codes)), &groups, 3, seed, "folds");
            assert!(!dealt.concat().iter().any(|&row| row > 7 || row == 0), "{dealt:?}");
            assert_eq!(dealt.concat().len(), 7);
        }
    }

    /// Where all rows of a class are equal, copies have to be divided.
    #[test]
    fn equal_rows_are_divided_if_nothing_else_is_possible() {
        let (keys, codes): (Vec<u128>, Vec<u32>) = (0..40).map(|i| (i % 2, (i % 2) as u32)).unzip();
        let equal = Groups::new(&keys, None);
        assert_eq!(split_rows(Some(&labels(&codes)), &equal, 0.2, 1).unwrap().1.len(), 8);
        assert!(folds(Some(&labels(&codes)), &equal, 5, 1, "folds").iter().all(|fold| fold.len() == 8));
        // But not the user's groups.
        let named = Groups::new(&keys, Some(&codes));
        assert!(split_rows(Some(&labels(&codes)), &named, 0.2, 1).unwrap().1.is_empty());
    }

    proptest! {
        #[test]
        fn groups_stay_together_and_classes_keep_rows(
            rows in proptest::collection::vec((0u128..25, 0u32..4), 1..120), k in 2usize..7, fraction in 0.05f64..0.9,
            seed in 0u64..9,
        ) {
            let (keys, codes): (Vec<u128>, Vec<u32>) = rows.into_iter().unzip();
            let named: Vec<u32> = keys.iter().map(|&key| key as u32).collect();
            let (groups, labels) = (Groups::new(&keys, Some(&named)), labels(&codes));
            let together = |part: &[usize]| {
                let mut inside = std::collections::HashSet::new();
                part.iter().for_each(|&row| { inside.insert(keys[row]); });
                (0..keys.len()).all(|row| inside.contains(&keys[row]) == part.contains(&row))
            };
            let (first, second) = split_rows(Some(&labels), &groups, fraction, seed).unwrap();
            prop_assert_eq!(first.len() + second.len(), keys.len());
            prop_assert!(together(&second));
            for code in &codes {
                prop_assert!(first.iter().any(|&row| codes[row] == *code));
            }
            let dealt = folds(Some(&labels), &groups, k, seed, "folds");
            for fold in &dealt {
                prop_assert!(together(fold) && fold.is_sorted());
                for code in &codes {
                    let outside = (0..codes.len()).any(|row| codes[row] == *code && !fold.contains(&row));
                    prop_assert!(outside);
                }
            }
        }
    }
}
