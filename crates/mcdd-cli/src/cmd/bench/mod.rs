//! `mcdd bench`: the paper's protocol on the paper's data, or on a table of one's own.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use mcdd::data::Table;
use mcdd::files::write_beside;
use mcdd::protocol::Method;
use mcdd::protocol::grid::{Grid, Outcome, small_classes};
use mcdd::protocol::results::{About, Cell, Results};
use mcdd::report::bench::{self, METRICS, Study};
use mcdd::train::optim::Schedule;
use serde::Deserialize;

use self::progress::Progress;
use crate::options::{self, Columns, Opened, Reading};
use crate::ui;

mod images;
mod plan;
mod progress;

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

Classes of fewer than 5 rows are only ever shown as the class left out; a class that would keep fewer than 5 rows to learn
from in some fold stays in training with all of them and is not tested. Both are said in every output.

In the folder: results.jsonl (every cell: settings, seed, seconds, version), table.md, table.csv, table.tex, index.html.
Figures that mcdd figure draws into the folder as SVG are in index.html after the same command again, which trains nothing
twice:
  mcdd figure latent gas --ood 3 -o gas/latent.svg; mcdd bench gas --methods paper -o gas

Exit codes: 0 all cells are there, 2 error, 3 some cells failed (the tables list them), 130 stopped before the end.";

/// Test methods on a table, each class left out in turn: would they notice a class that they have never seen?
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Files with at least three classes, the name of a data set (see mcdd datasets), or a TOML file; the word images with
    /// --id and --net
    #[arg(value_name = "DATA", required = true)]
    data: Vec<String>,

    /// Methods, with commas [default: softmax+msp, softmax+mahalanobis, deep-mcdd and, for tables, best]
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

    /// Do all of it with N seeds, which deal the folds of tables anew; each fold has networks of its own [default: 1]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,

    /// Epochs of every method [default: each its own, 100; images: 30]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,

    /// How the learning rate of every method goes on [default: each its own, constant but for best and fast;
    /// images: divided by 10 at 50% and 75%]
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,

    /// Where results go [default: bench-NAME; of folders of images bench-images]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Cells at a time, one thread each (images: threads of the one network); they do not change the result [default: all
    /// cores]
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

impl Args {
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
        return images::run(&args, id, net);
    }
    let Opened { table, title, short, coverage } =
        options::open(&args.data, args.data_dir.clone(), &args.reading, &args.columns)?;
    let about = About::new(&table, &title, coverage.as_ref())?;
    let grid = args.grid(&table)?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("bench-{short}")));
    let mut results = Results::open(&folder, &about, grid.folds)?;
    if !args.quiet {
        ui::note(&about.coverage);
        small_classes(&about.classes, grid.folds).iter().for_each(|n| ui::note(n));
    }
    ui::catch_interrupts();
    let progress = Progress::new(args.quiet);
    let start = Instant::now();
    let outcome = grid.run(&table, &mut results, &folder, options::threads(args.jobs), &progress);
    progress.finish();
    conclude(&args, &about, &mut results, &folder, outcome?, start)
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
        ("index.html", bench::page(study, &drawn(folder)?)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        write_beside(&path, |w| w.write_all(text.as_bytes()).map_err(|e| mcdd::Error::io(e, &path)))?;
    }
    Ok(())
}

/// What `mcdd figure` has drawn into the folder, in the order of names; what is far larger is not from it.
fn drawn(folder: &Path) -> mcdd::Result<Vec<(String, Vec<u8>)>> {
    const LARGEST: u64 = 16 << 20;
    let io = |e| mcdd::Error::io(e, folder);
    let figure = |path: &PathBuf| {
        let there = path.metadata().is_ok_and(|m| m.is_file() && m.len() <= LARGEST);
        there && path.extension() == Some("svg".as_ref())
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        paths.extend(Some(entry.map_err(io)?.path()).filter(figure));
    }
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((name, std::fs::read(&path).map_err(|e| mcdd::Error::io(e, &path))?))
    };
    paths.into_iter().map(read).collect()
}

/// The means of each method, in columns.
fn summary(study: &Study) -> String {
    let width = study.methods.iter().map(|m| m.chars().count()).max().unwrap_or(0).max(6);
    let mut out = format!("{:width$}", "method");
    METRICS.iter().for_each(|m| out.push_str(&format!("  {:>9}", m.short)));
    let paper = |method: &str| METRICS.iter().find(|m| m.key == "auroc").and_then(|m| study.paper(method, None, m));
    let beside = study.methods.iter().any(|m| paper(m).is_some());
    out.push_str(if beside { "  paper AUROC" } else { "" });
    out.push_str(&format!("  {}\n", study.runs()));
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
