//! The file of a model; `docs/file-format.md` describes the format.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::class_scale::ClassScale;
use super::embedding::{Beside, Embedding};
use super::explain::Centers;
use super::probe::Probe;
use super::range_penalty::RangePenalty;
use super::score_scale::ScoreScale;
use super::{Calibration, Model, ModelMember, clip_limit, network, sharpness};
use crate::backbone::BackboneSpec;
use crate::container::{Container, Values};
use crate::data::Schema;
use crate::detector::StateDict;
use crate::error::{Error, Result};
use crate::net::{Graph, ParamSpec, Params, default_engine};
use crate::seed::Stream;
use crate::train::{Epoch, Graphs, Role, Settings};

const LIMITS: &str = "clip.limits";
const CLASS_MEANS: &str = "explain.class_means";
const SCALES: &str = "calibration.scales";
const PROBABILITIES: &str = "calibration.probability";
const CLASS_SCALES: &str = "calibration.by_class";

/// Everything in a model except its tensors.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: String,
    classes: Vec<String>,
    schema: Schema,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backbone: Option<BackboneSpec>,
    graph: Graph,
    /// The network of members with bins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binned: Option<Graph>,
    settings: Settings,
    /// A hash of the training rows, and of which of them each member left out.
    sha256: String,
    rows: usize,
    calibration_rows: usize,
    /// The number of points of each class's map of confidences; empty without calibration by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    class_points: Vec<usize>,
    /// The exponent of the probabilities.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    sharpness: f64,
    validation_accuracy: Option<f64>,
    members: Vec<MemberText>,
    findings: Vec<String>,
}

fn one() -> f64 {
    1.0
}

fn is_one(value: &f64) -> bool {
    *value == 1.0
}

