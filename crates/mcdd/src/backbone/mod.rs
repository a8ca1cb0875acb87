//! A frozen network from elsewhere, in an ONNX file, whose features a model is trained on.
//!
//! A [`NetworkFile`] is what was read of a file. [`NetworkFile::layers`] lists the values that can be used as features. A [`Backbone`] is
//! the part of it that computes some of them, ready to run on what a model reads: images or rows of a table. It is a
//! [`Network`], so training, detectors and export see nothing of what runs it. That is rten, with the feature `backbone`; without it
//! files are read, and not run.
//!
//! Files are not trusted. What they declare is compared with their length, and a network is tried before it is used: node by node, each
//! only if the memory and time that it takes are bounded.
//!
//! Features of more than one position are averaged: `[channels, height, width]` over height and width, `[positions, features]` over the
//! positions. A row's features do not depend on the other rows or on the number of threads; the last digits may depend on the processor.

#[cfg(feature = "backbone")]
mod bounds;
mod input;
mod normalization;
#[cfg(feature = "backbone")]
mod runtime;
#[cfg(not(feature = "backbone"))]
#[path = "unavailable.rs"]
mod runtime;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::input::ChannelOrder;

use self::input::{Prepare, Takes, only_input};
use self::runtime::{Runtime, try_run};
use crate::container::hex;
use crate::data::{ColumnKind, ImageShape, ImageSpec, Schema};
use crate::error::{Error, Result};
use crate::files::read_at_most;
use crate::net::{Network, NetworkBuffers};
use crate::onnx::read::{File, MAX_FILE, is_standard, shown};
use crate::onnx::{Attribute, Builder, Value};

/// The side of images for networks that take any size, where none is given.
const USUAL_SIDE: usize = 224;

/// The most features.
const MAX_FEATURES: usize = 1 << 16;

/// How a network is used.
#[derive(Clone, Debug, PartialEq)]
pub struct BackboneOptions {
    /// The names of the values that are the features, as [`NetworkFile::layers`] lists them. If empty, it is what feeds the last linear
    /// layer.
    pub layers: Vec<String>,
    /// The mean of each channel of images, of values from 0 to 1. By default that of the file's metadata, or else ImageNet's.
    pub mean: Option<Vec<f32>>,
    /// The deviation of each channel, as [`BackboneOptions::mean`].
    pub std: Option<Vec<f32>>,
    /// The order of the channels. By default that of the file's metadata, or else red, green, blue.
    pub order: Option<ChannelOrder>,
    /// Whether a model file contains the network, or only its name and SHA-256 sum.
    pub embed: bool,
}

impl Default for BackboneOptions {
    fn default() -> BackboneOptions {
        BackboneOptions { layers: Vec::new(), mean: None, std: None, order: None, embed: true }
    }
}

/// An ONNX file.
#[derive(Clone, Debug)]
pub struct NetworkFile {
    file: File,
    name: String,
    sha256: String,
    folder: Option<PathBuf>,
}

/// A value of a network that can be used as features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkLayer {
    /// Its name.
    pub name: String,
    /// The operator that computes it.
    pub operator: String,
    /// Its shape for one row, without the dimension of the rows.
    pub shape: Vec<usize>,
    /// The number of features: positions are averaged.
    pub features: usize,
    /// Whether it is used if no layer is given.
    pub default: bool,
}

impl NetworkFile {
    /// Reads a file, and the files that have its constants, if there are any: they must be in its folder.
    ///
    /// # Errors
    /// If it cannot be read, is not an ONNX file, is damaged, or has what is not supported.
    pub fn read(path: impl AsRef<Path>) -> Result<NetworkFile> {
        let path = path.as_ref();
        let bytes = read_at_most(path, MAX_FILE)?;
        let name = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        Self::of(&bytes, name, path.parent()).map_err(|e| e.at_file(path))
    }

