//! A fitted detector with checked inputs: what users call.

use std::borrow::Cow;

use super::{
    About, BLOCK, Detector, DetectorBuffers, DetectorConfig, Features, FitDetector, MAX_FEATURE, MAX_LOGIT, Needs,
    StateDict, Training,
};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Result, count};

/// A fitted detector with its settings and the shape of the rows that it takes.
///
/// `C` are the settings: one of the detectors of this crate unless given, or your own [`FitDetector`].
pub struct Fitted<C = DetectorConfig> {
    config: C,
    detector: Box<dyn Detector>,
    width: usize,
    classes: usize,
}

impl<C: FitDetector> Fitted<C> {
    /// Fits a detector on in-distribution rows.
    ///
    /// # Errors
    /// If the settings or the rows cannot be used.
    pub fn new(config: &C, training: &Training, pool: &Pool) -> Result<Fitted<C>> {
        config.check()?;
        let rows = &training.rows;
        check_training(&config.about(), training)?;
        let max_width = config.max_width();
        if rows.width() > max_width {
            return Err(Error::data(format!(
                "{} takes up to {max_width} features, and there are {}",
                config.about().name,
                rows.width()
            ))
            .hint("knn, lof and isolation-forest take any number of features"));
        }
        let checked = Checked::new(rows, rows.width(), rows.classes())?;
        let training = Training { rows: checked.rows(), ..*training };
        let detector = config.fit(&training, pool)?;
        Ok(Fitted::with_shape(config, detector, rows.width(), rows.classes()))
    }

    /// Keeps the part of the shape that the detector uses.
    fn with_shape(config: &C, detector: Box<dyn Detector>, width: usize, classes: usize) -> Fitted<C> {
        let Needs { features, logits, .. } = config.about().needs;
        let (width, classes) = (if features { width } else { 0 }, if logits { classes } else { 0 });
        Fitted { config: config.clone(), detector, width, classes }
    }

    /// The settings.
    pub fn config(&self) -> &C {
        &self.config
    }

    /// The number of features that each row must have; 0 if the detector uses none.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of logits that each row must have; 0 if the detector uses none.
    pub fn logit_classes(&self) -> usize {
        self.classes
    }

    /// The detector itself, which does not check its inputs.
    pub fn detector(&self) -> &dyn Detector {
        self.detector.as_ref()
    }

    /// The confidence of each row, computed on all threads of `pool`.
    ///
    /// # Errors
    /// If the rows have another shape than in training, or contain a number that is not finite.
    pub fn score(&self, rows: &Features, pool: &Pool) -> Result<Vec<f64>> {
        let mut out = vec![0.0; rows.count];
        let detector = self.detector();
        self.for_blocks(rows, &mut out, 1, pool, |block, out, scratch| detector.score(block, out, scratch))?;
        Ok(out)
    }

    /// The logits of each row, `[count, classes]`; `None` if the detector does not classify.
    ///
    /// # Errors
    /// As for [`Fitted::score`].
    pub fn logits(&self, rows: &Features, pool: &Pool) -> Result<Option<Vec<f64>>> {
        let classes = self.detector.classes();
        if classes == 0 {
            return Ok(None);
        }
        let mut out = vec![0.0; rows.count * classes];
        let detector = self.detector();
        self.for_blocks(rows, &mut out, classes, pool, |block, out, scratch| detector.logits(block, out, scratch))?;
        Ok(Some(out))
    }

    /// Calls `work` for blocks of rows, on all threads; `out` has `each` numbers per row.
    fn for_blocks(
        &self,
        rows: &Features,
        out: &mut [f64],
        each: usize,
        pool: &Pool,
        work: impl Fn(&Features, &mut [f64], &mut DetectorBuffers) + Sync,
    ) -> Result<()> {
        let (width, classes) = (self.width, self.classes);
        let checked = Checked::new(rows, width, classes)?;
        let all = checked.rows();
        pool.split(chunks(out, BLOCK * each), |i, out| {
            let (from, count) = (i * BLOCK, out.len() / each);
            let block = Features {
                count,
                features: &all.features[from * width..(from + count) * width],
                logits: &all.logits[from * classes..(from + count) * classes],
            };
            work(&block, out, &mut DetectorBuffers::default());
        });
        Ok(())
    }

    /// Stores the detector, without its settings.
    pub fn save(&self, state: &mut StateDict) {
        state.put_f64("shape", &[2], &[self.width as f64, self.classes as f64]);
        self.detector.save(state);
    }

