//! `mcdd evaluate`: accuracy on in-distribution rows, and detection of out-of-distribution rows.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::{Label, ReadOptions};
use mcdd::error::count;
use mcdd::evaluate::{Bootstrap, ClassEvaluation, Evaluation, Evaluator};
use mcdd::metrics::Interval;
use mcdd::model::Model;
use mcdd::report::model::{About, Gather};
use mcdd::stream;

use super::predict::checked;
use crate::options::{self, Loading, Reading, Running};
use crate::places::Places;
use crate::report::{self, Reporting, file_name, file_names};
use crate::ui::{self, percent};

const EXAMPLES: &str = "\
Examples:
  mcdd evaluate flowers.mcdd test.csv                        accuracy, and the rows kept as known
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv stones.csv
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv --json
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv --report flowers.html    an HTML page

Rows of DATA with a label that is not a class of the model are an OOD set of their own. \
Nothing is fitted or chosen here: threshold and model are those of training.";

/// Evaluate a model on in-distribution rows with labels, and on out-of-distribution rows
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// In-distribution rows with labels; for a model of images a folder for each class, or the files of a data set
    #[arg(value_name = "DATA")]
    data: PathBuf,

    /// Out-of-distribution rows; each file or folder is a set of its own
    #[arg(long, value_name = "DATA", num_args = 1..)]
    ood: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Fraction of in-distribution rows to keep [default: as trained]
    #[arg(long, value_name = "FRACTION")]
    tpr: Option<f64>,

    /// Bootstrap replicates for the 95% intervals; 0 for no intervals
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = options::replicates)]
    bootstrap: usize,

    /// Seed of the replicates, and of the rows shown in a report
    #[arg(long, default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    reporting: Reporting,

    /// Leave out rows of DATA without a label, and report their number
    #[arg(long, visible_alias = "skip-unlabelled", help_heading = "Reading")]
    skip_unlabeled: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let labels = args.reading.label_file();
    let inputs = args.ood.iter().chain([&args.model, &args.data]).chain(&labels);
    args.reporting.check(&mut Places::reading(inputs.map(PathBuf::as_path)))?;
    let model = args.loading.model(&args.model)?;
    let threshold = checked(model.threshold_at(args.tpr)?, model.calibration(), args.running.quiet);
    let pool = Pool::shared();
    let gather = match args.reporting.wanted() {
        true => Some(Gather::new(&model, threshold.wanted, args.ood.len() + 1, args.seed)?),
        false => None,
    };
    let paths: Vec<&Path> = std::iter::once(&args.data).chain(&args.ood).map(PathBuf::as_path).collect();
    let names = file_names(&paths);
    let evaluator = Evaluator::new(model.classes(), threshold);
    let mut files = Files { model: &model, pool, evaluator, gather, notices: Vec::new() };
    let options = ReadOptions { skip_unlabeled: args.skip_unlabeled, ..args.reading.options() };
    files
        .evaluator
        .name_foreign(format!("rows of {} with a label that is not a class of the model", args.data.display()));
    files.known(&args.data, &names[0], &options, args.running.quiet)?;
    files.evaluator.check().map_err(|e| e.at_file(&args.data))?;
    // The labels of these rows are not used, but a label column must be recognized as one.
    let options = stream::without_labels(&model, ReadOptions { label: Label::Auto, skip_unlabeled: false, ..options });
    for (path, name) in args.ood.iter().zip(&names[1..]) {
        files.ood(path, name, &options, args.running.quiet)?;
    }
    let found = files.evaluator.finish(Bootstrap { replicates: args.bootstrap, seed: args.seed })?;
    // Written before anything is printed: a reader may close the pipe early.
    if let Some(gather) = files.gather {
        let about = About {
            title: format!("{} on {}", file_name(&args.model), names[0]),
            data: names[0].clone(),
            on_calibration_rows: false,
            command: report::command(),
            notices: files.notices,
        };
        args.reporting.write(&gather.finish(about, &found, pool)?, args.running.quiet)?;
    }
    match args.json {
        true => ui::print_json(&serde_json::to_value(&found)?)?,
        false => ui::print(&text(&found, &args.data.display().to_string(), model.classifies())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Predicts files block by block, for the evaluation and for a report.
struct Files<'m> {
    model: &'m Model,
    pool: &'m Pool,
    evaluator: Evaluator<'m>,
    gather: Option<Gather<'m>>,
    notices: Vec<String>,
}

impl Files<'_> {
    /// In-distribution rows.
    fn known(&mut self, path: &Path, name: &str, options: &ReadOptions, quiet: bool) -> mcdd::Result<()> {
        let Files { model, pool, evaluator, gather, .. } = self;
        let reader = model.schema().reader(path, options)?;
        let notices = stream::predict_each(model, reader, pool, |batch, predictions| {
            evaluator.add(predictions, batch.labels.as_deref());
            if let Some(gather) = gather {
                gather.add_known(batch, predictions, name);
            }
            Ok::<(), mcdd::Error>(())
        })?;
        self.note(name, notices, quiet);
        Ok(())
    }

    /// Out-of-distribution rows, whatever their labels are.
    fn ood(&mut self, path: &Path, name: &str, options: &ReadOptions, quiet: bool) -> mcdd::Result<()> {
        let Files { model, pool, evaluator, gather, .. } = self;
        let set = evaluator.ood_set(path.display().to_string());
        let drawn = gather.as_mut().map(|g| g.set(name));
        let reader = model.schema().reader(path, options)?;
        let notices = stream::predict_each(model, reader, pool, |batch, predictions| {
            evaluator.add_ood(set, &predictions.confidence);
            if let (Some(gather), Some(drawn)) = (gather.as_mut(), drawn) {
                gather.add_unknown(drawn, batch, predictions);
            }
            Ok::<(), mcdd::Error>(())
        })?;
        self.note(name, notices, quiet);
        Ok(())
    }

    fn note(&mut self, name: &str, notices: Vec<String>, quiet: bool) {
        if !quiet {
            notices.iter().for_each(|n| ui::note(n));
        }
        self.notices.extend(notices.iter().map(|n| format!("{name}: {n}")));
    }
}

