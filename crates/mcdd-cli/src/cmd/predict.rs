//! `mcdd predict`: a class or "unknown" for each row, block by block.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread;

use mcdd::compute::pool::Pool;
use mcdd::data::{Batch, Label, Notices, ReadOptions};
use mcdd::model::{Calibration, Model, Predictions, Saved, Threshold};

use super::score::{self, Opened};
use crate::options::{Reading, Running};
use crate::output::{Columns, Format, Writer};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd predict flowers.mcdd new.csv                       CSV on stdout
  mcdd predict flowers.mcdd new.csv --tpr 0.99            reject less: keep 99% of known rows
  mcdd predict flowers.mcdd new.parquet --format parquet -o verdicts.parquet
  cat new.csv | mcdd predict flowers.mcdd - --format jsonl --probs --distances
  mcdd predict flowers.mcdd new.csv --fail-on-unknown > /dev/null || echo stop
  mcdd predict photos.mcdd new/ one.png                   images: files and folders of any depth

Columns: label (the most probable class), verdict (known or unknown), confidence (higher is more like
the training rows), p_value (the share of known rows that look as strange or stranger); for images the first column
is image (its file, and which of it).";

/// Rows read and predicted at a time.
const BLOCK: usize = 4096;

/// Put a class on each row, or say unknown
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model, or the detector that fit-detector has written
    model: PathBuf,

    /// Files with the columns that the model was trained on; images or folders of them; for a detector the features, or the
    /// logits where it looks at nothing else; - is a table on stdin
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// For a detector that needs them: the logits of the same rows
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,

    /// Form of the output
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,

    /// Where the output goes [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Add the probability of each class
    #[arg(long)]
    probs: bool,

    /// Add the distance to each class
    #[arg(long)]
    distances: bool,

    /// Share of known rows to keep [default: as trained]
    #[arg(long, value_name = "SHARE")]
    tpr: Option<f64>,

    /// Exit with 1 if a row was unknown
    #[arg(long)]
    fail_on_unknown: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

/// The threshold for a wanted share, with a warning where the held-out rows cannot vouch for it.
pub fn threshold(calibration: &Calibration, tpr: f64, quiet: bool) -> mcdd::Result<Threshold> {
    let threshold = calibration.threshold(tpr)?;
    if let Some(text) = threshold.shortfall(calibration.scores().len()).filter(|_| !quiet) {
        ui::warning(&text);
    }
    Ok(threshold)
}

/// Where predictions go, and how.
pub struct Sink<'a> {
    pub format: Format,
    /// A file, or stdout.
    pub output: Option<&'a Path>,
    pub columns: Columns,
}

/// The writer of predictions, whatever it writes to.
pub type AnyWriter<'a> = Writer<'a, &'a mut (dyn Write + Send)>;

/// Reads a file block by block beside the work on the block before, and returns the notices about it.
pub fn for_each_block(
    model: &Model,
    path: &Path,
    options: &ReadOptions,
    mut work: impl FnMut(&Batch) -> anyhow::Result<()>,
) -> anyhow::Result<Notices> {
    let mut reader = model.schema().reader(path, options)?;
    let (filled, blocks) = sync_channel::<mcdd::Result<Batch>>(2);
    let (give_back, spare) = sync_channel::<Batch>(4);
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            loop {
                let mut batch = spare.try_recv().unwrap_or_default();
                let message = match reader.next(BLOCK, &mut batch) {
                    Ok(true) => Ok(batch),
                    Ok(false) => break,
                    Err(e) => Err(e),
                };
                let over = message.is_err();
                // Where nobody takes the block, the work has failed and reading ends.
                if filled.send(message).is_err() || over {
                    break;
                }
            }
            reader.notices()
        });
        // The channel closes with `blocks` when the work fails, which lets the reader end.
        let worked = (|blocks: std::sync::mpsc::Receiver<mcdd::Result<Batch>>| {
            for block in blocks {
                let block = block?;
                work(&block)?;
                let _ = give_back.try_send(block);
            }
            anyhow::Ok(())
        })(blocks);
        let notices = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.map(|()| notices)
    })
}