    /// Reads the bytes of a file, which must have all constants in it.
    ///
    /// # Errors
    /// As for [`NetworkFile::read`].
    pub fn from_bytes(bytes: &[u8], name: &str) -> Result<NetworkFile> {
        Self::of(bytes, name.to_owned(), None)
    }

    fn of(bytes: &[u8], name: String, folder: Option<&Path>) -> Result<NetworkFile> {
        let mut hash = Sha256::new();
        hash.update(bytes);
        let file = File::read(bytes, folder, &mut |more| hash.update(more))?;
        Ok(NetworkFile { file, name, sha256: hex(&hash.finalize()), folder: folder.map(Path::to_owned) })
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The SHA-256 sum of the file; the bytes of constants in other files are added to it.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Whether it takes images, and not rows of numbers.
    ///
    /// # Errors
    /// If it takes neither.
    pub fn takes_images(&self) -> Result<bool> {
        Ok(matches!(self.takes()?, Takes::Images { .. }))
    }

    fn takes(&self) -> Result<Takes> {
        Takes::of(only_input(&self.file)?)
    }

    /// The number of channels and the size of its images, if it is fixed.
    ///
    /// # Errors
    /// If it does not take images.
    pub fn image_input(&self) -> Result<(usize, Option<(usize, usize)>)> {
        match self.takes()? {
            Takes::Images { channels, size: [height, width], .. } => Ok((channels, height.zip(width))),
            Takes::Rows { .. } => Err(Error::data("the network takes rows of numbers, and the data are images")
                .hint("give a network for images, or a table")),
        }
    }

    /// The shape and normalization of a model's images, and a notice about where the normalization is from.
    ///
    /// # Errors
    /// If it does not take such images, or the given numbers are invalid.
    pub fn image_spec(&self, shape: ImageShape, options: &BackboneOptions) -> Result<(ImageSpec, Option<String>)> {
        let (channels, _) = self.image_input()?;
        if channels != shape.channels {
            return Err(Error::data(format!(
                "the network takes images of {channels} channels, and these have {}",
                shape.channels
            ))
            .hint(format!("give `channels={channels}`")));
        }
        let found = normalization::find(&self.file, self.folder.as_deref(), channels, options)?;
        let ImageShape { height, width, channels } = shape;
        let spec = ImageSpec { height, width, channels, mean: found.mean, std: found.std };
        spec.validate()?;
        let notice = found.source.map(|source| {
            let list = |values: &[f32]| values.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
            format!("images are normalized by `mean={}` and `std={}` of {source}", list(&spec.mean), list(&spec.std))
        });
        Ok((spec, notice))
    }

    /// The value that feeds the last linear layer, or else the first output.
    fn default_layer(&self) -> Option<&str> {
        let output = self.file.outputs.first()?;
        let (needed, computed) = (self.file.needed(std::slice::from_ref(&output.name)), self.file.computed());
        let linear = |node: &&crate::onnx::read::Node| {
            let [x, w] = [0, 1].map(|i| node.inputs.get(i).is_some_and(|n| computed.contains(n.as_str())));
            let used = node.outputs.iter().any(|n| needed.contains(n.as_str()));
            matches!(node.op.as_str(), "Gemm" | "MatMul") && x && !w && used
        };
        let last = self.file.nodes.iter().rfind(linear).and_then(|node| node.inputs.first());
        Some(last.unwrap_or(&output.name))
    }

    /// The values that can be used as features, in the order of computation. `size` is the height and width of images for a network that
    /// takes any size (default: 224).
    ///
    /// # Errors
    /// If the network cannot be run.
    pub fn layers(&self, size: Option<(usize, usize)>) -> Result<Vec<NetworkLayer>> {
        let mut port = only_input(&self.file)?.clone();
        let takes = Takes::of(&port)?;
        if let Takes::Rows { width: None } = takes {
            return Err(Error::data(format!("the input of the network is {}: its size is not fixed", port.shape()))
                .hint("export it with a fixed number of inputs"));
        }
        if let (Takes::Images { layout, .. }, Some((height, width))) = (takes, size) {
            let at = if layout == input::Layout::ChannelsFirst { 2 } else { 1 };
            port.dims[at] = port.dims[at].or(Some(height));
            port.dims[at + 1] = port.dims[at + 1].or(Some(width));
        }
        let usual = |(i, dim): (usize, &Option<usize>)| dim.unwrap_or(if i == 0 { 1 } else { USUAL_SIDE });
        let dims: Vec<usize> = port.dims.iter().enumerate().map(usual).collect();
        let outputs: Vec<String> = self.file.outputs.iter().map(|p| p.name.clone()).collect();
        let part = self.file.part(&outputs);
        check_operators(&part)?;
        let shapes = try_run(&part, &dims)?;
        let (computed, default) = (part.computed(), self.default_layer());
        let mut layers = Vec::new();
        for node in &part.nodes {
            for name in node.outputs.iter().filter(|n| computed.contains(n.as_str())) {
                let Some(Some((shape, pooled))) = shapes.get(name).map(|s| Some((s, Pooled::of(s)?))) else { continue };
                layers.push(NetworkLayer {
                    name: name.clone(),
                    operator: node.op.clone(),
                    shape: shape[1..].to_vec(),
                    features: pooled.features,
                    default: default == Some(name),
                });
            }
        }
        Ok(layers)
    }
}

/// # Errors
/// If the network has operators that are not supported, which are all named.
fn check_operators(part: &File) -> Result<()> {
    #[cfg(feature = "backbone")]
    let supports = bounds::supports;
    #[cfg(not(feature = "backbone"))]
    let supports = |_: &str| true;
    let mut missing: Vec<String> = part
        .nodes
        .iter()
        .filter(|n| !is_standard(&n.domain) || !supports(&n.op))
        .map(|n| if is_standard(&n.domain) { shown(&n.op) } else { format!("{}.{}", shown(&n.domain), shown(&n.op)) })
        .collect();
    missing.sort();
    missing.dedup();
    match &missing[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        [first @ .., last] => Err(format!("{} and {last}", first[..first.len().min(20)].join(", "))),
    }
    .map_err(|names| {
        Error::data(format!("the network has operators that are not supported: {names}"))
            .hint("give a `layer` before them, or export the network with other operators")
    })
}

/// How a value becomes features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pooled {
    /// How many values in a row are averaged to a feature: `[features, values]`.
    inner: usize,
    /// How many rows of features are averaged: `[rows, features]`.
    outer: usize,
    features: usize,
    /// The number of dimensions.
    rank: usize,
}

