//! Files of features and logits from another network.

use std::path::{Path, PathBuf};

use super::blocks::BLOCK_ROWS;
use crate::compute::pool::Pool;
use crate::data::{Kept, KeptField, Label, Labels, MatrixReader, Notices, PassThrough, ReadOptions, labels};
use crate::detector::{Features, Training};
use crate::error::{Error, Result};
use crate::model::{Scorer, ScorerSettings};

/// The files that a [`Scorer`] is fitted on.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainingFiles<'a> {
    /// Features; one file for each layer, all with the same rows.
    pub features: &'a [PathBuf],
    /// Labels, one for each row. Without them, a label column of the first file of features is used.
    pub labels: Option<&'a Path>,
    /// Logits.
    pub logits: Option<&'a Path>,
}

/// Fits a scorer on files of features, labels and logits. Classes are in the order of their sorted names; with logits and
/// without labels their names are the numbers of the logits from 0.
///
/// # Errors
/// If a file cannot be read or does not match the others, if the detector needs what is not given, or as for
/// [`Scorer::fit`].
pub fn fit_scorer(
    files: &TrainingFiles,
    options: &ReadOptions,
    settings: &ScorerSettings,
    pool: &Pool,
) -> Result<Scorer> {
    let (needs, name) = (settings.detector.about().needs, settings.detector.name());
    if needs.head {
        return Err(Error::setting(format!("{name} needs the head of a trained model"))
            .hint("choose another detector; gda is the most similar one for features from another network"));
    }
    if needs.features && files.features.is_empty() {
        return Err(Error::setting(format!("{name} needs features")).hint("give `train_features`"));
    }
    if needs.logits && files.logits.is_none() {
        return Err(Error::setting(format!("{name} needs logits")).hint("give `train_logits`"));
    }
    let layers: Vec<Matrix<f32>> =
        files.features.iter().map(|p| Matrix::read(p, options, narrow)).collect::<Result<_>>()?;
    let features = side_by_side(&layers, files.features)?;
    let parts: Vec<usize> = layers.iter().map(|m| m.width).collect();
    let width: usize = parts.iter().sum();
    let logits = files.logits.map(|p| Matrix::read(p, &unlabeled(options), |v| v)).transpose()?;
    let logit_rows = logits.as_ref().map_or(0, Matrix::rows);
    let count = features.len().checked_div(width).unwrap_or(logit_rows);
    if let Some(path) = files.logits.filter(|_| logit_rows != count) {
        return Err(wrong_count(&format!("{} of logits", crate::error::count(logit_rows, "row")), count, path));
    }
    let labels = match files.labels {
        Some(path) => {
            let labels = labels(path)?;
            if labels.len() != count {
                return Err(wrong_count(&crate::error::count(labels.len(), "label"), count, path));
            }
            labels
        }
        None => layers.into_iter().next().map(|m| m.labels).unwrap_or_default(),
    };
    if needs.labels && labels.is_empty() {
        return Err(
            Error::setting(format!("{name} needs the classes of the training rows")).hint("give `train_labels`")
        );
    }
    let Labels { mut names, codes } = Labels::of(&labels);
    let classes = logits.as_ref().map_or(0, |l| l.width);
    if classes > 0 && !labels.is_empty() && names.len() != classes {
        return Err(Error::data(format!(
            "the labels have {} and the logits {classes}",
            crate::error::count(names.len(), "class")
        ))
        .hint("every class must be among the labels; the logits are in the sorted order of the labels"));
    }
    let training = Training {
        rows: Features { count, features: &features, logits: logits.as_ref().map_or(&[], |l| &l.values) },
        labels: (!labels.is_empty()).then_some(&codes[..]),
        classes: if names.is_empty() { classes } else { names.len() },
        parts: if parts.len() > 1 { &parts } else { &[] },
        last_layer: None,
        seed: settings.seed,
    };
    if names.is_empty() {
        // Logits without labels: the number of a logit, from 0, is the name of its class.
        names = (0..classes).map(|class| class.to_string()).collect();
    }
    Scorer::fit(&training, &names, settings, pool)
}

/// A whole file in memory.
struct Matrix<T> {
    values: Vec<T>,
    width: usize,
    labels: Vec<String>,
}

impl<T> Matrix<T> {
    fn read(path: &Path, options: &ReadOptions, narrow: impl Fn(f64) -> T) -> Result<Matrix<T>> {
        let mut reader = MatrixReader::open(path, options)?;
        let width = reader.width();
        let (values, labels) = reader.all(narrow)?;
        Ok(Matrix { values, width, labels })
    }

    fn rows(&self) -> usize {
        self.values.len() / self.width
    }
}

