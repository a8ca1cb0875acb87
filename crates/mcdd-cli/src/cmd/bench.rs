//! `mcdd bench`: the paper's protocol on the paper's data, or on a table of one's own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use mcdd::data::sets::Part;
use mcdd::data::{ImageOptions, Images, Label, Table, sets};
use mcdd::files::write_beside;
use mcdd::net::NetName;
use mcdd::protocol::Method;
use mcdd::protocol::grid::{Grid, Outcome, Spectator};
use mcdd::protocol::images::{self, ImageGrid, ImageSets};
use mcdd::protocol::results::{About, Cell, Results};
use mcdd::report::bench::{self, METRICS, Study};
use mcdd::train::Epoch;
use mcdd::train::optim::Schedule;
use serde::Deserialize;

use crate::options::{self, Columns, Opened, Reading};
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd bench flowers.csv --label species        would it notice a species that it has never seen?
  mcdd bench gas --methods paper -o gas         the paper's methods on the paper's GasSensor, beside its numbers
  mcdd bench mnist --methods alad --test-folds 1 -o mnist
  mcdd bench study.toml
  mcdd bench images --id cifar10 --ood svhn,tinyimagenet --net resnet20 --epochs 30 -o cifar10
  mcdd bench images --id photos/ --ood paintings/ --net resnet8

Each class in turn is left out of training and shown to the finished model; the others are split into folds, one of which
is tested each time. No data of another kind is needed, and test rows choose nothing. Results are kept as they come: after
Ctrl-C or a crash the same command goes on where it was.

Methods: best, fast (the presets of mcdd train), a method (deep-mcdd, deep-mcdd:nu=0.1, protonet, ...: see mcdd methods) with
the network and the training of the paper, or a method and a detector (softmax+mahalanobis, softmax+knn:k=10);
deep-mcdd:select=best keeps the epoch with the lowest held-out loss instead of the last. paper: the
eight that the paper compares. nu: deep-mcdd with nu from 0.001 to 1,000. all: everything that can be put together.

A file that ends in .toml says the same, in data and the long options' names without their dashes. Options on the command
line go before it:
  data = \"gas\"            # or [\"a.csv\", \"b.csv\"]
  methods = [\"paper\", \"best\"]
  folds = 5
  output = \"gas\"

In the folder: results.jsonl (every cell: settings, seed, seconds, version), table.md, table.csv, table.tex, index.html.
Exit codes: 0 all cells are there, 2 error, 3 some cells failed (the tables list them), 130 stopped before the end.";

/// Test methods on a table, each class left out in turn: would they notice a class that they have never seen?
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Files with at least three classes, the name of a data set (see mcdd datasets), or a TOML file; the word images with
    /// --id and --net
    #[arg(value_name = "DATA", required = true)]
    data: Vec<String>,

    /// Methods, with commas [default: softmax+msp, softmax+mahalanobis, deep-mcdd and best]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    methods: Option<Vec<String>>,

    /// Parts that the rows of the known classes are split into; each is tested once [default: 5]
    #[arg(long, value_name = "N")]
    folds: Option<usize>,

    /// Test only the first N folds [default: all]
    #[arg(long, value_name = "N")]
    test_folds: Option<usize>,

    /// Leave out only these classes [default: each in turn]; with --id the sets or folders of images to show
    #[arg(long, value_name = "CLASS", num_args = 1..)]
    ood: Option<Vec<String>>,

    /// Images to train on: a data set, or a folder of which a fifth is tested
    #[arg(long, value_name = "NAME|DIR", requires = "net", help_heading = "Images")]
    id: Option<String>,

    /// The network for images: resnet20, resnet34, densenet100, …
    #[arg(long, value_name = "NAME", requires = "id", help_heading = "Images")]
    net: Option<String>,

    /// Do all of it with N seeds, which deal the folds anew; each fold has networks of its own [default: 1]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,

    /// Epochs of every method [default: each its own, 100]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,

    /// How the learning rate of every method goes on [default: each its own, constant but for best and fast]
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,

    /// Where results go [default: bench-NAME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Cells at a time, one thread each; they do not change the result [default: all cores]
    #[arg(long, value_name = "N", value_parser = options::thread_count)]
    jobs: Option<usize>,

    /// Try cells again that have failed
    #[arg(long)]
    retry: bool,

    /// Folder of the data sets [default: MCDD_DATA]
    #[arg(long = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Say nothing but errors and the result
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    columns: Columns,
}

