//! `mcdd score` and `mcdd fit-detector`: a detector on features from anywhere.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::data::{Label, MatrixReader, ReadOptions};
use mcdd::detector::{DetectorConfig, Rows, Training};
use mcdd::model::{Predictions, Scorer, ScorerSettings, Threshold};
use mcdd::net::cpu::pool::Pool;

use super::predict::{self, Sink};
use super::train::check_place;
use crate::options;
use crate::output::{Columns, Format};
use crate::ui;

/// Rows read and scored at a time.
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

    /// Their classes, one a row [default: a column called label in the features, if there is one]
    #[arg(long, value_name = "FILE")]
    train_labels: Option<PathBuf>,

    /// Their logits
    #[arg(long, value_name = "FILE")]
    train_logits: Option<PathBuf>,

    /// Share of the rows held out to calibrate
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    holdout: f64,

    /// Share of known rows that the threshold keeps
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    tpr: f64,

    /// Fixes everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Threads; they do not change the result [default: all cores]
    #[arg(long, value_name = "N", value_parser = options::thread_count)]
    threads: Option<usize>,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
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

fn read<T>(path: &Path, label: Label, narrow: impl Fn(f64) -> T) -> mcdd::Result<Matrix<T>> {
    let mut reader = MatrixReader::open(path, &ReadOptions { label, ..ReadOptions::default() })?;
    let width = reader.width();
    let (values, labels) = reader.all(narrow)?;
    Ok(Matrix { values, width, labels })
}

/// A number as a feature; what is beyond 32 bits is as far as they go.
fn narrow(v: f64) -> f32 {
    v.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// Rows of several layers side by side.
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

/// The classes in order, numbers by size, and the index of each label.
fn encode(labels: &[String]) -> (Vec<String>, Vec<u32>) {
    let mut names: Vec<String> = labels.to_vec();
    names.sort_by(|a, b| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    });
    names.dedup();
    let index: std::collections::HashMap<&str, u32> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), i as u32)).collect();
    let codes = labels.iter().filter_map(|l| index.get(l.as_str()).copied()).collect();
    (names, codes)
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
        let layers: Vec<Matrix<f32>> =
            self.train_features.iter().map(|p| read(p, Label::Auto, narrow)).collect::<mcdd::Result<_>>()?;
        let features = side_by_side(&layers, &self.train_features)?;
        let width: usize = layers.iter().map(|m| m.width).sum();
        let logits = self.train_logits.as_deref().map(|p| read(p, Label::None, |v| v)).transpose()?;
        let count =
            if width > 0 { features.len() / width } else { logits.as_ref().map_or(0, |l| l.values.len() / l.width) };
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
        let (names, codes) = encode(&labels);
        if classes > 0 && !labels.is_empty() && names.len() != classes {
            let e = mcdd::Error::data(format!("the labels have {} classes and the logits {classes}", names.len()));
            return Err(e
                .hint("every class must be among the labels; their sorted order is that of the logits")
                .into());
        }
        let parts: Vec<usize> = if self.train_features.len() > 1 { self.widths()? } else { Vec::new() };
        let training = Training {
            rows: Rows { count, features: &features, logits: logits.as_ref().map_or(&[], |l| &l.values) },
            labels: (!labels.is_empty()).then_some(&codes[..]),
            classes: if names.is_empty() { classes } else { names.len() },
            parts: &parts,
            last_layer: None,
            seed: self.seed,
        };
        let settings = ScorerSettings { detector: config, holdout: self.holdout, tpr: self.tpr, seed: self.seed };
        let scorer = Scorer::fit(&training, &names, &settings, pool)?;
        if !self.quiet {
            let held = scorer.calibration().scores().len();
            ui::note(&format!("fitted on {} rows, calibrated on {held} held-out rows", scorer.training_rows()));
        }
        Ok(scorer)
    }

    /// The width of each layer.
    fn widths(&self) -> mcdd::Result<Vec<usize>> {
        self.train_features.iter().map(|p| MatrixReader::open(p, &ReadOptions::default()).map(|r| r.width())).collect()
    }
}

