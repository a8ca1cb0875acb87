//! Unpacks untrusted archives: regular files and folders only, below the target folder, with limits on numbers and
//! sizes.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use mcdd::{Error, Result};

/// The largest number of files and folders.
const ENTRIES: usize = 100_000;
/// The largest unpacked size: this many times the length of the archive, within these bounds.
const RATIO: u64 = 100;
const LEAST: u64 = 16 << 20;
const MOST: u64 = 20 << 30;

/// The remaining limits.
struct Budget {
    bytes: u64,
    entries: usize,
}

/// Whether a file name is that of an archive that is to be unpacked.
pub fn is_archive(name: &str) -> bool {
    is_zip(name) || [".tar.gz", ".tgz"].iter().any(|end| name.to_ascii_lowercase().ends_with(end))
}

fn is_zip(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".zip")
}

/// Unpacks an archive into a folder, and zip archives in it into their own folders.
pub fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let length = fs::metadata(archive).map_err(|e| Error::io(e, archive))?.len();
    let mut budget = Budget { bytes: length.saturating_mul(RATIO).clamp(LEAST, MOST), entries: ENTRIES };
    let inner = one(archive, folder, &mut budget)?;
    for inner in inner.iter().filter(|path| is_zip(&path.to_string_lossy())) {
        one(inner, inner.parent().unwrap_or(folder), &mut budget)?;
        fs::remove_file(inner).map_err(|e| Error::io(e, inner))?;
    }
    Ok(())
}

/// Unpacks one archive and returns the files that were written.
fn one(archive: &Path, folder: &Path, budget: &mut Budget) -> Result<Vec<PathBuf>> {
    let run = || {
        let file = BufReader::new(File::open(archive).map_err(|e| Error::io(e, archive))?);
        let mut target = Target { folder, budget, written: Vec::new() };
        if is_zip(&archive.to_string_lossy()) { target.zip(file) } else { target.tar(file) }?;
        Ok(target.written)
    };
    // The archive is untrusted, and its reader might panic.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|e: Error| {
            let e = e.at_file(archive);
            if e.hint_text().is_some() { e } else { e.hint(AGAIN) }
        }),
        Err(_) => Err(damaged("it cannot be read").at_file(archive)),
    }
}

const AGAIN: &str = "run the command again to fetch it again, or give a mirror's address or folder with --from";

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::data(format!("the archive is damaged or not the expected one ({why})")).hint(AGAIN)
}

fn refused(name: &str, why: &str) -> Error {
    Error::data(format!("the archive is refused: {name:?} {why}"))
        .hint("it is not the file of the publisher: do not use it; give a mirror with --from")
}

struct Target<'a> {
    folder: &'a Path,
    budget: &'a mut Budget,
    written: Vec<PathBuf>,
}

impl Target<'_> {
    fn zip(&mut self, file: BufReader<File>) -> Result<()> {
        let mut archive = zip::ZipArchive::new(file).map_err(damaged)?;
        for at in 0..archive.len() {
            let mut entry = archive.by_index(at).map_err(damaged)?;
            let name = entry.name().map_err(damaged)?.into_owned();
            // The Unix file type: a folder, a regular file, or not given.
            let folder = match entry.unix_mode().map_or(0, |mode| mode & 0o170_000) {
                0 | 0o100_000 => entry.is_dir(),
                0o040_000 => true,
                _ => return Err(refused(&name, "is a link or a device")),
            };
            self.entry(&name, folder, &mut entry)?;
        }
        Ok(())
    }

    fn tar(&mut self, file: BufReader<File>) -> Result<()> {
        // Skipped entries count too.
        let unpacked = self.budget.bytes.saturating_add(ENTRIES as u64 * 1024);
        let limited = flate2::read::MultiGzDecoder::new(file).take(unpacked);
        let mut archive = tar::Archive::new(limited);
        // Raw entries: long names, which no set has, would be read into memory whatever their length.
        for entry in archive.entries().map_err(damaged)?.raw(true) {
            let mut entry = entry.map_err(damaged)?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            use tar::EntryType as T;
            match entry.header().entry_type() {
                // In old archives a folder is a file with a slash at its end.
                T::Regular | T::Continuous => self.entry(&name, name.ends_with('/'), &mut entry)?,
                T::Directory => self.entry(&name, true, &mut entry)?,
                T::XHeader | T::XGlobalHeader | T::GNULongName | T::GNULongLink => self.count(&name)?,
                _ => return Err(refused(&name, "is a link or a device")),
            }
        }
        Ok(())
    }

    fn count(&mut self, name: &str) -> Result<()> {
        self.budget.entries =
            self.budget.entries.checked_sub(1).ok_or_else(|| refused(name, "is one file too many"))?;
        Ok(())
    }

    /// Writes a file or creates a folder.
    fn entry(&mut self, name: &str, folder: bool, content: &mut dyn Read) -> Result<()> {
        self.count(name)?;
        let inside = safe(name).filter(|path| folder || !path.as_os_str().is_empty());
        let path = self.folder.join(inside.ok_or_else(|| refused(name, "is not a name inside the folder"))?);
        // What the names of the archive cause is a fault of the archive, everything else one of the disk.
        let io = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput => refused(name, "does not fit the other names in it, or the file system"),
            _ => Error::io(e, &path),
        };
        if folder {
            return fs::create_dir_all(&path).map_err(io);
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io)?;
        }
        // Existing files are never overwritten.
        let mut file = match File::create_new(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(refused(name, "occurs twice")),
            other => other.map_err(io)?,
        };
        let mut limited = content.take(self.budget.bytes + 1);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match limited.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(damaged(e)),
            };
            self.budget.bytes = self
                .budget
                .bytes
                .checked_sub(count as u64)
                .ok_or_else(|| refused(name, "unpacks to far more than an archive of this length should"))?;
            io::Write::write_all(&mut file, &buffer[..count]).map_err(io)?;
        }
        self.written.push(path);
        Ok(())
    }
}