#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScheduleName {
    /// Down to 0 along a cosine
    Cosine,
    /// The same all the time
    Constant,
}

/// A name, or a number that is one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Whole(i64),
    Number(f64),
}

/// One word or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    One(Word),
    Many(Vec<Word>),
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        match word {
            Word::Text(text) => text,
            Word::Whole(n) => n.to_string(),
            Word::Number(n) => n.to_string(),
        }
    }
}

impl From<Words> for Vec<String> {
    fn from(words: Words) -> Self {
        match words {
            Words::One(word) => vec![word.into()],
            Words::Many(words) => words.into_iter().map(Into::into).collect(),
        }
    }
}

/// What a TOML file may say.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Plan {
    data: Words,
    label: Option<Word>,
    header: Option<bool>,
    separator: Option<String>,
    categorical: Option<Words>,
    drop: Option<Words>,
    methods: Option<Words>,
    folds: Option<usize>,
    test_folds: Option<usize>,
    ood: Option<Words>,
    id: Option<String>,
    net: Option<String>,
    seeds: Option<u64>,
    epochs: Option<usize>,
    schedule: Option<ScheduleName>,
    output: Option<PathBuf>,
    jobs: Option<usize>,
    retry: Option<bool>,
}

/// Files longer than this are no plans.
const LONGEST_PLAN: u64 = 1 << 20;

impl Args {
    /// Takes what a TOML file says, where no option says otherwise.
    fn planned(mut self) -> mcdd::Result<Args> {
        let [path] = self.data.as_slice() else { return Ok(self) };
        let path = PathBuf::from(path);
        if path.extension().is_none_or(|e| e != "toml") {
            return Ok(self);
        }
        let wrong = |what: String| mcdd::Error::setting(what).at_file(&path).hint("mcdd bench --help shows an example");
        let size = fs::metadata(&path).map_err(|e| mcdd::Error::io(e, &path))?.len();
        if size > LONGEST_PLAN {
            return Err(wrong("is too long".into()));
        }
        let text = fs::read_to_string(&path).map_err(|e| mcdd::Error::io(e, &path))?;
        let plan: Plan = toml::from_str(&text).map_err(|e| wrong(e.to_string().trim().replace('\n', "; ")))?;
        if plan.jobs.is_some_and(|j| options::thread_count(&j.to_string()).is_err()) {
            return Err(wrong("jobs is a number from 1 to 256".into()));
        }
        // Paths in a file are meant from where the file is.
        let folder = path.parent().unwrap_or(Path::new(""));
        let near = |name: String| match sets::find(&name) {
            Some(_) => name,
            None => folder.join(&name).to_string_lossy().into_owned(),
        };
        self.data = Vec::from(plan.data).into_iter().map(near).collect();
        self.reading.label = self.reading.label.or(plan.label.map(String::from).map(|l| match folder.join(&l) {
            file if file.is_file() => file.to_string_lossy().into_owned(),
            _ => l,
        }));
        self.methods = self.methods.or(plan.methods.map(Into::into));
        self.folds = self.folds.or(plan.folds);
        self.test_folds = self.test_folds.or(plan.test_folds);
        self.ood = self.ood.or(plan.ood.map(Into::into));
        self.id = self.id.or(plan.id);
        self.net = self.net.or(plan.net);
        self.seeds = self.seeds.or(plan.seeds);
        self.epochs = self.epochs.or(plan.epochs);
        self.schedule = self.schedule.or(plan.schedule);
        self.output = self.output.or(plan.output.map(|o| folder.join(o)));
        self.jobs = self.jobs.or(plan.jobs);
        self.retry |= plan.retry.unwrap_or(false);
        self.reading.header = self.reading.header.or(plan.header);
        if let (None, Some(text)) = (self.reading.separator, &plan.separator) {
            self.reading.separator = Some(options::separator(text).map_err(|e| wrong(format!("separator: {e}")))?);
        }
        for (given, planned) in [(&mut self.columns.categorical, plan.categorical), (&mut self.columns.drop, plan.drop)]
        {
            if given.is_empty() {
                *given = planned.map_or_else(Vec::new, Into::into);
            }
        }
        Ok(self)
    }

