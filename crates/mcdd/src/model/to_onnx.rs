//! A model as an ONNX file: from raw columns or bytes of images to the verdict.

use serde_json::json;

use super::class_scale::ClassScale;
use super::range_penalty::RangePenalty;
use super::{Model, ModelMember, Share};
use crate::data::OnnxInputs;
use crate::error::Result;
use crate::onnx::{Builder, Dim, Type, Value, search_table};

/// The outputs.
const OUTPUTS: [&str; 6] = ["class", "probabilities", "score", "p_value", "known", "label"];

/// The label of a row that is not known.
const UNKNOWN: &str = "unknown";
/// The label of a row that is known, if the model does not classify.
const KNOWN: &str = "known";

/// Scores of another runtime may be lower by this part of the calibration scores' interquartile range without effect.
const ROUNDING: f64 = 1e-6;

/// A calibration score, a little lower: a runtime adds up the products of a network in another order, and a calibration row that it
/// scores again shall have its own p-value and verdict.
fn lowered(score: f64, calibration: &[f64]) -> f64 {
    let at = |part: usize| calibration[part * (calibration.len() - 1) / 4];
    // Scores that are all the same, and sums that are almost zero, have the rounding of their terms.
    score - (ROUNDING * (at(3) - at(1))).max(1e-14 * score.abs().max(1.0))
}

/// What an ONNX file contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnnxOptions {
    /// Only operators of the standard domain, and no texts: categories are given by their index, and there is no `label`.
    pub core: bool,
    /// The fraction of in-distribution rows to keep; that of the settings by default.
    pub tpr: Option<f64>,
    /// Whether the threshold is fixed; else it is an input, and its value if it is not given is that for `tpr`.
    pub fixed: bool,
}

impl Model {
    /// The model as the bytes of an ONNX file, which gives for raw rows what [`Model::predict`] gives. `docs/guide/onnx.md`
    /// lists its inputs and outputs.
    ///
    /// # Errors
    /// If the detector needs gradients, the fraction is not between 0 and 1, or the file would be too large.
    pub fn to_onnx(&self, options: &OnnxOptions) -> Result<Vec<u8>> {
        let threshold = self.threshold_at(options.tpr)?;
        let mut graph = Builder::new();
        let g = &mut graph;
        let scores = self.calibration.scores();
        let lowered = |score: f64| lowered(score, scores);
        // First, so that no column takes their names.
        g.reserve(&OUTPUTS);
        let limit = match options.fixed {
            true => g.constant(&[1], &[lowered(threshold.confidence)]),
            false => g.input_with_default("threshold", lowered(threshold.confidence)),
        };
        let OnnxInputs { x, columns } = self.schema.to_onnx(g, !options.core)?;
        let x = match &self.embedding {
            Some(embedding) => embedding.to_onnx(g, x)?,
            None => x,
        };
        let (score, probabilities) = self.ensemble_to_onnx(g, x)?;
        let class = probabilities.map(|p| g.argmax(p));
        let score = match class {
            Some(class) if !self.class_scales.is_empty() => class_scales_to_onnx(&self.class_scales, g, score, class),
            _ => score,
        };
        let steps: Vec<f64> = scores.iter().map(|&score| lowered(score)).collect();
        let table = search_table([&steps[..]].into_iter(), steps.len());
        let table = g.constant(&[table.len()], &table);
        let below = g.count_at_most(score, table, scores.len(), None);
        let below = g.cast(below, Type::F64);
        let rank = g.shift(below, 1.0);
        let count = g.number((scores.len() + 1) as f64);
        let p_value = g.op("Div", &[rank, count]);
        let known = g.op("GreaterOrEqual", &[score, limit]);

        let classes = self.n_classes();
        if let (Some(class), Some(probabilities)) = (class, probabilities) {
            g.output("class", class, Type::I64, &[Dim::Rows]);
            g.output("probabilities", probabilities, Type::F64, &[Dim::Rows, Dim::Size(classes)]);
        }
        g.output("score", score, Type::F64, &[Dim::Rows]);
        g.output("p_value", p_value, Type::F64, &[Dim::Rows]);
        g.output("known", known, Type::Bool, &[Dim::Rows]);
        if !options.core {
            let names: Vec<&str> = match class {
                Some(_) => self.classes.iter().map(String::as_str).collect(),
                None => vec![KNOWN],
            };
            let last = g.constant_i64(&[1], &[names.len() as i64]);
            let own = class.unwrap_or_else(|| g.constant_i64(&[1], &[0]));
            let at = g.op("Where", &[known, own, last]);
            let names: Vec<&str> = names.into_iter().chain([UNKNOWN]).collect();
            let names = g.constant_texts(&names);
            let label = g.op("Gather", &[names, at]);
            g.output("label", label, Type::Text, &[Dim::Rows]);
        }
        let metadata = [
            ("mcdd.version", self.version.clone()),
            ("mcdd.method", self.settings.head.name().to_owned()),
            ("mcdd.detector", self.settings.detector.detector.name().to_owned()),
            ("mcdd.classes", json!(if classes > 0 { &self.classes[..] } else { &[] }).to_string()),
            ("mcdd.inputs", json!(columns).to_string()),
            ("mcdd.threshold", json!({ "confidence": threshold.confidence, "tpr": threshold.wanted }).to_string()),
        ];
        graph.finish("mcdd", &metadata)
    }

