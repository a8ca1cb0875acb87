//! The artifact: what training makes, one file keeps, and prediction uses.

mod calibration;
mod doctor;
mod explain;
mod file;
mod predict;
mod probe;
mod range_penalty;
mod score_scale;
mod scorer;

pub use calibration::{Calibration, Threshold};
pub use explain::{Contribution, Explanation};
pub use predict::{PredictBuffers, Predictions};
pub use scorer::{Scorer, ScorerSettings};

use self::explain::Centers;
use self::predict::Ensemble;
use self::probe::{Host, Probe};
use self::range_penalty::RangePenalty;
use self::score_scale::ScoreScale;

use std::path::Path;
use std::sync::Arc;

use crate::compute::pool::Pool;
use crate::container::Container;
use crate::data::{ImageSpec, Images, Notices, Schema, Table, count};
use crate::detector::On;
use crate::error::{Error, Kind, Result};
use crate::head::{Head, Loop};
use crate::net::{Graph, Network, NetworkBuffers, ParamSpec, Weights};
use crate::train::{self, Epoch, Examples, ImageRows, LabeledRows, Run, Settings};

/// Parameters of a network at the most: 1 GB, and training needs several times that.
const MOST_PARAMETERS: usize = 1 << 28;

/// Refuses networks that would not fit into memory, before anything is allocated.
fn check_size(graph: &Graph, head: &[ParamSpec]) -> Result<()> {
    let specs = graph.specs();
    let mut sizes = specs.iter().chain(head).map(|s| s.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let total = sizes.try_fold(0usize, |sum, n| sum.checked_add(n?));
    match total {
        Some(total) if total <= MOST_PARAMETERS => Ok(()),
        _ => Err(Error::setting(format!("the network would have more than {MOST_PARAMETERS} parameters"))
            .hint("give smaller --hidden and --latent, or fewer columns")),
    }
}

/// Where the inputs are clipped for everything that the confidence comes from.
fn unseen(graph: &Graph, settings: &Settings) -> Option<f32> {
    graph.clip().filter(|_| settings.detector.on() != On::Inputs)
}

/// Rows that each class needs: some to learn from, and a chance of one to calibrate with.
pub const MIN_CLASS_ROWS: usize = 5;

/// One network with its head.
struct ModelMember {
    net: Arc<dyn Network>,
    head: Box<dyn Head>,
    history: Vec<Epoch>,
    /// The epoch that was kept, counted from 0.
    epoch: Option<usize>,
    /// What gives the confidence, where it is not the head.
    probe: Option<Probe>,
    /// What its confidences are on held-out rows.
    usual: ScoreScale,
}

impl ModelMember {
    fn host(&self) -> Host<'_> {
        Host { net: self.net.as_ref(), head: self.head.as_ref() }
    }

    /// The number of classes that it tells apart: the detector's word counts before the head's.
    fn classes(&self) -> usize {
        self.probe.as_ref().map(Probe::classes).filter(|&k| k > 0).unwrap_or(self.head.classes())
    }
}

/// A classifier that can say "unknown".
pub struct Model {
    schema: Schema,
    classes: Vec<String>,
    graph: Graph,
    members: Vec<ModelMember>,
    /// Where the network clips its inputs: what it does not see.
    reach: Option<RangePenalty>,
    /// What is usual, for explanations.
    centers: Option<Centers>,
    calibration: Calibration,
    /// Share of the held-out rows that all members together put in their class.
    accuracy: Option<f64>,
    settings: Settings,
    /// Rows trained on.
    rows: usize,
    findings: Vec<String>,
    version: String,
}

/// What training gives.
pub struct Fitted {
    /// The model.
    pub model: Model,
    /// What was done to the data.
    pub notices: Notices,
    /// Whether the watcher stopped it.
    pub interrupted: bool,
}

/// What a file of this program may hold for prediction.
pub enum Saved {
    /// What `mcdd train` has written.
    Model(Box<Model>),
    /// What `mcdd fit-detector` has written.
    Scorer(Box<Scorer>),
}