    /// Gives all methods what was asked for.
    fn change(&self, methods: &mut [Method]) -> mcdd::Result<()> {
        for Method { settings, .. } in methods {
            if let Some(epochs) = self.epochs {
                // Who says how many epochs wants all of them.
                (settings.epochs, settings.steps) = (epochs, None);
            }
            match self.schedule {
                Some(ScheduleName::Cosine) => settings.schedule = Schedule::Cosine,
                Some(ScheduleName::Constant) => settings.schedule = Schedule::Constant,
                None => {}
            }
            settings.check()?;
        }
        Ok(())
    }

    /// The images of `--id` and `--ood`, and what they are called.
    fn image_sets(&self, id: &str) -> mcdd::Result<(ImageSets, String, Option<&'static str>)> {
        let folder = options::data_folder(self.data_dir.clone());
        let folder = folder.as_deref().unwrap_or(Path::new(options::NO_FOLDER));
        let label = self.reading.options().label;
        let skip_bad = self.reading.skip_bad;
        let read = |name: &str, options: ImageOptions| Images::read(&[PathBuf::from(name)], &options).map(|(i, _)| i);
        let (train, test, title, set) = match sets::find(id) {
            Some(set) => {
                let [train, test] = [Part::Train, Part::Test].map(|part| set.read_images(folder, part));
                (train?.images, test?.images, set.title.to_owned(), Some(set.name))
            }
            None => {
                let all = read(id, ImageOptions { label, skip_bad, ..ImageOptions::default() })?;
                let (train, test) = all.split_rows(0.2, 0)?;
                (all.select(&train), all.select(&test), id.trim_end_matches('/').to_owned(), None)
            }
        };
        let shape = train.shape();
        let names = self.ood.iter().flatten().flat_map(|n| n.split(',')).map(str::trim).filter(|n| !n.is_empty());
        let other = |name: &str| {
            let images = match sets::find(name) {
                Some(set) => set.read_images(folder, Part::Test)?.images,
                None => {
                    let (size, channels) = (Some((shape.height, shape.width)), Some(shape.channels));
                    read(name, ImageOptions { label: Label::None, size, channels, skip_bad, threads: 0 })?
                }
            };
            Ok((name.trim_end_matches('/').to_owned(), images))
        };
        let ood = names.map(other).collect::<mcdd::Result<Vec<_>>>()?;
        Ok((ImageSets { train, test, ood }, title, set))
    }

    fn grid(&self, table: &Table) -> mcdd::Result<Grid> {
        let usual = || vec!["usual".to_owned()];
        let mut methods = Method::list(&self.methods.clone().unwrap_or_else(usual))?;
        self.change(&mut methods)?;
        let classes = match &self.ood {
            None => table.classes().to_vec(),
            Some(wanted) => {
                let numbers: Vec<usize> =
                    wanted.iter().map(|c| table.class_number(c.trim())).collect::<mcdd::Result<_>>()?;
                table
                    .classes()
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| numbers.contains(i))
                    .map(|(_, c)| c.clone())
                    .collect()
            }
        };
        let folds = self.folds.unwrap_or(5);
        let grid = Grid {
            methods,
            classes,
            folds,
            tested: self.test_folds.unwrap_or(folds),
            seeds: self.seeds.unwrap_or(1),
            retry: self.retry,
        };
        grid.check()?;
        Ok(grid)
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let args = args.planned()?;
    if let (Some(id), Some(net)) = (&args.id, &args.net) {
        return run_images(&args, id, net);
    }
    let Opened { table, title, short, coverage } =
        options::open(&args.data, args.data_dir.clone(), &args.reading, &args.columns)?;
    let about = About::new(&table, &title, coverage.as_ref())?;
    let grid = args.grid(&table)?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("bench-{short}")));
    let mut results = Results::open(&folder, &about, grid.folds)?;
    if !args.quiet {
        ui::note(&about.coverage);
        grid.notices(&table).iter().for_each(|n| ui::note(n));
    }
    ui::catch_interrupts();
    let progress = Progress::new(args.quiet);
    let start = Instant::now();
    let outcome = grid.run(&table, &mut results, &folder, options::threads(args.jobs), &progress);
    progress.finish();
    conclude(&args, &about, &mut results, &folder, outcome?, start)
}

