//! Which learning rate schedule trains the paper's method best, by the loss on validation rows: the choice of `--preset paper`.
//!
//! ```text
//! schedule FILE.tsv NAME LABEL DATA... [-- seeds=5]
//! schedule FILE.tsv
//! ```
//! No class is left out, and no test row is read: each network is trained on nine tenths of the table and validated on the
//! others. Lines are appended to the file, and a run that was stopped goes on. Without data it prints the table.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use mcdd::data::{ReadOptions, Table};
use mcdd::model::Model;
use mcdd::train::optim::Schedule;
use mcdd::train::{Preset, Run, Settings};

type Failure = Box<dyn std::error::Error>;

/// A schedule and the epoch whose weights count.
const WAYS: [(&str, &str); 3] = [("constant", "last"), ("constant", "lowest loss"), ("cosine", "last")];

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cut = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let Some((file, data)) = args[..cut].split_first() else { return Err("usage: see the top of the source".into()) };
    if let [name, label, files @ ..] = data {
        let seeds = args[cut..].iter().find_map(|a| a.strip_prefix("seeds=")).map_or(Ok(5), str::parse::<u64>)?;
        run(file, name, label, files, seeds)?;
    }
    print(&fs::read_to_string(file)?);
    Ok(())
}

fn run(file: &str, name: &str, label: &str, files: &[String], seeds: u64) -> Result<(), Failure> {
    let options = ReadOptions { label: label.parse()?, ..ReadOptions::default() };
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&paths, &options)?;
    let done = fs::read_to_string(file).unwrap_or_default();
    for (seed, schedule) in (0..seeds).flat_map(|seed| ["constant", "cosine"].map(|s| (seed, s))) {
        let key = format!("{name}\t{seed}\t{schedule}\t");
        if done.lines().any(|line| line.starts_with(&key)) {
            continue;
        }
        let kind = if schedule == "cosine" { Schedule::Cosine } else { Schedule::Constant };
        let settings = Settings::builder().preset(Preset::Paper).schedule(kind).seed(seed).build()?;
        let model = Model::fit_with(&table, &settings, &Run { threads: 1, ..Run::default() })?.model;
        let (epochs, _) = model.history(0).ok_or("the model has no network")?;
        let mut out = OpenOptions::new().create(true).append(true).open(file)?;
        let mut write = |epoch: &str, e: &mcdd::train::Epoch| {
            let accuracy = e.validation_accuracy.unwrap_or(f64::NAN);
            writeln!(out, "{key}{epoch}\t{}\t{:.6}\t{accuracy:.6}", e.epoch + 1, e.validation_loss)
        };
        write("last", epochs.last().ok_or("no epochs")?)?;
        let lowest = epochs.iter().min_by(|a, b| a.validation_loss.total_cmp(&b.validation_loss));
        write("lowest loss", lowest.ok_or("no epochs")?)?;
        eprintln!("{name}, seed {seed}, {schedule}");
    }
    Ok(())
}

/// Means over seeds, and paired differences to the first way with their standard errors.
fn print(text: &str) {
    let mut cells: BTreeMap<(String, String), BTreeMap<u64, [f64; 2]>> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [name, seed, schedule, epoch, _, loss, accuracy] = parts[..] else { continue };
        let (Ok(seed), Ok(loss), Ok(accuracy)) = (seed.parse(), loss.parse(), accuracy.parse()) else { continue };
        if !names.iter().any(|n| n == name) {
            names.push(name.to_owned());
        }
        let key = (name.to_owned(), format!("{schedule}, {epoch}"));
        cells.entry(key).or_default().insert(seed, [loss, accuracy]);
    }
    println!("| data | schedule | epoch | seeds | validation loss | difference | validation accuracy |");
    println!("|---|---|---|---|---|---|---|");
    for name in &names {
        let of = |way: (&str, &str)| cells.get(&(name.clone(), format!("{}, {}", way.0, way.1)));
        let Some(first) = of(WAYS[0]) else { continue };
        for way in WAYS {
            let Some(found) = of(way) else { continue };
            let n = found.len() as f64;
            let mean = |i: usize| found.values().map(|v| v[i]).sum::<f64>() / n;
            let differences: Vec<f64> = found.iter().filter_map(|(s, v)| Some(v[0] - first.get(s)?[0])).collect();
            let d = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
            let variance = differences.iter().map(|v| (v - d).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
            let difference = match way == WAYS[0] {
                true => String::new(),
                false => format!("{d:+.4} ± {:.4}", (variance / n).sqrt()),
            };
            let (schedule, epoch) = way;
            println!(
                "| {name} | {schedule} | {epoch} | {n} | {:.4} | {difference} | {:.2} |",
                mean(0),
                100.0 * mean(1)
            );
        }
    }
}
