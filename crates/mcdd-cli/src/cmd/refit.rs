//! `mcdd refit`: another detector or calibration for a trained model.

use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::{ImageOptions, ImageSpec, Images, Label, Part, ReadOptions, Table};
use mcdd::detector::Detect;
use mcdd::error::count;
use mcdd::model::{Model, Refit};

use crate::options::{Columns, Loading, Reading, Running, Sampling};
use crate::places::Places;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd refit flowers.mcdd flowers.csv --label species --detector mahalanobis -o m2.mcdd
  mcdd refit flowers.mcdd flowers.csv --label species --per-class --tpr 0.99 -o m2.mcdd
  mcdd refit flowers.mcdd --calibrate new.csv -o m2.mcdd    the threshold by new known rows

DATA must be the data that the model was trained on, read with the same options: the detector is fitted on the rows that each \
network was trained on, and the rows that it left out calibrate. The result is what mcdd train would have written with the same \
options, without training the networks again.";

/// Put another detector or calibration on a trained model, without training it again
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// The data that the model was trained on; not needed for --calibrate alone
    #[arg(value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Output file of the new model
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Detector that gives the confidence, as in mcdd train [default: that of the model]
    #[arg(long, value_name = "NAME", requires = "data")]
    detector: Option<String>,

    /// Calibrate each predicted class by its own rows
    #[arg(long, requires = "data")]
    per_class: bool,

    /// Fraction of known rows that the threshold keeps [default: that of the model]
    #[arg(long, value_name = "FRACTION", requires = "data")]
    tpr: Option<f64>,

    /// Calibrate on these known rows instead of those that training left out. They must not have been trained on; their
    /// labels are used if there are any
    #[arg(long, value_name = "FILE", required_unless_present = "data")]
    calibrate: Option<PathBuf>,

    /// The fraction that was given to mcdd train --test
    #[arg(long, value_name = "FRACTION", requires = "data")]
    test: Option<f64>,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    columns: Columns,

    #[command(flatten)]
    sampling: Sampling,

    #[command(flatten)]
    running: Running,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let labels = args.reading.label_file();
    let inputs = args.data.iter().chain(&args.calibrate).chain([&args.model]).chain(&labels);
    Places::reading(inputs.map(PathBuf::as_path)).file(&args.output, "output")?;
    let detector = args.detector.as_deref().map(Detect::parse).transpose()?;
    let changes = Refit { detector, tpr: args.tpr, per_class: args.per_class.then_some(true) };
    let mut model = args.loading.model(&args.model)?;
    let pool = Pool::shared();
    if !args.data.is_empty() {
        model = args.refit(&model, &changes, pool)?;
    }
    if let Some(file) = &args.calibrate {
        let files = std::slice::from_ref(file);
        match model.schema().image.clone() {
            Some(spec) => {
                let images = args.images(files, &spec, true)?;
                model.calibrate_images(&images, pool).map_err(|e| e.at_file(file))?;
            }
            None => {
                let table = args.known_rows(&model, files)?;
                model.calibrate(&table, pool).map_err(|e| e.at_file(file))?;
            }
        }
    }
    model.save(&args.output)?;
    if !args.running.quiet {
        if !args.data.is_empty() {
            model.findings().iter().for_each(|f| ui::warning(f));
        }
        let threshold = model.threshold()?;
        let item = if model.schema().image.is_some() { "image" } else { "row" };
        ui::note(&format!(
            "calibrated on {}; {item}s with a confidence of at least {:.4} are known, which keeps {}% of known {item}s",
            count(model.calibration().scores().len(), item),
            threshold.confidence,
            ui::percent(threshold.tpr)
        ));
        ui::note(&format!("wrote {}", args.output.display()));
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Rows to calibrate on, with labels if the file has the model's label column.
    fn known_rows(&self, model: &Model, files: &[PathBuf]) -> mcdd::Result<Table> {
        let options = self.reading.options();
        if options.label != Label::Auto {
            return Table::read(files, &options);
        }
        let plain = Table::read(files, &ReadOptions { label: Label::None, ..options.clone() })?;
        let schema = model.schema();
        let label = match &schema.label {
            Some(l) if schema.named && plain.names.contains(&l.name) => Label::Name(l.name.clone()),
            Some(l) if !schema.named && plain.names.len() > schema.columns.len() => {
                l.position.map_or(Label::None, |position| Label::Index(position + 1))
            }
            _ => return Ok(plain),
        };
        Table::read(files, &ReadOptions { label, ..options })
    }

    fn images(&self, files: &[PathBuf], spec: &ImageSpec, unlabeled: bool) -> mcdd::Result<Images> {
        let reading = self.reading.options();
        let (size, channels) = (Some((spec.height, spec.width)), Some(spec.channels));
        let (label, skip_bad, threads) = (reading.label, reading.skip_bad, self.running.threads());
        // Of a folder with both, the training part was trained on, and the other one may calibrate.
        let part = if unlabeled { Part::Test } else { Part::Train };
        let options =
            ImageOptions { label, size, channels, skip_bad, threads, part, unlabeled, ..ImageOptions::default() };
        let (images, notices) = Images::read(files, &options)?;
        notices.iter().filter(|_| !self.running.quiet).for_each(|n| ui::note(n));
        Ok(images)
    }

    /// On the training data, without its test rows.
    fn refit(&self, model: &Model, changes: &Refit, pool: &Pool) -> mcdd::Result<Model> {
        let seed = model.settings().seed;
        if let Some(spec) = &model.schema().image {
            let images = self.images(&self.data, spec, false)?;
            return match self.test {
                Some(test) => model.refit_images(&images.select(&images.split_rows(test, seed)?.0), changes, pool),
                None => model.refit_images(&images, changes, pool),
            };
        }
        let options = ReadOptions { limit: self.sampling.limit(seed), ..self.columns.of(&self.reading) };
        let table = Table::read(&self.data, &options)?;
        match self.test {
            Some(test) => model.refit_with(&table.select(&table.split_rows(test, seed)?.0), changes, pool),
            None => model.refit_with(&table, changes, pool),
        }
    }
}
