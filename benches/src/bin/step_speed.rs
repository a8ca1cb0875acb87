//! Times a training step, the prediction of one row, and the machine's peak rate; `benches/peers/mlp_step.py` runs it.
//!
//! ```text
//! step_speed --input 128 --classes 5 --threads 2 --seconds 1
//! step_speed --best --threads 1
//! step_speed --predict-one --input 128 --classes 5
//! step_speed --peak --threads 2
//! step_speed --product --threads 2
//! ```

use std::hint::black_box;
use std::time::Instant;

use mcdd::compute::gemm::{Line, Panels, Then, ZERO, pack, product};
use mcdd::compute::pool::{Pool, chunks};
use mcdd::head::{Head, HeadConfig};
use mcdd::net::{
    NetworkBuffers, Optimizer, OptimizerState, Params, TrainerOptions, Update, default_engine, mlp, mlp_with,
};
use mcdd::seed::Stream;
use mcdd::train::{Batch, HeadLoss, LabeledRows};

const BATCH: usize = 200;
const ROWS: usize = 6000;

struct Setup {
    params: Params,
    head: Box<dyn Head>,
    x: Vec<f32>,
    y: Vec<u32>,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str, default: f64| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)).and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let flag = |name: &str| args.iter().any(|a| a == name);
    let (input, classes) = (value("--input", 128.0) as usize, value("--classes", 5.0) as usize);
    let (threads, seconds) = (value("--threads", 2.0) as usize, value("--seconds", 1.0));
    if flag("--peak") {
        println!("{{\"gflops\": {:.2}}}", peak(threads, seconds));
        return;
    }
    if flag("--product") {
        println!("{{\"gflops\": {:.2}}}", products(threads, seconds));
        return;
    }
    // The network of the preset `best`, or the paper's.
    let best = flag("--best");
    let latent = if best { 32 } else { 128 };
    let graph =
        if best { mlp_with(input, Some(5.0), &[128, 128], latent, true) } else { mlp(input, &[128, 128], latent) };
    let mut seed = Stream::new(1, "speed");
    let mut setup = Setup {
        params: graph.init(&mut seed),
        head: HeadConfig::default().build(classes, latent, &mut seed),
        x: (0..ROWS * input).map(|_| seed.normal() as f32).collect(),
        y: (0..ROWS).map(|_| seed.below(classes) as u32).collect(),
    };
    if flag("--predict-one") {
        let net = default_engine().network(&graph, &setup.params).expect("an MLP runs");
        let (mut logits, mut distances) = (vec![0.0; classes], vec![0.0; classes]);
        let mut buffers = NetworkBuffers::default();
        let mut rows = 0u64;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds {
            for x in setup.x.chunks_exact(input).take(1000) {
                let z = net.latents(black_box(x), &mut buffers);
                black_box(setup.head.score(z, &mut logits, &mut distances));
                mcdd::head::posterior(&mut logits);
                rows += 1;
            }
        }
        println!("{{\"us_per_row\": {:.4}}}", start.elapsed().as_secs_f64() * 1e6 / rows as f64);
        return;
    }
    train(&graph, &mut setup, threads, seconds, &mut seed);
}

