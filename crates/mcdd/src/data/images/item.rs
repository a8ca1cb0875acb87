//! Images of a file one after the other, whatever the format.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::super::options::Label;
use super::decode::{MAX_FILE, Raster, decode};
use super::shape::ImageShape;
use crate::error::{Error, Result};

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
    /// It cannot be used.
    Bad(Error),
}

/// A source of images. One implementation for each format.
pub(super) trait ImageSource: Send {
    /// Appends the next images, at most `max`; returns how many, which is none only at the end.
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize>;

    /// Whether the images have labels.
    fn labeled(&self) -> bool;

    /// About how many images there are, where the length of the file confirms it, so that memory may be reserved.
    fn expected(&self) -> Option<usize> {
        None
    }

    /// The shape of all of them, where the file gives it.
    fn shape(&self) -> Option<ImageShape> {
        None
    }
}

impl Item {
    /// The image's pixels. Runs on any thread.
    pub(super) fn raster(&mut self) -> Result<Raster> {
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
    // Opening a pipe would wait for somebody to write to it.
    let data = std::fs::metadata(path).map_err(io)?;
    if !data.is_file() {
        return Err(Error::data("it is not a file, but a pipe or a device")
            .at_file(path)
            .hint("leave it out; `skip_bad` goes on without it"));
    }
    let file = std::fs::File::open(path).map_err(io)?;
    let length = data.len();
    let mut bytes = Vec::with_capacity(length.min(MAX_FILE) as usize);
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::data("the file is too large for one image")
            .at_file(path)
            .hint("make it smaller, or leave it out; `skip_bad` goes on without it"));
    }
    Ok(bytes)
}

/// Whether labels are wanted from the format itself; an error where they are asked for in a way that it does not have.
pub(super) fn wants_labels(label: &Label, file: &Path) -> Result<bool> {
    match label {
        Label::Auto => Ok(true),
        Label::None | Label::File(_) => Ok(false),
        _ => Err(Error::setting("images of this kind have no columns to take labels from")
            .at_file(file)
            .hint("leave out `label`, or give `label` none or a file with one label for each image")),
    }
}
