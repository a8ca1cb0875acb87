//! One conformance suite that every registered head must pass.

use super::*;
use crate::net::cpu::pool::Pool;
use crate::net::cpu::{Engine, Pass};
use crate::net::mlp;
use crate::train::{Rows, Shards};
use proptest::prelude::*;

/// A network of linear layers with ReLU between them, and a head's loss, in f64 and as written in the papers.
mod reference {
    use super::*;

    pub fn latents(x: &[f64], weights: &[(Vec<f64>, Vec<f64>)], inputs: usize) -> Vec<f64> {
        let mut value = x.to_vec();
        let mut width = inputs;
        for (l, (w, b)) in weights.iter().enumerate() {
            let outputs = b.len();
            let mut next = Vec::new();
            for row in value.chunks(width) {
                for o in 0..outputs {
                    let sum: f64 = (0..width).map(|i| row[i] * w[i * outputs + o]).sum::<f64>() + b[o];
                    next.push(if l + 1 < weights.len() { sum.max(0.0) } else { sum });
                }
            }
            value = next;
            width = outputs;
        }
        value
    }

    pub fn loss(config: &HeadConfig, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        let total: f64 = z
            .chunks(latent)
            .zip(y)
            .map(|(z, &y)| {
                let y = y as usize;
                let classes = params.last().unwrap().len();
                match *config {
                    HeadConfig::DeepMcdd { nu, .. } => {
                        let distance = |k: usize| {
                            let sigma = params[1][k].exp();
                            let square: f64 = (0..latent).map(|d| (z[d] - params[0][k * latent + d]).powi(2)).sum();
                            square / (2.0 * sigma * sigma) + (latent as f64) * params[1][k]
                        };
                        let sum: f64 = (0..classes).map(|k| (-distance(k) + params[2][k]).exp()).sum();
                        distance(y) - ((-distance(y) + params[2][y]).exp() / sum).ln() / nu
                    }
                    HeadConfig::Softmax => {
                        let logit = |k: usize| {
                            (0..latent).map(|d| z[d] * params[0][k * latent + d]).sum::<f64>() + params[1][k]
                        };
                        let sum: f64 = (0..classes).map(|k| logit(k).exp()).sum();
                        -(logit(y).exp() / sum).ln()
                    }
                    HeadConfig::Alad { .. } => {
                        let (x, other) = z.split_at(latent / 2);
                        let feature = |k: usize, second: &[f64]| {
                            let (a, b) = params[0][k * latent..(k + 1) * latent].split_at(x.len());
                            let dot = |w: &[f64], v: &[f64]| w.iter().zip(v).map(|(w, v)| w * v).sum::<f64>();
                            (dot(a, x) + dot(b, second) + params[1][k]).max(0.0)
                        };
                        (0..classes).map(|k| (feature(k, x) - feature(k, other)).abs()).sum()
                    }
                }
            })
            .sum();
        total / y.len() as f64
    }
}

/// Every head with every setting that changes its formula.
fn configs() -> Vec<HeadConfig> {
    let mut all: Vec<_> = ALL.iter().map(|e| (e.config)()).collect();
    all.push(HeadConfig::DeepMcdd { nu: 0.1, sigma: Sigma::Learned });
    all.push(HeadConfig::DeepMcdd { nu: 3.0, sigma: Sigma::Learned });
    all
}

struct Case {
    inputs: usize,
    hidden: Vec<usize>,
    latent: usize,
    classes: usize,
    rows: usize,
    threads: usize,
}

