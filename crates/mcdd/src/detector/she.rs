//! Simplified Hopfield energy (SHE): the inner product of the features with the pattern of the predicted class.
//!
//! The pattern of a class is the mean of the features of its correctly classified training rows; without labels, of all
//! rows that are predicted as this class. For a class without such rows it is the mean of all training rows.

use serde::{Deserialize, Serialize};

use super::{About, Detector, DetectorBuffers, Features, FitDetector, Needs, StateDict, Training};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::error::Result;
use crate::onnx::{Builder, Features as Inputs, Scores};
use crate::stats::moments;

/// Settings: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl FitDetector for Config {
    fn about(&self) -> About {
        About {
            name: "she",
            summary: "inner product of the features with the mean features of the predicted class",
            reference: "Zhang et al.: Out-of-Distribution Detection based on \
                    In-Distribution Data Patterns Memorization with Modern Hopfield Energy, ICLR 2023",
            needs: Needs { features: true, logits: true, ..Needs::NONE },
        }
    }

    fn fit(&self, training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        let rows = &training.rows;
        let (width, classes) = (rows.width(), rows.classes());
        // Misclassified rows go to an additional class, which is dropped.
        let assigned: Vec<u32> = (0..rows.count)
            .map(|i| {
                let predicted = argmax(rows.logit_row(i)) as u32;
                let wrong = training.labels.is_some_and(|labels| labels[i] != predicted);
                if wrong { classes as u32 } else { predicted }
            })
            .collect();
        let (mut patterns, counts) = moments::class_means(rows.features, width, &assigned, classes + 1);
        patterns.truncate(classes * width);
        let mean = moments::mean(rows.features, width);
        for (pattern, _) in patterns.chunks_exact_mut(width).zip(counts).filter(|(_, n)| *n == 0) {
            pattern.copy_from_slice(&mean);
        }
        Ok(Box::new(She { width, patterns }))
    }

    fn load(&self, state: &mut StateDict) -> Result<Box<dyn Detector>> {
        let [classes, width] = state.shape("patterns")?;
        if width != state.width() || classes != state.classes() {
            return Err(state.invalid("the patterns have an invalid shape"));
        }
        let patterns = state.take_f64("patterns", &[classes, width])?;
        if patterns.iter().any(|v| v.abs() > 1e100) {
            return Err(state.invalid("a pattern is out of range"));
        }
        Ok(Box::new(She { width, patterns }))
    }
}

struct She {
    width: usize,
    /// The pattern of each class, `[classes, width]`.
    patterns: Vec<f64>,
}

impl Detector for She {
    fn score(&self, rows: &Features, out: &mut [f64], _scratch: &mut DetectorBuffers) {
        for (i, out) in out.iter_mut().enumerate() {
            let pattern = &self.patterns[argmax(rows.logit_row(i)) * self.width..][..self.width];
            *out = rows.feature_row(i).iter().zip(pattern).map(|(&x, p)| f64::from(x) * p).sum();
        }
    }

    fn save(&self, state: &mut StateDict) {
        state.put_f64("patterns", &[self.patterns.len() / self.width, self.width], &self.patterns);
    }

    fn to_onnx(&self, graph: &mut Builder, rows: &Inputs) -> Result<Scores> {
        let best = graph.argmax(rows.logits()?);
        let own = graph.is_column(best, self.patterns.len() / self.width);
        let products = graph.times(rows.features()?, &self.patterns, self.width);
        Ok(Scores { confidence: graph.select(own, products), logits: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::last_layer::tests::Example;
    use super::*;
    use crate::seed::Stream;

    #[test]
    fn matches_definition_with_and_without_labels() {
        let (e, test) = (Example::new(300, 5, 4, 1), Example::new(40, 5, 4, 2));
        let mut s = Stream::new(1, "labels");
        // Class 3 has no correctly classified row.
        let labels: Vec<u32> = (0..300).map(|_| s.below(3) as u32).collect();
        for labels in [Some(&labels[..]), None] {
            let training = Training { labels, ..e.training(true) };
            let she = Config {}.fit(&training, &Pool::new(1)).unwrap();
            let mut scores = vec![0.0; 40];
            she.score(&test.rows(), &mut scores, &mut DetectorBuffers::default());
            for (i, score) in scores.into_iter().enumerate() {
                let k = argmax(test.rows().logit_row(i));
                let own: Vec<usize> = (0..300)
                    .filter(|&r| argmax(e.rows().logit_row(r)) == k && labels.is_none_or(|l| l[r] as usize == k))
                    .collect();
                let own = if own.is_empty() { (0..300).collect() } else { own };
                let mean =
                    |j: usize| own.iter().map(|r| f64::from(e.features[r * 5 + j])).sum::<f64>() / own.len() as f64;
                let expected: f64 = (0..5).map(|j| f64::from(test.features[i * 5 + j]) * mean(j)).sum();
                assert!((score - expected).abs() < 1e-9 * (1.0 + expected.abs()), "{score} {expected}");
            }
        }
    }
}