impl Pooled {
    /// Of a value of this shape for one row; `None` if it has no features.
    fn of(shape: &[usize]) -> Option<Pooled> {
        let (inner, outer, features) = match *shape {
            [1, features] => (1, 1, features),
            [1, positions, features] => (1, positions, features),
            [1, channels, height, width] => (height.checked_mul(width)?, 1, channels),
            _ => return None,
        };
        (inner > 0 && outer > 0 && (1..=MAX_FEATURES).contains(&features)).then_some(Pooled {
            inner,
            outer,
            features,
            rank: shape.len(),
        })
    }

    fn values(self) -> usize {
        self.inner * self.outer * self.features
    }

    fn write(self, values: &[f32], out: &mut [f32]) {
        if self.inner * self.outer == 1 {
            out.copy_from_slice(values);
            return;
        }
        for (feature, out) in out.iter_mut().enumerate() {
            let sum: f64 = (0..self.outer)
                .flat_map(|o| &values[(o * self.features + feature) * self.inner..][..self.inner])
                .map(|&v| f64::from(v))
                .sum();
            *out = (sum / (self.inner * self.outer) as f64) as f32;
        }
    }
}

/// What a model file has of a backbone, beside the network itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackboneSpec {
    /// The name of the ONNX file.
    pub name: String,
    /// Its SHA-256 sum.
    pub sha256: String,
    /// Whether the model file contains the network.
    pub embedded: bool,
    /// The values that are the features.
    pub layers: Vec<String>,
    /// The order of the channels of images.
    pub order: ChannelOrder,
}

