//! Writing ONNX: a graph of operators with its constants, as one file.
//!
//! A [`Builder`] collects nodes. Each call returns the [`Value`] that its node computes, to be used by others. Heads and
//! detectors write their formulas with it ([`Head::to_onnx`](crate::head::Head::to_onnx),
//! [`Detector::to_onnx`](crate::detector::Detector::to_onnx)); [`Model::to_onnx`](crate::model::Model::to_onnx) writes the
//! whole model. Files have opset 21 and IR version 10.
//!
//! Formulas are in f64 ([`Builder::constant`]), as they are at prediction; networks are in f32.
//!
//! ```
//! use mcdd::onnx::{Builder, Dim, Type};
//!
//! let mut graph = Builder::new();
//! let x = graph.input("x", Type::F64, &[Dim::Rows, Dim::Size(2)]);
//! let weight = graph.constant(&[2, 1], &[0.5, 0.25]);
//! let y = graph.op("MatMul", &[x, weight]);
//! graph.output("y", y, Type::F64, &[Dim::Rows, Dim::Size(1)]);
//! assert!(graph.finish("example", &[])?.len() > 100);
//! # Ok::<(), mcdd::Error>(())
//! ```

mod blocks;
mod fields;
mod formulas;
pub(crate) mod read;
mod wire;

use std::collections::{HashMap, HashSet};

pub use self::formulas::{search_table, wide};

use self::wire::Message;
use crate::error::{Error, Result};

/// The version of the standard operators.
const OPSET: i64 = 21;
/// The version of the file format.
const IR: i64 = 10;
/// The version of the operators on texts.
const ML_OPSET: i64 = 3;
/// The domain of the operators on texts.
const ML: &str = "ai.onnx.ml";
/// The largest file: protocol buffers have no more.
const MAX_BYTES: usize = (1 << 31) - 1;
/// Constants up to this number of bytes are stored once.
const SHARED: usize = 64;

/// A value in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(usize);

/// The type of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Numbers of 32 bits.
    F32 = 1,
    /// Bytes.
    U8 = 2,
    /// Integers of 64 bits.
    I64 = 7,
    /// Texts.
    Text = 8,
    /// True or false.
    Bool = 9,
    /// Numbers of 64 bits.
    F64 = 11,
}

/// A dimension of an input or an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// The number of rows, which each run chooses.
    Rows,
    /// A fixed size.
    Size(usize),
}

/// An attribute of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// Integers.
    Ints(Vec<i64>),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
}

/// What a detector scores.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// The features in f64, `[rows, width]`; the detector has asked for them in its needs.
    pub features: Option<Value>,
    /// The logits in f64, `[rows, classes]`, if they are asked for.
    pub logits: Option<Value>,
    /// The number of classes of the logits.
    pub classes: usize,
}

impl Features {
    /// The features.
    ///
    /// # Errors
    /// If there are none.
    pub fn features(&self) -> Result<Value> {
        self.features.ok_or_else(|| Error::setting("the detector needs features"))
    }

    /// The logits.
    ///
    /// # Errors
    /// If there are none.
    pub fn logits(&self) -> Result<Value> {
        self.logits.ok_or_else(|| Error::setting("the detector needs logits"))
    }
}

/// What a head or a detector gives for each row.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// The confidence in f64, `[rows]`.
    pub confidence: Value,
    /// The logits in f64, `[rows, classes]`, if it classifies.
    pub logits: Option<Value>,
}

