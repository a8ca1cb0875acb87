//! Folders of images: the class is the name of the sub-folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::options::Label;
use super::super::options::Part;
use super::super::text::list;
use super::super::text::{Notices, count};
use super::item::{Content, ImageSource, Item, wants_labels};
use crate::error::{Error, Result};

/// How deep folders may lie in each other.
const MAX_DEPTH: usize = 16;

/// How many files a folder may hold.
const MAX_FILES: usize = 20_000_000;

/// The files of a folder in the order of their names.
pub(super) struct Folder {
    files: std::vec::IntoIter<(Arc<Path>, Option<Arc<str>>)>,
    labeled: bool,
}

impl ImageSource for Folder {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let before = items.len();
        let item = |(file, label)| Item { content: Content::File, label, file, row: 0 };
        items.extend(self.files.by_ref().take(max).map(item));
        Ok(items.len() - before)
    }

    fn labeled(&self) -> bool {
        self.labeled
    }

    fn expected(&self) -> Option<usize> {
        Some(self.files.len())
    }
}

/// Lists a folder. With sub-folders, their names are the classes of all that is below them at any depth; without,
/// there are no labels. Names that begin with a dot are skipped.
pub(super) fn open(path: &Path, label: &Label, skip_bad: bool) -> Result<(Folder, Notices)> {
    let wanted = wants_labels(label, path)?;
    let mut notices = Notices::new();
    let (folders, loose) = entries(path)?;
    let labeled = wanted && !folders.is_empty();
    let mut files: Vec<(Arc<Path>, Option<Arc<str>>)> = Vec::new();
    if labeled && let Some(first) = loose.first() {
        if !skip_bad {
            return Err(Error::data("the file lies beside the folders of the classes, so it has no class")
                .at_file(first)
                .hint("move it into the folder of its class, or away; `skip_bad` goes on without it"));
        }
        notices.push(format!("{} beside the folders of the classes left out", count(loose.len(), "file")));
    } else {
        files.extend(loose.into_iter().map(|file| (file.into(), None)));
    }
    let mut empty = Vec::new();
    for folder in &folders {
        let class = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let label: Option<Arc<str>> = labeled.then(|| class.as_str().into());
        let before = files.len();
        let mut above = vec![canonical(path)?];
        walk(folder, &mut above, &mut |file| {
            if files.len() >= MAX_FILES {
                return Err(Error::data(format!("there are more than {MAX_FILES} files"))
                    .at_file(path)
                    .hint("give a folder with fewer images"));
            }
            files.push((file.into(), label.clone()));
            Ok(())
        })?;
        if files.len() == before && labeled {
            if !skip_bad {
                return Err(Error::data("the class has no images: its folder is empty")
                    .at_file(folder)
                    .hint("put images there, or remove the folder; `skip_bad` goes on without it"));
            }
            empty.push(class);
        }
    }
    if !empty.is_empty() {
        notices.push(format!("{} without images left out: {}", count(empty.len(), "class folder"), list(&empty)));
    }
    if files.is_empty() {
        return Err(Error::data("there are no images in the folder")
            .at_file(path)
            .hint("give a folder with a sub-folder of images for each class"));
    }
    Ok((Folder { files: files.into_iter(), labeled }, notices))
}

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| Error::io(e, path))
}

/// The folders and the files in a folder, each in the order of their names.
fn entries(path: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let io = |e| Error::io(e, path);
    let mut names: Vec<OsString> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort_unstable();
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for name in names {
        let path = path.join(name);
        // A broken link is an error when the file is read.
        let folder = path.metadata().is_ok_and(|data| data.is_dir());
        if folder { &mut folders } else { &mut files }.push(path);
    }
    Ok((folders, files))
}

/// All files below a folder. `above` are the folders that it lies in, which a link may lead back to.
fn walk(folder: &Path, above: &mut Vec<PathBuf>, found: &mut dyn FnMut(PathBuf) -> Result<()>) -> Result<()> {
    let real = canonical(folder)?;
    if above.contains(&real) || above.len() > MAX_DEPTH {
        return Err(Error::data("the folder lies within itself, or too deep")
            .at_file(folder)
            .hint(format!("remove the link; folders may lie in each other {MAX_DEPTH} deep")));
    }
    above.push(real);
    let (folders, files) = entries(folder)?;
    files.into_iter().try_for_each(&mut *found)?;
    for folder in &folders {
        walk(folder, above, found)?;
    }
    above.pop();
    Ok(())
}

/// The files of a part of a folder that is laid out as CIFAR, SVHN or MNIST are published; of the other part where there
/// are none.
pub(super) fn published(folder: &Path, part: Part) -> Option<(Part, Vec<PathBuf>)> {
    let other = if part == Part::Train { Part::Test } else { Part::Train };
    [part, other].into_iter().find_map(|part| Some((part, files_of(folder, part)?)))
}

