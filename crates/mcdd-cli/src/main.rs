//! The `mcdd` command. Data goes to stdout, messages to stderr.
//!
//! Modules depend on each other in one direction: `main`, `cmd`, then `report`, `output`, `places`, `options`, `fetch`
//! and `ui`.

mod cmd;
mod fetch;
mod options;
mod output;
mod places;
mod report;
mod ui;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use mcdd::compute::pool::Pool;

const EXAMPLES: &str = "\
Examples:
  mcdd demo                                     a demonstration on built-in data
  mcdd check flowers.csv                        what is wrong with a table, and how to train on it
  mcdd train flowers.csv --label species -o flowers.mcdd
  mcdd predict flowers.mcdd new.csv             a class or \"unknown\" for each row
  mcdd evaluate flowers.mcdd test.csv --ood weeds.csv --report flowers.html
  mcdd explain flowers.mcdd new.csv --unknown   the columns that make a row unknown
  mcdd monitor flowers.mcdd new.csv --state s.json    an alarm when the rows are no longer as they were
  mcdd serve flowers.mcdd                       predictions over HTTP, a page, metrics
  mcdd refit flowers.mcdd flowers.csv --label species --detector mahalanobis -o m2.mcdd
  mcdd export flowers.mcdd -o flowers.onnx      the model as ONNX, for other runtimes
  mcdd layers net.onnx                          the layers of a network, for mcdd train --backbone
  mcdd figure samples flowers.mcdd test.csv     the rows with the highest and the lowest confidence
  mcdd bench flowers.csv --label species        how well unseen species are detected
  mcdd reproduce tables --quick --data DIR      the paper's tables from the data in DIR
  mcdd methods                                  all methods and detectors, and their requirements
  mcdd datasets --data DIR                      which data sets of the paper are in DIR
  mcdd score --detector knn --train-features f.npy --features g.npy    features of any network

Exit codes: 0 success; 1 a row is unknown (predict --fail-on-unknown) or \
the alarm is raised (monitor --fail-on-alarm); 2 error; 3 a part failed (bench, reproduce); \
130 interrupted (train, bench, reproduce). \
Colors are off if NO_COLOR is set or stderr is not a terminal. MCDD_SIMD=portable, avx2 or avx512 chooses \
the processor's instructions; results are the same.";

/// Train classifiers that assign known classes and reject everything else as "unknown"
#[derive(Parser)]
#[command(name = "mcdd", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(cmd::check::Args),
    Train(Box<cmd::train::Args>),
    Predict(cmd::predict::Args),
    Evaluate(cmd::evaluate::Args),
    Explain(cmd::explain::Args),
    Monitor(cmd::monitor::Args),
    Serve(cmd::serve::Args),
    Refit(cmd::refit::Args),
    Export(cmd::export::Args),
    Layers(cmd::layers::Args),
    Bench(cmd::bench::Args),
    Reproduce(cmd::reproduce::Args),
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

/// The subcommand that was called.
fn called<'a>(command: &'a clap::Command, matches: &ArgMatches) -> &'a clap::Command {
    match matches.subcommand() {
        Some((name, inner)) => command.find_subcommand(name).map_or(command, |c| called(c, inner)),
        None => command,
    }
}

/// What was given to the innermost subcommand.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

/// The definition of the command. A number below 0 is a value, so that the error about it is that of the setting.
fn definition() -> clap::Command {
    fn numbers(command: clap::Command) -> clap::Command {
        let value = |a: clap::Arg| {
            let option = !a.is_positional() && a.get_action().takes_values();
            if option { a.allow_negative_numbers(true) } else { a }
        };
        command.mut_args(value).mut_subcommands(numbers)
    }
    numbers(Cli::command())
}

fn main() -> ExitCode {
    let command = definition();
    let matches = match command.clone().try_get_matches() {
        Ok(matches) => matches,
        Err(answer) => return print_answer(&answer),
    };
    ui::name_settings_by(called(&command, &matches));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    // The pool of the process has as many threads as were asked for.
    Pool::shared_with(options::threads(innermost(&matches).try_get_one("threads").ok().flatten().copied()));
    if let Err(reason) = mcdd::compute::Level::requested() {
        ui::error(&mcdd::Error::setting(reason).into());
        return ExitCode::from(2);
    }
    let result = match cli.command {
        Command::Check(args) => cmd::check::run(args),
        Command::Train(args) => cmd::train::run(*args),
        Command::Predict(args) => cmd::predict::run(args),
        Command::Evaluate(args) => cmd::evaluate::run(args),
        Command::Explain(args) => cmd::explain::run(args),
        Command::Monitor(args) => cmd::monitor::run(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Refit(args) => cmd::refit::run(args),
        Command::Export(args) => cmd::export::run(args),
        Command::Layers(args) => cmd::layers::run(args),
        Command::Bench(args) => cmd::bench::run(args),
        Command::Reproduce(args) => cmd::reproduce::run(args),
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
        // The reader of the output has closed it.
        Err(e) if ui::is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            ui::error(&e);
            ExitCode::from(2)
        }
    }
}

/// Prints the help, the version, or what is wrong with the arguments.
fn print_answer(answer: &clap::Error) -> ExitCode {
    use std::io::Write;
    let code = ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(2));
    if answer.use_stderr() && answer.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // It repeats arguments, which may be names of files: without colors, so that no escape sequence is in it.
        let text = answer.render().to_string();
        let lines: String = text.lines().map(|line| ui::short(line, ui::LONGEST) + "\n").collect();
        let _ = std::io::stderr().write_all(lines.as_bytes());
        return code;
    }
    let printed = answer.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(e) if !answer.use_stderr() && e.kind() != std::io::ErrorKind::BrokenPipe => {
            ui::error(&ui::on_stdout(e.into()));
            ExitCode::from(2)
        }
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called_by(args: &[&str]) -> clap::Command {
        let command = definition();
        let matches = command.clone().try_get_matches_from(args).unwrap();
        called(&command, &matches).clone()
    }

    #[test]
    fn the_definition_of_the_commands_is_valid() {
        definition().debug_assert();
    }

    #[test]
    fn options_stand_under_their_headings() {
        let reading = ["label", "header", "separator", "sheet", "skip_bad"];
        for name in ["score", "fit-detector", "predict"] {
            let command = definition().find_subcommand(name).unwrap().clone();
            for arg in command.get_arguments() {
                let expected = match arg.get_id().as_str() {
                    id if reading.contains(&id) => Some("Reading"),
                    "threads" | "quiet" => Some("Running"),
                    _ => None,
                };
                assert_eq!(arg.get_help_heading(), expected, "{name} --{}", arg.get_id());
            }
        }
    }

    #[test]
    fn settings_are_options_of_the_subcommand_that_was_called() {
        let train = ui::Options::of(&called_by(&["mcdd", "train", "a.csv"]));
        let settings = "preset method detector nu sigma hidden latent batch_norm clip bins members epochs steps batch lr \
            optimizer momentum weight_decay schedule step_at step_factor select patience \
            calibration_fraction per_class tpr seed net augment warmup init freeze image_size channels label header \
            separator sheet skip_bad categorical drop group keep skip_unlabeled min_class checkpoint resume";
        for setting in settings.split(' ') {
            assert_eq!(train.rename(setting), Some(format!("--{}", setting.replace('_', "-"))));
        }
        assert_eq!(train.rename("data").as_deref(), Some("data"));
        let samples = ui::Options::of(&called_by(&["mcdd", "figure", "samples", "m.mcdd", "a.csv"]));
        assert_eq!((samples.rename("image").as_deref(), samples.rename("lr")), (Some("--image"), None));
    }
}
