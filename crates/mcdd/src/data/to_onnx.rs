//! Preprocessing as a graph of ONNX: from raw columns, or the bytes of images, to the inputs of a network.

use std::collections::HashSet;

use serde::Serialize;

use super::form::Form;
use super::images::ImageSpec;
use super::schema::{CLAMP, ColumnKind, Schema, SchemaColumn};
use super::time::Cycle;
use crate::error::{Error, Result};
use crate::onnx::{Attribute, Builder, Dim, Type, Value};

/// The texts that count as a missing cell of a category.
const MISSING_TEXTS: [&str; 21] = [
    "", "?", "NA", "#NA", "N/A", "n/a", "#N/A", "<NA>", "nan", "naN", "nAn", "nAN", "Nan", "NaN", "NAn", "NAN", "null",
    "NULL", "None", " ", "\t",
];

/// The most columns that are given as inputs of their own.
const MAX_INPUTS: usize = 4096;

/// An input of the graph, for programs that call it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InputColumn {
    /// The name of the input.
    pub(crate) input: String,
    /// The column of the training data.
    pub(crate) column: String,
    /// What it takes: `number`, `seconds`, `text`, or `code`, which is the index of a category.
    pub(crate) takes: &'static str,
    /// The words for 0 and 1, if the column has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<[String; 2]>,
    /// The categories, in the order of their codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) categories: Option<Vec<String>>,
}

/// The inputs of a network, and what they are computed from.
pub(crate) struct OnnxInputs {
    /// In f32, `[rows, inputs]`.
    pub(crate) x: Value,
    /// The inputs of the graph.
    pub(crate) columns: Vec<InputColumn>,
}

impl Schema {
    /// Writes the preprocessing into a graph. A table whose columns have names has an input `[rows, 1]` for each of them, unless
    /// it is not used; other tables of numbers have one input `x`, `[rows, columns]`. Images are `image`, bytes as
    /// `[rows, height, width, channels]`. Without `texts`, categories are given by their index, -1 for a missing cell.
    ///
    /// # Errors
    /// If there are more columns than a graph should have inputs.
    pub(crate) fn to_onnx(&self, graph: &mut Builder, texts: bool) -> Result<OnnxInputs> {
        if let Some(image) = &self.image {
            return Ok(OnnxInputs { x: image_to_onnx(image, graph), columns: Vec::new() });
        }
        let mut parts = Parts::default();
        let numbers = self.columns.iter().all(|c| !matches!(c.kind, ColumnKind::Categorical { .. }));
        if !self.named && numbers {
            let x = graph.input("x", Type::F64, &[Dim::Rows, Dim::Size(self.columns.len())]);
            parts.matrix(graph, x, &self.columns);
        } else {
            let used = || self.columns.iter().filter(|c| c.kind.width() > 0);
            if used().count() > MAX_INPUTS {
                return Err(Error::setting(format!(
                    "the model has {} columns with names, and a graph with an input for each has at most {MAX_INPUTS}",
                    used().count()
                ))
                .hint("train on a table without column names, whose columns are one input"));
            }
            for column in used() {
                parts.column(graph, column, texts);
            }
        }
        Ok(parts.finish(graph, &self.columns))
    }
}

/// The inputs of a network by kind, so that all numbers are standardized together.
#[derive(Default)]
struct Parts {
    /// Numbers and times, each `[rows, n]`.
    numbers: Vec<Value>,
    /// What the other inputs of a column are computed from.
    others: Vec<Other>,
    inputs: Vec<InputColumn>,
    statistics: Vec<(f64, f64)>,
}

/// Where a column's inputs come from.
enum Other {
    /// The number with this index, and its cycles and indicator.
    Number(usize),
    /// The code of each row's category, `[rows, 1]`.
    Code(Value),
    /// Not used.
    None,
}

impl Parts {
    fn statistics_of(kind: &ColumnKind) -> Option<(f64, f64)> {
        match *kind {
            ColumnKind::Numeric { mean, std, .. } | ColumnKind::Time { mean, std, .. } => Some((mean, std)),
            _ => None,
        }
    }

