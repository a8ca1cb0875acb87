//! No feature of a real table is taken for an identifier, where `MCDD_DATA` names a folder with `shuttle/`, `gas/`, `drive/`
//! and `mnist/`, and perhaps other tables below `more/` (Parquet or CSV, with a column `label`).
#![cfg(feature = "datasets")]

use std::io::Write;
use std::path::{Path, PathBuf};

use mcdd::data::profile::{Problem, Profile};
use mcdd::data::{ReadOptions, Table, digits, sets};

/// Past the test harness, which would swallow it.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// No column is left out, and none gives the label away.
fn check(name: &str, table: &Table) {
    let profile = Profile::of(table);
    assert!(profile.left_out().is_empty(), "{name}: {:?}", profile.notices());
    assert!(profile.findings.iter().all(|f| f.problem != Problem::Leak), "{name}: {:?}", profile.warnings());
    // The rows in another order, and a part of them.
    let mut rows: Vec<usize> = (0..table.rows()).collect();
    mcdd::seed::Stream::new(1, "test").shuffle(&mut rows);
    for part in [&rows[..], &rows[..rows.len() / 2], &rows[..rows.len().min(60)]] {
        assert!(Profile::of(&table.select(part)).left_out().is_empty(), "{name}, {} rows", part.len());
    }
    // An index beside the real columns is found.
    let mut indexed = table.clone();
    indexed.names.push("Unnamed: 0".into());
    indexed.columns.push(mcdd::data::Column::Number((0..table.rows()).map(|i| i as f64).collect()));
    let found = Profile::of(&indexed);
    assert_eq!(found.left_out(), ["Unnamed: 0"], "{name}");
}

fn tables_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            tables_below(&path, found);
        } else if path.extension().is_some_and(|e| e == "parquet" || e == "csv") {
            found.push(path);
        }
    }
    found.sort();
}

#[test]
fn digits_have_no_identifier() {
    check("digits", &digits());
}

#[test]
fn real_tables_have_no_identifier() {
    let Some(root) = std::env::var_os("MCDD_DATA").filter(|v| !v.is_empty()).map(PathBuf::from) else {
        say("skipped: MCDD_DATA is not set");
        return;
    };
    for name in ["shuttle", "gas", "drive", "mnist"] {
        match sets::find(name).filter(|set| set.locate(&root).is_some()) {
            Some(set) => check(name, &set.read(&root).unwrap().table),
            None => say(&format!("skipped: {name} is not there")),
        }
    }
    let mut more = Vec::new();
    tables_below(&root.join("more"), &mut more);
    if more.is_empty() {
        say("skipped: there are no tables in more/");
    }
    for path in more {
        let table = Table::read(std::slice::from_ref(&path), &ReadOptions::default()).unwrap();
        check(&path.display().to_string(), &table);
    }
}
