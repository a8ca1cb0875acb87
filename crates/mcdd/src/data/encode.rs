//! One column's cells as network inputs.

use std::collections::HashMap;

use super::column::Column;
use super::number;
use super::schema::{CLAMP, ColumnKind};

/// A number as a network input.
#[inline]
pub(super) fn standardize(value: f64, mean: f64, std: f64) -> f32 {
    ((value - mean) / std).clamp(-CLAMP, CLAMP) as f32
}

/// Counts of missing and unseen cells of a column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub missing: usize,
    pub unseen: usize,
    /// A few of the unseen categories.
    pub examples: Vec<String>,
}

/// Writes one column's inputs into row-major rows.
pub(crate) struct Encoder<'a> {
    kind: &'a ColumnKind,
    offset: usize,
    width: usize,
    places: HashMap<&'a str, usize>,
}

impl<'a> Encoder<'a> {
    /// For inputs from `offset` on in rows of `width`.
    pub(super) fn new(kind: &'a ColumnKind, offset: usize, width: usize) -> Self {
        let places = match kind {
            ColumnKind::Categorical { categories, .. } => {
                categories.iter().enumerate().map(|(i, c)| (c.as_str(), i)).collect()
            }
            _ => HashMap::new(),
        };
        Encoder { kind, offset, width, places }
    }

    /// Writes the cells of `rows` into `out`, which is zero there.
    pub(super) fn write(&self, cells: &Column, rows: impl Iterator<Item = usize>, out: &mut [f32], tally: &mut Tally) {
        match cells {
            Column::Number(values) => self.write_numbers(values, rows, out, tally),
            Column::Text { codes, names } => self.write_texts(codes, names, rows, out, tally),
        }
    }

    pub(super) fn write_numbers(
        &self,
        values: &[f64],
        rows: impl Iterator<Item = usize>,
        out: &mut [f32],
        tally: &mut Tally,
    ) {
        match *self.kind {
            ColumnKind::Numeric { mean, std, indicator } => {
                for (row, to) in rows.zip(out.chunks_exact_mut(self.width)) {
                    let value = values[row];
                    if value.is_nan() {
                        tally.missing += 1;
                        if indicator {
                            to[self.offset + 1] = 1.0;
                        }
                    } else {
                        to[self.offset] = standardize(value, mean, std);
                    }
                }
            }
            ColumnKind::Categorical { .. } => {
                // Categories that are numbers, in a file that stores them as such.
                for (row, to) in rows.zip(out.chunks_exact_mut(self.width)) {
                    let value = values[row];
                    let text = (!value.is_nan()).then(|| number::show(value));
                    self.write_text(text.as_deref(), to, tally);
                }
            }
            ColumnKind::Dropped { .. } => {}
        }
    }

    pub(super) fn write_texts(
        &self,
        codes: &[u32],
        names: &[String],
        rows: impl Iterator<Item = usize>,
        out: &mut [f32],
        tally: &mut Tally,
    ) {
        if !matches!(self.kind, ColumnKind::Categorical { .. }) {
            return;
        }
        for (row, to) in rows.zip(out.chunks_exact_mut(self.width)) {
            self.write_text(names.get(codes[row] as usize).map(String::as_str), to, tally);
        }
    }

    fn write_text(&self, text: Option<&str>, to: &mut [f32], tally: &mut Tally) {
        let Some(text) = text else {
            tally.missing += 1;
            if let ColumnKind::Categorical { categories, indicator: true } = self.kind {
                to[self.offset + categories.len()] = 1.0;
            }
            return;
        };
        match self.places.get(text) {
            Some(&place) => to[self.offset + place] = 1.0,
            None => {
                tally.unseen += 1;
                if tally.examples.len() < 3 && !tally.examples.iter().any(|e| e == text) {
                    tally.examples.push(text.to_owned());
                }
            }
        }
    }
}
