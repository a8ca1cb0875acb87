//! A model in one file; `docs/file-format.md` describes it.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::explain::Centers;
use super::probe::Probe;
use super::range_penalty::RangePenalty;
use super::score_scale::ScoreScale;
use super::{Calibration, Model, ModelMember, unseen};
use crate::container::{Container, Values};
use crate::data::Schema;
use crate::detector::Store;
use crate::error::{Error, Result};
use crate::net::{Graph, ParamSpec, Params, default_engine};
use crate::seed::Stream;
use crate::train::{Epoch, Settings};

const FORMAT: &str = "mcdd model 1";
const CENTRES: &str = "explain.class_means";

/// Everything about a model but its numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: String,
    classes: Vec<String>,
    schema: Schema,
    graph: Graph,
    settings: Settings,
    rows: usize,
    held_out_rows: usize,
    validation_accuracy: Option<f64>,
    members: Vec<MemberText>,
    findings: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberText {
    epoch: Option<usize>,
    history: Vec<Epoch>,
}

fn tensor(member: usize, spec: &ParamSpec) -> String {
    format!("members.{member}.{}", spec.name)
}

impl Model {
    fn container(&self) -> Result<Container> {
        let members = self.members.iter().map(|m| MemberText { epoch: m.epoch, history: m.history.clone() }).collect();
        let text = Text {
            version: self.version.clone(),
            classes: self.classes.clone(),
            schema: self.schema.clone(),
            graph: self.graph.clone(),
            settings: self.settings.clone(),
            rows: self.rows,
            held_out_rows: self.calibration.scores().len(),
            validation_accuracy: self.accuracy,
            members,
            findings: self.findings.clone(),
        };
        let text = serde_json::to_string(&text).map_err(|e| Error::format(e.to_string()))?;
        let mut container = Container { text, ..Default::default() };
        for (m, member) in self.members.iter().enumerate() {
            for params in [member.net.params(), member.head.params()] {
                for (i, spec) in params.specs().iter().enumerate() {
                    container.put(tensor(m, spec), &spec.shape, Values::F32(params.get(i).to_vec()));
                }
            }
        }
        if let Some(reach) = &self.reach {
            container.put("clip.most", &[reach.values().len()], Values::F32(reach.values().to_vec()));
        }
        if let Some(centers) = &self.centers {
            container.put(CENTRES, &centers.shape(), Values::F32(centers.values().to_vec()));
        }
        if ScoreScale::needed(self.members.len(), self.reach.is_some()) {
            let usual = self.members.iter().flat_map(|m| [m.usual.mean, m.usual.deviation]).collect();
            container.put("calibration.members", &[self.members.len(), 2], Values::F64(usual));
        }
        for (m, probe) in self.members.iter().enumerate().filter_map(|(m, member)| Some((m, member.probe.as_ref()?))) {
            probe.save(&mut Store::new(&mut container, format!("members.{m}.detector.")));
        }
        let scores = self.calibration.scores();
        container.put("calibration.confidence", &[scores.len()], Values::F64(scores.to_vec()));
        Ok(container)
    }

