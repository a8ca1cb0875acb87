//! What a parallel loop costs beyond its work, in our pool and in rayon: `docs/decisions/0002-own-thread-pool.md`.
//!
//! A step is nine loops of two tasks, each task the same chain of multiplications; between loops the caller works alone
//! for a moment, as between the passes of a network.

use std::hint::black_box;
use std::time::Instant;

use mcdd::compute::pool::Pool;

const LOOPS: usize = 9;

/// About a nanosecond for each round.
fn work(rounds: u32) {
    let mut x = 1.0f32;
    for _ in 0..rounds {
        x = black_box(x * 1.000_001);
    }
}

fn time(mut step: impl FnMut()) -> f64 {
    for _ in 0..50 {
        step();
    }
    let start = Instant::now();
    let n = 300;
    for _ in 0..n {
        step();
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(n)
}

fn main() {
    let ours = Pool::new(2);
    let rayon = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("two threads");
    println!("µs a step: alone (both tasks, one thread), ours, rayon; overhead of ours and of rayon a loop");
    for rounds in [5_000u32, 20_000, 60_000] {
        let gap = 3_000;
        let (mut a, mut b, mut c) = (vec![], vec![], vec![]);
        for _ in 0..7 {
            a.push(time(|| {
                for _ in 0..LOOPS {
                    work(rounds);
                    work(rounds);
                    work(gap);
                }
            }));
            b.push(time(|| {
                for _ in 0..LOOPS {
                    ours.run(2, &|_| work(rounds));
                    work(gap);
                }
            }));
            c.push(rayon.install(|| {
                time(|| {
                    for _ in 0..LOOPS {
                        rayon::join(|| work(rounds), || work(rounds));
                        work(gap);
                    }
                })
            }));
        }
        let median = |v: &mut Vec<f64>| {
            v.sort_by(f64::total_cmp);
            v[v.len() / 2]
        };
        let (a, b, c) = (median(&mut a), median(&mut b), median(&mut c));
        // With no overhead, a loop takes as long as one of its tasks.
        let ideal = a * f64::from(rounds + gap) / f64::from(2 * rounds + gap);
        let over = |v: f64| (v - ideal) / LOOPS as f64;
        println!("{a:8.0} {b:8.0} {c:8.0}   {:6.1} {:6.1}", over(b), over(c));
    }
}
