//! The files of a benchmark's report.

use std::path::{Path, PathBuf};

use super::{Study, csv, latex, markdown, page};
use crate::error::{Error, Result};
use crate::files::write_beside;

/// Writes `table.md`, `table.csv`, `table.tex` and `index.html` into a folder. The page includes the SVG figures that are in
/// the folder.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write(folder: &Path, study: &Study) -> Result<()> {
    let files = [
        ("table.md", markdown(study)),
        ("table.csv", csv(study)),
        ("table.tex", latex(study)),
        ("index.html", page(study, &figures_in(folder)?)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        write_beside(&path, |w| w.write_all(text.as_bytes()).map_err(|e| Error::io(e, &path)))?;
    }
    Ok(())
}

/// The SVG figures in a folder, sorted by name; larger files are not figures of this library.
pub(in crate::report) fn figures_in(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    const LARGEST: u64 = 16 << 20;
    let io = |e| Error::io(e, folder);
    let figure = |path: &PathBuf| {
        let there = path.metadata().is_ok_and(|m| m.is_file() && m.len() <= LARGEST);
        there && path.extension() == Some("svg".as_ref())
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        paths.extend(Some(entry.map_err(io)?.path()).filter(figure));
    }
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((name, std::fs::read(&path).map_err(|e| Error::io(e, &path))?))
    };
    paths.into_iter().map(read).collect()
}
