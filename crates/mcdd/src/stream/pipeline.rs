//! Reading, scoring and writing at the same time, without waiting for each other.
//!
//! One thread reads blocks. Each block is cut into a part for each scoring thread. A thread that is done with a part takes the
//! next one, of whichever block, so none waits until the others are done with a block. The calling thread puts the parts
//! together and hands out the blocks in order. The number of blocks between reading and handing out is limited.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::blocks::{BLOCK_ROWS, Blocks};
use crate::compute::pool::{Pool, alone_if};
use crate::data::{Batch, Notices};
use crate::error::{Error, Result};
use crate::model::{Model, Predictions};

/// Blocks between reading and handing out.
const BLOCKS: usize = 4;

/// A part of a block: its rows, and where its predictions belong.
struct Part {
    batch: Arc<Batch>,
    /// Its numbers in [`Batch::x`].
    x: Range<usize>,
    block: usize,
    part: usize,
}

/// What the threads report.
enum Message {
    /// The next block, or why there is none.
    Read(Result<Batch>),
    /// All blocks have been read.
    End(Notices),
    Scored {
        block: usize,
        part: usize,
        predictions: Result<Predictions>,
    },
    Panicked(Box<dyn Any + Send>),
}

/// A block whose parts are being scored.
struct Waiting {
    batch: Arc<Batch>,
    parts: Vec<Option<Result<Predictions>>>,
    missing: usize,
}

/// See [`predict_each`](super::predict_each).
pub(super) fn predict_blocks<E: From<Error>>(
    model: &Model,
    mut source: impl Blocks,
    distances: bool,
    threads: usize,
    mut each: impl FnMut(&Batch, &Predictions) -> Result<(), E>,
) -> Result<Notices, E> {
    let (report, messages) = channel::<Message>();
    let (give_back, spare) = channel::<Batch>();
    let (to_score, parts) = channel::<Part>();
    let parts = Mutex::new(parts);
    // Blocks that have been read and are not scored.
    let unscored = AtomicUsize::new(0);
    let width = model.schema().width();
    let work = Work { model, width, distances, threads: threads.max(1), unscored: &unscored };
    thread::scope(|scope| {
        for thread in 0..work.threads {
            let (report, parts, work) = (report.clone(), &parts, &work);
            let scoring = thread::Builder::new().spawn_scoped(scope, move || work.score(parts, &report));
            // If the system gives no more threads, those that run do all the work.
            if let Err(error) = scoring {
                assert!(thread > 0, "no thread can be started: {error}");
                break;
            }
        }
        let (read, unscored) = (report, &unscored);
        scope.spawn(move || {
            let all = catch_unwind(AssertUnwindSafe(|| read_blocks(&mut source, &spare, &read, unscored)));
            if let Err(panic) = all {
                let _ = read.send(Message::Panicked(panic));
            }
        });
        for _ in 0..BLOCKS {
            let _ = give_back.send(Batch::default());
        }
        // When this ends, `give_back` and `to_score` are dropped, which ends the threads.
        work.hand_out(&messages, give_back, to_score, &mut each)
    })
}

/// Reads blocks into the spare ones until there are no more, or nobody waits for them.
fn read_blocks(source: &mut impl Blocks, spare: &Receiver<Batch>, read: &Sender<Message>, unscored: &AtomicUsize) {
    while let Ok(mut batch) = spare.recv() {
        // While others score, reading takes one thread.
        let busy = unscored.load(Ordering::Relaxed) > 0;
        let message = match alone_if(busy, || source.next_block(BLOCK_ROWS, &mut batch)) {
            Ok(true) => Message::Read(Ok(batch)),
            Ok(false) => Message::End(source.notices()),
            Err(error) => Message::Read(Err(error)),
        };
        let last = !matches!(message, Message::Read(Ok(_)));
        unscored.fetch_add(1, Ordering::Relaxed);
        if read.send(message).is_err() || last {
            return;
        }
    }
}

struct Work<'a> {
    model: &'a Model,
    width: usize,
    /// Whether distances are wanted.
    distances: bool,
    threads: usize,
    unscored: &'a AtomicUsize,
}

impl Work<'_> {
    /// Scores parts until there are no more.
    fn score(&self, parts: &Mutex<Receiver<Part>>, report: &Sender<Message>) {
        let alone = Pool::new(1);
        loop {
            let next = parts.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Part { batch, x, block, part }) = next else { return };
            let scored = catch_unwind(AssertUnwindSafe(|| {
                let mut predictions = Predictions::default();
                self.model.predict_part(&batch.x[x], self.distances, &mut predictions, &alone).map(|()| predictions)
            }));
            // Given back before the block is complete, so that its memory can be used again.
            drop(batch);
            let message = match scored {
                Ok(predictions) => Message::Scored { block, part, predictions },
                Err(panic) => Message::Panicked(panic),
            };
            if report.send(message).is_err() {
                return;
            }
        }
    }

    /// The parts of a block. A block that is not whole rows is one part, which fails.
    fn parts(&self, batch: &Arc<Batch>, block: usize) -> Vec<Part> {
        let all = batch.x.len();
        let length = (all / self.width).div_ceil(self.threads).max(1) * self.width;
        let whole = all.is_multiple_of(self.width) && all > 0;
        let count = if whole { all.div_ceil(length) } else { 1 };
        let range = |part: usize| if whole { part * length..all.min((part + 1) * length) } else { 0..all };
        (0..count).map(|part| Part { batch: Arc::clone(batch), x: range(part), block, part }).collect()
    }

    fn hand_out<E: From<Error>>(
        &self,
        messages: &Receiver<Message>,
        give_back: Sender<Batch>,
        to_score: Sender<Part>,
        each: &mut impl FnMut(&Batch, &Predictions) -> Result<(), E>,
    ) -> Result<Notices, E> {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        // The number of blocks that were handed out, and what comes after the last one.
        let (mut done, mut end) = (0, None);
        loop {
            while waiting.front().is_some_and(|block| block.missing == 0)
                && let Some(block) = waiting.pop_front()
            {
                done += 1;
                let mut parts = block.parts.into_iter().flatten();
                let mut all = parts.next().unwrap_or_else(|| Ok(Predictions::default()))?;
                for part in parts {
                    all.append(part?);
                }
                each(&block.batch, &all)?;
                if let Ok(batch) = Arc::try_unwrap(block.batch) {
                    let _ = give_back.send(batch);
                } else {
                    let _ = give_back.send(Batch::default());
                }
            }
            if waiting.is_empty()
                && let Some(end) = end.take()
            {
                return Ok(end?);
            }
            // The threads report until they are told to end.
            let Ok(message) = messages.recv() else { return Ok(Notices::new()) };
            match message {
                Message::Read(Ok(batch)) => {
                    let batch = Arc::new(batch);
                    let parts = self.parts(&batch, done + waiting.len());
                    let results = parts.iter().map(|_| None).collect();
                    waiting.push_back(Waiting { batch, missing: parts.len(), parts: results });
                    for part in parts {
                        let _ = to_score.send(part);
                    }
                }
                Message::Read(Err(error)) => end = Some(Err(error)),
                Message::End(notices) => end = Some(Ok(notices)),
                Message::Scored { block, part, predictions } => {
                    if let Some(block) = waiting.get_mut(block - done) {
                        block.parts[part] = Some(predictions);
                        block.missing -= 1;
                        if block.missing == 0 {
                            self.unscored.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                }
                Message::Panicked(panic) => resume_unwind(panic),
            }
        }
    }
}