/// A network that gives features.
pub struct Backbone {
    spec: BackboneSpec,
    /// What computes the features.
    part: File,
    runtime: Runtime,
    prepare: Prepare,
    pooled: Vec<Pooled>,
}

impl Backbone {
    /// The backbone of a model that reads by `schema`: images of any size, which are resized, or columns of numbers.
    ///
    /// # Errors
    /// If the network does not take them, has no such layers, or cannot be run.
    pub fn new(network: &NetworkFile, schema: &Schema, options: &BackboneOptions) -> Result<Backbone> {
        let layers = match &options.layers[..] {
            [] => network.default_layer().map(str::to_owned).into_iter().collect(),
            given => given.to_vec(),
        };
        let order = match &schema.image {
            Some(image) => {
                normalization::find(&network.file, network.folder.as_deref(), image.channels, options)?.order
            }
            None => ChannelOrder::default(),
        };
        let (name, sha256) = (network.name.clone(), network.sha256.clone());
        let spec = BackboneSpec { name, sha256, embedded: options.embed, layers, order };
        Self::of(&network.file, spec, schema)
    }

    /// The backbone of a model file; `network` is the one in it, or the file that it names.
    ///
    /// # Errors
    /// If it is another network, or does not fit the model.
    pub fn restore(network: &NetworkFile, spec: &BackboneSpec, schema: &Schema) -> Result<Backbone> {
        if !spec.embedded && network.sha256 != spec.sha256 {
            return Err(Error::format(format!(
                "the model was trained with another backbone: the SHA-256 sum of {} is {}, not {}",
                shown(&network.name),
                network.sha256,
                shown(&spec.sha256)
            ))
            .hint("give the file that it was trained with as `backbone`"));
        }
        Self::of(&network.file, spec.clone(), schema)
    }

    fn of(file: &File, spec: BackboneSpec, schema: &Schema) -> Result<Backbone> {
        let computed = file.computed();
        if spec.layers.is_empty() {
            return Err(Error::data("the network has no output"));
        }
        if let Some(name) = spec.layers.iter().find(|name| !computed.contains(name.as_str())) {
            return Err(Error::setting(format!("the network has no layer {}", shown(name)))
                .hint("give a name of the list that `mcdd layers` prints"));
        }
        let part = file.part(&spec.layers);
        check_operators(&part)?;
        let prepare = prepare(&part, schema, spec.order)?;
        let dims = prepare.dims(1);
        let shapes = try_run(&part, &dims)?;
        let pooled = spec.layers.iter().map(|name| {
            let shape = shapes.get(name);
            shape.and_then(|s| Pooled::of(s)).ok_or_else(|| {
                let shape = shape.map_or("not of numbers".to_owned(), |s| format!("{s:?} for one row"));
                Error::setting(format!("the layer {} cannot be features: it is {shape}", shown(name)))
                    .hint("give a layer of the list that `mcdd layers` prints")
            })
        });
        let pooled = pooled.collect::<Result<Vec<Pooled>>>()?;
        if pooled.iter().map(|p| p.features).sum::<usize>() > MAX_FEATURES {
            return Err(Error::setting(format!("the layers have more than {MAX_FEATURES} features")));
        }
        let runtime = Runtime::new(&part, &dims)?;
        Ok(Backbone { spec, part, runtime, prepare, pooled })
    }

    /// What a model file has of it.
    pub fn spec(&self) -> &BackboneSpec {
        &self.spec
    }

    /// The part of the network that is used, as an ONNX file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part.to_bytes()
    }
}

