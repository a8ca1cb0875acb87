//! A parallel map over a few long tasks, on threads of their own.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work(0)` to `work(count - 1)`, up to `threads` at a time, and returns the results in order.
pub(crate) fn parallel_map<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if threads <= 1 || count <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return done;
            }
            done.push((i, work(i)));
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        // If the system gives no more threads, those that run do all the work.
        let others =
            (1..threads.min(count)).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, worker).ok());
        let others: Vec<_> = others.collect();
        let mut all = worker();
        for other in others {
            all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_for_any_number_of_threads() {
        for threads in [0, 1, 2, 7] {
            assert_eq!(parallel_map(23, threads, |i| i * i), (0..23).map(|i| i * i).collect::<Vec<_>>());
        }
        assert!(parallel_map(0, 3, |i| i).is_empty());
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let run = || parallel_map(9, 3, |i| assert!(i != 5));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