    /// The score of each row before calibration by class, and the probabilities if it classifies.
    fn ensemble_to_onnx(&self, g: &mut Builder, x: Value) -> Result<(Value, Option<Value>)> {
        let (mut score, mut probabilities): (Option<Value>, Option<Value>) = (None, None);
        let add = |g: &mut Builder, sum: Option<Value>, x: Value, weight: f64| {
            let part = g.scale(x, weight);
            Some(sum.map_or(part, |sum| g.op("Add", &[sum, part])))
        };
        for member in &self.members {
            let share = Share::of(member, self.members.iter());
            if member.role.for_class {
                let layers = member.net.to_onnx(g, x)?;
                let z = g.cast(*layers.last().unwrap_or(&x), Type::F64);
                if let Some(logits) = member.head.to_onnx(g, z)?.logits {
                    let own = g.softmax(logits, self.n_classes());
                    probabilities = add(g, probabilities, own, share.posterior);
                }
                continue;
            }
            let (confidence, logits) = member_to_onnx(member, share.posterior > 0.0, g, x)?;
            let (mean, deviation) = (g.number(member.scale.mean), g.number(member.scale.deviation));
            let centered = g.op("Sub", &[confidence, mean]);
            let standard = g.op("Div", &[centered, deviation]);
            score = add(g, score, standard, share.confidence);
            if let Some(logits) = logits {
                let own = g.softmax(logits, self.n_classes());
                probabilities = add(g, probabilities, own, share.posterior);
            }
        }
        let probabilities = match probabilities {
            Some(p) if self.sharpness != 1.0 => Some(sharpness_to_onnx(self.sharpness, g, p)),
            p => p,
        };
        let mut score = score.unwrap_or(x);
        if let Some(range) = &self.range_penalty {
            let penalty = penalty_to_onnx(range, g, x);
            score = g.op("Sub", &[score, penalty]);
        }
        let lowest = g.number(f64::MIN);
        Ok((g.finite_or(score, lowest), probabilities))
    }
}

/// The confidence of a member before it is standardized, and its logits if it classifies and these are wanted.
fn member_to_onnx(member: &ModelMember, classifies: bool, g: &mut Builder, x: Value) -> Result<(Value, Option<Value>)> {
    let layers = member.net.to_onnx(g, x)?;
    let z = g.cast(*layers.last().unwrap_or(&x), Type::F64);
    match &member.probe {
        None => {
            let own = member.head.to_onnx(g, z)?;
            Ok((own.confidence, own.logits.filter(|_| classifies)))
        }
        Some(probe) => probe.to_onnx(g, member.host(), classifies, x, &layers, z),
    }
}

