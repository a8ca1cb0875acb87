//! `mcdd export`: a model as ONNX.

use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::files::write_beside;
use mcdd::model::OnnxOptions;

use super::predict::checked;
use crate::options::Loading;
use crate::places::Places;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd export flowers.mcdd -o flowers.onnx               the threshold is an input with a default
  mcdd export flowers.mcdd --tpr 0.99 -o flowers.onnx    a fixed threshold that keeps 99% of known rows
  mcdd export flowers.mcdd --core -o flowers.onnx        for runtimes without ai.onnx.ml and texts

The file takes raw rows and gives class, probabilities, score, p_value, known and label, as mcdd predict does. Columns with names \
are inputs of their own, [rows, 1]: numbers in float64 with NaN for a missing cell, times in seconds since 1970-01-01, categories \
as texts. Columns without names are one input x, [rows, columns]. Images are one input image, [rows, height, width, channels] in \
uint8, of the size that the model was trained on. It has opset 21 and IR version 10.";

/// Write a model as ONNX, with preprocessing, threshold and p-value
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// Output file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Fix the threshold, so that it keeps this fraction of known rows [default: an input, whose default is as trained]
    #[arg(long, value_name = "FRACTION")]
    tpr: Option<f64>,

    /// Only operators of the standard domain, and no texts: categories are given by their index, and there is no label
    #[arg(long)]
    core: bool,

    /// No messages
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    Places::reading([args.model.as_path()]).file(&args.output, "output")?;
    let model = args.loading.model(&args.model)?;
    checked(model.threshold_at(args.tpr)?, model.calibration(), args.quiet);
    let options = OnnxOptions { core: args.core, tpr: args.tpr, fixed: args.tpr.is_some() };
    let bytes = model.to_onnx(&options).map_err(|e| e.at_file(&args.model))?;
    write_beside(&args.output, |file| file.write_all(&bytes).map_err(|e| mcdd::Error::io(e, &args.output)))?;
    if !args.quiet {
        ui::note(&format!("wrote {} ({:.1} MB)", args.output.display(), bytes.len() as f64 / 1e6));
    }
    Ok(ExitCode::SUCCESS)
}
