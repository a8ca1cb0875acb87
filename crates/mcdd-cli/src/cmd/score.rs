//! `mcdd score` and `mcdd fit-detector`: a detector on features from anywhere.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::{Label, Labels, MatrixReader, ReadOptions};
use mcdd::detector::{DetectorConfig, Features, Training};
use mcdd::model::{Predictions, Scorer, ScorerSettings, Threshold};

use super::predict::{self, Sink};
use crate::options::{Reading, Running};
use crate::output::{Columns, Format};
use crate::report::check_place;
use crate::ui;

/// Features read and scored at a time.
const BLOCK: usize = 4096;

const SCORE_EXAMPLES: &str = "\
Examples:
  mcdd score --detector knn --train-features train.npy --features new.npy > scores.csv
  mcdd score --detector mahalanobis --train-features train.npy --train-labels y.npy --features new.npy
  mcdd score --detector energy --train-logits train_logits.npy --logits new_logits.npy
  mcdd score --detector vim --train-features f.npy --train-logits l.npy --features g.npy --logits m.npy

Features and logits are tables of numbers, a row each: NPY, CSV, Parquet. They are used as they are. Columns of the output:
label (where the detector classifies), verdict, confidence (higher is more like the training rows), p_value.
mcdd methods lists the detectors and what each needs.";

const FIT_EXAMPLES: &str = "\
Examples:
  mcdd fit-detector --detector knn --train-features train.npy -o knn.mcdd
  mcdd predict knn.mcdd new.npy > scores.csv
  mcdd fit-detector --detector vim --train-features f.npy --train-logits l.npy -o vim.mcdd
  mcdd predict vim.mcdd g.npy --logits m.npy";

/// In-distribution rows, and the detector to fit on them.
#[derive(clap::Args, Clone, Debug)]
pub struct Fitting {
    /// The detector, with settings as in knn:k=10; mcdd methods lists all
    #[arg(long, value_name = "NAME")]
    detector: String,

    /// Features of in-distribution rows; repeat it for several layers of the same rows
    #[arg(long, value_name = "FILE")]
    train_features: Vec<PathBuf>,

    /// Their classes, one a row [default: the label column of the features, if there is one]
    #[arg(long, value_name = "FILE")]
    train_labels: Option<PathBuf>,

    /// Their logits
    #[arg(long, value_name = "FILE")]
    train_logits: Option<PathBuf>,

    #[command(flatten)]
    reading: Reading,

    /// Share of the rows held out to calibrate
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    calibration_fraction: f64,

    /// Share of known rows that the threshold keeps
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    tpr: f64,

    /// Fixes everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    running: Running,
}

/// Score features from anywhere with a detector that is fitted on in-distribution features
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

    /// Form of the output
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,

    /// Where the output goes [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Fit a detector on in-distribution features and keep it in a file for mcdd predict
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = FIT_EXAMPLES)]
pub struct FitArgs {
    #[command(flatten)]
    fitting: Fitting,

    /// Where the detector goes
    #[arg(short, long, value_name = "FILE", default_value = "detector.mcdd")]
    output: PathBuf,
}

/// A whole file in memory.
struct Matrix<T> {
    values: Vec<T>,
    width: usize,
    labels: Vec<String>,
}

fn read<T>(path: &Path, options: &ReadOptions, narrow: impl Fn(f64) -> T) -> mcdd::Result<Matrix<T>> {
    let mut reader = MatrixReader::open(path, options)?;
    let width = reader.width();
    let (values, labels) = reader.all(narrow)?;
    Ok(Matrix { values, width, labels })
}

