//! The network inputs of a table's rows.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::batch::Unseen;
use super::column::{Column, MISSING};
use super::convert::convert;
use super::encode::{Encoder, Tally};
use super::schema::{ColumnKind, Schema, SchemaColumn, no_names};
use super::table::Table;
use super::text::{quoted, shown};
use crate::error::{Error, Result};

impl Schema {
    /// The network inputs of a table's rows (all of them without `rows`), row-major. Columns are matched as
    /// prediction does: by name, or by position where the training data had no names.
    ///
    /// # Errors
    /// If a column is missing, or a cell of it is not written as in training.
    ///
    /// # Panics
    /// If a row is not below [`Table::rows`].
    pub fn transform(&self, table: &Table, rows: Option<&[usize]>) -> Result<Vec<f32>> {
        self.transform_and_list(table, rows).map(|(x, _)| x)
    }

    /// As [`Schema::transform`], with the cells that hold a category not seen in training, in the order of the rows.
    ///
    /// # Errors
    /// As [`Schema::transform`].
    ///
    /// # Panics
    /// If a row is not below [`Table::rows`].
    pub fn transform_and_list(&self, table: &Table, rows: Option<&[usize]>) -> Result<(Vec<f32>, Vec<Unseen>)> {
        /// Rows of the output that are worked on together, so that they stay in the cache.
        const CHUNK: usize = 256;
        self.check_reads_tables()?;
        let width = self.width();
        let mut encoders = Vec::with_capacity(self.columns.len());
        let mut offset = 0;
        for (index, (column, at)) in self.columns.iter().zip(self.bind_table(table)?).enumerate() {
            if let Some(at) = at {
                let cells = match (&column.kind, &table.columns[at]) {
                    _ if column.form.is_some() => Cow::Owned(in_form(table, at, column, rows)?),
                    (ColumnKind::Numeric { .. }, Column::Text { codes, names }) => {
                        return Err(text_for_number(table, column, codes, names));
                    }
                    (_, cells) => Cow::Borrowed(cells),
                };
                encoders.push((index, Encoder::new(&column.kind, offset, width), cells, Tally::default()));
            }
            offset += column.kind.width();
        }
        let count = rows.map_or(table.rows(), <[usize]>::len);
        let mut out = vec![0.0f32; count * width];
        let mut unseen = Vec::new();
        for (chunk, out) in out.chunks_mut(CHUNK * width.max(1)).enumerate() {
            let range = chunk * CHUNK..chunk * CHUNK + out.len() / width;
            for (column, encoder, cells, tally) in &mut encoders {
                match rows {
                    Some(rows) => {
                        let rows = rows[range.clone()].iter().copied();
                        encoder.write(cells, rows, out, tally);
                    }
                    None => encoder.write(cells, range.clone(), out, tally),
                }
                let (column, from) = (*column, range.start);
                unseen.extend(tally.cells.drain(..).map(|(row, text)| Unseen { row: from + row, column, text }));
            }
        }
        unseen.sort_by_key(|cell: &Unseen| (cell.row, cell.column));
        Ok((out, unseen))
    }

    /// For each of the schema's columns the table's.
    fn bind_table(&self, table: &Table) -> Result<Vec<Option<usize>>> {
        let place = |error: Error| match table.files().next() {
            Some(file) => error.at_file(file),
            None => error,
        };
        if self.named {
            if !table.named {
                return Err(place(no_names()));
            }
            let found: HashMap<&str, usize> = table.names.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
            return self.bind_names(&found, &table.names).map_err(place);
        }
        let mut full: Vec<Option<usize>> = Vec::new();
        let mut dropped = table.dropped.iter().peekable();
        for at in 0..table.columns.len() {
            while dropped.next_if(|(position, _)| *position == full.len()).is_some() {
                full.push(None);
            }
            full.push(Some(at));
        }
        full.extend(dropped.map(|_| None));
        if full.len() != self.columns.len() {
            return Err(place(self.wrong_count(full.len(), "feature columns")));
        }
        for (column, at) in self.columns.iter().zip(&full) {
            if at.is_none() && column.kind.width() > 0 {
                return Err(place(
                    Error::data("the column is dropped, but the model needs it")
                        .at_column(shown(&column.name))
                        .hint("leave out `drop`"),
                ));
            }
        }
        Ok(full)
    }
}

/// A column of a table as numbers, read in the schema's form.
fn in_form(table: &Table, at: usize, column: &SchemaColumn, rows: Option<&[usize]>) -> Result<Column> {
    let Some(form) = &column.form else {
        return Ok(table.columns[at].clone());
    };
    let converted = convert(form, &table.columns[at], table.written.points.get(at));
    if !converted.refused.is_empty() {
        let wanted: Option<HashSet<usize>> = rows.map(|rows| rows.iter().copied().collect());
        let first = converted.refused.iter().find(|(row, _)| wanted.as_ref().is_none_or(|w| w.contains(row)));
        if let Some((row, cell)) = first {
            let error = form.refuse(cell).at_column(shown(&column.name));
            // Lines of a file are not known any more.
            return Err(match table.files().next() {
                Some(file) => error.at_file(file),
                None => error.at_row(*row as u64 + 1),
            });
        }
    }
    Ok(Column::Number(converted.values))
}

fn text_for_number(table: &Table, column: &SchemaColumn, codes: &[u32], names: &[String]) -> Error {
    let first = codes.iter().position(|&code| code != MISSING);
    let text = first.and_then(|row| names.get(codes[row] as usize));
    let error = Error::data(format!(
        "{} is not a number, and the column was numeric in training",
        quoted(text.map_or("", String::as_str))
    ))
    .at_column(shown(&column.name))
    .hint("give numbers in this column, or leave the cells empty");
    match table.files().next() {
        Some(file) => error.at_file(file),
        None => error,
    }
}
