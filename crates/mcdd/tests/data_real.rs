//! The published files themselves, where `MCDD_DATA` names a folder with `shuttle/`, `gas/`, `drive/` and `mnist/`.
#![cfg(feature = "datasets")]

use std::io::Write;
use std::path::{Path, PathBuf};

use mcdd::data::{Batch, Label, ReadOptions, Schema, Table};

/// Past the test harness, which would swallow it.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn folder(name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("MCDD_DATA") else {
        say("skipped: MCDD_DATA is not set");
        return None;
    };
    let folder = Path::new(&root).join(name);
    if !folder.is_dir() {
        say(&format!("skipped: {} is not there", folder.display()));
        return None;
    }
    Some(folder)
}

fn shape(table: &Table) -> (usize, usize, usize) {
    (table.rows(), table.columns.len(), table.classes().len())
}

fn last() -> ReadOptions {
    ReadOptions { label: Label::Last, ..ReadOptions::default() }
}

/// Streaming gives what the table gives.
fn check_stream(table: &Table, paths: &[PathBuf]) {
    let rows: Vec<usize> = (0..table.rows()).collect();
    let (schema, _) = Schema::fit(table, &rows).unwrap();
    let whole = schema.transform(table, None).unwrap();
    let (mut at, mut row) = (0, 0);
    let mut batch = Batch::default();
    for path in paths {
        let mut reader = schema.reader(path, &ReadOptions::default()).unwrap();
        while reader.next(1000, &mut batch).unwrap() {
            assert!(batch.x == whole[at..at + batch.x.len()], "{} near row {row}", path.display());
            at += batch.x.len();
            for label in batch.labels.as_ref().unwrap() {
                assert_eq!(label.as_deref(), table.label_name(row));
                row += 1;
            }
        }
    }
    assert_eq!(at, whole.len());
}

#[test]
fn shuttle() {
    let Some(folder) = folder("shuttle") else {
        return;
    };
    let paths = [folder.join("shuttle.trn"), folder.join("shuttle.tst")];
    let table = Table::read(&paths, &last()).unwrap();
    assert_eq!(shape(&table), (58_000, 9, 7));
    assert_eq!(table.class_sizes(), [45586, 50, 171, 8903, 3267, 10, 13]);
    check_stream(&table, &paths);
}

#[test]
fn gas() {
    let Some(folder) = folder("gas") else { return };
    let paths: Vec<PathBuf> =
        (1..=10).map(|n| folder.join(format!("batch{n}.dat"))).filter(|path| path.is_file()).collect();
    let table = Table::read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(shape(&table), (6_697, 128, 6));
    assert_eq!(table.class_sizes(), [1316, 1664, 681, 592, 1779, 665]);
    check_stream(&table, &paths);
}

#[test]
fn drive() {
    let Some(folder) = folder("drive") else {
        return;
    };
    let paths = [folder.join("Sensorless_drive_diagnosis.txt")];
    let table = Table::read(&paths, &last()).unwrap();
    assert_eq!(shape(&table), (2_200, 48, 11));
    check_stream(&table, &paths);
}

#[test]
fn mnist() {
    let Some(folder) = folder("mnist") else {
        return;
    };
    let paths = [folder.join("train-images-idx3-ubyte.gz")];
    let table = Table::read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(shape(&table), (60_000, 784, 10));
    assert_eq!(table.class_sizes()[..3], [5923, 6742, 5958]);
    let paths = [folder.join("t10k-images-idx3-ubyte.gz")];
    let table = Table::read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(shape(&table), (10_000, 784, 10));
    check_stream(&table, &paths);
}

/// The catalogue finds and reads what is there, and says how much of each set that is.
#[test]
fn the_catalogue() {
    use mcdd::data::sets;
    let Some(root) = folder("") else { return };
    for (name, want) in [
        ("shuttle", "Shuttle: 58,000 rows, 9 features, 7 classes"),
        ("gas", "GasSensor: 6,697 of 13,910 rows"),
        ("drive", "DriveDiagnosis: 2,200 of 58,509 rows"),
        ("mnist", "MNIST: 70,000 rows, 784 features, 10 classes"),
    ] {
        let set = sets::find(name).unwrap();
        let Some(found) = set.locate(&root) else {
            say(&format!("skipped: {name} is not there"));
            continue;
        };
        let loaded = set.read(&root).unwrap();
        assert_eq!(set.count(&found).unwrap(), Some(loaded.table.rows()), "{name}");
        assert_eq!(loaded.coverage.to_string(), want);
    }
}
