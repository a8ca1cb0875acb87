//! Collects predictions and evaluates them.

use std::collections::HashMap;

use super::evaluation::{Bootstrap, ClassEvaluation, Estimate, Evaluation, Metric, OodEvaluation};
use crate::compute::pool::Pool;
use crate::data::{Images, Table};
use crate::error::{Error, Result};
use crate::metrics;
use crate::model::{Model, Predictions, Threshold};

/// Collects predictions, row by row or block by block, in any order.
#[derive(Clone, Debug)]
pub struct Evaluator<'a> {
    classes: &'a [String],
    codes: HashMap<&'a str, u32>,
    threshold: Threshold,
    /// The confidences of the in-distribution rows.
    confidence: Vec<f64>,
    /// The label and the predicted class of each in-distribution row.
    outcomes: Vec<(Option<u32>, Option<u32>)>,
    /// The confidences of rows with a label that is not a class.
    foreign: (String, Vec<f64>),
    ood: Vec<(String, Vec<f64>)>,
}

/// A set of out-of-distribution rows of an [`Evaluator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OodSet(usize);

impl<'a> Evaluator<'a> {
    /// For a model with these classes, and a threshold between known and unknown.
    pub fn new(classes: &'a [String], threshold: Threshold) -> Evaluator<'a> {
        Evaluator {
            classes,
            codes: classes.iter().map(String::as_str).zip(0..).collect(),
            threshold,
            confidence: Vec::new(),
            outcomes: Vec::new(),
            foreign: ("rows with a label that is not a class of the model".into(), Vec::new()),
            ood: Vec::new(),
        }
    }

    /// Names the set of the rows whose label is not a class of the model.
    pub fn name_foreign(&mut self, name: impl Into<String>) {
        self.foreign.0 = name.into();
    }

    /// The index of a class.
    pub fn class(&self, name: &str) -> Option<u32> {
        self.codes.get(name).copied()
    }

    /// Adds an in-distribution row. `predicted` is `None` if the model does not classify, `label` if there is none.
    pub fn add_row(&mut self, confidence: f64, predicted: Option<u32>, label: Option<u32>) {
        self.confidence.push(confidence);
        self.outcomes.push((label, predicted));
    }

    /// Adds a block of rows and the names of their labels. A row whose label is not a class of the model is added to an
    /// out-of-distribution set of its own; a row without a label counts as in-distribution.
    pub fn add<S: AsRef<str>>(&mut self, predictions: &Predictions, labels: Option<&[Option<S>]>) {
        for (i, &confidence) in predictions.confidence.iter().enumerate() {
            let name = labels.and_then(|l| l.get(i)?.as_ref()).map(AsRef::as_ref);
            match name.map(|n| self.class(n)) {
                Some(None) => self.foreign.1.push(confidence),
                label => self.add_row(confidence, predictions.class.get(i).copied(), label.flatten()),
            }
        }
    }

    /// Starts a set of out-of-distribution rows.
    pub fn ood_set(&mut self, name: impl Into<String>) -> OodSet {
        self.ood.push((name.into(), Vec::new()));
        OodSet(self.ood.len() - 1)
    }

    /// Adds the confidences of out-of-distribution rows to a set.
    pub fn add_ood(&mut self, set: OodSet, confidences: &[f64]) {
        self.ood[set.0].1.extend_from_slice(confidences);
    }

    /// Checks the in-distribution rows.
    ///
    /// # Errors
    /// If there are none, or only some of them have a label.
    pub fn check(&self) -> Result<()> {
        if self.confidence.is_empty() && self.foreign.1.is_empty() {
            return Err(Error::data("there are no rows to evaluate").hint("give a file with a row for each example"));
        }
        if self.confidence.is_empty() {
            return Err(Error::data("no row has a class of this model")
                .hint("check the data, `label` and the classes of the model"));
        }
        let labeled = self.outcomes.iter().filter(|(label, predicted)| label.is_some() && predicted.is_some()).count();
        if labeled > 0 && labeled < self.outcomes.len() {
            return Err(Error::data("some rows have a label and some have none")
                .hint("leave the others out by `skip_unlabeled`, fill in the labels, or set `label` to none"));
        }
        Ok(())
    }

    /// Evaluates what was added.
    ///
    /// # Errors
    /// As for [`Evaluator::check`]; if an out-of-distribution set is empty, or a confidence is NaN.
    pub fn finish(&self, bootstrap: Bootstrap) -> Result<Evaluation> {
        self.check()?;
        let right: Vec<bool> =
            self.outcomes.iter().filter_map(|&(label, predicted)| Some(label? == predicted?)).collect();
        let kept = |(c, right): (&f64, &bool)| self.threshold.known(*c).then_some(*right);
        let right_kept: Vec<bool> = self.confidence.iter().zip(&right).filter_map(kept).collect();
        let foreign = Some(&self.foreign).filter(|set| !set.1.is_empty());
        Ok(Evaluation {
            rows: self.confidence.len(),
            accuracy: accuracy(&right, bootstrap)?,
            kept: self.known(&self.confidence),
            accuracy_among_kept: metrics::accuracy(&right_kept).ok().map(|a| a.accuracy),
            threshold: self.threshold,
            classes: self.by_class(),
            ood: foreign
                .into_iter()
                .chain(&self.ood)
                .map(|set| self.detection(set, bootstrap))
                .collect::<Result<_>>()?,
            bootstrap,
        })
    }

    /// The fraction of rows that are known.
    fn known(&self, confidences: &[f64]) -> f64 {
        confidences.iter().filter(|&&c| self.threshold.known(c)).count() as f64 / confidences.len() as f64
    }

    fn by_class(&self) -> Vec<ClassEvaluation> {
        #[derive(Clone, Copy, Default)]
        struct Counts {
            rows: usize,
            predicted: usize,
            right: usize,
            kept: usize,
        }
        if self.outcomes.iter().all(|(label, _)| label.is_none()) {
            return Vec::new();
        }
        let mut counts = vec![Counts::default(); self.classes.len()];
        for (&(label, predicted), &confidence) in self.outcomes.iter().zip(&self.confidence) {
            let Some(label) = label else { continue };
            if let Some(of) = counts.get_mut(label as usize) {
                of.rows += 1;
                of.right += usize::from(predicted == Some(label));
                of.kept += usize::from(self.threshold.known(confidence));
            }
            if let Some(of) = predicted.and_then(|p| counts.get_mut(p as usize)) {
                of.predicted += 1;
            }
        }
        let classifies = self.outcomes.iter().any(|(_, predicted)| predicted.is_some());
        let fraction = |part: usize, of: usize| (of > 0).then(|| part as f64 / of as f64);
        let class = |(name, n): (&String, &Counts)| ClassEvaluation {
            name: name.clone(),
            rows: n.rows,
            recall: fraction(n.right, n.rows).filter(|_| classifies),
            precision: fraction(n.right, n.predicted),
            kept: fraction(n.kept, n.rows),
        };
        self.classes.iter().zip(&counts).map(class).collect()
    }

    fn detection(&self, (name, confidence): &(String, Vec<f64>), bootstrap: Bootstrap) -> Result<OodEvaluation> {
        let at = |e: Error| if confidence.is_empty() { Error::data(format!("{name} has no rows")) } else { e };
        let detection = metrics::detection(&self.confidence, confidence).map_err(at)?;
        let intervals = match bootstrap.replicates {
            0 => None,
            n => Some(metrics::bootstrap(&self.confidence, confidence, n, bootstrap.seed, 0)?),
        };
        let each = intervals.map(|i| i.rows());
        let metric = |(i, row): (usize, metrics::Row)| Metric {
            key: row.key,
            name: row.name,
            positive: row.positive,
            value: row.value,
            interval95: each.map(|e| e[i]),
        };
        Ok(OodEvaluation {
            name: name.clone(),
            rows: confidence.len(),
            rejected: 1.0 - self.known(confidence),
            tie_fraction: detection.tie_fraction,
            metrics: detection.rows().into_iter().enumerate().map(metric).collect(),
            detection,
            intervals,
        })
    }
}

fn accuracy(right: &[bool], bootstrap: Bootstrap) -> Result<Option<Estimate>> {
    if right.is_empty() {
        return Ok(None);
    }
    let interval95 = (bootstrap.replicates > 0).then(|| metrics::accuracy_interval(right)).transpose()?;
    Ok(Some(Estimate { value: metrics::accuracy(right)?.accuracy, interval95 }))
}

impl Evaluation {
    /// Evaluates a model on tables in memory: in-distribution rows, and named sets of out-of-distribution rows. Labels are
    /// matched with the classes of the model by name.
    ///
    /// # Errors
    /// If a table does not match the model, and as for [`Evaluator::finish`].
    pub fn of_tables(
        model: &Model,
        known: &Table,
        ood: &[(&str, &Table)],
        threshold: Threshold,
        bootstrap: Bootstrap,
    ) -> Result<Evaluation> {
        let mut evaluator = Evaluator::new(model.classes(), threshold);
        let labels: Vec<Option<&str>> = (0..known.rows()).map(|i| known.label_name(i)).collect();
        evaluator.add(&model.predict(known)?, Some(&labels));
        evaluator.check()?;
        for (name, table) in ood {
            let set = evaluator.ood_set(*name);
            evaluator.add_ood(set, &model.predict(table)?.confidence);
        }
        evaluator.finish(bootstrap)
    }