/// A number as a feature; what is beyond 32 bits is as far as they go.
fn narrow(v: f64) -> f32 {
    v.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// Features of several layers side by side.
fn side_by_side(layers: &[Matrix<f32>], paths: &[PathBuf]) -> mcdd::Result<Vec<f32>> {
    let rows = |m: &Matrix<f32>| m.values.len() / m.width;
    let count = layers.first().map_or(0, rows);
    if let Some((other, path)) = layers.iter().zip(paths).find(|(m, _)| rows(m) != count) {
        return Err(mcdd::Error::data(format!("there are {} rows, and {count} in the first file", rows(other)))
            .at_file(path)
            .hint("every layer needs the same rows in the same order"));
    }
    let mut all = Vec::with_capacity(layers.iter().map(|m| m.values.len()).sum());
    for i in 0..count {
        layers.iter().for_each(|m| all.extend_from_slice(&m.values[i * m.width..(i + 1) * m.width]));
    }
    Ok(all)
}

fn count_error(what: &str, found: usize, rows: usize, path: &Path) -> mcdd::Error {
    mcdd::Error::data(format!("there are {found} {what} for {rows} rows"))
        .at_file(path)
        .hint("give one for each row, in the same order")
}

impl Fitting {
    fn fit(&self, pool: &Pool) -> anyhow::Result<Scorer> {
        let config = DetectorConfig::parse(&self.detector)?;
        let needs = config.about().needs;
        if needs.head {
            let e = mcdd::Error::setting(format!("{} needs the head of a trained model", config.name()));
            return Err(e.hint("take another detector; gda is the nearest thing for features from elsewhere").into());
        }
        if needs.features && self.train_features.is_empty() {
            let e = mcdd::Error::setting(format!("{} needs features", config.name()));
            return Err(e.hint("give --train-features FILE").into());
        }
        if needs.logits && self.train_logits.is_none() {
            let e = mcdd::Error::setting(format!("{} needs logits", config.name()));
            return Err(e.hint("give --train-logits FILE").into());
        }
        let layers: Vec<Matrix<f32>> = self
            .train_features
            .iter()
            .map(|p| read(p, &self.reading.options(), narrow))
            .collect::<mcdd::Result<_>>()?;
        let features = side_by_side(&layers, &self.train_features)?;
        let parts: Vec<usize> = layers.iter().map(|m| m.width).collect();
        let width: usize = parts.iter().sum();
        let logits = self.train_logits.as_deref().map(|p| read(p, &self.plain(), |v| v)).transpose()?;
        let of_logits = || logits.as_ref().map_or(0, |l| l.values.len() / l.width);
        let count = features.len().checked_div(width).unwrap_or_else(of_logits);
        let classes = logits.as_ref().map_or(0, |l| l.width);
        if let (Some(l), Some(path)) = (&logits, &self.train_logits)
            && l.values.len() / l.width != count
        {
            return Err(count_error("rows of logits", l.values.len() / l.width, count, path).into());
        }
        let labels = match &self.train_labels {
            Some(path) => {
                let labels = mcdd::data::labels(path)?;
                if labels.len() != count {
                    return Err(count_error("labels", labels.len(), count, path).into());
                }
                labels
            }
            None => layers.into_iter().next().map(|m| m.labels).unwrap_or_default(),
        };
        if needs.labels && labels.is_empty() {
            let e = mcdd::Error::setting(format!("{} needs the classes of the training rows", config.name()));
            return Err(e.hint("give --train-labels FILE").into());
        }
        let Labels { names, codes } = Labels::of(&labels);
        if classes > 0 && !labels.is_empty() && names.len() != classes {
            let e = mcdd::Error::data(format!("the labels have {} classes and the logits {classes}", names.len()));
            return Err(e
                .hint("every class must be among the labels; their sorted order is that of the logits")
                .into());
        }
        let training = Training {
            rows: Features { count, features: &features, logits: logits.as_ref().map_or(&[], |l| &l.values) },
            labels: (!labels.is_empty()).then_some(&codes[..]),
            classes: if names.is_empty() { classes } else { names.len() },
            parts: if parts.len() > 1 { &parts } else { &[] },
            last_layer: None,
            seed: self.seed,
        };
        let settings = ScorerSettings {
            detector: config,
            calibration_fraction: self.calibration_fraction,
            tpr: self.tpr,
            seed: self.seed,
        };
        let scorer = Scorer::fit(&training, &names, &settings, pool)?;
        if !self.running.quiet {
            let held = scorer.calibration().scores().len();
            ui::note(&format!("fitted on {} rows, calibrated on {held} held-out rows", scorer.training_rows()));
        }
        Ok(scorer)
    }

    /// How a file is read that has no labels in it.
    fn plain(&self) -> ReadOptions {
        ReadOptions { label: Label::None, ..self.reading.options() }
    }
}

/// Runs `mcdd score`.
pub fn run_score(args: ScoreArgs) -> anyhow::Result<ExitCode> {
    let pool = Pool::new(args.fitting.running.threads());
    // What cannot be read is found before the fit.
    let files = Opened::new(&args.features, args.logits.as_deref(), &args.fitting.reading.options())?;
    let scorer = args.fitting.fit(&pool)?;
    let threshold = threshold(&scorer, None, args.fitting.running.quiet)?;
    let sink = Sink { format: args.format, output: args.output.as_deref(), columns: Columns::default() };
    score(&scorer, files, threshold, &sink, &pool)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `mcdd fit-detector`.
pub fn run_fit(args: FitArgs) -> anyhow::Result<ExitCode> {
    check_place(&args.output, "-o")?;
    let pool = Pool::new(args.fitting.running.threads());
    let scorer = args.fitting.fit(&pool)?;
    threshold(&scorer, None, args.fitting.running.quiet)?;
    scorer.save(&args.output)?;
    if !args.fitting.running.quiet {
        let what = if scorer.detector().width() > 0 { "FEATURES" } else { "LOGITS" };
        ui::note(&format!("wrote {}; next: mcdd predict {0} {what}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The threshold for a wanted share, with a warning where the held-out rows cannot vouch for it.
pub fn threshold(scorer: &Scorer, tpr: Option<f64>, quiet: bool) -> mcdd::Result<Threshold> {
    predict::threshold(scorer.calibration(), tpr.unwrap_or(scorer.settings().tpr), quiet)
}

/// Files of rows to score, open.
pub struct Opened {
    /// One for each layer.
    features: Vec<MatrixReader>,
    logits: Option<MatrixReader>,
}

impl Opened {
    /// Opens files of features, one for each layer, and of logits.
    pub fn new(features: &[PathBuf], logits: Option<&Path>, options: &ReadOptions) -> mcdd::Result<Opened> {
        let plain = ReadOptions { label: Label::None, ..options.clone() };
        Ok(Opened {
            features: features.iter().map(|p| MatrixReader::open(p, options)).collect::<mcdd::Result<_>>()?,
            logits: logits.map(|p| MatrixReader::open(p, &plain)).transpose()?,
        })
    }

    /// Checks that they are what a detector was fitted on.
    fn check(&self, scorer: &Scorer) -> mcdd::Result<()> {
        let fitted = scorer.detector();
        let name = fitted.config().name();
        let layers = if fitted.width() == 0 { 0 } else { scorer.parts().len().max(1) };
        if self.features.len() != layers {
            let (what, hint) = match layers {
                0 => (format!("{name} looks at logits alone"), "leave the features out, and give --logits FILE"),
                1 => (format!("{name} was fitted on one file of features"), "give one file of features"),
                n => (
                    format!("{name} was fitted on {n} files of features"),
                    "give one for each layer, in the same order",
                ),
            };
            return Err(mcdd::Error::setting(what).hint(hint));
        }
        match (&self.logits, fitted.logit_classes()) {
            (None, 1..) => return Err(mcdd::Error::setting(format!("{name} needs logits")).hint("give --logits FILE")),
            (Some(_), 0) => {
                return Err(mcdd::Error::setting(format!("{name} looks at no logits")).hint("leave --logits out"));
            }
            _ => {}
        }
        let widths = (0..layers).map(|i| scorer.parts().get(i).copied().unwrap_or(fitted.width()));
        let expected = self.features.iter().zip(widths).map(|(r, w)| (r, w, "features"));
        for (reader, width, what) in expected.chain(self.logits.iter().map(|r| (r, fitted.logit_classes(), "logits"))) {
            if reader.width() != width {
                let found = reader.width();
                return Err(mcdd::Error::data(format!("there are {found} {what} in a row, and {width} were fitted"))
                    .at_file(reader.path())
                    .hint("give what the same network made of other rows; --label names a column that is no feature"));
            }
        }
        Ok(())
    }
}

/// Scores files block by block; returns how many rows were unknown.
pub fn score(
    scorer: &Scorer,
    mut files: Opened,
    threshold: Threshold,
    sink: &Sink,
    pool: &Pool,
) -> anyhow::Result<usize> {
    files.check(scorer)?;
    let classes = if scorer.classifies() { scorer.classes() } else { &[] };
    predict::write(sink, classes, threshold, |writer| {
        let mut predictions = Predictions::default();
        let (mut unknown, mut rows) = (0, 0);
        loop {
            let block = Block::read(&mut files.features, files.logits.as_mut())?;
            if block.count == 0 && rows == 0 {
                let e = mcdd::Error::data("there are no rows in the file");
                let first = files.features.first().or(files.logits.as_ref());
                return Err(first
                    .map_or_else(|| mcdd::Error::data("there are no rows"), |r| e.at_file(r.path()))
                    .into());
            }
            if block.count == 0 {
                return Ok(unknown);
            }
            rows += block.count;
            scorer.predict(&block.rows(), &mut predictions, pool)?;
            unknown += predictions.confidence.iter().filter(|&&c| !threshold.known(c)).count();
            writer.write(&predictions, &[])?;
        }
    })
}

/// Some rows of all files.
#[derive(Default)]
struct Block {
    count: usize,
    features: Vec<f32>,
    logits: Vec<f64>,
}

impl Block {
    fn read(features: &mut [MatrixReader], logits: Option<&mut MatrixReader>) -> mcdd::Result<Block> {
        let mut block = Block::default();
        let (mut parts, mut ignored, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for reader in features.iter_mut() {
            let mut values = Vec::new();
            counts.push((reader.next(BLOCK, &mut values, &mut ignored)?, reader.path().to_owned()));
            parts.push((values, reader.width()));
        }
        if let Some(reader) = logits {
            counts.push((reader.next(BLOCK, &mut block.logits, &mut ignored)?, reader.path().to_owned()));
        }
        block.count = counts.first().map_or(0, |c| c.0);
        if let Some((found, path)) = counts.iter().find(|c| c.0 != block.count) {
            let few = if *found < block.count { "fewer" } else { "more" };
            return Err(mcdd::Error::data(format!("there are {few} rows than in the first file"))
                .at_file(path)
                .hint("give the same rows in the same order"));
        }
        for i in 0..block.count {
            for (values, width) in &parts {
                block.features.extend(values[i * width..(i + 1) * width].iter().map(|&v| narrow(v)));
            }
        }
        Ok(block)
    }

    fn rows(&self) -> Features<'_> {
        Features { count: self.count, features: &self.features, logits: &self.logits }
    }
}
