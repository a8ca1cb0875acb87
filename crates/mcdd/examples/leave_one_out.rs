//! Each class of a table left out in turn, on one fold: the study behind `docs/decisions/0003-sigma.md`.
//!
//! ```text
//! leave_one_out LABEL FILE... [-- NAME=VALUE...]
//! leave_one_out last Sensorless_drive_diagnosis.txt -- method=deep-mcdd:sigma=learned detector=distance seeds=3
//! ```

use std::path::PathBuf;

use mcdd::data::{ReadOptions, Table};
use mcdd::detector::Detect;
use mcdd::head::HeadConfig;
use mcdd::protocol::leave_one_out;
use mcdd::train::optim::Schedule;
use mcdd::train::{Preset, Settings};

fn main() -> mcdd::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cut = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let Some((label, files)) = args[..cut].split_first() else {
        eprintln!("usage: leave_one_out LABEL FILE... [-- NAME=VALUE...]");
        std::process::exit(2);
    };
    let label = label.parse().unwrap_or_default();
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&files, &ReadOptions { label, ..ReadOptions::default() })?;
    let mut settings = Settings { schedule: Schedule::Cosine, ..Preset::Paper.settings() };
    let mut seeds = 1u64;
    for option in args.iter().skip(cut + 1) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = || value.parse::<f64>().unwrap_or(f64::NAN);
        match (name, value) {
            ("method", _) => settings.head = HeadConfig::parse(value)?,
            ("preset", _) => {
                let found = Preset::ALL.into_iter().find(|p| p.name() == value);
                settings = found.map_or(settings, Preset::settings);
            }
            ("detector", _) => settings.detector = Detect::parse(value)?,
            ("schedule", "constant") => settings.schedule = Schedule::Constant,
            ("schedule", "cosine") => settings.schedule = Schedule::Cosine,
            ("lr", _) => settings.lr = number(),
            ("epochs", _) => settings.epochs = number() as usize,
            ("seeds", _) => seeds = number() as u64,
            _ => {
                eprintln!("unknown option {option}");
                std::process::exit(2);
            }
        }
    }
    println!("seed  accuracy  TNR85  AUROC  AUPR   det. acc.  worst AUROC   (means over left-out classes, fold 0)");
    for seed in 0..seeds {
        settings.seed = seed;
        let all = leave_one_out(&table, 0, 5, &settings, 2)?;
        let mean = |f: fn(&mcdd::protocol::Scenario) -> f64| all.iter().map(f).sum::<f64>() * 100.0 / all.len() as f64;
        let worst = all.iter().map(|s| s.detection.auroc).fold(1.0, f64::min) * 100.0;
        println!(
            "{seed:>4}  {:>8.2}  {:>5.2}  {:>5.2}  {:>5.2}  {:>8.2}  {worst:>8.2}",
            mean(|s| s.accuracy.unwrap_or(f64::NAN)),
            mean(|s| s.detection.tnr85),
            mean(|s| s.detection.auroc),
            mean(|s| s.detection.aupr_id),
            mean(|s| s.detection.detection_accuracy),
        );
    }
    Ok(())
}
