//! Everything that training would stop at or act on, gathered in one go.

mod candidates;
mod inputs;
mod unusable;

use std::path::PathBuf;

use serde::Serialize;

use super::column::ColumnBuilder;
use super::column_list;
use super::labels::{MIN_CLASS_ROWS, look_like_numbers};
use super::left_out::some_rows;
use super::options::{Label, ReadOptions};
use super::profile::{Action, Finding, Place, Problem, Profile};
use super::read::parts;
use super::refused::Refused;
use super::schema::Schema;
use super::source::LabelAt;
use super::table::Table;
use super::text::{list, quoted, shown};
use crate::error::{Error, Kind, Result};
use candidates::candidates;
use inputs::Inputs;

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
    /// If a file is not there, or an option names no column. Files, headers, rows and cells that cannot be used are findings.
    pub fn files(paths: &[PathBuf], options: &ReadOptions) -> Result<Check> {
        let mut checker = Checker {
            inputs: Inputs::new(&parts(paths)?)?,
            options: ReadOptions { skip_unlabeled: true, min_class: 0, ..options.clone() },
            given: options,
            findings: Vec::new(),
            settings: Vec::new(),
            names: Vec::new(),
            named: false,
            drop: Vec::new(),
            categorical: Vec::new(),
            rows: 0,
            ready: true,
        };
        checker.open()?;
        if checker.inputs.paths.is_empty() {
            return Ok(checker.finish(0, None, Vec::new()));
        }
        checker.find_label()?;
        let Some(table) = checker.read()? else {
            let columns = checker.names.len();
            return Ok(checker.finish(columns, None, Vec::new()));
        };
        let label = table.label_column.as_ref().map(|label| shown(&label.name).to_owned());
        let classes: Vec<(String, usize)> = table.classes().iter().cloned().zip(table.class_sizes()).collect();
        let mut table = checker.rows(table, &classes);
        checker.rows = table.rows();
        checker.columns(&mut table);
        let columns = table.columns.len() + checker.drop.len();
        Ok(checker.finish(columns, label, classes))
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
    /// The number of rows.
    rows: usize,
    ready: bool,
}

