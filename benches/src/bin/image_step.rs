//! Times a training step and the prediction of a batch of images; `benches/peers/image_step.py` runs it.
//!
//! ```text
//! image_step --net resnet34 --batch 64 --threads 2 --seconds 5
//! image_step --net densenet100 --batch 32 --predict
//! ```

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use mcdd::compute::pool::{Pool, chunks};
use mcdd::net::{Graph, NetName, NetworkBuffers, Optimizer, TrainerOptions, TrainingObjective, Update, default_engine};
use mcdd::seed::Stream;

const SIDE: usize = 32;
const CLASSES: usize = 10;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).cloned();
    let number = |name: &str, default: f64| text(name).and_then(|v| v.parse().ok()).unwrap_or(default);
    let name = text("--net").unwrap_or_else(|| "resnet20".into());
    let graph = NetName::parse(&name).and_then(|n| n.graph([SIDE, SIDE, 3], Some(CLASSES))).expect("a known network");
    let batch = number("--batch", 64.0) as usize;
    let pool = Pool::new(number("--threads", 2.0) as usize);
    let seconds = number("--seconds", 3.0);
    let mut seed = Stream::new(1, "image step");
    let x: Vec<f32> = (0..batch * graph.input).map(|_| seed.normal() as f32).collect();
    let Timed { steps, taken, busy, loss } = if args.iter().any(|a| a == "--predict") {
        predict(&graph, &x, &pool, seconds, &mut seed)
    } else {
        train(&graph, &x, &pool, seconds, &mut seed)
    };
    println!(
        "{{\"steps\": {steps}, \"ms\": {:.3}, \"images_per_second\": {:.2}, \"peak_mb\": {:.0}, \"loss\": {loss:.4}, \
         \"cpu_ms\": {:.1}}}",
        taken * 1e3 / f64::from(steps),
        batch as f64 * f64::from(steps) / taken,
        peak_memory(),
        busy * 1e3 / f64::from(steps)
    );
}

/// A measurement.
struct Timed {
    steps: u32,
    taken: f64,
    busy: f64,
    loss: f64,
}

struct Clock {
    start: Instant,
    busy: f64,
}

impl Clock {
    fn new() -> Clock {
        Clock { start: Instant::now(), busy: cpu_seconds() }
    }

    fn taken(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn timed(&self, steps: u32, loss: f64) -> Timed {
        Timed { steps, taken: self.taken(), busy: cpu_seconds() - self.busy, loss }
    }
}

/// Steps of softmax, cross-entropy and SGD with Nesterov momentum on one batch; the first warms up.
fn train(graph: &Graph, x: &[f32], pool: &Pool, seconds: f64, seed: &mut Stream) -> Timed {
    let params = graph.init(seed);
    let images = x.len() / graph.input;
    let batch = Images { x, labels: (0..images).map(|_| seed.below(CLASSES)).collect() };
    let optimizer = Optimizer::Sgd { momentum: 0.9 };
    let options = TrainerOptions { batch: images, whole: true, optimizer };
    let mut trainer = default_engine().trainer(graph, &params, &options).expect("a convolutional network trains");
    let (mut steps, mut clock) = (0, Clock::new());
    loop {
        let loss = trainer.step(images, &batch, pool);
        trainer.update(&Update { optimizer, rate: 1e-3, weight_decay: 1e-4, step: 1 }, pool);
        steps += 1;
        if steps == 1 {
            clock = Clock::new();
        } else if clock.taken() >= seconds {
            return clock.timed(steps - 1, loss);
        }
    }
}

/// One batch, with the loss of softmax and cross-entropy.
struct Images<'a> {
    x: &'a [f32],
    labels: Vec<usize>,
}

impl TrainingObjective for Images<'_> {
    fn inputs<'b>(&'b self, _: Range<usize>, _: &'b mut Vec<f32>) -> &'b [f32] {
        self.x
    }

    fn loss(&self, _: usize, _: Range<usize>, z: &[f32], dz: &mut [f32]) -> f64 {
        cross_entropy(z, &self.labels, dz)
    }
}

/// The mean cross-entropy of softmax, and its gradient.
fn cross_entropy(z: &[f32], labels: &[usize], dz: &mut [f32]) -> f64 {
    let mut loss = 0.0;
    for ((z, dz), &label) in z.chunks_exact(CLASSES).zip(dz.chunks_exact_mut(CLASSES)).zip(labels) {
        let most = z.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
        let sum: f32 = z.iter().map(|&v| (v - most).exp()).sum();
        loss += f64::from(sum.ln() + most - z[label]);
        for (k, (d, &v)) in dz.iter_mut().zip(z).enumerate() {
            *d = ((v - most).exp() / sum - f32::from(k == label)) / labels.len() as f32;
        }
    }
    loss / labels.len() as f64
}

/// Latent vectors of the batch, spread over the threads.
fn predict(graph: &Graph, x: &[f32], pool: &Pool, seconds: f64, seed: &mut Stream) -> Timed {
    let net = default_engine().network(graph, &graph.init(seed)).expect("a convolutional network runs");
    let images = x.len() / graph.input;
    let each = images.div_ceil(pool.threads());
    let mut buffers = vec![NetworkBuffers::default(); images.div_ceil(each)];
    let (mut steps, mut clock) = (0, Clock::new());
    loop {
        pool.split(chunks(&mut buffers, 1), |i, buffers| {
            for buffers in buffers {
                let x = &x[i * each * graph.input..((i + 1) * each).min(images) * graph.input];
                black_box(net.latents(black_box(x), buffers));
            }
        });
        steps += 1;
        if steps == 1 {
            clock = Clock::new();
        } else if clock.taken() >= seconds {
            return clock.timed(steps - 1, 0.0);
        }
    }
}

/// The CPU time of this thread (Linux only); on a busy machine it says more than the clock.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The peak memory of the process in MB (Linux only).
fn peak_memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
