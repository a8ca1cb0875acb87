//! One-class support vector machine with a Gaussian kernel: the confidence is
//! `sum_j a_j exp(-gamma |x_j - x|^2) - rho`, positive inside the boundary.
//!
//! The weights `a` solve the paper's problem scaled to `0 <= a_j <= 1` and `sum a = nu n`, so the scores are those of
//! libsvm and of scikit-learn's `decision_function`. Only support vectors (rows with `a_j > 0`) are kept. All rows that are
//! far from every support vector have the score `-rho`.
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
            name: "ocsvm",
            summary: "one-class support vector machine with a Gaussian kernel",
            reference: "Schölkopf et al.: Estimating the Support of a High-Dimensional \
                    Distribution, Neural Computation 2001",
            needs: Needs { features: true, ..Needs::NONE },
        }
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let solved = self.0.fit(training, pool);
        Ok(Box::new(Ocsvm { machine: solved.machine, rho: solved.level }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let machine = Machine::load(state)?;
        let rho = state.take_f64("rho", &[1])?[0];
        Ok(Box::new(Ocsvm { machine, rho }))
    }
}

struct Ocsvm {
    machine: Machine,
    rho: f64,
}

impl Detector for Ocsvm {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        self.machine.sums(rows, out, scratch);
        out.iter_mut().for_each(|v| *v -= self.rho);
    }

    fn save(&self, state: &mut StateDict) {
        self.machine.save(state);
        state.put_f64("rho", &[1], &[self.rho]);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let sums = self.machine.sums_to_onnx(graph, rows.features()?)?;
        Ok(Scores { confidence: graph.shift(sums, -self.rho), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::svm::tests::{fit, score};
    use super::*;
    use crate::detector::DetectorConfig;
    use crate::seed::Stream;

    fn normal(n: usize) -> Vec<f32> {
        let mut s = Stream::new(1, "ocsvm");
        (0..n).map(|_| 100.0 + s.normal() as f32).collect()
    }

    #[test]
    fn nu_is_the_fraction_outside() {
        let x = normal(3000 * 4);
        for nu in [0.02, 0.1, 0.5] {
            let scores = score(&fit(&Config(Settings { nu, ..Settings::default() }), &x, 4), &x);
            let outside = scores.iter().filter(|&&s| s < 0.0).count() as f64 / 3000.0;
            assert!((outside - nu).abs() < 0.01, "{nu}: {outside}");
        }
    }

    /// Three rows on a line, which can be solved by hand: with a total of 1.5 and weights `(b, m, b)`, the gradients at the
    /// ends and in the middle are equal.
    #[test]
    fn three_rows_by_hand() {
        let (near, far) = (libm::exp(-1.0), libm::exp(-4.0));
        // b + m near + b far = 2 b near + m, 2 b + m = 1.5
        let b = 1.5 * (1.0 - near) / (1.0 + far - 2.0 * near + 2.0 - 2.0 * near);
        let m = 1.5 - 2.0 * b;
        let rho = 2.0 * b * near + m;
        let fitted = fit(&Config(Settings { nu: 0.5, gamma: Some(1.0), rows: 10 }), &[-1.0, 0.0, 1.0], 1);
        for (x, s) in [-1.0f32, 0.0, 0.5, 3.0].iter().zip(score(&fitted, &[-1.0, 0.0, 0.5, 3.0])) {
            let k = |c: f64| libm::exp(-(f64::from(*x) - c) * (f64::from(*x) - c));
            let expected = b * (k(-1.0) + k(1.0)) + m * k(0.0) - rho;
            assert!((s - expected).abs() < 2e-3, "{x}: {s} {expected}");
        }
    }

    #[test]
    fn far_rows_score_minus_rho() {
        let x = normal(200 * 3);
        let fitted = fit(&Config::default(), &x, 3);
        let scores = score(&fitted, &[1e15, 1e15, -1e15, 1e30, 0.0, 0.0, 1e5, 1e5, 1e5]);
        assert!(scores[0] < 0.0 && scores.iter().all(|s| s.is_finite() && *s == scores[0]), "{scores:?}");
    }

    #[test]
    fn excess_rows_are_subsampled() {
        let x = normal(1000);
        let few = Config(Settings { rows: 50, ..Settings::default() });
        assert_eq!(score(&fit(&few, &x, 2), &x), score(&fit(&few, &x, 2), &x));
        assert_ne!(score(&fit(&few, &x, 2), &x), score(&fit(&Config::default(), &x, 2), &x));
    }

    #[test]
    fn invariant_to_shift_and_scale() {
        let x: Vec<f32> = normal(300 * 3).iter().map(|v| v - 100.0).collect();
        let plain = score(&fit(&Config::default(), &x, 3), &x);
        for (scale, shift) in [(1024.0f32, 0.0f32), (1e-20, 0.0), (1e12, 0.0), (1.0, 64.0)] {
            let moved: Vec<f32> = x.iter().map(|v| v * scale + shift).collect();
            let scores = score(&fit(&Config::default(), &moved, 3), &moved);
            assert!(plain.iter().zip(&scores).all(|(a, b)| (a - b).abs() < 3e-3), "{scale} {shift}");
        }
    }

    #[test]
    fn setting_ranges() {
        for wrong in ["nu=0", "nu=1.5", "nu=-1", "gamma=0", "gamma=-2", "rows=0"] {
            assert!(DetectorConfig::parse(&format!("ocsvm:{wrong}")).is_err(), "{wrong}");
        }
        for right in ["nu=1", "nu=1e-9", "gamma=auto", "gamma=1e-300", "gamma=1e300", "rows=1"] {
            let DetectorConfig::Ocsvm(config) = DetectorConfig::parse(&format!("ocsvm:{right}")).unwrap() else {
                panic!()
            };
            let x = normal(60);
            assert!(score(&fit(&config, &x, 2), &x).iter().all(|s| s.is_finite()), "{right}");
        }
    }
}
