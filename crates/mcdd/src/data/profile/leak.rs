//! Columns that alone give the label away.

use std::collections::HashMap;

use super::super::column::Column;
use super::super::table::Table;
use super::super::text::{quoted, shown};
use super::finding::{Action, Finding, Problem};
use crate::seed::Stream;

/// Rows that are looked at: half of them to learn from, half to test on.
const ROWS: usize = 4000;
/// Cells that are looked at in all columns together, unless few rows would be left.
const CELLS: usize = 8_000_000;
/// Rows to test on, at least.
const LEAST: usize = 25;
/// Intervals that the values of a column are divided into.
const BINS: usize = 64;
/// The error of a column that gives the label away.
const ERROR: f64 = 0.02;
/// More columns than this that predict the label are no leak, but an easy table.
const MOST: usize = 3;

/// Finds columns that predict the class almost without error while no other column comes near.
pub(super) fn find(table: &Table, columns: &[&Column], used: &[bool], findings: &mut Vec<Finding>) {
    let Some(labels) = table.labels.as_ref().filter(|labels| labels.names.len() > 1) else {
        return;
    };
    let most = (CELLS / table.columns.len().max(1)).clamp(500, ROWS);
    let mut rows: Vec<usize> = (0..table.rows().min(labels.codes.len())).collect();
    Stream::new(0, "profile").shuffle(&mut rows);
    rows.truncate(most);
    let (learn, test) = rows.split_at(rows.len() / 2);
    if test.len() < LEAST {
        return;
    }
    let mut sizes = vec![0usize; labels.names.len()];
    test.iter().for_each(|&row| sizes[labels.codes[row] as usize] += 1);
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let base = 1.0 - largest as f64 / test.len() as f64;
    if base < 0.05 {
        return;
    }
    let mut errors: Vec<(f64, usize)> = (0..table.columns.len())
        .filter(|&at| used[at])
        .map(|at| (error(columns[at], &labels.codes, labels.names.len(), learn, test), at))
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let leaks = errors.iter().take_while(|(error, _)| *error <= ERROR.min(0.1 * base)).count();
    let far = errors.get(leaks).is_some_and(|(next, _)| *next >= (0.25 * base).max(0.05));
    if leaks == 0 || leaks > MOST || !far {
        return;
    }
    let others = match leaks {
        1 => ", and no other column comes near".to_owned(),
        n => format!("; only {n} columns do, and no other comes near"),
    };
    for &(error, at) in &errors[..leaks] {
        let name = table.names[at].as_str();
        let what = format!("alone predicts the class of {:.1}% of the rows{others}", 100.0 * (1.0 - error));
        let remedy = format!("if it is not known before the class is, leave it out by `drop` {}", quoted(shown(name)));
        findings.push(Finding::new(Problem::Leak, Action::Look, &[name], what, remedy));
    }
}

/// The error on `test` of predicting the class that is the most frequent among the rows of `learn` with the same
/// category, or with a value in the same interval.
fn error(column: &Column, classes: &[u32], count: usize, learn: &[usize], test: &[usize]) -> f64 {
    let cuts = match column {
        Column::Number(values) => cuts(learn.iter().map(|&row| values[row])),
        Column::Text { .. } => Vec::new(),
    };
    let place = |row: usize| match column {
        Column::Number(values) if values[row].is_nan() => u32::MAX,
        Column::Number(values) => cuts.partition_point(|cut| *cut <= values[row]) as u32,
        Column::Text { codes, .. } => codes[row],
    };
    let mut votes: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut all = vec![0u32; count];
    for &row in learn {
        let class = classes[row] as usize;
        votes.entry(place(row)).or_insert_with(|| vec![0; count])[class] += 1;
        all[class] += 1;
    }
    let winner = |votes: &[u32]| (0..count).rev().max_by_key(|&class| votes[class]).unwrap_or(0) as u32;
    let otherwise = winner(&all);
    let winners: HashMap<u32, u32> = votes.iter().map(|(&at, votes)| (at, winner(votes))).collect();
    let wrong = test.iter().filter(|&&row| winners.get(&place(row)).copied().unwrap_or(otherwise) != classes[row]);
    wrong.count() as f64 / test.len() as f64
}

/// Values that divide the column into intervals of about as many rows, or each value from the next if they are few.
fn cuts(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.filter(|v| !v.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let mut distinct = sorted.clone();
    distinct.dedup();
    let middle = |a: f64, b: f64| {
        let middle = a / 2.0 + b / 2.0;
        if middle > a { middle } else { b }
    };
    if distinct.len() <= BINS {
        return distinct.windows(2).map(|w| middle(w[0], w[1])).collect();
    }
    let mut cuts: Vec<f64> = (1..BINS).map(|i| sorted[i * sorted.len() / BINS]).collect();
    cuts.dedup();
    cuts
}