    /// All columns in one input.
    fn matrix(&mut self, graph: &mut Builder, x: Value, columns: &[SchemaColumn]) {
        let mut chosen = Vec::new();
        for (i, column) in columns.iter().enumerate() {
            match Self::statistics_of(&column.kind) {
                Some(statistics) => {
                    self.others.push(Other::Number(self.statistics.len()));
                    self.statistics.push(statistics);
                    chosen.push(i as i64);
                }
                None => self.others.push(Other::None),
            }
        }
        self.numbers.push(match chosen.len() == columns.len() {
            true => x,
            false => gather_columns(graph, x, &chosen),
        });
        self.inputs.push(InputColumn {
            input: graph.name(x).to_owned(),
            column: "all columns, in their order".into(),
            takes: "number",
            words: None,
            categories: None,
        });
    }

    /// An input of its own.
    fn column(&mut self, graph: &mut Builder, column: &SchemaColumn, texts: bool) {
        let dims = [Dim::Rows, Dim::Size(1)];
        let described = |graph: &Builder, value: Value, takes, categories| InputColumn {
            input: graph.name(value).to_owned(),
            column: column.name.clone(),
            takes,
            words: match &column.form {
                Some(Form::Boolean(words)) => Some(words.words().map(str::to_owned)),
                _ => None,
            },
            categories,
        };
        match &column.kind {
            ColumnKind::Dropped { .. } => {}
            ColumnKind::Numeric { mean, std, .. } | ColumnKind::Time { mean, std, .. } => {
                let value = graph.input(&column.name, Type::F64, &dims);
                let takes = if matches!(column.kind, ColumnKind::Time { .. }) { "seconds" } else { "number" };
                self.inputs.push(described(graph, value, takes, None));
                self.others.push(Other::Number(self.statistics.len()));
                self.statistics.push((*mean, *std));
                self.numbers.push(value);
            }
            ColumnKind::Categorical { categories, other, .. } => {
                let known = Some(categories.clone());
                // The place after the last is for other texts, if there is one; then comes that for missing cells.
                let missing = categories.len() as i64 + i64::from(*other);
                let code = if texts {
                    let value = graph.input(&column.name, Type::Text, &dims);
                    self.inputs.push(described(graph, value, "text", known));
                    let own: HashSet<&str> = categories.iter().map(String::as_str).collect();
                    let keys = categories.iter().map(String::as_str).zip(0..);
                    let gone = MISSING_TEXTS.into_iter().filter(|text| !own.contains(text)).map(|text| (text, missing));
                    let (keys, values) = keys.chain(gone).map(|(text, code)| (text.to_owned(), code)).unzip();
                    let unseen = if *other { categories.len() as i64 } else { -1 };
                    graph.encode_texts(value, keys, values, unseen)
                } else {
                    let value = graph.input(&column.name, Type::I64, &dims);
                    self.inputs.push(described(graph, value, "code", known));
                    // A missing cell is -1, and every other code without a category is another text.
                    let [gone, first, last] =
                        [-1, 0, categories.len() as i64].map(|v| graph.constant_i64(&[1, 1], &[v]));
                    let is_missing = graph.op("Equal", &[value, gone]);
                    let missing = graph.constant_i64(&[1, 1], &[missing]);
                    let unseen = if *other { last } else { gone };
                    let below = graph.op("Less", &[value, last]);
                    let above = graph.op("GreaterOrEqual", &[value, first]);
                    let is_known = graph.op("And", &[below, above]);
                    let code = graph.op("Where", &[is_known, value, unseen]);
                    graph.op("Where", &[is_missing, missing, code])
                };
                self.others.push(Other::Code(code));
            }
        }
    }