/// How the rows of a model become the inputs of a network.
fn prepare(part: &File, schema: &Schema, order: ChannelOrder) -> Result<Prepare> {
    match (Takes::of(only_input(part)?)?, &schema.image) {
        (Takes::Images { layout, channels, size: [height, width] }, Some(image)) => {
            if channels != image.channels {
                return Err(Error::data(format!(
                    "the network takes images of {channels} channels, and the model has {}",
                    image.channels
                )));
            }
            let size = [height.unwrap_or(image.height), width.unwrap_or(image.width)];
            Ok(Prepare::Images { from: image.shape(), size, layout, order })
        }
        (Takes::Rows { width }, None) => {
            let mut columns = Vec::new();
            for column in schema.columns.iter().filter(|c| c.kind.width() > 0) {
                let ColumnKind::Numeric { mean, std, indicator: false } = column.kind else {
                    return Err(Error::data("a backbone takes columns of numbers only")
                        .at_column(column.name.clone())
                        .hint("leave out other columns with `drop`"));
                };
                columns.push((mean, std));
            }
            if let Some(width) = width.filter(|&width| width != columns.len()) {
                let found = crate::error::count(columns.len(), "feature column");
                return Err(Error::data(format!("the network takes {width} numbers, and the table has {found}"))
                    .hint("give the columns that the network was trained on, in their order; `drop` leaves some out"));
            }
            Ok(Prepare::Rows { columns })
        }
        (Takes::Images { .. }, None) => {
            Err(Error::data("the network takes images, and the data are a table").hint("give images"))
        }
        (Takes::Rows { .. }, Some(_)) => Err(Error::data("the network takes rows of numbers, and the data are images")
            .hint("give a network for images, or a table")),
    }
}

impl Network for Backbone {
    fn input(&self) -> usize {
        self.prepare.width()
    }

    fn latent(&self) -> usize {
        self.pooled.iter().map(|p| p.features).sum()
    }

    /// The features of a row for which the network fails are not numbers.
    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let (width, features) = (self.input(), self.latent());
        let rows = x.len() / width.max(1);
        let z = buffers.get::<Vec<f32>>();
        z.clear();
        z.resize(rows * features, f32::NAN);
        let write = self.prepare.writer();
        let mut out = &mut z[..];
        self.runtime.run(
            rows,
            |row, input| write(&x[row * width..(row + 1) * width], input),
            |_, values| {
                let (own, rest) = std::mem::take(&mut out).split_at_mut(features);
                out = rest;
                let fits = |values: &&[&[f32]]| values.iter().zip(&self.pooled).all(|(v, p)| v.len() == p.values());
                let Some(values) = values.filter(fits) else { return };
                let mut own = own;
                for (values, pooled) in values.iter().zip(&self.pooled) {
                    let (part, rest) = own.split_at_mut(pooled.features);
                    pooled.write(values, part);
                    own = rest;
                }
            },
        );
        z
    }

    fn to_onnx(&self, graph: &mut Builder, x: Value) -> Result<Vec<Value>> {
        let shapes = try_run(&self.part, &self.prepare.dims(2))?;
        if let Some(name) = self.spec.layers.iter().find(|name| shapes.get(*name).and_then(|s| s.first()) != Some(&2)) {
            return Err(Error::setting(format!(
                "the backbone takes one row at a time: its layer {} is the same for two",
                shown(name)
            ))
            .hint("export the backbone with a dynamic batch dimension, and train again"));
        }
        let input = self.prepare.to_onnx(graph, x);
        let values = self.part.splice(graph, input)?;
        let mut features = Vec::new();
        for (value, pooled) in values.into_iter().zip(&self.pooled) {
            let axes: &[i64] = match pooled.rank {
                3 => &[1],
                4 => &[2, 3],
                _ => &[],
            };
            features.push(match axes {
                [] => value,
                axes => {
                    let axes = graph.constant_i64(&[axes.len()], axes);
                    graph.op_with("ReduceMean", &[value, axes], &[("keepdims", Attribute::Int(0))])
                }
            });
        }
        Ok(vec![match features[..] {
            [one] => one,
            _ => graph.op_with("Concat", &features, &[("axis", Attribute::Int(1))]),
        }])
    }
}
