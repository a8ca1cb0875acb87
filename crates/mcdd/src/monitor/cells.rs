//! Reference rows in order, cut into cells.
//!
//! Let `n` reference values and the values of a stream be exchangeable, and let equal values be put in order at random.
//! The `n` values cut the line into `n + 1` gaps. Given nothing else, the probabilities of the gaps have a Dirichlet
//! distribution with all parameters 1, whatever the distribution of the values is. A cell is a run of `g` gaps, so the
//! probabilities of the cells have a Dirichlet distribution with parameters `g`, and the cells of the stream are those of a
//! Pólya urn: the next value is in cell `c` with probability `(g_c + values of the stream in c) / (n + 1 + values of the
//! stream)`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::seed::Stream;

/// The cells of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cells {
    /// The random order of equal values has this name.
    name: String,
    /// The reference values at which cells begin, except the first, in ascending order, each with its place among equal
    /// values.
    edges: Vec<(f64, f64)>,
    /// The gaps of each cell; one cell more than there are edges.
    gaps: Vec<u64>,
}

impl Cells {
    /// Cells that end at these fractions of the reference values, in ascending order; the last one contains the rest. Cells
    /// without a gap are left out.
    pub(super) fn new(name: &str, values: impl IntoIterator<Item = f64>, fractions: &[f64]) -> Cells {
        let mut ties = Stream::new(0, &format!("monitor/{name}/reference"));
        let mut ordered: Vec<(f64, f64)> = values.into_iter().map(|v| (v, ties.uniform())).collect();
        ordered.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let whole = ordered.len() + 1;
        let (mut edges, mut gaps, mut before) = (Vec::new(), Vec::new(), 0);
        for fraction in fractions {
            // In floating point 0.1 * 20 may be slightly less than 2.
            let end = (fraction * whole as f64 * (1.0 + 1e-9)) as usize;
            if end > before && end < whole {
                edges.push(ordered[end - 1]);
                gaps.push((end - before) as u64);
                before = end;
            }
        }
        gaps.push((whole - before) as u64);
        Cells { name: name.into(), edges, gaps }
    }

    /// The gaps of each cell.
    pub(super) fn gaps(&self) -> &[u64] {
        &self.gaps
    }

    /// The cell of a value of row `row` of the stream.
    pub(super) fn cell(&self, value: f64, row: u64) -> usize {
        let order = |a: f64| a.total_cmp(&value);
        let below = self.edges.partition_point(|e| order(e.0).is_lt());
        let equal = self.edges[below..].partition_point(|e| order(e.0).is_eq());
        if equal == 0 {
            return below;
        }
        let place = Stream::new(0, &format!("monitor/{}/{row}", self.name)).uniform();
        below + self.edges[below..below + equal].partition_point(|e| e.1 <= place)
    }

    /// Checks cells from a file.
    pub(super) fn validate(&self) -> Result<()> {
        let ordered = self.edges.windows(2).all(|e| e[0].0 < e[1].0 || (e[0].0 == e[1].0 && e[0].1 <= e[1].1));
        let finite = self.edges.iter().all(|e| e.0.is_finite() && e.1.is_finite());
        let counted = self.gaps.iter().all(|&g| (1..1 << 40).contains(&g));
        if ordered && finite && counted && self.gaps.len() == self.edges.len() + 1 && self.gaps.len() <= 64 {
            return Ok(());
        }
        Err(Error::format(format!("the cells of {} are damaged", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_those_of_the_p_value() {
        let cells = Cells::new("a", (1..=19).map(f64::from), &[0.01, 0.05, 0.1, 0.2]);
        // Of 20 gaps: 5% are one, 10% two, 20% four; 1% is none.
        assert_eq!(cells.gaps(), [1, 1, 2, 16]);
        // The p-value is at most 5% below the lowest reference value.
        assert_eq!([0.5, 1.5, 2.5, 3.5, 4.5].map(|v| cells.cell(v, 0)), [0, 1, 2, 2, 3]);
        cells.validate().unwrap();
        assert_eq!(Cells::new("a", [1.0], &[0.1, 0.2]).gaps(), [2]);
    }

    #[test]
    fn equal_values_fall_at_random_in_proportion_to_the_gaps() {
        // All values are equal: a cell gets the fraction of the random places that lie in it.
        let cells = Cells::new("a", [7.0; 999], &[0.1, 0.5]);
        let mut counts = [0; 3];
        (0..20_000).for_each(|row| counts[cells.cell(7.0, row)] += 1);
        let fractions = counts.map(|c| f64::from(c) / 20_000.0);
        for (fraction, expected) in fractions.iter().zip([0.1, 0.4, 0.5]) {
            assert!((fraction - expected).abs() < 0.05, "{fractions:?}");
        }
        assert_eq!(cells.cell(7.0, 5), cells.cell(7.0, 5));
        assert_eq!((cells.cell(6.0, 0), cells.cell(8.0, 0)), (0, 2));
    }

    #[test]
    fn damaged_cells_are_refused() {
        let good = Cells::new("a", (0..99).map(f64::from), &[0.1, 0.5]);
        for damage in [
            |c: &mut Cells| c.gaps[0] = 0,
            |c: &mut Cells| c.gaps.push(1),
            |c: &mut Cells| c.edges[0].0 = f64::NAN,
            |c: &mut Cells| c.edges.swap(0, 1),
        ] {
            let mut bad = good.clone();
            damage(&mut bad);
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
