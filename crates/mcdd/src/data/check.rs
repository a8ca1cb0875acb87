//! Everything that training would stop at or act on, gathered in one go.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::categories::MAX_CATEGORIES;
use super::column::{Cells, Column, ColumnBuilder, MISSING, Refused};
use super::column_list;
use super::input::{Input, read_error};
use super::labels::{MIN_CLASS_ROWS, look_like_numbers};
use super::left_out::some_rows;
use super::options::{Label, ReadOptions};
use super::profile::{Action, Finding, Place, Problem, Profile};
use super::read::Reading;
use super::schema::Schema;
use super::source::{LabelAt, Source};
use super::table::Table;
use super::text::{count, list, quoted, shown};
use crate::error::{Error, Result, Row};

/// The result of checking a table before training: what was found, and the settings that training needs.
///
/// ```
/// use mcdd::data::{Check, ReadOptions};
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("people.csv");
/// let rows: String = (0..40).map(|i| format!("{},{},{}\n", 1000 + i, i * i % 7, ["a", "b", ""][i % 3])).collect();
/// std::fs::write(&path, format!("id,size,class\n{rows}")).unwrap();
/// let check = Check::files(&[path], &ReadOptions::default())?;
/// assert!(check.ready);
/// assert_eq!(check.settings[0].name, "skip_unlabeled"); // 13 rows have no label
/// assert_eq!(check.findings[1].columns, ["id"]); // is left out
/// # Ok::<(), mcdd::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The number of rows, without those that are to be left out.
    pub rows: usize,
    /// The number of feature columns.
    pub columns: usize,
    /// The label column.
    pub label: Option<String>,
    /// The classes and their numbers of rows, with those that are to be left out.
    pub classes: Vec<(String, usize)>,
    /// What was found: what must be changed or set first.
    pub findings: Vec<Finding>,
    /// The settings that training needs besides the given ones.
    pub settings: Vec<Setting>,
    /// Whether training works with these settings.
    pub ready: bool,
}

/// A setting of training and its value; a switch has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The name in the library, as `min_class`.
    pub name: &'static str,
    /// The value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Check {
    /// Checks files as [`Table::read`] would read them for training with these options.
    ///
    /// # Errors
    /// If a file cannot be read at all, or an option names no column.
    pub fn files(paths: &[PathBuf], options: &ReadOptions) -> Result<Check> {
        let mut checker = Checker {
            inputs: Inputs::new(paths)?,
            options: ReadOptions { skip_unlabeled: true, min_class: 0, ..options.clone() },
            given: options,
            findings: Vec::new(),
            settings: Vec::new(),
            names: Vec::new(),
            named: false,
            drop: Vec::new(),
            categorical: Vec::new(),
            ready: true,
        };
        checker.find_label()?;
        let table = checker.read()?;
        let label = table.label_column.as_ref().map(|label| shown(&label.name).to_owned());
        let classes: Vec<(String, usize)> = table.classes().iter().cloned().zip(table.class_sizes()).collect();
        let mut table = checker.rows(table, &classes);
        checker.columns(&mut table);
        Ok(checker.finish(&table, label, classes))
    }
}

/// Files that are read more than once; standard input is kept in memory.
struct Inputs {
    paths: Vec<PathBuf>,
    stdin: Option<Arc<[u8]>>,
}

impl Inputs {
    fn new(paths: &[PathBuf]) -> Result<Inputs> {
        let stdin = Path::new("-");
        let mut bytes = None;
        if paths.iter().any(|path| path == stdin) {
            let mut all = Vec::new();
            std::io::stdin().lock().read_to_end(&mut all).map_err(|e| read_error(e, stdin))?;
            bytes = Some(all.into());
        }
        Ok(Inputs { paths: paths.to_vec(), stdin: bytes })
    }

    fn open(&self, path: &Path, options: &ReadOptions) -> Result<Source> {
        match &self.stdin {
            Some(bytes) if path == Path::new("-") => {
                Source::from_input(Input::from_bytes(Arc::clone(bytes), path)?, options)
            }
            _ => Source::open(path, options),
        }
    }

    fn read(&self, options: &ReadOptions) -> Result<Reading> {
        Reading::of(&mut self.paths.iter().map(|path| self.open(path, options)), options, true)
    }
}

struct Checker<'a> {
    inputs: Inputs,
    /// The options of reading so far: the given ones, and those that findings add.
    options: ReadOptions,
    given: &'a ReadOptions,
    findings: Vec<Finding>,
    settings: Vec<Setting>,
    /// The names of all columns, and whether they are the file's own.
    names: Vec<String>,
    named: bool,
    drop: Vec<String>,
    categorical: Vec<String>,
    ready: bool,
}

