//! Reading ONNX: the nodes, constants, inputs and outputs of a network that comes from elsewhere.
//!
//! A [`File`] holds what was understood and nothing else: no graphs within graphs, no functions, no sparse tensors. Sizes that a file
//! declares are compared with its length, and constants in other files must lie in its folder. [`File::cut`] writes a part of it as
//! a file of its own, so what runs the network never sees the original.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path};

use super::fields::{Field, Fields, damaged};
use super::wire::Message;
use super::{Builder, Value};
use crate::error::{Error, Result, plain};

/// The most bytes of a network, with the constants in other files.
pub(crate) const MAX_FILE: u64 = 1 << 30;
/// The largest number of nodes, constants and names, so that memory stays in proportion to the file.
const MAX_ITEMS: usize = 1 << 20;
/// The largest number of dimensions.
const MAX_RANK: usize = 16;
/// The name of an input that an older operator does not have; no name in a file has a NUL.
const AXES: &str = "\0axes";
/// The type of 32-bit numbers.
pub(crate) const F32: i64 = 1;
const I64: i64 = 7;
const BOOL: i64 = 9;
const IR_WRITTEN: i64 = 10;

/// A network in an ONNX file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// The version of the operators of each domain.
    opsets: Vec<(String, i64)>,
    /// In an order in which each comes after those that it needs.
    pub(crate) nodes: Vec<Node>,
    pub(crate) constants: HashMap<String, Tensor>,
    /// Those that are not constants.
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    /// Texts about the network.
    pub(crate) metadata: HashMap<String, String>,
}

/// An operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) op: String,
    pub(crate) domain: String,
    /// Empty for an optional input that is not given.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    attributes: Vec<(String, Vec<u8>)>,
}

/// A constant.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) dims: Vec<usize>,
    kind: i64,
    /// The encoded fields of its elements.
    body: Vec<u8>,
}

/// An input or an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// The type of its elements, as ONNX counts them.
    pub(crate) kind: i64,
    /// `None` for a dimension that is not fixed.
    pub(crate) dims: Vec<Option<usize>>,
}

impl Port {
    /// The shape in words: `? x 3 x 224 x 224`.
    pub(crate) fn shape(&self) -> String {
        let dim = |d: &Option<usize>| d.map_or("?".to_owned(), |d| d.to_string());
        self.dims.iter().map(dim).collect::<Vec<_>>().join(" x ")
    }
}

/// What is counted while a file is read.
struct Reading<'a> {
    /// The folder of the file.
    folder: Option<&'a Path>,
    /// What takes memory beyond the bytes of the file.
    items: usize,
    /// The bytes of constants in other files.
    external: u64,
    /// Gets the bytes of each constant in another file.
    more: &'a mut dyn FnMut(&[u8]),
}

impl Reading<'_> {
    fn count(&mut self, n: usize) -> Result<()> {
        self.items = self.items.saturating_add(n);
        match self.items > MAX_ITEMS {
            true => Err(Error::data(format!("the network has more than {MAX_ITEMS} nodes, constants and names"))),
            false => Ok(()),
        }
    }
}

/// A name from the file, for messages.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", plain(&name[..at])),
        None => plain(name),
    }
}

impl File {
    /// Reads the bytes of a file. `folder` has the files of its constants, if they are not in it; `more` is called with the bytes of each.
    ///
    /// # Errors
    /// If it is not an ONNX file, is damaged, or has what is not supported.
    pub(crate) fn read(bytes: &[u8], folder: Option<&Path>, more: &mut dyn FnMut(&[u8])) -> Result<File> {
        let mut file = File::default();
        let mut reading = Reading { folder, items: 0, external: 0, more };
        let mut graphs = 0;
        let mut fields = Fields::of(bytes);
        while let Some((number, field, _)) = fields.next()? {
            match number {
                7 => {
                    graphs += 1;
                    if graphs > 1 {
                        return Err(damaged());
                    }
                    file.graph(field.bytes()?, &mut reading)?;
                }
                8 => {
                    reading.count(1)?;
                    let (mut domain, mut version) = (String::new(), 0);
                    let mut fields = Fields::of(field.bytes()?);
                    while let Some((number, field, _)) = fields.next()? {
                        match number {
                            1 => domain = field.text()?.to_owned(),
                            2 => version = field.int()?,
                            _ => {}
                        }
                    }
                    file.opsets.push((domain, version));
                }
                14 => {
                    reading.count(2)?;
                    let (key, value) = pair(field.bytes()?)?;
                    file.metadata.insert(key, value);
                }
                25 => {
                    return Err(Error::data("the network has functions of its own, which are not supported")
                        .hint("export it with its functions inlined"));
                }
                _ => {}
            }
        }
        if graphs == 0 || file.opsets.is_empty() {
            return Err(damaged());
        }
        file.inputs.retain(|port| !file.constants.contains_key(&port.name));
        file.sort()?;
        file.bypass_dropout();
        file.complete_convolutions();
        Ok(file)
    }

