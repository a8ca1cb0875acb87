//! Results on real tables, in the folder that `MCDD_DATA` names.

use std::io::Write;
use std::path::PathBuf;

use mcdd::data::{Label, ReadOptions, Table};
use mcdd::detector::DetectorConfig;
use mcdd::head::HeadConfig;
use mcdd::protocol::{Scenario, leave_one_out, scenario};
use mcdd::train::optim::Schedule;
use mcdd::train::{Preset, Run, Select, Settings};

/// The folder of a data set; `None` and a message if `MCDD_DATA` is not set.
fn folder(name: &str) -> Option<PathBuf> {
    match std::env::var_os("MCDD_DATA") {
        Some(root) => Some(PathBuf::from(root).join(name)),
        None => {
            // Not `eprintln!`, whose output the test harness captures.
            let _ = writeln!(std::io::stderr(), "skipped: MCDD_DATA is not set");
            None
        }
    }
}

/// Mean AUROC and accuracy over the left-out classes on fold 0, and over some seeds: the AUROC of a scenario varies by
/// several points between seeds.
fn means(table: &Table, settings: &Settings, seeds: u64) -> (f64, f64) {
    let mut all: Vec<Scenario> = Vec::new();
    for seed in 0..seeds {
        let mut settings = settings.clone();
        settings.seed = seed;
        let found = leave_one_out(table, 0, 5, &settings, 2).unwrap();
        let mean = |f: fn(&Scenario) -> f64| found.iter().map(f).sum::<f64>() * 100.0 / found.len() as f64;
        println!(
            "seed {seed}: AUROC {:.3}, accuracy {:.3}",
            mean(|s| s.detection.auroc),
            mean(|s| s.accuracy.unwrap_or(f64::NAN))
        );
        all.extend(found);
    }
    let mean = |f: fn(&Scenario) -> f64| all.iter().map(f).sum::<f64>() * 100.0 / all.len() as f64;
    (mean(|s| s.detection.auroc), mean(|s| s.accuracy.unwrap_or(f64::NAN)))
}

/// The paper's network, with a cosine learning rate schedule.
fn plain() -> Settings {
    Settings::builder().preset(Preset::Paper).schedule(Schedule::Cosine).select(Select::Last).build().unwrap()
}

#[test]
fn gas_sensor_fold_0() {
    let Some(folder) = folder("gas") else { return };
    let files: Vec<PathBuf> = [1, 2, 3, 4, 5, 6, 8, 9].iter().map(|i| folder.join(format!("batch{i}.dat"))).collect();
    let table = Table::read(&files, &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), table.names.len(), table.classes().len()), (6697, 128, 6));
    let (auroc, accuracy) = means(&table, &plain(), 3);
    assert!(auroc >= 97.0 && accuracy >= 99.2, "AUROC {auroc}, accuracy {accuracy}");
    let (auroc, accuracy) = means(&table, &Settings::default(), 1);
    assert!(auroc >= 98.5 && accuracy >= 99.2, "the default: AUROC {auroc}, accuracy {accuracy}");
}

#[test]
fn drive_fold_0() {
    let Some(folder) = folder("drive") else { return };
    let options = ReadOptions { label: Label::Last, ..ReadOptions::default() };
    let table = Table::read(&[folder.join("Sensorless_drive_diagnosis.txt")], &options).unwrap();
    assert_eq!((table.rows(), table.names.len(), table.classes().len()), (2200, 48, 11));
    let (auroc, accuracy) = means(&table, &plain(), 3);
    assert!(auroc >= 81.0 && accuracy >= 89.0, "AUROC {auroc}, accuracy {accuracy}");
    let (auroc, accuracy) = means(&table, &Settings::default(), 1);
    assert!(auroc >= 92.5 && accuracy >= 94.0, "the default: AUROC {auroc}, accuracy {accuracy}");
}

/// Every method, and every detector on a softmax network, on one scenario with a few epochs; `docs/methods.md` has the
/// whole study.
#[test]
fn every_method_and_detector_runs() {
    for (name, label) in [("gas", Label::First), ("drive", Label::Last)] {
        let Some(folder) = folder(name) else { return };
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        let table = Table::read(&files, &ReadOptions { label, ..ReadOptions::default() }).unwrap();
        let methods = HeadConfig::all().into_iter().map(|c| (c.name(), "distance".to_owned()));
        let detectors = DetectorConfig::all();
        let detectors = detectors.iter().map(|c| ("softmax", c.name().to_owned()));
        let kept = tempfile::tempdir().unwrap();
        for (method, detector) in methods.chain(detectors) {
            let settings = Settings::builder().preset(Preset::Paper).method(method).detector(&*detector).epochs(3);
            let settings = settings.schedule(Schedule::Cosine).build().unwrap();
            // The softmax network is trained once for all detectors.
            let checkpoint = Some(kept.path().join(method));
            let run = Run { threads: 2, checkpoint, resume: true, ..Run::default() };
            let s = scenario(&table, &table.classes()[1].clone(), 0, 5, &settings, &run)
                .unwrap_or_else(|e| panic!("{method}+{detector} on {name}: {e}"));
            assert!((0.0..=1.0).contains(&s.detection.auroc), "{method}+{detector} on {name}");
            assert_eq!(s.accuracy.is_some(), settings.head.classifies());
        }
    }
}