    /// Loads a detector with these settings.
    ///
    /// # Errors
    /// If a tensor is missing or invalid.
    pub fn load(config: &C, state: &mut StateDict) -> Result<Fitted<C>> {
        config.check()?;
        let shape = state.take_f64("shape", &[2])?;
        if shape.iter().any(|&v| v < 0.0 || v > f64::from(u32::MAX) || v.fract() != 0.0) {
            return Err(state.invalid("invalid shape"));
        }
        let (width, classes) = (shape[0] as usize, shape[1] as usize);
        let needs = config.about().needs;
        if (needs.features && width == 0) || (needs.logits && classes < 2) {
            return Err(state.invalid("it has no inputs"));
        }
        state.set_shape(width, classes);
        let detector = config.load(state)?;
        Ok(Fitted::with_shape(config, detector, width, classes))
    }
}

/// Checks that everything a detector needs is present and that the shapes agree.
fn check_training(about: &About, training: &Training) -> Result<()> {
    let (needs, rows) = (about.needs, &training.rows);
    let missing = |what: &str| {
        Err(Error::setting(format!("{} needs {what}", about.name))
            .hint("see the list of methods for what each detector needs"))
    };
    if needs.head {
        return missing("the head of a trained model");
    }
    if rows.count == 0 {
        return Err(Error::data("there are no rows to fit on"));
    }
    if needs.features && rows.width() == 0 {
        return missing("features");
    }
    if needs.logits && rows.classes() == 0 {
        return missing("logits");
    }
    if needs.labels && training.labels.is_none() {
        return missing("the labels of the training rows");
    }
    if !rows.logits.is_empty() && rows.classes() < 2 {
        return Err(Error::data("there are logits of one class only").hint("give the logits of two or more classes"));
    }
    let labels = training.labels.unwrap_or_default();
    if training.labels.is_some()
        && (labels.len() != rows.count || labels.iter().any(|&y| y as usize >= training.classes))
    {
        return Err(Error::data("there must be one label per row, below the number of classes"));
    }
    if !rows.logits.is_empty() && rows.classes() != training.classes {
        return Err(Error::data(format!(
            "there are logits of {} classes and labels of {}",
            rows.classes(),
            training.classes
        )));
    }
    if !training.parts.is_empty() && training.parts.iter().sum::<usize>() != rows.width() {
        return Err(Error::data("the widths of the layers do not add up to the width of the features"));
    }
    Ok(())
}

/// Rows whose shape and values were checked, with features and logits clamped.
struct Checked<'a> {
    count: usize,
    features: Cow<'a, [f32]>,
    logits: Cow<'a, [f64]>,
}

impl<'a> Checked<'a> {
    fn new(rows: &Features<'a>, width: usize, classes: usize) -> Result<Checked<'a>> {
        let features = if width == 0 { &[] } else { rows.features };
        let logits = if classes == 0 { &[] } else { rows.logits };
        if features.len() != rows.count * width {
            return Err(Error::data(format!("each row must have {}", count(width, "feature"))));
        }
        if logits.len() != rows.count * classes {
            return Err(Error::data(format!("each row must have the logits of {}", count(classes, "class"))));
        }
        if let Some(i) = features.iter().position(|v| !v.is_finite()) {
            return Err(Error::data("a feature is not a finite number").at_row((i / width + 1) as u64));
        }
        if let Some(i) = logits.iter().position(|v| !v.is_finite()) {
            return Err(Error::data("a logit is not a finite number").at_row((i / classes + 1) as u64));
        }
        let features = if features.iter().any(|v| v.abs() > MAX_FEATURE) {
            features.iter().map(|v| v.clamp(-MAX_FEATURE, MAX_FEATURE)).collect()
        } else {
            Cow::Borrowed(features)
        };
        let logits = if logits.iter().any(|v| v.abs() > MAX_LOGIT) {
            logits.iter().map(|v| v.clamp(-MAX_LOGIT, MAX_LOGIT)).collect()
        } else {
            Cow::Borrowed(logits)
        };
        Ok(Checked { count: rows.count, features, logits })
    }

    fn rows(&self) -> Features<'_> {
        Features { count: self.count, features: &self.features, logits: &self.logits }
    }
}

/// Clamps features to ±[`MAX_FEATURE`]. NaN, which a network returns where it overflows, becomes [`MAX_FEATURE`].
pub(crate) fn clamp_features(features: &mut [f32]) {
    for v in features {
        *v = if v.is_nan() { MAX_FEATURE } else { v.clamp(-MAX_FEATURE, MAX_FEATURE) };
    }
}

/// Clamps logits to ±[`MAX_LOGIT`]. NaN becomes 0.
pub(crate) fn clamp_logits(logits: &mut [f64]) {
    for v in logits {
        *v = if v.is_nan() { 0.0 } else { v.clamp(-MAX_LOGIT, MAX_LOGIT) };
    }
}