    fn graph(&mut self, bytes: &[u8], reading: &mut Reading) -> Result<()> {
        let mut fields = Fields::of(bytes);
        while let Some((number, field, _)) = fields.next()? {
            match number {
                1 => {
                    let node = Node::read(field.bytes()?, reading)?;
                    match node.op == "Constant" && is_standard(&node.domain) {
                        true => {
                            let name = node.outputs.first().cloned().ok_or_else(damaged)?;
                            let tensor = node.constant(reading)?;
                            self.constant(name, tensor)?;
                        }
                        false => self.nodes.push(node),
                    }
                }
                5 => {
                    reading.count(1)?;
                    let (name, tensor) = Tensor::read(field.bytes()?, reading)?;
                    self.constant(name, tensor)?;
                }
                11 | 12 => {
                    reading.count(1)?;
                    let port = Port::read(field.bytes()?)?;
                    if number == 11 { &mut self.inputs } else { &mut self.outputs }.push(port);
                }
                15 => return Err(Error::data("the network has sparse constants, which are not supported")),
                _ => {}
            }
        }
        Ok(())
    }

    fn constant(&mut self, name: String, tensor: Tensor) -> Result<()> {
        match self.constants.insert(name.clone(), tensor) {
            Some(_) => Err(Error::data(format!("the network computes {} twice", shown(&name)))),
            None => Ok(()),
        }
    }

