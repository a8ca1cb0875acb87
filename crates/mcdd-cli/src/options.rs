//! Options that several commands share.

use std::path::{Path, PathBuf};

use clap::Args;
use mcdd::data::sets::{self, Coverage};
use mcdd::data::{Label, ReadOptions, Table};

/// How files are read.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// Column of the classes: a name, a number from 1, first, last, none, or a file of labels (NPY, IDX, text)
    /// [default: a column called label, class, target or y]
    #[arg(long, value_name = "NAME|NUMBER")]
    pub label: Option<String>,

    /// Whether a text file's first row holds the column names [default: found]
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no)]
    pub header: Option<bool>,

    /// Separator of a text file: one character, tab or space [default: found]
    #[arg(long, value_name = "CHAR", value_parser = separator)]
    pub separator: Option<u8>,

    /// Leave out images that cannot be read, and count them
    #[arg(long)]
    pub skip_bad: bool,
}

/// What is done with single columns of a table that something is trained on.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Columns {
    /// A column of categories although its cells are numbers; may be repeated
    #[arg(long, value_name = "COLUMN")]
    pub categorical: Vec<String>,

    /// A column to leave out; may be repeated
    #[arg(long, value_name = "COLUMN")]
    pub drop: Vec<String>,
}

impl Columns {
    /// How files are read with these columns.
    pub fn of(&self, reading: &Reading) -> ReadOptions {
        ReadOptions { categorical: self.categorical.clone(), drop: self.drop.clone(), ..reading.options() }
    }
}

/// How much of the machine a command takes, and how much it says.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Running")]
pub struct Running {
    /// Threads; they do not change the result [default: all cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

impl Running {
    /// The number of threads.
    pub fn threads(&self) -> usize {
        threads(self.threads)
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("say yes or no".into()),
    }
}

/// A separator, by name or itself.
pub fn separator(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        ("space", _) => Ok(b' '),
        (_, &[b]) if b.is_ascii() && !b.is_ascii_alphanumeric() && b != b'"' => Ok(b),
        _ => Err("give one character that is no letter, digit or quote, or tab, or space".into()),
    }
}

impl Reading {
    /// As the library takes it.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            label: self.label.as_deref().map_or(Label::Auto, |l| {
                let Ok(label) = l.parse();
                label
            }),
            header: self.header,
            separator: self.separator,
            skip_bad: self.skip_bad,
            ..ReadOptions::default()
        }
    }
}

/// The folder of the data sets: what is given, or `MCDD_DATA`.
pub fn data_folder(given: Option<PathBuf>) -> Option<PathBuf> {
    given.or_else(|| std::env::var_os("MCDD_DATA").filter(|v| !v.is_empty()).map(PathBuf::from))
}

/// In place of a folder that is not given: nothing is in it, and what stands elsewhere on the system is still found.
pub const NO_FOLDER: &str = "\0";

/// What to say where a folder must be given.
pub fn no_data_folder() -> mcdd::Error {
    mcdd::Error::setting("no folder for the data sets is given").hint("give --data DIR, or set MCDD_DATA to the folder")
}

/// A table, and what is known of it.
pub struct Opened {
    pub table: Table,
    /// Of a data set, or of the first file.
    pub title: String,
    /// For the names of files.
    pub short: String,
    /// Of a data set.
    pub coverage: Option<Coverage>,
}

/// Reads files, or the data set of this name; `folder` is that of the data sets.
pub fn open(data: &[String], folder: Option<PathBuf>, reading: &Reading, columns: &Columns) -> mcdd::Result<Opened> {
    if let [name] = data
        && let Some(set) = sets::find(name)
    {
        let told = reading.label.is_some() || reading.header.is_some() || reading.separator.is_some();
        if told || !columns.categorical.is_empty() || !columns.drop.is_empty() {
            return Err(mcdd::Error::setting(format!("{} is a data set whose files and labels are known", set.name))
                .hint("leave the options of reading out (--label, --drop, ...); a file of this name is ./NAME"));
        }
        let loaded = match data_folder(folder) {
            Some(folder) => set.read(&folder),
            None if set.locate(Path::new(NO_FOLDER)).is_none() => Err(no_data_folder()),
            None => set.read(Path::new(NO_FOLDER)),
        }?;
        let (title, short) = (set.title.to_owned(), set.name.to_owned());
        return Ok(Opened { table: loaded.table, title, short, coverage: Some(loaded.coverage) });
    }
    let absent = |name: &&String| !Path::new(name).exists();
    if let Some(name) = data.iter().filter(absent).find(|name| !name.contains(['.', '/', '\\'])) {
        let names: Vec<&str> = sets::ALL.iter().filter(|s| s.is_table()).map(|s| s.name).collect();
        return Err(match sets::find(name) {
            Some(set) => mcdd::Error::setting(format!("{} is a data set, and stands alone", set.name))
                .hint("give one data set, or files"),
            None => mcdd::Error::setting(format!("there is no file and no data set {name:?}"))
                .hint(format!("give a file, or one of {}", names.join(", "))),
        });
    }
    let paths: Vec<PathBuf> = data.iter().map(PathBuf::from).collect();
    let table = Table::read(&paths, &columns.of(reading))?;
    let name = paths.first().and_then(|p| p.file_name());
    let first = name.map_or_else(|| "table".into(), |n| n.to_string_lossy().into_owned());
    let title = if data.len() > 1 { format!("{first} and {} more", data.len() - 1) } else { first.clone() };
    let short = first.split('.').next().filter(|s| !s.is_empty()).unwrap_or("table").to_owned();
    Ok(Opened { table, title, short, coverage: None })
}

/// The number of threads: all cores unless told.
pub fn threads(given: Option<usize>) -> usize {
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// A number of threads that makes sense.
pub fn thread_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=256).contains(n)).ok_or_else(|| "give a number from 1 to 256".into())
}

/// A number of bootstrap replicates that fits into memory.
pub fn replicates(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n <= 1_000_000).ok_or_else(|| "give a number from 0 to 1,000,000".into())
}
