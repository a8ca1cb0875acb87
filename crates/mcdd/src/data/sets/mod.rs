//! The data sets of the paper, and Fashion-MNIST: what they are, where they come from, and what is there of them.
//!
//! ```no_run
//! use mcdd::data::sets;
//!
//! let gas = sets::find("gas").unwrap();
//! let loaded = gas.read("data".as_ref())?; // from data/gas/batch1.dat and so on
//! println!("{}", loaded.coverage); // GasSensor: 6,697 of 13,910 rows
//! let digits = sets::find("svhn").unwrap().read_images("data".as_ref(), sets::Part::Test, None)?;
//! println!("{}", digits.coverage); // SVHN (test): 26,032 images, 10 classes
//! # Ok::<(), mcdd::Error>(())
//! ```

mod list;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::images::{ImageOptions, Images, Shape};
use super::input::{Input, read_error};
use super::options::{Label, ReadOptions};
use super::table::Table;
use crate::error::{Error, Result};
pub use list::ALL;

/// A published data set.
#[derive(Debug)]
pub struct Set {
    /// What users type.
    pub name: &'static str,
    /// What papers call it.
    pub title: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// The rows as published; for a table those of the paper's Table 1.
    pub rows: usize,
    /// The features of a row; for images their values.
    pub features: usize,
    /// The classes; none where the set has no labels.
    pub classes: usize,
    /// How many of the rows are the test part, where the publisher divides them; else none.
    pub test_rows: usize,
    /// The terms, in a few words.
    pub license: &'static str,
    /// The publisher's page.
    pub page: &'static str,
    /// What to fetch, all of which goes to the folder [`Set::name`].
    pub downloads: &'static [Download],
    /// Where the files may be, below the folder of all data: in the first of these that has any. One that begins
    /// at the root is looked for there.
    folders: &'static [&'static str],
    /// The files, which may be gzipped or end in `.Z`.
    files: &'static [&'static str],
    form: Form,
}

/// A file of a publisher.
#[derive(Debug)]
pub struct Download {
    /// Where it is.
    pub url: &'static str,
    /// Its name, also on a mirror.
    pub file: &'static str,
    /// Its length, where known.
    pub bytes: Option<u64>,
    /// Its checksum, where known.
    pub checksum: Option<Checksum>,
}

/// A checksum in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// MD5, for files of which nothing better was published: it finds damage, not malice.
    Md5(&'static str),
    /// SHA-256.
    Sha256(&'static str),
}

/// How the files hold the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `label index:value` text.
    Sparse,
    /// Numbers separated by spaces, the label last.
    LabelLast,
    /// IDX images, with their labels in files beside them.
    Idx,
    /// Records of so many bytes.
    Records(u64),
    /// Images as files in a folder.
    Folder,
    /// MATLAB arrays.
    Matlab,
}

/// Where a set was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The folder of its files.
    pub folder: PathBuf,
    /// The files that are there.
    pub files: Vec<PathBuf>,
    /// The names of those that are not.
    pub missing: Vec<&'static str>,
}

/// A part of a set of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// What models are trained on.
    #[default]
    Train,
    /// What they are tested on.
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

/// A part of a set of images in memory.
#[derive(Clone, Debug)]
pub struct LoadedImages {
    /// Its images.
    pub images: Images,
    /// How much of the published part they are.
    pub coverage: Coverage,
    /// What the user should know about them.
    pub notices: Vec<String>,
}

/// A set in memory.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its rows.
    pub table: Table,
    /// How much of the published set they are.
    pub coverage: Coverage,
}

/// How much of a set is there. As text a line for every output that rests on it.
#[derive(Clone, Copy, Debug)]
pub struct Coverage {
    /// The set as published.
    pub set: &'static Set,
    /// The rows that were read.
    pub rows: usize,
    /// The features that were read.
    pub features: usize,
    /// The classes that were read.
    pub classes: usize,
    /// The part that was read; nothing where it is the whole set.
    pub part: Option<Part>,
}

/// The set of this name, in any case.
pub fn find(name: &str) -> Option<&'static Set> {
    ALL.iter().find(|set| set.name.eq_ignore_ascii_case(name))
}

