//! IDX images: the MNIST files, with their labels in the file beside them.

use std::path::Path;
use std::sync::Arc;

use super::super::idx::{Idx, sibling};
use super::super::input::Input;
use super::super::matrix;
use super::super::options::Label;
use super::decode::Raster;
use super::item::{Content, ImageSource, Item, wants_labels};
use super::shape::ImageShape;
use crate::error::{Error, Result, count};

pub(super) struct IdxImages {
    idx: Idx,
    file: Arc<Path>,
    shape: ImageShape,
    /// The labels of all rows, where there are any.
    labels: Option<Vec<Arc<str>>>,
    /// Whether the length of the file confirms its header.
    sure: bool,
    row: usize,
}

pub(super) fn open(input: Input, label: &Label) -> Result<IdxImages> {
    let file = Arc::clone(&input.file);
    let wanted = wants_labels(label, &file)?;
    let sure = input.length.is_some();
    let idx = Idx::open(input)?;
    let side = |d: u64| usize::try_from(d).unwrap_or(usize::MAX);
    let shape = match *idx.dims() {
        [_, h, w] => ImageShape { height: side(h), width: side(w), channels: 1 },
        [_, h, w, c @ (1 | 3)] => ImageShape { height: side(h), width: side(w), channels: side(c) },
        _ => {
            return Err(Error::data("its rows are not images of one or three channels")
                .at_file(&file)
                .hint("give an IDX file of bytes with the dimensions rows, height, width"));
        }
    };
    let labels = match sibling(&file).filter(|_| wanted) {
        Some(path) => {
            let labels = shared(&matrix::labels(&path)?);
            if labels.len() as u64 != idx.rows() {
                return Err(Error::data(format!(
                    "{} for {}",
                    count(labels.len(), "label"),
                    count(idx.rows() as usize, "image")
                ))
                .at_file(&path)
                .hint("fetch or make the files again"));
            }
            Some(labels)
        }
        None => None,
    };
    Ok(IdxImages { idx, file, shape, labels, sure, row: 0 })
}

/// The same texts, each in memory once.
pub(super) fn shared(names: &[String]) -> Vec<Arc<str>> {
    let mut known: std::collections::HashMap<&str, Arc<str>> = std::collections::HashMap::new();
    names.iter().map(|name| Arc::clone(known.entry(name).or_insert_with(|| name.as_str().into()))).collect()
}

impl ImageSource for IdxImages {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let mut pixels = Vec::new();
        let count = self.idx.bytes(max, &mut pixels)?;
        for image in pixels.chunks_exact(self.shape.values()) {
            let label = self.labels.as_ref().and_then(|labels| labels.get(self.row).cloned());
            self.row += 1;
            let raster = Raster { shape: self.shape, pixels: image.to_vec() };
            let (file, row) = (Arc::clone(&self.file), self.row as u64);
            items.push(Item { content: Content::Pixels(raster), label, file, row });
        }
        Ok(count)
    }

    fn labeled(&self) -> bool {
        self.labels.is_some()
    }

    fn expected(&self) -> Option<usize> {
        usize::try_from(self.idx.rows()).ok().filter(|_| self.sure)
    }

    fn shape(&self) -> Option<ImageShape> {
        Some(self.shape)
    }
}
