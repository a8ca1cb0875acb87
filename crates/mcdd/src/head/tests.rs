//! The conformance tests of every registered head.

use super::*;
use crate::compute::pool::Pool;
use crate::net::{NetworkBuffers, Optimizer, TrainerOptions, default_engine, mlp};
use crate::train::{Batch, HeadLoss, LabeledRows};
use proptest::prelude::*;

/// The formulas of a head in f64, as written in its paper. Every head's file has them, so that the tests below apply to
/// whatever is registered.
pub(super) trait Reference {
    /// Settings other than the default that change the formula.
    fn variants() -> Vec<Self>
    where
        Self: Sized,
    {
        Vec::new()
    }

    /// The mean loss of a batch.
    fn loss(&self, params: &[Vec<f64>], z: &[f64], y: &[u32], latent: usize) -> f64;

    /// The loss of one row of class `y` from its score; `None` if it does not follow from it.
    fn loss_from_score(&self, score: &Scored, y: usize) -> Option<f64>;
}

/// What a head computed for one row.
pub(super) struct Scored {
    pub confidence: f64,
    pub logits: Vec<f64>,
    pub posterior: Vec<f64>,
    pub distances: Vec<f64>,
    pub params: Vec<Vec<f64>>,
}

pub(super) fn square(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

pub(super) fn cross_entropy(logits: &[f64], y: usize) -> f64 {
    let sum: f64 = logits.iter().map(|l| l.exp()).sum();
    -(logits[y].exp() / sum).ln()
}

/// Row `k` of a matrix with `width` columns.
pub(super) fn row(matrix: &[f64], k: usize, width: usize) -> &[f64] {
    &matrix[k * width..(k + 1) * width]
}

/// The mean of a loss over the rows of a batch.
pub(super) fn mean_loss(z: &[f64], y: &[u32], latent: usize, loss: impl Fn(&[f64], usize) -> f64) -> f64 {
    z.chunks(latent).zip(y).map(|(z, &y)| loss(z, y as usize)).sum::<f64>() / y.len() as f64
}

/// The output of a network of linear layers with ReLU between them.
fn reference_latents(x: &[f64], weights: &[(Vec<f64>, Vec<f64>)], inputs: usize) -> Vec<f64> {
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

/// A head with values: perturbed ones for what is trained, and centers that follow from random latents.
fn example(config: &HeadConfig, classes: usize, latent: usize, seed: &mut Stream) -> Box<dyn Head> {
    let mut head = config.build(if config.classifies() { classes } else { 0 }, latent, seed);
    // Enough rows of each class for a covariance. None is a row of the test, because a radius that is the distance of a
    // row would put that row at the corner of the loss.
    let z: Vec<f32> = (0..40 * classes * latent).map(|_| seed.normal() as f32).collect();
    let y: Vec<u32> = (0..40 * classes).map(|i| (i % classes) as u32).collect();
    head.update_centers(&z, &y, 0, &Pool::new(1)).unwrap();
    let trained: Vec<bool> = head.params().specs().iter().flat_map(|s| vec![s.trained; s.len()]).collect();
    for (v, _) in head.params_mut().data.iter_mut().zip(&trained).filter(|(_, trained)| **trained) {
        *v += 0.3 * seed.normal() as f32;
    }
    head.project();
    head
}

/// Whether the loss of a head needs the whole batch at once.
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
    let head = example(config, case.classes, case.latent, &mut seed);
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
        let z = reference_latents(x, &weights, case.inputs);
        config.reference().loss(&head_params, &z, &y, case.latent)
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
    for config in HeadConfig::variants() {
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
        which in 0usize..HeadConfig::variants().len(), inputs in 1usize..9, h1 in 1usize..20, h2 in 1usize..20, deep in 0usize..3,
        latent in 1usize..20, classes in 2usize..6, rows in 1usize..12, threads in 1usize..4,
    ) {
        let hidden = [h1, h2][..deep].to_vec();
        check_gradients(&HeadConfig::variants()[which], &Case { inputs, hidden, latent, classes, rows, threads });
    }
}

/// A head for four classes, and latents of them.
fn with_rows(config: &HeadConfig, seed: &mut Stream) -> (Box<dyn Head>, Vec<f32>, Vec<u32>) {
    let y: Vec<u32> = (0..40).map(|i| i % 4).collect();
    let z: Vec<f32> = y
        .iter()
        .flat_map(|&y| (0..10).map(|d| (y * d) as f32 * 0.1 + seed.normal() as f32).collect::<Vec<_>>())
        .collect();
    (example(config, 4, 10, seed), z, y)
}

#[test]
fn the_score_agrees_with_the_loss() {
    for config in HeadConfig::variants() {
        let mut seed = Stream::new(3, "score");
        let (head, z, _) = with_rows(&config, &mut seed);
        let z = &z[..10];
        let (mut logits, mut distances) = (vec![0.0; head.classes()], vec![f64::NAN; head.classes()]);
        let confidence = head.score(z, &mut logits, &mut distances);
        if head.has_distances() {
            let best = (0..4).map(|k| head.class_confidence(k, &logits, &distances)).fold(f64::MIN, f64::max);
            assert_eq!(confidence, best, "{config:?}");
        }
        let mut p = logits.clone();
        posterior(&mut p);
        let params = (0..head.params().specs().len())
            .map(|i| head.params().get(i).iter().map(|&v| f64::from(v)).collect())
            .collect();
        let score = Scored { confidence, logits, posterior: p, distances, params };
        let (mut dz, mut g) = (vec![0.0; 10], vec![0.0; head.params().data.len()]);
        for y in 0..4 {
            let loss = head.loss(z, &[y as u32], 1, &mut dz, &mut g, &mut LossBuffers::default());
            let Some(expected) = config.reference().loss_from_score(&score, y) else {
                assert!(whole(&config), "{config:?}: the loss of a row follows from its score");
                continue;
            };
            assert!((loss - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{config:?}: {loss} {expected}");
        }
    }
}

#[test]
fn a_head_describes_its_parameters() {
    for config in HeadConfig::variants() {
        let (head, z, _) = with_rows(&config, &mut Stream::new(6, "describe"));
        assert_eq!(head.params().specs(), config.specs(head.classes(), 10), "{config:?}");
        assert_eq!(head.classes(), if config.classifies() { 4 } else { 0 });
        let what = "a head with distances overrides `means`, which reports draw and check, and one without does not";
        assert_eq!(head.means().is_some(), head.has_distances(), "{config:?}: {what}");
        assert!(head.means().is_none_or(|m| m.len() == 4 * 10));
        assert!(head.log_sigma().is_none_or(|s| s.len() == 4));
        let what = "`last_layer` and `has_linear_logits` belong together";
        assert_eq!(head.last_layer().is_some(), config.has_linear_logits(), "{config:?}: {what}");
        if let Some((weight, bias)) = head.last_layer() {
            let mut logits = [0.0; 4];
            head.score(&z[..10], &mut logits, &mut [0.0; 4]);
            for (k, logit) in logits.iter().enumerate() {
                let dot: f64 = (0..10).map(|d| f64::from(z[d]) * f64::from(weight[k * 10 + d])).sum();
                assert!((dot + f64::from(bias[k]) - logit).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn the_gradient_of_the_logits_is_theirs() {
    for config in HeadConfig::variants().into_iter().filter(HeadConfig::classifies) {
        let mut seed = Stream::new(5, "logits");
        let (head, z, _) = with_rows(&config, &mut seed);
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
    for config in HeadConfig::variants() {
        let run = |threads| {
            let mut seed = Stream::new(2, "threads");
            let graph = mlp(7, &[33], 20);
            let params = graph.init(&mut seed);
            let x: Vec<f32> = (0..311 * 7).map(|_| seed.normal() as f32).collect();
            let y: Vec<u32> = (0..311).map(|i| i % 5).collect();
            let pool = Pool::new(threads);
            let net = default_engine().network(&graph, &params).unwrap();
            let z = net.latents(&x, &mut NetworkBuffers::default()).to_vec();
            let mut head = example(&config, 5, 20, &mut seed);
            head.update_centers(&z, &y, 1, &pool).unwrap();
            let options = TrainerOptions { batch: 311, whole: whole(&config), optimizer: Optimizer::default() };
            let mut trainer = default_engine().trainer(&graph, &params, &options).unwrap();
            let mut head_loss = HeadLoss::new(head.as_ref(), trainer.parts());
            let order: Vec<usize> = (0..311).rev().collect();
            let batch = Batch::rows(LabeledRows { x: &x, y: &y }, &order);
            let loss = trainer.step(311, &head_loss.on(head.as_ref(), batch), &pool);
            let mut gradient = params.clone();
            trainer.gradient(&mut gradient);
            let updated = head.params().data.clone();
            (loss.to_bits(), gradient, head_loss.gradient().clone(), updated)
        };
        assert_eq!(run(1), run(2));
        assert_eq!(run(1), run(3));
    }
}

#[test]
fn far_away_values_stay_finite() {
    for config in HeadConfig::variants() {
        let (head, ..) = with_rows(&config, &mut Stream::new(1, "far"));
        let (mut logits, mut distances) = (vec![0.0; head.classes()], vec![0.0; head.classes()]);
        for size in [0.0f32, 1e9, 1e30] {
            let confidence = head.score(&[size; 10], &mut logits, &mut distances);
            assert!(confidence.is_finite() && logits.iter().all(|l| l.is_finite()), "{config:?} at {size}");
        }
    }
}

#[test]
fn sigma_stays_above_its_bound_and_leaves_it_again() {
    // A scatter far below 1 pulls sigma down to its bound; one far above must still move it up afterwards.
    let mut seed = Stream::new(4, "sigma");
    let mut head = config::DeepMcdd { nu: 1.0, sigma: Sigma::Learned }.build(2, 4, &mut seed);
    let step = |head: &mut dyn Head, scale: f32, seed: &mut Stream| {
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
        step(head.as_mut(), 0.1, &mut seed);
    }
    assert_eq!(head.log_sigma().unwrap(), [0.0, 0.0]);
    for _ in 0..50 {
        step(head.as_mut(), 5.0, &mut seed);
    }
    let log_sigma = head.log_sigma().unwrap();
    assert!(log_sigma.iter().all(|&s| s > 0.1), "{log_sigma:?}");
}

#[test]
fn the_registry_is_consistent() {
    for config in HeadConfig::all() {
        let (name, about) = (config.name(), config.about());
        config.check().unwrap();
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!(json["name"], name);
        assert_eq!(serde_json::from_value::<HeadConfig>(json).unwrap(), config);
        assert_eq!(HeadConfig::parse(name).unwrap(), config);
        assert!(about.summary.len() < 100 && !about.reference.is_empty());
        assert_ne!(about.title, name);
        assert_eq!(about.title.to_lowercase(), name);
    }
    let e = HeadConfig::parse("deep-mccd").err().unwrap();
    assert!(e.hint_text().unwrap().contains("did you mean deep-mcdd"), "{e:?}");
    assert_eq!(HeadConfig::parse("soft-mcdd:nu=0.2").unwrap(), config::SoftMcdd { nu: 0.2 }.into());
    assert_eq!(
        HeadConfig::parse("softmax:logit-norm=0.04:smoothing=0.2").unwrap(),
        config::Softmax { smoothing: 0.2, logit_norm: 0.04 }.into()
    );
    for wrong in [
        "deep-mcdd:nu=0",
        "soft-mcdd:nu=0",
        "soft-mcdd:nu=1",
        "protonet:shots=0",
        "deep-ncm:decay=1",
        "deep-svdd:nu=2",
        "alad:code=0",
        "gda:shrinkage=2",
        "softmax:nu=1",
        "softmax:logit-norm=-1",
    ] {
        assert!(HeadConfig::parse(wrong).is_err(), "{wrong}");
    }
    let nan = HeadConfig::from(config::DeepMcdd { nu: f64::NAN, sigma: Sigma::One });
    assert!(nan.check().unwrap_err().hint_text().unwrap().contains("`nu`"));
}
