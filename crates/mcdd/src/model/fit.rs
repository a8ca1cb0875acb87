//! Training a model: networks first, then detectors, calibration and a look at the result.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::class_scale::ClassScale;
use super::cross_fit::{self, Folds, OutOfFold};
use super::embedding::Embedding;
use super::explain::Centers;
use super::probe::{self, Probe};
use super::rows::{AllRows, Part};
use super::score_scale::{self, ScoreScale};
use super::sharpness;
use super::{Calibration, FitResult, Model, ModelMember, Predictions, clip_limit, doctor, network};
use crate::backbone::{Backbone, BackboneOptions, NetworkFile};
use crate::compute::pool::Pool;
use crate::container::hex;
use crate::data::profile::Profile;
use crate::data::{ImageSpec, Images, Notices, Schema, Table, count};
use crate::detector::FitDetector as _;
use crate::error::{Error, Result};
use crate::head::Loop;
use crate::net::{Graph, Network, Weights};
use crate::train::{self, Graphs, MemberRows, Preset, Run, Settings};

/// The largest number of parameters of all networks: half a GB, and training needs several times that.
const MAX_PARAMETERS: usize = 1 << 27;

/// The largest number of classes: each row is compared with each class.
const MAX_CLASSES: usize = 1 << 14;

/// Rejects networks that would not fit into memory, before anything is allocated.
fn check_size(graph: &Graph, settings: &Settings, classes: usize) -> Result<()> {
    if classes > MAX_CLASSES {
        return Err(Error::data(format!("there are {classes} classes, and at most {MAX_CLASSES} can be learned"))
            .hint("join classes, leave out rare ones with `min_class`, or check `label`"));
    }
    let head = settings.head.specs(if settings.head.classifies() { classes } else { 0 }, graph.latent()?);
    let specs = graph.specs();
    let mut sizes = specs.iter().chain(&head).map(|s| s.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let total = sizes.try_fold(0usize, |sum, n| sum.checked_add(n?)).and_then(|n| n.checked_mul(settings.members));
    match total {
        Some(total) if total <= MAX_PARAMETERS => Ok(()),
        _ => {
            let (members, inputs) = (count(settings.members, "network"), count(graph.input, "input"));
            Err(Error::setting(format!("{members} for {inputs} would have more than {MAX_PARAMETERS} parameters"))
                .hint("lower `hidden`, `latent` or `members`, or give fewer columns (`drop`)"))
        }
    }
}

/// Whether the settings need labels.
///
/// # Errors
/// If they do, and there are none.
pub(super) fn needs_labels(settings: &Settings, there: bool) -> Result<bool> {
    let labeled = settings.needs_labels();
    if labeled && !there {
        let who = if settings.head.classifies() { settings.head.name() } else { settings.detector.detector.name() };
        return Err(Error::data(format!("there are no labels, and {who} needs them"))
            .hint("give `label`, or a method and a detector that need no labels; see the list of methods"));
    }
    Ok(labeled)
}

/// The rows that a model is trained on, and what is known of them.
pub(super) struct FitData<'a> {
    pub schema: Schema,
    pub classes: Vec<String>,
    pub labeled: bool,
    /// What the members see.
    pub rows: AllRows<'a>,
    /// The rows by `schema`: the same, unless a backbone comes between.
    pub raw: AllRows<'a>,
    pub embedding: Option<Arc<Embedding>>,
    /// A label for each row; 0 where labels are not used.
    pub y: Vec<u32>,
    pub folds: Folds,
}

