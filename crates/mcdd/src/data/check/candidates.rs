//! Which column may hold the labels.

use super::super::column::{Column, MISSING};
use super::super::labels::MIN_CLASS_ROWS;
use super::super::profile::Profile;
use super::super::table::Table;

/// The largest number of classes of a column that may be the label.
const MOST_CLASSES: usize = 100;
/// Words in the names of label columns.
const LABEL_WORDS: [&str; 16] = [
    "label",
    "class",
    "target",
    "outcome",
    "category",
    "species",
    "status",
    "churn",
    "diagnosis",
    "result",
    "response",
    "type",
    "kind",
    "group",
    "fault",
    "default",
];

/// Columns that may hold the labels, the most probable first, and their numbers of classes.
pub(super) fn candidates(table: &Table) -> Vec<(String, usize)> {
    let identifiers = Profile::of(table);
    let identifiers = identifiers.left_out();
    let mut found: Vec<(i32, String, usize)> = Vec::new();
    for (at, (name, column)) in table.names.iter().zip(&table.columns).enumerate() {
        if identifiers.contains(&name.as_str()) {
            continue;
        }
        let mut values: Vec<u64> = match column {
            Column::Number(values) if values.iter().all(|v| v.is_nan() || v.fract() == 0.0) => {
                values.iter().filter(|v| !v.is_nan()).map(|v| v.to_bits()).collect()
            }
            Column::Number(_) => continue,
            Column::Text { codes, .. } => codes.iter().filter(|&&c| c != MISSING).map(|&c| u64::from(c)).collect(),
        };
        let cells = values.len();
        values.sort_unstable();
        values.dedup();
        let classes = values.len();
        let text = matches!(column, Column::Text { .. });
        if classes < 2 || classes > if text { MOST_CLASSES } else { 20 } || classes * MIN_CLASS_ROWS > cells {
            continue;
        }
        let lower = name.to_lowercase();
        let word = LABEL_WORDS.iter().any(|word| lower.contains(word));
        let edge = if at + 1 == table.names.len() { 2 } else { i32::from(at == 0) };
        let score = 4 * i32::from(word) + edge + i32::from(text) - i32::from(classes > 20);
        found.push((score, name.clone(), classes));
    }
    found.sort_by_key(|(score, ..)| -score);
    found.into_iter().take(5).map(|(_, name, classes)| (name, classes)).collect()
}
