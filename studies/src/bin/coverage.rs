//! How many new known rows a threshold keeps, over random splits of a table: the study behind `docs/calibration.md`.
//!
//! ```text
//! coverage FILE.tsv NAME LABEL TABLE... [-- splits=200 rows=100 preset=best tag=cross per-class fraction=0.2]
//! coverage coverage.tsv vowel label vowel.csv -- splits=200
//! coverage coverage.tsv                                   # prints the summary as Markdown
//! ```
//!
//! Split `s` trains with seed `s` on four fifths of the rows (or on `rows` of them), drawn at random, class by class. With
//! three classes or more one is left out of training in turn, and its rows are out-of-distribution. The other rows are
//! test rows; copies of training rows among them stay, as new rows may be copies too. A line is appended to the file for
//! each split, and a study that was stopped goes on where it was.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcdd::data::{ReadOptions, Table};
use mcdd::metrics;
use mcdd::model::{Model, Predictions, Threshold};
use mcdd::train::{Preset, Run, Settings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The fractions of known rows to keep.
const LEVELS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];

/// What is studied.
struct Study {
    tag: String,
    name: String,
    splits: usize,
    rows: Option<usize>,
    settings: Settings,
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cut = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let usage =
        "usage: coverage FILE.tsv [NAME LABEL TABLE... [-- splits=N rows=N preset=NAME tag=TAG per-class fraction=F]]";
    let Some(file) = args.first().map(PathBuf::from) else { return Err(usage.into()) };
    if args.len() > 1 {
        let [name, label, files @ ..] = &args[1..cut] else { return Err(usage.into()) };
        let mut study =
            Study { tag: "cross".into(), name: name.clone(), splits: 200, rows: None, settings: Settings::default() };
        for option in args.iter().skip(cut + 1) {
            match option.split_once('=') {
                Some(("splits", n)) => study.splits = n.parse()?,
                Some(("rows", n)) => study.rows = Some(n.parse()?),
                Some(("tag", t)) => study.tag = t.into(),
                Some(("fraction", f)) => study.settings.calibration_fraction = Some(f.parse()?),
                Some(("preset", p)) => {
                    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == p);
                    study.settings = preset.ok_or("no such preset")?.settings();
                }
                _ => return Err(usage.into()),
            }
        }
        let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let options = ReadOptions { label: label.parse().unwrap_or_default(), ..Default::default() };
        run(&file, &study, &Table::read(&paths, &options)?)?;
    }
    print(&fs::read_to_string(&file).unwrap_or_default());
    Ok(())
}

/// A generator of random numbers that does not depend on the library's.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
    }
}

/// The rows of a split: known rows to train on and to test on, and those of the class that is left out.
fn divide(table: &Table, study: &Study, split: usize) -> Result<(Table, Table, Option<Table>), Failure> {
    let classes = table.classes();
    let (known, unknown) = match classes.len() {
        0..=2 => (table.clone(), None),
        n => {
            let (known, unknown) = table.leave_out(&classes[split % n])?;
            (known, Some(unknown))
        }
    };
    let mut random = Random(split as u64 + 1);
    let fraction = study.rows.map_or(0.8, |rows| (rows as f64 / known.rows() as f64).min(0.8));
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for class in 0..known.classes().len() {
        let mut rows: Vec<usize> = (0..known.rows()).filter(|&r| known.label(r) == Some(class as u32)).collect();
        for i in (1..rows.len()).rev() {
            rows.swap(i, random.below(i + 1));
        }
        let count = ((rows.len() as f64 * fraction).round() as usize).max(5.min(rows.len()));
        train.extend_from_slice(&rows[..count]);
        test.extend_from_slice(&rows[count..]);
    }
    train.sort_unstable();
    // Classes with fewer than five rows cannot be trained on; here they are left out whole.
    let sizes = known.class_sizes();
    let train = known.select(&train).with_classes(|c| sizes[c] >= 5);
    let test = known.select(&test).with_classes(|c| sizes[c] >= 5);
    Ok((train, test, unknown))
}

/// The fraction of rows that a threshold keeps.
fn kept(predictions: &Predictions, threshold: &Threshold) -> f64 {
    let kept = (0..predictions.rows()).filter(|&i| threshold.known(predictions.confidence[i])).count();
    kept as f64 / predictions.rows() as f64
}

