//! A file that is opened and not yet read: its columns, and where its labels are.

use std::path::Path;
use std::sync::Arc;

use super::column::ColumnBuilder;
use super::delimited;
use super::idx::{self, Idx};
use super::input::{Format, Input, RowSource, Storage};
use super::libsvm;
use super::npy::Npy;
#[cfg(feature = "npz")]
use super::npz::{Archive, SideBySide};
use super::options::{LABEL_NAMES, Label, ReadOptions};
#[cfg(feature = "parquet")]
use super::parquet::Parquet;
#[cfg(not(all(feature = "npz", feature = "parquet")))]
use super::text::needs_feature;
use super::text::{list, positional_name, quoted};
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
}

/// What differs between formats once they are open.
enum Kind {
    /// Columns only.
    Columns,
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
        Ok(Source { file: Path::new("").into(), names, named: true, kind: Kind::Columns, separator: None, rows })
    }

    /// Reads the header.
    pub(crate) fn from_input(input: Input, options: &ReadOptions) -> Result<Source> {
        let file = Arc::clone(&input.file);
        let mut separator = None;
        let positional = |width: usize| (0..width).map(positional_name).collect::<Vec<_>>();
        let (names, named, kind, rows): (_, _, _, Box<dyn RowSource>) = match input.format()? {
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
            #[cfg(feature = "npz")]
            Format::Zip => return Self::open_archive(Archive::open(&file, &input.storage)?, file),
            #[cfg(not(feature = "npz"))]
            Format::Zip => return Err(needs_feature("NumPy archives (.npz)", "npz").at_file(&file)),
            _ => {
                let skip = if input.prefix.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
                if options.separator.is_none() && libsvm::looks_like(&input.prefix[skip..], input.whole) {
                    let rows = libsvm::open(input, skip);
                    (vec!["label".to_owned()], false, Kind::Libsvm, Box::new(rows))
                } else {
                    let opened = delimited::open(input, skip, options)?;
                    separator = Some(opened.separator);
                    (opened.names, opened.named, Kind::Columns, Box::new(opened.rows))
                }
            }
        };
        if names.is_empty() {
            return Err(Error::data("the file has no columns")
                .at_file(&file)
                .hint("give a file with a column for each feature"));
        }
        Ok(Source { file, names, named, kind, separator, rows })
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
            return Ok(Source {
                file,
                names: (0..array.width()).map(positional_name).collect(),
                named: false,
                kind: Kind::Archive(archive, features),
                separator: None,
                rows: Box::new(array),
            });
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
        let rows = Box::new(SideBySide(arrays));
        Ok(Source { file, names, named: true, kind: Kind::Columns, separator: None, rows })
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
            Kind::Columns => {}
        }
        let width = self.names.len();
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
            format!("the file has {} columns without names", self.names.len())
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
        let source = Source::open(path, &options)?;
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

    /// Appends exactly `count` labels.
    pub(crate) fn fill(&mut self, count: usize, column: &mut Vec<ColumnBuilder>) -> Result<()> {
        let got = self.rows.fill(count, column)?;
        if got < count {
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
