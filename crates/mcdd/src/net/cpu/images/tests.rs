//! Convolutional networks, compared with their definition in f64, with finite differences, and between numbers of threads.

use proptest::prelude::*;

use super::super::layout::CpuParams;
use super::super::tests::{close, definition, some_params, wide};
use super::ImageNetwork;
use super::engine::ImageEngine;
use crate::compute::pool::Pool;
use crate::net::engine::{Network, NetworkBuffers};
use crate::net::{Graph, Layer, Node, NormTraining, Params, densenet, small_resnet};
use crate::seed::Stream;

fn random(n: usize, seed: &mut Stream) -> Vec<f32> {
    (0..n).map(|_| seed.normal() as f32).collect()
}

/// Latents and gradients of `sum(latents * matrix)`, after an earlier batch of another size that must have no effect.
fn run(graph: &Graph, params: &Params, x: &[f32], matrix: &[f32], threads: usize) -> (Vec<f32>, Vec<f32>, ImageEngine) {
    let pool = Pool::new(threads);
    let mut engine = ImageEngine::new(graph).unwrap();
    let params = CpuParams::new(params);
    engine.load(&params, &pool);
    let other: Vec<f32> = x.iter().chain(&x[..graph.input]).map(|v| 3.0 - v).collect();
    let (mut gradient, mut out) = (vec![f32::NAN; params.data().len()], vec![f32::NAN; params.data().len()]);
    for x in [&other[..], x] {
        engine.forward(&params, x, &pool);
        let d = engine.latents_and_gradient().1;
        d.fill(1e30);
        let n = d.len().min(matrix.len());
        d[..n].copy_from_slice(&matrix[..n]);
        engine.backward(&params, x, &mut gradient, &pool);
    }
    let latents = engine.latents_and_gradient().0.to_vec();
    params.convert_back(&gradient, &mut out);
    (latents, out, engine)
}

