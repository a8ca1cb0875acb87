//! Predictions.

use std::cell::RefCell;

use super::class_scale::ClassScale;
use super::embedding::Embedding;
use super::probe::{Buffers, Outputs};
use super::range_penalty::RangePenalty;
use super::score_scale::ScoreScale;
use super::{Model, ModelMember, Share, sharpness};
use crate::compute::argmax;
use crate::compute::pool::{Pool, chunks};
use crate::data::{ImageShape, ImageSpec, Images, Table};
use crate::error::{Error, Result};
use crate::head::posterior;
use crate::net::NetworkBuffers;
use crate::train::{Examples, ImageRows, LabeledRows};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Rows of a task: of many rows, more are near each other, and their neighbors are found faster.
const BLOCK: usize = 4096;
/// Rows of a task if there are few for each thread: enough to use the weights of a member again while they are in the cache.
const FEWEST: usize = 768;
/// The largest number of values of a task: images are large.
const BLOCK_NUMBERS: usize = 1 << 21;

/// The predictions for some rows. It can be passed to the next call to reuse its memory.
///
/// It serializes to the fields below, with `posterior` and `distance` as one list for each row; fields that the model
/// does not have are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    /// The number of classes.
    pub classes: usize,
    /// The most probable class of each row; empty if the model does not classify.
    pub class: Vec<u32>,
    /// Eq. 7 of the paper, or the score of a detector: higher is more in-distribution. With several members, or if inputs
    /// are clipped, it is standardized by the calibration rows and averaged over the members.
    pub confidence: Vec<f64>,
    /// See [`Calibration::p_value`](super::Calibration::p_value).
    pub p_value: Vec<f64>,
    /// The probability of each class, row by row (Eq. 6); empty if the model does not classify.
    pub posterior: Vec<f64>,
    /// The distance to each class, row by row (Eq. 4); empty if the method has none.
    pub distance: Vec<f64>,
}

impl Predictions {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.confidence.len()
    }

    /// The class probabilities of row `i`.
    pub fn posterior(&self, i: usize) -> &[f64] {
        &self.posterior[i * self.classes..(i + 1) * self.classes]
    }

    /// The distances of row `i`, if the method has them.
    pub fn distance(&self, i: usize) -> Option<&[f64]> {
        self.distance.get(i * self.classes..(i + 1) * self.classes)
    }

    /// Appends the predictions of other rows.
    pub fn append(&mut self, mut other: Predictions) {
        self.classes = self.classes.max(other.classes);
        self.class.append(&mut other.class);
        self.confidence.append(&mut other.confidence);
        self.p_value.append(&mut other.p_value);
        self.posterior.append(&mut other.posterior);
        self.distance.append(&mut other.distance);
    }

    pub(super) fn sized(&mut self, rows: usize, classes: usize, distances: bool) {
        self.classes = classes;
        self.class.resize(if classes > 0 { rows } else { 0 }, 0);
        self.confidence.resize(rows, 0.0);
        self.p_value.resize(rows, 0.0);
        self.posterior.resize(rows * classes, 0.0);
        self.distance.resize(if distances { rows * classes } else { 0 }, 0.0);
    }
}

impl Serialize for Predictions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows =
            |values: &[f64]| -> Vec<Vec<f64>> { values.chunks(self.classes.max(1)).map(<[f64]>::to_vec).collect() };
        let mut out = serializer.serialize_struct("Predictions", 5)?;
        if self.class.is_empty() {
            out.skip_field("class")?;
        } else {
            out.serialize_field("class", &self.class)?;
        }
        out.serialize_field("confidence", &self.confidence)?;
        out.serialize_field("p_value", &self.p_value)?;
        for (name, values) in [("posterior", &self.posterior), ("distance", &self.distance)] {
            if values.is_empty() {
                out.skip_field(name)?;
            } else {
                out.serialize_field(name, &rows(values))?;
            }
        }
        out.end()
    }
}

