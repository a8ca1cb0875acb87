//! `mcdd explain`: the columns that lower the confidence of a row.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use mcdd::compute::pool::Pool;
use mcdd::data::Unseen;
use mcdd::error::Row;
use mcdd::model::{Explanation, Model, Predictions, Threshold};
use mcdd::stream::{self, csv_cell, verdict};
use serde_json::json;

use super::predict::checked;
use crate::options::{Reading, Running};
use crate::ui::{self, short};

const EXAMPLES: &str = "\
Examples:
  mcdd explain flowers.mcdd new.csv --row 17              why row 17 is unknown
  mcdd explain flowers.mcdd new.csv --unknown             all unknown rows
  mcdd explain flowers.mcdd new.csv --features 10 --format csv > why.csv

One column at a time is set to its mean over the training rows of the predicted class (for categories to \
their proportions), and the row is scored again. The gain in confidence is the contribution of the column. \
Values and expected values are in the units of the table; \"deviations\" are standard deviations of all \
training rows. A gain below 0 means that the column raises the confidence.";

/// Explain which columns lower the confidence of a row
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model
    model: PathBuf,

    /// A file with the columns of the training data; - is stdin
    #[arg(value_name = "ROWS")]
    data: PathBuf,

    /// A row to explain, counted from 1 without the header; may be repeated [default: all]
    #[arg(long, value_name = "N")]
    row: Vec<u64>,

    /// Only unknown rows
    #[arg(long)]
    unknown: bool,

    /// Number of columns to list for each row
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = features)]
    features: usize,

    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// Fraction of in-distribution rows to keep [default: as trained]
    #[arg(long, value_name = "FRACTION")]
    tpr: Option<f64>,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for each row
    Text,
    /// A line for each row and column
    Csv,
    /// A JSON object for each row
    Jsonl,
}

fn features(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(|| "give a number of 1 or more".into())
}

