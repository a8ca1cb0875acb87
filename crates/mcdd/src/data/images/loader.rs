//! Batches that are prepared in the background.
//!
//! Threads fill a few buffers ahead of the trainer, who takes them in order and gives each back by asking for the
//! next. What is in a batch depends on the seed, the epoch and the order of rows only: not on threads or time. After
//! the first epoch nothing is allocated.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use super::augment::{Augment, EpochKey, epoch_key};
use super::memory::Images;
use super::spec::ImageSpec;
use super::spec::{Levels, normalize};
use crate::error::{Error, Result};

/// What a [`Loader`] makes batches of.
#[derive(Clone, Copy, Debug)]
pub struct Loading<'a> {
    /// All images.
    pub images: &'a Images,
    /// Those to train on; batches are given as indices into these.
    pub rows: &'a [usize],
    /// How they are normalized.
    pub spec: &'a ImageSpec,
    /// How they are changed at random, if at all.
    pub augment: Option<Augment>,
    /// What the changes depend on, beside the epoch and the place in it.
    pub seed: u64,
    /// The most images of a batch.
    pub batch: usize,
    /// Threads that fill batches, at least one.
    pub threads: usize,
}

/// A batch that is ready for the network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prepared {
    /// Which images, as indices into [`Loading::rows`].
    pub index: Vec<usize>,
    /// The inputs: image by image, row by row, the channels of a pixel together.
    pub x: Vec<f32>,
    /// The classes; empty without labels.
    pub y: Vec<u32>,
}

/// Hands out batches that threads prepare.
pub struct Loader {
    shared: Arc<Shared>,
    /// The batch that the trainer has.
    current: Option<Prepared>,
    rows: usize,
    batch: usize,
    seed: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something for the threads to do.
    work: Condvar,
    /// Something for the trainer.
    done: Condvar,
}

/// Buffers circulate: free, being filled, ready, with the trainer, free. They are handed out in the order of batches,
/// so those that are not free always belong to consecutive batches, and the oldest batch always has one.
#[derive(Default)]
struct State {
    order: Vec<usize>,
    /// Where each batch ends in `order`.
    ends: Vec<usize>,
    key: EpochKey,
    /// The next batch to fill, and the next to take.
    filling: usize,
    taking: usize,
    free: Vec<Prepared>,
    /// By the number of the batch, modulo the number of buffers.
    ready: Vec<Option<Prepared>>,
    busy: usize,
    stop: bool,
    failed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has set `failed`.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loader {
    /// Starts the threads. They end with the loader, and the scope waits for them.
    ///
    /// # Errors
    /// If the parts do not fit each other, or memory or threads run out.
    pub fn start<'scope>(scope: &'scope Scope<'scope, '_>, what: Loading<'scope>) -> Result<Loader> {
        what.check()?;
        let threads = what.threads.clamp(1, 64);
        let values = what.spec.shape().values();
        let shared = Arc::new(Shared::default());
        {
            let mut state = shared.lock();
            state.order.reserve(what.rows.len());
            for _ in 0..threads + 2 {
                let mut buffer = Prepared::default();
                let room = what.batch.checked_mul(values).is_some_and(|n| buffer.x.try_reserve_exact(n).is_ok());
                if !room {
                    return Err(Error::setting(format!("batches of {} images do not fit in memory", what.batch))
                        .hint("give smaller batches"));
                }
                buffer.index.reserve_exact(what.batch);
                buffer.y.reserve_exact(what.batch);
                state.free.push(buffer);
                state.ready.push(None);
            }
        }
        let loader = Loader {
            shared: Arc::clone(&shared),
            current: None,
            rows: what.rows.len(),
            batch: what.batch,
            seed: what.seed,
        };
        let levels = Arc::new(what.spec.levels());
        for _ in 0..threads {
            let (shared, levels) = (Arc::clone(&shared), Arc::clone(&levels));
            std::thread::Builder::new()
                .name("mcdd images".into())
                .spawn_scoped(scope, move || fill_all(&shared, &what, &levels))
                .map_err(|e| Error::setting(format!("a thread for the images could not be started ({e})")))?;
        }
        Ok(loader)
    }