/// A graph that is being written.
#[derive(Debug, Default)]
pub struct Builder {
    /// The name of each value.
    names: Vec<String>,
    taken: HashSet<String>,
    /// The nodes of the graph, and after them those of the graphs within it that are being written.
    nodes: Vec<Message>,
    constants: Message,
    inputs: Message,
    outputs: Message,
    shared: HashMap<(Type, Vec<usize>, Vec<u8>), Value>,
    texts: bool,
}

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder { nodes: vec![Message::default()], ..Builder::default() }
    }

    /// An input. Its name is the given one, unless that is taken or empty, or contains a NUL; [`Builder::name`] tells.
    pub fn input(&mut self, name: &str, of: Type, dims: &[Dim]) -> Value {
        let value = self.named(name);
        self.inputs.message(11, &self.described(value, of, dims));
        value
    }

    /// An input of one number in f64, with a value for runs that do not give it.
    pub fn input_with_default(&mut self, name: &str, default: f64) -> Value {
        let value = self.input(name, Type::F64, &[Dim::Size(1)]);
        self.store(value, Type::F64, &[1], &default.to_le_bytes());
        value
    }

    /// Makes a value an output. The name must have been reserved.
    pub fn output(&mut self, name: &str, value: Value, of: Type, dims: &[Dim]) {
        let out = Value(self.names.len());
        self.names.push(name.to_owned());
        self.taken.insert(name.to_owned());
        self.node("Identity", "", &[value], &[out], &[]);
        self.outputs.message(12, &self.described(out, of, dims));
    }

    /// Keeps names for outputs: no other value gets them.
    pub fn reserve(&mut self, names: &[&str]) {
        self.taken.extend(names.iter().map(|&name| name.to_owned()));
    }

    /// The name of a value.
    pub fn name(&self, value: Value) -> &str {
        &self.names[value.0]
    }

    /// A new value with this name, or one that begins with it if it is taken.
    fn named(&mut self, wanted: &str) -> Value {
        // Runtimes take names as C strings, and an empty name is no value.
        let wanted = if wanted.is_empty() { "input".to_owned() } else { wanted.replace('\0', "\u{fffd}") };
        let mut name = wanted.clone();
        let mut n = 2;
        while self.taken.contains(&name) {
            name = format!("{wanted} ({n})");
            n += 1;
        }
        self.taken.insert(name.clone());
        self.names.push(name);
        Value(self.names.len() - 1)
    }

    fn fresh(&mut self) -> Value {
        self.named(&format!("v{}", self.names.len()))
    }

    /// Name, type and shape.
    fn described(&self, value: Value, of: Type, dims: &[Dim]) -> Message {
        let mut shape = Message::default();
        for dim in dims {
            let mut one = Message::default();
            match dim {
                Dim::Rows => one.bytes(2, b"rows"),
                Dim::Size(n) => one.int(1, *n as i64),
            }
            shape.message(1, &one);
        }
        let mut tensor = Message::default();
        tensor.int(1, of as i64);
        tensor.message(2, &shape);
        let mut kind = Message::default();
        kind.message(1, &tensor);
        let mut info = Message::default();
        info.bytes(1, self.name(value).as_bytes());
        info.message(2, &kind);
        info
    }

    /// The name, type and shape of a constant, without its elements.
    fn constant_header(&self, value: Value, of: Type, dims: &[usize]) -> Message {
        let mut header = Message::default();
        dims.iter().for_each(|&d| header.int(1, d as i64));
        header.int(2, of as i64);
        header.bytes(8, self.name(value).as_bytes());
        header
    }

    fn store(&mut self, value: Value, of: Type, dims: &[usize], raw: &[u8]) {
        let mut tensor = self.constant_header(value, of, dims);
        tensor.begin(9, raw.len());
        self.constants.begin(5, tensor.0.len() + raw.len());
        self.constants.0.extend_from_slice(&tensor.0);
        self.constants.0.extend_from_slice(raw);
    }

    fn raw(&mut self, of: Type, dims: &[usize], raw: Vec<u8>) -> Value {
        let key = (of, dims.to_vec(), raw);
        if let Some(&value) = self.shared.get(&key) {
            return value;
        }
        let value = self.fresh();
        self.store(value, of, dims, &key.2);
        if key.2.len() <= SHARED {
            self.shared.insert(key, value);
        }
        value
    }

    /// A constant in f64.
    pub fn constant(&mut self, dims: &[usize], values: &[f64]) -> Value {
        self.raw(Type::F64, dims, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A constant in f32.
    pub fn constant_f32(&mut self, dims: &[usize], values: &[f32]) -> Value {
        self.raw(Type::F32, dims, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A constant that is stored in f32 and used in f64.
    pub fn constant_wide(&mut self, dims: &[usize], values: &[f32]) -> Value {
        let narrow = self.constant_f32(dims, values);
        self.cast(narrow, Type::F64)
    }

    /// Constant integers.
    pub fn constant_i64(&mut self, dims: &[usize], values: &[i64]) -> Value {
        self.raw(Type::I64, dims, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// One number in f64.
    pub fn number(&mut self, value: f64) -> Value {
        self.constant(&[], &[value])
    }

    /// A constant list of texts.
    pub fn constant_texts(&mut self, values: &[&str]) -> Value {
        let value = self.fresh();
        let mut tensor = self.constant_header(value, Type::Text, &[values.len()]);
        values.iter().for_each(|text| tensor.bytes(6, text.as_bytes()));
        self.constants.message(5, &tensor);
        value
    }

    /// A node with one output and no attributes.
    pub fn op(&mut self, name: &str, inputs: &[Value]) -> Value {
        self.op_with(name, inputs, &[])
    }

    /// A node with one output.
    pub fn op_with(&mut self, name: &str, inputs: &[Value], attributes: &[(&str, Attribute)]) -> Value {
        let [out] = self.ops(name, inputs, attributes);
        out
    }

    /// A node with several outputs.
    pub fn ops<const N: usize>(
        &mut self,
        name: &str,
        inputs: &[Value],
        attributes: &[(&str, Attribute)],
    ) -> [Value; N] {
        let outputs = std::array::from_fn(|_| self.fresh());
        self.node(name, "", inputs, &outputs, attributes);
        outputs
    }

    /// Texts to integers by `ai.onnx.ml.LabelEncoder`; `other` for all other texts.
    pub fn encode_texts(&mut self, texts: Value, keys: Vec<String>, values: Vec<i64>, other: i64) -> Value {
        self.texts = true;
        let out = self.fresh();
        let attributes = [
            ("keys_strings", Attribute::Texts(keys)),
            ("values_int64s", Attribute::Ints(values)),
            ("default_int64", Attribute::Int(other)),
        ];
        self.node("LabelEncoder", ML, &[texts], &[out], &attributes);
        out
    }

    /// Resizes two axes of images to these sizes: linearly, with half-pixel centers.
    pub(crate) fn resize(&mut self, x: Value, axes: [i64; 2], sizes: [usize; 2]) -> Value {
        // Not all runtimes resize some axes alone, so the others get the size that they have.
        let shape = self.op("Shape", &[x]);
        let wanted = self.constant_i64(&[2], &sizes.map(|s| s as i64));
        let part = |graph: &mut Builder, axes: std::ops::Range<i64>| {
            let axes: Vec<i64> = axes.collect();
            let at = graph.constant_i64(&[axes.len()], &axes);
            graph.op("Gather", &[shape, at])
        };
        let mut parts = vec![part(self, 0..axes[0]), wanted];
        if axes[1] < 3 {
            parts.push(part(self, axes[1] + 1..4));
        }
        let sizes = self.op_with("Concat", &parts, &[("axis", Attribute::Int(0))]);
        let (out, mut node) = (self.fresh(), Message::default());
        // The second and third inputs are not given.
        for name in [self.name(x), "", "", self.name(sizes)] {
            node.bytes(1, name.as_bytes());
        }
        node.bytes(2, self.name(out).as_bytes());
        node.bytes(4, b"Resize");
        let attributes = [
            ("coordinate_transformation_mode", Attribute::Text("half_pixel".into())),
            ("mode", Attribute::Text("linear".into())),
        ];
        attributes.iter().for_each(|(name, value)| node.message(5, &attribute(name, value)));
        if let Some(nodes) = self.nodes.last_mut() {
            nodes.message(1, &node);
        }
        out
    }

    fn node(&mut self, op: &str, domain: &str, inputs: &[Value], outputs: &[Value], attributes: &[(&str, Attribute)]) {
        let attributes: Vec<Message> = attributes.iter().map(|(name, value)| attribute(name, value)).collect();
        self.encoded_node(op, domain, inputs, outputs, &attributes);
    }

    fn encoded_node(&mut self, op: &str, domain: &str, inputs: &[Value], outputs: &[Value], attributes: &[Message]) {
        let mut node = Message::default();
        inputs.iter().for_each(|&value| node.bytes(1, self.name(value).as_bytes()));
        outputs.iter().for_each(|&value| node.bytes(2, self.name(value).as_bytes()));
        node.bytes(4, op.as_bytes());
        attributes.iter().for_each(|a| node.message(5, a));
        if !domain.is_empty() {
            node.bytes(7, domain.as_bytes());
        }
        if let Some(nodes) = self.nodes.last_mut() {
            nodes.message(1, &node);
        }
    }

    /// The file, with texts about the model by name.
    ///
    /// # Errors
    /// If it is larger than an ONNX file can be.
    pub fn finish(self, name: &str, metadata: &[(&str, String)]) -> Result<Vec<u8>> {
        let Builder { nodes, constants, inputs, outputs, texts, .. } = self;
        let mut name_field = Message::default();
        name_field.bytes(2, name.as_bytes());
        let parts: Vec<Message> = nodes.into_iter().chain([name_field, constants, inputs, outputs]).collect();
        let length: usize = parts.iter().map(|p| p.0.len()).sum();
        let mut model = Message::default();
        model.int(1, IR);
        model.bytes(2, b"mcdd");
        model.bytes(3, env!("CARGO_PKG_VERSION").as_bytes());
        let domains = [("", OPSET)].into_iter().chain(texts.then_some((ML, ML_OPSET)));
        for (domain, version) in domains {
            let mut opset = Message::default();
            opset.bytes(1, domain.as_bytes());
            opset.int(2, version);
            model.message(8, &opset);
        }
        for (key, value) in metadata {
            let mut entry = Message::default();
            entry.bytes(1, key.as_bytes());
            entry.bytes(2, value.as_bytes());
            model.message(14, &entry);
        }
        if length.saturating_add(model.0.len() + 16) > MAX_BYTES {
            let gigabytes = length as f64 / 1e9;
            return Err(Error::setting(format!("the model takes {gigabytes:.1} GB, and an ONNX file at most 2.1 GB"))
                .hint("train with a `detector` that keeps fewer rows, such as knn:rows=50000"));
        }
        model.0.reserve_exact(length + 16);
        model.begin(7, length);
        for part in parts {
            model.0.extend_from_slice(&part.0);
        }
        Ok(model.0)
    }
}

fn attribute(name: &str, value: &Attribute) -> Message {
    let mut out = Message::default();
    out.bytes(1, name.as_bytes());
    let kind = match value {
        Attribute::Float(v) => {
            out.float(2, *v);
            1
        }
        Attribute::Int(v) => {
            out.int(3, *v);
            2
        }
        Attribute::Text(text) => {
            out.bytes(4, text.as_bytes());
            3
        }
        Attribute::Ints(values) => {
            values.iter().for_each(|v| out.int(8, *v));
            7
        }
        Attribute::Texts(values) => {
            values.iter().for_each(|v| out.bytes(9, v.as_bytes()));
            8
        }
    };
    out.int(20, kind);
    out
}