/// Compares the loss and the gradient of every parameter and of the input with central differences of the f64
/// reference.
fn check_gradients(config: &HeadConfig, case: &Case) {
    let mut seed = Stream::new(11, "gradients");
    let graph = mlp(case.inputs, &case.hidden, case.latent);
    let mut params = graph.init(&mut seed);
    params.data.iter_mut().for_each(|v| *v += 0.1 * seed.normal() as f32);
    let mut head = config.build(case.classes, case.latent, &mut seed);
    let trained: Vec<bool> = head.params().specs().iter().flat_map(|s| vec![s.trained; s.len()]).collect();
    for (v, &t) in head.params_mut().data.iter_mut().zip(&trained) {
        *v += if t { 0.3 * seed.normal() as f32 } else { 0.0 };
    }
    head.project();
    let x: Vec<f32> = (0..case.rows * case.inputs).map(|_| seed.normal() as f32).collect();
    let y: Vec<u32> = (0..case.rows).map(|_| seed.below(case.classes) as u32).collect();

    // Through the shards of a training step, as training does.
    let mut engine = Engine::new(&graph).unwrap();
    let pool = Pool::new(case.threads);
    engine.load(&params, &pool);
    let mut shards = Shards::new(&params, head.params(), case.rows, case.inputs);
    let order: Vec<usize> = (0..case.rows).collect();
    let loss = shards.run(&engine, &params, head.as_ref(), Rows { x: &x, y: &y }, &order, &pool);
    let total =
        |parts: &[Vec<f32>]| (0..parts[0].len()).map(|i| parts.iter().map(|p| p[i]).sum::<f32>()).collect::<Vec<f32>>();
    let (gradient, head_gradient) = (total(shards.net_gradients()), total(shards.head_gradients()));
    // The gradient of the input, through a pass over all rows.
    let mut pass = Pass::default();
    pass.forward(&engine, &params, &x);
    let mut ignored = (vec![0.0; gradient.len()], vec![0.0; head_gradient.len()]);
    let (z, dz) = pass.latents_and_gradient();
    head.loss(z, &y, case.rows, dz, &mut ignored.1, &mut Scratch::default());
    pass.backward(&engine, &params, &x, &mut ignored.0);
    let dx = pass.input_gradient(&engine, &params).to_vec();

    // All variables of the function in one vector: input, network, head.
    let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
    let variables: Vec<f64> = [wide(&x), wide(&params.data), wide(&head.params().data)].concat();
    let value = |v: &[f64]| {
        let (x, v) = v.split_at(x.len());
        let (n, h) = v.split_at(params.data.len());
        let weights: Vec<_> = (0..params.specs().len())
            .step_by(2)
            .map(|i| (n[params.range(i)].to_vec(), n[params.range(i + 1)].to_vec()))
            .collect();
        let head_params: Vec<_> =
            (0..head.params().specs().len()).map(|i| h[head.params().range(i)].to_vec()).collect();
        let z = reference::latents(x, &weights, case.inputs);
        reference::loss(config, &head_params, &z, &y, case.latent)
    };
    let expected_loss = value(&variables);
    assert!((loss - expected_loss).abs() <= 1e-5 * (1.0 + expected_loss.abs()), "{loss} {expected_loss}");
    let analytic: Vec<f32> = [dx, gradient, head_gradient].concat();
    let scale = analytic.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
    let head_start = x.len() + params.data.len();
    for (i, &got) in analytic.iter().enumerate() {
        if i >= head_start && !trained[i - head_start] {
            continue;
        }
        let numeric = |h: f64| {
            let mut v = variables.clone();
            v[i] += h;
            let up = value(&v);
            v[i] -= 2.0 * h;
            (up - value(&v)) / (2.0 * h)
        };
        // Where a ReLU has its corner inside the step, a smaller step is on one side of it.
        let close = [1e-5, 1e-7].iter().any(|&h| (f64::from(got) - numeric(h)).abs() < 2e-4 * f64::from(scale));
        assert!(close, "{config:?}, variable {i}: {got} against {}", numeric(1e-6));
    }
}

