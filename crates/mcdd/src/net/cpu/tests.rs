//! Networks with batch normalization and clipped inputs, compared with PyTorch and with their definition in f64.

use proptest::prelude::*;
use serde_json::Value;

use super::{CpuEngine, CpuParams, Pass, RowEngine};
use crate::compute::pool::Pool;
use crate::net::engine::{Engine, NetworkBuffers};
use crate::net::{Bin, Graph, Layer, Node, Params, mlp_with};
use crate::seed::Stream;

/// The definition of a graph, node by node; `params` has the layout of [`Params::data`].
pub(super) struct Definition {
    pub latents: Vec<f64>,
    /// The smallest distance of a value to where a ReLU or a clip bends.
    pub clear: f64,
    /// The smallest variance that was divided by.
    pub variance: f64,
}

pub(super) fn definition(graph: &Graph, params: &[f64], x: &[f64], training: bool) -> Definition {
    let shapes = graph.shapes().unwrap();
    let rows = x.len() / graph.input;
    let mut values = vec![x.to_vec()];
    let (mut rest, mut clear, mut least) = (params, f64::INFINITY, f64::INFINITY);
    let mut take = |n: usize| {
        let (here, after) = rest.split_at(n);
        rest = after;
        here
    };
    for node in &graph.nodes {
        let from = &values[node.from[0]];
        let value: Vec<f64> = match node.layer {
            Layer::Linear { inputs, outputs, bias } => {
                let weight = take(inputs * outputs);
                let bias = if bias { take(outputs).to_vec() } else { vec![0.0; outputs] };
                let one = |r: usize, o: usize| {
                    bias[o] + (0..inputs).map(|i| from[r * inputs + i] * weight[o * inputs + i]).sum::<f64>()
                };
                (0..rows * outputs).map(|i| one(i / outputs, i % outputs)).collect()
            }
            Layer::BatchNorm { features, .. } => {
                let [weight, shift, mean, variance] = [(); 4].map(|()| take(features));
                let statistics = |f: usize| {
                    let column = || from.iter().skip(f).step_by(features);
                    let n = column().count() as f64;
                    let m = column().sum::<f64>() / n;
                    if training {
                        (m, column().map(|x| (x - m).powi(2)).sum::<f64>() / n)
                    } else {
                        (mean[f], variance[f])
                    }
                };
                let each: Vec<(f64, f64)> = (0..features).map(statistics).collect();
                least = each.iter().fold(least, |l, &(_, v)| l.min(v));
                let one = |(i, x): (usize, &f64)| {
                    let f = i % features;
                    weight[f] * (x - each[f].0) / (each[f].1 + 1e-5).sqrt() + shift[f]
                };
                from.iter().enumerate().map(one).collect()
            }
            Layer::Relu => {
                clear = from.iter().fold(clear, |c, v| c.min(v.abs()));
                from.iter().map(|v| v.max(0.0)).collect()
            }
            Layer::Scale { factor } => from.iter().map(|v| v * f64::from(factor)).collect(),
            Layer::Gelu => from.iter().map(|v| 0.5 * v * (1.0 + libm::erf(v / 2f64.sqrt()))).collect(),
            Layer::Clip { limit } => {
                let limit = f64::from(limit);
                clear = from.iter().fold(clear, |c, v| c.min((v.abs() - limit).abs()));
                from.iter().map(|v| v.clamp(-limit, limit)).collect()
            }
            Layer::Bins { ref bins } => {
                let width = shapes[node.from[0]].channels();
                let code = |x: f64, b: &Bin| (x - f64::from(b.low)) / (f64::from(b.high) - f64::from(b.low));
                let mut coded = Vec::new();
                for row in from.chunks(width) {
                    let codes: Vec<f64> = bins.iter().map(|b| code(row[b.feature], b)).collect();
                    clear = codes.iter().fold(clear, |c, v| c.min(v.abs()).min((v - 1.0).abs()));
                    coded.extend(row.iter().copied().chain(codes.into_iter().map(|v| v.clamp(0.0, 1.0))));
                }
                coded
            }
            Layer::Concat => {
                // Pixel by pixel; a row is an image of one.
                let widths: Vec<usize> = node.from.iter().map(|&f| shapes[f].channels()).collect();
                let pixels = from.len() / widths[0];
                (0..pixels)
                    .flat_map(|p| node.from.iter().zip(&widths).map(move |(&f, &w)| (f, p * w, w)))
                    .flat_map(|(f, at, w)| values[f][at..at + w].to_vec())
                    .collect()
            }
            Layer::Image { .. } => from.clone(),
            Layer::Add => (0..from.len()).map(|i| node.from.iter().map(|&f| values[f][i]).sum()).collect(),
            Layer::Conv2d { inputs, outputs, kernel: [kh, kw], stride, padding, bias, .. } => {
                let weight = take(inputs * outputs * kh * kw);
                let bias = if bias { take(outputs).to_vec() } else { vec![0.0; outputs] };
                let ([h, w, _], [oh, ow, _]) = (shapes[node.from[0]].image(), shapes[values.len()].image());
                let mut out = Vec::new();
                for (r, y, x) in (0..rows * oh * ow).map(|i| (i / (oh * ow), i / ow % oh, i % ow)) {
                    let mut sums = bias.clone();
                    for (ky, kx) in (0..kh * kw).map(|t| (t / kw, t % kw)) {
                        let (iy, ix) =
                            ((y * stride + ky).wrapping_sub(padding), (x * stride + kx).wrapping_sub(padding));
                        if iy < h && ix < w {
                            for c in 0..inputs {
                                let v = from[((r * h + iy) * w + ix) * inputs + c];
                                let weight = weight[(c * kh + ky) * kw + kx..].iter().step_by(inputs * kh * kw);
                                sums.iter_mut().zip(weight).for_each(|(s, k)| *s += v * k);
                            }
                        }
                    }
                    out.extend(sums);
                }
                out
            }
            Layer::AvgPool { .. } | Layer::MaxPool { .. } | Layer::GlobalAvgPool | Layer::GlobalMaxPool => {
                let gap = std::cell::Cell::new(f64::INFINITY);
                let ([h, w, c], [oh, ow, _]) = (shapes[node.from[0]].image(), shapes[values.len()].image());
                let ([kh, kw], stride, padding) = match node.layer {
                    Layer::AvgPool { kernel, stride } => ([kernel; 2], stride, 0),
                    Layer::MaxPool { kernel, stride, padding } => ([kernel; 2], stride, padding),
                    _ => ([h, w], 1, 0),
                };
                let one = |i: usize| {
                    let (r, y, x, f) = (i / (oh * ow * c), i / (ow * c) % oh, i / c % ow, i % c);
                    let at = |t: usize| ((r * h + y * stride + t / kw) * w + x * stride + t % kw) * c + f;
                    if !matches!(node.layer, Layer::MaxPool { .. } | Layer::GlobalMaxPool) {
                        return (0..kh * kw).map(|t| from[at(t)]).sum::<f64>() / (kh * kw) as f64;
                    }
                    let inside = |&t: &usize| {
                        let (row, column) = (y * stride + t / kw, x * stride + t % kw);
                        (padding..h + padding).contains(&row) && (padding..w + padding).contains(&column)
                    };
                    let shift = (padding * w + padding) * c;
                    let mut sorted: Vec<f64> = (0..kh * kw).filter(inside).map(|t| from[at(t) - shift]).collect();
                    sorted.sort_by(f64::total_cmp);
                    if let [.., second, first] = sorted[..] {
                        gap.set(gap.get().min(if first > second { first - second } else { f64::INFINITY }));
                    }
                    sorted[sorted.len() - 1]
                };
                let out: Vec<f64> = (0..rows * oh * ow * c).map(one).collect();
                clear = clear.min(gap.get());
                out
            }
        };
        values.push(value);
    }
    Definition { latents: values.pop().unwrap(), clear, variance: least }
}

pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Whether all of `found` are within `within` of `wanted`, relative to the largest of these or to 1.
pub(super) fn close(found: &[f32], wanted: &[f64], within: f64) -> Result<(), String> {
    let scale = wanted.iter().fold(1.0f64, |s, v| s.max(v.abs()));
    let near = |(f, w): &(&f32, &f64)| (f64::from(**f) - **w).abs() <= within * scale;
    match found.iter().zip(wanted).enumerate().find(|(_, pair)| !near(pair)) {
        None if found.len() == wanted.len() => Ok(()),
        found => Err(format!("{found:?}")),
    }
}

/// Gradients of `sum(latents * matrix)`: of the parameters, with the batch's statistics among them, and of the input.
fn gradients(graph: &Graph, params: &Params, x: &[f32], matrix: &[f32]) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let params = CpuParams::new(params);
    let mut engine = RowEngine::new(graph).unwrap();
    engine.load(&params, &Pool::new(1));
    let mut pass = Pass::default();
    let latents = pass.forward(&engine, &params, x).to_vec();
    pass.latents_and_gradient().1.copy_from_slice(matrix);
    let (mut here, mut out) = (vec![f32::NAN; params.data().len()], vec![f32::NAN; params.data().len()]);
    pass.backward(&engine, &params, x, &mut here);
    params.convert_back(&here, &mut out);
    let mut dx = vec![0.0; x.len()];
    pass.input_gradients(&engine, &params, &mut dx);
    (latents, out, dx)
}