fn is_default(role: &Role) -> bool {
    *role == Role::default()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberText {
    /// The fold of the training rows that it left out.
    fold: usize,
    #[serde(default, skip_serializing_if = "is_default")]
    role: Role,
    epoch: Option<usize>,
    history: Vec<Epoch>,
}

fn tensor(member: usize, spec: &ParamSpec) -> String {
    format!("members.{member}.{}", spec.name)
}

impl Model {
    pub(super) const FORMAT: &str = "mcdd model 1";

    pub(super) fn container(&self) -> Result<Container> {
        let members = self
            .members
            .iter()
            .map(|m| MemberText { fold: m.fold, role: m.role, epoch: m.epoch, history: m.history.clone() })
            .collect();
        let text = Text {
            version: self.version.clone(),
            classes: self.classes.clone(),
            schema: self.schema.clone(),
            backbone: self.backbone().cloned(),
            graph: self.graphs.plain.clone(),
            binned: self.graphs.binned.clone(),
            settings: self.settings.clone(),
            sha256: self.sha256.clone(),
            rows: self.rows,
            calibration_rows: self.calibration.scores().len(),
            class_points: self.class_scales.iter().map(ClassScale::len).collect(),
            sharpness: self.sharpness,
            validation_accuracy: self.accuracy,
            members,
            findings: self.findings.clone(),
        };
        let text = serde_json::to_string(&text).map_err(|e| Error::format(e.to_string()))?;
        let mut container = Container { text, ..Default::default() };
        if let Some(embedding) = &self.embedding {
            embedding.save(&mut container);
        }
        for (m, member) in self.members.iter().enumerate() {
            for params in [member.net.params(), member.head.params()] {
                for (i, spec) in params.specs().iter().enumerate() {
                    container.put(tensor(m, spec), &spec.shape, Values::F32(params.get(i).to_vec()));
                }
            }
        }
        if let Some(range) = &self.range_penalty {
            container.put(LIMITS, &[range.limits().len()], Values::F32(range.limits().to_vec()));
        }
        if let Some(centers) = &self.centers {
            container.put(CLASS_MEANS, &centers.shape(), Values::F32(centers.values().to_vec()));
        }
        if ScoreScale::needed(self.members.len(), self.range_penalty.is_some()) {
            let scales = self.members.iter().flat_map(|m| [m.scale.mean, m.scale.deviation]).collect();
            container.put(SCALES, &[self.members.len(), 2], Values::F64(scales));
        }
        for (m, probe) in self.members.iter().enumerate().filter_map(|(m, member)| Some((m, member.probe.as_ref()?))) {
            probe.save(&mut StateDict::new(&mut container, format!("members.{m}.detector.")));
        }
        let points: Vec<f64> = self.class_scales.iter().flat_map(ClassScale::values).collect();
        if !points.is_empty() {
            container.put(CLASS_SCALES, &[points.len() / 2, 2], Values::F64(points));
        }
        let scores = self.calibration.scores();
        container.put("calibration.confidence", &[scores.len()], Values::F64(scores.to_vec()));
        if let Some(classes) = &self.class_calibration {
            container.put(PROBABILITIES, &[classes.scores().len()], Values::F64(classes.scores().to_vec()));
        }
        Ok(container)
    }

    pub(super) fn from_container(mut c: Container, beside: Beside) -> Result<Model> {
        let invalid = |what: &str| Error::format(format!("the model file is invalid: {what}"));
        let text: Text = serde_json::from_str(&c.text).map_err(|e| invalid(&e.to_string()))?;
        text.schema.validate()?;
        text.settings.check()?;
        let distinct: HashSet<&String> = text.classes.iter().collect();
        let labeled = text.settings.head.classifies() || text.settings.detector.detector.about().needs.labels;
        if (labeled && text.classes.len() < 2) || distinct.len() < text.classes.len() {
            return Err(invalid("it needs two or more classes with distinct names"));
        }
        if !sharpness::RANGE.contains(&text.sharpness) {
            return Err(invalid("the exponent of the probabilities is out of range"));
        }
        let graphs = Graphs { plain: text.graph, binned: text.binned };
        let latent = graphs.plain.latent()?;
        let embedding = match &text.backbone {
            Some(spec) => Some(Embedding::load(spec, &text.schema, &mut c, beside)?),
            None => None,
        };
        let inputs = embedding.as_ref().map_or(text.schema.width(), Embedding::width);
        let other = |binned: &Graph| -> Result<bool> {
            let same = [binned.input, binned.latent()?] == [inputs, latent] && binned.clip() == graphs.plain.clip();
            Ok(!same || binned.is_image())
        };
        if graphs.binned.as_ref().map(other).transpose()?.unwrap_or(text.members.iter().any(|m| m.role.binned)) {
            return Err(invalid("the networks do not match each other"));
        }
        if graphs.plain.input != inputs || text.members.len() != text.settings.members {
            return Err(invalid("columns, network and members do not match"));
        }
        if text.members.iter().all(|m| m.role.for_class) {
            return Err(invalid("no member gives the confidence"));
        }
        // Shapes are compared with those in the file, which its length bounds, before anything is allocated.
        let classes = if text.settings.head.classifies() { text.classes.len() } else { 0 };
        let head_specs = text.settings.head.specs(classes, latent);
        for (m, member) in text.members.iter().enumerate() {
            for spec in graphs.get(member.role.binned).specs().iter().chain(&head_specs) {
                if c.shape(&tensor(m, spec))? != spec.shape {
                    return Err(invalid(&format!("tensor {} has an unexpected shape", tensor(m, spec))));
                }
            }
        }
        let range_penalty = match clip_limit(&graphs.plain, &text.settings) {
            Some(_) => {
                let limits = c.take_f32(LIMITS, &[inputs])?;
                Some(
                    RangePenalty::from_limits(limits)
                        .ok_or_else(|| invalid("the limit of an input is not positive"))?,
                )
            }
            None => None,
        };
        // Only explanations need them; a model of images has none.
        let centers = match c.shape(CLASS_MEANS).ok().map(<[usize]>::to_vec) {
            Some(shape) if shape.last() == Some(&text.schema.width()) => {
                let means = c.take_f32(CLASS_MEANS, &shape)?;
                let centers = Centers::from_values(means, text.schema.width(), text.classes.len());
                Some(centers.ok_or_else(|| invalid("the class means are of other classes"))?)
            }
            _ => None,
        };
        let count = text.members.len();
        let scales = match ScoreScale::needed(count, range_penalty.is_some()) {
            true => c.take_f64(SCALES, &[count, 2])?,
            false => vec![0.0, 1.0],
        };
        if scales.iter().any(|v| !v.is_finite()) || scales.chunks_exact(2).any(|s| s[1] <= 0.0) {
            return Err(invalid("the score scale of a member has no positive deviation"));
        }
        let mut members = Vec::new();
        for (m, described) in text.members.into_iter().enumerate() {
            if described.epoch.is_some_and(|e| e >= described.history.len()) {
                return Err(invalid("the epoch that was kept is not in the history"));
            }
            let mut fill = |params: &mut Params| -> Result<()> {
                for i in 0..params.specs().len() {
                    let spec = params.specs()[i].clone();
                    params.set(i, &c.take_f32(&tensor(m, &spec), &spec.shape)?)?;
                }
                Ok(())
            };
            let graph = graphs.get(described.role.binned);
            let mut params = Params::new(graph.specs());
            fill(&mut params)?;
            let mut head = text.settings.head.build(classes, latent, &mut Stream::new(0, "load"));
            fill(head.params_mut())?;
            let net = network(default_engine(), graph, &params, text.schema.image.as_ref(), &text.settings)?;
            let scale = ScoreScale { mean: scales[2 * m], deviation: scales[2 * m + 1] };
            let MemberText { fold, role, epoch, history } = described;
            let mut member = ModelMember { net, head, history, epoch, fold, role, probe: None, scale };
            let mut store = StateDict::new(&mut c, format!("members.{m}.detector."));
            if !role.for_class {
                member.probe = Probe::load(&text.settings.detector, member.host(), &mut store)?;
            }
            if member.classes() != 0 && member.classes() != text.classes.len() {
                return Err(invalid("the number of classes of the detector is not that of the model"));
            }
            members.push(member);
        }
        let class_scales = class_scales(&text.class_points, text.classes.len(), text.settings.per_class, &mut c)?;
        let scores = c.take_f64("calibration.confidence", &[text.calibration_rows])?;
        let class_calibration = match members.iter().all(|m| m.classes() > 0) {
            true => {
                // Rows that calibrate the threshold need no labels, so these may be others.
                let shape = c.shape(PROBABILITIES)?.to_vec();
                let [1..=usize::MAX] = shape[..] else {
                    return Err(invalid("the probabilities of the calibration rows"));
                };
                Some(Calibration::new(c.take_f64(PROBABILITIES, &shape)?)?)
            }
            false => None,
        };
        if let Some(name) = c.tensors.keys().next() {
            return Err(invalid(&format!("tensor {name} is not used")));
        }
        Ok(Model {
            schema: text.schema,
            embedding: embedding.map(Arc::new),
            classes: text.classes,
            graphs,
            members,
            range_penalty,
            centers,
            calibration: Calibration::new(scores)?,
            class_scales,
            class_calibration,
            sharpness: text.sharpness,
            accuracy: text.validation_accuracy,
            settings: text.settings,
            sha256: text.sha256,
            rows: text.rows,
            findings: text.findings,
            version: text.version,
        })
    }
}

/// The maps of the classes' confidences, with these numbers of points.
fn class_scales(points: &[usize], classes: usize, wanted: bool, c: &mut Container) -> Result<Vec<ClassScale>> {
    let invalid = || Error::format("the model file is invalid: its calibration by class");
    if points.len() != if wanted { classes } else { 0 } {
        return Err(invalid());
    }
    let total = points.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).ok_or_else(invalid)?;
    if total == 0 {
        return if wanted { Err(invalid()) } else { Ok(Vec::new()) };
    }
    let values = c.take_f64(CLASS_SCALES, &[total, 2])?;
    let mut at = 0;
    let mut next = |&n: &usize| {
        let own = &values[2 * at..2 * (at + n)];
        at += n;
        ClassScale::from_values(own).ok_or_else(invalid)
    };
    points.iter().map(&mut next).collect()
}