/// Whether a folder looks like one of images: it has published files, folders, or files that are images by their names.
pub(super) fn may_hold_images(folder: &Path) -> bool {
    let is_image = |path: &Path| image::ImageFormat::from_path(path).is_ok();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    published(folder, Part::Train).is_some() || entries.into_iter().any(|path| path.is_dir() || is_image(&path))
}

fn files_of(folder: &Path, part: Part) -> Option<Vec<PathBuf>> {
    let present = |names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect()
    };
    let train: [&[&str]; 5] = [
        &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
        &["train.bin"],
        &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"],
        &["train_32x32.mat"],
        &["train"],
    ];
    let test: [&[&str]; 5] = [&["test_batch.bin"], &["test.bin"], &["test_batch"], &["test_32x32.mat"], &["test"]];
    let (all, idx) = if part == Part::Train { (train, "train-images") } else { (test, "t10k-images") };
    let one = ["-idx3-ubyte", "-idx3-ubyte.gz", ".idx3-ubyte", ".idx3-ubyte.gz"].map(|end| format!("{idx}{end}"));
    let files = all.iter().map(|names| present(names)).find(|files| !files.is_empty());
    files.or_else(|| present(&one.each_ref().map(String::as_str)).into_iter().next().map(|file| vec![file]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, names: &[&str]) {
        for name in names {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"x").unwrap();
        }
    }

    fn listed(root: &Path, label: &Label, skip_bad: bool) -> Result<Vec<(String, Option<String>)>> {
        let (mut folder, _) = open(root, label, skip_bad)?;
        let mut items = Vec::new();
        folder.fill(usize::MAX, &mut items)?;
        let name = |i: &Item| i.file.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        Ok(items.iter().map(|i| (name(i), i.label.as_deref().map(str::to_owned))).collect())
    }

    #[test]
    fn a_class_is_a_sub_folder() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &["dog/2.png", "cat/b/deep.png", "cat/a.png", ".hidden/x", "dog/.DS_Store", "dog/1.png"]);
        let all = listed(dir.path(), &Label::Auto, false).unwrap();
        let want = [("cat/a.png", "cat"), ("cat/b/deep.png", "cat"), ("dog/1.png", "dog"), ("dog/2.png", "dog")];
        assert_eq!(all, want.map(|(f, c)| (f.to_owned(), Some(c.to_owned()))));
        assert!(listed(dir.path(), &Label::None, false).unwrap().iter().all(|(_, label)| label.is_none()));
        assert!(listed(dir.path(), &Label::Last, false).is_err());
        std::fs::create_dir(dir.path().join("owl")).unwrap();
        let e = listed(dir.path(), &Label::Auto, false).unwrap_err();
        assert!(e.to_string().contains("owl") && e.to_string().contains("empty"), "{e}");
        assert_eq!(listed(dir.path(), &Label::Auto, true).unwrap().len(), 4);
        put(dir.path(), &["stray.png"]);
        let e = listed(dir.path(), &Label::Auto, false).unwrap_err();
        assert!(e.to_string().contains("stray.png"), "{e}");
        assert_eq!(listed(dir.path(), &Label::Auto, true).unwrap().len(), 4);
        assert_eq!(listed(dir.path(), &Label::None, false).unwrap().len(), 5);
    }

    #[test]
    fn a_flat_folder_has_no_labels() {
        let dir = tempfile::tempdir().unwrap();
        assert!(listed(dir.path(), &Label::Auto, false).is_err());
        put(dir.path(), &["b.png", "a.png"]);
        let (folder, _) = open(dir.path(), &Label::Auto, false).unwrap();
        assert!(!folder.labeled());
        assert_eq!(listed(dir.path(), &Label::Auto, false).unwrap()[0].0, "a.png");
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_back_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &["cat/a.png"]);
        std::os::unix::fs::symlink(dir.path(), dir.path().join("cat/up")).unwrap();
        let e = listed(dir.path(), &Label::Auto, false).unwrap_err();
        assert!(e.to_string().contains("within itself"), "{e}");
    }

    #[test]
    fn published_folders_are_known() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(published(dir.path(), Part::Train), None);
        put(dir.path(), &["test_batch.bin", "data_batch_2.bin", "data_batch_1.bin"]);
        let train = vec![dir.path().join("data_batch_1.bin"), dir.path().join("data_batch_2.bin")];
        assert_eq!(published(dir.path(), Part::Train), Some((Part::Train, train.clone())));
        let test = dir.path().join("test_batch.bin");
        assert_eq!(published(dir.path(), Part::Test), Some((Part::Test, vec![test.clone()])));
        std::fs::remove_file(test).unwrap();
        assert_eq!(published(dir.path(), Part::Test), Some((Part::Train, train)));
    }
}
