//! Detectors on a network that is not a graph of this crate.

use super::*;
use crate::head::HeadConfig;
use crate::model::Calibration;
use crate::net::{FrozenTrainer, Optimizer, OptimizerState, Trainer, Update};
use crate::seed::Stream;
use crate::train::{Batch, HeadLoss, LabeledRows};

const INPUT: usize = 6;
const HIDDEN: usize = 20;
const LATENT: usize = 8;

/// `relu(x A) B` with fixed random matrices. Its first layer can be read, and ends without `B`.
struct Projection {
    first: Vec<f32>,
    second: Option<Vec<f32>>,
}

/// The rows of `x` times a matrix of `inputs` x `outputs`, or times its transpose.
fn times(x: &[f32], matrix: &[f32], inputs: usize, outputs: usize, transposed: bool) -> Vec<f32> {
    let at = |i: usize, o: usize| if transposed { matrix[o * inputs + i] } else { matrix[i * outputs + o] };
    let row = |x: &[f32], o: usize| (0..inputs).map(|i| x[i] * at(i, o)).sum();
    x.chunks_exact(inputs).flat_map(|x| (0..outputs).map(move |o| row(x, o))).collect()
}

impl Projection {
    fn new() -> Projection {
        let mut seed = Stream::new(3, "projection");
        let mut random = |n: usize| (0..n).map(|_| 0.4 * seed.normal() as f32).collect::<Vec<f32>>();
        Projection { first: random(INPUT * HIDDEN), second: Some(random(HIDDEN * LATENT)) }
    }

    fn hidden(&self, x: &[f32]) -> Vec<f32> {
        times(x, &self.first, INPUT, HIDDEN, false).into_iter().map(|v| v.max(0.0)).collect()
    }
}

impl Network for Projection {
    fn input(&self) -> usize {
        INPUT
    }

    fn latent(&self) -> usize {
        if self.second.is_some() { LATENT } else { HIDDEN }
    }

    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let hidden = self.hidden(x);
        let z = buffers.get::<Vec<f32>>();
        *z = match &self.second {
            Some(second) => times(&hidden, second, HIDDEN, LATENT, false),
            None => hidden,
        };
        z
    }

    fn layers(&self) -> usize {
        2
    }

    fn part(&self, _: usize) -> Result<Arc<dyn Network>> {
        Ok(Arc::new(Projection { first: self.first.clone(), second: None }))
    }

    fn input_gradient(&self) -> Result<Arc<dyn InputGradient>> {
        Ok(Arc::new(Projection { first: self.first.clone(), second: self.second.clone() }))
    }
}

impl InputGradient for Projection {
    fn input_gradient<'b>(&self, x: &[f32], latent_gradient: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        let mut by_hidden = match &self.second {
            Some(second) => times(latent_gradient, second, LATENT, HIDDEN, true),
            None => latent_gradient.to_vec(),
        };
        by_hidden.iter_mut().zip(self.hidden(x)).filter(|(_, h)| *h <= 0.0).for_each(|(d, _)| *d = 0.0);
        let out = buffers.get::<Vec<f32>>();
        *out = times(&by_hidden, &self.first, HIDDEN, INPUT, true);
        out
    }
}

/// Rows around one center for each class, or around another.
fn rows(count: usize, unknown: bool, name: &str) -> (Vec<f32>, Vec<u32>) {
    let mut seed = Stream::new(4, name);
    let y: Vec<u32> = (0..count).map(|i| (i % 3) as u32).collect();
    let center = |y: u32, i: usize| match unknown {
        true => -3.0,
        false if i % 3 == y as usize => 4.0,
        false => 0.0,
    };
    let x = y.iter().flat_map(|&y| (0..INPUT).map(move |i| (y, i)));
    (x.map(|(y, i)| center(y, i) + 0.5 * seed.normal() as f32).collect(), y)
}

/// A softmax head, trained on the latents of a network that stays as it is.
fn train_head(net: &Arc<dyn Network>, x: &[f32], y: &[u32], pool: &Pool) -> Box<dyn Head> {
    let mut head = HeadConfig::parse("softmax").unwrap().build(3, net.latent(), &mut Stream::new(5, "head"));
    let mut trainer = FrozenTrainer::new(Arc::clone(net));
    let mut head_loss = HeadLoss::new(head.as_ref(), trainer.parts());
    let optimizer = Optimizer::default();
    let mut state = OptimizerState::new(&optimizer, head.params().data.len());
    let order: Vec<usize> = (0..y.len()).collect();
    let mut losses = Vec::new();
    for step in 1..=60 {
        let batch = Batch::rows(LabeledRows { x, y }, &order);
        losses.push(trainer.step(y.len(), &head_loss.on(head.as_ref(), batch), pool));
        let update = Update { optimizer, rate: 0.05, weight_decay: 0.0, step };
        trainer.update(&update, pool);
        let (specs, values) = head.params_mut().specs_and_data();
        update.apply(specs, values, head_loss.gradient(), &mut state, pool);
    }
    assert!(losses[59] < 0.2 * losses[0], "{} {}", losses[0], losses[59]);
    head
}

