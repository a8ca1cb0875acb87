//! `mcdd bench`: the paper's protocol on a published data set or on a user's data.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use mcdd::data::Table;
use mcdd::data::profile::Profile;
use mcdd::data::sets::thousands;
use mcdd::error::count;
use mcdd::protocol::results::{About, Cell, Results};
use mcdd::protocol::{Experiment, Grid, LeaveOneOut, Method, Outcome};
use mcdd::report::bench::{self, METRICS, Study};
use mcdd::train::optim::Schedule;
use serde::Deserialize;

use self::progress::Progress;
use crate::options::{self, Columns, Opened, Reading};
use crate::ui;

mod file;
mod images;
mod progress;

const EXAMPLES: &str = "\
Examples:
  mcdd bench flowers.csv --label species        is a species that it has never seen detected?
  mcdd bench gas --methods paper -o gas         beside the paper's numbers
  mcdd bench mnist --methods alad --test-folds 1 -o mnist
  mcdd bench study.toml
  mcdd bench images --id cifar10 --ood svhn,tinyimagenet --net resnet20 --epochs 30 -o cifar10
  mcdd bench images --id photos/ --ood paintings/ --net cnn

Each class in turn is left out of training and scored by the trained model; the other classes are split into folds, one of \
which is tested each time. No other data is needed, and nothing is selected on test rows. Every result is written at once: \
after Ctrl-C or a crash the same command resumes.

Methods: best, fast (the presets of mcdd train), a method (deep-mcdd, deep-mcdd:nu=0.1, protonet, ...: see mcdd methods) with \
the network and the training of the paper, or a method and a detector (softmax+mahalanobis, softmax+knn:k=10); \
deep-mcdd:select=best keeps the epoch with the lowest validation loss instead of the last. Groups of methods: default (the \
four of --methods), one-class (deep-svdd, nearest neighbors and an isolation forest on the inputs), paper (the eight that \
the paper compares), nu (deep-mcdd with nu from 0.001 to 1,000), all (every method and every valid pair of a method and a \
detector).

Of two classes one remains to train on. Then methods that are trained without classes are compared: one-class, or any of \
deep-svdd and alad, alone or with a detector that needs no labels.

A TOML file has the same options: data, and the long options' names without dashes. Options on the command line take \
precedence:
  data = \"gas\"            # or [\"a.csv\", \"b.csv\"]
  methods = [\"paper\", \"best\"]
  folds = 5
  output = \"gas\"

Classes of fewer than 5 rows are used only as the class left out. A class that would keep fewer than 5 training rows in some \
fold is trained on with all its rows and is not tested. Both are reported in every output.

In the folder: results.jsonl (every cell: settings, seed, seconds, version), table.md, table.csv, table.tex, index.html. \
SVG figures that mcdd figure writes to the folder are included in index.html when the same command runs again, except those \
that the page already has; it does not train again:
  mcdd bench flowers.csv --label species -o study
  mcdd figure latent flowers.csv --label species --ood tulip -o study/latent
  mcdd bench flowers.csv --label species -o study

Exit codes: 0 all cells are done, 2 error, 3 some cells failed (the tables list them), 130 stopped before the end.";

/// Benchmark methods with each class left out in turn: do they detect a class that they have never seen?
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Files with two classes or more, the name of a data set (see mcdd datasets), or a TOML file; the word images with
    /// --id and --net
    #[arg(value_name = "DATA", required = true)]
    data: Vec<String>,

    /// Methods, separated by commas [default: softmax+msp, softmax+mahalanobis, deep-mcdd and, for tables, best;
    /// one-class for two classes]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    methods: Option<Vec<String>>,

    /// Number of folds that the rows of the known classes are split into; each is tested once [default: 5]
    #[arg(long, value_name = "N")]
    folds: Option<usize>,

    /// Test only the first N folds [default: all]
    #[arg(long, value_name = "N")]
    test_folds: Option<usize>,

    /// Leave out only these classes [default: each in turn]; with --id the image sets or folders that are out-of-distribution
    #[arg(long, value_name = "CLASS", num_args = 1..)]
    ood: Option<Vec<String>>,

    /// Images to train on: a data set, or a folder of which a fifth is tested
    #[arg(long, value_name = "NAME|DIR", requires = "net", help_heading = "Images")]
    id: Option<String>,

    /// The network for images: cnn, resnet20, resnet34, densenet100, …
    #[arg(long, value_name = "NAME", requires = "id", help_heading = "Images")]
    net: Option<String>,

    /// Repeat with N seeds, each with other folds of a table; every fold has its own networks [default: 1]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,

    /// Use at most N rows, a random sample stratified by class, with at least ten rows of each class or all that it has
    /// (images: at most N of each set, evenly spaced); the paper's numbers are then not shown [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Epochs of every method [default: that of the method, 100; images: 30]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,

    /// Learning rate schedule of every method [default: that of the method, constant except for best and fast;
    /// images: divided by 10 at 50% and 75%]
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,

    /// Folder for the results [default: bench-NAME; for folders of images bench-images]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Number of cells in parallel, one thread each (images: threads of one network); does not change the results [default:
    /// all cores]
    #[arg(long, value_name = "N", value_parser = options::thread_count)]
    jobs: Option<usize>,

    /// Compute failed cells again
    #[arg(long)]
    retry: bool,

    /// Folder of the data sets [default: MCDD_DATA]
    #[arg(long = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Print only errors and the result
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
    /// From the learning rate to 0 along a cosine
    Cosine,
    /// The same in every step
    Constant,
}

