//! A detector ready for use: what users call, with every input checked.

use std::borrow::Cow;

use super::{BLOCK, Detector, DetectorBuffers, DetectorConfig, FAR, FAR_LOGIT, Features, Needs, Store, Training};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Result};

/// Features at the most where memory grows with their square: 2 GB for such a matrix.
const MOST_SQUARED: usize = 16_384;

/// Whether a detector has a matrix of features by features.
fn squares(config: &DetectorConfig) -> bool {
    use DetectorConfig::{Fdbd, Gda, Gmm, Mahalanobis, MahalanobisEnsemble, MahalanobisNormalized, React, Rmd, Vim};
    matches!(
        config,
        Mahalanobis(_)
            | MahalanobisEnsemble(_)
            | MahalanobisNormalized(_)
            | Rmd(_)
            | Gda(_)
            | Gmm(_)
            | Vim(_)
            | React(_)
            | Fdbd(_)
    )
}

/// A detector that was fitted, with the shape of the rows that it takes.
pub struct Fitted {
    config: DetectorConfig,
    detector: Box<dyn Detector>,
    width: usize,
    classes: usize,
}

impl Fitted {
    /// Fits a detector on in-distribution rows.
    ///
    /// # Errors
    /// If the settings or the rows cannot be used.
    pub fn new(config: &DetectorConfig, training: &Training, pool: &Pool) -> Result<Fitted> {
        config.check()?;
        let about = config.about();
        let needs = about.needs;
        let rows = &training.rows;
        let lacks = |what: &str| {
            Error::setting(format!("{} needs {what}", about.name)).hint("mcdd methods lists what each detector needs")
        };
        if needs.head {
            return Err(lacks("the head of a trained model"));
        }
        if rows.count == 0 {
            return Err(Error::data("there are no rows to fit on"));
        }
        if needs.features && rows.width() == 0 {
            return Err(lacks("features"));
        }
        if needs.logits && rows.classes() == 0 {
            return Err(lacks("logits"));
        }
        if needs.labels && training.labels.is_none() {
            return Err(lacks("the labels of the training rows"));
        }
        if !rows.logits.is_empty() && rows.classes() < 2 {
            return Err(Error::data("the logits are of one class: there is nothing to compare")
                .hint("give the logits of two or more classes"));
        }
        let labels = training.labels.unwrap_or_default();
        if training.labels.is_some()
            && (labels.len() != rows.count || labels.iter().any(|&y| y as usize >= training.classes))
        {
            return Err(Error::data("there must be one label for each row, below the number of classes"));
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
        if squares(config) && rows.width() > MOST_SQUARED {
            return Err(Error::data(format!(
                "{} compares every feature with every other, and {} features are too many",
                about.name,
                rows.width()
            ))
            .hint(format!("it takes up to {MOST_SQUARED}; knn, lof and isolation-forest take any number")));
        }
        let checked = Checked::new(rows, rows.width(), rows.classes())?;
        let training = Training { rows: checked.rows(), ..*training };
        let detector = config.fit(&training, pool)?;
        Ok(Fitted::of(config, detector, rows.width(), rows.classes()))
    }

    /// Keeps of the shape only what the detector looks at.
    fn of(config: &DetectorConfig, detector: Box<dyn Detector>, width: usize, classes: usize) -> Fitted {
        let Needs { features, logits, .. } = config.about().needs;
        let (width, classes) = (if features { width } else { 0 }, if logits { classes } else { 0 });
        Fitted { config: config.clone(), detector, width, classes }
    }

    /// Its settings.
    pub fn config(&self) -> &DetectorConfig {
        &self.config
    }

    /// Features that each row must have; 0 if it looks at none.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Logits that each row must have; 0 if it looks at none.
    pub fn logit_classes(&self) -> usize {
        self.classes
    }

    /// The detector itself.
    pub fn detector(&self) -> &dyn Detector {
        self.detector.as_ref()
    }

    /// The confidence of each row, on all threads of `pool`.
    ///
    /// # Errors
    /// If the rows have another shape than in training, or hold something that is not finite.
    pub fn score(&self, rows: &Features, pool: &Pool) -> Result<Vec<f64>> {
        let mut out = vec![0.0; rows.count];
        self.blocks(rows, &mut out, 1, pool, |block, out, scratch| self.detector.score(block, out, scratch))?;
        Ok(out)
    }

    /// The logits of each row, `[count, classes]`, where the detector classifies.
    ///
    /// # Errors
    /// As for [`Fitted::score`].
    pub fn logits(&self, rows: &Features, pool: &Pool) -> Result<Option<Vec<f64>>> {
        let classes = self.detector.classes();
        if classes == 0 {
            return Ok(None);
        }
        let mut out = vec![0.0; rows.count * classes];
        self.blocks(rows, &mut out, classes, pool, |block, out, scratch| self.detector.logits(block, out, scratch))?;
        Ok(Some(out))
    }

    fn blocks(
        &self,
        rows: &Features,
        out: &mut [f64],
        each: usize,
        pool: &Pool,
        work: impl Fn(&Features, &mut [f64], &mut DetectorBuffers) + Sync,
    ) -> Result<()> {
        let checked = Checked::new(rows, self.width, self.classes)?;
        let all = checked.rows();
        pool.split(chunks(out, BLOCK * each), |i, out| {
            let (from, count) = (i * BLOCK, out.len() / each);
            let block = Features {
                count,
                features: &all.features[from * self.width..(from + count) * self.width],
                logits: &all.logits[from * self.classes..(from + count) * self.classes],
            };
            work(&block, out, &mut DetectorBuffers::default());
        });
        Ok(())
    }

    /// Stores it.
    pub fn save(&self, store: &mut Store) {
        store.put_f64("shape", &[2], &[self.width as f64, self.classes as f64]);
        self.detector.save(store);
    }

    /// Takes it back.
    ///
    /// # Errors
    /// If something is missing or makes no sense.
    pub fn load(config: &DetectorConfig, store: &mut Store) -> Result<Fitted> {
        config.check()?;
        let shape = store.take_f64("shape", &[2])?;
        if shape.iter().any(|&v| v < 0.0 || v > f64::from(u32::MAX) || v.fract() != 0.0) {
            return Err(store.wrong("its shape is no shape"));
        }
        let (width, classes) = (shape[0] as usize, shape[1] as usize);
        let needs = config.about().needs;
        if (needs.features && width == 0) || (needs.logits && classes < 2) {
            return Err(store.wrong("there is nothing that it looks at"));
        }
        store.expect(width, classes);
        let detector = config.load(store)?;
        Ok(Fitted::of(config, detector, width, classes))
    }
}

/// Features that were found finite and of the right shape, with far-away features brought in.
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
            return Err(Error::data(format!("each row must have {width} features")));
        }
        if logits.len() != rows.count * classes {
            return Err(Error::data(format!("each row must have the logits of {classes} classes")));
        }
        if let Some(i) = features.iter().position(|v| !v.is_finite()) {
            return Err(Error::data("a feature is not a finite number").at_row((i / width + 1) as u64));
        }
        if let Some(i) = logits.iter().position(|v| !v.is_finite()) {
            return Err(Error::data("a logit is not a finite number").at_row((i / classes + 1) as u64));
        }
        let features = if features.iter().any(|v| v.abs() > FAR) {
            features.iter().map(|v| v.clamp(-FAR, FAR)).collect()
        } else {
            Cow::Borrowed(features)
        };
        let logits = if logits.iter().any(|v| v.abs() > FAR_LOGIT) {
            logits.iter().map(|v| v.clamp(-FAR_LOGIT, FAR_LOGIT)).collect()
        } else {
            Cow::Borrowed(logits)
        };
        Ok(Checked { count: rows.count, features, logits })
    }

    fn rows(&self) -> Features<'_> {
        Features { count: self.count, features: &self.features, logits: &self.logits }
    }
}

/// Brings features within ±[`FAR`]; what a network has made of far-away input may even have overflowed.
pub fn tame(features: &mut [f32]) {
    for v in features {
        *v = if v.is_nan() { FAR } else { v.clamp(-FAR, FAR) };
    }
}
