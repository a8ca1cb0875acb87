//! Options shared by several commands.

use std::path::{Path, PathBuf};

use clap::Args;
use mcdd::data::sets::{self, Coverage};
use mcdd::data::{Label, ReadOptions, RowLimit, Table};
use mcdd::model::{Model, Saved};

use crate::ui;

/// Options of loading a model.
#[derive(Args, Clone, Debug)]
pub struct Loading {
    /// ONNX file of the model's backbone, if the model file does not contain it [default: the one beside the model]
    #[arg(long, value_name = "FILE")]
    backbone: Option<PathBuf>,
}

impl Loading {
    /// Loads a model.
    pub fn model(&self, path: &Path) -> mcdd::Result<Model> {
        Model::load_with(path, self.backbone.as_deref())
    }

    /// Loads a model or a detector.
    pub fn saved(&self, path: &Path) -> mcdd::Result<Saved> {
        Saved::load_with(path, self.backbone.as_deref())
    }
}

/// Options of reading files.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// Column of the labels: a name, a number from 1, first, last, none, or a file of labels (NPY, IDX, text)
    /// [default: a column named label, labels, class, target or y]
    #[arg(long, value_name = "NAME|NUMBER")]
    pub label: Option<String>,

    /// Whether the first row of a text file holds the column names [default: detected]
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no)]
    pub header: Option<bool>,

    /// Separator of a text file: one character, tab or space [default: detected]
    #[arg(long, value_name = "CHAR", value_parser = separator)]
    pub separator: Option<u8>,

    /// Worksheet of an Excel file: a name, or a number from 1 [default: the first]
    #[arg(long, value_name = "NAME|NUMBER")]
    pub sheet: Option<String>,

    /// Skip images that cannot be read, and report the reasons; predict writes a line with the verdict error for each
    #[arg(long)]
    pub skip_bad: bool,
}

/// Options for the columns and rows of a training table.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Columns {
    /// Make categories of columns, whatever their cells are (numbers, dates, free text): names or numbers from 1, separated
    /// by commas, or patterns such as 'code_*'; may be repeated
    #[arg(long, value_name = "COLUMNS")]
    pub categorical: Vec<String>,

    /// Ignore columns, given in the same way
    #[arg(long, value_name = "COLUMNS")]
    pub drop: Vec<String>,

    /// Column that says which rows belong together, such as a patient or a machine: they are never divided between
    /// training and calibration or test rows. It is not a feature. Equal rows always belong together
    #[arg(long, value_name = "COLUMN")]
    pub group: Option<String>,

    /// Train on columns even if they look like identifiers, given in the same way
    #[arg(long, value_name = "COLUMNS")]
    pub keep: Vec<String>,

    /// Leave out rows without a label, and report their number
    #[arg(long, visible_alias = "skip-unlabelled")]
    pub skip_unlabeled: bool,

    /// Leave out classes with fewer than N rows, and name them
    #[arg(long, value_name = "N")]
    pub min_class: Option<usize>,
}

impl Columns {
    /// The library's options of reading, with these columns and rows.
    pub fn of(&self, reading: &Reading) -> ReadOptions {
        ReadOptions {
            categorical: self.categorical.clone(),
            drop: self.drop.clone(),
            group: self.group.clone(),
            keep: self.keep.clone(),
            skip_unlabeled: self.skip_unlabeled,
            min_class: self.min_class.unwrap_or(0),
            ..reading.options()
        }
    }

    /// The first of these options that is given, by its name in the library.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("drop", !self.drop.is_empty()),
            ("categorical", !self.categorical.is_empty()),
            ("group", self.group.is_some()),
            ("keep", !self.keep.is_empty()),
            ("skip_unlabeled", self.skip_unlabeled),
            ("min_class", self.min_class.is_some()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// The sample of a table that is too large to be trained on as a whole.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Reading")]
pub struct Sampling {
    /// Use at most N rows of a table: a random sample of a larger one, drawn while it is read, with small classes whole
    /// [default: 1000000, or fewer if there are more than 100 columns]
    #[arg(long, value_name = "N")]
    pub max_rows: Option<std::num::NonZeroUsize>,
}

impl Sampling {
    /// The library's limit.
    pub fn limit(self, seed: u64) -> Option<RowLimit> {
        Some(match self.max_rows {
            Some(rows) => RowLimit { rows: rows.get(), cells: usize::MAX, seed },
            None => RowLimit::for_training(seed),
        })
    }
}

/// Options of running: threads and verbosity.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Running")]
pub struct Running {
    /// Number of threads; does not change the result [default: all cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,

    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}

impl Running {
    /// The number of threads.
    pub fn threads(&self) -> usize {
        threads(self.threads)
    }
}

/// Parses yes or no.
pub fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("give yes or no".into()),
    }
}