fn train(graph: &mcdd::net::Graph, s: &mut Setup, threads: usize, seconds: f64, seed: &mut Stream) {
    let input = graph.input;
    let pool = Pool::new(threads);
    let options = TrainerOptions { batch: BATCH, whole: false, optimizer: Optimizer::default() };
    let mut trainer = default_engine().trainer(graph, &s.params, &options).expect("an MLP trains");
    let mut head_loss = HeadLoss::new(s.head.as_ref(), trainer.parts());
    let mut state = OptimizerState::new(&options.optimizer, s.head.params().data.len());
    let specs = s.head.params().specs().to_vec();
    let mut order: Vec<usize> = (0..ROWS).collect();
    seed.shuffle(&mut order);
    let mut steps = 0u64;
    let (mut start, mut busy) = (Instant::now(), cpu_seconds());
    loop {
        for rows in order.chunks_exact(BATCH) {
            let batch = Batch::rows(LabeledRows { x: &s.x, y: &s.y }, rows);
            black_box(trainer.step(BATCH, &head_loss.on(s.head.as_ref(), batch), &pool));
            steps += 1;
            let update = Update { optimizer: options.optimizer, rate: 1e-3, weight_decay: 0.0, step: steps };
            trainer.update(&update, &pool);
            let values = &mut s.head.params_mut().data;
            update.apply(&specs, values, head_loss.gradient(), &mut state, &pool);
            s.head.project();
        }
        if steps == (ROWS / BATCH) as u64 {
            (start, busy) = (Instant::now(), cpu_seconds()); // the first epoch warms up
        } else if start.elapsed().as_secs_f64() >= seconds {
            break;
        }
    }
    let timed = steps - (ROWS / BATCH) as u64;
    let taken = start.elapsed().as_secs_f64();
    let busy = cpu_seconds() - busy;
    // Forward and to the weights through all layers, to the values below through all but the first.
    let (first, others) = (input * 128, 128 * 128 + 128 * s.head.params().specs()[0].shape[1]);
    let flops = 2 * BATCH * (2 * first + 3 * others);
    println!(
        "{{\"steps\": {timed}, \"seconds\": {taken:.4}, \"us_per_step\": {:.2}, \"cpu_us_per_step\": {:.2}, \
         \"flops_per_step\": {flops}}}",
        taken * 1e6 / timed as f64,
        busy * 1e6 / timed as f64
    );
}

/// The CPU time of this thread (Linux only); on a busy machine it says more than the clock.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The rate of a product whose operands stay in the first-level cache: an upper bound for any matrix product.
fn peak(threads: usize, seconds: f64) -> f64 {
    // Two panels, as a tile of AVX-512 has them.
    let (m, k, n) = (6 * 4, 192, 32);
    let mut lines = vec![ZERO; Panels::lines(k, n)];
    pack(&mut lines, &vec![0.5; k * n], k, n, 0);
    let panels = Panels::new(&lines, k, n);
    let a = vec![0.25f32; m * k];
    let rate = || {
        let mut c = vec![0.0f32; m * n];
        let mut rounds = 0u64;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds {
            for _ in 0..2000 {
                product(black_box(&a), black_box(panels), &mut c, Then::Keep);
            }
            rounds += 2000;
        }
        (2 * m * k * n) as f64 * rounds as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads).map(|_| s.spawn(rate)).collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).sum()
    })
}

/// The best rate of a single large product, with the packing of its second operand: what PyTorch's `mm` does.
fn products(threads: usize, seconds: f64) -> f64 {
    /// Panels that are packed together.
    const PANELS: usize = 4;
    let pool = Pool::new(threads);
    let mut random = Stream::new(1, "products");
    let mut matrix = |n: usize| -> Vec<f32> { (0..n * n).map(|_| random.normal() as f32).collect() };
    let mut operands =
        [1024, 2048].map(|n| (n, matrix(n), matrix(n), vec![0.0f32; n * n], vec![ZERO; Panels::lines(n, n)]));
    let (start, mut best) = (Instant::now(), 0.0f64);
    while best == 0.0 || start.elapsed().as_secs_f64() < seconds {
        for (n, a, b, c, lines) in &mut operands {
            let n = *n;
            let begin = Instant::now();
            pool.split(chunks(lines, PANELS * n), |i, part: &mut [Line]| pack(part, b, n, n, i * PANELS));
            let panels = Panels::new(lines, n, n);
            // Three blocks of rows for each thread, in whole tiles.
            let rows = n.div_ceil(3 * threads).next_multiple_of(6);
            pool.split(chunks(c, rows * n), |i, c| product(&a[i * rows * n..][..c.len()], panels, c, Then::Keep));
            best = best.max(2.0 * (n * n * n) as f64 / begin.elapsed().as_secs_f64() / 1e9);
            black_box(&c);
        }
    }
    best
}
