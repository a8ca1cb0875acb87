//! Predictions in turn: small requests together, large ones in pieces.
//!
//! One thread predicts blocks of rows with all threads of its pool. While a block is predicted, requests gather, so that a
//! busy server predicts many small requests at once and an idle one waits for nothing. A large request gets a block at a
//! time and goes to the end of the queue, so that others come between. A row's prediction does not depend on the other rows of its block.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mcdd::compute::pool::Pool;
use mcdd::model::Predictions;
use tokio::sync::oneshot;

use crate::failure::{Answer, Failure};
use crate::models::Served;

/// The most rows of a block, and its most inputs.
const BLOCK_ROWS: usize = 4096;
const BLOCK_VALUES: usize = 1 << 22;

/// A request for predictions.
struct Job {
    served: Arc<Served>,
    x: Vec<f32>,
    /// Rows that are predicted.
    done: usize,
    out: Predictions,
    reply: oneshot::Sender<Answer<Predictions>>,
}

impl Job {
    fn width(&self) -> usize {
        self.served.model.schema().width().max(1)
    }

    fn left(&self) -> usize {
        self.x.len() / self.width() - self.done
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Rows of these jobs, and of the block that is being predicted.
    rows: usize,
    /// The same by model.
    by_model: BTreeMap<String, usize>,
    closed: bool,
}

impl Waiting {
    /// Whether so many rows of a model find room. A request of any size does if nothing waits before it.
    fn has_room(&self, served: &Served, rows: usize, most: usize) -> bool {
        let own = self.by_model.get(&served.name).copied().unwrap_or(0);
        let fits = |waiting: usize, most: usize| waiting == 0 || waiting + rows <= most;
        !self.closed && fits(self.rows, most) && fits(own, served.limits.queued_rows)
    }

    fn add(&mut self, served: &Served, rows: usize) {
        self.rows += rows;
        match self.by_model.get_mut(&served.name) {
            Some(own) => *own += rows,
            None => drop(self.by_model.insert(served.name.clone(), rows)),
        }
    }

    fn remove(&mut self, served: &Served, rows: usize) {
        self.rows -= rows;
        if let Some(own) = self.by_model.get_mut(&served.name) {
            *own -= rows;
            if *own == 0 {
                self.by_model.remove(&served.name);
            }
        }
    }
}

/// The queue of rows to predict.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
    most_rows: usize,
}

impl Queue {
    pub(crate) fn new(most_rows: usize) -> Queue {
        Queue { waiting: Mutex::default(), more: Condvar::new(), most_rows }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of rows that wait.
    pub(crate) fn rows(&self) -> usize {
        self.lock().rows
    }

    /// Whether the queue has room for rows of this model.
    pub(crate) fn has_room(&self, served: &Served, rows: usize) -> bool {
        self.lock().has_room(served, rows, self.most_rows)
    }

    /// Puts rows into the queue, if it has room for them.
    pub(crate) fn add(&self, served: Arc<Served>, x: Vec<f32>) -> Answer<oneshot::Receiver<Answer<Predictions>>> {
        let (reply, answer) = oneshot::channel();
        let job = Job { served, x, done: 0, out: Predictions::default(), reply };
        let rows = job.left();
        if rows == 0 {
            // Nothing to predict.
            let _ = job.reply.send(Ok(Predictions::default()));
            return Ok(answer);
        }
        let mut waiting = self.lock();
        if !waiting.has_room(&job.served, rows, self.most_rows) {
            return Err(Failure::busy());
        }
        waiting.add(&job.served, rows);
        waiting.jobs.push_back(job);
        drop(waiting);
        self.more.notify_one();
        Ok(answer)
    }

    /// Takes no more rows; [`Queue::work`] ends after those that wait.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }

    /// The next block: jobs of one model, each with the number of rows that are taken of it. `None` at the end.
    fn next(&self) -> Option<Vec<(Job, usize)>> {
        let mut waiting = self.lock();
        let first = loop {
            match waiting.jobs.pop_front() {
                // Nobody waits for the answer any more.
                Some(job) if job.reply.is_closed() => waiting.remove(&job.served, job.left()),
                Some(job) => break job,
                None if waiting.closed => return None,
                None => waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let room = (BLOCK_VALUES / first.width()).clamp(1, BLOCK_ROWS);
        let mut taken = first.left().min(room);
        let mut block = vec![(first, taken)];
        let mut at = 0;
        while taken < room && at < waiting.jobs.len() {
            let fits = |job: &Job| Arc::ptr_eq(&job.served, &block[0].0.served) && taken + job.left() <= room;
            if !fits(&waiting.jobs[at]) {
                at += 1;
            } else if let Some(job) = waiting.jobs.remove(at) {
                let rows = job.left();
                taken += rows;
                block.push((job, rows));
            }
        }
        Some(block)
    }

    /// Predicts until the queue is closed and empty.
    pub(crate) fn work(&self, pool: &Pool, panicked: impl Fn()) {
        let (mut x, mut out) = (Vec::new(), Predictions::default());
        while let Some(block) = self.next() {
            x.clear();
            for (job, rows) in &block {
                let from = job.done * job.width();
                x.extend_from_slice(&job.x[from..from + rows * job.width()]);
            }
            let served = Arc::clone(&block[0].0.served);
            let rows: usize = block.iter().map(|(_, rows)| rows).sum();
            // A panic is an answer to these requests, and to no others.
            let done = catch_unwind(AssertUnwindSafe(|| served.model.predict_rows(&x, &mut out, pool)));
            match &done {
                Ok(Ok(())) => served.saw(&out.confidence),
                Ok(Err(_)) => {}
                Err(_) => {
                    panicked();
                    out = Predictions::default();
                }
            }
            // Before the answers: a client that has its answer finds room.
            self.lock().remove(&served, rows);
            let mut from = 0;
            let mut again = Vec::new();
            for (mut job, rows) in block {
                match &done {
                    Ok(Ok(())) => {
                        job.out.append(part(&out, from, from + rows));
                        job.done += rows;
                        from += rows;
                        if job.left() > 0 {
                            again.push(job);
                        } else {
                            let _ = job.reply.send(Ok(job.out));
                        }
                    }
                    failed => {
                        self.lock().remove(&served, job.left() - rows);
                        let failure = match failed {
                            Ok(Err(e)) => Failure::bad(e.to_string()),
                            _ => Failure::internal(),
                        };
                        let _ = job.reply.send(Err(failure));
                    }
                }
            }
            self.lock().jobs.extend(again);
        }
    }
}

/// The predictions of some of the rows.
fn part(all: &Predictions, from: usize, to: usize) -> Predictions {
    let some = |values: &[f64], each: usize| values.get(from * each..to * each).unwrap_or_default().to_vec();
    Predictions {
        classes: all.classes,
        class: all.class.get(from..to).unwrap_or_default().to_vec(),
        confidence: some(&all.confidence, 1),
        p_value: some(&all.p_value, 1),
        posterior: some(&all.posterior, all.classes),
        distance: some(&all.distance, all.classes),
    }
}
