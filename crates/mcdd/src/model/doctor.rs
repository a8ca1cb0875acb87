//! Checks of a trained model; findings are stored with it and shown to the user.

use super::{Calibration, ModelMember};
use crate::head::{Head, HeadConfig, Loop, Sigma};

/// A list of names, with a count instead of the sixth and later ones.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 5 { format!("{shown} and {} more", names.len() - 5) } else { shown }
}

/// The members, and what each of them makes of the calibration rows that it left out.
pub(super) struct Examined<'a> {
    pub members: &'a [ModelMember],
    pub head: &'a HeadConfig,
    /// For each member the latent vectors.
    pub latents: &'a [Vec<f32>],
    /// For each member the labels.
    pub labels: &'a [&'a [u32]],
}

impl Examined<'_> {
    /// What is found; `all` are the labels of all calibration rows.
    pub(super) fn findings(&self, calibration: &Calibration, all: &[u32], classes: &[String], tpr: f64) -> Vec<String> {
        let mut findings = Vec::new();
        for (i, (member, z)) in self.members.iter().zip(self.latents).enumerate() {
            let who = if self.members.len() > 1 { format!("member {}: ", i + 1) } else { String::new() };
            let mut found = vec![];
            found.extend(sigma_limit(self.head, member.head.as_ref()));
            let closed = self.head.trained_by() == Loop::ClosedForm;
            // The features of a closed-form method are inputs, which may be constant or far from Gaussian.
            found.extend(dead(z, self.labels[i].len()).filter(|_| !closed));
            found.extend(overlap(member.head.as_ref(), z, self.labels[i], classes).filter(|_| !closed));
            findings.extend(found.into_iter().map(|f| format!("{who}{f}")));
        }
        findings.extend(of_calibration(calibration, all, classes, tpr));
        findings
    }
}

/// Checks the calibration.
fn of_calibration(calibration: &Calibration, y: &[u32], classes: &[String], tpr: f64) -> Vec<String> {
    let mut findings = Vec::new();
    findings.extend(ties(calibration));
    if let Ok(threshold) = calibration.threshold(tpr) {
        let warning = calibration.warning(&threshold);
        findings.extend(warning.map(|w| format!("{w}; raise `calibration_fraction` for more calibration rows")));
    }
    let mut counts = vec![0usize; classes.len()];
    if !classes.is_empty() {
        y.iter().for_each(|&y| counts[y as usize] += 1);
    }
    let small: Vec<String> =
        classes.iter().zip(&counts).filter(|(_, n)| **n < 5).map(|(c, n)| format!("{c} ({n})")).collect();
    if !small.is_empty() {
        findings.push(format!(
            "classes with fewer than 5 calibration rows: {}; the threshold may not hold for them",
            some(&small)
        ));
    }
    findings
}

/// Inputs with almost all of their variance in one cell: all other rows are nearly equal in such a column.
pub(super) fn one_cell(x: &[f32], names: &[String]) -> Option<String> {
    let mut sums = vec![(0.0f64, 0.0f64); names.len()];
    for row in x.chunks_exact(names.len().max(1)) {
        for ((sum, most), &v) in sums.iter_mut().zip(row) {
            let square = f64::from(v) * f64::from(v);
            *sum += square;
            *most = most.max(square);
        }
    }
    let rows = x.len() / names.len().max(1);
    let dominated = |&(sum, most): &(f64, f64)| rows >= 20 && most > 0.9 * sum;
    let columns: Vec<String> = names.iter().zip(&sums).filter(|(_, s)| dominated(s)).map(|(n, _)| n.clone()).collect();
    let what = "one cell has almost all of the variance (is it an error?), and all other rows are nearly equal, in";
    (!columns.is_empty()).then(|| format!("{what} {}", some(&columns)))
}

/// An accuracy on the calibration rows that predicting the largest class for every row would reach too, up to chance: below
/// the upper end of the 95% interval of that many such predictions.
pub(super) fn chance(predicted: &[u32], y: &[u32], classes: &[String]) -> Option<String> {
    let rows = predicted.len().min(y.len());
    if rows == 0 || classes.len() < 2 {
        return None;
    }
    let mut sizes = vec![0usize; classes.len()];
    y.iter().for_each(|&y| sizes[y as usize] += 1);
    let (largest, size) = sizes.iter().enumerate().max_by_key(|(_, size)| **size)?;
    let right = predicted.iter().zip(y).filter(|(c, y)| c == y).count();
    let (accuracy, base) = (right as f64 / rows as f64, *size as f64 / rows as f64);
    let limit = base + 1.645 * (base * (1.0 - base) / rows as f64).sqrt();
    (accuracy < 1.0 && accuracy <= limit).then(|| {
        format!(
            "the validation accuracy of {:.1}% is not clearly above the {:.1}% that predicting {} for every row gives: the columns \
             may say little about the classes, or the labels may be wrong",
            100.0 * accuracy,
            100.0 * base,
            classes[largest]
        )
    })
}