    /// The inputs of the network in their order.
    fn finish(self, graph: &mut Builder, columns: &[SchemaColumn]) -> OnnxInputs {
        let Parts { numbers, others, inputs, statistics } = self;
        let used = columns.iter().filter(|c| c.kind.width() > 0);
        let kinds: Vec<&ColumnKind> = used.map(|c| &c.kind).collect();
        let others: Vec<Other> = others.into_iter().filter(|o| !matches!(o, Other::None)).collect();
        let mut blocks = Vec::new();
        // Of each input of the network, in the order in which they are computed: its place.
        let mut places = Vec::new();
        let mut firsts = Vec::new();
        let mut at = 0;
        for kind in &kinds {
            firsts.push(at);
            at += kind.width() as i64;
        }
        if !numbers.is_empty() {
            let raw = graph.concat(&numbers, 1);
            let count = statistics.len();
            let (means, deviations): (Vec<f64>, Vec<f64>) = statistics.into_iter().unzip();
            let [means, deviations] = [means, deviations].map(|values| graph.constant(&[1, count], &values));
            let missing = graph.op("IsNaN", &[raw]);
            let centered = graph.op("Sub", &[raw, means]);
            let scaled = graph.op("Div", &[centered, deviations]);
            let [low, high, zero] = [-CLAMP, CLAMP, 0.0].map(|v| graph.number(v));
            let clipped = graph.op("Clip", &[scaled, low, high]);
            let present = graph.op("Where", &[missing, zero, clipped]);
            blocks.push(graph.cast(present, Type::F32));
            places.extend(others.iter().zip(&firsts).filter(|(o, _)| matches!(o, Other::Number(_))).map(|(_, f)| *f));
            let indicators: Vec<(i64, i64)> = others
                .iter()
                .zip(&kinds)
                .zip(&firsts)
                .filter_map(|((other, kind), first)| match (other, kind) {
                    (Other::Number(i), ColumnKind::Numeric { indicator: true, .. }) => Some((*i as i64, first + 1)),
                    (Other::Number(i), ColumnKind::Time { indicator: true, cycles, .. }) => {
                        Some((*i as i64, first + 1 + 2 * cycles.len() as i64))
                    }
                    _ => None,
                })
                .collect();
            if !indicators.is_empty() {
                let (from, to): (Vec<i64>, Vec<i64>) = indicators.into_iter().unzip();
                let chosen = gather_columns(graph, missing, &from);
                blocks.push(graph.cast(chosen, Type::F32));
                places.extend(to);
            }
            for ((other, kind), first) in others.iter().zip(&kinds).zip(&firsts) {
                let (Other::Number(i), ColumnKind::Time { cycles, .. }) = (other, kind) else { continue };
                let seconds = gather_columns(graph, raw, &[*i as i64]);
                let gone = gather_columns(graph, missing, &[*i as i64]);
                for (c, cycle) in (0..).zip(cycles) {
                    for (part, value) in (0..).zip(cycle_to_onnx(*cycle, graph, seconds)) {
                        let value = graph.op("Where", &[gone, zero, value]);
                        blocks.push(graph.cast(value, Type::F32));
                        places.push(first + 1 + 2 * c + part);
                    }
                }
            }
        }
        for ((other, kind), first) in others.iter().zip(&kinds).zip(&firsts) {
            let Other::Code(code) = other else { continue };
            let codes: Vec<i64> = (0..kind.width() as i64).collect();
            places.extend(codes.iter().map(|code| first + code));
            let codes = graph.constant_i64(&[1, codes.len()], &codes);
            let own = graph.op("Equal", &[*code, codes]);
            blocks.push(graph.cast(own, Type::F32));
        }
        let all = graph.concat(&blocks, 1);
        let mut order: Vec<i64> = (0..places.len() as i64).collect();
        order.sort_by_key(|&i| places[i as usize]);
        let x = match order.is_sorted() {
            true => all,
            false => gather_columns(graph, all, &order),
        };
        OnnxInputs { x, columns: inputs }
    }
}

fn gather_columns(graph: &mut Builder, x: Value, columns: &[i64]) -> Value {
    let columns = graph.constant_i64(&[columns.len()], columns);
    graph.op_with("Gather", &[x, columns], &[("axis", Attribute::Int(1))])
}

/// Days from 0000-03-01 to 1970-01-01, and after them 7,000 times 400 years, so that no number of days is negative.
const DAYS_BEFORE: i64 = 719_468 + 7_000 * 146_097;

/// Sine and cosine of the place in a cycle, as [`Cycle::inputs`]; `seconds` are `[rows, 1]` in f64.
fn cycle_to_onnx(cycle: Cycle, graph: &mut Builder, seconds: Value) -> [Value; 2] {
    let day = graph.number(86_400.0);
    let days = graph.op("Div", &[seconds, day]);
    let days = graph.op("Floor", &[days]);
    let place = match cycle {
        Cycle::TimeOfDay => {
            let before = graph.op("Mul", &[days, day]);
            let rest = graph.op("Sub", &[seconds, before]);
            graph.op("Div", &[rest, day])
        }
        Cycle::DayOfWeek => {
            let week = graph.number(7.0);
            let days = graph.shift(days, 3.0);
            let weeks = graph.op("Div", &[days, week]);
            let weeks = graph.op("Floor", &[weeks]);
            let before = graph.op("Mul", &[weeks, week]);
            let rest = graph.op("Sub", &[days, before]);
            graph.op("Div", &[rest, week])
        }
        Cycle::DayOfYear => day_of_year_to_onnx(graph, days),
    };
    let angle = graph.scale(place, std::f64::consts::TAU);
    // Not all runtimes have the cosine in f64.
    let shifted = graph.shift(angle, std::f64::consts::FRAC_PI_2);
    [angle, shifted].map(|angle| graph.op("Sin", &[angle]))
}