    /// Begins an epoch, whose batches are indices into [`Loading::rows`]. Batches left of the last epoch are discarded.
    ///
    /// # Errors
    /// If an index is beyond the rows, or a batch is larger than [`Loading::batch`].
    pub fn epoch<'b>(&mut self, epoch: usize, batches: impl Iterator<Item = &'b [usize]>) -> Result<()> {
        let mut state = self.shared.lock();
        // No batch is started any more; those that were started are finished.
        state.ends.clear();
        state.filling = 0;
        while state.busy > 0 {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let state = &mut *state;
        state.free.extend(self.current.take());
        state.free.extend(state.ready.iter_mut().filter_map(Option::take));
        state.order.clear();
        state.taking = 0;
        state.key = epoch_key(self.seed, epoch);
        for batch in batches {
            if batch.len() > self.batch || batch.iter().any(|&row| row >= self.rows) {
                state.ends.clear();
                return Err(Error::setting("a batch is too large, or has rows that do not exist"));
            }
            state.order.extend_from_slice(batch);
            state.ends.push(state.order.len());
        }
        self.shared.work.notify_all();
        Ok(())
    }

    /// The next batch; the last one is given back. `None` at the end of the epoch.
    ///
    /// # Panics
    /// If a thread of the loader has panicked.
    pub fn next_batch(&mut self) -> Option<&Prepared> {
        let mut state = self.shared.lock();
        if let Some(buffer) = self.current.take() {
            state.free.push(buffer);
            self.shared.work.notify_one();
        }
        if state.taking >= state.ends.len() {
            return None;
        }
        let place = state.taking % state.ready.len();
        let buffer = loop {
            assert!(!state.failed, "a thread that prepares images has panicked");
            match state.ready[place].take() {
                Some(buffer) => break buffer,
                None => state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.taking += 1;
        drop(state);
        Some(self.current.insert(buffer))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
    }
}

impl Loading<'_> {
    fn check(&self) -> Result<()> {
        self.spec.validate()?;
        if self.spec.shape() != self.images.shape() {
            return Err(Error::setting("the images have not the shape that they are normalized for"));
        }
        let all = self.images.rows();
        if self.batch == 0 || self.rows.iter().any(|&row| row >= all) {
            return Err(Error::setting("batches must have images, and only images that are there"));
        }
        self.augment.map_or(Ok(()), |augment| augment.check(self.images.shape()))
    }

    /// Fills a buffer with the images of its `index`, the first of which has this place in the epoch.
    fn fill(&self, levels: &Levels, key: EpochKey, place: usize, buffer: &mut Prepared) {
        let shape = self.images.shape();
        let values = shape.values();
        // Everything is written below.
        buffer.x.resize(buffer.index.len() * values, 0.0);
        for ((&index, out), place) in buffer.index.iter().zip(buffer.x.chunks_exact_mut(values)).zip(place..) {
            let pixels = self.images.image(self.rows[index]);
            match &self.augment {
                Some(augment) => augment.change(key, place as u64, index as u64).apply(levels, shape, pixels, out),
                None => normalize(levels, pixels, out),
            }
        }
        buffer.y.clear();
        if let Some(labels) = &self.images.labels {
            buffer.y.extend(buffer.index.iter().map(|&index| labels.codes[self.rows[index]]));
        }
    }
}

/// Tells the trainer where a thread comes to its end by a panic.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.failed = true;
            state.busy = 0;
            self.0.done.notify_all();
        }
    }
}

