//! Predictions in turn: small requests together, large ones in pieces.
//!
//! One thread predicts blocks of rows with all threads of its pool. While a block is predicted, requests gather, so that a
//! busy server predicts many small requests at once and an idle one waits for nothing. A large request gets a block at a
//! time and goes to the end of the queue, so that others come between. A row's prediction does not depend on the other rows of its block.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use mcdd::compute::pool::Pool;
use mcdd::model::Predictions;
use tokio::sync::oneshot;

use crate::failure::{Answer, Failure};
use crate::models::Served;
use crate::places::{Place, Places};

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
    place: Place,
    /// Whether it was in a block that panicked.
    alone: bool,
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
    closed: bool,
}

/// The queue of rows to predict.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
    /// How many rows may be in it, and in requests that are being read.
    pub places: Arc<Places>,
}

impl Queue {
    pub(crate) fn new(most_rows: usize) -> Queue {
        Queue { waiting: Mutex::default(), more: Condvar::new(), places: Places::new(most_rows) }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of rows that wait.
    pub(crate) fn rows(&self) -> usize {
        self.places.rows()
    }

    /// Puts rows into the queue.
    pub(crate) fn add(
        &self,
        served: Arc<Served>,
        x: Vec<f32>,
        mut place: Place,
    ) -> Answer<oneshot::Receiver<Answer<Predictions>>> {
        let (reply, answer) = oneshot::channel();
        let rows = x.len() / served.model.schema().width().max(1);
        place.settle(rows);
        if rows == 0 {
            // Nothing to predict.
            let _ = reply.send(Ok(Predictions::default()));
            return Ok(answer);
        }
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Failure::busy());
        }
        waiting.jobs.push_back(Job { served, x, done: 0, out: Predictions::default(), reply, place, alone: false });
        drop(waiting);
        self.more.notify_one();
        Ok(answer)
    }

    /// Takes no more rows; [`Queue::work`] ends after those that wait.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.places.close();
        self.more.notify_all();
    }

    /// The next block: jobs of one model, each with the number of rows that are taken of it. `None` at the end.
    fn next(&self) -> Option<Vec<(Job, usize)>> {
        let mut waiting = self.lock();
        let first = loop {
            match waiting.jobs.pop_front() {
                // Nobody waits for the answer any more.
                Some(job) if job.reply.is_closed() => drop(job),
                Some(job) => break job,
                None if waiting.closed => return None,
                None => waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let room = (BLOCK_VALUES / first.width()).clamp(1, BLOCK_ROWS);
        let mut taken = first.left().min(room);
        let mut block = vec![(first, taken)];
        let mut at = 0;
        while taken < room && at < waiting.jobs.len() && !block[0].0.alone {
            let fits =
                |job: &Job| !job.alone && Arc::ptr_eq(&job.served, &block[0].0.served) && taken + job.left() <= room;
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
        self.work_with(|served, x, out| served.model.predict_rows(x, out, pool), panicked);
    }

    fn work_with(&self, predict: impl Fn(&Served, &[f32], &mut Predictions) -> mcdd::Result<()>, panicked: impl Fn()) {
        let (mut x, mut out) = (Vec::new(), Predictions::default());
        while let Some(mut block) = self.next() {
            x.clear();
            for (job, rows) in &block {
                let from = job.done * job.width();
                x.extend_from_slice(&job.x[from..from + rows * job.width()]);
            }
            let served = Arc::clone(&block[0].0.served);
            // A panic is an answer to the request that causes it, and to no others.
            let done = catch_unwind(AssertUnwindSafe(|| predict(&served, &x, &mut out)));
            match &done {
                Ok(Ok(())) => served.saw(&out.confidence),
                Ok(Err(_)) => {}
                Err(_) => {
                    panicked();
                    out = Predictions::default();
                    if block.len() > 1 {
                        let again = block.into_iter().map(|(job, _)| Job { alone: true, ..job });
                        self.lock().jobs.extend(again);
                        continue;
                    }
                }
            }
            // Before the answers: a client that has its answer finds room.
            block.iter_mut().for_each(|(job, rows)| job.place.leave(*rows));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::tests::served;
    use tokio::runtime::Builder;

    /// The request that panics fails, and those that were predicted with it do not.
    #[test]
    fn a_panic_is_the_failure_of_one_request() {
        let (_folder, served) = served();
        let queue = Queue::new(1000);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let answers: Vec<_> = [0.5, 666.0, 0.25]
            .into_iter()
            .map(|value| {
                let place = runtime.block_on(queue.places.enter("m", 1000, 10)).unwrap();
                queue.add(Arc::clone(&served), vec![value; served.model.schema().width()], place).unwrap()
            })
            .collect();
        assert_eq!(queue.rows(), 3);
        queue.close();
        let panics = std::cell::Cell::new(0);
        let predict = |served: &Served, x: &[f32], out: &mut Predictions| {
            assert!(!x.contains(&666.0), "this row panics");
            served.model.predict_rows(x, out, &Pool::new(1))
        };
        queue.work_with(predict, || panics.set(panics.get() + 1));
        let status: Vec<u16> = answers
            .into_iter()
            .map(|mut a| a.try_recv().unwrap().map_or_else(|f| f.status.as_u16(), |p| 200 + p.rows() as u16 - 1))
            .collect();
        // Once together, once alone.
        assert_eq!((status, panics.get(), queue.rows()), (vec![200, 500, 200], 2, 0));
    }
}
