//! A file that is opened and not yet read: its columns, and where its labels are.

use std::path::Path;
use std::sync::Arc;

use super::column::{ColumnBuilder, Want};
use super::delimited;
use super::encoding::Foreign;
#[cfg(feature = "excel")]
use super::excel;
use super::idx::{self, Idx};
use super::input::{Format, Input, RowSource, Storage, empty};
#[cfg(feature = "parquet")]
use super::ipc::Ipc;
use super::json_lines;
use super::kept::KeptType;
use super::libsvm;
use super::npy::Npy;
#[cfg(feature = "npz")]
use super::npz::{Archive, SideBySide};
use super::options::{LABEL_NAMES, Label, ReadOptions};
#[cfg(feature = "parquet")]
use super::parquet::Parquet;
use super::refused::{RefusedRows, RowLog};
#[cfg(not(all(feature = "excel", feature = "npz", feature = "parquet")))]
use super::text::needs_feature;
use super::text::{Notices, count, list, positional_name, quoted};
use crate::error::{Error, Result};

/// An opened file: its format is known and its header read, its rows are not.
pub struct Source {
    file: Arc<Path>,
    names: Vec<String>,
    named: bool,
    kind: Kind,
    /// That of separated text.
    separator: Option<u8>,
    rows: Box<dyn RowSource>,
    /// The encoding of a text that is not UTF-8, once it is known.
    foreign: Foreign,
}

/// What differs between formats once they are open.
enum Kind {
    /// Columns only.
    Columns,
    /// Columns that not every row has, named by keys.
    JsonLines,
    /// Column 0 is the label, the others are added as they appear.
    Libsvm,
    /// An array of features in an archive with other arrays.
    #[cfg(feature = "npz")]
    Archive(Archive, String),
    /// An IDX file on disk, which may have a file of labels beside it.
    Idx,
}

/// Labels apart from the features.
pub(crate) struct Side {
    pub file: Arc<Path>,
    pub name: String,
    rows: Box<dyn RowSource>,
}

/// Where a file's labels are.
pub(crate) enum LabelAt {
    /// Nowhere.
    None,
    /// In this column, counted from 0.
    Column(usize),
    /// In another file or array.
    Side(Side),
}

