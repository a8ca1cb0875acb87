//! Files are written under a temporary name and renamed, so that a crash leaves the old file or the new one.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// Writes `path` through `write`: to a temporary file in the same folder, which takes its place when all is written.
///
/// # Errors
/// If writing fails; then `path` is as it was.
pub fn write_beside(path: &Path, write: impl FnOnce(&mut (dyn Write + Send)) -> Result<()>) -> Result<()> {
    let io = |e| Error::io(e, path);
    // A link is followed, so that it stays a link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        // A device or a pipe cannot be replaced by a file.
        let mut file = BufWriter::new(fs::OpenOptions::new().write(true).open(&target).map_err(io)?);
        write(&mut file)?;
        return file.flush().map_err(io);
    }
    if target.is_dir() {
        return Err(Error::setting("is a folder").at_file(path).hint("give the name of a file"));
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666)); // less the umask, as for any new file
    }
    let mut file = builder.tempfile_in(folder).map_err(io)?;
    {
        let mut buffered = BufWriter::with_capacity(1 << 16, file.as_file_mut());
        write(&mut buffered)?;
        buffered.flush().map_err(io)?;
    }
    file.as_file().sync_all().map_err(io)?;
    file.persist(&target).map_err(|e| io(e.error))?;
    // The rename is on disk when the folder is.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// How the names of unfinished files begin and end.
pub(crate) const PREFIX: &str = ".mcdd-";
pub(crate) const SUFFIX: &str = ".part";

/// Checks that a file can be written in `folder`; long work does this before it begins.
///
/// # Errors
/// If it cannot.
pub fn check_folder(folder: &Path) -> Result<()> {
    let made = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder);
    made.map(|_| ()).map_err(|e| Error::io(e, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write_beside(&path, |w| w.write_all(b"old").map_err(|e| Error::io(e, Path::new("a")))).unwrap();
        let failed = write_beside(&path, |w| {
            w.write_all(b"half").map_err(|e| Error::io(e, Path::new("a")))?;
            Err(Error::data("broken"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn missing_folders_and_folders_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let e = write_beside(&dir.path().join("no/where"), |_| Ok(())).unwrap_err();
        assert!(e.hint_text().is_some());
        assert!(write_beside(dir.path(), |_| Ok(())).is_err());
    }
}
