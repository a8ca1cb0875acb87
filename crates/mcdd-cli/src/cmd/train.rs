//! `mcdd train`: from a table to a model file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use mcdd::data::Table;
use mcdd::detector::Detect;
use mcdd::head::{self, HeadConfig, Loop};
use mcdd::model::Model;
use mcdd::train::optim::{Optimizer, Schedule};
use mcdd::train::{self, Run, Settings};

use crate::options::{self, Reading};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd train flowers.csv --label species -o flowers.mcdd
  mcdd train shuttle.trn --label last                  space-separated, no header
  mcdd train batch*.dat -o gas.mcdd                    \"label index:value\" files, put together
  mcdd train train-images-idx3-ubyte.gz                labels are found beside it
  mcdd train big.parquet --checkpoint run1 --resume    goes on where it was killed
  mcdd train flowers.csv --method softmax --detector mahalanobis
  mcdd train flowers.csv --method deep-svdd --label none    one class: no labels, no classification";

/// Train a classifier on a table
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Files: CSV, TSV, Parquet, NPY, NPZ, IDX or "label index:value", also gzipped; several are put together
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Where the model goes
    #[arg(short, long, value_name = "FILE", default_value = "model.mcdd")]
    output: PathBuf,

    #[command(flatten)]
    reading: Reading,

    /// A column of categories although its cells are numbers; may be repeated
    #[arg(long, value_name = "COLUMN", help_heading = "Reading")]
    categorical: Vec<String>,

    /// A column to leave out; may be repeated
    #[arg(long, value_name = "COLUMN", help_heading = "Reading")]
    drop: Vec<String>,

    /// What is learned: deep-mcdd, softmax, soft-mcdd, protonet, …; settings follow as :key=value. mcdd methods tells more
    #[arg(long, value_name = "NAME", default_value = "deep-mcdd", help_heading = "Method")]
    method: String,

    /// What gives the confidence: distance (the method's own), knn, mahalanobis, energy, …, as knn:k=10:on=inputs
    #[arg(long, value_name = "NAME", default_value = "distance", help_heading = "Method")]
    detector: String,

    /// The method's nu, where it has one; for Deep-MCDD the weight of the distance term [default: 1]
    #[arg(long, help_heading = "Method")]
    nu: Option<f64>,

    /// Deep-MCDD: deviations held at one, or learned [default: one]
    #[arg(long, value_enum, help_heading = "Method")]
    sigma: Option<Sigma>,

    /// Widths of the hidden layers
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "128,128", help_heading = "Method")]
    hidden: Vec<usize>,

    /// Latent features
    #[arg(long, value_name = "N", default_value_t = 128, help_heading = "Method")]
    latent: usize,

    /// Networks in the ensemble
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Method")]
    members: usize,

    /// Passes over the training rows
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Training")]
    epochs: usize,

    /// Rows of a step
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Training")]
    batch: usize,

    /// First learning rate
    #[arg(long, default_value_t = 0.001, help_heading = "Training")]
    lr: f64,

    /// How weights follow gradients
    #[arg(long, value_enum, default_value = "adam", help_heading = "Training")]
    optimizer: OptimizerName,

    /// Nesterov momentum of SGD [default: 0.9]
    #[arg(long, help_heading = "Training")]
    momentum: Option<f64>,

    /// L2 penalty on weights
    #[arg(long, default_value_t = 0.0, help_heading = "Training")]
    weight_decay: f64,

    /// Learning rate over the run: down to 0 along a cosine, constant, or in steps
    #[arg(long, value_enum, default_value = "cosine", help_heading = "Training")]
    schedule: ScheduleName,

    /// Shares of the run at which --schedule steps multiplies the rate
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0.5,0.75", help_heading = "Training")]
    step_at: Vec<f64>,

    /// What --schedule steps multiplies the rate by
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1, help_heading = "Training")]
    step_factor: f64,

    /// Which epoch's weights are kept: the last, or the one with the lowest held-out loss
    #[arg(long, value_enum, default_value = "last", help_heading = "Training")]
    select: SelectName,

    /// Stop after so many epochs without a lower held-out loss [default: never]
    #[arg(long, value_name = "N", help_heading = "Training")]
    patience: Option<usize>,

    /// Share of the rows held out to calibrate and to watch
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, help_heading = "Training")]
    holdout: f64,

    /// Share of known rows that the threshold keeps; predict can change it
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, help_heading = "Training")]
    tpr: f64,

    /// Fixes everything random: the same seed gives the same file, byte for byte
    #[arg(long, default_value_t = 0, help_heading = "Training")]
    seed: u64,

    /// Threads; they do not change the result [default: all cores]
    #[arg(long, value_name = "N", help_heading = "Running", value_parser = options::thread_count)]
    threads: Option<usize>,

    /// Keep checkpoints in this folder
    #[arg(long, value_name = "DIR", help_heading = "Running")]
    checkpoint: Option<PathBuf>,

    /// Go on from the checkpoint in that folder, if there is one
    #[arg(long, requires = "checkpoint", help_heading = "Running")]
    resume: bool,

    /// Say nothing but errors
    #[arg(short, long, help_heading = "Running")]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sigma {
    One,
    Learned,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum OptimizerName {
    Adam,
    Sgd,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScheduleName {
    Cosine,
    Constant,
    Steps,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SelectName {
    Last,
    Best,
}

impl Args {
    fn settings(&self) -> mcdd::Result<Settings> {
        let mut head = HeadConfig::parse(&self.method).map_err(|e| match Detect::parse(&self.method) {
            Ok(_) => mcdd::Error::setting(format!("{} is a detector and no method", self.method))
                .hint(format!("give --detector {}, beside a --method", self.method)),
            Err(_) => e,
        })?;
        let detector = Detect::parse(&self.detector).map_err(|e| match HeadConfig::parse(&self.detector) {
            Ok(_) => mcdd::Error::setting(format!("{} is a method and no detector", self.detector))
                .hint(format!("give --method {}", self.detector)),
            Err(_) => e,
        })?;
        let name = head.name();
        let absent = |what: &str| {
            Err(mcdd::Error::setting(format!("{name} has no {what}"))
                .hint(format!("leave --{what} out, or take another --method")))
        };
        match (&mut head, self.nu) {
            (_, None) => {}
            (HeadConfig::DeepMcdd { nu, .. } | HeadConfig::DeepSvdd { nu, .. }, Some(given)) => *nu = given,
            (HeadConfig::SoftMcdd { nu }, Some(given)) => *nu = Some(given),
            _ => return absent("nu"),
        }
        match (&mut head, self.sigma) {
            (_, None) => {}
            (HeadConfig::DeepMcdd { sigma, .. }, Some(Sigma::Learned)) => *sigma = head::Sigma::Learned,
            (HeadConfig::DeepMcdd { sigma, .. }, Some(Sigma::One)) => *sigma = head::Sigma::One,
            _ => return absent("sigma"),
        }
        let optimizer = match self.optimizer {
            OptimizerName::Sgd => Optimizer::Sgd { momentum: self.momentum.unwrap_or(0.9) },
            OptimizerName::Adam if self.momentum.is_some() => {
                return Err(mcdd::Error::setting("Adam has no momentum to set")
                    .hint("leave --momentum out, or give --optimizer sgd"));
            }
            OptimizerName::Adam => Optimizer::default(),
        };
        let settings = Settings {
            hidden: self.hidden.clone(),
            latent: self.latent,
            head,
            detector,
            epochs: self.epochs,
            batch: self.batch,
            lr: self.lr,
            optimizer,
            weight_decay: self.weight_decay,
            schedule: match self.schedule {
                ScheduleName::Cosine => Schedule::Cosine,
                ScheduleName::Constant => Schedule::Constant,
                ScheduleName::Steps => Schedule::Steps { at: self.step_at.clone(), factor: self.step_factor },
            },
            select: match self.select {
                SelectName::Last => train::Select::Last,
                SelectName::Best => train::Select::Best,
            },
            patience: self.patience,
            holdout: self.holdout,
            members: self.members,
            tpr: self.tpr,
            seed: self.seed,
        };
        settings.check()?;
        Ok(settings)
    }
}

/// Finds out before training, not after it, that the model has no place to go.
pub fn check_place(output: &Path) -> mcdd::Result<()> {
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(mcdd::Error::setting("there is no such folder")
            .at_file(folder)
            .hint("make it, or give another -o"));
    }
    if output.is_dir() {
        return Err(mcdd::Error::setting("is a folder").at_file(output).hint("give the name of a file with -o"));
    }
    // A device or a pipe is written in place; beside anything else a file must be possible.
    if !output.exists() || output.is_file() {
        mcdd::files::check_folder(folder)?;
    }
    Ok(())
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let settings = args.settings()?;
    check_place(&args.output)?;
    let mut reading = args.reading.options();
    reading.categorical.clone_from(&args.categorical);
    reading.drop.clone_from(&args.drop);
    let table = Table::read(&args.data, &reading)?;
    if !args.quiet {
        let (rows, columns, classes) = (table.rows(), table.names.len(), table.classes().len());
        ui::note(&format!("{rows} rows, {columns} feature columns, classes: {classes}"));
    }
    let closed = settings.head.trained_by() == Loop::ClosedForm;
    let (members, epochs) = if closed { (1, 1) } else { (settings.members, settings.epochs) };
    if !closed {
        // Where there are no epochs to end after, Ctrl-C ends the program.
        ui::catch_interrupts();
    }
    let progress = ui::Progress::new(members, epochs, args.quiet);
    let start = Instant::now();
    let fitted = Model::fit_with(
        &table,
        &settings,
        &Run {
            threads: options::threads(args.threads),
            checkpoint: args.checkpoint.clone(),
            resume: args.resume,
            watch: &progress,
        },
    );
    progress.finish();
    let fitted = fitted?;
    fitted.model.save(&args.output)?;
    if !args.quiet {
        fitted.notices.iter().for_each(|n| ui::note(n));
        fitted.model.findings().iter().for_each(|f| ui::warning(f));
        summary(&fitted.model, &args.output, start.elapsed().as_secs_f64());
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(model: &Model, output: &Path, seconds: f64) {
    let held = model.calibration().scores().len();
    ui::note(&format!(
        "trained on {} rows, calibrated on {held} held-out rows, in {seconds:.1} s",
        model.training_rows()
    ));
    if let Some((history, Some(kept))) = model.history(0)
        && let Some(epoch) = history.get(kept)
    {
        let accuracy = epoch.held_out_accuracy.map_or("n/a".into(), |a| format!("{}%", ui::percent(a)));
        let closed = model.settings().head.trained_by() == Loop::ClosedForm;
        let when = if closed { "closed form".into() } else { format!("epoch {} of {}", kept + 1, history.len()) };
        ui::note(&format!("held-out accuracy {accuracy} ({when})"));
    }
    if let Ok(t) = model.threshold() {
        ui::note(&format!(
            "known is a confidence of {:.4} or more, which keeps {}% of known rows",
            t.confidence,
            ui::percent(t.tpr)
        ));
    }
    ui::note(&format!("wrote {}; next: mcdd predict {0} NEW_DATA", output.display()));
}