/// Buffers of a thread that predicts; to be reused.
#[derive(Clone, Debug, Default)]
pub struct PredictBuffers {
    net: NetworkBuffers,
    confidence: Vec<f64>,
    logits: Vec<f64>,
    distances: Vec<f64>,
    probe: Buffers,
}

thread_local! {
    /// The buffers of this thread, so that the system need not give the same memory again and again: that took half of the time.
    static BUFFERS: RefCell<PredictBuffers> = RefCell::default();
}

/// The part of the output that one task writes.
struct Part<'a> {
    class: &'a mut [u32],
    confidence: &'a mut [f64],
    posterior: &'a mut [f64],
    distance: &'a mut [f64],
}

/// A fold whose rows are predicted by the members that left it out.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    pub index: usize,
    /// The number of its rows, from which the members' score scales were computed.
    pub rows: usize,
}

/// The members that predict together.
#[derive(Clone, Copy)]
pub(super) struct Ensemble<'a> {
    pub members: &'a [ModelMember],
    /// Only the members that left out this fold.
    pub fold: Option<Fold>,
    /// For each predicted class the map of its confidences; empty without calibration by class.
    pub class_scales: &'a [ClassScale],
    /// The exponent of the probabilities.
    pub sharpness: f64,
    pub range_penalty: Option<&'a RangePenalty>,
    /// What comes before the members, if the rows are those of the schema.
    pub embedding: Option<&'a Embedding>,
}

/// The mean of the members' predictions for some rows.
fn score(ensemble: Ensemble, x: &[f32], classes: usize, out: Part, s: &mut PredictBuffers) {
    let Ensemble { members, fold, class_scales, sharpness, range_penalty, embedding } = ensemble;
    let embedded = embedding.map(|e| e.inputs(x));
    let x = embedded.as_deref().unwrap_or(x);
    // With several folds, each row is standardized by the other rows of its fold, as a new row is by all of them. With one fold,
    // calibration rows and new rows have the same scale, and their order is all that counts.
    let one_of = fold.filter(|fold| members.iter().any(|m| m.fold != fold.index)).map(|fold| fold.rows);
    let standardize = |scale: &ScoreScale, score| match one_of {
        Some(rows) => scale.standardize_one_of(score, rows),
        None => scale.standardize(score),
    };
    let members = members.iter().filter(|m| fold.is_none_or(|fold| m.fold == fold.index));
    let rows = out.confidence.len();
    out.confidence.fill(0.0);
    out.posterior.fill(0.0);
    out.distance.fill(0.0);
    for member in members.clone() {
        let share = Share::of(member, members.clone());
        let (z, hidden) = member.net.latents_and_hidden(x, &mut s.net);
        s.logits.resize(rows * classes, 0.0);
        let probed = member.probe.as_ref();
        if let Some(probe) = probed {
            s.confidence.resize(rows, 0.0);
            let of = Outputs { x, z, hidden };
            probe.score(member.host(), of, &mut s.confidence, &mut s.logits, &mut s.probe);
            out.confidence
                .iter_mut()
                .zip(&s.confidence)
                .for_each(|(o, &c)| *o += share.confidence * standardize(&member.scale, c));
        }
        // The head gives the confidence if there is no detector, and the classes if the detector does not classify.
        let classifies = classes > 0 && share.posterior > 0.0;
        let wanted = classifies || probed.is_none() || !(out.distance.is_empty() || member.role.for_class);
        if wanted && probed.is_none_or(|p| p.classes() == 0) {
            let head_classes = member.head.classes();
            s.distances.resize(head_classes, 0.0);
            for (i, z) in z.chunks_exact(z.len() / rows).enumerate() {
                let own =
                    member.head.score(z, &mut s.logits[i * head_classes..(i + 1) * head_classes], &mut s.distances);
                if member.role.for_class {
                    continue;
                }
                if probed.is_none() {
                    out.confidence[i] += share.confidence * standardize(&member.scale, own);
                }
                if let Some(distance) = out.distance.get_mut(i * classes..(i + 1) * classes) {
                    distance.iter_mut().zip(&s.distances).for_each(|(d, &v)| *d += share.confidence * v);
                }
            }
        }
        if classifies {
            for (logits, out) in s.logits.chunks_exact_mut(classes).zip(out.posterior.chunks_exact_mut(classes)) {
                posterior(logits);
                out.iter_mut().zip(logits).for_each(|(o, p)| *o += share.posterior * *p);
            }
        }
    }
    if let Some(range) = range_penalty {
        let rows = x.chunks_exact(range.limits().len());
        out.confidence.iter_mut().zip(rows).for_each(|(c, row)| *c -= range.penalty(row));
    }
    // If the network overflows, the row is unknown.
    out.confidence.iter_mut().filter(|c| !c.is_finite()).for_each(|c| *c = f64::MIN);
    if classes > 0 {
        for (class, p) in out.class.iter_mut().zip(out.posterior.chunks_exact_mut(classes)) {
            *class = argmax(p) as u32;
            sharpness::apply(sharpness, p);
        }
        for (c, &class) in out.confidence.iter_mut().zip(out.class.iter()) {
            *c = class_scales.get(class as usize).map_or(*c, |scale| scale.map(*c));
        }
    }
}