impl<'a> FitData<'a> {
    /// `x` has the inputs of all rows by `schema`.
    pub(super) fn of_table(table: &Table, x: &'a [f32], schema: Schema, folds: Folds, labeled: bool) -> FitData<'a> {
        let label = |r: usize| table.label(r).filter(|_| labeled).unwrap_or(0);
        let rows = AllRows::Table { x, width: schema.width() };
        FitData {
            classes: table.classes().to_vec(),
            labeled,
            rows,
            raw: rows,
            embedding: None,
            y: (0..table.rows()).map(label).collect(),
            folds,
            schema,
        }
    }

    pub(super) fn of_images(images: &'a Images, spec: &'a ImageSpec, folds: Folds, labeled: bool) -> FitData<'a> {
        let label = |r: usize| images.label(r).filter(|_| labeled).unwrap_or(0);
        FitData {
            classes: images.classes().to_vec(),
            labeled,
            rows: AllRows::Images { images, spec },
            raw: AllRows::Images { images, spec },
            embedding: None,
            y: (0..images.rows()).map(label).collect(),
            folds,
            schema: Schema::of_images(spec.clone()),
        }
    }

    /// The same rows, of which the members see features.
    pub(super) fn embedded(self, embedding: Arc<Embedding>, x: &'a [f32]) -> FitData<'a> {
        let rows = AllRows::Table { x, width: embedding.width() };
        FitData { rows, embedding: Some(embedding), ..self }
    }

    /// A hash of all rows, their labels, and the rows that each fold leaves out.
    pub(super) fn sha256(&self) -> Result<String> {
        let mut hash = Sha256::new();
        let all = Part::new((0..self.y.len()).collect(), &self.y);
        all.examples(self.raw).hash(&mut hash)?;
        for fold in 0..self.folds.len() {
            hash.update(
                self.folds.left_out(fold).iter().flat_map(|&row| (row as u64).to_le_bytes()).collect::<Vec<u8>>(),
            );
            hash.update([255; 8]);
        }
        Ok(hex(&hash.finalize()))
    }

    /// The rows that each fold has by `of`.
    fn parts(&self, of: fn(&Folds, usize) -> Vec<usize>) -> Vec<Part> {
        (0..self.folds.len()).map(|fold| Part::new(of(&self.folds, fold), &self.y)).collect()
    }
}

/// What is worth a look in a table, for the model's findings.
pub(super) fn table_findings(x: &[f32], schema: &Schema, profile: &Profile) -> Vec<String> {
    doctor::one_cell(x, &schema.input_names()).into_iter().chain(profile.warnings()).collect()
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
        let graph = train::graph(schema.width(), settings);
        check_size(&graph, settings, table.classes().len())?;
        let x = schema.transform(table, None)?;
        let graphs = Graphs::fit(graph, &x, &folds.preprocessing(), settings);
        check_size(graphs.get(true), settings, table.classes().len())?;
        let data = FitData::of_table(table, &x, schema, folds, labeled);
        let mut fitted = Self::train(data, graphs, None, notices, settings, run)?;
        fitted.model.findings.extend(table_findings(&x, &fitted.model.schema, &profile));
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
        let graph = train::image_graph([spec.height, spec.width, spec.channels], settings)?;
        check_size(&graph, settings, images.classes().len())?;
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
        let start = weights.as_ref().map(|w| &w.params).or(fitted.as_ref());
        let data = FitData::of_images(images, &spec, folds, labeled);
        Self::train(data, graph.into(), start, notices, &settings, run)
    }

    /// Trains on the features that a frozen network has for the rows of a table of numbers, whose columns are its inputs, in their
    /// order.
    ///
    /// # Errors
    /// As for [`Model::fit_with`], and if the network cannot be run or does not take such rows.
    pub fn fit_with_backbone(
        table: &Table,
        network: &NetworkFile,
        options: &BackboneOptions,
        settings: &Settings,
        run: &Run,
    ) -> Result<FitResult> {
        settings.check()?;
        let labeled = needs_labels(settings, table.labels.is_some())?;
        if labeled {
            table.check_classes(run.min_class_rows)?;
        }
        let folds = Folds::of_table(table, settings)?;
        let (schema, notices) = Schema::fit_numbers(table, &folds.preprocessing())?;
        let x = schema.transform(table, None)?;
        let data = FitData::of_table(table, &x, schema, folds, labeled);
        let mut fitted = Self::train_with_backbone(data, network, options, notices, settings, run)?;
        fitted.model.findings.extend(table_findings(&x, &fitted.model.schema, &Profile::of(table)));
        Ok(fitted)
    }