/// A number with its thousands apart: 13,910.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Coverage {
    /// Whether it is all of the set, or of its part.
    pub fn complete(&self) -> bool {
        (self.rows, self.features, self.classes) == (self.published(), self.set.features, self.set.classes)
    }

    /// The rows of the set, or of its part, as published.
    pub fn published(&self) -> usize {
        self.set.published(self.part)
    }

    /// Checks that it is this set at all.
    fn check(&self, place: &Path) -> Result<()> {
        let set = self.set;
        for (what, here, published, fits) in [
            ("features", self.features, set.features, self.features == set.features),
            ("rows", self.rows, self.published(), self.rows <= self.published()),
            ("classes", self.classes, set.classes, self.classes <= set.classes),
        ] {
            if !fits {
                let (here, published) = (thousands(here), thousands(published));
                return Err(Error::data(format!(
                    "this is not {}: it has {here} {what}, and {} has {published}",
                    set.title, set.title
                ))
                .at_file(place)
                .hint(format!("fetch it anew with `mcdd datasets get {}`, or from {}", set.name, set.page)));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coverage { set, rows, features, classes, part } = self;
        write!(f, "{}", set.title)?;
        if let Some(part) = part {
            write!(f, " ({part})")?;
        }
        let what = if part.is_some() { "images" } else { "rows" };
        match (self.complete(), part) {
            (true, None) => {
                return write!(f, ": {} rows, {features} features, {classes} classes", thousands(*rows));
            }
            (true, Some(_)) if *classes == 0 => return write!(f, ": {} images", thousands(*rows)),
            (true, Some(_)) => return write!(f, ": {} images, {classes} classes", thousands(*rows)),
            (false, _) => {}
        }
        write!(f, ": {} of {} {what}", thousands(*rows), thousands(self.published()))?;
        if *classes != set.classes {
            write!(f, ", {classes} of {} classes", set.classes)?;
        }
        Ok(())
    }
}

impl Set {
    /// Whether [`Set::read`] can make a table of it; else it is for image models.
    pub fn is_table(&self) -> bool {
        matches!(self.form, Form::Sparse | Form::LabelLast | Form::Idx)
    }

    /// The files of the set in the folder of all data, in its order; nothing where there is none.
    pub fn locate(&self, dir: &Path) -> Option<Found> {
        self.folders.iter().find_map(|folder| {
            let folder = dir.join(folder);
            let mut found = Found { folder, files: Vec::new(), missing: Vec::new() };
            for &name in self.files {
                // `train-images-idx3-ubyte` is also spelled `train-images.idx3-ubyte`.
                let spelled = [name.to_owned(), name.replace("-idx", ".idx")];
                let packed = spelled.iter().flat_map(|n| ["", ".gz", ".Z"].map(|end| format!("{n}{end}")));
                match packed.map(|n| found.folder.join(n)).find(|path| path.exists()) {
                    Some(path) => found.files.push(path),
                    None => found.missing.push(name),
                }
            }
            (!found.files.is_empty()).then_some(found)
        })
    }

    /// How many rows the found files hold, without keeping them; nothing where that takes reading them whole.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn count(&self, found: &Found) -> Result<Option<usize>> {
        let mut rows = 0u64;
        for path in &found.files {
            let io = |e| Error::io(e, path);
            rows += match self.form {
                Form::Sparse | Form::LabelLast => lines(path)?,
                Form::Idx if is_labels(path) => 0,
                Form::Idx => idx_rows(path)?,
                Form::Records(bytes) => std::fs::metadata(path).map_err(io)?.len() / bytes,
                Form::Folder => {
                    // Names with a dot in front are what some archivers leave beside the files.
                    let images = |n: &str| !n.starts_with('.') && (n.ends_with(".png") || n.ends_with(".jpg"));
                    let entries = std::fs::read_dir(path).map_err(io)?;
                    entries.flatten().filter(|e| e.file_name().to_str().is_some_and(images)).count() as u64
                }
                Form::Matlab => return Ok(None),
            };
        }
        Ok(usize::try_from(rows).ok())
    }

    /// Reads what there is of the set in the folder of all data.
    ///
    /// # Errors
    /// Where nothing is there, a file cannot be read, or it is not this set; and for sets of images.
    pub fn read(&'static self, dir: &Path) -> Result<Loaded> {
        if !self.is_table() {
            let tables: Vec<&str> = ALL.iter().filter(|set| set.is_table()).map(|set| set.name).collect();
            return Err(Error::setting(format!(
                "{} is a set of images, for image models, and not a table",
                self.title
            ))
            .hint(format!("the tables are: {}", tables.join(", "))));
        }
        let found = self.locate(dir).ok_or_else(|| self.not_found(dir))?;
        let options = match self.form {
            Form::LabelLast => {
                ReadOptions { label: Label::Last, header: Some(false), separator: Some(b' '), ..ReadOptions::default() }
            }
            _ => ReadOptions::default(),
        };
        let files: Vec<PathBuf> =
            found.files.iter().filter(|path| self.form != Form::Idx || !is_labels(path)).cloned().collect();
        if files.is_empty() {
            return Err(self.not_found(dir));
        }
        let table = Table::read(&files, &options)?;
        let coverage = Coverage {
            set: self,
            rows: table.rows(),
            features: table.columns.len(),
            classes: table.classes().len(),
            part: None,
        };
        coverage.check(if let [only] = files.as_slice() { only } else { &found.folder })?;
        Ok(Loaded { table, coverage })
    }

    /// Whether [`Set::read_images`] can read it.
    pub fn is_images(&self) -> bool {
        matches!(self.form, Form::Idx | Form::Records(_) | Form::Folder | Form::Matlab)
    }

    /// The rows that are published, or those of a part.
    pub fn published(&self, part: Option<Part>) -> usize {
        match part {
            None => self.rows,
            Some(Part::Test) => self.test_rows,
            Some(Part::Train) => self.rows - self.test_rows,
        }
    }

    /// Whether an image may be mirrored and keep its class: not a digit.
    pub fn mirrors(&self) -> bool {
        !matches!(self.name, "mnist" | "svhn")
    }

    /// Reads what there is of a part of a set of images in the folder of all data, made to fit a shape if one is given.
    ///
    /// # Errors
    /// Where nothing is there, a file cannot be read, or it is not this set; and for tables, or a part that the set
    /// has not.
    pub fn read_images(&'static self, dir: &Path, part: Part, shape: Option<Shape>) -> Result<LoadedImages> {
        if !self.is_images() {
            let images: Vec<&str> = ALL.iter().filter(|set| set.is_images()).map(|set| set.name).collect();
            return Err(Error::setting(format!("{} is a table, and not a set of images", self.title))
                .hint(format!("the sets of images are: {}", images.join(", "))));
        }
        if part == Part::Train && self.test_rows == self.rows {
            return Err(Error::setting(format!("{} has images to test with only", self.title))
                .hint("train on another set, and give this one as out-of-distribution"));
        }
        let found = self.locate(dir).ok_or_else(|| self.not_found(dir))?;
        let wanted = |path: &&PathBuf| !is_labels(path) && is_test(path) == (part == Part::Test);
        let files: Vec<PathBuf> = found.files.iter().filter(wanted).cloned().collect();
        let Some(first) = files.first() else {
            return Err(Error::data(format!("of {} the part to {part} with is not there", self.title))
                .at_file(&found.folder)
                .hint(format!("`mcdd datasets get {}` fetches it", self.name)));
        };
        let label = if self.classes == 0 { Label::None } else { Label::Auto };
        let (size, channels) = (shape.map(|s| (s.height, s.width)), shape.map(|s| s.channels));
        let (images, notices) =
            Images::read(&files, &ImageOptions { label, size, channels, ..ImageOptions::default() })?;
        let coverage = Coverage {
            set: self,
            rows: images.rows(),
            features: if shape.is_some() { self.features } else { images.shape().values() },
            classes: images.classes().len(),
            part: Some(part),
        };
        coverage.check(if files.len() == 1 { first } else { &found.folder })?;
        Ok(LoadedImages { images, coverage, notices })
    }

    fn not_found(&self, dir: &Path) -> Error {
        let first = self.files.first().copied().unwrap_or_default();
        let folder = self.folders.first().copied().unwrap_or_default();
        Error::data(format!("{} is not there: looked for {folder}/{first} and the like", self.title))
            .at_file(dir)
            .hint(format!("`mcdd datasets get {}` fetches it; `mcdd datasets` tells about it", self.name))
    }
}

fn is_labels(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("labels"))
}

/// Publishers call the test part `test` or `t10k`.
fn is_test(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    name.starts_with("test") || name.starts_with("t10k")
}

/// The lines that are not blank.
fn lines(path: &Path) -> Result<u64> {
    let mut input = Input::open(path)?.into_read(0);
    let mut buffer = vec![0; 1 << 16];
    let (mut count, mut blank) = (0, true);
    loop {
        let bytes = match input.read(&mut buffer) {
            Ok(0) => return Ok(count),
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(read_error(e, path)),
        };
        for &byte in &buffer[..bytes] {
            if byte == b'\n' {
                blank = true;
            } else if blank && !byte.is_ascii_whitespace() {
                blank = false;
                count += 1;
            }
        }
    }
}

/// The rows that an IDX file's header tells of.
fn idx_rows(path: &Path) -> Result<u64> {
    match Input::open(path)?.prefix.as_slice() {
        [0, 0, _, 1..=255, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d]).into()),
        _ => Err(Error::data("it is not an IDX file").at_file(path).hint("fetch it again")),
    }
}

#[cfg(test)]
mod tests;