impl Checker<'_> {
    /// Opens the files. Those that cannot be used are noted, and left out.
    fn open(&mut self) -> Result<()> {
        if self.inputs.paths.is_empty() {
            return Err(Error::setting("no data file is given").hint("give at least one file"));
        }
        for path in std::mem::take(&mut self.inputs.paths) {
            match self.inputs.open(&path, &self.options) {
                Ok(_) => self.inputs.paths.push(path),
                Err(error) => self.file(error)?,
            }
        }
        Ok(())
    }

    /// A file that cannot be used.
    fn file(&mut self, error: Error) -> Result<()> {
        if error.kind() != Kind::Data {
            return Err(error);
        }
        self.findings.push(unusable::file(&error));
        self.ready = false;
        Ok(())
    }

    /// The file of labels cannot be used: the columns are looked at without it. `false` if the error is not about it.
    fn label_file(&mut self, error: &Error) -> bool {
        let about = matches!(&self.options.label, Label::File(path) if error.file() == Some(path));
        if about && error.kind() == Kind::Data {
            self.stop(Problem::NoLabel, &[], error.to_string(), error.hint_text().unwrap_or_default());
            self.options.label = Label::None;
        }
        about && error.kind() == Kind::Data
    }

    /// The table without labels, as far as it can be read.
    fn unlabeled(&self) -> Result<Option<Table>> {
        let mut without = ReadOptions { label: Label::None, ..self.options.clone() };
        loop {
            let error = match self.inputs.read(&without).and_then(|reading| reading.finish(&without)) {
                Ok(table) => return Ok(Some(table)),
                Err(error) => error,
            };
            match self.column_of(&error) {
                Some(name) if !without.drop.contains(&name) => without.drop.push(name),
                _ if error.kind() == Kind::Data => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Finds the label column; where none is known, the most probable one is taken.
    fn find_label(&mut self) -> Result<()> {
        let source = self.inputs.open(&self.inputs.paths[0], &self.options)?;
        (self.names, self.named) = (source.names().to_vec(), source.named());
        match source.find_label(&self.options.label) {
            Err(error) if self.label_file(&error) => return Ok(()),
            at => {
                if at?.is_some_and(|at| !matches!(at, LabelAt::None)) || self.options.label == Label::None {
                    return Ok(());
                }
            }
        }
        let candidates = self.unlabeled()?.map_or(Vec::new(), |table| candidates(&table));
        let what = "no column is called label, labels, class, target or y";
        let Some((best, classes)) = candidates.first() else {
            let remedy = "give `label`: no column has a few values that occur often, as classes do";
            self.stop(Problem::NoLabel, &[], what, remedy);
            self.options.label = Label::None;
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

    /// The column that an error is about.
    fn column_of(&self, error: &Error) -> Option<String> {
        self.find(error.column()?).map(|at| self.names[at].clone())
    }

    /// Reads the table, and notes the rows, cells and columns that cannot be used. None if nothing is left.
    fn read(&mut self) -> Result<Option<Table>> {
        loop {
            let mut reading = match self.inputs.read(&self.options) {
                Ok(reading) => reading,
                // A whole column that cannot be used.
                Err(error) if error.row().is_none() && self.column(&error) => continue,
                Err(error) if self.label_file(&error) => continue,
                Err(error) => {
                    let file = self.inputs.paths.iter().position(|path| error.file() == Some(path));
                    self.file(error)?;
                    // The first file has the names of the columns.
                    let Some(file) = file.filter(|&file| file > 0) else { return Ok(None) };
                    self.inputs.paths.remove(file);
                    continue;
                }
            };
            let mut more = false;
            for at in 0..reading.columns.len() {
                let column = &mut reading.columns[at];
                if let Some(refused) = column.refused.take().filter(|refused| refused.count > 0) {
                    more |= self.cells(column, &refused);
                }
            }
            if more {
                continue;
            }
            self.rows = reading.rows();
            let (refused, label) = (std::mem::take(&mut reading.refused), reading.label().map(str::to_owned));
            let table = match reading.finish(&self.options) {
                Ok(table) => Some(table),
                Err(error) if label.as_deref().is_some_and(|label| error.column() == Some(shown(label))) => {
                    self.no_labels(&error, label);
                    continue;
                }
                // A few cells are not what the others of their column are.
                Err(error) if self.column(&error) => continue,
                Err(error) => {
                    self.stop(Problem::Unreadable, &[], error.message(), error.hint_text().unwrap_or_default());
                    None
                }
            };
            let rows = unusable::rows(&refused);
            self.ready &= rows.is_empty();
            self.findings.extend(rows);
            return Ok(table);
        }
    }

    /// What no setting helps against.
    fn stop(&mut self, problem: Problem, columns: &[&str], what: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding::new(problem, Action::Change, columns, what, remedy));
        self.ready = false;
    }

    /// The label column has no label: the others are looked at without it.
    fn no_labels(&mut self, error: &Error, label: Option<String>) {
        let label: Vec<String> = label.into_iter().collect();
        let names: Vec<&str> = label.iter().map(String::as_str).collect();
        self.stop(Problem::NoLabel, &names, error.message(), error.hint_text().unwrap_or_default());
        self.options.label = Label::None;
        self.options.drop.extend(label.into_iter().filter(|name| self.names.contains(name)));
    }

    /// Leaves a column out.
    fn leave_out(&mut self, name: &str) {
        self.options.drop.push(name.to_owned());
        self.drop.push(name.to_owned());
        self.categorical.retain(|other| other != name);
        self.options.categorical.retain(|other| other != name);
    }

    /// The place of a column.
    fn find(&self, name: &str) -> Option<usize> {
        column_list::find(&[name.to_owned()], &self.names).ok()?.first().copied()
    }

    /// Notes a column that cannot be used, or that a few cells spoil, and leaves it out. `false` if the error is not about a
    /// column.
    fn column(&mut self, error: &Error) -> bool {
        let Some(name) = self.column_of(error).filter(|name| !self.drop.contains(name)) else {
            return false;
        };
        let drop = format!("leave it out by `drop` {}", quoted(shown(&name)));
        let (what, remedy) = match error.row_and_line() {
            None => (error.message().to_owned(), drop),
            Some(row) => (
                match error.file().filter(|_| self.inputs.paths.len() > 1) {
                    Some(file) => format!("row {row} of {}: {}", file.display(), error.message()),
                    None => format!("row {row}: {}", error.message()),
                },
                format!("correct such cells or leave them empty; else {}", drop.replace("it out", "the column out")),
            ),
        };
        self.findings.push(Finding::new(Problem::Unreadable, Action::Setting, &[&name], what, remedy));
        self.leave_out(&name);
        true
    }

    /// Notes the cells of a column that cannot be used. `false` if nothing more can be done about them.
    fn cells(&mut self, column: &ColumnBuilder, refused: &Refused) -> bool {
        let Some(name) = self.names.iter().find(|name| shown(name) == column.shown()).cloned() else {
            return false;
        };
        if self.drop.contains(&name) {
            return false;
        }
        // A column of categories that has been tried is left out.
        let tried = self.categorical.contains(&name);
        let (finding, categories) = unusable::cells(&name, column, refused, tried);
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
            finding.places = first.iter().map(|(file, row)| Place::new(file, *row)).collect();
            self.findings.push(finding);
            if !self.given.skip_unlabeled {
                self.settings.push(Setting { name: "skip_unlabeled", value: None });
            }
        }
        if table.labels.is_none() || table.rows() == 0 {
            return table;
        }
        if look_like_numbers(classes.len(), table.rows()) {
            let what = format!("{} different values in {} rows: numbers, not classes", classes.len(), table.rows());
            self.stop(Problem::NotClasses, &label, what, "give another column by `label`");
            return table;
        }
        let least = MIN_CLASS_ROWS.max(self.given.min_class);
        let named = |small: bool| {
            let found = classes.iter().filter(|(_, size)| (*size < least) == small);
            found.map(|(class, size)| format!("{class} ({size})")).collect::<Vec<String>>()
        };
        let (small, large) = (named(true), named(false));
        if large.len() < 2 {
            let what = match (&large[..], small.len()) {
                ([one], 0) => format!("one class only, {one}, and at least two are needed"),
                ([one], _) => {
                    format!("only {one} has {least} rows or more, and two classes are needed; others: {}", list(&small))
                }
                _ => format!("no class has {least} rows: {}", list(&small)),
            };
            let remedy = format!("add rows until two classes have {least} or more, or give another column by `label`");
            self.stop(Problem::NotClasses, &label, what, remedy);
            return table;
        }
        if small.is_empty() {
            return table;
        }
        let what = format!(
            "{} fewer than {least} rows: {}",
            if small.len() == 1 { "1 class has".into() } else { format!("{} classes have", small.len()) },
            list(&small)
        );
        let given = self.given.min_class >= MIN_CLASS_ROWS;
        let (action, remedy) = match given {
            true => (Action::Automatic, "left out".to_owned()),
            false => (Action::Setting, format!("leave them out by `min_class={least}`, or add rows")),
        };
        self.findings.push(Finding::new(Problem::SmallClasses, action, &label, what, remedy).count(small.len()));
        if !given {
            self.settings.push(Setting { name: "min_class", value: Some(least.to_string()) });
        }
        table.without_small_classes(least)
    }

    /// How the columns are read, and the findings about them.
    fn columns(&mut self, table: &mut Table) {
        for notice in &table.notices {
            self.findings.push(Finding::new(Problem::Reading, Action::Automatic, &[], notice, ""));
        }
        let rows: Vec<usize> = (0..table.rows()).collect();
        if rows.is_empty() {
            return;
        }
        let profile = Profile::of(table);
        match Schema::fit_with_findings(table, &rows, &profile.left_out()) {
            Ok((_, read, _)) => self.findings.extend(read),
            Err(error) => {
                self.stop(Problem::Unreadable, &[], error.message(), error.hint_text().unwrap_or_default());
            }
        }
        self.findings.extend(profile.findings);
    }

    fn finish(mut self, columns: usize, label: Option<String>, classes: Vec<(String, usize)>) -> Check {
        let mut settings = std::mem::take(&mut self.settings);
        for (name, columns) in [("categorical", &self.categorical), ("drop", &self.drop)] {
            let given = |column: &String| if self.named { column.clone() } else { shown(column).to_owned() };
            let columns: Vec<String> = columns.iter().map(given).collect();
            for value in column_list::entries(&columns, &self.names) {
                settings.push(Setting { name, value: Some(value) });
            }
        }
        self.findings.sort_by_key(|finding| finding.action);
        let Checker { findings, rows, ready, .. } = self;
        Check { rows, columns, label, classes, findings, settings, ready }
    }
}
