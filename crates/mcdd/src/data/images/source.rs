//! What a path holds: images one after the other, whatever the format.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::super::input::Input;
use super::super::options::Label;
use super::decode::{MAX_FILE, Raster, decode};
use super::{ImageOptions, Shape, cifar, folder, idx, matlab, parquet};
use crate::error::{Error, Kind, Result};

/// One image that is known and not yet decoded.
pub(super) struct Item {
    pub content: Content,
    pub label: Option<Arc<str>>,
    pub file: Arc<Path>,
    /// Which image of the file, from 1; 0 where the file is the image.
    pub row: u64,
}

/// What there is of an image.
pub(super) enum Content {
    /// The file itself is an image.
    File,
    /// An encoded image.
    Encoded(Vec<u8>),
    /// Its pixels.
    Pixels(Raster),
    /// It is known to be of no use.
    Bad(Error),
}

/// Where images come from. One implementation a format.
pub(super) trait Source: Send {
    /// Appends the next images, at most `max`; returns how many, which is none only at the end.
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize>;

    /// Whether the images have labels.
    fn labeled(&self) -> bool;

    /// About how many images there are, where the length of the file bears it out, so that memory may be reserved.
    fn expected(&self) -> Option<usize> {
        None
    }

    /// The shape of all of them, where the file tells.
    fn shape(&self) -> Option<Shape> {
        None
    }
}

impl Item {
    /// The image's pixels. Runs on any thread.
    pub fn raster(&mut self) -> Result<Raster> {
        let placed = |e: Error, row: u64| if row > 0 { e.at_row(row) } else { e };
        match std::mem::replace(&mut self.content, Content::File) {
            Content::Pixels(raster) => Ok(raster),
            Content::Bad(error) => Err(error),
            Content::Encoded(bytes) => decode(&bytes, &self.file).map_err(|e| placed(e, self.row)),
            Content::File => decode(&whole(&self.file)?, &self.file),
        }
    }
}

/// All of a file that holds one image.
fn whole(path: &Path) -> Result<Vec<u8>> {
    let io = |e| Error::io(e, path);
    let file = std::fs::File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let mut bytes = Vec::with_capacity(length.min(MAX_FILE) as usize);
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::data("the file is too large for one image")
            .at_file(path)
            .hint("make it smaller, or leave it out; --skip-bad goes on without it"));
    }
    Ok(bytes)
}

/// A file that is one image, or none that can be used.
struct Single {
    item: Option<Item>,
    /// What cannot be used lacks no label.
    labeled: bool,
}

impl Single {
    fn new(path: &Path, content: Content) -> Single {
        let labeled = matches!(content, Content::Bad(_));
        Single { item: Some(Item { content, label: None, file: path.into(), row: 0 }), labeled }
    }
}

impl Source for Single {
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
    pub sources: Vec<Box<dyn Source>>,
    pub notices: Vec<String>,
}

/// Finds out what a path is, by content where that tells, else by name.
pub(super) fn open(path: &Path, options: &ImageOptions) -> Result<Opened> {
    let ImageOptions { label, skip_bad, part, .. } = options;
    if path == Path::new("-") {
        return Err(Error::setting("images are not read from stdin").hint("give the paths of files or folders"));
    }
    let data = std::fs::metadata(path).map_err(|e| Error::io(e, path))?;
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
            "of {} the part to {part} with was read ({}); give other files by their names",
            path.display(),
            super::super::cell::list(&names)
        );
        return Ok(Opened { sources, notices: vec![notice] });
    }
    let (source, notices) = folder::open(path, label, *skip_bad)?;
    Ok(Opened { sources: vec![Box::new(source)], notices })
}

fn open_file(path: &Path, label: &Label) -> Result<Box<dyn Source>> {
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
        return Ok(Box::new(parquet::open(path, label)?));
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
    Err(Error::data("it holds no images of a kind that is known here").at_file(path).hint(HINT))
}

const HINT: &str = "give a folder with a sub-folder of images for each class; images (PNG, JPEG, WebP, BMP); CIFAR's files; \
                    SVHN's .mat; IDX; or Parquet with encoded images";

/// Whether labels are wanted from the format itself; an error where they are asked for in a way it does not know.
pub(super) fn wants_labels(label: &Label, file: &Path) -> Result<bool> {
    match label {
        Label::Auto => Ok(true),
        Label::None | Label::File(_) => Ok(false),
        _ => Err(Error::setting("images of this kind have no columns to take labels from")
            .at_file(file)
            .hint("leave --label out, or give --label none or a file with one label for each image")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_says_so() {
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
        assert!(open(Path::new("-"), &ImageOptions::default()).is_err());
    }
}
