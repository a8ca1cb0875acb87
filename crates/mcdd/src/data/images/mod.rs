//! Images from files, and their way to a network's inputs.
//!
//! [`Images::read`] brings all of them into memory for training, as bytes; [`ImageSpec::fit`] learns the
//! normalization from the training rows; a [`Loader`] prepares batches beside training, [`Augment`]ed if wanted;
//! [`ImageReader`] reads images for prediction block by block, in memory that does not grow with their number.
//!
//! # What a path may be
//!
//! - a folder with a sub-folder for each class, which holds its images at any depth, in the order of their names
//!   (names that begin with a dot are passed over); a folder of images alone has no labels;
//! - an image: PNG, JPEG, WebP or BMP;
//! - CIFAR-10's and CIFAR-100's files, binary or Python (of the latter the fine labels count), SVHN's `.mat`, IDX
//!   with its labels beside it; a folder of these gives the [part](ImageOptions::part) that is asked for;
//! - Parquet with a column `image` or `img` of encoded images.
//!
//! What a file is is found by its content, except for CIFAR's `.bin`, which has no mark.
//!
//! # One shape
//!
//! All images get the size and the channels of the first, unless [`ImageOptions`] say others: another size is
//! reached by averaging, whatever the sides' ratio; gray and color together are an error unless
//! [`ImageOptions::channels`] says what to make of them. Images are turned as their EXIF data say, an alpha channel
//! is left out, and 16 bits become 8.
//!
//! # Example
//!
//! ```
//! use mcdd::data::{Augment, ImageSpec, Images, Loader, Loading, Shape};
//!
//! let shape = Shape { height: 6, width: 6, channels: 1 };
//! let images = Images::from_pixels((0..8 * 36).map(|i| i as u8).collect(), shape, Some(&["a", "b"].repeat(4)))?;
//! let (train, test) = images.split_rows(0.25, 7)?;
//! let spec = ImageSpec::fit(&images, &train)?;
//! let augment = Some(Augment { crop_padding: 2, flip: true });
//! let what = Loading { images: &images, rows: &train, spec: &spec, augment, seed: 7, batch: 4, threads: 1 };
//! std::thread::scope(|scope| {
//!     let mut loader = Loader::start(scope, what)?;
//!     for epoch in 0..2 {
//!         loader.epoch(epoch, [&[5, 0, 1][..], &[3, 4, 2]].into_iter())?; // which of `train` meet in which batch
//!         while let Some(batch) = loader.next_batch() {
//!             assert_eq!((batch.x.len(), batch.y.len()), (3 * 36, 3));
//!         }
//!     }
//!     Ok::<(), mcdd::Error>(())
//! })?;
//! # Ok::<(), mcdd::Error>(())
//! ```

mod augment;
mod blocks;
mod cifar;
mod decode;
mod folder;
mod idx;
mod loader;
mod matlab;
mod parquet;
mod pickle;
mod reader;
mod source;
mod spec;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cell::{Column, list};
use super::labels::{self, Labels};
use super::options::Label;
use super::schema::Notices;
use super::sets::Part;
use crate::error::{Error, Result};
pub use augment::Augment;
use blocks::{Blocks, Ready, place};
pub use loader::{Loader, Loading, Prepared};
pub use reader::{ImageBatch, ImageReader};
pub use spec::ImageSpec;

/// The pixels of all images together, at most.
const MAX_BYTES: usize = 16 << 30;

/// The size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of pixels.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Values of a pixel: 1 for gray, 3 for color.
    pub channels: usize,
}

impl Shape {
    /// The values of an image.
    pub fn values(self) -> usize {
        self.height.saturating_mul(self.width).saturating_mul(self.channels)
    }
}

