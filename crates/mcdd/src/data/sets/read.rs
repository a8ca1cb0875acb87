//! Reading and counting the files of a data set.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::super::images::{ImageOptions, ImageShape, Images};
use super::super::input::{Input, read_error};
use super::super::options::{Label, Part, ReadOptions};
use super::super::table::Table;
use super::list::ALL;
use super::set::{Coverage, Form, Found, Loaded, LoadedImages, Set};
use crate::error::{Error, Result};

impl Set {
    /// The number of rows in the files that were found; `None` where that takes reading all of them.
    ///
    /// # Errors
    /// If a file cannot be read.
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
                    // Some archivers leave files whose names begin with a dot.
                    let images = |n: &str| !n.starts_with('.') && (n.ends_with(".png") || n.ends_with(".jpg"));
                    let entries = std::fs::read_dir(path).map_err(io)?;
                    entries.flatten().filter(|e| e.file_name().to_str().is_some_and(images)).count() as u64
                }
                Form::Matlab => return Ok(None),
            };
        }
        Ok(usize::try_from(rows).ok())
    }

    /// Reads the files of the set that are in the folder of all data.
    ///
    /// # Errors
    /// If nothing is there, a file cannot be read, or it is another set; for sets of images.
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

    /// Reads the files of a part of a set of images that are in the folder of all data, resized to a shape if one is given.
    ///
    /// # Errors
    /// If nothing is there, a file cannot be read, or it is another set; for tables, or a part that the set
    /// does not have.
    pub fn read_images(&'static self, dir: &Path, part: Part, shape: Option<ImageShape>) -> Result<LoadedImages> {
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
        let files: Vec<PathBuf> = found.of_part(part).cloned().collect();
        let Some(first) = files.first() else {
            return Err(Error::data(format!("the {part} part of {} is not there", self.title))
                .at_file(&found.folder)
                .hint(format!("download it from {}", self.page)));
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

    /// Whether images of a part are in the folder of all data.
    pub fn has_images(&self, dir: &Path, part: Part) -> bool {
        self.is_images() && self.locate(dir).is_some_and(|found| found.of_part(part).next().is_some())
    }

    fn not_found(&self, dir: &Path) -> Error {
        let first = self.files.first().copied().unwrap_or_default();
        let folder = self.folders.first().copied().unwrap_or_default();
        Error::data(format!("{} is not there: looked for {folder}/{first} and the like", self.title))
            .at_file(dir)
            .hint(format!("download {} from {}; see also the list of data sets", self.name, self.page))
    }
}

impl Found {
    /// The files of images of a part.
    fn of_part(&self, part: Part) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().filter(move |path| !is_labels(path) && is_test(path) == (part == Part::Test))
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

/// The number of rows in an IDX file's header.
fn idx_rows(path: &Path) -> Result<u64> {
    match Input::open(path)?.prefix.as_slice() {
        [0, 0, _, 1..=255, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d]).into()),
        _ => Err(Error::data("it is not an IDX file").at_file(path).hint("fetch it again")),
    }
}
