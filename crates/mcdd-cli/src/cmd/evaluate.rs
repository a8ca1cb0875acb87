//! `mcdd evaluate`: accuracy on known rows, and how well unknown ones are noticed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::{Label, ReadOptions};
use mcdd::metrics::{self, Detection, Interval};
use mcdd::model::{Model, Predictions, Threshold};
use mcdd::report::model::{About, Gather, Place, Side};
use serde_json::{Value, json};

use super::predict::{for_each_block, threshold, without_labels};
use crate::options::{self, Reading, Running};
use crate::report::{self, Reporting, file_name, file_names};
use crate::ui::{self, percent};

const EXAMPLES: &str = "\
Examples:
  mcdd evaluate flowers.mcdd test.csv                        accuracy, and how many rows are kept
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv stones.csv
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv --json
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv --report flowers.html    a page to look at

Rows of DATA whose label is no class of the model are measured as an OOD set of their own.
Nothing is fitted or chosen here: threshold and model are those of training.";

/// Measure a model on labeled rows, and on rows that it should not know
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model
    model: PathBuf,

    /// In-distribution rows with labels; for a model of images a folder for each class, or a data set's files
    #[arg(value_name = "DATA")]
    data: PathBuf,

    /// Out-of-distribution rows; each is a set of its own
    #[arg(long, value_name = "DATA", num_args = 1..)]
    ood: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Share of known rows to keep [default: as trained]
    #[arg(long, value_name = "SHARE")]
    tpr: Option<f64>,

    /// Replicates for the 95% intervals; 0 for no intervals
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = options::replicates)]
    bootstrap: usize,

    /// Seed of the replicates, and of the rows that a report draws
    #[arg(long, default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    reporting: Reporting,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

/// What is kept of a file's rows.
#[derive(Default)]
struct Scored {
    confidence: Vec<f64>,
    /// Whether the class was right, where there is a label.
    right: Vec<bool>,
    /// Confidences of rows whose label is no class of the model.
    foreign: Vec<f64>,
}

