//! One row as network inputs, without a table and without allocations.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use super::cell::Cell;
use super::encode::{moment, standardize};
use super::number::{self, Parsed};
use super::schema::{ColumnKind, Schema, SchemaColumn};
use super::text::{quoted, shown};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Result};

/// Rows of a task of [`Schema::encode_rows`].
const ENCODED: usize = 1024;

/// Cells of a row that are missing or were not seen in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Missing cells.
    pub missing: usize,
    /// Cells that hold a category not seen in training.
    pub unseen: usize,
}

impl Schema {
    /// Writes the network inputs of one row to `out`, which has [`Schema::width`] values. The row has a cell for each of
    /// [`Schema::columns`], in their order; cells of dropped columns are not looked at. The inputs are those of
    /// [`Schema::transform`] to the bit.
    ///
    /// ```
    /// use mcdd::data::{Cell, Schema, Table};
    ///
    /// let table = Table::builder().column("size", [1.0, 3.0])?.column("color", ["red", "blue"])?.build()?;
    /// let (schema, _) = Schema::fit(&table, &[0, 1])?;
    /// let mut x = vec![0.0; schema.width()];
    /// schema.encode_row(&[Cell::F64(3.0), Cell::Text("red")], &mut x)?;
    /// assert_eq!(x, [1.0, 0.0, 1.0]); // size, color=blue, color=red
    /// schema.encode_named_row(&[("color", "blue".into()), ("size", 2.into())], &mut x)?;
    /// assert_eq!(x, [0.0, 1.0, 0.0]);
    /// # Ok::<(), mcdd::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of cells or of inputs is wrong, a numeric column gets a text that is not a number, a number is
    /// infinite, or the model reads images.
    pub fn encode_row(&self, cells: &[Cell<'_>], out: &mut [f32]) -> Result<RowCounts> {
        self.check_out(out)?;
        if cells.len() != self.columns.len() {
            return Err(self.wrong_count(cells.len(), "cells"));
        }
        let mut counts = RowCounts::default();
        let mut at = 0;
        for (column, &cell) in self.columns.iter().zip(cells) {
            let width = column.kind.width();
            column.encode(cell, &mut out[at..at + width], &mut counts)?;
            at += width;
        }
        Ok(counts)
    }

    /// As [`Schema::encode_row`], for cells with the names of their columns, in any order. Cells of other names are
    /// ignored; of two cells with one name the first that is found counts.
    ///
    /// # Errors
    /// As [`Schema::encode_row`]; if a column of the model is missing.
    pub fn encode_named_row(&self, cells: &[(&str, Cell<'_>)], out: &mut [f32]) -> Result<RowCounts> {
        self.check_out(out)?;
        let mut counts = RowCounts::default();
        let (mut at, mut next) = (0, 0);
        for column in &self.columns {
            let width = column.kind.width();
            if width == 0 {
                continue;
            }
            // Most rows come in the schema's order.
            let is = |index: &usize| cells[*index].0 == column.name;
            let found = (next..cells.len()).find(is).or_else(|| (0..next.min(cells.len())).find(is));
            let Some(index) = found else {
                let names: Vec<String> = cells.iter().map(|(name, _)| (*name).to_owned()).collect();
                let places: HashMap<&str, usize> = cells.iter().map(|(name, _)| *name).zip(0..).collect();
                return match self.bind_names(&places, &names) {
                    Err(e) => Err(e),
                    Ok(_) => Err(Error::data("a column of the model is missing").at_column(&column.name)),
                };
            };
            column.encode(cells[index].1, &mut out[at..at + width], &mut counts)?;
            next = index + 1;
            at += width;
        }
        Ok(counts)
    }

    /// The network inputs of rows of numbers in row-major order, by the threads of `pool`: a value for each of
    /// [`Schema::columns`], in their order, with NaN for a missing cell. They are those of [`Schema::transform`] to the bit.
    ///
    /// # Errors
    /// As [`Schema::encode_row`]; rows count from 1.
    pub fn encode_rows<T: Copy + Into<f64> + Sync>(&self, x: &[T], pool: &Pool) -> Result<Vec<f32>> {
        self.check_reads_tables()?;
        let (columns, width) = (self.columns.len().max(1), self.width());
        if !x.len().is_multiple_of(columns) {
            return Err(self.wrong_count(x.len() % columns, "numbers in the last row"));
        }
        let mut out = vec![0.0; x.len() / columns * width];
        let first: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        pool.split(chunks(&mut out, (ENCODED * width).max(1)), |part, out| {
            let rows = x.chunks_exact(columns).enumerate().skip(part * ENCODED);
            for ((row, cells), out) in rows.zip(out.chunks_exact_mut(width)) {
                let (mut at, mut counts) = (0, RowCounts::default());
                for (column, &cell) in self.columns.iter().zip(cells) {
                    let to = at + column.kind.width();
                    if let Err(error) = column.encode(Cell::F64(cell.into()), &mut out[at..to], &mut counts) {
                        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                        if first.as_ref().is_none_or(|(known, _)| row < *known) {
                            *first = Some((row, error.at_row(row as u64 + 1)));
                        }
                        return;
                    }
                    at = to;
                }
            }
        });
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(out),
        }
    }

    fn check_out(&self, out: &[f32]) -> Result<()> {
        self.check_reads_tables()?;
        let width = self.width();
        if out.len() != width {
            return Err(Error::data(format!("there is room for {} inputs, and a row has {width}", out.len()))
                .hint("give `Schema::width` values"));
        }
        Ok(())
    }
}

impl SchemaColumn {
    /// Writes the inputs of a cell to `out`, which has the width of the column.
    fn encode(&self, cell: Cell<'_>, out: &mut [f32], counts: &mut RowCounts) -> Result<()> {
        out.fill(0.0);
        let (inputs, present) = match &self.kind {
            ColumnKind::Dropped { .. } => return Ok(()),
            ColumnKind::Numeric { mean, std, .. } => {
                let value = self.number(cell)?;
                if !value.is_nan() {
                    out[0] = standardize(value, *mean, *std);
                }
                (1, !value.is_nan())
            }
            ColumnKind::Time { mean, std, cycles, .. } => {
                let seconds = self.number(cell)?;
                if !seconds.is_nan() {
                    moment(seconds, *mean, *std, cycles, out);
                }
                (1 + 2 * cycles.len(), !seconds.is_nan())
            }
            ColumnKind::Categorical { categories, other, .. } => {
                let mut digits = Digits { bytes: [0; Digits::MOST], length: 0 };
                let text = self.category(cell, &mut digits)?;
                if let Some(text) = text {
                    // The categories of a fitted schema are sorted; those of a file may not be.
                    let sorted = categories.binary_search_by(|category| category.as_str().cmp(text)).ok();
                    match sorted.or_else(|| categories.iter().position(|category| category == text)) {
                        Some(place) => out[place] = 1.0,
                        None if *other => out[categories.len()] = 1.0,
                        None => counts.unseen += 1,
                    }
                }
                (categories.len() + usize::from(*other), text.is_some())
            }
        };
        if !present {
            counts.missing += 1;
            // The indicator is the last input, where there is one.
            if let Some(indicator) = out.get_mut(inputs) {
                *indicator = 1.0;
            }
        }
        Ok(())
    }

    /// The value of a cell of a column of numbers or times; NaN where it is missing.
    fn number(&self, cell: Cell<'_>) -> Result<f64> {
        let parse = |text: &str| match &self.form {
            Some(form) => form.parse(text.as_bytes()),
            None => number::parse(text.as_bytes()),
        };
        let value = match cell {
            Cell::Missing => f64::NAN,
            Cell::Bool(value) => f64::from(u8::from(value)),
            Cell::Int(value) => value as f64,
            Cell::Uint(value) => value as f64,
            Cell::F32(value) => f64::from(value),
            Cell::F64(value) => value,
            Cell::Text(text) => match parse(text) {
                Parsed::Number(value) => return Ok(value),
                Parsed::Missing => f64::NAN,
                Parsed::Infinite => f64::INFINITY,
                Parsed::Text => {
                    if let Some(form) = &self.form {
                        return Err(form.refuse(&quoted(text.trim())).at_column(shown(&self.name)));
                    }
                    return Err(Error::data(format!(
                        "{} is not a number, and the column was numeric in training",
                        quoted(text.trim())
                    ))
                    .at_column(shown(&self.name))
                    .hint("give a number, or a missing cell"));
                }
            },
        };
        let value = self.finite(value)?;
        match &self.form {
            Some(form) => {
                form.number(value).ok_or_else(|| form.refuse(&number::show(value)).at_column(shown(&self.name)))
            }
            None => Ok(value),
        }
    }

    /// The category of a cell, in normal form; `None` where it is missing.
    fn category<'a>(&self, cell: Cell<'a>, digits: &'a mut Digits) -> Result<Option<&'a str>> {
        // The buffer holds every number, so that writing to it does not fail.
        let _ = match cell {
            Cell::Missing => return Ok(None),
            Cell::Bool(value) => return Ok(Some(if value { "true" } else { "false" })),
            Cell::Text(text) => {
                let text = text.trim_ascii();
                return Ok((!number::is_missing(text.as_bytes())).then(|| number::normal(text)));
            }
            Cell::F32(value) if value.is_nan() => return Ok(None),
            Cell::F64(value) if value.is_nan() => return Ok(None),
            // Without the sign of a negative zero.
            Cell::F32(0.0) | Cell::F64(0.0) => return Ok(Some("0")),
            Cell::Int(value) => write!(digits, "{value}"),
            Cell::Uint(value) => write!(digits, "{value}"),
            Cell::F32(value) => {
                self.finite(f64::from(value))?;
                write!(digits, "{value}")
            }
            Cell::F64(value) => {
                self.finite(value)?;
                write!(digits, "{value}")
            }
        };
        Ok(Some(digits.text()))
    }

    fn finite(&self, value: f64) -> Result<f64> {
        if value.is_infinite() {
            return Err(Error::data("the value is infinite or too large for a 64-bit number")
                .at_column(shown(&self.name))
                .hint("give a finite number, or a missing cell"));
        }
        Ok(value)
    }
}

/// The text of a number, on the stack.
struct Digits {
    bytes: [u8; Digits::MOST],
    length: usize,
}

impl Digits {
    /// The longest number is a subnormal one: a sign, `0.`, 323 zeros and 17 digits at most.
    const MOST: usize = 384;

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    #[test]
    fn cells_of_every_type() {
        let numbers = [0.1, -0.0, 5e-324, -f64::MAX, 1e20];
        let table = Table::builder()
            .column("n", numbers)
            .and_then(|b| b.categorical("c", numbers))
            .and_then(|b| b.column("t", ["a", "b", "", "a", "1x"]))
            .and_then(|b| b.column("same", [1, 1, 1, 1, 1]))
            .and_then(|b| b.build())
            .unwrap();
        let (schema, _) = Schema::fit(&table, &[0, 1, 2, 3, 4]).unwrap();
        let all = schema.transform(&table, None).unwrap();
        let width = schema.width();
        let mut x = vec![f32::NAN; width];
        for (row, text) in ["a", "b", " NA", "a ", "1x"].into_iter().enumerate() {
            let n = Cell::F64(numbers[row]);
            let counts = schema.encode_row(&[n, n, Cell::Text(text), Cell::Missing], &mut x).unwrap();
            assert_eq!(x, all[row * width..(row + 1) * width]);
            assert_eq!(counts, RowCounts { missing: usize::from(row == 2), unseen: 0 });
            let named = [("t", Cell::Text(text)), ("?", Cell::Missing), ("c", n), ("n", n)];
            schema.encode_named_row(&named, &mut x).unwrap();
            assert_eq!(x, all[row * width..(row + 1) * width]);
        }
        let digits = format!("{}", numbers[3]);
        let counts = schema.encode_row(&[" 0.1".into(), Cell::from(&digits), "new".into(), 3.into()], &mut x).unwrap();
        assert_eq!((x[0], counts.unseen), (all[0], 1));
        assert_eq!(x[1..6], all[3 * width + 1..3 * width + 6]);
    }

    #[test]
    fn rows_of_numbers_are_those_of_a_table() {
        let rows = 3 * ENCODED / 2;
        let mut x: Vec<f64> = (0..rows * 2).map(|i| ((i * 37) % 101) as f64).collect();
        (x[5], x[10]) = (f64::NAN, -0.0);
        let table = Table::from_rows(&x, 2, None::<&[&str]>).unwrap();
        let (schema, _) = Schema::fit(&table, &(0..rows).collect::<Vec<_>>()).unwrap();
        let expected = schema.transform(&table, None).unwrap();
        for threads in [1, 2] {
            assert_eq!(schema.encode_rows(&x, &Pool::new(threads)).unwrap(), expected);
        }
        let single: Vec<f32> = x.iter().map(|&v| v as f32).collect();
        assert_eq!(schema.encode_rows(&single, Pool::shared()).unwrap(), expected);
        // The first wrong row is named, whichever thread finds it.
        (x[2 * rows - 1], x[9]) = (f64::INFINITY, f64::INFINITY);
        let e = schema.encode_rows(&x, &Pool::new(2)).unwrap_err();
        assert_eq!((e.row(), e.column()), (Some(5), Some("2")));
        assert!(schema.encode_rows(&x[1..], Pool::shared()).is_err());
        assert!(schema.encode_rows(&x[..0], Pool::shared()).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_encoded() {
        let table = Table::builder().column("n", [1, 2]).and_then(|b| b.column("t", ["a", "b"])).unwrap();
        let table = table.build().unwrap();
        let (schema, _) = Schema::fit(&table, &[0, 1]).unwrap();
        let (mut x, a) = (vec![0.0; schema.width()], Cell::Text("a"));
        for (cells, column) in [
            ([Cell::Text("x"), a], Some("n")),
            ([Cell::F64(f64::INFINITY), a], Some("n")),
            ([Cell::Text("1e999"), a], Some("n")),
            ([Cell::Int(1), Cell::F32(f32::NEG_INFINITY)], Some("t")),
        ] {
            let e = schema.encode_row(&cells, &mut x).unwrap_err();
            assert_eq!(e.column(), column);
            assert!(e.hint_text().is_some());
        }
        assert!(schema.encode_row(&[a], &mut x).is_err());
        assert!(schema.encode_row(&[Cell::Int(1), a], &mut x[1..]).is_err());
        let e = schema.encode_named_row(&[("n", Cell::Int(1))], &mut x).unwrap_err();
        assert_eq!(e.column(), Some("t"));
    }
}
