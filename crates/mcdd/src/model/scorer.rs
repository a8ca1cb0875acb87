//! A fitted detector with its calibration, for features from any network.

use serde::{Deserialize, Serialize};

use super::{Calibration, Predictions, Threshold};
use crate::compute::argmax;
use crate::compute::pool::Pool;
use crate::container::{Container, Values};
use crate::data::split::Groups;
use crate::detector::{DetectorConfig, Features, Fitted, StateDict, Training};
use crate::error::{Error, Result, count};
use crate::head::posterior;
use crate::seed::Stream;

/// The settings of a [`Scorer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScorerSettings {
    /// The detector.
    pub detector: DetectorConfig,
    /// The fraction of the rows used for calibration, between 0 and 1. Default: 0.1.
    pub calibration_fraction: f64,
    /// The fraction of in-distribution rows that the threshold keeps, between 0 and 1. Default: 0.95.
    pub tpr: f64,
    /// The seed of all random numbers. Default: 0.
    pub seed: u64,
}

impl ScorerSettings {
    /// The defaults for a detector.
    pub fn new(detector: DetectorConfig) -> ScorerSettings {
        ScorerSettings { detector, calibration_fraction: 0.1, tpr: 0.95, seed: 0 }
    }

    fn check(&self) -> Result<()> {
        self.detector.check()?;
        for (name, value) in [("calibration_fraction", self.calibration_fraction), ("tpr", self.tpr)] {
            if !(value > 0.0 && value < 1.0) {
                return Err(Error::setting(format!("`{name}` is {value}"))
                    .hint(format!("give `{name}` as a fraction between 0 and 1")));
            }
        }
        Ok(())
    }
}

/// A fitted detector with p-values and a threshold, for features from any network.
///
/// ```
/// use mcdd::compute::pool::Pool;
/// use mcdd::detector::{DetectorConfig, Features, Training};
/// use mcdd::model::{Predictions, Scorer, ScorerSettings};
///
/// let features: Vec<f32> = (0..400).map(|i| (i as f32 * 0.7).sin()).collect();
/// let rows = Features { count: 200, features: &features, logits: &[] };
/// let settings = ScorerSettings::new(DetectorConfig::parse("knn")?);
/// let scorer = Scorer::fit(&Training { rows, ..Training::default() }, &[], &settings, Pool::shared())?;
///
/// let mut out = Predictions::default();
/// scorer.predict(&Features { count: 1, features: &[9.0, -9.0], logits: &[] }, &mut out, Pool::shared())?;
/// assert!(!scorer.threshold()?.known(out.confidence[0]));
/// # Ok::<(), mcdd::Error>(())
/// ```
pub struct Scorer {
    fitted: Fitted,
    calibration: Calibration,
    settings: ScorerSettings,
    classes: Vec<String>,
    parts: Vec<usize>,
    rows: usize,
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: String,
    settings: ScorerSettings,
    classes: Vec<String>,
    parts: Vec<usize>,
    rows: usize,
    calibration_rows: usize,
}

impl Scorer {
    /// Fits on most of the rows and calibrates on the others. `classes` are the names of the labels or logits and may
    /// be empty. The seed is that of `settings`; `training.seed` is ignored.
    ///
    /// # Errors
    /// If the settings or the rows cannot be used.
    pub fn fit(training: &Training, classes: &[String], settings: &ScorerSettings, pool: &Pool) -> Result<Scorer> {
        settings.check()?;
        if !classes.is_empty() && classes.len() != training.classes {
            return Err(Error::data(format!(
                "{} for {}",
                count(classes.len(), "class name"),
                count(training.classes, "class")
            )));
        }
        let all = &training.rows;
        let by = training.labels.filter(|_| settings.detector.about().needs.labels);
        let (train, calibration) = split(&equal_rows(all), by, settings);
        if calibration.is_empty() || train.is_empty() {
            return Err(Error::data(format!("there are too few rows to take calibration rows from: {}", all.count))
                .hint("give more rows, or raise `calibration_fraction`"));
        }
        let (train_rows, calibration_rows) = (Selected::new(all, &train), Selected::new(all, &calibration));
        let labels: Option<Vec<u32>> =
            training.labels.map(|y| train.iter().filter_map(|&i| y.get(i).copied()).collect());
        let part = Training { rows: train_rows.rows(), labels: labels.as_deref(), seed: settings.seed, ..*training };
        let fitted = Fitted::new(&settings.detector, &part, pool)?;
        let calibration = Calibration::new(fitted.score(&calibration_rows.rows(), pool)?)?;
        Ok(Scorer {
            fitted,
            calibration,
            settings: settings.clone(),
            classes: classes.to_vec(),
            parts: training.parts.to_vec(),
            rows: train.len(),
            version: env!("CARGO_PKG_VERSION").into(),
        })
    }

