//! `mcdd predict`: a class or "unknown" for each row, block by block.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread;

use mcdd::data::{Batch, Notices, ReadOptions};
use mcdd::model::{Model, Predictions, Threshold};
use mcdd::net::cpu::pool::Pool;

use crate::options::{self, Reading};
use crate::output::{Columns, Format, Writer};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd predict flowers.mcdd new.csv                       CSV on stdout
  mcdd predict flowers.mcdd new.csv --tpr 0.99            reject less: keep 99% of known rows
  mcdd predict flowers.mcdd new.parquet --format parquet -o verdicts.parquet
  cat new.csv | mcdd predict flowers.mcdd - --format jsonl --probs --distances
  mcdd predict flowers.mcdd new.csv --fail-on-unknown > /dev/null || echo stop

Columns: label (the most probable class), verdict (known or unknown), confidence (higher is more like
the training rows), p_value (the share of known rows that look as strange or stranger).";

/// Rows read and predicted at a time.
const BLOCK: usize = 4096;

/// Put a class on each row, or say unknown
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model
    model: PathBuf,

    /// Files with the columns that the model was trained on; - is stdin
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

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

    /// Threads; they do not change the result [default: all cores]
    #[arg(long, value_name = "N", value_parser = options::thread_count)]
    threads: Option<usize>,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// The threshold for a wanted share, with a warning where the held-out rows cannot vouch for it.
pub fn threshold(model: &Model, tpr: Option<f64>, quiet: bool) -> mcdd::Result<Threshold> {
    let threshold = model.calibration().threshold(tpr.unwrap_or(model.settings().tpr))?;
    if let Some(text) = threshold.shortfall(model.calibration().scores().len()).filter(|_| !quiet) {
        ui::warning(&text);
    }
    Ok(threshold)
}

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

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let model = Model::load(&args.model)?;
    let threshold = threshold(&model, args.tpr, args.quiet)?;
    if args.distances && !model.has_distances() {
        return Err(mcdd::Error::setting("this model's method has no distances").hint("leave --distances out").into());
    }
    let mut unknown = 0;
    let mut all_notices = Vec::new();
    match &args.output {
        Some(path) => {
            let mut failed = None;
            let written = mcdd::files::write_beside(path, |to| {
                // Errors of other kinds than the library's wait outside.
                predict(&args, &model, threshold, to, &mut unknown, &mut all_notices).map_err(|e| {
                    failed = Some(e);
                    mcdd::Error::data("not written")
                })
            });
            if let Some(e) = failed {
                return Err(e);
            }
            written?;
        }
        None => {
            let mut to = BufWriter::with_capacity(1 << 16, io::stdout());
            let done = predict(&args, &model, threshold, &mut to, &mut unknown, &mut all_notices);
            done.and_then(|()| Ok(to.flush()?)).map_err(ui::on_stdout)?;
        }
    }
    if !args.quiet {
        all_notices.iter().for_each(|n| ui::note(n));
    }
    Ok(ExitCode::from(u8::from(args.fail_on_unknown && unknown > 0)))
}

fn predict(
    args: &Args,
    model: &Model,
    threshold: Threshold,
    to: &mut (dyn Write + Send),
    unknown: &mut usize,
    notices: &mut Notices,
) -> anyhow::Result<()> {
    let columns = Columns { probs: args.probs, distances: args.distances };
    let pool = Pool::new(options::threads(args.threads));
    let mut predictions = Predictions::default();
    let mut writer = None;
    let mut to = Some(to);
    for path in &args.data {
        notices.extend(for_each_block(model, path, &args.reading.options(), |batch| {
            // The output begins with the first block, so that a file that cannot be read leaves none.
            if let Some(to) = to.take() {
                writer = Some(Writer::new(model, threshold, args.format, columns, to)?);
            }
            model.predict_rows(&batch.x, &mut predictions, &pool)?;
            *unknown += predictions.confidence.iter().filter(|&&c| !threshold.known(c)).count();
            writer.as_mut().map_or(Ok(()), |w| w.write(&predictions))
        })?);
    }
    writer.map_or(Ok(()), Writer::finish)
}
