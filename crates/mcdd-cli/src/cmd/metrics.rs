//! `mcdd metrics`: detection metrics of two files of scores.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use mcdd::Result;
use mcdd::data::scores;
use mcdd::error::count;
use mcdd::metrics::{self, Detection, DetectionIntervals, Row};
use serde_json::{Value, json};

use crate::{options, ui};

const EXAMPLES: &str = "\
Examples:
  mcdd metrics id.txt ood.txt                      one number on each line
  mcdd metrics id.csv ood.csv --column confidence  a column by its name, or its number from 1
  mcdd metrics id.npy ood.npy --json               one-dimensional NumPy arrays, JSON output
  mcdd metrics id.npy ood.npy --compat openood     as OpenOOD 1.5 computes them
  mcdd metrics id.txt ood.txt --compat authors     as the code published with Deep-MCDD does

A higher score must mean more in-distribution: negate distances and anomaly scores. \
Equal scores are one threshold; a tied pair counts one half in the AUROC.";

/// Measure how well scores separate in-distribution (ID) from out-of-distribution (OOD) rows
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scores of ID rows: text, CSV, NPY, Parquet, …
    pub id_scores: PathBuf,

    /// Scores of OOD rows, in any of these formats
    pub ood_scores: PathBuf,

    /// Column of the scores: a name, or a number from 1 [default: "confidence", "score" or the only one]
    #[arg(long, value_name = "NAME|NUMBER")]
    pub column: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Use the definitions of another implementation, to compare with published numbers
    #[arg(long, value_enum)]
    pub compat: Option<Compat>,

    /// Bootstrap replicates for the 95% intervals; 0 for no intervals
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "compat", value_parser = options::replicates)]
    pub bootstrap: usize,

    /// Seed of the replicates
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Definitions of another implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compat {
    /// The code published with Deep-MCDD: a tie counts as an error
    Authors,
    /// OpenOOD 1.5: OOD is positive, trapezoids under precision-recall curves
    Openood,
}

impl Compat {
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Compat::Authors => ("authors", "the code published with Deep-MCDD; a tie counts as an error"),
            Compat::Openood => ("openood", "OpenOOD 1.5; trapezoids under precision-recall curves"),
        }
    }
}