    /// The model as bytes: the same for the same data, settings and seed.
    ///
    /// # Errors
    /// Never for a model that was trained or loaded.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.container()?.to_bytes(FORMAT))
    }

    /// Writes the model beside its place and renames it, so that a crash leaves the old file or the new one.
    ///
    /// # Errors
    /// If writing fails.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.container()?.write(path.as_ref(), FORMAT)
    }

    /// Reads a model; nothing in the file is run or trusted.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, something else, or of a newer version.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        let path = path.as_ref();
        Self::from_container(Container::read(path, FORMAT)?).map_err(|e| e.at_file(path))
    }

    /// Reads a model from memory.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Model> {
        Self::from_container(Container::from_bytes(bytes, FORMAT)?)
    }

    fn from_container(mut c: Container) -> Result<Model> {
        let wrong = |what: &str| Error::format(format!("the model makes no sense: {what}"));
        let text: Text = serde_json::from_str(&c.text).map_err(|e| wrong(&e.to_string()))?;
        text.schema.validate()?;
        text.settings.check()?;
        let distinct: HashSet<&String> = text.classes.iter().collect();
        let labeled = text.settings.head.classifies() || text.settings.detector.detector.about().needs.labels;
        if (labeled && text.classes.len() < 2) || distinct.len() < text.classes.len() {
            return Err(wrong("it needs two or more classes with different names"));
        }
        let latent = text.graph.latent()?;
        if text.graph.input != text.schema.width() || text.members.len() != text.settings.members {
            return Err(wrong("columns, network and members do not fit together"));
        }
        // Shapes are compared with those in the file, which its length bounds, before anything is allocated.
        let net_specs = text.graph.specs();
        let classes = if text.settings.head.classifies() { text.classes.len() } else { 0 };
        let head_specs = text.settings.head.specs(classes, latent);
        for m in 0..text.members.len() {
            for spec in net_specs.iter().chain(&head_specs) {
                if c.shape(&tensor(m, spec))? != spec.shape {
                    return Err(wrong(&format!("tensor {} has another shape", tensor(m, spec))));
                }
            }
        }
        let reach = match unseen(&text.graph, &text.settings) {
            Some(_) => {
                let most = c.take_f32("clip.most", &[text.graph.input])?;
                Some(RangePenalty::from_values(most).ok_or_else(|| wrong("an input reaches nowhere"))?)
            }
            None => None,
        };
        // Only explanations need them, and older files have none.
        let centers = match c.shape(CENTRES).ok().map(<[usize]>::to_vec) {
            Some(shape) if shape.last() == Some(&text.graph.input) => {
                let means = c.take_f32(CENTRES, &shape)?;
                let centers = Centers::from_values(means, text.graph.input, text.classes.len());
                Some(centers.ok_or_else(|| wrong("the means are of other classes"))?)
            }
            _ => None,
        };
        let count = text.members.len();
        let usual = match ScoreScale::needed(count, reach.is_some()) {
            true => c.take_f64("calibration.members", &[count, 2])?,
            false => vec![0.0, 1.0],
        };
        if usual.iter().any(|v| !v.is_finite()) || usual.chunks_exact(2).any(|u| u[1] <= 0.0) {
            return Err(wrong("a member's confidences have no deviation"));
        }
        let mut members = Vec::new();
        for (m, described) in text.members.into_iter().enumerate() {
            if described.epoch.is_some_and(|e| e >= described.history.len()) {
                return Err(wrong("the epoch that was kept is not in the history"));
            }
            let mut fill = |params: &mut Params| -> Result<()> {
                for i in 0..params.specs().len() {
                    let spec = params.specs()[i].clone();
                    params.set(i, &c.take_f32(&tensor(m, &spec), &spec.shape)?)?;
                }
                Ok(())
            };
            let mut params = Params::new(net_specs.clone());
            fill(&mut params)?;
            let mut head = text.settings.head.build(classes, latent, &mut Stream::new(0, "load"));
            fill(head.params_mut())?;
            let net = default_engine().network(&text.graph, &params)?;
            let usual = ScoreScale { mean: usual[2 * m], deviation: usual[2 * m + 1] };
            let (history, epoch) = (described.history, described.epoch);
            let mut member = ModelMember { net, head, history, epoch, probe: None, usual };
            let mut store = Store::new(&mut c, format!("members.{m}.detector."));
            member.probe = Probe::load(&text.settings.detector, member.host(), &mut store)?;
            if member.classes() != 0 && member.classes() != text.classes.len() {
                return Err(wrong("the detector has other classes"));
            }
            members.push(member);
        }
        let scores = c.take_f64("calibration.confidence", &[text.held_out_rows])?;
        if let Some(name) = c.tensors.keys().next() {
            return Err(wrong(&format!("tensor {name} belongs to nothing")));
        }
        Ok(Model {
            schema: text.schema,
            classes: text.classes,
            graph: text.graph,
            members,
            reach,
            centers,
            calibration: Calibration::new(scores)?,
            accuracy: text.validation_accuracy,
            settings: text.settings,
            rows: text.rows,
            findings: text.findings,
            version: text.version,
        })
    }
}
