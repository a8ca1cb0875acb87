//! Rows that are pictures: as many pixels as a square has, in columns that are named alike.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::data::{ColumnKind, Schema};

/// Pixels along a side at the least: a table of a few columns is no picture.
const LEAST: usize = 8;
/// Pixels along a side that are shown at the most; larger pictures are made smaller.
const MOST: usize = 32;

/// How the inputs of a row become a picture.
pub(super) struct Pictures {
    /// For each pixel its input, mean and deviation; none where it was the same in all training rows.
    pixels: Vec<Option<(usize, f64, f64)>>,
    side: usize,
    /// Pixels that become one, along a side.
    merged: usize,
}

impl Pictures {
    /// None where the columns do not look like pixels.
    pub fn of(schema: &Schema) -> Option<Pictures> {
        let side = (LEAST..=4096).find(|s| s * s >= schema.columns.len())?;
        let alike = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit() || "_-x:.".contains(c)).to_owned();
        let first = alike(&schema.columns.first()?.name);
        if side * side != schema.columns.len() || schema.columns.iter().any(|c| alike(&c.name) != first) {
            return None;
        }
        let mut at = 0;
        let mut pixels = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            pixels.push(match column.kind {
                ColumnKind::Numeric { mean, std, .. } => Some((at, mean, std)),
                ColumnKind::Dropped { .. } => None,
                ColumnKind::Categorical { .. } => return None,
            });
            at += column.kind.width();
        }
        Some(Pictures { pixels, side, merged: side.div_ceil(MOST) })
    }

    /// Pixels along a side of what is shown.
    pub fn side(&self) -> usize {
        self.side.div_ceil(self.merged)
    }

    /// Characters of a packed picture.
    pub fn size(&self) -> usize {
        (self.side() * self.side()).div_ceil(2).div_ceil(3) * 4
    }

    /// The rows as pictures of sixteen greys, two pixels a byte, in base64: black is the least of all pixels.
    pub fn draw(&self, rows: &[&[f32]]) -> Vec<String> {
        let value = |row: &[f32], pixel: usize| {
            self.pixels.get(pixel).copied().flatten().map(|(at, mean, std)| mean + f64::from(row[at]) * std)
        };
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in rows.iter().flat_map(|row| (0..self.pixels.len()).filter_map(|p| value(row, p))) {
            (low, high) = (low.min(v), high.max(v));
        }
        let span = if high > low { high / 2.0 - low / 2.0 } else { 1.0 };
        let grey = |row: &[f32], x: usize, y: usize| {
            let (mut sum, mut n) = (0.0, 0usize);
            for dy in 0..self.merged {
                for dx in 0..self.merged {
                    let (x, y) = (x * self.merged + dx, y * self.merged + dy);
                    if x < self.side && y < self.side {
                        sum += value(row, y * self.side + x).map_or(0.0, |v| (v / 2.0 - low / 2.0) / span);
                        n += 1;
                    }
                }
            }
            (sum / n.max(1) as f64 * 15.0).round().clamp(0.0, 15.0) as u8
        };
        let side = self.side();
        let picture = |row: &&[f32]| {
            let greys: Vec<u8> = (0..side * side).map(|i| grey(row, i % side, i / side)).collect();
            let bytes: Vec<u8> = greys.chunks(2).map(|two| two[0] << 4 | two.get(1).copied().unwrap_or(0)).collect();
            BASE64_STANDARD.encode(bytes)
        };
        rows.iter().map(picture).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Table, digits};

    #[test]
    fn digits_are_pictures_and_other_tables_are_not() {
        let table = digits();
        let rows: Vec<usize> = (0..table.rows()).collect();
        let (schema, _) = Schema::fit(&table, &rows).unwrap();
        let pictures = Pictures::of(&schema).unwrap();
        assert_eq!((pictures.side(), pictures.size()), (8, 44));
        let x = schema.transform(&table, None).unwrap();
        let all: Vec<&[f32]> = x.chunks_exact(schema.width()).collect();
        let packed = BASE64_STANDARD.decode(&pictures.draw(&all)[0]).unwrap();
        let greys: Vec<u8> = packed.iter().flat_map(|b| [b >> 4, b & 15]).collect();
        for (column, grey) in table.columns.iter().zip(greys) {
            let crate::data::Column::Number(values) = column else { panic!() };
            assert!((values[0] / 16.0 * 15.0 - f64::from(grey)).abs() < 0.51, "{} {grey}", values[0]);
        }
        let mut other = schema.clone();
        other.columns[3].name = "weight".into();
        assert!(Pictures::of(&other).is_none());
        other.columns.pop();
        assert!(Pictures::of(&other).is_none());
    }

    #[test]
    fn large_pictures_are_made_smaller() {
        let x: Vec<f32> = (0..2 * 70 * 70).map(|i| (i % 7 + i / 4900) as f32).collect();
        let table = Table::from_rows(&x, 4900, None::<&[&str]>).unwrap();
        let (schema, _) = Schema::fit(&table, &[0, 1]).unwrap();
        let pictures = Pictures::of(&schema).unwrap();
        assert_eq!(pictures.side(), 24);
        let x = schema.transform(&table, None).unwrap();
        let drawn = pictures.draw(&x.chunks_exact(schema.width()).collect::<Vec<_>>());
        assert!(drawn.len() == 2 && drawn.iter().all(|d| d.len() == pictures.size()));
    }
}
