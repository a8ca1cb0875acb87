//! KL matching: minus the smallest divergence of the posterior from the template of a class, `-min_k KL(p || d_k) =
//! -min_k sum_j p_j (log p_j - log d_kj)`.
//!
//! The template `d_k` is the mean posterior of the training rows that are *predicted* as class k, so labels are not
//! needed. A class that is predicted for no row has no template and is left out. The paper computes templates on
//! validation rows; here they are computed on the training rows, as for every detector.
//!
//! Templates are averaged and stored as logarithms: a posterior that underflows in every row still has a finite
//! logarithm, and posteriors need not be clipped. Some programs compare with the template of the predicted class only,
//! which is usually the nearest. Templates take 16 bytes per pair of classes during the fit, and a row is compared with
//! all of them.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "kl-matching",
            summary: "minus the divergence of the posterior from the nearest class's mean posterior",
            reference: "Hendrycks et al.: Scaling Out-of-Distribution \
                    Detection for Real-World Settings, ICML 2022",
            needs: Needs { logits: true, ..Needs::NONE },
        }
    }

    fn fit(&self, training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        let classes = training.rows.classes();
        Ok(Box::new(KlMatching { classes, templates: templates(&training.rows) }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let [count, classes] = state.shape("templates")?;
        if count == 0 || classes != state.classes() {
            return Err(state.invalid("the templates have the wrong number of classes"));
        }
        let templates = state.take_f64("templates", &[count, classes])?;
        // Logarithms of probabilities, with a tolerance for rounding.
        if templates.iter().any(|&v| v > 1e-9) {
            return Err(state.invalid("a template is not a distribution"));
        }
        Ok(Box::new(KlMatching { classes, templates }))
    }
}

/// The logarithms of the mean posteriors, one row per class that is predicted for some row.
fn templates(rows: &Features) -> Vec<f64> {
    let classes = rows.classes();
    let mut posterior = vec![0.0; classes];
    let mut counts = vec![0usize; classes];
    // First the largest logarithm of each element, so that the mean can be computed relative to it.
    let mut tops = vec![f64::NEG_INFINITY; classes * classes];
    for i in 0..rows.count {
        let k = log_posterior(rows.logit_row(i), &mut posterior);
        counts[k] += 1;
        for (top, &p) in tops[k * classes..].iter_mut().zip(&posterior) {
            *top = top.max(p);
        }
    }
    let mut sums = vec![0.0; classes * classes];
    for i in 0..rows.count {
        let k = log_posterior(rows.logit_row(i), &mut posterior);
        let at = k * classes..(k + 1) * classes;
        for ((sum, top), p) in sums[at.clone()].iter_mut().zip(&tops[at]).zip(&posterior) {
            *sum += libm::exp(p - top);
        }
    }
    let mut kept = Vec::new();
    for (k, &n) in counts.iter().enumerate().filter(|&(_, &n)| n > 0) {
        let at = k * classes..(k + 1) * classes;
        kept.extend(tops[at.clone()].iter().zip(&sums[at]).map(|(top, sum)| top + libm::log(sum / n as f64)));
    }
    kept
}

/// Writes the logarithm of each posterior and returns the best class.
fn log_posterior(logits: &[f64], out: &mut [f64]) -> usize {
    let best = argmax(logits);
    let mut others = 0.0;
    for (k, (out, v)) in out.iter_mut().zip(logits).enumerate() {
        *out = v - logits[best];
        if k != best {
            others += libm::exp(*out);
        }
    }
    let log_sum = libm::log1p(others);
    out.iter_mut().for_each(|v| *v -= log_sum);
    best
}

struct KlMatching {
    classes: usize,
    /// Logarithms, `[templates, classes]`.
    templates: Vec<f64>,
}

impl Detector for KlMatching {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        scratch.f64s.clear();
        scratch.f64s.resize(2 * self.classes, 0.0);
        let (logs, p) = scratch.f64s.split_at_mut(self.classes);
        for (i, out) in out.iter_mut().enumerate() {
            log_posterior(rows.logit_row(i), logs);
            p.iter_mut().zip(logs.iter()).for_each(|(p, &log)| *p = libm::exp(log));
            let divergence = |template: &[f64]| -> f64 {
                p.iter().zip(logs.iter()).zip(template).map(|((p, log), d)| p * (log - d)).sum()
            };
            *out = 0.0 - self.templates.chunks_exact(self.classes).map(divergence).fold(f64::INFINITY, f64::min);
        }
    }

    fn save(&self, state: &mut StateDict) {
        state.put_f64("templates", &[self.templates.len() / self.classes, self.classes], &self.templates);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let logits = rows.logits()?;
        let others = graph.below_best(logits, rows.classes);
        let exp = graph.op("Exp", &[others]);
        let others = graph.reduce("ReduceSum", exp, true);
        let log_sum = graph.log1p(others);
        let largest = graph.reduce("ReduceMax", logits, true);
        let below = graph.op("Sub", &[logits, largest]);
        let logs = graph.op("Sub", &[below, log_sum]);
        let p = graph.op("Exp", &[logs]);
        let products = graph.op("Mul", &[p, logs]);
        let own = graph.reduce("ReduceSum", products, true);
        let crossed = graph.times(p, &self.templates, self.classes);
        let divergences = graph.op("Sub", &[own, crossed]);
        let least = graph.reduce("ReduceMin", divergences, false);
        Ok(Scores { confidence: graph.op("Neg", &[least]), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Stream;

    fn softmax(l: &[f64]) -> Vec<f64> {
        let sum: f64 = l.iter().map(|v| v.exp()).sum();
        l.iter().map(|v| v.exp() / sum).collect()
    }

    fn fit(logits: &[f64], classes: usize) -> Box<dyn Detector> {
        let rows = Features { count: logits.len() / classes, features: &[], logits };
        Config {}.fit(&Training { rows, classes, ..Training::default() }, &Pool::new(1)).unwrap()
    }

    fn score(detector: &dyn Detector, logits: &[f64], count: usize) -> Vec<f64> {
        let mut out = vec![0.0; count];
        detector.score(&Features { count, features: &[], logits }, &mut out, &mut DetectorBuffers::default());
        out
    }

    #[test]
    fn matches_definition() {
        let classes = 4;
        let mut s = Stream::new(1, "kl");
        // Class 3 is never predicted.
        let logits: Vec<f64> = (0..200 * classes).map(|i| s.normal() - if i % 4 == 3 { 20.0 } else { 0.0 }).collect();
        let p: Vec<Vec<f64>> = logits.chunks(classes).map(softmax).collect();
        let mut templates = Vec::new();
        for k in 0..3 {
            let own: Vec<&Vec<f64>> = p.iter().filter(|p| argmax(p) == k).collect();
            let mean = |j: usize| own.iter().map(|p| p[j]).sum::<f64>() / own.len() as f64;
            templates.push((0..classes).map(mean).collect::<Vec<f64>>());
        }
        let scores = score(fit(&logits, classes).as_ref(), &logits, 200);
        for (p, score) in p.iter().zip(scores) {
            let kl = |d: &Vec<f64>| p.iter().zip(d).map(|(p, d)| p * (p / d).ln()).sum::<f64>();
            let expected = -templates.iter().map(kl).fold(f64::INFINITY, f64::min);
            assert!((score - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn scores_are_finite_if_posteriors_underflow() {
        let detector = fit(&[1e30, -1e30, 0.0, 2000.0, 0.0, -2000.0], 3);
        let scores = score(detector.as_ref(), &[-1e30, 1e30, 1e30, 0.0, 0.0, 0.0, 2000.0, 0.0, 1.0], 3);
        assert!(scores.iter().all(|s| s.is_finite()), "{scores:?}");
        assert!(scores[0] < scores[1] && scores[1] < scores[2], "{scores:?}");
    }
}
