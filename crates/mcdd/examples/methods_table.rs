//! Every method and every detector on one table, each class left out in turn, fold 0 of 5, one seed: the study behind
//! `docs/methods.md`.
//!
//! ```text
//! methods_table FOLDER LABEL FILE...
//! methods_table gas-study first batch*.dat
//! ```
//!
//! Results are appended to `FOLDER/cells.tsv` as they come, and a run that was stopped goes on where it was. The table
//! is printed as Markdown at the end.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcdd::data::{ReadOptions, Table};
use mcdd::detector::{Detect, DetectorConfig};
use mcdd::head::{self, HeadConfig};
use mcdd::protocol::scenario;
use mcdd::train::{Run, Settings};

/// The detectors that are put on a network; those that need a linear layer go on softmax only.
fn combinations() -> Vec<(String, String)> {
    let own = |m: &str| (m.to_owned(), "distance".to_owned());
    let mut all: Vec<(String, String)> = head::ALL.iter().map(|e| own(e.name)).collect();
    all.push(own("deep-svdd:boundary=soft"));
    all.push(own("gda:covariance=full"));
    all.push(own("gda:covariance=diagonal"));
    let detectors: Vec<DetectorConfig> = DetectorConfig::all().into_iter().filter(|c| !c.about().needs.head).collect();
    for method in ["softmax", "deep-mcdd"] {
        for d in &detectors {
            let needs = d.about().needs;
            if method == "softmax" || (!needs.linear && needs.features) {
                all.push((method.to_owned(), d.name().to_owned()));
            }
        }
    }
    // On the inputs themselves no network is needed; gda is the method that has none.
    for d in detectors.iter().filter(|d| !d.about().needs.logits && d.name() != "mahalanobis-ensemble") {
        all.push(("gda".to_owned(), d.name().to_owned()));
    }
    all
}

/// One line of `cells.tsv`: method, detector, class, accuracy, TNR85, AUROC, AUPR, detection accuracy, seconds.
type Key = (String, String, String);

fn read(path: &Path) -> HashMap<Key, Vec<f64>> {
    let mut cells = HashMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        if let [method, detector, class, numbers @ ..] = parts.as_slice() {
            let numbers: Vec<f64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
            if numbers.len() == 6 {
                cells.insert((method.to_string(), detector.to_string(), class.to_string()), numbers);
            }
        }
    }
    cells
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, label, files @ ..] = args.as_slice() else {
        return Err("usage: methods_table FOLDER LABEL FILE...".into());
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&paths, &ReadOptions { label: label.parse().unwrap_or_default(), ..Default::default() })?;
    let results = folder.join("cells.tsv");
    let done = read(&results);
    let out = Mutex::new(OpenOptions::new().create(true).append(true).open(&results)?);
    // A class at a time for each thread; a method's networks are trained once and kept for its detectors.
    let next = AtomicUsize::new(0);
    let combinations = combinations();
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(class) = table.classes().get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (method, detector) in &combinations {
                        let key = (method.clone(), detector.clone(), class.clone());
                        if !done.contains_key(&key)
                            && let Err(e) = cell(&table, &key, &folder, &out)
                        {
                            eprintln!("{method}+{detector} without {class} failed: {e}");
                        }
                    }
                }
            });
        }
    });
    print(&table, &combinations, &read(&results));
    Ok(())
}

fn cell(table: &Table, key: &Key, folder: &Path, out: &Mutex<fs::File>) -> Result<(), Box<dyn std::error::Error>> {
    let (method, detector, class) = key;
    let settings =
        Settings { head: HeadConfig::parse(method)?, detector: Detect::parse(detector)?, ..Settings::default() };
    let name: String = format!("{method}-{class}").chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let checkpoint = Some(folder.join(name));
    let run = Run { threads: 1, checkpoint, resume: true, ..Run::default() };
    let start = std::time::Instant::now();
    let s = scenario(table, class, 0, 5, &settings, &run)?;
    let d = &s.detection;
    let accuracy = s.accuracy.unwrap_or(f64::NAN);
    let seconds = start.elapsed().as_secs_f64();
    let line = format!(
        "{method}\t{detector}\t{class}\t{accuracy}\t{}\t{}\t{}\t{}\t{seconds:.2}\n",
        d.tnr85, d.auroc, d.aupr_id, d.detection_accuracy
    );
    if let Ok(mut out) = out.lock() {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn print(table: &Table, combinations: &[(String, String)], cells: &HashMap<Key, Vec<f64>>) {
    println!("| method | detector | accuracy | TNR85 | AUROC | worst AUROC | AUPR | det. acc. |");
    println!("|---|---|---|---|---|---|---|---|");
    for (method, detector) in combinations {
        let found: Vec<&Vec<f64>> =
            table.classes().iter().filter_map(|c| cells.get(&(method.clone(), detector.clone(), c.clone()))).collect();
        if found.len() < table.classes().len() {
            println!("| {method} | {detector} | {} of {} classes | | | | | |", found.len(), table.classes().len());
            continue;
        }
        let mean = |i: usize| found.iter().map(|n| n[i]).sum::<f64>() * 100.0 / found.len() as f64;
        let worst = found.iter().map(|n| n[2]).fold(1.0, f64::min) * 100.0;
        let accuracy = if mean(0).is_nan() { "n/a".into() } else { format!("{:.2}", mean(0)) };
        println!(
            "| {method} | {detector} | {accuracy} | {:.2} | {:.2} | {worst:.2} | {:.2} | {:.2} |",
            mean(1),
            mean(2),
            mean(3),
            mean(4)
        );
    }
}