impl Source {
    /// Opens a file, or stdin for `-`, and reads its header.
    ///
    /// # Errors
    /// If it cannot be read, or its format is not supported.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
        Self::from_input(Input::open(path)?, options)
    }

    /// Rows with names of their own that are not from a file.
    pub(crate) fn from_rows(names: Vec<String>, rows: Box<dyn RowSource>) -> Result<Source> {
        if names.is_empty() {
            return Err(Error::data("there are no columns").hint("give a column for each feature"));
        }
        Ok(Source::new(Path::new("").into(), names, true, Kind::Columns, rows))
    }

    fn new(file: Arc<Path>, names: Vec<String>, named: bool, kind: Kind, rows: Box<dyn RowSource>) -> Source {
        Source { file, names, named, kind, separator: None, rows, foreign: Foreign::default() }
    }

    /// Reads the header.
    pub(crate) fn from_input(input: Input, options: &ReadOptions) -> Result<Source> {
        Self::with_log(input, options, RowLog::default())
    }

    /// Reads the header, and passes over what cannot be used in it and in the rows ([`Source::refused`]).
    pub(crate) fn passing_over(input: Input, options: &ReadOptions) -> Result<Source> {
        Self::with_log(input, options, RowLog::passing_over())
    }

    fn with_log(input: Input, options: &ReadOptions, log: RowLog) -> Result<Source> {
        let file = Arc::clone(&input.file);
        let format = input.format()?;
        if options.sheet.is_some() && format != Format::Zip {
            return Err(Error::setting("`sheet` is for Excel files").at_file(&file).hint("leave out `sheet`"));
        }
        let positional = |width: usize| (0..width).map(positional_name).collect::<Vec<_>>();
        let (names, named, kind, rows): (_, _, _, Box<dyn RowSource>) = match format {
            Format::Npy => {
                let length = input.length;
                let array = Npy::open(input.into_read(0), length, &file)?;
                (positional(array.width()), false, Kind::Columns, Box::new(array))
            }
            Format::Idx => {
                let kind = if matches!(input.storage, Storage::File) { Kind::Idx } else { Kind::Columns };
                let idx = Idx::open(input)?;
                (positional(idx.width()), false, kind, Box::new(idx))
            }
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let (names, rows) = Parquet::open(&file, &input.storage)?;
                (names, true, Kind::Columns, Box::new(rows))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => return Err(needs_feature("Parquet files", "parquet").at_file(&file)),
            #[cfg(feature = "parquet")]
            Format::Arrow => {
                let (names, rows) = Ipc::open(input)?;
                (names, true, Kind::Columns, Box::new(rows))
            }
            #[cfg(not(feature = "parquet"))]
            Format::Arrow => return Err(needs_feature("Arrow files", "parquet").at_file(&file)),
            Format::Zip => return Self::open_zip(&file, &input.storage, options, log),
            _ => {
                let input = input.decoded()?;
                let foreign = Arc::clone(&input.foreign);
                let skip = if input.prefix.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
                let content = &input.prefix[skip..];
                let free = options.separator.is_none();
                let source = if free && (content.trim_ascii().is_empty() || json_lines::looks_like(content)) {
                    let rows = json_lines::open(input, skip, log)?;
                    Source::new(file, rows.names().to_vec(), true, Kind::JsonLines, Box::new(rows))
                } else if free && libsvm::looks_like(content, input.whole) {
                    let rows = libsvm::open(input, skip, log);
                    Source::new(file, vec!["label".to_owned()], false, Kind::Libsvm, Box::new(rows))
                } else {
                    let opened = delimited::open(input, skip, options, log)?;
                    let columns = Kind::Columns;
                    let source = Source::new(file, opened.names, opened.named, columns, Box::new(opened.rows));
                    Source { separator: Some(opened.separator), ..source }
                };
                return Ok(Source { foreign, ..source });
            }
        };
        if names.is_empty() {
            return Err(Error::data("the file has no columns")
                .at_file(&file)
                .hint("give a file with a column for each feature"));
        }
        Ok(Source::new(file, names, named, kind, rows))
    }

    /// An Excel workbook, or an archive of NumPy arrays.
    fn open_zip(file: &Arc<Path>, storage: &Storage, options: &ReadOptions, log: RowLog) -> Result<Source> {
        #[cfg(not(feature = "excel"))]
        let _ = log;
        #[cfg(feature = "excel")]
        if excel::is_workbook(file, storage) {
            let opened = excel::open(file, storage, options, log)?;
            return Ok(Source::new(Arc::clone(file), opened.names, opened.named, Kind::Columns, Box::new(opened.rows)));
        }
        if options.sheet.is_some() {
            return Err(Error::setting("`sheet` is for Excel files").at_file(file).hint("leave out `sheet`"));
        }
        #[cfg(feature = "npz")]
        return Self::open_archive(Archive::open(file, storage)?, Arc::clone(file));
        #[cfg(not(feature = "npz"))]
        {
            let _ = storage;
            Err(needs_feature("zip archives (.npz, .xlsx)", "npz` or `excel").at_file(file))
        }
    }

    #[cfg(feature = "npz")]
    fn open_archive(archive: Archive, file: Arc<Path>) -> Result<Source> {
        let names: Vec<String> = archive.names().into_iter().map(str::to_owned).collect();
        let features = ["x", "X", "data", "features", "arr_0"]
            .into_iter()
            .find(|want| names.iter().any(|name| name == want))
            .or(match names.as_slice() {
                [only] => Some(only.as_str()),
                _ => None,
            })
            .map(str::to_owned);
        if let Some(features) = features {
            let array = archive.array(&features)?;
            let positional = (0..array.width()).map(positional_name).collect();
            return Ok(Source::new(file, positional, false, Kind::Archive(archive, features), Box::new(array)));
        }
        let arrays = names.iter().map(|name| archive.array(name)).collect::<Result<Vec<_>>>()?;
        let first = arrays.first().map_or(0, Npy::rows);
        if arrays.iter().any(|a| a.width() != 1 || a.rows() != first) {
            return Err(Error::data(format!(
                "it is not clear which array holds the features; the arrays are: {}",
                list(&names)
            ))
            .at_file(&file)
            .hint("name the arrays x and y, or give arrays of one dimension and equal length as columns"));
        }
        Ok(Source::new(file, names, true, Kind::Columns, Box::new(SideBySide(arrays))))
    }

    /// The names of the columns in the file's order, the label's among them where it is a column. Those of
    /// the `label index:value` form are known only after reading; here they are just `label`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the file has column names; else columns are matched by position.
    pub fn named(&self) -> bool {
        self.named
    }

    /// The separator of separated text.
    pub(crate) fn separator(&self) -> Option<u8> {
        self.separator
    }

    /// The file's path; `-` is stdin.
    pub fn path(&self) -> &Path {
        &self.file
    }

    pub(crate) fn file(&self) -> &Arc<Path> {
        &self.file
    }

    pub(crate) fn is_libsvm(&self) -> bool {
        matches!(self.kind, Kind::Libsvm)
    }

    /// Finds columns that are not in the first rows: all of them, or the `wanted`.
    ///
    /// # Errors
    /// If the file cannot be read, or there is nothing in it where all columns are asked for.
    pub(crate) fn look_for(&mut self, wanted: Option<&[&str]>) -> Result<()> {
        if let Some(names) = self.rows.look_for(wanted)? {
            self.names = names;
        }
        if self.names.is_empty() && wanted.is_none() {
            return Err(empty(&self.file));
        }
        Ok(())
    }

    /// Adds columns that all rows lack, where a row may lack columns.
    pub(crate) fn add_missing<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        if let Kind::JsonLines = self.kind {
            for name in names {
                if !self.names.iter().any(|known| known == name) {
                    self.names.push(name.to_owned());
                }
            }
        }
    }

    /// What the user should know about the rows read so far.
    pub(crate) fn notices(&self) -> Notices {
        let mut notices = self.rows.notices();
        if let Some(encoding) = self.foreign.get() {
            notices.push(format!("{} is not UTF-8; read as {encoding}", self.shown()));
        }
        notices
    }

    /// An error about the columns, with the hint that another sheet of the file may have them.
    pub(crate) fn with_sheets(&self, error: Error) -> Error {
        match self.rows.notices().pop() {
            Some(notice) => error.hint(notice),
            None => error,
        }
    }

    /// The file's name for a message.
    pub(crate) fn shown(&self) -> String {
        match self.file.to_str() {
            Some("-") => "standard input".to_owned(),
            _ => self.file.display().to_string(),
        }
    }

    pub(crate) fn fix_width(&mut self) {
        self.rows.fix_width();
    }

    pub(crate) fn grows(&self) -> bool {
        self.rows.grows()
    }

    pub(crate) fn remaining(&self) -> Option<usize> {
        self.rows.remaining()
    }

    pub(crate) fn left_out(&self) -> usize {
        self.rows.left_out()
    }

    /// The lines of the rows that were read last, where the format has lines.
    pub(crate) fn lines(&mut self) -> &[u64] {
        self.rows.log().map_or(&[], |log| &log.lines)
    }

    /// For each row that was passed over, how many of the rows that were read last lie before it.
    pub(crate) fn gaps(&mut self) -> &[usize] {
        self.rows.log().map_or(&[], |log| &log.gaps)
    }

    /// What was passed over.
    pub(crate) fn refused(&mut self) -> RefusedRows {
        self.rows.log().map(RowLog::refused).unwrap_or_default()
    }

    /// The type of a column that is passed through to the output.
    pub(crate) fn kept_type(&self, column: usize) -> KeptType {
        self.rows.kept_type(column)
    }

    /// Appends up to `max` rows to `columns` (which stand in the file's order); fewer only at the end.
    pub(crate) fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        self.rows.fill(max, columns)
    }

    /// Finds the labels. `Ok(None)`: they are not given, and none were found.
    pub(crate) fn find_label(&self, label: &Label) -> Result<Option<LabelAt>> {
        if let Label::None = label {
            return Ok(Some(LabelAt::None));
        }
        if let Label::File(path) = label {
            return Side::open(path).map(|side| Some(LabelAt::Side(side)));
        }
        match &self.kind {
            Kind::Libsvm => {
                return match label {
                    Label::Auto | Label::First | Label::Index(1) => Ok(Some(LabelAt::Column(0))),
                    _ => Err(Error::data("in the `label index:value` form the label is the first word of a line")
                        .at_file(&self.file)
                        .hint("leave out `label`, or give `label` first")),
                };
            }
            #[cfg(feature = "npz")]
            Kind::Archive(archive, features) => {
                let names = archive.names();
                let side = match label {
                    Label::Auto => ["y", "labels", "label", "target", "Y", "class", "arr_1"]
                        .into_iter()
                        .find(|want| names.contains(want) && want != features),
                    Label::Name(name) => Some(name.as_str()),
                    _ => None,
                };
                if let Some(name) = side {
                    let array = archive.array(name)?;
                    return Side::new(&self.file, name, array.width(), Box::new(array))
                        .map(|side| Some(LabelAt::Side(side)));
                }
            }
            Kind::Idx => {
                if let (Label::Auto, Some(path)) = (label, idx::sibling(&self.file)) {
                    return Side::open(&path).map(|side| Some(LabelAt::Side(side)));
                }
            }
            Kind::Columns | Kind::JsonLines => {}
        }
        let width = self.names.len();
        if width == 0 {
            return Err(empty(&self.file));
        }
        let found = match label {
            Label::Auto => {
                if !self.named {
                    return Ok(None);
                }
                let found =
                    LABEL_NAMES.iter().find_map(|want| self.names.iter().position(|n| n.eq_ignore_ascii_case(want)));
                match found {
                    Some(index) => index,
                    None => return Ok(None),
                }
            }
            Label::First => 0,
            Label::Last => width - 1,
            Label::Index(index) => {
                let name = index.to_string();
                let named = self.names.iter().position(|n| *n == name);
                match named.filter(|_| self.named).or(index.checked_sub(1)) {
                    Some(at) if at < width => at,
                    _ => {
                        return Err(Error::data(format!(
                            "there is no column {index} for the label: the file has {width}"
                        ))
                        .at_file(&self.file)
                        .at_column(name)
                        .hint("columns count from 1; `label` last is the last one"));
                    }
                }
            }
            Label::Name(name) => match self.names.iter().position(|n| n == name) {
                Some(at) if self.named => at,
                _ => {
                    let known = if self.named {
                        format!("; the columns are: {}", list(&self.names))
                    } else {
                        "; the file has no column names".to_owned()
                    };
                    return Err(Error::data(format!("there is no column {}{known}", quoted(name)))
                        .at_file(&self.file)
                        .at_column(name)
                        .hint("give `label` as it is in the file, a position from 1, first or last"));
                }
            },
            Label::None | Label::File(_) => return Ok(None),
        };
        Ok(Some(LabelAt::Column(found)))
    }

    /// The error that a training table has no labels.
    pub(crate) fn no_label(&self) -> Error {
        let known = if self.named {
            format!("the columns are: {}", list(&self.names))
        } else {
            format!("the file has {} without names", count(self.names.len(), "column"))
        };
        Error::data(format!("it is not clear where the labels are; {known}")).at_file(&self.file).hint(
            "give `label` by name, `label` last if it is the last column, or `label` none for methods that use no labels",
        )
    }
}

