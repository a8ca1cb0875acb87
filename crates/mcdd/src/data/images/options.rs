//! How images are to be read.

use super::super::options::{Label, Part};
use super::shape::MAX_SIDE;
use crate::error::{Error, Result};

/// How images are to be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageOptions {
    /// Where the labels are: found, none, a file with one for each image, or a column of Parquet.
    pub label: Label,
    /// The height and width that all images get (default: those of the first).
    pub size: Option<(usize, usize)>,
    /// Without a size: the largest height and width, to which larger images are reduced.
    pub at_most: Option<(usize, usize)>,
    /// The channels that all images get, 1 or 3 (default: those of the first, and others are an error).
    pub channels: Option<usize>,
    /// Whether images that cannot be used are left out and reported with their reasons, and not an error.
    pub skip_bad: bool,
    /// Threads that decode; 0 for as many as there are cores.
    pub threads: usize,
    /// The part that is read of a folder as CIFAR, SVHN and MNIST are published.
    pub part: Part,
    /// Whether images without labels are read, where labels are [found](Label::Auto).
    pub unlabeled: bool,
}

impl ImageOptions {
    pub(super) fn check(&self) -> Result<()> {
        if let Some((height, width)) = self.size
            && !((1..=MAX_SIDE).contains(&height) && (1..=MAX_SIDE).contains(&width))
        {
            return Err(Error::setting(format!("images cannot be made {height}x{width}"))
                .hint(format!("give sides of 1 to {MAX_SIDE}")));
        }
        match self.channels {
            None | Some(1 | 3) => Ok(()),
            Some(other) => {
                Err(Error::setting(format!("images cannot have {other} channels"))
                    .hint("give 1 for gray or 3 for color"))
            }
        }
    }
}
