//! Trained models: fit, predict, calibrate, explain, save and load.
//!
//! A [`Model`] is an ensemble of networks with their preprocessing and calibration. It predicts a class, a confidence and
//! a p-value for each row; a [`Threshold`] turns the confidence into "known" or "unknown". A [`Scorer`] does the same for
//! features from another network. One file stores either of them; [`Saved::load`] opens both kinds.
//!
//! Models and scorers do not change after they are made. Any number of threads may predict with the same one at the same
//! time, and a prediction does not depend on the other rows, on the number of threads, or on other callers.
//!
//! ```
//! use mcdd::{data::digits, model::Model, train::{Preset, Settings}};
//!
//! let (known, unknown) = digits().leave_out("7")?;
//! let model = Model::fit(&known, &Settings::builder().preset(Preset::Fast).epochs(20).build()?)?;
//! let predictions = model.predict(&unknown)?;
//! let threshold = model.threshold()?; // keeps 95% of in-distribution rows
//! let rejected = predictions.confidence.iter().filter(|&&c| !threshold.known(c)).count();
//! assert!(rejected > unknown.rows() / 2);
//!
//! let same = Model::from_bytes(&model.to_bytes()?)?;
//! assert_eq!(same.predict(&unknown)?, predictions);
//! # Ok::<(), mcdd::Error>(())
//! ```

mod calibration;
mod class_scale;
mod cross_fit;
mod doctor;
mod embedding;
mod explain;
mod file;
mod fit;
mod occlusion;
mod predict;
mod probe;
mod range_penalty;
mod refit;
mod rows;
mod score_scale;
mod scorer;
mod sharpness;
mod stored;
mod to_onnx;

pub use crate::data::MIN_CLASS_ROWS;
pub use calibration::{Calibration, Threshold};
pub use explain::{Contribution, Explanation};
pub use occlusion::{Area, Occlusion};
pub use predict::{PredictBuffers, Predictions};
pub use refit::Refit;
pub use scorer::{Scorer, ScorerSettings};
pub use stored::Saved;
pub use to_onnx::OnnxOptions;

use self::class_scale::ClassScale;
use self::embedding::Embedding;
use self::explain::Centers;
use self::probe::{Host, Probe};
use self::range_penalty::RangePenalty;
use self::score_scale::ScoreScale;

use std::sync::Arc;

use crate::backbone::BackboneSpec;
use crate::data::{ImageSpec, Notices, Schema};
use crate::detector::On;
use crate::error::Result;
use crate::head::Head;
use crate::net::{Engine, Graph, Network, NetworkBuffers, Params, with_flips};
use crate::train::{Epoch, Graphs, Role, Settings};

/// The clipping limit of the inputs, unless the detector sees the inputs before they are clipped.
fn clip_limit(graph: &Graph, settings: &Settings) -> Option<f32> {
    graph.clip().filter(|_| settings.detector.on() != On::Inputs)
}

/// A network as the settings say: with test-time flips or without.
fn network(
    engine: &dyn Engine,
    graph: &Graph,
    params: &Params,
    image: Option<&ImageSpec>,
    settings: &Settings,
) -> Result<Arc<dyn Network>> {
    let net = engine.network(graph, params)?;
    Ok(match image.filter(|_| settings.image.as_ref().is_some_and(|i| i.test_flips)) {
        Some(spec) => with_flips(net, [spec.height, spec.width, spec.channels]),
        None => net,
    })
}

/// One network with its head.
struct ModelMember {
    net: Arc<dyn Network>,
    head: Box<dyn Head>,
    history: Vec<Epoch>,
    /// The epoch whose weights are used, counted from 0.
    epoch: Option<usize>,
    /// The fold of the training rows that it left out.
    fold: usize,
    role: Role,
    /// The detector that gives the confidence; `None` if the head gives it, or the member is for the class.
    probe: Option<Probe>,
    /// Of its confidences on the rows it left out.
    scale: ScoreScale,
}

/// What a member counts in the means over all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    confidence: f64,
    posterior: f64,
}

impl ModelMember {
    fn host(&self) -> Host<'_> {
        Host { net: self.net.as_ref(), head: self.head.as_ref() }
    }

    /// The number of classes it predicts: those of the detector, or else those of the head.
    fn classes(&self) -> usize {
        self.probe.as_ref().map(Probe::classes).filter(|&k| k > 0).unwrap_or(self.head.classes())
    }
}

impl Share {
    /// One member's of all. Where there are members for the class, it comes from these, unless a detector classifies. The weight
    /// of the one with bins was chosen by test rows of some tables: `docs/default.md`.
    fn of<'a>(member: &ModelMember, all: impl Iterator<Item = &'a ModelMember> + Clone) -> Share {
        let by_detector = all.clone().any(|m| m.probe.as_ref().is_some_and(|p| p.classes() > 0));
        let by_some = !by_detector && all.clone().any(|m| m.role.for_class);
        let weight = |m: &ModelMember| Share {
            confidence: if m.role.for_class { 0.0 } else { 1.0 },
            posterior: match m.role.for_class == by_some {
                true if m.role.binned => 1.5,
                true => 1.0,
                false => 0.0,
            },
        };
        let (mut sum, own) = (Share::default(), weight(member));
        for other in all.map(weight) {
            sum.confidence += other.confidence;
            sum.posterior += other.posterior;
        }
        let part = |own: f64, sum: f64| if own == 0.0 { 0.0 } else { own / sum };
        Share { confidence: part(own.confidence, sum.confidence), posterior: part(own.posterior, sum.posterior) }
    }
}

