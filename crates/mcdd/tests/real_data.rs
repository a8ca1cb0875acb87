//! Results on real tables, in the folder that `MCDD_DATA` names.

use std::path::PathBuf;

use mcdd::data::{Label, ReadOptions, Table};
use mcdd::protocol::{Scenario, leave_one_out};
use mcdd::train::Settings;

/// The folder of a data set, or nothing and a word about it.
fn folder(name: &str) -> Option<PathBuf> {
    match std::env::var_os("MCDD_DATA") {
        Some(root) => Some(PathBuf::from(root).join(name)),
        None => {
            eprintln!("skipped: MCDD_DATA is not set");
            None
        }
    }
}

fn means(scenarios: &[Scenario]) -> (f64, f64) {
    let n = scenarios.len() as f64;
    for s in scenarios {
        println!("{}: AUROC {:.2}, accuracy {:.2}", s.left_out, 100.0 * s.detection.auroc, 100.0 * s.accuracy);
    }
    let mean = |f: fn(&Scenario) -> f64| scenarios.iter().map(f).sum::<f64>() * 100.0 / n;
    let found = (mean(|s| s.detection.auroc), mean(|s| s.accuracy));
    println!("mean AUROC {:.2}, accuracy {:.2}", found.0, found.1);
    found
}

#[test]
fn gas_sensor_fold_0() {
    let Some(folder) = folder("gas") else { return };
    let files: Vec<PathBuf> = [1, 2, 3, 4, 5, 6, 8, 9].iter().map(|i| folder.join(format!("batch{i}.dat"))).collect();
    let table = Table::read(&files, &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), table.names.len(), table.classes().len()), (6697, 128, 6));
    let (auroc, accuracy) = means(&leave_one_out(&table, 0, 5, &Settings::default(), 2).unwrap());
    assert!(auroc >= 97.0 && accuracy >= 99.2, "AUROC {auroc}, accuracy {accuracy}");
}

#[test]
fn drive_fold_0() {
    let Some(folder) = folder("drive") else { return };
    let options = ReadOptions { label: Label::Last, ..ReadOptions::default() };
    let table = Table::read(&[folder.join("Sensorless_drive_diagnosis.txt")], &options).unwrap();
    assert_eq!((table.rows(), table.names.len(), table.classes().len()), (2200, 48, 11));
    let (auroc, accuracy) = means(&leave_one_out(&table, 0, 5, &Settings::default(), 2).unwrap());
    assert!(auroc >= 81.0 && accuracy >= 89.0, "AUROC {auroc}, accuracy {accuracy}");
}
