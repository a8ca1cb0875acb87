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
mod explain;
mod file;
mod predict;
mod probe;
mod range_penalty;
mod score_scale;
mod scorer;
mod stored;

pub use crate::data::MIN_CLASS_ROWS;
pub use calibration::{Calibration, Threshold};
pub use explain::{Contribution, Explanation};
pub use predict::{PredictBuffers, Predictions};
pub use scorer::{Scorer, ScorerSettings};
pub use stored::Saved;

use self::class_scale::ClassScale;
use self::cross_fit::{AllRows, Folds, OutOfFold, Part};
use self::explain::Centers;
use self::probe::{Host, Probe};
use self::range_penalty::RangePenalty;
use self::score_scale::ScoreScale;

use std::path::Path;
use std::sync::Arc;

use crate::compute::pool::Pool;
use crate::data::profile::Profile;
use crate::data::{ImageSpec, Images, Notices, Schema, Table, count};
use crate::detector::On;
use crate::error::{Error, Result};
use crate::head::{Head, Loop};
use crate::net::{Graph, Network, NetworkBuffers, ParamSpec, Weights};
use crate::train::{self, Epoch, MemberRows, Run, Settings};

/// The largest number of parameters of a network: 1 GB, and training needs several times that.
const MAX_PARAMETERS: usize = 1 << 28;

