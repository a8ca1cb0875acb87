//! `mcdd datasets`: lists the published data sets, shows which are complete, and fetches them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::data::sets::{self, Set, thousands};
use serde_json::{Value, json};

use crate::fetch::{self, Origin, State};
use crate::{options, ui};

const EXAMPLES: &str = "\
Examples:
  mcdd datasets --data ~/data                       list all, and which of them are in ~/data
  mcdd datasets get shuttle mnist --data ~/data     fetch two, to ~/data/shuttle and ~/data/mnist
  mcdd datasets get gas --from https://example.org/uci    from a mirror
  mcdd datasets get gas --from ~/Downloads          from files that were downloaded before

MCDD_DATA is used if --data is not given. Incomplete data sets can be used; the number of missing rows is reported.";

/// List the published data sets and which of them are present; fetch them
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The folder of all data sets [default: $MCDD_DATA]
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    Get(GetArgs),
}

/// Fetch data sets from their publishers; interrupted downloads are resumed, files are verified and unpacked
#[derive(clap::Args)]
struct GetArgs {
    /// Names of data sets
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// Fetch from a mirror with the same file names: an address or a folder
    #[arg(long, value_name = "URL|DIR")]
    from: Option<String>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = options::data_folder(args.data);
    if let Some(Command::Get(get)) = args.command {
        return fetch_all(&get, data.as_deref());
    }
    if let Some(dir) = data.as_deref().filter(|dir| !dir.is_dir()) {
        return Err(mcdd::Error::setting("there is no such folder").at_file(dir).hint("give --data DIR").into());
    }
    let dir = data.as_deref().unwrap_or(Path::new(options::NO_FOLDER));
    match args.json {
        true => ui::print_json(&sets::ALL.iter().map(|set| entry(set, dir)).collect::<Value>())?,
        false => ui::print(&table(data.as_deref(), dir)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn fetch_all(args: &GetArgs, data: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut chosen: Vec<&'static Set> = Vec::new();
    for name in &args.names {
        chosen.push(sets::find(name).ok_or_else(|| {
            let names: Vec<&str> = sets::ALL.iter().map(|set| set.name).collect();
            mcdd::Error::setting(format!("there is no data set {name:?}"))
                .hint(format!("the sets are {}; mcdd datasets describes them", names.join(", ")))
        })?);
    }
    let Some(dir) = data else {
        return Err(options::no_data_folder().into());
    };
    let origin = args.from.as_deref().map_or(Origin::Publisher, Origin::parse);
    for set in chosen {
        fetch::get(set, dir, &origin)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The state of a set as a word and as a line, and where it is.
fn found(set: &'static Set, dir: &Path) -> (&'static str, String, Option<mcdd::data::sets::Found>) {
    match fetch::state(set, dir) {
        State::Missing => ("missing", format!("{}: not found", set.title), None),
        State::Complete(found, line) => ("found", line, Some(found)),
        State::Incomplete(found, line) => ("incomplete", line, Some(found)),
        State::Wrong(found, line) => ("wrong", line, Some(found)),
    }
}

fn entry(set: &'static Set, dir: &Path) -> Value {
    let (state, line, found) = found(set, dir);
    let downloads = |d: &sets::Download| json!({ "url": d.url, "file": d.file, "bytes": d.bytes });
    json!({
        "name": set.name,
        "title": set.title,
        "what": set.what,
        "rows": set.rows,
        "features": set.features,
        "classes": set.classes,
        "license": set.license,
        "page": set.page,
        "downloads": set.downloads.iter().map(downloads).collect::<Value>(),
        "state": state,
        "coverage": line,
        "folder": found.as_ref().map(|f| f.folder.to_string_lossy()),
        "missing": found.map_or_else(Vec::new, |f| f.missing),
    })
}

fn table(data: Option<&Path>, dir: &Path) -> anyhow::Result<String> {
    let mut out = String::new();
    match data {
        Some(dir) => writeln!(out, "Data sets in {}", ui::plain(&dir.display().to_string()))?,
        None => writeln!(out, "Data sets (give their folder as --data DIR or MCDD_DATA)")?,
    }
    for set in sets::ALL {
        let (state, line, found) = found(set, dir);
        let place = found.map_or(String::new(), |f| format!(" ({})", f.folder.display()));
        writeln!(out, "\n  {:<15}{state:<11} {line}{place}", set.name)?;
        writeln!(out, "  {:<15}{}", "", set.what)?;
        let classes = if set.classes > 0 { format!("{} classes", set.classes) } else { "no labels".into() };
        let rows = thousands(set.rows);
        let bytes: Option<u64> = set.downloads.iter().map(|d| d.bytes).sum();
        let fetch = bytes.map_or(String::new(), |b| format!("; {:.1} MB to fetch", b as f64 / 1e6));
        writeln!(out, "  {:<15}{rows} rows x {} features, {classes}{fetch}", "", set.features)?;
        writeln!(out, "  {:<15}license: {}", "", set.license)?;
        writeln!(out, "  {:<15}{}", "", set.page)?;
    }
    writeln!(out, "\nmcdd datasets get NAME fetches one.")?;
    Ok(out)
}