impl From<Compat> for metrics::Compat {
    fn from(compat: Compat) -> Self {
        match compat {
            Compat::Authors => metrics::Compat::Authors,
            Compat::Openood => metrics::Compat::Openood,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let id = scores(&args.id_scores, args.column.as_deref())?;
    let ood = scores(&args.ood_scores, args.column.as_deref())?;
    let report = Report::new(&id, &ood, &args)?;
    let text = if args.json { report.json()? } else { report.table() };
    ui::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The output, as a table or as JSON.
struct Report {
    compat: Option<Compat>,
    n_id: usize,
    n_ood: usize,
    tie_fraction: f64,
    rows: Vec<Row>,
    /// With the number of replicates and the seed.
    intervals: Option<(DetectionIntervals, usize, u64)>,
}

impl Report {
    fn new(id: &[f64], ood: &[f64], args: &Args) -> Result<Self> {
        if let Some(compat) = args.compat {
            let found = metrics::detection_compat(id, ood, compat.into())?;
            let (n_id, n_ood) = found.counts();
            let tie_fraction = found.tie_fraction();
            return Ok(Report { compat: args.compat, n_id, n_ood, tie_fraction, rows: found.rows(), intervals: None });
        }
        let found = metrics::detection(id, ood)?;
        let intervals = match args.bootstrap {
            0 => None,
            n => Some((metrics::bootstrap(id, ood, n, args.seed, 0)?, n, args.seed)),
        };
        let Detection { n_id, n_ood, tie_fraction, .. } = found;
        Ok(Report { compat: None, n_id, n_ood, tie_fraction, rows: found.rows().to_vec(), intervals })
    }

    fn table(&self) -> String {
        let percent = |value: f64| format!("{:.2}", 100.0 * value);
        let mut text = format!(
            "{}, {}, {}% of ID-OOD pairs tied; a higher score is more in-distribution\n",
            count(self.n_id, "ID score"),
            count(self.n_ood, "OOD score"),
            percent(self.tie_fraction)
        );
        if let Some((name, meaning)) = self.compat.map(Compat::describe) {
            text += &format!("definitions: {name} ({meaning})\n");
        }
        let head = if self.intervals.is_some() { "  95% interval" } else { "" };
        text += &format!("\n{:<20}{:<15}{:>7}{head}\n", "metric", "", "%");
        let intervals = self.intervals.as_ref().map(|(intervals, ..)| intervals.rows());
        for (i, row) in self.rows.iter().enumerate() {
            text += &format!("{:<20}positive: {:<5}{:>7}", row.name, row.positive, percent(row.value));
            if let Some(interval) = intervals.as_ref().and_then(|all| all.get(i)) {
                text += &format!("  {:>6} to {:>6}", percent(interval.low), percent(interval.high));
            }
            text.push('\n');
        }
        if let Some((_, replicates, seed)) = &self.intervals {
            text += &format!("\nintervals: percentile bootstrap, {}, seed {seed}\n", count(*replicates, "replicate"));
        }
        text
    }

    fn json(&self) -> anyhow::Result<String> {
        let intervals = self.intervals.as_ref().map(|(intervals, ..)| intervals.rows());
        let rows = self.rows.iter().enumerate().map(|(i, row)| {
            let mut entry = json!({ "name": row.name, "positive": row.positive, "value": row.value });
            if let Some(interval) = intervals.as_ref().and_then(|all| all.get(i)) {
                entry["interval95"] = json!(interval);
            }
            (row.key.to_owned(), entry)
        });
        let report = json!({
            "compat": self.compat.map(|c| c.describe().0),
            "n_id": self.n_id,
            "n_ood": self.n_ood,
            "tie_fraction": self.tie_fraction,
            "metrics": Value::Object(rows.collect()),
            "bootstrap": self.intervals.as_ref().map(|(_, n, seed)| json!({ "replicates": n, "seed": seed })),
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &[&str]) -> Args {
        Command::try_parse_from(["metrics", "id", "ood"].iter().chain(flags)).unwrap().args
    }

    const ID: [f64; 4] = [4.0, 3.0, 3.0, 2.0];
    const OOD: [f64; 3] = [3.0, 1.0, 0.0];

    #[test]
    fn every_line_has_its_positive_class() {
        for flags in [&["--compat", "authors"][..], &["--compat", "openood"], &["--bootstrap", "0"], &[]] {
            let report = Report::new(&ID, &OOD, &parse(flags)).unwrap();
            let table = report.table();
            let positive = table.lines().filter(|l| l.contains("positive: ID") || l.contains("positive: OOD"));
            assert_eq!(positive.count(), report.rows.len());
            assert!(table.starts_with("4 ID scores, 3 OOD scores, 16.67% of ID-OOD pairs tied"), "{table}");
            assert_eq!(table.contains("95% interval"), flags.is_empty());
            if let [_, mode @ ("authors" | "openood")] = flags {
                assert!(table.contains(&format!("definitions: {mode}")));
            }
        }
    }

    #[test]
    fn json_has_the_same_numbers() {
        let report = Report::new(&ID, &OOD, &parse(&["--bootstrap", "10", "--seed", "3"])).unwrap();
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["n_id"], 4);
        assert_eq!(json["compat"], Value::Null);
        assert_eq!(json["metrics"]["auroc"]["value"], 10.0 / 12.0);
        assert_eq!(json["metrics"]["fpr95_ood"]["positive"], "OOD");
        assert!(json["metrics"]["tnr85"]["interval95"]["low"].is_f64());
        assert_eq!(json["bootstrap"], json!({ "replicates": 10, "seed": 3 }));
        let report = Report::new(&ID, &OOD, &parse(&["--compat", "authors"])).unwrap();
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["compat"], "authors");
        assert_eq!(json["bootstrap"], Value::Null);
        assert_eq!(json["metrics"]["auout"]["positive"], "OOD");
    }
}