/// Runs `mcdd score`.
pub fn run_score(args: ScoreArgs) -> anyhow::Result<ExitCode> {
    let pool = Pool::new(options::threads(args.fitting.threads));
    let scorer = args.fitting.fit(&pool)?;
    let threshold = threshold(&scorer, None, args.fitting.quiet)?;
    let files = ScoredFiles { features: &args.features, logits: args.logits.as_deref() };
    let sink = Sink { format: args.format, output: args.output.as_deref(), columns: Columns::default() };
    score(&scorer, &files, threshold, &sink, &pool)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `mcdd fit-detector`.
pub fn run_fit(args: FitArgs) -> anyhow::Result<ExitCode> {
    check_place(&args.output)?;
    let pool = Pool::new(options::threads(args.fitting.threads));
    let scorer = args.fitting.fit(&pool)?;
    threshold(&scorer, None, args.fitting.quiet)?;
    scorer.save(&args.output)?;
    if !args.fitting.quiet {
        let what = if scorer.detector().width() > 0 { "FEATURES" } else { "LOGITS" };
        ui::note(&format!("wrote {}; next: mcdd predict {0} {what}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The threshold for a wanted share, with a warning where the held-out rows cannot vouch for it.
pub fn threshold(scorer: &Scorer, tpr: Option<f64>, quiet: bool) -> mcdd::Result<Threshold> {
    predict::threshold(scorer.calibration(), tpr.unwrap_or(scorer.settings().tpr), quiet)
}

/// Rows to score.
pub struct ScoredFiles<'a> {
    /// One file for each layer.
    pub features: &'a [PathBuf],
    pub logits: Option<&'a Path>,
}

/// Scores files block by block; returns how many rows were unknown.
pub fn score(
    scorer: &Scorer,
    files: &ScoredFiles,
    threshold: Threshold,
    sink: &Sink,
    pool: &Pool,
) -> anyhow::Result<usize> {
    let fitted = scorer.detector();
    let name = fitted.config().name();
    let layers = if fitted.width() == 0 { 0 } else { scorer.parts().len().max(1) };
    if fitted.width() > 0 && files.features.len() != layers {
        let e = mcdd::Error::setting(format!("{name} was fitted on {layers} file(s) of features"));
        return Err(e.hint("give one file of features for each layer, in the same order").into());
    }
    if fitted.logit_classes() > 0 && files.logits.is_none() {
        return Err(mcdd::Error::setting(format!("{name} needs logits")).hint("give --logits FILE").into());
    }
    let open = |path: &Path, label: Label, width: usize, what: &str| {
        let reader = MatrixReader::open(path, &ReadOptions { label, ..ReadOptions::default() })?;
        if reader.width() != width {
            return Err(mcdd::Error::data(format!(
                "there are {} {what} in a row, and {width} were fitted",
                reader.width()
            ))
            .at_file(path)
            .hint("give what the same network made of other rows"));
        }
        Ok(reader)
    };
    let mut features: Vec<MatrixReader> = Vec::new();
    for (i, path) in files.features.iter().take(layers).enumerate() {
        let width = scorer.parts().get(i).copied().unwrap_or(fitted.width());
        features.push(open(path, Label::Auto, width, "features")?);
    }
    let mut logits = match files.logits.filter(|_| fitted.logit_classes() > 0) {
        Some(path) => Some(open(path, Label::None, fitted.logit_classes(), "logits")?),
        None => None,
    };
    let classifies = fitted.detector().classes() > 0 && !scorer.classes().is_empty();
    let classes = if classifies { scorer.classes() } else { &[] };
    predict::write(sink, classes, threshold, |writer| {
        let mut predictions = Predictions::default();
        let mut unknown = 0;
        loop {
            let block = Block::read(&mut features, logits.as_mut())?;
            if block.count == 0 {
                return Ok(unknown);
            }
            scorer.predict(&block.rows(), &mut predictions, pool)?;
            unknown += predictions.confidence.iter().filter(|&&c| !threshold.known(c)).count();
            writer.write(&predictions)?;
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

    fn rows(&self) -> Rows<'_> {
        Rows { count: self.count, features: &self.features, logits: &self.logits }
    }
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn numbers_sort_by_size() {
        let labels = ["10", "9", "10", "2"].map(String::from);
        assert_eq!(encode(&labels), (["2", "9", "10"].map(String::from).to_vec(), vec![2, 1, 2, 0]));
    }
}
