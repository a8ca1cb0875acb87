//! What a published data set is, and where its files are.

use std::fmt;
use std::path::{Path, PathBuf};

use super::super::images::Images;
use super::super::options::Part;
use super::super::table::Table;
use super::super::text::thousands;
use crate::error::{Error, Result, count, plural};

/// A published data set.
#[derive(Debug)]
pub struct Set {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// The name in papers.
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
    /// The files to download, all to the folder [`Set::name`].
    pub downloads: &'static [Download],
    /// Where the files may be, below the folder of all data: in the first of these that has any. An absolute path
    /// is used as it is.
    pub(super) folders: &'static [&'static str],
    /// The files, which may be gzipped or end in `.Z`.
    pub(super) files: &'static [&'static str],
    pub(super) form: Form,
}

/// A file of a publisher.
#[derive(Debug)]
pub struct Download {
    /// Its address.
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
pub(super) enum Form {
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

/// How much of a set was read. Its text is a line for every output that is based on it.
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

impl Coverage {
    /// Whether it is all of the set, or of its part.
    pub fn complete(&self) -> bool {
        (self.rows, self.features, self.classes) == (self.published(), self.set.features, self.set.classes)
    }

    /// The rows of the set, or of its part, as published.
    pub fn published(&self) -> usize {
        self.set.published(self.part)
    }

    /// Checks that it can be this set.
    pub(super) fn check(&self, place: &Path) -> Result<()> {
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
                .hint(format!("download the data set {} again, from {}", set.name, set.page)));
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
                return write!(
                    f,
                    ": {} {}, {}, {}",
                    thousands(*rows),
                    plural(*rows, "row"),
                    count(*features, "feature"),
                    count(*classes, "class")
                );
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
    /// Whether [`Set::read`] can read it as a table; else it is for image models.
    pub fn is_table(&self) -> bool {
        matches!(self.form, Form::Sparse | Form::LabelLast | Form::Idx)
    }

    /// The files of the set in the folder of all data, in their order; `None` where there is none.
    pub fn locate(&self, dir: &Path) -> Option<Found> {
        self.folders.iter().find_map(|folder| {
            let folder = dir.join(folder);
            let mut found = Found { folder, files: Vec::new(), missing: Vec::new() };
            for &name in self.files {
                // `train-images-idx3-ubyte` is also spelled `train-images.idx3-ubyte`.
                let spelled = [name.to_owned(), name.replace("-idx", ".idx")];
                let packed = spelled.iter().flat_map(|n| ["", ".gz", ".Z"].map(|end| format!("{n}{end}")));
                // A pipe of this name would be waited for.
                match packed.map(|n| found.folder.join(n)).find(|path| path.is_file() || path.is_dir()) {
                    Some(path) => found.files.push(path),
                    None => found.missing.push(name),
                }
            }
            (!found.files.is_empty()).then_some(found)
        })
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

    /// Whether a mirrored image keeps its class: not for digits.
    pub fn mirrors(&self) -> bool {
        !matches!(self.name, "mnist" | "svhn")
    }
}
