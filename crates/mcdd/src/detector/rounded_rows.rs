//! Stored rows in 16 bits a number.
//!
//! A column of the rows is cut into 65,535 steps between its smallest and its largest value, and each number is rounded to one
//! of their ends. With steps `s_j` the rounding changes a row, and with it a distance, by `sqrt(sum s_j^2 / 12)` (root mean
//! square), which for latent vectors is far below the distances between neighbors. In half precision the error would grow with
//! the numbers, and be ten times as large.

use super::StateDict;
use crate::error::Result;

/// The last step.
const LAST: f32 = 65_535.0;

/// Rows as steps of their columns.
#[derive(Debug)]
pub(super) struct RoundedRows {
    codes: Vec<u16>,
    /// The smallest value of each column, and the width of a step.
    low: Vec<f32>,
    step: Vec<f32>,
}

impl RoundedRows {
    /// Rounds rows of `width` finite features.
    pub(super) fn of(rows: &[f32], width: usize) -> RoundedRows {
        let mut ends = vec![[f32::INFINITY, f32::NEG_INFINITY]; width];
        for row in rows.chunks_exact(width) {
            for (end, &v) in ends.iter_mut().zip(row) {
                *end = [end[0].min(v), end[1].max(v)];
            }
        }
        let low: Vec<f32> = ends.iter().map(|end| end[0]).collect();
        let step: Vec<f32> = ends.iter().map(|end| end[1] / LAST - end[0] / LAST).collect();
        let code = |(j, &v): (usize, &f32)| match step[j] {
            // A column whose values are all alike, or nearly.
            step if step <= 0.0 => 0,
            step => ((f64::from(v) - f64::from(low[j])) / f64::from(step)).round() as u16,
        };
        let codes = rows.chunks_exact(width).flat_map(|row| row.iter().enumerate().map(code)).collect();
        RoundedRows { codes, low, step }
    }

    /// The rounded rows.
    pub(super) fn rows(&self) -> Vec<f32> {
        let width = self.low.len();
        let value = |(j, &code): (usize, &u16)| f32::from(code).mul_add(self.step[j], self.low[j]);
        self.codes.chunks_exact(width).flat_map(|row| row.iter().enumerate().map(value)).collect()
    }

    /// The root mean square of the change of a row.
    pub(super) fn error(&self) -> f64 {
        libm::sqrt(self.step.iter().map(|&s| f64::from(s) * f64::from(s) / 12.0).sum())
    }

    /// Stores the rows.
    pub(super) fn save(&self, state: &mut StateDict, name: &str) {
        let width = self.low.len();
        state.put_u16(name, &[self.codes.len() / width, width], &self.codes);
        state.put_f32(&format!("{name}_steps"), &[2, width], &[&self.low[..], &self.step].concat());
    }

    /// Loads rows.
    ///
    /// # Errors
    /// If they are invalid.
    pub(super) fn load(state: &mut StateDict, name: &str) -> Result<RoundedRows> {
        let shape @ [count, width] = state.shape::<2>(name)?;
        if count == 0 || width == 0 || width != state.width() {
            return Err(state.invalid("the rows have an invalid shape"));
        }
        let codes = state.take_u16(name, &shape)?;
        let mut low = state.take_f32(&format!("{name}_steps"), &[2, width])?;
        let step = low.split_off(width);
        Ok(RoundedRows { codes, low, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn rounding_is_small_and_repeats() {
        let (width, mut s) = (5, Stream::new(1, "rounded"));
        // Columns of different size, one that is constant, and one with the largest features.
        let scale = [1.0, 1e-3, 0.0, 1e6, 1e15];
        let rows: Vec<f32> = (0..3000 * width).map(|i| scale[i % width] * s.normal() as f32 + 2.0).collect();
        let rounded = RoundedRows::of(&rows, width);
        let back = rounded.rows();
        let mut squares = vec![0.0; width];
        for (i, (&a, &b)) in rows.iter().zip(&back).enumerate() {
            let (step, error) = (f64::from(rounded.step[i % width]), f64::from(a) - f64::from(b));
            // Half a step, and the rounding of the last step and of the sum.
            assert!(error.abs() <= 0.51 * step + 2e-7 * f64::from(a).abs(), "{a} {b}");
            squares[i % width] += error * error / 3000.0;
        }
        // The error that is stated is that of the rows.
        let stated = f64::from(rounded.step[0]).powi(2) / 12.0;
        assert!((squares[0] / stated - 1.0).abs() < 0.1, "{} {stated}", squares[0]);
        assert!(back.iter().skip(2).step_by(width).all(|&v| v == 2.0));
        // Rounded rows stay as they are, up to the rounding of the step.
        let again = RoundedRows::of(&back, width).rows();
        for (i, (&a, &b)) in again.iter().zip(&back).enumerate() {
            let range = f64::from(rounded.step[i % width]) * f64::from(LAST);
            let error = (f64::from(a) - f64::from(b)).abs();
            assert!(error <= 4e-7 * (range + f64::from(b).abs()), "{a} {b}");
        }
    }
}