#[test]
fn a_foreign_network_carries_heads_detectors_and_predictions() {
    let pool = Pool::new(2);
    let net: Arc<dyn Network> = Arc::new(Projection::new());
    let (x, y) = rows(240, false, "train");
    let head = train_head(&net, &x, &y, &pool);
    let host = Host { net: net.as_ref(), head: head.as_ref() };
    let score = |probe: &Probe, x: &[f32]| {
        let mut out = vec![0.0; x.len() / INPUT];
        let z = net.latents(x, &mut NetworkBuffers::default()).to_vec();
        let mut logits = vec![0.0; out.len() * probe.classes()];
        let of = Outputs { x, z: &z, hidden: None };
        probe.score(host, of, &mut out, &mut logits, &mut Buffers::default());
        out
    };
    let fit = |detector: &str| {
        let given = Fit { rows: Examples::Rows(LabeledRows { x: &x, y: &y }), labels: Some(&y), classes: 3, seed: 1 };
        Probe::fit(&Detect::parse(detector).unwrap(), host, given, &pool).unwrap().unwrap()
    };
    let (known, labels) = rows(90, false, "test");
    let (unknown, _) = rows(90, true, "unknown");
    let relative = "knn:k=1:log=true:reduce=6:relative=0.3:norm=0.2:on=last-two";
    for detector in ["mahalanobis-ensemble", "mahalanobis", "knn", "knn:on=inputs", relative] {
        let probe = fit(detector);
        let calibration = Calibration::new(score(&probe, &x)).unwrap();
        let p = |rows: &[f32]| score(&probe, rows).iter().map(|&c| calibration.p_value(c)).collect::<Vec<f64>>();
        let auroc = crate::metrics::detection(&p(&known), &p(&unknown)).unwrap().auroc;
        assert!(auroc > 0.95, "{detector}: {auroc}");
    }
    assert_eq!(fit("mahalanobis-ensemble").width, HIDDEN + LATENT);
    // Moving the input changes the score.
    assert_ne!(score(&fit("odin:epsilon=0"), &known), score(&fit("odin:epsilon=0.1"), &known));
    // And the head itself classifies.
    let z = net.latents(&known, &mut NetworkBuffers::default()).to_vec();
    let (mut logits, mut distances) = (vec![0.0; 3], vec![0.0; 3]);
    let right = z.chunks_exact(LATENT).zip(&labels).filter(|(z, y)| {
        head.score(z, &mut logits, &mut distances);
        crate::compute::argmax(&logits) == **y as usize
    });
    assert!(right.count() >= 85);
}

/// A network with neither layers to read nor gradients.
struct Opaque(Projection);

impl Network for Opaque {
    fn input(&self) -> usize {
        INPUT
    }

    fn latent(&self) -> usize {
        LATENT
    }

    fn latents<'b>(&self, x: &[f32], buffers: &'b mut NetworkBuffers) -> &'b [f32] {
        self.0.latents(x, buffers)
    }
}

#[test]
fn detectors_that_need_gradients_refuse_a_network_without() {
    let pool = Pool::new(1);
    let net: Arc<dyn Network> = Arc::new(Opaque(Projection::new()));
    let (x, y) = rows(60, false, "train");
    let head = HeadConfig::parse("softmax").unwrap().build(3, LATENT, &mut Stream::new(5, "head"));
    let host = Host { net: net.as_ref(), head: head.as_ref() };
    let given = Fit { rows: Examples::Rows(LabeledRows { x: &x, y: &y }), labels: Some(&y), classes: 3, seed: 1 };
    let fit = |detector: &str| Probe::fit(&Detect::parse(detector).unwrap(), host, given, &pool);
    assert!(fit("odin:epsilon=0.1").err().unwrap().to_string().contains("gradient"));
    let ensemble = fit("mahalanobis-ensemble:epsilon=0").unwrap().unwrap();
    assert_eq!(ensemble.width, LATENT, "only the latents can be read");
    assert!(net.part(0).is_err() && net.params().specs().is_empty());
}
