//! The training loop.

pub mod optim;

use crate::net::cpu::pool::{Pool, chunks};

/// Copies the rows `batch` of `x` (and of `y`) into `xb` and `yb`.
pub fn gather(x: &[f32], y: &[u32], width: usize, batch: &[usize], xb: &mut [f32], yb: &mut [u32], pool: &Pool) {
    let rows = pool.chunk(batch.len(), 1);
    pool.split((chunks(&mut xb[..batch.len() * width], rows * width), chunks(yb, rows)), |i, (xb, yb)| {
        let batch = &batch[i * rows..][..yb.len()];
        for ((to, label), &from) in xb.chunks_exact_mut(width).zip(yb).zip(batch) {
            to.copy_from_slice(&x[from * width..(from + 1) * width]);
            *label = y[from];
        }
    });
}
