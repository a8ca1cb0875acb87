//! Reading images for prediction: block by block, in bounded memory.

use std::path::Path;

use super::super::batch::BadImage;
use super::super::text::Notices;
use super::blocks::{Blocks, Ready};
use super::memory::place;
use super::options::ImageOptions;
use super::shape::ImageShape;
use crate::error::Result;

/// Images of one shape. Its buffers are used again by the next block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageBatch {
    /// The number of images.
    pub rows: usize,
    /// Their pixels: image by image, row by row, the channels of a pixel together.
    pub pixels: Vec<u8>,
    /// The labels, where there are any.
    pub labels: Option<Vec<String>>,
    /// Where each image is from.
    pub names: Vec<String>,
    /// Images that cannot be used, where these are skipped.
    pub bad: Vec<BadImage>,
}

/// Files and folders that are read as images of a known shape.
pub struct ImageReader {
    blocks: Blocks,
    shape: ImageShape,
    ready: Vec<Ready>,
    rows: u64,
}

impl ImageReader {
    /// Opens files and folders. Images of another size or with other channels are made to fit, and
    /// [`ImageReader::notices`] reports how many; labels are read where there are any.
    ///
    /// # Errors
    /// If something cannot be read.
    pub fn open<P: AsRef<Path>>(paths: &[P], shape: ImageShape, options: &ImageOptions) -> Result<ImageReader> {
        let size = Some((shape.height, shape.width));
        let options = ImageOptions { size, channels: Some(shape.channels), ..options.clone() };
        Ok(ImageReader { blocks: Blocks::open(paths, &options)?, shape, ready: Vec::new(), rows: 0 })
    }

    /// Whether the images have labels.
    pub fn has_labels(&self) -> bool {
        self.blocks.labeled()
    }

    /// The shape of the images that come out.
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// How many images were read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Reads up to `max` images; `false` at the end. A block may be smaller than `max` before the end, and hold none but bad
    /// images.
    ///
    /// # Errors
    /// If an image cannot be used.
    pub fn next(&mut self, max: usize, batch: &mut ImageBatch) -> Result<bool> {
        self.blocks.next(max, &mut self.ready)?;
        batch.rows = self.ready.len();
        batch.pixels.clear();
        batch.names.clear();
        let labeled = self.blocks.labeled();
        batch.labels = labeled.then(Vec::new);
        for image in self.ready.drain(..) {
            batch.pixels.extend_from_slice(&image.pixels);
            batch.names.push(place(&image.file, image.row));
            if let Some(labels) = &mut batch.labels {
                labels.push(image.label.as_deref().unwrap_or_default().to_owned());
            }
        }
        batch.bad = self.blocks.take_bad();
        self.rows += batch.rows as u64;
        Ok(batch.rows > 0 || !batch.bad.is_empty())
    }

    /// What the user should know about the images read so far.
    pub fn notices(&self) -> Notices {
        self.blocks.notices()
    }
}