/// The numbers of a nested list, in order.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

fn narrow(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|v| v as f32).collect()
}

#[test]
fn batch_normalization_matches_pytorch() {
    let fixture: Value = serde_json::from_str(include_str!("../../../tests/fixtures/batchnorm.json")).unwrap();
    let expected = &fixture["expected"];
    let graph = mlp_with(5, None, &[7, 6], 3, true);
    let mut params = Params::new(graph.specs());
    for i in 0..params.specs().len() {
        let name = params.specs()[i].name.clone();
        params.set(i, &narrow(&fixture["parameters"][&name])).unwrap();
    }
    let batches: Vec<Vec<f32>> = fixture["batches"].as_array().unwrap().iter().map(narrow).collect();
    let matrix = narrow(&fixture["matrix"]);

    let (latents, gradient, input) = gradients(&graph, &params, &batches[0], &matrix);
    close(&latents, &numbers(&expected["latents"]), 1e-6).unwrap();
    close(&input, &numbers(&expected["gradients"]["input"]), 2e-6).unwrap();
    let mut named = params.clone();
    named.data = gradient;
    for (i, spec) in params.specs().iter().enumerate().filter(|(_, spec)| spec.trained) {
        close(named.get(i), &numbers(&expected["gradients"][&spec.name]), 2e-6)
            .unwrap_or_else(|e| panic!("{}: {e}", spec.name));
    }

    let engine = RowEngine::new(&graph).unwrap();
    for (done, batch) in batches.iter().enumerate() {
        named.data = gradients(&graph, &params, batch, &matrix).1;
        // Vectors, such as the running statistics, have the same layout everywhere.
        let mut here = CpuParams::new(&params);
        engine.update_running_stats(&mut here, std::slice::from_ref(&named.data));
        here.store(&mut params);
        if let Some(running) = expected.get(format!("running_after_{}", done + 1)) {
            for (i, spec) in params.specs().iter().enumerate().filter(|(_, spec)| !spec.trained) {
                close(params.get(i), &numbers(&running[&spec.name]), 1e-6).unwrap();
            }
        }
    }
    let net = CpuEngine.network(&graph, &params).unwrap();
    let found = net.latents(&batches[0], &mut NetworkBuffers::default()).to_vec();
    close(&found, &numbers(&expected["evaluation_latents"]), 1e-6).unwrap();
}

/// Random parameters; variances are positive.
pub(super) fn some_params(graph: &Graph, seed: &mut Stream) -> Params {
    let mut params = graph.init(seed);
    for i in 0..params.specs().len() {
        let spec = params.specs()[i].clone();
        if spec.shape.len() == 1 {
            let positive = spec.name.ends_with("running_var");
            params.get_mut(i).iter_mut().for_each(|v| {
                let normal = seed.normal() as f32;
                *v = if positive { 0.1 + normal.abs() } else { 0.5 + normal };
            });
        }
    }
    params
}