    /// Predicts the confidence and the p-value of each row, and its class if the detector classifies.
    ///
    /// # Errors
    /// If the rows do not have the shape of the training rows, or a value is not finite.
    pub fn predict(&self, rows: &Features, out: &mut Predictions, pool: &Pool) -> Result<()> {
        let classes = if self.classifies() { self.classes.len() } else { 0 };
        out.sized(rows.count, classes, false);
        out.confidence.copy_from_slice(&self.fitted.score(rows, pool)?);
        if classes > 0 {
            // A detector that does not classify has the class of the highest logit.
            out.posterior = self.fitted.logits(rows, pool)?.unwrap_or_else(|| rows.logits.to_vec());
            for (p, class) in out.posterior.chunks_exact_mut(classes).zip(&mut out.class) {
                *class = argmax(p) as u32;
                posterior(p);
            }
        }
        for (p, &c) in out.p_value.iter_mut().zip(&out.confidence) {
            *p = self.calibration.p_value(c);
        }
        Ok(())
    }

    /// Whether it predicts classes: the detector classifies or uses logits, and the classes have names.
    pub fn classifies(&self) -> bool {
        let classes = [self.fitted.detector().classes(), self.fitted.logit_classes()];
        classes.iter().any(|&n| n > 0) && !self.classes.is_empty()
    }

    /// The detector.
    pub fn detector(&self) -> &Fitted {
        &self.fitted
    }

    /// The confidences of the calibration rows.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// The settings it was fitted with.
    pub fn settings(&self) -> &ScorerSettings {
        &self.settings
    }

    /// The names of the classes; may be empty.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The widths of the layers that the features come from; empty for a single layer.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// The number of rows it was fitted on, without the calibration rows.
    pub fn training_rows(&self) -> usize {
        self.rows
    }

    /// The version of mcdd that fitted it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The threshold for [`ScorerSettings::tpr`].
    ///
    /// # Errors
    /// Never for a scorer that was fitted or loaded.
    pub fn threshold(&self) -> Result<Threshold> {
        self.calibration.threshold(self.settings.tpr)
    }

    /// The threshold that keeps a fraction `tpr` of in-distribution rows; by default that of the settings.
    ///
    /// # Errors
    /// If `tpr` is not between 0 and 1.
    pub fn threshold_at(&self, tpr: Option<f64>) -> Result<Threshold> {
        self.calibration.threshold(tpr.unwrap_or(self.settings.tpr))
    }

    pub(super) const FORMAT: &str = "mcdd detector 1";

    pub(super) fn container(&self) -> Result<Container> {
        let scores = self.calibration.scores();
        let text = Text {
            version: self.version.clone(),
            settings: self.settings.clone(),
            classes: self.classes.clone(),
            parts: self.parts.clone(),
            rows: self.rows,
            calibration_rows: scores.len(),
        };
        let text = serde_json::to_string(&text).map_err(|e| Error::format(e.to_string()))?;
        let mut container = Container { text, ..Default::default() };
        self.fitted.save(&mut StateDict::new(&mut container, "detector."));
        container.put("calibration.confidence", &[scores.len()], Values::F64(scores.to_vec()));
        Ok(container)
    }

