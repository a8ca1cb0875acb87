//! The selectable thresholds and their effects.

use super::{Position, percent};
use crate::error::Result;
use crate::model::{Calibration, Threshold};
use crate::report::figure::short_number;

/// The largest number of sets that the sentence names.
const MOST_NAMED: usize = 3;

/// Thresholds that keep given fractions of known rows, from 0.5 on, and the requested fraction.
#[derive(Clone, Debug)]
pub(super) struct Thresholds {
    texts: Vec<String>,
    all: Vec<Threshold>,
    pub used: usize,
}

impl Thresholds {
    /// From the calibration rows.
    ///
    /// # Errors
    /// If `tpr` is not between 0 and 1.
    pub(super) fn new(calibration: &Calibration, tpr: f64) -> Result<Thresholds> {
        calibration.threshold(tpr)?;
        let fine = (500..=995).step_by(5).chain(996..=999);
        // As text: the page shows what users can type.
        let texts = fine.map(|n| format!("0.{n}").trim_end_matches('0').to_owned());
        let mut both: Vec<(f64, String)> = texts.filter_map(|t| Some((t.parse().ok()?, t))).collect();
        both.retain(|(fraction, _)| *fraction != tpr);
        let used = both.partition_point(|(fraction, _)| *fraction < tpr);
        both.insert(used, (tpr, tpr.to_string()));
        let all = both.iter().map(|(fraction, _)| calibration.threshold(*fraction)).collect::<Result<_>>()?;
        Ok(Thresholds { texts: both.into_iter().map(|(_, text)| text).collect(), all, used })
    }

    /// The first position at which a row of this confidence is known; their number if there is none.
    pub(super) fn level(&self, confidence: f64) -> usize {
        self.all.partition_point(|t| !t.known(confidence))
    }

    /// A notice if there are too few calibration rows for the requested fraction.
    pub(super) fn shortfall(&self, calibration_rows: usize) -> Option<String> {
        self.all[self.used].shortfall(calibration_rows)
    }

    /// The effect of each threshold.
    pub(super) fn positions(
        &self,
        known: &Levels,
        sets: &[(String, Levels)],
        labeled: bool,
        on_calibration_rows: bool,
    ) -> Vec<Position> {
        let position = |(i, t): (usize, &Threshold)| {
            let (kept, right) = known.up_to(i);
            let taken: Vec<usize> = sets.iter().map(|(_, levels)| levels.up_to(i).0).collect();
            let rejected = |(n, levels): (&usize, &Levels)| percent(1.0 - *n as f64 / levels.rows as f64);
            let mut position = Position {
                tpr: self.texts[i].clone(),
                threshold: t.confidence,
                set_for: percent(t.tpr),
                short: t.tpr < t.wanted,
                kept: percent(kept as f64 / known.rows as f64),
                right: (labeled && kept > 0).then(|| percent(right as f64 / kept as f64)),
                rejected: taken.iter().zip(sets.iter().map(|s| &s.1)).map(rejected).collect(),
                sentence: String::new(),
                counts: (kept, right, taken),
            };
            position.sentence = match on_calibration_rows {
                true => calibration_sentence(&position, known.rows),
                false => sentence(&position, sets),
            };
            position
        };
        self.all.iter().enumerate().map(position).collect()
    }
}

/// The number of rows that become known at each position, and of correctly classified ones among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    pub rows: usize,
    at: Vec<(usize, usize)>,
}

impl Levels {
    pub(super) fn add(&mut self, level: usize, right: bool) {
        if self.at.len() <= level {
            self.at.resize(level + 1, (0, 0));
        }
        self.rows += 1;
        self.at[level].0 += 1;
        self.at[level].1 += usize::from(right);
    }

    /// The number of rows that are known at a position, and of correctly classified ones among them.
    pub(super) fn up_to(&self, position: usize) -> (usize, usize) {
        self.at.iter().take(position + 1).fold((0, 0), |sum, at| (sum.0 + at.0, sum.1 + at.1))
    }
}

