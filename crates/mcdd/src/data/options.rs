//! How a file is to be read.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::kept::PassThrough;
use super::sample::RowLimit;

/// What is given about a file; everything else is found from its content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOptions {
    /// Where the labels are (default: [`Label::Auto`]).
    pub label: Label,
    /// Whether a text file's first row holds the column names (default: found).
    pub header: Option<bool>,
    /// A text file's separator; a space stands for any run of spaces and tabs (default: found).
    pub separator: Option<u8>,
    /// The worksheet of an Excel file: its name, or its position from 1 (default: the first).
    pub sheet: Option<String>,
    /// Columns that are categories even where their cells are numbers, dates or free text. An entry is a name, a position
    /// from 1, a pattern (`*` stands for any text, `?` for one character), or several of these, separated by commas; an entry
    /// that is the name of a column as it stands is that column alone.
    pub categorical: Vec<String>,
    /// Columns to leave out, given as those of `categorical`.
    pub drop: Vec<String>,
    /// A column, by name or position from 1, whose equal cells mark rows that belong together, such as those of one
    /// patient or machine. Such rows are never divided between training and calibration or test rows. It is not a
    /// feature.
    pub group: Option<String>,
    /// Columns to train on even if they look like an identifier, given as those of `categorical`.
    pub keep: Vec<String>,
    /// Whether rows without a label are left out and counted; in training they are an error otherwise. At prediction it
    /// applies to files with labels.
    pub skip_unlabeled: bool,
    /// Classes with fewer rows than this are left out and named; 0 keeps all.
    pub min_class: usize,
    /// Keeps a random sample of the rows of a larger table, drawn while it is read; small classes are kept whole. `None` keeps all
    /// rows.
    pub limit: Option<RowLimit>,
    /// Whether images that cannot be used are left out and reported with their reasons, and not an error.
    pub skip_bad: bool,
    /// Columns that prediction passes through to its output, whether the model uses them or not; for tables.
    pub pass_through: PassThrough,
}

/// Where the labels are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Label {
    /// A column called `label`, `labels`, `class`, `target` or `y` (in any case); the first token of the
    /// `label index:value` form; the labels file beside an IDX images file; the array of that name in an NPZ; for
    /// images the name of their folder, and the labels in CIFAR's and SVHN's files.
    #[default]
    Auto,
    /// No labels.
    None,
    /// The first column.
    First,
    /// The last column.
    Last,
    /// The column at this position, counted from 1; a column that has this number as its name takes precedence.
    Index(usize),
    /// The column (or the NPZ array) of this name.
    Name(String),
    /// A separate file with one label per row (NPY, IDX or text).
    File(PathBuf),
}

impl FromStr for Label {
    type Err = Infallible;

    /// `auto`, `none`, `first` and `last` are words; digits are a position; an existing file that ends in
    /// `.npy`, `.idx`, `.gz`, `.txt` or `ubyte` is a file of labels; anything else is a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Label::Auto,
            "none" => Label::None,
            "first" => Label::First,
            "last" => Label::Last,
            _ => match text.parse::<usize>() {
                Ok(index) if index.to_string() == text => Label::Index(index),
                _ => {
                    let path = Path::new(text);
                    let ending = [".npy", ".idx", ".gz", ".txt", "ubyte"].iter().any(|e| text.ends_with(e));
                    if ending && path.is_file() { Label::File(path.to_owned()) } else { Label::Name(text.to_owned()) }
                }
            },
        })
    }
}

/// A part of a set of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The images to train on.
    #[default]
    Train,
    /// The images to test on.
    Test,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Train => "train",
            Part::Test => "test",
        })
    }
}

/// The names that [`Label::Auto`] looks for, in this order.
pub(crate) const LABEL_NAMES: [&str; 5] = ["label", "labels", "class", "target", "y"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_from_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("labels.npy");
        std::fs::write(&file, b"").unwrap();
        let file = file.to_str().unwrap();
        for (text, want) in [
            ("auto", Label::Auto),
            ("none", Label::None),
            ("first", Label::First),
            ("last", Label::Last),
            ("3", Label::Index(3)),
            ("03", Label::Name("03".into())),
            ("species", Label::Name("species".into())),
            ("not there.npy", Label::Name("not there.npy".into())),
            (file, Label::File(file.into())),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
    }
}
