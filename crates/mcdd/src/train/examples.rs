//! What a network is trained on and looked at with: rows of a table, or images.

use std::ops::Range;

use crate::compute::pool::{Pool, chunks};
use crate::data::{ImageSpec, Images};
use crate::error::{Error, Result};
use crate::net::cpu::{ForwardBuffers, Predictor};

/// LabeledRows ready for a network.
#[derive(Clone, Copy, Debug)]
pub struct LabeledRows<'a> {
    /// By rows.
    pub x: &'a [f32],
    /// A label for each row; anything, where the method uses none.
    pub y: &'a [u32],
}

/// Some images of many, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct ImageRows<'a> {
    /// All of them.
    pub images: &'a Images,
    /// Which.
    pub rows: &'a [usize],
    /// How they become a network's inputs.
    pub spec: &'a ImageSpec,
    /// As in [`LabeledRows::y`].
    pub y: &'a [u32],
}

/// Either.
#[derive(Clone, Copy, Debug)]
pub enum Examples<'a> {
    /// Of a table.
    Rows(LabeledRows<'a>),
    /// Made ready when they are needed.
    Images(ImageRows<'a>),
}

/// Numbers of a block of rows, about: 2 MB.
const BLOCK: usize = 1 << 19;
/// LabeledRows of a block at the most; a multiple of the kernels' six.
const BLOCK_ROWS: usize = 510;

impl<'a> Examples<'a> {
    /// The labels.
    pub fn y(self) -> &'a [u32] {
        match self {
            Examples::Rows(rows) => rows.y,
            Examples::Images(pictures) => pictures.y,
        }
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.y().len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.y().is_empty()
    }

    /// Numbers of each.
    pub fn width(self) -> usize {
        match self {
            Examples::Rows(rows) => rows.x.len() / rows.y.len().max(1),
            Examples::Images(pictures) => pictures.spec.shape().values(),
        }
    }

    /// How many are taken at a time where all are.
    pub fn block(self) -> usize {
        (BLOCK / self.width().max(1)).clamp(1, BLOCK_ROWS)
    }

    /// Some of them, as a network gets them; `buffer` holds what is not there yet.
    pub fn x<'b>(self, range: Range<usize>, buffer: &'b mut Vec<f32>) -> &'b [f32]
    where
        'a: 'b,
    {
        let width = self.width();
        match self {
            Examples::Rows(rows) => &rows.x[range.start * width..range.end * width],
            Examples::Images(ImageRows { images, rows, spec, .. }) => {
                buffer.resize(range.len() * width, 0.0);
                for (to, &row) in buffer.chunks_exact_mut(width).zip(&rows[range]) {
                    spec.transform_into(images.image(row), to);
                }
                buffer
            }
        }
    }

    /// The rows, for what is made for tables only.
    ///
    /// # Errors
    /// If these are images.
    pub fn rows(self) -> Result<LabeledRows<'a>> {
        match self {
            Examples::Rows(rows) => Ok(rows),
            Examples::Images(_) => Err(Error::setting("this method is for tables, not for images")
                .hint("take --method deep-mcdd, softmax or another that trains a network")),
        }
    }

    /// Calls `each` for blocks of `width` numbers of `out` for each example, with the block's inputs.
    pub fn in_blocks<T: Send>(self, out: &mut [T], width: usize, pool: &Pool, each: impl Fn(&[f32], &mut [T]) + Sync) {
        let block = self.block();
        pool.split(chunks(out, block * width.max(1)), |i, out| {
            let mut buffer = Vec::new();
            let from = i * block;
            each(self.x(from..from + out.len() / width.max(1), &mut buffer), out);
        });
    }

    /// What a network makes of all of them, `latent` numbers each.
    pub fn latents(self, net: &Predictor, latent: usize, pool: &Pool) -> Vec<f32> {
        let mut z = vec![0.0f32; self.len() * latent];
        self.in_blocks(&mut z, latent, pool, |x, z| z.copy_from_slice(net.latents(x, &mut ForwardBuffers::default())));
        z
    }
}
