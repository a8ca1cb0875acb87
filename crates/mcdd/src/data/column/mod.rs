//! Columns, and how they are built cell by cell.

mod auto;
mod builder;
mod place;
#[cfg(test)]
mod tests;
mod texts;
mod values;
mod want;

pub(crate) use builder::{Cells, ColumnBuilder};
pub use values::{Column, MISSING};
pub(crate) use want::Want;