    pub(super) fn from_container(mut c: Container, _beside: super::embedding::Beside) -> Result<Scorer> {
        let invalid = |what: &str| Error::format(format!("the detector file is invalid: {what}"));
        let text: Text = serde_json::from_str(&c.text).map_err(|e| invalid(&e.to_string()))?;
        text.settings.check()?;
        let fitted = Fitted::load(&text.settings.detector, &mut StateDict::new(&mut c, "detector."))?;
        let classes = [fitted.detector().classes(), fitted.logit_classes()];
        let distinct: std::collections::HashSet<&String> = text.classes.iter().collect();
        if distinct.len() < text.classes.len() {
            return Err(invalid("two classes have the same name"));
        }
        if !text.classes.is_empty() && classes.iter().any(|&n| n > 0 && n != text.classes.len()) {
            return Err(invalid("the number of classes is not that of their names"));
        }
        let width = text.parts.iter().try_fold(0usize, |sum, &p| sum.checked_add(p));
        if !text.parts.is_empty() && fitted.width() > 0 && width != Some(fitted.width()) {
            return Err(invalid("the widths of the layers do not add up"));
        }
        let scores = c.take_f64("calibration.confidence", &[text.calibration_rows])?;
        if let Some(name) = c.tensors.keys().next() {
            return Err(invalid(&format!("tensor {name} is not used")));
        }
        Ok(Scorer {
            fitted,
            calibration: Calibration::new(scores)?,
            settings: text.settings,
            classes: text.classes,
            parts: text.parts,
            rows: text.rows,
            version: text.version,
        })
    }
}

/// Rows with equal features and logits belong together.
fn equal_rows(all: &Features) -> Groups {
    let features = |i| all.feature_row(i).iter().map(|&v| f64::from(v));
    Groups::of_numbers((0..all.count).map(|i| features(i).chain(all.logit_row(i).iter().copied())))
}

/// Training rows and calibration rows, stratified by class if there are labels. The first row of each class is always a
/// training row, and rows of a group stay together.
fn split(groups: &Groups, labels: Option<&[u32]>, settings: &ScorerSettings) -> (Vec<usize>, Vec<usize>) {
    // Labels that do not match the rows are reported by the fit.
    let of = |i: usize| labels.and_then(|y| y.get(i)).copied().unwrap_or(0);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    Stream::new(settings.seed, "scorer/split").shuffle(&mut order);
    order.sort_by_key(|&i| of(i));
    let (mut train, mut calibration) = (Vec::new(), Vec::new());
    let (mut due, mut last) = (0.0, None);
    let mut done = vec![false; groups.len()];
    for &i in &order {
        if done[i] {
            continue;
        }
        let group = groups.with(i);
        group.iter().for_each(|&row| done[row] = true);
        let size = group.len() as f64;
        due += settings.calibration_fraction * size;
        if due >= (size + 1.0) / 2.0 && last == Some(of(i)) {
            calibration.extend_from_slice(group);
            due -= size;
        } else {
            train.extend_from_slice(group);
        }
        last = Some(of(i));
    }
    train.sort_unstable();
    calibration.sort_unstable();
    (train, calibration)
}

/// A copy of selected rows.
struct Selected {
    count: usize,
    features: Vec<f32>,
    logits: Vec<f64>,
}

impl Selected {
    fn new(all: &Features, rows: &[usize]) -> Selected {
        Selected {
            count: rows.len(),
            features: rows.iter().flat_map(|&i| all.feature_row(i)).copied().collect(),
            logits: rows.iter().flat_map(|&i| all.logit_row(i)).copied().collect(),
        }
    }