/// [`sharpness::apply`](super::sharpness::apply).
fn sharpness_to_onnx(sharpness: f64, g: &mut Builder, probabilities: Value) -> Value {
    let largest = g.reduce("ReduceMax", probabilities, true);
    let ratio = g.op("Div", &[probabilities, largest]);
    let exponent = g.number(sharpness);
    let power = g.op("Pow", &[ratio, exponent]);
    let sum = g.reduce("ReduceSum", power, true);
    g.op("Div", &[power, sum])
}

/// [`RangePenalty::penalty`].
fn penalty_to_onnx(range: &RangePenalty, g: &mut Builder, x: Value) -> Value {
    let limits = g.constant_f32(&[1, range.limits().len()], range.limits());
    let size = g.op("Abs", &[x]);
    let ratio = g.op("Div", &[size, limits]);
    let ratio = g.reduce("ReduceMax", ratio, false);
    let ratio = g.cast(ratio, Type::F64);
    let ratio = g.at_least(ratio, 1.0);
    let log = g.op("Log", &[ratio]);
    g.scale(log, RangePenalty::WEIGHT)
}

/// [`ClassScale::map`] of each row's class.
fn class_scales_to_onnx(scales: &[ClassScale], g: &mut Builder, score: Value, class: Value) -> Value {
    let longest = scales.iter().map(ClassScale::len).max().unwrap_or(0);
    let points = |scale: &ClassScale, part: usize| -> Vec<f64> { scale.values().skip(part).step_by(2).collect() };
    let own: Vec<Vec<f64>> = scales.iter().map(|scale| points(scale, 0)).collect();
    let table = search_table(own.iter().map(Vec::as_slice), longest);
    let table = g.constant(&[table.len()], &table);
    let place = g.count_at_most(score, table, longest, Some(class));
    // For each class and place: the points below and above. Outside of the points the map keeps its distance to the outermost:
    // there both of them are this point, and a class without points keeps its confidences.
    let (mut low, mut span, mut to, mut rise) = (vec![], vec![], vec![], vec![]);
    for scale in scales {
        let (from, onto) = (points(scale, 0), points(scale, 1));
        for at in 0..=longest {
            let (below, above) = (at.checked_sub(1), Some(at).filter(|&at| at < from.len()));
            let between = below.zip(above).filter(|(_, above)| *above > 0);
            match between {
                Some((below, above)) => {
                    low.push(from[below]);
                    to.push(onto[below]);
                    span.push(from[above] - from[below]);
                    rise.push(onto[above] - onto[below]);
                }
                None => {
                    let outermost = if at == 0 { from.first().zip(onto.first()) } else { from.last().zip(onto.last()) };
                    let (from, onto) = outermost.unwrap_or((&0.0, &0.0));
                    low.push(*from);
                    to.push(*onto);
                    span.push(0.0);
                    rise.push(0.0);
                }
            }
        }
    }
    let places = g.constant_i64(&[1], &[longest as i64 + 1]);
    let first = g.op("Mul", &[class, places]);
    let at = g.op("Add", &[first, place]);
    let [low, span, to, rise] = [low, span, to, rise].map(|values| {
        let table = g.constant(&[values.len()], &values);
        g.op("Gather", &[table, at])
    });
    let beyond = g.op("Sub", &[score, low]);
    let (zero, one) = (g.number(0.0), g.number(1.0));
    let fraction = g.op("Div", &[beyond, span]);
    let fraction = g.op("Clip", &[fraction, zero, one]);
    let inside = g.op("Mul", &[rise, fraction]);
    let is_inside = g.op("Greater", &[span, zero]);
    let step = g.op("Where", &[is_inside, inside, beyond]);
    let moved = g.op("Add", &[to, step]);
    g.finite_or(moved, score)
}
