//! Several files as one table: which column of one is which of the other.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::column::{ColumnBuilder, Want};
use super::column_list;
use super::input::Input;
use super::libsvm;
use super::options::{Label, ReadOptions};
use super::refused::RefusedRows;
use super::sample::Sampler;
use super::source::{LabelAt, Side, Source};
use super::table::{LabelColumn, LeftOut, Table, Written};
use super::text::{Notices, count, list, thousands};
use crate::error::{Error, Result};

impl Table {
    /// Reads files and appends their rows. Columns are matched by name where the files have names, else by position. A folder stands
    /// for its files in the order of their names, without those that begin with a dot or an underscore.
    ///
    /// # Errors
    /// If a file cannot be read or used, or no labels are found, unless [`Label::None`] is given.
    pub fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Table> {
        let parts = parts(paths)?;
        let mut sources = parts.iter().map(|path| Source::open(path, options));
        Reading::of(&mut sources, options, false)?.finish(options)
    }

    /// Reads a stream: any format but Parquet, NPZ and Excel, each also gzipped. `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`Table::read`]; if the format must be read from its end (Parquet, NPZ, Excel: give its bytes to
    /// [`Table::from_bytes`]).
    pub fn read_from(reader: impl Read + Send + 'static, name: &str, options: &ReadOptions) -> Result<Table> {
        Table::from_source(Source::from_input(Input::from_read(Box::new(reader), Path::new(name))?, options)?, options)
    }

    /// Reads the content of a file, of any format. `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`Table::read`].
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>, name: &str, options: &ReadOptions) -> Result<Table> {
        Table::from_source(Source::from_input(Input::from_bytes(bytes.into(), Path::new(name))?, options)?, options)
    }

    pub(super) fn from_source(source: Source, options: &ReadOptions) -> Result<Table> {
        Reading::of(&mut std::iter::once(Ok(source)), options, false)?.finish(options)
    }
}

/// The files that paths stand for: a folder stands for the parts of a table in it.
pub(super) fn parts(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        match path.is_dir() {
            true => all.extend(parts_of(path)?),
            false => all.push(path.clone()),
        }
    }
    Ok(all)
}

/// The files of a folder, in the order of their names. Names that begin with a dot or an underscore are marks of the programs that
/// wrote the folder.
fn parts_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io(e, folder);
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(['.', '_']) && path.is_file() {
            parts.push(path);
        }
    }
    parts.sort();
    if parts.is_empty() {
        return Err(Error::data("the folder has no files")
            .at_file(folder)
            .hint("give a folder with the parts of a table, or with a folder of images for each class"));
    }
    Ok(parts)
}

/// How many rows are read at a time.
const BLOCK: usize = 4096;

/// The state of [`Table::read`] between files.
pub(crate) struct Reading {
    names: Vec<String>,
    named: bool,
    /// In the order of the first file.
    pub(super) columns: Vec<ColumnBuilder>,
    /// The labels' builder, where they stand apart.
    pub side: Vec<ColumnBuilder>,
    kept: Vec<String>,
    label: Option<usize>,
    label_column: Option<LabelColumn>,
    /// The column of groups.
    group: Option<usize>,
    /// The rows that were read; a sampler may have dropped some of them.
    rows: usize,
    sampler: Option<Sampler>,
    files: Vec<Arc<Path>>,
    file_rows: Vec<usize>,
    notices: Notices,
    /// That of the first file.
    separator: Option<u8>,
    /// The rows that were passed over.
    pub refused: RefusedRows,
}

