//! `mcdd score` and `mcdd fit-detector`: a detector on features from any network.

use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::detector::DetectorConfig;
use mcdd::model::{Scorer, ScorerSettings, Threshold};
use mcdd::stream::{self, Columns, FeatureFiles, TrainingFiles};

use super::predict::checked;
use crate::options::{Reading, Running};
use crate::output::Writing;
use crate::report::check_place;
use crate::ui;

const SCORE_EXAMPLES: &str = "\
Examples:
  mcdd score --detector knn --train-features train.npy --features new.npy > scores.csv
  mcdd score --detector mahalanobis --train-features train.npy --train-labels y.npy --features new.npy
  mcdd score --detector energy --train-logits train_logits.npy --logits new_logits.npy
  mcdd score --detector vim --train-features f.npy --train-logits l.npy --features g.npy --logits m.npy

Features and logits are tables of numbers with one row for each example: NPY, CSV, Parquet. They are not scaled.
Columns of the output: label (if the detector classifies), verdict, confidence (higher is more in-distribution),
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

    #[command(flatten)]
    reading: Reading,

    /// Fraction of the rows used for calibration
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1)]
    calibration_fraction: f64,

    /// Fraction of in-distribution rows to keep
    #[arg(long, value_name = "FRACTION", default_value_t = 0.95)]
    tpr: f64,

    /// Seed of all random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    running: Running,
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
}

impl Fitting {
    /// Fits, and reports how many rows were used.
    fn fit(&self, pool: &Pool) -> mcdd::Result<(Scorer, Threshold)> {
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
        let scorer = stream::fit_scorer(&files, &self.reading.options(), &settings, pool)?;
        if !self.running.quiet {
            let calibration = scorer.calibration().scores().len();
            ui::note(&format!("fitted on {} rows, calibrated on {calibration} other rows", scorer.training_rows()));
        }
        let threshold = checked(scorer.threshold()?, scorer.calibration(), self.running.quiet);
        Ok((scorer, threshold))
    }
}

/// Runs `mcdd score`.
pub fn run_score(args: ScoreArgs) -> anyhow::Result<ExitCode> {
    let pool = Pool::new(args.fitting.running.threads());
    // Opened before the fit, so that a wrong path is reported at once.
    let files = FeatureFiles::open(&args.features, args.logits.as_deref(), &args.fitting.reading.options())?;
    let (scorer, threshold) = args.fitting.fit(&pool)?;
    args.writing.write(Columns::default(), |to| stream::score(&scorer, files, threshold, to, &pool))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `mcdd fit-detector`.
pub fn run_fit(args: FitArgs) -> anyhow::Result<ExitCode> {
    check_place(&args.output, "-o")?;
    let pool = Pool::new(args.fitting.running.threads());
    let (scorer, _) = args.fitting.fit(&pool)?;
    scorer.save(&args.output)?;
    if !args.fitting.running.quiet {
        let what = if scorer.detector().width() > 0 { "FEATURES" } else { "LOGITS" };
        ui::note(&format!("wrote {}; next: mcdd predict {0} {what}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}