/// Parses a size of images: `32x32`.
pub fn image_size(text: &str) -> Result<(usize, usize), String> {
    let sides = text.split_once('x').and_then(|(h, w)| Some((h.parse().ok()?, w.parse().ok()?)));
    sides.filter(|&(h, w)| h > 0 && w > 0).ok_or_else(|| "give height and width, e.g. 32x32".into())
}

/// Parses a separator: a name, or the character itself.
pub fn separator(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        ("space", _) => Ok(b' '),
        (_, &[b]) if b.is_ascii() && !b.is_ascii_alphanumeric() && b != b'"' => Ok(b),
        _ => Err("give tab, space, or one character that is not a letter, a digit or a quote".into()),
    }
}

impl Reading {
    /// The file of labels, if the labels are in one.
    pub fn label_file(&self) -> Option<PathBuf> {
        match self.options().label {
            Label::File(path) => Some(path),
            _ => None,
        }
    }

    /// The library's options of reading.
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            label: self.label.as_deref().map_or(Label::Auto, |l| {
                let Ok(label) = l.parse();
                label
            }),
            header: self.header,
            separator: self.separator,
            sheet: self.sheet.clone(),
            skip_bad: self.skip_bad,
            ..ReadOptions::default()
        }
    }
}

/// The folder of the data sets: the given one, or that of `MCDD_DATA`.
pub fn data_folder(given: Option<PathBuf>) -> Option<PathBuf> {
    given.or_else(|| std::env::var_os("MCDD_DATA").filter(|v| !v.is_empty()).map(PathBuf::from))
}

/// Stands for a folder that is not given: nothing is in it, and data sets elsewhere on the system are still found.
pub const NO_FOLDER: &str = "\0";

/// The error for a folder that must be given.
pub fn no_data_folder() -> mcdd::Error {
    mcdd::Error::setting("the folder of the data sets is not given")
        .hint("give --data DIR, or set MCDD_DATA to the folder")
}

/// A table with its names.
pub struct Opened {
    pub table: Table,
    /// The title of the data set, or the name of the first file.
    pub title: String,
    /// A short name, for names of files.
    pub short: String,
    /// The part of the data set that was found; none for files.
    pub coverage: Option<Coverage>,
}

/// Reads files, or the data set of this name from the folder of the data sets.
pub fn open(data: &[String], folder: Option<PathBuf>, reading: &Reading, columns: &Columns) -> mcdd::Result<Opened> {
    if let [name] = data
        && let Some(set) = sets::find(name)
    {
        let given = reading.label.is_some() || reading.header.is_some() || reading.separator.is_some();
        if given || reading.sheet.is_some() || columns.given().is_some() {
            return Err(mcdd::Error::setting(format!("{} is a data set whose files and labels are known", set.name))
                .hint("leave out the options of reading; a file of this name is ./NAME"));
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
            Some(set) => mcdd::Error::setting(format!("{} is a data set, not a file", set.name))
                .hint("give a single data set, or only files"),
            None => mcdd::Error::setting(format!("there is no file or data set {name:?}"))
                .hint(format!("give a file, or one of {}", names.join(", "))),
        });
    }
    let paths: Vec<PathBuf> = data.iter().map(PathBuf::from).collect();
    let table = Table::read(&paths, &columns.of(reading))?;
    table.notices().iter().for_each(|n| ui::note(n));
    let name = paths.first().and_then(|p| p.file_name());
    let first = name.map_or_else(|| "table".into(), |n| n.to_string_lossy().into_owned());
    let title = if data.len() > 1 { format!("{first} and {} more", data.len() - 1) } else { first.clone() };
    let short = first.split('.').next().filter(|s| !s.is_empty()).unwrap_or("table").to_owned();
    Ok(Opened { table, title, short, coverage: None })
}

/// The number of threads: all cores by default.
pub fn threads(given: Option<usize>) -> usize {
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// Parses a number of threads.
pub fn thread_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=256).contains(n)).ok_or_else(|| "give a number from 1 to 256".into())
}

/// Parses a number of bootstrap replicates; the limit keeps them in memory.
pub fn replicates(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&n| n <= 1_000_000).ok_or_else(|| "give a number from 0 to 1,000,000".into())
}