#[test]
fn gradients_match_finite_differences() {
    for config in configs() {
        check_gradients(&config, &Case { inputs: 5, hidden: vec![7, 9], latent: 6, classes: 3, rows: 8, threads: 1 });
        check_gradients(&config, &Case { inputs: 3, hidden: vec![18], latent: 20, classes: 4, rows: 13, threads: 2 });
        // More rows than one shard takes.
        check_gradients(&config, &Case { inputs: 2, hidden: vec![3], latent: 2, classes: 2, rows: 230, threads: 2 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn gradients_match_for_any_shape(
        which in 0usize..4, inputs in 1usize..9, h1 in 1usize..20, h2 in 1usize..20, deep in 0usize..3,
        latent in 1usize..20, classes in 2usize..6, rows in 1usize..12, threads in 1usize..4,
    ) {
        let hidden = [h1, h2][..deep].to_vec();
        check_gradients(&configs()[which], &Case { inputs, hidden, latent, classes, rows, threads });
    }
}

#[test]
fn the_score_agrees_with_the_loss() {
    for config in configs() {
        let mut seed = Stream::new(3, "score");
        let mut head = config.build(4, 10, &mut seed);
        head.params_mut().data.iter_mut().for_each(|v| *v += 0.2 * seed.normal() as f32);
        head.project();
        let z: Vec<f32> = (0..10).map(|_| seed.normal() as f32).collect();
        let (mut logits, mut distances) = (vec![0.0; 4], vec![f64::NAN; 4]);
        let confidence = head.score(&z, &mut logits, &mut distances);
        let mut p = logits.clone();
        posterior(&mut p);
        let (mut dz, mut g) = (vec![0.0; 10], vec![0.0; head.params().data.len()]);
        for y in 0..4 {
            let loss = head.loss(&z, &[y as u32], 1, &mut dz, &mut g, &mut Scratch::default());
            let expected = match config {
                HeadConfig::DeepMcdd { nu, .. } => distances[y] - p[y].ln() / nu,
                HeadConfig::Softmax => -p[y].ln(),
                HeadConfig::Alad { .. } => -confidence,
            };
            assert!((loss - expected).abs() < 1e-4, "{config:?}: {loss} {expected}");
        }
        if head.has_distances() {
            assert_eq!(confidence, -distances.iter().fold(f64::INFINITY, |a, &b| a.min(b)));
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for config in configs() {
        let run = |threads| {
            let mut seed = Stream::new(2, "threads");
            let graph = mlp(7, &[33], 20);
            let (params, head) = (graph.init(&mut seed), config.build(5, 20, &mut seed));
            let x: Vec<f32> = (0..311 * 7).map(|_| seed.normal() as f32).collect();
            let y: Vec<u32> = (0..311).map(|i| i % 5).collect();
            let pool = Pool::new(threads);
            let mut engine = Engine::new(&graph).unwrap();
            engine.load(&params, &pool);
            let mut shards = Shards::new(&params, head.params(), 311, 7);
            let order: Vec<usize> = (0..311).rev().collect();
            let loss = shards.run(&engine, &params, head.as_ref(), Rows { x: &x, y: &y }, &order, &pool);
            let own = |parts: &[Vec<f32>]| parts.concat();
            (loss.to_bits(), own(shards.net_gradients()), own(shards.head_gradients()))
        };
        assert_eq!(run(1), run(2));
        assert_eq!(run(1), run(3));
    }
}

#[test]
fn far_away_values_stay_finite() {
    for config in configs() {
        let head = config.build(3, 8, &mut Stream::new(1, "far"));
        let (mut logits, mut distances) = ([0.0; 3], [0.0; 3]);
        for size in [0.0f32, 1e9, 1e30] {
            let confidence = head.score(&[size; 8], &mut logits, &mut distances);
            assert!(confidence.is_finite() && logits.iter().all(|l| l.is_finite()), "{config:?} at {size}");
        }
    }
}

#[test]
fn the_bound_on_sigma_is_kept_and_left_again() {
    // A scatter far below 1 pulls sigma down to its floor; one far above must still move it up afterwards.
    let mut seed = Stream::new(4, "sigma");
    let mut head = DeepMcdd::new(1.0, Sigma::Learned, 2, 4, &mut seed);
    let step = |head: &mut DeepMcdd, scale: f32, seed: &mut Stream| {
        let z: Vec<f32> = (0..40 * 4).map(|_| scale * seed.normal() as f32).collect();
        let y: Vec<u32> = (0..40).map(|i| i % 2).collect();
        let (mut dz, mut g) = (vec![0.0; z.len()], vec![0.0; head.params().data.len()]);
        head.loss(&z, &y, 40, &mut dz, &mut g, &mut Scratch::default());
        for (v, g) in head.params_mut().data.iter_mut().zip(g) {
            *v -= 0.01 * g;
        }
        head.project();
    };
    for _ in 0..50 {
        step(&mut head, 0.1, &mut seed);
    }
    assert_eq!(head.params().get(1), [0.0, 0.0]);
    for _ in 0..50 {
        step(&mut head, 5.0, &mut seed);
    }
    assert!(head.params().get(1).iter().all(|&s| s > 0.1), "{:?}", head.params().get(1));
}

#[test]
fn the_registry_is_consistent() {
    for entry in ALL {
        let config = (entry.config)();
        assert_eq!(config.name(), entry.name);
        config.check().unwrap();
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<HeadConfig>(&json).unwrap(), config);
        assert_eq!(by_name(entry.name).unwrap(), config);
    }
    assert!(by_name("nothing").is_err());
    assert!(HeadConfig::DeepMcdd { nu: 0.0, sigma: Sigma::One }.check().is_err());
    assert!(HeadConfig::DeepMcdd { nu: f64::NAN, sigma: Sigma::One }.check().is_err());
}
