//! `mcdd figure samples`: the rows with the highest and the lowest confidence.

use std::path::PathBuf;
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::sets::Part;
use mcdd::data::{ImageOptions, ImageShape, Images, Label, ReadOptions, Table};
use mcdd::error::count;
use mcdd::report::figure::{samples, short_number};
use mcdd::report::{Chosen, choose_images, choose_samples};

use super::Output;
use crate::options::{Loading, Reading};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd figure samples flowers.mcdd test.csv
  mcdd figure samples digits.mcdd t10k-images-idx3-ubyte.gz --image 28x28 -o digits
  mcdd figure samples photos.mcdd test/                         a model for images

Rows are grouped by their labels, or by the predicted class if there are no labels (--label none). \
A note beside a row shows the predicted class if it is wrong, and whether the row is unknown.";

/// Draw the rows or images with the highest and the lowest confidence of each class
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model file
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// Files with the columns that the model was trained on
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Number of rows of each class at each end
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = rows)]
    rows: usize,

    /// Rows are images of this width and height in pixels
    #[arg(long, value_name = "WxH", value_parser = size)]
    image: Option<[usize; 2]>,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    output: Output,
}

fn rows(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=10).contains(n)).ok_or_else(|| "give a number from 1 to 10".into())
}

fn size(text: &str) -> Result<[usize; 2], String> {
    let side = |s: &str| s.parse().ok().filter(|n| (1..=4096).contains(n));
    let both = text.split_once('x').and_then(|(w, h)| Some([side(w)?, side(h)?]));
    both.ok_or_else(|| "give width and height in pixels, such as 28x28".into())
}

const MOST_CLASSES: usize = 60;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.output.check("samples", args.data.iter().chain([&args.model]).map(PathBuf::as_path))?;
    let model = args.loading.model(&args.model)?;
    let asked = args.reading.options();
    if let Some(spec) = &model.schema().image {
        let ImageShape { height, width, channels } = spec.shape();
        let options = ImageOptions {
            label: asked.label,
            size: Some((height, width)),
            at_most: None,
            channels: Some(channels),
            skip_bad: asked.skip_bad,
            threads: 0,
            part: Part::Test,
            unlabeled: true,
        };
        let (images, notices) = Images::read(&args.data, &options)?;
        if !args.output.quiet {
            notices.iter().for_each(|n| ui::note(n));
        }
        let chosen = choose_images(&model, &images, args.rows, Pool::shared())?;
        return draw(&args, chosen, images.rows());
    }
    // The model knows the name and position of the label column.
    let column = model.schema().label.as_ref().and_then(|l| Some((l.name.clone(), l.position?)));
    let label = match (asked.label.clone(), column) {
        (Label::Auto, Some((name, _))) if model.schema().named => Label::Name(name),
        (Label::Auto, Some((_, position))) => Label::Index(position + 1),
        (label, _) => label,
    };
    let table = Table::read(&args.data, &ReadOptions { label, ..asked })?;
    if !args.output.quiet {
        table.notices().iter().for_each(|n| ui::note(n));
    }
    let chosen = choose_samples(&model, &table, args.rows, args.image)?;
    draw(&args, chosen, table.rows())
}

fn draw(args: &Args, mut chosen: Chosen, rows: usize) -> anyhow::Result<ExitCode> {
    if !args.output.quiet && chosen.foreign > 0 {
        let rows = count(chosen.foreign, "row");
        ui::note(&format!("not shown: {rows} with a label that is not a class of the model"));
    }
    if chosen.classes.len() > MOST_CLASSES {
        if !args.output.quiet {
            ui::warning(&format!("the first {MOST_CLASSES} of {} classes are drawn", chosen.classes.len()));
        }
        chosen.classes.truncate(MOST_CLASSES);
    }
    let by = if chosen.by_label { "by label" } else { "by predicted class" };
    let counted = if args.data.len() > 1 { "; rows are counted over all files" } else { "" };
    let caption = format!(
        "Of {} rows, the {} of each class ({by}) with the highest and the lowest confidence; the number is the confidence. \
         An arrow points to a wrong predicted class; unknown: the confidence is below the model's threshold{counted}.",
        short_number(rows as f64, 12),
        args.rows,
    );
    let figure = samples("Rows with the highest and the lowest confidence", &caption, &chosen.kind, &chosen.classes)?;
    args.output.write("samples", &figure)
}
