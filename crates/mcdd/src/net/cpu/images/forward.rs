//! One step of the forward pass, for some images, on one thread; training and prediction share it.

use super::act::{Act, activate};
use super::buffers::{ConvBuffers, Out, sized};
use super::conv::Conv;
use super::kernel::Product;
use super::lanes::{Images, PixelShape};
use super::pixels::fill;
use super::plan::{Buffer, Input, PoolOf, Step, Work};
use super::pooling::Pool;
use crate::compute::gemm::Line;

/// The largest number of values of a copied image that stays in the second-level cache; larger ones are cut into bands.
pub(super) const BAND: usize = 96 * 1024;

/// The number of rows of the output that are computed together.
pub(super) fn band(rows: usize, images: usize, numbers: usize) -> usize {
    if images > 1 || numbers <= BAND { rows } else { (rows * (BAND / 2) / numbers).max(1) }
}

/// A convolution of some images. `from` is none where the input is in the same buffer as the output, from channel `same`
/// on.
pub(super) struct Forward<'a> {
    pub conv: &'a Conv,
    pub lines: &'a [Line],
    pub start: &'a [Line],
    pub act: Act<'a>,
    pub images: usize,
}

impl Forward<'_> {
    pub(super) fn run(&self, from: Option<Images>, same: usize, out: &mut Out, scratch: &mut ConvBuffers) {
        let Conv { padded, output, input, stride, kernel, .. } = *self.conv;
        if let Some([fewer, _]) = &self.conv.winograd {
            let length = fewer.padded.len();
            let (copy, _, tile_buffers) = scratch.for_tiles(self.images * length);
            for (i, copy) in copy.chunks_exact_mut(length).enumerate() {
                let here = from.unwrap_or(Images { offset: same, ..out.as_images() });
                fill(fewer.padded, 0..fewer.padded.height, input, here, i, self.act, copy);
            }
            return fewer.run(copy, self.images, self.lines, self.start, out, tile_buffers);
        }
        let row = padded.width * padded.channels;
        let rows = band(output[0], self.images, padded.len());
        for first in (0..output[0]).step_by(rows) {
            let last = (first + rows).min(output[0]);
            let (top, bottom) =
                if rows == output[0] { (0, padded.height) } else { (first * stride, (last - 1) * stride + kernel[0]) };
            let image = (bottom - top) * row;
            let copy = sized(&mut scratch.copy, self.images * image);
            for (i, copy) in copy.chunks_exact_mut(image).enumerate() {
                let here = from.unwrap_or(Images { offset: same, ..out.as_images() });
                fill(padded, top..bottom, input, here, i, self.act, copy);
            }
            Product {
                window: &self.conv.forward,
                places: &self.conv.forward.places[first * output[1]..last * output[1]],
                lines: self.lines,
                panel_lines: self.conv.forward.k,
                n: self.conv.outputs,
                input: copy,
                image,
                first: top * row,
                images: self.images,
                pixel: out.pixel,
                out_image: out.image,
                offset: out.offset,
                first_pixel: 0,
                start: self.start,
                out: out.data,
            }
            .run(&mut scratch.pairs);
        }
    }
}

/// One step for some images: `from` has the images of each input; none where it is in the step's own buffer.
pub(super) struct Part<'a> {
    pub step: &'a Step,
    pub buffers: &'a [Buffer],
    pub weights: &'a [Line],
    pub start: &'a [Line],
    pub acts: &'a [Act<'a>],
    pub from: &'a [Option<Images<'a>>],
    pub images: usize,
}

impl Part<'_> {
    pub(super) fn run(&self, out: &mut Out, scratch: &mut ConvBuffers) {
        match &self.step.work {
            Work::Conv { conv, .. } => {
                let view = self.step.inputs[0].view;
                let forward =
                    Forward { conv, lines: self.weights, start: self.start, act: self.acts[0], images: self.images };
                forward.run(self.from[0], view.offset, out, scratch);
            }
            Work::Pool { of, .. } => {
                let window = self.step.pool(self.buffers);
                self.each(out, scratch, |_, from, image, act, to, pixel| match of {
                    PoolOf::Mean => window.means(from, image, act, to, pixel),
                    PoolOf::Max => window.maxima(from, image, to, pixel),
                });
            }
            Work::Sum => self.each(out, scratch, |k, from, image, act, to, pixel| {
                let Input { view, at, .. } = self.step.inputs[k];
                let shape = PixelShape { pixels: self.buffers[view.buffer].pixels(), channels: view.channels };
                let add = self.step.inputs[..k].iter().any(|i| i.at == at);
                activate(act, from.from(image, 0), from.pixel, &mut to[at..], pixel, shape, add);
            }),
        }
    }

    /// Calls `body` for each input of each image; an input in the buffer that is written is copied before.
    fn each(
        &self,
        out: &mut Out,
        scratch: &mut ConvBuffers,
        body: impl Fn(usize, Images, usize, Act, &mut [f32], usize),
    ) {
        for image in 0..self.images {
            for (k, input) in self.step.inputs.iter().enumerate() {
                let at = image * out.image + out.offset;
                if let Some(from) = self.from[k] {
                    body(k, from, image, self.acts[k], &mut out.data[at..], out.pixel);
                    continue;
                }
                let shape =
                    PixelShape { pixels: self.buffers[self.step.buffer].pixels(), channels: input.view.channels };
                let copy = sized(&mut scratch.copy, shape.pixels * shape.channels);
                let from = &out.data[image * out.image + input.view.offset..];
                activate(self.acts[k], from, out.pixel, copy, shape.channels, shape, false);
                let from = Images { data: copy, image: 0, pixel: shape.channels, offset: 0 };
                body(k, from, 0, Act::default(), &mut out.data[at..], out.pixel);
            }
        }
    }
}

impl Step {
    /// The number of rows of its products for an image of `pixels` pixels.
    pub(super) fn rows(&self, pixels: usize) -> usize {
        match &self.work {
            Work::Conv { conv, .. } => conv.winograd.as_ref().map_or(pixels, |w| w[0].count()),
            _ => pixels,
        }
    }

    /// The windows of a pooling.
    pub(super) fn pool(&self, buffers: &[Buffer]) -> Pool {
        let (from, to) = (&buffers[self.inputs[0].view.buffer], &buffers[self.buffer]);
        let (kernel, stride, padding) = match self.work {
            Work::Pool { kernel, stride, padding, .. } => (kernel, stride, padding),
            _ => ([1, 1], 1, 0),
        };
        let (input, output) = ([from.height, from.width], [to.height, to.width]);
        Pool { kernel, stride, padding, input, output, channels: self.channels }
    }
}

/// The number of images that a thread takes together: enough pixels to fill tiles and to be worth loading the weights, and
/// the same for each thread. Results do not depend on it.
pub(super) fn group(images: usize, pixels: usize, threads: usize) -> usize {
    const PIXELS: usize = 48;
    let least = PIXELS.div_ceil(pixels.max(1)).max(1);
    let rounds = images.div_ceil(least).div_ceil(threads.max(1)).max(1);
    images.div_ceil(rounds * threads.max(1)).max(1)
}
