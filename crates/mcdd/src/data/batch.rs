//! A block of rows as the network gets it.

use super::kept::Kept;
use crate::error::Row;

/// An image that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadImage {
    /// How many images of the batch come before it.
    pub before: usize,
    /// Where it is from.
    pub name: String,
    /// Why it cannot be used.
    pub reason: String,
}

/// Rows ready for the network. Its buffers are used again by the next block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The number of rows.
    pub rows: usize,
    /// The inputs, row-major, [`Schema::width`](super::Schema::width) a row.
    pub x: Vec<f32>,
    /// The rows of the file, with their lines; empty for images.
    pub places: Vec<Row>,
    /// The labels, where the file has them; `None` for a missing cell.
    pub labels: Option<Vec<Option<String>>>,
    /// Missing cells in this block.
    pub missing: usize,
    /// Cells in this block that hold a category not seen in training.
    pub unseen: usize,
    /// These cells, in the order of their rows.
    pub unseen_cells: Vec<Unseen>,
    /// Where each image is from; empty for tables.
    pub names: Vec<String>,
    /// The columns that [`ReadOptions::pass_through`](super::ReadOptions::pass_through) asks for.
    pub kept: Vec<Kept>,
    /// Images that cannot be used, where these are skipped.
    pub bad: Vec<BadImage>,
}

/// A cell that holds a category not seen in training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// Its row among those that were read together, from 0.
    pub row: usize,
    /// Its column among [`Schema::columns`](super::Schema::columns).
    pub column: usize,
    /// Its text, cut where it is very long.
    pub text: String,
}

impl Unseen {
    /// Those of one row, of cells in the order of their rows.
    pub fn of_row(cells: &[Unseen], row: usize) -> &[Unseen] {
        let from = cells.partition_point(|cell| cell.row < row);
        let count = cells[from..].partition_point(|cell| cell.row == row);
        &cells[from..from + count]
    }
}