impl Reading {
    /// Reads all rows of all sources. `pass_over`: cells that cannot be used are no error but noted.
    ///
    /// # Errors
    /// As [`Table::read`].
    pub(super) fn of(
        sources: &mut dyn Iterator<Item = Result<Source>>,
        options: &ReadOptions,
        pass_over: bool,
    ) -> Result<Reading> {
        let mut reading: Option<Reading> = None;
        // A file of labels covers all files of features.
        let mut shared: Option<Side> = None;
        for (index, source) in sources.enumerate() {
            let mut source = source?;
            source.look_for(None)?;
            let mut own: Option<Side> = None;
            let label = match (&options.label, index) {
                (Label::File(_), 1..) => LabelAt::None,
                _ => source
                    .find_label(&options.label)
                    .and_then(|at| at.ok_or_else(|| source.no_label()))
                    .map_err(|e| source.with_sheets(e))?,
            };
            let label = match label {
                LabelAt::Side(side) if matches!(options.label, Label::File(_)) => {
                    shared = Some(side);
                    None
                }
                LabelAt::Side(side) => {
                    own = Some(side);
                    None
                }
                LabelAt::Column(at) => Some(at),
                LabelAt::None => None,
            };
            let side = own.as_mut().or(shared.as_mut());
            let reading = match &mut reading {
                Some(reading) => reading,
                None => {
                    let reading = reading.insert(Reading::new(&source, label, side.as_deref(), options)?);
                    if pass_over {
                        let features = reading.columns.iter_mut().filter(|c| c.want != Want::OptionalLabel);
                        features.for_each(ColumnBuilder::pass_over);
                    }
                    reading
                }
            };
            reading.file(&mut source, label, side)?;
            if let Some(side) = own.as_mut().filter(|_| reading.refused.no_rows()) {
                side.at_end(&mut reading.side)?;
            }
        }
        let Some(mut reading) = reading else {
            return Err(Error::setting("no data file is given").hint("give at least one file"));
        };
        if let Some(side) = shared.as_mut().filter(|_| reading.refused.no_rows()) {
            side.at_end(&mut reading.side)?;
        }
        Ok(reading)
    }

    fn new(source: &Source, label: Option<usize>, side: Option<&Side>, options: &ReadOptions) -> Result<Reading> {
        let names = source.names().to_vec();
        let mut wants = vec![Want::Auto; names.len()];
        let find = |list: &[String]| column_list::find(list, &names).map_err(|e| e.at_file(source.path()));
        let mut kept = Vec::new();
        if !source.grows() {
            for (list, want) in [(&options.categorical, Want::Text), (&options.drop, Want::Skip)] {
                find(list)?.into_iter().for_each(|at| wants[at] = want);
            }
            kept.extend(find(&options.keep)?.into_iter().map(|at| names[at].clone()));
        } else if let Some(first) = options.categorical.first() {
            return Err(Error::data("the `label index:value` form has no categories")
                .at_file(source.path())
                .at_column(first)
                .hint("leave out `categorical`"));
        }
        let group = match &options.group {
            Some(name) if source.grows() => {
                return Err(Error::data("the `label index:value` form has no column of groups")
                    .at_file(source.path())
                    .at_column(name)
                    .hint("leave out `group`"));
            }
            Some(name) => match find(std::slice::from_ref(name))?[..] {
                [at] => Some(at),
                _ => return Err(Error::setting("`group` is more than one column").hint("give one column")),
            },
            None => None,
        };
        if let Some(at) = group {
            if Some(at) == label {
                return Err(Error::setting("`group` is the column of the labels").hint("give another column"));
            }
            wants[at] = Want::Text;
        }
        if let Some(at) = label {
            wants[at] = Want::OptionalLabel;
        } else if source.grows() {
            wants[0] = Want::Skip;
        }
        let build = |(name, want): (&String, Want)| ColumnBuilder::new(name, want, Arc::clone(source.file()));
        let label_column = match (label, side) {
            (Some(at), _) => Some(LabelColumn { name: names[at].clone(), position: (!source.grows()).then_some(at) }),
            (None, Some(side)) => Some(LabelColumn { name: side.name.clone(), position: None }),
            (None, None) => None,
        };
        Ok(Reading {
            columns: names.iter().zip(wants).map(build).collect(),
            side: side
                .map(|side| ColumnBuilder::new(&side.name, Want::OptionalLabel, Arc::clone(&side.file)))
                .into_iter()
                .collect(),
            kept,
            names,
            named: source.named(),
            label,
            label_column,
            group,
            rows: 0,
            sampler: options.limit.map(|limit| Sampler::new(limit, source.names().len(), options.min_class)),
            files: Vec::new(),
            file_rows: Vec::new(),
            notices: Notices::new(),
            separator: source.separator(),
            refused: RefusedRows::default(),
        })
    }

