//! From a model's inputs to those of a network: images are resized and laid out, numbers of a table get their units back.

use serde::{Deserialize, Serialize};

use crate::data::ImageShape;
use crate::error::{Error, Result};
use crate::onnx::read::{F32, File, Port};
use crate::onnx::{Attribute, Builder, Value};

/// The order of the channels of a pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red, green, blue.
    #[default]
    Rgb,
    /// Blue, green, red.
    Bgr,
}

/// Where the channels are among the dimensions of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    ChannelsFirst,
    ChannelsLast,
}

/// What a network takes, by its declared input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// Images, of a fixed size or of any.
    Images { layout: Layout, channels: usize, size: [Option<usize>; 2] },
    /// Rows of numbers.
    Rows { width: Option<usize> },
}

/// The only input of a network.
///
/// # Errors
/// If there are others, or it is not of numbers of 32 bits.
pub(super) fn only_input(file: &File) -> Result<&Port> {
    let [port] = &file.inputs[..] else {
        let names: Vec<String> = file.inputs.iter().take(5).map(|p| crate::onnx::read::shown(&p.name)).collect();
        return Err(Error::data(format!(
            "the network has {} inputs, and must have one: {}",
            file.inputs.len(),
            names.join(", ")
        ))
        .hint("export it with one input of numbers or images"));
    };
    if port.kind != F32 {
        return Err(Error::data("the input of the network is not of type float")
            .hint("export it with an input of 32-bit floats"));
    }
    Ok(port)
}

impl Takes {
    /// By the dimensions of its input.
    ///
    /// # Errors
    /// If they are neither those of images nor those of rows.
    pub(super) fn of(port: &Port) -> Result<Takes> {
        let invalid = |what: &str| {
            Error::data(format!("the input of the network is {}: {what}", port.shape()))
                .hint("a network takes rows (batch x numbers), or images (batch x channels x height x width, or channels last)")
        };
        if let Some(batch) = port.dims.first().copied().flatten().filter(|&batch| batch != 1) {
            return Err(invalid(&format!("it takes {batch} rows at a time"))
                .hint("export it with a dynamic batch dimension, or one of 1"));
        }
        match port.dims[..] {
            [_, width] => Ok(Takes::Rows { width }),
            [_, Some(channels @ (1 | 3)), height, width] => {
                Ok(Takes::Images { layout: Layout::ChannelsFirst, channels, size: [height, width] })
            }
            [_, height, width, Some(channels @ (1 | 3))] => {
                Ok(Takes::Images { layout: Layout::ChannelsLast, channels, size: [height, width] })
            }
            [_, _, _, _] => Err(invalid("neither its second nor its last dimension is 1 or 3 channels")),
            _ => Err(invalid("it must have two or four dimensions")),
        }
    }
}

/// How a row of a model becomes the input of a network.
#[derive(Clone, Debug)]
pub(super) enum Prepare {
    Images {
        from: ImageShape,
        size: [usize; 2],
        layout: Layout,
        order: ChannelOrder,
    },
    /// The mean and the deviation of each column.
    Rows {
        columns: Vec<(f64, f64)>,
    },
}

/// For each position along a side its two neighbors in the source and the weight of the second: linear, with half-pixel centers.
fn positions(from: usize, to: usize) -> Vec<(usize, usize, f32)> {
    let last = from.saturating_sub(1);
    let position = |i: usize| {
        let at = ((i as f64 + 0.5) * from as f64 / to as f64 - 0.5).clamp(0.0, last as f64);
        let low = at.floor() as usize;
        (low, (low + 1).min(last), (at - low as f64) as f32)
    };
    (0..to).map(position).collect()
}

impl Prepare {
    /// The shape of the network's input for some rows.
    pub(super) fn dims(&self, rows: usize) -> Vec<usize> {
        match self {
            Prepare::Images { from, size: [h, w], layout: Layout::ChannelsFirst, .. } => {
                vec![rows, from.channels, *h, *w]
            }
            Prepare::Images { from, size: [h, w], layout: Layout::ChannelsLast, .. } => {
                vec![rows, *h, *w, from.channels]
            }
            Prepare::Rows { columns } => vec![rows, columns.len()],
        }
    }

    /// The number of values of a model's row.
    pub(super) fn width(&self) -> usize {
        match self {
            Prepare::Images { from, .. } => from.values(),
            Prepare::Rows { columns } => columns.len(),
        }
    }

