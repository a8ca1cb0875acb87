//! `mcdd reproduce`: the paper's tables and figures, from the data sets that are there. The library has the plan; each step
//! is a command of `mcdd bench` or `mcdd figure`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, ValueEnum};
use mcdd::protocol::reproduction::{Gap, Part, Plan, Step, StepKind};
use mcdd::report::reproduction;

use super::{bench, figure};
use crate::{options, ui};

const EXAMPLES: &str = "\
Examples:
  mcdd reproduce --quick --data DIR             every table and figure in minutes: few rows, few epochs, one fold
  mcdd reproduce tables figures --data DIR      Table 2, the study of nu, and the figures: hours
  mcdd reproduce images --data DIR              Tables 3 and 4 with a small network: hours

The data sets that are in the folder are used (mcdd datasets lists them). After Ctrl-C or a crash the same command resumes. \
Latent spaces that are drawn are kept; without their files they are drawn again.

In the output folder: index.html (the paper's numbers, ours and the differences, the figures, and what is missing and why), a \
folder of mcdd bench for each study, and the figures as SVG and PNG.

Exit codes: 0 done with the data that are there, 2 error, 3 a step failed (the page says which), 130 stopped before the end.";

/// Make the paper's tables and figures from the data sets that are there, as one page
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to make [default: everything]
    #[arg(value_name = "PART", value_enum)]
    parts: Vec<PartName>,

    /// A run of minutes: few rows, few epochs, one fold. Its numbers are not comparable with the paper's
    #[arg(long)]
    quick: bool,

    /// Folder for the results [default: reproduction; with --quick reproduction-quick]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Folder of the data sets [default: MCDD_DATA]
    #[arg(long = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Number of threads; does not change the results [default: all cores]
    #[arg(long, value_name = "N", value_parser = options::thread_count)]
    jobs: Option<usize>,

    /// Compute failed cells again
    #[arg(long)]
    retry: bool,

    /// Print only errors and the results
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PartName {
    /// Table 2 and the study of nu
    Tables,
    /// Bars, metrics against nu (from the results of the tables), and latent spaces
    Figures,
    /// Tables 3 and 4
    Images,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Part {
        match name {
            PartName::Tables => Part::Tables,
            PartName::Figures => Part::Figures,
            PartName::Images => Part::Images,
        }
    }
}

/// The exit code of a command that was stopped.
fn stopped() -> ExitCode {
    ExitCode::from(130)
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = options::data_folder(args.data_dir.clone()).ok_or_else(options::no_data_folder)?;
    let parts: Vec<Part> = match args.parts.is_empty() {
        true => Part::ALL.into(),
        false => args.parts.iter().map(|p| (*p).into()).collect(),
    };
    let plan = Plan::new(&parts, args.quick, &data);
    let name = if args.quick { "reproduction-quick" } else { "reproduction" };
    let output = args.output.clone().unwrap_or_else(|| name.into());
    if plan.studies().next().is_none() && !output.is_dir() {
        let names: Vec<&str> = mcdd::data::sets::ALL.iter().map(|s| s.name).collect();
        let error = mcdd::Error::data("none of the paper's data sets is there").at_file(&data);
        return Err(error.hint(format!("mcdd datasets get NAME downloads them: {}", names.join(", "))).into());
    }
    let _claim = claim(&output, args.quick)?;
    ui::catch_interrupts();
    let mut gaps = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for (i, step) in plan.steps.iter().enumerate() {
        if ui::stopped() {
            code = stopped();
            break;
        }
        let Some(command) = command(&args, step, &output, &data, &mut gaps) else { continue };
        if !args.quiet {
            let words = step.command.join(" ");
            ui::note(&format!("step {} of {}, {}: mcdd {words}", i + 1, plan.steps.len(), step.title));
        }
        match execute(&step.command[0], command) {
            Ok(done) if done == ExitCode::SUCCESS => {}
            Ok(done) if done == stopped() => {
                code = done;
                break;
            }
            Ok(failed) => code = failed,
            Err(e) => {
                ui::warning(&format!("{}: {e:#}", step.title));
                gaps.push(Gap { what: step.title.clone(), why: format!("{e:#}") });
                code = ExitCode::from(3);
            }
        }
    }
    // The page has everything that is in the folder, also from runs with other parts.
    let plan = Plan::new(&Part::ALL, args.quick, &data);
    reproduction::write(&output, &plan, &gaps)?;
    plan.gaps.iter().chain(&gaps).filter(|_| !args.quiet).for_each(|g| ui::note(&format!("{}: {}", g.what, g.why)));
    ui::note(&format!("wrote {}", output.join(reproduction::PAGE).display()));
    Ok(code)
}

/// Creates the folder, whose results are either all of a quick run or all of a full one. It is locked while the returned file
/// exists.
fn claim(output: &Path, quick: bool) -> mcdd::Result<File> {
    fs::create_dir_all(output).map_err(|e| mcdd::Error::io(e, output))?;
    let (mine, other) = if quick { ("quick", "full") } else { ("full", "quick") };
    let mark = |name: &str| output.join(format!(".{name}-run"));
    if mark(other).exists() {
        return Err(mcdd::Error::setting(format!("the folder has the results of a {other} run"))
            .at_file(output)
            .hint("give another folder as -o"));
    }
    let lock = File::create(mark(mine)).map_err(|e| mcdd::Error::io(e, output))?;
    if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
        return Err(mcdd::Error::setting("is in use by another run")
            .at_file(output)
            .hint("wait for it, or give another folder as -o"));
    }
    mcdd::files::remove_unfinished(output)?;
    Ok(lock)
}

