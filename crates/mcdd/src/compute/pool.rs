//! A small pool of threads for parallel loops of a few hundred microseconds.
//!
//! A training step of an MLP is three loops of 20 to 300 µs. A sleeping thread wakes later than that, so the
//! workers here spin for a moment before they sleep, and a loop never waits for a worker that has not joined it.
//! Each thread has its share of the tasks, and takes from the others' when it is done. Tasks write to disjoint parts, so
//! results do not depend on who does what.
//! `docs/decisions/0002-own-thread-pool.md` has the measurement against rayon.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Spins of about 30 ns before a worker sleeps: longer than any gap inside a step, too short to be felt.
const SPINS: u32 = 4000;
/// In `gate`: the loop takes workers.
const OPEN: u64 = 1 << 15;
/// In `gate`: how many workers are inside.
const INSIDE: u64 = OPEN - 1;
/// In `gate`: one loop further.
const NEXT: u64 = 1 << 16;

/// A counter on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicUsize);

type Task<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    /// Loop number, OPEN, and the count of workers inside: one word, so that a worker joins a loop or finds it shut.
    gate: AtomicU64,
    /// The next task of each thread's own share.
    next: Vec<Counter>,
    tasks: AtomicUsize,
    /// The loop body; valid while a loop is open or a worker is inside.
    body: Mutex<Option<*const Task<'static>>>,
    panicked: AtomicBool,
    stop: AtomicBool,
    asleep: Vec<AtomicBool>,
}

// SAFETY: the pointer in `body` is used only between the opening of a loop and the moment when its caller has seen
// every worker leave, and it points to a `Sync` closure that lives on the caller's stack for that long.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Shared {
    /// Where the share of thread `t` begins: the same tasks go to the same thread in every loop, as their data are in
    /// its cache.
    fn share(&self, t: usize, tasks: usize) -> usize {
        tasks * t / self.next.len()
    }

    /// Does the thread's own share, then what others have left of theirs.
    fn work(&self, me: usize, body: &Task) {
        let tasks = self.tasks.load(Ordering::Relaxed);
        let threads = self.next.len();
        for t in (me..threads).chain(0..me) {
            let end = self.share(t + 1, tasks);
            // Looked at before it is taken, so that a counter stays within bounds of the next loops.
            while self.next[t].0.load(Ordering::Relaxed) < end {
                let i = self.next[t].0.fetch_add(1, Ordering::Relaxed);
                if i < end {
                    body(i);
                }
            }
        }
    }

    fn worker(&self, me: usize) {
        let mut seen = 0;
        let mut idle = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let gate = self.gate.load(Ordering::Acquire);
            if gate & OPEN != 0 && gate / NEXT != seen {
                if self.gate.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
                seen = gate / NEXT;
                idle = 0;
                let body = *self.body.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(body) = body {
                    // SAFETY: this worker is counted in `gate`, so the caller of `run` still waits; see `Shared`.
                    let body = unsafe { &*body };
                    if catch_unwind(AssertUnwindSafe(|| self.work(me + 1, body))).is_err() {
                        self.panicked.store(true, Ordering::Relaxed);
                    }
                }
                self.gate.fetch_sub(1, Ordering::AcqRel);
            } else if idle < SPINS {
                idle += 1;
                std::hint::spin_loop();
            } else {
                self.asleep[me].store(true, Ordering::SeqCst);
                let gate = self.gate.load(Ordering::SeqCst);
                if (gate & OPEN == 0 || gate / NEXT == seen) && !self.stop.load(Ordering::SeqCst) {
                    thread::park();
                }
                self.asleep[me].store(false, Ordering::SeqCst);
                idle = 0;
            }
        }
    }
}

/// Threads that run parallel loops; the calling thread is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    handles: Vec<thread::JoinHandle<()>>,
    turn: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` threads in all, at least one.
    pub fn new(threads: usize) -> Pool {
        let workers = threads.clamp(1, 256) - 1;
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            next: (0..=workers).map(|_| Counter::default()).collect(),
            tasks: AtomicUsize::new(0),
            body: Mutex::new(None),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let handles = (0..workers)
            .map_while(|me| {
                let shared = Arc::clone(&shared);
                // Where the system gives no more threads, fewer do the same work.
                thread::Builder::new().name(format!("mcdd-{me}")).spawn(move || shared.worker(me)).ok()
            })
            .collect();
        Pool { shared, handles, turn: Mutex::new(()) }
    }

    /// How many threads work on a loop.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `body(i)` once for each `i` in `0..tasks`, on all threads, and returns when all are done.
    pub fn run(&self, tasks: usize, body: &Task) {
        if self.handles.is_empty() || tasks <= 1 {
            (0..tasks).for_each(body);
            return;
        }
        // One loop at a time; a panic in an earlier loop leaves nothing half-done.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let s = &*self.shared;
        for (t, next) in s.next.iter().enumerate() {
            next.0.store(s.share(t, tasks), Ordering::Relaxed);
        }
        s.tasks.store(tasks, Ordering::Relaxed);
        // SAFETY: only the lifetime is changed; this function does not return before every worker has left the loop.
        let erased = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(body) };
        *s.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(erased);
        s.gate.fetch_add(NEXT | OPEN, Ordering::SeqCst);
        for (asleep, handle) in s.asleep.iter().zip(&self.handles) {
            if asleep.load(Ordering::SeqCst) {
                handle.thread().unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(|| s.work(0, body)));
        s.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while s.gate.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins.is_multiple_of(1024) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        assert!(!s.panicked.swap(false, Ordering::Relaxed), "a parallel task panicked");
    }

    /// Calls `body(i, part i)` for each part of `parts`, which are disjoint pieces of mutable slices.
    pub fn split<P: Parts>(&self, parts: P, body: impl Fn(usize, P::Part) + Sync) {
        let parts = &parts;
        self.run(parts.count(), &|i| {
            // SAFETY: `run` hands out each index once.
            body(i, unsafe { parts.part(i) });
        });
    }

    /// A chunk length that gives each thread equal parts of `n` items, in multiples of `unit`.
    pub fn chunk(&self, n: usize, unit: usize) -> usize {
        let units = n.div_ceil(unit).max(1);
        // Long loops are cut finer, so that a thread that is held up does not hold up the others.
        let parts = if units >= 64 * self.threads() { 8 * self.threads() } else { self.threads() };
        units.div_ceil(parts) * unit
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for handle in self.handles.drain(..) {
            handle.thread().unpark();
            let _ = handle.join();
        }
    }
}

/// Disjoint pieces of mutable data, one for each task of a loop.
pub trait Parts: Sync {
    /// One piece.
    type Part;
    /// How many pieces there are.
    fn count(&self) -> usize;
    /// Piece `i`.
    ///
    /// # Safety
    /// Each `i` may be taken once.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// The chunks of a slice; the last may be shorter.
pub struct Chunks<'a, T> {
    start: *mut T,
    length: usize,
    chunk: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Chunks` is an exclusive borrow of a slice, handed out in disjoint pieces.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