fn some_bins(count: usize, features: usize, seed: &mut Stream) -> Vec<Bin> {
    let bin = |i: usize| {
        let low = seed.normal() as f32;
        Bin { feature: i % features, low, high: low + 0.2 + seed.uniform() as f32 }
    };
    (0..count).map(bin).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn gradients_are_those_of_the_definition(
        (input, one, two, latent) in (1usize..7, 1usize..20, 1usize..9, 1usize..5),
        (rows, bins, bias, relu_last, seed) in (2usize..14, 0usize..5, any::<bool>(), any::<bool>(), any::<u64>()),
    ) {
        let mut s = Stream::new(seed, "norm");
        let mut graph = mlp_with(input, Some(1.5), &[one, two], latent, true);
        if bins > 0 {
            graph = graph.with_bins(some_bins(bins, input, &mut s));
        }
        for node in &mut graph.nodes {
            if let Layer::Linear { bias: has, .. } = &mut node.layer {
                *has |= bias;
            }
        }
        if relu_last {
            let last = graph.nodes.len();
            graph.nodes.push(Node { name: "bn".into(), layer: Layer::batch_norm(latent), from: vec![last] });
            graph.nodes.push(Node { name: "relu".into(), layer: Layer::Relu, from: vec![last + 1] });
        }
        let params = some_params(&graph, &mut s);
        let x: Vec<f32> = (0..rows * input).map(|_| 1.2 * s.normal() as f32).collect();
        let matrix: Vec<f32> = (0..rows * latent).map(|_| s.normal() as f32).collect();
        let (data, wide_x) = (wide(&params.data), wide(&x));
        let there = definition(&graph, &data, &wide_x, true);
        // Where a ReLU bends there is no gradient, and rounding decides which side is taken; two columns in a row that
        // hardly vary make as much of rounding as of anything else.
        prop_assume!(there.clear > 1e-4 && there.variance > 1e-4);
        let (latents, gradient, d_input) = gradients(&graph, &params, &x, &matrix);
        prop_assert_eq!(close(&latents, &there.latents, 2e-4), Ok(()));

        let loss = |params: &[f64], x: &[f64]| -> f64 {
            definition(&graph, params, x, true).latents.iter().zip(&matrix).map(|(z, &m)| z * f64::from(m)).sum()
        };
        let slope = |at: &[f64], i: usize, loss: &dyn Fn(&[f64]) -> f64| {
            let moved = |by: f64| {
                let mut there = at.to_vec();
                there[i] += by;
                loss(&there)
            };
            (moved(1e-6) - moved(-1e-6)) / 2e-6
        };
        let wanted: Vec<f64> = (0..x.len()).map(|i| slope(&wide_x, i, &|x| loss(&data, x))).collect();
        prop_assert_eq!(close(&d_input, &wanted, 2e-3), Ok(()));
        let trained: Vec<bool> = (0..params.specs().len())
            .flat_map(|i| params.range(i).map(move |_| i))
            .map(|i| params.specs()[i].trained)
            .collect();
        let wanted: Vec<f64> = (0..data.len())
            .map(|i| if trained[i] { slope(&data, i, &|p| loss(p, &wide_x)) } else { 0.0 })
            .collect();
        // A bias before a normalization has no gradient: terms as large as the others' gradients cancel there.
        let scale = wanted.iter().fold(1.0f64, |s, v| s.max(v.abs()));
        for (i, spec) in params.specs().iter().enumerate().filter(|(_, spec)| spec.trained) {
            for (found, wanted) in gradient[params.range(i)].iter().zip(&wanted[params.range(i)]) {
                prop_assert!((f64::from(*found) - wanted).abs() <= 2e-3 * scale, "{}: {found} {wanted}", spec.name);
            }
        }
    }

    #[test]
    fn a_folded_network_is_the_definition_with_running_statistics(
        (input, one, latent) in (1usize..7, 1usize..20, 1usize..5),
        (rows, bins, bias, norm_last, seed) in (1usize..14, 0usize..5, any::<bool>(), any::<bool>(), any::<u64>()),
    ) {
        let mut s = Stream::new(seed, "fold");
        let mut graph = mlp_with(input, Some(2.0), &[one, 5], latent, true);
        if bins > 0 {
            graph = graph.with_bins(some_bins(bins, input, &mut s));
        }
        if let Layer::Linear { bias: has, .. } = &mut graph.nodes[1].layer {
            *has = bias;
        }
        if norm_last {
            let from = vec![graph.nodes.len()];
            graph.nodes.push(Node { name: "bn".into(), layer: Layer::batch_norm(latent), from });
        }
        let params = some_params(&graph, &mut s);
        let x: Vec<f32> = (0..rows * input).map(|_| 2.0 * s.normal() as f32).collect();
        let net = CpuEngine.network(&graph, &params).unwrap();
        let wanted = definition(&graph, &wide(&params.data), &wide(&x), false).latents;
        prop_assert_eq!(close(net.latents(&x, &mut NetworkBuffers::default()), &wanted, 1e-5), Ok(()));
        prop_assert_eq!(net.params(), &params);
        let (folded, _) = graph.folded(&params).unwrap();
        let linear = |g: &Graph| g.nodes.iter().filter(|n| matches!(n.layer, Layer::Linear { bias: true, .. })).count();
        prop_assert!(!folded.has_batch_norm());
        prop_assert_eq!(linear(&folded), 3);
    }

    #[test]
    fn no_graph_causes_a_panic(nodes in prop::collection::vec((0usize..7, prop::collection::vec(0usize..9, 0..3)), 0..9)) {
        let layer = |kind: usize| match kind {
            0 | 1 => Layer::Linear { inputs: 3, outputs: 3, bias: kind == 0 },
            2 => Layer::batch_norm(3),
            3 => Layer::Relu,
            4 => Layer::Clip { limit: 1.0 },
            5 => Layer::Bins { bins: vec![Bin { feature: 2, low: -0.5, high: 1.0 }] },
            _ => Layer::Concat,
        };
        let node = |i: usize, (kind, mut from): (usize, Vec<usize>)| {
            // Most read the value before them, or hardly any graph would fit together.
            if from.len() < 2 {
                from = vec![i - from.len().min(i)];
            }
            Node { name: format!("n{i}"), layer: layer(kind), from }
        };
        let graph = Graph { input: 3, nodes: nodes.into_iter().enumerate().map(|(i, n)| node(i, n)).collect() };
        prop_assume!(graph.widths().is_ok());
        let params = some_params(&graph, &mut Stream::new(1, "hostile"));
        let x = [0.5, -3.0, 0.25, 1.0, 2.0, -1.0];
        if let Ok((folded, with)) = graph.folded(&params) {
            let [was, is] = [(&graph, &params), (&folded, &with)]
                .map(|(g, p)| definition(g, &wide(&p.data), &wide(&x), false).latents);
            for (was, is) in was.iter().zip(&is) {
                prop_assert!((was - is).abs() <= 1e-3 * was.abs().max(1.0), "{was} {is}");
            }
        }
        if let Ok(net) = CpuEngine.network(&graph, &params) {
            let wanted = definition(&graph, &wide(&params.data), &wide(&x), false).latents;
            prop_assert_eq!(close(net.latents(&x, &mut NetworkBuffers::default()), &wanted, 1e-3), Ok(()));
        }
        if let Ok(engine) = RowEngine::new(&graph) {
            prop_assert_eq!(engine.latent(), 3);
        }
    }
}