/// A number as a feature, clamped to the range of 32-bit numbers.
fn narrow(v: f64) -> f32 {
    v.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// Options for a file without labels.
fn unlabeled(options: &ReadOptions) -> ReadOptions {
    ReadOptions { label: Label::None, ..options.clone() }
}

/// The features of all layers in one row.
fn side_by_side(layers: &[Matrix<f32>], paths: &[PathBuf]) -> Result<Vec<f32>> {
    let count = layers.first().map_or(0, Matrix::rows);
    if let Some((other, path)) = layers.iter().zip(paths).find(|(m, _)| m.rows() != count) {
        return Err(Error::data(format!(
            "{}, and {count} in the first file",
            crate::error::count(other.rows(), "row")
        ))
        .at_file(path)
        .hint("every layer needs the same rows in the same order"));
    }
    let mut all = Vec::with_capacity(layers.iter().map(|m| m.values.len()).sum());
    for i in 0..count {
        layers.iter().for_each(|m| all.extend_from_slice(&m.values[i * m.width..(i + 1) * m.width]));
    }
    Ok(all)
}

fn wrong_count(found: &str, rows: usize, path: &Path) -> Error {
    Error::data(format!("{found} for {}", crate::error::count(rows, "row")))
        .at_file(path)
        .hint("give one for each row, in the same order")
}

/// Open files of rows to score.
pub struct FeatureFiles {
    /// One for each layer.
    features: Vec<MatrixReader>,
    logits: Option<MatrixReader>,
}

impl FeatureFiles {
    /// Opens files of features, one for each layer, and of logits.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn open(features: &[PathBuf], logits: Option<&Path>, options: &ReadOptions) -> Result<FeatureFiles> {
        // Columns are passed through from the first file.
        let others = ReadOptions { pass_through: PassThrough::None, ..options.clone() };
        let of = |i: usize| if i == 0 { options } else { &others };
        Ok(FeatureFiles {
            features: features.iter().enumerate().map(|(i, p)| MatrixReader::open(p, of(i))).collect::<Result<_>>()?,
            logits: logits.map(|p| MatrixReader::open(p, &unlabeled(of(features.len())))).transpose()?,
        })
    }

    /// The columns that are passed through to the output.
    pub(super) fn kept(&self) -> Vec<KeptField> {
        self.features.iter().chain(&self.logits).next().map(MatrixReader::kept).unwrap_or_default()
    }

    /// Checks that they match what a scorer was fitted on.
    pub(super) fn check(&mut self, scorer: &Scorer) -> Result<()> {
        let fitted = scorer.detector();
        let name = fitted.config().name();
        let layers = if fitted.width() == 0 { 0 } else { scorer.parts().len().max(1) };
        if self.features.len() != layers {
            let (what, hint) = match layers {
                0 => (format!("{name} uses logits only"), "leave the features out, and give `logits`"),
                1 => (format!("{name} was fitted on one file of features"), "give one file of features"),
                n => (
                    format!("{name} was fitted on {n} files of features"),
                    "give one for each layer, in the same order",
                ),
            };
            return Err(Error::setting(what).hint(hint));
        }
        match (&self.logits, fitted.logit_classes()) {
            (None, 1..) => return Err(Error::setting(format!("{name} needs logits")).hint("give `logits`")),
            (Some(_), 0) => {
                return Err(Error::setting(format!("{name} does not use logits")).hint("leave `logits` out"));
            }
            _ => {}
        }
        let widths = (0..layers).map(|i| scorer.parts().get(i).copied().unwrap_or(fitted.width()));
        let expected = self.features.iter_mut().zip(widths).map(|(r, w)| (r, w, "feature"));
        let logits = self.logits.iter_mut().map(|r| (r, fitted.logit_classes(), "logit"));
        for (reader, width, what) in expected.chain(logits) {
            reader.expect_width(width);
            if reader.width() != width {
                let found = crate::error::count(reader.width(), what);
                return Err(Error::data(format!("{found} in a row, and {width} in the training rows"))
                    .at_file(reader.path())
                    .hint("give the output of the same network; `label` names a column that is not a feature"));
            }
        }
        Ok(())
    }

    /// The next rows of all files; `None` at the end.
    pub(super) fn next_block(&mut self) -> Result<Option<FeatureBlock>> {
        let mut block = FeatureBlock::default();
        let (mut parts, mut ignored, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for reader in &mut self.features {
            let mut values = Vec::new();
            counts.push((reader.next(BLOCK_ROWS, &mut values, &mut ignored)?, reader.path().to_owned()));
            parts.push((values, reader.width()));
        }
        if let Some(reader) = &mut self.logits {
            counts.push((reader.next(BLOCK_ROWS, &mut block.logits, &mut ignored)?, reader.path().to_owned()));
        }
        if let Some(first) = self.features.iter_mut().chain(&mut self.logits).next() {
            block.kept = first.take_kept();
        }
        block.count = counts.first().map_or(0, |c| c.0);
        if let Some((found, path)) = counts.iter().find(|c| c.0 != block.count) {
            let few = if *found < block.count { "fewer" } else { "more" };
            return Err(Error::data(format!("there are {few} rows than in the first file"))
                .at_file(path)
                .hint("give the same rows in the same order"));
        }
        for i in 0..block.count {
            for (values, width) in &parts {
                block.features.extend(values[i * width..(i + 1) * width].iter().map(|&v| narrow(v)));
            }
        }
        Ok((block.count > 0).then_some(block))
    }

    /// What the user should know about the rows read so far.
    pub(super) fn notices(&self) -> Notices {
        self.features.iter().chain(&self.logits).flat_map(MatrixReader::notices).collect()
    }
}

/// Some rows of all files.
#[derive(Default)]
pub(super) struct FeatureBlock {
    count: usize,
    features: Vec<f32>,
    logits: Vec<f64>,
    /// The columns that are passed through.
    pub(super) kept: Vec<Kept>,
}

impl FeatureBlock {
    pub(super) fn rows(&self) -> Features<'_> {
        Features { count: self.count, features: &self.features, logits: &self.logits }
    }
}