/// A name in an archive as a relative path, if it is valid on every system.
fn safe(name: &str) -> Option<PathBuf> {
    let bad = |c: char| c.is_control() || matches!(c, '\\' | ':' | '\u{fffd}');
    if name.starts_with('/') || name.len() > 500 || name.contains(bad) {
        return None;
    }
    let mut path = PathBuf::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            part if part.len() > 255 => return None,
            part => path.push(part),
        }
    }
    (path.components().count() <= 20).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_gz(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
        let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let mut builder = tar::Builder::new(gz);
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            // Bypasses the checks of the writer.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            if matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link) {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn run(bytes: &[u8]) -> (tempfile::TempDir, Result<()>) {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("a.tar.gz");
        fs::write(&archive, bytes).unwrap();
        let folder = dir.path().join("in/here");
        fs::create_dir_all(&folder).unwrap();
        let outcome = unpack(&archive, &folder);
        (dir, outcome)
    }

    #[test]
    fn a_tar_as_it_should_be() {
        use tar::EntryType as T;
        let (dir, outcome) = run(&tar_gz(&[
            ("pax", T::XHeader, b"30 mtime=1700000000.000000000\n"),
            ("set/", T::Directory, b""),
            ("old/", T::Regular, b""),
            ("set/a.bin", T::Regular, b"one"),
            ("./set/deep/b.bin", T::Regular, b"two"),
        ]));
        outcome.unwrap();
        assert_eq!(fs::read(dir.path().join("in/here/set/a.bin")).unwrap(), b"one");
        assert_eq!(fs::read(dir.path().join("in/here/set/deep/b.bin")).unwrap(), b"two");
        assert!(dir.path().join("in/here/old").is_dir());
    }

    #[test]
    fn a_hostile_tar_is_refused() {
        use tar::EntryType as T;
        let zeros = vec![0; 20 << 20];
        for (entries, part) in [
            (vec![("../evil", T::Regular, &b"x"[..])], "not a name inside"),
            (vec![("/tmp/evil", T::Regular, b"x")], "not a name inside"),
            (vec![("link", T::Symlink, b"")], "a link or a device"),
            (vec![("link", T::Link, b"")], "a link or a device"),
            (vec![("disk", T::Block, b"")], "a link or a device"),
            (vec![("pipe", T::Fifo, b"")], "a link or a device"),
            (vec![("a", T::Regular, b"x"), ("a", T::Regular, b"y")], "occurs twice"),
            (vec![("a", T::Regular, b"x"), ("a/b", T::Regular, b"y")], "does not fit the other names"),
            (vec![("a/b", T::Regular, b"x"), ("a", T::Regular, b"y")], "occurs twice"),
            (vec![("a", T::Regular, b"x"), ("a/", T::Directory, b"")], "does not fit the other names"),
            (vec![(".", T::Regular, b"x")], "not a name inside"),
            (vec![("bomb", T::Regular, &zeros)], "far more"),
            (
                vec![("long", T::GNULongName, &zeros), ("bomb", T::Regular, &zeros), ("b", T::Regular, &zeros)],
                "archive",
            ),
        ] {
            let (dir, outcome) = run(&tar_gz(&entries));
            let e = outcome.unwrap_err();
            assert!(e.to_string().contains(part) && e.hint_text().is_some(), "{e}");
            // Otherwise it would be kept, and tried again.
            assert_ne!(e.kind(), mcdd::error::Kind::Io, "{e}");
            assert!(!dir.path().join("in/evil").exists() && !Path::new("/tmp/evil").exists());
        }
    }

    #[test]
    fn cut_and_flipped_archives_are_errors_or_harmless() {
        let whole = tar_gz(&[("a/b", tar::EntryType::Regular, &[7; 5000]), ("c", tar::EntryType::Regular, b"x")]);
        for cut in 0..whole.len() / 2 {
            assert!(run(&whole[..cut]).1.is_err(), "{cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            let _ = run(&flipped);
        }
    }

    #[test]
    fn names() {
        for (name, want) in [
            ("a/b.txt", Some("a/b.txt")),
            ("./a//b/", Some("a/b")),
            ("a/..b/c...", Some("a/..b/c...")),
            ("../a", None),
            ("a/../../b", None),
            ("a/..", None),
            ("/etc/passwd", None),
            ("C:/a", None),
            ("a\\..\\b", None),
            ("a\0b", None),
        ] {
            assert_eq!(safe(name), want.map(PathBuf::from), "{name}");
        }
        assert!(safe(&"a/".repeat(30)).is_none());
        assert!(safe(&"a".repeat(400)).is_none() && safe(&"a".repeat(255)).is_some());
        assert!(is_archive("A.ZIP") && is_archive("b.tar.gz") && !is_archive("c.gz") && !is_archive("d.Z"));
    }
}