impl Checker<'_> {
    /// Finds the label column; where none is known, the most probable one is taken.
    fn find_label(&mut self) -> Result<()> {
        let Some(path) = self.inputs.paths.first() else {
            return Err(Error::setting("no data file is given").hint("give at least one file"));
        };
        let source = self.inputs.open(path, &self.options)?;
        (self.names, self.named) = (source.names().to_vec(), source.named());
        if source.find_label(&self.options.label)?.is_some_and(|at| !matches!(at, LabelAt::None)) {
            return Ok(());
        }
        if self.options.label == Label::None {
            return Ok(());
        }
        let without = ReadOptions { label: Label::None, ..self.options.clone() };
        let table = self.inputs.read(&without)?.finish(&without)?;
        let candidates = candidates(&table);
        let what = "no column is called label, labels, class, target or y";
        let Some((best, classes)) = candidates.first() else {
            let remedy = "give `label`: no column has a few values that occur often, as classes do";
            self.findings.push(Finding::new(Problem::NoLabel, Action::Change, &[], what, remedy));
            self.options.label = Label::None;
            self.ready = false;
            return Ok(());
        };
        let last = self.names.last() == Some(best);
        let value = match self.named {
            true => best.clone(),
            false if last => "last".to_owned(),
            false => shown(best).to_owned(),
        };
        let named: Vec<String> = candidates.iter().map(|(name, n)| format!("{} ({n} classes)", shown(name))).collect();
        let remedy = match named.len() {
            1 => format!("{} looks like it, with {classes} classes", quoted(shown(best))),
            _ => format!("{} is taken here; possible are {}", quoted(shown(best)), list(&named)),
        };
        self.findings.push(Finding::new(Problem::NoLabel, Action::Setting, &[], what, remedy));
        self.options.label = match self.named {
            true => Label::Name(best.clone()),
            false if last => Label::Last,
            false => Label::Index(shown(best).parse().unwrap_or(1)),
        };
        self.settings.push(Setting { name: "label", value: Some(value) });
        Ok(())
    }

    /// Reads the table, and notes the cells and columns that cannot be used.
    fn read(&mut self) -> Result<Table> {
        loop {
            let mut reading = match self.inputs.read(&self.options) {
                Ok(reading) => reading,
                // A whole column that cannot be used.
                Err(error) if error.row().is_none() => match self.whole_column(&error) {
                    Some(()) => continue,
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            };
            let mut more = false;
            for at in 0..reading.columns.len() {
                let column = &mut reading.columns[at];
                if let Some(refused) = column.refused.take().filter(|refused| refused.count > 0) {
                    more |= self.cells(column, &refused);
                }
            }
            if !more {
                return reading.finish(&self.options);
            }
        }
    }

    /// Leaves a column out.
    fn leave_out(&mut self, name: &str) {
        self.options.drop.push(name.to_owned());
        self.drop.push(name.to_owned());
        self.categorical.retain(|other| other != name);
        self.options.categorical.retain(|other| other != name);
    }

    fn whole_column(&mut self, error: &Error) -> Option<()> {
        let name = error.column()?.to_owned();
        let at = *column_list::find(std::slice::from_ref(&name), &self.names).ok()?.first()?;
        let name = self.names[at].clone();
        if self.drop.contains(&name) {
            return None;
        }
        let remedy = format!("leave it out by `drop` {}", quoted(shown(&name)));
        self.findings.push(Finding::new(Problem::Unreadable, Action::Setting, &[&name], error.message(), remedy));
        self.leave_out(&name);
        Some(())
    }

    /// Notes the cells of a column that cannot be used. `false` if nothing more can be done about them.
    fn cells(&mut self, column: &ColumnBuilder, refused: &Refused) -> bool {
        let Some(name) = self.names.iter().find(|name| shown(name) == column.shown()).cloned() else {
            return false;
        };
        if self.drop.contains(&name) {
            return false;
        }
        // How many cells are numbers, how many are not, and whether as categories they would be few.
        let (numbers, texts, few, culprits) = match &column.cells {
            Cells::Number(values) => {
                let mut distinct: Vec<u64> = values.iter().filter(|v| !v.is_nan()).map(|v| v.to_bits()).collect();
                let numbers = distinct.len();
                distinct.sort_unstable();
                distinct.dedup();
                (numbers, refused.count, distinct.len() <= 50, false)
            }
            Cells::Text(found) => {
                let texts = found.codes.iter().filter(|&&code| code != MISSING).count();
                (refused.count, texts, found.names.len() <= 50, texts <= refused.count)
            }
            _ => (0, refused.count, false, false),
        };
        let (what, cells, places) = if culprits {
            let shown: Vec<String> =
                refused.texts.iter().map(|(_, row, text)| format!("{} (row {row})", quoted(text.trim()))).collect();
            let more = if texts > shown.len() { ", …" } else { "" };
            let places = refused.texts.iter().map(|(file, row, _)| Place { file: file.to_path_buf(), row: row.number });
            let what = format!(
                "{} in a column of numbers: {}{more}",
                if texts == 1 { "1 cell is not a number".to_owned() } else { format!("{texts} cells are not numbers") },
                shown.join(", ")
            );
            (what, texts, places.collect::<Vec<_>>())
        } else {
            let rows = refused.first.iter().filter_map(|e| Some((e.file().unwrap_or(Path::new("")), e.row()?)));
            let places: Vec<Place> = rows.map(|(file, row)| Place { file: file.to_owned(), row }).collect();
            let at: Vec<(Arc<Path>, Row)> = places.iter().map(|p| (p.file.as_path().into(), p.row.into())).collect();
            let first = refused.first.first().map_or("", Error::message);
            let what =
                format!("{} cannot be used: {first} ({})", count(refused.count, "cell"), some_rows(&at, refused.count));
            (what, refused.count, places)
        };
        // A column of categories that has been tried is left out; so are numbers with a few other cells among them.
        let categories = few && texts * 4 >= numbers && texts > 0 && !self.categorical.contains(&name);
        let known = quoted(shown(&name));
        let remedy = match categories {
            true => format!("take it as categories by `categorical` {known}, or correct the cells"),
            false => format!("correct the cells or leave them empty; else leave the column out by `drop` {known}"),
        };
        let mut finding = Finding::new(Problem::Unreadable, Action::Setting, &[&name], what, remedy).count(cells);
        finding.places = places;
        self.findings.push(finding);
        if categories {
            self.options.categorical.push(name.clone());
            self.categorical.push(name);
        } else {
            self.leave_out(&name);
        }
        true
    }

    /// Rows without a label and small classes.
    fn rows(&mut self, table: Table, classes: &[(String, usize)]) -> Table {
        let label = table.label_column.as_ref().map(|label| label.name.clone());
        let label: Vec<&str> = label.iter().map(String::as_str).collect();
        let unlabeled = table.left_out.unlabeled;
        if unlabeled > 0 {
            let first = &table.left_out.first;
            let what = match unlabeled {
                1 => format!("1 row has no label: {}", some_rows(first, 1)),
                n => format!("{n} rows have no label: {}", some_rows(first, n)),
            };
            let (action, remedy) = match self.given.skip_unlabeled {
                true => (Action::Automatic, "left out"),
                false => (Action::Setting, "leave them out by `skip_unlabeled`, or fill the labels in"),
            };
            let mut finding = Finding::new(Problem::MissingLabels, action, &label, what, remedy).count(unlabeled);
            finding.places =
                first.iter().map(|(file, row)| Place { file: file.to_path_buf(), row: row.number }).collect();
            self.findings.push(finding);
            if !self.given.skip_unlabeled {
                self.settings.push(Setting { name: "skip_unlabeled", value: None });
            }
        }
        if table.labels.is_none() {
            return table;
        }
        if look_like_numbers(classes.len(), table.rows()) {
            let what = format!("{} different values in {} rows: numbers, not classes", classes.len(), table.rows());
            let finding =
                Finding::new(Problem::NotClasses, Action::Change, &label, what, "give another column by `label`");
            self.findings.push(finding);
            self.ready = false;
            return table;
        }
        let least = MIN_CLASS_ROWS.max(self.given.min_class);
        let small: Vec<String> =
            classes.iter().filter(|(_, size)| *size < least).map(|(class, size)| format!("{class} ({size})")).collect();
        if !small.is_empty() {
            let what = format!(
                "{} fewer than {least} rows: {}",
                if small.len() == 1 { "1 class has".into() } else { format!("{} classes have", small.len()) },
                list(&small)
            );
            let (action, remedy) = match self.given.min_class >= MIN_CLASS_ROWS {
                true => (Action::Automatic, "left out".to_owned()),
                false => (Action::Setting, format!("leave them out by `min_class={least}`, or add rows")),
            };
            self.findings.push(Finding::new(Problem::SmallClasses, action, &label, what, remedy).count(small.len()));
            if self.given.min_class < MIN_CLASS_ROWS {
                self.settings.push(Setting { name: "min_class", value: Some(least.to_string()) });
            }
        }
        let table = table.without_small_classes(least);
        if table.classes().len() < 2 {
            let what = match table.classes() {
                [one] => format!("one class only, {}, and at least two are needed", quoted(one)),
                _ => "no class has enough rows".to_owned(),
            };
            let remedy = "check `label`, or add rows of other classes";
            self.findings.push(Finding::new(Problem::NotClasses, Action::Change, &label, what, remedy));
            self.ready = false;
        }
        table
    }

    /// Columns that the preprocessing cannot use, and the findings about the others.
    fn columns(&mut self, table: &mut Table) {
        let rows: Vec<usize> = (0..table.rows()).collect();
        let profile = loop {
            if rows.is_empty() {
                return;
            }
            let profile = Profile::of(table);
            let Err(error) = Schema::fit_without(table, &rows, &profile.left_out()) else {
                break profile;
            };
            let at = error.column().and_then(|column| table.names.iter().position(|name| shown(name) == column));
            let Some(at) = at.filter(|_| table.columns.len() > 1) else {
                let remedy = error.hint_text().unwrap_or_default();
                self.findings.push(Finding::new(Problem::Unreadable, Action::Change, &[], error.message(), remedy));
                self.ready = false;
                break profile;
            };
            let (name, column) = table.take_column(at);
            let problem = match column {
                Column::Text { names, .. } if names.len() > MAX_CATEGORIES => Problem::ManyTexts,
                _ => Problem::Unreadable,
            };
            let hint = error.hint_text().unwrap_or_default();
            let drop = format!("leave it out by `drop` {}", quoted(shown(&name)));
            let remedy = if hint.contains("`drop`") { drop } else { format!("{hint}; else {drop}") };
            self.findings.push(Finding::new(problem, Action::Setting, &[&name], error.message(), remedy));
            self.leave_out(&name);
        };
        self.findings.extend(profile.findings);
    }

    fn finish(mut self, table: &Table, label: Option<String>, classes: Vec<(String, usize)>) -> Check {
        let mut settings = std::mem::take(&mut self.settings);
        for (name, columns) in [("categorical", &self.categorical), ("drop", &self.drop)] {
            let given = |column: &String| if self.named { column.clone() } else { shown(column).to_owned() };
            let columns: Vec<String> = columns.iter().map(given).collect();
            for value in column_list::entries(&columns, &self.names) {
                settings.push(Setting { name, value: Some(value) });
            }
        }
        self.findings.sort_by_key(|finding| finding.action);
        let columns = table.columns.len() + self.drop.len();
        let Checker { findings, ready, .. } = self;
        Check { rows: table.rows(), columns, label, classes, findings, settings, ready }
    }
}