struct OodSet {
    name: String,
    confidence: Vec<f64>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.reporting.check(args.ood.iter().chain([&args.model, &args.data]))?;
    let model = Model::load(&args.model)?;
    let threshold = threshold(model.calibration(), args.tpr.unwrap_or(model.settings().tpr), args.running.quiet)?;
    let pool = Pool::new(args.running.threads());
    let mut gather = match args.reporting.wanted() {
        true => Some(Gather::new(&model, threshold.wanted, args.ood.len() + 1, args.seed)?),
        false => None,
    };
    let mut notices = Vec::new();
    let paths: Vec<&Path> = std::iter::once(&args.data).chain(&args.ood).map(PathBuf::as_path).collect();
    let names = file_names(&paths);
    let mut scorer =
        Scorer { model: &model, pool: &pool, gather: &mut gather, notices: &mut notices, quiet: args.running.quiet };
    let id = scorer.score(&args.data, &names[0], &args.reading.options(), false)?;
    if id.confidence.is_empty() {
        let e = mcdd::Error::data("no row has a class of this model").at_file(&args.data);
        return Err(e.hint("check the file and --label; mcdd inspect lists the classes").into());
    }
    if !id.right.is_empty() && id.right.len() < id.confidence.len() {
        let e = mcdd::Error::data("some rows have a label and some have none").at_file(&args.data);
        return Err(e.hint("fill the labels in, or give --label none").into());
    }
    let mut sets = Vec::new();
    if !id.foreign.is_empty() {
        let name = format!("rows of {} whose label is no class of the model", args.data.display());
        sets.push(OodSet { name, confidence: id.foreign });
    }
    for (path, name) in args.ood.iter().zip(&names[1..]) {
        // Their labels are of no use; only that the column of the model's labels is known for one is.
        let options = without_labels(&model, ReadOptions { label: Label::Auto, ..args.reading.options() });
        let found = scorer.score(path, name, &options, true)?;
        // Whatever their labels say, these rows were given as unknown.
        let confidence = [found.confidence, found.foreign].concat();
        sets.push(OodSet { name: path.display().to_string(), confidence });
    }
    let report = Report {
        args: &args,
        threshold,
        confidence: id.confidence,
        right: id.right,
        sets,
        classifies: model.classifies(),
    };
    let text = if args.json { format!("{:#}\n", report.json()?) } else { report.text()? };
    // Before anything is printed: whoever reads the output may not read to its end.
    if let Some(gather) = gather {
        let about = About {
            title: format!("{} on {}", file_name(&args.model), names[0]),
            data: names[0].clone(),
            held_out: false,
            command: report::command(),
            notices,
        };
        args.reporting.write(&gather.finish(about, &pool)?, args.running.quiet)?;
    }
    ui::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Scores files, and gathers for a report where one is wanted.
struct Scorer<'a, 'm> {
    model: &'m Model,
    pool: &'a Pool,
    gather: &'a mut Option<Gather<'m>>,
    notices: &'a mut Vec<String>,
    quiet: bool,
}

impl Scorer<'_, '_> {
    fn score(&mut self, path: &Path, name: &str, options: &ReadOptions, unknown: bool) -> anyhow::Result<Scored> {
        let mut out = Scored::default();
        let mut predictions = Predictions::default();
        let (model, gather) = (self.model, &mut *self.gather);
        let mut set = if unknown { gather.as_mut().map(|g| g.set(name)) } else { None };
        let mut row = 0;
        let notices = for_each_block(model, path, options, |batch| {
            model.predict_rows(&batch.x, &mut predictions, self.pool)?;
            for (i, x) in batch.x.chunks_exact(model.schema().width()).enumerate() {
                row += 1;
                let label = batch.labels.as_ref().and_then(|l| l[i].as_deref());
                let class = label.map(|l| model.classes().iter().position(|c| c == l));
                if let Some(gather) = gather {
                    let foreign = unknown || class == Some(None);
                    let others = || format!("{name}: labels that are no class");
                    let side = match foreign {
                        true => Side::Unknown(*set.get_or_insert_with(|| gather.set(&others()))),
                        false => Side::Known(class.flatten()),
                    };
                    let at = Place { row, file: batch.names.get(i).map(String::as_str) };
                    gather.add(side, at, x, label, &predictions, i);
                }
                match class {
                    Some(None) => out.foreign.push(predictions.confidence[i]),
                    Some(Some(class)) => {
                        out.confidence.push(predictions.confidence[i]);
                        out.right.extend(predictions.class.get(i).map(|&c| class == c as usize));
                    }
                    None => out.confidence.push(predictions.confidence[i]),
                }
            }
            Ok(())
        })?;
        if !self.quiet {
            notices.iter().for_each(|n| ui::note(n));
        }
        self.notices.extend(notices.iter().map(|n| format!("{name}: {n}")));
        Ok(out)
    }
}

struct Report<'a> {
    args: &'a Args,
    threshold: Threshold,
    confidence: Vec<f64>,
    right: Vec<bool>,
    sets: Vec<OodSet>,
    classifies: bool,
}

