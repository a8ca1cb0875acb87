//! Training in shards: rows that go through network and objective, forward and backward, on one thread without waiting.
//!
//! How a batch is cut depends on its size alone, and the shards' gradients are added in order, so the number of threads
//! changes no bit. Threads meet twice in a step: when all gradients are there, and when all weights are new. Finer loops
//! (each layer's product over all threads) were measured first: they had many more meetings and a worse worst case
//! (`docs/performance.md`).

use super::super::layout::CpuParams;
use super::engine::{Pass, RowEngine};
use crate::compute::pool::{Pool, chunks};
use crate::error::Result;
use crate::net::engine::{Trainer, TrainerOptions, TrainingObjective};
use crate::net::graph::Graph;
use crate::net::optimizer::{OptimizerState, Update};
use crate::net::params::Params;

/// The number of rows that a shard aims at: enough for the kernels to run at full speed.
const ROWS: usize = 102;
/// The largest number of shards: each has gradients of its own.
const MAX_SHARDS: usize = 8;

/// The number of rows in a shard of a batch; a multiple of the kernels' six.
pub(crate) fn shard_rows(batch: usize) -> usize {
    let shards = batch.div_ceil(ROWS).clamp(1, MAX_SHARDS);
    batch.div_ceil(shards).next_multiple_of(6)
}

#[derive(Clone, Default)]
struct Shard {
    pass: Pass,
    x: Vec<f32>,
    loss: f64,
}

/// Trains a multi-layer perceptron.
pub(crate) struct RowTrainer {
    engine: RowEngine,
    params: CpuParams,
    state: OptimizerState,
    shards: Vec<Shard>,
    /// The gradients of each shard.
    gradients: Vec<Vec<f32>>,
    /// Whether a batch stays in one shard.
    whole: bool,
    /// The number of shards of the last batch.
    used: usize,
}

impl RowTrainer {
    pub(crate) fn new(graph: &Graph, params: &Params, options: &TrainerOptions) -> Result<RowTrainer> {
        let TrainerOptions { batch, whole, optimizer } = *options;
        let rows = if whole { batch.max(1) } else { shard_rows(batch) };
        let count = batch.div_ceil(rows);
        // The last batch of an epoch is smaller, and may be cut into fewer, larger shards.
        let room = rows.max(ROWS) * graph.input;
        let mut engine = RowEngine::new(graph)?;
        let params = CpuParams::new(params);
        engine.load(&params, &Pool::new(1));
        Ok(RowTrainer {
            engine,
            state: OptimizerState::new(&optimizer, params.data().len()),
            shards: vec![Shard { x: vec![0.0; room], ..Shard::default() }; count],
            gradients: vec![vec![0.0; params.data().len()]; count],
            params,
            whole,
            used: 0,
        })
    }
}

impl Trainer for RowTrainer {
    fn parts(&self) -> usize {
        self.shards.len()
    }

    fn step(&mut self, rows: usize, objective: &dyn TrainingObjective, pool: &Pool) -> f64 {
        let size = if self.whole { rows.max(1) } else { shard_rows(rows) };
        self.used = rows.div_ceil(size);
        let (engine, params) = (&self.engine, &self.params);
        let parts = (chunks(&mut self.shards[..self.used], 1), chunks(&mut self.gradients[..self.used], 1));
        pool.split(parts, |i, (shards, gradients)| {
            let range = i * size..rows.min((i + 1) * size);
            for (s, gradient) in shards.iter_mut().zip(gradients) {
                let x = objective.inputs(range.clone(), &mut s.x);
                s.pass.forward(engine, params, x);
                let (z, dz) = s.pass.latents_and_gradient();
                s.loss = objective.loss(i, range.clone(), z, dz);
                s.pass.backward(engine, params, x, gradient);
            }
        });
        self.shards[..self.used].iter().map(|s| s.loss).sum()
    }

    fn update(&mut self, update: &Update, pool: &Pool) {
        let gradients = &self.gradients[..self.used];
        let (specs, values) = self.params.specs_and_data();
        update.apply(specs, values, gradients, &mut self.state, pool);
        self.engine.update_running_stats(&mut self.params, gradients);
        self.engine.load(&self.params, pool);
    }

    fn load(&mut self, params: &Params, pool: &Pool) {
        self.params.load(params);
        self.engine.load(&self.params, pool);
    }

    fn store(&self, params: &mut Params) {
        self.params.store(params);
    }

    fn gradient(&self, gradient: &mut Params) {
        let mut sum = vec![0.0; self.params.data().len()];
        for part in &self.gradients[..self.used] {
            sum.iter_mut().zip(part).for_each(|(s, g)| *s += g);
        }
        self.params.convert_back(&sum, &mut gradient.data);
    }

    fn optimizer_state(&self) -> OptimizerState {
        self.params.state_back(&self.state)
    }

    fn set_optimizer_state(&mut self, state: &OptimizerState) {
        self.state = self.params.state(state);
    }
}

#[cfg(test)]
mod tests {
    use super::shard_rows;

    #[test]
    fn a_batch_is_cut_by_its_size_alone() {
        for (batch, rows, shards) in
            [(1, 6, 1), (102, 102, 1), (103, 54, 2), (200, 102, 2), (1000, 126, 8), (10_000, 1254, 8)]
        {
            assert_eq!((shard_rows(batch), batch.div_ceil(shard_rows(batch))), (rows, shards), "{batch}");
        }
        // A smaller last batch fits into the buffers of a full one.
        for batch in 1..2000 {
            for part in [1, batch / 3, batch / 2, batch - 1] {
                assert!(shard_rows(part.max(1)) <= shard_rows(batch).max(102), "{batch} {part}");
                assert!(part.div_ceil(shard_rows(part.max(1))) <= batch.div_ceil(shard_rows(batch)), "{batch} {part}");
            }
        }
    }
}