    /// Brings the nodes into an order in which each comes after those that it needs.
    fn sort(&mut self) -> Result<()> {
        let mut from: HashMap<&str, usize> = HashMap::new();
        let given: HashSet<&str> =
            self.constants.keys().map(String::as_str).chain(self.inputs.iter().map(|p| p.name.as_str())).collect();
        for (i, node) in self.nodes.iter().enumerate() {
            for name in node.outputs.iter().filter(|n| !n.is_empty()) {
                if given.contains(name.as_str()) || from.insert(name, i).is_some() {
                    return Err(Error::data(format!("the network computes {} twice", shown(name))));
                }
            }
        }
        let mut waiting = vec![0usize; self.nodes.len()];
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            for name in node.inputs.iter().filter(|n| !n.is_empty() && !given.contains(n.as_str())) {
                let &source = from
                    .get(name.as_str())
                    .ok_or_else(|| Error::data(format!("the network uses {}, which nothing computes", shown(name))))?;
                waiting[i] += 1;
                users[source].push(i);
            }
        }
        // Of those that are ready, the first in the file comes first.
        let mut ready: std::collections::BTreeSet<usize> = (0..waiting.len()).filter(|&i| waiting[i] == 0).collect();
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(i) = ready.pop_first() {
            order.push(i);
            for &user in &users[i] {
                waiting[user] -= 1;
                if waiting[user] == 0 {
                    ready.insert(user);
                }
            }
        }
        if order.len() < self.nodes.len() {
            let name = (0..waiting.len()).find(|&i| waiting[i] > 0).and_then(|i| self.nodes[i].outputs.first());
            let name = name.map_or(String::new(), |n| shown(n));
            return Err(Error::data(format!("the network has a cycle, at {name}")));
        }
        let mut nodes: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        self.nodes = order.into_iter().filter_map(|i| nodes[i].take()).collect();
        Ok(())
    }

    /// Makes `Identity` of each `Dropout` that does nothing in inference. One that is on, or whose mask is used, stays.
    fn bypass_dropout(&mut self) {
        let used: HashSet<String> =
            self.nodes.iter().flat_map(|n| &n.inputs).chain(self.outputs.iter().map(|p| &p.name)).cloned().collect();
        let (opset, constants) = (self.opset(), &self.constants);
        let is_off = |node: &Node| match opset {
            ..7 => node.int("is_test").is_some_and(|v| v != 0),
            7..12 => true,
            _ => match node.inputs.get(2) {
                Some(mode) if !mode.is_empty() => constants.get(mode).is_some_and(Tensor::is_false),
                _ => true,
            },
        };
        for node in self.nodes.iter_mut().filter(|n| n.op == "Dropout" && is_standard(&n.domain)) {
            let has_mask = node.outputs.iter().skip(1).any(|n| used.contains(n));
            if is_off(node) && !has_mask && !node.inputs.is_empty() {
                node.op = "Identity".to_owned();
                node.inputs.truncate(1);
                node.outputs.truncate(1);
                node.attributes.clear();
            }
        }
    }

    /// Adds the size of the kernel to convolutions without it: that of the weights, which may be stored as integers.
    fn complete_convolutions(&mut self) {
        let keeps_shape = ["Cast", "DequantizeLinear", "Identity"];
        let mut shapes: HashMap<&str, &[usize]> =
            self.constants.iter().map(|(name, tensor)| (name.as_str(), &tensor.dims[..])).collect();
        let mut kernels = Vec::new();
        for (i, node) in self.nodes.iter().enumerate().filter(|(_, n)| is_standard(&n.domain)) {
            let shape = |at: usize| node.inputs.get(at).and_then(|n| shapes.get(n.as_str())).copied();
            if keeps_shape.contains(&node.op.as_str()) {
                if let (Some(dims), Some(to)) = (shape(0), node.outputs.first()) {
                    shapes.insert(to, dims);
                }
            } else if matches!(node.op.as_str(), "Conv" | "ConvInteger")
                && !node.has("kernel_shape")
                && let Some([_, _, kernel @ ..]) = shape(1)
                && kernel.len() <= 3
            {
                kernels.push((i, kernel.iter().map(|&k| k as i64).collect::<Vec<i64>>()));
            }
        }
        for (i, kernel) in kernels {
            let attribute = super::attribute("kernel_shape", &super::Attribute::Ints(kernel));
            self.nodes[i].attributes.push(("kernel_shape".into(), attribute.0));
        }
    }

    /// The values that depend on an input.
    pub(crate) fn computed(&self) -> HashSet<&str> {
        let mut computed: HashSet<&str> = self.inputs.iter().map(|p| p.name.as_str()).collect();
        for node in &self.nodes {
            if node.inputs.iter().any(|n| computed.contains(n.as_str())) {
                computed.extend(node.outputs.iter().map(String::as_str).filter(|n| !n.is_empty()));
            }
        }
        computed
    }

    /// The values that some values depend on, with these.
    pub(crate) fn needed(&self, outputs: &[String]) -> HashSet<&str> {
        let wanted: HashSet<&String> = outputs.iter().collect();
        let names = self.nodes.iter().flat_map(|n| &n.outputs).chain(self.inputs.iter().map(|p| &p.name));
        let mut needed: HashSet<&str> =
            names.chain(self.constants.keys()).filter(|n| wanted.contains(n)).map(String::as_str).collect();
        for node in self.nodes.iter().rev() {
            if node.outputs.iter().any(|n| needed.contains(n.as_str())) {
                needed.extend(node.inputs.iter().map(String::as_str).filter(|n| !n.is_empty()));
            }
        }
        needed
    }

    /// The part that computes some values. Its outputs are these values, in f32, and its inputs those that it needs.
    pub(crate) fn part(&self, outputs: &[String]) -> File {
        let needed = self.needed(outputs);
        let mut nodes = Vec::new();
        for node in self.nodes.iter().filter(|n| n.outputs.iter().any(|n| needed.contains(n.as_str()))) {
            // What is not used is not asked for.
            let mut outputs: Vec<String> = node.outputs.clone();
            outputs.iter_mut().filter(|n| !needed.contains(n.as_str())).for_each(String::clear);
            while outputs.pop_if(|n| n.is_empty()).is_some() {}
            nodes.push(Node { outputs, ..node.clone() });
        }
        let constants = self.constants.iter().filter(|(n, _)| needed.contains(n.as_str()));
        File {
            opsets: self.opsets.iter().filter(|(domain, _)| is_standard(domain)).cloned().collect(),
            nodes,
            constants: constants.map(|(n, t)| (n.clone(), t.clone())).collect(),
            inputs: self.inputs.iter().filter(|p| needed.contains(p.name.as_str())).cloned().collect(),
            outputs: outputs.iter().map(|n| Port { name: n.clone(), kind: F32, dims: Vec::new() }).collect(),
            metadata: HashMap::new(),
        }
    }

    /// The version of the standard operators.
    pub(crate) fn opset(&self) -> i64 {
        self.opsets.iter().find(|(d, _)| is_standard(d)).map_or(0, |(_, v)| *v)
    }

    /// The bytes of a file. Outputs have no declared shape.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut graph = Message::default();
        self.nodes.iter().for_each(|node| graph.message(1, &node.encoded(&|name| name.to_owned())));
        graph.bytes(2, b"backbone");
        let mut names: Vec<&String> = self.constants.keys().collect();
        names.sort();
        names.into_iter().for_each(|name| graph.message(5, &self.constants[name].encoded(name)));
        self.inputs.iter().for_each(|port| graph.message(11, &port.encoded()));
        self.outputs.iter().for_each(|port| graph.message(12, &port.encoded()));
        let mut model = Message::default();
        model.int(1, IR_WRITTEN);
        model.begin(7, graph.0.len());
        // In place, as it is large.
        let mut head = std::mem::take(&mut model.0);
        head.append(&mut graph.0);
        model.0 = head;
        for (domain, version) in &self.opsets {
            let mut opset = Message::default();
            opset.bytes(1, domain.as_bytes());
            opset.int(2, *version);
            model.message(8, &opset);
        }
        model.0
    }

    /// Writes the network into a graph; `x` takes the place of its input. Gives its outputs.
    ///
    /// # Errors
    /// If its operators are of a version that is too old or too new.
    pub(crate) fn splice(&self, graph: &mut Builder, x: Value) -> Result<Vec<Value>> {
        let (opset, known) = (self.opset(), 13..=super::OPSET);
        if !known.contains(&opset) || self.nodes.iter().any(|n| n.op == "GroupNormalization" && opset < 21) {
            return Err(Error::setting(format!(
                "the backbone has operators of opset {opset}, which cannot be exported"
            ))
            .hint(format!("export the backbone with an opset from 13 to {}", super::OPSET)));
        }
        let mut values: HashMap<&str, Value> = self.inputs.iter().map(|p| (p.name.as_str(), x)).collect();
        let mut names: Vec<&String> = self.constants.keys().collect();
        names.sort();
        for name in names {
            let value = graph.fresh();
            let encoded = self.constants[name].encoded(graph.name(value));
            graph.constants.message(5, &encoded);
            values.insert(name, value);
        }
        for node in &self.nodes {
            for name in node.outputs.iter().filter(|n| !n.is_empty()) {
                values.insert(name, graph.fresh());
            }
            let (node, axes) = node.newer(self.opset());
            // The axes of a reduction were an attribute, and are an input.
            let axes = axes.map(|axes| graph.constant_i64(&[axes.len()], &axes));
            let name = |name: &str| match (values.get(name), axes) {
                (Some(&value), _) => graph.name(value).to_owned(),
                (None, Some(axes)) if name == AXES => graph.name(axes).to_owned(),
                _ => String::new(),
            };
            let encoded = node.encoded(&name);
            if let Some(nodes) = graph.nodes.last_mut() {
                nodes.message(1, &encoded);
            }
        }
        self.outputs.iter().map(|p| values.get(p.name.as_str()).copied().ok_or_else(damaged)).collect()
    }
}

