//! A batch in shards: rows that go through network and head, forward and back, on one thread without waiting.
//!
//! How a batch is cut depends on its size alone, and the shards' gradients are added in their order, so the number of
//! threads changes no bit. Threads meet twice in a step: when all gradients are there, and when all weights are new.
//! Finer loops (each layer's product over all threads) were measured first: they had many more meetings and a worse worst
//! case (`docs/performance.md`).

use super::LabeledRows;
use crate::compute::pool::{Pool, chunks};
use crate::head::{Head, LossBuffers};
use crate::net::Params;
use crate::net::cpu::{Engine, Pass};

/// LabeledRows that a shard aims at: enough for the kernels to run at speed.
const ROWS: usize = 102;
/// Shards at the most: each has gradients of its own.
const MOST: usize = 8;

/// How many rows a shard of a batch has; a multiple of the kernels' six.
pub(super) fn shard_rows(batch: usize) -> usize {
    let shards = batch.div_ceil(ROWS).clamp(1, MOST);
    batch.div_ceil(shards).next_multiple_of(6)
}

#[derive(Clone, Default)]
struct Shard {
    pass: Pass,
    x: Vec<f32>,
    y: Vec<u32>,
    scratch: LossBuffers,
    loss: f64,
}

/// The shards of a batch, with their buffers and gradients.
pub struct Shards {
    shards: Vec<Shard>,
    /// The gradients of each shard.
    net: Vec<Vec<f32>>,
    head: Vec<Vec<f32>>,
    width: usize,
    /// Whether a batch stays whole, for a head that must see all of it at once.
    whole: bool,
    /// How many of them the last batch took.
    used: usize,
}

impl Shards {
    /// For batches of up to `batch` rows of `width` features; `whole` keeps each batch in one shard.
    pub fn new(net: &Params, head: &Params, batch: usize, width: usize, whole: bool) -> Shards {
        let rows = if whole { batch } else { shard_rows(batch) };
        let count = batch.div_ceil(rows);
        // The last batch of an epoch is smaller, and may be cut into fewer, larger shards.
        let room = rows.max(ROWS);
        let shard = Shard { x: vec![0.0; room * width], y: vec![0; room], ..Shard::default() };
        Shards {
            shards: vec![shard; count],
            net: vec![vec![0.0; net.data.len()]; count],
            head: vec![vec![0.0; head.data.len()]; count],
            width,
            whole,
            used: 0,
        }
    }

    /// The loss of the rows `batch` of `data`, and all gradients of it.
    pub fn run(
        &mut self,
        engine: &Engine,
        net: &Params,
        head: &dyn Head,
        data: LabeledRows,
        batch: &[usize],
        pool: &Pool,
    ) -> f64 {
        let rows = if self.whole { batch.len().max(1) } else { shard_rows(batch.len()) };
        let width = self.width;
        self.used = batch.len().div_ceil(rows);
        let shards = chunks(&mut self.shards[..self.used], 1);
        let gradients = (chunks(&mut self.net[..self.used], 1), chunks(&mut self.head[..self.used], 1));
        pool.split((shards, gradients), |i, (shards, (net_gradient, head_gradient))| {
            let batch_rows = &batch[i * rows..batch.len().min((i + 1) * rows)];
            for ((s, net_gradient), head_gradient) in shards.iter_mut().zip(net_gradient).zip(head_gradient) {
                let (x, y) = (&mut s.x[..batch_rows.len() * width], &mut s.y[..batch_rows.len()]);
                touch(data.x, width, batch_rows);
                for ((to, label), &from) in x.chunks_exact_mut(width).zip(&mut *y).zip(batch_rows) {
                    to.copy_from_slice(&data.x[from * width..(from + 1) * width]);
                    *label = data.y[from];
                }
                s.pass.forward(engine, net, x);
                let (z, dz) = s.pass.latents_and_gradient();
                s.loss = head.loss(z, y, batch.len(), dz, head_gradient, &mut s.scratch);
                s.pass.backward(engine, net, x, net_gradient);
            }
        });
        self.shards[..self.used].iter().map(|s| s.loss).sum()
    }

    /// The gradients of the network's parameters, one of each shard, to be added in this order.
    pub fn net_gradients(&self) -> &[Vec<f32>] {
        &self.net[..self.used]
    }

    /// The same for the head's.
    pub fn head_gradients(&self) -> &[Vec<f32>] {
        &self.head[..self.used]
    }
}

/// Reads a number of each cache line of these rows. They lie anywhere in a large table, and many such reads wait for
/// memory at the same time, where copying would wait for a few.
fn touch(x: &[f32], width: usize, rows: &[usize]) {
    let mut seen = 0;
    for &row in rows {
        seen = x[row * width..(row + 1) * width].iter().step_by(16).fold(seen, |s, v| s ^ v.to_bits());
    }
    std::hint::black_box(seen);
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
