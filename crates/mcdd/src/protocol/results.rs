//! The results of a grid in a file with one line per cell, appended when the cell is done.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Method, Scenario};
use crate::error::{Error, Result};
use crate::files;
use crate::train::Settings;

/// The name of the file in its folder.
pub const FILE: &str = "results.jsonl";
/// Locked by the process that writes.
const LOCK: &str = ".lock";
/// The largest results file.
const MAX_BYTES: u64 = 1 << 30;

/// The data that the cells were computed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// A name for titles: of a data set, or of a file.
    pub title: String,
    /// The name in [`sets`](crate::data::sets), if it is one of them.
    pub set: Option<String>,
    /// A sentence with the number of rows, and whether they are all of a published set.
    pub coverage: String,
    /// Classes, in the order of the data, and their rows.
    pub classes: Vec<(String, usize)>,
    /// The SHA-256 of every value in the data, so that results of other data are refused.
    pub sha256: String,
    /// For images: the network. The classes are then the out-of-distribution sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
}

/// The result of one method, one class left out, one fold and one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// [`About::sha256`] of the data.
    pub data: String,
    /// [`Method::name`].
    pub method: String,
    /// The class that was left out.
    pub ood: String,
    /// The tested fold, from 0.
    pub fold: usize,
    /// The number of folds.
    pub folds: usize,
    /// The seed of the folds; that of the networks is among the settings.
    pub seed: u64,
    /// The measurements; none if the cell failed.
    pub measured: Option<Scenario>,
    /// The error if the cell failed.
    pub error: Option<String>,
    /// Seconds to train on one thread, and to score; a network that several methods share counts for the first alone.
    pub seconds: [f64; 2],
    /// All settings of the method.
    pub settings: Settings,
    /// The version of this program.
    pub version: String,
}

impl Cell {
    /// Whether all numbers are in their range.
    fn is_sound(&self) -> bool {
        let fraction = |v: f64| (0.0..=1.0).contains(&v);
        self.fold < self.folds
            && self.measured.is_some() != self.error.is_some()
            && self.measured.as_ref().is_none_or(|m| {
                m.accuracy.is_none_or(fraction) && m.detection.rows().iter().all(|row| fraction(row.value))
            })
    }
}

/// The key of a cell: seed, fold, class and method, in the order of the tables.
type Key = (u64, usize, usize, (usize, String));

/// A line of the file: the first describes the data, each other one is a cell.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    About {
        /// The version of the format; files without one have the first.
        #[serde(default = "first")]
        format: u32,
        about: About,
    },
    Cell(Box<Cell>),
}

/// The format that is written.
const FORMAT: u32 = 1;

fn first() -> u32 {
    1
}

impl About {
    /// Whether it is the same data; the title may differ.
    fn same(&self, other: &About) -> bool {
        (&self.sha256, &self.set, &self.classes, &self.net) == (&other.sha256, &other.set, &other.classes, &other.net)
    }
}

/// All cells of a folder.
pub struct Results {
    path: PathBuf,
    about: About,
    cells: BTreeMap<Key, Cell>,
    file: File,
    /// Locked while this value exists: two processes must not write to one file.
    _lock: File,
}

