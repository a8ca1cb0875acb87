//! Fetches a data set: downloads to a temporary folder, verifies, unpacks, and moves the complete set to its folder.

mod http;
#[cfg(test)]
mod tests;
mod unpack;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use mcdd::data::sets::{Checksum, Download, Found, Set, thousands};
use mcdd::error::Kind;
use mcdd::files::Lock;
use mcdd::{Error, Result};
use sha2::Digest;

use crate::ui;

/// Where the files come from.
pub enum Origin {
    /// The publisher.
    Publisher,
    /// The address of a mirror, to which file names are appended.
    Mirror(String),
    /// A folder with the files.
    Folder(PathBuf),
}

impl Origin {
    /// An address or a folder, as users type it.
    pub fn parse(text: &str) -> Origin {
        match text.split_once("://") {
            Some(("http" | "https", _)) => Origin::Mirror(text.trim_end_matches('/').into()),
            _ => Origin::Folder(text.into()),
        }
    }
}

/// How much of a set is present.
pub enum State {
    /// Nothing.
    Missing,
    /// All of it, as far as can be checked.
    Complete(Found, String),
    /// Some files or rows are missing.
    Incomplete(Found, String),
    /// There are files, but they are not this set.
    Wrong(Found, String),
}

/// Looks for a set; the text describes what was found.
pub fn state(set: &'static Set, dir: &Path) -> State {
    let Some(found) = set.locate(dir) else { return State::Missing };
    let of = |rows: usize| format!("{}: {} of {} rows", set.title, thousands(rows), thousands(set.rows));
    let mut missing = String::new();
    if !found.missing.is_empty() {
        missing = format!(", without {}", found.missing.join(", "));
    }
    match set.count(&found) {
        Err(e) => State::Wrong(found, e.to_string()),
        Ok(Some(rows)) if rows > set.rows => State::Wrong(found, format!("{}: not this set", of(rows))),
        Ok(Some(rows)) if rows < set.rows => State::Incomplete(found, of(rows) + &missing),
        Ok(_) if !found.missing.is_empty() => State::Incomplete(found, format!("{}: in part{missing}", set.title)),
        Ok(Some(rows)) => State::Complete(found, format!("{}: {} rows", set.title, thousands(rows))),
        Ok(None) => State::Complete(found, format!("{}: all files", set.title)),
    }
}

/// Fetches a set into the folder of all data sets, unless it is present.
pub fn get(set: &'static Set, dir: &Path, origin: &Origin) -> Result<()> {
    let home = dir.join(set.name);
    let present = |found: Found, line: String| {
        ui::note(&format!("{line}: already present, in {}", found.folder.display()));
        Ok(())
    };
    if let State::Complete(found, line) = state(set, dir) {
        return present(found, line);
    }
    let all = dir.join(".download");
    let lock = lock(&all, set)?;
    // Another process may have fetched it meanwhile.
    match state(set, dir) {
        State::Complete(found, line) => return present(found, line),
        State::Incomplete(found, line) | State::Wrong(found, line) if found.folder.starts_with(&home) => {
            return Err(Error::setting(line)
                .at_file(&home)
                .hint("it was not changed: move or remove it, then fetch the set"));
        }
        _ => {}
    }
    // An empty folder may be replaced.
    if fs::remove_dir(&home).is_err() && home.exists() {
        return Err(Error::setting(format!("the folder of {} already exists", set.title))
            .at_file(&home)
            .hint("move or remove it, then fetch the set"));
    }
    let work = all.join(set.name);
    fs::create_dir_all(&work).map_err(|e| Error::io(e, &work))?;
    let outcome = set.downloads.iter().try_for_each(|d| fetch(d, set, &work, origin));
    let outcome = outcome.and_then(|()| place(set, &work, &home));
    if outcome.is_ok() {
        let _ = fs::remove_dir_all(&work);
    }
    // Empty folders are removed; a partial download stays for the next run.
    let _ = fs::remove_dir_all(work.join("new"));
    let _ = fs::remove_dir(&work);
    drop(lock);
    outcome?;
    match state(set, dir) {
        State::Complete(found, line) => ui::note(&format!("{line}, in {}", found.folder.display())),
        State::Missing => {}
        State::Incomplete(_, line) | State::Wrong(_, line) => ui::warning(&line),
    }
    Ok(())
}

