//! How fast a file becomes a table: the best of some rounds.
//!
//! `cargo run --release -p mcdd-benches --bin read_speed FILE [ROUNDS]`

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use mcdd::data::{Label, ReadOptions, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("give a file")?);
    let rounds = arguments.next().map_or(Ok(7), |a| a.parse::<usize>())?;
    let options = ReadOptions { label: Label::None, ..ReadOptions::default() };
    let mut best = f64::INFINITY;
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        black_box(Table::read(std::slice::from_ref(&path), &options)?);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{:.1} ms", 1e3 * best);
    Ok(())
}