/// The predictions of members that are not calibrated yet: without p-values.
pub(super) fn scores(ensemble: Ensemble, rows: Examples, pool: &Pool) -> Predictions {
    let mut out = Predictions::default();
    out.sized(rows.len(), ensemble.members.first().map_or(0, ModelMember::classes), false);
    if !rows.is_empty() {
        blocks(ensemble, rows, &mut out, pool);
    }
    out
}

/// Scores all rows, block by block.
fn blocks(ensemble: Ensemble, rows: Examples, out: &mut Predictions, pool: &Pool) {
    let k = out.classes;
    let of_a_thread = rows.len().div_ceil(pool.threads().max(1));
    let most = if ensemble.embedding.is_some() { Embedding::BLOCK } else { of_a_thread.clamp(FEWEST, BLOCK) };
    let block = most.min(BLOCK_NUMBERS / rows.width().max(1)).max(1);
    let parts = (
        (chunks(&mut out.class, block), chunks(&mut out.confidence, block)),
        (chunks(&mut out.posterior, block * k), chunks(&mut out.distance, block * k)),
    );
    // Those of networks for images are too large.
    let keeps = matches!(rows, Examples::Rows(_)) && ensemble.embedding.is_none();
    pool.split(parts, |i, ((class, confidence), (posterior, distance))| {
        let mut buffer = Vec::new();
        let x = rows.x(i * block..i * block + confidence.len(), &mut buffer);
        let mut buffers = if keeps { BUFFERS.take() } else { PredictBuffers::default() };
        score(ensemble, x, k, Part { class, confidence, posterior, distance }, &mut buffers);
        if keeps {
            BUFFERS.set(buffers);
        }
    });
}

impl Model {
    /// Predicts preprocessed rows (see [`Schema::transform`](crate::data::Schema::transform) and
    /// [`Reader`](crate::data::Reader)) with the threads of `pool`. The prediction of a row is independent of the other
    /// rows in the batch.
    ///
    /// # Errors
    /// If `x` is not a whole number of rows, or a value is not finite.
    pub fn predict_rows(&self, x: &[f32], out: &mut Predictions, pool: &Pool) -> Result<()> {
        self.predict_part(x, self.has_distances(), out, pool)
    }