    /// Evaluates a model on images in memory.
    ///
    /// # Errors
    /// If the model is not for images of this shape, and as for [`Evaluator::finish`].
    pub fn of_images(
        model: &Model,
        known: &Images,
        threshold: Threshold,
        bootstrap: Bootstrap,
        pool: &Pool,
    ) -> Result<Evaluation> {
        let spec = model.schema().image.as_ref().filter(|spec| spec.shape() == known.shape());
        let spec = spec.ok_or_else(|| Error::data("the model is not for images of this shape"))?;
        let mut evaluator = Evaluator::new(model.classes(), threshold);
        let mut predictions = Predictions::default();
        let all: Vec<usize> = (0..known.rows()).collect();
        for rows in all.chunks(IMAGES) {
            let mut x = vec![0.0; rows.len() * known.shape().values()];
            spec.transform_into(&known.select(rows).pixels, &mut x);
            model.predict_rows(&x, &mut predictions, pool)?;
            let labels: Vec<Option<&str>> = rows.iter().map(|&i| known.label_name(i)).collect();
            evaluator.add(&predictions, Some(&labels));
        }
        evaluator.finish(bootstrap)
    }
}

/// How many images are predicted at a time.
const IMAGES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Calibration;
    use serde_json::{Value, json};

    fn threshold() -> Threshold {
        // The lowest of 1 to 19.
        Calibration::new((1..=19).map(f64::from).collect()).unwrap().threshold(0.95).unwrap()
    }

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(String::from).to_vec()
    }

    fn block(class: &[u32], confidence: &[f64]) -> Predictions {
        Predictions {
            classes: 3,
            class: class.to_vec(),
            confidence: confidence.to_vec(),
            p_value: vec![0.5; confidence.len()],
            posterior: vec![1.0 / 3.0; 3 * class.len()],
            distance: Vec::new(),
        }
    }

    #[test]
    fn a_case_by_hand() {
        let classes = names();
        let mut e = Evaluator::new(&classes, threshold());
        let labels = [Some("a"), Some("a"), Some("b"), Some("z"), Some("b")];
        e.add(&block(&[0, 1, 1, 0, 1], &[5.0, 0.5, 3.0, 0.25, 0.0]), Some(&labels));
        let set = e.ood_set("far");
        e.add_ood(set, &[-1.0, 2.0]);
        e.add_ood(set, &[-3.0, -4.0]);
        let found = e.finish(Bootstrap { replicates: 10, seed: 3 }).unwrap();
        assert_eq!((found.rows, found.accuracy.unwrap().value, found.kept), (4, 0.75, 0.5));
        assert_eq!(found.accuracy_among_kept, Some(1.0));
        let by_class: Vec<_> = found.classes.iter().map(|c| (c.rows, c.recall, c.precision, c.kept)).collect();
        let third = Some(2.0 / 3.0);
        assert_eq!(
            by_class,
            [(2, Some(0.5), Some(1.0), Some(0.5)), (2, Some(1.0), third, Some(0.5)), (0, None, None, None)]
        );
        // The row of class z is a set of its own, before the others.
        let sets: Vec<_> = found.ood.iter().map(|o| (o.rows, o.rejected)).collect();
        assert_eq!(sets, [(1, 1.0), (4, 0.75)]);
        assert_eq!(
            found.ood[1].detection,
            metrics::detection(&[5.0, 0.5, 3.0, 0.0], &[-1.0, 2.0, -3.0, -4.0]).unwrap()
        );
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["bootstrap"], json!({ "replicates": 10, "seed": 3 }));
        assert_eq!(json["classes"][1]["precision"], 2.0 / 3.0);
        assert_eq!(json["ood"][1]["name"], "far");
        let auroc = &json["ood"][1]["metrics"]["auroc"];
        assert_eq!((&auroc["name"], &auroc["positive"]), (&json!("AUROC"), &json!("ID")));
        assert!(auroc["interval95"]["low"].is_f64() && json["ood"][1]["tie_fraction"] == 0.0);
        let plain = serde_json::to_value(e.finish(Bootstrap::none()).unwrap()).unwrap();
        assert_eq!((&plain["accuracy"]["interval95"], &plain["classes"][2]["recall"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn blocks_give_the_same_as_all_rows_at_once() {
        let classes = names();
        let class: Vec<u32> = (0..90).map(|i| i * 7 % 3).collect();
        let confidence: Vec<f64> = (0..90).map(|i| f64::from(i % 13) - 1.0).collect();
        let labels: Vec<Option<&str>> = (0..90).map(|i| Some(["a", "b", "c"][i % 3])).collect();
        let mut whole = Evaluator::new(&classes, threshold());
        whole.add(&block(&class, &confidence), Some(&labels));
        let mut parts = Evaluator::new(&classes, threshold());
        for at in (0..90).step_by(17) {
            let to = (at + 17).min(90);
            parts.add(&block(&class[at..to], &confidence[at..to]), Some(&labels[at..to]));
        }
        let bootstrap = Bootstrap { replicates: 50, seed: 1 };
        assert_eq!(whole.finish(bootstrap).unwrap(), parts.finish(bootstrap).unwrap());
    }

    #[test]
    fn missing_labels_classes_and_rows() {
        let classes = names();
        let mut e = Evaluator::new(&classes, threshold());
        assert!(e.finish(Bootstrap::none()).unwrap_err().to_string().contains("there are no rows"));
        let mut other = Evaluator::new(&classes, threshold());
        other.add(&block(&[0], &[1.0]), Some(&[Some("neither")]));
        assert!(other.finish(Bootstrap::none()).unwrap_err().to_string().contains("no row has a class"));
        e.add::<&str>(&block(&[0, 1], &[2.0, 0.0]), None);
        let found = e.finish(Bootstrap::default()).unwrap();
        assert_eq!((found.accuracy, found.kept, found.classes.len()), (None, 0.5, 0));
        // Labels of some rows only.
        e.add(&block(&[0], &[1.0]), Some(&[Some("a")]));
        assert!(e.finish(Bootstrap::none()).unwrap_err().hint_text().unwrap().contains("`label`"));
        // A model that does not classify.
        let mut e = Evaluator::new(&classes, threshold());
        e.add(&block(&[], &[2.0, 0.0]), Some(&[Some("b"), Some("b")]));
        let found = e.finish(Bootstrap::none()).unwrap();
        assert_eq!((found.accuracy, found.classes[1].recall, found.classes[1].kept), (None, None, Some(0.5)));
        e.ood_set("empty");
        assert_eq!(e.finish(Bootstrap::none()).unwrap_err().to_string(), "empty has no rows");
    }
}