impl Saved {
    /// Reads a model or a scorer; nothing in the file is run or trusted.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, something else, or of a newer version.
    pub fn load(path: &Path) -> Result<Saved> {
        let bytes = Container::bytes_of(path)?;
        let is_scorer = Container::format_of(&bytes).is_some_and(|f| f.starts_with("mcdd detector "));
        if is_scorer {
            Scorer::from_bytes(&bytes).map(|s| Saved::Scorer(Box::new(s)))
        } else {
            Model::from_bytes(&bytes).map(|m| Saved::Model(Box::new(m)))
        }
        .map_err(|e| e.at_file(path))
    }
}

/// Whether labels are used.
///
/// # Errors
/// If they are, and there are none.
fn labeled(settings: &Settings, there: bool) -> Result<bool> {
    let labeled = settings.head.classifies() || settings.detector.detector.about().needs.labels;
    if labeled && !there {
        let who = if settings.head.classifies() { settings.head.name() } else { settings.detector.detector.name() };
        return Err(Error::data(format!("there are no labels, and {who} needs them"))
            .hint("give --label NAME, or a method and a detector that use no labels (mcdd methods)"));
    }
    Ok(labeled)
}

/// Rows to train on and rows held out, of which there must be one.
fn held_out(parts: (Vec<usize>, Vec<usize>)) -> Result<(Vec<usize>, Vec<usize>)> {
    if parts.1.is_empty() {
        return Err(Error::setting("no row is held out: there are too few rows for this share")
            .hint("raise --calibration-fraction, e.g. to 0.2"));
    }
    Ok(parts)
}

/// Everything that training needs.
struct Ready<'a> {
    schema: Schema,
    notices: Notices,
    classes: Vec<String>,
    labeled: bool,
    graph: Graph,
    start: train::Start<'a>,
    train: Examples<'a>,
    held: Examples<'a>,
}

impl Model {
    /// Trains on a table with labels, on all cores and without a watcher.
    ///
    /// # Errors
    /// If the data or the settings cannot be used, or training diverges.
    pub fn fit(table: &Table, settings: &Settings) -> Result<Model> {
        Self::fit_with(table, settings, &Run::default()).map(|f| f.model)
    }

    /// Trains on a table with labels.
    ///
    /// # Errors
    /// As for [`Model::fit`], or if a checkpoint cannot be written or read.
    pub fn fit_with(table: &Table, settings: &Settings, run: &Run) -> Result<Fitted> {
        settings.check()?;
        if settings.image.is_some() {
            return Err(Error::setting("these settings are for images, and this is a table"));
        }
        let labeled = labeled(settings, table.labels.is_some())?;
        if labeled {
            table.check_classes(MIN_CLASS_ROWS)?;
        }
        let (train_rows, held_rows) = held_out(table.split_rows(settings.calibration_fraction, settings.seed)?)?;
        let (schema, notices) = Schema::fit(table, &train_rows)?;
        let x = schema.transform(table, Some(&train_rows))?;
        let held_x = schema.transform(table, Some(&held_rows))?;
        // Where no label is used, none is needed.
        let label = |r: &usize| table.label(*r).filter(|_| labeled).unwrap_or(0);
        let y: Vec<u32> = train_rows.iter().map(label).collect();
        let held_y: Vec<u32> = held_rows.iter().map(label).collect();
        let ready = Ready {
            graph: train::graph(schema.width(), settings),
            start: None,
            classes: table.classes().to_vec(),
            labeled,
            train: Examples::Rows(LabeledRows { x: &x, y: &y }),
            held: Examples::Rows(LabeledRows { x: &held_x, y: &held_y }),
            schema,
            notices,
        };
        let mut fitted = Self::fit_ready(ready, settings, run)?;
        let model = &mut fitted.model;
        model.findings.extend(doctor::one_cell(&x, &model.schema.input_names()));
        Ok(fitted)
    }

    /// Trains on images with labels; the settings must be for them ([`Settings::for_images`]).
    ///
    /// # Errors
    /// As for [`Model::fit_with`].
    pub fn fit_images(images: &Images, settings: &Settings, run: &Run) -> Result<Fitted> {
        Self::fit_images_from(images, settings, None, run)
    }