/// One process at a time fetches a set. At the end its folder is removed, if it is empty.
struct Fetching {
    folder: PathBuf,
    lock: Option<Lock>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        drop(self.lock.take());
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Waits until no other process fetches the set. The system releases the lock of a process that ends.
fn lock(folder: &Path, set: &Set) -> Result<Fetching> {
    let path = folder.join(format!("{}.lock", set.name));
    let mut waits = false;
    loop {
        fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
        let taken = if waits { Lock::wait(&path).map(Some) } else { Lock::at(&path) };
        match taken {
            Ok(Some(lock)) => return Ok(Fetching { folder: folder.to_owned(), lock: Some(lock) }),
            Ok(None) => {
                ui::note(&format!("another process is fetching {}: waiting for it", set.title));
                waits = true;
            }
            // The process before has removed the folder.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(e, &path)),
        }
    }
}

/// Fetches a file to `work`, unless it is present.
fn fetch(download: &Download, set: &Set, work: &Path, origin: &Origin) -> Result<()> {
    let (file, part) = (work.join(download.file), work.join(format!("{}.part", download.file)));
    // Without a checksum nobody knows whether a file from before is the right one.
    if download.checksum.is_some() && file.is_file() && verify(download, &file).is_ok() {
        return Ok(());
    }
    let from = match origin {
        Origin::Publisher => download.url.to_owned(),
        Origin::Mirror(base) => format!("{base}/{}", download.file),
        Origin::Folder(folder) => folder.join(download.file).display().to_string(),
    };
    let size = download.bytes.map_or("unknown length".into(), |bytes| format!("{} bytes", thousands(bytes as usize)));
    ui::note(&format!("fetching {from} ({size})"));
    let bar = ui::bytes_bar(download.file);
    let shown = |done: u64, total: Option<u64>| {
        if let Some(bar) = &bar {
            bar.set_position(done);
            total.into_iter().for_each(|total| bar.set_length(total));
        }
    };
    let outcome = match origin {
        Origin::Folder(folder) => {
            let most = download.bytes.unwrap_or(http::LIMITS.longest);
            copy(&folder.join(download.file), &part, most, &shown)
        }
        _ => {
            // HTTPS is required of publishers, not of a mirror that the user chose.
            let secure = matches!(origin, Origin::Publisher);
            let (bytes, verified) = (download.bytes, download.checksum.is_some());
            http::Request { url: &from, secure, bytes, verified, part: &part, limits: &http::LIMITS }.run(&shown)
        }
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    outcome?;
    if let Err(e) = verify(download, &part) {
        if e.kind() != Kind::Io {
            let _ = fs::remove_file(&part);
            let _ = fs::remove_file(http::tag(&part));
        }
        return Err(e.hint(format!(
            "the invalid file was removed: run the command again; if it fails again, get {} from {} or give a mirror with --from",
            set.title, set.page
        )));
    }
    let _ = fs::remove_file(http::tag(&part));
    fs::rename(&part, &file).map_err(|e| Error::io(e, &file))
}

/// Copies a file of at most `most` bytes.
fn copy(from: &Path, to: &Path, most: u64, shown: &dyn Fn(u64, Option<u64>)) -> Result<()> {
    // Opening a pipe would wait.
    let data = fs::metadata(from).map_err(|e| Error::io(e, from))?;
    if !data.is_file() {
        return Err(Error::setting("not a file").at_file(from).hint("give the folder that holds the files"));
    }
    if data.len() > most {
        let length = data.len();
        return Err(Error::format(format!("it has {length} bytes, and at most {most} are expected"))
            .at_file(from)
            .hint("give the folder that holds the published files"));
    }
    let mut input = File::open(from).map_err(|e| Error::io(e, from))?;
    let mut output = File::create(to).map_err(|e| Error::io(e, to))?;
    each_block(&mut input, from, |block, done| {
        shown(done, Some(data.len()));
        output.write_all(block).map_err(|e| Error::io(e, to))
    })?;
    output.sync_all().map_err(|e| Error::io(e, to))
}

/// Reads to the end; `take` gets each block and the number of bytes so far.
fn each_block(input: &mut File, path: &Path, mut take: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    let (mut buffer, mut done) = (vec![0; 1 << 16], 0);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                done += count as u64;
                take(&buffer[..count], done)?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(e, path)),
        }
    }
}

fn digest<D: Digest>(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(|e| Error::io(e, path))?;
    let mut hash = D::new();
    each_block(&mut file, path, |block, _| {
        hash.update(block);
        Ok(())
    })?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Checks length and checksum, if they are known.
fn verify(download: &Download, path: &Path) -> Result<()> {
    let length = fs::metadata(path).map_err(|e| Error::io(e, path))?.len();
    let wrong = |what: &str, here: String, expected: String| {
        Err(Error::data(format!("{}: its {what} is {here}, but {expected} was expected", download.file)))
    };
    if let Some(bytes) = download.bytes.filter(|&bytes| bytes != length) {
        return wrong("length", length.to_string(), bytes.to_string());
    }
    let (what, here, expected) = match download.checksum {
        Some(Checksum::Md5(expected)) => ("MD5", digest::<md5::Md5>(path)?, expected),
        Some(Checksum::Sha256(expected)) => ("SHA-256", digest::<sha2::Sha256>(path)?, expected),
        None => return Ok(()),
    };
    if here == expected { Ok(()) } else { wrong(what, here, expected.into()) }
}

/// Unpacks the files in `work` and moves the complete set to its folder.
fn place(set: &'static Set, work: &Path, home: &Path) -> Result<()> {
    let new = work.join("new");
    let folder = new.join(set.name);
    let io = |e| Error::io(e, &folder);
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&folder).map_err(io)?;
    for download in set.downloads {
        let file = work.join(download.file);
        if !unpack::is_archive(download.file) {
            fs::rename(&file, folder.join(download.file)).map_err(io)?;
            continue;
        }
        let unpacked = unpack::unpack(&file, &folder).and_then(|()| match set.locate(&new) {
            Some(found) if found.folder.starts_with(&new) => Ok(()),
            _ => Err(Error::data(format!("it does not contain the files of {}", set.title))
                .at_file(&file)
                .hint(format!("see {}: the publisher may have changed it", set.page))),
        });
        if let Err(e) = unpacked {
            // The file is kept if only writing failed.
            if e.kind() != Kind::Io {
                let _ = fs::remove_file(&file);
            }
            return Err(e);
        }
    }
    fs::rename(&folder, home).map_err(|e| Error::io(e, home))
}