/// What a thread does: batch after batch until the loader is gone.
fn fill_all(shared: &Shared, what: &Loading, levels: &Levels) {
    let _alarm = Alarm(shared);
    let mut state = shared.lock();
    loop {
        if state.stop {
            return;
        }
        let batch = state.filling;
        let ready = batch < state.ends.len();
        let Some(mut buffer) = (if ready { state.free.pop() } else { None }) else {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.filling += 1;
        state.busy += 1;
        let from = if batch == 0 { 0 } else { state.ends[batch - 1] };
        let key = state.key;
        buffer.index.clear();
        buffer.index.extend_from_slice(&state.order[from..state.ends[batch]]);
        drop(state);
        what.fill(levels, key, from, &mut buffer);
        state = shared.lock();
        let place = batch % state.ready.len();
        state.ready[place] = Some(buffer);
        state.busy = state.busy.saturating_sub(1);
        shared.done.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::super::ImageShape;
    use super::*;
    use crate::seed::Stream;

    fn images(rows: usize) -> Images {
        let shape = ImageShape { height: 6, width: 5, channels: 3 };
        let pixels: Vec<u8> = (0..rows * shape.values()).map(|i| (i * 131 % 251) as u8).collect();
        let labels: Vec<String> = (0..rows).map(|r| (r % 3).to_string()).collect();
        Images::from_pixels(pixels, shape, Some(&labels)).unwrap()
    }

    fn batches(rows: usize, size: usize, epoch: usize) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..rows).collect();
        Stream::new(9, &format!("{epoch}")).shuffle(&mut order);
        order.chunks(size).map(<[usize]>::to_vec).collect()
    }

    /// The definition: one image after the other.
    fn direct(what: &Loading, epoch: usize, batches: &[Vec<usize>]) -> Vec<Prepared> {
        let key = epoch_key(what.seed, epoch);
        let (levels, shape) = (what.spec.levels(), what.images.shape());
        let mut place = 0;
        let mut all = Vec::new();
        for batch in batches {
            let mut out = Prepared { index: batch.clone(), ..Prepared::default() };
            for &index in batch {
                let mut x = vec![0.0; shape.values()];
                let pixels = what.images.image(what.rows[index]);
                match what.augment {
                    Some(augment) => augment.change(key, place, index as u64).apply(&levels, shape, pixels, &mut x),
                    None => what.spec.transform_into(pixels, &mut x),
                }
                place += 1;
                out.x.extend(x);
                out.y.push(what.images.label(what.rows[index]).unwrap());
            }
            all.push(out);
        }
        all
    }

    #[test]
    fn the_same_with_any_number_of_threads() {
        let images = images(50);
        let rows: Vec<usize> = (3..47).collect();
        let spec = ImageSpec::fit(&images, &rows).unwrap();
        for augment in [None, Some(Augment { crop_padding: 2, ..Augment::default() })] {
            for threads in [1, 2, 5] {
                let what = Loading { images: &images, rows: &rows, spec: &spec, augment, seed: 5, batch: 8, threads };
                std::thread::scope(|scope| {
                    let mut loader = Loader::start(scope, what).unwrap();
                    assert!(loader.next_batch().is_none());
                    for epoch in 0..4 {
                        let batches = batches(44, 8, epoch);
                        loader.epoch(epoch, batches.iter().map(Vec::as_slice)).unwrap();
                        let want = direct(&what, epoch, &batches);
                        // Given up in the middle, another epoch begins all the same.
                        let take = if epoch == 2 { 2 } else { want.len() };
                        for want in &want[..take] {
                            assert_eq!(loader.next_batch(), Some(want));
                        }
                        if take == want.len() {
                            assert_eq!(loader.next_batch(), None);
                            assert_eq!(loader.next_batch(), None);
                        }
                    }
                });
            }
        }
    }

    #[test]
    fn epochs_differ() {
        let images = images(20);
        let rows: Vec<usize> = (0..20).collect();
        let spec = ImageSpec::fit(&images, &rows).unwrap();
        let augment = Some(Augment { crop_padding: 2, ..Augment::default() });
        let what = Loading { images: &images, rows: &rows, spec: &spec, augment, seed: 1, batch: 20, threads: 1 };
        let batches = [rows.clone()];
        let [a, b] = [0, 1].map(|epoch| direct(&what, epoch, &batches));
        assert_ne!(a[0].x, b[0].x);
    }

    #[test]
    fn dropped_midway_or_never_used() {
        let images = images(30);
        let rows: Vec<usize> = (0..30).collect();
        let spec = ImageSpec::fit(&images, &rows).unwrap();
        let what = Loading { images: &images, rows: &rows, spec: &spec, augment: None, seed: 1, batch: 4, threads: 3 };
        std::thread::scope(|scope| drop(Loader::start(scope, what).unwrap()));
        std::thread::scope(|scope| {
            let mut loader = Loader::start(scope, what).unwrap();
            let batches = batches(30, 4, 0);
            loader.epoch(0, batches.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(loader.next_batch().unwrap().index, batches[0]);
        });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let images = images(5);
        let rows = [0, 1, 2, 3, 4];
        let spec = ImageSpec::fit(&images, &rows).unwrap();
        let good = Loading { images: &images, rows: &rows, spec: &spec, augment: None, seed: 1, batch: 2, threads: 1 };
        let other = ImageSpec { width: 6, ..spec.clone() };
        std::thread::scope(|scope| {
            for bad in [
                Loading { rows: &[5], ..good },
                Loading { batch: 0, ..good },
                Loading { batch: usize::MAX, ..good },
                Loading { spec: &other, ..good },
                Loading { augment: Some(Augment { crop_padding: 5, flip: false, ..Augment::default() }), ..good },
            ] {
                assert!(Loader::start(scope, bad).is_err());
            }
            let mut loader = Loader::start(scope, good).unwrap();
            assert!(loader.epoch(0, [&[0, 1, 2][..]].into_iter()).is_err());
            assert!(loader.epoch(0, [&[0][..], &[5]].into_iter()).is_err());
            assert!(loader.next_batch().is_none());
            loader.epoch(0, [&[4][..]].into_iter()).unwrap();
            assert_eq!(loader.next_batch().unwrap().index, [4]);
        });
    }

    #[test]
    fn a_panic_is_reported() {
        let mut broken = images(5);
        let rows = [0, 1, 2, 3, 4];
        let spec = ImageSpec::fit(&broken, &rows).unwrap();
        if let Some(labels) = &mut broken.labels {
            labels.codes.truncate(2);
        }
        let what = Loading { images: &broken, rows: &rows, spec: &spec, augment: None, seed: 1, batch: 5, threads: 1 };
        let outcome = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let mut loader = Loader::start(scope, what).unwrap();
                loader.epoch(0, [&rows[..]].into_iter()).unwrap();
                loader.next_batch().is_some()
            })
        });
        assert!(outcome.is_err());
    }
}
