//! The sharpness of probabilities: the exponent that makes those of the calibration rows most likely, and one over what is
//! called the temperature. It changes no class, only how sure it is.

use std::ops::RangeInclusive;

/// What an exponent can be.
pub(super) const RANGE: RangeInclusive<f64> = 0.01..=100.0;

/// Raises probabilities to a power, and divides them by their sum.
pub(super) fn apply(sharpness: f64, probabilities: &mut [f64]) {
    if sharpness == 1.0 {
        return;
    }
    let largest = probabilities.iter().fold(0.0f64, |m, &p| m.max(p));
    if largest == 0.0 {
        return;
    }
    let mut sum = 0.0;
    for p in probabilities.iter_mut() {
        *p = power(*p / largest, sharpness);
        sum += *p;
    }
    probabilities.iter_mut().for_each(|p| *p /= sum);
}

/// A power of a number from 0 to 1, in half the time of `pow`, which has more digits.
fn power(p: f64, exponent: f64) -> f64 {
    if p == 1.0 { 1.0 } else { libm::exp(exponent * libm::log(p)) }
}

/// Probabilities of the classes, row by row, and the classes of the rows.
pub(super) type Rows<'a> = (&'a [f64], &'a [u32]);

/// The exponent with the smallest log loss on rows that the predicting members left out. Few rows move it little from 1: its
/// logarithm has a normal distribution to begin with.
pub(super) fn fit(parts: &[Rows]) -> f64 {
    let loss = |log: f64| -> f64 {
        let sharpness = libm::exp(log);
        let mut loss = 0.5 * log * log;
        for (posterior, labels) in parts.iter().filter(|(posterior, _)| !posterior.is_empty()) {
            for (row, &y) in posterior.chunks_exact(posterior.len() / labels.len()).zip(*labels) {
                let largest = row.iter().fold(0.0f64, |m, &p| m.max(p));
                let sum: f64 = row.iter().map(|&p| power(p / largest, sharpness)).sum();
                let own = row[y as usize].max(f64::MIN_POSITIVE) / largest;
                loss += libm::log(sum) - sharpness * libm::log(own);
            }
        }
        if loss.is_finite() { loss } else { f64::INFINITY }
    };
    // The loss is convex in the exponent, so it has one minimum: golden section.
    let ratio = (libm::sqrt(5.0) - 1.0) / 2.0;
    let (mut low, mut high) = (-2.5, 2.5);
    let mut inner = [high - ratio * (high - low), low + ratio * (high - low)];
    let mut losses = inner.map(loss);
    for _ in 0..24 {
        if losses[0] <= losses[1] {
            high = inner[1];
            inner = [high - ratio * (high - low), inner[0]];
            losses = [loss(inner[0]), losses[0]];
        } else {
            low = inner[0];
            inner = [inner[1], low + ratio * (high - low)];
            losses = [losses[1], loss(inner[1])];
        }
    }
    libm::exp((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    /// Probabilities from which classes are drawn, and their powers.
    fn rows(n: usize, power: f64) -> (Vec<f64>, Vec<u32>) {
        let mut random = Stream::new(4, "sharpness");
        let (mut posterior, mut y) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let mut p = [0; 3].map(|_| -libm::log(random.uniform()));
            let sum: f64 = p.iter().sum();
            p.iter_mut().for_each(|p| *p /= sum);
            let drawn = random.uniform();
            y.push(if drawn < p[0] { 0 } else { 1 + u32::from(drawn >= p[0] + p[1]) });
            apply(power, &mut p);
            posterior.extend(p);
        }
        (posterior, y)
    }

    #[test]
    fn probabilities_that_are_too_soft_or_too_sharp_are_mended() {
        for power in [0.4, 1.0, 3.0] {
            let (posterior, labels) = rows(4000, power);
            let found = fit(&[(&posterior, &labels)]);
            assert!((found * power - 1.0).abs() < 0.1, "{power}: {found}");
        }
        // Rows that are all right would have any exponent.
        let found = fit(&[(&[0.9, 0.1].repeat(5), &[0; 5])]);
        assert!(found > 1.0 && found < 2.0, "{found}");
        assert!((fit(&[(&[], &[])]) - 1.0).abs() < 1e-4);
    }

    #[test]
    fn a_power_keeps_the_order_and_the_sum() {
        for sharpness in [0.01, 0.5, 1.0, 7.0, 100.0] {
            for row in [[0.2, 0.5, 0.3], [0.0, 0.0, 1.0], [1.0 / 3.0; 3], [1e-300, 0.4, 0.6]] {
                let mut out = row;
                apply(sharpness, &mut out);
                assert!((out.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{out:?}");
                for (i, j) in [(0, 1), (1, 2), (0, 2)] {
                    assert!(row[i] > row[j] || out[i] <= out[j], "{row:?} {out:?}");
                }
            }
        }
    }
}
