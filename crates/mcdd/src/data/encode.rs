//! One column's cells as network inputs.

use std::collections::HashMap;

use super::column::Column;
use super::number;
use super::schema::{CLAMP, ColumnKind};
use super::time::Cycle;

/// The longest unseen text that is kept, in characters.
const LONGEST: usize = 80;
/// Unseen texts of a column that are named in a notice.
const EXAMPLES: usize = 3;

/// A number as a network input.
#[inline]
pub(super) fn standardize(value: f64, mean: f64, std: f64) -> f32 {
    ((value - mean) / std).clamp(-CLAMP, CLAMP) as f32
}

/// A time as network inputs: the number, then sine and cosine of each cycle.
pub(super) fn moment(seconds: f64, mean: f64, std: f64, cycles: &[Cycle], out: &mut [f32]) {
    out[0] = standardize(seconds, mean, std);
    for (cycle, out) in cycles.iter().zip(out[1..].chunks_exact_mut(2)) {
        out.copy_from_slice(&cycle.inputs(seconds));
    }
}

/// Counts of missing and unseen cells of a column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub missing: usize,
    pub unseen: usize,
    /// A few of the unseen categories.
    pub examples: Vec<String>,
    /// The unseen cells of the rows that were written last: the place of the row among them, and the text.
    pub cells: Vec<(usize, String)>,
}

impl Tally {
    /// Adds the counts of rows that follow.
    pub(super) fn add(&mut self, other: &mut Tally) {
        self.missing += other.missing;
        self.unseen += other.unseen;
        for text in other.examples.drain(..) {
            if self.examples.len() < EXAMPLES && !self.examples.contains(&text) {
                self.examples.push(text);
            }
        }
    }
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
            ColumnKind::Time { mean, std, ref cycles, indicator } => {
                for (row, to) in rows.zip(out.chunks_exact_mut(self.width)) {
                    let (value, to) = (values[row], &mut to[self.offset..]);
                    if value.is_nan() {
                        tally.missing += 1;
                        if indicator {
                            to[1 + 2 * cycles.len()] = 1.0;
                        }
                    } else {
                        moment(value, mean, std, cycles, to);
                    }
                }
            }
            ColumnKind::Categorical { .. } => {
                // Categories that are numbers, in a file that stores them as such.
                for (at, (row, to)) in rows.zip(out.chunks_exact_mut(self.width)).enumerate() {
                    let value = values[row];
                    let text = (!value.is_nan()).then(|| number::show(value));
                    self.write_text(text.as_deref(), at, to, tally);
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
        for (at, (row, to)) in rows.zip(out.chunks_exact_mut(self.width)).enumerate() {
            self.write_text(names.get(codes[row] as usize).map(String::as_str), at, to, tally);
        }
    }

    /// Writes the cell of the row that is at place `at` of those that are written.
    fn write_text(&self, text: Option<&str>, at: usize, to: &mut [f32], tally: &mut Tally) {
        let ColumnKind::Categorical { categories, other, indicator } = self.kind else {
            return;
        };
        let Some(text) = text else {
            tally.missing += 1;
            if *indicator {
                to[self.offset + categories.len() + usize::from(*other)] = 1.0;
            }
            return;
        };
        // Texts whose column may be one of numbers are not in normal form.
        match self.places.get(text).or_else(|| self.places.get(number::normal(text))) {
            Some(&place) => to[self.offset + place] = 1.0,
            None if *other => to[self.offset + categories.len()] = 1.0,
            None => {
                tally.unseen += 1;
                tally.cells.push((at, text.chars().take(LONGEST).collect()));
                if tally.examples.len() < EXAMPLES && !tally.examples.iter().any(|e| e == text) {
                    tally.examples.push(text.to_owned());
                }
            }
        }
    }
}