impl Args {
    /// Applies the options that are for all methods.
    fn apply(&self, methods: &mut [Method]) -> mcdd::Result<()> {
        for Method { settings, .. } in methods {
            if let Some(epochs) = self.epochs {
                // A given number of epochs is not limited by a budget of steps.
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

    /// The description of the data: only a part of it, if `--limit` has taken effect.
    fn limited(&self, about: About, some: bool) -> About {
        match self.limit.filter(|_| some) {
            // Numbers of the whole set are no comparison.
            Some(n) => {
                About { set: None, coverage: format!("{}, limited to {}", about.coverage, thousands(n)), ..about }
            }
            None => about,
        }
    }

    /// The methods as they were typed.
    fn method_names(&self, classes: usize) -> Vec<String> {
        self.methods.clone().unwrap_or_else(|| vec![Method::default_group(classes).to_owned()])
    }

    fn table_grid<'a>(&self, table: &'a Table) -> mcdd::Result<Grid<LeaveOneOut<'a>>> {
        let mut methods = Method::list(&self.method_names(table.classes().len()))?;
        self.apply(&mut methods)?;
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
        let experiment = LeaveOneOut { table, classes, folds, tested: self.test_folds.unwrap_or(folds) };
        Ok(Grid { experiment, methods, seeds: self.seeds.unwrap_or(1), retry: self.retry })
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let args = args.with_file()?;
    match (&args.id, &args.net) {
        (Some(id), Some(net)) => images::run(&args, id, net),
        _ => tables(&args),
    }
}

fn tables(args: &Args) -> anyhow::Result<ExitCode> {
    let Opened { table, title, short, coverage } =
        options::open(&args.data, args.data_dir.clone(), &args.reading, &args.columns)?;
    let found = table.rows();
    let table = match args.limit {
        Some(limit) => table.sample(limit, 0)?,
        None => table,
    };
    let about = args.limited(About::new(&table, &title, coverage.as_ref())?, table.rows() < found);
    if !args.quiet {
        let profile = Profile::of(&table);
        profile.notices().iter().chain(&profile.warnings()).for_each(|n| ui::note(n));
    }
    execute(args, &about, args.table_grid(&table)?, &short)
}

/// Runs a grid, writes its tables and its page, and prints the means; `short` names the folder unless one is given.
fn execute<E: Experiment>(args: &Args, about: &About, grid: Grid<E>, short: &str) -> anyhow::Result<ExitCode> {
    grid.check()?;
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("bench-{short}")));
    let folds = grid.experiment.folds();
    let mut results = Results::open(&folder, about, folds)?;
    if !args.quiet {
        ui::note(&about.coverage);
        about.small_classes(folds).iter().for_each(|n| ui::note(n));
    }
    ui::catch_interrupts();
    let progress = Progress::new(args.quiet);
    let start = Instant::now();
    let outcome = grid.run(&mut results, &folder, options::threads(args.jobs), &progress);
    progress.finish();
    let outcome = outcome?;
    results.sort()?;
    let cells: Vec<Cell> = results.cells().cloned().collect();
    if cells.is_empty() {
        ui::warning("stopped before the first cell; nothing was written");
        return Ok(ExitCode::from(130));
    }
    let asked = Method::asked_for(&args.method_names(about.classes.len()));
    let study = Study::new(about, &cells).asked_for(&asked);
    bench::write(&folder, &study)?;
    ui::print(&summary(&study))?;
    if !args.quiet {
        study.sentences().iter().for_each(|(method, sentence)| ui::note(&format!("{method}: {sentence}")));
        let seconds = start.elapsed().as_secs_f64();
        ui::note(&format!(
            "{} of {} in {seconds:.0} s; wrote {}",
            outcome.done,
            count(outcome.total, "cell"),
            folder.join("index.html").display()
        ));
    }
    Ok(exit_code(&outcome, &study))
}

/// Warns about cells that are missing or failed; the exit code says the same.
fn exit_code(outcome: &Outcome, study: &Study) -> ExitCode {
    if outcome.done < outcome.total {
        ui::warning("stopped before the end; the same command resumes from here");
        return ExitCode::from(130);
    }
    if outcome.failed > 0 {
        if let Some(first) = study.failures().first() {
            ui::warning(&format!("{} failed, first: {first}", count(outcome.failed, "cell")));
        }
        ui::note("the same command with --retry computes them again");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
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
