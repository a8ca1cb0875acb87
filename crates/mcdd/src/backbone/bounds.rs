//! What an operator costs, before it runs: bounds on the elements that it computes and on its multiplications.
//!
//! These are all operators that a backbone may have. For most of them the outputs are not larger than the first input, or than what
//! broadcasting gives; the others have a rule each.

use crate::onnx::read::Node;

/// The outputs are not larger than the first input.
const NOT_LARGER: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "ArgMax",
    "ArgMin",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Cos",
    "Cosh",
    "CumSum",
    "DepthToSpace",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "Elu",
    "Erf",
    "Exp",
    "Flatten",
    "Floor",
    "Gelu",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "Neg",
    "Not",
    "QuantizeLinear",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Round",
    "Shape",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Size",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "Split",
    "Sqrt",
    "Squeeze",
    "Tan",
    "Tanh",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
]; // fmt: skip

/// The outputs have the shape that broadcasting the inputs gives.
const BROADCAST: &[&str] = &[
    "Add",
    "And",
    "Clip",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Sum",
    "Where",
]; // fmt: skip

/// Those with a rule of their own.
const OTHERS: &[&str] = &[
    "AveragePool",
    "Concat",
    "ConstantOfShape",
    "Conv",
    "ConvInteger",
    "Expand",
    "Gather",
    "GatherElements",
    "Gemm",
    "MatMul",
    "MatMulInteger",
    "MaxPool",
    "Pad",
    "Range",
    "Resize",
    "Tile",
]; // fmt: skip

/// All operators that a backbone may have.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    [NOT_LARGER, BROADCAST, OTHERS].concat().into_iter()
}

/// Whether a backbone may have this operator.
pub(super) fn supports(op: &str) -> bool {
    [NOT_LARGER, BROADCAST, OTHERS].iter().any(|list| list.contains(&op))
}

/// What is known of an input.
pub(super) struct Known {
    pub(super) dims: Vec<usize>,
    /// Its elements, if they are few numbers.
    pub(super) numbers: Option<Vec<f64>>,
}

/// Bounds of a node's cost. They are numbers with a large range, as hostile sizes would overflow integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// The elements of the outputs.
    pub(super) elements: f64,
    /// The multiplications.
    pub(super) products: f64,
}

fn size(dims: &[usize]) -> f64 {
    dims.iter().map(|&d| d as f64).product()
}

/// The number of elements after broadcasting.
fn broadcast<'a>(shapes: impl Iterator<Item = &'a [usize]> + Clone) -> f64 {
    let rank = shapes.clone().map(<[usize]>::len).max().unwrap_or(0);
    let dim = |i: usize| {
        let dims = shapes.clone().filter_map(|s| (s.len() + i).checked_sub(rank).map(|at| s[at] as f64));
        dims.fold(1.0, f64::max)
    };
    (0..rank).map(dim).product()
}

