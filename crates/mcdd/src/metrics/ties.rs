//! Scores sorted and grouped by value; all metrics are computed from these groups.

use crate::error::{Error, Result};

/// The number of ID and OOD rows with the same score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub id: u32,
    pub ood: u32,
}

/// The distinct scores, highest first, and the group of each row.
#[derive(Clone, Debug)]
pub(super) struct TieGroups {
    pub scores: Vec<f64>,
    pub counts: Vec<Counts>,
    pub n_id: usize,
    pub n_ood: usize,
    /// The group of each ID row, then of each OOD row, in the given order.
    pub group_of: Vec<u32>,
}

impl TieGroups {
    /// Sorts and groups. An empty side, a NaN or too many rows are errors.
    pub(super) fn new(id: &[f64], ood: &[f64]) -> Result<Self> {
        check(id, "ID")?;
        check(ood, "OOD")?;
        let total = id.len() + ood.len();
        // The product of two counts must fit into an i64, and the index of a group into a u32.
        if i32::try_from(total).is_err() {
            return Err(Error::data(format!("there are {total} scores, and at most {} are possible", i32::MAX))
                .hint("evaluate a random sample of them"));
        }
        // Adding zero turns -0.0 into 0.0, so that the total order agrees with `==`.
        let mut order: Vec<(f64, u32)> =
            id.iter().chain(ood).zip(0u32..).map(|(&score, row)| (score + 0.0, row)).collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));

        let mut groups = TieGroups {
            scores: Vec::new(),
            counts: Vec::new(),
            n_id: id.len(),
            n_ood: ood.len(),
            group_of: vec![0; total],
        };
        for (score, row) in order {
            if groups.scores.last() != Some(&score) {
                groups.scores.push(score);
                groups.counts.push(Counts::default());
            }
            let group = groups.scores.len() - 1;
            groups.group_of[row as usize] = group as u32;
            if (row as usize) < id.len() {
                groups.counts[group].id += 1;
            } else {
                groups.counts[group].ood += 1;
            }
        }
        Ok(groups)
    }

    /// The fraction of ID-OOD pairs with equal scores.
    pub(super) fn tie_fraction(&self) -> f64 {
        let tied: u64 = self.counts.iter().map(|c| u64::from(c.id) * u64::from(c.ood)).sum();
        tied as f64 / (self.n_id as f64 * self.n_ood as f64)
    }

    /// Cumulative counts `(ID, OOD)` of the rows at or above each distinct score, highest first.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().scan((0, 0), |sum, c| {
            sum.0 += u64::from(c.id);
            sum.1 += u64::from(c.ood);
            Some(*sum)
        })
    }
}

fn check(scores: &[f64], side: &str) -> Result<()> {
    if scores.is_empty() {
        return Err(Error::data(format!("there are no {side} scores"))
            .hint("detection metrics need at least one ID and one OOD row"));
    }
    match scores.iter().position(|s| s.is_nan()) {
        None => Ok(()),
        Some(i) => {
            Err(Error::data(format!("{side} score {} is NaN", i + 1))
                .hint("drop rows without a score, or give them one"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_are_one_group() {
        let g = TieGroups::new(&[1.0, 0.0, f64::INFINITY], &[-0.0, 1.0, f64::NEG_INFINITY, 1.0]).unwrap();
        assert_eq!(g.scores, [f64::INFINITY, 1.0, 0.0, f64::NEG_INFINITY]);
        let counts: Vec<_> = g.counts.iter().map(|c| (c.id, c.ood)).collect();
        assert_eq!(counts, [(1, 0), (1, 2), (1, 1), (0, 1)]);
        assert_eq!(g.group_of, [1, 2, 0, 2, 1, 3, 1]);
        assert_eq!(g.tie_fraction(), 3.0 / 12.0);
        assert_eq!(g.cumulative().last(), Some((3, 4)));
    }

    #[test]
    fn nan_and_empty_sides_are_errors() {
        let nan = TieGroups::new(&[1.0], &[0.0, f64::NAN]).unwrap_err();
        assert_eq!(nan.to_string(), "OOD score 2 is NaN");
        assert!(nan.hint_text().is_some());
        assert_eq!(TieGroups::new(&[], &[0.0]).unwrap_err().to_string(), "there are no ID scores");
        assert_eq!(TieGroups::new(&[0.0], &[]).unwrap_err().to_string(), "there are no OOD scores");
    }
}