/// Rejects networks that would not fit into memory, before anything is allocated.
fn check_size(graph: &Graph, head: &[ParamSpec]) -> Result<()> {
    let specs = graph.specs();
    let mut sizes = specs.iter().chain(head).map(|s| s.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let total = sizes.try_fold(0usize, |sum, n| sum.checked_add(n?));
    match total {
        Some(total) if total <= MAX_PARAMETERS => Ok(()),
        _ => Err(Error::setting(format!("the network would have more than {MAX_PARAMETERS} parameters"))
            .hint("lower `hidden` and `latent`, or give fewer columns")),
    }
}

/// The clipping limit of the inputs, unless the detector sees the inputs before they are clipped.
fn clip_limit(graph: &Graph, settings: &Settings) -> Option<f32> {
    graph.clip().filter(|_| settings.detector.on() != On::Inputs)
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
    /// The detector that gives the confidence; `None` if the head gives it.
    probe: Option<Probe>,
    /// Of its confidences on the rows it left out.
    scale: ScoreScale,
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

/// A classifier that can answer "unknown".
pub struct Model {
    schema: Schema,
    classes: Vec<String>,
    graph: Graph,
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
    /// Accuracy on the calibration rows, each predicted by the members that left it out.
    accuracy: Option<f64>,
    settings: Settings,
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

/// Whether the settings need labels.
///
/// # Errors
/// If they do, and there are none.
fn needs_labels(settings: &Settings, there: bool) -> Result<bool> {
    let labeled = settings.needs_labels();
    if labeled && !there {
        let who = if settings.head.classifies() { settings.head.name() } else { settings.detector.detector.name() };
        return Err(Error::data(format!("there are no labels, and {who} needs them"))
            .hint("give `label`, or a method and a detector that need no labels; see the list of methods"));
    }
    Ok(labeled)
}

/// The input of training.
struct FitInput<'a> {
    schema: Schema,
    notices: Notices,
    classes: Vec<String>,
    labeled: bool,
    graph: Graph,
    start: train::Start<'a>,
    rows: AllRows<'a>,
    /// A label for each row; 0 where labels are not used.
    y: Vec<u32>,
    folds: Folds,
}

impl Model {
    /// Trains on a table, on all cores and without a callback.
    ///
    /// # Errors
    /// If the data or the settings are invalid, or training diverges.
    pub fn fit(table: &Table, settings: &Settings) -> Result<Model> {
        Self::fit_with(table, settings, &Run::default()).map(|f| f.model)
    }

    /// Trains on a table, with a callback, checkpoints and a number of threads.
    ///
    /// # Errors
    /// As for [`Model::fit`], or if a checkpoint cannot be written or read.
    pub fn fit_with(table: &Table, settings: &Settings, run: &Run) -> Result<FitResult> {
        settings.check()?;
        if settings.image.is_some() {
            return Err(Error::setting("the settings are for images, and the data is a table"));
        }
        let labeled = needs_labels(settings, table.labels.is_some())?;
        if labeled {
            table.check_classes(run.min_class_rows)?;
        }
        let folds = Folds::of_table(table, settings)?;
        let profile = Profile::of(table);
        let (schema, preprocessing) = Schema::fit_without(table, &folds.preprocessing(), &profile.left_out())?;
        let notices = [profile.notices(), preprocessing, profile.warnings()].concat();
        let x = schema.transform(table, None)?;
        // Labels that are not used are 0.
        let label = |r: usize| table.label(r).filter(|_| labeled).unwrap_or(0);
        let input = FitInput {
            graph: train::graph(schema.width(), settings),
            start: None,
            classes: table.classes().to_vec(),
            labeled,
            rows: AllRows::Table { x: &x, width: schema.width() },
            y: (0..table.rows()).map(label).collect(),
            folds,
            schema,
            notices,
        };
        let mut fitted = Self::fit_input(input, settings, run)?;
        let model = &mut fitted.model;
        model.findings.extend(doctor::one_cell(&x, &model.schema.input_names()));
        model.findings.extend(profile.warnings());
        Ok(fitted)
    }

    /// Trains on images; the settings must be for images ([`Settings::for_images`]).
    ///
    /// # Errors
    /// As for [`Model::fit_with`].
    pub fn fit_images(images: &Images, settings: &Settings, run: &Run) -> Result<FitResult> {
        Self::fit_images_from(images, settings, None, run)
    }

    /// Like [`Model::fit_images`], starting from the weights in a file.
    ///
    /// # Errors
    /// As for [`Model::fit_with`], and if the weights cannot be read or do not match the network.
    pub fn fit_images_from(images: &Images, settings: &Settings, init: Option<&Path>, run: &Run) -> Result<FitResult> {
        settings.check()?;
        let labeled = needs_labels(settings, images.labels.is_some())?;
        if labeled {
            images.check_classes(run.min_class_rows)?;
        }
        let folds = Folds::of_images(images, settings)?;
        let spec = ImageSpec::fit(images, &folds.preprocessing())?;
        if let Some(augment) = settings.image.as_ref().and_then(|i| i.augment) {
            augment.check(spec.shape())?;
        }
        let label = |r: usize| images.label(r).filter(|_| labeled).unwrap_or(0);
        let graph = train::image_graph([spec.height, spec.width, spec.channels], settings)?;
        let weights = init.map(|path| Weights::read(path, &graph)).transpose()?;
        let mut settings = settings.clone();
        if let Some(image) = &mut settings.image {
            image.init = weights.as_ref().map(|w| w.sha256.clone());
            if image.frozen && image.init.is_none() {
                return Err(Error::setting("a frozen network would keep its random weights").hint("give `init` too"));
            }
        }
        let unused = weights.as_ref().map_or(&[][..], |w| &w.unused);
        let notices = match unused.len() {
            0 => Notices::new(),
            n => vec![format!("{} of the weights file not used: {}", count(n, "tensor"), unused.join(", "))],
        };
        let fitted = train::initial_weights(&graph, images, &folds.preprocessing(), &spec, settings.seed);
        let input = FitInput {
            graph,
            start: weights.as_ref().map(|w| &w.params).or(fitted.as_ref()),
            classes: images.classes().to_vec(),
            labeled,
            rows: AllRows::Images { images, spec: &spec },
            y: (0..images.rows()).map(label).collect(),
            folds,
            schema: Schema::of_images(spec.clone()),
            notices,
        };
        Self::fit_input(input, &settings, run)
    }

    /// Trains, calibrates and checks.
    fn fit_input(input: FitInput, settings: &Settings, run: &Run) -> Result<FitResult> {
        let FitInput { graph, start, classes, labeled, rows, y, folds, schema, mut notices } = input;
        let part = |of: fn(&Folds, usize) -> Vec<usize>| -> Vec<Part> {
            (0..folds.len()).map(|fold| Part::new(of(&folds, fold), &y)).collect()
        };
        let trained_on = part(Folds::trained_on);
        let left_out = part(|folds, fold| folds.left_out(fold).to_vec());
        let calibrating = part(Folds::calibration);
        let all = Part::new(folds.preprocessing(), &y);
        let member_rows: Vec<MemberRows> = (0..settings.members)
            .map(|member| folds.of_member(member))
            .map(|f| MemberRows { train: trained_on[f].examples(rows), validation: left_out[f].examples(rows) })
            .collect();
        let epochs = settings.epochs_for(trained_on.iter().map(|p| p.y.len()).max().unwrap_or(0));
        if epochs < settings.epochs {
            let (all, steps) = (settings.epochs, settings.steps.unwrap_or(0));
            notices.push(format!(
                "{} instead of {all}: a network is trained for at most {steps} steps; turn `steps` off to train longer",
                count(epochs, "epoch")
            ));
        }
        run.callback.notices(&notices);
        let n_classes = if settings.head.classifies() { classes.len() } else { 0 };
        check_size(&graph, &settings.head.specs(n_classes, graph.latent()?))?;
        let clip = clip_limit(&graph, settings);
        let trained = train::fit(&graph, settings, n_classes, &member_rows, start, run)?;
        let wanted = if settings.head.trained_by() == Loop::ClosedForm { 1 } else { settings.members };
        let interrupted = trained.iter().any(|m| m.interrupted) || trained.len() < wanted;
        let stopped = interrupted.then(|| {
            let done = trained.iter().map(|m| m.history.len()).min().unwrap_or(0);
            format!(
                "training was stopped after {done} of {}, with {} of {}: the weights are {}",
                count(epochs, "epoch"),
                trained.len(),
                count(settings.members, "member"),
                if settings.head.trained_by() == Loop::Adversarial { "the last ones" } else { "the best so far" }
            )
        });
        let pool = Pool::new(run.threads);
        let mut members = trained
            .into_iter()
            .map(|m| {
                let net = run.engine.network(&graph, &m.net)?;
                let (history, epoch, scale, fold) =
                    (m.history, m.epoch, ScoreScale::default(), folds.of_member(m.number));
                let mut member = ModelMember { net, head: m.head, history, epoch, fold, probe: None, scale };
                let (detect, seed) = (&settings.detector, settings.seed);
                let (part, classes) = (&trained_on[fold], classes.len());
                let fit =
                    probe::Fit { rows: part.examples(rows), labels: labeled.then_some(&part.y[..]), classes, seed };
                member.probe = Probe::fit(detect, member.host(), fit, &pool)?;
                Ok(member)
            })
            .collect::<Result<Vec<_>>>()?;
        // The mean of a pixel explains little.
        let centers = match rows {
            AllRows::Table { x, width } => {
                Some(Centers::fit(x, width, &all.rows, labeled.then_some(&all.y[..]), classes.len()))
            }
            AllRows::Images { .. } => None,
        };
        let range_penalty = rows.range_penalty(&all.rows, clip);
        let without = trained_on.iter().map(|part| rows.range_penalty(&part.rows, clip));
        let out: Vec<OutOfFold> = calibrating
            .iter()
            .zip(without)
            .map(|(part, range_penalty)| OutOfFold { rows: part.examples(rows), range_penalty })
            .collect();
        cross_fit::fit_scales(&mut members, &out, &pool)?;
        let predicted = cross_fit::predict(&members, &[], &out, &pool);
        let mut confidences: Vec<f64> = predicted.iter().flat_map(|p| p.confidence.iter().copied()).collect();
        let mut class_scales = Vec::new();
        if settings.per_class {
            let predicted: Vec<u32> = predicted.iter().flat_map(|p| p.class.iter().copied()).collect();
            if predicted.is_empty() {
                return Err(Error::setting("`per_class` needs predicted classes, and this method does not classify")
                    .hint("leave out `per_class`, or set `method` to one that classifies"));
            }
            class_scales = ClassScale::fit(&confidences, &predicted, classes.len());
            confidences.iter_mut().zip(&predicted).for_each(|(c, &k)| *c = class_scales[k as usize].map(*c));
        }
        let of_class = |(p, part): (&Predictions, &Part)| p.class.iter().zip(&part.y).filter(|(c, y)| c == y).count();
        let right: usize = predicted.iter().zip(&calibrating).map(of_class).sum();
        let classified: usize = predicted.iter().map(|p| p.class.len()).sum();
        let accuracy = (classified > 0).then(|| right as f64 / classified as f64);
        let calibrated = Calibration::new(confidences).map_err(|_| score_scale::not_finite())?;
        let of_true_class = |(p, part): (&Predictions, &Part)| -> Vec<f64> {
            (0..p.class.len()).map(|i| p.posterior(i)[part.y[i] as usize]).collect()
        };
        let probabilities: Vec<f64> = predicted.iter().zip(&calibrating).flat_map(of_true_class).collect();
        let class_calibration = match probabilities.is_empty() {
            true => None,
            false => Some(Calibration::new(probabilities).map_err(|_| score_scale::not_finite())?),
        };
        let latents: Vec<Vec<f32>> = members.iter().map(|m| out[m.fold].rows.latents(m.net.as_ref(), &pool)).collect();
        let labels: Vec<&[u32]> = members.iter().map(|m| &calibrating[m.fold].y[..]).collect();
        let all_labels: Vec<u32> = calibrating.iter().flat_map(|part| part.y.iter().copied()).collect();
        let named = if labeled { &classes[..] } else { &[] };
        let examined = doctor::Examined { members: &members, head: &settings.head, latents: &latents, labels: &labels };
        let mut findings = examined.findings(&calibrated, &all_labels, named, settings.tpr);
        let classes_predicted: Vec<u32> = predicted.iter().flat_map(|p| p.class.iter().copied()).collect();
        findings.extend(doctor::chance(&classes_predicted, &all_labels, named));
        findings.extend(stopped);
        let settings = Settings { members: members.len(), ..settings.clone() };
        let model = Model {
            schema,
            classes,
            graph,
            members,
            range_penalty,
            centers,
            calibration: calibrated,
            class_scales,
            class_calibration,
            accuracy,
            settings,
            rows: all.rows.len(),
            findings,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Ok(FitResult { model, notices, interrupted })
    }

    /// The columns and their preprocessing.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The class names of the training rows; [`Model::classifies`] tells whether they are predicted.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The layers of a network.
    pub fn graph(&self) -> &Graph {
        &self.graph
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

    /// The accuracy on the calibration rows, each predicted by the members that left it out, if the model classifies.
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
