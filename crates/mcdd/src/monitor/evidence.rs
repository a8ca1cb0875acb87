//! Evidence against "the stream is like the reference", valid at any time.
//!
//! A test martingale on the cells of a stream ([`Cells`](super::cells::Cells)). Under the null hypothesis the next cell is `c`
//! with the probability `P(c)` of the urn, exactly and given all rows before. A bet `Q` on the next cell, whatever it was
//! chosen by, multiplies its capital by `Q(c) / P(c)`, whose mean is 1. Each bettor has its own idea of the change: a
//! fraction of the rows that come from certain cells. The capital starts at 1, is given to the bettors bit by bit, equally, and
//! what was not yet given counts as it is; so a change at any row finds capital to bet with. The sum is a nonnegative
//! martingale that starts at 1, and by Ville's inequality it ever reaches `1 / alpha` with a probability of at most `alpha`.
//!
//! P-values from one calibration set depend on each other: a product of bets that takes them for independent is not valid
//! (`docs/monitoring.md` measures how wrong it is). The urn has the dependence in its counts. It is the conditional
//! distribution of sequential ranks, reduced to cells. The reference also stays fixed for half of the bettors, so that rows after a change do
//! not dilute what they bet on (Shaer et al., *Testing for distribution shifts with conditional conformal test
//! martingales*, 2026, arXiv:2602.13848, bound the calibration error instead).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What the bettors expect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    /// More rows in the low cells.
    Low,
    /// More rows in any cell.
    Any,
}

/// The fractions of changed rows that bettors expect.
const LOW: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];
const ANY: [f64; 2] = [0.1, 0.4];
/// The capital of a bettor is cut here, long after every alarm.
const MOST: f64 = 1e290;

impl Change {
    fn fractions(self) -> &'static [f64] {
        match self {
            Change::Low => &LOW,
            Change::Any => &ANY,
        }
    }

    /// Where the changed rows come from: for each bettor the probabilities of the cells, in order.
    fn shapes(self, gaps: &[u64]) -> Vec<Vec<f64>> {
        let cells = gaps.len();
        let only = |c: usize| (0..cells).map(|i| f64::from(u8::from(i == c))).collect::<Vec<f64>>();
        let spread = |from: usize, to: usize, weight: &dyn Fn(usize) -> f64| {
            let whole: f64 = (from..to).map(weight).sum();
            (0..cells).map(|c| if (from..to).contains(&c) { weight(c) / whole } else { 0.0 }).collect::<Vec<f64>>()
        };
        let by_gaps = |c: usize| gaps[c] as f64;
        match self {
            _ if cells < 2 => Vec::new(),
            // The lowest cell; equally over the low cells, of which the lower ones are smaller; the low cells as they are.
            // Each is denser in lower cells, so that a null distribution with fewer low values only loses.
            Change::Low => vec![only(0), spread(0, cells - 1, &|_| 1.0), spread(0, cells - 1, &by_gaps)],
            Change::Any => {
                let half = cells.div_ceil(2);
                let mut shapes: Vec<Vec<f64>> = (0..cells).map(only).collect();
                shapes.push(spread(0, half, &by_gaps));
                shapes.push(spread(cells - half, cells, &by_gaps));
                shapes
            }
        }
    }
}

/// The part of the capital that is not yet given to bettors after `rows` rows. It falls slowly, so that a change after
/// `t` rows finds about `1 / (t log² t)` of it.
fn reserve(rows: u64) -> f64 {
    1.0 / (1.0 + libm::log1p(rows as f64))
}

/// The evidence of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Evidence {
    change: Change,
    /// Rows of the stream in each cell, since the beginning.
    seen: Vec<u64>,
    /// Rows since the last start.
    rows: u64,
    /// The capital of each bettor.
    capital: Vec<f64>,
    /// The sum, with what was not yet given.
    value: f64,
    /// See [`Change::shapes`].
    #[serde(skip)]
    shapes: Vec<Vec<f64>>,
}

impl Evidence {
    pub(super) fn new(change: Change, gaps: &[u64]) -> Evidence {
        let shapes = change.shapes(gaps);
        let capital = vec![0.0; shapes.len() * change.fractions().len() * 2];
        Evidence { change, seen: vec![0; gaps.len()], rows: 0, capital, value: 1.0, shapes }
    }