    /// The same, beginning with weights that were trained elsewhere.
    ///
    /// # Errors
    /// As for [`Model::fit_with`], and if the weights cannot be read or are of another network.
    pub fn fit_images_from(images: &Images, settings: &Settings, init: Option<&Path>, run: &Run) -> Result<Fitted> {
        settings.check()?;
        let labeled = labeled(settings, images.labels.is_some())?;
        if labeled {
            images.check_classes(MIN_CLASS_ROWS)?;
        }
        let (train_rows, held_rows) = held_out(images.split_rows(settings.calibration_fraction, settings.seed)?)?;
        let spec = ImageSpec::fit(images, &train_rows)?;
        if let Some(augment) = settings.image.as_ref().and_then(|i| i.augment) {
            augment.check(spec.shape())?;
        }
        let label = |r: &usize| images.label(*r).filter(|_| labeled).unwrap_or(0);
        let y: Vec<u32> = train_rows.iter().map(label).collect();
        let held_y: Vec<u32> = held_rows.iter().map(label).collect();
        let some = |rows, y| Examples::Images(ImageRows { images, rows, spec: &spec, y });
        let graph = train::image_graph([spec.height, spec.width, spec.channels], settings)?;
        let weights = init.map(|path| Weights::read(path, &graph)).transpose()?;
        let mut settings = settings.clone();
        if let Some(image) = &mut settings.image {
            image.init = weights.as_ref().map(|w| w.sha256.clone());
            if image.frozen && image.init.is_none() {
                return Err(
                    Error::setting("a network of random weights would stay as it is").hint("give --init FILE too")
                );
            }
        }
        let unused = weights.as_ref().map_or(&[][..], |w| &w.unused);
        let notices = match unused.len() {
            0 => Notices::new(),
            n => vec![format!("{} of the weights' file not used: {}", count(n, "tensor"), unused.join(", "))],
        };
        let ready = Ready {
            graph,
            start: weights.as_ref().map(|w| &w.params),
            classes: images.classes().to_vec(),
            labeled,
            train: some(&train_rows, &y),
            held: some(&held_rows, &held_y),
            schema: Schema::of_images(spec.clone()),
            notices,
        };
        Self::fit_ready(ready, &settings, run)
    }

