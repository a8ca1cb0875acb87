//! What a network is trained on: rows of a table, or images.

use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::compute::pool::{Pool, chunks};
use crate::data::{ImageSpec, Images};
use crate::error::{Error, Result};
use crate::net::{Network, NetworkBuffers};

/// Rows ready for a network, with labels.
#[derive(Clone, Copy, Debug)]
pub struct LabeledRows<'a> {
    /// The inputs, row by row.
    pub x: &'a [f32],
    /// A label for each row; any number where the method does not use labels.
    pub y: &'a [u32],
}

/// Some rows of many, with labels.
#[derive(Clone, Copy, Debug)]
pub struct SelectedRows<'a> {
    /// The inputs of all rows, row by row.
    pub x: &'a [f32],
    /// The number of inputs of a row.
    pub width: usize,
    /// The numbers of those to use.
    pub rows: &'a [usize],
    /// As in [`LabeledRows::y`], for those to use.
    pub y: &'a [u32],
}

/// Some images of many, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct ImageRows<'a> {
    /// All images.
    pub images: &'a Images,
    /// The numbers of those to use.
    pub rows: &'a [usize],
    /// How they become inputs of a network.
    pub spec: &'a ImageSpec,
    /// As in [`LabeledRows::y`].
    pub y: &'a [u32],
}

/// Rows of a table, or images.
#[derive(Clone, Copy, Debug)]
pub enum Examples<'a> {
    /// Rows of a table.
    Rows(LabeledRows<'a>),
    /// Some rows of a table.
    Selected(SelectedRows<'a>),
    /// Images, which are transformed when they are needed.
    Images(ImageRows<'a>),
}

/// The number of values of a block of rows: 2 MB.
const BLOCK: usize = 1 << 19;
/// The largest number of rows of a block; a multiple of the kernels' six.
const BLOCK_ROWS: usize = 510;

impl<'a> Examples<'a> {
    /// The labels.
    pub fn y(self) -> &'a [u32] {
        match self {
            Examples::Rows(rows) => rows.y,
            Examples::Selected(rows) => rows.y,
            Examples::Images(images) => images.y,
        }
    }

    /// The number of examples.
    pub fn len(self) -> usize {
        self.y().len()
    }

    /// Whether there are no examples.
    pub fn is_empty(self) -> bool {
        self.y().is_empty()
    }

    /// The number of values of an example.
    pub fn width(self) -> usize {
        match self {
            Examples::Rows(rows) => rows.x.len() / rows.y.len().max(1),
            Examples::Selected(rows) => rows.width,
            Examples::Images(images) => images.spec.shape().values(),
        }
    }

    /// The number of examples of a block.
    pub fn block(self) -> usize {
        (BLOCK / self.width().max(1)).clamp(1, BLOCK_ROWS)
    }

    /// The inputs of some examples; `buffer` holds those that must be transformed.
    pub fn x<'b>(self, range: Range<usize>, buffer: &'b mut Vec<f32>) -> &'b [f32]
    where
        'a: 'b,
    {
        let width = self.width();
        match self {
            Examples::Rows(rows) => &rows.x[range.start * width..range.end * width],
            Examples::Selected(SelectedRows { x, rows, .. }) => {
                buffer.clear();
                rows[range].iter().for_each(|&row| buffer.extend_from_slice(&x[row * width..(row + 1) * width]));
                buffer
            }
            Examples::Images(ImageRows { images, rows, spec, .. }) => {
                buffer.resize(range.len() * width, 0.0);
                for (to, &row) in buffer.chunks_exact_mut(width).zip(&rows[range]) {
                    spec.transform_into(images.image(row), to);
                }
                buffer
            }
        }
    }

    /// The rows, for methods that work on tables only; `buffer` holds them if they are some of many.
    ///
    /// # Errors
    /// If these are images.
    pub fn rows<'b>(self, buffer: &'b mut Vec<f32>) -> Result<LabeledRows<'b>>
    where
        'a: 'b,
    {
        match self {
            Examples::Rows(rows) => Ok(rows),
            Examples::Selected(rows) => Ok(LabeledRows { x: self.x(0..rows.y.len(), buffer), y: rows.y }),
            Examples::Images(_) => Err(Error::setting("this method is for tables, not for images")
                .hint("set `method` to deep-mcdd, softmax or another that trains a network")),
        }
    }

    /// Calls `each` with the inputs of each block and its part of `out`, which has `width` values for each example.
    pub fn in_blocks<T: Send>(self, out: &mut [T], width: usize, pool: &Pool, each: impl Fn(&[f32], &mut [T]) + Sync) {
        let block = self.block();
        pool.split(chunks(out, block * width.max(1)), |i, out| {
            let mut buffer = Vec::new();
            let from = i * block;
            each(self.x(from..from + out.len() / width.max(1), &mut buffer), out);
        });
    }

    /// Adds the inputs and the labels to a hash.
    pub(crate) fn hash(self, hash: &mut Sha256) -> Result<()> {
        let mut numbers = |x: &[f32]| {
            for chunk in x.chunks(4096) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|v| v.to_le_bytes()).collect();
                hash.update(&bytes);
            }
        };
        match self {
            Examples::Rows(rows) => numbers(rows.x),
            Examples::Selected(SelectedRows { x, width, rows, .. }) => {
                rows.iter().for_each(|&row| numbers(&x[row * width..(row + 1) * width]));
            }
            Examples::Images(ImageRows { images, rows, spec, .. }) => {
                rows.iter().for_each(|&row| hash.update(images.image(row)));
                hash.update(serde_json::to_string(spec).map_err(|e| Error::format(e.to_string()))?);
            }
        }
        hash.update(self.y().iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
        Ok(())
    }

    /// The latent vectors of all of them.
    pub fn latents(self, net: &dyn Network, pool: &Pool) -> Vec<f32> {
        let mut z = vec![0.0f32; self.len() * net.latent()];
        self.in_blocks(&mut z, net.latent(), pool, |x, z| {
            z.copy_from_slice(net.latents(x, &mut NetworkBuffers::default()));
        });
        z
    }
}