/// Learned sigmas that are at their lower limit.
fn sigma_limit(config: &HeadConfig, head: &dyn Head) -> Option<String> {
    let log_sigma = head.log_sigma()?;
    if matches!(config, HeadConfig::DeepMcdd(c) if c.sigma == Sigma::One) {
        return None;
    }
    let at = log_sigma.iter().filter(|&&s| s == 0.0).count();
    (at > 0).then(|| {
        format!(
            "sigma is at its lower limit of 1 for {at} of {} classes: learning it has no effect there",
            log_sigma.len()
        )
    })
}

/// Latent features that are equal for all calibration rows.
fn dead(z: &[f32], rows: usize) -> Option<String> {
    let latent = z.len().checked_div(rows)?;
    if rows < 2 {
        return None;
    }
    let column = |d: usize| z.iter().skip(d).step_by(latent.max(1));
    let dead = (0..latent).filter(|&d| column(d).all(|&v| v == z[d])).count();
    (dead > 0).then(|| format!("{dead} of {latent} latent features are equal for all calibration rows"))
}

/// Class means that are closer to each other than the rows are to their class mean.
fn overlap(head: &dyn Head, z: &[f32], y: &[u32], classes: &[String]) -> Option<String> {
    let means = head.means()?;
    let latent = means.len() / classes.len();
    let mean = |k: usize| &means[k * latent..(k + 1) * latent];
    let square = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    // Root mean square distance of the rows of a class from its mean.
    let mut radius = vec![(0.0, 0usize); classes.len()];
    for (z, &y) in z.chunks_exact(latent).zip(y) {
        let r = &mut radius[y as usize];
        *r = (r.0 + square(z, mean(y as usize)), r.1 + 1);
    }
    let radius: Vec<f64> = radius.into_iter().map(|(s, n)| (s / n.max(1) as f64).sqrt()).collect();
    let mut pairs = Vec::new();
    for a in 0..classes.len() {
        for b in a + 1..classes.len() {
            if square(mean(a), mean(b)).sqrt() < radius[a].max(radius[b]) {
                pairs.push(format!("{} and {}", classes[a], classes[b]));
            }
        }
    }
    (!pairs.is_empty())
        .then(|| format!("class means closer to each other than their rows are to them: {}", some(&pairs)))
}

/// Few distinct confidences: the threshold is coarse, and ties make metrics less precise.
fn ties(calibration: &Calibration) -> Option<String> {
    let scores = calibration.scores();
    let distinct = 1 + scores.windows(2).filter(|w| w[0] != w[1]).count();
    (scores.len() >= 20 && distinct < scores.len() / 2)
        .then(|| format!("only {distinct} distinct confidences among {} calibration rows", scores.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn an_accuracy_at_chance_level_is_found() {
        let classes = ["a", "b", "c", "d"].map(String::from);
        let y: Vec<u32> = (0..200).map(|i| i % 4).collect();
        let right =
            |n: usize| (0..200).map(|i| if (i as usize) < n { i % 4 } else { (i + 1) % 4 }).collect::<Vec<u32>>();
        // 28.6% of four equal classes is chance, 40% is not.
        assert!(chance(&right(57), &y, &classes).unwrap().contains("28.5%"));
        assert!(chance(&right(80), &y, &classes).is_none());
        assert!(chance(&[], &[], &classes).is_none());
        // 96% where nearly all rows are of one class.
        let y: Vec<u32> = (0..200).map(|i| u32::from(i % 20 == 0)).collect();
        let mut guess = vec![0; 200];
        guess[0] = 1;
        guess[20] = 1;
        assert!(chance(&guess, &y, &classes).unwrap().contains("95.0% that predicting a"));
        assert!(chance(&y, &y, &classes).is_none());
    }

    #[test]
    fn dead_features_ties_and_close_means_are_found() {
        assert!(dead(&[1.0, 5.0, 2.0, 5.0, 3.0, 5.0], 3).unwrap().starts_with("1 of 2"));
        assert!(dead(&[1.0, 5.0, 2.0, 6.0], 2).is_none() && dead(&[1.0, 5.0], 1).is_none());
        let many = |distinct: usize| Calibration::new((0..100).map(|i| (i % distinct) as f64).collect()).unwrap();
        assert!(ties(&many(7)).unwrap().contains("only 7 distinct"));
        assert!(ties(&many(100)).is_none());

        let classes = ["a", "b"].map(String::from);
        let mut head = HeadConfig::default().build(2, 2, &mut Stream::new(1, "doctor"));
        head.params_mut().get_mut(0).copy_from_slice(&[0.0, 0.0, 1.0, 0.0]);
        let rows = |spread: f32| [spread, 0.0, 1.0, spread];
        assert!(overlap(head.as_ref(), &rows(3.0), &[0, 1], &classes).unwrap().contains("a and b"));
        assert!(overlap(head.as_ref(), &rows(0.1), &[0, 1], &classes).is_none());
    }
}
