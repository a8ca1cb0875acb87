//! One conformance suite that every registered head must pass.

use super::*;
use crate::compute::pool::Pool;
use crate::net::{NetworkBuffers, Optimizer, TrainerOptions, default_engine, mlp};
use crate::train::{Batch, HeadLoss, LabeledRows};
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
                    let sum: f64 = (0..width).map(|i| row[i] * w[o * width + i]).sum::<f64>() + b[o];
                    next.push(if l + 1 < weights.len() { sum.max(0.0) } else { sum });
                }
            }
            value = next;
            width = outputs;
        }
        value
    }

    fn square(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
    }

    fn cross_entropy(logits: &[f64], y: usize) -> f64 {
        let sum: f64 = logits.iter().map(|l| l.exp()).sum();
        -(logits[y].exp() / sum).ln()
    }

    /// The mean over the queries of an episode, whose first rows of each class are its shots.
    fn episode(shots: usize, queries: usize, z: &[f64], y: &[u32], latent: usize) -> f64 {
        let rows: Vec<&[f64]> = z.chunks(latent).collect();
        let mut classes = y.to_vec();
        classes.sort_unstable();
        classes.dedup();
        let (mut prototypes, mut asked) = (Vec::new(), Vec::new());
        for (way, &class) in classes.iter().enumerate() {
            let members: Vec<usize> = (0..y.len()).filter(|&i| y[i] == class).collect();
            let n = members.len();
            let share = (n as f64 * shots as f64 / (shots + queries) as f64).ceil() as usize;
            let support = if n == 1 { 1 } else { share.clamp(1, n - 1) };
            let mean = |d: usize| members[..support].iter().map(|&i| rows[i][d]).sum::<f64>() / support as f64;
            prototypes.push((0..latent).map(mean).collect::<Vec<f64>>());
            asked.extend(members[support..].iter().map(|&i| (i, way)));
        }
        let losses = asked.iter().map(|&(i, way)| {
            let logits: Vec<f64> = prototypes.iter().map(|p| -square(rows[i], p)).collect();
            cross_entropy(&logits, way)
        });
        if asked.is_empty() { 0.0 } else { losses.sum::<f64>() / asked.len() as f64 }
    }

    pub fn loss(config: &HeadConfig, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64 {
        if let HeadConfig::Protonet { shots, queries } = *config {
            return episode(shots, queries, z, y, latent);
        }
        let classes = params.last().map_or(0, Vec::len);
        let of = |p: usize, k: usize| &params[p][k * latent..(k + 1) * latent];
        let row = |z: &[f64], y: usize| match *config {
            HeadConfig::DeepMcdd { nu, .. } => {
                let distance = |k: usize| {
                    let sigma = params[1][k].exp();
                    square(z, of(0, k)) / (2.0 * sigma * sigma) + (latent as f64) * params[1][k]
                };
                let logits: Vec<f64> = (0..classes).map(|k| -distance(k) + params[2][k]).collect();
                distance(y) + cross_entropy(&logits, y) / nu
            }
            HeadConfig::SoftMcdd { nu } => {
                let nu = nu.unwrap_or(0.01 / classes as f64);
                let sphere = |k: usize| {
                    let alpha = if k == y { 1.0 } else { -1.0 };
                    params[1][k] + (alpha * (square(z, of(0, k)) - params[1][k])).max(0.0) / nu
                };
                (0..classes).map(sphere).sum()
            }
            HeadConfig::Softmax => {
                let logit = |k: usize| z.iter().zip(of(0, k)).map(|(z, w)| z * w).sum::<f64>() + params[1][k];
                cross_entropy(&(0..classes).map(logit).collect::<Vec<_>>(), y)
            }
            HeadConfig::DeepNcm { .. } => {
                cross_entropy(&(0..classes).map(|k| -0.5 * square(z, of(0, k))).collect::<Vec<_>>(), y)
            }
            HeadConfig::DeepSvdd { boundary: Boundary::OneClass, .. } => square(z, of(0, 0)),
            HeadConfig::DeepSvdd { boundary: Boundary::Soft, nu } => {
                params[1][0] + (square(z, of(0, 0)) - params[1][0]).max(0.0) / nu
            }
            HeadConfig::Gda { covariance, .. } => {
                let d: Vec<f64> = z.iter().zip(of(0, y)).map(|(z, m)| z - m).collect();
                let square: f64 = match covariance {
                    Covariance::Diagonal => d.iter().zip(of(1, y)).map(|(d, w)| (d * w).powi(2)).sum(),
                    _ => {
                        let all = latent * latent;
                        let w = if covariance == Covariance::Tied {
                            &params[1][..]
                        } else {
                            &params[1][y * all..(y + 1) * all]
                        };
                        w.chunks(latent).map(|w| w.iter().zip(&d).map(|(w, d)| w * d).sum::<f64>().powi(2)).sum()
                    }
                };
                0.5 * square - params[2][y] - params[3][y]
            }
            HeadConfig::Alad { .. } => {
                let (x, other) = z.split_at(latent / 2);
                let feature = |k: usize, second: &[f64]| {
                    let (a, b) = of(0, k).split_at(x.len());
                    let dot = |w: &[f64], v: &[f64]| w.iter().zip(v).map(|(w, v)| w * v).sum::<f64>();
                    (dot(a, x) + dot(b, second) + params[1][k]).max(0.0)
                };
                (0..classes).map(|k| (feature(k, x) - feature(k, other)).abs()).sum()
            }
            HeadConfig::Protonet { .. } => 0.0,
        };
        z.chunks(latent).zip(y).map(|(z, &y)| row(z, y as usize)).sum::<f64>() / y.len() as f64
    }
}