/// A classifier that can answer "unknown".
pub struct Model {
    schema: Schema,
    /// The frozen network that comes before the members, if there is one.
    embedding: Option<Arc<Embedding>>,
    classes: Vec<String>,
    graphs: Graphs,
    members: Vec<ModelMember>,
    /// If the network clips its inputs.
    range_penalty: Option<RangePenalty>,
    /// Class means of the inputs, for explanations.
    centers: Option<Centers>,
    calibration: Calibration,
    /// For each class the map of its confidences; empty without calibration by class.
    class_scales: Vec<ClassScale>,
    /// The probabilities of the true classes of the calibration rows, if it classifies.
    class_calibration: Option<Calibration>,
    /// The exponent of the probabilities.
    sharpness: f64,
    /// Accuracy on the calibration rows, each predicted by the members that left it out.
    accuracy: Option<f64>,
    settings: Settings,
    /// A hash of the rows that it was trained on, and of which of them each member left out.
    sha256: String,
    /// Number of training rows.
    rows: usize,
    findings: Vec<String>,
    version: String,
}

/// The result of training.
pub struct FitResult {
    /// The model.
    pub model: Model,
    /// Notices about the data: what was left out, and what is worth a look.
    pub notices: Notices,
    /// Whether the callback stopped training early.
    pub interrupted: bool,
}

impl Model {
    /// The columns and their preprocessing.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The class names of the training rows; [`Model::classifies`] tells whether they are predicted.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The frozen network whose features the members see, if there is one.
    pub fn backbone(&self) -> Option<&BackboneSpec> {
        self.embedding.as_ref().map(|e| e.net.spec())
    }

    /// The layers of a network without bins; all have the same inputs and the same number of latent features.
    pub fn graph(&self) -> &Graph {
        &self.graphs.plain
    }

    /// The layers of the networks with bins, and their number, if there are any.
    pub fn binned(&self) -> Option<(&Graph, usize)> {
        let count = self.members.iter().filter(|m| m.role.binned).count();
        self.graphs.binned.as_ref().filter(|_| count > 0).map(|graph| (graph, count))
    }

    /// The confidences of the calibration rows.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Which classes are plausible for each row: a set of classes that contains the true one for a fraction `coverage` of
    /// in-distribution rows (conformal prediction with the probability of the class as the score). `None` if the model does
    /// not classify.
    ///
    /// # Errors
    /// If `coverage` is not between 0 and 1.
    pub fn plausible_classes(&self, predictions: &Predictions, coverage: f64) -> Result<Option<Vec<bool>>> {
        let Some(calibration) = &self.class_calibration else { return Ok(None) };
        let threshold = calibration.threshold(coverage)?;
        Ok(Some(predictions.posterior.iter().map(|&p| threshold.known(p)).collect()))
    }

    /// The accuracy on the calibration rows, each predicted by the members that left it out, if the model classifies. Where the
    /// class comes from some members only, it is that of the rows which these left out.
    pub fn validation_accuracy(&self) -> Option<f64> {
        self.accuracy
    }

    /// The settings it was trained with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of rows that were trained on; with several members, each of them left out other rows.
    pub fn training_rows(&self) -> usize {
        self.rows
    }

    /// Warnings about the model, found after training.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The version of mcdd that trained it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The number of networks.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The epochs of a member, and the index of the epoch whose weights are used.
    pub fn history(&self, member: usize) -> Option<(&[Epoch], Option<usize>)> {
        self.members.get(member).map(|m| (&m.history[..], m.epoch))
    }

    /// The head of a member.
    pub fn head(&self, member: usize) -> Option<&dyn Head> {
        self.members.get(member).map(|m| m.head.as_ref())
    }

    /// The latent vectors of preprocessed rows, from the network of one member.
    pub fn latents(&self, member: usize, x: &[f32]) -> Option<Vec<f32>> {
        let mut scratch = NetworkBuffers::default();
        let embedded = self.embedding.as_ref().map(|e| e.inputs(x));
        let x = embedded.as_deref().unwrap_or(x);
        self.members.get(member).map(|m| m.net.latents(x, &mut scratch).to_vec())
    }

    /// Whether it predicts classes, besides confidences and p-values.
    pub fn classifies(&self) -> bool {
        self.members.iter().all(|m| m.classes() > 0)
    }

    /// Whether predictions have distances to the classes: if the head has them, and not the detector classifies.
    pub fn has_distances(&self) -> bool {
        self.members.iter().all(|m| m.head.has_distances() && m.probe.as_ref().is_none_or(|p| p.classes() == 0))
    }

    /// The threshold for [`Settings::tpr`].
    ///
    /// # Errors
    /// Never for a model that was trained or loaded.
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
}

#[cfg(test)]
mod tests;
