//! Images in memory.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::super::labels::{self, Labels};
use super::super::split::{self, Groups};
use super::shape::ImageShape;
use crate::error::{Error, Result, count};

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
    pub(super) files: Vec<Arc<Path>>,
    /// For each image its file and which of it, from 1; 0 where the file is the image. Empty without files.
    pub(super) places: Vec<(u32, u32)>,
}

impl Images {
    /// Images from bytes, borrowed (and copied) or owned: image by image, row by row, the channels of a pixel together.
    ///
    /// # Errors
    /// If the lengths do not fit each other.
    pub fn from_pixels<'a, S: AsRef<str>>(
        pixels: impl Into<Cow<'a, [u8]>>,
        shape: ImageShape,
        labels: Option<&[S]>,
    ) -> Result<Images> {
        let pixels = pixels.into();
        let values = shape.values();
        if values == 0 || !matches!(shape.channels, 1 | 3) || pixels.is_empty() || !pixels.len().is_multiple_of(values)
        {
            let ImageShape { height, width, channels } = shape;
            return Err(Error::data(format!("{} bytes are not images of {height}x{width}x{channels}", pixels.len()))
                .hint("give whole images of 1 or 3 channels, and at least one"));
        }
        let rows = pixels.len() / values;
        let labels = match labels {
            Some(labels) if labels.len() != rows => {
                return Err(Error::data(format!("{} for {}", count(labels.len(), "label"), count(rows, "image")))
                    .hint("give one label for each image"));
            }
            Some(labels) => Some(Labels::of(&labels.iter().map(|label| label.as_ref().to_owned()).collect::<Vec<_>>())),
            None => None,
        };
        let ImageShape { height, width, channels } = shape;
        let pixels = pixels.into_owned();
        Ok(Images { height, width, channels, pixels, labels, files: Vec::new(), places: Vec::new() })
    }

    /// The shape of each image.
    pub fn shape(&self) -> ImageShape {
        ImageShape { height: self.height, width: self.width, channels: self.channels }
    }

    /// The number of images.
    pub fn rows(&self) -> usize {
        self.pixels.len() / self.shape().values().max(1)
    }

    /// The pixels of an image.
    ///
    /// # Panics
    /// If `row` is not below [`Images::rows`].
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
    /// If there are fewer.
    pub fn check_classes(&self, rows: usize) -> Result<()> {
        let remedy = "check `label`; add images to these classes, or remove them";
        labels::check_classes(self.labels.as_ref(), rows, remedy).map_err(|error| match self.files.first() {
            Some(file) => error.at_file(file),
            None => error,
        })
    }

    /// The images with these indices, in this order; the classes stay.
    ///
    /// # Panics
    /// If an index is not below [`Images::rows`].
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

    /// The index of a class. Its name may be a number written in another way.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn class_number(&self, class: &str) -> Result<usize> {
        labels::class_number(self.classes(), class)
    }

    /// Splits off a class: returns the images of the other classes, and those of the class.
    ///
    /// # Errors
    /// If there is no such class.
    pub fn leave_out(&self, class: &str) -> Result<(Images, Images)> {
        let out = self.class_number(class)?;
        Ok((self.with_classes(|c| c != out), self.with_classes(|c| c == out)))
    }

    /// The images of some classes; the others are removed from the classes.
    pub fn with_classes(&self, keep: impl Fn(usize) -> bool) -> Images {
        let rows: Vec<usize> = (0..self.rows()).filter(|&r| self.label(r).is_some_and(|c| keep(c as usize))).collect();
        let mut images = self.select(&rows);
        if let Some(labels) = &mut images.labels {
            labels.keep_classes(keep);
        }
        images
    }

    /// Equal images belong together.
    pub(crate) fn groups(&self) -> Groups {
        Groups::of_bytes(&self.pixels, self.shape().values())
    }

    /// Divides the rows at random, class by class, into parts of `1 - fraction` and `fraction`, as
    /// [`Table::split_rows`](crate::data::Table::split_rows).
    ///
    /// # Errors
    /// If `fraction` is not between 0 and 1.
    pub fn split_rows(&self, fraction: f64, seed: u64) -> Result<(Vec<usize>, Vec<usize>)> {
        split::split_rows(self.labels.as_ref(), &self.groups(), fraction, seed)
    }

    /// Deals the rows into `k` folds at random, class by class, as [`Table::folds`](crate::data::Table::folds).
    pub fn folds(&self, k: usize, seed: u64) -> Vec<Vec<usize>> {
        split::folds(self.labels.as_ref(), &self.groups(), k, seed, "folds")
    }
}

/// Where an image is, for messages.
pub(super) fn place(file: &Path, row: u64) -> String {
    if row == 0 { file.display().to_string() } else { format!("{}, row {row}", file.display()) }
}