fn one(table: &Table, study: &Study, split: usize) -> Result<String, Failure> {
    let (train, test, unknown) = divide(table, study, split)?;
    let mut settings = study.settings.clone();
    settings.seed = split as u64;
    let model = Model::fit_with(&train, &settings, &Run { threads: 1, ..Run::default() })?.model;
    let known = model.predict(&test)?;
    let unknown = unknown.map(|table| model.predict(&table)).transpose()?;
    let right = known.class.iter().enumerate().filter(|(i, c)| test.label(*i) == Some(**c)).count();
    let mut numbers = vec![train.rows() as f64, model.calibration().scores().len() as f64];
    numbers.push(right as f64 / test.rows() as f64);
    numbers.push(match &unknown {
        Some(unknown) => metrics::detection(&known.confidence, &unknown.confidence)?.auroc,
        None => f64::NAN,
    });
    for level in LEVELS {
        let threshold = model.threshold_at(Some(level))?;
        numbers.push(kept(&known, &threshold));
        numbers.push(unknown.as_ref().map_or(f64::NAN, |u| 1.0 - kept(u, &threshold)));
    }
    let numbers: Vec<String> = numbers.into_iter().map(|v| format!("{v:.6}")).collect();
    Ok(format!("{}\t{}\t{split}\t{}\n", study.tag, study.name, numbers.join("\t")))
}

fn run(file: &PathBuf, study: &Study, table: &Table) -> Result<(), Failure> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let prefix = format!("{}\t{}\t", study.tag, study.name);
    let done: HashSet<usize> =
        text.lines().filter_map(|l| l.strip_prefix(&prefix)?.split('\t').next()?.parse().ok()).collect();
    let todo: Vec<usize> = (0..study.splits).filter(|s| !done.contains(s)).collect();
    let out = Mutex::new(OpenOptions::new().create(true).append(true).open(file)?);
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&split) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one(table, study, split) {
                        Ok(line) => {
                            if let Ok(mut out) = out.lock()
                                && let Err(e) = out.write_all(line.as_bytes())
                            {
                                eprintln!("{e}");
                            }
                        }
                        Err(e) => eprintln!("{} split {split}: {e}", study.name),
                    }
                }
            });
        }
    });
    Ok(())
}

/// Mean and standard deviation.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64, usize) {
    let n = values.clone().count();
    let mean = values.clone().sum::<f64>() / n as f64;
    let variance = values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n as f64 - 1.0);
    (mean, variance.sqrt(), n)
}

/// For each table and way: the fraction of known test rows that is kept, with its standard error and, in parentheses, its
/// standard deviation over splits; then the fraction of out-of-distribution rows that is rejected at 95%.
fn print(text: &str) {
    let mut all: BTreeMap<(String, String), Vec<Vec<f64>>> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let [tag, name, _, numbers @ ..] = fields.as_slice() {
            let numbers: Vec<f64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
            if numbers.len() == 4 + 2 * LEVELS.len() {
                all.entry((name.to_string(), tag.to_string())).or_default().push(numbers);
            }
        }
    }
    println!(
        "| table | way | splits | training rows | calibration rows | accuracy | AUROC | kept at 80% | 90% | 95% | 99% | rejected at 95% |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for ((name, tag), lines) in all {
        let column = |i: usize| moments(lines.iter().map(move |l| l[i]));
        let percent = |i: usize| match column(i).0 {
            v if v.is_nan() => "".into(),
            v => format!("{:.1}", 100.0 * v),
        };
        let kept: Vec<String> = (0..LEVELS.len())
            .map(|level| {
                let (mean, deviation, n) = column(4 + 2 * level);
                let error = deviation / (n as f64).sqrt();
                let low = if mean + error < LEVELS[level] { " (low)" } else { "" };
                format!("{:.1} ± {:.1} ({:.1}){low}", 100.0 * mean, 100.0 * error, 100.0 * deviation)
            })
            .collect();
        println!(
            "| {name} | {tag} | {} | {:.0} | {:.0} | {} | {} | {} | {} |",
            lines.len(),
            column(0).0,
            column(1).0,
            percent(2),
            percent(3),
            kept.join(" | "),
            percent(5 + 2 * 2)
        );
    }
}