/// Whether a domain is that of the standard operators.
pub(crate) fn is_standard(domain: &str) -> bool {
    domain.is_empty() || domain == "ai.onnx"
}

fn pair(bytes: &[u8]) -> Result<(String, String)> {
    let (mut key, mut value) = (String::new(), String::new());
    let mut fields = Fields::of(bytes);
    while let Some((number, field, _)) = fields.next()? {
        match number {
            1 => key = field.text()?.to_owned(),
            2 => value = field.text()?.to_owned(),
            _ => {}
        }
    }
    Ok((key, value))
}

impl Node {
    fn read(bytes: &[u8], reading: &mut Reading) -> Result<Node> {
        reading.count(1)?;
        let mut node = Node::default();
        let mut fields = Fields::of(bytes);
        while let Some((number, field, _)) = fields.next()? {
            reading.count(1)?;
            match number {
                1 => node.inputs.push(field.text()?.to_owned()),
                2 => node.outputs.push(field.text()?.to_owned()),
                4 => node.op = field.text()?.to_owned(),
                5 => {
                    let attribute = field.bytes()?;
                    node.attributes.push((attribute_name(attribute)?, attribute.to_vec()));
                }
                7 => node.domain = field.text()?.to_owned(),
                _ => {}
            }
        }
        Ok(node)
    }

