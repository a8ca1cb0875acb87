//! A small thread pool for parallel loops of a few hundred microseconds.
//!
//! A training step of an MLP is three loops of 20 to 300 µs. A sleeping thread takes longer than that to wake, so
//! the workers spin for a moment before they sleep, and a loop never waits for a worker that has not joined it.
//! Each thread has its own part of the tasks and takes tasks from the other threads when it is done. Tasks write to
//! disjoint data, so the results do not depend on which thread runs which task.
//! `docs/decisions/0002-own-thread-pool.md` has the measurement against rayon.
//!
//! Many threads may use one pool at the same time ([`Pool::shared`] is the pool of the whole process). A pool runs one
//! loop at a time. A caller that finds it busy runs its own tasks on its own thread, and tries to get the pool again
//! after each task, so no caller waits for the loop of another one. For the same reason a task may use the pool that
//! runs it.
//!
//! ```
//! use mcdd::compute::pool::{Pool, chunks};
//!
//! let mut squares = vec![0usize; 1000];
//! Pool::shared().split(chunks(&mut squares, 100), |i, part| {
//!     part.iter_mut().zip(100 * i..).for_each(|(to, n)| *to = n * n);
//! });
//! assert_eq!(squares[31], 961);
//! ```

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// Spins of about 30 ns before a worker sleeps: longer than any gap inside a training step, and short enough not to
/// waste a core.
const SPINS: u32 = 4000;
/// Bit of `gate`: workers may join the loop.
const OPEN: u64 = 1 << 15;
/// Bits of `gate`: the number of workers inside the loop.
const INSIDE: u64 = OPEN - 1;
/// Added to `gate` for each new loop.
const NEXT: u64 = 1 << 16;

thread_local! {
    /// Whether loops of this thread run on it alone.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`; if `alone`, the loops that it runs on any pool use this thread only. For work beside other threads that keep
/// all cores busy: sharing it with them would be waiting for them.
pub(crate) fn alone_if<T>(alone: bool, work: impl FnOnce() -> T) -> T {
    /// Back to what it was, also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            ALONE.set(self.0);
        }
    }
    let _before = Before(ALONE.replace(alone || ALONE.get()));
    work()
}

/// A counter on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicUsize);