impl Results {
    /// Opens the results in a folder, or creates them.
    ///
    /// # Errors
    /// If the folder cannot be written or is in use, or holds results of other data or folds.
    pub fn open(folder: &Path, about: &About, folds: usize) -> Result<Results> {
        if folder.exists() && !folder.is_dir() {
            return Err(Error::setting("is not a folder").at_file(folder).hint("give a folder as `output`"));
        }
        fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
        // Listed first: whatever another run wrote here, its results were there before.
        let foreign = fs::read_dir(folder).map_err(|e| Error::io(e, folder))?.flatten().any(|f| f.file_name() != LOCK);
        if foreign && !folder.join(FILE).exists() {
            return Err(Error::setting("has files in it, but no results")
                .at_file(folder)
                .hint("give a new folder as `output`"));
        }
        let lock_path = folder.join(LOCK);
        let lock = File::create(&lock_path).map_err(|e| Error::io(e, &lock_path))?;
        if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
            return Err(Error::setting("is in use by another run")
                .at_file(folder)
                .hint("wait for it, or give another folder as `output`"));
        }
        files::remove_unfinished(folder)?;
        let path = folder.join(FILE);
        let io = |e| Error::io(e, &path);
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(io)?;
        let (old, kept) = read(&path)?;
        let mut cells = BTreeMap::new();
        match old {
            None => {
                file.set_len(0).map_err(io)?;
                file.write_all(&line(&Line::About { format: FORMAT, about: about.clone() })?).map_err(io)?;
            }
            Some((old, all)) => {
                let other = |what: &str| {
                    Err(Error::setting(format!("has results of {what}"))
                        .at_file(&path)
                        .hint("give another folder as `output`"))
                };
                if !old.same(about) {
                    return other(&format!("other data ({})", old.coverage));
                }
                for cell in all {
                    if cell.folds != folds {
                        return other(&format!("{} folds", cell.folds));
                    }
                    cells.insert(key(about, &cell)?, cell);
                }
                // Removes an incomplete line of a process that was killed.
                file.set_len(kept).map_err(io)?;
            }
        }
        Ok(Results { path, about: about.clone(), cells, file, _lock: lock })
    }

    /// The data of the cells.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// All cells, sorted by seed, fold, class and method.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.values()
    }

    /// Checks that earlier results of a method have the same settings.
    ///
    /// # Errors
    /// If they have others.
    pub fn check(&self, method: &Method) -> Result<()> {
        let other = |c: &&Cell| {
            c.method == method.name && c.settings != (Settings { seed: c.settings.seed, ..method.settings.clone() })
        };
        match self.cells.values().find(other) {
            None => Ok(()),
            Some(_) => Err(Error::setting(format!("has results of {} with other settings", method.name))
                .at_file(&self.path)
                .hint("give another folder as `output`")),
        }
    }

    /// The cell of a method.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn find(&self, method: &Method, ood: &str, fold: usize, seed: u64) -> Result<Option<&Cell>> {
        let class = position(&self.about, ood)?;
        Ok(self.cells.get(&(seed, fold, class, Method::rank(&method.name))))
    }

    /// Adds a cell, in memory and on disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, cell: Cell) -> Result<()> {
        let key = key(&self.about, &cell)?;
        let io = |e| Error::io(e, &self.path);
        let before = self.file.metadata().map_err(io)?.len();
        if let Err(e) = self.file.write_all(&line(&Line::Cell(Box::new(cell.clone())))?) {
            // An incomplete line would make the next one unreadable.
            let _ = self.file.set_len(before);
            return Err(io(e));
        }
        self.cells.insert(key, cell);
        Ok(())
    }

    /// Rewrites the file in order. Apart from the seconds it does not depend on the order in which cells were computed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn sort(&mut self) -> Result<()> {
        let io = |e: io::Error| Error::io(e, &self.path);
        files::write_beside(&self.path, |w| {
            w.write_all(&line(&Line::About { format: FORMAT, about: self.about.clone() })?).map_err(io)?;
            for cell in self.cells.values() {
                w.write_all(&line(&Line::Cell(Box::new(cell.clone())))?).map_err(io)?;
            }
            Ok(())
        })?;
        self.file = OpenOptions::new().append(true).open(&self.path).map_err(io)?;
        Ok(())
    }
}

/// Reads the results in a folder.
///
/// # Errors
/// If there are none, or the file is not a results file.
pub fn load(folder: &Path) -> Result<(About, Vec<Cell>)> {
    let path = folder.join(FILE);
    if !path.is_file() {
        return Err(Error::data("there are no results")
            .at_file(&path)
            .hint("give a folder with the results of a benchmark"));
    }
    let (Some((about, cells)), _) = read(&path)? else {
        return Err(Error::data("there are no results yet").at_file(&path).hint("resume the benchmark"));
    };
    // The last result of a cell counts.
    let mut sorted = BTreeMap::new();
    for cell in cells {
        sorted.insert(key(&about, &cell)?, cell);
    }
    Ok((about, sorted.into_values().collect()))
}

/// The contents of a file; none without a complete first line.
type Contents = Option<(About, Vec<Cell>)>;

/// The contents, and the length of the complete lines.
fn read(path: &Path) -> Result<(Contents, u64)> {
    let bytes = files::read_at_most(path, MAX_BYTES)?;
    let kept = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
    let foreign = || Error::format("is not a results file").at_file(path).hint("give another folder");
    // An incomplete first line must at least begin as ours does.
    if kept == 0 && !bytes.iter().zip(b"{\"format\":").all(|(a, b)| a == b) {
        return Err(foreign());
    }
    let (mut about, mut cells) = (None, Vec::new());
    for (i, text) in bytes[..kept].split(|&b| b == b'\n').enumerate().filter(|(_, t)| !t.is_empty()) {
        let wrong =
            |what: &str| Error::format(format!("line {} is {what}", i + 1)).at_file(path).hint("give another folder");
        match (serde_json::from_slice(text), &about) {
            (Ok(Line::About { format, .. }), _) if format > FORMAT => {
                return Err(Error::format("was written by a newer version of mcdd")
                    .at_file(path)
                    .hint("use that version"));
            }
            (Ok(Line::About { about: first, .. }), None) => about = Some(first),
            (Ok(Line::Cell(cell)), Some(first)) if cell.data == first.sha256 && cell.is_sound() => cells.push(*cell),
            (Ok(_), _) => return Err(wrong("out of place")),
            (Err(e), _) => return Err(wrong(&format!("not a result: {e}"))),
        }
    }
    Ok((about.map(|a| (a, cells)), kept as u64))
}

fn line(line: &Line) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line).map_err(|e| Error::format(e.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn key(about: &About, cell: &Cell) -> Result<Key> {
    Ok((cell.seed, cell.fold, position(about, &cell.ood)?, Method::rank(&cell.method)))
}

fn position(about: &About, class: &str) -> Result<usize> {
    about
        .classes
        .iter()
        .position(|(name, _)| name == class)
        .ok_or_else(|| Error::data(format!("there is no class {class:?}")).hint("write the class as in the data"))
}
