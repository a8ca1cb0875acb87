//! Columns and rows that are copies of others.

use std::collections::HashMap;

use super::super::column::{Column, MISSING};
use super::super::table::Table;
use super::super::text::{count, list, shown};
use super::columns::has_names;
use super::finding::{Action, Finding, Problem};

/// The hash of what came before, and one more value.
fn mix(hash: u64, value: u64) -> u64 {
    let hash = (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ (hash >> 29)
}

/// The bits of a value; the same for all missing cells, and for both zeros.
fn bits(value: f64) -> u64 {
    if value.is_nan() {
        u64::MAX
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// Codes in the order of their appearance, so that a copy with other names is a copy too.
fn in_order(codes: &[u32], names: usize) -> Vec<u32> {
    let mut places = vec![MISSING; names];
    let mut next = 0;
    codes
        .iter()
        .map(|&code| match places.get_mut(code as usize) {
            None => MISSING,
            Some(place) => {
                if *place == MISSING {
                    *place = next;
                    next += 1;
                }
                *place
            }
        })
        .collect()
}

fn equal(a: &Column, b: &Column) -> bool {
    match (a, b) {
        (Column::Number(a), Column::Number(b)) => a.iter().zip(b).all(|(a, b)| bits(*a) == bits(*b)),
        (Column::Text { codes: a, names: n }, Column::Text { codes: b, names: m }) => {
            in_order(a, n.len()) == in_order(b, m.len())
        }
        _ => false,
    }
}

/// Columns with the cells of another column.
pub(super) fn columns(table: &Table, columns: &[&Column], used: &[bool], findings: &mut Vec<Finding>) {
    if !has_names(table) || table.rows() < 20 {
        return;
    }
    let hash = |column: &Column| match column {
        Column::Number(values) => values.iter().fold(1, |hash, &value| mix(hash, bits(value))),
        Column::Text { codes, names } => {
            in_order(codes, names.len()).iter().fold(2, |hash, &code| mix(hash, u64::from(code)))
        }
    };
    let mut firsts: HashMap<u64, usize> = HashMap::new();
    let (mut copies, mut pairs) = (Vec::new(), Vec::new());
    for at in (0..columns.len()).filter(|&at| used[at]) {
        let first = *firsts.entry(hash(columns[at])).or_insert(at);
        if first != at && equal(columns[first], columns[at]) {
            copies.push(table.names[at].as_str());
            pairs.push(format!("{} of {}", shown(&table.names[at]), shown(&table.names[first])));
        }
    }
    if !copies.is_empty() {
        let what = format!("copies of other columns ({})", list(&pairs));
        let remedy = "a copy counts twice in distances; leave it out by `drop`";
        findings.push(Finding::new(Problem::RepeatedColumns, Action::Look, &copies, what, remedy).count(copies.len()));
    }
}

/// Rows with the cells of another row: with its label too, or with another one.
pub(super) fn rows(table: &Table, columns: &[&Column], used: &[bool], findings: &mut Vec<Finding>) {
    let rows = table.rows();
    if !used.contains(&true) {
        return;
    }
    let mut hashes = vec![0u64; rows];
    for (column, _) in columns.iter().zip(used).filter(|(_, used)| **used) {
        match column {
            Column::Number(values) => {
                hashes.iter_mut().zip(values).for_each(|(hash, &value)| *hash = mix(*hash, bits(value)));
            }
            Column::Text { codes, .. } => {
                hashes.iter_mut().zip(codes).for_each(|(hash, &code)| *hash = mix(*hash, u64::from(code)));
            }
        }
    }
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_unstable_by_key(|&row| (hashes[row], row));
    let (mut copies, mut contradictory) = (0, 0);
    for group in order.chunk_by(|&a, &b| hashes[a] == hashes[b]) {
        let mut labels: Vec<Option<u32>> = group.iter().map(|&row| table.label(row)).collect();
        labels.sort_unstable();
        labels.dedup();
        copies += group.len() - labels.len();
        contradictory += if labels.len() > 1 { group.len() } else { 0 };
    }
    let percent = |n: usize| format!("{:.1}%", 100.0 * n as f64 / rows.max(1) as f64);
    if copies >= 5 && copies * 100 >= rows {
        let what = format!("{} ({}) repeated from others", count(copies, "row"), percent(copies));
        let remedy = "copies stay on one side of every split; remove them if they are an accident";
        findings.push(Finding::new(Problem::RepeatedRows, Action::Look, &[], what, remedy).count(copies));
    }
    if contradictory >= 2 && contradictory * 200 >= rows {
        let what =
            format!("{} ({}) equal to rows of another class", count(contradictory, "row"), percent(contradictory));
        let remedy = "no model can tell them apart: a column may be missing, or labels wrong";
        findings.push(Finding::new(Problem::Contradictions, Action::Look, &[], what, remedy).count(contradictory));
    }
}
