//! `mcdd score` and `mcdd fit-detector`: a detector on features from any network.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::ReadOptions;
use mcdd::detector::DetectorConfig;
use mcdd::error::count;
use mcdd::model::{Scorer, ScorerSettings, Threshold};
use mcdd::stream::{self, Columns, FeatureFiles, TrainingFiles};

use super::predict::checked;
use crate::options::{Reading, Running};
use crate::output::Writing;
use crate::places::Places;
use crate::ui;

const SCORE_EXAMPLES: &str = "\
Examples:
  mcdd score --detector knn --train-features train.npy --features new.npy > scores.csv
  mcdd score --detector mahalanobis --train-features f.npy --train-labels y.npy --features g.npy
  mcdd score --detector energy --train-logits train_logits.npy --logits new_logits.npy
  mcdd score --detector knn --train-features f.csv --features g.csv --keep id -o scores.parquet

Features and logits are tables of numbers with one row for each example: NPY, CSV, Parquet. They are not scaled. \
Columns of the output: label (if the detector classifies or has logits), verdict, confidence (higher is more in-distribution), \
p_value. mcdd methods lists the detectors and what each needs.";

const FIT_EXAMPLES: &str = "\
Examples:
  mcdd fit-detector --detector knn --train-features train.npy -o knn.mcdd
  mcdd predict knn.mcdd new.npy > scores.csv
  mcdd fit-detector --detector vim --train-features f.npy --train-logits l.npy -o vim.mcdd
  mcdd predict vim.mcdd g.npy --logits m.npy";

/// The detector, and the in-distribution rows to fit it on.
#[derive(clap::Args, Clone, Debug)]
pub struct Fitting {
    /// The detector, with settings as in knn:k=10; mcdd methods lists all
    #[arg(long, value_name = "NAME")]
    detector: String,

    /// Features of in-distribution rows; repeat for several layers of the same rows
    #[arg(long, value_name = "FILE")]
    train_features: Vec<PathBuf>,

    /// Labels of these rows, one for each row [default: the label column of the features, if there is one]
    #[arg(long, value_name = "FILE")]
    train_labels: Option<PathBuf>,

    /// Logits of these rows
    #[arg(long, value_name = "FILE")]
    train_logits: Option<PathBuf>,

    /// Fraction of the rows used for calibration
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1)]
    calibration_fraction: f64,

    /// Fraction of in-distribution rows to keep
    #[arg(long, value_name = "FRACTION", default_value_t = 0.95)]
    tpr: f64,

    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Score features from any network with a detector fitted on in-distribution features
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = SCORE_EXAMPLES)]
pub struct ScoreArgs {
    #[command(flatten)]
    fitting: Fitting,

    /// Features of the rows to score; one file for each layer
    #[arg(long, value_name = "FILE")]
    features: Vec<PathBuf>,

    /// Logits of the rows to score
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,

    #[command(flatten)]
    writing: Writing,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

/// Fit a detector on in-distribution features and save it for mcdd predict
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = FIT_EXAMPLES)]
pub struct FitArgs {
    #[command(flatten)]
    fitting: Fitting,

    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "detector.mcdd")]
    output: PathBuf,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

impl Fitting {
    /// The files that it reads.
    fn files(&self) -> impl Iterator<Item = &Path> {
        self.train_features.iter().chain(&self.train_labels).chain(&self.train_logits).map(PathBuf::as_path)
    }

    /// Fits, and reports how many rows were used.
    fn fit(&self, options: &ReadOptions, quiet: bool, pool: &Pool) -> mcdd::Result<(Scorer, Threshold)> {
        let settings = ScorerSettings {
            detector: DetectorConfig::parse(&self.detector)?,
            calibration_fraction: self.calibration_fraction,
            tpr: self.tpr,
            seed: self.seed,
        };
        let files = TrainingFiles {
            features: &self.train_features,
            labels: self.train_labels.as_deref(),
            logits: self.train_logits.as_deref(),
        };
        let scorer = stream::fit_scorer(&files, options, &settings, pool)?;
        if !quiet {
            let calibration = count(scorer.calibration().scores().len(), "other row");
            ui::note(&format!("fitted on {}, calibrated on {calibration}", count(scorer.training_rows(), "row")));
        }
        let threshold = checked(scorer.threshold()?, scorer.calibration(), quiet);
        Ok((scorer, threshold))
    }
}

/// Runs `mcdd score`.
pub fn run_score(args: ScoreArgs) -> anyhow::Result<ExitCode> {
    let (labels, quiet) = (args.reading.label_file(), args.running.quiet);
    let rows = args.features.iter().chain(&args.logits).chain(&labels).map(PathBuf::as_path);
    let format = args.writing.check(Places::reading(args.fitting.files().chain(rows)))?;
    let pool = Pool::shared();
    let options = args.reading.options();
    // Opened before the fit, so that a wrong path is reported at once.
    let files = FeatureFiles::open(&args.features, args.logits.as_deref(), &args.writing.keeping(options.clone()))?;
    let (scorer, threshold) = args.fitting.fit(&options, quiet, pool)?;
    let written =
        args.writing.write(format, Columns::default(), |to| stream::score(&scorer, files, threshold, to, pool))?;
    if !quiet {
        written.notices.iter().for_each(|n| ui::note(n));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `mcdd fit-detector`.
pub fn run_fit(args: FitArgs) -> anyhow::Result<ExitCode> {
    let labels = args.reading.label_file();
    Places::reading(args.fitting.files().chain(labels.as_deref())).file(&args.output, "output")?;
    let pool = Pool::shared();
    let (scorer, _) = args.fitting.fit(&args.reading.options(), args.running.quiet, pool)?;
    scorer.save(&args.output)?;
    if !args.running.quiet {
        let what = if scorer.detector().width() > 0 { "FEATURES" } else { "LOGITS" };
        ui::note(&format!("wrote {}; next: mcdd predict {0} {what}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}