#[test]
fn batch_normalization_must_follow_a_linear_layer_with_no_other_reader() {
    let norm = |from: usize| Node { name: "bn".into(), layer: Layer::batch_norm(3), from: vec![from] };
    let relu = |from: usize| Node { name: "relu".into(), layer: Layer::Relu, from: vec![from] };
    let concat = |from: [usize; 2]| Node { name: "both".into(), layer: Layer::Concat, from: from.to_vec() };
    let start = mlp_with(3, None, &[], 3, true).nodes;
    let with = |more: Vec<Node>| Graph { input: 3, nodes: [start.clone(), more].concat() };
    let wrong = [
        Graph { input: 3, nodes: vec![norm(0)] },
        Graph { input: 3, nodes: vec![relu(0), norm(1)] },
        with(vec![norm(0)]),
        with(vec![relu(1), norm(2)]),
        with(vec![relu(1), norm(1)]),
        with(vec![norm(1), norm(2)]),
        with(vec![norm(1), concat([1, 2])]),
        with(vec![norm(1), relu(1)]),
    ];
    for graph in wrong {
        let params = some_params(&graph, &mut Stream::new(1, "wrong"));
        let error = graph.folded(&params).unwrap_err().to_string();
        assert!(error.contains("must follow a linear layer"), "{error}");
        assert!(CpuEngine.network(&graph, &params).is_err() && RowEngine::new(&graph).is_err(), "{graph:?}");
    }
    assert!(
        with(vec![norm(1), relu(2)]).folded(&some_params(&with(vec![norm(1)]), &mut Stream::new(1, "right"))).is_ok()
    );
}

#[test]
fn extreme_batches_give_finite_values_or_are_detected() {
    let graph = mlp_with(3, None, &[4], 2, true);
    let params = graph.init(&mut Stream::new(1, "awkward"));
    let finite = |x: &[f32]| {
        let matrix: Vec<f32> = (0..x.len() / 3 * 2).map(|i| i as f32 - 1.5).collect();
        let (latents, gradient, input) = gradients(&graph, &params, x, &matrix);
        [latents, gradient, input].concat().iter().all(|v| v.is_finite())
    };
    // One row, and constant columns: the variance is 0, and what comes out is the bias.
    assert!(finite(&[1.0, -2.0, 3e4]) && finite(&[0.0; 3]) && finite(&[7.0; 30]));
    assert!(finite(&[1e15, -1e15, 3.0, -1e15, 1e15, 2.0]));
    // Beyond that a gradient, a running variance or a latent value is not finite, which training refuses; an input that is
    // not a number is not hidden by a ReLU.
    for huge in [1e25, f32::MAX, f32::INFINITY, f32::NAN] {
        let x = [huge, -1.0, 2.0, -huge, 1.0, 1.0, huge, huge, -huge];
        let (latents, gradient, _) = gradients(&graph, &params, &x, &[1.0; 6]);
        assert!(gradient.iter().any(|v| !v.is_finite()), "{huge}");
        assert!(huge.is_finite() || latents.iter().all(|v| !v.is_finite()), "{huge}: {latents:?}");
    }
}