    /// Appends a file's rows.
    fn file(&mut self, source: &mut Source, label: Option<usize>, mut side: Option<&mut Side>) -> Result<()> {
        let order = self.order(source, label, side.is_some())?;
        let mut columns: Vec<ColumnBuilder> = if source.grows() {
            std::mem::take(&mut self.columns)
        } else {
            let mut taken: Vec<Option<ColumnBuilder>> = self.columns.drain(..).map(Some).collect();
            order.iter().filter_map(|&at| taken[at].take()).collect()
        };
        for column in &mut columns {
            column.set_file(source.file());
        }
        if let (Some(side), Some(column)) = (&side, self.side.first_mut()) {
            column.set_file(&side.file);
        }
        let before = self.rows;
        loop {
            let count = source.fill(BLOCK, &mut columns)?;
            if let Some(side) = &mut side {
                side.fill(count, source.gaps(), &mut self.side)?;
            }
            self.rows += count;
            if let Some(sampler) = &mut self.sampler {
                sampler.read(count, &mut columns, label, &mut self.side);
            }
            if count < BLOCK {
                break;
            }
            // Once, with a little more than the first rows promise.
            if self.rows == before + BLOCK
                && let Some(rest) = source.remaining()
            {
                let rest = self.sampler.as_ref().map_or(rest, |sampler| sampler.room().min(rest));
                for column in &mut columns {
                    column.reserve(rest + rest / 50);
                }
            }
        }
        self.refused.append(source.refused());
        if self.rows == before && self.refused.no_rows() {
            let message = if source.named() { "the file has a header and no rows" } else { "the file has no rows" };
            return Err(Error::data(message)
                .at_file(source.path())
                .hint("give a file with a row for each example; `header` no if the first row holds data"));
        }
        if source.grows() {
            for at in self.names.len()..columns.len() {
                self.names.push(libsvm::feature_name(at));
            }
            self.columns = columns;
        } else {
            let mut back: Vec<Option<ColumnBuilder>> = order.iter().map(|_| None).collect();
            for (column, &at) in columns.into_iter().zip(&order) {
                back[at] = Some(column);
            }
            self.columns = back.into_iter().flatten().collect();
        }
        self.notices.extend(source.notices());
        if !source.path().as_os_str().is_empty() {
            self.file_rows.push(self.rows - before);
            self.files.push(Arc::clone(source.file()));
        }
        Ok(())
    }