/// Options for rows whose labels are of no use: folders of images need not be classes.
pub fn without_labels(model: &Model, options: ReadOptions) -> ReadOptions {
    match (&model.schema().image, &options.label) {
        (Some(_), Label::Auto) => ReadOptions { label: Label::None, ..options },
        _ => options,
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let saved = Saved::load(&args.model)?;
    let names = matches!(&saved, Saved::Model(model) if model.schema().image.is_some());
    let columns = Columns { probs: args.probs, distances: args.distances, names };
    let sink = Sink { format: args.format, output: args.output.as_deref(), columns };
    let pool = Pool::new(args.running.threads());
    let unknown = match saved {
        Saved::Model(model) => with_model(&args, &model, &sink, &pool)?,
        Saved::Scorer(scorer) => {
            if args.distances || (args.probs && !scorer.classifies()) {
                let what = if args.distances { "distances" } else { "probs" };
                let e = mcdd::Error::setting(format!("{} has no {what}", scorer.settings().detector.name()));
                return Err(e.hint(format!("leave --{what} out")).into());
            }
            let threshold = score::threshold(&scorer, args.tpr, args.running.quiet)?;
            // A detector that looks at logits alone gets them in the place of the data.
            let (features, logits) = match &args.data[..] {
                [only] if scorer.detector().width() == 0 && args.logits.is_none() => (&[][..], Some(only)),
                data => (data, args.logits.as_ref()),
            };
            let files = Opened::new(features, logits.map(PathBuf::as_path), &args.reading.options())?;
            score::score(&scorer, files, threshold, &sink, &pool)?
        }
    };
    Ok(ExitCode::from(u8::from(args.fail_on_unknown && unknown > 0)))
}

/// Predicts with a model; returns how many rows were unknown.
fn with_model(args: &Args, model: &Model, sink: &Sink, pool: &Pool) -> anyhow::Result<usize> {
    if args.logits.is_some() {
        let e = mcdd::Error::setting("a model makes its own logits");
        return Err(e.hint("leave --logits out: it is for what fit-detector has written").into());
    }
    let threshold = threshold(model.calibration(), args.tpr.unwrap_or(model.settings().tpr), args.running.quiet)?;
    if args.distances && !model.has_distances() {
        return Err(mcdd::Error::setting("this model's method has no distances").hint("leave --distances out").into());
    }
    if args.probs && !model.classifies() {
        return Err(mcdd::Error::setting("this model's method does not classify").hint("leave --probs out").into());
    }
    let classes = if model.classifies() { model.classes() } else { &[] };
    let mut all_notices = Vec::new();
    let options = without_labels(model, args.reading.options());
    let unknown = write(sink, classes, threshold, |writer| {
        let mut predictions = Predictions::default();
        let mut unknown = 0;
        for path in &args.data {
            all_notices.extend(for_each_block(model, path, &options, |batch| {
                model.predict_rows(&batch.x, &mut predictions, pool)?;
                unknown += predictions.confidence.iter().filter(|&&c| !threshold.known(c)).count();
                writer.write(&predictions, &batch.names)
            })?);
        }
        Ok(unknown)
    })?;
    if !args.running.quiet {
        all_notices.iter().for_each(|n| ui::note(n));
    }
    Ok(unknown)
}

/// Opens the output, lets `work` write, and ends it. The output begins with the first block, so that a file that cannot
/// be read leaves none.
pub fn write(
    sink: &Sink,
    classes: &[String],
    threshold: Threshold,
    work: impl FnOnce(&mut Late) -> anyhow::Result<usize>,
) -> anyhow::Result<usize> {
    let through = |to: &mut (dyn Write + Send)| -> anyhow::Result<usize> {
        let mut late = Late { to: Some(to), writer: None, classes, threshold, sink };
        let unknown = work(&mut late)?;
        late.begin()?;
        late.writer.map_or(Ok(()), Writer::finish)?;
        Ok(unknown)
    };
    match sink.output {
        Some(path) => {
            let mut done = Err(anyhow::anyhow!("nothing was written"));
            let mut failed = false;
            let written = mcdd::files::write_beside(path, |to| {
                // Errors of other kinds than the library's wait outside.
                done = through(to);
                failed = done.is_err();
                if failed { Err(mcdd::Error::data("not written")) } else { Ok(()) }
            });
            if !failed {
                written?;
            }
            done
        }
        None => {
            let mut to = BufWriter::with_capacity(1 << 16, io::stdout());
            through(&mut to).and_then(|n| Ok(to.flush().map(|()| n)?)).map_err(ui::on_stdout)
        }
    }
}

/// A writer that begins when there is something to write.
pub struct Late<'a> {
    to: Option<&'a mut (dyn Write + Send)>,
    writer: Option<AnyWriter<'a>>,
    classes: &'a [String],
    threshold: Threshold,
    sink: &'a Sink<'a>,
}

impl Late<'_> {
    /// Whatever comes, the output has a beginning.
    fn begin(&mut self) -> anyhow::Result<()> {
        if let Some(to) = self.to.take() {
            self.writer = Some(Writer::new(self.classes, self.threshold, self.sink.format, self.sink.columns, to)?);
        }
        Ok(())
    }

    /// Adds a block of rows.
    pub fn write(&mut self, predictions: &Predictions, names: &[String]) -> anyhow::Result<()> {
        self.begin()?;
        self.writer.as_mut().map_or(Ok(()), |w| w.write(predictions, names))
    }
}
