//! Explanations for images: where an image is strange.
//!
//! A window of the image is covered with the mean color of the training images, and the image is scored again. If its confidence
//! rises, what was covered is strange. Windows overlap, and each cell of the map has the mean gain of the windows that cover it.
//! This works for every method and detector.

use serde::Serialize;

use super::{Model, Predictions};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};

/// Cells along the longer side of an image.
const CELLS: usize = 8;
/// Cells along a side of a window.
const WINDOW: usize = 2;

/// Where an image is strange.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Occlusion {
    /// The side of a cell in pixels; the last row and column may be cut.
    pub cell: usize,
    /// The number of rows of cells.
    pub rows: usize,
    /// The number of columns of cells.
    pub columns: usize,
    /// For each cell, row by row, the mean gain in confidence if a window around it is covered. Above 0: strange.
    pub gains: Vec<f64>,
}

/// A part of an image, in pixels from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// The first column.
    pub x: usize,
    /// The first row.
    pub y: usize,
    /// The number of columns.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

impl Occlusion {
    /// The cells with a gain, the largest first, as parts of an image of this height and width.
    pub fn areas(&self, [height, width]: [usize; 2]) -> Vec<(Area, f64)> {
        let mut order: Vec<usize> = (0..self.gains.len()).filter(|&i| self.gains[i] > 0.0).collect();
        order.sort_by(|&a, &b| self.gains[b].total_cmp(&self.gains[a]));
        let area = |i: usize| {
            let (x, y) = (i % self.columns * self.cell, i / self.columns * self.cell);
            Area { x, y, width: self.cell.min(width - x), height: self.cell.min(height - y) }
        };
        order.into_iter().map(|i| (area(i), self.gains[i])).collect()
    }
}

impl Model {
    /// Where an image, given as preprocessed pixels, is strange. It costs about as many predictions as the map has cells.
    ///
    /// # Errors
    /// If the model was trained on a table, or `x` is not one image.
    pub fn explain_image(&self, x: &[f32], pool: &Pool) -> Result<Occlusion> {
        let Some(spec) = &self.schema().image else {
            return Err(Error::setting("the model was trained on a table, and has no map of an image"));
        };
        let (height, width, channels) = (spec.height, spec.width, spec.channels);
        if x.len() != height * width * channels {
            return Err(Error::data("only one image can be explained at a time"));
        }
        let cell = height.max(width).div_ceil(CELLS);
        let (rows, columns) = (height.div_ceil(cell), width.div_ceil(cell));
        // The corners of the windows, in cells; an image of one cell has one window.
        let corners = |cells: usize| 0..=cells.saturating_sub(WINDOW);
        let windows: Vec<[usize; 2]> =
            corners(rows).flat_map(|top| corners(columns).map(move |left| [top, left])).collect();
        let mut covered = x.repeat(windows.len() + 1);
        for (image, [top, left]) in covered.chunks_exact_mut(x.len()).skip(1).zip(&windows) {
            let (from, to) = (left * cell * channels, ((left + WINDOW) * cell).min(width) * channels);
            for row in image.chunks_exact_mut(width * channels).skip(top * cell).take(WINDOW * cell) {
                // The mean color is 0 after preprocessing.
                row[from..to].fill(0.0);
            }
        }
        let mut predictions = Predictions::default();
        self.predict_rows(&covered, &mut predictions, pool)?;
        let (own, others) = (predictions.confidence[0], &predictions.confidence[1..]);
        let (mut gains, mut counts) = (vec![0.0; rows * columns], vec![0.0; rows * columns]);
        for ([top, left], confidence) in windows.into_iter().zip(others) {
            for row in top..(top + WINDOW).min(rows) {
                for column in left..(left + WINDOW).min(columns) {
                    gains[row * columns + column] += confidence - own;
                    counts[row * columns + column] += 1.0;
                }
            }
        }
        gains.iter_mut().zip(counts).for_each(|(g, n)| *g /= n);
        Ok(Occlusion { cell, rows, columns, gains })
    }
}