    /// For each column of the file its place in the first file.
    fn order(&self, source: &Source, label: Option<usize>, side: bool) -> Result<Vec<usize>> {
        let Some(first) = self.files.first() else {
            return Ok((0..source.names().len()).collect());
        };
        let first_name = first.display();
        let fail =
            |message: String| Error::data(message).at_file(source.path()).hint("give files with the same columns");
        if source.grows() != self.is_growing() {
            return Err(fail(format!("it is not of the same form as {first_name}")));
        }
        if source.grows() {
            return Ok(Vec::new());
        }
        if source.named() != self.named {
            return Err(fail(if self.named {
                format!("it has no column names, and {first_name} has")
            } else {
                format!("it has column names, and {first_name} has none")
            }));
        }
        if side == self.side.is_empty() || label.is_some() != self.label.is_some() {
            return Err(fail(format!("its labels are not where those of {first_name} are")));
        }
        let names = source.names();
        if !self.named {
            if names.len() != self.names.len() {
                return Err(fail(format!(
                    "it has {}, and {first_name} has {}",
                    count(names.len(), "column"),
                    self.names.len()
                )));
            }
            return Ok((0..names.len()).collect());
        }
        let here: HashSet<&String> = names.iter().collect();
        let there: HashMap<&String, usize> = self.names.iter().zip(0..).collect();
        let missing: Vec<&String> = self.names.iter().filter(|n| !here.contains(n)).collect();
        if !missing.is_empty() {
            return Err(fail(format!("it lacks columns of {first_name}: {}", list(&missing))));
        }
        let extra: Vec<&String> = names.iter().filter(|n| !there.contains_key(n)).collect();
        if !extra.is_empty() {
            return Err(fail(format!("it has columns that {first_name} has not: {}", list(&extra))));
        }
        Ok(names.iter().filter_map(|name| there.get(name).copied()).collect())
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The name of the label column.
    pub(super) fn label(&self) -> Option<&str> {
        self.label_column.as_ref().map(|label| label.name.as_str())
    }

    fn is_growing(&self) -> bool {
        !self.named && self.names.first().is_some_and(|n| n == "label")
    }

    pub(super) fn finish(mut self, options: &ReadOptions) -> Result<Table> {
        let mut unlabeled = None;
        let mut sampled = Vec::new();
        if let Some(mut sampler) = self.sampler.take() {
            sampler.finish(&mut self.columns, &mut self.side);
            unlabeled = Some(sampler.unlabeled());
            if let Some((rows, all)) = sampler.outcome() {
                let (kept, all) = (thousands(rows.len()), thousands(all));
                self.notices.push(format!("{kept} of {all} rows are used: a random sample, with small classes whole"));
                self.rows = rows.len();
                sampled = rows;
            }
        }
        let growing = self.is_growing();
        let file = self.files.first().cloned();
        let place = |error: Error| match &file {
            Some(file) => error.at_file(file),
            None => error,
        };
        if growing {
            // The names of this form are known only now; the first is the label.
            let features = &self.names[1..];
            self.kept = column_list::find(&options.keep, features)
                .map_err(place)?
                .into_iter()
                .map(|at| features[at].clone())
                .collect();
            for at in column_list::find(&options.drop, features).map_err(place)? {
                self.columns[at + 1] = ColumnBuilder::new(&self.names[at + 1], Want::Skip, Path::new("").into());
            }
        }
        let mut table = Table {
            names: Vec::new(),
            named: self.named,
            columns: Vec::new(),
            labels: None,
            dropped: Vec::new(),
            kept: self.kept,
            left_out: LeftOut::default(),
            label_column: self.label_column,
            groups: None,
            rows: self.rows,
            files: self.files,
            file_rows: self.file_rows,
            notices: self.notices,
            written: Written { separator: self.separator, rows: sampled, ..Written::default() },
        };
        let (mut position, mut labels) = (0, self.side.pop());
        for (at, (name, column)) in self.names.into_iter().zip(self.columns).enumerate() {
            if Some(at) == self.label {
                labels = Some(column);
                continue;
            }
            if growing && at == 0 {
                continue;
            }
            column.check()?;
            let (points, forced) = (column.points.clone(), column.want == Want::Text);
            match column.finish() {
                Some(column) if Some(at) == self.group => {
                    table.groups = Some(column.into_groups());
                    table.dropped.push((position, name));
                }
                Some(column) => {
                    if forced {
                        table.written.categorical.push(name.clone());
                    }
                    table.written.points.push(points);
                    table.names.push(name);
                    table.columns.push(column);
                }
                None => table.dropped.push((position, name)),
            }
            position += 1;
        }
        if table.columns.is_empty() {
            return Err(place(
                Error::data("there is no column besides the label").hint("check `label`, `drop` and `separator`"),
            ));
        }
        if let Some(mut builder) = labels {
            let first = std::mem::take(&mut builder.unlabeled);
            if let Some(column) = builder.finish() {
                table = table.with_labels(column, first, unlabeled, options.skip_unlabeled)?;
            }
        }
        Ok(if options.min_class > 0 { table.without_small_classes(options.min_class) } else { table })
    }
}
