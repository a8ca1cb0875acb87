//! Files are written under a temporary name and renamed, so that a crash leaves the old file or the new one.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

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
    let mut file = unfinished(folder).map_err(io)?;
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

/// The bytes of a file that has at most `most`. A pipe would be waited for, and a device has no end: both are errors.
///
/// # Errors
/// If it cannot be read, is not a file, or has more bytes.
pub fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>> {
    let io = |e| Error::io(e, path);
    let data = fs::metadata(path).map_err(io)?;
    if data.is_dir() {
        return Err(Error::format("is a folder, not a file").at_file(path).hint("give the name of a file"));
    }
    if !data.is_file() {
        return Err(Error::format("is not a file").at_file(path).hint("a pipe or a device is not read: give a file"));
    }
    let mut bytes = Vec::new();
    if data.len() <= most {
        // It may grow while it is read.
        File::open(path).map_err(io)?.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    }
    if data.len() > most || bytes.len() as u64 > most {
        return Err(Error::format(format!("is longer than {most} bytes, the limit of such a file"))
            .at_file(path)
            .hint("give another file"));
    }
    Ok(bytes)
}

/// A file that one process at a time holds; the system releases it when the process ends. It is removed at the end.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`; none if another process holds it. A file system without locks gives it to all.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn at(path: &Path) -> std::io::Result<Option<Lock>> {
        Self::take(path, |file| match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(true),
        })
    }

    /// The same, and waits for the process that holds it.
    ///
    /// # Errors
    /// If the file cannot be written, or waiting fails.
    pub fn wait(path: &Path) -> std::io::Result<Lock> {
        loop {
            if let Some(lock) = Self::take(path, |file| file.lock().map(|()| true))? {
                return Ok(lock);
            }
        }
    }

    /// The lock of a file, beside it: for a file that is read, changed and written again. Two names of one file have one lock.
    ///
    /// # Errors
    /// If another process holds it (`setting` names what the file was given by), or it cannot be written.
    pub fn beside(file: &Path, setting: &str) -> Result<Lock> {
        let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        if target.exists() && !target.is_file() {
            return Err(Error::setting("is not a file").at_file(file).hint(format!("give another `{setting}`")));
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = target.with_file_name(format!(".{name}.lock"));
        Self::at(&path).map_err(|e| Error::io(e, &path))?.ok_or_else(|| {
            Error::setting("is in use by another process")
                .at_file(file)
                .hint(format!("wait until it ends, or give another `{setting}`"))
        })
    }

    fn take(path: &Path, lock: impl Fn(&File) -> std::io::Result<bool>) -> std::io::Result<Option<Lock>> {
        loop {
            // Opening a pipe of this name would wait.
            if fs::symlink_metadata(path).is_ok_and(|data| !data.is_file()) {
                return Err(std::io::Error::other("is not a file"));
            }
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            if !lock(&file)? {
                return Ok(None);
            }
            // The process before has removed it, and the next one would lock another file.
            if is_at(&file, path) {
                return Ok(Some(Lock { path: path.to_owned(), _file: file }));
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is held, so that who waits for it finds that it is another file now.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a file is still the one at its path.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(mine), Ok(there)) => identity(&mine) == identity(&there),
        _ => false,
    }
}

/// Whether two paths are the same file or folder, by any links; they need not exist. Standard input (`-`) is the file that
/// it is read from. What is neither a file nor a folder (a device, a pipe) is never the same.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let stdin = |path: &Path| if path == Path::new("-") { PathBuf::from("/dev/stdin") } else { path.to_owned() };
    let (a, b) = (stdin(a), stdin(b));
    match (fs::metadata(&a), fs::metadata(&b)) {
        (Ok(one), Ok(other)) => {
            (one.is_file() || one.is_dir()) && (identity(&one) == identity(&other)) && same_place(&a, &b, &one)
        }
        // One of two files exists, so that they differ.
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        (Err(_), Err(_)) => real(&a) == real(&b),
    }
}

/// Device and number of a file, where the system has them.
#[cfg(unix)]
fn identity(data: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((data.dev(), data.ino()))
}

#[cfg(not(unix))]
fn identity(_data: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

/// Compares the paths themselves where the system has no numbers of files.
fn same_place(a: &Path, b: &Path, data: &fs::Metadata) -> bool {
    identity(data).is_some() || real(a) == real(b)
}

/// The same path for all paths to a file, whether it exists or not.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let in_folder = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// Checks, before anything is read or written, that an output is not one of the inputs. `what` names the output in the
/// error, as in `output`.
///
/// # Errors
/// If it is.
pub fn check_not_input<'a>(output: &Path, what: &str, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    match inputs.into_iter().find(|input| same_file(output, input)) {
        None => Ok(()),
        Some(input) => {
            Err(Error::setting(format!("`{what}` would overwrite another file of this command: {}", input.display()))
                .at_file(output)
                .hint(format!("give another name with `{what}`")))
        }
    }
}

/// How the names of unfinished files begin and end.
const PREFIX: &str = ".mcdd-";
const SUFFIX: &str = ".part";

