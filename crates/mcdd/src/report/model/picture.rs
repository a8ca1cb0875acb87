//! Rows as small images: from image models, or from tables whose columns are the pixels of a square.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::data::{ColumnKind, Schema};

/// The smallest side in pixels: a table with a few columns is not an image.
const LEAST: usize = 8;
/// The largest side in pixels; larger images are downsampled.
const MOST: usize = 32;

/// Converts the inputs of a row to an image.
pub(super) struct Thumbnails {
    /// For each value of the image its input, mean and deviation; none if it was constant in training.
    values: Vec<Option<(usize, f64, f64)>>,
    width: usize,
    height: usize,
    channels: usize,
    /// The downsampling factor along a side.
    merged: usize,
    /// The values of black and white; those of the rows if unknown.
    range: Option<(f64, f64)>,
}

impl Thumbnails {
    /// None if the columns are not pixels.
    pub(super) fn of(schema: &Schema) -> Option<Thumbnails> {
        if let Some(spec) = &schema.image {
            let (width, height, channels) = (spec.width, spec.height, spec.channels);
            let of = |c: usize| (f64::from(spec.mean[c]), f64::from(spec.std[c]));
            let value = |i: usize| Some((i, of(i % channels).0, of(i % channels).1));
            let values = (0..width * height * channels).map(value).collect();
            let merged = width.max(height).div_ceil(MOST);
            return Some(Thumbnails { values, width, height, channels, merged, range: Some((0.0, 1.0)) });
        }
        let side = (LEAST..=4096).find(|s| s * s >= schema.columns.len())?;
        let alike = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit() || "_-x:.".contains(c)).to_owned();
        let first = alike(&schema.columns.first()?.name);
        if side * side != schema.columns.len() || schema.columns.iter().any(|c| alike(&c.name) != first) {
            return None;
        }
        let mut at = 0;
        let mut values = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            values.push(match column.kind {
                ColumnKind::Numeric { mean, std, .. } => Some((at, mean, std)),
                ColumnKind::Dropped { .. } => None,
                ColumnKind::Categorical { .. } | ColumnKind::Time { .. } => return None,
            });
            at += column.kind.width();
        }
        Some(Thumbnails { values, width: side, height: side, channels: 1, merged: side.div_ceil(MOST), range: None })
    }

    /// Width, height and channels of an image.
    pub(super) fn shape(&self) -> [usize; 3] {
        [self.width.div_ceil(self.merged), self.height.div_ceil(self.merged), self.channels]
    }

    /// The size of an encoded image in characters.
    pub(super) fn size(&self) -> usize {
        self.shape().iter().product::<usize>().div_ceil(2).div_ceil(3) * 4
    }

    /// The rows as images with sixteen levels, two values per byte, in base64.
    pub(super) fn draw(&self, rows: &[&[f32]]) -> Vec<String> {
        let value = |row: &[f32], i: usize| self.values[i].map(|(at, mean, std)| mean + f64::from(row[at]) * std);
        let (low, high) = self.range.unwrap_or_else(|| {
            let all = rows.iter().flat_map(|row| (0..self.values.len()).filter_map(|i| value(row, i)));
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
        });
        let span = if high > low { high / 2.0 - low / 2.0 } else { 1.0 };
        let [width, height, channels] = self.shape();
        let level = |row: &[f32], i: usize| {
            let (c, x, y) = (i % channels, i / channels % width, i / channels / width);
            let (mut sum, mut n) = (0.0, 0usize);
            for dy in 0..self.merged {
                for dx in 0..self.merged {
                    let (x, y) = (x * self.merged + dx, y * self.merged + dy);
                    if x < self.width && y < self.height {
                        let v = value(row, (y * self.width + x) * channels + c);
                        sum += v.map_or(0.0, |v| (v / 2.0 - low / 2.0) / span);
                        n += 1;
                    }
                }
            }
            (sum / n.max(1) as f64 * 15.0).round().clamp(0.0, 15.0) as u8
        };
        let picture = |row: &&[f32]| {
            let levels: Vec<u8> = (0..width * height * channels).map(|i| level(row, i)).collect();
            let bytes: Vec<u8> = levels.chunks(2).map(|two| two[0] << 4 | two.get(1).copied().unwrap_or(0)).collect();
            BASE64_STANDARD.encode(bytes)
        };
        rows.iter().map(picture).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ImageSpec, Table, digits};

    #[test]
    fn digits_are_images_and_other_tables_are_not() {
        let table = digits();
        let rows: Vec<usize> = (0..table.rows()).collect();
        let (schema, _) = Schema::fit(&table, &rows).unwrap();
        let pictures = Thumbnails::of(&schema).unwrap();
        assert_eq!((pictures.shape(), pictures.size()), ([8, 8, 1], 44));
        let x = schema.transform(&table, None).unwrap();
        let all: Vec<&[f32]> = x.chunks_exact(schema.width()).collect();
        let packed = BASE64_STANDARD.decode(&pictures.draw(&all)[0]).unwrap();
        let grays: Vec<u8> = packed.iter().flat_map(|b| [b >> 4, b & 15]).collect();
        for (column, gray) in table.columns.iter().zip(grays) {
            let crate::data::Column::Number(values) = column else { panic!() };
            assert!((values[0] / 16.0 * 15.0 - f64::from(gray)).abs() < 0.51, "{} {gray}", values[0]);
        }
        let mut other = schema.clone();
        other.columns[3].name = "weight".into();
        assert!(Thumbnails::of(&other).is_none());
        other.columns.pop();
        assert!(Thumbnails::of(&other).is_none());
    }

    #[test]
    fn large_images_are_downsampled() {
        let x: Vec<f32> = (0..2 * 70 * 70).map(|i| (i % 7 + i / 4900) as f32).collect();
        let table = Table::from_rows(&x, 4900, None::<&[&str]>).unwrap();
        let (schema, _) = Schema::fit(&table, &[0, 1]).unwrap();
        let pictures = Thumbnails::of(&schema).unwrap();
        assert_eq!(pictures.shape(), [24, 24, 1]);
        let x = schema.transform(&table, None).unwrap();
        let drawn = pictures.draw(&x.chunks_exact(schema.width()).collect::<Vec<_>>());
        assert!(drawn.len() == 2 && drawn.iter().all(|d| d.len() == pictures.size()));
    }

    #[test]
    fn images_have_their_colors() {
        let spec = ImageSpec { height: 1, width: 2, channels: 3, mean: vec![0.5; 3], std: vec![0.25; 3] };
        let pictures = Thumbnails::of(&Schema::of_images(spec)).unwrap();
        assert_eq!(pictures.shape(), [2, 1, 3]);
        let drawn = pictures.draw(&[&[-2.0, 2.0, -2.0, 2.0, -2.0, -2.0]]);
        assert_eq!(BASE64_STANDARD.decode(&drawn[0]).unwrap(), [0x0f, 0x0f, 0x00]);
    }
}