/// The evaluation as text.
pub(super) fn text(found: &Evaluation, data: &str, classifies: bool) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let with = |v: f64, i: Option<Interval>| match i {
        Some(i) => format!("{:>6}  [{}, {}]", percent(v), percent(i.low), percent(i.high)),
        None => format!("{:>6}", percent(v)),
    };
    writeln!(out, "in-distribution: {} ({})", ui::plain(data), count(found.rows, "row"))?;
    match found.accuracy {
        Some(a) => writeln!(out, "  accuracy %                         {}", with(a.value, a.interval95))?,
        None => {
            let why = if classifies { "no labels" } else { "the method does not classify" };
            writeln!(out, "  accuracy %                         n/a ({why})")?;
        }
    }
    writeln!(
        out,
        "  kept as known %                    {:>6}  (threshold {:.4}, set for {}%)",
        percent(found.kept),
        found.threshold.confidence,
        percent(found.threshold.tpr)
    )?;
    if let Some(a) = found.accuracy_among_kept {
        writeln!(out, "  accuracy among those kept %        {:>6}", percent(a))?;
    }
    if found.accuracy.is_some() {
        classes(&mut out, &found.classes)?;
    }
    for set in &found.ood {
        writeln!(out, "\nout-of-distribution: {} ({})", ui::plain(&set.name), count(set.rows, "row"))?;
        writeln!(out, "  rejected as unknown %              {:>6}", percent(set.rejected))?;
        for metric in set.metrics() {
            let name = format!("{} %, positive: {}", metric.name, metric.positive);
            writeln!(out, "  {name:<34} {}", with(metric.value, metric.interval95))?;
        }
        writeln!(out, "  tied pairs %                       {:>6}", percent(set.tie_fraction))?;
    }
    if found.bootstrap.replicates > 0 {
        writeln!(
            out,
            "\n[low, high]: 95% interval; Wilson for the accuracy, bootstrap with {} for the others",
            count(found.bootstrap.replicates, "replicate")
        )?;
    }
    Ok(out)
}

/// The largest number of classes in the table.
const MAX_CLASSES: usize = 20;
/// The longest class name in the table.
const MAX_NAME: usize = 30;

/// A table of the classes; of many, those with the lowest recall.
fn classes(out: &mut String, all: &[ClassEvaluation]) -> std::fmt::Result {
    let mut shown: Vec<&ClassEvaluation> = all.iter().collect();
    if all.len() > MAX_CLASSES {
        // Classes without rows come last.
        shown.sort_by(|a, b| a.recall.unwrap_or(2.0).total_cmp(&b.recall.unwrap_or(2.0)));
        shown.truncate(MAX_CLASSES);
    }
    let name = |c: &ClassEvaluation| ui::short(&c.name, MAX_NAME);
    let width = shown.iter().map(|c| name(c).chars().count()).max().unwrap_or(0).max(5);
    let value = |v: Option<f64>| v.map_or_else(|| "n/a".into(), percent);
    writeln!(out, "\n  {:<width$}  {:>7}  {:>8}  {:>11}  {:>6}", "class", "rows", "recall %", "precision %", "kept %")?;
    for c in &shown {
        let [recall, precision, kept] = [c.recall, c.precision, c.kept].map(value);
        writeln!(out, "  {:<width$}  {:>7}  {recall:>8}  {precision:>11}  {kept:>6}", name(c), c.rows)?;
    }
    if all.len() > shown.len() {
        writeln!(out, "  ({} of {} classes, those with the lowest recall; --json lists all)", shown.len(), all.len())?;
    }
    Ok(())
}
