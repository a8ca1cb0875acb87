//! `mcdd monitor`: an alarm when rows are no longer like the calibration rows.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::compute::pool::Pool;
use mcdd::data::RowsOrScores;
use mcdd::error::count;
use mcdd::files::{Lock, write_beside};
use mcdd::model::{Model, Predictions};
use mcdd::monitor::{About, Monitor, Part};
use mcdd::report::figure::Theme;
use mcdd::report::monitor as pages;
use mcdd::stream;

use crate::options::{Loading, Reading, Running};
use crate::places::Places;
use crate::ui::{self, percent};

const EXAMPLES: &str = "\
Examples:
  mcdd predict flowers.mcdd new.csv | mcdd monitor flowers.mcdd - --state flowers.json
  mcdd monitor flowers.mcdd new.csv test.csv --alpha 0.001
  mcdd monitor flowers.mcdd new.csv --reference test.csv --report monitor.html
  mcdd monitor flowers.mcdd --state flowers.json            what the state says
  mcdd monitor flowers.mcdd --state flowers.json --restart  after an alarm

The evidence starts at 1. If the rows are like the calibration rows of the model, it ever reaches 1/alpha with a probability \
of at most alpha, however long the stream is. There the alarm is raised, and stays until --restart. \
The state is written after each block of rows, so that a killed run loses nothing that it has printed. One process at a time \
writes a state; a second one is refused.";

/// Watch a stream of rows, and raise an alarm when they are no longer like the calibration rows
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A model
    model: PathBuf,

    #[command(flatten)]
    loading: Loading,

    /// Rows, or the output of mcdd predict, in the order in which they came; - is stdin
    #[arg(value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Keep the state in this file, and continue from it [default: none, begins anew]
    #[arg(long, value_name = "FILE.json")]
    state: Option<PathBuf>,

    /// Probability of a false alarm over the whole stream [default: 0.01, or that of the state]
    #[arg(long, value_name = "FRACTION")]
    alpha: Option<f64>,

    /// Rows that are as they should be and were not used for training: then classes and columns that changed are named.
    /// For a new state only
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,

    /// Start again after an alarm, before the data
    #[arg(long, requires = "state")]
    restart: bool,

    /// Write a page with the evidence over time
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Write the evidence over time as a figure, SVG or PNG by its extension
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    figure: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Exit with code 1 if the alarm is raised
    #[arg(long)]
    fail_on_alarm: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    running: Running,
}

impl Args {
    /// The state, or a new monitor.
    fn monitor(&self, model: &Model, pool: &Pool) -> mcdd::Result<Monitor> {
        if let Some(path) = self.state.as_deref().filter(|path| path.exists()) {
            if self.reference.is_some() || self.alpha.is_some() {
                return Err(mcdd::Error::setting("`reference` and `alpha` are for a new state, and this one exists")
                    .at_file(path)
                    .hint("leave them out to continue, or give another `state`"));
            }
            return Monitor::load(path, model.calibration());
        }
        let mut monitor = Monitor::new(model.calibration(), self.alpha.unwrap_or(0.01))?;
        if let Some(path) = &self.reference {
            let options = stream::without_labels(model, self.reading.options());
            let source = model.schema().reader(path, &options)?;
            let (mut x, mut all) = (Vec::new(), Predictions::default());
            let table = model.schema().image.is_none();
            stream::predict_each(model, source, pool, |batch, predictions| {
                if table {
                    x.extend_from_slice(&batch.x);
                }
                all.append(predictions.clone());
                Ok::<(), mcdd::Error>(())
            })?;
            monitor.watch_parts(model.schema(), model.classes(), &x, &all).map_err(|e| e.at_file(path))?;
        }
        Ok(monitor)
    }

    /// Writes the state, if there is a file for it.
    fn save(&self, monitor: &Monitor) -> mcdd::Result<()> {
        self.state.as_deref().map_or(Ok(()), |path| monitor.save(path))
    }

    /// Reads a source to its end.
    fn feed(&self, path: &Path, model: &Model, monitor: &mut Monitor, pool: &Pool) -> mcdd::Result<()> {
        let options = stream::without_labels(model, self.reading.options());
        let mut seen = Seen { before: monitor.alarm(), quiet: self.running.quiet };
        match model.schema().rows_or_scores(path, &options)? {
            RowsOrScores::Rows(source) => {
                let notices = stream::predict_each(model, source, pool, |batch, predictions| {
                    monitor.add_rows(model.schema(), model.classes(), &batch.x, predictions);
                    seen.look(monitor);
                    self.save(monitor)
                })?;
                if !self.running.quiet {
                    notices.iter().for_each(|n| ui::note(n));
                }
            }
            RowsOrScores::Scores(mut source) => {
                let mut more = true;
                let mut scores = Vec::new();
                while more {
                    scores.clear();
                    more = source.next(stream::BLOCK_ROWS, &mut scores)?;
                    scores.iter().for_each(|&s| monitor.add(s));
                    seen.look(monitor);
                    self.save(monitor)?;
                }
            }
        }
        Ok(())
    }
}