/// The same for images of one set against those of others.
fn run_images(args: &Args, id: &str, net: &str) -> anyhow::Result<ExitCode> {
    if args.data != ["images"] {
        let e = mcdd::Error::setting("--id is for images");
        return Err(e.hint("mcdd bench images --id NAME --ood NAME,… --net NAME").into());
    }
    let net = NetName::parse(net)?;
    let mut methods = images::methods(args.methods.as_deref().unwrap_or_default(), net)?;
    args.change(&mut methods)?;
    let (sets, title, set) = args.image_sets(id)?;
    let about = About::of_images(&sets, &title, set, net)?;
    let grid = ImageGrid { methods, seeds: args.seeds.unwrap_or(1), retry: args.retry };
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("bench-{}", set.unwrap_or("images"))));
    let mut results = Results::open(&folder, &about, 1)?;
    if !args.quiet {
        ui::note(&about.coverage);
    }
    ui::catch_interrupts();
    let progress = Progress::new(args.quiet);
    let start = Instant::now();
    let outcome = grid.run(&sets, &mut results, &folder, options::threads(args.jobs), &progress);
    progress.finish();
    conclude(args, &about, &mut results, &folder, outcome?, start)
}

/// Writes what came out, and says it.
fn conclude(
    args: &Args,
    about: &About,
    results: &mut Results,
    folder: &Path,
    outcome: Outcome,
    start: Instant,
) -> anyhow::Result<ExitCode> {
    results.sort()?;
    let cells: Vec<Cell> = results.cells().cloned().collect();
    if cells.is_empty() {
        ui::warning("stopped before the first cell; nothing is written");
        return Ok(ExitCode::from(130));
    }
    let study = Study::new(about, &cells);
    write(folder, &study)?;
    ui::print(&summary(&study))?;
    if !args.quiet {
        study.sentences().iter().for_each(|(method, sentence)| ui::note(&format!("{method}: {sentence}")));
        let seconds = start.elapsed().as_secs_f64();
        ui::note(&format!(
            "{} of {} cells in {seconds:.0} s; wrote {}",
            outcome.done,
            outcome.total,
            folder.join("index.html").display()
        ));
    }
    Ok(finish(&outcome, &study))
}