/// The fraction of the year before a day, in days since 1970-01-01. Years begin in March within the computation, so that a
/// leap day is the last of its year.
fn day_of_year_to_onnx(graph: &mut Builder, days: Value) -> Value {
    fn int(graph: &mut Builder, value: i64) -> Value {
        graph.constant_i64(&[1, 1], &[value])
    }
    fn with(graph: &mut Builder, op: &str, x: Value, value: i64) -> Value {
        let value = int(graph, value);
        graph.op(op, &[x, value])
    }
    let days = graph.clamp(days, 1e9, 0.0);
    let days = graph.cast(days, Type::I64);
    let days = with(graph, "Add", days, DAYS_BEFORE);
    let of_era = with(graph, "Mod", days, 146_097);
    let [short, century, last] = [1460, 36_524, 146_096].map(|n| with(graph, "Div", of_era, n));
    let year = graph.op("Sub", &[of_era, short]);
    let year = graph.op("Add", &[year, century]);
    let year = graph.op("Sub", &[year, last]);
    let year = with(graph, "Div", year, 365);
    let [whole, leaps, centuries] = [("Mul", 365), ("Div", 4), ("Div", 100)].map(|(op, n)| with(graph, op, year, n));
    let before = graph.op("Add", &[whole, leaps]);
    let before = graph.op("Sub", &[before, centuries]);
    let of_march = graph.op("Sub", &[of_era, before]);
    // January and February belong to the next year of the calendar.
    let is_next = with(graph, "GreaterOrEqual", of_march, 306);
    let next = graph.cast(is_next, Type::I64);
    let year = graph.op("Add", &[year, next]);
    let [by_4, by_100, by_400] = [4, 100, 400].map(|n| {
        let rest = with(graph, "Mod", year, n);
        with(graph, "Equal", rest, 0)
    });
    let common = graph.op("Not", &[by_100]);
    let kept = graph.op("Or", &[common, by_400]);
    let leap = graph.op("And", &[by_4, kept]);
    let leap = graph.cast(leap, Type::I64);
    let early = with(graph, "Sub", of_march, 306);
    let late = with(graph, "Add", of_march, 59);
    let late = graph.op("Add", &[late, leap]);
    let day = graph.op("Where", &[is_next, early, late]);
    let length = with(graph, "Add", leap, 365);
    let [day, length] = [day, length].map(|v| graph.cast(v, Type::F64));
    graph.op("Div", &[day, length])
}

/// Bytes to normalized values, as [`ImageSpec::transform_into`].
fn image_to_onnx(spec: &ImageSpec, graph: &mut Builder) -> Value {
    let sides = [spec.height, spec.width, spec.channels];
    let dims = [Dim::Rows, Dim::Size(sides[0]), Dim::Size(sides[1]), Dim::Size(sides[2])];
    let bytes = graph.input("image", Type::U8, &dims);
    let values = graph.cast(bytes, Type::F64);
    let most = graph.number(255.0);
    let fraction = graph.op("Div", &[values, most]);
    let [mean, std] =
        [&spec.mean, &spec.std].map(|values| graph.constant(&[spec.channels], &crate::onnx::wide(values)));
    let centered = graph.op("Sub", &[fraction, mean]);
    let scaled = graph.op("Div", &[centered, std]);
    let scaled = graph.cast(scaled, Type::F32);
    let row = graph.constant_i64(&[2], &[0, sides.iter().product::<usize>() as i64]);
    graph.op("Reshape", &[scaled, row])
}

#[cfg(test)]
mod tests {
    use super::super::number;
    use super::*;

    #[test]
    fn missing_texts_are_those_of_the_readers() {
        for text in MISSING_TEXTS {
            assert!(number::is_missing(text.trim().as_bytes()), "{text:?}");
        }
        assert_eq!(MISSING_TEXTS.iter().collect::<HashSet<_>>().len(), MISSING_TEXTS.len());
    }
}