/// On the calibration rows the fraction that is kept is a consequence of the threshold, not a measurement.
fn calibration_sentence(p: &Position, rows: usize) -> String {
    let rows = short_number(rows as f64, 12);
    let right = p.right.as_ref().map_or(String::new(), |r| format!("; {r}% of these are classified correctly"));
    format!(
        "Expected to keep {}% of new known rows. Keeps {}% of the {rows} calibration rows{right}.",
        p.set_for, p.kept
    )
}

fn sentence(p: &Position, sets: &[(String, Levels)]) -> String {
    let mut out = format!("Keeps {}% of known rows", p.kept);
    match (&p.rejected[..], sets.len()) {
        ([], _) => {}
        ([one], _) => out.push_str(&format!(", rejects {one}% of unknown ones")),
        (all, n) if n <= MOST_NAMED => {
            let each: Vec<String> = all.iter().zip(sets).map(|(r, (name, _))| format!("{r}% of {name}")).collect();
            let (last, first) = each.split_last().map_or(("", &[][..]), |(l, f)| (l.as_str(), f));
            out.push_str(&format!(", rejects {} and {last}", first.join(", ")));
        }
        (all, n) => {
            let value = |t: &String| t.parse::<f64>().unwrap_or(0.0);
            let least = all.iter().min_by(|a, b| value(a).total_cmp(&value(b)));
            let most = all.iter().max_by(|a, b| value(a).total_cmp(&value(b)));
            if let (Some(least), Some(most)) = (least, most) {
                out.push_str(&format!(", rejects {least}% to {most}% of {} unknown sets", short_number(n as f64, 6)));
            }
        }
    }
    if let Some(right) = &p.right {
        out.push_str(&format!("; {right}% of the kept known rows are classified correctly"));
    }
    out.push('.');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_where_a_row_becomes_known() {
        let calibration = Calibration::new((0..400).map(|i| f64::from(i % 137)).collect()).unwrap();
        for tpr in [0.95, 0.9731, 0.3, 0.99999] {
            let t = Thresholds::new(&calibration, tpr).unwrap();
            assert_eq!(t.texts[t.used].parse::<f64>().unwrap(), tpr);
            let fractions: Vec<f64> = t.texts.iter().map(|t| t.parse().unwrap()).collect();
            assert!(fractions.windows(2).all(|w| w[0] < w[1]));
            for c in [-1e300, -1.0, 0.0, 3.0, 17.5, 68.0, 136.0, 137.0] {
                let level = t.level(c);
                for (i, fraction) in fractions.iter().enumerate() {
                    assert_eq!(calibration.threshold(*fraction).unwrap().known(c), i >= level);
                }
            }
        }
        assert!(Thresholds::new(&calibration, 1.0).is_err());
    }

    #[test]
    fn sentences_describe_the_position() {
        let calibration = Calibration::new((0..999).map(f64::from).collect()).unwrap();
        let t = Thresholds::new(&calibration, 0.9).unwrap();
        let mut known = Levels::default();
        [(0, true), (0, true), (t.used, false), (t.all.len(), true)].iter().for_each(|&(l, r)| known.add(l, r));
        let mut set = Levels::default();
        [0, t.all.len(), t.all.len()].iter().for_each(|&l| set.add(l, false));
        let say = |sets: usize, labeled| {
            let sets: Vec<_> = (0..sets).map(|i| (format!("s{i}"), set.clone())).collect();
            t.positions(&known, &sets, labeled, false)[t.used].sentence.clone()
        };
        let right = "; 66.67% of the kept known rows are classified correctly.";
        assert_eq!(say(0, false), "Keeps 75.00% of known rows.");
        assert_eq!(say(1, true), format!("Keeps 75.00% of known rows, rejects 66.67% of unknown ones{right}"));
        assert_eq!(say(2, false), "Keeps 75.00% of known rows, rejects 66.67% of s0 and 66.67% of s1.");
        assert!(say(5, false).contains("rejects 66.67% to 66.67% of 5 unknown sets"));
        let calibration = &t.positions(&known, &[], true, true)[t.used];
        assert_eq!(
            calibration.sentence,
            "Expected to keep 90.00% of new known rows. Keeps 75.00% of the 4 calibration rows; 66.67% of these are classified \
             correctly."
        );
    }
}