/// The words of a step with its output and the options of this run; none if there is nothing to do.
fn command(args: &Args, step: &Step, output: &Path, data: &Path, gaps: &mut Vec<Gap>) -> Option<Vec<OsString>> {
    let mut words: Vec<OsString> = step.command.iter().map(Into::into).collect();
    let to = output.join(&step.name);
    match &step.kind {
        StepKind::Drawing if [".svg", ".png"].iter().all(|end| output.join(format!("{}{end}", step.name)).exists()) => {
            return None;
        }
        StepKind::OfResults(names) => {
            let folders = names.iter().map(|n| output.join(n)).filter(|f| f.join("results.jsonl").exists());
            let folders: Vec<OsString> = folders.map(Into::into).collect();
            if folders.is_empty() {
                let why = format!("it needs the results of {}: mcdd reproduce tables", names.join(", "));
                gaps.push(Gap { what: step.title.clone(), why });
                return None;
            }
            words.extend(folders);
        }
        StepKind::Study | StepKind::Drawing => words.extend(["--data".into(), data.into()]),
    }
    let threads = if step.kind == StepKind::Study { "--jobs" } else { "--threads" };
    if let Some(jobs) = args.jobs.filter(|_| !matches!(step.kind, StepKind::OfResults(_))) {
        words.extend([threads.into(), jobs.to_string().into()]);
    }
    words.extend(["-o".into(), to.into()]);
    words.extend(args.quiet.then(|| "--quiet".into()));
    words.extend((args.retry && step.kind == StepKind::Study).then(|| "--retry".into()));
    Some(words)
}

/// Runs the words of a command, the first of which is its name.
fn execute(name: &str, words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    match name {
        "bench" => bench::run(parsed::<bench::Args>(words)?),
        _ => figure::run(parsed::<figure::Args>(words)?),
    }
}

fn parsed<T: clap::Args>(words: Vec<OsString>) -> anyhow::Result<T> {
    #[derive(clap::Parser)]
    struct Alone<T: clap::Args> {
        #[command(flatten)]
        args: T,
    }
    let matches = Alone::<T>::command().try_get_matches_from(words)?;
    Ok(Alone::<T>::from_arg_matches(&matches)?.args)
}
