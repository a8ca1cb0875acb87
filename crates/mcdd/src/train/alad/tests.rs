use super::nets::{Net, XZ, ZZ};
use super::*;
use crate::head::{HeadConfig, config};
use crate::net::default_engine;
use crate::train::optim::Schedule;
use crate::train::{Callback, Examples, MemberRows, Preset, Select, fit};
use std::sync::atomic::{AtomicUsize, Ordering};

fn settings() -> Settings {
    Settings {
        hidden: vec![16, 12],
        head: config::Alad { code: 2, features: 16 }.into(),
        epochs: 30,
        batch: 120,
        schedule: Schedule::Cosine,
        select: Select::Last,
        ..Preset::Paper.settings()
    }
}

/// Rows around two points, `(3, 0, ...)` and `(-3, 0, ...)` or, if `far`, around `(0, 9, ...)`.
fn blobs(n: usize, far: bool, name: &str) -> Vec<f32> {
    let mut seed = Stream::new(5, name);
    let center = |row: usize, column: usize| match (far, column) {
        (false, 0) => 3.0 - 6.0 * (row % 2) as f32,
        (true, 1) => 9.0,
        _ => 0.0,
    };
    (0..n * 6).map(|i| center(i / 6, i % 6) + 0.5 * seed.normal() as f32).collect()
}

fn train(settings: &Settings, run: &Run) -> Result<Member> {
    let (x, validation) = (blobs(700, false, "train"), blobs(100, false, "validation"));
    let graph = graph(6, settings);
    let (train, validation) = (LabeledRows { x: &x, y: &[0; 700] }, LabeledRows { x: &validation, y: &[0; 100] });
    let rows = MemberRows { train: Examples::Rows(train), validation: Examples::Rows(validation) };
    fit(&graph.into(), settings, 0, &vec![rows; settings.members], None, run).map(|mut members| members.remove(0))
}

fn confidences(settings: &Settings, member: &Member, x: &[f32]) -> Vec<f64> {
    let net = default_engine().network(&graph(6, settings), &member.net).unwrap();
    let mut buffers = NetworkBuffers::default();
    let z = net.latents(x, &mut buffers);
    z.chunks_exact(12).map(|z| member.head.score(z, &mut [], &mut [])).collect()
}

/// ALAD in f64 and as written in the paper; a network is its weights and biases.
mod reference {
    type Layers = Vec<(Vec<f64>, Vec<f64>)>;

    pub(super) fn run(layers: &Layers, x: &[f64]) -> Vec<f64> {
        layers.iter().enumerate().fold(x.to_vec(), |value, (l, (w, b))| {
            let sum = |o: usize| value.iter().enumerate().map(|(i, v)| v * w[i * b.len() + o]).sum::<f64>() + b[o];
            let relu = |v: f64| if l + 1 < layers.len() { v.max(0.0) } else { v };
            (0..b.len()).map(|o| relu(sum(o))).collect()
        })
    }

    /// The losses of the discriminators, and of encoder and generator, on one row and one code.
    pub(super) fn losses(nets: &[Layers; 5], x: &[f64], z: &[f64]) -> [f64; 2] {
        let [encoder, generator, xz, xx, zz] = nets;
        let (encoded, generated) = (run(encoder, x), run(generator, z));
        let (rebuilt, recoded) = (run(generator, &encoded), run(encoder, &generated));
        let d = |discriminator: &Layers, a: &[f64], b: &[f64]| {
            let logit = run(discriminator, &[a, b].concat())[0];
            1.0 / (1.0 + (-logit).exp())
        };
        let (row, code) = (d(xz, x, &encoded), d(xz, &generated, z));
        let (same, other) = (d(xx, x, x), d(xx, x, &rebuilt));
        let (same_code, other_code) = (d(zz, z, z), d(zz, z, &recoded));
        let real = -(row.ln() + same.ln() + same_code.ln());
        let fake = -((1.0 - code).ln() + (1.0 - other).ln() + (1.0 - other_code).ln());
        let players = -((1.0 - row).ln() + code.ln() + other.ln() + other_code.ln());
        [real + fake, players]
    }
}

fn wide(v: &[f32]) -> Vec<f64> {
    v.iter().map(|&v| f64::from(v)).collect()
}

