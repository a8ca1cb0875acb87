//! The rows of a training run, all of them or some.

use super::range_penalty::RangePenalty;
use crate::data::{ImageSpec, Images};
use crate::train::{Examples, ImageRows, SelectedRows};

/// All rows of a training run.
#[derive(Clone, Copy)]
pub(super) enum AllRows<'a> {
    Table { x: &'a [f32], width: usize },
    Images { images: &'a Images, spec: &'a ImageSpec },
}

impl AllRows<'_> {
    /// The out-of-range penalty of some rows; `clip` is the clipping limit of the network. Images have none.
    pub(super) fn range_penalty(self, rows: &[usize], clip: Option<f32>) -> Option<RangePenalty> {
        match self {
            AllRows::Table { x, width } => clip.map(|limit| RangePenalty::fit(x, width, rows, limit)),
            AllRows::Images { .. } => None,
        }
    }
}

/// The numbers of some rows, and their labels.
pub(super) struct Part {
    pub rows: Vec<usize>,
    pub y: Vec<u32>,
}

impl Part {
    pub(super) fn new(rows: Vec<usize>, y: &[u32]) -> Part {
        Part { y: rows.iter().map(|&row| y[row]).collect(), rows }
    }

    /// Some of the rows, by their places here.
    pub(super) fn select(&self, places: &[usize]) -> Part {
        Part { rows: places.iter().map(|&i| self.rows[i]).collect(), y: places.iter().map(|&i| self.y[i]).collect() }
    }

    pub(super) fn examples<'a>(&'a self, all: AllRows<'a>) -> Examples<'a> {
        let (rows, y) = (&self.rows[..], &self.y[..]);
        match all {
            AllRows::Table { x, width } => Examples::Selected(SelectedRows { x, width, rows, y }),
            AllRows::Images { images, spec } => Examples::Images(ImageRows { images, rows, spec, y }),
        }
    }
}