/// How images are to be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageOptions {
    /// Where the labels are: found, none, a file with one for each image, or a column of Parquet.
    pub label: Label,
    /// The height and width that all images get (default: those of the first).
    pub size: Option<(usize, usize)>,
    /// The channels that all images get, 1 or 3 (default: those of the first, and others are an error).
    pub channels: Option<usize>,
    /// Whether images that cannot be used are left out and counted, and not an error.
    pub skip_bad: bool,
    /// Threads that decode; 0 for as many as there are cores.
    pub threads: usize,
    /// The part that is read of a folder as CIFAR, SVHN and MNIST are published.
    pub part: Part,
    /// Whether images that have no labels are read without them, where labels are [found](Label::Auto).
    pub unlabeled: bool,
}

/// Images of one shape in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// Rows of pixels of an image.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Values of a pixel: 1 for gray, 3 for color.
    pub channels: usize,
    /// All pixels: image by image, row by row, the channels of a pixel together.
    pub pixels: Vec<u8>,
    /// The classes of the images.
    pub labels: Option<Labels>,
    files: Vec<Arc<Path>>,
    /// For each image its file and which of it, from 1; 0 where the file is the image. Empty without files.
    places: Vec<(u32, u32)>,
}

impl Images {
    /// Reads files and folders, and puts their images one after the other.
    ///
    /// # Errors
    /// Where something cannot be read or used; where no labels are found, unless [`Label::None`] is asked for.
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
                       give --label FILE with one label for each image",
                ));
        }
        let mut gather = Gather::default();
        let mut ready = Vec::new();
        loop {
            blocks.next(usize::MAX, &mut ready)?;
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

    /// Images from bytes: image by image, row by row, the channels of a pixel together.
    ///
    /// # Errors
    /// Where the lengths do not fit each other.
    pub fn from_pixels<S: AsRef<str>>(pixels: Vec<u8>, shape: Shape, labels: Option<&[S]>) -> Result<Images> {
        let values = shape.values();
        if values == 0 || !matches!(shape.channels, 1 | 3) || pixels.is_empty() || !pixels.len().is_multiple_of(values)
        {
            let Shape { height, width, channels } = shape;
            return Err(Error::data(format!("{} bytes are not images of {height}x{width}x{channels}", pixels.len()))
                .hint("give whole images of 1 or 3 channels, and at least one"));
        }
        let rows = pixels.len() / values;
        let labels = match labels {
            Some(labels) if labels.len() != rows => {
                return Err(Error::data(format!("{} labels for {rows} images", labels.len()))
                    .hint("give one label for each image"));
            }
            Some(labels) => Some(Labels::of(&labels.iter().map(|label| label.as_ref().to_owned()).collect::<Vec<_>>())),
            None => None,
        };
        let Shape { height, width, channels } = shape;
        Ok(Images { height, width, channels, pixels, labels, files: Vec::new(), places: Vec::new() })
    }

    /// The shape of each image.
    pub fn shape(&self) -> Shape {
        Shape { height: self.height, width: self.width, channels: self.channels }
    }

    /// The number of images.
    pub fn rows(&self) -> usize {
        self.pixels.len() / self.shape().values().max(1)
    }

    /// The pixels of an image.
    ///
    /// # Panics
    /// Where `row` is not below [`Images::rows`].
    pub fn image(&self, row: usize) -> &[u8] {
        let values = self.shape().values();
        &self.pixels[row * values..(row + 1) * values]
    }

    /// The classes; empty without labels.
    pub fn classes(&self) -> &[String] {
        self.labels.as_ref().map_or(&[], |labels| &labels.names)
    }

    /// The class of an image, as an index into [`Images::classes`].
    pub fn label(&self, row: usize) -> Option<u32> {
        self.labels.as_ref()?.codes.get(row).copied()
    }

    /// The class name of an image.
    pub fn label_name(&self, row: usize) -> Option<&str> {
        self.labels.as_ref()?.name(row)
    }

    /// How many images each class has.
    pub fn class_sizes(&self) -> Vec<usize> {
        self.labels.as_ref().map_or(Vec::new(), Labels::sizes)
    }

    /// Where an image is from: its file, and which of the file where that holds several; else its number.
    pub fn name(&self, row: usize) -> String {
        match self.places.get(row).and_then(|&(file, at)| Some((self.files.get(file as usize)?, at))) {
            Some((file, at)) => place(file, at.into()),
            None => format!("image {}", row + 1),
        }
    }

    /// The files that the images came from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(AsRef::as_ref)
    }

    /// Checks that there are at least two classes, each with at least `rows` images.
    ///
    /// # Errors
    /// Where that is not so.
    pub fn check_classes(&self, rows: usize) -> Result<()> {
        labels::check_classes(self.labels.as_ref(), rows).map_err(|error| match self.files.first() {
            Some(file) => error.at_file(file),
            None => error,
        })
    }

    /// The images with these indices, in this order; the classes stay.
    ///
    /// # Panics
    /// Where an index is not below [`Images::rows`].
    pub fn select(&self, rows: &[usize]) -> Images {
        let mut pixels = Vec::with_capacity(rows.len() * self.shape().values());
        rows.iter().for_each(|&row| pixels.extend_from_slice(self.image(row)));
        let places = if self.places.is_empty() { Vec::new() } else { rows.iter().map(|&r| self.places[r]).collect() };
        Images {
            pixels,
            labels: self.labels.as_ref().map(|labels| labels.select(rows)),
            files: self.files.clone(),
            places,
            ..*self
        }
    }

    /// The number of a class, whose name may be a number written in another way.
    ///
    /// # Errors
    /// Where there is no such class.
    pub fn class_number(&self, class: &str) -> Result<usize> {
        labels::class_number(self.classes(), class)
    }

    /// Takes a class out: the other images, without that class among the classes, and the images of the class.
    ///
    /// # Errors
    /// Where there is no such class.
    pub fn leave_out(&self, class: &str) -> Result<(Images, Images)> {
        let out = self.class_number(class)?;
        Ok((self.with_classes(|c| c != out), self.with_classes(|c| c == out)))
    }

    /// The images of some classes, and no others among the classes.
    pub fn with_classes(&self, keep: impl Fn(usize) -> bool) -> Images {
        let rows: Vec<usize> = (0..self.rows()).filter(|&r| self.label(r).is_some_and(|c| keep(c as usize))).collect();
        let mut images = self.select(&rows);
        if let Some(labels) = &mut images.labels {
            labels.keep_classes(keep);
        }
        images
    }

    /// Divides the rows at random, class by class, into parts of `1 - share` and `share`, as
    /// [`Table::split_rows`](super::Table::split_rows).
    ///
    /// # Errors
    /// Where `share` is not between 0 and 1.
    pub fn split_rows(&self, share: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
        labels::split_rows(self.labels.as_ref(), self.rows(), share, seed)
    }

    /// Deals the rows into `k` folds at random, class by class, as [`Table::folds`](super::Table::folds).
    pub fn folds(&self, k: usize, seed: u64) -> Vec<Vec<usize>> {
        labels::folds(self.labels.as_ref(), self.rows(), k, seed)
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
    fn reserve(&mut self, shape: Shape, more: usize, expected: Option<usize>) -> Result<()> {
        let values = shape.values();
        let needed = values.saturating_mul(more.max(expected.unwrap_or(0)));
        if self.pixels.len().saturating_add(needed) > MAX_BYTES || self.pixels.try_reserve(needed).is_err() {
            let images = self.places.len() + more.max(expected.unwrap_or(0));
            let Shape { height, width, channels } = shape;
            return Err(Error::data(format!(
                "{images} images of {height}x{width}x{channels} do not fit in memory ({} GiB at most)",
                MAX_BYTES >> 30
            ))
            .hint("give --image-size HEIGHTxWIDTH to make them smaller, or fewer images"));
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

#[cfg(test)]
mod tests;
