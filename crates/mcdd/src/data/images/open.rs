//! What a path holds: a folder, an image, or a file with many of them.

use std::path::Path;

use super::super::input::Input;
use super::super::options::Label;
use super::super::text::list;
use super::item::{Content, ImageSource, Item};
use super::options::ImageOptions;
#[cfg(feature = "parquet")]
use super::parquet;
use super::{cifar, folder, idx, matlab};
use crate::error::{Error, Kind, Result};

/// A file that is one image, or none that can be used.
struct Single {
    item: Option<Item>,
    /// A file that cannot be used counts as labeled.
    labeled: bool,
}

impl Single {
    fn new(path: &Path, content: Content) -> Single {
        let labeled = matches!(content, Content::Bad(_));
        Single { item: Some(Item { content, label: None, file: path.into(), row: 0 }), labeled }
    }
}

impl ImageSource for Single {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let item = if max > 0 { self.item.take() } else { None };
        let count = usize::from(item.is_some());
        items.extend(item);
        Ok(count)
    }

    fn labeled(&self) -> bool {
        self.labeled
    }

    fn expected(&self) -> Option<usize> {
        Some(1)
    }
}

/// What a path holds: most often one source, several for a folder of published files.
pub(super) struct Opened {
    pub sources: Vec<Box<dyn ImageSource>>,
    pub notices: Vec<String>,
}

/// Finds out what a path is, by content where possible, else by name.
pub(super) fn open(path: &Path, options: &ImageOptions) -> Result<Opened> {
    let ImageOptions { label, skip_bad, part, .. } = options;
    if path == Path::new("-") {
        return Err(Error::setting("images are not read from stdin").hint("give the paths of files or folders"));
    }
    let data = std::fs::metadata(path).map_err(|e| Error::io(e, path))?;
    if !data.is_dir() && !data.is_file() {
        return Err(Error::setting("images are not read from a pipe or a device")
            .at_file(path)
            .hint("save it to a file and give the path"));
    }
    if !data.is_dir() {
        let source = match open_file(path, label) {
            Err(e) if *skip_bad && e.kind() == Kind::Data => Box::new(Single::new(path, Content::Bad(e))),
            source => source?,
        };
        return Ok(Opened { sources: vec![source], notices: Vec::new() });
    }
    if let Some((part, files)) = folder::published(path, *part) {
        let sources = files.iter().map(|file| open_file(file, label)).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> =
            files.iter().filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned())).collect();
        let notice = format!(
            "of {} the {part} part was read ({}); give other files by their names",
            path.display(),
            list(&names)
        );
        return Ok(Opened { sources, notices: vec![notice] });
    }
    let (source, notices) = folder::open(path, label, *skip_bad)?;
    Ok(Opened { sources: vec![Box::new(source)], notices })
}

fn open_file(path: &Path, label: &Label) -> Result<Box<dyn ImageSource>> {
    let input = Input::open(path)?;
    let start = input.prefix.as_slice();
    let name = path.file_name().map(|n| n.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    // CIFAR's records have no mark of their own and may begin as anything.
    if name.ends_with(".bin") {
        return Ok(Box::new(cifar::open_binary(input, label)?));
    }
    if image::guess_format(start).is_ok() && !input.packed {
        return Ok(Box::new(Single::new(path, Content::File)));
    }
    if let [0, 0, 8, 3 | 4, ..] = start {
        return Ok(Box::new(idx::open(input, label)?));
    }
    if start.starts_with(b"PAR1") {
        #[cfg(feature = "parquet")]
        return Ok(Box::new(parquet::open(path, label)?));
        #[cfg(not(feature = "parquet"))]
        return Err(super::super::text::needs_feature("Parquet files", "parquet").at_file(path));
    }
    if start.starts_with(b"MATLAB 5.0") && !input.packed {
        return Ok(Box::new(matlab::open(path, label)?));
    }
    if let [0x80, 2 | 3, ..] = start {
        return Ok(Box::new(cifar::open_python(input, label)?));
    }
    if start.is_empty() {
        return Err(Error::data("the file is empty").at_file(path).hint(HINT));
    }
    Err(Error::data("it does not hold images of a supported format").at_file(path).hint(HINT))
}

/// Whether a path holds images; IDX files may be tables as well, and do not count.
pub(super) fn holds_images(path: &Path) -> bool {
    if path == Path::new("-") {
        return false;
    }
    // A pipe could be read only once.
    match std::fs::metadata(path) {
        Ok(data) if data.is_dir() => return folder::may_hold_images(path),
        Ok(data) if data.is_file() => {}
        _ => return false,
    }
    let Ok(input) = Input::open(path) else { return false };
    let start = input.prefix.as_slice();
    #[cfg(feature = "parquet")]
    if start.starts_with(b"PAR1") {
        return parquet::has_images(path);
    }
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("bin"))
        || start.starts_with(b"MATLAB 5.0")
        || matches!(start, [0x80, 2 | 3, ..])
        || (image::guess_format(start).is_ok() && !input.packed)
}

const HINT: &str = "give a folder with a sub-folder of images for each class; images (PNG, JPEG, WebP, BMP, GIF, TIFF); CIFAR's files; \
                    SVHN's .mat; IDX; or Parquet with encoded images";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in
            [("a.txt", &b"1,2\n3,4\n"[..]), ("b", b""), ("c.bin", b"abc"), ("d.mat", b"MATLAB 5.0 MAT")]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let strict = ImageOptions::default();
            let e = open(&path, &strict).err().unwrap();
            assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
            // Counted with the others that cannot be used, where that is wanted.
            assert!(e.kind() != Kind::Data || open(&path, &ImageOptions { skip_bad: true, ..strict }).is_ok(), "{e}");
        }
        assert!(open(&folder.path().join("none"), &ImageOptions::default()).is_err());
        // What is trained on as images: not a folder of tables, but one with folders or published files.
        assert!(!holds_images(folder.path()) && !holds_images(&folder.path().join("a.txt")));
        assert!(holds_images(&folder.path().join("c.bin")) && holds_images(&folder.path().join("d.mat")));
        assert!(!holds_images(Path::new("-")) && !holds_images(&folder.path().join("none")));
        std::fs::create_dir(folder.path().join("class")).unwrap();
        assert!(holds_images(folder.path()) && !holds_images(&folder.path().join("class")));
        std::fs::write(folder.path().join("class/x.PNG"), b"").unwrap();
        assert!(holds_images(&folder.path().join("class")));
        assert!(open(Path::new("-"), &ImageOptions::default()).is_err());
    }
}