/// Every head with every setting that changes its formula.
fn configs() -> Vec<HeadConfig> {
    let mut all: Vec<_> = ALL.iter().map(|e| (e.config)()).collect();
    all.push(HeadConfig::DeepMcdd { nu: 0.1, sigma: Sigma::Learned });
    all.push(HeadConfig::DeepMcdd { nu: 3.0, sigma: Sigma::Learned });
    all.push(HeadConfig::Gda { covariance: Covariance::Diagonal, shrinkage: Some(0.2) });
    all.push(HeadConfig::Gda { covariance: Covariance::Full, shrinkage: Some(0.5) });
    all.push(HeadConfig::SoftMcdd { nu: Some(0.3) });
    all.push(HeadConfig::Protonet { shots: 1, queries: 1 });
    all.push(HeadConfig::DeepSvdd { boundary: Boundary::Soft, nu: 0.4 });
    all
}

/// A head with values: random ones for what is trained, and what follows from the latents settled on them.
fn example(
    config: &HeadConfig,
    classes: usize,
    latent: usize,
    z: &[f32],
    y: &[u32],
    seed: &mut Stream,
) -> Box<dyn Head> {
    let mut head = config.build(if config.classifies() { classes } else { 0 }, latent, seed);
    if let HeadConfig::Gda { .. } = config {
        // A handful of rows has no covariance to speak of, and the gradients would be those of noise.
        let own: Vec<f32> = (0..40 * classes * latent).map(|_| seed.normal() as f32).collect();
        let labels: Vec<u32> = (0..40 * classes).map(|i| (i % classes) as u32).collect();
        head.update_centers(&own, &labels, 0, &Pool::new(1)).unwrap();
    } else {
        head.update_centers(z, y, 0, &Pool::new(1)).unwrap();
    }
    let trained: Vec<bool> = head.params().specs().iter().flat_map(|s| vec![s.trained; s.len()]).collect();
    // A radius that is the distance of a row would have that row at the corner of the loss.
    let off = if matches!(config, HeadConfig::SoftMcdd { .. } | HeadConfig::DeepSvdd { .. }) { 1.03 } else { 1.0 };
    for (v, &t) in head.params_mut().data.iter_mut().zip(&trained) {
        *v = if t { *v + 0.3 * seed.normal() as f32 } else { off * *v };
    }
    head.project();
    head
}