    /// As [`Model::predict_rows`]; without `distances` those are left out, which takes less time.
    pub(crate) fn predict_part(&self, x: &[f32], distances: bool, out: &mut Predictions, pool: &Pool) -> Result<()> {
        let width = self.schema().width();
        if !x.len().is_multiple_of(width) || x.iter().any(|v| !v.is_finite()) {
            return Err(Error::data(format!("the input must be finite numbers, {width} for each row")));
        }
        out.sized(x.len() / width, self.n_classes(), distances && self.has_distances());
        let y = vec![0; x.len() / width];
        blocks(self.ensemble(), Examples::Rows(LabeledRows { x, y: &y }), out, pool);
        self.p_values(out);
        Ok(())
    }

    /// Predicts preprocessed rows, or images that are preprocessed here, with the threads of `pool`.
    ///
    /// # Errors
    /// If their width is not that of the network's input.
    pub fn predict_examples(&self, rows: Examples, pool: &Pool) -> Result<Predictions> {
        let mut out = Predictions::default();
        if rows.is_empty() {
            return Ok(out);
        }
        if rows.width() != self.schema().width() {
            return Err(Error::data(format!("the input must be {} numbers for each row", self.schema().width())));
        }
        out.sized(rows.len(), self.n_classes(), self.has_distances());
        blocks(self.ensemble(), rows, &mut out, pool);
        self.p_values(&mut out);
        Ok(out)
    }

    /// Predicts one preprocessed row on the calling thread. It does not allocate memory if the head gives the confidence.
    ///
    /// # Errors
    /// As for [`Model::predict_rows`].
    pub fn predict_one(&self, x: &[f32], out: &mut Predictions, scratch: &mut PredictBuffers) -> Result<()> {
        let (width, k) = (self.schema().width(), self.n_classes());
        if x.len() != width || x.iter().any(|v| !v.is_finite()) {
            return Err(Error::data(format!("the input must be {width} finite numbers")));
        }
        out.sized(1, k, self.has_distances());
        let Predictions { class, confidence, posterior, distance, .. } = out;
        score(self.ensemble(), x, k, Part { class, confidence, posterior, distance }, scratch);
        self.p_values(out);
        Ok(())
    }

