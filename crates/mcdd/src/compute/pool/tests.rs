//! Every task runs once, whoever else uses the pool.

use super::*;
use std::sync::Barrier;

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
fn a_panic_reaches_the_caller_and_the_pool_stays_usable() {
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
fn a_thread_can_run_its_loops_alone() {
    let pool = Pool::new(3);
    let me = thread::current().id();
    let mine = || {
        let elsewhere = AtomicUsize::new(0);
        pool.run(100, &|_| {
            elsewhere.fetch_add(usize::from(thread::current().id() != me), Ordering::Relaxed);
        });
        elsewhere.into_inner() == 0
    };
    assert!(alone_if(true, || alone_if(false, mine)));
    let panicked = catch_unwind(|| alone_if(true, || panic!()));
    assert!(panicked.is_err() && !ALONE.get());
}

#[test]
fn sleeping_workers_wake_up() {
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

/// While one caller is inside a loop, others finish theirs; nobody waits for the whole loop of another caller.
#[test]
fn a_caller_does_not_wait_for_the_loop_of_another() {
    let pool = Pool::new(2);
    let (inside, finished) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Only one of the tasks meets the other caller, who comes when it has finished a loop of its own.
            pool.run(2, &|i| {
                if i == 0 {
                    inside.wait();
                    finished.wait();
                }
            });
        });
        inside.wait();
        let order = Mutex::new(Vec::new());
        pool.run(100, &|i| order.lock().unwrap().push(i));
        assert_eq!(order.into_inner().unwrap(), (0..100).collect::<Vec<_>>());
        finished.wait();
    });
}

/// A caller that began alone gets the workers as soon as they are free.
#[test]
fn a_caller_takes_the_pool_when_it_becomes_free() {
    let pool = Pool::new(2);
    let (inside, leave, left) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            pool.run(2, &|i| {
                if i == 0 {
                    inside.wait();
                    leave.wait();
                }
            });
            left.wait();
        });
        inside.wait();
        let me = thread::current().id();
        let (counts, helped) = ([const { AtomicUsize::new(0) }; 50], AtomicBool::new(false));
        pool.run(50, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
            if i == 0 {
                assert_eq!(thread::current().id(), me);
                leave.wait();
                left.wait();
            } else if thread::current().id() != me {
                helped.store(true, Ordering::Relaxed);
            } else {
                // Ends because the worker joins a loop that is open.
                while !helped.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            }
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
    });
}

#[test]
fn a_task_may_use_its_own_pool() {
    let pool = Pool::new(3);
    let sum = AtomicUsize::new(0);
    pool.run(20, &|i| {
        pool.run(10, &|j| {
            sum.fetch_add(10 * i + j, Ordering::Relaxed);
        });
    });
    assert_eq!(sum.into_inner(), 199 * 200 / 2);
}

#[test]
fn many_callers_at_once_run_every_task_once() {
    let pool = Pool::shared();
    thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || {
                for round in 0..100 {
                    let mut data = vec![0usize; 7 * round + caller];
                    pool.split(chunks(&mut data, 5), |i, part| part.iter_mut().for_each(|v| *v += i + 1));
                    assert!(data.iter().enumerate().all(|(i, &v)| v == i / 5 + 1));
                }
            });
        }
    });
    assert!(std::ptr::eq(pool, Pool::shared()));
}

#[test]
fn a_panic_while_the_pool_is_busy_leaves_it_usable() {
    let pool = Pool::new(2);
    let nested = catch_unwind(AssertUnwindSafe(|| pool.run(4, &|_| pool.run(4, &|j| assert!(j != 2)))));
    assert!(nested.is_err());
    let sum = AtomicUsize::new(0);
    pool.run(100, &|i| {
        sum.fetch_add(i, Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 4950);
}