/// Whether a head's loss must see the whole batch.
fn whole(config: &HeadConfig) -> bool {
    config.sampling() != Sampling::Shuffled
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
    let x: Vec<f32> = (0..case.rows * case.inputs).map(|_| seed.normal() as f32).collect();
    let y: Vec<u32> = (0..case.rows).map(|_| seed.below(case.classes) as u32).collect();

    // Through a training step, as training does.
    let pool = Pool::new(case.threads);
    let net = default_engine().network(&graph, &params).unwrap();
    let z = net.latents(&x, &mut NetworkBuffers::default()).to_vec();
    let head = example(config, case.classes, case.latent, &z, &y, &mut seed);
    let trained: Vec<bool> = head.params().specs().iter().flat_map(|s| vec![s.trained; s.len()]).collect();
    let options = TrainerOptions { batch: case.rows, whole: whole(config), optimizer: Optimizer::default() };
    let mut trainer = default_engine().trainer(&graph, &params, &options).unwrap();
    let mut head_loss = HeadLoss::new(head.as_ref(), trainer.parts());
    let order: Vec<usize> = (0..case.rows).collect();
    let batch = Batch::rows(LabeledRows { x: &x, y: &y }, &order);
    let loss = trainer.step(case.rows, &head_loss.on(head.as_ref(), batch), &pool);
    let mut of_params = params.clone();
    trainer.gradient(&mut of_params);
    let (gradient, head_gradient) = (of_params.data, head_loss.gradient()[0].clone());
    // The gradient of the input, through all rows at once.
    let (mut dz, mut ignored) = (vec![0.0; z.len()], vec![0.0; head_gradient.len()]);
    head.loss(&z, &y, case.rows, &mut dz, &mut ignored, &mut LossBuffers::default());
    let dx = net.input_gradient().unwrap().input_gradient(&x, &dz, &mut NetworkBuffers::default()).to_vec();

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
        let tolerance = 2e-4 * f64::from(scale) + 1e-6 * (1.0 + expected_loss.abs());
        let close = [1e-5, 1e-7].iter().any(|&h| (f64::from(got) - numeric(h)).abs() < tolerance);
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
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn gradients_match_for_any_shape(
        which in 0usize..configs().len(), inputs in 1usize..9, h1 in 1usize..20, h2 in 1usize..20, deep in 0usize..3,
        latent in 1usize..20, classes in 2usize..6, rows in 1usize..12, threads in 1usize..4,
    ) {
        let hidden = [h1, h2][..deep].to_vec();
        check_gradients(&configs()[which], &Case { inputs, hidden, latent, classes, rows, threads });
    }
}

/// Latents of four classes, and a head that has settled on them.
fn settled(config: &HeadConfig, seed: &mut Stream) -> (Box<dyn Head>, Vec<f32>, Vec<u32>) {
    let y: Vec<u32> = (0..40).map(|i| i % 4).collect();
    let z: Vec<f32> = y
        .iter()
        .flat_map(|&y| (0..10).map(|d| (y * d) as f32 * 0.1 + seed.normal() as f32).collect::<Vec<_>>())
        .collect();
    (example(config, 4, 10, &z, &y, seed), z, y)
}