    fn attribute(&self, name: &str) -> Option<&[u8]> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, bytes)| &bytes[..])
    }

    /// An attribute that is an integer.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        let mut fields = Fields::of(self.attribute(name)?);
        while let Ok(Some((number, field, _))) = fields.next() {
            if number == 3 {
                return field.int().ok();
            }
        }
        None
    }

    /// An attribute that is a list of integers; empty without it.
    pub(crate) fn ints(&self, name: &str) -> Vec<i64> {
        let mut out = Vec::new();
        let mut fields = Fields::of(self.attribute(name).unwrap_or_default());
        while let Ok(Some((number, field, _))) = fields.next() {
            if number == 8 && field.ints(&mut out).is_err() {
                break;
            }
        }
        out
    }

    /// The same operator as a file of the version that is written has it, whose input [`AXES`] is the second value.
    fn newer(&self, opset: i64) -> (Node, Option<Vec<i64>>) {
        let mut node = self.clone();
        let reduces = self.op.starts_with("Reduce") && self.op != "ReduceSum";
        if opset < 18 && reduces && self.has("axes") {
            node.attributes.retain(|(name, _)| name != "axes");
            node.inputs.push(AXES.to_owned());
            return (node, Some(self.ints("axes")));
        }
        if opset < 18 && self.op == "Split" && self.inputs.get(1).is_none_or(String::is_empty) {
            let attribute = super::attribute("num_outputs", &super::Attribute::Int(self.outputs.len() as i64));
            node.attributes.push(("num_outputs".into(), attribute.0));
        }
        (node, None)
    }

    /// Whether it has this attribute.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    /// The constant of a node `Constant`.
    fn constant(&self, reading: &mut Reading) -> Result<Tensor> {
        let unsupported = || Error::data("the network has a constant of a kind that is not supported");
        let (name, bytes) = self.attributes.first().ok_or_else(unsupported)?;
        let mut fields = Fields::of(bytes);
        let (mut ints, mut floats, mut tensor) = (Vec::new(), Vec::new(), None);
        while let Some((number, field, _)) = fields.next()? {
            match (number, name.as_str()) {
                (5, "value") => tensor = Some(Tensor::read(field.bytes()?, reading)?.1),
                (3, "value_int") => ints.push(field.int()?),
                (8, "value_ints") => field.ints(&mut ints)?,
                (2, "value_float") | (7, "value_floats") => field.floats(&mut floats)?,
                _ => {}
            }
        }
        let dims = |n: usize, list: &str| if name == list { vec![n] } else { vec![] };
        match name.as_str() {
            "value" => tensor.ok_or_else(unsupported),
            "value_int" | "value_ints" => Ok(Tensor::of_ints(dims(ints.len(), "value_ints"), &ints)),
            "value_float" | "value_floats" => {
                let raw: Vec<u8> = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
                Ok(Tensor::of(dims(floats.len(), "value_floats"), F32, &raw))
            }
            _ => Err(unsupported()),
        }
    }

    fn encoded(&self, name: &dyn Fn(&str) -> String) -> Message {
        let mut node = Message::default();
        self.inputs.iter().for_each(|n| node.bytes(1, name(n).as_bytes()));
        self.outputs.iter().for_each(|n| node.bytes(2, name(n).as_bytes()));
        node.bytes(4, self.op.as_bytes());
        self.attributes.iter().for_each(|(_, bytes)| node.bytes(5, bytes));
        if !self.domain.is_empty() {
            node.bytes(7, self.domain.as_bytes());
        }
        node
    }
}

/// The name of an attribute that has no graph within it.
fn attribute_name(bytes: &[u8]) -> Result<String> {
    let mut name = String::new();
    let mut fields = Fields::of(bytes);
    while let Some((number, field, _)) = fields.next()? {
        match number {
            1 => name = field.text()?.to_owned(),
            6 | 11 => {
                return Err(Error::data(
                    "the network has graphs within nodes (If, Loop, Scan), which are not supported",
                ));
            }
            21..=23 => return Err(Error::data("the network has an attribute of a kind that is not supported")),
            _ => {}
        }
    }
    Ok(name)
}

