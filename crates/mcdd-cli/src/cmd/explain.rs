//! `mcdd explain`: the columns that lower the confidence of a row, or the parts of an image.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use mcdd::compute::pool::Pool;
use mcdd::data::Unseen;
use mcdd::error::{Row, count};
use mcdd::model::{Area, Explanation, Model, Predictions, Threshold};
use mcdd::report::heat_map;
use mcdd::stream::{self, csv_cell, verdict};
use serde_json::{Value, json};

use super::predict::checked;
use crate::options::{Loading, Reading, Running};
use crate::places::Places;
use crate::ui::{self, short};

const EXAMPLES: &str = "\
Examples:
  mcdd explain flowers.mcdd new.csv --row 17              why row 17 is unknown
  mcdd explain flowers.mcdd new.csv --unknown             all unknown rows
  mcdd explain flowers.mcdd new.csv --features 10 --format csv > why.csv
  mcdd explain photos.mcdd new/ --maps maps/              where images are strange, as pictures

One column at a time is set to its mean over the training rows of the predicted class (for categories to \
their proportions), and the row is scored again. The gain in confidence is the contribution of the column. \
Values and expected values are in the units of the table; \"deviations\" are standard deviations of all \
training rows. A gain below 0 means that the column raises the confidence.

Of an image, one part at a time is covered with the mean color of the training images. The gain in confidence shows how strange \
the part is.";

/// Explain which columns of a row, or which parts of an image, lower the confidence
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// A file with the columns of the training data, - being stdin; or images
    #[arg(value_name = "ROWS")]
    data: PathBuf,

    /// A row to explain, counted from 1 without the header; may be repeated [default: all]
    #[arg(long, value_name = "N")]
    row: Vec<u64>,

    /// Only unknown rows
    #[arg(long)]
    unknown: bool,

    /// Number of columns, or of parts of an image, to list for each row
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = features)]
    features: usize,

    /// Folder for pictures of the images, each beside the same image with its strange parts in red
    #[arg(long, value_name = "DIR")]
    maps: Option<PathBuf>,

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

/// The same for images.
const IMAGE_LEGEND: &str = "\
x and y: pixels from the upper left corner
gain: the mean rise in confidence if a window around the part is covered
";

/// The end of a map's name: that of the image, as far as it can be part of a file name.
fn stem(name: Option<&str>) -> String {
    let stem =
        name.and_then(|n| Path::new(n).file_stem()).map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let fit: String =
        stem.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).take(80).collect();
    if fit.is_empty() { fit } else { format!("-{fit}") }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let model = args.loading.model(&args.model)?;
    let image = model.schema().image.clone();
    if let Some(folder) = &args.maps {
        if image.is_none() {
            let error = mcdd::Error::setting("`maps` are for images, and the model is for tables");
            return Err(error.hint("leave out `maps`").into());
        }
        Places::reading([args.model.as_path(), &args.data]).folder(folder, "maps")?;
        std::fs::create_dir_all(folder).map_err(|e| mcdd::Error::io(e, folder))?;
        // A map could replace an image, or be read as one the next time.
        let real = |path: &Path| path.canonicalize().map_err(|e| mcdd::Error::io(e, path));
        if real(folder)?.starts_with(real(&args.data)?) {
            let error = mcdd::Error::setting("`maps` is a folder of the images").at_file(folder);
            return Err(error.hint("give another folder as `maps`").into());
        }
    }
    let threshold = checked(model.threshold_at(args.tpr)?, model.calibration(), args.running.quiet);
    let pool = Pool::shared();
    let wanted: BTreeSet<u64> = args.row.iter().copied().collect();
    let mut predictions = Predictions::default();
    let (mut rows, mut found) = (0, 0);
    // Tables and JSON are data: as they are.
    let print = if args.format == Format::Text { ui::print } else { ui::print_data };
    if args.format == Format::Csv && image.is_some() {
        print("image,verdict,label,confidence,p_value,rank,x,y,width,height,gain\n")?;
    } else if args.format == Format::Csv {
        print("row,verdict,label,confidence,p_value,rank,column,value,expected,deviations,gain,note\n")?;
    }
    let reader = model.schema().reader(&args.data, &args.reading.options())?;
    let notices = stream::for_each::<anyhow::Error>(reader, |batch| {
        // Images are counted.
        let places: Vec<Row> = match image {
            Some(_) => (rows + 1..=rows + batch.rows as u64).map(Row::from).collect(),
            None => batch.places.clone(),
        };
        let all = batch.x.chunks_exact(model.schema().width()).zip(&places).enumerate();
        let chosen: Vec<(usize, (&[f32], &Row))> =
            all.filter(|(_, (_, row))| wanted.is_empty() || wanted.contains(&row.number)).collect();
        rows += batch.rows as u64;
        let x: Vec<&[f32]> = chosen.iter().map(|(_, (x, _))| *x).collect();
        model.predict_rows(&x.concat(), &mut predictions, pool)?;
        for (i, (at, (x, &row))) in chosen.into_iter().enumerate() {
            if args.unknown && threshold.known(predictions.confidence[i]) {
                continue;
            }
            found += 1;
            let name = batch.names.get(at).map(String::as_str);
            let scored = Scored { model: &model, threshold, row, name, predictions: &predictions, at: i };
            if let Some(spec) = &image {
                let map = model.explain_image(x, pool)?;
                if let Some(folder) = &args.maps {
                    let png = heat_map(spec, x, &map)?;
                    let file = folder.join(format!("{:05}{}.png", row.number, stem(name)));
                    mcdd::files::write_beside(&file, |to| to.write_all(&png).map_err(|e| mcdd::Error::io(e, &file)))?;
                }
                let areas = map.areas([spec.height, spec.width]);
                let areas = &areas[..areas.len().min(args.features)];
                print(&match args.format {
                    Format::Text => scored.text_of_image(areas)?,
                    Format::Csv => scored.csv_of_image(areas)?,
                    Format::Jsonl => scored.json(json!({ "map": map })),
                })?;
                continue;
            }
            let unseen = Unseen::of_row(&batch.unseen_cells, at);
            let why = model.explain(x, unseen, args.features, pool)?;
            print(&match args.format {
                Format::Text => scored.text(&why)?,
                Format::Csv => scored.csv(&why)?,
                Format::Jsonl => scored.json(json!({ "class": scored.class(why.class), "columns": why.columns })),
            })?;
        }
        Ok(())
    })?;
    if args.format == Format::Text && found > 0 {
        ui::print(if image.is_some() { IMAGE_LEGEND } else { LEGEND })?;
    }
    if let Some(folder) = args.maps.as_ref().filter(|_| !args.running.quiet) {
        ui::note(&format!("wrote {} to {}", count(found, "map"), folder.display()));
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
            ui::note(if image.is_some() { "no image is unknown" } else { "no row is unknown" });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A row and its prediction.
struct Scored<'a> {
    model: &'a Model,
    threshold: Threshold,
    row: Row,
    /// The name of an image.
    name: Option<&'a str>,
    predictions: &'a Predictions,
    at: usize,
}