impl Report<'_> {
    fn accuracy(&self) -> mcdd::Result<Option<(f64, Option<Interval>)>> {
        if self.right.is_empty() {
            return Ok(None);
        }
        let (n, seed) = (self.args.bootstrap, self.args.seed);
        let interval = if n > 0 { Some(metrics::accuracy_interval(&self.right, n, seed, 0)?) } else { None };
        Ok(Some((metrics::accuracy(&self.right)?.accuracy, interval)))
    }

    fn detect(&self, set: &OodSet) -> mcdd::Result<(Detection, Option<[Interval; 8]>)> {
        let intervals = match self.args.bootstrap {
            0 => None,
            n => Some(metrics::bootstrap(&self.confidence, &set.confidence, n, self.args.seed, 0)?.rows()),
        };
        Ok((metrics::detection(&self.confidence, &set.confidence)?, intervals))
    }

    fn known(&self, confidence: &[f64]) -> f64 {
        confidence.iter().filter(|&&c| self.threshold.known(c)).count() as f64 / confidence.len() as f64
    }

    /// The accuracy among the rows that are kept.
    fn kept_accuracy(&self) -> Option<f64> {
        let kept: Vec<bool> = self
            .confidence
            .iter()
            .zip(&self.right)
            .filter(|(c, _)| self.threshold.known(**c))
            .map(|(_, &r)| r)
            .collect();
        metrics::accuracy(&kept).ok().map(|a| a.accuracy)
    }

    fn text(&self) -> anyhow::Result<String> {
        let mut out = String::new();
        let with = |v: f64, i: Option<Interval>| match i {
            Some(i) => format!("{}  [{}, {}]", percent(v), percent(i.low), percent(i.high)),
            None => percent(v),
        };
        writeln!(out, "in-distribution: {} ({} rows)", self.args.data.display(), self.confidence.len())?;
        match self.accuracy()? {
            Some((a, interval)) => writeln!(out, "  accuracy %                       {}", with(a, interval))?,
            None => {
                let why = if self.classifies { "no labels" } else { "the method does not classify" };
                writeln!(out, "  accuracy %                       n/a ({why})")?;
            }
        }
        writeln!(
            out,
            "  kept as known %                  {}  (threshold {:.4}, set for {}%)",
            percent(self.known(&self.confidence)),
            self.threshold.confidence,
            percent(self.threshold.tpr)
        )?;
        if let Some(a) = self.kept_accuracy() {
            writeln!(out, "  accuracy among those kept %      {}", percent(a))?;
        }
        for set in &self.sets {
            let (d, intervals) = self.detect(set)?;
            writeln!(out, "\nout-of-distribution: {} ({} rows)", set.name, set.confidence.len())?;
            writeln!(out, "  rejected as unknown %            {}", percent(1.0 - self.known(&set.confidence)))?;
            for (i, row) in d.rows().iter().enumerate() {
                let name = format!("{} %, positive: {}", row.name, row.positive);
                writeln!(out, "  {name:<32} {}", with(row.value, intervals.map(|n| n[i])))?;
            }
            writeln!(out, "  tied pairs %                     {}", percent(d.tie_share))?;
        }
        if self.args.bootstrap > 0 {
            writeln!(out, "\n[low, high]: 95% bootstrap interval, {} replicates", self.args.bootstrap)?;
        }
        Ok(out)
    }

    fn json(&self) -> anyhow::Result<Value> {
        let accuracy = self.accuracy()?.map(|(value, interval)| json!({ "value": value, "interval95": interval }));
        let mut sets = Vec::new();
        for set in &self.sets {
            let (d, intervals) = self.detect(set)?;
            let rows = d.rows();
            let metrics: serde_json::Map<String, Value> = rows
                .iter()
                .enumerate()
                .map(|(i, r)| {
                    let value = json!({ "name": r.name, "positive": r.positive, "value": r.value, "interval95": intervals.map(|n| n[i]) });
                    (r.key.to_owned(), value)
                })
                .collect();
            sets.push(json!({
                "name": set.name,
                "rows": set.confidence.len(),
                "rejected": 1.0 - self.known(&set.confidence),
                "tie_share": d.tie_share,
                "metrics": metrics,
            }));
        }
        Ok(json!({
            "rows": self.confidence.len(),
            "accuracy": accuracy,
            "kept": self.known(&self.confidence),
            "accuracy_among_kept": self.kept_accuracy(),
            "threshold": self.threshold,
            "ood": sets,
            "bootstrap": { "replicates": self.args.bootstrap, "seed": self.args.seed },
        }))
    }
}
