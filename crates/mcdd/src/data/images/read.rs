//! Images from files, all of them into memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::column::Column;
use super::super::labels::Labels;
use super::super::options::Label;
use super::super::text::{Notices, list};
use super::blocks::{Blocks, Ready};
use super::memory::Images;
use super::open;
use super::options::ImageOptions;
use super::shape::ImageShape;
use crate::error::{Error, Result};

/// The pixels of all images together, at most.
const MAX_BYTES: usize = 16 << 30;

impl Images {
    /// Whether a path holds images rather than a table: a folder, an image, or a file with many of them. IDX files may be
    /// both, and count as tables. What cannot be read is none.
    pub fn found_at(path: &Path) -> bool {
        open::holds_images(path)
    }

    /// Reads files and folders, and puts their images one after the other.
    ///
    /// # Errors
    /// If something cannot be read or used, or no labels are found, unless [`Label::None`] is given.
    pub fn read(paths: &[PathBuf], options: &ImageOptions) -> Result<(Images, Notices)> {
        let Some(first) = paths.first() else {
            return Err(Error::setting("no images are given").hint("give a folder or files"));
        };
        let mut blocks = Blocks::open(paths, options)?;
        let wanted = options.label != Label::None && (blocks.labeled() || !options.unlabeled);
        if wanted && !blocks.labeled() {
            return Err(Error::data("it is not clear which classes the images have: there are no labels")
                .at_file(first)
                .hint(
                    "put the images of each class in a folder of its own, all in one folder, and give that; or \
                       give a file with one label for each image by `label`",
                ));
        }
        let mut gather = Gather::default();
        let mut ready = Vec::new();
        loop {
            blocks.next(usize::MAX, &mut ready)?;
            if ready.is_empty() && !blocks.take_bad().is_empty() {
                continue;
            }
            let Some(shape) = blocks.shape().filter(|_| !ready.is_empty()) else { break };
            let expected = if gather.places.is_empty() { blocks.expected() } else { None };
            gather.reserve(shape, ready.len(), expected).map_err(|e| e.at_file(first))?;
            ready.drain(..).for_each(|image| gather.push(image, wanted));
        }
        let Some(shape) = blocks.shape().filter(|_| !gather.places.is_empty()) else {
            return Err(Error::data("there are no images that can be used").at_file(first).hint("give other files"));
        };
        let mut notices = blocks.notices();
        let lost: Vec<&str> = blocks.bad_classes().filter(|c| wanted && !gather.known.contains_key(*c)).collect();
        if !lost.is_empty() {
            notices.push(format!("classes left out that have no good image: {}", list(&lost)));
        }
        let names = std::mem::take(&mut gather.names);
        let labels = Labels::sorted(Column::Text { codes: std::mem::take(&mut gather.codes), names });
        let images = Images {
            height: shape.height,
            width: shape.width,
            channels: shape.channels,
            pixels: gather.pixels,
            labels: labels.filter(|_| wanted),
            files: gather.files,
            places: gather.places,
        };
        Ok((images, notices))
    }
}

/// Images on their way into memory.
#[derive(Default)]
struct Gather {
    pixels: Vec<u8>,
    codes: Vec<u32>,
    names: Vec<String>,
    known: HashMap<Arc<str>, u32>,
    files: Vec<Arc<Path>>,
    places: Vec<(u32, u32)>,
}

impl Gather {
    /// Makes room for `more` images, and for all that are expected.
    fn reserve(&mut self, shape: ImageShape, more: usize, expected: Option<usize>) -> Result<()> {
        let values = shape.values();
        let needed = values.saturating_mul(more.max(expected.unwrap_or(0)));
        if self.pixels.len().saturating_add(needed) > MAX_BYTES || self.pixels.try_reserve(needed).is_err() {
            let images = self.places.len() + more.max(expected.unwrap_or(0));
            let ImageShape { height, width, channels } = shape;
            return Err(Error::data(format!(
                "{images} images of {height}x{width}x{channels} do not fit in memory ({} GiB at most)",
                MAX_BYTES >> 30
            ))
            .hint("make them smaller by `image_size`, or give fewer images"));
        }
        Ok(())
    }

    fn push(&mut self, image: Ready, labeled: bool) {
        self.pixels.extend_from_slice(&image.pixels);
        if labeled && let Some(label) = image.label {
            let next = self.names.len() as u32;
            let code = *self.known.entry(Arc::clone(&label)).or_insert(next);
            if code == next {
                self.names.push(label.as_ref().to_owned());
            }
            self.codes.push(code);
        }
        if self.files.last().is_none_or(|last| *last != image.file) {
            self.files.push(image.file);
        }
        let at = (self.files.len() - 1) as u32;
        self.places.push((at, u32::try_from(image.row).unwrap_or(u32::MAX)));
    }
}
