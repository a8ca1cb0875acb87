//! `mcdd layers`: what can be used of an ONNX network.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::backbone::NetworkFile;
use serde_json::json;

use crate::options::image_size;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd layers net.onnx                    names, shapes and operators
  mcdd layers net.onnx --json             for programs
  mcdd train photos/ --backbone net.onnx --layer logits";

/// List the layers of an ONNX network that mcdd train --backbone can use
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// ONNX file
    #[arg(value_name = "NETWORK")]
    network: PathBuf,

    /// Height and width of the images, for a network that takes any [default: 224x224]
    #[arg(long, value_name = "HxW", value_parser = image_size)]
    image_size: Option<(usize, usize)>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The longest name in the table; JSON has all of it.
const LONGEST_NAME: usize = 200;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let network = NetworkFile::read(&args.network)?;
    let layers = network.layers(args.image_size).map_err(|e| e.at_file(&args.network))?;
    if args.json {
        ui::print_json(&json!({ "name": network.name(), "sha256": network.sha256(), "layers": layers }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = String::new();
    let width = layers.iter().map(|l| l.name.chars().count()).max().unwrap_or(0).clamp(4, 60);
    writeln!(out, "{:<width$}  {:<20}  {:>8}  shape", "name", "operator", "features")?;
    for layer in &layers {
        let shape: Vec<String> = layer.shape.iter().map(usize::to_string).collect();
        let default = if layer.default { "  (default)" } else { "" };
        // A name of several lines would look like several layers.
        let name = ui::short(&layer.name, LONGEST_NAME);
        writeln!(out, "{name:<width$}  {:<20}  {:>8}  {}{default}", layer.operator, layer.features, shape.join("x"))?;
    }
    ui::print(&out)?;
    Ok(ExitCode::SUCCESS)
}
