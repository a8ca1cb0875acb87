//! `mcdd train`: from a table to a model file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use mcdd::compute::pool::Pool;
use mcdd::error::count;
use mcdd::head::Loop;
use mcdd::model::Model;
use mcdd::report::model::{About, Report};
use mcdd::train::{OrOff, Run};

use self::backbone::BackboneArgs;
use self::data::{Data, ImageArgs};
use crate::cmd::evaluate;
use crate::options::{Columns, Reading, Running, Sampling};
use crate::places::Places;
use crate::report::{self, Reporting, file_name};
use crate::ui;

mod backbone;
mod data;
mod settings;

const EXAMPLES: &str = "\
Examples:
  mcdd train flowers.csv --label species -o flowers.mcdd
  mcdd train shuttle.trn --label last                  space-separated, no header
  mcdd train batch*.dat -o gas.mcdd                    several \"label index:value\" files
  mcdd train train-images-idx3-ubyte.gz                the file of labels is found next to it
  mcdd train people.csv --label churn --skip-unlabeled --min-class 5 --drop name
  mcdd train flowers.csv --label species --preset fast    one network instead of five
  mcdd train big.parquet --checkpoint run2 --resume    continue an interrupted run
  mcdd train flowers.csv --label species --test 0.2    evaluate on a fifth of the rows
  mcdd train flowers.csv --label species --test 0.2 --report flowers.html
  mcdd train flowers.csv --label species --method softmax --detector mahalanobis
  mcdd train flowers.csv --label species --method deep-svdd    one class: labels are not used
  mcdd train photos/ -o photos.mcdd                    a folder of images for each class
  mcdd train photos/ --preset fast                     half as long, a little less accurate
  mcdd train photos/ --augment move                    digits or text, which must not be mirrored
  mcdd train photos/ --backbone net.onnx               on the features of a frozen ONNX network
  mcdd train cifar-10-batches-bin --net resnet20 --epochs 60 --checkpoint run3 --resume";