/// Cuts `data` into chunks of `chunk` items.
pub fn chunks<T>(data: &mut [T], chunk: usize) -> Chunks<'_, T> {
    Chunks { start: data.as_mut_ptr(), length: data.len(), chunk: chunk.max(1), owner: PhantomData }
}

impl<'a, T: Send> Parts for Chunks<'a, T> {
    type Part = &'a mut [T];

    fn count(&self) -> usize {
        self.length.div_ceil(self.chunk)
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        // A part beyond the end is empty: in a pair, the longer side sets the count.
        let from = i.saturating_mul(self.chunk).min(self.length);
        let to = from.saturating_add(self.chunk).min(self.length);
        // SAFETY: in bounds, and disjoint from every other part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), to - from) }
    }
}

/// Pieces of different lengths: piece `i` ends where `ends[i]` says and begins where the one before ends.
pub struct Pieces<'a, T> {
    start: *mut T,
    ends: &'a [usize],
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: as for `Chunks`.
unsafe impl<T: Send> Sync for Pieces<'_, T> {}

/// Cuts `data` at `ends`, which must ascend and end within it.
pub fn pieces<'a, T>(data: &'a mut [T], ends: &'a [usize]) -> Pieces<'a, T> {
    assert!(ends.is_sorted() && ends.last().is_none_or(|&e| e <= data.len()));
    Pieces { start: data.as_mut_ptr(), ends, owner: PhantomData }
}

impl<'a, T: Send> Parts for Pieces<'a, T> {
    type Part = &'a mut [T];

    fn count(&self) -> usize {
        self.ends.len()
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        let from = if i == 0 { 0 } else { self.ends[i - 1] };
        // SAFETY: in bounds by the check in `pieces`, and disjoint from every other part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), self.ends[i] - from) }
    }
}

impl<A: Parts, B: Parts> Parts for (A, B) {
    type Part = (A::Part, B::Part);

    fn count(&self) -> usize {
        self.0.count().max(self.1.count())
    }

    unsafe fn part(&self, i: usize) -> Self::Part {
        // SAFETY: the caller's promise covers both.
        unsafe { (self.0.part(i), self.1.part(i)) }
    }
}

impl<A: Parts, B: Parts, C: Parts> Parts for (A, B, C) {
    type Part = (A::Part, B::Part, C::Part);

    fn count(&self) -> usize {
        self.0.count().max(self.1.count()).max(self.2.count())
    }

    unsafe fn part(&self, i: usize) -> Self::Part {
        // SAFETY: the caller's promise covers all three.
        unsafe { (self.0.part(i), self.1.part(i), self.2.part(i)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_and_parts_are_disjoint() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads);
            for round in 0..200 {
                let n = round * 7 % 97;
                let (mut a, mut b) = (vec![0u32; n], vec![0u8; n / 3]);
                pool.split((chunks(&mut a, 4), chunks(&mut b, 2)), |i, (a, b)| {
                    a.iter_mut().for_each(|v| *v += i as u32 + 1);
                    b.iter_mut().for_each(|v| *v += 1);
                });
                assert!(a.iter().enumerate().all(|(i, &v)| v as usize == i / 4 + 1));
                assert!(b.iter().all(|&v| v == 1));
            }
        }
    }

    #[test]
    fn pieces_cover_everything_once() {
        let pool = Pool::new(3);
        let mut data = vec![0u32; 10];
        pool.split(pieces(&mut data, &[3, 3, 10]), |i, part| part.iter_mut().for_each(|v| *v += i as u32 + 1));
        assert_eq!(data, [1, 1, 1, 3, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(100, &|i| assert!(i != 57))));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(100, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 4950);
    }

    #[test]
    fn workers_that_fell_asleep_come_back() {
        let pool = Pool::new(2);
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(5));
            let sum = AtomicUsize::new(0);
            pool.run(50, &|_| {
                sum.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 50);
        }
    }
}