/// What is wrong with the whole, and the exit code for it.
fn finish(outcome: &Outcome, study: &Study) -> ExitCode {
    if outcome.done < outcome.total {
        ui::warning("stopped before the end; the same command goes on from here");
        return ExitCode::from(130);
    }
    if outcome.failed > 0 {
        if let Some(first) = study.failures().first() {
            ui::warning(&format!("{} cells failed, first: {first}", outcome.failed));
        }
        ui::note("the same command with --retry tries them again");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

/// The tables and the page.
fn write(folder: &Path, study: &Study) -> mcdd::Result<()> {
    let files = [
        ("table.md", bench::markdown(study)),
        ("table.csv", bench::csv(study)),
        ("table.tex", bench::latex(study)),
        ("index.html", bench::page(study)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        write_beside(&path, |w| w.write_all(text.as_bytes()).map_err(|e| mcdd::Error::io(e, &path)))?;
    }
    Ok(())
}

/// The means of each method, in columns.
fn summary(study: &Study) -> String {
    let width = study.methods.iter().map(|m| m.chars().count()).max().unwrap_or(0).max(6);
    let mut out = format!("{:width$}", "method");
    METRICS.iter().for_each(|m| out.push_str(&format!("  {:>9}", m.short)));
    let paper = |method: &str| METRICS.iter().find(|m| m.key == "auroc").and_then(|m| study.paper(method, None, m));
    let beside = study.methods.iter().any(|m| paper(m).is_some());
    out.push_str(if beside { "  paper AUROC  folds\n" } else { "  folds\n" });
    for method in &study.methods {
        out.push_str(&format!("{:width$}", ui::plain(method)));
        for metric in &METRICS {
            let mean = study.mean(method, metric).map_or("n/a".into(), |s| format!("{:.2}", s.mean));
            out.push_str(&format!("  {mean:>9}"));
        }
        if beside {
            out.push_str(&format!("  {:>11}", paper(method).map_or(String::new(), |p| format!("{p:.2}"))));
        }
        out.push_str(&format!("  {}\n", study.tested(method)));
    }
    out
}

/// Shows cells go by, with the means so far.
struct Progress {
    quiet: bool,
    shown: Mutex<Option<Shown>>,
    noticed: AtomicBool,
}

struct Shown {
    bar: Option<ProgressBar>,
    /// Sum and number of AUROCs.
    means: BTreeMap<(usize, String), (f64, usize)>,
    /// Those of this run.
    done: usize,
    total: usize,
    before: usize,
    start: Instant,
    said: Instant,
}

impl Shown {
    fn take(&mut self, cell: &Cell) {
        if let Some(m) = &cell.measured {
            let mean = self.means.entry(Method::rank(&cell.method)).or_default();
            *mean = (mean.0 + m.detection.auroc, mean.1 + 1);
        }
    }

    /// A few methods a line.
    fn means(&self, separator: &str) -> String {
        let all: Vec<String> = self
            .means
            .iter()
            .map(|((_, name), (sum, n))| format!("{} {:.2}", ui::plain(name), 100.0 * sum / *n as f64))
            .collect();
        let lines: Vec<String> = all.chunks(4).map(|c| c.join(", ")).collect();
        lines.join(separator)
    }
}

impl Progress {
    fn new(quiet: bool) -> Progress {
        Progress { quiet, shown: Mutex::new(None), noticed: AtomicBool::new(false) }
    }

    fn finish(&self) {
        if let Ok(Some(Shown { bar: Some(bar), .. })) = self.shown.lock().as_deref() {
            bar.finish_and_clear();
        }
    }
}

impl Spectator for Progress {
    fn notices(&self, notices: &[String]) {
        // They are much the same for every cell.
        if !self.quiet && !self.noticed.swap(true, Ordering::Relaxed) {
            notices.iter().for_each(|n| ui::note(n));
        }
    }

    fn begin(&self, done: usize, total: usize, results: &Results) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let bar = (!self.quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(total as u64).with_position(done as u64);
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cells, {eta} left\n{msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let now = Instant::now();
        let mut new = Shown { bar, means: BTreeMap::new(), done: 0, total, before: done, start: now, said: now };
        results.cells().for_each(|c| new.take(c));
        if !self.quiet && done > 0 && done < total {
            ui::note(&format!("going on: {done} of {total} cells are there"));
        }
        *shown = Some(new);
    }

    fn epoch(&self, method: &str, e: &Epoch, epochs: usize) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        let accuracy =
            e.held_out_accuracy.map_or(String::new(), |a| format!(", held-out accuracy {}%", ui::percent(a)));
        let method = ui::plain(method);
        let text =
            format!("{method}: epoch {} of {epochs}, held-out loss {:.4}{accuracy}", e.epoch + 1, e.held_out_loss);
        if let Some(bar) = &s.bar {
            bar.set_message(text);
        } else if e.epoch + 1 == epochs || s.said.elapsed().as_secs() >= 30 {
            let _ = writeln!(io::stderr(), "{text}");
            s.said = Instant::now();
        }
    }

    fn done(&self, cell: &Cell) {
        let Ok(mut shown) = self.shown.lock() else { return };
        let Some(s) = shown.as_mut().filter(|_| !self.quiet) else { return };
        s.take(cell);
        s.done += 1;
        if let Some(bar) = &s.bar {
            bar.set_message(format!("mean AUROC of cells so far: {}", s.means("\n  ")));
            bar.inc(1);
            return;
        }
        let all = s.before + s.done;
        let tenth = all * 10 / s.total != (all - 1) * 10 / s.total;
        if s.done == 1 || tenth || s.said.elapsed().as_secs() >= 30 {
            let left = s.start.elapsed().as_secs_f64() / s.done as f64 * s.total.saturating_sub(all) as f64;
            let means = s.means(", ");
            let _ = writeln!(
                io::stderr(),
                "{all} of {} cells, {left:.0} s left; mean AUROC of cells so far: {means}",
                s.total
            );
            s.said = Instant::now();
        }
    }

    fn stop(&self) -> bool {
        ui::stopped()
    }
}
