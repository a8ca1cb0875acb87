//! Train a network with a training objective of your own.
//!
//! The objective pulls each row to the corner of a simplex that belongs to its class: squared distance to a fixed center.
//! `cargo run --release -p mcdd --example custom_head`

use mcdd::compute::pool::Pool;
use mcdd::data::{Schema, digits};
use mcdd::head::{Head, LossBuffers};
use mcdd::net::{NetworkBuffers, Optimizer, Params, TrainerOptions, Update, default_engine, mlp};
use mcdd::seed::Stream;
use mcdd::train::{Batch, HeadLoss, LabeledRows};

/// Class `k` has its center at `SCALE` on axis `k`. Nothing is learned but the network.
struct FixedCenters {
    classes: usize,
    params: Params,
}

const SCALE: f32 = 4.0;

impl FixedCenters {
    fn square(&self, z: &[f32], class: usize) -> f64 {
        z.iter().enumerate().map(|(d, &v)| f64::from(v - if d == class { SCALE } else { 0.0 }).powi(2)).sum()
    }
}

impl Head for FixedCenters {
    fn classes(&self) -> usize {
        self.classes
    }

    fn params(&self) -> &Params {
        &self.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    fn has_distances(&self) -> bool {
        true
    }

    // Loss and gradient of some rows of a batch; both are divided by the number of rows of the whole batch.
    fn loss(
        &self,
        z: &[f32],
        y: &[u32],
        batch: usize,
        dz: &mut [f32],
        _gradients: &mut [f32],
        _buffers: &mut LossBuffers,
    ) -> f64 {
        let mut loss = 0.0;
        for ((z, dz), &y) in z.chunks(self.classes).zip(dz.chunks_mut(self.classes)).zip(y) {
            loss += self.square(z, y as usize);
            for (d, (gradient, &v)) in dz.iter_mut().zip(z).enumerate() {
                *gradient = 2.0 * (v - if d == y as usize { SCALE } else { 0.0 }) / batch as f32;
            }
        }
        loss / batch as f64
    }

    // Higher is more in-distribution: minus the distance to the nearest center.
    fn score(&self, z: &[f32], logits: &mut [f64], distances: &mut [f64]) -> f64 {
        for k in 0..self.classes {
            distances[k] = self.square(z, k);
            logits[k] = -distances[k];
        }
        logits.iter().fold(f64::NEG_INFINITY, |best, &l| best.max(l))
    }

    fn logit_gradient(&self, z: &[f32], dlogits: &[f64], dz: &mut [f32]) {
        for (d, (gradient, &v)) in dz.iter_mut().zip(z).enumerate() {
            let sum: f64 = dlogits
                .iter()
                .enumerate()
                .map(|(k, g)| -2.0 * g * f64::from(v - if d == k { SCALE } else { 0.0 }))
                .sum();
            *gradient = sum as f32;
        }
    }
}

fn main() -> mcdd::Result<()> {
    let (known, unknown) = digits().leave_out("7")?;
    let (train, test) = known.split(0.2, 0)?;
    let rows: Vec<usize> = (0..train.rows()).collect();
    let (schema, _) = Schema::fit(&train, &rows)?;
    let x = schema.transform(&train, None)?;
    let y: Vec<u32> = rows.iter().filter_map(|&r| train.label(r)).collect();

    let classes = train.classes().len();
    let head = FixedCenters { classes, params: Params::new(Vec::new()) };
    let graph = mlp(schema.width(), &[64, 64], classes);
    let params = graph.init(&mut Stream::new(0, "network"));

    // The engine trains; the head only sees latent vectors.
    let options = TrainerOptions { batch: 100, whole: false, optimizer: Optimizer::default() };
    let mut trainer = default_engine().trainer(&graph, &params, &options)?;
    let mut head_loss = HeadLoss::new(&head, trainer.parts());
    let (pool, mut step, mut order) = (Pool::shared(), 0, rows);
    for epoch in 0..20 {
        Stream::new(epoch, "shuffle").shuffle(&mut order);
        let mut loss = 0.0;
        for batch in order.chunks(options.batch) {
            let labeled = LabeledRows { x: &x, y: &y };
            loss += trainer.step(batch.len(), &head_loss.on(&head, Batch::rows(labeled, batch)), pool);
            step += 1;
            trainer.update(&Update { optimizer: options.optimizer, rate: 1e-3, weight_decay: 0.0, step }, pool);
        }
        if epoch % 5 == 4 {
            println!("epoch {}: loss {:.3}", epoch + 1, loss / order.len().div_ceil(options.batch) as f64);
        }
    }
    let mut trained = params.clone();
    trainer.store(&mut trained);
    let network = default_engine().network(&graph, &trained)?;

    let score = |table: &mcdd::data::Table| -> mcdd::Result<Vec<f64>> {
        let x = schema.transform(table, None)?;
        let mut buffers = NetworkBuffers::default();
        let z = network.latents(&x, &mut buffers);
        let (mut logits, mut distances) = (vec![0.0; classes], vec![0.0; classes]);
        Ok(z.chunks(classes).map(|z| head.score(z, &mut logits, &mut distances)).collect())
    };
    let detection = mcdd::metrics::detection(&score(&test)?, &score(&unknown)?)?;
    println!("AUROC of known digits against sevens: {:.3}", detection.auroc);
    Ok(())
}