/// Prints an alarm when it is raised.
struct Seen {
    before: Option<u64>,
    quiet: bool,
}

impl Seen {
    fn look(&mut self, monitor: &Monitor) {
        if let Some(row) = monitor.alarm().filter(|_| self.before.is_none()) {
            self.before = Some(row);
            if !self.quiet {
                ui::warning(&format!("alarm at row {row}: rows are no longer like the calibration rows"));
            }
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let inputs = [&args.model].into_iter().chain(&args.data).chain(&args.reference);
    let mut places = Places::reading(inputs.map(PathBuf::as_path));
    for (path, option) in [(&args.state, "state"), (&args.report, "report"), (&args.figure, "figure")] {
        if let Some(path) = path {
            places.file(path, option)?;
        }
    }
    let picture = args.figure.as_deref().map(|path| (path, path.extension().is_some_and(|e| e == "svg")));
    if let Some((path, _)) = picture.filter(|(path, svg)| !svg && path.extension().is_none_or(|e| e != "png")) {
        let e = mcdd::Error::setting("`figure` is written as SVG or PNG").at_file(path);
        return Err(e.hint("give a name that ends in .svg or .png").into());
    }
    if args.data.is_empty() && !args.state.as_deref().is_some_and(Path::exists) {
        let e = mcdd::Error::setting("there are no rows, and no state");
        return Err(e.hint("give rows, the output of mcdd predict, or a `state`").into());
    }
    let model = args.loading.model(&args.model)?;
    let pool = Pool::new(args.running.threads());
    // A state is read, changed and written by one process at a time; any may look at it.
    let changes = args.restart || !args.data.is_empty();
    let _lock = args.state.as_deref().filter(|_| changes).map(|path| Lock::beside(path, "state")).transpose()?;
    let mut monitor = args.monitor(&model, &pool)?;
    if args.restart {
        monitor.restart();
        args.save(&monitor)?;
    }
    for path in &args.data {
        args.feed(path, &model, &mut monitor, &pool)?;
    }
    let put =
        |path: &Path, bytes: &[u8]| write_beside(path, |to| to.write_all(bytes).map_err(|e| mcdd::Error::io(e, path)));
    let name = args.model.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    if let Some((path, svg)) = picture {
        let figure = pages::figure(&monitor, &name)?;
        put(path, &if svg { figure.svg().into_bytes() } else { figure.png(Theme::Light)? })?;
    }
    if let Some(path) = &args.report {
        put(path, pages::page(&monitor, &name)?.as_bytes())?;
    }
    let about = monitor.about();
    let text = if args.json { format!("{:#}\n", serde_json::to_value(&about)?) } else { text(&about, &monitor) };
    ui::print(&text)?;
    Ok(ExitCode::from(u8::from(args.fail_on_alarm && monitor.alarm().is_some())))
}

/// The state in lines.
fn text(about: &About, monitor: &Monitor) -> String {
    let mut out = String::new();
    let low = if about.rows == 0 { 0.0 } else { about.low as f64 / about.rows as f64 };
    let _ = writeln!(out, "rows      {}, {}% with a p-value of at most 5%", about.rows, percent(low));
    let _ = writeln!(out, "evidence  {} of {}", pages::amount(about.evidence), pages::amount(about.limit));
    let alarm = match about.alarm {
        Some(row) => format!("raised at row {row}"),
        None => {
            format!("none; over the whole stream a false one has a probability of at most {}%", percent(about.alpha))
        }
    };
    let _ = writeln!(out, "alarm     {alarm}");
    let changed: Vec<_> = about.parts.iter().filter(|p| p.changed.is_some()).collect();
    for found in &changed {
        let what = match found.part {
            Part::Class(name) => format!("class {name}: lower confidences"),
            Part::Labels => "labels: other classes are predicted".into(),
            Part::Column(name) => format!("column {name}: other values"),
        };
        let row = found.changed.unwrap_or_default();
        let _ = writeln!(
            out,
            "changed   {}, evidence {} at row {row} or before",
            ui::plain(&what),
            pages::amount(found.evidence)
        );
    }
    if changed.is_empty() && !about.parts.is_empty() {
        let limit = pages::amount(monitor.part_limit());
        let _ = writeln!(
            out,
            "changed   none of {}; named at an evidence of {limit}",
            count(about.parts.len(), "class and column")
        );
    }
    out
}
