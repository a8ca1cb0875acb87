//! `mcdd check`: everything that is wrong with a table, and the command that trains on it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::data::profile::{Action, Finding, Problem};
use mcdd::data::{Check, Setting};
use mcdd::error::count;

use crate::options::{Columns, Reading};
use crate::report::quoted;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  mcdd check flowers.csv                       also suggests the label column, if none is given
  mcdd check people.csv --label churn
  mcdd check people.csv --label churn --json

It lists columns with one name, rows and cells that cannot be read, missing labels, small classes, identifiers, dates and other columns that are not \
read as they stand, columns that give the label away, copies and missing cells, says what is done about each, and prints the command that trains on the table. Nothing is trained or written.

Exit codes: 0 training works, with the printed command; 2 it does not, or a file is not there.";

/// Check a table before training: list all problems, and print the command that trains on it
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Files, as for mcdd train; several are concatenated
    #[arg(required = true, value_name = "DATA")]
    data: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    columns: Columns,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let check = Check::files(&args.data, &args.columns.of(&args.reading))?;
    let command = command(&args, &check.settings);
    if args.json {
        let mut value = serde_json::to_value(&check)?;
        if let Some(fields) = value.as_object_mut() {
            for finding in fields.get_mut("findings").and_then(|f| f.as_array_mut()).into_iter().flatten() {
                if let Some(remedy) = finding.get_mut("remedy") {
                    *remedy = remedy.as_str().map(ui::with_options).into();
                }
            }
            fields.insert("command".into(), check.ready.then(|| command.clone()).into());
        }
        ui::print_json(&value)?;
    } else {
        ui::print(&text(&args, &check, &command)?)?;
    }
    Ok(if check.ready { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// The longest name of a column, in characters.
const NAMES: usize = 24;
/// How many columns of a finding are named.
const MOST_NAMES: usize = 4;

fn text(args: &Args, check: &Check, command: &str) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let first = args.data.first().map_or(String::new(), |p| p.display().to_string());
    let more = if args.data.len() > 1 { format!(" and {} more", args.data.len() - 1) } else { String::new() };
    let labeled: usize = check.classes.iter().map(|(_, rows)| rows).sum();
    let rows = match labeled > check.rows {
        true => format!("{} of {}", check.rows, count(labeled, "labeled row")),
        false => count(check.rows, "row"),
    };
    let columns = count(check.columns, "feature column");
    writeln!(out, "{}{more}: {rows}, {columns}", ui::plain(&first))?;
    if let Some(label) = check.label.as_ref().filter(|_| !check.classes.is_empty()) {
        let shown = |(class, rows): &(String, usize)| format!("{} ({rows})", ui::short(class, NAMES));
        let mut classes: Vec<String> = check.classes.iter().take(12).map(shown).collect();
        if check.classes.len() > classes.len() {
            classes.push(format!("and {} more", check.classes.len() - classes.len()));
        }
        writeln!(out, "label {}: {}", ui::short(label, NAMES), classes.join(", "))?;
    }
    let option = match check.ready {
        true => "Training needs an option, which the command below has:",
        false => "Training needs an option besides:",
    };
    for (action, title) in [
        (Action::Change, "Training is not possible:"),
        (Action::Setting, option),
        (Action::Automatic, "Done by itself:"),
        (Action::Look, "Worth a look:"),
    ] {
        let found: Vec<&Finding> = check.findings.iter().filter(|f| f.action == action).collect();
        if !found.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        for finding in found {
            let names = match &finding.columns[..] {
                [] if finding.problem == Problem::NoLabel => "label".to_owned(),
                [] if matches!(finding.problem, Problem::Reading | Problem::File) => "file".to_owned(),
                [] => "rows".to_owned(),
                all => {
                    let some: Vec<String> = all.iter().take(MOST_NAMES).map(|name| ui::short(name, NAMES)).collect();
                    let more = all.len() - some.len();
                    some.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
                }
            };
            writeln!(out, "  {names}: {}", ui::plain(&ui::with_options(&finding.what)))?;
            if !finding.remedy.is_empty() {
                writeln!(out, "      {}", ui::plain(&ui::with_options(&finding.remedy)))?;
            }
        }
    }
    if check.findings.is_empty() {
        writeln!(out, "\nNo problem was found.")?;
    }
    if check.ready {
        writeln!(out, "\nNext:\n  {command}")?;
    }
    Ok(out)
}

/// The command that trains on the table: the given options, and those that are needed besides.
fn command(args: &Args, settings: &[Setting]) -> String {
    let mut words = vec!["mcdd".to_owned(), "train".to_owned()];
    words.extend(args.data.iter().map(|p| quoted(&p.to_string_lossy())));
    let mut option = |name: &str, value: Option<&str>| {
        let name = name.replace('_', "-");
        words.push(match value {
            None => format!("--{name}"),
            // A value that begins with a dash would be taken for an option.
            Some(value) if value.starts_with('-') => format!("--{name}={}", quoted(value)),
            Some(value) => format!("--{name} {}", quoted(value)),
        });
    };
    if let Some(label) = &args.reading.label {
        option("label", Some(label));
    }
    if let Some(header) = args.reading.header {
        option("header", Some(if header { "yes" } else { "no" }));
    }
    if let Some(separator) = args.reading.separator {
        let name = match separator {
            b'\t' => "tab".to_owned(),
            b' ' => "space".to_owned(),
            other => char::from(other).to_string(),
        };
        option("separator", Some(&name));
    }
    let columns = &args.columns;
    for (name, list) in [("categorical", &columns.categorical), ("drop", &columns.drop), ("keep", &columns.keep)] {
        list.iter().for_each(|value| option(name, Some(value)));
    }
    if columns.skip_unlabeled {
        option("skip_unlabeled", None);
    }
    // A larger number that is needed replaces the given one.
    if let Some(least) = columns.min_class.filter(|_| !settings.iter().any(|s| s.name == "min_class")) {
        option("min_class", Some(&least.to_string()));
    }
    settings.iter().for_each(|setting| option(setting.name, setting.value.as_deref()));
    let stem = args.data.first().and_then(|p| Path::new(p.file_name()?).to_str()?.split('.').next().map(str::to_owned));
    let stem = stem.filter(|s| !s.is_empty() && s != "-").unwrap_or_else(|| "model".into());
    words.push(format!("-o {}", quoted(&format!("{stem}.mcdd"))));
    words.join(" ")
}