impl Tensor {
    fn of(dims: Vec<usize>, kind: i64, raw: &[u8]) -> Tensor {
        let mut body = Message::default();
        body.bytes(9, raw);
        Tensor { dims, kind, body: body.0 }
    }

    fn of_ints(dims: Vec<usize>, values: &[i64]) -> Tensor {
        Tensor::of(dims, I64, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
    }

    fn read(bytes: &[u8], reading: &mut Reading) -> Result<(String, Tensor)> {
        let (mut name, mut sizes, mut kind, mut body) = (String::new(), Vec::new(), 0, Vec::new());
        let (mut external, mut is_external, mut raw, mut typed) = (Vec::new(), false, None, 0);
        let mut fields = Fields::of(bytes);
        while let Some((number, field, encoded)) = fields.next()? {
            match number {
                1 => field.ints(&mut sizes)?,
                2 => kind = field.int()?,
                4..=7 | 10 | 11 => {
                    typed += match field {
                        Field::Bytes(bytes) if number != 6 => bytes.len(),
                        _ => 1,
                    };
                    body.extend_from_slice(encoded);
                }
                8 => name = field.text()?.to_owned(),
                9 => {
                    raw = Some(field.bytes()?.len());
                    body.extend_from_slice(encoded);
                }
                13 => external.push(pair(field.bytes()?)?),
                14 => is_external = field.int()? == 1,
                _ => {}
            }
            if sizes.len() > MAX_RANK || external.len() > MAX_RANK {
                return Err(damaged());
            }
        }
        let wrong = |what: &str| Error::data(format!("the constant {} {what}", shown(&name)));
        let dims: Option<Vec<usize>> = sizes.iter().map(|&d| usize::try_from(d).ok()).collect();
        let dims = dims.ok_or_else(|| wrong("has a negative size"))?;
        let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let elements = elements.ok_or_else(|| wrong("is too large"))?;
        if is_external {
            let data = external_data(&external, reading).map_err(|why| wrong(&why))?;
            (reading.more)(&data);
            raw = Some(data.len());
            let mut message = Message(body);
            message.bytes(9, &data);
            body = message.0;
        }
        let width = width(kind).ok_or_else(|| wrong("has a type that is not supported"))?;
        let fits = match raw {
            Some(bytes) => elements.checked_mul(width) == Some(bytes),
            None => elements <= typed,
        };
        match fits {
            true => Ok((name, Tensor { dims, kind, body })),
            false => Err(wrong("has fewer or more elements than its shape says")),
        }
    }

    fn encoded(&self, name: &str) -> Message {
        let mut tensor = Message::default();
        self.dims.iter().for_each(|&d| tensor.int(1, d as i64));
        tensor.int(2, self.kind);
        tensor.bytes(8, name.as_bytes());
        tensor.0.extend_from_slice(&self.body);
        tensor
    }

    /// Whether it is one truth value, and false.
    fn is_false(&self) -> bool {
        if self.kind != BOOL || self.dims.iter().product::<usize>() != 1 {
            return false;
        }
        let mut ints = Vec::new();
        let mut fields = Fields::of(&self.body);
        while let Ok(Some((number, field, _))) = fields.next() {
            match (number, field) {
                (9, Field::Bytes(bytes)) => ints.extend(bytes.iter().map(|&b| i64::from(b))),
                (5, field) if field.ints(&mut ints).is_ok() => {}
                _ => return false,
            }
        }
        ints == [0]
    }

    /// Its elements, if they are integers or numbers of 32 bits and few.
    #[cfg(feature = "backbone")]
    pub(crate) fn numbers(&self) -> Option<Vec<f64>> {
        const MOST: usize = 1024;
        if self.dims.iter().product::<usize>() > MOST {
            return None;
        }
        let (mut ints, mut floats, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let mut fields = Fields::of(&self.body);
        while let Ok(Some((number, field, _))) = fields.next() {
            match (number, self.kind) {
                (9, I64) => {
                    out.extend(field.bytes().ok()?.as_chunks::<8>().0.iter().map(|&b| i64::from_le_bytes(b) as f64))
                }
                (9, F32) => field.floats(&mut floats).ok()?,
                (9, 6) => {
                    out.extend(
                        field.bytes().ok()?.as_chunks::<4>().0.iter().map(|&b| f64::from(i32::from_le_bytes(b))),
                    );
                }
                (4, F32) => field.floats(&mut floats).ok()?,
                (5, 6) | (7, I64) => field.ints(&mut ints).ok()?,
                _ => return None,
            }
        }
        out.extend(ints.iter().map(|&v| v as f64).chain(floats.iter().map(|&v| f64::from(v))));
        Some(out)
    }
}

/// The number of bytes of an element.
fn width(kind: i64) -> Option<usize> {
    match kind {
        2 | 3 | 9 => Some(1),
        4 | 5 | 10 | 16 => Some(2),
        F32 | 6 | 12 => Some(4),
        I64 | 11 | 13 => Some(8),
        _ => None,
    }
}

/// The bytes of a constant in another file, which must lie in the folder of the network.
fn external_data(entries: &[(String, String)], reading: &mut Reading) -> Result<Vec<u8>, String> {
    use std::io::{Read, Seek, SeekFrom};
    let get = |key: &str| entries.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    let folder = reading.folder.ok_or("is in another file, which is not given")?;
    let location = Path::new(get("location").ok_or("has no location")?);
    let shown = shown(&location.to_string_lossy());
    let outside = || format!("is in {shown}, which is not in the folder of the network");
    if !location.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let failed = |e: std::io::Error| format!("is in {shown}, which cannot be read ({e})");
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let (root, path) = (folder.canonicalize().map_err(failed)?, folder.join(location).canonicalize().map_err(failed)?);
    // A link may lead elsewhere.
    if !path.starts_with(&root) || !path.is_file() {
        return Err(outside());
    }
    let mut file = std::fs::File::open(&path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let number = |key: &str, other: u64| {
        get(key).map_or(Ok(other), |v| v.parse::<u64>().map_err(|_| format!("has an invalid {key}")))
    };
    let offset = number("offset", 0)?;
    let length = number("length", size.saturating_sub(offset))?;
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(format!("reaches beyond the end of {shown}"));
    }
    reading.external = reading.external.saturating_add(length);
    if reading.external > MAX_FILE {
        return Err(format!("is too large: a network has at most {} MB", MAX_FILE >> 20));
    }
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut data = Vec::new();
    file.take(length).read_to_end(&mut data).map_err(failed)?;
    match data.len() as u64 == length {
        true => Ok(data),
        false => Err(format!("reaches beyond the end of {shown}")),
    }
}

impl Port {
    fn read(bytes: &[u8]) -> Result<Port> {
        let mut port = Port::default();
        let mut fields = Fields::of(bytes);
        while let Some((number, field, _)) = fields.next()? {
            match number {
                1 => port.name = field.text()?.to_owned(),
                2 => {
                    let mut fields = Fields::of(field.bytes()?);
                    while let Some((number, field, _)) = fields.next()? {
                        if number == 1 {
                            port.tensor(field.bytes()?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(port)
    }

    fn tensor(&mut self, bytes: &[u8]) -> Result<()> {
        let mut fields = Fields::of(bytes);
        while let Some((number, field, _)) = fields.next()? {
            match number {
                1 => self.kind = field.int()?,
                2 => {
                    let mut dims = Fields::of(field.bytes()?);
                    while let Some((_, dim, _)) = dims.next()? {
                        let mut size = None;
                        let mut fields = Fields::of(dim.bytes()?);
                        while let Some((number, field, _)) = fields.next()? {
                            if number == 1 {
                                size = usize::try_from(field.int()?).ok().filter(|&d| d > 0);
                            }
                        }
                        self.dims.push(size);
                        if self.dims.len() > MAX_RANK {
                            return Err(damaged());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn encoded(&self) -> Message {
        let mut tensor = Message::default();
        tensor.int(1, self.kind);
        if !self.dims.is_empty() {
            let mut shape = Message::default();
            for dim in &self.dims {
                let mut one = Message::default();
                match dim {
                    Some(n) => one.int(1, *n as i64),
                    None => one.bytes(2, b"rows"),
                }
                shape.message(1, &one);
            }
            tensor.message(2, &shape);
        }
        let mut kind = Message::default();
        kind.message(1, &tensor);
        let mut info = Message::default();
        info.bytes(1, self.name.as_bytes());
        info.message(2, &kind);
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_harm_and_cut() {
        assert_eq!(shown("a\u{1b}[31mb"), "a\u{fffd}[31mb");
        assert_eq!(shown(&"y".repeat(1000)), "y".repeat(80) + "…");
    }
}
