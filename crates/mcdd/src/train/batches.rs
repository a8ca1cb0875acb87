//! The batches of a run, and the loss of a head on them.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

use super::{BatchSampler, Examples, ImageRows, LabeledRows, SelectedRows, Settings};
use crate::data::{Loader, Loading};
use crate::error::Result;
use crate::head::{Head, LossBuffers};
use crate::net::TrainingObjective;

/// Where the batches of a run come from.
pub(super) enum BatchSource<'a> {
    /// Rows are gathered by the threads that train on them.
    Rows(LabeledRows<'a>),
    /// The same for some rows of many.
    Selected(SelectedRows<'a>),
    /// Images are decoded and augmented by another thread, ahead of training.
    Images { loader: Box<Loader>, y: &'a [u32], width: usize },
}

impl<'a> BatchSource<'a> {
    /// For batches of up to `batch`; threads that prepare images live in `scope`.
    pub(super) fn new(
        settings: &Settings,
        train: Examples<'a>,
        member: usize,
        batch: usize,
        scope: &'a Scope<'a, '_>,
    ) -> Result<BatchSource<'a>> {
        let width = train.width();
        Ok(match train {
            Examples::Rows(data) => BatchSource::Rows(data),
            Examples::Selected(data) => BatchSource::Selected(data),
            Examples::Images(ImageRows { images, rows, spec, y }) => {
                let augment = settings.image.as_ref().and_then(|i| i.augment);
                // Each member sees other crops; one thread is enough for any network.
                let seed = settings.seed.wrapping_add((member as u64) << 32);
                let loading = Loading { images, rows, spec, augment, seed, batch, threads: 1 };
                BatchSource::Images { loader: Box::new(Loader::start(scope, loading)?), y, width }
            }
        })
    }

    /// Starts an epoch with the batches of `sampler`.
    pub(super) fn begin(&mut self, epoch: usize, sampler: &BatchSampler) -> Result<()> {
        match self {
            BatchSource::Rows(_) | BatchSource::Selected(_) => Ok(()),
            BatchSource::Images { loader, .. } => loader.epoch(epoch, sampler.batches()),
        }
    }

    /// The next batch, which has these rows; none if it could not be prepared.
    pub(super) fn next<'b>(&'b mut self, rows: &'b [usize]) -> Option<Batch<'b>> {
        Some(match self {
            BatchSource::Rows(data) => Batch::rows(*data, rows),
            BatchSource::Selected(SelectedRows { x, width, rows: all, y }) => {
                Batch { x, y, width: *width, rows, place: Place::Selected(all) }
            }
            BatchSource::Images { loader, y, width } => {
                let prepared = loader.next_batch()?;
                debug_assert_eq!(prepared.index, rows);
                Batch { x: &prepared.x, y, width: *width, rows, place: Place::Gathered }
            }
        })
    }
}

/// The inputs and labels of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    x: &'a [f32],
    y: &'a [u32],
    width: usize,
    rows: &'a [usize],
    place: Place<'a>,
}

/// Where the rows of a batch are in `x`.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// `x` has the rows of the whole table.
    Table,
    /// `x` has the rows of a table, of which these are used: row `i` of the batch's numbers is the `i`-th of them.
    Selected(&'a [usize]),
    /// `x` has the rows of the batch alone, in their order.
    Gathered,
}

impl<'a> Batch<'a> {
    /// Rows of a table.
    pub fn rows(data: LabeledRows<'a>, rows: &'a [usize]) -> Batch<'a> {
        let width = data.x.len() / data.y.len().max(1);
        Batch { x: data.x, y: data.y, width, rows, place: Place::Table }
    }
}

/// Buffers and gradients of a head's loss, for each part of a batch.
pub struct HeadLoss {
    parts: Vec<Mutex<PartLoss>>,
    gradient: [Vec<f32>; 1],
}

#[derive(Default)]
struct PartLoss {
    y: Vec<u32>,
    gradient: Vec<f32>,
    buffers: LossBuffers,
    /// Whether the last batch had this part.
    used: bool,
}

impl HeadLoss {
    /// For batches in up to `parts` parts.
    pub fn new(head: &dyn Head, parts: usize) -> HeadLoss {
        let zeros = vec![0.0; head.params().data.len()];
        let part = || Mutex::new(PartLoss { gradient: zeros.clone(), ..PartLoss::default() });
        HeadLoss { parts: (0..parts).map(|_| part()).collect(), gradient: [zeros] }
    }

    /// The loss of `head` on a batch.
    pub fn on<'a>(&'a mut self, head: &'a dyn Head, batch: Batch<'a>) -> BatchLoss<'a> {
        self.parts.iter_mut().for_each(|p| p.get_mut().unwrap_or_else(PoisonError::into_inner).used = false);
        BatchLoss { head, batch, parts: &self.parts }
    }

    /// The gradient of the head's parameters on the last batch: the sum over its parts, in order.
    pub fn gradient(&mut self) -> &[Vec<f32>; 1] {
        let [sum] = &mut self.gradient;
        let parts = self.parts.iter_mut().map(|p| p.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (i, part) in parts.filter(|p| p.used).enumerate() {
            match i {
                0 => sum.copy_from_slice(&part.gradient),
                _ => sum.iter_mut().zip(&part.gradient).for_each(|(s, g)| *s += g),
            }
        }
        &self.gradient
    }
}

/// The loss of a head on a batch, as an [`TrainingObjective`].
pub struct BatchLoss<'a> {
    head: &'a dyn Head,
    batch: Batch<'a>,
    parts: &'a [Mutex<PartLoss>],
}

impl TrainingObjective for BatchLoss<'_> {
    fn inputs<'b>(&'b self, rows: Range<usize>, buffer: &'b mut Vec<f32>) -> &'b [f32] {
        let Batch { x, width, place, .. } = self.batch;
        if matches!(place, Place::Gathered) {
            return &x[rows.start * width..rows.end * width];
        }
        let n = rows.len() * width;
        if buffer.len() < n {
            buffer.resize(n, 0.0);
        }
        let to = &mut buffer[..n];
        let rows = self.batch.rows[rows].iter().map(|&row| match place {
            Place::Selected(all) => all[row],
            Place::Table | Place::Gathered => row,
        });
        prefetch(x, width, rows.clone());
        for (to, from) in to.chunks_exact_mut(width).zip(rows) {
            to.copy_from_slice(&x[from * width..(from + 1) * width]);
        }
        to
    }

    fn loss(&self, part: usize, rows: Range<usize>, z: &[f32], dz: &mut [f32]) -> f64 {
        // Each part belongs to one thread, so the lock is free.
        let mut part = self.parts[part].lock().unwrap_or_else(PoisonError::into_inner);
        let PartLoss { y, gradient, buffers, used } = &mut *part;
        *used = true;
        y.clear();
        y.extend(self.batch.rows[rows].iter().map(|&row| self.batch.y[row]));
        self.head.loss(z, y, self.batch.rows.len(), dz, gradient, buffers)
    }
}

/// Reads one value of each cache line of these rows. They lie anywhere in a large table; many such reads wait for memory
/// at the same time, where copying would wait for a few.
fn prefetch(x: &[f32], width: usize, rows: impl Iterator<Item = usize>) {
    let mut seen = 0;
    for row in rows {
        seen = x[row * width..(row + 1) * width].iter().step_by(16).fold(seen, |s, v| s ^ v.to_bits());
    }
    std::hint::black_box(seen);
}
