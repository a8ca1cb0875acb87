//! The evidence over time, in a bounded number of points.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// With this many points every second one is merged into its neighbor.
const MOST: usize = 512;

/// The highest evidence of some rows that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The last of these rows, counted from 1.
    pub row: u64,
    /// The common logarithm of the highest evidence.
    pub log10: f64,
}

/// The points so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    /// Rows of a point.
    step: u64,
    points: Vec<Point>,
}

impl Default for History {
    fn default() -> History {
        History { step: 1, points: Vec::new() }
    }
}

impl History {
    /// Adds the evidence after row `row`, the next one.
    pub(super) fn add(&mut self, row: u64, evidence: f64) {
        let log10 = libm::log10(evidence.max(1e-300));
        match self.points.last_mut() {
            Some(last) if !(row - 1).is_multiple_of(self.step) => {
                *last = Point { row, log10: last.log10.max(log10) };
            }
            _ => self.points.push(Point { row, log10 }),
        }
        if self.points.len() > MOST {
            self.step *= 2;
            let merge = |pair: &[Point]| pair.iter().copied().reduce(|a, b| Point { log10: a.log10.max(b.log10), ..b });
            self.points = self.points.chunks(2).filter_map(merge).collect();
        }
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Checks a history from a file.
    pub(super) fn validate(&self, rows: u64) -> Result<()> {
        let rising = self.points.windows(2).all(|p| p[0].row < p[1].row);
        let last = self.points.last().map_or(0, |p| p.row);
        let good = self.points.iter().all(|p| p.log10.is_finite());
        if rising && good && last == rows && self.points.len() <= MOST && self.step.is_power_of_two() {
            return Ok(());
        }
        Err(Error::format("the history is damaged"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_bounded_and_keep_the_highest() {
        let mut history = History::default();
        for row in 1..=100_000u64 {
            history.add(row, if row == 54_321 { 1e6 } else { 1.0 });
            if row % 997 == 0 {
                history.validate(row).unwrap();
            }
        }
        let points = history.points();
        assert!((MOST / 2 - 1..=MOST).contains(&points.len()), "{}", points.len());
        assert_eq!(points.last().unwrap().row, 100_000);
        let peaks: Vec<&Point> = points.iter().filter(|p| p.log10 > 5.0).collect();
        assert!(peaks.len() == 1 && peaks[0].row >= 54_321 && peaks[0].row < 54_321 + 2 * history.step, "{peaks:?}");
        assert!(history.validate(7).is_err());
    }
}
