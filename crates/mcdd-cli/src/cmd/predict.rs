//! `mcdd predict`: a class or "unknown" for each row, block by block.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::error::count;
use mcdd::model::{Calibration, Saved, Threshold};
use mcdd::monitor::PValues;
use mcdd::stream::{self, Columns, FeatureFiles};

use crate::options::{Loading, Reading, Running};
use crate::output::Writing;
use crate::places::Places;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd predict flowers.mcdd new.csv                       CSV on stdout
  mcdd predict flowers.mcdd new.csv --tpr 0.99            keep 99% of known rows
  mcdd predict flowers.mcdd new.csv --fdr 0.05            of the rows called unknown, at most 5% are known
  mcdd predict flowers.mcdd new.csv --keep all -o verdicts.parquet    every column of new.csv first
  cat new.csv | mcdd predict flowers.mcdd - --format jsonl --probs --distances
  mcdd predict flowers.mcdd new.csv --fail-on-unknown > /dev/null || echo stop
  mcdd predict photos.mcdd new/ one.png                   images: files and folders of any depth

Columns: label (the most probable class), verdict (known or unknown), confidence (higher is more \
in-distribution), p_value (the fraction of in-distribution rows with a confidence this low or lower); \
for images the first column is image (its file, and its number in the file). Columns that --keep names come \
first, as they are in the file; one with the name of an output column gets the suffix _input. With --skip-bad \
an image that cannot be read has the verdict error and no other values, and the last column, error, says why. \
A file with a header and no rows gives a header.";

/// Predict a class for each row, or "unknown"
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A model, or a detector written by fit-detector
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// Files with the columns of the training data; images or folders of images; for a detector its features, or its
    /// logits if it uses nothing else; - is a table on stdin
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Logits of the same rows, for a detector that needs them
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,

    #[command(flatten)]
    writing: Writing,

    /// Add the probability of each class
    #[arg(long)]
    probs: bool,

    /// Add the distance to each class
    #[arg(long)]
    distances: bool,

    /// Fraction of in-distribution rows to keep [default: as trained]
    #[arg(long, value_name = "FRACTION")]
    tpr: Option<f64>,

    /// Select unknown rows of all the data together, so that on average at most this fraction of the selected rows is known
    /// (conformal selection); the data is read twice
    #[arg(long, value_name = "FRACTION", conflicts_with = "tpr")]
    fdr: Option<f64>,

    /// Exit with code 1 if a row is unknown
    #[arg(long)]
    fail_on_unknown: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

/// Prints a warning if the calibration rows are too few for a threshold.
pub fn checked(threshold: Threshold, calibration: &Calibration, quiet: bool) -> Threshold {
    if let Some(text) = calibration.warning(&threshold).filter(|_| !quiet) {
        ui::warning(&text);
    }
    threshold
}

/// An error for data that cannot be read twice.
fn check_twice(data: &[PathBuf]) -> mcdd::Result<()> {
    match data.iter().find(|path| !path.is_dir() && !path.is_file()) {
        Some(path) if path.exists() || path == Path::new("-") => {
            Err(mcdd::Error::setting("`fdr` reads the data twice, which a stream does not allow")
                .at_file(path)
                .hint("write the rows to a file first"))
        }
        _ => Ok(()),
    }
}

/// The threshold of conformal selection; prints what was selected.
fn selected(batch: &PValues, fdr: f64, calibration: &Calibration, quiet: bool) -> mcdd::Result<Threshold> {
    let found = batch.select(fdr)?;
    if !quiet {
        let (low, high) = batch.unknown_rows(0.95)?;
        ui::note(&format!(
            "selected {} of {} as unknown, at a false discovery rate of {}%; with 95% confidence {low} to {high} of all rows are unknown",
            found.selected,
            count(found.rows as usize, "row"),
            ui::percent(fdr),
        ));
    }
    Ok(found.threshold(calibration))
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let labels = args.reading.label_file();
    let inputs = [&args.model].into_iter().chain(&args.data).chain(&args.logits).chain(&labels);
    let format = args.writing.check(Places::reading(inputs.map(PathBuf::as_path)))?;
    let saved = args.loading.saved(&args.model)?;
    let pool = Pool::shared();
    let (options, quiet) = (args.writing.keeping(args.reading.options()), args.running.quiet);
    let columns = Columns { probs: args.probs, distances: args.distances, ..Columns::default() };
    let summary = match saved {
        Saved::Model(model) => {
            if args.logits.is_some() {
                let e = mcdd::Error::setting("a model computes its own logits");
                return Err(e.hint("leave `logits` out: it is for detectors from fit-detector").into());
            }
            let images = model.schema().image.is_some();
            let columns = Columns { names: images, errors: images && options.skip_bad, ..columns };
            let options = stream::without_labels(&model, options);
            let threshold = match args.fdr {
                None => checked(model.threshold_at(args.tpr)?, model.calibration(), quiet),
                Some(fdr) => {
                    let mut batch = PValues::new(model.calibration());
                    batch.select(fdr)?;
                    check_twice(&args.data)?;
                    for path in &args.data {
                        let source = model.schema().reader(path, &options)?;
                        stream::predict_each(&model, source, pool, |_, predictions| {
                            batch.add(&predictions.p_value);
                            Ok::<(), mcdd::Error>(())
                        })?;
                    }
                    selected(&batch, fdr, model.calibration(), quiet)?
                }
            };
            let sources = args.data.iter().map(|path| model.schema().reader(path, &options));
            args.writing.write(format, columns, |to| stream::predict(&model, sources, threshold, to, pool))?
        }
        Saved::Scorer(scorer) => {
            if args.fdr.is_some() {
                let e = mcdd::Error::setting("`fdr` is for models, and this is a detector of fit-detector");
                return Err(e.hint("leave `fdr` out").into());
            }
            let threshold = checked(scorer.threshold_at(args.tpr)?, scorer.calibration(), quiet);
            // A detector that uses logits only gets them in place of the data.
            let (features, logits) = match &args.data[..] {
                [only] if scorer.detector().width() == 0 && args.logits.is_none() => (&[][..], Some(only)),
                data => (data, args.logits.as_ref()),
            };
            let files = FeatureFiles::open(features, logits.map(PathBuf::as_path), &options)?;
            args.writing.write(format, columns, |to| stream::score(&scorer, files, threshold, to, pool))?
        }
    };
    if !quiet {
        summary.notices.iter().for_each(|n| ui::note(n));
    }
    Ok(ExitCode::from(u8::from(args.fail_on_unknown && summary.unknown > 0)))
}
