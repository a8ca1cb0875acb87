//! Images from files, and their way to a network's inputs.
//!
//! [`Images::read`] brings all of them into memory for training, as bytes; [`ImageSpec::fit`] learns the
//! normalization from the training rows; a [`Loader`] prepares batches in the background, with [`Augment`]ation if wanted;
//! [`ImageReader`] reads images for prediction block by block, in memory that does not grow with their number.
//!
//! # What a path may be
//!
//! - a folder with a sub-folder for each class, which holds its images at any depth, in the order of their names
//!   (names that begin with a dot are skipped); a folder of images alone has no labels;
//! - an image: PNG, JPEG, WebP, BMP, GIF or TIFF (of several frames or pages the first);
//! - CIFAR-10's and CIFAR-100's files, binary or Python (of the latter the fine labels count), SVHN's `.mat`, IDX
//!   with its labels beside it; a folder of these gives the [part](ImageOptions::part) that is asked for;
//! - Parquet with a column `image` or `img` of encoded images.
//!
//! The format is found by the content, except for CIFAR's `.bin`, which has no signature.
//!
//! # One shape
//!
//! All images get the size and the channels of the first, unless [`ImageOptions`] give others: another size is
//! reached by averaging, whatever the sides' ratio; gray and color together are an error unless
//! [`ImageOptions::channels`] gives the number of channels. Images are rotated by their EXIF data, an alpha channel
//! is left out, and 16 bits become 8.
//!
//! # Example
//!
//! ```
//! use mcdd::data::{Augment, ImageSpec, Images, Loader, Loading, ImageShape};
//!
//! let shape = ImageShape { height: 6, width: 6, channels: 1 };
//! let pixels: Vec<u8> = (0..8 * 36).map(|i| i as u8).collect();
//! let images = Images::from_pixels(&pixels, shape, Some(&["a", "b"].repeat(4)))?;
//! let (train, test) = images.split_rows(0.25, 7)?;
//! let spec = ImageSpec::fit(&images, &train)?;
//! let augment = Some(Augment { crop_padding: 2, ..Augment::default() });
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
#[cfg(feature = "images")]
mod blocks;
#[cfg(feature = "images")]
mod cifar;
#[cfg(feature = "images")]
mod decode;
#[cfg(feature = "images")]
mod folder;
#[cfg(feature = "images")]
mod idx;
#[cfg(feature = "images")]
mod item;
mod loader;
#[cfg(feature = "images")]
mod matlab;
mod memory;
#[cfg(feature = "images")]
mod open;
#[cfg(feature = "images")]
mod options;
#[cfg(all(feature = "images", feature = "parquet"))]
mod parquet;
#[cfg(feature = "images")]
mod pickle;
#[cfg(feature = "images")]
mod read;
#[cfg(feature = "images")]
mod reader;
#[cfg(feature = "images")]
mod resize;
mod shape;
mod spec;

pub use augment::{Augment, Border};
pub use loader::{Loader, Loading, Prepared};
pub use memory::Images;
#[cfg(feature = "images")]
pub use options::ImageOptions;
#[cfg(feature = "images")]
pub use reader::{ImageBatch, ImageReader};
pub use shape::ImageShape;
pub use spec::ImageSpec;

#[cfg(all(test, feature = "images"))]
mod tests;