    /// Adds a row of the stream.
    pub(super) fn add(&mut self, gaps: &[u64], cell: usize) {
        let reference: u64 = gaps.iter().sum();
        let seen: u64 = self.seen.iter().sum();
        let urn = (gaps[cell] + self.seen[cell]) as f64 / (reference + seen) as f64;
        let fixed = gaps[cell] as f64 / reference as f64;
        self.seen[cell] += 1;
        if self.capital.is_empty() {
            return;
        }
        let given = (reserve(self.rows) - reserve(self.rows + 1)) / self.capital.len() as f64;
        self.rows += 1;
        self.value = reserve(self.rows);
        let mut bettors = self.capital.iter_mut();
        for shape in &self.shapes {
            for &fraction in self.change.fractions() {
                for unchanged in [urn, fixed] {
                    let bet = (1.0 - fraction) * unchanged + fraction * shape[cell];
                    if let Some(capital) = bettors.next() {
                        *capital = ((*capital + given) * (bet / urn)).min(MOST);
                        self.value += *capital;
                    }
                }
            }
        }
    }

    /// The evidence: at least `1 / alpha` with a probability of at most `alpha`, over all rows since the last start.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Starts the bets again. Rows that were seen stay in the urn: given them, the new start is valid as the first one was.
    pub(super) fn restart(&mut self) {
        self.rows = 0;
        self.value = 1.0;
        self.capital.fill(0.0);
    }

    /// Checks evidence from a file, and makes it ready.
    pub(super) fn prepare(&mut self, gaps: &[u64]) -> Result<()> {
        let fresh = Evidence::new(self.change, gaps);
        let counted = self.seen.iter().all(|&c| c < 1 << 50) && self.rows < 1 << 50;
        let finite = self.capital.iter().chain([&self.value]).all(|c| c.is_finite() && *c >= 0.0);
        if counted && finite && self.seen.len() == gaps.len() && self.capital.len() == fresh.capital.len() {
            self.shapes = fresh.shapes;
            return Ok(());
        }
        Err(Error::format("the evidence is damaged"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::Cells;
    use super::*;
    use crate::seed::Stream;

    /// The mean over all next cells, weighted by the urn, is the value before: a martingale by enumeration.
    #[test]
    fn the_mean_of_the_next_value_is_this_value() {
        for (change, gaps) in
            [(Change::Low, vec![1, 1, 2, 16]), (Change::Any, vec![3, 4, 3]), (Change::Low, vec![2, 5])]
        {
            let mut random = Stream::new(1, "cells");
            let mut evidence = Evidence::new(change, &gaps);
            for _ in 0..60 {
                let whole: u64 = gaps.iter().chain(&evidence.seen).sum();
                let mut mean = 0.0;
                for cell in 0..gaps.len() {
                    let mut next = evidence.clone();
                    next.add(&gaps, cell);
                    mean += (gaps[cell] + evidence.seen[cell]) as f64 / whole as f64 * next.value();
                }
                assert!((mean / evidence.value() - 1.0).abs() < 1e-9, "{mean} after {}", evidence.value());
                evidence.add(&gaps, random.below(gaps.len()));
            }
        }
    }

    #[test]
    fn low_values_raise_it_and_a_restart_begins_again() {
        let cells = Cells::new("a", (0..199).map(f64::from), &[0.01, 0.02, 0.05, 0.1, 0.2]);
        let mut evidence = Evidence::new(Change::Low, cells.gaps());
        let mut random = Stream::new(1, "values");
        for row in 0..500 {
            evidence.add(cells.gaps(), cells.cell(random.uniform() * 199.0, row));
        }
        assert!(evidence.value() < 5.0, "{}", evidence.value());
        for row in 0..60 {
            let value = if row % 4 == 0 { -1.0 } else { random.uniform() * 199.0 };
            evidence.add(cells.gaps(), cells.cell(value, row));
        }
        assert!(evidence.value() > 100.0, "{}", evidence.value());
        evidence.restart();
        assert_eq!(evidence.value(), 1.0);
        evidence.prepare(cells.gaps()).unwrap();
        assert!(evidence.clone().prepare(&[1, 2]).is_err());
        (0..100_000).for_each(|_| evidence.add(cells.gaps(), 0));
        assert!(evidence.value().is_finite());
    }

    #[test]
    fn a_single_cell_has_no_evidence() {
        let mut evidence = Evidence::new(Change::Low, &[3]);
        (0..100).for_each(|_| evidence.add(&[3], 0));
        assert_eq!(evidence.value(), 1.0);
    }
}
