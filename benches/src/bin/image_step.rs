//! Times a training step and the prediction of a batch of images; `benches/peers/image_step.py` runs it.
//!
//! ```text
//! image_step --net resnet34 --batch 64 --threads 2 --seconds 5
//! image_step --net densenet100 --batch 32 --predict
//! ```

use std::hint::black_box;
use std::time::Instant;

use mcdd::compute::pool::{Pool, chunks};
use mcdd::net::cpu::{ImageBuffers, ImageEngine, ImagePredictor};
use mcdd::net::{Graph, NetName};
use mcdd::seed::Stream;
use mcdd::train::optim::{Optimizer, State, update};

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

/// What was measured.
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
    let mut params = graph.init(seed);
    let labels: Vec<usize> = (0..x.len() / graph.input).map(|_| seed.below(CLASSES)).collect();
    let mut engine = ImageEngine::new(graph).expect("a network of images runs");
    let optimizer = Optimizer::Sgd { momentum: 0.9 };
    let mut state = State::new(&optimizer, &params);
    let mut gradients = vec![vec![0.0; params.data.len()]];
    engine.load(&params, pool);
    let (mut steps, mut clock) = (0, Clock::new());
    loop {
        engine.forward(&params, x, pool);
        let (z, dz) = engine.latents_and_gradient();
        let loss = cross_entropy(z, &labels, dz);
        engine.backward(&params, x, &mut gradients[0], pool);
        update(&optimizer, 1e-3, 1e-4, 1, &mut params, &gradients, &mut state, pool);
        engine.update_running_stats(&mut params);
        engine.load(&params, pool);
        steps += 1;
        if steps == 1 {
            clock = Clock::new();
        } else if clock.taken() >= seconds {
            return clock.timed(steps - 1, loss);
        }
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
    let net = ImagePredictor::new(graph, &graph.init(seed)).expect("a network of images runs");
    let images = x.len() / graph.input;
    let each = images.div_ceil(pool.threads());
    let mut scratches: Vec<ImageBuffers> = vec![ImageBuffers::default(); images.div_ceil(each)];
    let (mut steps, mut clock) = (0, Clock::new());
    loop {
        pool.split(chunks(&mut scratches, 1), |i, scratch| {
            for scratch in scratch {
                let x = &x[i * each * graph.input..((i + 1) * each).min(images) * graph.input];
                black_box(net.latents(black_box(x), scratch));
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

/// What this thread alone has computed, where the system says (Linux); on a busy machine it tells more than the clock.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The most memory that the process has had, in MB, where the system says (Linux).
fn peak_memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