/// The largest number of classes of a column that may be the label.
const MOST_CLASSES: usize = 100;
/// Words in the names of label columns.
const LABEL_WORDS: [&str; 16] = [
    "label",
    "class",
    "target",
    "outcome",
    "category",
    "species",
    "status",
    "churn",
    "diagnosis",
    "result",
    "response",
    "type",
    "kind",
    "group",
    "fault",
    "default",
];

/// Columns that may hold the labels, the most probable first, and their numbers of classes.
fn candidates(table: &Table) -> Vec<(String, usize)> {
    let identifiers = Profile::of(table);
    let identifiers = identifiers.left_out();
    let mut found: Vec<(i32, String, usize)> = Vec::new();
    for (at, (name, column)) in table.names.iter().zip(&table.columns).enumerate() {
        if identifiers.contains(&name.as_str()) {
            continue;
        }
        let mut values: Vec<u64> = match column {
            Column::Number(values) if values.iter().all(|v| v.is_nan() || v.fract() == 0.0) => {
                values.iter().filter(|v| !v.is_nan()).map(|v| v.to_bits()).collect()
            }
            Column::Number(_) => continue,
            Column::Text { codes, .. } => codes.iter().filter(|&&c| c != MISSING).map(|&c| u64::from(c)).collect(),
        };
        let cells = values.len();
        values.sort_unstable();
        values.dedup();
        let classes = values.len();
        let text = matches!(column, Column::Text { .. });
        if classes < 2 || classes > if text { MOST_CLASSES } else { 20 } || classes * MIN_CLASS_ROWS > cells {
            continue;
        }
        let lower = name.to_lowercase();
        let word = LABEL_WORDS.iter().any(|word| lower.contains(word));
        let edge = if at + 1 == table.names.len() { 2 } else { i32::from(at == 0) };
        let score = 4 * i32::from(word) + edge + i32::from(text) - i32::from(classes > 20);
        found.push((score, name.clone(), classes));
    }
    found.sort_by_key(|(score, ..)| -score);
    found.into_iter().take(5).map(|(_, name, classes)| (name, classes)).collect()
}