    /// Trains on the features that a frozen network has for images, which are resized for it. The settings are those for tables.
    ///
    /// # Errors
    /// As for [`Model::fit_with`], and if the network cannot be run or does not take such images.
    pub fn fit_images_with_backbone(
        images: &Images,
        network: &NetworkFile,
        options: &BackboneOptions,
        settings: &Settings,
        run: &Run,
    ) -> Result<FitResult> {
        settings.check()?;
        let labeled = needs_labels(settings, images.labels.is_some())?;
        if labeled {
            images.check_classes(run.min_class_rows)?;
        }
        let (spec, notice) = network.image_spec(images.shape(), options)?;
        let folds = Folds::of_images(images, settings)?;
        let data = FitData::of_images(images, &spec, folds, labeled);
        Self::train_with_backbone(data, network, options, notice.into_iter().collect(), settings, run)
    }

    fn train_with_backbone(
        data: FitData,
        network: &NetworkFile,
        options: &BackboneOptions,
        notices: Notices,
        settings: &Settings,
        run: &Run,
    ) -> Result<FitResult> {
        if settings.image.is_some() {
            return Err(Error::setting(
                "the settings are for images, and a model on a backbone is trained on its features",
            ));
        }
        let backbone = Backbone::new(network, &data.schema, options)?;
        let graph = train::graph(backbone.latent(), settings);
        check_size(&graph, settings, data.classes.len())?;
        let (embedding, x) = Embedding::fit(backbone, data.raw, &data.folds.preprocessing(), &Pool::new(run.threads))?;
        let graphs = Graphs::fit(graph, &x, &data.folds.preprocessing(), settings);
        check_size(graphs.get(true), settings, data.classes.len())?;
        Self::train(data.embedded(Arc::new(embedding), &x), graphs, None, notices, settings, run)
    }

    /// Trains the networks, and makes a model of them.
    fn train(
        data: FitData,
        graphs: Graphs,
        start: train::Start,
        mut notices: Notices,
        settings: &Settings,
        run: &Run,
    ) -> Result<FitResult> {
        let trained_on = data.parts(Folds::trained_on);
        let left_out = data.parts(|folds, fold| folds.left_out(fold).to_vec());
        let (rows, folds) = (data.rows, &data.folds);
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
        let n_classes = if settings.head.classifies() { data.classes.len() } else { 0 };
        let mut trained = train::fit(&graphs, settings, n_classes, &member_rows, start, run)?;
        let for_class = |m: &train::Member| graphs.role(m.number, settings).for_class;
        if trained.iter().filter(|m| for_class(m)).count() < settings.class_members() {
            trained.retain(|m| !for_class(m));
        }
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
        let member = |m: train::Member| {
            let role = graphs.role(m.number, settings);
            let net = network(run.engine, graphs.get(role.binned), &m.net, data.schema.image.as_ref(), settings)?;
            let (scale, fold) = (ScoreScale::default(), folds.of_member(m.number));
            Ok(ModelMember { net, head: m.head, history: m.history, epoch: m.epoch, fold, role, probe: None, scale })
        };
        let members = trained.into_iter().map(member).collect::<Result<Vec<_>>>()?;
        let mut model = Self::assemble(data, graphs, members, settings, &Pool::new(run.threads))?;
        model.findings.extend(stopped);
        Ok(FitResult { model, notices, interrupted })
    }