    /// A function that writes the network's input of a row.
    pub(super) fn writer(&self) -> impl Fn(&[f32], &mut [f32]) + Sync + '_ {
        let axes = match self {
            Prepare::Images { from, size, .. } => [positions(from.height, size[0]), positions(from.width, size[1])],
            Prepare::Rows { .. } => [vec![], vec![]],
        };
        move |x, out| match self {
            Prepare::Rows { columns } => {
                for ((out, &x), (mean, std)) in out.iter_mut().zip(x).zip(columns) {
                    *out = (f64::from(x) * std + mean) as f32;
                }
            }
            Prepare::Images { from, size: [height, width], layout, order } => {
                let channels = from.channels;
                for (row, &(top, bottom, down)) in axes[0].iter().enumerate() {
                    for (column, &(left, right, across)) in axes[1].iter().enumerate() {
                        for channel in 0..channels {
                            let source = if *order == ChannelOrder::Bgr { channels - 1 - channel } else { channel };
                            let at = |r: usize, c: usize| x[(r * from.width + c) * channels + source];
                            let mix = |a: f32, b: f32, t: f32| if t == 0.0 { a } else { a * (1.0 - t) + b * t };
                            let upper = mix(at(top, left), at(top, right), across);
                            let lower = mix(at(bottom, left), at(bottom, right), across);
                            let to = match layout {
                                Layout::ChannelsFirst => (channel * height + row) * width + column,
                                Layout::ChannelsLast => (row * width + column) * channels + channel,
                            };
                            out[to] = mix(upper, lower, down);
                        }
                    }
                }
            }
        }
    }

    /// The same as nodes of a graph; `x` are rows of a model's inputs.
    pub(super) fn to_onnx(&self, graph: &mut Builder, x: Value) -> Value {
        match self {
            Prepare::Rows { columns } => {
                let [std, mean] = [1, 0].map(|part| {
                    let values: Vec<f64> = columns.iter().map(|c| if part == 1 { c.1 } else { c.0 }).collect();
                    graph.constant(&[values.len()], &values)
                });
                let wide = graph.cast(x, crate::onnx::Type::F64);
                let scaled = graph.op("Mul", &[wide, std]);
                let moved = graph.op("Add", &[scaled, mean]);
                graph.cast(moved, crate::onnx::Type::F32)
            }
            Prepare::Images { from, size, layout, order } => {
                let dims = [0, from.height as i64, from.width as i64, from.channels as i64];
                let dims = graph.constant_i64(&[4], &dims);
                let mut image = graph.op("Reshape", &[x, dims]);
                let first = *layout == Layout::ChannelsFirst;
                if first {
                    image = graph.op_with("Transpose", &[image], &[("perm", Attribute::Ints(vec![0, 3, 1, 2]))]);
                }
                if *order == ChannelOrder::Bgr {
                    let places: Vec<i64> = (0..from.channels as i64).rev().collect();
                    let places = graph.constant_i64(&[places.len()], &places);
                    image = graph.op_with(
                        "Gather",
                        &[image, places],
                        &[("axis", Attribute::Int(if first { 1 } else { 3 }))],
                    );
                }
                if *size != [from.height, from.width] {
                    image = graph.resize(image, if first { [2, 3] } else { [1, 2] }, *size);
                }
                image
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PyTorch's interpolate(mode="bilinear", align_corners=False): [0, 1] to four values is [0, 0.25, 0.75, 1].
    #[test]
    fn images_are_resized_linearly() {
        let from = ImageShape { height: 1, width: 2, channels: 1 };
        let prepare = |layout, order, channels| Prepare::Images {
            from: ImageShape { channels, ..from },
            size: [2, 4],
            layout,
            order,
        };
        let mut out = [0.0; 8];
        prepare(Layout::ChannelsFirst, ChannelOrder::Rgb, 1).writer()(&[0.0, 1.0], &mut out);
        assert_eq!(out, [0.0, 0.25, 0.75, 1.0, 0.0, 0.25, 0.75, 1.0]);
        let mut out = [0.0; 24];
        let x = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
        prepare(Layout::ChannelsFirst, ChannelOrder::Bgr, 3).writer()(&x, &mut out);
        assert!(out[..8].iter().all(|&v| v == 3.0) && out[16..].iter().all(|&v| v == 1.0));
        prepare(Layout::ChannelsLast, ChannelOrder::Rgb, 3).writer()(&x, &mut out);
        assert_eq!(out[..6], x);
    }

    #[test]
    fn inputs_are_recognized_by_their_dimensions() {
        let port = |dims: &[Option<usize>]| Port { name: "x".into(), kind: F32, dims: dims.to_vec() };
        let images = |layout, channels, size| Takes::Images { layout, channels, size };
        assert_eq!(
            Takes::of(&port(&[None, Some(3), Some(8), None])).unwrap(),
            images(Layout::ChannelsFirst, 3, [Some(8), None])
        );
        assert_eq!(
            Takes::of(&port(&[Some(1), Some(8), Some(9), Some(1)])).unwrap(),
            images(Layout::ChannelsLast, 1, [Some(8), Some(9)])
        );
        assert_eq!(Takes::of(&port(&[None, Some(7)])).unwrap(), Takes::Rows { width: Some(7) });
        for bad in [&[Some(4), Some(7)][..], &[None, Some(4), Some(8), Some(8)], &[None], &[None; 5]] {
            assert!(Takes::of(&port(bad)).is_err());
        }
    }
}