#[test]
fn the_score_agrees_with_the_loss() {
    for config in configs().into_iter().filter(|c| !whole(c)) {
        let mut seed = Stream::new(3, "score");
        let (head, z, _) = settled(&config, &mut seed);
        let z = &z[..10];
        let (mut logits, mut distances) = (vec![0.0; head.classes()], vec![f64::NAN; head.classes()]);
        let confidence = head.score(z, &mut logits, &mut distances);
        let mut p = logits.clone();
        posterior(&mut p);
        let (mut dz, mut g) = (vec![0.0; 10], vec![0.0; head.params().data.len()]);
        let params = |i: usize| head.params().get(i).iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        for y in 0..4 {
            let loss = head.loss(z, &[y as u32], 1, &mut dz, &mut g, &mut LossBuffers::default());
            let expected = match config {
                HeadConfig::DeepMcdd { nu, .. } => distances[y] - p[y].ln() / nu,
                HeadConfig::SoftMcdd { nu } => {
                    let wrong = |k: usize| if k == y { (-logits[k]).max(0.0) } else { logits[k].max(0.0) };
                    params(1).iter().sum::<f64>() + (0..4).map(wrong).sum::<f64>() / nu.unwrap_or(0.0025)
                }
                HeadConfig::DeepSvdd { boundary: Boundary::OneClass, .. } => -confidence,
                HeadConfig::DeepSvdd { boundary: Boundary::Soft, nu } => params(1)[0] + (-confidence).max(0.0) / nu,
                HeadConfig::Gda { .. } => -logits[y],
                HeadConfig::Alad { .. } => -confidence,
                _ => -p[y].ln(),
            };
            assert!((loss - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{config:?}: {loss} {expected}");
        }
        if head.has_distances() && !matches!(config, HeadConfig::SoftMcdd { .. }) {
            assert_eq!(confidence, -distances.iter().fold(f64::INFINITY, |a, &b| a.min(b)), "{config:?}");
        }
    }
}

#[test]
fn the_gradient_of_the_logits_is_theirs() {
    for config in configs().into_iter().filter(HeadConfig::classifies) {
        let mut seed = Stream::new(5, "logits");
        let (head, z, _) = settled(&config, &mut seed);
        let weights: Vec<f64> = (0..4).map(|_| seed.normal()).collect();
        let value = |z: &[f32]| {
            let (mut logits, mut distances) = ([0.0; 4], [0.0; 4]);
            head.score(z, &mut logits, &mut distances);
            logits.iter().zip(&weights).map(|(l, w)| l * w).sum::<f64>()
        };
        let mut dz = vec![f32::NAN; 10];
        head.logit_gradient(&z[..10], &weights, &mut dz);
        for d in 0..10 {
            let (mut up, mut down) = (z[..10].to_vec(), z[..10].to_vec());
            up[d] += 0.01;
            down[d] -= 0.01;
            let numeric = (value(&up) - value(&down)) / f64::from(up[d] - down[d]);
            assert!(
                (numeric - f64::from(dz[d])).abs() < 1e-3 * (1.0 + numeric.abs()),
                "{config:?} {numeric} {}",
                dz[d]
            );
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for config in configs() {
        let run = |threads| {
            let mut seed = Stream::new(2, "threads");
            let graph = mlp(7, &[33], 20);
            let params = graph.init(&mut seed);
            let x: Vec<f32> = (0..311 * 7).map(|_| seed.normal() as f32).collect();
            let y: Vec<u32> = (0..311).map(|i| i % 5).collect();
            let pool = Pool::new(threads);
            let net = default_engine().network(&graph, &params).unwrap();
            let z = net.latents(&x, &mut NetworkBuffers::default()).to_vec();
            let mut head = example(&config, 5, 20, &z, &y, &mut seed);
            head.update_centers(&z, &y, 1, &pool).unwrap();
            let options = TrainerOptions { batch: 311, whole: whole(&config), optimizer: Optimizer::default() };
            let mut trainer = default_engine().trainer(&graph, &params, &options).unwrap();
            let mut head_loss = HeadLoss::new(head.as_ref(), trainer.parts());
            let order: Vec<usize> = (0..311).rev().collect();
            let batch = Batch::rows(LabeledRows { x: &x, y: &y }, &order);
            let loss = trainer.step(311, &head_loss.on(head.as_ref(), batch), &pool);
            let mut gradient = params.clone();
            trainer.gradient(&mut gradient);
            let settled = head.params().data.clone();
            (loss.to_bits(), gradient, head_loss.gradient().clone(), settled)
        };
        assert_eq!(run(1), run(2));
        assert_eq!(run(1), run(3));
    }
}

#[test]
fn far_away_values_stay_finite() {
    for config in configs() {
        let (head, ..) = settled(&config, &mut Stream::new(1, "far"));
        let (mut logits, mut distances) = (vec![0.0; head.classes()], vec![0.0; head.classes()]);
        for size in [0.0f32, 1e9, 1e30] {
            let confidence = head.score(&[size; 10], &mut logits, &mut distances);
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
        head.loss(&z, &y, 40, &mut dz, &mut g, &mut LossBuffers::default());
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
        assert_eq!(HeadConfig::parse(entry.name).unwrap(), config);
        assert!(entry.summary.len() < 100 && !entry.reference.is_empty());
    }
    let e = HeadConfig::parse("deep-mccd").err().unwrap();
    assert!(e.hint_text().unwrap().contains("did you mean deep-mcdd"), "{e:?}");
    assert_eq!(HeadConfig::parse("soft-mcdd:nu=0.2").unwrap(), HeadConfig::SoftMcdd { nu: Some(0.2) });
    for wrong in
        ["soft-mcdd:nu=0", "protonet:shots=0", "deep-ncm:decay=1", "deep-svdd:nu=2", "alad:code=0", "softmax:nu=1"]
    {
        assert!(HeadConfig::parse(wrong).is_err(), "{wrong}");
    }
    assert!(HeadConfig::DeepMcdd { nu: 0.0, sigma: Sigma::One }.check().is_err());
    assert!(HeadConfig::DeepMcdd { nu: f64::NAN, sigma: Sigma::One }.check().is_err());
}