/// The layers that a network runs with, from its raw parameters: weights over `left^T W right`, the vectors constant.
fn layers(net: &Net, raw: &[f64]) -> Vec<(Vec<f64>, Vec<f64>)> {
    let tensors = (0..net.raw.specs().len()).step_by(2);
    let layer = |i: usize| {
        let mut weight = raw[net.raw.range(i)].to_vec();
        if let Some(norm) = net.norms.get(i / 2) {
            let (left, right) = (wide(&norm.left), wide(norm.right()));
            let rows = weight.chunks(right.len()).zip(&left);
            let sigma: f64 = rows.map(|(w, l)| l * w.iter().zip(&right).map(|(w, r)| w * r).sum::<f64>()).sum();
            weight.iter_mut().for_each(|w| *w /= sigma);
        }
        (weight, raw[net.raw.range(i + 1)].to_vec())
    };
    tensors.map(layer).collect()
}

/// Every gradient of a step against central differences of the f64 reference, through spectral norms and all.
#[test]
fn gradients_match_finite_differences() {
    let head = HeadConfig::from(config::Alad { code: 3, features: 7 });
    let settings = Settings { hidden: vec![6, 5], head, ..settings() };
    let (width, code, rows) = (4, 3, 9);
    let pool = Pool::new(1);
    let mut nets = Nets::new(width, &settings, &Optimizer::default(), 0, &pool).unwrap();
    let mut seed = Stream::new(8, "gradients");
    for (_, net) in nets.named() {
        net.raw.data_mut().iter_mut().for_each(|v| *v += 0.2 * seed.normal() as f32);
        net.restore(&pool);
    }
    let mut normal = |n: usize| (0..n).map(|_| seed.normal() as f32).collect::<Vec<f32>>();
    let mut shard = Shard::new(&nets);
    (shard.x, shard.z) = (normal(rows * width), normal(rows * code));
    shard.forward(&nets, width);
    shard.train_discriminators(&nets, rows, width, code);
    let discriminator_gradients = shard.discriminator_gradients.clone();
    shard.train_generator(&nets, rows, width, code);

    let raws: Vec<Vec<f64>> = nets.named().map(|(_, n)| wide(n.raw.data())).collect();
    let (x, z) = (wide(&shard.x), wide(&shard.z));
    let value = |nets: &Nets, raws: &[Vec<f64>]| {
        let all = [
            &nets.encoder,
            &nets.generator,
            &nets.discriminators[XZ],
            &nets.discriminators[XX],
            &nets.discriminators[ZZ],
        ];
        let all: [_; 5] = std::array::from_fn(|i| layers(all[i], &raws[i]));
        let each = x.chunks(width).zip(z.chunks(code)).map(|(x, z)| reference::losses(&all, x, z));
        each.fold([0.0; 2], |sum, l| [sum[0] + l[0] / rows as f64, sum[1] + l[1] / rows as f64])
    };
    let expected = value(&nets, &raws);
    assert!((shard.discriminator_loss - expected[0]).abs() < 1e-5, "{} {}", shard.discriminator_loss, expected[0]);
    assert!((shard.generator_loss - expected[1]).abs() < 1e-5, "{} {}", shard.generator_loss, expected[1]);

    for which in 0..5 {
        let analytic = match which {
            0 => nets.encoder.collect(shard.encoder.iter()).to_vec(),
            1 => nets.generator.collect(shard.generator.iter()).to_vec(),
            k => nets.discriminators[k - 2].collect(discriminator_gradients[k - 2..k - 1].iter()).to_vec(),
        };
        let loss = usize::from(which < 2);
        for (i, &got) in analytic.iter().enumerate() {
            let numeric = |h: f64| {
                let mut moved = raws.clone();
                moved[which][i] += h;
                let up = value(&nets, &moved)[loss];
                moved[which][i] -= 2.0 * h;
                (up - value(&nets, &moved)[loss]) / (2.0 * h)
            };
            // Where a ReLU has its corner inside the step, a smaller step is on one side of it.
            let close = [1e-5, 1e-7].iter().any(|&h| (f64::from(got) - numeric(h)).abs() < 2e-5);
            assert!(close, "network {which}, parameter {i}: {got} against {}", numeric(1e-6));
        }
        assert!(analytic.iter().any(|g| g.abs() > 1e-3), "network {which} has gradients");
    }
}