impl Side {
    fn open(path: &Path) -> Result<Side> {
        // Else the first of a list of class names would be taken for a header.
        let options = ReadOptions { header: Some(false), separator: Some(b','), ..ReadOptions::default() };
        let mut source = Source::open(path, &options)?;
        source.look_for(None)?;
        #[cfg(feature = "npz")]
        if let Kind::Archive(..) = source.kind {
            return Err(Error::data("labels are not read from an archive of arrays")
                .at_file(path)
                .hint("put the labels beside the features in one NPZ as y, or give an NPY, IDX or text file"));
        }
        Side::new(&source.file, "label", source.names.len(), source.rows)
    }

    fn new(file: &Arc<Path>, name: &str, width: usize, rows: Box<dyn RowSource>) -> Result<Side> {
        if width != 1 {
            return Err(Error::data(format!("a row of labels has {width} values instead of one"))
                .at_file(file)
                .at_column(name)
                .hint("give one label for each row"));
        }
        Ok(Side { file: Arc::clone(file), name: name.to_owned(), rows })
    }

    /// The type of the labels, if they are passed through to the output.
    pub(crate) fn kept_type(&self) -> KeptType {
        self.rows.kept_type(0)
    }

    /// Appends the labels of exactly `count` rows, and passes over those of the rows between them that were passed over.
    pub(crate) fn fill(&mut self, count: usize, gaps: &[usize], column: &mut Vec<ColumnBuilder>) -> Result<()> {
        let mut before = 0;
        for &gap in gaps {
            self.take(gap - before, column)?;
            self.take(1, &mut vec![ColumnBuilder::new("", Want::Skip, Arc::clone(&self.file))])?;
            before = gap;
        }
        self.take(count - before, column)
    }

    fn take(&mut self, count: usize, column: &mut Vec<ColumnBuilder>) -> Result<()> {
        if self.rows.fill(count, column)? < count {
            return Err(Error::data("there are fewer labels than rows")
                .at_file(&self.file)
                .at_column(&self.name)
                .hint("give one label for each row, in the same order"));
        }
        Ok(())
    }

    /// Checks that no labels are left over.
    pub(crate) fn at_end(&mut self, column: &mut Vec<ColumnBuilder>) -> Result<()> {
        if self.rows.fill(1, column)? > 0 {
            return Err(Error::data("there are more labels than rows")
                .at_file(&self.file)
                .at_column(&self.name)
                .hint("give one label for each row, in the same order"));
        }
        Ok(())
    }
}
