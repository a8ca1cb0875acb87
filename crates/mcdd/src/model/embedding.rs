//! A backbone in front of a model: the features of the frozen network, standardized by the training rows, are what the members see.

use std::path::Path;

use super::rows::{AllRows, Part};
use crate::backbone::{Backbone, BackboneSpec, NetworkFile};
use crate::compute::pool::{Pool, chunks};
use crate::container::{Container, Values};
use crate::data::{CLAMP, Schema};
use crate::error::{Error, Result};
use crate::net::{Network, NetworkBuffers};
use crate::onnx::{Builder, Type, Value};

const NETWORK: &str = "backbone.onnx";
const SCALE: &str = "backbone.scale";

/// Where a backbone is looked for that a model file does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside<'a> {
    /// The model file.
    pub(super) model: Option<&'a Path>,
    /// The file that was given.
    pub(super) backbone: Option<&'a Path>,
}

/// A backbone, with the mean and the deviation of its features.
pub(super) struct Embedding {
    pub(super) net: Backbone,
    mean: Vec<f32>,
    std: Vec<f32>,
}

impl Embedding {
    /// Rows of a task: a backbone takes much time for each.
    pub(super) const BLOCK: usize = 16;

    /// Computes the features of all rows, and standardizes them by those in `rows`. Gives them as inputs of the members.
    ///
    /// # Errors
    /// If a feature is not a finite number.
    pub(super) fn fit(net: Backbone, all: AllRows, rows: &[usize], pool: &Pool) -> Result<(Embedding, Vec<f32>)> {
        let width = net.latent();
        let mut x = features(&net, all, pool);
        if let Some(at) = x.iter().position(|v| !v.is_finite()) {
            return Err(Error::data("the backbone does not give finite numbers for this row")
                .at_row((at / width) as u64 + 1)
                .hint("check the values of the row, and the normalization that the network was trained with"));
        }
        let n = rows.len().max(1) as f64;
        let (mut mean, mut std) = (vec![0.0f64; width], vec![0.0f64; width]);
        let row = |&row: &usize| x[row * width..(row + 1) * width].iter().map(|&v| f64::from(v));
        rows.iter().for_each(|r| mean.iter_mut().zip(row(r)).for_each(|(m, v)| *m += v));
        mean.iter_mut().for_each(|m| *m /= n);
        rows.iter().for_each(|r| std.iter_mut().zip(row(r)).zip(&mean).for_each(|((s, v), m)| *s += (v - m) * (v - m)));
        let least = f64::from(f32::MIN_POSITIVE);
        // A feature that is constant stays as it is.
        std.iter_mut().zip(&mean).for_each(|(s, m)| {
            *s = (*s / n).sqrt();
            *s = if *s > (1e-6 * m.abs()).max(least) { *s } else { 1.0 };
        });
        let narrow = |values: Vec<f64>| values.into_iter().map(|v| v as f32).collect::<Vec<f32>>();
        let embedding = Embedding { net, mean: narrow(mean), std: narrow(std) };
        embedding.standardize(&mut x);
        Ok((embedding, x))
    }

    /// What the members see of all rows.
    pub(super) fn all(&self, all: AllRows, pool: &Pool) -> Vec<f32> {
        let mut x = features(&self.net, all, pool);
        self.standardize(&mut x);
        x
    }

    /// What the members see of some rows, on the calling thread.
    pub(super) fn inputs(&self, x: &[f32]) -> Vec<f32> {
        let mut z = self.net.latents(x, &mut NetworkBuffers::default()).to_vec();
        self.standardize(&mut z);
        z
    }

    fn standardize(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.mean.len()) {
            for ((v, m), s) in row.iter_mut().zip(&self.mean).zip(&self.std) {
                *v = ((*v - m) / s).clamp(-(CLAMP as f32), CLAMP as f32);
                // Nothing is far from what is not a number; this is.
                if v.is_nan() {
                    *v = CLAMP as f32;
                }
            }
        }
    }

    /// The number of inputs of the members.
    pub(super) fn width(&self) -> usize {
        self.mean.len()
    }

    pub(super) fn save(&self, container: &mut Container) {
        if self.net.spec().embedded {
            let mut bytes = self.net.to_bytes();
            // The tensors after it must begin at a multiple of their size: an empty text about the network fills up (field 6).
            let fill = (8 - (bytes.len() + 2) % 8) % 8;
            bytes.extend([6 << 3 | 2, fill as u8]);
            bytes.extend(vec![b' '; fill]);
            container.put(NETWORK, &[bytes.len()], Values::U8(bytes));
        }
        container.put(SCALE, &[2, self.width()], Values::F32([&self.mean[..], &self.std[..]].concat()));
    }

    pub(super) fn load(spec: &BackboneSpec, schema: &Schema, c: &mut Container, beside: Beside) -> Result<Embedding> {
        let network = match spec.embedded {
            true => {
                let shape = c.shape(NETWORK)?.to_vec();
                NetworkFile::from_bytes(&c.take_u8(NETWORK, &shape)?, &spec.name)?
            }
            false => NetworkFile::read(find(spec, beside)?)?,
        };
        let net = Backbone::restore(&network, spec, schema)?;
        let width = net.latent();
        let scale = c.take_f32(SCALE, &[2, width])?;
        if scale[width..].iter().any(|&s| s <= 0.0) {
            return Err(Error::format("the model file is invalid: the deviation of a feature is not positive"));
        }
        let (mean, std) = scale.split_at(width);
        Ok(Embedding { net, mean: mean.to_vec(), std: std.to_vec() })
    }

    pub(super) fn to_onnx(&self, g: &mut Builder, x: Value) -> Result<Value> {
        let layers = self.net.to_onnx(g, x)?;
        let features = *layers.last().unwrap_or(&x);
        let [mean, std] = [&self.mean, &self.std].map(|v| g.constant_f32(&[v.len()], v));
        let centered = g.op("Sub", &[features, mean]);
        let scaled = g.op("Div", &[centered, std]);
        let wide = g.cast(scaled, Type::F64);
        let inside = g.clamp(wide, CLAMP, CLAMP);
        Ok(g.cast(inside, Type::F32))
    }
}

fn features(net: &Backbone, all: AllRows, pool: &Pool) -> Vec<f32> {
    let rows = match all {
        AllRows::Table { x, width } => x.len() / width.max(1),
        AllRows::Images { images, .. } => images.rows(),
    };
    let part = Part::new((0..rows).collect(), &vec![0; rows]);
    let (examples, width) = (part.examples(all), net.latent());
    let mut z = vec![0.0f32; rows * width];
    pool.split(chunks(&mut z, Embedding::BLOCK * width), |i, z| {
        let (mut buffer, from) = (Vec::new(), i * Embedding::BLOCK);
        let x = examples.x(from..from + z.len() / width, &mut buffer);
        z.copy_from_slice(net.latents(x, &mut NetworkBuffers::default()));
    });
    z
}

/// The file of a backbone that is not in the model file: the given one, or the one beside the model.
fn find(spec: &BackboneSpec, beside: Beside) -> Result<std::path::PathBuf> {
    if let Some(path) = beside.backbone {
        return Ok(path.to_owned());
    }
    let name = Path::new(&spec.name);
    let plain = name.file_name().is_some_and(|n| n == name.as_os_str());
    let path = beside.model.filter(|_| plain).map(|model| model.with_file_name(name)).filter(|path| path.is_file());
    path.ok_or_else(|| {
        Error::format(format!("the backbone of the model, {}, is not beside it", crate::error::plain(&spec.name)))
            .hint("copy it into the folder of the model, or give it as `backbone`")
    })
}