/// The longest cell in a table of text.
const MAX_CELL: usize = 30;
/// The longest name in a line.
const MAX_NAME: usize = 200;

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

    /// The verdict in a line.
    fn heading(&self) -> Result<String, std::fmt::Error> {
        let (confidence, p, verdict) = self.scores();
        let mut out = match self.name {
            Some(name) => format!("image {} ({}): {verdict}", self.row, short(name, MAX_NAME)),
            None => format!("row {}: {verdict}", self.row),
        };
        if let Some(label) = self.label() {
            write!(out, ", most like {}", short(label, MAX_NAME))?;
        }
        writeln!(out, " (confidence {confidence:.4}, p-value {p:.4})")?;
        Ok(out)
    }

    fn text_of_image(&self, areas: &[(Area, f64)]) -> Result<String, std::fmt::Error> {
        let mut out = self.heading()?;
        if areas.is_empty() {
            writeln!(out, "  no single part lowers the confidence")?;
        }
        for (a, gain) in areas {
            let (right, bottom) = (a.x + a.width - 1, a.y + a.height - 1);
            writeln!(out, "  x {:>3} to {right:>3}, y {:>3} to {bottom:>3}  {gain:+.3}", a.x, a.y)?;
        }
        writeln!(out)?;
        Ok(out)
    }

    fn csv_of_image(&self, areas: &[(Area, f64)]) -> Result<String, std::fmt::Error> {
        let (confidence, p, verdict) = self.scores();
        let [name, label] = [self.name, self.label()].map(|t| csv_cell(t.unwrap_or_default()));
        let mut out = String::new();
        for (i, (Area { x, y, width, height }, gain)) in areas.iter().enumerate() {
            let rank = i + 1;
            writeln!(out, "{name},{verdict},{label},{confidence},{p},{rank},{x},{y},{width},{height},{gain}")?;
        }
        Ok(out)
    }

    fn text(&self, why: &Explanation) -> Result<String, std::fmt::Error> {
        let mut out = self.heading()?;
        let against =
            self.class(why.class).map_or("all training rows".into(), |c| format!("class {}", short(c, MAX_NAME)));
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
                writeln!(out, "  {}: {}", short(&c.column, MAX_NAME), short(note, ui::LONGEST))?;
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

    fn json(&self, why: Value) -> String {
        let (confidence, p, verdict) = self.scores();
        let mut row = json!({
            "row": self.row.number,
            "verdict": verdict,
            "label": self.label(),
            "confidence": confidence,
            "p_value": p,
        });
        if let (Value::Object(row), Value::Object(why)) = (&mut row, why) {
            row.extend(self.name.map(|name| ("image".to_owned(), name.into())));
            row.extend(why);
        }
        format!("{row}\n")
    }
}