    /// Trains, calibrates and examines.
    fn fit_ready(ready: Ready, settings: &Settings, run: &Run) -> Result<Fitted> {
        let Ready { graph, start, classes, labeled, train, held, schema, mut notices } = ready;
        let epochs = settings.epochs_for(train.len());
        if epochs < settings.epochs {
            let (all, steps) = (settings.epochs, settings.steps.unwrap_or(0));
            notices.push(format!(
                "{} instead of {all}, as a network takes {steps} steps at the most; --steps off lifts that",
                count(epochs, "epoch")
            ));
        }
        run.callback.notices(&notices);
        let n_classes = if settings.head.classifies() { classes.len() } else { 0 };
        check_size(&graph, &settings.head.specs(n_classes, graph.latent()?))?;
        let clipped = unseen(&graph, settings);
        let trained = train::fit(&graph, settings, n_classes, train, held, start, run)?;
        let wanted = if settings.head.trained_by() == Loop::ClosedForm { 1 } else { settings.members };
        let interrupted = trained.iter().any(|m| m.interrupted) || trained.len() < wanted;
        let stopped = interrupted.then(|| {
            let done = trained.iter().map(|m| m.history.len()).min().unwrap_or(0);
            format!(
                "training was stopped after {done} of {epochs} epochs, with {} of {} members: the weights are {}",
                trained.len(),
                settings.members,
                if settings.head.trained_by() == Loop::Adversarial { "the last ones" } else { "the best so far" }
            )
        });
        let pool = Pool::new(run.threads);
        let known = labeled.then(|| train.y());
        let mut members = trained
            .into_iter()
            .map(|m| {
                let net = run.engine.network(&graph, &m.net)?;
                let (history, epoch, usual) = (m.history, m.epoch, ScoreScale::default());
                let mut member = ModelMember { net, head: m.head, history, epoch, probe: None, usual };
                let (detect, seed) = (&settings.detector, settings.seed);
                let rows = probe::Fit { rows: train, labels: known, classes: classes.len(), seed };
                member.probe = Probe::fit(detect, member.host(), rows, &pool)?;
                Ok(member)
            })
            .collect::<Result<Vec<_>>>()?;
        // What is usual of a pixel says little.
        let centers = train.rows().ok().map(|rows| Centers::of(rows.x, schema.width(), known, classes.len()));
        let reach = match clipped {
            Some(limit) => Some(RangePenalty::of(train.rows()?.x, schema.width(), limit)),
            None => None,
        };
        let scores = |members: &[ModelMember], reach: Option<&RangePenalty>| {
            predict::verdicts(Ensemble { members, reach }, held, &pool)
        };
        if ScoreScale::needed(members.len(), reach.is_some()) {
            let each: Vec<Vec<f64>> =
                members.iter().map(|m| scores(std::slice::from_ref(m), None).confidence).collect();
            members.iter_mut().zip(ScoreScale::of(&each)?).for_each(|(member, usual)| member.usual = usual);
        }
        let verdicts = scores(&members, reach.as_ref());
        let right = verdicts.class.iter().zip(held.y()).filter(|(c, y)| c == y).count();
        let accuracy = (!verdicts.class.is_empty()).then(|| right as f64 / held.len() as f64);
        let calibration = Calibration::new(verdicts.confidence).map_err(|_| {
            Error::new(Kind::Diverged, "training ended in confidences that are not finite").hint("lower --lr")
        })?;
        let latents: Vec<Vec<f32>> = members.iter().map(|m| held.latents(m.net.as_ref(), &pool)).collect();
        let named = if labeled { &classes[..] } else { &[] };
        let mut findings = doctor::examine(&members, &latents, held.y(), &calibration, named, settings.tpr);
        findings.extend(stopped);
        let settings = Settings { members: members.len(), ..settings.clone() };
        let model = Model {
            schema,
            classes,
            graph,
            members,
            reach,
            centers,
            calibration,
            accuracy,
            settings,
            rows: train.len(),
            findings,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        Ok(Fitted { model, notices, interrupted })
    }

    /// The columns and what becomes of them.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The names of the classes that the training rows had; [`Model::classifies`] says whether rows are put in them.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The network's shape.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The held-out confidences.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Share of the held-out rows that it put in their class, where it classifies.
    pub fn validation_accuracy(&self) -> Option<f64> {
        self.accuracy
    }

    /// The settings that it was trained with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How many rows it was trained on, the held-out ones not counted.
    pub fn training_rows(&self) -> usize {
        self.rows
    }

    /// What its user should know about it; empty if nothing was found.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The version of the program that trained it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How many networks it has.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The epochs of a member, and which was kept.
    pub fn history(&self, member: usize) -> Option<(&[Epoch], Option<usize>)> {
        self.members.get(member).map(|m| (&m.history[..], m.epoch))
    }

    /// The head of a member.
    pub fn head(&self, member: usize) -> Option<&dyn Head> {
        self.members.get(member).map(|m| m.head.as_ref())
    }

    /// The latent vectors of rows that are ready for the network, under one member.
    pub fn latents(&self, member: usize, x: &[f32]) -> Option<Vec<f32>> {
        let mut scratch = NetworkBuffers::default();
        self.members.get(member).map(|m| m.net.latents(x, &mut scratch).to_vec())
    }

    /// Whether rows are put in classes; without, there is a confidence and nothing else.
    pub fn classifies(&self) -> bool {
        self.members.iter().all(|m| m.classes() > 0)
    }

    /// Whether predictions have distances: those of the head, where it is the head that classifies.
    pub fn has_distances(&self) -> bool {
        self.members.iter().all(|m| m.head.has_distances() && m.probe.as_ref().is_none_or(|p| p.classes() == 0))
    }

    /// The threshold that was set at training.
    ///
    /// # Errors
    /// Never for a model that was trained or loaded.
    pub fn threshold(&self) -> Result<Threshold> {
        self.calibration.threshold(self.settings.tpr)
    }
}

#[cfg(test)]
mod tests;
