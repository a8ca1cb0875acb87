//! Zip archives: NumPy's and Excel's.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use super::guard::guard;
use super::input::Storage;
use crate::error::{Error, Result};

/// What a directory and its members are read from.
pub(super) trait ReadSeek: Read + Seek + Send {}

impl<T: Read + Seek + Send> ReadSeek for T {}

/// A reader of the archive from its start.
pub(super) fn reopen(file: &Path, storage: &Storage) -> Result<BufReader<Box<dyn ReadSeek>>> {
    let handle: Box<dyn ReadSeek> = match storage {
        Storage::Bytes(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
        Storage::File | Storage::Stream => Box::new(File::open(file).map_err(|e| Error::io(e, file))?),
    };
    Ok(BufReader::new(handle))
}

/// Whether an archive has a member of which this is true; not if it cannot be read.
pub(super) fn any_member(file: &Path, storage: &Storage, is: impl Fn(&str) -> bool) -> bool {
    let found = guard(|| {
        let mut archive = zip::ZipArchive::new(reopen(file, storage).ok()?).ok()?;
        let mut name = |i: usize| Some(archive.by_index_raw(i).ok()?.name().ok()?.into_owned());
        (0..).map_while(&mut name).any(|name| is(&name)).then_some(())
    });
    found.flatten().is_some()
}
