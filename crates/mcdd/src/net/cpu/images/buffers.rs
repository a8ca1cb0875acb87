//! Buffers and outputs of one thread.

use super::kernel::numbers;
use super::lanes::Images;
use crate::compute::gemm::{Line, ZERO};

/// Buffers for the numbers of tiles.
#[derive(Clone, Debug, Default)]
pub(super) struct TileBuffers {
    pub numbers: Vec<Line>,
    pub products: Vec<Line>,
    pub pairs: Vec<[usize; 2]>,
}

/// Buffers of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ConvBuffers {
    /// A copied image.
    pub copy: Vec<Line>,
    /// A gradient, or a panel of a copied image.
    pub other: Vec<Line>,
    pub row: Vec<f32>,
    pub pairs: Vec<[usize; 2]>,
    pub tile_buffers: TileBuffers,
}

/// The first `n` values of a buffer that grows where it is too short.
pub(super) fn sized(lines: &mut Vec<Line>, n: usize) -> &mut [f32] {
    let wanted = n.div_ceil(16);
    if lines.len() < wanted {
        lines.resize(wanted, ZERO);
    }
    &mut numbers(lines)[..n]
}

/// Where a step writes: some channels of images that follow each other.
pub(super) struct Out<'a> {
    pub data: &'a mut [f32],
    pub image: usize,
    pub pixel: usize,
    pub offset: usize,
}

impl Out<'_> {
    pub(super) fn as_images(&self) -> Images<'_> {
        Images { data: self.data, image: self.image, pixel: self.pixel, offset: self.offset }
    }
}
