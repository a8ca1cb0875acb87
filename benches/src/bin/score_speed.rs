//! How fast a model scores rows that are in memory: all of them, and one at a time.
//!
//! `cargo run --release -p mcdd-benches --bin score_speed MODEL FILE [THREADS [ROUNDS]]`

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use mcdd::compute::pool::Pool;
use mcdd::data::{Batch, ReadOptions};
use mcdd::model::{Model, PredictBuffers, Predictions};

/// Rows that are scored one at a time.
const SINGLE: usize = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut path = || arguments.next().map(PathBuf::from).ok_or("give a model and a file");
    let (model, file) = (Model::load(&path()?)?, path()?);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |a| a.parse::<usize>());
    let (pool, rounds) = (Pool::new(number(2)?), number(5)?);

    let mut reader = model.schema().reader(&file, &ReadOptions::default())?;
    let (mut batch, mut x) = (Batch::default(), Vec::new());
    while reader.next(4096, &mut batch)? {
        x.extend_from_slice(&batch.x);
    }
    let width = model.schema().width();
    let rows = x.len() / width;
    let (mut out, mut buffers) = (Predictions::default(), PredictBuffers::default());
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        model.predict_rows(&x, &mut out, &pool)?;
        all.push(start.elapsed().as_secs_f64());
        black_box(&out);

        let start = Instant::now();
        let single = rows.min(SINGLE);
        for row in x.chunks_exact(width).take(single) {
            model.predict_one(black_box(row), &mut out, &mut buffers)?;
        }
        one.push(start.elapsed().as_secs_f64() / single.max(1) as f64);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (all, one) = (median(&mut all), median(&mut one));
    println!("{rows} rows, {} threads, median of {rounds}", pool.threads());
    println!("all together {all:.3} s, {:.0} rows a second", rows as f64 / all);
    println!("one at a time {:.1} us a row, one thread", 1e6 * one);
    Ok(())
}