/// Train a classifier on a table or on images
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Files: CSV, TSV, Excel, JSON Lines, Parquet, Arrow, NPY, NPZ, IDX or "label index:value"; several are concatenated. Or
    /// images: a folder per class, CIFAR, SVHN, Parquet with images, or IDX with --net
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Output file of the model
    #[arg(short, long, value_name = "FILE", default_value = "model.mcdd")]
    output: PathBuf,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    columns: Columns,

    #[command(flatten)]
    sampling: Sampling,

    #[command(flatten)]
    images: ImageArgs,

    #[command(flatten)]
    backbone: BackboneArgs,

    /// Base configuration; other options override it [default: best]
    #[arg(long, value_enum, help_heading = "Method")]
    preset: Option<PresetName>,

    /// Method: deep-mcdd, softmax, soft-mcdd, protonet, …, with settings as :key=value; see mcdd methods
    /// [default: deep-mcdd]
    #[arg(long, value_name = "NAME", help_heading = "Method")]
    method: Option<String>,

    /// Detector that gives the confidence: distance (the method's own score), knn, mahalanobis, energy, …, with settings
    /// as in knn:k=10:on=inputs [default: knn among the last two layers, docs/default.md; distance with --preset paper, --net or --method]
    #[arg(long, value_name = "NAME", help_heading = "Method")]
    detector: Option<String>,

    /// nu of the method; for Deep-MCDD the weight of the distance term [default: 1; images: 0.1, with cnn
    /// 0.03]
    #[arg(long, help_heading = "Method")]
    nu: Option<f64>,

    /// Standard deviations of Deep-MCDD: fixed at one, or learned [default: one]
    #[arg(long, value_enum, help_heading = "Method")]
    sigma: Option<Sigma>,

    /// Widths of the hidden layers [default: 128,128]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', help_heading = "Method")]
    hidden: Option<Vec<usize>>,

    /// Number of latent features [default: 32; paper: 128; images: the network's channels]
    #[arg(long, value_name = "N", help_heading = "Method")]
    latent: Option<usize>,

    /// Batch normalization in the hidden layers [default: on; paper: off]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true, help_heading = "Method")]
    batch_norm: Option<Switch>,

    /// Clip inputs to this many standard deviations around their mean, or "off" [default: 5; paper: off]
    #[arg(long, value_name = "N", help_heading = "Method", value_parser = or_off::<f64>)]
    clip: Option<OrOff<f64>>,

    /// Parts of the piecewise-linear code that the last network has of each numeric input; "off" makes all networks alike
    /// [default: 8, fewer for more than 64 inputs; off with fewer than 4 networks and other methods]
    #[arg(long, value_name = "N", help_heading = "Method", value_parser = or_off::<usize>)]
    bins: Option<OrOff<usize>>,

    /// Networks in the ensemble [default: 7; fast, paper and images: 1]
    #[arg(long, value_name = "N", help_heading = "Method")]
    members: Option<usize>,

    /// Passes over the training rows [default: 100; cnn: 10; other networks for images: 30]
    #[arg(long, value_name = "N", help_heading = "Training")]
    epochs: Option<usize>,

    /// Maximum number of steps per network, which limits the epochs on large tables, or "off" [default: 10000; off with
    /// --preset paper, --net or --epochs]
    #[arg(long, value_name = "N", help_heading = "Training", value_parser = or_off::<usize>)]
    steps: Option<OrOff<usize>>,

    /// Batch size [default: 200; cnn: 500; other networks for images: 128]
    #[arg(long, value_name = "N", help_heading = "Training")]
    batch: Option<usize>,

    /// Initial learning rate [default: 0.003; 0.001 with --preset paper and for methods without batch normalization;
    /// cnn: 0.75; other networks for images: 0.1]
    #[arg(long, help_heading = "Training")]
    lr: Option<f64>,

    /// Optimizer [default: adam; images: sgd]
    #[arg(long, value_enum, help_heading = "Training")]
    optimizer: Option<OptimizerName>,

    /// Nesterov momentum of SGD [default: 0.9]
    #[arg(long, help_heading = "Training")]
    momentum: Option<f64>,

    /// L2 penalty on weights [default: 0; images: 0.0001]
    #[arg(long, help_heading = "Training")]
    weight_decay: Option<f64>,

    /// Learning rate schedule: cosine decay to 0, constant, or steps [default: cosine; paper: constant; images: steps]
    #[arg(long, value_enum, help_heading = "Training")]
    schedule: Option<ScheduleName>,

    /// Fractions of the run at which --schedule steps multiplies the learning rate [default: 0.5,0.75]
    #[arg(long, value_name = "FRACTION,…", value_delimiter = ',', help_heading = "Training")]
    step_at: Option<Vec<f64>>,

    /// Factor by which --schedule steps multiplies the learning rate [default: 0.1]
    #[arg(long, value_name = "FACTOR", help_heading = "Training")]
    step_factor: Option<f64>,

    /// Epoch whose weights are kept: the last, or the one with the lowest validation loss [default: last; best with
    /// --preset paper]
    #[arg(long, value_enum, help_heading = "Training")]
    select: Option<SelectName>,

    /// Stop after this many epochs without a lower validation loss [default: never]
    #[arg(long, value_name = "N", help_heading = "Training")]
    patience: Option<usize>,

    /// Fraction of the rows that each network leaves out of its training, for calibration and validation. Several
    /// networks leave out different rows [default: 0.1, up to 0.2 for small tables]
    #[arg(long, value_name = "FRACTION", help_heading = "Training")]
    calibration_fraction: Option<f64>,

    /// Calibrate each predicted class by its own rows, so that the threshold keeps the same fraction of every class
    #[arg(long, help_heading = "Training")]
    per_class: bool,

    /// Fraction of known rows that the threshold keeps; predict can change it [default: 0.95]
    #[arg(long, value_name = "FRACTION", help_heading = "Training")]
    tpr: Option<f64>,

    /// Set aside this fraction of the rows for a test, at random and by class: they are used neither for training nor for
    /// calibration, the model is evaluated on them as by mcdd evaluate, and the report is on them
    #[arg(long, value_name = "FRACTION", help_heading = "Training")]
    test: Option<f64>,

    /// Random seed; the same seed gives the same file, byte for byte
    #[arg(long, default_value_t = 0, help_heading = "Training")]
    seed: u64,

    #[command(flatten)]
    reporting: Reporting,

    #[command(flatten)]
    running: Running,

    /// Folder for checkpoints
    #[arg(long, value_name = "DIR", help_heading = "Running")]
    checkpoint: Option<PathBuf>,

    /// Continue from the checkpoint in that folder, if there is one
    #[arg(long, requires = "checkpoint", help_heading = "Running")]
    resume: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PresetName {
    /// Tables: seven networks, and the distance to the nearest training row. Images: cnn
    Best,
    /// Tables: one network. Images: cnn with half of the epochs
    Fast,
    /// As published by the authors of Deep-MCDD; images: ResNet-34
    Paper,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A number, or "off".
fn or_off<T: std::str::FromStr>(text: &str) -> Result<OrOff<T>, String> {
    text.parse().map_err(|_| "give a number or \"off\"".into())
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

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let network = args.backbone.read()?;
    let of_images = args.of_images(network.as_ref())?;
    let settings = args.settings(of_images)?;
    args.check_reading(of_images)?;
    let labels = args.reading.label_file();
    let inputs = args.data.iter().chain(&labels).chain(&args.images.init).chain(&args.backbone.backbone);
    let mut places = Places::reading(inputs.map(PathBuf::as_path));
    places.file(&args.output, "output")?;
    if let Some(folder) = &args.checkpoint {
        places.folder(folder, "checkpoint")?;
    }
    args.reporting.check(&mut places)?;
    let data = args.read(of_images, network.as_ref())?;
    if !args.running.quiet {
        ui::note(&data.summary());
    }
    // Test rows are set aside before anything is fitted.
    let (train_data, test_rows) = match args.test {
        Some(fraction) => {
            let (train_rows, test_rows) = data.split_rows(fraction, args.seed)?;
            (Some(data.select(&train_rows)), test_rows)
        }
        None => (None, Vec::new()),
    };
    let closed = settings.head.trained_by() == Loop::ClosedForm;
    if !closed {
        // Without epochs to stop after, Ctrl-C ends the program.
        ui::catch_interrupts();
    }
    let item = data.item();
    let progress = ui::Progress::new(args.running.quiet, item);
    let start = Instant::now();
    let run = Run {
        threads: args.running.threads(),
        checkpoint: args.checkpoint.clone(),
        resume: args.resume,
        callback: &progress,
        ..Run::default()
    };
    let backbone = args.backbone.options();
    let fitted = match (train_data.as_ref().unwrap_or(&data), &network) {
        (Data::Table(table), None) => Model::fit_with(table, &settings, &run),
        (Data::Images(images), None) => Model::fit_images_from(images, &settings, args.images.init.as_deref(), &run),
        (Data::Table(table), Some(network)) => Model::fit_with_backbone(table, network, &backbone, &settings, &run),
        (Data::Images(images), Some(network)) => {
            Model::fit_images_with_backbone(images, network, &backbone, &settings, &run)
        }
    };
    progress.finish();
    let mut fitted = match data {
        Data::Table(_) => fitted.map_err(data::with_check)?,
        Data::Images(_) => fitted?,
    };
    fitted.model.save(&args.output)?;
    if !args.running.quiet {
        // Those about the data were printed before training.
        let new = |finding: &&String| !fitted.notices.contains(finding);
        fitted.model.findings().iter().filter(new).for_each(|f| ui::warning(f));
        summary(&fitted.model, &args.output, start.elapsed().as_secs_f64(), item);
    }
    let pool = Pool::shared();
    let evaluation = match &args.test {
        Some(_) => Some(data.evaluate(&test_rows, &fitted.model, args.seed, pool)?),
        None => None,
    };
    if args.reporting.wanted() {
        fitted.notices.retain(|notice| !fitted.model.findings().contains(notice));
        let rows = args.test.map(|_| &test_rows[..]);
        let report = args.report(&data, rows, &fitted.model, fitted.notices, pool)?;
        args.reporting.write(&report, args.running.quiet)?;
    }
    if let Some(found) = evaluation {
        ui::print(&evaluate::text(&found, &args.rows_of_data("test rows"), fitted.model.classifies())?)?;
    }
    if fitted.interrupted {
        let resume = if args.checkpoint.is_some() { "; the same command with --resume continues" } else { "" };
        ui::warning(&format!("interrupted: {} has the model as far as it was trained{resume}", args.output.display()));
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// The name of some rows of the data.
    fn rows_of_data(&self, rows: &str) -> String {
        let more = if self.data.len() > 1 { format!(" and {} more", self.data.len() - 1) } else { String::new() };
        format!("{rows} of {}{more}", self.data.first().map_or(String::new(), |p| file_name(p)))
    }

    /// The report on the test rows, or without them on the calibration rows: these are not trained on, but the threshold is
    /// set on them.
    fn report(
        &self,
        data: &Data,
        test_rows: Option<&[usize]>,
        model: &Model,
        notices: Vec<String>,
        pool: &Pool,
    ) -> mcdd::Result<Report> {
        let name = self.rows_of_data(if test_rows.is_some() { "test rows" } else { "calibration rows" });
        let about = About {
            title: format!("{} on {name}", file_name(&self.output)),
            data: name,
            on_calibration_rows: test_rows.is_none(),
            command: report::command(),
            notices,
        };
        match test_rows {
            Some(rows) => Report::of_rows(model, data.training_data(), rows, about, pool),
            None => Report::of_calibration_rows(model, data.training_data(), about, pool),
        }
    }
}

fn summary(model: &Model, output: &Path, seconds: f64, item: &str) {
    let (rows, calibration) = (count(model.training_rows(), item), count(model.calibration().scores().len(), item));
    ui::note(&format!("trained on {rows}, calibrated on {calibration}, in {seconds:.1} s"));
    let accuracy = model.validation_accuracy().map_or("n/a".into(), |a| format!("{}%", ui::percent(a)));
    ui::note(&format!("validation accuracy {accuracy}"));
    if let Ok(t) = model.threshold() {
        ui::note(&format!(
            "{item}s with a confidence of at least {:.4} are known, which keeps {}% of known {item}s",
            t.confidence,
            ui::percent(t.tpr)
        ));
    }
    ui::note(&format!("wrote {}; next: mcdd predict {0} NEW_DATA", output.display()));
}