/// What the columns of the tables of text are, after the last of them.
const LEGEND: &str = "\
deviations: the value minus the expected one, in standard deviations of all training rows
gain: the rise in confidence if the value were the expected one
";

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let model = Model::load(&args.model)?;
    if model.schema().image.is_some() {
        let e =
            mcdd::Error::setting("a model of images has no columns to explain predictions with").at_file(&args.model);
        return Err(e.hint("mcdd figure samples and the report of mcdd evaluate show the images").into());
    }
    let threshold = checked(model.threshold_at(args.tpr)?, model.calibration(), args.running.quiet);
    let pool = Pool::new(args.running.threads());
    let wanted: BTreeSet<u64> = args.row.iter().copied().collect();
    let mut predictions = Predictions::default();
    let (mut rows, mut found) = (0, 0);
    if args.format == Format::Csv {
        ui::print("row,verdict,label,confidence,p_value,rank,column,value,expected,deviations,gain,note\n")?;
    }
    let reader = model.schema().reader(&args.data, &args.reading.options())?;
    let notices = stream::for_each::<anyhow::Error>(reader, |batch| {
        let all = batch.x.chunks_exact(model.schema().width()).zip(&batch.places).enumerate();
        let chosen: Vec<(usize, (&[f32], &Row))> =
            all.filter(|(_, (_, row))| wanted.is_empty() || wanted.contains(&row.number)).collect();
        rows += batch.rows as u64;
        let x: Vec<&[f32]> = chosen.iter().map(|(_, (x, _))| *x).collect();
        model.predict_rows(&x.concat(), &mut predictions, &pool)?;
        for (i, (at, (x, &row))) in chosen.into_iter().enumerate() {
            if args.unknown && threshold.known(predictions.confidence[i]) {
                continue;
            }
            found += 1;
            let unseen = Unseen::of_row(&batch.unseen_cells, at);
            let why = model.explain(x, unseen, args.features, &pool)?;
            let scored = Scored { model: &model, threshold, row, predictions: &predictions, at: i };
            ui::print(&match args.format {
                Format::Text => scored.text(&why)?,
                Format::Csv => scored.csv(&why)?,
                Format::Jsonl => scored.json(&why),
            })?;
        }
        Ok(())
    })?;
    if args.format == Format::Text && found > 0 {
        ui::print(LEGEND)?;
    }
    if let Some(absent) = wanted.iter().find(|r| **r < 1 || **r > rows) {
        let e = mcdd::Error::setting(format!("there is no row {absent}")).at_file(&args.data);
        return Err(e
            .hint(match rows {
                0 => "the file has no rows".to_owned(),
                _ => format!("the file has rows 1 to {rows}, the header not counted"),
            })
            .into());
    }
    if !args.running.quiet {
        notices.iter().for_each(|n| ui::note(n));
        if found == 0 && rows > 0 {
            ui::note("no row is unknown");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A row and its prediction.
struct Scored<'a> {
    model: &'a Model,
    threshold: Threshold,
    row: Row,
    predictions: &'a Predictions,
    at: usize,
}

/// The longest cell in a table of text.
const MAX_CELL: usize = 30;

impl Scored<'_> {
    fn class(&self, number: Option<u32>) -> Option<&str> {
        number.and_then(|c| self.model.classes().get(c as usize)).map(String::as_str)
    }

    fn label(&self) -> Option<&str> {
        self.class(self.predictions.class.get(self.at).copied())
    }

    fn scores(&self) -> (f64, f64, &'static str) {
        let confidence = self.predictions.confidence[self.at];
        (confidence, self.predictions.p_value[self.at], verdict(self.threshold.known(confidence)))
    }

    fn text(&self, why: &Explanation) -> Result<String, std::fmt::Error> {
        let (confidence, p, verdict) = self.scores();
        let mut out = format!("row {}: {verdict}", self.row);
        if let Some(label) = self.label() {
            write!(out, ", most like {}", ui::plain(label))?;
        }
        writeln!(out, " (confidence {confidence:.4}, p-value {p:.4})")?;
        let against = self.class(why.class).map_or("all training rows".into(), |c| format!("class {}", ui::plain(c)));
        let mut table = vec![["column", "value", "expected", "deviations", "gain"].map(String::from)];
        let reasons: Vec<_> = why.columns.iter().filter(|c| c.gain > 0.0).collect();
        if reasons.is_empty() {
            writeln!(out, "  no single column lowers the confidence\n")?;
            return Ok(out);
        }
        table.extend(reasons.iter().map(|c| {
            let off = c.deviations.map_or(String::new(), |d| format!("{d:+.1}").replace("-0.0", "0.0"));
            [
                short(&c.column, MAX_CELL),
                short(&c.value, MAX_CELL),
                short(&c.expected, MAX_CELL),
                off,
                format!("{:+.3}", c.gain),
            ]
        }));
        let width = |k: usize| table.iter().map(|r| r[k].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        for row in &table {
            let cell = |k: usize| {
                let pad = " ".repeat(widths[k] - row[k].chars().count());
                if k == 0 { format!("{}{pad}", row[k]) } else { format!("{pad}{}", row[k]) }
            };
            let line: Vec<String> = (0..5).map(cell).collect();
            writeln!(out, "  {}", line.join("  ").trim_end())?;
        }
        for c in &reasons {
            if let Some(note) = &c.note {
                writeln!(out, "  {}: {}", ui::plain(&c.column), ui::plain(note))?;
            }
        }
        writeln!(out, "  (expected: the mean of {against})\n")?;
        Ok(out)
    }

    fn csv(&self, why: &Explanation) -> Result<String, std::fmt::Error> {
        let (confidence, p, verdict) = self.scores();
        let label = csv_cell(self.label().unwrap_or_default());
        let mut out = String::new();
        for (i, c) in why.columns.iter().enumerate() {
            let [column, value, expected] = [&c.column, &c.value, &c.expected].map(|t| csv_cell(t));
            let note = csv_cell(c.note.as_deref().unwrap_or_default());
            let off = c.deviations.map_or(String::new(), |d| d.to_string());
            let (row, rank, gain) = (self.row.number, i + 1, c.gain);
            writeln!(
                out,
                "{row},{verdict},{label},{confidence},{p},{rank},{column},{value},{expected},{off},{gain},{note}"
            )?;
        }
        Ok(out)
    }

    fn json(&self, why: &Explanation) -> String {
        let (confidence, p, verdict) = self.scores();
        let row = json!({
            "row": self.row.number,
            "verdict": verdict,
            "label": self.label(),
            "confidence": confidence,
            "p_value": p,
            "class": self.class(why.class),
            "columns": why.columns,
        });
        format!("{row}\n")
    }
}