type Task<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    /// Loop number, OPEN, and the number of workers inside: one word, so that a worker either joins a loop or sees
    /// that it is closed.
    gate: AtomicU64,
    /// The next task in each thread's own part.
    next: Vec<Counter>,
    /// The first task of the loop, and the end of its tasks.
    first: AtomicUsize,
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
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The start of the part of thread `t`. The same tasks go to the same thread in every loop, because their data
    /// are in its cache.
    fn start(&self, t: usize, first: usize, tasks: usize) -> usize {
        first + (tasks - first) * t / self.next.len()
    }

    /// Runs the tasks of the thread's own part, then those that other threads have not started.
    fn work(&self, me: usize, body: &Task) {
        let (first, tasks) = (self.first.load(Ordering::Relaxed), self.tasks.load(Ordering::Relaxed));
        let threads = self.next.len();
        for t in (me..threads).chain(0..me) {
            let end = self.start(t + 1, first, tasks);
            // Checked before it is incremented, so that the counter cannot overflow.
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

/// Threads that run parallel loops. The calling thread is one of them.
pub struct Pool {
    shared: Arc<Shared>,
    handles: Vec<thread::JoinHandle<()>>,
    /// Whether a loop is running.
    busy: AtomicBool,
}

/// The right to run a loop; given back when dropped, also by a panic.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Pool {
    /// A pool of `threads` threads (between 1 and 256), the calling thread included.
    pub fn new(threads: usize) -> Pool {
        let workers = threads.clamp(1, 256) - 1;
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            next: (0..=workers).map(|_| Counter::default()).collect(),
            first: AtomicUsize::new(0),
            tasks: AtomicUsize::new(0),
            body: Mutex::new(None),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let handles = (0..workers)
            .map_while(|me| {
                let shared = Arc::clone(&shared);
                // If the system refuses more threads, fewer of them do the same work.
                thread::Builder::new().name(format!("mcdd-{me}")).spawn(move || shared.worker(me)).ok()
            })
            .collect();
        Pool { shared, handles, busy: AtomicBool::new(false) }
    }

    /// The pool of the whole process, with a thread for each core that is available. It is made at the first call.
    pub fn shared() -> &'static Pool {
        // Files are read to find the number of cores; once is enough.
        static CORES: OnceLock<usize> = OnceLock::new();
        Self::shared_with(*CORES.get_or_init(|| thread::available_parallelism().map_or(1, Into::into)))
    }

    /// The pool of the whole process, with this many threads if this is the first call.
    pub fn shared_with(threads: usize) -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(|| Pool::new(threads))
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Takes the pool if no loop is running on it.
    fn turn(&self) -> Option<Turn<'_>> {
        let free = self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Not `then_some`: dropping an unused `Turn` would release the pool.
        free.then(|| Turn(&self.busy))
    }

    /// Calls `body(i)` once for each `i` in `0..tasks` on all threads, and returns when all calls have returned.
    ///
    /// While another loop is running on the pool, the tasks run one after another on the calling thread.
    pub fn run(&self, tasks: usize, body: &Task) {
        let mut first = 0;
        let _turn = loop {
            if self.handles.is_empty() || tasks - first <= 1 || ALONE.get() {
                return (first..tasks).for_each(body);
            }
            match self.turn() {
                Some(turn) => break turn,
                None => body(first),
            }
            first += 1;
        };
        let s = &*self.shared;
        for (t, next) in s.next.iter().enumerate() {
            next.0.store(s.start(t, first, tasks), Ordering::Relaxed);
        }
        s.first.store(first, Ordering::Relaxed);
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
        // Taken in either case, so that the next loop does not report the panic of this one.
        let theirs = s.panicked.swap(false, Ordering::Relaxed);
        if let Err(panic) = mine {
            resume_unwind(panic);
        }
        assert!(!theirs, "a parallel task panicked");
    }

    /// Calls `body(i, part i)` for each part of `parts`, which are disjoint parts of mutable slices.
    pub fn split<P: Parts>(&self, parts: P, body: impl Fn(usize, P::Part) + Sync) {
        let parts = &parts;
        self.run(parts.count(), &|i| {
            // SAFETY: `run` hands out each index once.
            body(i, unsafe { parts.part(i) });
        });
    }

    /// A chunk length that gives each thread an equal part of `n` items, in multiples of `unit`.
    pub fn chunk(&self, n: usize, unit: usize) -> usize {
        let units = n.div_ceil(unit).max(1);
        // Long loops have more chunks, so that a thread that is interrupted does not delay the others.
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

/// Disjoint parts of mutable data, one for each task of a loop.
pub trait Parts: Sync {
    /// The type of a part.
    type Part;
    /// The number of parts.
    fn count(&self) -> usize;
    /// Part `i`.
    ///
    /// # Safety
    /// Each `i` may be taken only once.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// The chunks of a slice; the last may be shorter.
pub struct Chunks<'a, T> {
    start: *mut T,
    length: usize,
    chunk: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Chunks` is an exclusive borrow of a slice, handed out in disjoint parts.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

/// Splits `data` into chunks of `chunk` items.
pub fn chunks<T>(data: &mut [T], chunk: usize) -> Chunks<'_, T> {
    Chunks { start: data.as_mut_ptr(), length: data.len(), chunk: chunk.max(1), owner: PhantomData }
}

impl<'a, T: Send> Parts for Chunks<'a, T> {
    type Part = &'a mut [T];

    fn count(&self) -> usize {
        self.length.div_ceil(self.chunk)
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        // A part past the end is empty: in a pair, the longer side determines the count.
        let from = i.saturating_mul(self.chunk).min(self.length);
        let to = from.saturating_add(self.chunk).min(self.length);
        // SAFETY: in bounds, and disjoint from every other part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), to - from) }
    }
}

/// Parts of different lengths: part `i` ends at `ends[i]` and starts where the one before it ends.
pub struct Pieces<'a, T> {
    start: *mut T,
    ends: &'a [usize],
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: as for `Chunks`.
unsafe impl<T: Send> Sync for Pieces<'_, T> {}

/// Splits `data` at `ends`, which must be ascending and within its length.
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
mod tests;
