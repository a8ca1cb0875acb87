//! A network as a graph of ONNX, in f32. Images are `[rows, channels, height, width]` there.

use super::graph::{Graph, Layer};
use super::params::Params;
use super::shape::Shape;
use crate::error::Result;
use crate::onnx::{Attribute, Builder, Value};

impl Graph {
    /// Writes the network into a graph; `x` are its inputs, `[rows, inputs]`. Gives the output of each of its layers, whose last
    /// is the latent vector, as rows of features. Each batch normalization is merged into the layer before it where it can be,
    /// as it is for prediction.
    ///
    /// # Errors
    /// If the graph is invalid.
    pub(crate) fn to_onnx(&self, params: &Params, graph: &mut Builder, x: Value) -> Result<Vec<Value>> {
        let (net, params) = self.folded_where_it_can(params)?;
        let shapes = net.shapes()?;
        let mut values = vec![x];
        let mut at = 0;
        for node in &net.nodes {
            let inputs: Vec<Value> = node.from.iter().map(|&f| values[f]).collect();
            let shape = node.from.first().map_or(Shape::Row(0), |&f| shapes[f]);
            let tensors: Vec<&[f32]> = (at..at + node.layer.parameters()).map(|i| params.get(i)).collect();
            at += tensors.len();
            values.push(layer(&node.layer, graph, &inputs, shape, &tensors));
        }
        let ends = net.layer_ends();
        Ok(ends.into_iter().map(|end| as_rows(graph, values[end], shapes[end])).collect())
    }
}

fn layer(layer: &Layer, graph: &mut Builder, inputs: &[Value], shape: Shape, tensors: &[&[f32]]) -> Value {
    let x = inputs[0];
    let one = |graph: &mut Builder, v: f32| graph.constant_f32(&[], &[v]);
    let pair = |v: usize| Attribute::Ints(vec![v as i64; 2]);
    match *layer {
        Layer::Linear { inputs: width, outputs, bias } => {
            let weight = graph.constant_f32(&[outputs, width], tensors[0]);
            let mut values = vec![x, weight];
            if bias {
                values.push(graph.constant_f32(&[outputs], tensors[1]));
            }
            graph.op_with("Gemm", &values, &[("transB", Attribute::Int(1))])
        }
        Layer::Relu => graph.op("Relu", &[x]),
        Layer::Gelu => {
            let [root, one, half] = [std::f32::consts::FRAC_1_SQRT_2, 1.0, 0.5].map(|v| one(graph, v));
            let scaled = graph.op("Mul", &[x, root]);
            let erf = graph.op("Erf", &[scaled]);
            let sum = graph.op("Add", &[erf, one]);
            let product = graph.op("Mul", &[x, sum]);
            graph.op("Mul", &[product, half])
        }
        Layer::BatchNorm { features, .. } => {
            let mut values = vec![x];
            values.extend(tensors.iter().map(|t| graph.constant_f32(&[features], t)));
            graph.op_with("BatchNormalization", &values, &[("epsilon", Attribute::Float(1e-5))])
        }
        Layer::Scale { factor } => {
            let factor = one(graph, factor);
            graph.op("Mul", &[x, factor])
        }
        Layer::Clip { limit } => {
            let [low, high] = [-limit, limit].map(|v| one(graph, v));
            graph.op("Clip", &[x, low, high])
        }
        Layer::Bins { ref bins } => {
            let (columns, row): (Vec<i64>, _) = (bins.iter().map(|b| b.feature as i64).collect(), [1, bins.len()]);
            let columns = graph.constant_i64(&[bins.len()], &columns);
            let values = graph.op_with("Gather", &[x, columns], &[("axis", Attribute::Int(1))]);
            let low = graph.constant_f32(&row, &bins.iter().map(|b| b.low).collect::<Vec<_>>());
            let slope = graph.constant_f32(&row, &bins.iter().map(|b| b.slope()).collect::<Vec<_>>());
            let moved = graph.op("Sub", &[values, low]);
            let scaled = graph.op("Mul", &[moved, slope]);
            let [zero, all] = [0.0, 1.0].map(|v| one(graph, v));
            let codes = graph.op("Clip", &[scaled, zero, all]);
            graph.concat(&[x, codes], 1)
        }
        Layer::Concat => graph.concat(inputs, 1),
        Layer::Image { height, width, channels } => {
            let sides = graph.constant_i64(&[4], &[0, height as i64, width as i64, channels as i64]);
            let image = graph.op("Reshape", &[x, sides]);
            graph.op_with("Transpose", &[image], &[("perm", Attribute::Ints(vec![0, 3, 1, 2]))])
        }
        Layer::Conv2d { inputs: channels, outputs, kernel, stride, padding, bias, .. } => {
            let weight = graph.constant_f32(&[outputs, channels, kernel[0], kernel[1]], tensors[0]);
            let mut values = vec![x, weight];
            if bias {
                values.push(graph.constant_f32(&[outputs], tensors[1]));
            }
            let attributes = [
                ("kernel_shape", Attribute::Ints(kernel.map(|k| k as i64).to_vec())),
                ("strides", pair(stride)),
                ("pads", Attribute::Ints(vec![padding as i64; 4])),
            ];
            graph.op_with("Conv", &values, &attributes)
        }
        Layer::AvgPool { kernel, stride } => {
            graph.op_with("AveragePool", &[x], &[("kernel_shape", pair(kernel)), ("strides", pair(stride))])
        }
        Layer::MaxPool { kernel, stride, padding } => {
            let pads = Attribute::Ints(vec![padding as i64; 4]);
            let attributes = [("kernel_shape", pair(kernel)), ("strides", pair(stride)), ("pads", pads)];
            graph.op_with("MaxPool", &[x], &attributes)
        }
        Layer::GlobalAvgPool | Layer::GlobalMaxPool => {
            let op = if *layer == Layer::GlobalAvgPool { "GlobalAveragePool" } else { "GlobalMaxPool" };
            let pooled = graph.op(op, &[x]);
            as_rows(graph, pooled, Shape::Image([1, 1, shape.channels()]))
        }
        Layer::Add => inputs[1..].iter().fold(x, |sum, &other| graph.op("Add", &[sum, other])),
    }
}

/// A value as `[rows, features]`, the channels of a pixel together.
fn as_rows(graph: &mut Builder, x: Value, shape: Shape) -> Value {
    let Shape::Image([height, width, _]) = shape else { return x };
    let pixels = match height * width {
        1 => x,
        _ => graph.op_with("Transpose", &[x], &[("perm", Attribute::Ints(vec![0, 2, 3, 1]))]),
    };
    let sides = graph.constant_i64(&[2], &[0, shape.len() as i64]);
    graph.op("Reshape", &[pixels, sides])
}
