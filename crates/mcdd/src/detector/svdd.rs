//! Support vector data description with a Gaussian kernel: the smallest ball in kernel space that contains the training
//! rows but for a fraction `nu`. The confidence is `R^2 - |phi(x) - c|^2`, positive inside.
//!
//! The center is `c = sum_j b_j phi(x_j)` with `sum b = 1` and `0 <= b_j <= C`, where `C = 1 / (nu n)`. As
//! `K(x, x) = 1`, the problem has the same solution as the one-class support vector machine, `b = a / (nu n)`. Both use the
//! same solver and give the same order of rows on a different scale. With `f(x) = sum_j a_j K(x_j, x)`:
//! `|phi(x) - c|^2 = 1 - 2 f(x) / (nu n) + c'c`, and `R^2` is the mean of that over the support vectors on the boundary.
//!
//! The time of a fit grows with the square of the number of rows, so at most `rows` of them are used, drawn by the seed;
//! `nu` is a fraction of those.

use serde::{Deserialize, Serialize};

use super::svm::{Machine, Settings};
use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub Settings);

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "svdd",
            summary: "support vector data description: the smallest ball in the space of a Gaussian kernel",
            reference: "Tax, Duin: Support Vector Data Description, Machine Learning 2004",
            needs: Needs { features: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let solved = self.0.fit(training, pool);
        let center = solved.norm;
        let radius = 1.0 - 2.0 * (solved.level / solved.machine.total()) + center;
        Ok(Box::new(Svdd { machine: solved.machine, radius, center }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let machine = Machine::load(state)?;
        let ball = state.take_f64("ball", &[2])?;
        let (radius, center) = (ball[0], ball[1]);
        // In kernel space distances are at most 2 and norms at most 1, up to rounding.
        let possible = |v: f64, most: f64| (-1e-6..=most + 1e-6).contains(&v);
        if !(possible(radius, 4.0) && possible(center, 1.0)) {
            return Err(state.invalid("the radius or the center is out of range"));
        }
        Ok(Box::new(Svdd { machine, radius, center }))
    }
}

struct Svdd {
    machine: Machine,
    /// The squared radius, `R^2`.
    radius: f64,
    /// The squared norm of the center, `c'c`.
    center: f64,
}

impl Detector for Svdd {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        self.machine.sums(rows, out, scratch);
        // What is constant over rows is added up first, so that the rest loses no digits.
        let constant = 1.0 + self.center - self.radius;
        let total = self.machine.total();
        out.iter_mut().for_each(|f| *f = 2.0 * (*f / total) - constant);
    }

    fn save(&self, state: &mut StateDict) {
        self.machine.save(state);
        state.put_f64("ball", &[2], &[self.radius, self.center]);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let sums = self.machine.sums_to_onnx(graph, rows.features()?)?;
        let scaled = graph.scale(sums, 2.0 / self.machine.total());
        let constant = 1.0 + self.center - self.radius;
        Ok(Scores { confidence: graph.shift(scaled, -constant), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::svm::tests::{fit, score};
    use super::*;
    use crate::detector::DetectorConfig;
    use crate::seed::Stream;

    fn normal(n: usize, seed: u64) -> Vec<f32> {
        let mut s = Stream::new(seed, "svdd");
        (0..n).map(|_| s.normal() as f32).collect()
    }

    #[test]
    fn same_order_as_the_one_class_svm() {
        let (x, test) = (normal(900, 1), normal(600, 2));
        for settings in ["", ":nu=0.5", ":nu=0.03:gamma=2", ":rows=100"] {
            let scores =
                |name: &str| score(&fit(&DetectorConfig::parse(&format!("{name}{settings}")).unwrap(), &x, 3), &test);
            let (a, b) = (scores("ocsvm"), scores("svdd"));
            let order = |s: &[f64]| {
                let mut order: Vec<usize> = (0..s.len()).collect();
                order.sort_by(|&i, &j| s[i].total_cmp(&s[j]));
                order
            };
            assert_eq!(order(&a), order(&b), "{settings}");
            // The boundary is the same, too.
            assert!(a.iter().zip(&b).all(|(a, b)| a.abs() < 1e-9 || (*a > 0.0) == (*b > 0.0)));
        }
    }

    /// Two rows: the center is between them, and the ball goes through both.
    #[test]
    fn two_rows_by_hand() {
        let config = DetectorConfig::from(Config(Settings { nu: 0.9, gamma: Some(0.5), rows: 2 }));
        let fitted = fit(&config, &[0.0, 2.0], 1);
        let k = |a: f64, b: f64| libm::exp(-0.5 * (a - b) * (a - b));
        let inner = 0.25 * (2.0 + 2.0 * k(0.0, 2.0));
        let distance = |x: f64| 1.0 - (k(x, 0.0) + k(x, 2.0)) + inner;
        for (x, s) in [0.0f32, 1.0, 2.0, 5.0].into_iter().zip(score(&fitted, &[0.0, 1.0, 2.0, 5.0])) {
            let expected = distance(0.0) - distance(f64::from(x));
            assert!((s - expected).abs() < 1e-6, "{x}: {s} {expected}");
        }
        // Far away the distance is that of a point that is orthogonal to all rows.
        assert!((score(&fitted, &[1e15])[0] - (distance(0.0) - 1.0 - inner)).abs() < 1e-6);
    }
}