/// A new file with a temporary name. It is locked while this process writes it, so that no other one removes it.
fn unfinished(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666)); // less the umask, as for any new file
    }
    loop {
        let file = builder.tempfile_in(folder)?;
        // Not every file system has locks; without one nothing is removed.
        let _ = file.as_file().lock();
        // Before it was locked, another process may have taken it for one that was left.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Removes the unfinished files that killed processes left in a folder, and none that is being written.
///
/// # Errors
/// If the folder cannot be read; a file that cannot be removed stays.
pub fn remove_unfinished(folder: &Path) -> Result<()> {
    let io = |e| Error::io(e, folder);
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            let path = folder.join(&*name);
            // Opening a pipe of this name would wait.
            if !fs::symlink_metadata(&path).is_ok_and(|data| data.is_file()) {
                continue;
            }
            let Ok(file) = File::options().write(true).open(&path) else { continue };
            if file.try_lock().is_ok() {
                // It stays locked until it is removed: who has just made it waits, and sees that it is gone.
                let _ = fs::remove_file(path);
            }
        }
    }
    Ok(())
}

/// Checks that a file can be written in `folder`, and removes the unfinished files of killed processes; long work does this
/// before it begins.
///
/// # Errors
/// If it cannot.
pub fn check_folder(folder: &Path) -> Result<()> {
    unfinished(folder).map_err(|e| Error::io(e, folder))?;
    // What cannot be listed can still be written to.
    let _ = remove_unfinished(folder);
    Ok(())
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
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(".mcdd-Ab12.part");
        fs::write(&left, b"half").unwrap();
        fs::write(dir.path().join("other.part"), b"mine").unwrap();
        let path = dir.path().join("a");
        write_beside(&path, |w| {
            w.write_all(b"one").map_err(|e| Error::io(e, Path::new("a")))?;
            check_folder(dir.path())?;
            assert!(!left.exists());
            w.write_all(b" two").map_err(|e| Error::io(e, Path::new("a")))
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_was_just_made_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        remove_unfinished(dir.path()).unwrap();
                    }
                });
            }
            let lost = (0..3000).filter(|_| {
                let file = unfinished(dir.path()).unwrap();
                std::thread::yield_now();
                !file.path().exists()
            });
            let lost = lost.count();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(lost, 0);
        });
    }

    #[test]
    fn the_same_file_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("a"), "1").unwrap();
        fs::write(path("b"), "1").unwrap();
        fs::create_dir(path("folder")).unwrap();
        assert!(same_file(&path("a"), &path("folder/../a")) && !same_file(&path("a"), &path("b")));
        assert!(same_file(&path("folder"), &path("./folder/")));
        // Neither exists, or one of them.
        assert!(same_file(&path("new"), &path("./folder/../new")) && !same_file(&path("new"), &path("other")));
        assert!(!same_file(&path("a"), &path("new")));
        #[cfg(unix)]
        {
            fs::hard_link(path("a"), path("hard")).unwrap();
            std::os::unix::fs::symlink(path("a"), path("soft")).unwrap();
            assert!(same_file(&path("a"), &path("hard")) && same_file(&path("soft"), &path("hard")));
            assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")));
        }
        let e = check_not_input(&path("a"), "output", [path("b").as_path(), &path("./a")]).unwrap_err();
        assert!(e.to_string().contains("would overwrite") && e.hint_text().unwrap().contains("`output`"));
        check_not_input(&path("new"), "output", [path("b").as_path()]).unwrap();
    }

    #[test]
    fn only_files_are_read_and_only_to_their_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        let fails = |path: &Path, part: &str| {
            let e = read_at_most(path, 4).unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        };
        fails(&path, "longer than 4 bytes");
        // Nothing of a long file is read: there would be no memory for this one.
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        fails(&path, "longer than 4 bytes");
        fails(dir.path(), "is a folder");
        fails(&dir.path().join("none"), "no such file");
        #[cfg(unix)]
        {
            let pipe = dir.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            fails(&pipe, "is not a file");
            fails(Path::new("/dev/zero"), "is not a file");
            assert!(Lock::at(&pipe).is_err());
        }
    }

    #[test]
    fn one_holds_a_lock_and_its_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let held = Lock::beside(&path, "state").unwrap();
        let e = Lock::beside(&path, "state").unwrap_err();
        assert!(e.to_string().contains("in use by another process"), "{e}");
        assert!(Lock::at(&dir.path().join(".state.json.lock")).unwrap().is_none());
        drop(held);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // Who waited for it finds that its file was removed, and locks the next one.
        let held = Lock::at(&path).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Lock::wait(&path).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(held);
            let _held = waiting.join().unwrap();
            assert!(Lock::at(&path).unwrap().is_none());
        });
        // Many at once: never two.
        let (inside, path) = (std::sync::atomic::AtomicUsize::new(0), dir.path().join("lock"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let held = Lock::wait(&path).unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
        #[cfg(unix)]
        {
            fs::write(&path, "").unwrap();
            std::os::unix::fs::symlink(&path, dir.path().join("other")).unwrap();
            let _held = Lock::beside(&path, "state").unwrap();
            assert!(Lock::beside(&dir.path().join("other"), "state").is_err());
        }
    }

    #[test]
    fn missing_folders_and_folders_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let e = write_beside(&dir.path().join("no/where"), |_| Ok(())).unwrap_err();
        assert!(e.hint_text().is_some());
        assert!(write_beside(dir.path(), |_| Ok(())).is_err());
    }
}