    pub(super) fn ensemble(&self) -> Ensemble<'_> {
        let (members, class_scales) = (&self.members, &self.class_scales);
        let (range_penalty, embedding) = (self.range_penalty.as_ref(), self.embedding.as_deref());
        Ensemble { members, fold: None, class_scales, sharpness: self.sharpness, range_penalty, embedding }
    }

    /// The number of classes that are predicted.
    pub(super) fn n_classes(&self) -> usize {
        self.members.first().map_or(0, ModelMember::classes)
    }

    pub(super) fn p_values(&self, out: &mut Predictions) {
        for (p, &c) in out.p_value.iter_mut().zip(&out.confidence) {
            *p = self.calibration.p_value(c);
        }
    }

    /// Predicts the rows of a table with [`Pool::shared`]. Its columns are matched as in training.
    ///
    /// # Errors
    /// If a column is missing or has another type than in training.
    pub fn predict(&self, table: &Table) -> Result<Predictions> {
        let x = self.schema().transform(table, None)?;
        let mut out = Predictions::default();
        self.predict_rows(&x, &mut out, Pool::shared())?;
        Ok(out)
    }

    /// Predicts rows of numbers in row-major order, which are only read: a value for each of
    /// [`Schema::columns`](crate::data::Schema::columns), in their order, with NaN for a missing cell.
    ///
    /// # Errors
    /// If the number of values does not fit, a value is infinite, or a column of times or categories cannot have the value.
    pub fn predict_matrix<T: Copy + Into<f64> + Sync>(&self, x: &[T], pool: &Pool) -> Result<Predictions> {
        /// Rows that are encoded at a time, so that their inputs need little memory.
        const ROWS: usize = 1 << 16;
        let columns = self.schema().columns.len().max(1);
        let (mut all, mut part) = (Predictions::default(), Predictions::default());
        for (block, x) in x.chunks(ROWS * columns).enumerate() {
            let inputs = self.schema().encode_rows(x, pool).map_err(|error| error.after_rows((block * ROWS) as u64))?;
            self.predict_rows(&inputs, &mut part, pool)?;
            all.append(std::mem::take(&mut part));
        }
        Ok(all)
    }

    /// Predicts images with [`Pool::shared`].
    ///
    /// # Errors
    /// If the model was not trained on images, or on images of another shape.
    pub fn predict_images(&self, images: &Images) -> Result<Predictions> {
        let spec = self.image_spec(images)?;
        let (rows, y): (Vec<usize>, Vec<u32>) = ((0..images.rows()).collect(), vec![0; images.rows()]);
        self.predict_examples(Examples::Images(ImageRows { images, rows: &rows, spec, y: &y }), Pool::shared())
    }

    /// How images become inputs.
    ///
    /// # Errors
    /// If the model was not trained on images, or on images of another shape.
    pub(crate) fn image_spec(&self, images: &Images) -> Result<&ImageSpec> {
        let spec = self.schema().image.as_ref().ok_or_else(|| {
            Error::data("the model was trained on a table, not on images").hint("give rows of a table")
        })?;
        let ImageShape { height, width, channels } = spec.shape();
        if [images.height, images.width, images.channels] != [height, width, channels] {
            let found = format!("{}x{}x{}", images.height, images.width, images.channels);
            return Err(Error::data(format!(
                "the images are {found}, and the model needs {height}x{width}x{channels}"
            ))
            .hint("resize the images"));
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::detector::Detect;
    use crate::head::HeadConfig;
    use crate::model::{Saved, Scorer};
    use crate::train::{Preset, Settings};

    /// Models and scorers are shared between threads.
    #[test]
    fn models_and_scorers_are_send_and_sync() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Model>();
        check::<Scorer>();
        check::<Saved>();
    }

    #[test]
    fn many_threads_predict_the_same_bits_as_one() {
        let table = digits();
        let detector = Detect::parse("odin").unwrap();
        let head = HeadConfig::parse("softmax").unwrap();
        let settings = Settings { epochs: 2, members: 2, head, detector, latent: 16, ..Preset::Paper.settings() };
        let model = Model::fit(&table, &settings).unwrap();
        let expected = model.predict(&table).unwrap();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let (model, table, expected, start) = (&model, &table, &expected, &start);
                scope.spawn(move || {
                    let rows: Vec<usize> = (0..table.rows()).skip(caller % 2 * 3).step_by(1 + caller).collect();
                    let part = table.select(&rows);
                    start.wait();
                    for _ in 0..3 {
                        let found = model.predict(&part).unwrap();
                        assert!(rows.iter().zip(&found.confidence).all(|(&r, c)| *c == expected.confidence[r]));
                        assert!(rows.iter().zip(&found.class).all(|(&r, c)| *c == expected.class[r]));
                        assert_eq!(found.posterior(1), expected.posterior(rows[1]));
                    }
                });
            }
        });
    }

    #[test]
    fn predictions_serialize_by_rows() {
        let p = Predictions {
            classes: 2,
            class: vec![1, 0],
            confidence: vec![0.5, -1.0],
            p_value: vec![0.25, 1.0],
            posterior: vec![0.25, 0.75, 1.0, 0.0],
            distance: vec![],
        };
        let expected = serde_json::json!({
            "class": [1, 0], "confidence": [0.5, -1.0], "p_value": [0.25, 1.0], "posterior": [[0.25, 0.75], [1.0, 0.0]],
        });
        assert_eq!(serde_json::to_value(&p).unwrap(), expected);
        let none = Predictions { confidence: vec![1.0], p_value: vec![0.5], ..Predictions::default() };
        assert_eq!(serde_json::to_value(&none).unwrap(), serde_json::json!({ "confidence": [1.0], "p_value": [0.5] }));
    }
}