/// Compares the latents with the definition and some numbers of each gradient with finite differences.
fn check(graph: &Graph, images: usize, some: usize, seed: &mut Stream) -> Result<(), TestCaseError> {
    let params = some_params(graph, seed);
    let x = random(images * graph.input, seed);
    let matrix = random(images * graph.latent().unwrap(), seed);
    let data = wide(&params.data);
    let there = definition(graph, &data, &wide(&x), true);
    prop_assume!(there.clear > 1e-6 && there.variance > 1e-3);
    let (latents, gradient, _) = run(graph, &params, &x, &matrix, 2);
    prop_assert_eq!(close(&latents, &there.latents, 2e-4), Ok(()));
    let wide_x = wide(&x);
    let loss = |data: &[f64]| -> f64 {
        definition(graph, data, &wide_x, true).latents.iter().zip(&matrix).map(|(z, &m)| z * f64::from(m)).sum()
    };
    for (i, spec) in params.specs().iter().enumerate() {
        let range = params.range(i);
        if !spec.trained {
            prop_assert!(gradient[range].iter().all(|&g| g == 0.0));
            continue;
        }
        let largest = gradient[range.clone()].iter().fold(1.0f32, |m, g| m.max(g.abs()));
        for _ in 0..some.min(range.len()) {
            let at = range.start + seed.below(range.len());
            let moved = |by: f64| {
                let mut there = data.clone();
                there[at] += by;
                loss(&there)
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            let found = f64::from(gradient[at]);
            prop_assert!((found - slope).abs() <= 3e-3 * f64::from(largest), "{} {found} {slope}", spec.name);
        }
    }
    Ok(())
}

fn node(name: &str, layer: Layer, from: &[usize]) -> Node {
    Node { name: name.into(), layer, from: from.to_vec() }
}

fn conv(inputs: usize, outputs: usize, kernel: [usize; 2], stride: usize, padding: usize, bias: bool) -> Layer {
    Layer::Conv2d { inputs, outputs, kernel, stride, padding, bias, frozen: false }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn convolutions_match_their_definition(
        (height, width, channels, middle, outputs) in (1usize..12, 1usize..12, 1usize..9, 1usize..20, 1usize..40),
        (kh, kw, stride, padding, bias) in (1usize..5, 1usize..5, 1usize..4, 0usize..3, any::<bool>()),
        (images, seed) in (1usize..6, any::<u64>()),
    ) {
        let padding = padding.min(kh.max(2) - 1).min(kw.max(2) - 1);
        prop_assume!(height + 2 * padding >= kh && width + 2 * padding >= kw);
        let nodes = vec![
            node("image", Layer::Image { height, width, channels }, &[0]),
            node("first", conv(channels, middle, [1, 1], 1, 0, true), &[1]),
            node("relu", Layer::Relu, &[2]),
            node("second", conv(middle, outputs, [kh, kw], stride, padding, bias), &[3]),
        ];
        let graph = Graph { input: height * width * channels, nodes };
        check(&graph, images, 6, &mut Stream::new(seed, "conv"))?;
    }

    #[test]
    fn layers_between_convolutions_match_their_definition(
        (height, width, channels) in (2usize..8, 2usize..8, 1usize..21),
        (kernel, stride, relu, twice) in (1usize..4, 1usize..4, any::<bool>(), any::<bool>()),
        (gelu, max, images, seed) in (any::<bool>(), any::<bool>(), 2usize..6, any::<u64>()),
    ) {
        let training = NormTraining { scaled: !twice, ..NormTraining::default() };
        let bend = || if gelu { Layer::Gelu } else { Layer::Relu };
        let kernel = kernel.min(height).min(width);
        let padding = (seed % (kernel as u64 / 2 + 1)) as usize;
        let pool = if max { Layer::MaxPool { kernel, stride, padding } } else { Layer::AvgPool { kernel, stride } };
        let first = Layer::Conv2d { inputs: 3, outputs: channels, kernel: [3, 3], stride: 1, padding: 1, bias: true, frozen: max };
        let mut nodes = vec![
            node("image", Layer::Image { height, width, channels: 3 }, &[0]),
            node("first", first, &[1]),
            node("norm", Layer::BatchNorm { features: channels, training }, &[2]),
            node("relu", bend(), &[if relu { 3 } else { 2 }]),
            node("side", conv(channels, channels, [1, 1], 1, 0, false), &[4]),
            // One of these reads what the other has passed.
            node("add", Layer::Add, &[5, if twice { 4 } else { 3 }, 5]),
            node("both", Layer::Concat, &[6, 4, 3]),
            node("pool", pool, &[7]),
            node("again", Layer::batch_norm(3 * channels), &[8]),
            node("bend", bend(), &[9]),
            node("renorm", Layer::batch_norm(3 * channels), &[10]),
            node("mean", if max { Layer::GlobalMaxPool } else { Layer::GlobalAvgPool }, &[11]),
            node("out", Layer::Linear { inputs: 3 * channels, outputs: 5, bias: true }, &[12]),
        ];
        // A layer that is not read has gradients of zero.
        nodes.insert(5, node("lost", conv(channels, 2, [1, 1], 1, 0, true), &[4]));
        for node in &mut nodes[6..] {
            node.from.iter_mut().filter(|f| **f > 5).for_each(|f| *f += 1);
        }
        let graph = Graph { input: height * width * 3, nodes };
        check(&graph, images, 5, &mut Stream::new(seed, "between"))?;
    }

    #[test]
    fn prediction_matches_the_definition_and_is_independent_of_other_rows(
        (height, width, channels, dense) in (4usize..10, 4usize..10, 1usize..4, any::<bool>()),
        (images, seed) in (1usize..8, any::<u64>()),
    ) {
        let mut seed = Stream::new(seed, "predict");
        let image = [height, width, channels];
        let graph =
            if dense { densenet(image, 10, 4, 0.5, Some(7)) } else { small_resnet(image, 8, 1, None) }.unwrap();
        let params = some_params(&graph, &mut seed);
        let x = random(images * graph.input, &mut seed);
        let net = ImageNetwork::new(&graph, &params).unwrap();
        let mut scratch = NetworkBuffers::default();
        let found = net.latents(&x, &mut scratch).to_vec();
        let wanted = definition(&graph, &wide(&params.data), &wide(&x), false).latents;
        prop_assert_eq!(close(&found, &wanted, 1e-4), Ok(()));
        let latent = graph.latent().unwrap();
        for (x, wanted) in x.chunks_exact(graph.input).zip(found.chunks_exact(latent)) {
            prop_assert_eq!(net.latents(x, &mut scratch), wanted);
        }
    }

    #[test]
    fn no_graph_causes_a_panic(nodes in prop::collection::vec((0usize..12, prop::collection::vec(0usize..9, 0..3)), 0..9)) {
        let layer = |kind: usize| match kind {
            0 | 1 => conv(4, 4, [3, 2 + kind], 1, 1, kind == 0),
            2 => Layer::batch_norm(4),
            3 => Layer::Relu,
            4 => Layer::Add,
            5 => conv(4, 4, [1, 1], 2, 0, false),
            6 => Layer::Concat,
            7 => conv(8, 4, [3, 3], 1, 1, false),
            8 => Layer::Gelu,
            10 => Layer::Scale { factor: -0.5 },
            9 => Layer::MaxPool { kernel: 2, stride: 1, padding: 0 },
            _ => Layer::AvgPool { kernel: 2, stride: 1 },
        };
        let each = |i: usize, (kind, from): (usize, Vec<usize>)| {
            // Most read the value before them, or hardly any graph would fit together.
            let before = i + 1 - from.first().copied().unwrap_or(0).min(2).min(i);
            let from = match kind {
                4 | 6 => vec![before, i + 1],
                _ => vec![before],
            };
            node(&format!("n{i}"), layer(kind), &from)
        };
        let image = node("image", Layer::Image { height: 5, width: 4, channels: 4 }, &[0]);
        let nodes = [image].into_iter().chain(nodes.into_iter().enumerate().map(|(i, n)| each(i, n))).collect();
        let graph = Graph { input: 80, nodes };
        prop_assume!(graph.shapes().is_ok());
        let mut seed = Stream::new(1, "hostile");
        let params = some_params(&graph, &mut seed);
        let x = random(3 * graph.input, &mut seed);
        let wanted = definition(&graph, &wide(&params.data), &wide(&x), false).latents;
        let net = ImageNetwork::new(&graph, &params).unwrap();
        prop_assert_eq!(close(net.latents(&x, &mut NetworkBuffers::default()), &wanted, 1e-3), Ok(()));
        check(&graph, 3, 2, &mut seed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn winograd_convolutions_match_their_definition(
        (height, width, middle, outputs) in (1usize..10, 1usize..10, 32usize..50, 32usize..50),
        (bias, images, seed) in (any::<bool>(), 1usize..5, any::<u64>()),
    ) {
        let nodes = vec![
            node("image", Layer::Image { height, width, channels: 2 }, &[0]),
            node("first", conv(2, middle, [1, 1], 1, 0, true), &[1]),
            node("norm", Layer::batch_norm(middle), &[2]),
            node("relu", Layer::Relu, &[3]),
            node("second", conv(middle, outputs, [3, 3], 1, 1, bias), &[4]),
        ];
        let graph = Graph { input: height * width * 2, nodes };
        let mut seed = Stream::new(seed, "winograd");
        check(&graph, images, 4, &mut seed)?;
        let params = some_params(&graph, &mut seed);
        let x = random(images * graph.input, &mut seed);
        let net = ImageNetwork::new(&graph, &params).unwrap();
        let mut scratch = NetworkBuffers::default();
        let found = net.latents(&x, &mut scratch).to_vec();
        let wanted = definition(&graph, &wide(&params.data), &wide(&x), false).latents;
        prop_assert_eq!(close(&found, &wanted, 2e-5), Ok(()));
        for (x, wanted) in x.chunks_exact(graph.input).zip(found.chunks_exact(height * width * outputs)) {
            prop_assert_eq!(net.latents(x, &mut scratch), wanted);
        }
    }
}

/// A network of the small family with fewer channels, so that tests are quick.
pub(super) fn thin_resnet() -> Graph {
    let mut graph = small_resnet([8, 8, 3], 8, 1, Some(5)).unwrap();
    for node in &mut graph.nodes {
        match &mut node.layer {
            Layer::Conv2d { inputs, outputs, .. } => {
                *inputs = if *inputs == 3 { 3 } else { *inputs / 4 };
                *outputs /= 4;
            }
            Layer::BatchNorm { features, .. } => *features /= 4,
            Layer::Linear { inputs, .. } => *inputs /= 4,
            _ => {}
        }
    }
    graph
}

#[test]
fn whole_networks_have_the_gradients_of_their_definition() {
    let dense = densenet([8, 8, 3], 16, 4, 0.5, Some(5)).unwrap();
    for graph in [thin_resnet(), dense] {
        let mut seed = Stream::new(4, "networks");
        check(&graph, 4, 4, &mut seed).unwrap();
    }
}

#[test]
fn gradients_of_images_are_those_of_the_network_that_predicts() {
    for graph in [thin_resnet(), densenet([8, 7, 2], 10, 4, 0.5, Some(5)).unwrap()] {
        let mut seed = Stream::new(6, "still");
        let params = some_params(&graph, &mut seed);
        let x = random(3 * graph.input, &mut seed);
        let matrix = random(3 * graph.latent().unwrap(), &mut seed);
        let pool = Pool::new(2);
        let mut buffers = NetworkBuffers::default();
        let net = ImageNetwork::new(&graph, &params).unwrap();
        let data = wide(&params.data);
        let loss = |x: &[f64]| -> f64 {
            definition(&graph, &data, x, false).latents.iter().zip(&matrix).map(|(z, &m)| z * f64::from(m)).sum()
        };
        let gradient = net.input_gradient().unwrap();
        let found = gradient.input_gradient(&x, &matrix, &mut buffers).to_vec();
        let again = gradient.input_gradient(&x, &matrix, &mut NetworkBuffers::default()).to_vec();
        assert_eq!(found, again, "engines are reused");
        let slope = |i: usize| {
            let moved = |by: f64| {
                let mut there = wide(&x);
                there[i] += by;
                loss(&there)
            };
            (moved(1e-6) - moved(-1e-6)) / 2e-6
        };
        let some: Vec<usize> = (0..40).map(|_| seed.below(x.len())).collect();
        let wanted: Vec<f64> = some.iter().map(|&i| slope(i)).collect();
        close(&some.iter().map(|&i| found[i]).collect::<Vec<_>>(), &wanted, 1e-3).unwrap();
        let mut same = CpuParams::new(&params);
        ImageEngine::fixed(&graph).unwrap().update_running_stats(&mut same);
        assert_eq!(same, CpuParams::new(&params));
        assert!(ImageEngine::new(&graph).unwrap().input_gradient(&same, &x, &pool).is_empty());
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    let dense = densenet([9, 8, 2], 16, 6, 0.5, None).unwrap();
    for graph in [thin_resnet(), small_resnet([9, 7, 3], 8, 2, None).unwrap(), dense] {
        let mut seed = Stream::new(5, "threads");
        let params = some_params(&graph, &mut seed);
        let x = random(7 * graph.input, &mut seed);
        let matrix = random(7 * graph.latent().unwrap(), &mut seed);
        let (latents, gradient, engine) = run(&graph, &params, &x, &matrix, 1);
        let params_here = CpuParams::new(&params);
        let mut moved = params_here.clone();
        engine.update_running_stats(&mut moved);
        assert_ne!(moved, params_here);
        for threads in [2, 3, 5] {
            let (again, same, engine) = run(&graph, &params, &x, &matrix, threads);
            assert_eq!((&again, &same), (&latents, &gradient));
            let mut there = params_here.clone();
            engine.update_running_stats(&mut there);
            assert_eq!(there, moved);
        }
    }
}

#[test]
fn graphs_that_are_not_for_images_are_refused() {
    let table = crate::net::mlp(3, &[4], 2);
    assert!(ImageEngine::new(&table).is_err());
    assert!(ImageNetwork::new(&table, &Params::new(table.specs())).is_err());
    let mut graph = thin_resnet();
    graph.nodes.push(node("clip", Layer::Clip { limit: 1.0 }, &[graph.nodes.len()]));
    assert!(ImageEngine::new(&graph).is_err());
    // Windows that would need more room than there is.
    let (height, width, channels) = (1, 1, 1);
    let image = node("image", Layer::Image { height, width, channels }, &[0]);
    let huge = node("huge", conv(1, 1, [60_001, 60_001], 1, 30_000, false), &[1]);
    let graph = Graph { input: 1, nodes: vec![image, huge] };
    assert!(graph.shapes().is_ok() && ImageEngine::new(&graph).is_err());
}