/// The bounds of a node; `inputs` are `None` where an optional input is not given. `None` if an input is missing, or its elements,
/// which give a size, are not known.
pub(super) fn cost(node: &Node, inputs: &[Option<Known>]) -> Option<Cost> {
    let known = |i: usize| inputs.get(i).and_then(Option::as_ref);
    let dims = |i: usize| known(i).map(|k| &k.dims[..]);
    let numbers = |i: usize| known(i).and_then(|k| k.numbers.as_deref());
    let all = inputs.iter().flatten().map(|k| &k.dims[..]);
    let plain = |elements: f64| Some(Cost { elements, products: elements });
    let product = |values: &[f64]| values.iter().map(|v| v.abs().max(1.0)).product::<f64>();
    match node.op.as_str() {
        op if NOT_LARGER.contains(&op) => plain((size(dims(0)?) + 16.0) * node.outputs.len() as f64),
        op if BROADCAST.contains(&op) => plain(broadcast(all)),
        "Concat" => plain(all.map(size).sum()),
        "Conv" | "ConvInteger" => {
            let (x, w) = (dims(0)?, dims(1)?);
            let elements = padded(node, x)? * *w.first()? as f64;
            Some(Cost { elements, products: elements * size(w.get(1..)?) })
        }
        "AveragePool" | "MaxPool" => {
            let x = dims(0)?;
            let elements = padded(node, x)? * *x.get(1)? as f64 * node.outputs.len() as f64;
            let window: f64 = node.ints("kernel_shape").iter().map(|&k| (k as f64).abs().max(1.0)).product();
            Some(Cost { elements, products: elements * window })
        }
        "Gemm" => {
            let (a, b) = (dims(0)?, dims(1)?);
            let (&[a0, a1], &[b0, b1]) = (a, b) else { return None };
            let (rows, inner) = if node.int("transA") == Some(1) { (a1, a0) } else { (a0, a1) };
            let columns = if node.int("transB") == Some(1) { b0 } else { b1 };
            let elements = rows as f64 * columns as f64;
            Some(Cost { elements, products: elements * inner as f64 })
        }
        "MatMul" | "MatMulInteger" => {
            let (a, b) = (dims(0)?, dims(1)?);
            let rows = if a.len() > 1 { a[a.len() - 2] } else { 1 };
            let columns = if b.len() > 1 { *b.last()? } else { 1 };
            let batch = broadcast([&a[..a.len().saturating_sub(2)], &b[..b.len().saturating_sub(2)]].into_iter());
            let elements = batch * rows as f64 * columns as f64;
            Some(Cost { elements, products: elements * *a.last()? as f64 })
        }
        "Gather" => {
            let (x, at) = (dims(0)?, dims(1)?);
            let axis = node.int("axis").unwrap_or(0);
            let axis = usize::try_from(if axis < 0 { axis + x.len() as i64 } else { axis }).ok()?;
            plain(size(x) / (*x.get(axis)?).max(1) as f64 * size(at))
        }
        "GatherElements" => plain(size(dims(1)?)),
        "ConstantOfShape" => plain(product(numbers(0)?)),
        "Expand" => {
            let wanted: Vec<usize> = numbers(1)?.iter().map(|&v| v.max(0.0) as usize).collect();
            plain(broadcast([dims(0)?, &wanted].into_iter()))
        }
        "Tile" => plain(size(dims(0)?) * product(numbers(1)?)),
        "Range" => {
            let [from, to, by] = [numbers(0)?.first()?, numbers(1)?.first()?, numbers(2)?.first()?];
            plain(((to - from) / by).abs().max(1.0))
        }
        "Pad" => {
            let (x, pads) = (dims(0)?, numbers(1)?);
            // The same bound for pads of all axes and of some.
            let most = pads.iter().fold(0.0f64, |most, p| most.max(p.abs()));
            match pads.len() == 2 * x.len() {
                true => plain((0..x.len()).map(|i| x[i] as f64 + pads[i].abs() + pads[i + x.len()].abs()).product()),
                false => plain(x.iter().map(|&d| d as f64 + 2.0 * most).product()),
            }
        }
        "Resize" => {
            let x = dims(0)?;
            match (numbers(3), numbers(2)) {
                (Some(sizes), _) if !sizes.is_empty() => {
                    plain(product(sizes) * if sizes.len() < x.len() { size(x) } else { 1.0 })
                }
                (_, Some(scales)) if !scales.is_empty() => plain(size(x) * product(scales)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Images of one channel with their padding, as many as there are.
fn padded(node: &Node, x: &[usize]) -> Option<f64> {
    let pads = node.ints("pads");
    let strides = node.ints("strides");
    let sides = x.get(2..)?;
    let side = |i: usize| {
        let pad = |at: usize| pads.get(at).map_or(0.0, |&p| (p as f64).abs());
        let padded = sides[i] as f64 + pad(i) + pad(i + sides.len());
        (padded / strides.get(i).map_or(1.0, |&s| (s as f64).max(1.0)) + 1.0).ceil()
    };
    Some((0..sides.len()).map(side).product::<f64>() * *x.first()? as f64)
}
