//! The `mcdd` command. Data goes to stdout, talk to stderr.

mod cmd;
mod fetch;
mod options;
mod output;
mod report;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  mcdd demo                                     see it work on data that it carries
  mcdd train flowers.csv --label species -o flowers.mcdd
  mcdd predict flowers.mcdd new.csv             a class or \"unknown\" for each row
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv --report flowers.html
  mcdd explain flowers.mcdd new.csv --unknown   which columns make a row strange
  mcdd figure samples flowers.mcdd test.csv     the rows that it is most and least sure of
  mcdd bench flowers.csv --label species        would it notice a species that it has never seen?
  mcdd methods                                  every method and detector, and what each needs
  mcdd datasets --data DIR                      the paper's data sets, and what of them is in DIR
  mcdd score --detector knn --train-features f.npy --features g.npy    features from your own network

Exit codes: 0 done, 1 a row was unknown (predict --fail-on-unknown), 2 error, 3 a part failed and 130 stopped (bench).
Colors are off where NO_COLOR is set or stderr is no terminal.";

/// Train classifiers that put a class on what they know and say "unknown" to what they don't
#[derive(Parser)]
#[command(name = "mcdd", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(Box<cmd::train::Args>),
    Predict(cmd::predict::Args),
    Evaluate(cmd::evaluate::Args),
    Explain(cmd::explain::Args),
    Bench(cmd::bench::Args),
    Metrics(cmd::metrics::Args),
    Inspect(cmd::inspect::Args),
    Figure(Box<cmd::figure::Args>),
    Methods(cmd::methods::Args),
    Score(cmd::score::ScoreArgs),
    FitDetector(cmd::score::FitArgs),
    Datasets(cmd::datasets::Args),
    Demo(cmd::demo::Args),
    Completions(cmd::completions::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Train(args) => cmd::train::run(*args),
        Command::Predict(args) => cmd::predict::run(args),
        Command::Evaluate(args) => cmd::evaluate::run(args),
        Command::Explain(args) => cmd::explain::run(args),
        Command::Bench(args) => cmd::bench::run(args),
        Command::Metrics(args) => cmd::metrics::run(args),
        Command::Inspect(args) => cmd::inspect::run(args),
        Command::Figure(args) => cmd::figure::run(*args),
        Command::Methods(args) => cmd::methods::run(args),
        Command::Score(args) => cmd::score::run_score(args),
        Command::FitDetector(args) => cmd::score::run_fit(args),
        Command::Datasets(args) => cmd::datasets::run(args),
        Command::Demo(args) => cmd::demo::run(args),
        Command::Completions(args) => cmd::completions::run::<Cli>(args),
    };
    match result {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(e) if ui::is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            ui::error(&e);
            ExitCode::from(2)
        }
    }
}