#[test]
fn discriminators_stay_at_a_spectral_norm_of_one() {
    let settings = Settings { epochs: 5, ..settings() };
    let pool = Pool::new(1);
    let mut state = AladState::new(&graph(6, &settings), &settings, 0, &pool).unwrap();
    let x = blobs(700, false, "train");
    let mut trainer = AladTrainer::new(LabeledRows { x: &x, y: &[0; 700] }, 120, 6, 2, &state.nets);
    for _ in 0..5 {
        let loss = epoch(&mut state, &mut trainer, &settings, 0, 120, &Run::default(), &pool).unwrap().unwrap();
        state.record(loss, 0.0);
    }
    for discriminator in &state.nets.discriminators {
        for (i, spec) in discriminator.used.specs().iter().enumerate().filter(|(_, s)| s.shape.len() == 2) {
            let weight =
                nalgebra::DMatrix::from_row_slice(spec.shape[1], spec.shape[0], &wide(discriminator.used.get(i)));
            let norm = weight.singular_values().max();
            assert!((norm - 1.0).abs() < 0.02, "{}: {norm}", spec.name);
        }
    }
    assert!(state.nets.encoder.norms.is_empty() && state.nets.generator.norms.is_empty());
}

#[test]
fn unknown_rows_have_lower_confidence() {
    let settings = Settings { epochs: 100, ..settings() };
    let member = train(&settings, &Run::default()).unwrap();
    let known = confidences(&settings, &member, &blobs(200, false, "test"));
    let unknown = confidences(&settings, &member, &blobs(200, true, "far"));
    let auroc = crate::metrics::detection(&known, &unknown).unwrap().auroc;
    assert!(auroc > 0.95, "{auroc}");
    let (first, last) = (member.history[0], member.history[99]);
    assert!(last.validation_loss < first.validation_loss, "{first:?} {last:?}");
    let mean = -known.iter().sum::<f64>() / 200.0;
    assert!((mean / last.validation_loss - 1.0).abs() < 0.2, "the loss is the mean score: {mean} {last:?}");
}

#[test]
fn threads_do_not_change_a_bit() {
    let settings = Settings { batch: 250, epochs: 3, ..settings() };
    let run = |threads| {
        let m = train(&settings, &Run { threads, ..Run::default() }).unwrap();
        (m.net.data, m.head.params().data.clone(), m.history)
    };
    assert_eq!(run(1), run(2));
    assert_eq!(run(1), run(3));
}

/// Stops after a number of steps.
struct Stop(AtomicUsize);
impl Callback for Stop {
    fn stop(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) <= 1
    }
}

#[test]
fn a_resumed_run_ends_in_the_same_bits() {
    let settings = Settings { epochs: 6, select: Select::Best, ..settings() };
    let whole = train(&settings, &Run::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Some(dir.path().join("c"));
    // Six steps an epoch; it is stopped in the third.
    let stop = Stop(AtomicUsize::new(14));
    let run = Run { threads: 1, checkpoint: checkpoint.clone(), callback: &stop, ..Run::default() };
    let stopped = train(&settings, &run).unwrap();
    assert!(stopped.interrupted && stopped.history.len() == 2);
    for _ in 0..2 {
        let run = Run { threads: 2, checkpoint: checkpoint.clone(), resume: true, ..Run::default() };
        let resumed = train(&settings, &run).unwrap();
        assert_eq!((&resumed.net, &resumed.history), (&whole.net, &whole.history));
        assert_eq!(resumed.head.params(), whole.head.params());
        assert_eq!((resumed.epoch, resumed.interrupted), (whole.epoch, false));
    }
}

#[test]
fn a_learning_rate_that_is_too_high_is_an_error() {
    let error = train(&Settings { lr: 1e30, ..settings() }, &Run::default()).err().unwrap();
    assert_eq!(error.kind(), Kind::Diverged);
}

#[test]
fn a_run_stopped_at_once_still_predicts() {
    let member = train(&settings(), &Run { callback: &Stop(AtomicUsize::new(1)), ..Run::default() }).unwrap();
    assert!(member.interrupted && member.epoch.is_none() && member.history.is_empty());
    assert!(confidences(&settings(), &member, &blobs(5, false, "test")).iter().all(|c| c.is_finite()));
}

#[test]
fn a_model_is_loaded_from_its_bytes() {
    let table = crate::data::digits().select(&(0..300).collect::<Vec<_>>());
    let model = crate::model::Model::fit(&table, &Settings { epochs: 2, ..settings() }).unwrap();
    let again = crate::model::Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
    assert_eq!(model.predict(&table).unwrap(), again.predict(&table).unwrap());
    assert_eq!(again.graph().latent().unwrap(), 2 * again.graph().input);
}