    /// Fits the detectors of trained members, calibrates, and looks for what is wrong.
    pub(super) fn assemble(
        data: FitData,
        graphs: Graphs,
        mut members: Vec<ModelMember>,
        settings: &Settings,
        pool: &Pool,
    ) -> Result<Model> {
        let sha256 = data.sha256()?;
        let (trained_on, calibrating) = (data.parts(Folds::trained_on), data.parts(Folds::calibration));
        let FitData { schema, classes, labeled, rows, raw, embedding, y, folds } = data;
        let all = Part::new(folds.preprocessing(), &y);
        let clip = clip_limit(&graphs.plain, settings);
        for member in members.iter_mut().filter(|m| !m.role.for_class) {
            let part = &trained_on[member.fold];
            let labels = labeled.then_some(&part.y[..]);
            let used = settings.detector.detector.used_rows(labels, part.y.len(), settings.seed);
            let some = used.map(|places| part.select(&places));
            let part = some.as_ref().unwrap_or(part);
            let (labels, classes) = (labeled.then_some(&part.y[..]), classes.len());
            let fit = probe::Fit { rows: part.examples(rows), labels, classes, seed: settings.seed };
            member.probe = Probe::fit(&settings.detector, member.host(), fit, pool)?;
        }
        // The mean of a pixel explains little.
        let centers = match raw {
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
        cross_fit::fit_scales(&mut members, &out, pool)?;
        let mut predicted = cross_fit::predict(&members, &[], &out, pool);
        // Where the class comes from some members only, the rows that these left out tell how good it is.
        let by_some = members.iter().any(|m| m.role.for_class);
        let classified = |fold: &usize| !by_some || members.iter().any(|m| m.role.for_class && m.fold == *fold);
        let classified: Vec<usize> = (0..predicted.len()).filter(classified).collect();
        let sharpness = match settings.preset {
            Preset::Paper => 1.0,
            Preset::Best | Preset::Fast => {
                let of = |&fold: &usize| (&predicted[fold].posterior[..], &calibrating[fold].y[..]);
                sharpness::fit(&classified.iter().map(of).collect::<Vec<_>>())
            }
        };
        for p in predicted.iter_mut().filter(|p| p.classes > 0) {
            p.posterior.chunks_exact_mut(p.classes).for_each(|row| sharpness::apply(sharpness, row));
        }
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
        let both = || classified.iter().map(|&fold| (&predicted[fold], &calibrating[fold].y));
        let right = |(p, y): (&Predictions, &Vec<u32>)| p.class.iter().zip(y).filter(|(c, y)| c == y).count();
        let right: usize = both().map(right).sum();
        let count: usize = both().map(|(p, _)| p.class.len()).sum();
        let accuracy = (count > 0).then(|| right as f64 / count as f64);
        let calibrated = Calibration::new(confidences).map_err(|_| score_scale::not_finite())?;
        let of_true_class = |(p, y): (&Predictions, &Vec<u32>)| -> Vec<f64> {
            (0..p.class.len()).map(|i| p.posterior(i)[y[i] as usize]).collect()
        };
        let probabilities: Vec<f64> = both().flat_map(of_true_class).collect();
        let class_calibration = match probabilities.is_empty() {
            true => None,
            false => Some(Calibration::new(probabilities).map_err(|_| score_scale::not_finite())?),
        };
        let latents: Vec<Vec<f32>> = members.iter().map(|m| out[m.fold].rows.latents(m.net.as_ref(), pool)).collect();
        let labels: Vec<&[u32]> = members.iter().map(|m| &calibrating[m.fold].y[..]).collect();
        let all_labels: Vec<u32> = calibrating.iter().flat_map(|part| part.y.iter().copied()).collect();
        let named = if labeled { &classes[..] } else { &[] };
        let examined = doctor::Examined { members: &members, head: &settings.head, latents: &latents, labels: &labels };
        let mut findings = examined.findings(&calibrated, &all_labels, named, settings.tpr);
        let classes_predicted: Vec<u32> = predicted.iter().flat_map(|p| p.class.iter().copied()).collect();
        findings.extend(doctor::chance(&classes_predicted, &all_labels, named));
        // An interrupted ensemble may have no members for the class.
        let bins = settings.bins.filter(|_| settings.class_members() == 0 || members.iter().any(|m| m.role.for_class));
        let settings = Settings { members: members.len(), bins, ..settings.clone() };
        Ok(Model {
            sha256,
            schema,
            embedding,
            classes,
            graphs,
            members,
            range_penalty,
            centers,
            calibration: calibrated,
            class_scales,
            class_calibration,
            sharpness,
            accuracy,
            settings,
            rows: all.rows.len(),
            findings,
            version: env!("CARGO_PKG_VERSION").into(),
        })
    }
}
