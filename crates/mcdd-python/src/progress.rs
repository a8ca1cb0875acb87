//! Progress and Ctrl-C while the interpreter is released.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use mcdd::train::{Callback, Epoch};
use pyo3::prelude::*;

/// The time between two looks at signals, and between two calls of the progress function.
const PAUSE: Duration = Duration::from_millis(100);

/// Reports progress to a Python function, and stops training when Python has a signal such as Ctrl-C.
pub(crate) struct Progress {
    /// Called with the number of parts (epochs or cells) that are done, that of all, and a number about the last one.
    function: Option<Py<PyAny>>,
    /// Python runs signal handlers in its main thread only, which is the one that called if any.
    caller: ThreadId,
    done: AtomicUsize,
    all: AtomicUsize,
    stopped: AtomicBool,
    state: Mutex<State>,
}

struct State {
    looked: Instant,
    told: Option<Instant>,
    error: Option<PyErr>,
}

impl Progress {
    pub(crate) fn new(function: Option<Py<PyAny>>) -> Progress {
        Progress {
            function,
            caller: thread::current().id(),
            done: AtomicUsize::new(0),
            all: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            state: Mutex::new(State { looked: Instant::now(), told: None, error: None }),
        }
    }

    /// The exception that stopped training.
    pub(crate) fn into_error(self) -> Option<PyErr> {
        self.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).error
    }

    /// `done` of `all` parts are done already.
    pub(crate) fn begin_at(&self, done: usize, all: usize) {
        self.done.store(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    /// Another part is done; calls the function with a number about it, unless it was called just before.
    pub(crate) fn tell(&self, number: f64) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(function) = &self.function else { return };
        let all = self.all.load(Ordering::Relaxed);
        // Whoever finds the state in use leaves the report to the other thread.
        let Ok(mut state) = self.state.try_lock() else { return };
        if done < all && state.told.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        state.told = Some(Instant::now());
        let called = Python::attach(|py| function.call1(py, (done, all, number)).map(drop));
        if let Err(error) = called {
            self.stop_with(&mut state, error);
        }
    }

    fn stop_with(&self, state: &mut State, error: PyErr) {
        state.error.get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Callback for Progress {
    fn begin(&self, members: usize, epochs: usize, _rows: usize) {
        self.begin_at(0, members * epochs);
    }

    fn epoch(&self, _member: usize, epoch: &Epoch) {
        self.tell(epoch.loss);
    }

    fn stop(&self) -> bool {
        if thread::current().id() == self.caller
            && let Ok(mut state) = self.state.try_lock()
            && state.looked.elapsed() >= PAUSE
        {
            state.looked = Instant::now();
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                self.stop_with(&mut state, error);
            }
        }
        self.stopped.load(Ordering::Relaxed)
    }
}