    fn rows(&self) -> Features<'_> {
        Features { count: self.count, features: &self.features, logits: &self.logits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(seed: u64, shift: f32) -> Vec<f32> {
        let mut s = Stream::new(seed, "scorer");
        (0..300 * 3).map(|_| s.normal() as f32 + shift).collect()
    }

    #[test]
    fn p_values_come_from_calibration_rows_and_files_give_the_same_bits() {
        let x = rows(1, 0.0);
        let labels: Vec<u32> = (0..300).map(|i| u32::from(x[i * 3] > 0.0)).collect();
        let names = ["low", "high"].map(String::from);
        let training = Training {
            rows: Features { count: 300, features: &x, logits: &[] },
            labels: Some(&labels),
            classes: 2,
            ..Training::default()
        };
        let pool = Pool::new(1);
        let settings = ScorerSettings::new(DetectorConfig::parse("mahalanobis").unwrap());
        let scorer = Scorer::fit(&training, &names, &settings, &pool).unwrap();
        assert_eq!(scorer.training_rows() + scorer.calibration().scores().len(), 300);
        let (mut known, mut far) = (Predictions::default(), Predictions::default());
        let fresh = rows(2, 0.0);
        scorer.predict(&Features { count: 300, features: &fresh, logits: &[] }, &mut known, &pool).unwrap();
        scorer.predict(&Features { count: 300, features: &rows(3, 30.0), logits: &[] }, &mut far, &pool).unwrap();
        let small = |p: &Predictions| p.p_value.iter().filter(|&&p| p <= 0.1).count();
        assert!(small(&far) == 300 && small(&known) < 90, "{} {}", small(&far), small(&known));
        let right = (0..300).filter(|&i| known.class[i] == u32::from(fresh[i * 3] > 0.0)).count();
        assert!(right > 250, "{right}");

        let bytes = scorer.to_bytes().unwrap();
        let loaded = Scorer::from_bytes(&bytes).unwrap();
        assert_eq!(loaded.to_bytes().unwrap(), bytes);
        let mut again = Predictions::default();
        loaded.predict(&Features { count: 300, features: &fresh, logits: &[] }, &mut again, &pool).unwrap();
        assert_eq!(again, known);
        for n in (0..bytes.len()).step_by(7) {
            assert!(Scorer::from_bytes(&bytes[..n]).is_err());
        }
        assert!(super::super::Model::from_bytes(&bytes).is_err());
    }

    #[test]
    fn invalid_rows_and_settings_are_errors() {
        let pool = Pool::new(1);
        let one = Training { rows: Features { count: 1, features: &[1.0], logits: &[] }, ..Training::default() };
        let knn = ScorerSettings::new(DetectorConfig::parse("knn").unwrap());
        assert!(Scorer::fit(&one, &[], &knn, &pool).is_err());
        let x = rows(1, 0.0);
        let training = Training { rows: Features { count: 300, features: &x, logits: &[] }, ..Training::default() };
        assert!(
            Scorer::fit(&training, &[], &ScorerSettings { calibration_fraction: 0.0, ..knn.clone() }, &pool).is_err()
        );
        assert!(Scorer::fit(&training, &["a".into()], &knn, &pool).is_err());
        let labels = [0, 1];
        assert!(Scorer::fit(&Training { labels: Some(&labels), classes: 2, ..training }, &[], &knn, &pool).is_err());
        assert!(Scorer::fit(&training, &[], &knn, &pool).is_ok());
    }

    #[test]
    fn many_small_classes_give_calibration_rows() {
        let labels: Vec<u32> = (0..600).map(|i| i / 3).collect();
        let settings = ScorerSettings::new(DetectorConfig::parse("knn").unwrap());
        let (train, calibration) =
            split(&Groups::of_numbers((0..600).map(|i| [f64::from(i)].into_iter())), Some(&labels), &settings);
        assert_eq!(train.len() + calibration.len(), 600);
        assert!((58..=60).contains(&calibration.len()), "{}", calibration.len());
        assert!((0..200).all(|k| train.iter().any(|&i| labels[i] == k)));
    }
}
